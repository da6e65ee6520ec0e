//! Frees the space of expired keys in the background.

use std::sync::Arc;
use std::time::Duration;

use engine::keyspace::{self, Keyspace};
use tokio::task::spawn_blocking;
use tokio::time::MissedTickBehavior;

/// The interval between passes, as in Redis. Clients never see an expired key, removed or not.
const EVERY: Duration = Duration::from_millis(100);
/// The number of batches before it yields to other work.
const BATCHES_AT_ONCE: usize = 32;

/// Removes expired keys for as long as it is polled.
pub(super) async fn remove_expired(keyspace: Arc<Keyspace>) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        ticks.tick().await;
        let keyspace = Arc::clone(&keyspace);
        let removed = spawn_blocking(move || some_batches(&keyspace)).await;
        let failure = match removed {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(panicked) => Some(panicked.to_string()),
        };
        if let Some(error) = &failure
            && !failing
        {
            tracing::warn!("removing expired keys failed and is tried again: {error}");
        }
        failing = failure.is_some();
    }
}

fn some_batches(keyspace: &Keyspace) -> keyspace::Result<()> {
    for _ in 0..BATCHES_AT_ONCE {
        if !keyspace.remove_expired()? {
            break;
        }
    }
    Ok(())
}

//! The thread that brings blocks of a pool's log in place.

use std::sync::Arc;
use std::thread::JoinHandle;

use pool::logged::Logged;
use volume::Clock;
use volume::heartbeat::{Heartbeat, SILENCE_MAX, TaskHealth};
use volume::task::block_on;

use crate::stop::Stop;

/// The thread. Dropping this ends it: what it began is ended by the next opening at the latest.
pub(super) struct Recycling {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
    heartbeat: Heartbeat,
}

impl Recycling {
    pub(super) fn start(logged: Logged, clock: Clock) -> Self {
        let stop = Arc::new(Stop::default());
        let heartbeat = Heartbeat::new("writing blocks in place", SILENCE_MAX, &clock);
        let (stopped, beating) = (Arc::clone(&stop), heartbeat.clone());
        let thread = std::thread::Builder::new()
            .name("in place".into())
            .spawn(move || {
                let rounds = || logged.run(&clock, &beating);
                beating.supervise(|| block_on(stopped.or_end_of(rounds())));
            })
            .expect("the system has room for one more thread");
        Self { stop, thread: Some(thread), heartbeat }
    }

    pub(super) fn health(&self) -> TaskHealth {
        self.heartbeat.health()
    }
}

impl Drop for Recycling {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            // A panic is reported by the panic hook already.
            let _ = thread.join();
        }
    }
}

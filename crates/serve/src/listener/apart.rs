//! Connections on threads of their own, which wait for their clients and for their volumes at once.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;

use engine::block::host::{Host, turn};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Builder;

/// Starts a thread that runs what `work` returns to its end. Transfers to volumes that begin there end there, too, without
/// a switch between threads.
pub(super) fn spawn<F: Future<Output = ()>>(
    name: &str,
    work: impl FnOnce() -> F + Send + 'static,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().on_thread_park(turn).build()?;
    let run = move || {
        let host = Host::begin();
        runtime.block_on(async {
            match host.as_ref().map(Host::readiness) {
                Ok(Ok(readiness)) => {
                    tokio::select! {
                        biased;
                        () = work() => {}
                        () = ends(readiness) => {}
                    }
                }
                // Without a ring here, or a descriptor for it, transfers go through the threads of their volumes.
                _ => work().await,
            }
        });
    };
    thread::Builder::new().name(name.into()).spawn(run).map(drop)
}

/// Ends transfers whenever the kernel has some; never returns.
async fn ends(readiness: OwnedFd) {
    #[expect(deprecated, reason = "it is sound: the descriptor is owned, and stays the same")]
    let ready = AsyncFd::with_interest(readiness, Interest::READABLE);
    match ready {
        Ok(ready) => loop {
            match ready.readable().await {
                Ok(mut guard) => guard.clear_ready(),
                Err(_) => return std::future::pending().await,
            }
            turn();
        },
        Err(_) => std::future::pending().await,
    }
}

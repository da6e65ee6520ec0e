//! Ctrl-C and SIGTERM, for work that cleans up after itself.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

/// The exit status after an interrupt.
pub(crate) const STATUS: u8 = 130;

/// Listens for signals while it lives. The first one requests a stop, the second ends the program.
pub(crate) struct Interrupt {
    asked: Arc<AtomicBool>,
    _runtime: Runtime,
}

impl Interrupt {
    pub(crate) fn listen() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let inside = runtime.enter();
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        drop(inside);
        let asked = Arc::new(AtomicBool::new(false));
        let ask = Arc::clone(&asked);
        runtime.spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if ask.swap(true, Ordering::Relaxed) {
                    std::process::exit(STATUS.into());
                }
                eprintln!("stopping and cleaning up; a second signal ends the program at once");
            }
        });
        Ok(Self { asked, _runtime: runtime })
    }

    /// Set once a stop is requested.
    pub(crate) fn asked(&self) -> &AtomicBool {
        &self.asked
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}

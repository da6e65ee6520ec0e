//! Threads that tend a pool once a second.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use volume::Clock;
use volume::heartbeat::{Heartbeat, SILENCE_MAX, TaskHealth};

use crate::stop::ThreadStop;

const EVERY: Duration = Duration::from_secs(1);

/// A thread that repeats its work each second. Dropping this ends it.
pub(crate) struct EverySecond {
    stop: Arc<ThreadStop>,
    thread: Option<JoinHandle<()>>,
    heartbeat: Heartbeat,
}

impl EverySecond {
    /// Starts a thread of this name. The first time is now.
    pub(crate) fn start(
        task: &'static str,
        clock: &Clock,
        mut work: impl FnMut() + Send + 'static,
    ) -> Self {
        let stop = Arc::new(ThreadStop::default());
        let stopped = Arc::clone(&stop);
        let heartbeat = Heartbeat::new(task, SILENCE_MAX, clock);
        let beating = heartbeat.clone();
        let thread = std::thread::Builder::new()
            .name(task.into())
            .spawn(move || {
                beating.supervise(|| {
                    loop {
                        work();
                        beating.completed();
                        if !stopped.wait(EVERY) {
                            return;
                        }
                    }
                });
            })
            .expect("the system has room for one more thread");
        Self { stop, thread: Some(thread), heartbeat }
    }

    pub(crate) fn health(&self) -> TaskHealth {
        self.heartbeat.health()
    }
}

impl Drop for EverySecond {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            // The thread fails only by a panic, which was reported.
            let _ = thread.join();
        }
    }
}

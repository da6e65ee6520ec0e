//! A thread that looks at a pool's volumes once a second: for placement, and to keep what their gates learned.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use pool::spread::Spread;
use volume::Clock;
use volume::heartbeat::{Heartbeat, SILENCE_MAX, TaskHealth};

use super::load_sampler::LoadSampler;
use crate::stop::ThreadStop;
use crate::volumes::Devices;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks between two writes of what the gates learned: once a minute.
const LEARNED_EVERY: u32 = 60;

/// The thread. Dropping this ends it.
pub(super) struct Tending {
    stop: Arc<ThreadStop>,
    thread: Option<JoinHandle<()>>,
    heartbeat: Heartbeat,
}

impl Tending {
    pub(super) fn start(pool: Spread, devices: Devices, clock: Clock) -> Self {
        let stop = Arc::new(ThreadStop::default());
        let stopped = Arc::clone(&stop);
        let heartbeat = Heartbeat::new("sampling loads", SILENCE_MAX, &clock);
        let beating = heartbeat.clone();
        let mut sampler = LoadSampler::new(devices.clone(), pool, clock);
        let thread = std::thread::Builder::new()
            .name("pool".into())
            .spawn(move || {
                beating.supervise(|| {
                    for look in 1_u32.. {
                        sampler.look();
                        if look.is_multiple_of(LEARNED_EVERY) {
                            devices.here().iter().for_each(|device| device.keep_learned());
                        }
                        beating.completed();
                        if !stopped.wait(LOOK_EVERY) {
                            return;
                        }
                    }
                });
            })
            .expect("the system has room for one more thread");
        Self { stop, thread: Some(thread), heartbeat }
    }

    pub(super) fn health(&self) -> TaskHealth {
        self.heartbeat.health()
    }
}

impl Drop for Tending {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            // The thread fails only by a panic, which was reported.
            let _ = thread.join();
        }
    }
}

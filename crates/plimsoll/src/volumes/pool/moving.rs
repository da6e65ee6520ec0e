//! The rebalancer: a thread that copies and drops tables of a pool.

use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use policy::migrate::{Policy, Terms};
use pool::mover::{Figures, GateLoad, Mover};
use pool::spread::Spread;
use volume::Clock;
use volume::heartbeat::{Heartbeat, TaskHealth};
use volume::task::block_on;

use crate::stop::Stop;
use crate::volumes::{Device, Devices};

/// The thread. Dropping this ends it, and cancels its work.
pub(super) struct Moving {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
    figures: Arc<Mutex<Figures>>,
    heartbeat: Heartbeat,
}

impl Moving {
    pub(super) fn start(
        pool: Spread,
        devices: Devices,
        clock: Clock,
        policy: Policy,
        terms: Terms,
    ) -> Self {
        let mover = Mover::new(pool.clone(), clock, policy, terms);
        let (stop, figures) = (Arc::new(Stop::default()), mover.figures());
        let heartbeat = mover.heartbeat();
        let beating = heartbeat.clone();
        let stopped = Arc::clone(&stop);
        let look = move || {
            let volumes = pool.volumes().into_iter();
            let load = |volume: pool::spread::VolumeStat| {
                let below = devices.below(&volume.label);
                let of = |device: &Arc<Device>| GateLoad::of(volume.id, &device.gate().meter());
                below.iter().map(of).reduce(together)
            };
            volumes.filter_map(load).collect()
        };
        let thread = std::thread::Builder::new()
            .name("mover".into())
            .spawn(move || beating.supervise(|| block_on(stopped.or_end_of(mover.run(look)))))
            .expect("the system has room for one more thread");
        Self { stop, thread: Some(thread), figures, heartbeat }
    }

    pub(super) fn health(&self) -> TaskHealth {
        self.heartbeat.health()
    }

    pub(super) fn figures(&self) -> Figures {
        self.figures.lock().clone()
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            // A panic is reported by the panic hook already.
            let _ = thread.join();
        }
    }
}

/// The load of a member that is a pool, of two below it.
fn together(a: GateLoad, b: GateLoad) -> GateLoad {
    let both = |a: Option<f64>, b: Option<f64>| Some(a? + b?);
    GateLoad {
        volume: a.volume,
        line: both(a.line, b.line),
        line_bytes: both(a.line_bytes, b.line_bytes),
        answer: a.answer.max(b.answer),
        granted: a.granted.plus(b.granted),
        reads: a.reads + b.reads,
        waited: a.waited + b.waited,
        last_second: a.last_second + b.last_second,
    }
}

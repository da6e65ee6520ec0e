//! The rebalancer: a thread that copies and drops tables of a pool.

use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use policy::migrate::{Policy, Terms};
use policy::purpose::Class;
use pool::mover::{Figures, GateLoad, Mover};
use pool::spread::Spread;
use volume::Clock;
use volume::task::block_on;

use crate::stop::Stop;
use crate::volumes::{Device, Devices};

/// The thread. Dropping this ends it, and cancels its work.
pub(super) struct Moving {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
    figures: Arc<Mutex<Figures>>,
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
        let stopped = Arc::clone(&stop);
        let look = move || {
            let volumes = pool.volumes().into_iter();
            let load = |volume: pool::spread::VolumeStat| {
                Some(load(volume.id, &*devices.get(&volume.label)?))
            };
            volumes.filter_map(load).collect()
        };
        let thread = std::thread::Builder::new()
            .name("mover".into())
            .spawn(move || block_on(stopped.or_end_of(mover.run(look))))
            .expect("the system has room for one more thread");
        Self { stop, thread: Some(thread), figures }
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

fn load(volume: policy::placement::VolumeId, device: &Device) -> GateLoad {
    let meter = device.gate().meter();
    let [commits, users] = [Class::Commit, Class::Foreground].map(|c| &meter.classes[c.index()]);
    let gives = meter.available.unwrap_or(1.0);
    GateLoad {
        volume,
        line: meter.contract.paid_iops().map(|paid| paid as f64 * gives),
        granted: commits.spent.ops + users.spent.ops,
        reads: users.granted,
        waited: users.waits.total,
        last_second: meter.last_second.ops,
    }
}

//! The scrub: a thread that reads back the copies of a pool's objects.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use pool::scrubber::{Passes, Position, Scrubber};
use pool::spread::Spread;
use volume::Clock;
use volume::heartbeat::{Heartbeat, TaskHealth};
use volume::task::block_on;

use crate::stop::Stop;
use crate::volumes::Devices;

/// The thread. Dropping this ends it, and keeps its position for the next start.
pub(super) struct Scrubbing {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
    passes: Passes,
    heartbeat: Heartbeat,
    devices: Devices,
}

impl Scrubbing {
    pub(super) fn start(
        pool: &Spread,
        devices: &Devices,
        clock: &Clock,
        period: Option<Duration>,
    ) -> Self {
        let scrubber = Scrubber::new(pool.clone(), clock.clone(), period, kept(pool, devices));
        let (passes, heartbeat) = (scrubber.passes(), scrubber.heartbeat());
        let stop = Arc::new(Stop::default());
        let (stopped, beating, keeping) = (Arc::clone(&stop), heartbeat.clone(), devices.clone());
        let run = async move {
            let scrubbing = scrubber.run(|position| keep(&keeping, position));
            stopped.or_end_of(scrubbing).await;
        };
        let thread = std::thread::Builder::new()
            .name("scrub".into())
            .spawn(move || beating.supervise(|| block_on(run)))
            .expect("the system has room for one more thread");
        Self { stop, thread: Some(thread), passes, heartbeat, devices: devices.clone() }
    }

    pub(super) fn health(&self) -> TaskHealth {
        self.heartbeat.health()
    }

    pub(super) const fn passes(&self) -> &Passes {
        &self.passes
    }
}

impl Drop for Scrubbing {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            // A panic is reported by the panic hook already.
            let _ = thread.join();
        }
        self.passes.position().iter().for_each(|position| keep(&self.devices, position));
    }
}

/// The position of this pool's scrub. A volume that was away meanwhile has an old one.
fn kept(pool: &Spread, devices: &Devices) -> Option<Position> {
    // A directory says it of one pool: that which it is a member of.
    let here = devices.own().into_iter().filter_map(|device| device.scrub_position());
    let of_this = here.filter(|position| position.pool == pool.id());
    of_this
        .max_by_key(|position| (position.pass.number, position.pass.at.next, position.pass.elapsed))
}

fn keep(devices: &Devices, position: &Position) {
    devices.own().iter().for_each(|device| device.keep_scrub_position(position));
}

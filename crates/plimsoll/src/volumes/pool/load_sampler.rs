//! Samples the load of a pool's volumes once a second, so that placement knows which of them can carry more.

use std::time::Duration;

use policy::heat::Second;
use policy::purpose::Class;
use policy::time::NANOS_PER_SEC;
use policy::weight::Seen;
use pool::spread::{Spread, VolumeStat};
use volume::Clock;
use volume::layer::gate::Meter;

use crate::volumes::Devices;

/// A volume is saturated from this part of the bytes a second that its gate may use.
const SATURATED: f64 = 0.95;

pub(super) struct LoadSampler {
    devices: Devices,
    pool: Spread,
    clock: Clock,
    weighed: Option<Second>,
}

impl LoadSampler {
    pub(super) const fn new(devices: Devices, pool: Spread, clock: Clock) -> Self {
        Self { devices, pool, clock, weighed: None }
    }

    /// Samples, at most once in a second.
    pub(super) fn look(&mut self) {
        let now = Second::try_from(self.clock.now().as_nanos() / NANOS_PER_SEC).ok();
        if self.weighed == now {
            return;
        }
        self.weighed = now;
        let mut seen = Vec::new();
        for VolumeStat { id, label, .. } in self.pool.volumes() {
            // Several below a member that is a pool: together they are as a volume.
            let below = self.devices.below(&label);
            let meters: Vec<_> = below.iter().map(|device| device.gate().meter()).collect();
            if meters.is_empty() {
                continue;
            }
            let commits = meters.iter().map(|m| m.classes[Class::Commit.index()].spent.ops);
            seen.push(Seen {
                volume: id,
                paid: meters.iter().map(|meter| Some(meter.contract.line_iops()? as u64)).sum(),
                commits: commits.sum(),
                saturated: meters.iter().all(is_saturated),
                answer: usual_read(&meters),
            });
        }
        // The number of seconds fits for 136 years.
        now.into_iter().for_each(|now| self.pool.on_second(now, &seen));
    }
}

/// What a read of several devices usually takes, in the mean; zero if one is not known.
fn usual_read(meters: &[Meter]) -> Duration {
    let known = meters.iter().map(|meter| Some(meter.usual_read).filter(|time| !time.is_zero()));
    let sum: Option<Duration> = known.sum();
    sum.unwrap_or_default() / u32::try_from(meters.len()).unwrap_or(u32::MAX).max(1)
}

fn is_saturated(meter: &Meter) -> bool {
    meter
        .contract
        .paid_bytes_per_sec()
        .is_some_and(|paid| meter.last_second.bytes as f64 >= SATURATED * meter.rho * paid as f64)
}

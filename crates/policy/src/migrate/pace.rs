//! Limits the rate of copies.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::{COPY_BYTES_PER_SEC, COPY_SHARE, Flight, REBUILD_SHARE};
use crate::heat::Block;
use crate::placement::VolumeId;
use crate::time::Instant;

/// Copies of one volume at a time: each takes memory.
const IN_FLIGHT_MAX: usize = 4;

/// Keeps copies to a small part of what is paid for each volume (`COPY_SHARE`), and all of them together to 64 MiB a second (TANGO). A
/// copy runs at the speed that the gates allow. Afterwards its volumes rest until the mean rate is low enough; then
/// their next copy may begin. It need not wait for the end of the one before: behind users' queues a copy takes long,
/// but costs no more.
#[derive(Debug, Default)]
pub struct Pace {
    in_flight: HashSet<Flight>,
    /// When each volume has rested.
    rested: HashMap<VolumeId, Instant>,
    /// When all copies together have rested.
    all_rested: Instant,
}

impl Pace {
    /// Whether a copy may begin now.
    #[must_use]
    pub fn may_begin(&self, flight: Flight, now: Instant) -> bool {
        let volumes = [flight.from, flight.to];
        let rested = |volume| self.rested.get(volume).is_none_or(|&at| at <= now);
        let free = |volume: &VolumeId| {
            let of = |other: &&Flight| other.from == *volume || other.to == *volume;
            self.in_flight.iter().filter(of).count() < IN_FLIGHT_MAX
        };
        self.all_rested <= now && volumes.iter().all(|volume| rested(volume) && free(volume))
    }

    /// Begins a copy of `len` bytes. `line` gives the paid operations a second of a volume.
    pub fn begin(
        &mut self,
        flight: Flight,
        len: u64,
        line: impl Fn(VolumeId) -> f64,
        now: Instant,
    ) {
        self.in_flight.insert(flight);
        let blocks = f64::from(Block::count(len).max(1));
        for volume in [flight.from, flight.to] {
            let rest = seconds(blocks / (line(volume) * COPY_SHARE));
            self.rested.insert(volume, now + rest);
        }
        self.all_rested = now + seconds(len as f64 / COPY_BYTES_PER_SEC);
    }

    /// The copy ended, well or not.
    pub fn end(&mut self, flight: Flight) {
        self.in_flight.remove(&flight);
    }

    /// When to ask again, if no copy ends before; `None` if one has to end first.
    #[must_use]
    pub fn next(&self, now: Instant) -> Option<Instant> {
        let times = self.rested.values().copied().chain([self.all_rested]);
        times.filter(|&at| at > now).min()
    }

    /// Copies that are being made.
    pub fn in_flight(&self) -> impl Iterator<Item = Flight> {
        self.in_flight.iter().copied()
    }
}

/// Spaces the I/Os of rebuilds. They run in the users' class, since any other would starve at the line, and get this
/// part of each volume's line and no more.
#[derive(Debug, Default)]
pub struct Steps {
    next: HashMap<VolumeId, Instant>,
}

impl Steps {
    /// When the next I/O on these volumes goes, each given with its line. Users who wait leave it
    /// `REBUILD_SHARE` of the line, others `COPY_SHARE`.
    pub fn next(
        &mut self,
        volumes: impl IntoIterator<Item = (VolumeId, f64)>,
        users_wait: bool,
        now: Instant,
    ) -> Instant {
        let volumes: Vec<_> = volumes.into_iter().collect();
        let share = if users_wait { REBUILD_SHARE } else { COPY_SHARE };
        let free = volumes.iter().filter_map(|(volume, _)| self.next.get(volume)).max();
        let at = free.copied().unwrap_or(now).max(now);
        for (volume, line) in volumes {
            self.next.insert(volume, at + seconds(1.0 / (line * share)));
        }
        at
    }
}

/// At most a day: an extremely slow volume must not cause an overflow.
fn seconds(seconds: f64) -> Duration {
    const DAY: f64 = 86_400.0;
    Duration::from_secs_f64(if seconds.is_finite() { seconds.clamp(0.0, DAY) } else { DAY })
}

//! Limits the rate of copies.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use super::{COPY_BYTES_PER_SEC, COPY_SHARE, Flight, REBUILD_SHARE};
use crate::heat::Block;
use crate::placement::VolumeId;
use crate::time::Instant;
use crate::weight::PAID_UNKNOWN;

/// What a volume should carry at most, a second. Above zero; infinite where there is no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Operations.
    pub ops: f64,
    /// Bytes.
    pub bytes: f64,
}

impl Line {
    /// How long the whole line takes for I/Os of `len` bytes together, each as large as an operation may be.
    fn time(&self, len: u64) -> f64 {
        let blocks = f64::from(Block::count(len).max(1));
        (blocks / self.ops).max(len as f64 / self.bytes)
    }
}

/// Bytes a second that all copies together may move in a pool with this number of `volumes` that take copies. A copy of an object
/// of which one copy is left may move as many on each pair of volumes, for the next loss would lose it.
#[must_use]
pub fn bytes_per_sec(volumes: usize, is_last: bool) -> f64 {
    let pairs = if is_last { (volumes as f64 / 2.0).max(1.0) } else { 1.0 };
    pairs * COPY_BYTES_PER_SEC
}

/// What each volume should carry at most, as last measured.
#[derive(Clone, Debug, Default)]
pub struct Lines(HashMap<VolumeId, Line>);

impl Lines {
    /// That of a volume. One that was not measured has no known limit.
    fn of(&self, volume: VolumeId) -> Line {
        let unknown = Line { ops: PAID_UNKNOWN, bytes: f64::INFINITY };
        self.0.get(&volume).copied().unwrap_or(unknown)
    }
}

impl FromIterator<(VolumeId, Line)> for Lines {
    fn from_iter<I: IntoIterator<Item = (VolumeId, Line)>>(lines: I) -> Self {
        Self(lines.into_iter().collect())
    }
}

/// Copies of one volume at a time: each takes memory.
const IN_FLIGHT_MAX: usize = 4;

/// Keeps copies to a small part of what is paid for each volume (`COPY_SHARE`), in operations and in bytes, and all of
/// them together to what [`bytes_per_sec`] says: 64 MiB a second (TANGO), or more where redundancy is at risk. A copy
/// runs at the speed that the gates allow. Afterwards its volumes rest until the mean rate is low enough; then their
/// next copy may begin. It need not wait for the end of the one before: behind users' queues a copy takes long, but
/// costs no more.
///
/// How long a volume rests is computed from its line whenever it is asked: a volume that was slow at the time of a copy
/// does not rest longer than its line as last measured says.
#[derive(Debug, Default)]
pub struct Pace {
    lines: Lines,
    in_flight: HashSet<Flight>,
    /// When the last copy of each volume began, and its length.
    begun: HashMap<VolumeId, (Instant, u64)>,
    /// When all copies together have rested.
    all_rested: Instant,
}

impl Pace {
    /// From now on, volumes have these lines.
    pub fn set_lines(&mut self, lines: Lines) {
        self.lines = lines;
    }

    /// Whether a copy may begin now.
    #[must_use]
    pub fn may_begin(&self, flight: Flight, now: Instant) -> bool {
        let volumes = [flight.from, flight.to];
        let rested = |&volume| self.rested(volume).is_none_or(|at| at <= now);
        let free = |volume: &VolumeId| {
            let of = |other: &&Flight| other.from == *volume || other.to == *volume;
            self.in_flight.iter().filter(of).count() < IN_FLIGHT_MAX
        };
        self.all_rested <= now && volumes.iter().all(|volume| rested(volume) && free(volume))
    }

    /// Begins a copy of `len` bytes, where all copies together may move `bytes_per_sec`.
    pub fn begin(&mut self, flight: Flight, len: u64, bytes_per_sec: f64, now: Instant) {
        self.in_flight.insert(flight);
        for volume in [flight.from, flight.to] {
            self.begun.insert(volume, (now, len));
        }
        self.all_rested = now + seconds(len as f64 / bytes_per_sec);
    }

    /// The copy ended, well or not.
    pub fn end(&mut self, flight: Flight) {
        self.in_flight.remove(&flight);
    }

    /// When to ask again, if no copy ends before and no line changes; `None` if one has to end first.
    #[must_use]
    pub fn next(&self, now: Instant) -> Option<Instant> {
        let times = self.begun.keys().filter_map(|&volume| self.rested(volume));
        times.chain([self.all_rested]).filter(|&at| at > now).min()
    }

    /// Copies that are being made.
    pub fn in_flight(&self) -> impl Iterator<Item = Flight> {
        self.in_flight.iter().copied()
    }

    /// When a volume has rested from its last copy; `None` if it had none.
    fn rested(&self, volume: VolumeId) -> Option<Instant> {
        let &(at, len) = self.begun.get(&volume)?;
        Some(at + seconds(self.lines.of(volume).time(len) / COPY_SHARE))
    }
}

/// Spaces the I/Os of rebuilds. They run in the users' class, since any other would starve at the line, and get this
/// part of each volume's line and no more. None holds up one that shares a volume with it and came before.
#[derive(Debug, Default)]
pub struct Steps {
    lines: Lines,
    /// When the last I/O on each volume went.
    went: HashMap<VolumeId, Instant>,
    /// The volumes of those that wait, by their tickets.
    waiting: BTreeMap<Ticket, Vec<VolumeId>>,
    next: u64,
}

/// The place of an I/O in the order of all.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Ticket(u64);

impl Steps {
    /// From now on, volumes have these lines.
    pub fn set_lines(&mut self, lines: Lines) {
        self.lines = lines;
    }

    /// An I/O of one block on these volumes begins to wait.
    pub fn come(&mut self, volumes: Vec<VolumeId>) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.waiting.insert(ticket, volumes);
        ticket
    }

    /// Lets an I/O that came go now, or tells when to ask again if no line changes. Users who wait leave it
    /// `REBUILD_SHARE` of the line, others `COPY_SHARE`.
    ///
    /// # Errors
    /// The time to ask again.
    pub fn take(&mut self, ticket: Ticket, users_wait: bool, now: Instant) -> Result<(), Instant> {
        let Some(volumes) = self.waiting.get(&ticket) else { return Ok(()) };
        let share = if users_wait { REBUILD_SHARE } else { COPY_SHARE };
        let rest = |volume: &VolumeId| seconds(self.lines.of(*volume).time(Block::BYTES) / share);
        let free = |volumes: &[VolumeId]| {
            let rested = volumes.iter().filter_map(|v| Some(*self.went.get(v)? + rest(v)));
            rested.max().unwrap_or(now)
        };
        // One that came before would find a volume that it shares resting again.
        let is_in_the_way = |other: &Vec<VolumeId>| {
            let shared = volumes.iter().filter(|volume| other.contains(volume));
            shared.map(rest).max().is_some_and(|rest| free(other) < now + rest)
        };
        let mut earlier = self.waiting.range(..ticket);
        if earlier.any(|(_, other)| is_in_the_way(other)) {
            let rest = volumes.iter().map(rest).max().unwrap_or_default();
            return Err(free(volumes).max(now + rest));
        }
        let free = free(volumes);
        if free > now {
            return Err(free);
        }
        self.went.extend(volumes.iter().map(|&volume| (volume, now)));
        self.waiting.remove(&ticket);
        Ok(())
    }

    /// An I/O waits no longer.
    pub fn leave(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
    }
}

/// At most a day: an extremely slow volume must not cause an overflow.
fn seconds(seconds: f64) -> Duration {
    const DAY: f64 = 86_400.0;
    Duration::from_secs_f64(if seconds.is_finite() { seconds.clamp(0.0, DAY) } else { DAY })
}

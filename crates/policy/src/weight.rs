//! The load of each volume of a pool, relative to what is paid for (TANGO's access weight).
//!
//! ```text
//!   weight = (reads of users that reach it  +  logs and flushes  +  reads expected) / paid
//! ```
//! At 1 a volume carries as much as it can: the line. The reads are the heats of the objects on the volume, so they
//! move with them. Logs and flushes count, because a volume with the write-ahead log is not idle. Compactions do not,
//! because they wait for spare capacity. Between two measurements, a new object counts with the reads of the objects it
//! replaces; otherwise all outputs of a compaction would go to the volume that was lightest.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::heat::Second;
use crate::placement::{Candidate, VolumeId};

/// Operations a second assumed as paid for where that is unknown: as many as a large volume has.
pub const PAID_UNKNOWN: f64 = 10_000.0;

/// What was measured of a volume.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// Which volume.
    pub volume: VolumeId,
    /// Operations a second that are paid for, or that the arm of a disk does; `None` if nothing limits them.
    pub paid: Option<u64>,
    /// Logs and manifests: the volume's operations so far that others waited for. It only grows.
    pub commits: u64,
    /// Whether it moves as many bytes a second as it can.
    pub saturated: bool,
    /// What its device usually takes for a read; zero if unknown.
    pub answer: Duration,
}

/// The weights of a pool's volumes.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    volumes: BTreeMap<VolumeId, Carried>,
    /// The second of the last measurement.
    measured: Option<Second>,
}

#[derive(Clone, Debug)]
struct Carried {
    paid: f64,
    saturated: bool,
    answer: Duration,
    /// Reads a second at the last measurement.
    reads: f64,
    /// Operations a second for logs and flushes.
    writes: f64,
    commits_before: Option<u64>,
    /// Operations for flushes since the last measurement.
    flushes: u64,
    /// Reads a second expected of objects that are being written.
    expected: f64,
    /// Reads a second expected of objects that were written since the last measurement.
    arrived: f64,
    /// Bytes being written.
    in_flight: u64,
}

impl Default for Carried {
    fn default() -> Self {
        Self {
            paid: PAID_UNKNOWN,
            saturated: false,
            answer: Duration::ZERO,
            reads: 0.0,
            writes: 0.0,
            commits_before: None,
            flushes: 0,
            expected: 0.0,
            arrived: 0.0,
            in_flight: 0,
        }
    }
}

impl Carried {
    fn weight(&self) -> f64 {
        (self.reads + self.writes + self.expected + self.arrived) / self.paid
    }
}

impl Weights {
    /// Takes a measurement after a second or more: `seen` of the volumes, and the `reads` a second of each, which are
    /// averages already. Volumes without a measurement keep their state.
    pub fn on_second(&mut self, now: Second, seen: &[Seen], reads: &BTreeMap<VolumeId, f64>) {
        let passed = self.measured.map_or(1, |before| now.saturating_sub(before));
        if passed == 0 {
            return;
        }
        self.measured = Some(now);
        for &volume in reads.keys() {
            self.volumes.entry(volume).or_default();
        }
        for Seen { volume, paid, saturated, answer, .. } in seen {
            let carried = self.volumes.entry(*volume).or_default();
            carried.paid = paid.map_or(PAID_UNKNOWN, |paid| paid.max(1) as f64);
            carried.saturated = *saturated;
            carried.answer = *answer;
        }
        for (volume, carried) in &mut self.volumes {
            carried.reads = reads.get(volume).copied().unwrap_or(0.0);
            carried.arrived = 0.0;
            let commits = seen.iter().find(|seen| seen.volume == *volume).map(|seen| seen.commits);
            let before = std::mem::replace(&mut carried.commits_before, commits);
            // The counter of a reopened volume starts again from 0.
            let commits = commits.zip(before).map_or(0, |(now, before)| now.saturating_sub(before));
            let writes = commits + std::mem::take(&mut carried.flushes);
            let kept = 0.5_f64.powi(passed.min(200) as i32);
            carried.writes =
                carried.writes * kept + writes as f64 / f64::from(passed) * (1.0 - kept);
        }
    }

    /// `bytes` are on their way to a volume, for an object that will be read `rate` times a second.
    pub fn place(&mut self, volume: VolumeId, bytes: u64, rate: f64) {
        let carried = self.volumes.entry(volume).or_default();
        carried.in_flight += bytes;
        carried.expected += rate;
    }

    /// The object of a [`place`](Self::place) has arrived, or never will.
    pub fn settle(&mut self, volume: VolumeId, bytes: u64, rate: f64, arrived: bool) {
        let carried = self.volumes.entry(volume).or_default();
        carried.in_flight = carried.in_flight.saturating_sub(bytes);
        carried.expected = (carried.expected - rate).max(0.0);
        if arrived {
            carried.arrived += rate;
        }
    }

    /// A volume did `ops` operations for a flush.
    pub fn count_flush(&mut self, volume: VolumeId, ops: u64) {
        self.volumes.entry(volume).or_default().flushes += ops;
    }

    /// A volume left the pool.
    pub fn forget(&mut self, volume: VolumeId) {
        self.volumes.remove(&volume);
    }

    /// The load of a volume relative to what is paid for; 0 for an unknown one.
    #[must_use]
    pub fn weight(&self, volume: VolumeId) -> f64 {
        self.volumes.get(&volume).map_or(0.0, Carried::weight)
    }

    /// Operations a second that are paid for on a volume.
    #[must_use]
    pub fn paid(&self, volume: VolumeId) -> f64 {
        self.volumes.get(&volume).map_or(PAID_UNKNOWN, |carried| carried.paid)
    }

    /// What the device of a volume usually takes for a read; zero if unknown.
    #[must_use]
    pub fn answer(&self, volume: VolumeId) -> Duration {
        self.volumes.get(&volume).map_or(Duration::ZERO, |carried| carried.answer)
    }

    /// Adds the load of a volume to a candidate of which only the room is known.
    #[must_use]
    pub fn on(&self, volume: Candidate) -> Candidate {
        let carried = self.volumes.get(&volume.volume);
        Candidate {
            paid: self.paid(volume.volume),
            weight: self.weight(volume.volume),
            in_flight: carried.map_or(0, |carried| carried.in_flight),
            saturated: carried.is_some_and(|carried| carried.saturated),
            answer: self.answer(volume.volume),
            ..volume
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::units::GIB;

    const V: VolumeId = VolumeId(3);

    fn seen(commits: u64) -> [Seen; 1] {
        [Seen { volume: V, paid: Some(100), commits, saturated: false, answer: Duration::ZERO }]
    }

    fn reads(rate: f64) -> BTreeMap<VolumeId, f64> {
        BTreeMap::from([(V, rate)])
    }

    #[test]
    fn reads_and_writes_are_measured_against_what_is_paid() {
        let mut weights = Weights::default();
        weights.on_second(1, &seen(1000), &reads(0.0));
        assert_eq!(weights.weight(V), 0.0, "what was before counts for nothing");
        weights.count_flush(V, 8);
        weights.on_second(2, &seen(1012), &reads(50.0));
        // Half of 12 + 8, and all reads: reads are averages already.
        assert_eq!(weights.weight(V), 0.6);
        weights.on_second(3, &seen(1012), &reads(0.0));
        assert_eq!(weights.weight(V), 0.05);
        assert_eq!(weights.weight(VolumeId(9)), 0.0);
    }

    #[test]
    fn a_second_counts_once() {
        let mut weights = Weights::default();
        weights.on_second(1, &seen(0), &reads(0.0));
        weights.on_second(2, &seen(40), &reads(0.0));
        weights.on_second(2, &seen(80), &reads(70.0));
        assert_eq!(weights.weight(V), 0.2);
        // The operations in between are not lost.
        weights.on_second(3, &seen(80), &reads(0.0));
        assert!((weights.weight(V) - 0.3).abs() < 1e-9);
    }

    #[test]
    fn what_is_placed_is_expected_until_it_is_measured() {
        let mut weights = Weights::default();
        weights.on_second(1, &seen(0), &reads(10.0));
        let on = |weights: &Weights| weights.on(Candidate::new(V, GIB, GIB));
        weights.place(V, 8, 30.0);
        weights.place(V, 4, 20.0);
        assert!((on(&weights).weight - 0.6).abs() < 1e-9);
        assert_eq!(on(&weights).in_flight, 12);
        weights.settle(V, 8, 30.0, true);
        weights.settle(V, 4, 20.0, false);
        assert!((on(&weights).weight - 0.4).abs() < 1e-9);
        assert_eq!(on(&weights).in_flight, 0);
        weights.place(V, 8, 5.0);
        // The measurement replaces the expectation of the finished object; the one in flight does not count as read.
        weights.on_second(2, &seen(0), &reads(33.0));
        assert!((on(&weights).weight - 0.38).abs() < 1e-9);
    }

    #[test]
    fn a_volume_that_was_opened_again_counts_from_the_start() {
        let mut weights = Weights::default();
        weights.on_second(1, &seen(5000), &reads(0.0));
        weights.on_second(2, &seen(3), &reads(0.0));
        assert_eq!(weights.weight(V), 0.0);
        weights.on_second(3, &seen(13), &reads(0.0));
        assert_eq!(weights.weight(V), 0.05);
    }

    proptest! {
        #[test]
        fn seconds_at_once_forget_as_much_as_one_by_one(
            before in 0u64..1000, each in 0u64..100, passed in 1u32..20,
        ) {
            let (mut once, mut each_time) = (Weights::default(), Weights::default());
            for weights in [&mut once, &mut each_time] {
                weights.on_second(1, &seen(0), &reads(0.0));
                weights.on_second(2, &seen(before), &reads(0.0));
            }
            for second in 1..=passed {
                let commits = before + each * u64::from(second);
                each_time.on_second(2 + second, &seen(commits), &reads(0.0));
            }
            let commits = before + each * u64::from(passed);
            once.on_second(2 + passed, &seen(commits), &reads(0.0));
            prop_assert!((once.weight(V) - each_time.weight(V)).abs() < 1e-6);
        }
    }
}

//! Lazy promotion: a unit gets a place after several reads within a window, and scans never get one.

use std::ops::Range;

use policy::promote::{Access, Adjustment, Filter, Options, Period, Runs, Verdict};
use policy::time::Instant;

use super::admit::{Admission, Admit};

/// Sequential runs that are remembered, in 32 bytes each.
const RUNS: usize = 4096;

/// The bytes of a sequential run from which on its large writes are a bulk load, and the least large write: the kernel cuts a
/// sequential one into as much. Smaller writes are worth keeping however long the run is, as those of a log: the slow volume
/// would charge an operation for each, and takes them together when they are flushed.
const BULK: u64 = 1 << 20;
const BULK_WRITE: u64 = 64 << 10;

/// Units that the window is sized by at most, so that the filter of a large cache takes 128 MiB. It is as long for all larger
/// ones.
const UNITS_MAX: u64 = 1 << 22;

/// Admits units that [`Filter`] finds hot: by default at the second read within two accesses for each unit that may have
/// pages on the fast volume, or at the first one soon after an eviction. Window and threshold follow what promotions bring.
/// Once a unit has a place, each page of it gets one when it was read often enough, at first at its second read.
///
/// While room is free, every read is admitted. A write never admits its unit, since the slow volume is written anyway, and a
/// request that continues a sequential run never does. Takes 32 bytes for each unit that may have pages, at most 128 MiB.
#[derive(Debug)]
pub struct Lazy {
    filter: Filter,
    runs: Runs,
}

impl Lazy {
    /// For a tier of which `units` units may have pages. `now` is the start of its first period.
    #[must_use]
    pub fn new(units: u64, now: Instant) -> Self {
        let options = Options { writes: false, ..Options::new(units.min(UNITS_MAX)) };
        Self { filter: Filter::new(options, now), runs: Runs::new(RUNS) }
    }
}

impl Admit for Lazy {
    fn request(&mut self, object: u32, bytes: &Range<u64>) -> bool {
        self.runs.note(object.into(), bytes.start, bytes.end - bytes.start)
    }

    fn is_bulk(&self, object: u32, bytes: &Range<u64>) -> bool {
        let len = bytes.end - bytes.start;
        len >= BULK_WRITE && self.runs.before(object.into(), bytes.start, len) >= BULK
    }

    fn missed(&mut self, access: Access, now: Instant) -> Admission {
        match self.filter.note(access, now) {
            Verdict::Bypass => Admission::Bypass,
            Verdict::Promote => Admission::Pages,
        }
    }

    fn unserved(&mut self, access: Access, now: Instant) -> Admission {
        self.filter.pass(now);
        if access.sequential { Admission::Bypass } else { Admission::Again }
    }

    fn fills_room(&self) -> bool {
        true
    }

    fn hit(&mut self, promoted: Period, now: Instant) {
        self.filter.hit(promoted, now);
    }

    fn promoted(&mut self, unit: u64) -> Period {
        self.filter.promoted(unit)
    }

    fn adjust(&mut self, now: Instant) -> Option<Adjustment> {
        self.filter.adjust(now)
    }
}

#[cfg(test)]
mod tests {
    use policy::promote::AccessKind;

    use super::*;

    const READ: Access =
        Access { unit: 1, kind: AccessKind::Read, sequential: false, ghost: false };

    #[test]
    fn the_second_read_admits_and_writes_and_runs_do_not_count() {
        let mut lazy = Lazy::new(100, Instant::ZERO);
        let write = Access { kind: AccessKind::Write, ..READ };
        let run = Access { sequential: true, ..READ };
        for access in [write, run, READ, write, run] {
            assert_eq!(lazy.missed(access, Instant::ZERO), Admission::Bypass, "{access:?}");
        }
        assert_eq!(lazy.missed(READ, Instant::ZERO), Admission::Pages);
        assert_eq!(lazy.unserved(READ, Instant::ZERO), Admission::Again);
        assert_eq!(lazy.unserved(run, Instant::ZERO), Admission::Bypass);
    }

    #[test]
    fn a_unit_that_was_evicted_lately_is_admitted_at_once() {
        let mut lazy = Lazy::new(100, Instant::ZERO);
        let ghost = Access { ghost: true, ..READ };
        assert_eq!(lazy.missed(ghost, Instant::ZERO), Admission::Pages);
    }

    #[test]
    fn large_writes_of_a_long_run_are_a_bulk_load() {
        let mut lazy = Lazy::new(100, Instant::ZERO);
        for at in (0..BULK).step_by(BULK_WRITE as usize) {
            assert!(!lazy.is_bulk(1, &(at..at + BULK_WRITE)), "at {at}");
            lazy.request(1, &(at..at + BULK_WRITE));
        }
        assert!(lazy.is_bulk(1, &(BULK..BULK + BULK_WRITE)));
        // Asking changes nothing; a small write is none, nor is one elsewhere or of another object.
        assert!(lazy.is_bulk(1, &(BULK..BULK + BULK_WRITE)));
        assert!(!lazy.is_bulk(1, &(BULK..BULK + BULK_WRITE - 1)));
        assert!(!lazy.is_bulk(1, &(8 * BULK..9 * BULK)) && !lazy.is_bulk(2, &(BULK..2 * BULK)));
    }

    #[test]
    fn a_request_at_the_end_of_another_one_continues_a_run() {
        let mut lazy = Lazy::new(100, Instant::ZERO);
        assert!(!lazy.request(1, &(0..4096)) && lazy.request(1, &(4096..8192)));
        assert!(!lazy.request(2, &(8192..9000)), "another object");
    }
}

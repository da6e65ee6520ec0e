//! How long the device took: the time of each I/O below the gate, counted without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use policy::estimate::IoKind;
use policy::latency::Times;
use policy::purpose::Class;
use policy::time::Instant;

/// Each small read moves the mean of their times by its difference divided by this.
const READS: u64 = 8;

/// After so long without a small read, the mean counts half: a device that was slow is tried again.
const FORGET: Duration = Duration::from_secs(1);

/// The gate tells the median of a kind once it has counted this many.
const USUAL: u64 = 100;

/// A histogram for each class, and one for each kind of I/O.
#[derive(Default)]
pub(super) struct Answers {
    classes: [Counted; Class::ALL.len()],
    kinds: [Counted; IoKind::COUNT],
    /// A moving mean of the times of small reads, in nanoseconds, and when the last one ended. Of two that end together one may
    /// be lost.
    read_nanos: AtomicU64,
    read_at: AtomicU64,
}

struct Counted {
    counts: [AtomicU64; Times::BUCKETS],
    total_nanos: AtomicU64,
}

impl Answers {
    pub(super) fn record(&self, class: Class, kind: IoKind, time: Duration, now: Instant) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let index = Times::index(time);
        let counted = &self.classes[class.index()];
        counted.counts[index].fetch_add(1, Ordering::Relaxed);
        counted.total_nanos.fetch_add(nanos, Ordering::Relaxed);
        self.kinds[kind.index()].counts[index].fetch_add(1, Ordering::Relaxed);
        if kind == IoKind::SmallRead {
            let mean = match self.read_nanos.load(Ordering::Relaxed) {
                0 => nanos,
                mean => mean - mean / READS + nanos / READS,
            };
            self.read_nanos.store(mean.max(1), Ordering::Relaxed);
            self.read_at.store(now.as_nanos(), Ordering::Relaxed);
        }
    }

    /// What a small read took lately; zero before the first one.
    pub(super) fn read_time(&self, now: Instant) -> Duration {
        let nanos = self.read_nanos.load(Ordering::Relaxed);
        let idle = now.since(Instant::from_nanos(self.read_at.load(Ordering::Relaxed)));
        let halves = idle.as_nanos() / FORGET.as_nanos();
        Duration::from_nanos(nanos.checked_shr(halves.try_into().unwrap_or(u32::MAX)).unwrap_or(0))
    }

    /// The median of all small reads; `None` before there were enough.
    pub(super) fn usual_read(&self) -> Option<Duration> {
        self.usual(IoKind::SmallRead)
    }

    fn usual(&self, kind: IoKind) -> Option<Duration> {
        let times = self.kinds[kind.index()].times();
        if times.count() < USUAL { None } else { times.quantile(0.5) }
    }

    /// The median of the kind of read or write that takes longest, without syncs; `None` before there were enough of any.
    pub(super) fn usual_io(&self) -> Option<Duration> {
        let data = IoKind::ALL.into_iter().filter(|&kind| kind != IoKind::Sync);
        data.filter_map(|kind| self.usual(kind)).max()
    }

    pub(super) fn of(&self, class: Class) -> Times {
        self.classes[class.index()].times()
    }

    /// By kind, without the sums.
    pub(super) fn of_kinds(&self) -> [Times; IoKind::COUNT] {
        std::array::from_fn(|index| self.kinds[index].times())
    }
}

impl Counted {
    fn times(&self) -> Times {
        let counts = std::array::from_fn(|index| self.counts[index].load(Ordering::Relaxed));
        Times::new(counts, Duration::from_nanos(self.total_nanos.load(Ordering::Relaxed)))
    }
}

impl Default for Counted {
    fn default() -> Self {
        Self { counts: std::array::from_fn(|_| AtomicU64::new(0)), total_nanos: AtomicU64::new(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean of all I/Os once counted: after one sync of seconds, copies to a new volume waited for minutes.
    #[test]
    fn the_usual_time_is_that_of_most_reads_or_of_most_writes() {
        let answers = Answers::default();
        let ended = |kind, millis, count| {
            let time = Duration::from_millis(millis);
            (0..count).for_each(|_| answers.record(Class::Idle, kind, time, Instant::ZERO));
        };
        let is_about = |millis: u64| {
            let usual = answers.usual_io().expect("enough were counted").as_secs_f64() * 1e3;
            (usual / millis as f64 - 1.0).abs() < 0.1
        };
        ended(IoKind::Sync, 5_000, USUAL);
        ended(IoKind::LargeWrite, 5_000, 1);
        ended(IoKind::LargeWrite, 2, USUAL - 2);
        assert_eq!(answers.usual_io(), None);
        ended(IoKind::LargeWrite, 2, 1);
        assert!(is_about(2));
        ended(IoKind::SmallRead, 8, USUAL - 1);
        assert!(is_about(2));
        ended(IoKind::SmallRead, 8, 1);
        assert!(is_about(8));
    }
}

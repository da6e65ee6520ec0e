//! How long the device took: the time of each I/O below the gate, counted without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use policy::estimate::IoKind;
use policy::latency::Times;
use policy::purpose::Class;

/// A histogram for each class, and one for each kind of I/O.
#[derive(Default)]
pub(super) struct Answers {
    classes: [Counted; Class::ALL.len()],
    kinds: [Counted; IoKind::COUNT],
}

struct Counted {
    counts: [AtomicU64; Times::BUCKETS],
    total_nanos: AtomicU64,
}

impl Answers {
    pub(super) fn record(&self, class: Class, kind: IoKind, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let index = Times::index(time);
        let counted = &self.classes[class.index()];
        counted.counts[index].fetch_add(1, Ordering::Relaxed);
        counted.total_nanos.fetch_add(nanos, Ordering::Relaxed);
        self.kinds[kind.index()].counts[index].fetch_add(1, Ordering::Relaxed);
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

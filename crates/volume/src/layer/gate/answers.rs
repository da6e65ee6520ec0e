//! How long the device took: what each I/O spent below the gate, counted without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use policy::latency::Times;
use policy::purpose::Class;

/// A histogram for each class.
#[derive(Default)]
pub(super) struct Answers([Counted; Class::ALL.len()]);

struct Counted {
    counts: [AtomicU64; Times::BUCKETS],
    total_nanos: AtomicU64,
}

impl Answers {
    pub(super) fn record(&self, class: Class, time: Duration) {
        let counted = &self.0[class.index()];
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        counted.counts[Times::index(time)].fetch_add(1, Ordering::Relaxed);
        counted.total_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(super) fn of(&self, class: Class) -> Times {
        let counted = &self.0[class.index()];
        let counts = std::array::from_fn(|index| counted.counts[index].load(Ordering::Relaxed));
        Times::new(counts, Duration::from_nanos(counted.total_nanos.load(Ordering::Relaxed)))
    }
}

impl Default for Counted {
    fn default() -> Self {
        Self { counts: std::array::from_fn(|_| AtomicU64::new(0)), total_nanos: AtomicU64::new(0) }
    }
}

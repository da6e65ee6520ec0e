//! Numbers of new records, and the count of stored ones: YCSB's `AcknowledgedCounterGenerator`.
//!
//! Threads insert at the same time, so a record may be stored while one with a smaller number is still being stored.
//! Readers must not choose that one yet: the count ends before the first record that is not stored.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A counter of records.
#[derive(Debug)]
pub(crate) struct Counter {
    next: AtomicU64,
    stored: AtomicU64,
    /// Stored records behind one that is not. At most as many as threads.
    ahead: Mutex<BTreeSet<u64>>,
}

impl Counter {
    /// The records before `records` are stored.
    pub(crate) fn new(records: u64) -> Self {
        let (next, stored) = (AtomicU64::new(records), AtomicU64::new(records));
        Self { next, stored, ahead: Mutex::default() }
    }

    /// The number of a new record.
    pub(crate) fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Marks the record as stored.
    pub(crate) fn acknowledge(&self, record: u64) {
        // If a thread panicked, its number is in the set or not: the set is sound either way.
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.insert(record);
        let mut stored = self.stored.load(Ordering::Relaxed);
        while ahead.remove(&stored) {
            stored += 1;
        }
        self.stored.store(stored, Ordering::Release);
    }

    /// All records before this one are stored.
    pub(crate) fn records(&self) -> u64 {
        self.stored.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_once_all_before_them_are_there() {
        let counter = Counter::new(10);
        let [a, b, c] = [(); 3].map(|()| counter.next());
        assert_eq!([a, b, c], [10, 11, 12]);
        counter.acknowledge(b);
        counter.acknowledge(c);
        assert_eq!(counter.records(), 10);
        counter.acknowledge(a);
        assert_eq!(counter.records(), 13);
    }

    #[test]
    fn numbers_are_given_once_to_threads_that_ask_at_the_same_time() {
        let counter = Counter::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| counter.acknowledge(counter.next())));
            }
        });
        assert_eq!(counter.records(), 4000);
        assert!(counter.ahead.lock().expect("no thread panicked").is_empty());
    }
}

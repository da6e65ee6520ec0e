//! Looks after a store's cache as time goes by.
//!
//! Indexes and filters are in RocksDB's memory, and grow with the data; the cache of blocks gets what
//! they leave of the bytes both have. RocksDB says how much they take only when it is asked.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use policy::units::Bytes;
use pool::cache::Cache;

use super::db::Inner;

/// How often the memory of indexes and filters is looked at.
const PERIOD: Duration = Duration::from_secs(2);

/// Blocks get at least one in so many of the bytes, however much indexes and filters take.
const FLOOR: u64 = 16;

/// The thread that looks. It ends when this is dropped.
pub(super) struct Keeper {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Looks after the `cache` of `store`, which has `budget` bytes with RocksDB's indexes and filters.
    pub(super) fn start(store: Arc<Inner>, cache: Cache, budget: u64) -> Self {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = Arc::clone(&stop);
        let look = move || {
            let mut room = Room { budget, said: false };
            loop {
                cache.set_bytes(room.for_blocks(store.table_readers()));
                let (stop, changed) = &*stopped;
                let mut stop = stop.lock();
                if !*stop {
                    changed.wait_for(&mut stop, PERIOD);
                }
                if *stop {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("cache-keeper".into()).spawn(look);
        Self { stop, thread: Some(thread.expect("the system has room for one more thread")) }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // Whoever panics has told the panic hook.
            let _ = thread.join();
        }
    }
}

/// Bytes that indexes, filters and blocks share.
struct Room {
    budget: u64,
    /// That there is hardly any for blocks was said.
    said: bool,
}

impl Room {
    fn for_blocks(&mut self, metadata: u64) -> u64 {
        let floor = self.budget / FLOOR;
        let room = self.budget.saturating_sub(metadata);
        if room >= floor {
            self.said = false;
            return room;
        }
        if !std::mem::replace(&mut self.said, true) {
            tracing::warn!(
                "indexes and filters take {} of the {} that cache has: blocks get {} all the same. \
                 Raise memory or cache, or lower bloom_bits",
                Bytes(metadata),
                Bytes(self.budget),
                Bytes(floor),
            );
        }
        floor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_get_what_indexes_and_filters_leave_but_never_nothing() {
        let mut room = Room { budget: 1600, said: false };
        assert_eq!((room.for_blocks(0), room.for_blocks(1500)), (1600, 100));
        assert!(!room.said);
        assert_eq!((room.for_blocks(1501), room.for_blocks(9999)), (100, 100));
        assert!(room.said);
        assert_eq!(room.for_blocks(600), 1000);
        assert!(!room.said, "the next time is worth a word again");
    }
}

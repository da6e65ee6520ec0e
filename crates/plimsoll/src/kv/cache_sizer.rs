//! The cache sizer: resizes a store's cache once a second, and prefetches blocks in between.
//!
//! Indexes and filters are in RocksDB's memory, and grow with the data; the cache of blocks gets the rest of their
//! common budget. RocksDB reports their size only when asked, and volumes their spare operations, so a thread polls
//! both. Between polls it reads ahead blocks that are in demand.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use policy::placement::VolumeId;
use policy::units::Bytes;
use pool::cache::Cache;
use pool::cache::prefetch::Prefetcher;
use volume::Clock;
use volume::task::block_on;

use super::inner::Inner;
use crate::stop::Stop;

const SECOND: Duration = Duration::from_secs(1);

/// How many seconds pass between two readings of the memory of indexes and filters.
const PERIOD: u64 = 3;

/// Blocks get at least this part of the bytes, 1/16, however much indexes and filters take.
const FLOOR: u64 = 16;

/// Users' demand on each volume in the last second, waiting requests included, as a share of the paid rate.
pub(super) type Loads = Box<dyn FnMut() -> Vec<(VolumeId, f64)> + Send>;

/// The thread. Dropping this ends it, and cancels its prefetches.
pub(super) struct CacheSizer {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl CacheSizer {
    /// Starts to look after the `cache` of `store`, which shares `budget` bytes with RocksDB's indexes and filters.
    pub(super) fn start(
        store: Arc<Inner>,
        cache: Cache,
        budget: u64,
        clock: Clock,
        mut loads: Loads,
    ) -> Self {
        let stop = Arc::new(Stop::default());
        let stopped = Arc::clone(&stop);
        let keep = move || {
            let mut room = Room { budget, said: false };
            let mut prefetcher = Prefetcher::new(cache.clone());
            for second in 0_u64.. {
                if second % PERIOD == 0 {
                    cache.set_bytes(room.for_blocks(store.table_readers()));
                }
                prefetcher.on_second(loads());
                let over = clock.sleep(SECOND);
                let goes_on = block_on(async {
                    let mut over = pin!(over);
                    poll_fn(|cx| {
                        if stopped.is_set(cx.waker()) {
                            return Poll::Ready(false);
                        }
                        // Once the prefetcher has ended, only the time is left to wait for.
                        let _ = prefetcher.poll(cx);
                        over.as_mut().poll(cx).map(|()| true)
                    })
                    .await
                });
                if !goes_on {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("cache-keeper".into()).spawn(keep);
        Self { stop, thread: Some(thread.expect("the system has room for one more thread")) }
    }
}

impl Drop for CacheSizer {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            // A panic is reported by the panic hook already.
            let _ = thread.join();
        }
    }
}

/// Bytes that indexes, filters and blocks share.
struct Room {
    budget: u64,
    /// Whether the lack of room for blocks was logged.
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
                "indexes and filters take {} of the {} that the cache has, and blocks get {} anyway: raise \
                 memory or cache, or lower bloom_bits",
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

//! Makes room on full volumes: what was deleted goes in seconds, not when compactions happen to come by.
//!
//! A delete is a record more until a compaction meets what it deletes. On volumes with room that may
//! take as long as it likes. Where room is scarce, this thread flushes the memtables with the
//! deletes, and RocksDB compacts tables that mostly hold deletes by itself (`CompactOnDeletion`); when it
//! has nothing left to do and room is still scarce, the whole store is compacted. The thread also sets
//! aside again what was used of the volumes' reserves.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pool::spread::Spread;
use rust_rocksdb::{CompactOptions, FlushOptions, properties};
use volume::Volume as _;
use volume::task::block_on;

use super::db::Inner;
use crate::volumes::Devices;

/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A volume's own share of what its file system can spare is one part in so many at most.
const DEVICE_SHARE: u64 = 5;

/// The thread. It ends when this is dropped, and gives up a compaction under way.
pub(super) struct Reclaim {
    stop: Arc<Stop>,
    store: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Stop {
    set: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Waits for the next look; false when it is time to end.
    fn wait(&self) -> bool {
        let mut set = self.set.lock();
        if !*set {
            self.changed.wait_for(&mut set, LOOK_EVERY);
        }
        !*set
    }
}

impl Reclaim {
    pub(super) fn start(store: Arc<Inner>, pool: Spread, devices: Devices) -> Self {
        let stop = Arc::new(Stop::default());
        let (stopped, reclaimed) = (Arc::clone(&stop), Arc::clone(&store));
        let thread = std::thread::Builder::new()
            .name("reclaim".into())
            .spawn(move || {
                let mut pending = false;
                loop {
                    set_aside(&reclaimed, &pool, &devices);
                    if !stopped.wait() {
                        return;
                    }
                    pending = reclaimed.reclaim(pending);
                }
            })
            .expect("the system has room for one more thread");
        Self { stop, store, thread: Some(thread) }
    }

    /// Whether the thread still runs: it ends early only where it panicked.
    pub(super) fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Reclaim {
    fn drop(&mut self) {
        *self.stop.set.lock() = true;
        self.stop.changed.notify_all();
        self.store.rocks().disable_manual_compaction();
        if let Some(thread) = self.thread.take() {
            // It only fails where it panicked, and then it said so.
            let _ = thread.join();
        }
    }
}

/// Sets the store's reserve aside on its volumes, in equal parts.
fn set_aside(store: &Inner, pool: &Spread, devices: &Devices) {
    let here = devices.here();
    let copies = block_on(pool.room()).copies as u64;
    let part = store.room().sizes().reserve * copies / here.len().max(1) as u64;
    for device in here {
        // One that does not answer now does so later, or is away.
        if let Ok(space) = block_on(device.gate().space()) {
            device.set_reserve(part.min(space.total / DEVICE_SHARE));
        }
    }
}

impl Inner {
    /// Makes room where it is scarce and keys were deleted since the last time, or room is still `pending`
    /// from then. Gives whether more may come of another call.
    fn reclaim(&self, pending: bool) -> bool {
        if !self.room().is_scarce() {
            return false;
        }
        if self.room().take_deleted() > 0 {
            if let Err(error) = self.flush_all() {
                tracing::warn!(%error, "memtables with deletes could not be flushed");
                self.room().count_deleted(1);
            }
            self.look_at_room();
            return true;
        }
        if !pending || self.is_compacting() {
            return pending;
        }
        tracing::info!("room is scarce after deletes: the store is compacted");
        let mut options = CompactOptions::default();
        options.set_exclusive_manual_compaction(false);
        self.each_family(|family| {
            self.rocks().compact_range_cf_opt(family, None::<&[u8]>, None::<&[u8]>, &options);
        });
        self.look_at_room();
        false
    }

    fn flush_all(&self) -> Result<(), rust_rocksdb::Error> {
        let options = FlushOptions::default();
        let mut done = Ok(());
        self.each_family(|family| {
            if done.is_ok() {
                done = self.rocks().flush_cf_opt(family, &options);
            }
        });
        done
    }

    /// Whether RocksDB compacts, or is about to.
    fn is_compacting(&self) -> bool {
        self.sum(properties::NUM_RUNNING_COMPACTIONS) > 0
            || self.sum(properties::COMPACTION_PENDING) > 0
    }

    /// Whether RocksDB flushes or compacts, or is about to.
    pub(super) fn is_working(&self) -> bool {
        self.is_compacting()
            || self.sum(properties::NUM_RUNNING_FLUSHES) > 0
            || self.sum(properties::MEM_TABLE_FLUSH_PENDING) > 0
    }
}

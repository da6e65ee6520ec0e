//! Makes room on full volumes: what was deleted goes in seconds, not when compactions happen to come by.
//!
//! A delete is a record more until a compaction meets what it deletes. On volumes with room that may
//! take as long as it likes. Where room is scarce, this thread flushes the memtables with the
//! deletes, and RocksDB compacts tables that mostly hold deletes by itself (`CompactOnDeletion`); when it
//! has nothing left to do and room is still scarce, the whole store is compacted. Where compactions find no
//! room, it takes small steps first: see [`Steps`]. The thread also sets aside again what was used of the
//! volumes' reserves.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use policy::time::Instant;
use pool::spread::Spread;
use rust_rocksdb::{CompactOptions, FlushOptions, properties};
use volume::Volume as _;
use volume::task::block_on;

use super::inner::Inner;
use super::steps::Steps;
use super::stop::ThreadStop;
use crate::volumes::Devices;

/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long it takes until a compaction that failed is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// A volume's own share of what its file system can spare is one part in so many at most.
const DEVICE_SHARE: u64 = 5;

/// The thread. It ends when this is dropped, and gives up a compaction under way.
pub(super) struct Reclaim {
    stop: Arc<ThreadStop>,
    store: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl Reclaim {
    pub(super) fn start(store: Arc<Inner>, pool: Spread, devices: Devices) -> Self {
        let stop = Arc::new(ThreadStop::default());
        let (stopped, reclaimed) = (Arc::clone(&stop), Arc::clone(&store));
        let thread = std::thread::Builder::new()
            .name("reclaim".into())
            .spawn(move || {
                let (mut steps, mut owed) = (Steps::default(), Owed::default());
                loop {
                    set_aside(&reclaimed, &pool, &devices);
                    if !stopped.wait(LOOK_EVERY) {
                        return;
                    }
                    if !steps.look(&reclaimed, &stopped) {
                        reclaimed.reclaim(&mut owed);
                    }
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
        self.stop.set();
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

/// Work that deletes left behind.
#[derive(Default)]
struct Owed {
    /// Their memtables were flushed, and what they delete is not gone yet.
    pending: bool,
    /// A compaction of the whole store failed; the next one is not begun before.
    not_before: Option<Instant>,
}

impl Inner {
    /// Makes room where it is scarce and keys were deleted since the last time, or room is still owed from
    /// then.
    fn reclaim(&self, owed: &mut Owed) {
        if !self.room().is_scarce() {
            *owed = Owed::default();
            return;
        }
        if self.first_level_is_full() && self.is_compacting() {
            // A flush would only make the first level longer. Where the compaction fails, steps follow.
            return;
        }
        if self.room().take_deleted() > 0 {
            if let Err(error) = self.flush_all() {
                tracing::warn!(%error, "memtables with deletes could not be flushed");
                self.room().count_deleted(1);
            }
            self.look_at_room();
            owed.pending = true;
            return;
        }
        let now = self.clock().now();
        let waits = owed.not_before.is_some_and(|not_before| now < not_before);
        if !owed.pending || waits || self.is_compacting() {
            return;
        }
        tracing::info!("room is scarce after deletes: the store is compacted");
        let failed = self.failed();
        let mut options = CompactOptions::default();
        // Where the room that is kept is for one compaction, none runs beside it.
        options.set_exclusive_manual_compaction(self.room().sizes().shrunk);
        // It flushes first, and else waits until that makes no writer wait: on a full store for ever.
        options.set_allow_write_stall(true);
        self.each_family(|family| {
            self.rocks().compact_range_cf_opt(family, None::<&[u8]>, None::<&[u8]>, &options);
        });
        self.look_at_room();
        owed.pending = self.failed() > failed;
        owed.not_before = owed.pending.then(|| now + AGAIN_AFTER);
    }

    fn flush_all(&self) -> Result<(), rust_rocksdb::Error> {
        let mut options = FlushOptions::default();
        // The merge that would spare writers the wait may itself wait for these deletes.
        options.set_allow_write_stall(true);
        let mut done = Ok(());
        self.each_family(|family| {
            if done.is_ok() {
                done = self.rocks().flush_cf_opt(family, &options);
            }
        });
        done
    }

    /// Flushes and compactions that failed since the store was opened.
    pub(super) fn failed(&self) -> u64 {
        let failed = self.rocks().property_int_value(properties::BACKGROUND_ERRORS);
        failed.ok().flatten().unwrap_or(0)
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

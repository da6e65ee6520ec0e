//! Reclaims the room of deleted keys on full volumes, in seconds.
//!
//! A delete adds a record; room is freed when a compaction drops the deleted one. On volumes with room that may take
//! any time. Where room is scarce, this thread flushes the memtables with the deletes, and RocksDB compacts tables that
//! mostly hold deletes (`CompactOnDeletion`). If RocksDB is idle and room is still scarce, the thread compacts the
//! whole store. Where compactions find no room, it takes small steps first: see [`Steps`]. It also restores the
//! volumes' reserves after their use.

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
use crate::stop::ThreadStop;
use crate::volumes::Devices;

/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The pause before a failed compaction is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// A volume's own reserve is at most this part of its file system, 1/5.
const DEVICE_SHARE: u64 = 5;

/// The thread. Dropping this ends it, and cancels its compaction.
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

    /// Whether the thread still runs: only a panic ends it early.
    pub(super) fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Reclaim {
    fn drop(&mut self) {
        self.stop.set();
        self.store.rocks().disable_manual_compaction();
        if let Some(thread) = self.thread.take() {
            // The thread fails only by a panic, which was reported.
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
        // A volume that does not answer now is away, or answers later.
        if let Ok(space) = block_on(device.gate().space()) {
            device.set_reserve(part.min(space.total / DEVICE_SHARE));
        }
    }
}

/// Work left by deletes.
#[derive(Default)]
struct Owed {
    /// Their memtables were flushed, but the deleted keys still take room.
    pending: bool,
    /// A compaction of the whole store failed; the next one does not begin before this time.
    not_before: Option<Instant>,
}

impl Inner {
    /// Reclaims room where it is scarce and keys were deleted since the last call, or such work is still owed.
    fn reclaim(&self, owed: &mut Owed) {
        if !self.room().is_scarce() {
            *owed = Owed::default();
            return;
        }
        if self.first_level_is_full() && self.is_compacting() {
            // A flush would only make the first level longer. If the compaction fails, steps follow.
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
        // With a reserve for one compaction, no other may run beside it.
        options.set_exclusive_manual_compaction(self.room().sizes().shrunk);
        // It flushes first. Otherwise it would wait until the flush delays no writer: for ever, on a full store.
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
        // The merge that would end the writers' wait may itself need the room of these deletes.
        options.set_allow_write_stall(true);
        let mut done = Ok(());
        self.each_family(|family| {
            if done.is_ok() {
                done = self.rocks().flush_cf_opt(family, &options);
            }
        });
        done
    }

    /// How many flushes and compactions failed since the store was opened.
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

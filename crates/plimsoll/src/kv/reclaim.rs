//! Reclaims the room of deleted keys on full volumes, in seconds.
//!
//! A delete adds a record; room is freed when a compaction drops the deleted one. On volumes with room that may take
//! any time. Where room is scarce, this thread flushes the memtables with the deletes once they free more than that
//! writes, and RocksDB compacts tables that mostly hold deletes (`CompactOnDeletion`). If RocksDB is idle and room is
//! still scarce, the thread compacts the keys that were deleted, as [`policy::reclaim`] chooses them: the tables say
//! where deletes are, so a restart forgets little of what is owed. Compactions run one at a time as long as room is
//! scarce: the reserve is for one. Where compactions find no room, it takes small steps
//! first: see [`Steps`].

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use policy::reclaim::{self, Compaction, Table};
use policy::time::Instant;
use policy::units::Bytes;
use rust_rocksdb::{
    CompactOptions, DEFAULT_COLUMN_FAMILY_NAME, FlushOptions, LiveFile, Options as RocksOptions,
    properties,
};
use volume::heartbeat::{Heartbeat, SILENCE_MAX, TaskHealth};

use super::inner::Inner;
use super::options::ONE_AT_A_TIME;
use super::steps::Steps;
use crate::stop::ThreadStop;

/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A compaction that rewrites at most this many times the reserve runs without an estimate of what it frees.
const CHEAP_RESERVES: u64 = 4;

/// The pause before a compaction is chosen again after one that failed, or where none was worth it.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// The thread. Dropping this ends it, and cancels its compaction.
pub(super) struct Reclaim {
    stop: Arc<ThreadStop>,
    store: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
    heartbeat: Heartbeat,
}

impl Reclaim {
    pub(super) fn start(store: Arc<Inner>) -> Self {
        let stop = Arc::new(ThreadStop::default());
        let heartbeat = Heartbeat::new("reclaiming room", SILENCE_MAX, store.clock());
        let beating = heartbeat.clone();
        let (stopped, reclaimed) = (Arc::clone(&stop), Arc::clone(&store));
        let thread = std::thread::Builder::new()
            .name("reclaim".into())
            .spawn(move || {
                let (mut steps, mut owed) = (Steps::default(), Owed::default());
                beating.supervise(|| {
                    loop {
                        if !stopped.wait(LOOK_EVERY) {
                            return;
                        }
                        // Compactions take any time. RocksDB's own show in its statistics.
                        let done = beating.long(|| reclaimed.look(&mut steps, &mut owed, &stopped));
                        beating.record(&done);
                    }
                });
            })
            .expect("the system has room for one more thread");
        Self { stop, store, thread: Some(thread), heartbeat }
    }

    pub(super) fn health(&self) -> TaskHealth {
        self.heartbeat.health()
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

/// Work left by deletes.
#[derive(Default)]
pub(super) struct Owed {
    /// The last compaction failed, or none was worth it; the next one does not begin before this time.
    not_before: Option<Instant>,
    /// RocksDB makes one compaction at a time.
    one_at_a_time: bool,
}

impl Inner {
    /// Takes steps where they are needed, and reclaims room, until `stop` is set.
    ///
    /// # Errors
    /// Why a flush or a compaction failed.
    pub(super) fn look(
        &self,
        steps: &mut Steps,
        owed: &mut Owed,
        stop: &ThreadStop,
    ) -> Result<(), String> {
        let scarce = self.room().is_scarce();
        if scarce {
            self.room().free_removed();
        }
        if std::mem::replace(&mut owed.one_at_a_time, scarce) != scarce {
            self.set_one_at_a_time(scarce);
        }
        if !steps.look(self, stop) {
            return self.reclaim(owed, stop);
        }
        // No step fits. The flush frees the log with the deletes.
        if stop.wait(Duration::ZERO) && self.flush_is_safe() {
            self.flush_deletes()?;
        }
        Ok(())
    }

    /// Makes RocksDB run one compaction at a time, or again as many as it was opened with. Those that run go on.
    fn set_one_at_a_time(&self, one: bool) {
        let opened = self.with_families(|families| {
            families.get(DEFAULT_COLUMN_FAMILY_NAME).map(RocksOptions::get_max_background_jobs)
        });
        let Some(opened) = opened else { return };
        let jobs = if one { opened.min(ONE_AT_A_TIME) } else { opened };
        if let Err(error) =
            self.rocks().set_db_options(&[("max_background_jobs", &jobs.to_string())])
        {
            // The option is in force. Only writing RocksDB's OPTIONS file failed, which an opening does not read.
            tracing::debug!(%error, "RocksDB did not save an option");
        }
    }

    /// Whether a flush takes at most half of the room, and its deletes free at least a table. One that finds no room
    /// makes writes fail. Flushes of few deletes leave many small tables, which would use up the reserve while nothing
    /// merges them.
    fn flush_is_safe(&self) -> bool {
        let room = self.largest_merge().1;
        room.unflushed <= room.writable / 2 && self.deletes_free() >= self.room().sizes().table
    }

    /// Reclaims room where it is scarce and deletes take it, until `stop` is set.
    ///
    /// # Errors
    /// Why a flush or a compaction failed.
    pub(super) fn reclaim(&self, owed: &mut Owed, stop: &ThreadStop) -> Result<(), String> {
        if !self.room().is_scarce() {
            owed.not_before = None;
            return Ok(());
        }
        if self.first_level_is_full() && self.is_compacting() {
            // A flush would only make the first level longer. If the compaction fails, steps follow.
            return Ok(());
        }
        if self.flush_deletes()? {
            owed.not_before = None;
            return Ok(());
        }
        let now = self.clock().now();
        if owed.not_before.is_some_and(|not_before| now < not_before) || self.is_compacting() {
            return Ok(());
        }
        let mut before = None;
        while self.room().is_scarce()
            && let Some((family, compaction)) = self.choose_compaction()
        {
            // The last one changed nothing: a reader needs what was deleted.
            if before.as_ref() == Some(&compaction) {
                before = None;
                break;
            }
            let failed = self.failed();
            self.compact(&family, &compaction);
            self.look_at_room();
            if self.failed() > failed {
                owed.not_before = Some(self.clock().now() + AGAIN_AFTER);
                return Err("a compaction after deletes failed: the log says why".into());
            }
            if !stop.wait(Duration::ZERO) {
                return Ok(());
            }
            before = Some(compaction);
        }
        if before.is_none() {
            owed.not_before = Some(self.clock().now() + AGAIN_AFTER);
        }
        Ok(())
    }

    /// Flushes the memtables if their deletes are worth it; gives whether they were.
    fn flush_deletes(&self) -> Result<bool, String> {
        if !self.flush_is_worth_it() {
            return Ok(false);
        }
        let deleted = self.room().take_deleted();
        if let Err(error) = self.flush_all() {
            self.room().return_deleted(deleted);
            let why = format!("memtables with deletes could not be flushed: {error}");
            tracing::warn!("{why}");
            return Err(why);
        }
        self.look_at_room();
        Ok(true)
    }

    /// Whether the deletes in memtables free at least as much as a flush of these writes.
    fn flush_is_worth_it(&self) -> bool {
        let frees = self.deletes_free();
        frees > 0 && frees >= self.unflushed()
    }

    /// About the bytes that the deletes in memtables free once they are compacted.
    fn deletes_free(&self) -> u64 {
        let mean = self.sum(properties::LIVE_SST_FILES_SIZE)
            / self.sum(properties::ESTIMATE_NUM_KEYS).max(1);
        self.room().deleted(mean)
    }

    /// The compaction that frees the most for what it rewrites, if one is worth it, and its family. Keys are compared
    /// byte by byte: with another order the estimate is worse.
    pub(super) fn choose_compaction(&self) -> Option<(String, Compaction)> {
        let files = self.rocks().live_files().ok()?;
        let ranges = self.room().deleted_ranges();
        let cheap = CHEAP_RESERVES * self.room().sizes().reserve;
        let compactions = self.leveled().into_iter().filter_map(|family| {
            let files = files.iter().filter(|file| file.column_family_name == family.name);
            let tables: Vec<_> = files.filter_map(table).collect();
            // Deleted ranges are known of the default family alone.
            let ranges = if family.name == DEFAULT_COLUMN_FAMILY_NAME { &ranges[..] } else { &[] };
            Some((family.name, reclaim::choose(&tables, ranges, cheap)?))
        });
        compactions.max_by_key(|(_, compaction)| compaction.frees)
    }

    fn compact(&self, family: &str, compaction: &Compaction) {
        let Some(handle) = self.rocks().cf_handle(family) else { return };
        let Compaction { first, last, rewrites, frees } = compaction;
        tracing::info!(
            family,
            rewrites = %Bytes(*rewrites),
            frees = %Bytes(*frees),
            "room is scarce after deletes: their keys are compacted"
        );
        let mut options = CompactOptions::default();
        // The reserve is for one compaction: no other may run beside it.
        options.set_exclusive_manual_compaction(true);
        // It flushes first. Otherwise it would wait until the flush delays no writer: for ever, on a full store.
        options.set_allow_write_stall(true);
        self.rocks().compact_range_cf_opt(&handle, Some(first), Some(last), &options);
        self.room().forget_deleted(first, last);
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

/// A table as the choice of a compaction sees it.
fn table(file: &LiveFile) -> Option<Table> {
    Some(Table {
        level: usize::try_from(file.level).ok()?,
        bytes: file.size as u64,
        entries: file.num_entries,
        deletions: file.num_deletions,
        first: file.start_key.clone()?,
        last: file.end_key.clone()?,
    })
}

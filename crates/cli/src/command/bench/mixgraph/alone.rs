//! RocksDB alone in a directory, as people run it on a cloud volume: the baseline.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use engine::kv::{Change, Count, Durability, Error, KeyRange, KeyValue, Result, Scan};
use rust_rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, Options, WaitForCompactOptions, WriteBatch,
};

/// What [`Alone::open`] leaves beside the database, with the number of records that it holds.
const MARK: &str = "plimsoll-mixgraph";

/// The store.
pub(super) struct Alone {
    db: DB,
    dir: PathBuf,
    records: u64,
}

impl Alone {
    /// Its options, for reports.
    pub(super) const ABOUT: &'static str = "RocksDB's defaults for levels, memtables (64 MiB) and tables, LZ4, 4 \
        background jobs, direct I/O, block cache CACHE with indexes and filters in it, 10 bits of filter, log synced \
        each second";

    /// Opens the database in `dir/plimsoll-mixgraph`, and says whether it holds `records` of an earlier run. One with
    /// other records is removed.
    pub(super) fn open(dir: &Path, cache: u64, records: u64) -> anyhow::Result<(Self, bool)> {
        let dir = dir.join(MARK);
        let mark = dir.join(MARK);
        let there = match fs::read_to_string(&mark) {
            Ok(text) => text.trim() == records.to_string(),
            Err(_) if dir.exists() && fs::read_dir(&dir)?.next().is_some() => {
                bail!(
                    "{} holds data that is not a whole run's; remove it, or name another directory",
                    dir.display()
                );
            }
            Err(_) => false,
        };
        if !there && dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
        }
        let mut tables = BlockBasedOptions::default();
        tables.set_block_cache(&Cache::new_lru_cache(usize::try_from(cache)?));
        tables.set_cache_index_and_filter_blocks(true);
        tables.set_pin_l0_filter_and_index_blocks_in_cache(true);
        tables.set_bloom_filter(10.0, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&tables);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_max_background_jobs(4);
        options.set_use_direct_reads(true);
        options.set_use_direct_io_for_flush_and_compaction(true);
        let db = DB::open(&options, &dir).with_context(|| format!("open {}", dir.display()))?;
        // A run that is killed leaves no mark.
        if mark.exists() {
            fs::remove_file(&mark)?;
        }
        Ok((Self { db, dir, records }, there))
    }

    /// Syncs the log each second until the other end of `running` is gone, as ours does.
    pub(super) fn sync_each_second(&self, running: &Receiver<()>) {
        while running.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
            if let Err(error) = self.db.flush_wal(true) {
                tracing::error!("RocksDB's log is not synced: {error}");
            }
        }
    }

    /// Waits for the compactions after a load.
    pub(super) fn compact(&self) -> anyhow::Result<()> {
        let mut wait = WaitForCompactOptions::default();
        wait.set_flush(true);
        self.db.wait_for_compact(&wait).context("compacting what was loaded")
    }

    /// Closes it; leaves it for the next run, or removes it.
    pub(super) fn close(self, keep: bool) -> anyhow::Result<()> {
        let Self { db, dir, records } = self;
        db.flush()?;
        drop(db);
        if keep {
            fs::write(dir.join(MARK), format!("{records}\n"))?;
        } else {
            fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
        }
        Ok(())
    }
}

fn failed(error: rust_rocksdb::Error) -> Error {
    Error::Other(error.into_string())
}

/// Only what the load asks of a store.
impl KeyValue for Alone {
    fn get_many(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        let values = self.db.multi_get(keys).into_iter();
        values.map(|value| Ok(value.map_err(failed)?.map(Bytes::from))).collect()
    }

    fn apply(&self, changes: &[Change]) -> Result<()> {
        let mut batch = WriteBatch::default();
        for change in changes {
            match change {
                Change::Put(key, value) => batch.put(key, value),
                Change::Delete(key) => batch.delete(key),
                Change::DeleteRange(_) => unreachable!("mixgraph deletes nothing"),
            }
        }
        self.db.write(&batch).map_err(failed)
    }

    fn scan(&self, _: &Scan) -> Result<Vec<(Bytes, Bytes)>> {
        unreachable!("this mix has no scans")
    }

    fn count(&self, _: &KeyRange) -> Result<Count> {
        unreachable!("mixgraph counts nothing")
    }

    fn durability(&self) -> Durability {
        Durability::EverySec
    }
}

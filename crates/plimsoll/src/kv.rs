//! A key-value store over a pool: RocksDB, with options that fit contracted volumes.
//!
//! It is not a wall around RocksDB: [`Db`] dereferences to [`rust_rocksdb::DB`], and keeps working
//! beside snapshots, iterators, column families and checkpoints made through it. What it adds is the
//! trait [`KeyValue`], which front doors serve: commands that are atomic, errors that say what to do.

use std::ops::Deref;
use std::time::Duration;

use bytes::Bytes;
use engine::kv::{Change, Count, Durability, Error, KeyRange, KeyValue, Result, Scan};
use policy::units::MIB;
use pool::spread::Spread;
use rust_rocksdb::{
    BlockBasedOptions, Cache, DBCompressionType, ErrorKind, Options as RocksOptions, Range,
    ReadOptions, SizeApproximationOptions, WriteBatch, WriteOptions,
};
use volume::Clock;

/// The most keys that [`KeyValue::count`] counts one by one; beyond, RocksDB's estimate is given, which
/// counts a key that was overwritten lately twice. Counting this many takes some milliseconds.
pub const COUNT_EXACT_MAX: u64 = 10_000;

/// How long a log may stay unsynced where nobody is promised more than the death of the process: as
/// long as the kernel itself would wait.
const SYNC_INTERVAL_LAX: Duration = Duration::from_secs(30);

/// How a store is opened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Options {
    /// Its name in the pool. Default: `kv`.
    pub name: String,
    /// Memory in bytes: half for cached blocks with their indexes and filters, a quarter for memtables,
    /// a quarter for tables under construction. Default 512 MiB; at least 32 MiB. More: fewer reads
    /// reach a volume, and fewer bytes are written again by compactions.
    pub memory: u64,
    /// What an acknowledged write survives. Default: everysec.
    pub durability: Durability,
    /// The longest a write waits for its sync unless `durability` is `Always`; with `None` it is at
    /// least 30 s. Default 1 s. Less costs operations, more loses more when the machine dies.
    pub wal_sync_interval: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "kv".into(),
            memory: 512 * MIB,
            durability: Durability::default(),
            wal_sync_interval: Duration::from_secs(1),
        }
    }
}

/// An open store. Dropping it, or [`Db::close`], stops background work and makes its logs durable.
pub struct Db {
    rocks: rocks::Db,
    cache: Cache,
    durability: Durability,
}

/// Opens the store in `pool`, or makes it. `clock` is the one the pool's gates decide by.
///
/// # Errors
/// As [`rocks::open`].
pub fn open(pool: Spread, clock: Clock, options: &Options) -> rocks::Result<Db> {
    let cache = Cache::new_lru_cache(bytes(options.memory / 2));
    let settings = io_settings(options);
    let rocks = rocks::open(pool, clock, &options.name, rocks_options(options, &cache), settings)?;
    Ok(Db { rocks, cache, durability: options.durability })
}

fn io_settings(options: &Options) -> rocks::Settings {
    let table_buffers = options.memory / 4;
    let usual = rocks::Settings::default();
    rocks::Settings {
        table_buffers,
        table_buffer_max: usual.table_buffer_max.min(table_buffers / 2),
        table_tails: usual.table_tails.min(options.memory / 32),
        wal_sync_interval: match options.durability {
            Durability::None => options.wal_sync_interval.max(SYNC_INTERVAL_LAX),
            _ => options.wal_sync_interval,
        },
        ..usual
    }
}

fn rocks_options(options: &Options, cache: &Cache) -> RocksOptions {
    let mut tables = BlockBasedOptions::default();
    tables.set_block_cache(cache);
    tables.set_bloom_filter(10.0, false);
    // Indexes and filters are paid from the same memory, and kept before data.
    tables.set_cache_index_and_filter_blocks(true);
    tables.set_cache_index_and_filter_blocks_with_high_priority(true);
    tables.set_pin_l0_filter_and_index_blocks_in_cache(true);
    tables.set_format_version(6);

    let memtables = options.memory / 4;
    let memtable = (memtables / 4).clamp(2 * MIB, 64 * MIB);
    let table = (options.memory / 16).clamp(2 * MIB, 64 * MIB);
    let mut rocks = RocksOptions::default();
    rocks.create_if_missing(true);
    rocks.set_block_based_table_factory(&tables);
    rocks.set_db_write_buffer_size(bytes(memtables));
    rocks.set_write_buffer_size(bytes(memtable));
    rocks.set_max_write_buffer_number(4);
    rocks.set_target_file_size_base(table);
    rocks.set_max_bytes_for_level_base(4 * memtable);
    rocks.set_level_compaction_dynamic_level_bytes(true);
    rocks.set_compression_type(DBCompressionType::Lz4);
    rocks.set_bottommost_compression_type(DBCompressionType::Zstd);
    rocks.set_max_background_jobs(4);
    rocks.set_max_subcompactions(2);
    rocks
}

fn bytes(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

impl Db {
    /// Memory that caches and buffers hold now, in bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let property = |name| self.rocks.property_int_value(name).ok().flatten().unwrap_or(0);
        self.cache.get_usage() as u64
            + property("rocksdb.cur-size-all-mem-tables")
            + property("rocksdb.estimate-table-readers-mem")
    }

    /// Stops background work, closes the database and makes durable what was written. The pool is
    /// free for its own [`Spread::close`] then.
    pub fn close(self) {
        drop(self);
    }

    /// Deletes the range, which RocksDB wants to have an end. `put_last` is the last key that `batch`
    /// has put so far: it goes too if it is in the range.
    fn delete_range(
        &self,
        batch: &mut WriteBatch,
        range: &KeyRange,
        put_last: Option<&Bytes>,
    ) -> Result<()> {
        match &range.to {
            _ if range.is_empty() => {}
            Some(to) => batch.delete_range(&range.from, to),
            None => {
                let mut entries = self.rocks.raw_iterator_opt(bounded(range));
                entries.seek_to_last();
                entries.status().map_err(store_error)?;
                let put_last = put_last.filter(|key| range.contains(key)).map(|key| &key[..]);
                if let Some(last) = entries.key().max(put_last) {
                    batch.delete_range(&range.from[..], last);
                    batch.delete(last);
                }
            }
        }
        Ok(())
    }

    /// The store's estimate for all keys, and of it the share that the bytes of `range` have; at least
    /// the keys that were `counted` before it was asked.
    fn estimate(&self, range: &KeyRange, counted: u64) -> Result<Count> {
        let estimate = self.rocks.property_int_value("rocksdb.estimate-num-keys");
        let estimate = estimate.map_err(store_error)?.unwrap_or(0);
        let share = if *range == KeyRange::ALL { 1.0 } else { self.share(range) };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate")]
        let keys = (estimate as f64 * share) as u64;
        Ok(Count { keys: keys.max(counted), exact: false })
    }

    /// The share of the store's bytes that lies in `range`.
    fn share(&self, range: &KeyRange) -> f64 {
        // No key of ours begins with this many of the highest byte.
        const END: &[u8] = &[u8::MAX; 64];
        let mut options = SizeApproximationOptions::default();
        options.set_include_memtables(true);
        let ranges =
            [Range::new(&range.from, range.to.as_deref().unwrap_or(END)), Range::new(&[], END)];
        match self.rocks.get_approximate_sizes_with_options(&options, &ranges).as_deref() {
            Ok(&[part, all]) if all > 0 => part as f64 / all as f64,
            _ => 1.0,
        }
    }

    fn write(&self, batch: &WriteBatch) -> Result<()> {
        let mut options = WriteOptions::default();
        options.set_sync(self.durability == Durability::Always);
        self.rocks.write_opt(batch, &options).map_err(store_error)
    }
}

impl Deref for Db {
    type Target = rust_rocksdb::DB;

    fn deref(&self) -> &Self::Target {
        &self.rocks
    }
}

impl KeyValue for Db {
    fn get_many(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        let values: Vec<_> = match keys {
            [key] => vec![self.rocks.get(key)],
            keys => self.rocks.multi_get(keys),
        };
        let found = |value: std::result::Result<Option<_>, _>| Ok(value?.map(Bytes::from));
        values.into_iter().map(found).collect::<std::result::Result<_, _>>().map_err(store_error)
    }

    fn apply(&self, changes: &[Change]) -> Result<()> {
        let mut batch = WriteBatch::default();
        let mut put_last = None;
        for change in changes {
            match change {
                Change::Put(key, value) => {
                    batch.put(key, value);
                    put_last = put_last.max(Some(key));
                }
                Change::Delete(key) => batch.delete(key),
                Change::DeleteRange(range) => self.delete_range(&mut batch, range, put_last)?,
            }
        }
        self.write(&batch)
    }

    fn scan(&self, scan: &Scan) -> Result<Vec<(Bytes, Bytes)>> {
        let mut found = Vec::new();
        if scan.range.is_empty() {
            return Ok(found);
        }
        let mut entries = self.rocks.raw_iterator_opt(bounded(&scan.range));
        if scan.reverse {
            entries.seek_to_last();
        } else {
            entries.seek_to_first();
        }
        let mut bytes = 0;
        while found.len() < scan.entries_max
            && bytes < scan.bytes_max.max(1)
            && let Some((key, value)) = entries.item()
        {
            bytes += key.len() + value.len();
            found.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
            if scan.reverse {
                entries.prev();
            } else {
                entries.next();
            }
        }
        entries.status().map_err(store_error)?;
        Ok(found)
    }

    fn count(&self, range: &KeyRange) -> Result<Count> {
        if range.is_empty() {
            return Ok(Count { keys: 0, exact: true });
        }
        let mut options = bounded(range);
        options.fill_cache(false);
        // What was deleted or overwritten is walked over too: not for longer than this.
        options.set_max_skippable_internal_keys(4 * COUNT_EXACT_MAX);
        let mut keys = self.rocks.raw_iterator_opt(options);
        keys.seek_to_first();
        let mut counted = 0;
        while keys.valid() && counted <= COUNT_EXACT_MAX {
            counted += 1;
            keys.next();
        }
        match keys.status() {
            Ok(()) if counted <= COUNT_EXACT_MAX => Ok(Count { keys: counted, exact: true }),
            Err(error) if error.kind() != ErrorKind::Incomplete => Err(store_error(error)),
            _ => self.estimate(range, counted),
        }
    }

    fn durability(&self) -> Durability {
        self.durability
    }
}

/// For a walk over `range` alone.
fn bounded(range: &KeyRange) -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_iterate_lower_bound(&range.from[..]);
    if let Some(to) = &range.to {
        options.set_iterate_upper_bound(&to[..]);
    }
    options
}

/// What a front door tells its client to do about an error of RocksDB.
fn store_error(error: rust_rocksdb::Error) -> Error {
    let kind = error.kind();
    let text = error.into_string();
    match kind {
        ErrorKind::IOError if text.contains("No space left") => Error::OutOfSpace(text),
        ErrorKind::IOError => Error::Unavailable(text),
        ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::TryAgain | ErrorKind::Incomplete => {
            Error::Busy(text)
        }
        ErrorKind::Corruption => Error::Corrupt(text),
        ErrorKind::ShutdownInProgress => Error::Closed(text),
        _ => Error::Other(text),
    }
}

#[cfg(test)]
mod tests;

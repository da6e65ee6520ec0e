//! The settings of a store, and the options of RocksDB that follow from them.
//!
//! Sizes follow from `memory` unless they are given: half of it caches blocks, a quarter (up to 256 MiB) holds
//! memtables, a quarter tables under construction. A [`Family`](super::Family) sets all other options of RocksDB.

use std::sync::Arc;
use std::time::Duration;

use engine::kv::Durability;
use policy::cache::Kind;
use policy::key_counts::KeyCounts;
use policy::room::{Sizes, Wanted};
use policy::units::MIB;
use pool::cache;
use rust_rocksdb::{BlockBasedOptions, Cache, DBCompressionType, Options as RocksOptions};

/// How long a log may stay unsynced where a write only has to survive the end of the process: as long as the kernel
/// itself would wait.
const SYNC_INTERVAL_LAX: Duration = Duration::from_secs(30);

/// What a cache tier keeps at least, in bytes.
const PAGE: usize = 4096;

/// Bytes by which a block is smaller than a page, for its trailer and the last of its restarts. RocksDB closes a block before the record
/// that would make it larger, if nine tenths of it are full: with records of up to 400 bytes, a block that begins with a page ends in
/// it.
const BLOCK_SPARE: usize = 96;

/// Bytes that may be left empty so that a block lies in one page.
const PADDING_MAX: usize = 512;

/// The part of the memory for counts of reads, and the most bytes.
const KEY_COUNTS_PART: u64 = 32;
const KEY_COUNTS_MAX: u64 = 64 * MIB;

/// A table of which this part are deletes is compacted by itself: until then the deleted keys take room.
const DELETED_SHARE: f64 = 0.5;

/// The numbers of tables in the first level at which writers slow down and stop, on small volumes: a merge at RocksDB's
/// defaults of 20 and 36 would not fit the reserve there.
const SMALL_LEVEL0_SLOWDOWN: i32 = 8;
const SMALL_LEVEL0_STOP: i32 = 12;

/// RocksDB's jobs for one flush and one compaction at a time, on such volumes and on full ones: the reserve has room for one
/// compaction, not for two.
pub(super) const ONE_AT_A_TIME: i32 = 2;

/// A store's settings. All of them may differ from one opening to the next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Options {
    /// Its name in the pool. Default: `kv`.
    pub name: String,
    /// Memory in bytes for caches and buffers together. Default 512 MiB; at least 32 MiB. More: fewer
    /// reads reach a volume, and fewer bytes are written again by compactions.
    pub memory: u64,
    /// What an acknowledged write survives. Default: everysec.
    pub durability: Durability,
    /// The longest that a write stays unsynced, unless `durability` is `Always`; with `None` it is at least 30 s.
    /// Default 1 s. Less costs operations, more loses more with the machine.
    pub wal_sync_interval: Duration,
    /// Bytes of one memtable. Default: a sixteenth of `memory`, from 2 MiB to 64 MiB. On small volumes it is at most
    /// their 192nd part, and so are tables: see [`policy::room`]. More: fewer and larger tables in the first level,
    /// fewer compactions of it; less: a shorter log to read after a crash.
    pub memtable: Option<u64>,
    /// How many memtables there may be, the one that takes writes included, before writers wait for a flush. Default 4;
    /// at least 2. All families share the memory of this many. More: longer bursts of writes do not wait for the
    /// volumes.
    pub memtables: u32,
    /// Bytes of one table, compressed. Default: a sixteenth of `memory`, from 2 MiB to 64 MiB; the papers' tests use 8
    /// MiB. Smaller: work and heat spread more evenly over volumes, and compactions rewrite fewer bytes needlessly.
    /// Larger: fewer files, a smaller manifest. A table over 64 MiB, or over an eighth of `memory`, is written in
    /// pieces and placed by its level alone.
    pub table_size: Option<u64>,
    /// The minimum size of the first level below the newest tables, in bytes. Default: four memtables. More: fewer
    /// levels, more bytes rewritten by each compaction into it.
    pub level_base: Option<u64>,
    /// Bits of a Bloom filter for each key. Default 10: one of a hundred reads of an absent key reads a volume in vain.
    /// More: fewer such reads, more memory; 0: no filters.
    pub bloom_bits: u32,
    /// Bytes of cached blocks, with the indexes and filters of all tables. Default: half of `memory`.
    pub cache: Option<u64>,
    /// The cache of blocks and its eviction policy. Default: LRFU.
    pub cache_policy: CachePolicy,
    /// Whether neighbourhoods of 256 KiB that are read often are read ahead, each with one operation that no user
    /// needs. Default: yes. They share the bytes of `cache` with single blocks, each by what it saves. Not with
    /// `CachePolicy::RocksDb`, whose cache hides which blocks are in demand. With `CachePolicy::None` they are all that
    /// is cached.
    pub prefetch: bool,
    /// Whether hot neighbourhoods stay cached when flushes and compactions rewrite them, from the bytes about to be
    /// written: this costs no operation. Default: yes. Only with `prefetch`.
    pub rewarm: bool,
    /// Whether data blocks are cached. Default: yes. If not, no block cache is made: the indexes and filters of all
    /// tables stay in memory in addition to `memory`, about 2 bytes a key, and every read of a value that is not in a
    /// memtable reaches a volume. The papers' tests measure volumes this way ("metadata only"); it suits a load far
    /// larger than any cache.
    pub cache_data: bool,
    /// Whether blocks of data end before a page of 4 KiB does, where that leaves at most 512 bytes of it empty. Default: where the
    /// pool has a cache tier, which keeps whole pages: a block of 4 KiB across two of them takes the room of two. Tables grow by up
    /// to an eighth. With records of more than 400 bytes, blocks may be larger than a page all the same.
    pub blocks_in_pages: Option<bool>,
    /// Whether reads of keys are counted, so that a cache tier keeps what was read most of a table as flushes and compactions write it
    /// anew: else the tier learns it from reads that miss. The store counts the keys that callers read by
    /// [`KeyValue::get_many`](engine::kv::KeyValue::get_many) or `get_many_within`, where memory does not answer. Default: where the pool has a cache tier. The counts take a 32nd of `memory` from the cache of blocks, at most 64 MiB.
    pub counts_reads: Option<bool>,
    /// Compression of all levels but the last. Default: LZ4.
    pub compression: Compression,
    /// Compression of the last level, where nine tenths of the data are. Default: Zstd. It takes more time to write,
    /// about three times LZ4's to read, and saves room and bytes of compactions.
    pub compression_last: Compression,
    /// Flushes and compactions at the same time. Default 4. More use more of a machine's cores and of its pool's idle
    /// volumes; gates let users go first in any case. On volumes so small that memtables shrink, and on all while
    /// they are nearly full, there are two: the reserve is for one compaction.
    pub jobs: u32,
    /// How many tables may be open at once. Default: no limit. Less leaves descriptors to others; a table that is not
    /// open is opened by its next read, which then also reads its index.
    pub tables_open: Option<u32>,
    /// Parts of one compaction at the same time. Default 2. More end a compaction of the first level sooner, when
    /// writers wait for it.
    pub subcompactions: u32,
}

/// The cache of blocks in memory. All variants get the same bytes.
///
/// All but [`RocksDb`](Self::RocksDb) keep blocks as they are on the volume: compressed, so that more of them fit, and
/// verified and decompressed on each read. RocksDB holds the indexes and filters of all tables, always in memory;
/// blocks get the rest.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum CachePolicy {
    /// Blocks with the most and latest reads: see [`policy::cache::Lrfu`].
    Lrfu,
    /// Blocks on probation, and blocks that were read again: see [`policy::cache::S3Fifo`].
    S3Fifo,
    /// Blocks read since the eviction hand passed: see [`policy::cache::Sieve`].
    Sieve,
    /// Blocks read last: see [`policy::cache::Lru`].
    Lru,
    /// No block is kept because it was read: to measure all other effects.
    None,
    /// RocksDB's own LRU block cache: decompressed blocks, with indexes and filters. The least processor time where all
    /// data fit; otherwise more reads reach volumes.
    RocksDb,
}

/// How blocks of tables are compressed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Compression {
    /// None: for compressed values, and to count bytes in tests.
    None,
    /// LZ4: little time, about half the size of text.
    Lz4,
    /// Zstandard: more time, about a third of the size of text.
    Zstd,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "kv".into(),
            memory: 512 * MIB,
            durability: Durability::default(),
            wal_sync_interval: Duration::from_secs(1),
            memtable: None,
            memtables: 4,
            table_size: None,
            level_base: None,
            bloom_bits: 10,
            cache: None,
            cache_policy: CachePolicy::Lrfu,
            prefetch: true,
            rewarm: true,
            cache_data: true,
            blocks_in_pages: None,
            counts_reads: None,
            compression: Compression::Lz4,
            compression_last: Compression::Zstd,
            jobs: 4,
            tables_open: None,
            subcompactions: 2,
        }
    }
}

impl Options {
    /// Bytes of one memtable.
    #[must_use]
    pub fn memtable(&self) -> u64 {
        self.memtable.unwrap_or((self.memory / 16).clamp(2 * MIB, 64 * MIB))
    }

    /// Bytes of one table.
    #[must_use]
    pub fn table_size(&self) -> u64 {
        self.table_size.unwrap_or((self.memory / 16).clamp(2 * MIB, 64 * MIB))
    }

    /// The minimum size of the first level, in bytes.
    #[must_use]
    pub fn level_base(&self) -> u64 {
        self.level_base.unwrap_or(4 * self.memtable())
    }

    /// Bytes of cached blocks; `None` where data are not cached.
    #[must_use]
    pub fn cache(&self) -> Option<u64> {
        let usual = self.memory / 2 - self.key_counts_bytes().unwrap_or(0);
        self.cache_data.then(|| self.cache.unwrap_or(usual))
    }

    /// Bytes of the counts of reads, if reads are counted.
    fn key_counts_bytes(&self) -> Option<u64> {
        let bytes = (self.memory / KEY_COUNTS_PART).min(KEY_COUNTS_MAX);
        (self.counts_reads == Some(true)).then_some(bytes)
    }

    /// The counts of reads, if they are counted.
    pub(super) fn key_counts(&self) -> Option<Arc<KeyCounts>> {
        self.key_counts_bytes().map(|bytes| Arc::new(KeyCounts::new(bytes)))
    }

    /// RocksDB's block cache, if the policy uses it.
    pub(super) fn block_cache(&self) -> Option<Cache> {
        let size = self.cache().filter(|_| self.cache_policy == CachePolicy::RocksDb);
        size.map(|size| Cache::new_lru_cache(bytes(size)))
    }

    /// The cache below RocksDB, if the policy uses it.
    pub(super) fn file_cache(&self) -> Option<cache::Cache> {
        let policy = match self.cache_policy {
            CachePolicy::Lrfu => Some(Kind::Lrfu),
            CachePolicy::S3Fifo => Some(Kind::S3Fifo),
            CachePolicy::Sieve => Some(Kind::Sieve),
            CachePolicy::Lru => Some(Kind::Lru),
            CachePolicy::None => None,
            CachePolicy::RocksDb => return None,
        };
        Some(cache::Cache::new(cache::Options {
            bytes: self.cache()?,
            policy,
            prefetch: self.prefetch,
            rewarm: self.rewarm,
        }))
    }

    pub(super) fn io(&self) -> rocks::Settings {
        let table_buffers = self.memory / 4;
        let usual = rocks::Settings::default();
        rocks::Settings {
            table_buffers,
            table_buffer_max: usual.table_buffer_max.min(table_buffers / 2),
            table_tails: usual.table_tails.min(self.memory / 32),
            wal_sync_interval: match self.durability {
                Durability::None => self.wal_sync_interval.max(SYNC_INTERVAL_LAX),
                _ => self.wal_sync_interval,
            },
            ..usual
        }
    }

    pub(super) fn tables(&self, cache: Option<&Cache>) -> BlockBasedOptions {
        let mut tables = BlockBasedOptions::default();
        match cache {
            None => tables.disable_cache(),
            Some(cache) => {
                tables.set_block_cache(cache);
                // Indexes and filters count against the same memory, and are kept before data.
                tables.set_cache_index_and_filter_blocks(true);
                tables.set_cache_index_and_filter_blocks_with_high_priority(true);
                tables.set_pin_l0_filter_and_index_blocks_in_cache(true);
            }
        }
        if self.bloom_bits > 0 {
            tables.set_bloom_filter(f64::from(self.bloom_bits), false);
        }
        tables.set_format_version(6);
        if self.blocks_in_pages == Some(true) {
            tables.set_block_size(PAGE - BLOCK_SPARE);
            tables.set_super_block_alignment_size(PAGE);
            tables.set_super_block_alignment_space_overhead_ratio(PAGE / PADDING_MAX);
        }
        tables
    }

    /// The sizes it would have on large volumes.
    pub(super) fn wanted(&self) -> Wanted {
        Wanted {
            memtable: self.memtable(),
            memtables: self.memtables.into(),
            table: self.table_size(),
            level_base: self.level_base(),
        }
    }

    pub(super) fn rocks(&self, sizes: &Sizes) -> RocksOptions {
        let mut rocks = RocksOptions::default();
        rocks.create_if_missing(true);
        rocks.create_missing_column_families(true);
        let memtables = sizes.memtable.saturating_mul(self.memtables.into());
        rocks.set_db_write_buffer_size(bytes(memtables));
        rocks.set_write_buffer_size(bytes(sizes.memtable));
        rocks.set_max_write_buffer_number(whole(self.memtables));
        rocks.set_target_file_size_base(sizes.table);
        rocks.set_max_bytes_for_level_base(sizes.level_base);
        rocks.add_compact_on_deletion_collector_factory(0, 0, DELETED_SHARE);
        let mut jobs = whole(self.jobs);
        if sizes.shrunk {
            jobs = jobs.min(ONE_AT_A_TIME);
            // The reserve has to hold a merge of the first level, and one of any other level.
            rocks.set_level_zero_slowdown_writes_trigger(SMALL_LEVEL0_SLOWDOWN);
            rocks.set_level_zero_stop_writes_trigger(SMALL_LEVEL0_STOP);
            rocks.set_max_compaction_bytes(sizes.level_base + sizes.table);
        }
        rocks.set_level_compaction_dynamic_level_bytes(true);
        rocks.set_compression_type(self.compression.into());
        rocks.set_bottommost_compression_type(self.compression_last.into());
        rocks.set_max_background_jobs(jobs);
        rocks.set_max_open_files(self.tables_open.map_or(-1, whole));
        rocks.set_max_subcompactions(self.subcompactions);
        rocks
    }
}

impl From<Compression> for DBCompressionType {
    fn from(compression: Compression) -> Self {
        match compression {
            Compression::None => Self::None,
            Compression::Lz4 => Self::Lz4,
            Compression::Zstd => Self::Zstd,
        }
    }
}

fn bytes(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

fn whole(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

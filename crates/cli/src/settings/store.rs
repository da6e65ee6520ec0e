//! The part of `[kv]` about the store itself: memory, durability, and options of RocksDB.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use plimsoll::kv::{CachePolicy, Compression, Durability, Options};
use policy::units::{GIB, KIB, MIB};

use super::document::{Field, Section};
use super::{Entry, Mistake, units};

/// The least memory for RocksDB: a few small memtables and some cache.
const MEMORY_MIN: u64 = 32 * MIB;

/// Smaller memtables and tables consist mostly of metadata. Larger memtables do not fit RocksDB's arenas, and larger
/// tables make compactions too long.
const SIZES: RangeInclusive<u64> = 64 * KIB..=4 * GIB;

const DURABILITIES: [(&str, Durability); 3] = [
    ("always", Durability::Always),
    ("everysec", Durability::EverySec),
    ("none", Durability::None),
];

const COMPRESSIONS: [(&str, Compression); 3] =
    [("none", Compression::None), ("lz4", Compression::Lz4), ("zstd", Compression::Zstd)];

const CACHE_POLICIES: [(&str, CachePolicy); 6] = [
    ("lrfu", CachePolicy::Lrfu),
    ("s3-fifo", CachePolicy::S3Fifo),
    ("sieve", CachePolicy::Sieve),
    ("lru", CachePolicy::Lru),
    ("none", CachePolicy::None),
    ("rocksdb", CachePolicy::RocksDb),
];

pub(super) fn read(section: &Section<'_>) -> Options {
    let usual = Options::default();
    let size = |key, range| section.read(key, |field| size(field, range));
    let number = |key, usual: u32, range: RangeInclusive<u64>| {
        section.read(key, |field| field.number(range)).map_or(usual, |number| number as u32)
    };
    let flag = |key, usual| section.read_or(key, usual, Field::flag);
    let compression = one_of(section, "compression", &COMPRESSIONS);
    let compression_last = one_of(section, "compression_last", &COMPRESSIONS);
    let wal_sync_interval =
        section.read_or("wal_sync_interval", usual.wal_sync_interval, |field| {
            let (shortest, longest) = (Duration::from_millis(10), Duration::from_secs(60));
            field.parsed("a duration from \"10ms\" to \"60s\"", |text| {
                units::duration(text).filter(|wait| (shortest..=longest).contains(wait))
            })
        });
    let options = Options {
        memory: size("memory", MEMORY_MIN..=u64::MAX).unwrap_or(usual.memory),
        durability: one_of(section, "durability", &DURABILITIES).unwrap_or(usual.durability),
        wal_sync_interval,
        memtable: size("memtable", SIZES),
        memtables: number("memtables", usual.memtables, 2..=64),
        table_size: size("table_size", SIZES),
        level_base: size("level_base", *SIZES.start()..=u64::MAX),
        bloom_bits: number("bloom_bits", usual.bloom_bits, 0..=32),
        cache: size("cache", 1..=u64::MAX),
        cache_data: flag("cache_data", usual.cache_data),
        cache_policy: one_of(section, "cache_policy", &CACHE_POLICIES)
            .unwrap_or(usual.cache_policy),
        // The store looks at its pool.
        blocks_in_pages: usual.blocks_in_pages,
        counts_reads: usual.counts_reads,
        prefetch: flag("prefetch", usual.prefetch),
        rewarm: flag("rewarm", usual.rewarm),
        // A single choice of compression applies to all levels.
        compression_last: compression_last.or(compression).unwrap_or(usual.compression_last),
        compression: compression.unwrap_or(usual.compression),
        jobs: number("jobs", usual.jobs, 2..=64),
        subcompactions: number("subcompactions", usual.subcompactions, 1..=64),
        // The program divides the limit of open files once all settings are read.
        tables_open: usual.tables_open,
        name: usual.name,
    };
    for key in ["cache", "cache_policy", "prefetch", "rewarm"] {
        if let (Some(field), false) = (section.get(key), options.cache_data) {
            let what = format!("no {key}, unless cache_data = true");
            section.note(field.mistake(what));
        }
    }
    options
}

/// The effective settings, including those derived from `memory`.
pub(super) fn entries(options: &Options) -> Vec<Entry> {
    let entry = |key, value: &dyn fmt::Display| Entry::new("kv", key, value);
    let size = units::show_size;
    let word = |word: &str| format!("{word:?}");
    let mut entries = vec![
        entry("memory", &size(options.memory)),
        entry("durability", &word(name_of(options.durability, &DURABILITIES))),
        entry("wal_sync_interval", &units::show_duration(options.wal_sync_interval)),
        entry("memtable", &size(options.memtable())),
        entry("memtables", &options.memtables),
        entry("table_size", &size(options.table_size())),
        entry("level_base", &size(options.level_base())),
        entry("bloom_bits", &options.bloom_bits),
        entry("cache_data", &options.cache_data),
        entry("compression", &word(name_of(options.compression, &COMPRESSIONS))),
        entry("compression_last", &word(name_of(options.compression_last, &COMPRESSIONS))),
        entry("jobs", &options.jobs),
        entry("subcompactions", &options.subcompactions),
    ];
    if let Some(cache) = options.cache() {
        entries.push(entry("cache", &size(cache)));
        let policy = name_of(options.cache_policy, &CACHE_POLICIES);
        entries.push(entry("cache_policy", &word(policy)));
        entries.push(entry("prefetch", &options.prefetch));
        entries.push(entry("rewarm", &options.rewarm));
    }
    entries
}

fn size(field: &Field<'_>, range: RangeInclusive<u64>) -> Result<u64, Mistake> {
    let size = field.size()?;
    if range.contains(&size) {
        return Ok(size);
    }
    let (least, most) = (units::show_size(*range.start()), units::show_size(*range.end()));
    Err(field.mistake(match *range.end() {
        u64::MAX => format!("a size of at least {least}"),
        _ => format!("a size from {least} to {most}"),
    }))
}

fn one_of<T: Copy>(section: &Section<'_>, key: &str, words: &[(&str, T)]) -> Option<T> {
    let names: Vec<_> = words.iter().map(|&(name, _)| name).collect();
    let found = section.read(key, |field| field.word(&names))?;
    words.iter().find(|&&(name, _)| name == found).map(|&(_, value)| value)
}

fn name_of<T: PartialEq>(value: T, words: &[(&'static str, T)]) -> &'static str {
    let found = words.iter().find(|(_, known)| *known == value);
    found.expect("each value has a word").0
}

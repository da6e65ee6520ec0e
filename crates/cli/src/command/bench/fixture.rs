//! What the stores of `bench contract`, `bench spread` and `bench coded` have in common: one configuration of RocksDB, as
//! in the papers.

use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll::kv::{Compression, Family, Options, RocksDb, Store};
use policy::contract::{Contract, Latency, catalogue};
use policy::units::MIB;
use rust_rocksdb::{Options as RocksOptions, WaitForCompactOptions};

/// RocksDB's background jobs: the papers had four flushes and four compactions on eight cores.
const JOBS: u32 = 4;

/// Buffers of tables under construction, beside caches.
const MEMORY: u64 = 64 * MIB;

/// The rate at which records load, at least: for estimates of the duration.
const LOADS_PER_SEC: u64 = 40_000;

/// The gap before a run, so that all schemes begin it at the same time.
pub(super) const GAP: Duration = Duration::from_millis(20);

/// The speed-up of volumes during load and opening.
const WIDE: u64 = 1000;

/// A gp3 volume, a part of one, or a multiple.
pub(super) fn gp3(times: u64, parts: u64) -> anyhow::Result<Contract> {
    let mut contract = catalogue::find("gp3")?.contract(None, Default::default())?;
    for limit in &mut contract.limits {
        limit.rate_per_sec = limit.rate_per_sec * times / parts;
        limit.depth = limit.depth * times / parts;
    }
    Ok(contract)
}

/// The contract during load and opening: practically no waits.
pub(super) fn wide() -> anyhow::Result<Contract> {
    Ok(Contract { latency: Latency::default(), ..gp3(WIDE, 1)? })
}

/// The sizes that shape a tree, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) memtable: u64,
    pub(super) table: u64,
    pub(super) level_base: u64,
}

/// The options of every store.
pub(super) fn options(sizes: Sizes) -> Options {
    Options {
        memory: MEMORY,
        memtable: Some(sizes.memtable),
        table_size: Some(sizes.table),
        level_base: Some(sizes.level_base),
        compression: Compression::None,
        compression_last: Compression::None,
        jobs: JOBS,
        subcompactions: 1,
        ..Options::default()
    }
}

/// The family of every store, with `more` of RocksDB's options.
pub(super) fn family(more: impl Fn(&mut RocksOptions) + Send + Sync + 'static) -> Family {
    Family::main().rocks(move |rocks| {
        // Static level sizes, as in the papers' RocksDB: compactions have the input levels by which Calcspar sorts
        // them.
        rocks.set_level_compaction_dynamic_level_bytes(false);
        more(rocks);
    })
}

/// The duration of a load, estimated from the least rate of records.
pub(super) const fn load_takes(records: u64) -> Duration {
    Duration::from_secs(records.div_ceil(LOADS_PER_SEC))
}

/// The progress of a load of `records`.
pub(super) fn load_bar(records: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {elapsed}: loading {human_len} records");
    ProgressBar::new(records).with_style(style.expect("the template is right"))
}

/// Waits for the compactions after a load.
pub(super) fn compact(store: &Store) -> anyhow::Result<()> {
    let mut wait = WaitForCompactOptions::default();
    wait.set_flush(true);
    store.wait_for_compact(&wait).context("compacting what was loaded")
}

/// Tables of each level.
pub(super) fn levels(db: &RocksDb) -> Vec<u64> {
    let files = |level: u64| {
        let name = format!("rocksdb.num-files-at-level{level}");
        db.property_value(&name).ok().flatten().and_then(|count| count.parse().ok())
    };
    let mut levels: Vec<u64> = (0..7).map_while(files).collect();
    while levels.last() == Some(&0) {
        levels.pop();
    }
    levels
}

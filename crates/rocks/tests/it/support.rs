//! Machines made of volumes in memory, and databases on them.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use policy::placement::RoundRobin;
use pool::spread::{Opening, Spread};
use pool::{Member, PoolId};
use rocks::{Db, Settings, Shim};
use rust_rocksdb::{BlockBasedOptions, DB, DBCompressionType, Options, WaitForCompactOptions};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, Name, Volume};

/// The name of the database in its pool.
pub(crate) const NAME: &str = "kv";

/// Volumes that outlive the pools opened on them.
pub(crate) fn volumes(count: usize) -> Vec<Mem> {
    (0..count).map(|i| Mem::new(&label(i))).collect()
}

/// The label of the `i`th volume of a pool.
pub(crate) fn label(i: usize) -> String {
    format!("v{i}")
}

/// The same volumes, each in `layer`.
pub(crate) fn layered<V: Volume + Clone, L: Volume + 'static>(
    volumes: &[V],
    layer: impl Fn(V, &str) -> L,
) -> Vec<Arc<dyn Volume>> {
    let volumes = volumes.iter().enumerate();
    volumes.map(|(i, volume)| Arc::new(layer(volume.clone(), &label(i))) as Arc<_>).collect()
}

pub(crate) fn plain<V: Volume + Clone + 'static>(volumes: &[V]) -> Vec<Arc<dyn Volume>> {
    layered(volumes, |volume, _| volume)
}

/// The opening of the pools of these tests: objects go to the volumes in turn.
pub(crate) fn opening() -> Opening {
    Opening::new(RoundRobin::default()).create_if_missing(PoolId(7))
}

/// Opens the pool on `volumes`, or creates it.
pub(crate) fn pool_of(volumes: Vec<Arc<dyn Volume>>, opening: Opening) -> volume::Result<Spread> {
    let volumes = volumes.into_iter().enumerate();
    let members = volumes.map(|(i, volume)| Member { label: label(i), volume });
    block_on(Spread::open(members.collect(), opening))
}

/// Opens the pool of two pools, each of half of `volumes`, or creates it. It has `copies` copies of every object; the
/// pools below have one of theirs.
pub(crate) fn pool_of_pools(
    volumes: Vec<Arc<dyn Volume>>,
    copies: usize,
) -> volume::Result<Spread> {
    let halves = volumes.chunks(volumes.len().div_ceil(2)).zip(8..);
    let pools = halves.map(|(half, id)| {
        let pool = pool_of(half.to_vec(), opening().create_if_missing(PoolId(id)))?;
        Ok(Arc::new(pool) as Arc<dyn Volume>)
    });
    let pools: volume::Result<_> = pools.collect();
    pool_of(pools?, opening().copies(copies))
}

pub(crate) fn pool(volumes: &[Mem]) -> Spread {
    pool_of(plain(volumes), opening()).expect("the volumes are a pool or blank")
}

/// Small memtables and tables in fixed levels, so that little data causes every kind of work; no
/// block cache, so that every read reaches the volumes.
pub(crate) fn options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_write_buffer_size(64 << 10);
    options.set_target_file_size_base(64 << 10);
    options.set_max_bytes_for_level_base(256 << 10);
    options.set_level_compaction_dynamic_level_bytes(false);
    options.set_compression_type(DBCompressionType::None);
    // RocksDB's own interval would be most of the time of a test with a fault.
    options.set_bgerror_resume_retry_interval(1000);
    let mut blocks = BlockBasedOptions::default();
    blocks.disable_cache();
    options.set_block_based_table_factory(&blocks);
    options
}

pub(crate) fn open(pool: &Spread) -> Db {
    try_open(pool, options()).expect("the database opens")
}

pub(crate) fn try_open(pool: &Spread, options: Options) -> rocks::Result<Db> {
    try_open_at(pool, NAME, options)
}

/// Opens the database named `name` in the pool.
pub(crate) fn try_open_at(pool: &Spread, name: &str, options: Options) -> rocks::Result<Db> {
    rocks::open(pool.clone(), Clock::real(), name, options, Settings::default())
}

/// Opens the database with these column families; creates those that are missing.
pub(crate) fn open_families(pool: &Spread, families: &[&str]) -> Db {
    try_open_families(pool, families, options()).expect("the database opens")
}

pub(crate) fn try_open_families(
    pool: &Spread,
    families: &[&str],
    options: Options,
) -> rocks::Result<Db> {
    try_open_families_at(pool, NAME, families, options)
}

pub(crate) fn try_open_families_at(
    pool: &Spread,
    name: &str,
    families: &[&str],
    mut options: Options,
) -> rocks::Result<Db> {
    let shim = Shim::new(pool.clone(), Clock::real(), name, Settings::default())?;
    options.create_missing_column_families(true);
    shim.install(&mut options);
    let families = families.iter().map(|name| (*name, options.clone()));
    Ok(Db::new(DB::open_cf_with_opts(&options, Shim::PATH, families)?, shim))
}

/// Opens a database with all of its column families; returns their names too.
pub(crate) fn try_open_all_at(
    pool: &Spread,
    name: &str,
    options: Options,
) -> rocks::Result<(Db, Vec<String>)> {
    let families = {
        let shim = Shim::new(pool.clone(), Clock::real(), name, Settings::default())?;
        let mut options = options.clone();
        shim.install(&mut options);
        // There is no list before the database is created.
        DB::list_cf(&options, Shim::PATH).unwrap_or_else(|_| vec!["default".into()])
    };
    let names: Vec<_> = families.iter().map(String::as_str).collect();
    Ok((try_open_families_at(pool, name, &names, options)?, families))
}

/// Runs a round for each seed from 0 on, many at once: in most of a round with a fault, RocksDB waits a
/// second before a retry. `PLIMSOLL_ROUNDS` sets their number; the default is `usual`.
pub(crate) fn rounds(usual: u64, round: impl Fn(u64) + Sync) {
    at_once(0..rounds_asked().unwrap_or(usual), round);
}

/// The value of `PLIMSOLL_ROUNDS`.
pub(crate) fn rounds_asked() -> Option<u64> {
    let asked = std::env::var("PLIMSOLL_ROUNDS").ok()?;
    Some(asked.parse().expect("PLIMSOLL_ROUNDS is a number"))
}

/// Does `work` for each number, many at once.
pub(crate) fn at_once(numbers: Range<u64>, work: impl Fn(u64) + Sync) {
    const AT_ONCE: usize = 24;
    let next = AtomicU64::new(numbers.start);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let number = next.fetch_add(1, Ordering::Relaxed)
                    && number < numbers.end
                {
                    work(number);
                }
            });
        }
    });
}

/// Every name in the pool that begins with `prefix`.
pub(crate) fn names(pool: &Spread, prefix: &str) -> Vec<Name> {
    let listed = block_on(pool.list_prefix(prefix)).expect("a listing");
    listed.into_iter().map(|listed| listed.name).collect()
}

/// Waits until RocksDB has no background work left.
pub(crate) fn settle(db: &Db) {
    db.wait_for_compact(&WaitForCompactOptions::default()).expect("background work goes well");
}

pub(crate) fn compact(db: &Db) {
    db.compact_range::<&[u8], &[u8]>(None, None);
}

/// The `i`th key.
pub(crate) fn key(i: u32) -> [u8; 8] {
    format!("key{i:05}").into_bytes().try_into().expect("eight bytes")
}

/// A value of 100 bytes that identifies its key and version.
pub(crate) fn value(i: u32, version: u32) -> Vec<u8> {
    format!("{i}/{version}/").into_bytes().into_iter().cycle().take(100).collect()
}

pub(crate) fn fill(db: &Db, keys: Range<u32>, version: u32) {
    for i in keys {
        db.put(key(i), value(i, version)).expect("a put");
    }
}

#[track_caller]
pub(crate) fn check(db: &Db, keys: Range<u32>, version: u32) {
    for i in keys {
        let found = db.get(key(i)).expect("a get");
        assert_eq!(found.as_deref(), Some(&value(i, version)[..]), "key {i}");
    }
}

//! An open store.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use policy::key_counts::KeyCounts;
use policy::placement::VolumeId;
use policy::prefetch::Mode;
use policy::pressure::{self, Backlog};
use policy::purpose::Pressure;
use policy::room::Sizes;
use pool::spread::Spread;
use rocks::Shim;
use rust_rocksdb::{Cache, ColumnFamilyDescriptor, Error, Options as RocksOptions, properties};
use volume::{Clock, ErrorKind, Name};

use super::cache_sizer::{CacheSizer, Loads};
use super::inner::{Inner, RocksDb};
use super::room::{self, Room};
use super::{CacheFigures, Family, Options};

/// More than a log holds: memtables were bounded when it was written.
const MEMTABLE_UNBOUNDED: usize = 64 << 30;

/// An open store, with all of RocksDB's own calls: see [`RocksDb`].
///
/// Writes without options of their own wait for what [`Options::durability`] says.
/// [`WriteOptions`](rust_rocksdb::WriteOptions) passed by the caller override it, and a write with `write_without_wal`
/// is durable with the next flush. A reference to the inner [`RocksDb`], `&**db`, ignores the store's options. A failed
/// write may be there or not after a crash.
///
/// Dropping it, or [`Db::close`], stops background work and makes its logs durable.
pub struct Db {
    // Dropped first: it holds the database open.
    _cache_sizer: Option<CacheSizer>,
    inner: Arc<Inner>,
    /// RocksDB's own, or the one below it.
    block_cache: Option<Cache>,
    file_cache: Option<pool::cache::Cache>,
    /// How often keys were read of late, if that is counted.
    key_counts: Option<Arc<KeyCounts>>,
    options: Options,
}

/// Opens the store in `pool` with the families it has, or creates it. `clock` is the clock of the pool's gates.
///
/// # Errors
/// As [`rocks::open`].
pub fn open(pool: Spread, clock: Clock, options: &Options) -> rocks::Result<Db> {
    open_with(pool, clock, options, [])
}

/// As [`open`], with the options of `families` for these; creates missing ones.
///
/// Opens other existing families too, as `options` say. Name a family with its own comparator or merge operator each
/// time.
///
/// # Errors
/// As [`rocks::open`].
pub fn open_with(
    pool: Spread,
    clock: Clock,
    options: &Options,
    families: impl IntoIterator<Item = Family>,
) -> rocks::Result<Db> {
    open_under(pool, clock, options, families, Box::new(Vec::new))
}

/// As [`open_with`], given the `loads` of volumes. For volumes without a known load, blocks are prefetched whenever
/// gates have spare operations.
pub(super) fn open_under(
    pool: Spread,
    clock: Clock,
    options: &Options,
    families: impl IntoIterator<Item = Family>,
    loads: Loads,
) -> rocks::Result<Db> {
    let pool = pool.enter(&options.name);
    let is_there = pool.contains(&Name::new(&format!("{}/CURRENT", options.name))?);
    let room = Room::new(pool.clone(), room::sizes(&pool, options, is_there)?);
    let sizes = *room.sizes();
    let block_cache = options.block_cache();
    let file_cache = options.file_cache();
    let shim = match file_cache.clone() {
        Some(cache) => Shim::cached(pool, clock.clone(), &options.name, options.io(), cache)?,
        None => Shim::new(pool, clock.clone(), &options.name, options.io())?,
    };
    let key_counts = options.key_counts();
    let shim = match &key_counts {
        Some(counts) => shim.counting(Arc::clone(counts)),
        None => shim,
    };
    let build = |family: Family| {
        let name = family.name.clone();
        let mut rocks = family.build(options, &sizes, block_cache.as_ref());
        shim.install(&mut rocks);
        (name, rocks)
    };
    let mut built: BTreeMap<_, _> = families.into_iter().map(build).collect();
    let (main, usual) = build(Family::main());
    let whole = built.entry(main).or_insert(usual).clone();
    if is_there {
        for name in RocksDb::list_cf(&whole, Shim::PATH)? {
            built.entry(name).or_insert_with_key(|name| build(Family::new(name)).1);
        }
    }
    let rocks = open_families(&whole, &built, &sizes)?;
    let rocks = rocks::Db::new(rocks, shim);
    let inner = Arc::new(Inner::new(rocks, built, room, clock.clone()));
    inner.look_at_room();
    let cache_sizer = file_cache.clone().zip(options.cache());
    let cache_sizer = cache_sizer
        .map(|(cache, budget)| CacheSizer::start(Arc::clone(&inner), cache, budget, clock, loads));
    let (_cache_sizer, options) = (cache_sizer, options.clone());
    Ok(Db { _cache_sizer, inner, block_cache, file_cache, key_counts, options })
}

/// Opens the database. Where the volumes have no room for the tables of a recovery, it keeps the rows of the log in
/// memory, and the log: an opening takes no room that is not there.
fn open_families(
    whole: &RocksOptions,
    families: &BTreeMap<String, RocksOptions>,
    sizes: &Sizes,
) -> rocks::Result<RocksDb> {
    let open = |whole: &RocksOptions, change: &dyn Fn(&mut RocksOptions)| {
        let described = families.iter().map(|(name, rocks)| {
            let mut rocks = rocks.clone();
            change(&mut rocks);
            ColumnFamilyDescriptor::new(name, rocks)
        });
        RocksDb::open_cf_descriptors(whole, Shim::PATH, described)
    };
    match open(whole, &|_| ()) {
        Err(error) if rocks::pool_error(&error) == Some(ErrorKind::OutOfSpace) => {
            tracing::warn!(%error, "no room for the tables of a recovered log: the log stays");
        }
        done => return Ok(done?),
    }
    let mut whole = whole.clone();
    whole.set_avoid_flush_during_recovery(true);
    let db = open(&whole, &|rocks| rocks.set_write_buffer_size(MEMTABLE_UNBOUNDED))?;
    let memtable = sizes.memtable.to_string();
    for name in families.keys() {
        if let Some(family) = db.cf_handle(name) {
            db.set_options_cf(&family, &[("write_buffer_size", &memtable)])?;
        }
    }
    Ok(db)
}

impl Db {
    /// The options it was opened with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Memory that caches and buffers hold now, in bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.block_cache.as_ref().map_or(0, |cache| cache.get_usage() as u64)
            + self.key_counts.as_ref().map_or(0, |counts| counts.bytes())
            + self.cache().map_or(0, |cache| cache.bytes)
            + self.inner.sum(properties::CUR_SIZE_ALL_MEM_TABLES)
            + self.inner.table_readers()
    }

    /// Whether each volume has operations to spare for prefetching, by its number in the pool; only volumes with a
    /// known load.
    #[must_use]
    pub fn prefetching(&self) -> BTreeMap<VolumeId, Mode> {
        self.file_cache.as_ref().map(pool::cache::Cache::modes).unwrap_or_default()
    }

    /// Figures of the cache of blocks; `None` with RocksDB's own cache, or without a cache.
    #[must_use]
    pub fn cache(&self) -> Option<CacheFigures> {
        self.file_cache.as_ref().map(pool::cache::Cache::figures)
    }

    /// How near writers are to waiting for flushes and compactions, in the family that is nearest. Takes RocksDB's
    /// mutex several times for each family, briefly each time.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        let (rocks, level0) = (self.inner.rocks(), &properties::num_files_at_level(0));
        let number = |of: Result<Option<u64>, Error>| of.ok().flatten().unwrap_or(0);
        let whole = |name| number(rocks.property_int_value(name));
        let waiting = whole(properties::IS_WRITE_STOPPED) > 0
            || whole(properties::ACTUAL_DELAYED_WRITE_RATE) > 0;
        let thresholds: Vec<_> = self.inner.with_families(|families| {
            families.iter().map(|(name, rocks)| (name.clone(), Shim::thresholds(rocks))).collect()
        });
        let families = thresholds.into_iter().filter_map(|(name, thresholds)| {
            // A family that was dropped meanwhile delays no writer.
            let family = rocks.cf_handle(&name)?;
            let of = |name| number(rocks.property_int_value_cf(&family, name));
            let backlog = Backlog {
                memtables: of(properties::NUM_IMMUTABLE_MEM_TABLE),
                level0: number(rocks.property_int_value_cf(&family, level0)),
                owed_bytes: of(properties::ESTIMATE_PENDING_COMPACTION_BYTES),
            };
            Some(pressure::of(backlog, thresholds, waiting))
        });
        families.fold(Pressure::default(), Pressure::max)
    }

    /// Stops background work, closes the database and makes its writes durable. Then the pool can be closed:
    /// [`Spread::close`].
    pub fn close(self) {
        drop(self);
    }

    /// Creates a family. `cf_handle(name)` gives its handle; `drop_cf(name)` removes it with its keys.
    ///
    /// # Errors
    /// There is one of that name, or RocksDB could not record it.
    pub fn create_family(&self, family: Family) -> Result<(), Error> {
        let name = family.name.clone();
        let sizes = self.inner.room().sizes();
        let mut rocks = family.build(&self.options, sizes, self.block_cache.as_ref());
        self.shim().install(&mut rocks);
        self.create_cf(&name, &rocks)?;
        self.inner.add_family(name, rocks);
        Ok(())
    }

    /// The options that a family was opened with, including the pool's: for files to be ingested into it, as
    /// [`SstFileWriter`](rust_rocksdb::SstFileWriter) writes them. `None` for a missing family.
    ///
    /// Paths begin at the store's directory in the pool. The options keep the pool in use until they are dropped.
    #[must_use]
    pub fn family_options(&self, name: &str) -> Option<RocksOptions> {
        self.cf_handle(name)?;
        self.inner.with_families(|families| families.get(name).cloned())
    }

    /// How often keys were read of late, if that is counted.
    pub(super) fn key_counts(&self) -> Option<&Arc<KeyCounts>> {
        self.key_counts.as_ref()
    }

    /// The database itself, for background threads.
    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// The room on its volumes.
    pub(super) fn room(&self) -> &Room {
        self.inner.room()
    }

    /// The layer between RocksDB and the pool, for parts of RocksDB that need an environment or options of their own.
    #[must_use]
    pub fn shim(&self) -> &Shim {
        self.inner.shim()
    }
}

impl Deref for Db {
    type Target = RocksDb;

    fn deref(&self) -> &Self::Target {
        self.inner.rocks()
    }
}

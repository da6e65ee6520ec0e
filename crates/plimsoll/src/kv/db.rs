//! An open store.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;
use policy::placement::VolumeId;
use policy::prefetch::Mode;
use policy::pressure::{self, Backlog};
use policy::purpose::Pressure;
use policy::room::Sizes;
use pool::spread::Spread;
use rocks::Shim;
use rust_rocksdb::{
    BoundColumnFamily, Cache, ColumnFamilyDescriptor, DBWithThreadMode, Error, MultiThreaded,
    Options as RocksOptions, properties,
};
use volume::{Clock, ErrorKind, Name};

use super::keeper::{Keeper, Loads};
use super::room::{self, Room};
use super::{CacheFigures, Family, Options};

/// RocksDB's own handle: column families come and go while others use the database.
pub type RocksDb = DBWithThreadMode<MultiThreaded>;

/// More than a log holds: its memtables were bounded when it was written.
const MEMTABLE_UNBOUNDED: usize = 64 << 30;

/// An open store. Everything RocksDB can do it can do too: see [`RocksDb`].
///
/// Writes that take no options of their own wait for what [`Options::durability`] says; a
/// [`WriteOptions`](rust_rocksdb::WriteOptions) that is handed in goes before it, and
/// `write_without_wal` is durable with the next flush. A [`RocksDb`] that is taken out of it, as
/// `&**db`, knows nothing of the store's options. A write that failed may be there or not after a crash.
///
/// Dropping it, or [`Db::close`], stops background work and makes its logs durable.
pub struct Db {
    // Dropped first: it holds the database open.
    _keeper: Option<Keeper>,
    inner: Arc<Inner>,
    /// RocksDB's own, or the one below it.
    block_cache: Option<Cache>,
    file_cache: Option<pool::cache::Cache>,
    options: Options,
}

/// The database itself.
pub(super) struct Inner {
    rocks: rocks::Db<MultiThreaded>,
    /// What families were opened with, by their names.
    families: Mutex<BTreeMap<String, RocksOptions>>,
    room: Room,
    clock: Clock,
}

impl Inner {
    /// Bytes that RocksDB holds of open tables: indexes and filters, where no block cache has them.
    pub(super) fn table_readers(&self) -> u64 {
        self.sum(properties::ESTIMATE_TABLE_READERS_MEM)
    }

    /// The database.
    pub(super) fn rocks(&self) -> &RocksDb {
        &self.rocks
    }

    /// The room on its volumes.
    pub(super) const fn room(&self) -> &Room {
        &self.room
    }

    /// What waits of it go by.
    pub(super) const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Looks at the room there is.
    pub(super) fn look_at_room(&self) {
        self.room.look(self.unflushed(), self.merge());
    }

    /// Bytes that memtables hold.
    pub(super) fn unflushed(&self) -> u64 {
        self.sum(properties::CUR_SIZE_ALL_MEM_TABLES)
    }

    /// Calls `see` with what the families there are were opened with, by their names.
    pub(super) fn with_families<T>(
        &self,
        see: impl FnOnce(&BTreeMap<String, RocksOptions>) -> T,
    ) -> T {
        see(&self.families.lock())
    }

    /// Tells placement where the tables lie that were moved by hand.
    pub(super) fn describe_tables(&self) {
        self.rocks.describe_tables();
    }

    /// A property of RocksDB, of all families together.
    pub(super) fn sum(&self, property: &CStr) -> u64 {
        let mut sum = 0;
        self.each_family(|family| {
            let value = self.rocks.property_int_value_cf(family, property);
            sum += value.ok().flatten().unwrap_or(0);
        });
        sum
    }

    /// Calls `visit` with each family there is.
    pub(super) fn each_family(&self, mut visit: impl FnMut(&Arc<BoundColumnFamily<'_>>)) {
        let names: Vec<_> = self.families.lock().keys().cloned().collect();
        let handles = names.iter().filter_map(|name| self.rocks.cf_handle(name));
        handles.for_each(|family| visit(&family));
    }

    /// Whether the first level has so many tables that a flush waits, for another would make writers wait.
    pub(super) fn first_level_is_full(&self) -> bool {
        let level0 = properties::num_files_at_level(0);
        let slow: Vec<_> = self.with_families(|families| {
            let families = families.iter();
            let automatic = families.filter(|(_, rocks)| !rocks.get_disable_auto_compactions());
            automatic.map(|(name, rocks)| (name.clone(), Shim::thresholds(rocks).level0)).collect()
        });
        slow.into_iter().any(|(name, slow)| {
            let Some(family) = self.rocks.cf_handle(&name) else { return false };
            let tables = self.rocks.property_int_value_cf(&family, &level0);
            // Zero: writers are never slowed down.
            slow > 0 && tables.ok().flatten().unwrap_or(0) + 1 >= slow
        })
    }
}

impl Drop for Inner {
    /// RocksDB's end flushes what was written without the log, and would wait for a compaction to make the first
    /// level smaller, on full volumes for ever. It does not where it knows of none to come.
    fn drop(&mut self) {
        if self.first_level_is_full() {
            self.set_automatic(false);
        }
    }
}

/// Opens the store in `pool`, or makes it, with the families it has. `clock` is the one the pool's
/// gates decide by.
///
/// # Errors
/// As [`rocks::open`].
pub fn open(pool: Spread, clock: Clock, options: &Options) -> rocks::Result<Db> {
    open_with(pool, clock, options, [])
}

/// As [`open`], with what `families` want otherwise; those that are not there are made.
///
/// Families that are there and not among `families` are opened too, as `options` say. One with a
/// comparator or merge operator of its own has to be named with it each time.
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

/// As [`open_with`], where the `loads` of volumes are known. Where they are not, blocks are prefetched
/// whenever gates have something to spare.
pub(super) fn open_under(
    pool: Spread,
    clock: Clock,
    options: &Options,
    families: impl IntoIterator<Item = Family>,
    loads: Loads,
) -> rocks::Result<Db> {
    let is_there = pool.contains(&Name::new(&format!("{}/CURRENT", options.name))?);
    let room = Room::new(pool.clone(), room::sizes(&pool, options, is_there)?);
    let sizes = *room.sizes();
    let block_cache = options.block_cache();
    let file_cache = options.file_cache();
    let shim = match file_cache.clone() {
        Some(cache) => Shim::cached(pool, clock.clone(), &options.name, options.io(), cache)?,
        None => Shim::new(pool, clock.clone(), &options.name, options.io())?,
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
    let inner = Inner { rocks, families: Mutex::new(built), room, clock: clock.clone() };
    let inner = Arc::new(inner);
    inner.look_at_room();
    let keeper = file_cache.clone().zip(options.cache());
    let keeper = keeper
        .map(|(cache, budget)| Keeper::start(Arc::clone(&inner), cache, budget, clock, loads));
    Ok(Db { _keeper: keeper, inner, block_cache, file_cache, options: options.clone() })
}

/// Opens the database. Where the volumes have no room for the tables that a recovery writes of the log, it
/// keeps what the log holds in memory, and the log: an opening never takes room that is not there.
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
            tracing::warn!(%error, "no room for the tables of a recovery: its log stays");
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
    /// What it was opened with.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Memory that caches and buffers hold now, in bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.block_cache.as_ref().map_or(0, |cache| cache.get_usage() as u64)
            + self.cache().map_or(0, |cache| cache.bytes)
            + self.inner.sum(properties::CUR_SIZE_ALL_MEM_TABLES)
            + self.inner.table_readers()
    }

    /// Whether each volume has operations to spare for prefetching, by its number in the pool; of those
    /// whose load is known.
    #[must_use]
    pub fn prefetching(&self) -> BTreeMap<VolumeId, Mode> {
        self.file_cache.as_ref().map(pool::cache::Cache::modes).unwrap_or_default()
    }

    /// What the cache of blocks did so far; none if RocksDB's own is used, or none at all.
    #[must_use]
    pub fn cache(&self) -> Option<CacheFigures> {
        self.file_cache.as_ref().map(pool::cache::Cache::figures)
    }

    /// How near writers are to waiting for flushes and compactions, of the family that is nearest. It
    /// takes RocksDB's mutex some times for each family, for a moment each.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        let (rocks, level0) = (&self.inner.rocks, &properties::num_files_at_level(0));
        let number = |of: Result<Option<u64>, Error>| of.ok().flatten().unwrap_or(0);
        let whole = |name| number(rocks.property_int_value(name));
        let waiting = whole(properties::IS_WRITE_STOPPED) > 0
            || whole(properties::ACTUAL_DELAYED_WRITE_RATE) > 0;
        let thresholds: Vec<_> = {
            let families = self.inner.families.lock();
            families.iter().map(|(name, rocks)| (name.clone(), Shim::thresholds(rocks))).collect()
        };
        let families = thresholds.into_iter().filter_map(|(name, thresholds)| {
            // One that was dropped meanwhile makes nobody wait.
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

    /// Stops background work, closes the database and makes durable what was written. The pool is
    /// free for its own [`Spread::close`] then.
    pub fn close(self) {
        drop(self);
    }

    /// Makes a family. Its handle is `cf_handle(name)`; `drop_cf(name)` removes it with its keys.
    ///
    /// # Errors
    /// There is one of that name, or RocksDB could not record it.
    pub fn create_family(&self, family: Family) -> Result<(), Error> {
        let name = family.name.clone();
        let sizes = self.inner.room.sizes();
        let mut rocks = family.build(&self.options, sizes, self.block_cache.as_ref());
        self.shim().install(&mut rocks);
        self.create_cf(&name, &rocks)?;
        self.inner.families.lock().insert(name, rocks);
        Ok(())
    }

    /// What a family was opened with, the pool included: for files that are to be ingested into it, as
    /// [`SstFileWriter`](rust_rocksdb::SstFileWriter) writes them. `None` for a family that is not
    /// there.
    ///
    /// Paths begin at the store's own directory in the pool. The options keep the pool in use until
    /// they are dropped.
    #[must_use]
    pub fn family_options(&self, name: &str) -> Option<RocksOptions> {
        self.cf_handle(name)?;
        self.inner.families.lock().get(name).cloned()
    }

    /// The database itself, for threads that look after it.
    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// The room on its volumes.
    pub(super) fn room(&self) -> &Room {
        &self.inner.room
    }

    /// What it stands on, for the parts of RocksDB that want an environment or options of their own.
    #[must_use]
    pub fn shim(&self) -> &Shim {
        self.inner.rocks.shim()
    }
}

impl Deref for Db {
    type Target = RocksDb;

    fn deref(&self) -> &Self::Target {
        &self.inner.rocks
    }
}

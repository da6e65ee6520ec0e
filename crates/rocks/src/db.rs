//! An open database.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use policy::placement::Keys;
use pool::spread::Spread;
use rust_rocksdb::{
    AsColumnFamilyRef, DB, DBWithThreadMode, MultiThreaded, Options, SingleThreaded, ThreadMode,
};
use volume::Clock;

use crate::{Result, Settings, Shim, ffi};

/// Opens the database named `name` in `pool`; the options say whether to create it. `clock` is the
/// clock of the pool's gates.
///
/// A write with `sync`, or one that was flushed, survives a crash of the machine. Every write survives
/// a crash of the process. One process opens a database once.
///
/// # Errors
/// `Rocks`: see its message. A volume that is away keeps a database from opening only if RocksDB's
/// own logs are on it.
pub fn open(
    pool: Spread,
    clock: Clock,
    name: &str,
    mut options: Options,
    settings: Settings,
) -> Result<Db> {
    let shim = Shim::new(pool, clock, name, settings)?;
    shim.install(&mut options);
    let db = DB::open(&options, Shim::PATH)?;
    Ok(Db::new(db, shim))
}

/// A RocksDB database whose files are in a pool: a [`DBWithThreadMode`] and its [`Shim`].
///
/// Dropping it stops background work, closes the database, and then syncs its logs.
/// With [`MultiThreaded`](rust_rocksdb::MultiThreaded) column families come and go through a shared
/// reference.
pub struct Db<T: ThreadMode = SingleThreaded> {
    // Dropped in this order.
    db: DBWithThreadMode<T>,
    logs: SyncLogs,
}

impl<T: ThreadMode> Db<T> {
    /// Wraps a database whose options `shim` was installed in, and describes its tables to the pool.
    #[must_use]
    pub fn new(db: DBWithThreadMode<T>, shim: Shim) -> Self
    where
        DBWithThreadMode<T>: Families,
    {
        let db = Self { db, logs: SyncLogs(shim) };
        db.describe_tables();
        db
    }

    /// Tells the pool the family, level and keys of every table, so that it places new tables apart from
    /// tables they are read with. The shim reports flushes and compactions as they happen; call this for
    /// tables that existed before, were ingested, or changed level by hand. Holds RocksDB's mutex; the
    /// time grows with the number of tables.
    pub fn describe_tables(&self)
    where
        DBWithThreadMode<T>: Families,
    {
        let files = match self.db.live_files() {
            Ok(files) => files,
            Err(error) => {
                tracing::warn!(%error, "placement does not know the tables there are");
                return;
            }
        };
        let families = self.db.families();
        for file in files {
            let Some(family) = families.get(&file.column_family_name) else { continue };
            let keys = match (&file.start_key, &file.end_key) {
                (Some(first), Some(last)) if family.bytewise => Some(Keys { first, last }),
                _ => None,
            };
            let level = u8::try_from(file.level).ok();
            self.shim().file_system().describe_table(&file.name, family.number, level, keys);
        }
    }

    /// The shim it was opened with, for other users of its files: options of files to ingest, backups.
    #[must_use]
    pub fn shim(&self) -> &Shim {
        &self.logs.0
    }
}

/// A column family of an open database.
#[derive(Clone, Copy, Debug)]
pub struct FamilyFacts {
    number: u32,
    /// Its keys are in the order of their bytes.
    bytewise: bool,
}

impl FamilyFacts {
    fn of(handle: &impl AsColumnFamilyRef) -> Self {
        Self { number: handle.id(), bytewise: ffi::is_bytewise(handle) }
    }
}

/// A database that lists its column families, in both thread modes.
pub trait Families {
    /// The open families, by name.
    fn families(&self) -> BTreeMap<String, FamilyFacts>;
}

impl Families for DBWithThreadMode<SingleThreaded> {
    fn families(&self) -> BTreeMap<String, FamilyFacts> {
        facts(self.cf_names(), |name| self.cf_handle(name).map(FamilyFacts::of))
    }
}

impl Families for DBWithThreadMode<MultiThreaded> {
    fn families(&self) -> BTreeMap<String, FamilyFacts> {
        facts(self.cf_names(), |name| self.cf_handle(name).map(|handle| FamilyFacts::of(&handle)))
    }
}

fn facts(
    names: Vec<String>,
    of: impl Fn(&str) -> Option<FamilyFacts>,
) -> BTreeMap<String, FamilyFacts> {
    names.into_iter().filter_map(|name| Some((name.clone(), of(&name)?))).collect()
}

impl<T: ThreadMode> Deref for Db<T> {
    type Target = DBWithThreadMode<T>;

    fn deref(&self) -> &Self::Target {
        &self.db
    }
}

impl<T: ThreadMode> DerefMut for Db<T> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.db
    }
}

impl<T: ThreadMode> Drop for Db<T> {
    fn drop(&mut self) {
        self.db.cancel_all_background_work(true);
    }
}

struct SyncLogs(Shim);

impl Drop for SyncLogs {
    fn drop(&mut self) {
        self.0.file_system().sync_logs();
    }
}

//! An open database.

use std::ops::{Deref, DerefMut};

use pool::spread::Spread;
use rust_rocksdb::{DB, DBWithThreadMode, Options, SingleThreaded, ThreadMode};
use volume::Clock;

use crate::{Result, Settings, Shim};

/// Opens the database named `name` in `pool`; the options say whether it may be made. `clock` is the
/// one the pool's gates decide by.
///
/// What was written with `sync`, or flushed, survives the machine; what was written at all survives
/// the process. One process opens a database once.
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

/// A RocksDB database whose files are in a pool: [`DBWithThreadMode`], and what it stands on.
///
/// Dropping it stops background work, closes the database, and then makes durable what its logs hold.
/// With [`MultiThreaded`](rust_rocksdb::MultiThreaded) column families come and go through a shared
/// reference.
pub struct Db<T: ThreadMode = SingleThreaded> {
    // Dropped in this order.
    db: DBWithThreadMode<T>,
    logs: SyncLogs,
}

impl<T: ThreadMode> Db<T> {
    /// A database that was opened with options `shim` was installed in.
    #[must_use]
    pub fn new(db: DBWithThreadMode<T>, shim: Shim) -> Self {
        Self { db, logs: SyncLogs(shim) }
    }

    /// What it was opened with, for whatever else shall use its files: options of files to be ingested,
    /// backups.
    #[must_use]
    pub fn shim(&self) -> &Shim {
        &self.logs.0
    }
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

//! An open database.

use std::ops::{Deref, DerefMut};

use pool::spread::Spread;
use rust_rocksdb::{DB, Options};
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

/// A RocksDB database whose files are in a pool: [`rust_rocksdb::DB`], and what it stands on.
///
/// Dropping it stops background work, closes the database, and then makes durable what its logs hold.
pub struct Db {
    // Dropped in this order.
    db: DB,
    _logs: SyncLogs,
}

impl Db {
    /// A database that was opened with options `shim` was installed in.
    #[must_use]
    pub fn new(db: DB, shim: Shim) -> Self {
        Self { db, _logs: SyncLogs(shim) }
    }
}

impl Deref for Db {
    type Target = DB;

    fn deref(&self) -> &DB {
        &self.db
    }
}

impl DerefMut for Db {
    fn deref_mut(&mut self) -> &mut DB {
        &mut self.db
    }
}

impl Drop for Db {
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

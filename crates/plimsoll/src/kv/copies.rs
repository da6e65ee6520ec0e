//! Copies of a store: checkpoints inside its pool, backups outside.
//!
//! A checkpoint shares tables with its store, takes almost no room, and is as safe as the pool. A backup is a copy in a
//! local directory, perhaps on another machine's disk; each backup takes only what earlier ones lack.

use std::path::Path;

use pool::spread::Spread;
use rocks::{Result, Shim};
use rust_rocksdb::backup::{BackupEngine, BackupEngineOptions, RestoreOptions};
use rust_rocksdb::checkpoint::Checkpoint;
use rust_rocksdb::{Env, Options as RocksOptions};
use volume::{Clock, Error, ErrorKind, Name};

use super::{Db, Options, RocksDb};

impl Db {
    /// Makes a copy of the store as of now, which shares its tables until either drops them. Durable on return. The
    /// copy of `kv` called `monday` is a store of its own, `kv/monday`: open it by that name; [`destroy`] removes it.
    ///
    /// # Errors
    /// `Pool` of kind `Invalid`: not a name. `Rocks`: there is such a copy, or the pool took no more.
    pub fn checkpoint(&self, name: &str) -> Result<()> {
        Name::new(name)?;
        Ok(Checkpoint::new(&**self)?.create_checkpoint(format!("/{name}"))?)
    }

    /// Copies what the last backup lacks to the local directory `dir`, which is created if it is missing. Durable on
    /// return. Users' I/O on the volumes goes first.
    ///
    /// # Errors
    /// `Rocks`: the directory is not writable, or a table not readable.
    pub fn back_up(&self, dir: impl AsRef<Path>) -> Result<()> {
        // With flushed tables a backup needs no log.
        Ok(self.backups(dir)?.create_new_backup_flush(&**self, true)?)
    }

    /// The backups in the local directory `dir`: to list, verify or thin them out, or to make them with other options.
    ///
    /// # Errors
    /// `Rocks`: the directory cannot be used.
    pub fn backups(&self, dir: impl AsRef<Path>) -> Result<BackupEngine> {
        engine(self.shim(), dir.as_ref())
    }
}

/// Replaces the store that [`Options::name`] names with the newest backup in the local directory `dir`. Durable on
/// return; open the store then.
///
/// # Errors
/// `Pool` of kind `Fenced`: the store is open, close it first. `Rocks`: there is no backup, or it is damaged, or the
/// pool has no room for it. After a failure midway the store is incomplete: restore again.
pub fn restore(pool: Spread, clock: Clock, options: &Options, dir: impl AsRef<Path>) -> Result<()> {
    let dir = dir.as_ref();
    if !dir.is_dir() {
        let message = format!("{}: no such directory: name one that holds backups", dir.display());
        return Err(Error::new(ErrorKind::NotFound, message).into());
    }
    // The name that an open RocksDB locks.
    let _lease = pool.lease_name(&Name::new(&format!("{}/LOCK", options.name))?)?;
    let shim = Shim::new(pool.clone(), clock, &options.name, options.io())?;
    let restored = RestoreOptions::default();
    engine(&shim, dir)?.restore_from_latest_backup(Shim::PATH, Shim::PATH, &restored)?;
    volume::task::block_on(pool.flush())?;
    Ok(())
}

/// Removes the store, or the checkpoint, called `name` from the pool. Checkpoints of it stay.
///
/// # Errors
/// `Rocks`: it is open, close it first.
pub fn destroy(pool: Spread, clock: Clock, name: &str) -> Result<()> {
    let shim = Shim::new(pool, clock, name, rocks::Settings::default())?;
    let mut options = RocksOptions::default();
    shim.install(&mut options);
    Ok(RocksDb::destroy(&options, Shim::PATH)?)
}

fn engine(shim: &Shim, dir: &Path) -> Result<BackupEngine> {
    let mut options = BackupEngineOptions::new(dir)?;
    options.set_env(&Env::new()?);
    Ok(BackupEngine::open(&options, shim.env())?)
}

//! Puts a pool under RocksDB's own options.

use std::sync::Arc;

use parking_lot::Mutex;
use policy::pressure::Thresholds;
use pool::cache::Cache;
use pool::spread::Spread;
use rust_rocksdb::event_listener::{
    BackgroundErrorRecoveryInfo, CompactionJobInfo, DBBackgroundErrorReason, EventListener,
    FlushJobInfo, MemTableInfo, MutableStatus, SubcompactionJobInfo, WriteStallInfo,
};
use rust_rocksdb::{Env, ErrorKind, Options};
use volume::Clock;

use crate::bell::Bell;
use crate::error::pool_error;
use crate::file_system::FileSystem;
use crate::origin::Job;
use crate::path::Root;
use crate::{Result, Settings, ffi, thread};

/// The part of a pool that belongs to one database, as RocksDB's file system.
///
/// [`crate::open`] is the short way. This is the long one, for whoever wants column families or
/// another kind of database: install the shim in every [`Options`] used, database and column
/// families alike, then open the database at [`Shim::PATH`] with the crate's own calls and hand both
/// to [`crate::Db::new`].
///
/// ```no_run
/// # fn families(pool: pool::spread::Spread, clock: volume::Clock) -> rocks::Result<()> {
/// use rust_rocksdb::{DB, Options};
///
/// let shim = rocks::Shim::new(pool, clock, "kv", rocks::Settings::default())?;
/// let mut options = Options::default();
/// options.create_if_missing(true);
/// options.create_missing_column_families(true);
/// shim.install(&mut options);
/// let families = ["sailors", "ships"].map(|name| (name, options.clone()));
/// let db = DB::open_cf_with_opts(&options, rocks::Shim::PATH, families)?;
/// let db = rocks::Db::new(db, shim);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Shim {
    env: Env,
    fs: Arc<FileSystem>,
    bell: Arc<Bell>,
    /// Why RocksDB takes no writes, if it does not.
    stopped: Arc<Mutex<Option<String>>>,
}

impl Shim {
    /// Where its database is, for RocksDB. Other paths lie under the same name of the pool: a
    /// checkpoint made at `/yesterday` of the database `kv` is `kv/yesterday` in the pool.
    ///
    /// It is the one path whose local directory always exists: the `rust-rocksdb` crate makes the
    /// directory it is given on the local disk too.
    pub const PATH: &str = "/";

    /// The database named `name` in `pool`: all its files have names under `name/`. `clock` is the
    /// one the pool's gates decide by.
    ///
    /// # Errors
    /// `Pool` of kind `Invalid`: not a name. `Layout`: the linked RocksDB is another one.
    pub fn new(pool: Spread, clock: Clock, name: &str, settings: Settings) -> Result<Self> {
        Self::over(pool, clock, name, settings, None)
    }

    /// As [`Shim::new`], with `cache` in front of what users read of its tables: RocksDB needs no cache
    /// of its own for data then. Databases of one pool may share it.
    ///
    /// # Errors
    /// As there.
    pub fn cached(
        pool: Spread,
        clock: Clock,
        name: &str,
        settings: Settings,
        cache: Cache,
    ) -> Result<Self> {
        Self::over(pool, clock, name, settings, Some(cache))
    }

    fn over(
        pool: Spread,
        clock: Clock,
        name: &str,
        settings: Settings,
        cache: Option<Cache>,
    ) -> Result<Self> {
        let fs = FileSystem::new(pool, clock, Root::new(name)?, settings, cache);
        let env = ffi::environment(Arc::clone(&fs));
        ffi::check_layout(&env)?;
        Ok(Self { env, fs, bell: Arc::default(), stopped: Arc::default() })
    }

    /// Puts the shim under `options`. Call it last: a comparator that is set later is not seen, and
    /// what it sets for the pool's sake would be lost: no readahead of RocksDB's own for
    /// compactions, how many logs are recycled, and tables that are opened in the background, so that
    /// a volume that is away does not keep the database from opening (FIFO compaction needs
    /// `set_open_files_async(false)` after this). Logs kept for a time (`set_wal_ttl_seconds`) are kept
    /// for ever, for a pool has no times: limit their size (`set_wal_size_limit_mb`).
    ///
    /// The options keep the pool in use until they, and every database opened with them, are dropped.
    pub fn install(&self, options: &mut Options) {
        options.set_env(&self.env);
        ffi::install_table_range(options);
        let (bell, fs) = (Arc::clone(&self.bell), Arc::clone(&self.fs));
        let stopped = Arc::clone(&self.stopped);
        options.add_event_listener(Listener { bell, fs, stopped });
        options.set_compaction_readahead_size(0);
        options.set_recycle_log_file_num(self.fs.settings().wal_recycled);
        options.set_skip_stats_update_on_db_open(true);
        options.set_open_files_async(true).expect("RocksDB 11.12, checked at compile time, has it");
    }

    /// Rings when a flush or a compaction ended, a memtable is full, and when writers have to wait or
    /// can go on, of any database the shim is under.
    #[must_use]
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Why RocksDB takes no writes now, if it does not: an error of its background work that it has not
    /// recovered from.
    #[must_use]
    pub fn stopped(&self) -> Option<String> {
        self.stopped.lock().clone()
    }

    /// At what RocksDB makes the writers of a family with `options` wait.
    #[must_use]
    pub fn thresholds(options: &Options) -> Thresholds {
        ffi::thresholds(options)
    }

    /// The environment of its files, for the parts of RocksDB that take one beside the options: a
    /// `BackupEngine`'s, for one, which then reads the database and keeps backups in the pool (or
    /// elsewhere, with an environment of their own in its options).
    #[must_use]
    pub fn env(&self) -> &Env {
        &self.env
    }

    pub(crate) fn file_system(&self) -> &FileSystem {
        &self.fs
    }
}

/// Keeps what only listeners are told, and keeps the database going when a volume is away.
struct Listener {
    bell: Arc<Bell>,
    fs: Arc<FileSystem>,
    stopped: Arc<Mutex<Option<String>>>,
}

impl EventListener for Listener {
    fn on_flush_completed(&self, _: &FlushJobInfo) {
        self.bell.ring();
    }

    /// A table whose keys overlap nothing is moved to the next level as it is: then it is among the
    /// outputs as well as among the inputs.
    fn on_compaction_completed(&self, job: &CompactionJobInfo) {
        if job.status().is_err() {
            paths(job.input_files()).for_each(|path| self.fs.set_table_leaving(path, false));
        } else if let Ok(level) = u8::try_from(job.output_level()) {
            paths(job.output_files()).for_each(|path| self.fs.set_table_level(path, level));
        }
        self.bell.ring();
    }

    fn on_memtable_sealed(&self, _: &MemTableInfo) {
        self.bell.ring();
    }

    fn on_stall_conditions_changed(&self, _: &WriteStallInfo) {
        self.bell.ring();
    }

    fn on_compaction_begin(&self, job: &CompactionJobInfo) {
        begin(job.base_input_level());
        paths(job.input_files()).for_each(|path| self.fs.set_table_leaving(path, true));
    }

    fn on_subcompaction_begin(&self, job: &SubcompactionJobInfo) {
        begin(job.base_input_level());
    }

    /// Tables that could not be opened in the background are opened by whoever needs them: an error
    /// for those, and no reason to stop writes. (Left alone, such an error also keeps RocksDB 11.12
    /// from closing: it waits for a recovery that nobody began.) Corruption stays what it is.
    fn on_background_error(&self, reason: DBBackgroundErrorReason, status: MutableStatus) {
        let Err(error) = status.result() else { return };
        if reason == DBBackgroundErrorReason::KAsyncFileOpen && error.kind() == ErrorKind::IOError {
            tracing::warn!(%error, "not every table could be opened");
            status.reset();
            return;
        }
        // A compaction that lacks room, or a volume, is tried again, and writes go on.
        let retried = matches!(
            pool_error(error),
            Some(volume::ErrorKind::OutOfSpace | volume::ErrorKind::Unavailable)
        );
        if reason == DBBackgroundErrorReason::KCompaction && retried {
            tracing::warn!(%error, "a compaction failed, and will be tried again");
            return;
        }
        tracing::error!(%error, "RocksDB takes no writes until it has recovered");
        *self.stopped.lock() = Some(error.to_string());
    }

    fn on_error_recovery_end(&self, recovery: &BackgroundErrorRecoveryInfo) {
        let now = recovery.new_bg_error().result();
        if now.is_ok() {
            tracing::info!("RocksDB has recovered and takes writes");
        }
        *self.stopped.lock() = now.as_ref().err().map(ToString::to_string);
        self.bell.ring();
    }
}

fn paths<'a>(files: impl Iterator<Item = &'a [u8]>) -> impl Iterator<Item = &'a str> {
    files.filter_map(|path| str::from_utf8(path).ok())
}

fn begin(input_level: i32) {
    if let Ok(input_level) = u8::try_from(input_level) {
        thread::begin_job(Job { input_level });
    }
}

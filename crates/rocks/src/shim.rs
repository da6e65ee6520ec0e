//! Puts a pool under RocksDB's own options.

use std::sync::Arc;

use parking_lot::Mutex;
use policy::key_counts::KeyCounts;
use policy::pressure::Thresholds;
use pool::cache::Cache;
use pool::spread::Spread;
use rust_rocksdb::event_listener::{
    BackgroundErrorRecoveryInfo, CompactionJobInfo, DBBackgroundErrorReason, EventListener,
    FlushJobInfo, MemTableInfo, MutableStatus, SubcompactionJobInfo, WriteStallInfo,
};
use rust_rocksdb::{Env, ErrorKind, Options};
use volume::Clock;
use volume::heartbeat::TaskHealth;

use crate::error::{Call, is_retryable, pool_error};
use crate::file_system::FileSystem;
use crate::notify::Notify;
use crate::origin::Job;
use crate::path::Root;
use crate::{Result, Settings, ffi, thread};

/// The part of a pool that belongs to one database, as RocksDB's file system.
///
/// [`crate::open`] is the short way. Column families, or another kind of database, need the long one:
/// install the shim in every [`Options`] used, of the database and of column families, open the
/// database at [`Shim::PATH`] with the calls of `rust-rocksdb`, and pass both to [`crate::Db::new`].
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
    /// How often keys were read of late, if that is counted.
    counts: Option<Arc<KeyCounts>>,
    notify: Arc<Notify>,
    /// Why RocksDB refuses writes, if it does.
    stopped: Arc<Mutex<Option<String>>>,
}

impl Shim {
    /// RocksDB's path of the database. Other paths have the same root in the pool: a checkpoint made
    /// at `/yesterday` of the database `kv` is `kv/yesterday` in the pool.
    ///
    /// It is `/` because that directory always exists locally: the `rust-rocksdb` crate creates the
    /// directory it is given on the local disk too.
    pub const PATH: &str = "/";

    /// The database named `name` in `pool`: all its files have names under `name/`. `clock` is the
    /// clock of the pool's gates.
    ///
    /// # Errors
    /// `Pool` of kind `Invalid`: not a valid name. `Layout`: the linked RocksDB is another version.
    pub fn new(pool: Spread, clock: Clock, name: &str, settings: Settings) -> Result<Self> {
        Self::over(pool, clock, name, settings, None)
    }

    /// As [`Shim::new`], with `cache` for users' reads of its tables: RocksDB then needs no block cache
    /// for data. Databases of one pool may share it.
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
        Ok(Self { env, fs, counts: None, notify: Arc::default(), stopped: Arc::default() })
    }

    /// The same for a database whose users' reads the caller counts: new tables tell the pool how often their records were read,
    /// so that a cache tier keeps what was read most as it is written. Only tables that are complete in memory before they are
    /// placed do. Call it before [`Shim::install`].
    #[must_use]
    pub fn counting(self, counts: Arc<KeyCounts>) -> Self {
        Self { counts: Some(counts), ..self }
    }

    /// Installs the shim in `options`. Call it last: it does not see a comparator that is set later, and
    /// later calls may override what it sets:
    /// - no readahead of RocksDB's own for compactions;
    /// - the number of recycled logs;
    /// - tables open in the background, so that the database opens although a volume is away. FIFO
    ///   compaction needs `set_open_files_async(false)` after this call.
    ///
    /// `set_wal_ttl_seconds` keeps logs for ever, because a pool stores no modification times: limit
    /// their size instead (`set_wal_size_limit_mb`).
    ///
    /// The options keep the pool open until they, and every database opened with them, are dropped.
    pub fn install(&self, options: &mut Options) {
        options.set_env(&self.env);
        ffi::install_table_range(options, self.counts.clone());
        let (notify, fs) = (Arc::clone(&self.notify), Arc::clone(&self.fs));
        let stopped = Arc::clone(&self.stopped);
        options.add_event_listener(Listener { notify, fs, stopped });
        options.set_compaction_readahead_size(0);
        options.set_recycle_log_file_num(self.fs.settings().wal_recycled);
        options.set_skip_stats_update_on_db_open(true);
        options.set_open_files_async(true).expect("RocksDB 11.12, checked at compile time, has it");
    }

    /// Notifies when a flush or a compaction ends, a memtable is full, or a write stall begins or ends,
    /// in any database that uses the shim.
    #[must_use]
    pub fn notify(&self) -> &Arc<Notify> {
        &self.notify
    }

    /// Why RocksDB refuses writes now, if it does: an error of its background work that it has not
    /// recovered from.
    #[must_use]
    pub fn stopped(&self) -> Option<String> {
        self.stopped.lock().clone()
    }

    /// How the thread that syncs logs at intervals does.
    #[must_use]
    pub fn log_syncs(&self) -> TaskHealth {
        self.fs.log_syncs()
    }

    /// The thresholds at which RocksDB stalls the writers of a family with `options`.
    #[must_use]
    pub fn thresholds(options: &Options) -> Thresholds {
        ffi::thresholds(options)
    }

    /// The environment of its files, for parts of RocksDB that take one beside the options. A
    /// `BackupEngine` with it reads the database from the pool, and keeps backups there too, unless its
    /// options name another environment for them.
    #[must_use]
    pub fn env(&self) -> &Env {
        &self.env
    }

    pub(crate) fn file_system(&self) -> &FileSystem {
        &self.fs
    }
}

/// Records what RocksDB tells only listeners, and keeps writes going when a volume is away.
struct Listener {
    notify: Arc<Notify>,
    fs: Arc<FileSystem>,
    stopped: Arc<Mutex<Option<String>>>,
}

impl EventListener for Listener {
    fn on_flush_completed(&self, _: &FlushJobInfo) {
        self.notify.notify();
    }

    /// A trivial move lists a table among the outputs as well as among the inputs.
    fn on_compaction_completed(&self, job: &CompactionJobInfo) {
        if job.status().is_err() {
            paths(job.input_files()).for_each(|path| self.fs.set_table_leaving(path, false));
        } else if let Ok(level) = u8::try_from(job.output_level()) {
            paths(job.output_files()).for_each(|path| self.fs.set_table_level(path, level));
        }
        self.notify.notify();
    }

    fn on_memtable_sealed(&self, _: &MemTableInfo) {
        self.notify.notify();
    }

    fn on_stall_conditions_changed(&self, _: &WriteStallInfo) {
        self.notify.notify();
    }

    fn on_compaction_begin(&self, job: &CompactionJobInfo) {
        begin(job.base_input_level());
        paths(job.input_files()).for_each(|path| self.fs.set_table_leaving(path, true));
    }

    fn on_subcompaction_begin(&self, job: &SubcompactionJobInfo) {
        begin(job.base_input_level());
    }

    /// A table that could not be opened in the background is opened at its first read. Its error then
    /// fails that read, but must not stop writes. (It would also keep RocksDB 11.12 from closing, which
    /// would wait for a recovery that was never started.) Corruption still stops writes.
    fn on_background_error(&self, reason: DBBackgroundErrorReason, status: MutableStatus) {
        let Err(error) = status.result() else { return };
        if reason == DBBackgroundErrorReason::KAsyncFileOpen && error.kind() == ErrorKind::IOError {
            tracing::warn!(%error, "not every table could be opened");
            status.reset();
            return;
        }
        // RocksDB repeats a compaction that lacks space, a volume, or bytes that one cannot read, and writes go on.
        let retried =
            pool_error(error).is_some_and(|kind| is_retryable(kind, Call::BackgroundRead));
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
        self.notify.notify();
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

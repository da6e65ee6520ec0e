//! A store of points on a log store: a write-ahead log, buffers by source, and blocks.
//!
//! ```text
//!   batch ─▶ catalogue: source, shape ─┬▶ write-ahead log, in groups ─▶ answer
//!                                      └▶ buffer of the source
//!                  full, old, or no room ─▶ columns, cut at slots ─▶ block ─▶ engine::log
//!                        many small blocks of a slot are regrouped ◀┘ dead: files die whole
//! ```
//! The reasons are in `docs/adr/0022-series-store.md`.
//!
//! # What an answer means
//!
//! As with [`crate::log`]: with `Always` a batch survives the loss of the machine; with `Interval` the end of the
//! process at once, and the loss of the machine after the interval; with `Never` the loss of the machine after
//! [`Store::sync`] or [`Store::close`]. A write that failed, or whose future was dropped, may have happened; in a
//! session the client can send it again.
//!
//! # Who does the work
//!
//! [`Store::tend`] writes blocks, regroups, expires and merges; the owner of the store has to run it. Without it,
//! writes go on, and write blocks themselves when buffers are full.

mod away;
mod catalogue;
mod checkpoint;
mod commit;
mod cuts;
mod databases;
mod delete;
mod expire;
mod extent;
mod flush;
mod index;
mod inspect;
mod key;
mod open;
mod overwritten;
mod owed;
mod pages;
mod query;
mod queue;
mod read;
mod regroup;
mod replay;
mod rounds;
mod rows;
mod scrub;
mod sessions;
mod sets;
mod shapes;
mod sizes;
mod sources;
mod state;
mod tables;
mod tend;
#[cfg(test)]
mod tests;
mod upkeep;
mod wal;
mod writing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Mutex as AsyncMutex;
use volume::layer::deadline::LIMIT;
use volume::{Clock, ErrorKind, Volume};

use self::commit::Writer;
pub use self::inspect::{Damage, Inspected, inspect, stores_on};
pub use self::open::Report;
use self::overwritten::Dropped;
use self::query::Query;
use self::sizes::Sizes;
use self::state::SeriesState;
use self::tend::Heartbeats;
pub use self::tend::Task;
use self::upkeep::Upkeep;
use super::{
    Batch, Columns, Cursor, Database, Durability, Error, Info, Kind, Pending, Result, Room, Scan,
    Selector, Series, SeriesId, Session, Span, Written,
};
use crate::health::StoreHealth;
use crate::log;

/// A store's settings. All but the name may change from one opening to the next.
#[derive(Clone, Debug)]
pub struct Options {
    /// The prefix of its objects' names, before a dash; default `series`.
    pub name: String,
    /// What an answered write survives; default: a loss of at most one second.
    pub durability: Durability,
    /// Memory for rows that are in no block yet, in bytes; default 256 MiB. Writes wait when it is full.
    pub buffer_bytes: u64,
    /// A source's rows are written as a block at this many bytes: B; default 16 KiB. Less where there are too many
    /// sources for that.
    pub source_bytes: u64,
    /// Rows are in a block after this time at the latest; default 1 h.
    pub age: Duration,
    /// The limit of the write-ahead log, in bytes; default 128 MiB. Batches under way may exceed it. A start after a crash reads
    /// the log. A higher limit lets rows of slow sources wait longer, for larger blocks. If its rows take more than
    /// `buffer_bytes`, such a start also writes blocks.
    pub wal_bytes: u64,
    /// The most series; default 20 million. Each takes memory.
    pub series_max: u64,
    /// Deletes the oldest points, of any database, while a volume is filled to this part; default 1, never.
    pub full: f64,
    /// Within how long all blocks are read back once, in spare capacity, to find damage in time; `None`, the default, is
    /// never. Of use on volumes of its own: a pool reads back its objects itself.
    pub scrub_every: Option<Duration>,
    /// How long its volumes may take for a call; default [`LIMIT`]. [`Store::health`] says that writes are refused while
    /// one of the write-ahead log has waited for longer. Less says so sooner, and also of volumes that are only slow.
    pub timeout: Duration,
    /// The options of the log store for blocks. Name and durability are this store's.
    pub log: log::Options,
}

impl Options {
    /// The defaults for this number of volumes.
    #[must_use]
    pub fn new(volumes: u16) -> Self {
        Self {
            name: "series".into(),
            durability: Durability::Interval(Duration::from_secs(1)),
            buffer_bytes: 256 << 20,
            source_bytes: 16 << 10,
            age: Duration::from_secs(3600),
            wal_bytes: 128 << 20,
            series_max: 20_000_000,
            full: 1.0,
            scrub_every: None,
            timeout: LIMIT,
            log: log::Options::new(volumes),
        }
    }
}

/// A store of points. Clones are handles to the same one.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

/// The state of a store of points.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Series known.
    pub series: u64,
    /// Sources known.
    pub sources: u64,
    /// Memory of the catalogue, in bytes.
    pub catalogue_bytes: u64,
    /// Sources with rows in a buffer.
    pub active: u64,
    /// Memory of buffers, in bytes.
    pub buffer_bytes: u64,
    /// The free share of the buffers, 0 to 1.
    pub room: f64,
    /// Points accepted since the store was opened.
    pub points: u64,
    /// Blocks written, and bytes of them.
    pub blocks: u64,
    /// See `blocks`.
    pub block_bytes: u64,
    /// Slots regrouped.
    pub regrouped: u64,
    /// Blocks expired.
    pub expired: u64,
    /// The log store under it.
    pub log: log::Figures,
}

#[derive(Default)]
struct Counts {
    blocks: AtomicU64,
    block_bytes: AtomicU64,
    regrouped: AtomicU64,
    expired: AtomicU64,
}

impl Counts {
    fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }
}

struct Inner {
    log: log::Store,
    options: Options,
    clock: Clock,
    members: Vec<(String, Arc<dyn Volume>)>,
    state: Mutex<SeriesState>,
    writer: AsyncMutex<Writer>,
    /// Bytes of the write-ahead log's segments: what a start after a crash reads.
    wal_bytes: AtomicU64,
    /// Held by the task that writes blocks.
    upkeep: AsyncMutex<Upkeep>,
    closing: AtomicBool,
    /// Why the write-ahead log failed, until it works again.
    refusing: Mutex<Option<String>>,
    /// Since when a write or sync of the write-ahead log is under way, also one that its caller gave up.
    waits_since: Mutex<Option<policy::time::Instant>>,
    counts: Counts,
    opened: policy::time::Instant,
    heartbeats: Heartbeats,
    sizes: Sizes,
    dropped: Dropped,
}

impl Store {
    /// Does one piece of upkeep, if there is any; says whether it did. For owners that do not run [`Store::tend`]; does
    /// not tend the log store.
    ///
    /// # Errors
    /// The error that stopped the work; the next call resumes it.
    pub async fn tend_once(&self) -> Result<bool> {
        self.0.tend_once().await
    }

    /// Makes every batch answered before the call survive the loss of the machine.
    ///
    /// # Errors
    /// As for [`Series::write`]. A later call completes the work.
    pub async fn sync(&self) -> Result<()> {
        self.0.sync().await
    }

    /// Writes all buffered rows as blocks. Durable on completion.
    ///
    /// # Errors
    /// As for [`Series::write`].
    pub async fn flush(&self) -> Result<()> {
        self.0.flush_all().await
    }

    /// Flushes and seals everything, so that the next opening is quick. Later writes fail; reads go on. The
    /// [tasks](Store::tasks) end, whatever it returns.
    ///
    /// # Errors
    /// As for [`Series::write`]; answered batches stay as durable as they were.
    pub async fn close(&self) -> Result<()> {
        self.0.closing.store(true, Ordering::SeqCst);
        let flushed = match self.0.flush_all().await {
            // The rows stay in the log; the next opening finds room for them, or keeps them there.
            Err(error @ Error::OutOfSpace(_)) => {
                tracing::warn!(store = %self.0.options.name, %error,
                    "no room for blocks: points stay in the write-ahead log");
                self.sync().await
            }
            flushed => flushed,
        };
        let closed = self.0.log.close().await.map_err(|error| failed(&error));
        flushed.and(closed)
    }

    /// The state of the store. Takes time in proportion to its measurements and files, not to its series.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let counts = &self.0.counts;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let log = self.0.log.figures();
        let room = self.room().free;
        let state = self.0.state();
        Figures {
            series: state.catalogue.series,
            sources: state.catalogue.sources.count() as u64,
            catalogue_bytes: state.catalogue.memory() as u64,
            active: state.active() as u64,
            buffer_bytes: state.memory as u64,
            room,
            points: state.accepted_points,
            blocks: of(&counts.blocks),
            block_bytes: of(&counts.block_bytes),
            regrouped: of(&counts.regrouped),
            expired: of(&counts.expired),
            log,
        }
    }
}

impl Store {
    /// The bytes of its volumes that users' writes never get: see [`log::Store::room_kept`].
    #[must_use]
    pub fn room_kept(&self) -> u64 {
        self.0.log.room_kept()
    }
}

impl Inner {
    /// The state in memory. A task never holds the lock across an await.
    fn state(&self) -> MutexGuard<'_, SeriesState> {
        self.state.lock()
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    fn check_open(&self) -> Result<()> {
        if self.is_closing() {
            return Err(Error::Closed(format!("store {}", self.options.name)));
        }
        Ok(())
    }

    async fn write(&self, batch: Batch, session: Option<Session>) -> Result<Written> {
        self.check_open()?;
        let bound = self.options.buffer_bytes as usize;
        let (bytes, max) = (batch.record_bytes_max(), bound.min(wal::RECORD_MAX));
        if bytes > max {
            return Err(Error::Invalid(format!(
                "the batch has {bytes} bytes, and at most {max} are accepted: send smaller batches"
            )));
        }
        self.wait_for_log().await?;
        // From three quarters of the bound on, writers make room; at the bound they wait for it.
        let from = bound / 4 * 3;
        let mut tries = 0;
        loop {
            let memory = self.state().memory;
            if memory < from {
                break;
            }
            if memory < bound {
                if let Ok(mut upkeep) = self.upkeep.try_lock() {
                    self.make_room(&mut upkeep, from).await?;
                }
                break;
            }
            if tries == 8 {
                let why = format!("the buffers hold {memory} of {bound} bytes");
                return Err(Error::Busy { why, after: Duration::from_secs(1) });
            }
            tries += 1;
            let mut upkeep = self.upkeep.lock().await;
            self.make_room(&mut upkeep, from).await?;
        }
        // Its record in the log is about as long as the batch in memory.
        let bytes = batch.bytes() as u64;
        let delay = self.log.admit(bytes).map_err(|error| failed(&error))?;
        if !delay.is_zero() {
            self.clock.sleep(delay).await;
        }
        let takes: Vec<bool> =
            (0..self.log.volumes()).map(|volume| self.log.takes(volume, bytes)).collect();
        let (written, ticket) = {
            let (wall, now) = (self.clock.wall(), self.clock.now());
            self.state().accept(&batch, session.as_ref(), &takes, wall, now)?
        };
        let durable = self.options.durability == Durability::Always;
        self.commit(ticket, durable).await?;
        Ok(written)
    }
}

impl Series for Store {
    fn write(&self, batch: Batch, session: Option<Session>) -> Pending<'_, Written> {
        Box::pin(self.0.write(batch, session))
    }

    fn delete(&self, selector: Selector, span: Span) -> Pending<'_, u64> {
        Box::pin(async move {
            self.0.check_open()?;
            self.0.delete(&selector, span).await
        })
    }

    fn find(
        &self,
        selector: &Selector,
        after: Option<SeriesId>,
        limit: usize,
    ) -> Result<Vec<Info>> {
        Query::new(&self.0, selector).find(after, limit)
    }

    fn read(&self, series: SeriesId, scan: Scan) -> Box<dyn Cursor> {
        Box::new(read::Walk::new(Arc::clone(&self.0), &[series], scan))
    }

    fn read_columns(&self, series: &[SeriesId], scan: Scan) -> Box<dyn Columns> {
        Box::new(read::Walk::new(Arc::clone(&self.0), series, scan))
    }

    fn create_database(&self, database: Database) -> Pending<'_, ()> {
        Box::pin(async move {
            self.0.check_open()?;
            self.0.create_database(database).await
        })
    }

    fn drop_database(&self, name: &str) -> Pending<'_, bool> {
        let name = name.to_string();
        Box::pin(async move {
            self.0.check_open()?;
            self.0.drop_database(&name).await
        })
    }

    fn databases(&self) -> Vec<Database> {
        let state = self.0.state();
        let all = state.catalogue.databases.iter();
        all.map(|(name, facts)| Database { name: name.clone(), keep: facts.keep }).collect()
    }

    fn measurements(&self, selector: &Selector) -> Result<Vec<String>> {
        Query::new(&self.0, selector).measurement_names()
    }

    fn tag_keys(&self, selector: &Selector) -> Result<Vec<String>> {
        Query::new(&self.0, selector).tag_keys()
    }

    fn tag_values(&self, selector: &Selector, key: &str) -> Result<Vec<String>> {
        Query::new(&self.0, selector).tag_values(key)
    }

    fn fields(&self, database: &str, measurement: &str) -> Result<Vec<(String, Kind)>> {
        self.0.state().catalogue.fields(database, measurement)
    }

    fn cardinality(&self, selector: &Selector) -> Result<u64> {
        Query::new(&self.0, selector).cardinality()
    }

    fn room(&self) -> Room {
        let used = self.0.state().memory as f64 / self.0.options.buffer_bytes as f64;
        let free = (1.0 - used).clamp(0.0, 1.0);
        let retry_after = Duration::from_secs(1).mul_f64(1.0 - free);
        Room { free, retry_after }
    }

    fn health(&self) -> StoreHealth {
        Self::health(self)
    }

    fn durability(&self) -> Durability {
        self.0.options.durability
    }
}

/// The error of a call that may have taken effect: it does not count as a refusal.
fn in_doubt(error: Error) -> Error {
    match error {
        Error::OutOfSpace(_) | Error::Busy { .. } => {
            Error::Unavailable(format!("{error}; the change may or may not have been made"))
        }
        other => other,
    }
}

/// Maps an error of a volume or of the log store to one for users of points.
fn failed(error: &volume::Error) -> Error {
    let what = error.to_string();
    match error.kind() {
        ErrorKind::OutOfSpace => Error::OutOfSpace(what),
        ErrorKind::Corrupt => Error::Corrupt(what),
        ErrorKind::Invalid => Error::Invalid(what),
        ErrorKind::NotFound => Error::NotFound(what),
        ErrorKind::Busy => Error::Busy { why: what, after: Duration::from_secs(1) },
        ErrorKind::Unavailable | ErrorKind::TimedOut | ErrorKind::Poisoned | ErrorKind::Fenced => {
            Error::Unavailable(what)
        }
        _ => Error::Other(what),
    }
}

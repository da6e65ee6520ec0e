//! Points of sensors: the interface between protocol servers and a store of points, free of any protocol.
//!
//! A *source* is a measurement with tags, a *series* one field of a source, a *point* a time and a value of a series. A
//! series has at most one point at a time: the one written last. Points come in rows ([`Batch`]): several fields of a
//! source at one time.
//!
//! Times are nanoseconds since 1970; intervals include their start and exclude their end.

pub mod aggregate;
mod batch;
mod block;
mod lookup;
mod memory;
mod select;
pub mod store;
mod value;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

pub use batch::{Batch, KEY_MAX, Refused, RowRef, TEXT_MAX};
pub use memory::Memory;
pub use select::{Info, Pattern, Predicate, Selector, SeriesId, Test};
pub use value::{Kind, Points, Scalar, Value, Values};

use crate::health::StoreHealth;
pub use crate::log::Durability;

/// What a call on a store ends with.
pub type Result<T> = std::result::Result<T, Error>;

/// A call in progress. Dropping it ends the wait: a write may still happen.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Why a call failed: one kind for each way a caller reacts.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The buffers are full: nothing was stored, try again after this time.
    #[error("busy: {why}; try again in {} ms", after.as_millis())]
    Busy {
        /// The buffer or limit that is full.
        why: String,
        /// The time after which there should be room.
        after: Duration,
    },
    /// Part of the store is unavailable, and the call may have taken effect: try again when it is back.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// There is no room: delete something, keep less or add a volume.
    #[error("out of space: {0}")]
    OutOfSpace(String),
    /// Stored bytes differ from those written. Others can still be read.
    #[error("corrupt: {0}")]
    Corrupt(String),
    /// There is no such database or series.
    #[error("not found: {0}")]
    NotFound(String),
    /// The request is invalid, or exceeds a limit: change it.
    #[error("{0}")]
    Invalid(String),
    /// The store is closing.
    #[error("closed: {0}")]
    Closed(String),
    /// Anything else the store reports.
    #[error("{0}")]
    Other(String),
}

/// An interval of times, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Span {
    /// The first time inside.
    pub from: i64,
    /// The first time behind the interval.
    pub to: i64,
}

impl Span {
    /// Every time a point may have.
    pub const ALL: Self = Self { from: i64::MIN, to: i64::MAX };

    /// Whether a time is in it.
    #[must_use]
    pub fn contains(&self, time: i64) -> bool {
        self.from <= time && time < self.to
    }

    /// Whether no time is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.from >= self.to
    }
}

/// The points of a series to read, and their order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Scan {
    /// Points of these times.
    pub span: Span,
    /// From the latest to the earliest.
    pub descending: bool,
    /// The most points to read.
    pub limit: usize,
}

impl Scan {
    /// All points of an interval, earliest first.
    #[must_use]
    pub fn of(span: Span) -> Self {
        Self { span, descending: false, limit: usize::MAX }
    }
}

/// A walk over the points of a series: all that were there when it began; those written since, perhaps.
pub trait Cursor: Send {
    /// The next points, at least one; none at the end.
    ///
    /// # Errors
    /// `Corrupt`: some points are lost, the next call goes on behind them; `Unavailable`: call again later.
    fn next(&mut self) -> Pending<'_, Option<Points>>;
}

/// A walk over the points of several series of a source, side by side.
pub trait Columns: Send {
    /// The next points of each series, in the order they were asked for: all points in some interval of times. At least
    /// one series has some; `None` at the end.
    ///
    /// # Errors
    /// As for [`Cursor::next`].
    fn next(&mut self) -> Pending<'_, Option<Vec<Points>>>;
}

/// A client and the number of its batch: a batch that is sent again is not stored twice.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Session {
    /// A name no other client has, of 1 to 64 bytes.
    pub client: String,
    /// Larger than in the client's earlier batches. Up to [`SESSION_WINDOW`] of them may be in flight at a time, and
    /// arrive in any order.
    pub sequence: u64,
}

/// How many batches of a client may be in flight at a time.
pub const SESSION_WINDOW: u64 = 64;

/// How many clients with sessions may write within [`SESSION_IDLE`]. More are refused as `Busy`.
pub const SESSIONS_MAX: usize = 65_536;

/// The store remembers a client's batches for this long after the last one, and longer while there is room.
pub const SESSION_IDLE: Duration = Duration::from_secs(3600);

/// The outcome of a batch.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Written {
    /// How many rows are stored.
    pub rows: usize,
    /// How many points these rows have.
    pub points: usize,
    /// The batch was stored before; this call stored nothing.
    pub repeated: bool,
    /// How many rows were refused; the others are stored.
    pub refused: usize,
    /// The first refused rows, at most [`REJECTED_MAX`].
    pub rejected: Vec<Rejected>,
}

/// How many refused rows an answer names.
pub const REJECTED_MAX: usize = 32;

/// A row that was refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rejected {
    /// Its place in the batch, from 0.
    pub row: usize,
    /// Why.
    pub reason: Reason,
}

/// Why a row was refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// A field's kind is fixed by its first value. The message is InfluxDB's.
    #[error(
        "field type conflict: input field \"{field}\" on measurement \"{measurement}\" is type {given}, already exists as type {stored}"
    )]
    Conflict {
        /// The measurement.
        measurement: String,
        /// The field.
        field: String,
        /// The kind in the row.
        given: Kind,
        /// The kind of the field.
        stored: Kind,
    },
    /// The measurement has the most fields that it may have.
    #[error("measurement \"{0}\" has 65535 fields, and takes no more")]
    TooManyFields(String),
    /// The store has the most series that the settings allow.
    #[error("the limit of {0} series is reached: delete some, or raise series_max")]
    TooManySeries(u64),
    /// Buffered rows have more combinations of fields than a database may have.
    #[error(
        "rows with {0} combinations of fields wait to be written: send a source's fields together, or try \
         again later"
    )]
    TooManyShapes(usize),
    /// A text is longer than the store's files allow.
    #[error(
        "field \"{field}\" has a string of more than {max} bytes, the limit of this store's files"
    )]
    TooLong {
        /// The field.
        field: String,
        /// The longest text allowed, in bytes.
        max: usize,
    },
    /// The row is older than the database keeps points.
    #[error("points beyond retention policy")]
    Expired,
}

/// A set of points that are deleted, kept and queried together.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Database {
    /// Its name, of 1 to 255 bytes.
    pub name: String,
    /// How long points are kept, by their times; `None` for ever.
    pub keep: Option<Duration>,
}

/// The free room in the buffers: the only signal of back-pressure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Room {
    /// 0 full to 1 empty.
    pub free: f64,
    /// When a refused client should try again.
    pub retry_after: Duration,
}

/// Whether a stored checksum is right. Under the feature `fuzz` each one passes, so that the fuzzer reaches the code
/// behind it.
fn sum_fits(right: u32, stored: &[u8]) -> bool {
    cfg!(feature = "fuzz") || right.to_le_bytes() == *stored
}

/// A store of points.
///
/// Queries of metadata are answered from memory; cursors read points from volumes as they go.
pub trait Series: Send + Sync {
    /// Stores the valid rows of a batch; they all become visible at once, after a crash too. An answered write survives
    /// what [`Series::durability`] says.
    ///
    /// # Errors
    /// `NotFound`: no such database; `Busy`: try later; `OutOfSpace`; `Invalid`: the session's sequence is more than
    /// [`SESSION_WINDOW`] behind; `Unavailable`: the batch may be stored or not: send it again, in a session.
    fn write(&self, batch: Batch, session: Option<Session>) -> Pending<'_, Written>;

    /// Deletes the points of these series and times that were answered before the call; gives the number of series. As
    /// durable as a write. With [`Span::ALL`], sources whose series are all selected are dropped, too, and measurements
    /// without other sources.
    ///
    /// # Errors
    /// As for [`Series::write`].
    fn delete(&self, selector: Selector, span: Span) -> Pending<'_, u64>;

    /// Up to `limit` series, in the order of their ids, after `after`. A series stays known when its points expire, or
    /// are deleted in an interval.
    ///
    /// # Errors
    /// `NotFound`: no such database.
    fn find(&self, selector: &Selector, after: Option<SeriesId>, limit: usize)
    -> Result<Vec<Info>>;

    /// Reads points of a series. An unknown series has none.
    fn read(&self, series: SeriesId, scan: Scan) -> Box<dyn Cursor>;

    /// Reads points of some series of one source, each named once. Blocks and times that they share are read once, so
    /// several fields of a row cost little more than one. The limit counts rows: each series gives its points at the
    /// first `limit` times at which any of them has one, perhaps more.
    ///
    /// # Panics
    /// If there is no series, or they belong to several sources.
    fn read_columns(&self, series: &[SeriesId], scan: Scan) -> Box<dyn Columns>;

    /// Creates a database, or changes how long it keeps points. Durable on completion.
    ///
    /// # Errors
    /// `Invalid`: the name; otherwise as for [`Series::write`].
    fn create_database(&self, database: Database) -> Pending<'_, ()>;

    /// Deletes a database with its points and series; says whether there was one. Durable on completion.
    ///
    /// # Errors
    /// As for [`Series::write`].
    fn drop_database(&self, name: &str) -> Pending<'_, bool>;

    /// Every database, by name.
    fn databases(&self) -> Vec<Database>;

    /// Measurements of the selected series, by name.
    ///
    /// # Errors
    /// `NotFound`: no such database.
    fn measurements(&self, selector: &Selector) -> Result<Vec<String>>;

    /// Keys of tags that the selected series have, by name.
    ///
    /// # Errors
    /// `NotFound`: no such database.
    fn tag_keys(&self, selector: &Selector) -> Result<Vec<String>>;

    /// Values of a tag of the selected series, in order.
    ///
    /// # Errors
    /// `NotFound`: no such database.
    fn tag_values(&self, selector: &Selector, key: &str) -> Result<Vec<String>>;

    /// Fields of a measurement and their kinds, by name; none if there is no such measurement.
    ///
    /// # Errors
    /// `NotFound`: no such database.
    fn fields(&self, database: &str, measurement: &str) -> Result<Vec<(String, Kind)>>;

    /// How many series are selected.
    ///
    /// # Errors
    /// `NotFound`: no such database.
    fn cardinality(&self, selector: &Selector) -> Result<u64>;

    /// The free room for writes.
    fn room(&self) -> Room;

    /// The store's condition now, from memory: cheap enough for a health check each second.
    fn health(&self) -> StoreHealth;

    /// What an answered write survives.
    fn durability(&self) -> Durability;
}

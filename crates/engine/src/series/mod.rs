//! Points of sensors: what front doors ask of a store of them, free of any protocol.
//!
//! A *source* is a measurement with tags, a *series* one field of a source, a *point* a time and a value
//! of a series; there is one point at most for a series and a time, and the last one written counts. Points come
//! in rows ([`Batch`]): several fields of a source at one time.
//!
//! Times are nanoseconds since 1970, and intervals hold their start and not their end.

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

/// A call under way. Dropping it gives up waiting: a write may still happen.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Why a call failed: a kind for each thing a caller would do.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The buffers are full: nothing was stored, try again after this time.
    #[error("busy: {why}; try again in {} ms", after.as_millis())]
    Busy {
        /// What is full.
        why: String,
        /// When there should be room.
        after: Duration,
    },
    /// Part of the store is away, perhaps after doing it: try again when it is back.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// There is no room: delete something, keep less or add a volume.
    #[error("out of space: {0}")]
    OutOfSpace(String),
    /// Stored bytes are not what was written. Others can still be read.
    #[error("corrupt: {0}")]
    Corrupt(String),
    /// There is no such database or series.
    #[error("not found: {0}")]
    NotFound(String),
    /// The request makes no sense, or is larger than a limit: mend it.
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
    /// The first time that is in it.
    pub from: i64,
    /// The first time behind it.
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

/// What of a series is read, and in which order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Scan {
    /// Points of these times.
    pub span: Span,
    /// From the latest to the earliest.
    pub descending: bool,
    /// So many points at most.
    pub limit: usize,
}

impl Scan {
    /// All points of an interval, earliest first.
    #[must_use]
    pub fn of(span: Span) -> Self {
        Self { span, descending: false, limit: usize::MAX }
    }
}

/// A walk over the points of a series: what was there when it began, and what came since or not.
pub trait Cursor: Send {
    /// The next points, at least one; none at the end.
    ///
    /// # Errors
    /// `Corrupt`: these are lost, the next call goes on behind them; `Unavailable`: call again later.
    fn next(&mut self) -> Pending<'_, Option<Points>>;
}

/// A walk over the points of several series of a source, side by side.
pub trait Columns: Send {
    /// The next points of each of them, in the order they were asked for: all they have in some interval of
    /// times. One of them has some; none at the end.
    ///
    /// # Errors
    /// As for [`Cursor::next`].
    fn next(&mut self) -> Pending<'_, Option<Vec<Points>>>;
}

/// Whose batch it is, and which of theirs: a batch that is sent again is not stored twice.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Session {
    /// A name no other client has, of 1 to 64 bytes.
    pub client: String,
    /// Larger than those of the client's batches before. Up to [`SESSION_WINDOW`] of them may be under way at
    /// a time, and come in any order.
    pub sequence: u64,
}

/// How many batches of a client may be under way at a time.
pub const SESSION_WINDOW: u64 = 64;

/// How many clients with sessions may write within [`SESSION_IDLE`]. More are refused as `Busy`.
pub const SESSIONS_MAX: usize = 65_536;

/// A client's batches are remembered for this long after the last one, and longer while there is room.
pub const SESSION_IDLE: Duration = Duration::from_secs(3600);

/// What became of a batch.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Written {
    /// So many rows are stored.
    pub rows: usize,
    /// So many points in them.
    pub points: usize,
    /// It was stored before: nothing was done.
    pub repeated: bool,
    /// So many rows were refused; the others are stored.
    pub refused: usize,
    /// The first of them, at most [`REJECTED_MAX`].
    pub rejected: Vec<Rejected>,
}

/// How many refused rows a store names.
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
    /// A field's kind is fixed by its first value. InfluxDB's words.
    #[error(
        "field type conflict: input field \"{field}\" on measurement \"{measurement}\" is type {given}, already exists as type {stored}"
    )]
    Conflict {
        /// The measurement.
        measurement: String,
        /// The field.
        field: String,
        /// What the row has.
        given: Kind,
        /// What the field holds.
        stored: Kind,
    },
    /// The measurement has as many fields as it can.
    #[error("measurement \"{0}\" has 65535 fields, and takes no more")]
    TooManyFields(String),
    /// There are as many series as the settings allow.
    #[error("the limit of {0} series is reached: delete some, or raise it")]
    TooManySeries(u64),
    /// Rows that wait to be written to blocks have more combinations of fields than a database may have.
    #[error(
        "rows with {0} combinations of fields wait to be written: send a source's fields together, or later"
    )]
    TooManyShapes(usize),
    /// A string is longer than the store's files take.
    #[error(
        "field \"{field}\" has a string of more than {max} bytes, the most this store's files take"
    )]
    TooLong {
        /// The field.
        field: String,
        /// The longest there may be, in bytes.
        max: usize,
    },
    /// It is older than what the database keeps.
    #[error("points beyond retention policy")]
    Expired,
}

/// Points of one owner: what is deleted, kept and asked for together.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Database {
    /// Its name, of 1 to 255 bytes.
    pub name: String,
    /// How long points are kept, by their times; none for ever.
    pub keep: Option<Duration>,
}

/// How much room the buffers have: the one signal of back-pressure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Room {
    /// 0 full to 1 empty.
    pub free: f64,
    /// When somebody who was refused should come again.
    pub retry_after: Duration,
}

/// Whether a stored checksum is the right one. Under the feature `fuzz` each is, so that what is behind it
/// is searched too.
fn sum_fits(right: u32, stored: &[u8]) -> bool {
    cfg!(feature = "fuzz") || right.to_le_bytes() == *stored
}

/// A store of points.
///
/// Metadata is answered from memory, points are read as cursors go.
pub trait Series: Send + Sync {
    /// Stores the rows of a batch that can be stored; all of them count at once, after a crash too. What an
    /// answer survives is [`Series::durability`].
    ///
    /// # Errors
    /// `NotFound`: no such database; `Busy`: later; `OutOfSpace`; `Invalid`: the session's sequence is more
    /// than [`SESSION_WINDOW`] behind; `Unavailable`: whether it was stored is unknown: send it again, in a session.
    fn write(&self, batch: Batch, session: Option<Session>) -> Pending<'_, Written>;

    /// Deletes the points of these series and times that were answered before the call; says of how many
    /// series. As durable as a write. With [`Span::ALL`] sources of which all series are selected are forgotten, too,
    /// and measurements that have no other ones.
    ///
    /// # Errors
    /// As for [`Series::write`].
    fn delete(&self, selector: Selector, span: Span) -> Pending<'_, u64>;

    /// Up to `limit` series, in the order of their ids, from behind `after` on. Series stay known when
    /// their points expire, or are deleted up to some time.
    ///
    /// # Errors
    /// `NotFound`: no such database.
    fn find(&self, selector: &Selector, after: Option<SeriesId>, limit: usize)
    -> Result<Vec<Info>>;

    /// Reads points of a series. A series that is not there has none.
    fn read(&self, series: SeriesId, scan: Scan) -> Box<dyn Cursor>;

    /// Reads points of some series of one source, each named once. What they share is read once: several
    /// fields of a row cost little more than one. The limit counts rows: each series gives what it has at the
    /// first `limit` times at which any of them has a point, perhaps more.
    ///
    /// # Panics
    /// When there is no series, or they are of several sources.
    fn read_columns(&self, series: &[SeriesId], scan: Scan) -> Box<dyn Columns>;

    /// Makes a database, or changes how long it keeps points. Durable when it is ready.
    ///
    /// # Errors
    /// `Invalid`: its name; otherwise as for [`Series::write`].
    fn create_database(&self, database: Database) -> Pending<'_, ()>;

    /// Deletes a database with its points and series; says whether there was one. Durable when it is ready.
    ///
    /// # Errors
    /// As for [`Series::write`].
    fn drop_database(&self, name: &str) -> Pending<'_, bool>;

    /// Every database, by name.
    fn databases(&self) -> Vec<Database>;

    /// Measurements of the series selected, by name.
    ///
    /// # Errors
    /// `NotFound`: no such database.
    fn measurements(&self, selector: &Selector) -> Result<Vec<String>>;

    /// Keys of tags that the series selected have, by name.
    ///
    /// # Errors
    /// `NotFound`: no such database.
    fn tag_keys(&self, selector: &Selector) -> Result<Vec<String>>;

    /// Values of a tag of the series selected, in order.
    ///
    /// # Errors
    /// `NotFound`: no such database.
    fn tag_values(&self, selector: &Selector, key: &str) -> Result<Vec<String>>;

    /// Fields of a measurement and what they hold, by name; none if there is no such measurement.
    ///
    /// # Errors
    /// `NotFound`: no such database.
    fn fields(&self, database: &str, measurement: &str) -> Result<Vec<(String, Kind)>>;

    /// How many series are selected.
    ///
    /// # Errors
    /// `NotFound`: no such database.
    fn cardinality(&self, selector: &Selector) -> Result<u64>;

    /// How much room there is for writes.
    fn room(&self) -> Room;

    /// What the store can do for its users now, from memory: for a health check each second.
    fn health(&self) -> StoreHealth;

    /// What a write has survived once it was answered.
    fn durability(&self) -> Durability;
}

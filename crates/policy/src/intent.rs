//! What is known about an object before its first byte is written; placement decides on it.

use std::sync::Arc;

/// Smallest and largest key of a table, both inclusive, in the family's key order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyRange {
    /// The smallest key.
    pub first: Box<[u8]>,
    /// The largest key.
    pub last: Box<[u8]>,
}

/// A key space inside which ranges compare: one column family of one database.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Family(pub Arc<str>);

/// The kind of an object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A sorted table: written once, then read at random.
    Table {
        /// The key space the range belongs to.
        family: Family,
        /// The level it was built for, if known.
        level: Option<u8>,
        /// The keys it covers, if known.
        range: Option<KeyRange>,
    },
    /// A log: appended through the page cache, paid for when synced.
    Log,
    /// Anything else: written and read at any offset.
    Data,
    /// Data that is overwritten in place for years and never sealed, as that of a block device. Its store keeps a durable
    /// record of the ranges that it writes, marks each before its first write, and aligns the marked ones after a crash,
    /// before it reads them. So a pool does not compare its copies.
    InPlace,
}

/// What the creator of an object knows about it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Intent {
    /// Its kind.
    pub kind: Kind,
    /// Its final length in bytes, if known.
    pub len: Option<u64>,
    /// The bytes that it may grow to, if its final length is unknown: a pool puts it where they fit.
    pub most: Option<u64>,
    /// The stream that it is a part of, if its store writes several at the same time.
    pub stream: Option<Stream>,
    /// How often the records that it will hold were read of late, by page: ascending, without pages of which none was read. A cache
    /// may keep the pages that were read most as they are written.
    pub reads: Option<Arc<[PageReads]>>,
}

/// Reads of what a page holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PageReads {
    /// The number of the page in the object.
    pub page: u32,
    /// How often its records were read.
    pub reads: u8,
}

impl PageReads {
    /// Bytes of a page.
    pub const PAGE: u64 = 4096;
}

/// A number for the objects of a store that are written one after the other: at any time to one of them. Different stores have
/// different numbers.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Stream(pub u64);

impl Intent {
    /// A log of unknown length.
    pub const LOG: Self =
        Self { kind: Kind::Log, len: None, most: None, stream: None, reads: None };
    /// Data of unknown length.
    pub const DATA: Self =
        Self { kind: Kind::Data, len: None, most: None, stream: None, reads: None };
    /// Data that is overwritten in place, of unknown length.
    pub const IN_PLACE: Self =
        Self { kind: Kind::InPlace, len: None, most: None, stream: None, reads: None };

    /// The same of an object that holds some of its bytes, or others computed from them.
    #[must_use]
    pub fn of_part(&self, len: Option<u64>) -> Self {
        Self { len, reads: None, ..self.clone() }
    }

    /// Whether the object is a log.
    #[must_use]
    pub const fn is_log(&self) -> bool {
        matches!(self.kind, Kind::Log)
    }
}

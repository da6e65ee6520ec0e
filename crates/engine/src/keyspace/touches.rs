//! The keys that a transaction touches, and how much of them may be in memory.

use bytes::Bytes;

use super::{Error, Result};

/// What a transaction does with a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Touch {
    /// Looks at its kind, its expiry, and how many bytes or elements it has. The transaction keeps only that of the
    /// record, so that the length of a string counts against no limit. Locks as `Peek`.
    Look,
    /// Looks at its kind, expiry, length or string: one record. A transaction of `Peek` and `Look` alone sees all keys
    /// of a [part](Touches::end_part) at one moment and takes no locks, unless they have more bytes than it may hold.
    /// Beside other touches this one locks as `Read`.
    Peek,
    /// Reads the key, elements included.
    Read,
    /// Reads the key and changes it.
    Write,
    /// Changes the key, mostly without reading it: it is not fetched ahead.
    Replace,
}

/// The keys that a transaction touches.
#[derive(Clone, Debug, Default)]
pub struct Touches {
    pub(super) keys: Vec<(Bytes, Touch)>,
    pub(super) everything: bool,
    /// Whether the keys are locked even if the transaction only looks at them.
    pub(super) locks: bool,
    /// How many keys there were at the end of each part.
    pub(super) parts: Vec<usize>,
}

impl Touches {
    /// Adds a key.
    pub fn add(&mut self, key: Bytes, touch: Touch) {
        self.keys.push((key, touch));
    }

    /// Adds all keys, to be changed: the transaction excludes all others.
    pub fn add_everything(&mut self) {
        self.everything = true;
    }

    /// Locks the keys even if the transaction only looks at them.
    pub(super) fn lock(&mut self) {
        self.locks = true;
    }

    /// Ends a part: the transaction fetches the keys added since the last part at one moment. It stops fetching parts
    /// ahead once the values have [`FETCHED_BYTES_MAX`](super::FETCHED_BYTES_MAX) bytes together:
    /// [`Transaction::parts_fetched`](super::Transaction::parts_fetched) says how many it fetched.
    pub fn end_part(&mut self) {
        self.parts.push(self.keys.len());
    }

    /// Whether a part was ended.
    #[must_use]
    pub fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// How many keys were added.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && !self.everything
    }
}

/// What a transaction's reads may hold in memory for the caller.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReadLimits {
    /// The bytes of values, and of names of elements.
    pub bytes_max: usize,
    /// Keys, fields, values and members that walks collect: each takes some memory besides its bytes.
    pub elements_max: usize,
}

impl ReadLimits {
    /// No limit.
    pub const NONE: Self = Self { bytes_max: usize::MAX, elements_max: usize::MAX };
}

/// What reads may still hold in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub(super) limits: ReadLimits,
    pub(super) bytes_left: usize,
    elements_left: usize,
}

impl Budget {
    pub(super) fn new(limits: ReadLimits) -> Self {
        let ReadLimits { bytes_max, elements_max } = limits;
        Self { limits, bytes_left: bytes_max, elements_left: elements_max }
    }

    /// Counts elements that have `bytes` together.
    pub(super) fn take(&mut self, elements: usize, bytes: usize) -> Result<()> {
        let bytes_left = self.bytes_left.checked_sub(bytes).ok_or_else(|| self.too_long())?;
        let elements_left = self.elements_left.checked_sub(elements);
        let elements_left = elements_left.ok_or(Error::TooMany(self.limits.elements_max))?;
        (self.bytes_left, self.elements_left) = (bytes_left, elements_left);
        Ok(())
    }

    pub(super) fn too_long(&self) -> Error {
        Error::TooLong(self.limits.bytes_max)
    }
}

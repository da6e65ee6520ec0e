//! The key-value engine as front doors see it: one ordered map from bytes to bytes.
//!
//! Calls block the thread where the store underneath does ([`KeyValue::yields`] says what that means for
//! a thread that serves many), and a front door decides how many threads it
//! gives away. Keys and values are any bytes; keys are ordered as byte strings.

pub mod conformance;
mod memory;

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;

use bytes::Bytes;

pub use memory::Memory;

/// What a call on a store ends with.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed: a kind for each thing a caller would do.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Try again later; nothing was done.
    #[error("busy: {0}")]
    Busy(String),
    /// Part of the store is away: try again when it is back.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// There is no room for the write, and nothing was done: delete something or add a volume.
    #[error("out of space: {0}")]
    OutOfSpace(String),
    /// Stored bytes are not what was written.
    #[error("corrupt: {0}")]
    Corrupt(String),
    /// The store is closing or takes no writes any more.
    #[error("closed: {0}")]
    Closed(String),
    /// Anything else the store reports.
    #[error("{0}")]
    Other(String),
}

/// One change of a batch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Change {
    /// The key has this value now.
    Put(Bytes, Bytes),
    /// The key is gone now.
    Delete(Bytes),
    /// Every key of the range is gone now. Cheap for a range of any size; each leaves a mark that
    /// reads look at until compactions dropped it, so that a few single keys are better deleted singly.
    DeleteRange(KeyRange),
}

/// The keys from `from` on, before `to`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeyRange {
    /// The first key.
    pub from: Bytes,
    /// The first key that is not in the range any more; `None` where it has no end.
    pub to: Option<Bytes>,
}

impl KeyRange {
    /// Every key.
    pub const ALL: Self = Self { from: Bytes::new(), to: None };

    /// The keys that begin with `prefix`.
    #[must_use]
    pub fn with_prefix(prefix: impl Into<Bytes>) -> Self {
        let from = prefix.into();
        // The next key of the same length or shorter: trailing 0xff have no successor of their own.
        let kept = from.iter().rposition(|&byte| byte != u8::MAX).map(|last| &from[..=last]);
        let to = kept.map(|kept| {
            let mut next = kept.to_vec();
            *next.last_mut().expect("it holds the byte that was found") += 1;
            next.into()
        });
        Self { from, to }
    }

    /// Whether `key` is in the range.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        *key >= *self.from && self.to.as_ref().is_none_or(|to| *key < **to)
    }

    /// Whether no key can be in the range.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| to <= &self.from)
    }
}

/// A walk over the keys of a range.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Scan {
    /// Which keys.
    pub range: KeyRange,
    /// From the last key to the first.
    pub reverse: bool,
    /// Stop after this many entries.
    pub entries_max: usize,
    /// Stop once keys and values have this many bytes together; one entry is always given.
    pub bytes_max: usize,
}

/// How many keys a store holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Count {
    /// The number.
    pub keys: u64,
    /// Whether it was counted or estimated.
    pub exact: bool,
}

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Durability {
    /// The death of the machine. Each acknowledgement waits for the volumes.
    Always,
    /// The death of the process at once, of the machine after a second at the latest.
    #[default]
    EverySec,
    /// The death of the process at once, of the machine when the system wrote it back.
    None,
}

/// A map from byte strings to byte strings.
pub trait KeyValue: Send + Sync {
    /// The values of `keys`, in their order, as they were at one moment.
    fn get_many(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>>;

    /// As [`KeyValue::get_many`]; `None` where the values have more than `bytes_max` bytes together. A store
    /// that can stops reading there. Default: it reads them all, and counts.
    fn get_many_within(
        &self,
        keys: &[Bytes],
        bytes_max: usize,
    ) -> Result<Option<Vec<Option<Bytes>>>> {
        let values = self.get_many(keys)?;
        let bytes = values.iter().flatten().map(Bytes::len).sum::<usize>();
        Ok((bytes <= bytes_max).then_some(values))
    }

    /// Applies all changes or none, in their order.
    ///
    /// A store keeps a reserve that [`Error::OutOfSpace`] guards: this call is refused before it is touched.
    fn apply(&self, changes: &[Change]) -> Result<()>;

    /// As [`KeyValue::apply`], for changes that leave less in the store than there was: deletions, and
    /// puts that replace a value by one that is no longer. A store with a reserve takes their room
    /// from it, so that something can be deleted where nothing can be written. Default: `apply`.
    fn apply_freeing(&self, changes: &[Change]) -> Result<()> {
        self.apply(changes)
    }

    /// Entries in the order of their keys, as they were at one moment. Fewer than the range holds where
    /// a limit of `scan` was reached: go on behind the last key.
    fn scan(&self, scan: &Scan) -> Result<Vec<(Bytes, Bytes)>>;

    /// How many keys `range` holds: counted while they are few, else estimated.
    fn count(&self, range: &KeyRange) -> Result<Count>;

    /// Whether its calls let the thread's other work go on elsewhere before they wait: such a store may
    /// be called on a thread that serves many. Default: its calls just wait.
    fn yields(&self) -> bool {
        false
    }

    /// Runs `wait`, which waits for another caller of this store. A store that [yields](Self::yields)
    /// does so here too.
    fn wait(&self, wait: &mut dyn FnMut()) {
        wait();
    }

    /// What a write has survived once [`KeyValue::apply`] returned.
    fn durability(&self) -> Durability;
}

/// The entries of a map that are in the range.
pub(crate) fn within<'m, V>(
    map: &'m BTreeMap<Bytes, V>,
    range: &KeyRange,
) -> btree_map::Range<'m, Bytes, V> {
    let to = match &range.to {
        None => Bound::Unbounded,
        Some(_) if range.is_empty() => Bound::Excluded(&range.from),
        Some(to) => Bound::Excluded(to),
    };
    map.range::<Bytes, _>((Bound::Included(&range.from), to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_the_range_of_the_keys_that_begin_with_it() {
        let range = KeyRange::with_prefix(&b"a\xff"[..]);
        assert_eq!(range.to.as_deref(), Some(&b"b"[..]));
        assert!(range.contains(b"a\xff\xff\x01") && !range.contains(b"b") && !range.contains(b"a"));
        assert_eq!(KeyRange::with_prefix(&b"\xff\xff"[..]).to, None);
        assert_eq!(KeyRange::with_prefix(&b""[..]), KeyRange::ALL);
    }
}

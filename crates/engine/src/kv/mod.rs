//! The key-value engine as protocol servers see it: one ordered map from bytes to bytes.
//!
//! Calls block the thread where the store does ([`KeyValue::yields`] says what that means for a thread that serves many
//! tasks), and a server decides how many threads to give to them. Keys and values are any bytes; keys are ordered as
//! byte strings.

pub mod conformance;
mod memory;

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;

use bytes::Bytes;

pub use memory::Memory;

/// What a call on a store ends with.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed: one kind for each way a caller reacts.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Try again later; nothing was done.
    #[error("busy: {0}")]
    Busy(String),
    /// Part of the store is unavailable: try again when it is back.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// There is no room for the write, and nothing was done: delete something or add a volume.
    #[error("out of space: {0}")]
    OutOfSpace(String),
    /// Stored bytes differ from those written.
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
    /// Sets the key's value.
    Put(Bytes, Bytes),
    /// Deletes the key.
    Delete(Bytes),
    /// Deletes every key of the range. Cheap for a range of any size; but each leaves a tombstone that reads check
    /// until compactions drop it, so delete a few keys singly.
    DeleteRange(KeyRange),
}

/// The keys from `from` on, before `to`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeyRange {
    /// The first key.
    pub from: Bytes,
    /// The end of the range, exclusive; `None` where it has no end.
    pub to: Option<Bytes>,
}

impl KeyRange {
    /// Every key.
    pub const ALL: Self = Self { from: Bytes::new(), to: None };

    /// The keys that begin with `prefix`.
    #[must_use]
    pub fn with_prefix(prefix: impl Into<Bytes>) -> Self {
        let from = prefix.into();
        // The successor of the prefix, shorter by its trailing 0xff, which have no successor.
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

/// A number of keys.
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
    /// The loss of the machine. Each acknowledgement waits for the volumes.
    Always,
    /// The end of the process at once; the loss of the machine after a second at the latest.
    #[default]
    EverySec,
    /// The end of the process at once; the loss of the machine once the system has written it back.
    None,
}

/// A map from byte strings to byte strings.
pub trait KeyValue: Send + Sync {
    /// The values of `keys`, in their order, as of one moment.
    fn get_many(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>>;

    /// As [`KeyValue::get_many`]; `None` where the values have more than `bytes_max` bytes together. A store may stop
    /// reading there. Default: reads them all, and counts.
    fn get_many_within(
        &self,
        keys: &[Bytes],
        bytes_max: usize,
    ) -> Result<Option<Vec<Option<Bytes>>>> {
        let values = self.get_many(keys)?;
        let bytes = values.iter().flatten().map(Bytes::len).sum::<usize>();
        Ok((bytes <= bytes_max).then_some(values))
    }

    /// Applies all changes in their order, or none.
    ///
    /// A store keeps a reserve of room: this call fails with [`Error::OutOfSpace`] before it would use that.
    fn apply(&self, changes: &[Change]) -> Result<()>;

    /// As [`KeyValue::apply`], for changes that shrink the store: deletions, and puts that replace a value by one that
    /// is no longer. A store with a reserve takes their room from it, so that a full store can still delete. Default:
    /// `apply`.
    fn apply_freeing(&self, changes: &[Change]) -> Result<()> {
        self.apply(changes)
    }

    /// Entries in the order of their keys, as of one moment. Fewer than the range holds where a limit of `scan` was
    /// reached: go on behind the last key.
    fn scan(&self, scan: &Scan) -> Result<Vec<(Bytes, Bytes)>>;

    /// How many keys `range` holds: counted while they are few, else estimated.
    fn count(&self, range: &KeyRange) -> Result<Count>;

    /// Whether its calls hand the thread's other tasks on before they block: such a store may be called on a thread
    /// that serves many. Default: its calls just block.
    fn yields(&self) -> bool {
        false
    }

    /// Runs `wait`, which waits for another caller of this store. A store that [yields](Self::yields) does so here too.
    fn wait(&self, wait: &mut dyn FnMut()) {
        wait();
    }

    /// What an applied write has survived once [`KeyValue::apply`] returned.
    fn durability(&self) -> Durability;
}

/// The entries of a map whose keys are in the range.
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

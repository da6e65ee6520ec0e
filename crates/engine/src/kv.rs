//! The key-value engine as front doors see it.
//!
//! Calls block the thread: the store underneath does, and a front door decides how many threads it
//! gives away. Keys and values are any bytes.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::RwLock;

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
    /// There is no room for the write: delete something or add a volume.
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
    /// The values of `keys`, in their order.
    fn get_many(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>>;

    /// Applies all changes or none, in their order.
    fn apply(&self, changes: &[Change]) -> Result<()>;

    /// Removes those of `keys` that exist, all or none, and says how many did. A key named twice
    /// counts once.
    fn delete_existing(&self, keys: &[Bytes]) -> Result<u64>;

    /// How many keys there are: counted while they are few, else estimated.
    fn count(&self) -> Result<Count>;

    /// What a write has survived once [`KeyValue::apply`] or [`KeyValue::delete_existing`] returned.
    fn durability(&self) -> Durability;
}

/// The store as a map in memory: the model the real ones are compared with. It survives nothing.
#[derive(Debug, Default)]
pub struct Memory {
    map: RwLock<BTreeMap<Bytes, Bytes>>,
}

impl KeyValue for Memory {
    fn get_many(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        let map = self.map.read();
        Ok(keys.iter().map(|key| map.get(key).cloned()).collect())
    }

    fn apply(&self, changes: &[Change]) -> Result<()> {
        let mut map = self.map.write();
        for change in changes {
            match change.clone() {
                Change::Put(key, value) => map.insert(key, value),
                Change::Delete(key) => map.remove(&key),
            };
        }
        Ok(())
    }

    fn delete_existing(&self, keys: &[Bytes]) -> Result<u64> {
        let mut map = self.map.write();
        Ok(keys.iter().filter(|key| map.remove(*key).is_some()).count() as u64)
    }

    fn count(&self) -> Result<Count> {
        Ok(Count { keys: self.map.read().len() as u64, exact: true })
    }

    fn durability(&self) -> Durability {
        Durability::None
    }
}

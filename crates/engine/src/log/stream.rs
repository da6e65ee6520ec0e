//! The stream that a record is written to.

use std::hash::{DefaultHasher, Hash, Hasher};

use policy::intent;
use policy::merge::Group;

use super::StoreId;
use super::format::Layout;

/// Selects an open file: each stream has at most one.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Stream {
    /// The volume, by its position.
    pub(super) member: usize,
    pub(super) layout: Layout,
    pub(super) group: Group,
    /// Whether it takes copies of merges, which are kept apart so that they do not delay puts.
    pub(super) copies: bool,
}

impl Stream {
    /// Its number for a pool that the store is on.
    pub(super) fn of(&self, store: StoreId) -> intent::Stream {
        let mut hasher = DefaultHasher::new();
        let Layout { partitions, partition } = self.layout;
        (store, partitions, partition, self.group, self.copies).hash(&mut hasher);
        intent::Stream(hasher.finish())
    }
}

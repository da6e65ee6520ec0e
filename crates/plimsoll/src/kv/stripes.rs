//! Locks for keys, a few for all of them: deleting a key that exists excludes writing it.

use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// As many as a word has bits, so that a set of them is a word.
const STRIPES: u64 = 64;

/// Each key belongs to one of some locks. Writers share theirs, since the store orders writes itself;
/// whoever reads and then deletes has theirs alone.
pub(super) struct Stripes {
    locks: Vec<RwLock<()>>,
    /// Drawn anew for each store: nobody can choose keys that all meet in one lock.
    hash: RandomState,
}

impl Default for Stripes {
    fn default() -> Self {
        let locks = std::iter::repeat_with(RwLock::default).take(STRIPES as usize).collect();
        Self { locks, hash: RandomState::new() }
    }
}

impl Stripes {
    /// For writing `keys`.
    pub(super) fn write<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k Bytes>,
    ) -> Vec<RwLockReadGuard<'_, ()>> {
        self.of(keys).map(RwLock::read).collect()
    }

    /// For reading `keys` and deleting them.
    pub(super) fn alone<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k Bytes>,
    ) -> Vec<RwLockWriteGuard<'_, ()>> {
        self.of(keys).map(RwLock::write).collect()
    }

    /// The locks of `keys`, each once and in one order for all, so that nobody waits in a circle.
    fn of<'k>(
        &self,
        keys: impl IntoIterator<Item = &'k Bytes>,
    ) -> impl Iterator<Item = &RwLock<()>> {
        let set =
            keys.into_iter().fold(0, |set, key| set | 1 << (self.hash.hash_one(key) % STRIPES));
        (0..STRIPES).filter(move |at| set & (1_u64 << at) != 0).map(|at| &self.locks[at as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_twice_is_locked_once() {
        let stripes = Stripes::default();
        let key = Bytes::from_static(b"k");
        assert_eq!(stripes.alone([&key, &key]).len(), 1);
    }

    #[test]
    fn writers_share_and_deleters_are_alone() {
        let stripes = Stripes::default();
        let key = Bytes::from_static(b"k");
        let writing = stripes.write([&key]);
        assert_eq!(stripes.write([&key]).len(), 1);
        assert!(stripes.of([&key]).all(|lock| lock.try_write().is_none()));
        drop(writing);
        let _deleting = stripes.alone([&key]);
        assert!(stripes.of([&key]).all(|lock| lock.try_read().is_none()));
    }
}

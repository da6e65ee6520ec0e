//! Which entry of a full cache is evicted.
//!
//! A policy knows entries by their slot in the cache's memory, and says which one goes next. It neither holds bytes nor
//! counts them against a limit: what it keeps in proportion to the cache is in proportion to what the cache holds. One policy per file:
//!
//! | policy | a hit | which entries stay | source |
//! |---|---|---|---|
//! | [`Lru`] | moves the entry | the most recently used | reference |
//! | [`Sieve`] | sets a bit | entries used since the hand passed | Zhang et al., NSDI'24 |
//! | [`S3Fifo`] | counts to three | entries used again while on probation | Yang et al., SOSP'23 |
//! | [`Clock2QPlus`] | sets a bit, unless it follows the insertion | entries used again later | VLDB 2026 |
//! | [`AdaptiveReplacement`] | moves the entry | used last, and used again, balanced by returns | FAST'03 |
//! | [`Lrfu`] | adds one to a heat that fades | the hottest for their bytes | Lee et al., IEEE ToC 2001 |
//! | [`Auto`] | as the best of three on a sample | as that one says | Waldspurger et al., ATC'17 |
//!
//! A scan flushes an LRU. In the others, entries used once leave early.

mod arc;
mod auto;
mod clock2q_plus;
mod ghosts;
mod list;
mod lrfu;
mod lru;
mod s3_fifo;
mod sieve;

use std::collections::HashMap;

pub use arc::AdaptiveReplacement;
pub use auto::Auto;
pub use clock2q_plus::Clock2QPlus;
pub use ghosts::Ghosts;
pub use lrfu::Lrfu;
pub use lru::Lru;
pub use s3_fifo::S3Fifo;
pub use sieve::Sieve;

/// Entries by the hashes of their keys. A hit looks here, and a host chooses what is hashed: so the map's own hash is a fast
/// one with a seed.
type ByKey<T> = HashMap<u64, T, foldhash::fast::RandomState>;

/// The place of an entry. Slots are small numbers and are reused.
pub type Slot = u32;

/// Chooses entries to evict. The cache reports every event of its entries.
pub trait Eviction: Send {
    /// A new entry of `bytes` bytes is in `slot`, which was empty. `key` is a stable hash of its key: a policy may
    /// remember it after the entry has gone.
    fn insert(&mut self, slot: Slot, key: u64, bytes: u32);

    /// The entry was used.
    fn hit(&mut self, slot: Slot);

    /// An access found no entry of this key. Says whether it was evicted lately, as [`remembers`](Self::remembers). A caller
    /// that does not install each miss should tell all of them.
    fn missed(&mut self, key: u64) -> bool {
        self.remembers(key)
    }

    /// The entry leaves for another reason than eviction.
    fn remove(&mut self, slot: Slot);

    /// Removes and returns the entry that is worth least; `None` if there is none.
    fn evict(&mut self) -> Option<Slot>;

    /// Evicts this entry, although another may be worth less, and remembers it as [`evict`](Self::evict) does: for caches
    /// some of whose entries must stay for now. Take the first that may go of [`coldest`](Self::coldest).
    fn evict_slot(&mut self, slot: Slot) {
        self.remove(slot);
    }

    /// The victim that [`evict`](Self::evict) just returned stays after all, now of `bytes` bytes, as an entry that was used
    /// again: for caches that evict a part of an entry, and those whose entries may be in use. Others go before it does.
    fn keep(&mut self, slot: Slot, key: u64, bytes: u32) {
        self.insert(slot, key, bytes);
    }

    /// The entry has `bytes` bytes from now on. Its rank among the others stays. Does nothing where the policy does not
    /// count bytes.
    fn resize(&mut self, slot: Slot, bytes: u32) {
        let _ = (slot, bytes);
    }

    /// All entries, about in the order in which they would be evicted if none were used again: which to write back
    /// first, and the order to insert them in after a restart. It costs no more than the entries that are taken, except
    /// with [`Lrfu`], which sorts all.
    fn coldest(&self) -> Box<dyn Iterator<Item = Slot> + '_>;

    /// Whether the entry of this key was evicted lately: in a somewhat larger cache it would still be there. Always
    /// `false` if the policy remembers none.
    fn remembers(&self, _key: u64) -> bool {
        false
    }

    /// The policy that chooses now, of those that choose among others.
    fn acts(&self) -> Option<Kind> {
        None
    }

    /// The approximate share of all accesses that go to one of the least valuable entries; `None` if the policy does
    /// not know.
    fn least_share(&self) -> Option<f32> {
        None
    }
}

/// The policies by name. The default is what a cache tier has.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Kind {
    /// [`Lru`].
    Lru,
    /// [`Sieve`].
    Sieve,
    /// [`S3Fifo`].
    S3Fifo,
    /// [`Lrfu`].
    Lrfu,
    /// [`Clock2QPlus`].
    Clock2QPlus,
    /// [`AdaptiveReplacement`].
    Arc,
    /// [`Auto`].
    #[default]
    Auto,
}

impl Kind {
    /// Every policy.
    pub const ALL: [Self; 7] = [
        Self::Lru,
        Self::Sieve,
        Self::S3Fifo,
        Self::Lrfu,
        Self::Clock2QPlus,
        Self::Arc,
        Self::Auto,
    ];

    /// The name in settings and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Sieve => "sieve",
            Self::S3Fifo => "s3-fifo",
            Self::Lrfu => "lrfu",
            Self::Clock2QPlus => "clock2q+",
            Self::Arc => "arc",
            Self::Auto => "auto",
        }
    }

    /// A policy with no entries.
    #[must_use]
    pub fn policy(self) -> Box<dyn Eviction> {
        match self {
            Self::Lru => Box::new(Lru::default()),
            Self::Sieve => Box::new(Sieve::default()),
            Self::S3Fifo => Box::new(S3Fifo::default()),
            Self::Lrfu => Box::new(Lrfu::default()),
            Self::Clock2QPlus => Box::new(Clock2QPlus::default()),
            Self::Arc => Box::new(AdaptiveReplacement::default()),
            Self::Auto => Box::new(Auto::default()),
        }
    }
}

#[cfg(test)]
mod tests;

//! Which entry of a full cache is evicted.
//!
//! A policy knows entries by their slot in the cache's memory, and says which one goes next. It neither holds bytes nor
//! counts them against a limit. One policy per file:
//!
//! | policy | a hit | which entries stay | source |
//! |---|---|---|---|
//! | [`Lru`] | moves the entry | the most recently used | reference |
//! | [`Sieve`] | sets a bit | entries used since the hand passed | Zhang et al., NSDI'24 |
//! | [`S3Fifo`] | counts to three | entries used again while on probation | Yang et al., SOSP'23 |
//! | [`Lrfu`] | adds one to a heat that fades | the hottest for their bytes | Lee et al., IEEE ToC 2001 |
//!
//! A scan flushes an LRU. In the others, entries used once leave early.

mod ghosts;
mod list;
mod lrfu;
mod lru;
mod s3_fifo;
mod sieve;

pub use ghosts::Ghosts;
pub use lrfu::Lrfu;
pub use lru::Lru;
pub use s3_fifo::S3Fifo;
pub use sieve::Sieve;

/// The place of an entry. Slots are small numbers and are reused.
pub type Slot = u32;

/// Chooses entries to evict. The cache reports every event of its entries.
pub trait Eviction: Send {
    /// A new entry of `bytes` bytes is in `slot`, which was empty. `key` is a stable hash of its key: a policy may
    /// remember it after the entry has gone.
    fn insert(&mut self, slot: Slot, key: u64, bytes: u32);

    /// The entry was used.
    fn hit(&mut self, slot: Slot);

    /// The entry leaves for another reason than eviction.
    fn remove(&mut self, slot: Slot);

    /// Removes and returns the entry that is worth least; `None` if there is none.
    fn evict(&mut self) -> Option<Slot>;

    /// The approximate share of all accesses that go to one of the least valuable entries; `None` if the policy does
    /// not know.
    fn least_share(&self) -> Option<f32> {
        None
    }
}

/// The policies by name.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Kind {
    /// [`Lru`].
    Lru,
    /// [`Sieve`].
    Sieve,
    /// [`S3Fifo`].
    S3Fifo,
    /// [`Lrfu`].
    Lrfu,
}

impl Kind {
    /// Every policy.
    pub const ALL: [Self; 4] = [Self::Lru, Self::Sieve, Self::S3Fifo, Self::Lrfu];

    /// The name in settings and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Sieve => "sieve",
            Self::S3Fifo => "s3-fifo",
            Self::Lrfu => "lrfu",
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
        }
    }
}

#[cfg(test)]
mod tests;

//! Which entry of a full cache goes.
//!
//! A policy knows entries by their slot in the memory of whoever keeps them, and says which one goes
//! next; it neither holds bytes nor counts them against a limit. One policy per file:
//!
//! | policy | a hit | who stays | source |
//! |---|---|---|---|
//! | [`Lru`] | moves the entry | whoever was asked for last | reference |
//! | [`Sieve`] | sets a bit | whoever was asked for since the hand passed | Zhang et al., NSDI'24 |
//! | [`S3Fifo`] | counts to three | whoever was asked for again while on probation | Yang et al., SOSP'23 |
//! | [`Lrfu`] | adds one to a heat that fades | whoever is hot for its bytes | Lee et al., IEEE ToC 2001 |
//!
//! A scan drives everything out of an LRU. In the others what is asked for once leaves early.

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

/// Where an entry is kept. Slots are small numbers that are used again.
pub type Slot = u32;

/// Chooses who goes. Whoever keeps the entries tells of everything that happens to them.
pub trait Eviction: Send {
    /// A new entry of `bytes` bytes is in `slot`, which held none. `key` is a hash of its key, the same
    /// each time: a policy may remember it after the entry has gone.
    fn insert(&mut self, slot: Slot, key: u64, bytes: u32);

    /// The entry was asked for.
    fn hit(&mut self, slot: Slot);

    /// The entry goes for a reason of its own.
    fn remove(&mut self, slot: Slot);

    /// Takes out the entry that is worth least; `None` if there is none.
    fn evict(&mut self) -> Option<Slot>;

    /// How many of all accesses go to one of the entries that are worth least, about; `None` if the policy
    /// does not know.
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

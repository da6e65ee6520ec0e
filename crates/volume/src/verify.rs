//! Objects in place that only their store can verify.
//!
//! A pool has checksums of objects that never change again, and of logs. It has none of objects that are written in place:
//! their store has. So a store that is open registers a [`Verify`] with its pool, and a scrub of the pool calls it for each
//! object of that store.

use std::ops::Range;

use crate::{Io, Name, Pending};

/// The bytes of a block: what a store has a checksum of.
pub const BLOCK: u64 = 4096;

/// A store whose objects are written in place.
pub trait Verify: Send + Sync {
    /// Reads every copy of an object back, by [`Object::read_again`](crate::Object::read_again) with the store's checksums: so
    /// copies with wrong bytes are repaired from others. Users go first. An object that the store does not know, or of
    /// which it has no checksums, has nothing to verify.
    ///
    /// # Errors
    /// `Gone`: it was removed. Any other: it was not read to its end, so try again.
    fn verify<'a>(&'a self, object: &'a Name) -> Pending<'a, Verified>;

    /// What blocks of an object should be, by their numbers: one answer for each. They are those of the last changes that
    /// were complete before this call; of one under way it may be either. The store reads checksums
    /// that it has not in memory, with the purpose `fetch`, unless another call reads or writes them. Without `fetch` this does not wait.
    ///
    /// # Errors
    /// Those of the volume that has the checksums: no block is known.
    fn expected<'a>(
        &'a self,
        object: &'a Name,
        blocks: Range<u64>,
        fetch: Option<Io>,
    ) -> Pending<'a, Vec<Expected>>;
}

/// What a block should be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expected {
    /// The store has no checksums of such blocks.
    Unchecked,
    /// It may have one, which is not in memory.
    Unknown,
    /// It has this one.
    Sum(BlockSum),
}

/// The checksum of a block: its CRC-32C, but never 0 or 1, which stores use for other things.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BlockSum(u32);

impl BlockSum {
    /// Of these bytes.
    #[must_use]
    pub fn of(block: &[u8]) -> Self {
        Self::from_crc(crc32c::crc32c(block))
    }

    /// Of bytes with this CRC-32C.
    #[must_use]
    pub const fn from_crc(crc: u32) -> Self {
        Self(if crc <= 1 { crc + 2 } else { crc })
    }

    /// Of a block of zeros.
    #[must_use]
    pub fn of_zeros() -> Self {
        Self::of(&[0; BLOCK as usize])
    }

    /// The number, which is at least 2.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// What a store found in one of its objects.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Verified {
    /// What no copy has as it was written, in words for the operator.
    pub lost: Vec<String>,
}

//! What a block is since it was written, and where the log has it.

use volume::BlockSum;

/// The new bytes of a block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Value {
    /// They are in the log.
    Stored(Place),
    /// Zeros.
    Zeros,
}

impl Value {
    /// The checksum of the block.
    pub(super) fn sum(self) -> BlockSum {
        match self {
            Self::Stored(place) => BlockSum::from_crc(place.checksum),
            Self::Zeros => BlockSum::of_zeros(),
        }
    }
}

/// Where the log has a block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Place {
    /// The file.
    pub(super) file: u64,
    /// The offset in the file, in bytes.
    pub(super) at: u64,
    /// The CRC-32C of the block.
    pub(super) checksum: u32,
}

//! How a device is cut: into blocks, regions of blocks, and extents of regions.

use std::ops::Range;

/// What has a checksum, in bytes.
pub(super) const BLOCK: u64 = 4096;
/// What has a mark and a page of checksums, in bytes: 4 MiB.
pub(super) const REGION: u64 = BLOCK * BLOCKS as u64;
/// The number of blocks of a region.
pub(super) const BLOCKS: usize = 1024;
/// What is one object, in bytes: 64 MiB. More would make a discard give back less at once; less would make more
/// objects, each with an entry in the pool's manifest.
pub(super) const EXTENT: u64 = REGION * REGIONS;
/// The number of regions of an extent.
pub(super) const REGIONS: u64 = 16;
/// The room for a page of checksums, in bytes.
pub(super) const SLOT: u64 = 2 * BLOCK;
/// The length of an extent's object, in bytes: its bytes, then a slot for each region.
pub(super) const OBJECT: u64 = EXTENT + REGIONS * SLOT;

/// The largest device, in bytes: 1 PiB.
pub(super) const SIZE_MAX: u64 = 1 << 50;

/// The part of a range in one extent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Piece {
    /// The extent's number on the device.
    pub(super) extent: u64,
    /// The bytes inside the extent.
    pub(super) range: Range<u64>,
    /// Where they begin in the range that was cut, in bytes.
    pub(super) at: usize,
}

/// Cuts a range of a device at the borders of extents.
pub(super) fn pieces(range: &Range<u64>) -> impl Iterator<Item = Piece> + use<> {
    let Range { start, end } = *range;
    (start / EXTENT..end.div_ceil(EXTENT)).map(move |extent| {
        let base = extent * EXTENT;
        let (from, to) = (start.max(base), end.min(base + EXTENT));
        Piece { extent, range: from - base..to - base, at: (from - start) as usize }
    })
}

/// The number of extents of a device of this size.
pub(super) const fn extents(size: u64) -> u64 {
    size.div_ceil(EXTENT)
}

/// The number of regions of a device of this size.
pub(super) const fn regions(size: u64) -> u64 {
    size.div_ceil(REGION)
}

/// The regions of an extent that a range inside it touches, by their numbers in the extent.
pub(super) const fn regions_of(range: &Range<u64>) -> Range<u64> {
    range.start / REGION..range.end.div_ceil(REGION)
}

/// The range extended to whole blocks.
pub(super) fn outward(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK * BLOCK..range.end.next_multiple_of(BLOCK)
}

/// The whole blocks inside the range.
pub(super) fn inward(range: &Range<u64>) -> Range<u64> {
    let start = range.start.next_multiple_of(BLOCK);
    start..(range.end / BLOCK * BLOCK).max(start)
}

/// Where the slot of a region is in its extent's object.
pub(super) const fn slot(region: u64) -> u64 {
    EXTENT + region % REGIONS * SLOT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_at_extents() {
        let cut: Vec<_> = pieces(&(EXTENT - 10..2 * EXTENT + 5)).collect();
        let piece = |extent, range, at| Piece { extent, range, at };
        let expected = [
            piece(0, EXTENT - 10..EXTENT, 0),
            piece(1, 0..EXTENT, 10),
            piece(2, 0..5, 10 + EXTENT as usize),
        ];
        assert_eq!(cut, expected);
        assert_eq!(pieces(&(7..7)).count(), 1, "an empty range has one empty piece");
    }

    #[test]
    fn a_range_extends_to_blocks_and_shrinks_to_blocks() {
        assert_eq!((outward(&(1..4097)), inward(&(1..4097))), (0..8192, 4096..4096));
        assert_eq!((outward(&(4096..8192)), inward(&(4096..8192))), (4096..8192, 4096..8192));
        assert_eq!(inward(&(1..9000)), 4096..8192);
    }
}

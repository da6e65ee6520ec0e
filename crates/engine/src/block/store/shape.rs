//! How a device is cut: into blocks, regions of blocks, and extents of regions.

use std::ops::Range;

/// What has a checksum, in bytes.
pub(super) const BLOCK: u64 = 4096;
/// What has a mark and a page of checksums, in bytes: 4 MiB.
pub(super) const REGION: u64 = BLOCK * BLOCKS as u64;
/// The number of blocks of a region.
pub(super) const BLOCKS: usize = 1024;
/// The room for a page of checksums, in bytes.
pub(super) const SLOT: u64 = 2 * BLOCK;

/// The largest device, in bytes: 1 PiB.
pub(super) const SIZE_MAX: u64 = 1 << 50;

/// The largest extent, in regions.
pub(super) const REGIONS_MAX: u64 = 1024;

/// The size of a device's extents, in regions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Shape {
    /// The number of regions of an extent.
    pub(super) regions: u64,
}

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

impl Shape {
    /// The size of an extent in bytes.
    pub(super) const fn extent(self) -> u64 {
        self.regions * REGION
    }

    /// The length of an extent's object, in bytes: its blocks, then a slot for each region.
    pub(super) const fn object(self) -> u64 {
        self.extent() + self.regions * SLOT
    }

    /// Where the slot of a region of an extent is in the object.
    pub(super) const fn slot(self, region: u64) -> u64 {
        self.extent() + region * SLOT
    }

    /// Cuts a range of a device at the borders of extents.
    pub(super) fn pieces(self, range: &Range<u64>) -> impl Iterator<Item = Piece> + use<> {
        let range = range.clone();
        self.numbers(&range).map(move |number| self.piece(&range, number))
    }

    /// The extents that a range touches.
    pub(super) const fn numbers(self, range: &Range<u64>) -> Range<u64> {
        range.start / self.extent()..range.end.div_ceil(self.extent())
    }

    /// The part of a range in one of the extents that it touches.
    pub(super) fn piece(self, range: &Range<u64>, number: u64) -> Piece {
        let base = number * self.extent();
        let (from, to) = (range.start.max(base), range.end.min(base + self.extent()));
        Piece { extent: number, range: from - base..to - base, at: (from - range.start) as usize }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_at_extents() {
        let shape = Shape { regions: 2 };
        let extent = shape.extent();
        let cut: Vec<_> = shape.pieces(&(extent - 10..2 * extent + 5)).collect();
        let piece = |extent, range, at| Piece { extent, range, at };
        let expected = [
            piece(0, extent - 10..extent, 0),
            piece(1, 0..extent, 10),
            piece(2, 0..5, 10 + extent as usize),
        ];
        assert_eq!(cut, expected);
    }

    #[test]
    fn a_range_extends_to_blocks_and_shrinks_to_blocks() {
        assert_eq!((outward(&(1..4097)), inward(&(1..4097))), (0..8192, 4096..4096));
        assert_eq!((outward(&(4096..8192)), inward(&(4096..8192))), (4096..8192, 4096..8192));
        assert_eq!(inward(&(1..9000)), 4096..8192);
    }
}

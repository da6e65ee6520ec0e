//! Whole blocks of an extent that a call reads or changes, with the pages of their checksums.

use std::ops::Range;
use std::sync::Arc;

use super::super::extents::Extent;
use super::super::pages::Page;
use super::super::shape::{BLOCK, REGION, regions_of};
use super::super::sums::{Known, Sums, sum};

/// Blocks of an extent.
pub(super) struct Blocks<'a> {
    pub(super) extent: &'a Arc<Extent>,
    /// Their bytes, by offset in the extent.
    pub(super) range: Range<u64>,
    /// One for each region that the range touches, loaded or not.
    pages: Vec<Arc<Page>>,
}

/// Those in one region.
pub(super) struct InRegion<'a> {
    /// The region's number in the extent.
    pub(super) region: u64,
    pub(super) page: &'a Arc<Page>,
    /// By number in the region.
    pub(super) blocks: Range<usize>,
    /// Their bytes, by offset in the bytes of all blocks.
    pub(super) bytes: Range<usize>,
}

impl<'a> Blocks<'a> {
    /// `page` gives the page of a region by its number in the extent.
    pub(super) fn new(
        extent: &'a Arc<Extent>,
        range: Range<u64>,
        page: impl FnMut(u64) -> Arc<Page>,
    ) -> Self {
        let pages = regions_of(&range).map(page).collect();
        Self { extent, range, pages }
    }

    /// The one at an offset of the extent.
    pub(super) fn one(&self, offset: u64) -> Self {
        let page = &self.pages[(offset / REGION - self.range.start / REGION) as usize];
        let range = offset..offset + BLOCK;
        Self { extent: self.extent, range, pages: vec![Arc::clone(page)] }
    }

    /// The length of their bytes.
    pub(super) const fn len(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    pub(super) fn by_region(&self) -> impl Iterator<Item = InRegion<'_>> {
        let Range { start, end } = self.range;
        self.pages.iter().zip(regions_of(&self.range)).map(move |(page, region)| {
            let base = region * REGION;
            let (from, to) = (start.max(base), end.min(base + REGION));
            let blocks = ((from - base) / BLOCK) as usize..((to - base) / BLOCK) as usize;
            let bytes = (from - start) as usize..(to - start) as usize;
            InRegion { region, page, blocks, bytes }
        })
    }

    /// Whether their checksums are loaded and say that all of them are zeros.
    pub(super) fn are_zeros(&self) -> bool {
        self.by_region().all(|InRegion { page, mut blocks, .. }| {
            let zeros = |sums: &Sums| blocks.all(|block| sums.get(block) == Known::Zeros);
            page.look(zeros).unwrap_or(false)
        })
    }

    /// The bytes of the blocks that need new room when they are written. A block whose checksum is not loaded may need it.
    pub(super) fn new_bytes(&self) -> u64 {
        let of = |InRegion { page, blocks, .. }: InRegion<'_>| {
            let is_new = |sums: &Sums, block| sums.get(block) == Known::Zeros;
            let new = page.look(|sums| blocks.clone().filter(|&one| is_new(sums, one)).count());
            new.unwrap_or(blocks.len()) as u64 * BLOCK
        };
        self.by_region().map(of).sum()
    }

    /// Whether bytes read from a copy are those that were written. False, too, if a write under way changes them, and if a
    /// block has no checksum in memory. Fills blocks of zeros with zeros: a copy may have any bytes there.
    pub(super) fn verify(&self, read: &mut [u8]) -> bool {
        let mut is_same = true;
        for InRegion { page, blocks, bytes, .. } in self.by_region() {
            let read = read[bytes].chunks_exact_mut(BLOCK as usize);
            let verified = page.look(|sums| {
                blocks.zip(read).all(|(block, bytes)| match sums.get(block) {
                    Known::Zeros => {
                        bytes.fill(0);
                        true
                    }
                    Known::Unverified => false,
                    wanted @ Known::Sum(_) => sum(bytes) == wanted,
                })
            });
            is_same &= verified.unwrap_or(false);
        }
        is_same
    }
}

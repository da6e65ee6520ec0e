//! What a crash or a failed write left in doubt of a region is settled before the region is used: all copies get the same
//! bytes there.

use std::ops::Range;

use policy::purpose::{Io, Origin, Step};

use super::super::super::Result;
use super::super::extents::Extent;
use super::super::shape::{BLOCK, BLOCKS, REGION, SLOT, inward, regions_of};
use super::super::sums::{Known, Sums};
use super::Device;

/// Calls of users wait for it.
const SETTLE: Io = Io::new(Origin::Open, Step::Data);

impl Device {
    /// Gives all copies the same bytes where regions are in doubt, and forgets the checksums of these.
    pub(super) async fn settle(&self, extent: &Extent, range: &Range<u64>) -> Result<()> {
        for region in regions_of(range) {
            self.settle_region(extent, region).await?;
        }
        Ok(())
    }

    /// The same for one region of an extent.
    pub(super) async fn settle_region(&self, extent: &Extent, region: u64) -> Result<()> {
        let number = extent.number * self.shape.regions + region;
        let Some(lock) = self.regions.doubt(number) else { return Ok(()) };
        let _alone = lock.lock().await;
        while let Some(doubt) = self.regions.what_is_in_doubt(number) {
            let _place = self.settling.acquire().await.ok();
            match doubt.whole {
                true => self.settle_whole(extent, region).await?,
                false => self.settle_blocks(extent, region, &doubt.blocks).await?,
            }
            self.shared.counts.regions_aligned.add(1);
            self.regions.settled(number, &doubt);
        }
        Ok(())
    }

    /// After a crash: of no block it is known whether its checksum was written.
    async fn settle_whole(&self, extent: &Extent, region: u64) -> Result<()> {
        let number = extent.number * self.shape.regions + region;
        let range = region * REGION..(region + 1) * REGION;
        self.align(extent, &range).await?;
        let slot = self.shape.slot(region);
        self.align(extent, &(slot..slot + SLOT)).await?;
        let object = self.object(extent).await?;
        let found = object.extents(range.start, REGION).await.map_err(|e| self.failed(e))?;
        // Holes are zeros, unless a write of this process has begun there.
        let is_fresh = self.regions.idle(number) == Some(0);
        let mut sums = Sums::all(Known::Unverified);
        for hole in found.iter().filter(|part| part.is_hole && is_fresh) {
            let blocks = inward(&hole.range);
            (blocks.start / BLOCK..blocks.end / BLOCK)
                .for_each(|block| sums.set(block as usize % BLOCKS, Known::Zeros));
        }
        self.shared.pages.get((extent.incarnation, region)).replace(sums);
        Ok(())
    }

    /// After writes of these blocks that failed: those of all others are known still. One that rots on a copy would count
    /// as written, if that of the whole region were forgotten.
    async fn settle_blocks(
        &self,
        extent: &Extent,
        region: u64,
        blocks: &[Range<usize>],
    ) -> Result<()> {
        let page = self.shared.pages.get((extent.incarnation, region));
        self.load_page(extent, &page, region, SETTLE).await?;
        for blocks in blocks {
            let at = |block: usize| region * REGION + block as u64 * BLOCK;
            self.align(extent, &(at(blocks.start)..at(blocks.end))).await?;
            // The page was not loaded when the write failed, or a cleaner looked meanwhile.
            page.doubt(blocks.clone());
        }
        Ok(())
    }

    async fn align(&self, extent: &Extent, range: &Range<u64>) -> Result<()> {
        let aligned =
            self.object(extent).await?.align(range.start, range.end - range.start, SETTLE);
        aligned.await.map_err(|e| self.failed(e))
    }
}

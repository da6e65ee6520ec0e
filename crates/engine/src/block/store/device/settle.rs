//! Regions that a crash or a failed write left in doubt are settled before their first use: all copies get the same bytes.

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
    /// Gives all copies of regions that a crash left in doubt the same bytes, and forgets their checksums.
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
        if self.regions.doubt(number).is_none() {
            return Ok(());
        }
        let _place = self.settling.acquire().await.ok();
        let object = self.object(extent).await?;
        let range = region * REGION..(region + 1) * REGION;
        let settled = object.align(range.start, REGION, SETTLE).await;
        settled.map_err(|e| self.failed(e))?;
        let settled = object.align(self.shape.slot(region), SLOT, SETTLE).await;
        settled.map_err(|e| self.failed(e))?;
        self.shared.counts.regions_aligned.add(1);
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
        self.regions.settled(number);
        Ok(())
    }
}

//! What the blocks of an extent should be, for the pool below: it asks before it takes them into parity.

use std::ops::Range;

use volume::{BlockSum, Expected, Io};

use super::super::extents::Extent;
use super::super::shape::{BLOCK, BLOCKS, REGION, regions_of};
use super::super::sums::Known;
use super::Device;

impl Device {
    /// The answers for blocks of an extent's object. See [`Verify::expected`](volume::Verify::expected).
    pub(in crate::block::store) async fn expected(
        &self,
        number: u64,
        blocks: Range<u64>,
        fetch: Option<Io>,
    ) -> Vec<Expected> {
        let mut all: Vec<_> = blocks.clone().map(|_| Expected::Unchecked).collect();
        let (start, end) = (blocks.start * BLOCK, (blocks.end * BLOCK).min(self.shape.extent()));
        if start >= end {
            return all;
        }
        let data = &mut all[..((end - start) / BLOCK) as usize];
        data.fill(Expected::Unknown);
        // One that is removed has nothing to lose.
        let Ok(Some(extent)) = self.extents.get(number) else { return all };
        for region in regions_of(&(start..end)) {
            let base = region * REGION;
            let (from, to) = (start.max(base), end.min(base + REGION));
            let at = ((from - start) / BLOCK) as usize;
            let some = ((from - base) / BLOCK) as usize..((to - base) / BLOCK) as usize;
            self.expected_in(&extent, region, some.clone(), fetch, &mut data[at..at + some.len()])
                .await;
        }
        all
    }

    async fn expected_in(
        &self,
        extent: &Extent,
        region: u64,
        blocks: Range<usize>,
        fetch: Option<Io>,
        into: &mut [Expected],
    ) {
        debug_assert!(blocks.end <= BLOCKS && blocks.len() == into.len(), "blocks of one region");
        let key = (extent.incarnation, region);
        let page = match (self.shared.pages.find(key), fetch) {
            (Some(page), _) => page,
            (None, Some(_)) => self.shared.pages.get(key),
            (None, None) => return,
        };
        if let Some(io) = fetch.filter(|_| !page.is_loaded()) {
            // Who has the lock may wait for room in the pool, which waits for this answer.
            let Some(_alone) = page.io.try_lock() else { return };
            if let Err(e) = self.load_locked(extent, &page, region, io).await {
                tracing::debug!("a row changes without the checksums of its blocks: {e}");
            }
        }
        // After a crash, or a write that failed, they may be of other bytes.
        if self.regions.doubt(extent.number * self.shape.regions + region).is_some() {
            return;
        }
        page.look(|sums| {
            for (block, into) in blocks.zip(into) {
                *into = match sums.get(block) {
                    Known::Zeros => Expected::Sum(BlockSum::of_zeros()),
                    Known::Unverified => Expected::Unknown,
                    Known::Sum(sum) => Expected::Sum(sum),
                };
            }
        });
    }
}

//! A change of blocks under way: between the mark of its regions and its checksums.

use super::super::super::Result;
use super::super::regions::Writing;
use super::super::shape::regions_of;
use super::super::sums::Sums;
use super::Device;
use super::blocks::{Blocks, InRegion};

/// A change whose regions have their marks on the volumes. Until it is dropped, cleaning leaves the regions alone. If it is
/// dropped before [`Change::made`], its blocks have no checksums, and their copies may differ.
pub(super) struct Change<'a> {
    device: &'a Device,
    blocks: &'a Blocks<'a>,
    _writing: Writing<'a>,
    is_made: bool,
}

impl Device {
    /// Begins a change of blocks that the caller has claimed. Their regions have durable marks on return.
    ///
    /// # Errors
    /// Those of the volume: nothing was changed.
    pub(super) async fn begin_change<'a>(&'a self, blocks: &'a Blocks<'a>) -> Result<Change<'a>> {
        let touched = regions_of(&blocks.range);
        let base = blocks.extent.number * self.shape.regions;
        let numbers = base + touched.start..base + touched.end;
        let writing = self.regions.begin(numbers.clone(), self.shared.clock.now());
        for region in numbers {
            let marked = self.marks.mark(region, &self.shared.counts).await;
            marked.map_err(|e| self.failed(e))?;
        }
        Ok(Change { device: self, blocks, _writing: writing, is_made: false })
    }
}

impl Change<'_> {
    /// The change took effect on all copies. `set` sets the checksums of the blocks in a region.
    pub(super) fn made(&mut self, mut set: impl FnMut(&mut Sums, &InRegion<'_>)) {
        for part in self.blocks.by_region() {
            part.page.change(|sums| set(sums, &part));
        }
        let Blocks { extent, range, .. } = self.blocks;
        let base = extent.number * self.device.shape.extent();
        let changed = base + range.start..base + range.end;
        self.device.shared.damaged.mended(self.device.id, changed);
        self.is_made = true;
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if self.is_made {
            return;
        }
        let base = self.blocks.extent.number * self.device.shape.regions;
        for InRegion { region, page, blocks, .. } in self.blocks.by_region() {
            page.doubt(blocks.clone());
            // A copy on a volume that hangs may change later still.
            self.device.regions.set_doubt(base + region, blocks, self.device.shared.clock.now());
        }
    }
}

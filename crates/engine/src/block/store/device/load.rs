//! The checksums of blocks, loaded from the slots of their regions.

use std::ops::Range;
use std::sync::Arc;

use policy::purpose::Io;
use volume::{Check, IoBufMut};

use super::super::super::Result;
use super::super::extents::Extent;
use super::super::pages::Page;
use super::super::shape::{BLOCK, Piece, REGION, SLOT};
use super::super::sums::{Known, Sums};
use super::blocks::{Blocks, InRegion};
use super::{CHANGE, Device, READ};

impl Device {
    /// Loads the checksums of a range, as many as fit.
    pub(super) async fn prefetch(&self, range: Range<u64>) -> Result<()> {
        self.begin(&range)?;
        let most = self.shared.options.checksum_bytes / 4 * (BLOCK / 4);
        let range = range.start..range.end.min(range.start.saturating_add(most));
        for Piece { extent, range, .. } in self.present(&range) {
            if let Some(extent) = self.extent(extent).await? {
                match self.prefetch_of(&extent, range).await {
                    // It was removed meanwhile: its bytes are zeros, which have no checksums.
                    Err(_) if extent.is_gone() => {}
                    fetched => fetched?,
                }
            }
        }
        Ok(())
    }

    async fn prefetch_of(&self, extent: &Arc<Extent>, range: Range<u64>) -> Result<()> {
        self.settle(extent, &range).await?;
        let blocks = self.blocks(extent, range).await;
        self.load(&blocks).await
    }

    /// Blocks of an extent, whose checksums may not be loaded yet.
    pub(super) async fn blocks<'a>(
        &self,
        extent: &'a Arc<Extent>,
        range: Range<u64>,
    ) -> Blocks<'a> {
        if self.shared.pages.is_crowded() {
            self.write_some_pages(CHANGE).await;
        }
        Blocks::new(extent, range, |region| self.shared.pages.get((extent.incarnation, region)))
    }

    /// Loads the checksums of blocks.
    pub(super) async fn load(&self, blocks: &Blocks<'_>) -> Result<()> {
        for InRegion { region, page, .. } in blocks.by_region() {
            self.load_page(blocks.extent, page, region, READ).await?;
        }
        Ok(())
    }

    pub(super) async fn load_page(
        &self,
        extent: &Extent,
        page: &Page,
        region: u64,
        io: Io,
    ) -> Result<()> {
        if page.is_loaded() {
            return Ok(());
        }
        let _alone = page.io.lock().await;
        self.load_locked(extent, page, region, io).await
    }

    /// The same while the caller has locked the page.
    pub(super) async fn load_locked(
        &self,
        extent: &Extent,
        page: &Page,
        region: u64,
        io: Io,
    ) -> Result<()> {
        if page.is_loaded() {
            return Ok(());
        }
        let number = extent.number * self.shape.regions + region;
        let object = self.object(extent).await?;
        self.shared.counts.checksum_fetches.add(1);
        let read =
            object.read_at(self.shape.slot(region), IoBufMut::zeroed(SLOT as usize), io).await;
        let read = match read {
            Err(error) if !error.kind().is_damage() => return Err(self.failed(error)),
            read => read.unwrap_or_else(|_| IoBufMut::zeroed(SLOT as usize)),
        };
        if let Some(sums) = Sums::decode(&read, self.id, number) {
            page.load(sums);
            return Ok(());
        }
        let device = self.id;
        let check: Check =
            Arc::new(move |page: &[u8]| Sums::decode(page, device, number).is_some());
        let again = object.read_again(self.shape.slot(region), read, io, check).await;
        match again.map(|page| Sums::decode(&page, self.id, number)) {
            Ok(Some(sums)) => {
                self.shared.counts.repaired.add(1);
                page.load(sums);
            }
            Err(error) if !error.kind().is_damage() => return Err(self.failed(error)),
            _ => {
                self.shared.counts.damaged.add(1);
                tracing::warn!(
                    "device {}: the checksums of 4 MiB at {} are lost, and made anew from its bytes",
                    self.name,
                    number * REGION
                );
                page.replace(Sums::all(Known::Unverified));
                // The next cleaning reads the bytes.
                drop(self.regions.begin(number..number + 1, self.shared.clock.now()));
            }
        }
        Ok(())
    }
}

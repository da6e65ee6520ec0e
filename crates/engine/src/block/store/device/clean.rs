//! Cleans regions that have no writes under way: makes their bytes and checksums durable, and clears their marks. A crash
//! then leaves them in no doubt.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use policy::purpose::{Io, Origin, Step};
use policy::units::KIB;
use volume::IoBufMut;

use super::super::super::Result;
use super::super::extents::Extent;
use super::super::pages::Page;
use super::super::shape::{BLOCK, BLOCKS, REGION};
use super::super::sums::{Known, sum};
use super::Device;

/// It can wait for spare operations: until then, a crash leaves more in doubt.
const IDLE: Io = Io::new(Origin::Bulk, Step::Data);
/// The most bytes read at once to find their checksums.
const PIECE: u64 = 256 * KIB;
/// The number of changed pages written at once when they take too much memory.
const SOME: usize = 8;

/// A region that may be clean soon.
struct Candidate {
    number: u64,
    /// As [`Regions::idle`](super::super::regions::Regions::idle) gave it.
    epoch: u64,
}

impl Device {
    /// Cleans the regions that were not written lately.
    ///
    /// # Errors
    /// Those of the volume: other regions are cleaned all the same.
    pub(in crate::block::store) async fn clean_cold(&self) -> Result<()> {
        let options = &self.shared.options;
        let (now, after) = (self.shared.clock.now(), options.clean_after);
        let written = self.written.load(Ordering::Relaxed);
        let allowed = self.pace.lock().allowed(written, now, after);
        let cold = self.regions.to_clean(now, after, options.dirty_regions_max, allowed);
        self.pace.lock().cleaned(cold.len());
        self.clean(&cold).await
    }

    /// Cleans every region without writes under way.
    ///
    /// # Errors
    /// Those of the volume: other regions are cleaned all the same.
    pub(in crate::block::store) async fn clean_all(&self) -> Result<()> {
        let now = self.shared.clock.now();
        let all = self.regions.to_clean(now, Duration::ZERO, 0, usize::MAX);
        self.clean(&all).await
    }

    /// Cleans these regions, in the order of their numbers.
    async fn clean(&self, regions: &[u64]) -> Result<()> {
        let mut failed = Ok(());
        for of_extent in regions.chunk_by(|a, b| a / self.shape.regions == b / self.shape.regions) {
            failed = failed.and(self.clean_extent(of_extent).await);
        }
        let tidied = self.marks.tidy().await.map_err(|e| self.failed(e));
        failed.and(tidied)
    }

    async fn clean_extent(&self, regions: &[u64]) -> Result<()> {
        let Some(&first) = regions.first() else { return Ok(()) };
        loop {
            let Some(extent) = self.extent(first / self.shape.regions).await? else {
                return self.clean_removed(regions).await;
            };
            match self.clean_of(&extent, regions).await {
                // It was removed meanwhile, and may be made again.
                Err(_) if extent.is_gone() => {}
                cleaned => return cleaned,
            }
        }
    }

    /// Cleans regions of an extent that exists.
    async fn clean_of(&self, extent: &Arc<Extent>, regions: &[u64]) -> Result<()> {
        let mut candidates = Vec::new();
        for &number in regions {
            self.settle_region(extent, number % self.shape.regions).await?;
            let page = self.shared.pages.get((extent.incarnation, number % self.shape.regions));
            self.load_page(extent, &page, number % self.shape.regions, IDLE).await?;
            // Only now: a page that is lost counts as a change.
            let Some(epoch) = self.regions.idle(number) else { continue };
            if extent.is_gone() {
                // The region may be one of a new extent by now, of which nothing is written here.
                return Ok(());
            }
            let candidate = Candidate { number, epoch };
            if self.verify(extent, &page, &candidate).await? {
                self.write_page(extent, &page, number % self.shape.regions, IDLE).await?;
                candidates.push(candidate);
            }
        }
        if candidates.is_empty() {
            return Ok(());
        }
        let object = self.object(extent).await?;
        object.sync(IDLE).await.map_err(|e| self.failed(e))?;
        if extent.is_gone() {
            // Its removal may not be durable.
            return Ok(());
        }
        for Candidate { number, epoch } in candidates {
            self.regions.clean(number, epoch, || self.marks.clear(number));
        }
        Ok(())
    }

    /// Cleans regions of an extent that was removed.
    async fn clean_removed(&self, regions: &[u64]) -> Result<()> {
        let idle = regions.iter().filter_map(|&number| Some((number, self.regions.idle(number)?)));
        let idle: Vec<_> = idle.collect();
        // Until then a crash may bring the extent back, as it was: with bytes that its checksums do not know.
        self.marks.sync().await.map_err(|e| self.failed(e))?;
        for (number, epoch) in idle {
            // Else it is one of a new extent.
            if self.regions.idle(number) == Some(epoch) {
                let doubt = self.regions.what_is_in_doubt(number).unwrap_or_default();
                self.regions.settled(number, &doubt);
                self.regions.clean(number, epoch, || self.marks.clear(number));
            }
        }
        Ok(())
    }

    /// Finds the checksums of blocks that have none, but for those that cannot be read; false if the region was written
    /// meanwhile.
    async fn verify(&self, extent: &Extent, page: &Page, region: &Candidate) -> Result<bool> {
        let Candidate { number, epoch } = *region;
        let base = number % self.shape.regions * REGION;
        let (mut from, mut single) = (0, 0);
        while let Some(first) = page.look(|sums| sums.first_unverified(from..BLOCKS)).flatten() {
            // Damage in a piece: its blocks are read one by one.
            let len = if first < single { BLOCK } else { PIECE.min(REGION - first as u64 * BLOCK) };
            let offset = base + first as u64 * BLOCK;
            let object = self.object(extent).await?;
            let read = object.read_at(offset, IoBufMut::zeroed(len as usize), IDLE).await;
            let read = match read {
                Err(error) if error.kind().is_damage() && len > BLOCK => {
                    single = first + (len / BLOCK) as usize;
                    continue;
                }
                Err(error) if error.kind().is_damage() => {
                    let at = number * REGION + first as u64 * BLOCK;
                    tracing::warn!("device {}: {BLOCK} bytes at {at}: {error}", self.name);
                    self.shared.counts.damaged.add(1);
                    self.shared.damaged.found(self.id, at);
                    from = first + 1;
                    continue;
                }
                read => read.map_err(|e| self.failed(e))?,
            };
            let is_same = self.regions.idle(number) == Some(epoch);
            if !is_same {
                return Ok(false);
            }
            page.change(|sums| {
                for (block, bytes) in (first..).zip(read.chunks_exact(BLOCK as usize)) {
                    if sums.get(block) == Known::Unverified {
                        sums.set(block, sum(bytes));
                    }
                }
            });
            from = first + (len / BLOCK) as usize;
        }
        Ok(true)
    }

    /// Writes the checksums of a region to its slot, if they have changed. Durable after a sync.
    async fn write_page(&self, extent: &Extent, page: &Page, region: u64, io: Io) -> Result<()> {
        let _alone = page.io.lock().await;
        let number = extent.number * self.shape.regions + region;
        let Some(encoded) = page.take_changed(|sums| sums.encode(self.id, number)) else {
            return Ok(());
        };
        let mut unwritten = Unwritten(Some(page));
        self.shared.counts.checksum_writes.add(1);
        let object = self.object(extent).await?;
        let written = object.write_at(self.shape.slot(region), encoded, io).await;
        if !self.extents.has(extent) {
            return Ok(());
        }
        written.map_err(|e| self.failed(e))?;
        unwritten.0 = None;
        Ok(())
    }

    /// Writes some changed pages, so that they can go.
    pub(super) async fn write_some_pages(&self, io: Io) {
        let dirty = self.regions.all();
        let changed = dirty.into_iter().filter_map(|number| {
            let extent = self.extents.get(number / self.shape.regions).ok().flatten()?;
            let page = self.shared.pages.find((extent.incarnation, number % self.shape.regions))?;
            page.is_changed().then_some((extent, page, number % self.shape.regions))
        });
        let some: Vec<(Arc<Extent>, Arc<Page>, u64)> = changed.take(SOME).collect();
        let writes =
            some.iter().map(|(extent, page, region)| self.write_page(extent, page, *region, io));
        for written in join_all(writes).await {
            if let Err(error) = written {
                tracing::debug!("checksums are not written now: {error}");
            }
        }
    }
}

/// A page that is being written. It stays changed if that fails, or is given up: else its memory could go, and with it
/// checksums that no slot has.
struct Unwritten<'a>(Option<&'a Page>);

impl Drop for Unwritten<'_> {
    fn drop(&mut self) {
        if let Some(page) = self.0 {
            page.set_changed();
        }
    }
}

//! A scrub of an extent: every copy of its blocks and of its pages of checksums is read back and, where it is not what was
//! written, repaired from others.
//!
//! ```text
//!   blocks of 64 MiB: │ run │ run │ run │ … │ run and pages of checksums │
//! ```
//! A run is whole stripes of the volume, so that a pool of fragments can compare the parity with the data. It is claimed
//! while it is read: a write under way would have made copies differ. The reads are of class idle and may wait for long, so
//! a run gives way as soon as a user waits for it, and is read again after that.

use std::collections::BTreeSet;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};
use parking_lot::Mutex;
use policy::purpose::{Io, Origin, Step};
use policy::units::KIB;
use volume::{Check, IoBufMut};

use super::super::super::Result;
use super::super::extents::Extent;
use super::super::pages::Page;
use super::super::scrub::Scrubbed;
use super::super::shape::{BLOCK, REGION, SLOT};
use super::super::sums::{Known, Sums, sum};
use super::blocks::{Blocks, InRegion};
use super::{Device, READ};

/// It can wait for spare operations.
const IDLE: Io = Io::new(Origin::Scrub, Step::Data);

/// Bytes of a run, unless a stripe is longer.
const RUN: u64 = 256 * KIB;

/// How often a run gives way to users. After that it is read in their class, so they wait for one read each.
const GIVES_WAY: u32 = 4;

/// A part of a run that has a checksum of its own.
struct Part {
    /// Its offset in the extent's object.
    at: u64,
    len: usize,
    wanted: Wanted,
}

#[derive(Clone, Copy)]
enum Wanted {
    /// A block.
    Block(Known),
    /// The page of checksums of this region of the device.
    Page { device: u32, region: u64 },
    /// It is about to be written, or is in doubt.
    Any,
}

impl Wanted {
    fn is(self, bytes: &[u8]) -> bool {
        match self {
            Self::Block(Known::Zeros) => bytes.iter().all(|&byte| byte == 0),
            Self::Block(Known::Unverified) | Self::Any => true,
            Self::Block(wanted @ Known::Sum(_)) => sum(bytes) == wanted,
            Self::Page { device, region } => Sums::decode(bytes, device, region).is_some(),
        }
    }
}

/// Parts that a copy had wrongly, by their offsets.
type Refused = Arc<Mutex<BTreeSet<u64>>>;

/// Accepts the bytes of these parts, which follow each other. Takes note of the parts that it refuses.
fn check(parts: &Arc<[Part]>) -> (Check, Refused) {
    let refused = Refused::default();
    let (parts, wrong) = (Arc::clone(parts), Arc::clone(&refused));
    let start = parts.first().map_or(0, |part| part.at);
    let check = Arc::new(move |bytes: &[u8]| {
        let is_wrong = |part: &&Part| {
            let from = (part.at - start) as usize;
            !bytes.get(from..from + part.len).is_some_and(|bytes| part.wanted.is(bytes))
        };
        let found: Vec<_> = parts.iter().filter(is_wrong).map(|part| part.at).collect();
        wrong.lock().extend(&found);
        found.is_empty()
    });
    (check, refused)
}

impl Device {
    /// Scrubs an extent, if it exists.
    ///
    /// # Errors
    /// `Closed`: the device is deleted, or the store closes. Those of the volume: it was not read to its end.
    pub(in crate::block::store) async fn scrub(&self, number: u64) -> Result<Scrubbed> {
        let Some(extent) = self.extent(number).await? else { return Ok(Scrubbed::default()) };
        match self.scrub_extent(&extent).await {
            // It was removed meanwhile.
            Err(_) if extent.is_gone() => Ok(Scrubbed::default()),
            scrubbed => scrubbed,
        }
    }

    async fn scrub_extent(&self, extent: &Arc<Extent>) -> Result<Scrubbed> {
        let stripe = self.shared.volume.limits().stripe.unwrap_or(BLOCK);
        let stripe = if stripe.is_multiple_of(BLOCK) { stripe } else { BLOCK };
        let run = stripe.max(RUN / stripe * stripe);
        // Pages of checksums are of two blocks, which a run of stripes may cut: all of them are in the last one.
        let last = self.shape.extent() / stripe * stripe;
        let (mut at, mut scrubbed) = (0, Scrubbed::default());
        while at < self.shape.object() && !extent.is_gone() {
            self.must_live()?;
            let end = if at < last { (at + run).min(last) } else { self.shape.object() };
            let Scrubbed { repaired, mut lost } = self.scrub_run(extent, at..end).await?;
            scrubbed.repaired += repaired;
            scrubbed.lost.append(&mut lost);
            at = end;
        }
        Ok(scrubbed)
    }

    /// Scrubs a run, and lets users go first.
    async fn scrub_run(&self, extent: &Arc<Extent>, run: Range<u64>) -> Result<Scrubbed> {
        for _ in 0..GIVES_WAY {
            let claim = extent.changes.claim(run.clone()).await;
            let scrub = pin!(self.scrub_claimed(extent, &run, IDLE));
            if let Either::Left((scrubbed, _)) = select(scrub, pin!(claim.wanted())).await {
                return scrubbed;
            }
        }
        let _claim = extent.changes.claim(run.clone()).await;
        self.scrub_claimed(extent, &run, READ).await
    }

    /// Scrubs a run of an extent that the caller has claimed.
    async fn scrub_claimed(
        &self,
        extent: &Arc<Extent>,
        run: &Range<u64>,
        io: Io,
    ) -> Result<Scrubbed> {
        if extent.is_gone() {
            return Ok(Scrubbed::default());
        }
        let data = run.start..run.end.min(self.shape.extent());
        self.settle(extent, &data).await?;
        let blocks = self.blocks(extent, data.clone()).await;
        // Not idle: users who need the same page wait for it.
        self.load(&blocks).await?;
        let pages = self.pages_of(extent, run);
        for (region, page) in &pages {
            self.load_page(extent, page, *region, READ).await?;
        }
        if pages.is_empty() && blocks.are_zeros() {
            return Ok(Scrubbed::default());
        }
        self.verify_blocks(&blocks, io).await?;
        // The cleaner writes none of these pages meanwhile.
        let mut locks = Vec::new();
        for (_, page) in &pages {
            locks.push(page.io.lock().await);
        }
        let mut parts = parts_of(&blocks);
        for (region, page) in &pages {
            let number = extent.number * self.shape.regions + region;
            let is_known = !page.is_changed() && self.regions.doubt(number).is_none();
            let wanted = match is_known {
                true => Wanted::Page { device: self.id, region: number },
                false => Wanted::Any,
            };
            parts.push(Part { at: self.shape.slot(*region), len: SLOT as usize, wanted });
        }
        let parts: Arc<[Part]> = parts.into();
        let (check, refused) = check(&parts);
        let into = || IoBufMut::zeroed((run.end - run.start) as usize);
        let object = self.object(extent).await?;
        let base = extent.number * self.shape.extent();
        match object.read_again(run.start, into(), io, check.clone()).await {
            Ok(_) => {
                let repaired = refused.lock().len() as u64;
                self.shared.counts.repaired.add(repaired);
                self.shared.damaged.mended(self.id, base + data.start..base + data.end);
                return Ok(Scrubbed { repaired, lost: Vec::new() });
            }
            Err(error) if error.kind().is_damage() => {}
            Err(error) => return Err(self.failed(error)),
        }
        // No copy has all of it, but there may be one of each part.
        let scrubbed = self.scrub_parts(extent, &parts, io).await?;
        if scrubbed.lost.is_empty() {
            // Of fragments the parity was not compared yet.
            match object.read_again(run.start, into(), io, check).await {
                Err(error) if !error.kind().is_damage() => return Err(self.failed(error)),
                _ => {}
            }
        }
        Ok(scrubbed)
    }

    /// The pages of checksums in a run, by their regions in the extent.
    fn pages_of(&self, extent: &Extent, run: &Range<u64>) -> Vec<(u64, Arc<Page>)> {
        if run.end <= self.shape.extent() {
            return Vec::new();
        }
        let page = |region| (region, self.shared.pages.get((extent.incarnation, region)));
        (0..self.shape.regions).map(page).collect()
    }

    /// Finds the checksums of claimed blocks that a crash left without.
    async fn verify_blocks(&self, blocks: &Blocks<'_>, io: Io) -> Result<()> {
        for InRegion { region, page, blocks: indices, .. } in blocks.by_region() {
            let unverified = page.look(|sums| sums.first_unverified(indices.clone())).flatten();
            let Some(first) = unverified else { continue };
            let offset = region * REGION + first as u64 * BLOCK;
            let len = (indices.end - first) * BLOCK as usize;
            let object = self.object(blocks.extent).await?;
            let read = object.read_at(offset, IoBufMut::zeroed(len), io).await;
            let read = read.map_err(|e| self.failed(e))?;
            page.change(|sums| {
                for (block, bytes) in (first..).zip(read.chunks_exact(BLOCK as usize)) {
                    if sums.get(block) == Known::Unverified {
                        sums.set(block, sum(bytes));
                    }
                }
            });
        }
        Ok(())
    }

    /// Scrubs each part of a run alone.
    async fn scrub_parts(&self, extent: &Extent, parts: &[Part], io: Io) -> Result<Scrubbed> {
        let (object, mut scrubbed) = (self.object(extent).await?, Scrubbed::default());
        for part in parts.iter().filter(|part| !matches!(part.wanted, Wanted::Any)) {
            let Part { at, len, wanted } = *part;
            let (check, refused) = check(&Arc::from([Part { at, len, wanted }]));
            let place = extent.number * self.shape.extent() + at;
            match object.read_again(at, IoBufMut::zeroed(len), io, check).await {
                Ok(_) => {
                    let repaired = refused.lock().len() as u64;
                    self.shared.counts.repaired.add(repaired);
                    scrubbed.repaired += repaired;
                    if matches!(wanted, Wanted::Block(_)) {
                        self.shared.damaged.mended(self.id, place..place + BLOCK);
                    }
                }
                Err(error) if !error.kind().is_damage() => return Err(self.failed(error)),
                Err(_) => match wanted {
                    Wanted::Block(Known::Sum(_)) => {
                        self.shared.counts.damaged.add(1);
                        self.shared.damaged.found(self.id, place);
                        scrubbed.lost.push(self.is_lost(place));
                    }
                    Wanted::Page { region, .. } => {
                        self.write_page_anew(extent, region);
                        scrubbed.repaired += 1;
                    }
                    // Readers get zeros all the same.
                    Wanted::Block(_) | Wanted::Any => {}
                },
            }
        }
        Ok(scrubbed)
    }

    /// No copy has the page of a region of the device, but the memory has: the next cleaning writes it.
    fn write_page_anew(&self, extent: &Extent, region: u64) {
        self.shared.counts.repaired.add(1);
        self.shared.pages.get((extent.incarnation, region % self.shape.regions)).set_changed();
        drop(self.regions.begin(region..region + 1, self.shared.clock.now()));
    }
}

/// The blocks as parts of a run.
fn parts_of(blocks: &Blocks<'_>) -> Vec<Part> {
    let mut parts = Vec::new();
    for InRegion { region, page, blocks, .. } in blocks.by_region() {
        let known = |block| page.look(|sums| sums.get(block)).unwrap_or(Known::Unverified);
        parts.extend(blocks.map(|block| Part {
            at: region * REGION + block as u64 * BLOCK,
            len: BLOCK as usize,
            wanted: Wanted::Block(known(block)),
        }));
    }
    parts
}

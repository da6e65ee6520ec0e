//! Reads, verified by the checksums.

use std::ops::Range;
use std::sync::Arc;

use futures_util::future::{join, try_join_all};
use policy::contract::Direction;
use volume::{Check, IoBufMut};

use super::super::super::{Error, Result};
use super::super::extents::Extent;
use super::super::shape::{BLOCK, Piece, REGION, outward};
use super::super::sums::{Known, sum};
use super::blocks::{Blocks, InRegion};
use super::{Device, READ};

impl Device {
    pub(super) async fn read(&self, offset: u64, into: IoBufMut) -> Result<IoBufMut> {
        let range = offset..offset.saturating_add(into.len() as u64);
        self.begin(&range)?;
        self.shared.counts.reads.add(1);
        self.shared.counts.bytes_read.add(into.len() as u64);
        self.admit(Direction::Read, into.len() as u64, &range).await?;
        let number = range.start / self.shape.extent();
        if outward(&range) == range && self.shape.numbers(&range) == (number..number + 1) {
            let inside = self.shape.piece(&range, number).range;
            return self.read_blocks(number, inside, into).await;
        }
        self.read_parts(&range, into).await
    }

    /// Reads a range of several extents, or of parts of blocks.
    async fn read_parts(&self, range: &Range<u64>, mut into: IoBufMut) -> Result<IoBufMut> {
        let reads = self.shape.pieces(range).map(async |Piece { extent, range, at }| {
            let whole = outward(&range);
            let buf = IoBufMut::zeroed((whole.end - whole.start) as usize);
            let read = self.read_blocks(extent, whole.clone(), buf).await?;
            let from = (range.start - whole.start) as usize;
            Ok::<_, Error>((at, read, from, (range.end - range.start) as usize))
        });
        for (at, read, from, len) in try_join_all(reads).await? {
            into[at..at + len].copy_from_slice(&read[from..from + len]);
        }
        Ok(into)
    }

    /// Reads whole blocks of an extent.
    async fn read_blocks(
        &self,
        number: u64,
        range: Range<u64>,
        mut into: IoBufMut,
    ) -> Result<IoBufMut> {
        let len = into.len();
        loop {
            let Some(extent) = self.extent(number).await? else {
                // The extents of a deleted device are gone.
                self.must_live()?;
                into.fill(0);
                return Ok(into);
            };
            match self.read_extent(&extent, &range, into).await {
                // It was removed meanwhile, and with it what is known of its blocks.
                _ if extent.is_gone() => into = IoBufMut::zeroed(len),
                read => return read,
            }
        }
    }

    async fn read_extent(
        &self,
        extent: &Arc<Extent>,
        range: &Range<u64>,
        mut into: IoBufMut,
    ) -> Result<IoBufMut> {
        if range.is_empty() {
            return Ok(into);
        }
        self.settle(extent, range).await?;
        let blocks = self.blocks(extent, range.clone()).await;
        if blocks.are_zeros() {
            into.fill(0);
            return Ok(into);
        }
        let (loaded, read) = join(self.load(&blocks), self.read_unverified(&blocks, into)).await;
        loaded?;
        let mut read = read?;
        if blocks.verify(&mut read) {
            return Ok(read);
        }
        let _alone = extent.changes.claim(range.clone()).await;
        // A write that failed meanwhile has left the copies in doubt.
        self.settle(extent, range).await?;
        self.read_claimed(&blocks, read).await
    }

    /// Reads blocks that the caller has claimed, so that no write changes them, and then settled, and whose checksums it has
    /// loaded.
    pub(super) async fn read_claimed(
        &self,
        blocks: &Blocks<'_>,
        into: IoBufMut,
    ) -> Result<IoBufMut> {
        let mut read = self.read_unverified(blocks, into).await?;
        for InRegion { region, page, blocks: indices, bytes } in blocks.by_region() {
            for (index, block) in indices.zip(read[bytes].chunks_exact_mut(BLOCK as usize)) {
                match page.look(|sums| sums.get(index)) {
                    Some(Known::Zeros) => block.fill(0),
                    Some(wanted @ Known::Sum(_)) if wanted != sum(block) => {
                        let offset = region * REGION + index as u64 * BLOCK;
                        let good = self.read_again(blocks.extent, offset, wanted).await?;
                        block.copy_from_slice(&good);
                    }
                    Some(Known::Sum(_)) => {}
                    Some(Known::Unverified) | None => {
                        self.shared.counts.unverified_reads.add(1);
                        let found = sum(block);
                        page.change(|sums| sums.set(index, found));
                    }
                }
            }
        }
        Ok(read)
    }

    /// The bytes of blocks on some copy.
    async fn read_unverified(&self, blocks: &Blocks<'_>, into: IoBufMut) -> Result<IoBufMut> {
        let object = self.object(blocks.extent).await?;
        let read = object.read_at(blocks.range.start, into, READ).await;
        let mut read = read.map_err(|e| self.failed(e))?;
        // An object has all bytes of its extent from its creation on. If a copy lacks some, their checksums differ.
        let got = read.len();
        if got < blocks.len() {
            read.resize(blocks.len());
            read[got..].fill(0);
        }
        Ok(read)
    }

    /// Reads a block from another copy, after one gave bytes that were not written.
    async fn read_again(&self, extent: &Extent, offset: u64, wanted: Known) -> Result<IoBufMut> {
        let check: Check = Arc::new(move |bytes: &[u8]| sum(bytes) == wanted);
        let into = IoBufMut::zeroed(BLOCK as usize);
        let at = extent.number * self.shape.extent() + offset;
        match self.object(extent).await?.read_again(offset, into, READ, check).await {
            Ok(good) => {
                self.shared.counts.repaired.add(1);
                self.shared.damaged.mended(self.id, at..at + BLOCK);
                Ok(good)
            }
            Err(error) if error.kind().is_damage() => {
                self.shared.counts.damaged.add(1);
                self.shared.damaged.found(self.id, at);
                Err(Error::Corrupt(self.is_lost(at)))
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Says that no copy has a block.
    pub(super) fn is_lost(&self, at: u64) -> String {
        format!(
            "device {}: {BLOCK} bytes at {at} are not what was written, on any copy: write them anew from elsewhere",
            self.name
        )
    }
}

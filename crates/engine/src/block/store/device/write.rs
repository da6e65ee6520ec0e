//! Writes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::{join, join_all};
use policy::contract::Direction;
use volume::{IoBuf, IoBufMut};

use super::super::super::{Durable, Result};
use super::super::extents::Extent;
use super::super::shape::{BLOCK, Piece, outward};
use super::blocks::Blocks;
use super::{CHANGE, Device, WRITE, all};

/// The most extents with changes that are not durable: each has its object open.
const UNSYNCED_MAX: usize = 512;

impl Device {
    pub(super) async fn write(&self, offset: u64, data: IoBuf, durable: Durable) -> Result<()> {
        let range = offset..offset.saturating_add(data.len() as u64);
        self.begin(&range)?;
        self.shared.counts.writes.add(1);
        self.shared.counts.bytes_written.add(data.len() as u64);
        self.written.fetch_add(1, Ordering::Relaxed);
        let durable = if self.shared.options.durable { Durable::Now } else { durable };
        let _place = match durable {
            Durable::Now => None,
            Durable::Later => self.writing.acquire().await.ok(),
        };
        self.admit(Direction::Write, data.len() as u64, &range).await?;
        let writes = self.shape.pieces(&range).map(|Piece { extent, range, at }| {
            let data = data.slice(at..at + (range.end - range.start) as usize);
            self.write_piece(extent, range, data, durable)
        });
        all(join_all(writes).await)?;
        if self.unsynced.lock().len() > UNSYNCED_MAX {
            self.make_durable().await?;
        }
        Ok(())
    }

    /// Writes bytes of an extent, which may begin or end inside of a block.
    pub(super) async fn write_piece(
        &self,
        number: u64,
        range: Range<u64>,
        data: IoBuf,
        durable: Durable,
    ) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let blocks = outward(&range);
        loop {
            let extent = self.extent_or_new(number).await?;
            let _alone = extent.changes.claim(blocks.clone()).await;
            if !extent.is_gone() {
                // The device may have become smaller meanwhile. What was beyond its new end is zeros by now, and stays so.
                let base = number * self.shape.extent();
                self.begin(&(base + range.start..base + range.end))?;
                return self.write_claimed(&extent, &range, data, durable).await;
            }
        }
    }

    async fn write_claimed(
        &self,
        extent: &Arc<Extent>,
        range: &Range<u64>,
        data: IoBuf,
        durable: Durable,
    ) -> Result<()> {
        let whole = outward(range);
        self.settle(extent, &whole).await?;
        let blocks = self.blocks(extent, whole.clone()).await;
        let data = match whole == *range {
            true => data,
            false => self.complete(&blocks, range, &data).await?,
        };
        self.shared.room.take(blocks.new_bytes()).await?;
        let object = self.object(extent).await?;
        let mut change = self.begin_change(&blocks).await?;
        let write = match durable {
            Durable::Now => object.write_durable(whole.start, data.clone(), WRITE),
            Durable::Later => object.write_at(whole.start, data.clone(), CHANGE),
        };
        let (loaded, written) = join(self.load(&blocks), write).await;
        written.map_err(|e| self.failed(e))?;
        loaded?;
        change.made(|sums, part| sums.set_written(part.blocks.start, &data[part.bytes.clone()]));
        if durable == Durable::Later {
            self.note_unsynced(Arc::clone(extent));
        }
        Ok(())
    }

    /// Completes bytes that begin or end inside of a block to whole blocks, which the caller has claimed.
    async fn complete(
        &self,
        blocks: &Blocks<'_>,
        range: &Range<u64>,
        data: &[u8],
    ) -> Result<IoBuf> {
        self.load(blocks).await?;
        let Range { start, end } = blocks.range;
        let mut whole = IoBufMut::zeroed(blocks.len());
        let last = end - BLOCK;
        let cut = [
            (range.start > start).then_some(start),
            (range.end < end && (last > start || range.start == start)).then_some(last),
        ];
        for offset in cut.into_iter().flatten() {
            let block = blocks.one(offset);
            if block.are_zeros() {
                continue;
            }
            self.shared.counts.completing_reads.add(1);
            let into = IoBufMut::zeroed(BLOCK as usize);
            let read = self.read_claimed(&block, into).await?;
            let at = (offset - start) as usize;
            whole[at..at + BLOCK as usize].copy_from_slice(&read);
        }
        let at = (range.start - start) as usize;
        whole[at..at + data.len()].copy_from_slice(data);
        Ok(whole.freeze())
    }
}

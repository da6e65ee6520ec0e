//! Zeros and discards: whole extents are removed, blocks become holes, and parts of blocks are written.

use std::ops::Range;
use std::sync::Arc;

use policy::contract::Direction;
use policy::units::KIB;
use volume::{ErrorKind, IoBufMut, Object};

use super::super::super::{Durable, Error, Result, Zeros};
use super::super::extents::Extent;
use super::super::shape::{Piece, inward};
use super::super::sums::Known;
use super::{CHANGE, Device};

/// The most bytes of zeros written at once where the volume has no holes.
const ZEROS: u64 = 256 * KIB;

impl Device {
    pub(super) async fn zero(
        &self,
        range: Range<u64>,
        room: Zeros,
        fast: bool,
        durable: Durable,
    ) -> Result<()> {
        self.begin(&range)?;
        self.shared.counts.writes.add(1);
        self.admit(Direction::Write, 0, &range).await?;
        if fast && !self.shared.volume.limits().holes {
            let what = format!("device {}: its volumes have no holes", self.name);
            return Err(Error::Unsupported(what));
        }
        if room == Zeros::Free && inward(&range) == range {
            self.free(&range).await?;
            return self.flush_if(durable).await;
        }
        let pieces = match room {
            Zeros::Keep => self.shape.pieces(&range).collect(),
            Zeros::Free => self.present(&range),
        };
        for Piece { extent, range, .. } in pieces {
            let blocks = inward(&range);
            // Parts of blocks at both ends.
            let first = range.start..blocks.start.min(range.end);
            let last = blocks.end.max(first.end).min(range.end)..range.end;
            for part in [first, last] {
                let zeros = IoBufMut::zeroed((part.end - part.start) as usize).freeze();
                self.write_piece(extent, part, zeros, Durable::Later).await?;
            }
            if !blocks.is_empty() {
                self.zero_blocks(extent, blocks, room).await?;
            }
        }
        self.flush_if(durable).await
    }

    pub(super) async fn discard(&self, range: Range<u64>, durable: Durable) -> Result<()> {
        self.begin(&range)?;
        self.shared.counts.discards.add(1);
        self.admit(Direction::Write, 0, &range).await?;
        if !self.shared.volume.limits().holes {
            return Ok(());
        }
        self.free(&inward(&range)).await?;
        self.flush_if(durable).await
    }

    /// Makes the bytes behind the end of a device that became smaller zeros: it may grow again. Durable on return.
    pub(in crate::block::store) async fn cut(&self, range: Range<u64>) -> Result<()> {
        self.free(&range).await?;
        self.make_durable().await
    }

    /// Makes whole blocks zeros, and gives back their room.
    async fn free(&self, range: &Range<u64>) -> Result<()> {
        let (whole, parts): (Vec<_>, Vec<_>) =
            self.present(range).into_iter().partition(|piece| self.is_whole(piece));
        let whole: Vec<_> = whole.into_iter().map(|piece| piece.extent).collect();
        self.remove(&whole).await?;
        for Piece { extent, range, .. } in parts {
            self.zero_blocks(extent, range, Zeros::Free).await?;
        }
        Ok(())
    }

    /// Whether a piece is all that the device has of its extent.
    fn is_whole(&self, piece: &Piece) -> bool {
        let end = self.size().saturating_sub(piece.extent * self.shape.extent());
        piece.range.start == 0 && piece.range.end >= end.min(self.shape.extent())
    }

    /// Makes whole blocks of an extent zeros.
    async fn zero_blocks(&self, number: u64, range: Range<u64>, room: Zeros) -> Result<()> {
        loop {
            let extent = match room {
                Zeros::Keep => Some(self.extent_or_new(number).await?),
                Zeros::Free => self.extent(number).await?,
            };
            let Some(extent) = extent else { return Ok(()) };
            let _alone = extent.changes.claim(range.clone()).await;
            if !extent.is_gone() {
                return self.zero_claimed(&extent, range, room).await;
            }
        }
    }

    async fn zero_claimed(
        &self,
        extent: &Arc<Extent>,
        range: Range<u64>,
        room: Zeros,
    ) -> Result<()> {
        self.settle(extent, &range).await?;
        let blocks = self.blocks(extent, range.clone()).await;
        self.load(&blocks).await?;
        if room == Zeros::Keep {
            self.shared.room.take(blocks.new_bytes()).await?;
        }
        let object = self.object(extent).await?;
        let mut change = self.begin_change(&blocks).await?;
        match object.zero(range.start, range.end - range.start, room, CHANGE).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                self.write_zeros(object, &range).await?;
            }
            zeroed => zeroed.map_err(|e| self.failed(e))?,
        }
        change.made(|sums, part| {
            part.blocks.clone().for_each(|block| sums.set(block, Known::Zeros));
        });
        self.note_unsynced(Arc::clone(extent));
        Ok(())
    }

    async fn write_zeros(&self, object: &Arc<dyn Object>, range: &Range<u64>) -> Result<()> {
        let zeros = IoBufMut::zeroed(ZEROS.min(range.end - range.start) as usize).freeze();
        let mut at = range.start;
        while at < range.end {
            let len = ZEROS.min(range.end - at);
            let written = object.write_at(at, zeros.slice(0..len as usize), CHANGE).await;
            written.map_err(|e| self.failed(e))?;
            at += len;
        }
        Ok(())
    }
}

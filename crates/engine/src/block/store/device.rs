//! One device: its bytes in extents, each block with a checksum.
//!
//! ```text
//!   write ─▶ claim of the blocks ─▶ mark of the region, once ─▶ bytes ─▶ checksums, in memory
//!   read  ─▶ bytes, checked by the checksums ─▶ else once more with a claim ─▶ else from another copy
//! ```
//! A write takes effect for readers when its checksums are in memory. A reader takes no claim: bytes that do not fit the
//! checksums may be those of a write under way, so it then claims the blocks, which waits for that write.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::{join, join_all, try_join_all};
use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;
use policy::contract::Direction;
use policy::purpose::{Io, Origin, Step};
use policy::units::KIB;
use tokio::sync::Semaphore;
use volume::{Check, ErrorKind, Extent as Part, IoBuf, IoBufMut, Object, extent as parts};

use super::super::{Durable, Error, Result, Zeros, within};
use super::extents::{Extent, Extents};
use super::failure::failed;
use super::figures::DeviceCounts;
use super::limiter::Limiter;
use super::marks::Marks;
use super::pace::Pace;
use super::pages::Page;
use super::regions::Regions;
use super::shape::{BLOCK, BLOCKS, Piece, REGION, SLOT, Shape, inward, outward, regions_of};
use super::sums::{Known, Sums, sum};
use super::{Shared, table};

pub(super) const READ: Io = Io::new(Origin::UserRead, Step::Data);
/// A user waits until it is durable.
const WRITE: Io = Io::new(Origin::UserWrite, Step::Data);
/// A user waits, but not for its durability.
pub(super) const CHANGE: Io = Io::new(Origin::UserChange, Step::Data);
/// What a crash left in doubt is settled before users get to it.
const SETTLE: Io = Io::new(Origin::Open, Step::Data);

/// The most writes of a device that are at the gate and need not be durable yet: a read waits behind no more of them.
const WRITES_MAX: usize = 32;
/// The most extents with changes that are not durable: each has its object open.
const UNSYNCED_MAX: usize = 512;
/// The number of extents that are removed at once.
const REMOVED_TOGETHER: usize = 64;
/// The number of regions that are settled at once. More would keep the first users waiting longer.
const SETTLED_TOGETHER: usize = 2;
/// The most bytes of zeros written at once where the volume has no holes.
const ZEROS: u64 = 256 * KIB;

/// A device of a store.
pub(super) struct Device {
    pub(super) id: table::Id,
    pub(super) name: String,
    pub(super) size: AtomicU64,
    pub(super) shape: Shape,
    pub(super) shared: Arc<Shared>,
    pub(super) extents: Extents,
    pub(super) marks: Marks,
    pub(super) regions: Regions,
    /// Extents with changes that no flush made durable, by number.
    unsynced: Mutex<BTreeMap<u64, Arc<Extent>>>,
    /// Extents were removed since the last flush.
    removed: AtomicBool,
    /// Locked while changes are made durable.
    flushing: AsyncMutex<()>,
    writing: Semaphore,
    settling: Semaphore,
    /// Writes so far, and how many regions they allow to be cleaned.
    pub(super) written: AtomicU64,
    pub(super) pace: Mutex<Pace>,
    pub(super) limiter: Limiter,
    pub(super) counts: DeviceCounts,
    /// It is deleted, or the store closes.
    ended: AtomicBool,
}

impl Device {
    pub(super) fn new(
        (name, row): (String, &table::Row),
        shared: Arc<Shared>,
        extents: Extents,
        marks: Marks,
        marked: Vec<u64>,
    ) -> Self {
        let now = shared.clock.now();
        let regions = Regions::in_doubt(marked, now);
        let limiter = Limiter::new(row.limit.clone(), shared.clock.clone());
        Self {
            id: row.id,
            name,
            size: AtomicU64::new(row.size),
            shape: row.shape,
            shared,
            extents,
            marks,
            regions,
            unsynced: Mutex::default(),
            removed: AtomicBool::new(false),
            flushing: AsyncMutex::new(()),
            writing: Semaphore::new(WRITES_MAX),
            settling: Semaphore::new(SETTLED_TOGETHER),
            written: AtomicU64::new(0),
            pace: Mutex::new(Pace::new(now)),
            limiter,
            counts: DeviceCounts::default(),
            ended: AtomicBool::new(false),
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// No call begins any more.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// # Errors
    /// `Closed`: it is deleted, or the store closes.
    fn must_live(&self) -> Result<()> {
        match self.ended.load(Ordering::Acquire) {
            true => Err(Error::Closed(format!("device {}", self.name))),
            false => Ok(()),
        }
    }

    /// Checks a call on a range.
    fn begin(&self, range: &Range<u64>) -> Result<()> {
        self.must_live()?;
        within(range, self.size()).map_err(|error| match error {
            Error::Invalid(what) => Error::Invalid(format!("device {}: {what}", self.name)),
            other => other,
        })
    }

    /// Waits until a call is within the limit, and counts it.
    async fn admit(&self, direction: Direction, len: u64, range: &Range<u64>) -> Result<()> {
        if let Some(waited) = self.limiter.admit(direction, len).await {
            self.counts.limited.add(1);
            self.counts.limited_nanos.add(waited.as_nanos() as u64);
            // Meanwhile it may have ended, or become smaller.
            self.begin(range)?;
        }
        let (calls, bytes) = match direction {
            Direction::Read => (&self.counts.reads, &self.counts.bytes_read),
            Direction::Write => (&self.counts.writes, &self.counts.bytes_written),
        };
        calls.add(1);
        bytes.add(len);
        Ok(())
    }

    pub(super) fn failed(&self, error: volume::Error) -> Error {
        match failed(format_args!("device {}", self.name), error) {
            Error::OutOfSpace(why) => Error::OutOfSpace(self.shared.room.refuse(&why)),
            other => other,
        }
    }

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
                Err(_) if extent.is_gone() => into = IoBufMut::zeroed(len),
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
        let pages = self.pages(extent, range).await;
        if pages.iter().all(|page| page.is_loaded()) && all_zeros(&pages, range) {
            into.fill(0);
            return Ok(into);
        }
        let object = self.object(extent).await?;
        let len = into.len();
        let read = object.read_at(range.start, into, READ);
        let (loaded, read) = join(self.load(extent, &pages, range), read).await;
        loaded?;
        let mut read = read.map_err(|e| self.failed(e))?;
        whole(&mut read, len);
        match compare(&pages, range, &mut read) {
            Compared::Same => Ok(read),
            Compared::Unsure => self.read_alone(extent, &pages, range, read).await,
        }
    }

    /// Reads blocks while nobody changes them.
    async fn read_alone(
        &self,
        extent: &Extent,
        pages: &[Arc<Page>],
        range: &Range<u64>,
        into: IoBufMut,
    ) -> Result<IoBufMut> {
        let _alone = extent.changes.claim(range.clone()).await;
        self.read_claimed(extent, pages, range, into).await
    }

    /// The same for a caller that has claimed the range, and loaded the pages.
    async fn read_claimed(
        &self,
        extent: &Extent,
        pages: &[Arc<Page>],
        range: &Range<u64>,
        into: IoBufMut,
    ) -> Result<IoBufMut> {
        let object = self.object(extent).await?;
        let len = into.len();
        let read = object.read_at(range.start, into, READ).await;
        let mut read = read.map_err(|e| self.failed(e))?;
        whole(&mut read, len);
        for (at, block) in read.chunks_exact_mut(BLOCK as usize).enumerate() {
            let offset = range.start + at as u64 * BLOCK;
            let page = &pages[(offset / REGION - range.start / REGION) as usize];
            let index = block_of(offset);
            match page.look(|sums| sums.get(index)) {
                Some(Known::Zeros) => block.fill(0),
                Some(wanted @ Known::Sum(_)) if wanted != sum(block) => {
                    let good = self.read_again(extent, object, offset, wanted).await?;
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
        Ok(read)
    }

    /// Reads a block from another copy, after one gave bytes that were not written.
    async fn read_again(
        &self,
        extent: &Extent,
        object: &Arc<dyn Object>,
        offset: u64,
        wanted: Known,
    ) -> Result<IoBufMut> {
        let check: Check = Arc::new(move |bytes: &[u8]| sum(bytes) == wanted);
        let into = IoBufMut::zeroed(BLOCK as usize);
        match object.read_again(offset, into, READ, check).await {
            Ok(good) => {
                self.shared.counts.repaired.add(1);
                let at = extent.number * self.shape.extent() + offset;
                self.shared.damaged.mended(self.id, at..at + BLOCK);
                Ok(good)
            }
            Err(error) if error.kind().is_damage() => {
                self.shared.counts.damaged.add(1);
                let at = extent.number * self.shape.extent() + offset;
                self.shared.damaged.found(self.id, at);
                Err(Error::Corrupt(format!(
                    "device {}: {BLOCK} bytes at {at} are not what was written, on any copy: write them anew from elsewhere",
                    self.name
                )))
            }
            Err(error) => Err(self.failed(error)),
        }
    }

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

    async fn write_piece(
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
        let blocks = outward(range);
        self.settle(extent, &blocks).await?;
        let pages = self.pages(extent, &blocks).await;
        let data = match blocks == *range {
            true => data,
            false => self.complete(extent, &pages, range, &data).await?,
        };
        self.shared.room.take(new_bytes(&pages, &blocks)).await?;
        let object = self.object(extent).await?;
        let _writing = self.mark(extent, &blocks).await?;
        let unsure = Unsure { device: self, extent, pages: &pages, range: &blocks };
        let write = match durable {
            Durable::Now => object.write_durable(blocks.start, data.clone(), WRITE),
            Durable::Later => object.write_at(blocks.start, data.clone(), CHANGE),
        };
        let (loaded, written) = join(self.load(extent, &pages, &blocks), write).await;
        written.map_err(|e| self.failed(e))?;
        loaded?;
        unsure.known(|sums, first, at, count| {
            sums.set_written(first, &data[at..at + count * BLOCK as usize]);
        });
        if durable == Durable::Later {
            self.note_unsynced(Arc::clone(extent));
        }
        Ok(())
    }

    /// The whole blocks around bytes that begin or end inside of one. The caller has claimed them.
    async fn complete(
        &self,
        extent: &Arc<Extent>,
        pages: &[Arc<Page>],
        range: &Range<u64>,
        data: &[u8],
    ) -> Result<IoBuf> {
        let blocks = outward(range);
        self.load(extent, pages, &blocks).await?;
        let mut whole = IoBufMut::zeroed((blocks.end - blocks.start) as usize);
        let last = blocks.end - BLOCK;
        let cut = [
            (range.start > blocks.start).then_some(blocks.start),
            (range.end < blocks.end && (last > blocks.start || range.start == blocks.start))
                .then_some(last),
        ];
        for block in cut.into_iter().flatten() {
            let of = block..block + BLOCK;
            let page = (block / REGION - blocks.start / REGION) as usize;
            let into = IoBufMut::zeroed(BLOCK as usize);
            let read = self.read_claimed(extent, &pages[page..=page], &of, into).await?;
            let at = (block - blocks.start) as usize;
            whole[at..at + BLOCK as usize].copy_from_slice(&read);
        }
        let at = (range.start - blocks.start) as usize;
        whole[at..at + data.len()].copy_from_slice(data);
        Ok(whole.freeze())
    }

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
        for Piece { extent, range, .. } in self.pieces_to_zero(&range, room) {
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

    /// The pieces of a range that are not zeros yet, or need room.
    fn pieces_to_zero(&self, range: &Range<u64>, room: Zeros) -> Vec<Piece> {
        match room {
            Zeros::Keep => self.shape.pieces(range).collect(),
            Zeros::Free => {
                let present = self.extents.present(self.shape.numbers(range)).into_iter();
                present.map(|number| self.shape.piece(range, number)).collect()
            }
        }
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
    pub(super) async fn cut(&self, range: Range<u64>) -> Result<()> {
        self.free(&range).await?;
        self.make_durable().await
    }

    /// Makes whole blocks zeros, and gives back their room.
    async fn free(&self, range: &Range<u64>) -> Result<()> {
        let pieces = self.pieces_to_zero(range, Zeros::Free);
        let (whole, parts): (Vec<_>, Vec<_>) =
            pieces.into_iter().partition(|piece| self.is_whole(piece));
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
                return self.zero_claimed(&extent, &range, room).await;
            }
        }
    }

    async fn zero_claimed(
        &self,
        extent: &Arc<Extent>,
        range: &Range<u64>,
        room: Zeros,
    ) -> Result<()> {
        self.settle(extent, range).await?;
        let pages = self.pages(extent, range).await;
        self.load(extent, &pages, range).await?;
        if room == Zeros::Keep {
            self.shared.room.take(new_bytes(&pages, range)).await?;
        }
        let object = self.object(extent).await?;
        let _writing = self.mark(extent, range).await?;
        let unsure = Unsure { device: self, extent, pages: &pages, range };
        match object.zero(range.start, range.end - range.start, room, CHANGE).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                self.write_zeros(object, range).await?;
            }
            zeroed => zeroed.map_err(|e| self.failed(e))?,
        }
        unsure.known(|sums, first, _, count| {
            (first..first + count).for_each(|block| sums.set(block, Known::Zeros));
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

    /// An extent, if it exists.
    pub(super) async fn extent(&self, number: u64) -> Result<Option<Arc<Extent>>> {
        loop {
            match self.extents.get(number).map_err(|e| self.failed(e))? {
                Some(extent) if extent.is_gone() => self.finish_removal(number).await?,
                extent => return Ok(extent),
            }
        }
    }

    /// An extent, which is made if it does not exist.
    async fn extent_or_new(&self, number: u64) -> Result<Arc<Extent>> {
        loop {
            self.must_live()?;
            if self.extents.get(number).map_err(|e| self.failed(e))?.is_none() {
                self.shared.room.take(self.shape.object() - self.shape.extent()).await?;
            }
            let extent = self.extents.get_or_create(number).await.map_err(|e| self.failed(e))?;
            if !extent.is_gone() {
                return Ok(extent);
            }
            self.finish_removal(number).await?;
        }
    }

    /// Waits for the removal of an extent, and ends one that was given up half-way.
    async fn finish_removal(&self, number: u64) -> Result<()> {
        let forget = |incarnation| self.shared.pages.forget(incarnation, self.shape.regions);
        let finished = self.extents.finish_removal(number, forget).await;
        self.removed.store(true, Ordering::Release);
        finished.map_err(|e| self.failed(e))
    }

    /// Removes extents: their bytes are zeros, and their room is free.
    pub(super) async fn remove(&self, numbers: &[u64]) -> Result<()> {
        for some in numbers.chunks(REMOVED_TOGETHER) {
            let forget = |incarnation| self.shared.pages.forget(incarnation, self.shape.regions);
            let removed = self.extents.remove(some, forget).await;
            // Only now: a flush in between would have taken it for durable.
            self.removed.store(true, Ordering::Release);
            removed.map_err(|e| self.failed(e))?;
            // By now there may be others in their place.
            self.unsynced.lock().retain(|_, extent| !extent.is_gone());
            for number in some {
                let base = number * self.shape.extent();
                self.shared.damaged.mended(self.id, base..base + self.shape.extent());
            }
        }
        Ok(())
    }

    async fn flush_if(&self, durable: Durable) -> Result<()> {
        match durable == Durable::Now || self.shared.options.durable {
            true => self.make_durable().await,
            false => Ok(()),
        }
    }

    pub(super) async fn flush(&self) -> Result<()> {
        self.begin(&(0..0))?;
        self.shared.counts.flushes.add(1);
        self.make_durable().await
    }

    pub(super) async fn make_durable(&self) -> Result<()> {
        let _in_order = self.flushing.lock().await;
        let mut taken = Unflushed { device: self, extents: BTreeMap::new(), removed: false };
        taken.extents = std::mem::take(&mut *self.unsynced.lock());
        taken.removed = self.removed.swap(false, Ordering::AcqRel);
        let syncs = taken.extents.values().map(async |extent| match self.object(extent).await {
            Ok(object) => match object.sync(WRITE).await {
                Err(_) if !self.extents.has(extent) => Ok(()),
                synced => synced.map_err(|e| self.failed(e)),
            },
            Err(_) if !self.extents.has(extent) => Ok(()),
            Err(error) => Err(error),
        });
        all(join_all(syncs).await)?;
        if taken.removed {
            self.marks.sync().await.map_err(|e| self.failed(e))?;
        }
        taken.extents.clear();
        taken.removed = false;
        Ok(())
    }

    pub(super) async fn extents_of(&self, range: Range<u64>, most: usize) -> Result<Vec<Part>> {
        self.begin(&range)?;
        let mut found = Vec::new();
        let mut end = range.start;
        for Piece { extent: number, range: inside, .. } in self.pieces_to_zero(&range, Zeros::Free)
        {
            let base = number * self.shape.extent();
            parts::push(&mut found, end..base + inside.start, true);
            end = base + inside.end;
            let Some(extent) = self.extent(number).await? else {
                parts::push(&mut found, base + inside.start..end, true);
                continue;
            };
            self.settle(&extent, &inside).await?;
            let object = self.object(&extent).await?;
            let of = object.extents(inside.start, inside.end - inside.start).await;
            for Part { range, is_hole } in of.map_err(|e| self.failed(e))? {
                parts::push(&mut found, base + range.start..base + range.end, is_hole);
            }
            if found.len() > most {
                end = range.end;
                break;
            }
        }
        parts::push(&mut found, end..range.end, true);
        found.truncate(most);
        // The extents of a deleted device are gone.
        self.must_live()?;
        Ok(found)
    }

    /// Loads the checksums of a range, as many as fit.
    pub(super) async fn prefetch(&self, range: Range<u64>) -> Result<()> {
        self.begin(&range)?;
        let most = self.shared.options.checksum_bytes / 4 * (BLOCK / 4);
        let range = range.start..range.end.min(range.start.saturating_add(most));
        for Piece { extent, range, .. } in self.pieces_to_zero(&range, Zeros::Free) {
            if let Some(extent) = self.extent(extent).await? {
                self.settle(&extent, &range).await?;
                let pages = self.pages(&extent, &range).await;
                self.load(&extent, &pages, &range).await?;
            }
        }
        Ok(())
    }

    /// Gives all copies of regions that a crash left in doubt the same bytes, and forgets their checksums.
    async fn settle(&self, extent: &Extent, range: &Range<u64>) -> Result<()> {
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
        // Holes are zeros, unless somebody has written there since.
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

    /// Waits until the marks of a range are durable. Its regions are not cleaned before the answer is dropped.
    async fn mark(&self, extent: &Extent, range: &Range<u64>) -> Result<impl Drop + use<'_>> {
        let Range { start, end } = regions_of(range);
        let base = extent.number * self.shape.regions;
        let writing = self.regions.begin(base + start..base + end, self.shared.clock.now());
        for region in base + start..base + end {
            let marked = self.marks.mark(region, &self.shared.counts).await;
            marked.map_err(|e| self.failed(e))?;
        }
        Ok(writing)
    }

    /// The pages of a range, which may not be loaded yet.
    async fn pages(&self, extent: &Extent, range: &Range<u64>) -> Vec<Arc<Page>> {
        if self.shared.pages.is_crowded() {
            self.write_some_pages(CHANGE).await;
        }
        let of = |region| self.shared.pages.get((extent.incarnation, region));
        regions_of(range).map(of).collect()
    }

    /// Loads the pages of a range.
    async fn load(&self, extent: &Extent, pages: &[Arc<Page>], range: &Range<u64>) -> Result<()> {
        for (page, region) in pages.iter().zip(regions_of(range)) {
            self.load_page(extent, page, region, READ).await?;
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
        if page.is_loaded() {
            return Ok(());
        }
        let number = extent.number * self.shape.regions + region;
        let object = self.object(extent).await?;
        self.shared.counts.checksum_fetches.add(1);
        let read =
            object.read_at(self.shape.slot(region), IoBufMut::zeroed(SLOT as usize), io).await;
        let read = read.map_err(|e| self.failed(e))?;
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

    pub(super) async fn object<'a>(&self, extent: &'a Extent) -> Result<&'a Arc<dyn Object>> {
        self.extents.object(extent).await.map_err(|e| self.failed(e))
    }

    fn note_unsynced(&self, extent: Arc<Extent>) {
        if self.extents.has(&extent) {
            self.unsynced.lock().insert(extent.number, extent);
        }
    }
}

/// Changes that are being made durable; they stay unsynced if that fails, or is given up.
struct Unflushed<'a> {
    device: &'a Device,
    extents: BTreeMap<u64, Arc<Extent>>,
    removed: bool,
}

impl Drop for Unflushed<'_> {
    fn drop(&mut self) {
        std::mem::take(&mut self.extents)
            .into_values()
            .for_each(|extent| self.device.note_unsynced(extent));
        if self.removed {
            self.device.removed.store(true, Ordering::Release);
        }
    }
}

/// Blocks that are being changed. Unless it ends well, nothing is known of them.
struct Unsure<'a> {
    device: &'a Device,
    extent: &'a Extent,
    pages: &'a [Arc<Page>],
    range: &'a Range<u64>,
}

impl Unsure<'_> {
    /// The change took effect. `set` gets the checksums of each region, the first block changed in it, where its bytes
    /// are in the range, and the number of blocks.
    fn known(self, mut set: impl FnMut(&mut Sums, usize, usize, usize)) {
        for (page, blocks, at) in self.blocks() {
            page.change(|sums| set(sums, blocks.start, at, blocks.len()));
        }
        let base = self.extent.number * self.device.shape.extent();
        let range = base + self.range.start..base + self.range.end;
        self.device.shared.damaged.mended(self.device.id, range);
        std::mem::forget(self);
    }

    /// The blocks of the range in each page, and where their bytes are in the range.
    fn blocks(&self) -> impl Iterator<Item = (&Arc<Page>, Range<usize>, usize)> {
        let Range { start, end } = *self.range;
        self.pages.iter().zip(regions_of(self.range)).map(move |(page, region)| {
            let base = region * REGION;
            let (from, to) = (start.max(base), end.min(base + REGION));
            let blocks = ((from - base) / BLOCK) as usize..((to - base) / BLOCK) as usize;
            (page, blocks, (from - start) as usize)
        })
    }
}

impl Drop for Unsure<'_> {
    fn drop(&mut self) {
        for ((page, blocks, _), region) in self.blocks().zip(regions_of(self.range)) {
            // Copies may differ, too, or become different when a volume that hangs answers.
            page.doubt(blocks);
            let number = self.extent.number * self.device.shape.regions + region;
            self.device.regions.set_doubt(number, self.device.shared.clock.now());
        }
    }
}

/// What a comparison with checksums shows.
enum Compared {
    /// The bytes are those that were written.
    Same,
    /// They are not, or they are those of a write under way, or nobody knows.
    Unsure,
}

/// Compares blocks with their checksums. Those that are zeros are made so.
fn compare(pages: &[Arc<Page>], range: &Range<u64>, bytes: &mut [u8]) -> Compared {
    let mut same = true;
    let mut rest = bytes;
    for (page, region) in pages.iter().zip(regions_of(range)) {
        let end = range.end.min((region + 1) * REGION);
        let from = range.start.max(region * REGION);
        let (part, after) = rest.split_at_mut((end - from) as usize);
        rest = after;
        let first = block_of(from);
        let compared = page.look(|sums| {
            part.chunks_exact_mut(BLOCK as usize).enumerate().all(|(at, block)| {
                match sums.get(first + at) {
                    Known::Zeros => {
                        block.fill(0);
                        true
                    }
                    Known::Unverified => false,
                    wanted @ Known::Sum(_) => sum(block) == wanted,
                }
            })
        });
        same &= compared.unwrap_or(false);
    }
    if same { Compared::Same } else { Compared::Unsure }
}

/// The bytes of the blocks that have no room yet; those whose page is not loaded may have none.
fn new_bytes(pages: &[Arc<Page>], range: &Range<u64>) -> u64 {
    let of = |(page, region): (&Arc<Page>, u64)| {
        let from = range.start.max(region * REGION);
        let count = ((range.end.min((region + 1) * REGION) - from) / BLOCK) as usize;
        let first = block_of(from);
        let zeros = |sums: &Sums| {
            (first..first + count).filter(|&block| sums.get(block) == Known::Zeros).count()
        };
        page.look(zeros).unwrap_or(count) as u64 * BLOCK
    };
    pages.iter().zip(regions_of(range)).map(of).sum()
}

fn all_zeros(pages: &[Arc<Page>], range: &Range<u64>) -> bool {
    pages.iter().zip(regions_of(range)).all(|(page, region)| {
        let from = block_of(range.start.max(region * REGION));
        let to = range.end.min((region + 1) * REGION);
        let to = from + ((to - range.start.max(region * REGION)) / BLOCK) as usize;
        let zeros = |sums: &Sums| (from..to).all(|block| sums.get(block) == Known::Zeros);
        page.look(zeros).unwrap_or(false)
    })
}

/// The number in its region of the block at an offset of an extent.
const fn block_of(offset: u64) -> usize {
    (offset % REGION / BLOCK) as usize
}

/// Objects have all bytes of an extent from their creation on. Should one lack some, its checksums tell.
fn whole(read: &mut IoBufMut, len: usize) {
    let got = read.len();
    if got < len {
        read.resize(len);
        read[got..].fill(0);
    }
}

/// The first error, after all calls have ended.
fn all(results: Vec<Result<()>>) -> Result<()> {
    results.into_iter().collect()
}

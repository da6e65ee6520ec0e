//! One device: its bytes in extents, each block with a checksum.
//!
//! ```text
//!   write ─▶ claim of the blocks ─▶ mark of the region, once ─▶ bytes ─▶ checksums, in memory
//!   read  ─▶ bytes, checked by the checksums ─▶ else once more with a claim ─▶ else from another copy
//! ```
//! A write takes effect for readers when its checksums are in memory. A reader takes no claim: bytes that do not fit the
//! checksums may be those of a write under way, so it then claims the blocks, which waits for that write.

mod blocks;
mod change;
mod clean;
mod expected;
mod flush;
mod holes;
mod load;
mod read;
mod scrub;
mod settle;
mod write;
mod zero;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;
use policy::contract::Direction;
use policy::purpose::{Io, Origin, Step};
use tokio::sync::Semaphore;
use volume::{Extent as Part, IoBuf, IoBufMut, Object};

use super::super::{BlockDevice, Durable, Error, Geometry, Lease, Pending, Result, Zeros, within};
use super::extents::{Extent, Extents};
use super::failure::failed;
use super::figures::DeviceCounts;
use super::limiter::Limiter;
use super::marks::Marks;
use super::pace::Pace;
use super::regions::Regions;
use super::shape::{BLOCK, Piece, Shape};
use super::{Shared, table};

const READ: Io = Io::new(Origin::UserRead, Step::Data);
/// A user waits until it is durable.
const WRITE: Io = Io::new(Origin::UserWrite, Step::Data);
/// A user waits, but not for its durability.
const CHANGE: Io = Io::new(Origin::UserChange, Step::Data);

/// The most writes of a device that are at the gate and need not be durable yet: a read waits behind no more of them.
const WRITES_MAX: usize = 32;
/// The number of extents that are removed at once.
const REMOVED_TOGETHER: usize = 64;
/// The number of regions that are settled at once. More would keep the first users waiting longer.
const SETTLED_TOGETHER: usize = 2;

/// A device of a store.
pub(super) struct Device {
    pub(super) id: table::Id,
    name: String,
    pub(super) size: AtomicU64,
    pub(super) shape: Shape,
    shared: Arc<Shared>,
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
    written: AtomicU64,
    pace: Mutex<Pace>,
    pub(super) limiter: Limiter,
    /// As the table has it.
    pub(super) lease: Mutex<Lease>,
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
            lease: Mutex::new(row.lease.clone()),
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

    fn failed(&self, error: volume::Error) -> Error {
        match failed(format_args!("device {}", self.name), error) {
            Error::OutOfSpace(why) => Error::OutOfSpace(self.shared.room.refuse(&why)),
            other => other,
        }
    }

    /// An extent, if it exists.
    async fn extent(&self, number: u64) -> Result<Option<Arc<Extent>>> {
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
            let got = self.extents.get_or_create(number).await;
            let (extent, is_new) = got.map_err(|e| self.failed(e))?;
            self.shared.counts.extents_made.add(u64::from(is_new));
            if !extent.is_gone() {
                return Ok(extent);
            }
            self.finish_removal(number).await?;
        }
    }

    /// The pieces of a range in extents that exist. All other bytes of it are zeros.
    fn present(&self, range: &Range<u64>) -> Vec<Piece> {
        let numbers = self.extents.present(self.shape.numbers(range)).into_iter();
        numbers.map(|number| self.shape.piece(range, number)).collect()
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

    async fn object<'a>(&self, extent: &'a Extent) -> Result<&'a Arc<dyn Object>> {
        self.extents.object(extent).await.map_err(|e| self.failed(e))
    }
}

impl BlockDevice for Device {
    fn geometry(&self) -> Geometry {
        Geometry {
            size: self.size(),
            block: BLOCK as u32,
            writes_are_durable: self.shared.options.durable,
        }
    }

    fn read(&self, offset: u64, into: IoBufMut) -> Pending<'_, IoBufMut> {
        Box::pin(Self::read(self, offset, into))
    }

    fn write(&self, offset: u64, data: IoBuf, durable: Durable) -> Pending<'_, ()> {
        Box::pin(Self::write(self, offset, data, durable))
    }

    fn zero(
        &self,
        range: Range<u64>,
        room: Zeros,
        fast: bool,
        durable: Durable,
    ) -> Pending<'_, ()> {
        Box::pin(Self::zero(self, range, room, fast, durable))
    }

    fn discard(&self, range: Range<u64>, durable: Durable) -> Pending<'_, ()> {
        Box::pin(Self::discard(self, range, durable))
    }

    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(Self::flush(self))
    }

    fn extents(&self, range: Range<u64>, most: usize) -> Pending<'_, Vec<Part>> {
        Box::pin(self.extents_of(range, most))
    }

    fn prefetch(&self, range: Range<u64>) -> Pending<'_, ()> {
        Box::pin(Self::prefetch(self, range))
    }
}

/// The first error, after all calls have ended.
fn all(results: Vec<Result<()>>) -> Result<()> {
    results.into_iter().collect()
}

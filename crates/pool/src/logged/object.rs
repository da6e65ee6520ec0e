//! An object in place that is kept as fragments, with what the log has newer than its places.

use std::ops::Range;
use std::sync::Arc;

use futures_util::lock::{Mutex as AsyncMutex, MutexGuard};
use policy::placement::Code;
use policy::purpose::Io;
use policy::recycle::BLOCK;
use volume::{
    Check, Error, ErrorKind, Expected, Extent, IoBuf, IoBufMut, Object, Pending, ReadTime, Result,
    Zeros, extent,
};

use super::Shared;
use super::log::Log;
use super::record::Record;
use super::value::Value;
use crate::spread::{Handle, Spread, WriteLock};

/// An object, whatever number of handles it has.
pub(super) struct Base {
    pub(super) handle: Handle,
    pub(super) code: Code,
    /// Shared by changes of whole blocks, whose order the log decides. One of a part of a block excludes them, since it reads
    /// the rest of the block first.
    changes: WriteLock,
    /// Locked from a change of the length until the log has the bytes, and while object and length are made durable.
    resizing: AsyncMutex<()>,
}

/// A handle of it, for one store.
pub(super) struct Logged {
    shared: Arc<Shared>,
    base: Arc<Base>,
    /// The store's handle of the pool.
    spread: Spread,
}

impl Base {
    pub(super) fn new(handle: Handle, code: Code) -> Self {
        Self { handle, code, changes: WriteLock::default(), resizing: AsyncMutex::default() }
    }

    /// Makes the object durable as it is now: first what the log has of it, then its length. So a crash leaves no byte of it
    /// that nobody wrote.
    ///
    /// # Errors
    /// Those of the pool.
    pub(super) async fn commit(&self, log: &Log) -> Result<()> {
        let _alone = self.resizing.lock().await;
        log.write_abandoned().await;
        log.sync().await?;
        self.handle.sync(SYNC).await
    }

    /// Whether a sync of the log makes the first `end` bytes durable.
    pub(super) fn is_committed(&self, end: u64) -> bool {
        self.handle.is_committed(end)
    }

    /// Blocks of a row.
    pub(super) fn width(&self) -> u64 {
        self.code.strip() * self.code.data() as u64 / BLOCK
    }
}

/// The blocks that have a byte of the range.
fn outward(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK..range.end.div_ceil(BLOCK)
}

fn bytes_of(blocks: &Range<u64>) -> Range<u64> {
    blocks.start * BLOCK..blocks.end * BLOCK
}

impl Logged {
    pub(super) const fn new(shared: Arc<Shared>, base: Arc<Base>, spread: Spread) -> Self {
        Self { shared, base, spread }
    }

    fn id(&self) -> crate::leaf::ObjectId {
        self.base.handle.id()
    }

    /// Reads a range, as far as the object has it.
    async fn read(&self, offset: u64, mut into: IoBufMut, io: Io) -> Result<IoBufMut> {
        self.shared.blocks.write_abandoned().await;
        let range = extent::within(offset, into.len() as u64, self.base.handle.len());
        into.resize((range.end - range.start) as usize);
        if range.is_empty() {
            return Ok(into);
        }
        let blocks = outward(&range);
        let newer = self.shared.blocks.look_up(self.id(), blocks.clone());
        let mut read = match newer.len() as u64 == blocks.end - blocks.start {
            true => into,
            false => self.base.handle.read_at(offset, into, io).await?,
        };
        self.overlay(&range, newer, &mut read, io).await?;
        Ok(read)
    }

    /// Puts newer blocks over what was read of a range.
    async fn overlay(
        &self,
        range: &Range<u64>,
        newer: Newer,
        read: &mut [u8],
        io: Io,
    ) -> Result<()> {
        let mut newer = newer.into_iter().peekable();
        while let Some((first, entry, file)) = newer.next() {
            let Value::Stored(place) = entry.value else {
                put(range, first, &[0; BLOCK as usize], read);
                continue;
            };
            let Some(file) = file else {
                let what = format!("object {}: block {first} is in no file of the log", self.id());
                return Err(Error::new(ErrorKind::Corrupt, what));
            };
            let mut checksums = vec![place.checksum];
            // Blocks that follow each other in the object and in the file are read together.
            while let Some((block, next, _)) = newer.peek()
                && let Value::Stored(other) = next.value
                && *block == first + checksums.len() as u64
                && other.file == place.file
                && other.at == place.at + checksums.len() as u64 * BLOCK
            {
                checksums.push(other.checksum);
                newer.next();
            }
            let bytes = self.shared.blocks.read(&file, place.at, &checksums, io).await?;
            put(range, first, &bytes, read);
        }
        Ok(())
    }

    async fn write(&self, offset: u64, data: IoBuf, durable: bool, io: Io) -> Result<()> {
        let Some(end) = offset.checked_add(data.len() as u64) else {
            let what = format!("object {}: a write ends beyond 2^64 bytes", self.id());
            return Err(Error::new(ErrorKind::Invalid, what));
        };
        if data.is_empty() {
            return Ok(());
        }
        let range = offset..end;
        self.shared.blocks.write_abandoned().await;
        let blocks = outward(&range);
        self.shared.make_room(self.id(), blocks.clone()).await?;
        let longer = match end > self.base.handle.len() {
            true => Some(self.lengthen(end).await?),
            false => None,
        };
        if bytes_of(&blocks) == range {
            let _shared = self.base.changes.shared(range.start).await;
            let record = self.record(&blocks, &data);
            match durable && self.base.is_committed(end) {
                true => self.shared.blocks.append_durably([(record, vec![data])]).await?,
                false => self.shared.blocks.append([(record, vec![data])]).await?,
            };
            self.note_latest(blocks).await;
        } else {
            let _exclusive = self.base.changes.exclusive().await;
            let data = self.complete(&range, &blocks, &data, io).await?;
            self.shared.blocks.append([(self.record(&blocks, &data), vec![data])]).await?;
            self.note_latest(blocks).await;
        }
        drop(longer);
        if durable { self.make_durable(end).await } else { Ok(()) }
    }

    /// Makes the first `end` bytes durable, with the object. Where the manifest has it and its length, that is a sync of the
    /// log, or nothing if this is durable.
    async fn make_durable(&self, end: u64) -> Result<()> {
        match self.base.is_committed(end) {
            true => self.shared.blocks.sync().await?,
            false => self.base.commit(&self.shared.blocks).await?,
        }
        // Another caller may have recorded the length a moment ago.
        self.base.handle.recorded().await
    }

    fn record(&self, blocks: &Range<u64>, data: &[u8]) -> Record {
        let checksums = data.chunks_exact(BLOCK as usize).map(crc32c::crc32c).collect();
        Record::Blocks { object: self.id(), block: blocks.start, checksums }
    }

    /// Completes bytes that begin or end inside of a block to whole blocks. The caller excludes other changes.
    async fn complete(
        &self,
        range: &Range<u64>,
        blocks: &Range<u64>,
        data: &[u8],
        io: Io,
    ) -> Result<IoBuf> {
        let whole = bytes_of(blocks);
        let mut bytes = IoBufMut::zeroed((whole.end - whole.start) as usize);
        let last = whole.end - BLOCK;
        for at in [
            (range.start > whole.start).then_some(whole.start),
            (range.end < whole.end).then_some(last),
        ] {
            let Some(at) = at else { continue };
            let read = self.read(at, IoBufMut::zeroed(BLOCK as usize), io).await?;
            let from = (at - whole.start) as usize;
            bytes[from..from + read.len()].copy_from_slice(&read);
        }
        let from = (range.start - whole.start) as usize;
        bytes[from..from + data.len()].copy_from_slice(data);
        Ok(bytes.freeze())
    }

    /// Makes the object longer. No length is recorded before the returned lock is dropped: by then the log has the new bytes.
    ///
    /// # Errors
    /// `OutOfSpace`: its length is as before.
    async fn lengthen(&self, len: u64) -> Result<MutexGuard<'_, ()>> {
        let alone = self.base.resizing.lock().await;
        self.base.handle.extend_fragments(len).await?;
        self.base.handle.grow(len).await;
        Ok(alone)
    }

    async fn zero(&self, offset: u64, len: u64, io: Io) -> Result<()> {
        let range = extent::within(offset, len, self.base.handle.len());
        if range.is_empty() {
            return Ok(());
        }
        let inner = range.start.div_ceil(BLOCK)..range.end / BLOCK;
        // A block that the object ends in is whole.
        let inner = match range.end == self.base.handle.len() {
            true => inner.start..range.end.div_ceil(BLOCK),
            false => inner,
        };
        if inner.is_empty() {
            let zeros = IoBufMut::zeroed((range.end - range.start) as usize).freeze();
            return self.write(range.start, zeros, false, io).await;
        }
        let whole = bytes_of(&inner);
        for edge in [range.start..whole.start, whole.end..range.end.max(whole.end)] {
            if !edge.is_empty() {
                let zeros = IoBufMut::zeroed((edge.end - edge.start) as usize).freeze();
                self.write(edge.start, zeros, false, io).await?;
            }
        }
        self.shared.blocks.write_abandoned().await;
        self.shared.make_room(self.id(), inner.clone()).await?;
        let _shared = self.base.changes.shared(whole.start).await;
        let count = inner.end - inner.start;
        let record = Record::Zeros { object: self.id(), block: inner.start, count };
        self.shared.blocks.append([(record, Vec::new())]).await?;
        self.note_latest(inner).await;
        Ok(())
    }

    /// Takes note of what the store knows of blocks that were in place until now. This call is under way, so that is their
    /// value in place.
    async fn note_latest(&self, blocks: Range<u64>) {
        let (log, object) = (&self.shared.blocks, self.id());
        if !log.with_index(|index| index.lacks_sums(object, blocks.clone())) {
            return;
        }
        let name = self.base.handle.object_name();
        let expected = self.spread.expected(name, blocks.clone(), None).await;
        log.with_index(|index| {
            for (block, expected) in blocks.zip(expected) {
                let sum = match expected {
                    Expected::Sum(sum) => Some(sum),
                    Expected::Unchecked | Expected::Unknown => None,
                };
                index.was(object, block, sum);
            }
        });
    }

    async fn resize(&self, len: u64) -> Result<()> {
        let old = self.base.handle.len();
        if len >= old {
            return self.lengthen(len).await.map(drop);
        }
        // Parity is computed with zeros behind the end.
        self.zero(len, old - len, SYNC).await?;
        self.shared.blocks.sync().await?;
        let width = self.base.width() * BLOCK;
        self.shared.bring_in_place(&self.base, len / width..old.div_ceil(width)).await?;
        let _alone = self.base.resizing.lock().await;
        let _all = self.base.changes.exclusive().await;
        self.base.handle.set_len(len).await?;
        self.base.handle.sync(SYNC).await
    }

    async fn read_checked(
        &self,
        offset: u64,
        len: usize,
        io: Io,
        check: Check,
    ) -> Result<IoBufMut> {
        let read = self.read(offset, IoBufMut::zeroed(len), io).await?;
        // Blocks of the log have checksums, and were compared with them. What is in place below them is older than the
        // check, so it is as good as unread: their columns are verified once they are in place.
        let range = extent::within(offset, len as u64, self.base.handle.len());
        let newer = self.shared.blocks.look_up(self.id(), outward(&range));
        let mut over = vec![None; (range.end - range.start) as usize];
        for (block, ..) in &newer {
            let of = bytes_of(&(*block..block + 1));
            for at in of.start.max(range.start)..of.end.min(range.end) {
                let at = (at - range.start) as usize;
                over[at] = read.get(at).copied();
            }
        }
        let unseen: Vec<_> =
            newer.iter().map(|(block, ..)| bytes_of(&(*block..block + 1))).collect();
        let overlaid = move |bytes: &[u8]| -> Vec<u8> {
            bytes.iter().zip(&over).map(|(&old, new)| new.unwrap_or(old)).collect()
        };
        let with = overlaid.clone();
        let check = Arc::new(move |bytes: &[u8]| check(&with(bytes)));
        let Base { handle, code, .. } = &*self.base;
        let read = handle.read_again_below(*code, (offset, len), io, check, &unseen).await?;
        Ok(IoBufMut::from(&overlaid(&read)[..]))
    }
}

type Newer = Vec<(u64, super::index::Entry, Option<Arc<super::log::File>>)>;

/// Copies the bytes of blocks from `first` on into what was read of a range.
fn put(range: &Range<u64>, first: u64, bytes: &[u8], read: &mut [u8]) {
    let from = first * BLOCK;
    let (start, end) = (from.max(range.start), (from + bytes.len() as u64).min(range.end));
    if start < end {
        let bytes = &bytes[(start - from) as usize..(end - from) as usize];
        read[(start - range.start) as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

/// Changes of length, which callers wait for.
const SYNC: Io = Io::new(policy::purpose::Origin::UserWrite, policy::purpose::Step::Data);

#[deny(clippy::missing_trait_methods)]
impl Object for Logged {
    fn read_at(&self, offset: u64, into: IoBufMut, io: Io) -> Pending<'_, IoBufMut> {
        Box::pin(self.read(offset, into, self.spread.tag(io)))
    }

    fn write_at(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        Box::pin(self.write(offset, data, false, self.spread.tag(io)))
    }

    fn write_durable(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        Box::pin(self.write(offset, data, true, self.spread.tag(io)))
    }

    fn blocking_read_at(&self, offset: u64, into: &mut [u8], io: Io) -> Result<usize> {
        volume::blocking::read_at(self, offset, into, io)
    }

    fn blocking_write_at(&self, offset: u64, data: &[u8], io: Io) -> Result<()> {
        volume::blocking::write_at(self, offset, data, io)
    }

    fn len(&self) -> u64 {
        self.base.handle.len()
    }

    fn is_log(&self) -> bool {
        false
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn zero(&self, offset: u64, len: u64, _room: Zeros, io: Io) -> Pending<'_, ()> {
        Box::pin(self.zero(offset, len, self.spread.tag(io)))
    }

    fn extents(&self, offset: u64, len: u64) -> Pending<'_, Vec<Extent>> {
        extent::all_data(self, offset, len)
    }

    fn set_len(&self, len: u64) -> Pending<'_, ()> {
        Box::pin(self.resize(len))
    }

    fn read_again(
        &self,
        offset: u64,
        into: IoBufMut,
        io: Io,
        check: Check,
    ) -> Pending<'_, IoBufMut> {
        Box::pin(self.read_checked(offset, into.len(), self.spread.tag(io), check))
    }

    /// Nothing is in doubt: after a crash the log says what each block is.
    fn align(&self, _offset: u64, _len: u64, _io: Io) -> Pending<'_, ()> {
        volume::ready(Ok(()))
    }

    /// That of its place, although the log may have it in memory.
    fn expected_read(&self, offset: u64, len: u64) -> ReadTime {
        self.base.handle.expected_read(offset, len)
    }

    fn sync_ahead(&self, more: u64, io: Io) -> Pending<'_, bool> {
        volume::ahead::sync(self, more, io)
    }

    fn seal(&self, _io: Io) -> Pending<'_, ()> {
        let what = format!("object {}: one that is written in place is never sealed", self.id());
        volume::ready(Err(Error::new(ErrorKind::Invalid, what)))
    }

    fn sync(&self, _io: Io) -> Pending<'_, ()> {
        Box::pin(async move {
            self.shared.blocks.write_abandoned().await;
            self.make_durable(self.len()).await
        })
    }
}

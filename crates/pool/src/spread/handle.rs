//! An open object of a pool: routes its reads and writes to copies.

use std::ops::Range;
use std::sync::Arc;

use futures_util::future::join_all;
use policy::placement::{Piece, VolumeId};
use policy::purpose::{Origin, Step};
use policy::units::MIB;
use volume::task::block_on;
use volume::{
    Check, Error, ErrorKind, Extent, Io, IoBuf, IoBufMut, Name, Object, Pending, ReadTime, Result,
    Zeros, blocking, extent,
};

use super::hashing::Hashing;
use super::inode::{Inode, Replica, Way, name_part};
use super::{Parts, Spread};
use crate::leaf::{Kind, ObjectId};

/// An open object of a pool.
///
/// A read goes to the copy with the shortest expected wait at its gate. If that copy fails, the read tries
/// the others: an error means that no copy could answer.
pub struct Handle {
    pool: Spread,
    inode: Arc<Inode>,
}

/// Synced bytes of a log without a checksum in the manifest, at most: a crash makes the pool read them from each copy.
/// An edit of some 60 bytes for each 4 MiB is nothing beside them.
pub(super) const UNRECORDED_MAX: u64 = 4 * MIB;

impl Spread {
    pub(super) fn handle(&self, inode: Arc<Inode>) -> Handle {
        inode.open_handle();
        Handle { pool: self.clone(), inode }
    }

    /// As `open` of the volume, with a handle that knows its object's id.
    ///
    /// # Errors
    /// `NotFound`; for a log also `Unavailable`: only its leaf object has its length.
    pub async fn open_handle(&self, name: &Name) -> Result<Handle> {
        let handle = self.handle(self.0.catalog.inode(name)?);
        self.know_len(&handle.inode).await?;
        Ok(handle)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.inode.close_handle();
    }
}

impl Handle {
    /// The number of the object, which is never reused: the key of caches and heat.
    #[must_use]
    pub fn id(&self) -> ObjectId {
        self.inode.id
    }

    pub(crate) fn object_name(&self) -> &Name {
        &self.inode.name
    }

    /// The volume for the byte at `offset` of the first copy, existing or not.
    #[must_use]
    pub fn volume_at(&self, offset: u64) -> VolumeId {
        self.inode.volume_at(offset)
    }

    pub(super) fn pool(&self) -> &Parts {
        &self.pool.0
    }

    pub(super) const fn spread(&self) -> &Spread {
        &self.pool
    }

    pub(super) const fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    /// [`Catalog::lose`](super::catalog::Catalog::lose) for this object.
    pub(super) fn lose(&self, numbers: &[u64], whole: &[u64], why: &str) -> bool {
        let pool = &self.pool.0;
        if self.keeps_outdated() {
            let is_sound = |number: &&u64| !pool.damages.has_found(self.inode.id, **number);
            numbers.iter().filter(is_sound).for_each(|&number| self.inode.outdate(number));
        }
        pool.catalog.lose(&self.inode, numbers, whole, why, &pool.replication)
    }

    /// Whether copies that miss a change are kept, to be made new again.
    fn keeps_outdated(&self) -> bool {
        self.inode.kind == Kind::InPlace
            && self.pool().replication.target > 1
            && self.inode.code().is_none()
    }

    /// Notes bytes that a copy may lose although it was written.
    pub(super) fn note_unsynced(&self, range: &Range<u64>) {
        if !range.is_empty() && self.keeps_outdated() {
            self.inode.unsynced.note(range);
        }
    }

    /// The leaf object of a part of a copy.
    pub(super) async fn leaf_of(&self, replica: &Replica, part: usize) -> Result<Arc<dyn Object>> {
        self.inode.leaf(&self.pool.0.journal, replica, part).await
    }

    /// # Errors
    /// `Unsupported`: it is kept as fragments, whose bytes change row by row.
    pub(super) fn must_have_copies(&self) -> Result<()> {
        if self.in_place_code().is_some() {
            let what = format!("{}: it is written through its pool's log only", self.inode.name);
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        Ok(())
    }

    pub(super) fn must_not_be_sealed(&self) -> Result<()> {
        if self.inode.is_sealed() {
            let what = format!("{}: the object is sealed and never changes", self.inode.name);
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        Ok(())
    }

    /// Counts the heat of a read from a volume.
    fn warm(&self, volume: VolumeId, offset: u64, len: u64, io: Io) {
        self.pool.0.placing.heats.count(volume, self.inode.id, offset, len, io);
    }

    /// The number of existing bytes among `len` at `offset`.
    pub(super) fn within(&self, offset: u64, len: usize) -> usize {
        let rest = self.inode.len().saturating_sub(offset);
        usize::try_from(rest).unwrap_or(usize::MAX).min(len)
    }

    async fn read(&self, offset: u64, into: IoBufMut, io: Io) -> Result<IoBufMut> {
        // Bytes that a crash may have left in one copy only are given to all before one of them is read.
        self.pool.settle_to_read(self, offset.saturating_add(into.len() as u64)).await;
        if self.inode.is_overwritten() && self.inode.code().is_none() {
            // One copy may have the new bytes, and the next read ask another.
            self.inode.changes.settled(range(offset, into.len() as u64)).await;
        }
        if self.inode.kind == Kind::InPlace {
            // A copy that lacks bytes was dropped: what is read of the others must stay, also if the process dies now.
            self.pool.0.journal.written(self.inode.lsn()).await?;
        }
        if let Some(code) = self.in_place_code() {
            return self.read_rows(code, offset, into, io).await;
        }
        self.read_now(offset, into, io).await
    }

    /// The same without a wait for changes of the range, and without an alignment of the copies: for a caller that excludes
    /// writes, since both wait for the lock that excludes them.
    pub(super) async fn read_now(
        &self,
        offset: u64,
        mut into: IoBufMut,
        io: Io,
    ) -> Result<IoBufMut> {
        let len = self.within(offset, into.len());
        into.resize(len);
        if len == 0 {
            return Ok(into);
        }
        let (number, failed) = match self.inode.way(offset, len) {
            // Most reads: no second buffer.
            Way::Leaf { leaf, piece, number, volume } => {
                self.warm(volume, offset, piece.len, io);
                match leaf.read_at(piece.inner, into, io).await {
                    Ok(read) => return Ok(padded(read, len)),
                    Err(e) => (number, self.name(number, piece.part, e)),
                }
            }
            Way::Replica(replica) => match self.read_from(&replica, offset, into, io).await {
                Ok(read) => return Ok(read),
                Err(e) => (replica.number, e),
            },
            Way::Fragments(code) => return self.read_fragments(code, offset, into, io).await,
        };
        self.read_elsewhere(offset, len, io, number, failed).await
    }

    /// Reads from other copies after the copy `number` failed.
    #[cold]
    async fn read_elsewhere(
        &self,
        offset: u64,
        len: usize,
        io: Io,
        number: u64,
        mut failed: Error,
    ) -> Result<IoBufMut> {
        if self.inode.code().is_some() {
            self.fragment_failed(number, &failed);
        }
        let mut tried = vec![number];
        let mut suspicious = false;
        let mut damaged = Vec::new();
        damaged.extend(failed.kind().is_damage().then_some(number));
        self.pool.0.damages.tell_if_damaged(&self.inode, number, &failed);
        while another_may(&failed) {
            // It may have got fragments in the place of its copies meanwhile.
            if let Some(code) = self.inode.code() {
                return self.read_fragments(code, offset, IoBufMut::zeroed(len), io).await;
            }
            let Some(replica) = self.inode.choose(&tried, offset, len as u64) else { break };
            if !was_refused(&failed)
                && let Some(last) = tried.last().and_then(|&last| self.inode.replica(last))
            {
                last.avoid();
            }
            tracing::debug!("another copy is asked: {failed}");
            suspicious |= is_suspicious(&failed);
            match self.read_from(&replica, offset, IoBufMut::zeroed(len), io).await {
                Ok(read) => {
                    if suspicious {
                        self.pool.0.replication.suspect(self.inode.id);
                    }
                    self.pool.0.damages.repaired(self.inode.id, &damaged);
                    return Ok(read);
                }
                Err(e) => {
                    self.pool.0.damages.tell_if_damaged(&self.inode, replica.number, &e);
                    damaged.extend(e.kind().is_damage().then_some(replica.number));
                    // Prefer an error of a copy that may answer later.
                    if !failed.kind().is_away() && !was_refused(&failed) {
                        failed = e;
                    }
                }
            }
            tried.push(replica.number);
        }
        Err(failed)
    }

    /// Whether copies were found to differ since a crash, and still may: one can be damaged. A sync ends that.
    pub(crate) fn copies_differ(&self) -> bool {
        self.inode.lead().is_some()
    }

    /// Reads an existing range from one copy; of a fragment, a range of its own bytes.
    pub(super) async fn read_from(
        &self,
        replica: &Replica,
        offset: u64,
        mut into: IoBufMut,
        io: Io,
    ) -> Result<IoBufMut> {
        let len = into.len() as u64;
        let mut pieces = replica.chunks.pieces(offset, len).peekable();
        match pieces.peek() {
            None => return Ok(into),
            Some(&piece) if piece.len == len => {
                return self.read_piece(replica, piece, into, io).await;
            }
            Some(_) => {}
        }
        let reads = pieces.map(async |piece| {
            let part = IoBufMut::zeroed(piece.len as usize);
            (piece.at as usize, self.read_piece(replica, piece, part, io).await)
        });
        for (at, read) in join_all(reads).await {
            let read = read?;
            into[at..at + read.len()].copy_from_slice(&read);
        }
        Ok(into)
    }

    /// Reads the last byte of a copy.
    pub(super) async fn answers(&self, replica: &Replica) -> Result<()> {
        let io = Io::new(Origin::Copy, Step::Data);
        match replica.layout.len(self.inode.len()).checked_sub(1) {
            Some(last) => self.read_from(replica, last, IoBufMut::zeroed(1), io).await.map(drop),
            None => self.leaf_of(replica, 0).await.map(drop),
        }
    }

    /// Reads a piece into a buffer of its length.
    async fn read_piece(
        &self,
        replica: &Replica,
        piece: Piece,
        into: IoBufMut,
        io: Io,
    ) -> Result<IoBufMut> {
        let leaf = self.leaf_of(replica, piece.part).await?;
        let offset = replica.object_offset(piece.part, piece.inner);
        self.warm(replica.volume(piece.part), offset, piece.len, io);
        let read = leaf.read_at(piece.inner, into, io).await;
        let read = read.map_err(|e| name_part(&self.inode, replica, piece.part, e))?;
        Ok(padded(read, piece.len as usize))
    }

    /// The extents of the first copy that answers.
    async fn extents_of(&self, offset: u64, len: u64) -> Result<Vec<Extent>> {
        let range = extent::within(offset, len, self.inode.len());
        self.pool.settle_to_read(self, range.end).await;
        if self.inode.code().is_some() {
            let mut all = Vec::new();
            extent::push(&mut all, range, false);
            return Ok(all);
        }
        let mut failed = None;
        for replica in self.inode.replicas() {
            match self.extents_in(&replica, &range).await {
                Ok(found) => return Ok(found),
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        failed.map_or(Ok(Vec::new()), Err)
    }

    async fn extents_in(&self, replica: &Replica, range: &Range<u64>) -> Result<Vec<Extent>> {
        let mut all = Vec::new();
        for piece in replica.chunks.pieces(range.start, range.end - range.start) {
            let leaf = self.leaf_of(replica, piece.part).await?;
            let found = leaf.extents(piece.inner, piece.len).await;
            let found = found.map_err(|e| name_part(&self.inode, replica, piece.part, e))?;
            let from = range.start + piece.at;
            let mut end = from;
            for Extent { range, is_hole } in found {
                end = from + (range.end - piece.inner);
                extent::push(&mut all, from + (range.start - piece.inner)..end, is_hole);
            }
            // A leaf object is shorter where the object has a gap.
            extent::push(&mut all, end..from + piece.len, true);
        }
        Ok(all)
    }

    /// Adds the names of object and volume to an error of a copy.
    fn name(&self, number: u64, part: usize, e: Error) -> Error {
        match self.inode.replica(number) {
            Some(replica) => name_part(&self.inode, &replica, part, e),
            None => e.within(format_args!("{} (object {})", self.inode.name, self.inode.id)),
        }
    }
}

/// Whether another copy may answer after this error.
pub(super) fn another_may(e: &Error) -> bool {
    // `Busy` may be about one volume: a full queue, or no right to its files.
    is_suspicious(e)
        || e.kind().is_away()
        || matches!(e.kind(), ErrorKind::Busy | ErrorKind::Poisoned | ErrorKind::Gone)
}

/// Whether a copy with this error must be checked: it may not recover by itself.
pub(super) fn is_suspicious(e: &Error) -> bool {
    e.kind().is_damage() || e.kind() == ErrorKind::NotFound
}

/// Whether nothing was done, and no copy is to blame: this process lacks something, or the volume has no such call.
pub(super) fn was_refused(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::Busy | ErrorKind::Unsupported)
}

/// The range of a call on `len` bytes at `offset`.
pub(super) const fn range(offset: u64, len: u64) -> Range<u64> {
    offset..offset.saturating_add(len)
}

/// The bytes read, padded with zeros where the leaf object is shorter because the object has a gap.
pub(super) fn padded(mut read: IoBufMut, len: usize) -> IoBufMut {
    let got = read.len();
    if got < len {
        read.resize(len);
        read[got..].fill(0);
    }
    read
}

#[deny(clippy::missing_trait_methods)]
impl Object for Handle {
    fn read_at(&self, offset: u64, into: IoBufMut, io: Io) -> Pending<'_, IoBufMut> {
        Box::pin(self.read(offset, into, self.pool.tagged(io)))
    }

    fn write_at(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        Box::pin(self.write(offset, data, self.pool.tagged(io)))
    }

    fn write_durable(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        Box::pin(self.write_durably(offset, data, self.pool.tagged(io)))
    }

    fn zero(&self, offset: u64, len: u64, room: Zeros, io: Io) -> Pending<'_, ()> {
        Box::pin(self.zero_all(offset, len, room, self.pool.tagged(io)))
    }

    fn extents(&self, offset: u64, len: u64) -> Pending<'_, Vec<Extent>> {
        Box::pin(self.extents_of(offset, len))
    }

    fn blocking_read_at(&self, offset: u64, into: &mut [u8], io: Io) -> Result<usize> {
        let end = offset.saturating_add(into.len() as u64);
        if self.inode.is_unequal_before(end)
            || self.inode.is_doubtful_before(end)
            || self.inode.is_overwritten()
                && (!self.inode.changes.is_idle() || self.inode.code().is_some())
        {
            return blocking::read_at(self, offset, into, io);
        }
        let io = self.pool.tagged(io);
        let len = self.within(offset, into.len());
        let into = &mut into[..len];
        if len == 0 {
            return Ok(0);
        }
        let (leaf, piece, number) = match self.inode.way(offset, len) {
            Way::Leaf { leaf, piece, number, volume } => {
                self.warm(volume, offset, piece.len, io);
                (leaf, piece, number)
            }
            // Opens the leaf object, or reads several pieces.
            Way::Replica(_) | Way::Fragments(_) => {
                return blocking::read_at(self, offset, into, io);
            }
        };
        let failed = match leaf.blocking_read_at(piece.inner, into, io) {
            Ok(read) => {
                // A part is shorter if the object has a gap.
                into[read..].fill(0);
                return Ok(len);
            }
            Err(e) => self.name(number, piece.part, e),
        };
        let read = block_on(self.read_elsewhere(offset, len, io, number, failed))?;
        into.copy_from_slice(&read);
        Ok(len)
    }

    fn blocking_write_at(&self, offset: u64, data: &[u8], io: Io) -> Result<()> {
        self.must_not_be_sealed()?;
        self.must_have_copies()?;
        // The set of copies does not change while a writer holds the lock.
        if self.pool.0.journal.is_written(self.inode.lsn())
            && self.inode.changes.is_idle()
            && let Some(shared) = self.inode.write_lock.try_shared(offset)
            && self.inode.resyncs.is_empty()
            && let Some(end) = offset.checked_add(data.len() as u64)
            && let Some((leaf, piece, number)) = self.inode.only_leaf(offset, data.len())
            && !self.inode.is_sealed()
            && let hashing = Hashing::begin(&self.inode, offset)
            && self.inode.checked_len() <= offset
        {
            self.inode.unsynced.changed();
            let written = leaf.blocking_write_at(piece.inner, data, self.pool.tagged(io));
            self.inode.unsynced.changed();
            if written.as_ref().is_err_and(|e| !was_refused(e)) {
                self.inode.set_doubt(offset);
            }
            written.map_err(|e| self.name(number, piece.part, e))?;
            hashing.written(data);
            self.inode.extend(end);
            drop(shared);
            return Ok(());
        }
        blocking::write_at(self, offset, data, io)
    }

    fn len(&self) -> u64 {
        self.inode.len()
    }

    fn is_log(&self) -> bool {
        self.inode.kind == Kind::Log
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
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
        Box::pin(self.read_checked(offset, into, io, check))
    }

    fn align(&self, offset: u64, len: u64, io: Io) -> Pending<'_, ()> {
        if self.in_place_code().is_some() {
            return volume::ready(Ok(()));
        }
        Box::pin(self.align_range(offset, len, self.pool.tagged(io)))
    }

    fn expected_read(&self, offset: u64, len: u64) -> ReadTime {
        self.inode.expected_read(offset, len)
    }

    fn sync_ahead(&self, more: u64, io: Io) -> Pending<'_, bool> {
        volume::ahead::sync(self, more, io)
    }

    fn seal(&self, io: Io) -> Pending<'_, ()> {
        Box::pin(self.seal_all(io))
    }

    fn sync(&self, io: Io) -> Pending<'_, ()> {
        Box::pin(self.sync_all(self.pool.tagged(io)))
    }
}

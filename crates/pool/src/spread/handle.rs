//! An open object of a pool: routes its reads and writes to copies.

use std::sync::Arc;

use futures_util::future::join_all;
use policy::placement::{Piece, VolumeId};
use policy::purpose::{Origin, Step};
use policy::units::MIB;
use volume::task::block_on;
use volume::{
    Check, Error, ErrorKind, Io, IoBuf, IoBufMut, Name, Object, Pending, Result, blocking,
};

use super::hashing::Hashing;
use super::inode::{Inode, Replica, Way, name_part};
use super::leaves::all;
use super::write_lock::SharedGuard;
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

/// The sync that makes a change of length durable after a copy failed.
const RESIZE: Io = Io::new(Origin::UserWrite, Step::Data);

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

/// A change of every copy in progress. If it is dropped half-way, the copies may differ: all stay, and are
/// aligned before the next write. The same holds for a copy that is made later of a single one, which may still get the
/// change.
struct Together<'a> {
    handle: &'a Handle,
    replicas: &'a [Arc<Replica>],
    /// The first byte that changes.
    from: u64,
    ended: bool,
}

/// The kind of a change of every copy.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Change {
    /// Bytes are written or cut. A failing volume may still accept that in memory.
    Bytes,
    /// All bytes become durable.
    Sync,
}

impl<'a> Together<'a> {
    const fn begin(handle: &'a Handle, replicas: &'a [Arc<Replica>], from: u64) -> Self {
        Self { handle, replicas, from, ended: false }
    }

    /// Ends the change with the result of each copy. It succeeds if one copy has it and all earlier changes,
    /// durably if others fail: those are then dropped. If none has it, all stay.
    ///
    /// All stay, too, if one is `Busy`: a copy is not dropped because this process lacks something. Then the change
    /// fails, since it would not be on all of them, and the next write first makes the copies alike.
    async fn end(mut self, change: Change, done: Vec<Result<()>>, io: Io) -> Result<()> {
        if let [_] = self.replicas {
            let done = all(done);
            self.ended = done.as_ref().err().is_none_or(is_busy);
            return done;
        }
        let busy = done.iter().filter(|done| done.as_ref().is_err_and(is_busy)).count();
        let (mut whole, mut failed) = (Vec::new(), Vec::new());
        let mut why = None;
        for (replica, done) in self.replicas.iter().zip(done) {
            match done {
                Ok(()) => whole.push(replica),
                Err(e) => {
                    failed.push(replica.number);
                    if why.is_none() || is_busy(&e) {
                        why = Some(e);
                    }
                }
            }
        }
        let Some(mut why) = why else {
            self.ended = true;
            return Ok(());
        };
        if busy > 0 {
            // Nothing was done, or no bytes changed: the copies are as before.
            self.ended = busy == self.replicas.len()
                || change == Change::Sync && whole.len() + busy == self.replicas.len();
            return Err(if self.ended { why } else { why.in_doubt() });
        }
        if change == Change::Bytes {
            let syncs = whole.iter().map(|replica| self.handle.sync_copy(replica, 0, io));
            let synced = join_all(syncs).await;
            let mut durable = Vec::new();
            for (replica, synced) in whole.into_iter().zip(synced) {
                match synced {
                    Ok(()) => durable.push(replica),
                    Err(e) if is_busy(&e) => return Err(e.in_doubt()),
                    Err(e) => {
                        failed.push(replica.number);
                        why = e;
                    }
                }
            }
            whole = durable;
        }
        let whole: Vec<_> = whole.into_iter().map(|replica| replica.number).collect();
        // Another write may have failed on the copies that this one reached.
        if self.handle.lose(&failed, &whole, &why.to_string()) {
            self.ended = true;
            return Ok(());
        }
        Err(why)
    }
}

impl Drop for Together<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if self.replicas.len() > 1 {
            self.handle.pool.0.replication.due();
        }
        self.handle.inode.set_doubt(self.from);
    }
}

impl Handle {
    /// The number of the object, which is never reused: the key of caches and heat.
    #[must_use]
    pub fn id(&self) -> ObjectId {
        self.inode.id
    }

    /// The volume for the byte at `offset` of the first copy, existing or not.
    #[must_use]
    pub fn volume_at(&self, offset: u64) -> VolumeId {
        self.inode.volume_at(offset)
    }

    pub(super) fn pool(&self) -> &Parts {
        &self.pool.0
    }

    pub(super) const fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    /// [`Catalog::lose`](super::catalog::Catalog::lose) for this object.
    pub(super) fn lose(&self, numbers: &[u64], whole: &[u64], why: &str) -> bool {
        let pool = &self.pool.0;
        pool.catalog.lose(&self.inode, numbers, whole, why, &pool.replication)
    }

    /// The leaf object of a part of a copy.
    pub(super) async fn leaf_of(&self, replica: &Replica, part: usize) -> Result<Arc<dyn Object>> {
        self.inode.leaf(&self.pool.0.journal, replica, part).await
    }

    fn must_not_be_sealed(&self) -> Result<()> {
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

    async fn read(&self, offset: u64, mut into: IoBufMut, io: Io) -> Result<IoBufMut> {
        // Bytes that a crash may have left in one copy only are given to all before one of them is read.
        self.pool.settle_to_read(self, offset.saturating_add(into.len() as u64)).await;
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
        let mut tried = vec![number];
        let mut suspicious = false;
        let mut damaged = Vec::new();
        damaged.extend(failed.kind().is_damage().then_some(number));
        self.pool.0.damages.tell_if_damaged(&self.inode, number, &failed);
        while another_may(&failed) {
            let Some(replica) = self.inode.choose(&tried) else { break };
            if !is_busy(&failed)
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
                    if !failed.kind().is_away() && !is_busy(&failed) {
                        failed = e;
                    }
                }
            }
            tried.push(replica.number);
        }
        Err(failed)
    }

    /// Reads an existing range from one copy.
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
        match self.inode.len().checked_sub(1) {
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
        let offset = replica.chunks.offset(piece.part, piece.inner);
        self.warm(replica.volume(piece.part), offset, piece.len, io);
        let read = leaf.read_at(piece.inner, into, io).await;
        let read = read.map_err(|e| name_part(&self.inode, replica, piece.part, e))?;
        Ok(padded(read, piece.len as usize))
    }

    async fn write(&self, offset: u64, data: IoBuf, io: Io) -> Result<()> {
        self.must_not_be_sealed()?;
        let Some(end) = offset.checked_add(data.len() as u64) else {
            let what = format!("{}: a write ends beyond 2^64 bytes", self.inode.name);
            return Err(Error::new(ErrorKind::Invalid, what));
        };
        if data.is_empty() {
            return Ok(());
        }
        let (_shared, hashing) = self.begin_write(offset).await?;
        let replicas = self.inode.replicas();
        let together = Together::begin(self, &replicas, offset);
        let writes = replicas.iter().map(|replica| self.write_to(replica, offset, &data, io));
        together.end(Change::Bytes, join_all(writes).await, io).await?;
        hashing.written(&data);
        self.inode.extend(end);
        self.lost_is_written().await
    }

    /// Takes the shared lock for a write at `offset`. A log first loses a checksum that covers it.
    async fn begin_write(&self, offset: u64) -> Result<(SharedGuard<'_>, Hashing<'_>)> {
        loop {
            self.must_be_alike().await?;
            let shared = self.inode.write_lock.shared(offset).await;
            self.must_not_be_sealed()?;
            // Before the length with a checksum is looked at: see `Inode::if_unchanged`.
            let hashing = Hashing::begin(&self.inode, offset);
            if self.inode.checked_len() <= offset {
                return Ok((shared, hashing));
            }
            // Rare: logs are appended to.
            drop((shared, hashing));
            self.pool.0.catalog.forget_checked(&self.inode).await?;
        }
    }

    /// Aligns copies that may differ, so that the next write follows the same bytes in all of them.
    pub(super) async fn must_be_alike(&self) -> Result<()> {
        match self.inode.doubt() {
            None => Ok(()),
            Some(_) => self.pool.settle(self).await,
        }
    }

    /// Waits until drops of copies survive a crash of the process, as appends to a log do.
    async fn lost_is_written(&self) -> Result<()> {
        if self.inode.kind == Kind::Log {
            self.pool.0.journal.written(self.inode.lsn()).await?;
        }
        Ok(())
    }

    pub(super) async fn write_to(
        &self,
        replica: &Replica,
        offset: u64,
        data: &IoBuf,
        io: Io,
    ) -> Result<()> {
        let writes = replica.chunks.pieces(offset, data.len() as u64).map(async |piece: Piece| {
            let at = piece.at as usize;
            let data = data.slice(at..at + piece.len as usize);
            let leaf = self.leaf_of(replica, piece.part).await?;
            let written = leaf.write_at(piece.inner, data, io).await;
            written.map_err(|e| name_part(&self.inode, replica, piece.part, e))
        });
        parts_changed(join_all(writes).await)
    }

    async fn resize(&self, len: u64) -> Result<()> {
        self.must_not_be_sealed()?;
        let _in_order = self.inode.resizing.lock().await;
        let (_shared, hashing) = self.begin_write(len.min(self.inode.len())).await?;
        if self.inode.kind != Kind::Log && len < self.inode.len() {
            // The manifest first: after a crash, a leaf object shorter than in the manifest would look like a loss.
            // The wait includes the record of an earlier attempt that failed.
            self.pool.0.catalog.shorten(&self.inode, len)?;
            self.pool.0.journal.durable(self.inode.lsn()).await?;
        }
        let replicas = self.inode.replicas();
        let together = Together::begin(self, &replicas, len.min(self.inode.len()));
        let cuts = replicas.iter().map(|replica| self.resize_copy(replica, len));
        together.end(Change::Bytes, join_all(cuts).await, RESIZE).await?;
        hashing.resized(len);
        self.inode.set_len(len);
        self.lost_is_written().await
    }

    pub(super) async fn resize_copy(&self, replica: &Replica, len: u64) -> Result<()> {
        let cuts = (0..replica.parts()).map(async |part| {
            let leaf = self.leaf_of(replica, part).await?;
            let cut = leaf.set_len(replica.part_len(part, len)).await;
            cut.map_err(|e| name_part(&self.inode, replica, part, e))
        });
        parts_changed(join_all(cuts).await)
    }

    async fn sync_all(&self, io: Io) -> Result<()> {
        // All of it was synced then.
        if self.inode.is_sealed() {
            return self.pool.0.journal.durable(self.inode.lsn()).await;
        }
        let is_log = self.inode.kind == Kind::Log;
        let _in_order = match is_log {
            true => None,
            false => Some(self.inode.resizing.lock().await),
        };
        let len = self.inode.len();
        let written = if is_log { self.inode.unrecorded(UNRECORDED_MAX) } else { None };
        let replicas = self.sync_copies(io).await?;
        if is_log {
            self.pool.0.catalog.settle(&self.inode)?;
        } else {
            self.pool.0.catalog.commit(&self.inode, len)?;
        }
        if let Some(written) = written {
            self.pool.record_synced(&self.inode, written, &replicas).await;
        }
        self.pool.0.journal.durable(self.inode.lsn()).await
    }

    /// Syncs every copy, and drops those that fail; gives those that were synced or dropped.
    pub(super) async fn sync_copies(&self, io: Io) -> Result<Vec<Arc<Replica>>> {
        // The leaf objects of a log have its length.
        let len = if self.inode.kind == Kind::Log { 0 } else { self.inode.len() };
        let replicas = self.inode.replicas();
        let syncs = replicas.iter().map(|replica| self.sync_copy(replica, len, io));
        let synced = join_all(syncs).await;
        Together::begin(self, &replicas, 0).end(Change::Sync, synced, io).await?;
        Ok(replicas)
    }

    /// Syncs a copy; extends parts that are too short for `len` bytes.
    pub(super) async fn sync_copy(&self, replica: &Replica, len: u64, io: Io) -> Result<()> {
        let syncs = (0..replica.parts()).map(async |part| {
            let leaf = self.leaf_of(replica, part).await?;
            let len = replica.part_len(part, len);
            let synced = async {
                // It is shorter if the object has a gap. All parts together must have the object's length.
                if leaf.len() < len {
                    leaf.set_len(len).await?;
                }
                leaf.sync(io).await
            };
            synced.await.map_err(|e| name_part(&self.inode, replica, part, e))
        });
        all(join_all(syncs).await)
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
fn another_may(e: &Error) -> bool {
    // `Busy` may be about one volume: a full queue, or no right to its files.
    is_suspicious(e)
        || e.kind().is_away()
        || matches!(e.kind(), ErrorKind::Busy | ErrorKind::Poisoned | ErrorKind::Gone)
}

/// Whether a copy with this error must be checked: it may not recover by itself.
pub(super) fn is_suspicious(e: &Error) -> bool {
    e.kind().is_damage() || e.kind() == ErrorKind::NotFound
}

/// Whether a call was not made because of this process: nothing was done, and no copy is to blame.
pub(super) fn is_busy(e: &Error) -> bool {
    e.kind() == ErrorKind::Busy
}

/// The result of a change of the parts of one copy: `Busy` only if no part changed.
fn parts_changed(parts: Vec<Result<()>>) -> Result<()> {
    let unchanged = parts.iter().all(|part| part.as_ref().is_err_and(is_busy));
    let changed = all(parts);
    if unchanged { changed } else { changed.map_err(Error::in_doubt) }
}

/// The bytes read, padded with zeros where the leaf object is shorter because the object has a gap.
fn padded(mut read: IoBufMut, len: usize) -> IoBufMut {
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

    fn blocking_read_at(&self, offset: u64, into: &mut [u8], io: Io) -> Result<usize> {
        if self.inode.is_unequal_before(offset.saturating_add(into.len() as u64)) {
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
            Way::Replica(_) => return blocking::read_at(self, offset, into, io),
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
        // The set of copies does not change while a writer holds the lock.
        if self.pool.0.journal.is_written(self.inode.lsn())
            && let Some(shared) = self.inode.write_lock.try_shared(offset)
            && let Some(end) = offset.checked_add(data.len() as u64)
            && let Some((leaf, piece, number)) = self.inode.only_leaf(offset, data.len())
            && !self.inode.is_sealed()
            && let hashing = Hashing::begin(&self.inode, offset)
            && self.inode.checked_len() <= offset
        {
            let written = leaf.blocking_write_at(piece.inner, data, self.pool.tagged(io));
            if written.as_ref().is_err_and(|e| !is_busy(e)) {
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

    fn seal(&self, io: Io) -> Pending<'_, ()> {
        Box::pin(self.seal_all(io))
    }

    fn sync(&self, io: Io) -> Pending<'_, ()> {
        Box::pin(self.sync_all(self.pool.tagged(io)))
    }
}

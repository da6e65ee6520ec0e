//! Changes of an object: each reaches every copy, or the copies that fail are dropped.

use std::ops::Range;
use std::sync::Arc;

use futures_util::future::{join, join_all};
use policy::placement::Piece;
use policy::purpose::{Origin, Step};
use volume::ranges::Claim;
use volume::{Error, ErrorKind, Io, IoBuf, Result, Zeros, extent};

use super::handle::{Handle, UNRECORDED_MAX, range, was_refused};
use super::hashing::Hashing;
use super::inode::{Replica, name_part};
use super::leaves::all;
use super::write_lock::SharedGuard;
use crate::leaf::Kind;

/// The sync that makes a change of length durable after a copy failed.
const RESIZE: Io = Io::new(Origin::UserWrite, Step::Data);

/// A change of every copy in progress. If it is dropped half-way, the copies may differ: all stay, and are
/// aligned before the next write. The same holds for a copy that is made later of a single one, which may still get the
/// change.
struct Together<'a> {
    handle: &'a Handle,
    replicas: &'a [Arc<Replica>],
    /// The bytes that change; none for a sync.
    range: Range<u64>,
    is_durable: bool,
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

/// What a change writes.
#[derive(Clone, Copy)]
enum Bytes<'a> {
    Data(&'a IoBuf),
    Zeros(Zeros),
}

impl<'a> Together<'a> {
    fn begin(handle: &'a Handle, replicas: &'a [Arc<Replica>], range: Range<u64>) -> Self {
        handle.note_unsynced(&range);
        if !range.is_empty() {
            handle.inode().unsynced.changed();
        }
        Self { handle, replicas, range, is_durable: false, ended: false }
    }

    /// The same of a change that is durable in the copies that have it.
    const fn durably(handle: &'a Handle, replicas: &'a [Arc<Replica>], range: Range<u64>) -> Self {
        Self { handle, replicas, range, is_durable: true, ended: false }
    }

    /// Ends the change with the result of each copy. It succeeds if one copy has it and all earlier changes,
    /// durably if others fail: those are then dropped. If none has it, all stay.
    ///
    /// All stay, too, if one refused the call, as with `Busy`: a copy is not dropped because this process lacks
    /// something. Then the change fails, since it would not be on all of them, and the next write first makes the copies
    /// alike.
    async fn end(mut self, change: Change, done: Vec<Result<()>>, io: Io) -> Result<()> {
        if let [_] = self.replicas {
            let done = all(done);
            self.ended = done.as_ref().err().is_none_or(was_refused);
            return done;
        }
        let busy = done.iter().filter(|done| done.as_ref().is_err_and(was_refused)).count();
        let (mut whole, mut failed) = (Vec::new(), Vec::new());
        let mut why = None;
        for (replica, done) in self.replicas.iter().zip(done) {
            match done {
                Ok(()) => whole.push(replica),
                Err(e) => {
                    failed.push(replica.number);
                    if why.is_none() || was_refused(&e) {
                        why = Some(e);
                    }
                }
            }
        }
        let Some(mut why) = why else {
            self.ended = true;
            if !self.is_durable {
                self.handle.note_unsynced(&self.range);
                // A copy that has it, and was dropped meanwhile.
                self.handle.inode().resyncs.redo_outdated(&self.range);
            }
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
                    Err(e) if was_refused(&e) => return Err(e.in_doubt()),
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
            self.handle.inode().resyncs.redo_outdated(&self.range);
            self.ended = true;
            return Ok(());
        }
        Err(why)
    }
}

impl Drop for Together<'_> {
    fn drop(&mut self) {
        if !(self.range.is_empty() || self.ended && self.is_durable) {
            self.handle.inode().unsynced.changed();
        }
        if self.ended {
            return;
        }
        if self.replicas.len() > 1 {
            self.handle.pool().replication.due();
        }
        self.handle.inode().set_doubt(self.range.start);
        self.handle.inode().resyncs.redo(&self.range);
    }
}

impl Handle {
    pub(super) async fn write(&self, offset: u64, data: IoBuf, io: Io) -> Result<()> {
        self.must_not_be_sealed()?;
        self.must_have_copies()?;
        let Some(end) = offset.checked_add(data.len() as u64) else {
            let what = format!("{}: a write ends beyond 2^64 bytes", self.inode().name);
            return Err(Error::new(ErrorKind::Invalid, what));
        };
        if data.is_empty() {
            return Ok(());
        }
        let (_shared, hashing) = self.begin_write(offset).await?;
        let range = offset..end;
        let _in_order = self.in_order(range.clone()).await;
        let replicas = self.inode().replicas();
        let together = Together::begin(self, &replicas, range.clone());
        let writes = replicas.iter().map(|replica| self.write_to(replica, offset, &data, io));
        let mirrored = self.mirror(&range, Bytes::Data(&data), io);
        let (written, ()) = join(join_all(writes), mirrored).await;
        together.end(Change::Bytes, written, io).await?;
        hashing.written(&data);
        self.inode().extend(end);
        self.lost_is_written().await
    }

    /// The claim of a change on its range, if the object is written in place. Only under the lock of writers: a copier that
    /// excludes them reads, and reads wait for claims.
    pub(super) async fn in_order(&self, range: Range<u64>) -> Option<Claim> {
        match self.inode().is_overwritten() {
            true => Some(self.inode().changes.claim(range).await),
            false => None,
        }
    }

    /// One durable write to each copy where the manifest has the length already; else a write and a sync.
    pub(super) async fn write_durably(&self, offset: u64, data: IoBuf, io: Io) -> Result<()> {
        self.must_not_be_sealed()?;
        self.must_have_copies()?;
        let range = range(offset, data.len() as u64);
        if !data.is_empty() && self.inode().is_overwritten() {
            let (_shared, hashing) = self.begin_write(offset).await?;
            let _in_order = self.inode().changes.claim(range.clone()).await;
            // A cut of the object is recorded before it is made, and waits for these locks then.
            if self.pool().catalog.committed_len(self.inode()).is_some_and(|len| range.end <= len) {
                return self.write_in_place(offset, &data, hashing, io).await;
            }
        }
        self.write(offset, data, io).await?;
        self.sync_all(io).await
    }

    async fn write_in_place(
        &self,
        offset: u64,
        data: &IoBuf,
        hashing: Hashing<'_>,
        io: Io,
    ) -> Result<()> {
        let replicas = self.inode().replicas();
        let range = range(offset, data.len() as u64);
        let together = Together::durably(self, &replicas, range.clone());
        let writes =
            replicas.iter().map(|replica| self.write_parts(replica, offset, data, io, true));
        // A copy is synced before it is one of the object's.
        let mirrored = self.mirror(&range, Bytes::Data(data), io);
        let (written, ()) = join(join_all(writes), mirrored).await;
        together.end(Change::Bytes, written, io).await?;
        hashing.written(data);
        self.pool().journal.durable(self.inode().lsn()).await
    }

    pub(super) async fn zero_all(&self, offset: u64, len: u64, room: Zeros, io: Io) -> Result<()> {
        self.must_not_be_sealed()?;
        self.must_have_copies()?;
        let range = extent::within(offset, len, self.inode().len());
        if range.is_empty() {
            return Ok(());
        }
        // The checksum of bytes that are written one after the other ends here.
        let (_shared, _hashing) = self.begin_write(range.start).await?;
        let _in_order = self.in_order(range.clone()).await;
        let replicas = self.inode().replicas();
        let together = Together::begin(self, &replicas, range.clone());
        let zeros = replicas.iter().map(|replica| self.zero_in(replica, &range, room, io));
        let mirrored = self.mirror(&range, Bytes::Zeros(room), io);
        let (zeroed, ()) = join(join_all(zeros), mirrored).await;
        together.end(Change::Bytes, zeroed, io).await?;
        self.lost_is_written().await
    }

    /// Changes a range in new copies that are being made, too, as far as they have its bytes. The caller has claimed the range.
    /// A failure ends the new copy, not the change.
    async fn mirror(&self, range: &Range<u64>, bytes: Bytes<'_>, io: Io) {
        let resyncs = self.inode().resyncs.changing(range);
        let mirrored = resyncs.iter().map(async |resync| {
            let len = resync.begin_change(range);
            if len == 0 {
                return;
            }
            let changed = match bytes {
                Bytes::Data(data) => {
                    resync.target.write(range.start, data.slice(0..len as usize), io).await
                }
                Bytes::Zeros(room) => resync.target.zero(range.start, len, room, io).await,
            };
            match changed {
                Ok(()) => {}
                Err(e) if was_refused(&e) => resync.redo(range),
                Err(e) => resync.fail(e),
            }
        });
        join_all(mirrored).await;
    }

    async fn zero_in(
        &self,
        replica: &Replica,
        range: &Range<u64>,
        room: Zeros,
        io: Io,
    ) -> Result<()> {
        let pieces = replica.chunks.pieces(range.start, range.end - range.start);
        let zeros = pieces.map(async |piece: Piece| {
            let leaf = self.leaf_of(replica, piece.part).await?;
            let zeroed = leaf.zero(piece.inner, piece.len, room, io).await;
            zeroed.map_err(|e| name_part(self.inode(), replica, piece.part, e))
        });
        parts_changed(join_all(zeros).await)
    }

    /// Takes the shared lock for a write at `offset`. A log first loses a checksum that covers it.
    pub(super) async fn begin_write(&self, offset: u64) -> Result<(SharedGuard<'_>, Hashing<'_>)> {
        loop {
            self.must_be_alike().await?;
            let shared = self.inode().write_lock.shared(offset).await;
            self.must_not_be_sealed()?;
            // Before the length with a checksum is looked at: see `Inode::if_unchanged`.
            let hashing = Hashing::begin(self.inode(), offset);
            if self.inode().checked_len() <= offset {
                return Ok((shared, hashing));
            }
            // Rare: logs are appended to.
            drop((shared, hashing));
            self.pool().catalog.forget_checked(self.inode()).await?;
        }
    }

    /// Aligns copies that may differ, so that the next write follows the same bytes in all of them.
    pub(super) async fn must_be_alike(&self) -> Result<()> {
        match self.inode().doubt() {
            None => Ok(()),
            Some(_) => self.spread().settle(self).await,
        }
    }

    /// Waits until drops of copies survive a crash of the process, as appends to a log and writes in place do: else the next
    /// opening takes a copy that lacks acknowledged bytes for as good as the others. A table is nothing before its sync.
    async fn lost_is_written(&self) -> Result<()> {
        if self.inode().kind != Kind::Table {
            self.pool().journal.written(self.inode().lsn()).await?;
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
        self.write_parts(replica, offset, data, io, false).await
    }

    /// Writes to the parts of a copy, each durably or not.
    async fn write_parts(
        &self,
        replica: &Replica,
        offset: u64,
        data: &IoBuf,
        io: Io,
        durable: bool,
    ) -> Result<()> {
        let writes = replica.chunks.pieces(offset, data.len() as u64).map(async |piece: Piece| {
            let at = piece.at as usize;
            let data = data.slice(at..at + piece.len as usize);
            let leaf = self.leaf_of(replica, piece.part).await?;
            let written = match durable {
                true => leaf.write_durable(piece.inner, data, io).await,
                false => leaf.write_at(piece.inner, data, io).await,
            };
            written.map_err(|e| name_part(self.inode(), replica, piece.part, e))
        });
        parts_changed(join_all(writes).await)
    }

    pub(super) async fn resize(&self, len: u64) -> Result<()> {
        self.must_not_be_sealed()?;
        let _in_order = self.inode().resizing.lock().await;
        let (_shared, hashing) = self.begin_write(len.min(self.inode().len())).await?;
        let range = len.min(self.inode().len())..u64::MAX;
        let _claim = self.in_order(range.clone()).await;
        let _redo = self.inode().resyncs.redo_at_end(range.clone());
        if self.inode().kind != Kind::Log && len < self.inode().len() {
            // The manifest first: after a crash, a leaf object shorter than in the manifest would look like a loss.
            // The wait includes the record of an earlier attempt that failed.
            self.pool().catalog.shorten(self.inode(), len)?;
            self.pool().journal.durable(self.inode().lsn()).await?;
        }
        let replicas = self.inode().replicas();
        let together = Together::begin(self, &replicas, range);
        let cuts = replicas.iter().map(|replica| self.resize_copy(replica, len));
        together.end(Change::Bytes, join_all(cuts).await, RESIZE).await?;
        hashing.resized(len);
        self.inode().set_len(len);
        self.lost_is_written().await
    }

    pub(super) async fn resize_copy(&self, replica: &Replica, len: u64) -> Result<()> {
        let cuts = (0..replica.parts()).map(async |part| {
            let leaf = self.leaf_of(replica, part).await?;
            let cut = leaf.set_len(replica.part_len(part, len)).await;
            cut.map_err(|e| name_part(self.inode(), replica, part, e))
        });
        parts_changed(join_all(cuts).await)
    }

    pub(super) async fn sync_all(&self, io: Io) -> Result<()> {
        // All of it was synced then.
        if self.inode().is_sealed() {
            return self.pool().journal.durable(self.inode().lsn()).await;
        }
        let is_log = self.inode().kind == Kind::Log;
        if self.inode().lead().is_some() {
            self.must_be_alike().await?;
        }
        let _in_order = match is_log {
            true => None,
            false => Some(self.inode().resizing.lock().await),
        };
        let len = self.inode().len();
        let written = if is_log { self.inode().unrecorded(UNRECORDED_MAX) } else { None };
        let replicas = self.sync_copies(io).await?;
        if is_log {
            self.pool().catalog.settle(self.inode())?;
        } else {
            self.pool().catalog.commit(self.inode(), len)?;
        }
        if let Some(written) = written {
            self.spread().record_synced(self.inode(), written, &replicas).await;
        }
        self.pool().journal.durable(self.inode().lsn()).await
    }

    /// Syncs every copy, and drops those that fail; gives those that were synced or dropped.
    pub(super) async fn sync_copies(&self, io: Io) -> Result<Vec<Arc<Replica>>> {
        // The leaf objects of a log have its length.
        let len = if self.inode().kind == Kind::Log { 0 } else { self.inode().len() };
        let sync = self.inode().unsynced.sync_begins();
        let replicas = self.inode().replicas();
        let syncs = replicas.iter().map(|replica| self.sync_copy(replica, len, io));
        let synced = join_all(syncs).await;
        Together::begin(self, &replicas, 0..0).end(Change::Sync, synced, io).await?;
        self.inode().unsynced.synced(&sync);
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
            synced.await.map_err(|e| name_part(self.inode(), replica, part, e))
        });
        all(join_all(syncs).await)
    }

    /// Seals the leaf objects of a copy that was synced.
    pub(super) async fn seal_copy(&self, replica: &Replica, io: Io) -> Result<()> {
        let seals = (0..replica.parts()).map(async |part| {
            let sealed = self.leaf_of(replica, part).await?.seal(io).await;
            sealed.map_err(|e| name_part(self.inode(), replica, part, e))
        });
        all(join_all(seals).await)
    }
}

/// The result of a change of the parts of one copy: `Busy` only if no part changed.
fn parts_changed(parts: Vec<Result<()>>) -> Result<()> {
    let unchanged = parts.iter().all(|part| part.as_ref().is_err_and(was_refused));
    let changed = all(parts);
    if unchanged { changed } else { changed.map_err(Error::in_doubt) }
}

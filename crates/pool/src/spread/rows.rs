//! Objects in place that are kept as fragments: reads and changes of their rows.
//!
//! A row is a strip of each fragment. A change of one block of it changes a block of each parity fragment, and a crash
//! between these writes would leave parity that fits neither the old bytes nor the new ones. So a change has three steps:
//!
//! 1. [`Rows::stage`] reads what it needs, and computes the new parity;
//! 2. the caller makes the new bytes and the new parity durable elsewhere, with enough copies;
//! 3. [`Rows::decide`] and [`Rows::settle`] write them in place, until each fragment has them or is dropped.
//!
//! After a crash the caller repeats the third step, whatever of it was done before. Whoever computes a fragment from
//! others claims the rows first, and a claim ends what was decided.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::{join, join_all};
use policy::placement::{Code, Piece};
use volume::ranges::Claim;
use volume::{Error, ErrorKind, Io, IoBuf, IoBufMut, Result};

use super::Spread;
use super::check::suffice;
use super::fragments::Trouble;
use super::handle::{Handle, another_may, was_refused};
use super::inode::{Replica, name_part};
use super::patches::{Missed, Patch};
use super::write_lock::SharedGuard;
use crate::leaf::ObjectId;

/// Rows of an object that nobody else reads by computing, or changes.
pub(crate) struct Rows<'a> {
    pub(super) handle: &'a Handle,
    pub(super) code: Code,
    numbers: Range<u64>,
    _shared: SharedGuard<'a>,
    _claim: Claim,
}

impl Spread {
    /// The object of this number, which may be uncommitted.
    ///
    /// # Errors
    /// `Gone`: it was removed, or was never synced before the last opening.
    pub(crate) fn handle_by_id(&self, id: ObjectId) -> Result<Handle> {
        Ok(self.handle(self.0.catalog.named_inode_by_id(id)?))
    }

    /// Says that changes of rows which a crash cut off were repeated: from now on fragments of objects in place may be
    /// computed from others for good.
    pub(crate) fn rows_are_whole(&self) {
        self.0.coding.rows_are_whole.store(true, Ordering::Release);
    }

    /// # Errors
    /// `Busy`: changes of rows that a crash cut off were not repeated yet.
    pub(super) fn rows_must_be_whole(&self) -> Result<()> {
        if self.0.coding.rows_are_whole.load(Ordering::Acquire) {
            return Ok(());
        }
        let what =
            "objects in place have fragments whose log was not read yet: open the pool for service";
        Err(Error::new(ErrorKind::Busy, what))
    }
}

impl Handle {
    /// The code, if the object is kept as fragments and written in place: through a log, not by [`Handle::write_at`].
    #[must_use]
    pub(crate) fn in_place_code(&self) -> Option<Code> {
        self.inode().code().filter(|_| self.inode().is_overwritten())
    }

    /// Reads an existing range of an object in place that is kept as fragments.
    pub(super) async fn read_rows(
        &self,
        code: Code,
        offset: u64,
        mut into: IoBufMut,
        io: Io,
    ) -> Result<IoBufMut> {
        let len = self.within(offset, into.len());
        into.resize(len);
        let mut pieces = code.chunks().pieces(offset, len as u64).peekable();
        match pieces.peek() {
            None => return Ok(into),
            Some(piece) if piece.len == len as u64 => {
                return self.read_strip(code, *piece, into, io).await;
            }
            Some(_) => {}
        }
        let reads = pieces.map(async |piece| {
            let part = IoBufMut::unread(piece.len as usize);
            (piece.at as usize, self.read_strip(code, piece, part, io).await)
        });
        for (at, read) in join_all(reads).await {
            let read = read?;
            into[at..at + read.len()].copy_from_slice(&read);
        }
        Ok(into)
    }

    /// Reads a range of one strip, or computes it from others while nothing changes their row.
    async fn read_strip(
        &self,
        code: Code,
        piece: Piece,
        into: IoBufMut,
        io: Io,
    ) -> Result<IoBufMut> {
        let len = into.len();
        let replicas = self.inode().replicas();
        let mut mine = replicas.iter().filter(|replica| replica.index() == Some(piece.part));
        if let Some(replica) = mine.find(|replica| !replica.take_avoidance()) {
            match self.read_from(replica, piece.inner, into, io).await {
                Ok(read) => return Ok(read),
                Err(e) if another_may(&e) => self.fragment_failed(replica.number, &e),
                Err(e) => return Err(e),
            }
        }
        let _rows =
            self.rows(code, rows_of(code, &(piece.inner..piece.inner + piece.len)), io).await?;
        let into = IoBufMut::zeroed(len);
        self.read_fragment(code, &self.inode().replicas(), piece, into, io).await
    }

    /// Claims rows, and ends the changes of them that were decided, but not those that wait for room on a volume.
    ///
    /// # Errors
    /// Those of [`Rows::settle`].
    pub(crate) async fn rows(&self, code: Code, numbers: Range<u64>, io: Io) -> Result<Rows<'_>> {
        let shared = self.inode().write_lock.shared(0).await;
        let width = code.strip() * code.data() as u64;
        let claim = self.inode().changes.claim(numbers.start * width..numbers.end * width).await;
        let rows = Rows { handle: self, code, numbers, _shared: shared, _claim: claim };
        match rows.apply_all(false, io).await {
            // What is read of the others is what it would be.
            Err(e) if e.kind() != ErrorKind::OutOfSpace => Err(e),
            _ => Ok(rows),
        }
    }

    /// Computes a range of any fragment, while the caller has the claim of its rows.
    pub(super) async fn compute_range(
        &self,
        code: Code,
        index: usize,
        range: &Range<u64>,
        io: Io,
    ) -> Result<IoBufMut> {
        let (replicas, mut trouble) = (self.inode().replicas(), Trouble::default());
        let piece = Piece { part: index, inner: range.start, at: 0, len: range.end - range.start };
        match self.compute(code, piece, io, &replicas, &mut trouble).await? {
            Ok(computed) => Ok(computed),
            Err(found) => Err(trouble.failed.unwrap_or_else(|| self.too_few(code, found))),
        }
    }
}

/// The rows of a range of a fragment.
pub(super) const fn rows_of(code: Code, range: &Range<u64>) -> Range<u64> {
    range.start / code.strip()..range.end.div_ceil(code.strip())
}

impl Rows<'_> {
    /// Decides a change of the only row: from now on it is made, whatever happens.
    pub(crate) fn decide(&self, patches: Vec<Patch>, missed: Missed) {
        self.handle.inode().unapplied.decide(self.numbers.start, patches, missed);
    }

    /// Makes the changes of the rows that were decided. Durable on return. A fragment that cannot be written is dropped,
    /// if the others hold the object, but not because its volume is full.
    ///
    /// # Errors
    /// `Busy`: try again. `OutOfSpace`: a volume has no room for its fragment's new bytes; the rows stay decided, and can be
    /// read. Else too few fragments can be written: try again when their volumes are back.
    pub(crate) async fn settle(&self, io: Io) -> Result<()> {
        self.apply_all(true, io).await
    }

    async fn apply_all(&self, also_waiting: bool, io: Io) -> Result<()> {
        let unapplied = &self.handle.inode().unapplied;
        let (mut rows, mut full) = (self.numbers.clone(), Ok(()));
        while let Some((row, patches, missed)) = unapplied.first(&rows, also_waiting) {
            rows.start = row + 1;
            match self.apply(&patches, &missed, io).await {
                Ok(()) => unapplied.applied(row),
                Err(e) if e.kind() == ErrorKind::OutOfSpace => {
                    unapplied.wait(row);
                    full = Err(e);
                }
                Err(e) => return Err(e),
            }
        }
        full
    }

    async fn apply(&self, patches: &[Patch], missed: &Missed, io: Io) -> Result<()> {
        let (handle, inode) = (self.handle, self.handle.inode());
        let replicas = inode.replicas();
        let writes = replicas.iter().map(async |replica| {
            if self.is_missed(replica, patches, missed) {
                let what = "a row changed while it could not be read";
                return Err(name_part(inode, replica, 0, Error::new(ErrorKind::Unavailable, what)));
            }
            self.apply_to(replica, patches, io).await
        });
        let (written, ()) = join(join_all(writes), self.mirror(patches, io)).await;
        let (mut failed, mut whole, mut why) = (Vec::new(), Vec::new(), None);
        let mut full = Ok(());
        for (replica, written) in replicas.iter().zip(written) {
            match written {
                Ok(()) => whole.push(replica),
                Err(e) if was_refused(&e) => return Err(e),
                // The caller has its new bytes, as durable as the others, until there is room for them.
                Err(e) if e.kind() == ErrorKind::OutOfSpace => {
                    whole.push(replica);
                    full = Err(e);
                }
                Err(e) => {
                    failed.push(replica.number);
                    why = Some(e);
                }
            }
        }
        if let Some(why) = why {
            if !suffice(whole.iter().copied()) {
                return Err(why);
            }
            let whole: Vec<_> = whole.into_iter().map(|replica| replica.number).collect();
            if !handle.lose(&failed, &whole, &why.to_string()) {
                return Err(why);
            }
        }
        // Nothing repeats the change once it is done: a fragment that has not got it must not be back after a crash.
        handle.pool().journal.durable(inode.lsn()).await?;
        full
    }

    /// Whether a change of a row has no bytes for a parity fragment, which it changes for certain: an earlier version computed
    /// it while the fragment was missing, and it was not made since.
    fn is_missed(&self, replica: &Replica, patches: &[Patch], missed: &Missed) -> bool {
        let is_parity = |&index: &usize| index >= self.code.data();
        let lacks = replica.index().filter(is_parity).is_some_and(|index| lacks(patches, index));
        lacks && missed.as_ref().is_none_or(|missed| missed.contains(&replica.number))
    }

    /// Writes and syncs the patches of one fragment.
    async fn apply_to(&self, replica: &Arc<Replica>, patches: &[Patch], io: Io) -> Result<()> {
        let (handle, inode) = (self.handle, self.handle.inode());
        let mine: Vec<_> =
            patches.iter().filter(|patch| replica.index() == Some(patch.fragment)).collect();
        if mine.is_empty() {
            return Ok(());
        }
        let leaf = handle.leaf_of(replica, 0).await?;
        let len = replica.layout.len(inode.len());
        let named = |e: Error| name_part(inode, replica, 0, e);
        let writes = mine.iter().map(|patch| async {
            match within(patch, len) {
                Some(bytes) => leaf.write_at(patch.at, bytes, io).await,
                None => Ok(()),
            }
        });
        let written: Result<Vec<()>> = join_all(writes).await.into_iter().collect();
        written.map_err(named)?;
        leaf.sync(io).await.map_err(named)
    }

    /// Writes the patches to new fragments that are being made, too, as far as they have their bytes.
    async fn mirror(&self, patches: &[Patch], io: Io) {
        let inode = self.handle.inode();
        for resync in inode.resyncs.all() {
            let placed = &resync.target.placed;
            let Some(index) = placed.index().map(usize::from) else { continue };
            // A piece that is computed meanwhile has old bytes of one fragment and new ones of another.
            patches.iter().for_each(|patch| resync.note(&patch.range()));
            let len = placed.layout.len(inode.len());
            if index >= self.code.data() && lacks(patches, index) {
                patches.iter().for_each(|patch| resync.redo(&patch.range()));
                continue;
            }
            for patch in patches.iter().filter(|patch| patch.fragment == index) {
                let Some(bytes) = within(patch, len) else { continue };
                let range = patch.at..patch.at + bytes.len() as u64;
                let count = resync.begin_change(&range) as usize;
                if count > 0
                    && let Err(e) = resync.target.write(patch.at, bytes.slice(0..count), io).await
                {
                    resync.fail(e);
                }
            }
        }
    }

    /// The numbers of the rows.
    pub(super) const fn numbers(&self) -> &Range<u64> {
        &self.numbers
    }

    /// Writes bytes over a range of a fragment that has others, durably, as well as it can.
    pub(super) async fn replace(&self, piece: &Piece, bytes: IoBuf, io: Io) {
        let (handle, inode) = (self.handle, self.handle.inode());
        let patch = Patch { fragment: piece.part, at: piece.inner, bytes };
        for replica in inode.replicas() {
            if replica.index() != Some(piece.part) {
                continue;
            }
            handle.pool().damages.tell(inode, &replica, super::check::NOT_WRITTEN);
            match self.apply_to(&replica, std::slice::from_ref(&patch), io).await {
                Ok(()) => handle.pool().damages.repaired(inode.id, &[replica.number]),
                Err(e) => tracing::warn!("{} stays damaged for now: {e}", inode.name),
            }
        }
        self.mirror(std::slice::from_ref(&patch), io).await;
    }
}

/// Whether a change has no bytes for a fragment.
fn lacks(patches: &[Patch], fragment: usize) -> bool {
    patches.iter().all(|patch| patch.fragment != fragment)
}

/// The bytes of a patch that a fragment of `len` bytes has.
fn within(patch: &Patch, len: u64) -> Option<IoBuf> {
    let count = len.saturating_sub(patch.at).min(patch.bytes.len() as u64);
    (count > 0).then(|| patch.bytes.slice(0..count as usize))
}

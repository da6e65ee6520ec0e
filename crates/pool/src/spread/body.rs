//! One object of a pool: its copies, their leaves on the volumes, and how long it is.
//!
//! An object that was written whole never changes, so that any of its copies may be read. Of an object
//! that can be written to every copy is written before a write is done, and a copy that fails is
//! dropped once another is known to hold everything, durably: there is never one that lacks a byte that was
//! acknowledged. Where all fail, all stay: behind what was acknowledged they may differ until they are made the
//! same, see [`align`](super::align).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;
use policy::placement::{Chunks, Layout, Piece, VolumeId};
use policy::route;
use volume::{Error, ErrorKind, Name, Object, Result};

use super::turn::Turn;
use super::{Inner, Table};
use crate::leaf::{Kind, Leaf, ObjectId};
use crate::manifest::journal::Lsn;
use crate::manifest::{Committed, Copies, Dead, Placed, Record, Stored};
use crate::seats::{Seat, Seats};

/// Copies among which a read chooses; more of an object are not looked at.
const CHOICES: usize = 8;

/// The copies of an object are the same to their ends.
const ALIKE: u64 = u64::MAX;

/// What all handles of one object share. It is in the pool's table while the object has a name.
pub(super) struct Body {
    pub(super) id: ObjectId,
    pub(super) kind: Kind,
    /// A name it had, for messages.
    pub(super) name: Name,
    open: Mutex<Open>,
    /// Its length; see [`Body::knows_len`].
    len: AtomicU64,
    /// Its length in the manifest when the pool was opened.
    len_recovered: u64,
    /// Written whole, with a checksum: never changes again.
    sealed: AtomicBool,
    /// A sync of it is not done before this edit is durable.
    lsn: AtomicU64,
    /// A log whose first sync is in the manifest.
    settled: AtomicBool,
    /// Held while the length in the manifest changes, so that lengths get there in order.
    pub(super) resizing: AsyncMutex<()>,
    /// Whose turn it is to write.
    pub(super) turn: Turn,
    /// The first bytes of a log that have a checksum in the manifest: none of them may change before the manifest
    /// durably has it no more. Changes while the table is locked.
    checked: AtomicU64,
    /// How often it was given a checksum.
    checksums: AtomicU64,
    /// From this byte on its copies may differ; [`ALIKE`] if they are the same.
    doubt: AtomicU64,
    handles: AtomicUsize,
}

/// The copies, at least one, and what is open of them.
struct Open {
    copies: Vec<OpenCopy>,
    draws: u64,
}

struct OpenCopy {
    replica: Arc<Replica>,
    /// Of each part, open while the object is, from its first use on.
    leaves: Box<[Option<Arc<dyn Object>>]>,
}

/// One copy of an object.
pub(super) struct Replica {
    pub(super) number: u64,
    pub(super) layout: Layout,
    pub(super) chunks: Chunks,
    parts: Box<[Part]>,
}

/// The bytes of a copy on one volume.
struct Part {
    seat: Arc<Seat>,
    opening: AsyncMutex<()>,
    /// The leaf's length was compared with the manifest's since the pool was opened.
    fitted: AtomicBool,
}

/// A copy that is just being made, with leaves for its parts.
pub(super) struct NewCopy {
    pub(super) placed: Placed,
    pub(super) leaves: Vec<Arc<dyn Object>>,
}

/// Where a read goes.
pub(super) enum Way {
    /// To one piece of one leaf that is open.
    Leaf { leaf: Arc<dyn Object>, piece: Piece, number: u64, volume: VolumeId },
    /// To a copy of which leaves have to be opened, or several be read.
    Replica(Arc<Replica>),
}

impl Open {
    fn find(&mut self, number: u64) -> Option<&mut OpenCopy> {
        self.copies.iter_mut().find(|copy| copy.replica.number == number)
    }

    /// The position of the copy that is read; `None` if all were tried.
    fn choose(&mut self, tried: &[u64]) -> Option<usize> {
        if self.copies.len() == 1 && tried.is_empty() {
            return Some(0);
        }
        self.choose_among(tried)
    }

    #[cold]
    fn choose_among(&mut self, tried: &[u64]) -> Option<usize> {
        let (mut well, mut unwell) = ([0; CHOICES], None);
        let mut count = 0;
        for (at, OpenCopy { replica, .. }) in self.copies.iter().enumerate() {
            if tried.contains(&replica.number) {
                continue;
            }
            if replica.is_avoided() {
                unwell = Some(at);
                continue;
            }
            if count < CHOICES {
                well[count] = at;
                count += 1;
            }
        }
        if count == 0 {
            return unwell;
        }
        let wait = |at: usize| self.copies[well[at]].replica.expected_wait();
        Some(well[route::choose(count, route::draw(&mut self.draws), wait)])
    }
}

impl Replica {
    fn new(placed: &Placed, seats: &Seats, fitted: bool) -> Self {
        let part = |&volume: &VolumeId| Part {
            seat: seats.seat(volume),
            opening: AsyncMutex::new(()),
            fitted: AtomicBool::new(fitted),
        };
        Self {
            number: placed.number,
            layout: placed.layout.clone(),
            chunks: placed.layout.chunks(),
            parts: placed.layout.volumes().iter().map(part).collect(),
        }
    }

    pub(super) fn placed(&self) -> Placed {
        Placed { number: self.number, layout: self.layout.clone() }
    }

    pub(super) fn volume(&self, part: usize) -> VolumeId {
        self.parts[part].seat.id
    }

    pub(super) const fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Whether a volume of it is away, or failed a moment ago.
    fn is_avoided(&self) -> bool {
        // Each of them counts down.
        self.parts.iter().filter(|part| part.seat.is_avoided()).count() > 0
    }

    /// Whether every volume of it is there.
    pub(super) fn is_here(&self) -> bool {
        self.parts.iter().all(|part| part.seat.volume.is_some())
    }

    /// How long a read of it would wait; if it is striped, where it waits longest.
    fn expected_wait(&self) -> std::time::Duration {
        self.parts.iter().map(|part| part.seat.expected_wait()).max().unwrap_or_default()
    }

    /// A read failed that another copy may answer: for a while it is not asked first.
    pub(super) fn avoid(&self) {
        self.parts.iter().for_each(|part| part.seat.avoid());
    }

    /// The labels of its volumes.
    pub(super) fn labels(&self) -> String {
        let labels: Vec<_> = self.parts.iter().map(|part| &*part.seat.label).collect();
        labels.join(", ")
    }

    /// The piece that is all of a range; `None` if the range is empty or has several.
    fn only_piece(&self, offset: u64, len: usize) -> Option<Piece> {
        let first = self.chunks.pieces(offset, len as u64).next()?;
        (first.len == len as u64).then_some(first)
    }

    pub(super) fn part_len(&self, part: usize, len: u64) -> u64 {
        self.chunks.part_len(len, part)
    }
}

impl Body {
    /// An object that is just being made.
    pub(super) fn new(
        name: &Name,
        id: ObjectId,
        kind: Kind,
        copies: &[NewCopy],
        seats: &Seats,
    ) -> Self {
        let open = |NewCopy { placed, leaves }: &NewCopy| OpenCopy {
            replica: Arc::new(Replica::new(placed, seats, true)),
            leaves: leaves.iter().cloned().map(Some).collect(),
        };
        Self::with(name, id, kind, 0, copies.iter().map(open).collect())
    }

    /// An object of the manifest. What its sync has to wait for is not known: every edit up to
    /// `recorded`.
    pub(super) fn stored(
        name: &Name,
        id: ObjectId,
        stored: &Stored,
        recorded: Lsn,
        seats: &Seats,
    ) -> Self {
        let len = stored.committed.map_or(0, |committed| committed.len);
        let copies = stored.copies.iter().map(|placed| OpenCopy::closed(placed, seats, false));
        let mut body = Self::with(name, id, stored.kind, len, copies.collect());
        body.sealed = AtomicBool::new(stored.is_sealed());
        let checked = stored.checked().filter(|_| stored.kind == Kind::Log);
        body.checked = AtomicU64::new(checked.map_or(0, |checked| checked.len));
        body.settled = AtomicBool::new(stored.committed.is_some());
        body.lsn = AtomicU64::new(recorded);
        body
    }

    fn with(name: &Name, id: ObjectId, kind: Kind, len: u64, copies: Vec<OpenCopy>) -> Self {
        Self {
            id,
            kind,
            name: name.clone(),
            open: Mutex::new(Open { copies, draws: id.0 }),
            len: AtomicU64::new(len),
            len_recovered: len,
            sealed: AtomicBool::new(false),
            lsn: AtomicU64::new(0),
            settled: AtomicBool::new(false),
            resizing: AsyncMutex::new(()),
            turn: Turn::default(),
            checked: AtomicU64::new(0),
            checksums: AtomicU64::new(0),
            doubt: AtomicU64::new(ALIKE),
            handles: AtomicUsize::new(0),
        }
    }

    /// The length of the object.
    pub(super) fn len(&self) -> u64 {
        self.log_len().unwrap_or_else(|| self.len.load(Ordering::Acquire))
    }

    /// The length of a log that is open: its leaf's, whatever became of writes that failed.
    fn log_len(&self) -> Option<u64> {
        let open = (self.kind == Kind::Log).then(|| self.open.lock())?;
        open.copies.iter().find_map(|copy| copy.leaves[0].as_ref().map(|leaf| leaf.len()))
    }

    /// How long it is by the writes that were done: what failed may have left more.
    pub(super) fn written_len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// It holds a byte up to `end`.
    pub(super) fn extend(&self, end: u64) {
        self.len.fetch_max(end, Ordering::AcqRel);
    }

    pub(super) fn set_len(&self, len: u64) {
        self.len.store(len, Ordering::Release);
    }

    /// Whether [`Body::len`] is exact without asking a volume.
    pub(super) fn knows_len(&self) -> bool {
        let fitted = |copy: &OpenCopy| copy.replica.parts[0].fitted.load(Ordering::Acquire);
        self.kind != Kind::Log || self.open.lock().copies.iter().any(fitted)
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// It never changes again.
    pub(super) fn seal(&self) {
        self.sealed.store(true, Ordering::Release);
    }

    /// How many of the first bytes of a log have a checksum.
    pub(super) fn checked_len(&self) -> u64 {
        self.checked.load(Ordering::Acquire)
    }

    /// The first `len` bytes of a log have a checksum from now on, and are synced.
    pub(super) fn set_checked(&self, len: u64) {
        self.settled.store(true, Ordering::Release);
        self.checksums.fetch_add(1, Ordering::AcqRel);
        self.checked.store(len, Ordering::Release);
    }

    /// How often a log was given a checksum so far.
    pub(super) fn checksums(&self) -> u64 {
        self.checksums.load(Ordering::Acquire)
    }

    /// The checksum of a log is durably gone.
    pub(super) fn clear_checked(&self) {
        self.checked.store(0, Ordering::Release);
    }

    /// Copies may differ from `offset` on: nothing behind it was acknowledged.
    pub(super) fn set_doubt(&self, offset: u64) {
        self.doubt.fetch_min(offset, Ordering::AcqRel);
    }

    /// Copies are the same again, if they differed from `offset` on and nothing more went wrong since.
    pub(super) fn clear_doubt(&self, offset: u64) {
        let _ = self.doubt.compare_exchange(offset, ALIKE, Ordering::AcqRel, Ordering::Acquire);
    }

    /// From where on copies may differ, if they may.
    pub(super) fn doubt(&self) -> Option<u64> {
        let from = self.doubt.load(Ordering::Acquire);
        (from != ALIKE && self.open.lock().copies.len() > 1).then_some(from)
    }

    pub(super) fn is_open(&self) -> bool {
        self.handles.load(Ordering::Acquire) > 0
    }

    pub(super) fn open_handle(&self) {
        self.handles.fetch_add(1, Ordering::AcqRel);
    }

    /// A handle is gone. With the last one the leaves are closed.
    pub(super) fn close_handle(&self) {
        if self.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            if let Some(len) = self.log_len() {
                self.set_len(len);
            }
            // A handle made in between opens the leaves again.
            let mut open = self.open.lock();
            let leaves = open.copies.iter_mut().flat_map(|copy| &mut copy.leaves);
            let closed: Vec<_> = leaves.filter_map(Option::take).collect();
            drop(open);
            drop(closed);
        }
    }

    /// A sync of the object waits for this edit.
    pub(super) fn wait_for(&self, lsn: Lsn) {
        self.lsn.fetch_max(lsn, Ordering::AcqRel);
    }

    /// The edit that a sync of the object waits for.
    pub(super) fn lsn(&self) -> Lsn {
        self.lsn.load(Ordering::Acquire)
    }

    /// Every copy, the first one first.
    pub(super) fn replicas(&self) -> Vec<Arc<Replica>> {
        self.open.lock().copies.iter().map(|copy| Arc::clone(&copy.replica)).collect()
    }

    pub(super) fn replica(&self, number: u64) -> Option<Arc<Replica>> {
        self.open.lock().find(number).map(|copy| Arc::clone(&copy.replica))
    }

    /// Where all copies lie.
    pub(super) fn copies(&self) -> Copies {
        let open = self.open.lock();
        let copies = Copies::of(open.copies.iter().map(|copy| copy.replica.placed()));
        copies.expect("an object has a copy")
    }

    /// The volume that has the byte at `offset` of the first copy, or would.
    pub(super) fn volume_at(&self, offset: u64) -> VolumeId {
        let open = self.open.lock();
        let replica = &open.copies[0].replica;
        let part = replica.chunks.pieces(offset, 1).next().map_or(0, |piece| piece.part);
        replica.volume(part)
    }

    /// Where a read of `len` bytes, not none, goes.
    pub(super) fn way(&self, offset: u64, len: usize) -> Way {
        let mut open = self.open.lock();
        let at = open.choose(&[]).unwrap_or(0);
        let OpenCopy { replica, leaves } = &open.copies[at];
        let piece = replica.only_piece(offset, len);
        match piece.and_then(|piece| Some((piece, leaves[piece.part].clone()?))) {
            Some((piece, leaf)) => {
                let volume = replica.volume(piece.part);
                Way::Leaf { leaf, piece, number: replica.number, volume }
            }
            None => Way::Replica(Arc::clone(replica)),
        }
    }

    /// The only copy's leaf for a write of one piece, if it has no other copy and the leaf is open.
    pub(super) fn only_leaf(
        &self,
        offset: u64,
        len: usize,
    ) -> Option<(Arc<dyn Object>, Piece, u64)> {
        let open = self.open.lock();
        let [OpenCopy { replica, leaves }] = &open.copies[..] else { return None };
        let piece = replica.only_piece(offset, len)?;
        Some((leaves[piece.part].clone()?, piece, replica.number))
    }

    /// The next copy to read, if those with the numbers `tried` were no good.
    pub(super) fn choose(&self, tried: &[u64]) -> Option<Arc<Replica>> {
        let mut open = self.open.lock();
        let at = open.choose(tried)?;
        Some(Arc::clone(&open.copies[at].replica))
    }

    fn leaf(&self, number: u64, part: usize) -> Option<Arc<dyn Object>> {
        self.open.lock().find(number)?.leaves[part].clone()
    }

    fn keep_leaf(&self, number: u64, part: usize, leaf: &Arc<dyn Object>) {
        if let Some(copy) = self.open.lock().find(number) {
            copy.leaves[part] = Some(Arc::clone(leaf));
        }
    }

    /// One copy more, if it is not there already.
    pub(super) fn attach(&self, placed: &Placed, seats: &Seats) {
        let mut open = self.open.lock();
        if open.find(placed.number).is_none() {
            open.copies.push(OpenCopy::closed(placed, seats, true));
        }
    }

    /// One copy less, unless it is the last.
    pub(super) fn detach(&self, number: u64) -> Option<Arc<Replica>> {
        let mut open = self.open.lock();
        if open.copies.len() == 1 {
            return None;
        }
        let at = open.copies.iter().position(|copy| copy.replica.number == number)?;
        let OpenCopy { replica, leaves } = open.copies.remove(at);
        drop(open);
        drop(leaves);
        Some(replica)
    }
}

impl OpenCopy {
    fn closed(placed: &Placed, seats: &Seats, fitted: bool) -> Self {
        let replica = Arc::new(Replica::new(placed, seats, fitted));
        let leaves = (0..replica.parts()).map(|_| None).collect();
        Self { replica, leaves }
    }
}

impl Inner {
    /// The leaf of a part, opened if it is not.
    pub(super) async fn leaf(
        &self,
        body: &Body,
        replica: &Replica,
        part: usize,
    ) -> Result<Arc<dyn Object>> {
        if let Some(leaf) = body.leaf(replica.number, part) {
            return Ok(leaf);
        }
        let Part { seat, opening, fitted } = &replica.parts[part];
        let _one_opens = opening.lock().await;
        if let Some(leaf) = body.leaf(replica.number, part) {
            return Ok(leaf);
        }
        let name = Leaf::Object { id: body.id, kind: body.kind, copy: replica.number }.name();
        let opened = async {
            let opened = seat.device()?.open(&name).await?;
            if !fitted.load(Ordering::Acquire) {
                fit(body, replica, part, &*opened).await?;
                fitted.store(true, Ordering::Release);
            }
            Ok(opened)
        };
        let opened: Arc<dyn Object> = opened.await.map_err(|e: Error| {
            let e =
                if e.kind() == ErrorKind::NotFound { self.lost(body, replica, &name) } else { e };
            name_part(body, replica, part, e)
        })?;
        if body.is_open() {
            body.keep_leaf(replica.number, part, &opened);
        }
        Ok(opened)
    }

    /// Finds out the length of a log from the first of its copies that answers.
    ///
    /// # Errors
    /// That of the last copy, if none does.
    pub(super) async fn learn_len(&self, body: &Body) -> Result<()> {
        let mut last = Ok(());
        for replica in body.replicas() {
            last = self.leaf(body, &replica, 0).await.map(drop);
            if last.is_ok() {
                break;
            }
        }
        last
    }

    /// Why a leaf is not there.
    fn lost(&self, body: &Body, replica: &Replica, name: &Name) -> Error {
        let copies = self.journal.look(|state| Some(state.object(body.id)?.copies.clone()));
        match copies {
            Some(copies) if copies.get(replica.number).is_some() => {
                let what = format!("{name} is missing: restore it, or remove the object");
                Error::new(ErrorKind::Corrupt, what)
            }
            Some(_) => Error::new(ErrorKind::Gone, "the copy was dropped"),
            None => Error::new(ErrorKind::Gone, "the object was removed"),
        }
    }

    /// Drops copies that lack something one of those that are `whole` has, of which it was verified that they
    /// hold everything. A sync of the object waits until they will not be back. False, and nothing is done, if
    /// none of the whole ones is there any more.
    pub(super) fn lose(&self, body: &Body, numbers: &[u64], whole: &[u64], why: &str) -> bool {
        let mut table = self.table.lock();
        if !whole.iter().any(|&number| body.replica(number).is_some()) {
            return false;
        }
        for replica in self.let_go_of(&mut table, body, numbers) {
            let (name, labels) = (&body.name, replica.labels());
            tracing::warn!("{name} loses its copy on volume {labels}: {why}");
        }
        true
    }

    /// Drops copies without a word, whatever the others are. Gives those that went: never the last.
    pub(super) fn let_go(&self, body: &Body, numbers: &[u64]) -> Vec<Arc<Replica>> {
        self.let_go_of(&mut self.table.lock(), body, numbers)
    }

    fn let_go_of(&self, table: &mut Table, body: &Body, numbers: &[u64]) -> Vec<Arc<Replica>> {
        let mut went = Vec::new();
        for &number in numbers {
            let Some(replica) = body.detach(number) else { continue };
            self.promise.due();
            went.push(Arc::clone(&replica));
            match self.journal.record(vec![Record::DropCopy { id: body.id, number }]) {
                Ok((lsn, dead)) => {
                    body.wait_for(lsn);
                    self.tell_places(body.id);
                    table.condemned.extend(dead.into_iter().map(|dead| (lsn, dead)));
                }
                // The manifest does not know the object, or not any more.
                Err(_) => {
                    let copies = Copies::of([replica.placed()]);
                    let (id, kind) = (body.id, body.kind);
                    let dead = copies.map(|copies| Dead { id, kind, copies, whole: false });
                    dead.into_iter().for_each(|dead| table.condemned.push_front((0, dead)));
                }
            }
        }
        went
    }

    /// Records that all of a body's bytes up to `len` are durable, if that is news.
    pub(super) fn commit(&self, body: &Body, len: u64) -> Result<()> {
        let mut table = self.table.lock();
        let committed = Committed { len, checksum: None };
        if let Some(name) = table.draft_of(body.id) {
            let (id, kind, copies) = (body.id, body.kind, body.copies());
            let create =
                Record::Create { id, kind, copies, committed: Some(committed), name: name.clone() };
            body.wait_for(self.journal.record(vec![create])?.0);
            table.drafts.remove(&name);
            self.placing.lock().complete(body.id, len);
            return Ok(());
        }
        if self.committed_len(body).is_some_and(|known| known != len) {
            let commit = Record::Commit { id: body.id, committed };
            body.wait_for(self.journal.record(vec![commit])?.0);
        }
        Ok(())
    }

    /// Records that a body will be `len` bytes long, if the manifest says it is longer. It may not be before the
    /// edit its sync waits for is durable.
    pub(super) fn shorten(&self, body: &Body, len: u64) -> Result<()> {
        let _table = self.table.lock();
        if self.committed_len(body).is_none_or(|known| known <= len) {
            return Ok(());
        }
        let committed = Committed { len, checksum: None };
        let (lsn, _) = self.journal.record(vec![Record::Commit { id: body.id, committed }])?;
        body.wait_for(lsn);
        Ok(())
    }

    /// What the manifest says about a body's length, if it says anything.
    fn committed_len(&self, body: &Body) -> Option<u64> {
        self.journal.look(|state| Some(state.object(body.id)?.committed?.len))
    }

    /// Records the first sync of a log.
    pub(super) fn settle(&self, log: &Body) -> Result<()> {
        if log.settled.load(Ordering::Acquire) {
            return Ok(());
        }
        let _table = self.table.lock();
        // A log without a name needs no record.
        if self.journal.look(|state| state.object(log.id).is_some()) {
            let committed = Committed { len: log.len(), checksum: None };
            let (lsn, _) = self.journal.record(vec![Record::Commit { id: log.id, committed }])?;
            log.wait_for(lsn);
        }
        log.settled.store(true, Ordering::Release);
        Ok(())
    }
}

/// An error of one part, with the names of the object and the volume.
pub(super) fn name_part(body: &Body, replica: &Replica, part: usize, e: Error) -> Error {
    let label = &replica.parts[part].seat.label;
    e.within(format_args!("{} (object {}) on volume {label}", body.name, body.id))
}

/// Makes a leaf that was found when the pool was opened as long as the manifest says. Longer means
/// that its end was never synced.
async fn fit(body: &Body, replica: &Replica, part: usize, leaf: &dyn Object) -> Result<()> {
    if body.kind == Kind::Log {
        body.set_len(leaf.len());
        return Ok(());
    }
    let expected = replica.part_len(part, body.len_recovered);
    if leaf.len() < expected {
        let what = format!("{} bytes of {expected} are there: restore it", leaf.len());
        return Err(Error::new(ErrorKind::Corrupt, what));
    }
    if leaf.len() > expected {
        leaf.set_len(expected).await?;
    }
    Ok(())
}

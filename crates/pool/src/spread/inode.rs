//! One object of a pool: its copies, their leaf objects on the volumes, and its length.
//!
//! A sealed object never changes, so any of its copies may be read. A write to another object returns only
//! after it reached every copy. A copy that fails is dropped once another one durably holds everything, so
//! no copy ever lacks an acknowledged byte. If all copies fail, all stay: they may differ in
//! unacknowledged bytes until they are aligned, see [`align`](super::align).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;
use policy::placement::{Chunks, Code, Fragment, Layout, Piece, VolumeId};
use policy::route;
use volume::ranges::Ranges;
use volume::{Error, ErrorKind, Name, Object, ReadTime, Result};

use super::leaves::NewCopy;
use super::patches::Unapplied;
use super::resync::Resyncs;
use super::running::Running;
use super::unsynced::Unsynced;
use super::write_lock::WriteLock;
use crate::leaf::{Kind, Leaf, ObjectId};
use crate::manifest::journal::{Journal, Lsn};
use crate::manifest::recovery::Unequal;
use crate::manifest::{Checked, Committed, Copies, Placed, Record, Stored, held};
use crate::members::{MemberSlot, Members};

/// The most copies among which a read chooses.
const CHOICES: usize = 8;

/// The value of `doubt` while the copies are equal.
const ALIKE: u64 = u64::MAX;

/// The in-memory inode of an object: the state that all of its handles share. It is in the pool's table while the object has a name.
pub(super) struct Inode {
    pub(super) id: ObjectId,
    pub(super) kind: Kind,
    /// One of its names, for messages; it may be outdated.
    pub(super) name: Name,
    open: Mutex<Open>,
    /// Its length by acknowledged writes; see [`Inode::knows_len`].
    len: AtomicU64,
    /// Its length in the manifest when the pool was opened.
    len_recovered: u64,
    /// Whether it has a checksum, and never changes again.
    sealed: AtomicBool,
    /// Its sync also waits until this edit is durable.
    lsn: AtomicU64,
    /// Whether the first sync is in the manifest; for logs.
    settled: AtomicBool,
    /// Locked while the length in the manifest changes, so that lengths are recorded in order.
    pub(super) resizing: AsyncMutex<()>,
    /// Shared/exclusive lock over its writes.
    pub(super) write_lock: WriteLock,
    /// Changes of its bytes under way, while it may be written in place: they reach all copies in one order.
    pub(super) changes: Ranges,
    /// New copies that get its writes while they are made, and outdated ones.
    pub(super) resyncs: Resyncs,
    /// What was written since its copies were synced.
    pub(super) unsynced: Unsynced,
    /// Changes of its rows that were decided, if it is kept as fragments and written in place.
    pub(super) unapplied: Unapplied,
    /// The number of a log's first bytes that a checksum in the manifest covers. They change only after the manifest
    /// durably forgot the checksum. Written under the lock of the table.
    checked: AtomicU64,
    /// The number of checksums recorded so far.
    checksums: AtomicU64,
    /// The first byte in which its copies may differ, or a further one from the only copy; [`ALIKE`] if none does.
    doubt: AtomicU64,
    /// An alignment failed since the doubt began: reads do not try again, each would read all of the bytes in doubt.
    unsettled: AtomicBool,
    /// What the opening of the pool found of copies that may differ since a crash, until they were aligned or could
    /// not be.
    unequal: Mutex<Option<Unequal>>,
    /// The checksum of its bytes, if they were all written by this process, one after the other. Locked before the
    /// table.
    running: Mutex<Option<Box<Running>>>,
    handles: AtomicUsize,
}

/// The copies, at least one, with their open leaf objects.
struct Open {
    copies: Vec<OpenCopy>,
    draws: u64,
    /// The number of the copy that reads go to while another one differs from it.
    lead: Option<u64>,
}

struct OpenCopy {
    replica: Arc<Replica>,
    /// The leaf object of each part: open from its first use until the last handle is closed.
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
    slot: Arc<MemberSlot>,
    opening: AsyncMutex<()>,
    /// Whether the leaf object's length was compared with the manifest's since the pool was opened.
    fitted: AtomicBool,
}

/// The target of a read.
pub(super) enum Way {
    /// One piece of one open leaf object.
    Leaf { leaf: Arc<dyn Object>, piece: Piece, number: u64, volume: VolumeId },
    /// A copy of which several leaf objects must be read, or one opened.
    Replica(Arc<Replica>),
    /// Fragments, of which several must be read, or one opened.
    Fragments(Code),
}

impl Open {
    fn find(&mut self, number: u64) -> Option<&mut OpenCopy> {
        self.copies.iter_mut().find(|copy| copy.replica.number == number)
    }

    /// The code, if the copies are fragments.
    fn code(&self) -> Option<Code> {
        self.copies.first()?.replica.fragment().map(|fragment| fragment.code)
    }

    /// The open leaf object of the one fragment that a read needs, if its volume answers.
    fn way_to_fragment(&self, code: Code, offset: u64, len: usize) -> Option<Way> {
        let piece = only_piece(code.chunks(), offset, len)?;
        let index = piece.part;
        let mut copies = self.copies.iter().filter(|copy| copy.replica.index() == Some(index));
        let OpenCopy { replica, leaves } = copies.find(|copy| !copy.replica.take_avoidance())?;
        let leaf = leaves[0].clone()?;
        let (piece, volume) = (Piece { part: 0, ..piece }, replica.volume(0));
        Some(Way::Leaf { leaf, piece, number: replica.number, volume })
    }

    /// The position of the copy to read in this range; `None` if all were tried, or there are only fragments.
    fn choose(&mut self, tried: &[u64], offset: u64, len: u64) -> Option<usize> {
        if self.code().is_some() {
            return None;
        }
        if self.copies.len() == 1 && tried.is_empty() {
            return Some(0);
        }
        if let Some(lead) = self.lead.filter(|lead| !tried.contains(lead))
            && let Some(at) = self.copies.iter().position(|copy| copy.replica.number == lead)
            && !self.copies[at].replica.take_avoidance()
        {
            return Some(at);
        }
        self.choose_among(tried, offset, len)
    }

    #[cold]
    fn choose_among(&mut self, tried: &[u64], offset: u64, len: u64) -> Option<usize> {
        let (mut well, mut unwell) = ([0; CHOICES], None);
        let mut count = 0;
        for (at, OpenCopy { replica, .. }) in self.copies.iter().enumerate() {
            if tried.contains(&replica.number) {
                continue;
            }
            if replica.take_avoidance() {
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
        let expected = |at: usize| self.copies[well[at]].expected_read(offset, len);
        Some(well[route::choose(count, route::draw(&mut self.draws), expected)])
    }

    /// How long a read of this range would take.
    fn expected_read(&self, offset: u64, len: u64) -> ReadTime {
        let Some(code) = self.code() else {
            let of = |copy: &OpenCopy| copy.expected_read(offset, len);
            let shorter = |one: ReadTime, other| if one.is_shorter(other) { one } else { other };
            return self.copies.iter().map(of).reduce(shorter).unwrap_or_default();
        };
        // Of a longer range each fragment is read.
        let len = len.min(code.strip() * code.data() as u64);
        let of = |piece: Piece| {
            let mut copies = self.copies.iter();
            let has = |copy: &&OpenCopy| copy.replica.index() == Some(piece.part);
            let whole = Piece { part: 0, ..piece };
            // A fragment that is away is computed from the others.
            copies.find(has).map_or_else(ReadTime::default, |copy| copy.expected_of(whole))
        };
        code.chunks().pieces(offset, len).map(of).fold(ReadTime::default(), ReadTime::with)
    }
}

impl OpenCopy {
    /// How long a read of this range would take.
    fn expected_read(&self, offset: u64, len: u64) -> ReadTime {
        if let Some(piece) = self.replica.only_piece(offset, len as usize) {
            return self.expected_of(piece);
        }
        self.replica.expected_read()
    }

    fn expected_of(&self, piece: Piece) -> ReadTime {
        match &self.leaves[piece.part] {
            Some(leaf) => leaf.expected_read(piece.inner, piece.len),
            None => self.replica.parts[piece.part].slot.expected_read(),
        }
    }
}

impl Replica {
    fn new(placed: &Placed, members: &Members, fitted: bool) -> Self {
        let part = |&volume: &VolumeId| Part {
            slot: members.slot(volume),
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
        self.parts[part].slot.id
    }

    pub(super) const fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The fragment that it is, if it is one.
    pub(super) const fn fragment(&self) -> Option<&Fragment> {
        self.layout.fragment()
    }

    /// The number of the fragment, if it is one.
    pub(super) fn index(&self) -> Option<usize> {
        self.fragment().map(|fragment| usize::from(fragment.index))
    }

    /// Its first bytes with a checksum, if `object` are those of the object, of `len` bytes. A fragment has its own, also
    /// when the manifest has no object any more, unless it is written in place.
    pub(super) fn checked(&self, object: Option<Checked>, len: u64) -> Option<Checked> {
        let Some(fragment) = self.fragment() else { return object };
        let checksum = fragment.checksum()?;
        Some(Checked { len: self.layout.len(len), checksum })
    }

    /// Whether a read should avoid it: one of its volumes is away, or failed a moment ago. Counts down for each volume.
    pub(super) fn take_avoidance(&self) -> bool {
        // No short cut: each volume counts this read.
        self.parts.iter().filter(|part| part.slot.take_avoidance()).count() > 0
    }

    /// Whether all of its volumes are present.
    pub(super) fn is_here(&self) -> bool {
        self.parts.iter().all(|part| part.slot.volume.is_some())
    }

    /// How long a read would take; for a striped copy, on the slowest of its volumes.
    pub(super) fn expected_read(&self) -> ReadTime {
        let parts = self.parts.iter().map(|part| part.slot.expected_read());
        parts.fold(ReadTime::default(), ReadTime::with)
    }

    /// Makes the next reads avoid this copy, after a read failed that another copy may answer.
    pub(super) fn avoid(&self) {
        self.parts.iter().for_each(|part| part.slot.avoid());
    }

    /// Whether a part of it is on this volume.
    pub(super) fn is_on(&self, volume: VolumeId) -> bool {
        self.layout.volumes().contains(&volume)
    }

    /// The labels of its volumes.
    pub(super) fn labels(&self) -> String {
        let labels: Vec<_> = self.parts.iter().map(|part| &*part.slot.label).collect();
        labels.join(", ")
    }

    fn only_piece(&self, offset: u64, len: usize) -> Option<Piece> {
        only_piece(self.chunks, offset, len)
    }

    /// The length of a part of an object of `len` bytes.
    pub(super) fn part_len(&self, part: usize, len: u64) -> u64 {
        self.layout.part_len(len, part)
    }

    /// The offset in the object of the byte at `inner` of a part; in a fragment of parity, that in the fragment.
    pub(super) fn object_offset(&self, part: usize, inner: u64) -> u64 {
        match self.fragment() {
            None => self.chunks.offset(part, inner),
            Some(Fragment { index, code, .. }) if usize::from(*index) < code.data() => {
                code.chunks().offset(usize::from(*index), inner)
            }
            Some(_) => inner,
        }
    }
}

impl Inode {
    /// An object that is being created.
    pub(super) fn new(
        name: &Name,
        id: ObjectId,
        kind: Kind,
        copies: &[NewCopy],
        members: &Members,
    ) -> Self {
        let open = |NewCopy { placed, leaves, .. }: &NewCopy| OpenCopy {
            replica: Arc::new(Replica::new(placed, members, true)),
            leaves: leaves.iter().cloned().map(Some).collect(),
        };
        let inode = Self::with(name, id, kind, 0, copies.iter().map(open).collect());
        *inode.running.lock() = Some(Box::default());
        inode
    }

    /// An object of the manifest. The edits that its sync must wait for are unknown, so it waits for all
    /// up to `recorded`.
    pub(super) fn stored(
        name: &Name,
        id: ObjectId,
        stored: &Stored,
        recorded: Lsn,
        members: &Members,
    ) -> Self {
        let len = stored.len();
        let copies = stored.copies.iter().map(|placed| OpenCopy::closed(placed, members, false));
        let mut inode = Self::with(name, id, stored.kind, len, copies.collect());
        inode.sealed = AtomicBool::new(stored.is_sealed());
        let checked = stored.checked().filter(|_| stored.kind == Kind::Log);
        inode.checked = AtomicU64::new(checked.map_or(0, |checked| checked.len));
        inode.settled = AtomicBool::new(stored.committed.is_some());
        inode.lsn = AtomicU64::new(recorded);
        inode
    }

    fn with(name: &Name, id: ObjectId, kind: Kind, len: u64, copies: Vec<OpenCopy>) -> Self {
        Self {
            id,
            kind,
            name: name.clone(),
            open: Mutex::new(Open { copies, draws: id.0, lead: None }),
            len: AtomicU64::new(len),
            len_recovered: len,
            sealed: AtomicBool::new(false),
            lsn: AtomicU64::new(0),
            settled: AtomicBool::new(false),
            resizing: AsyncMutex::new(()),
            write_lock: WriteLock::default(),
            changes: Ranges::default(),
            resyncs: Resyncs::default(),
            unsynced: Unsynced::default(),
            unapplied: Unapplied::default(),
            checked: AtomicU64::new(0),
            checksums: AtomicU64::new(0),
            doubt: AtomicU64::new(ALIKE),
            unsettled: AtomicBool::new(false),
            unequal: Mutex::default(),
            running: Mutex::default(),
            handles: AtomicUsize::new(0),
        }
    }

    /// The length of the object.
    pub(super) fn len(&self) -> u64 {
        self.log_len().unwrap_or_else(|| self.len.load(Ordering::Acquire))
    }

    /// The length of an open log that may still grow: that of its leaf object, including bytes of failed writes.
    fn log_len(&self) -> Option<u64> {
        let open = self.grows().then(|| self.open.lock())?;
        open.copies.iter().find_map(|copy| copy.leaves[0].as_ref().map(|leaf| leaf.len()))
    }

    /// The length by acknowledged writes: failed ones may have left more bytes.
    pub(super) fn written_len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Extends the length to `end`, if it is shorter.
    pub(super) fn extend(&self, end: u64) {
        self.len.fetch_max(end, Ordering::AcqRel);
    }

    pub(super) fn set_len(&self, len: u64) {
        self.len.store(len, Ordering::Release);
    }

    /// Whether its bytes may be written again in place, so that a reader of one copy must wait for writes to the others.
    pub(super) fn is_overwritten(&self) -> bool {
        matches!(self.kind, Kind::Data | Kind::InPlace) && !self.is_sealed()
    }

    /// Whether its length is that of its leaf objects: it is a log that is not sealed.
    fn grows(&self) -> bool {
        self.kind == Kind::Log && !self.is_sealed()
    }

    /// Whether [`Inode::len`] is exact without asking a volume.
    fn knows_len(&self) -> bool {
        let fitted = |copy: &OpenCopy| copy.replica.parts[0].fitted.load(Ordering::Acquire);
        !self.grows() || self.open.lock().copies.iter().any(fitted)
    }

    /// Whether the first sync is in the manifest; for logs.
    pub(super) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    pub(super) fn set_settled(&self) {
        self.settled.store(true, Ordering::Release);
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// Marks it as sealed, with this length. Then its checksum says which copy is right.
    pub(super) fn seal(&self, len: u64) {
        self.set_len(len);
        self.set_settled();
        self.doubt.store(ALIKE, Ordering::Release);
        self.sealed.store(true, Ordering::Release);
    }

    /// Tells the running checksum of a change; it ends if `change` returns false.
    pub(super) fn run(&self, change: impl FnOnce(&mut Running) -> bool) {
        let mut running = self.running.lock();
        if running.as_mut().is_some_and(|running| !change(running)) {
            *running = None;
        }
    }

    /// The checksum of its first `len` bytes, if it is known without reading them.
    pub(super) fn checksum_of(&self, len: u64) -> Option<u64> {
        let whole = self.running.lock().as_ref()?.whole();
        (whole.len == len).then_some(whole.checksum)
    }

    /// How many bytes are written and have a checksum that the manifest lacks, if they are at least `least`; and that
    /// checksum.
    pub(super) fn unrecorded(&self, least: u64) -> Option<Checked> {
        let running = self.running.lock();
        let running = running.as_ref()?;
        let is_due = running.hashed() >= self.checked_len().saturating_add(least);
        is_due.then(|| running.fixed())
    }

    /// Calls `record` if the first `len` bytes did not change since [`Inode::unrecorded`] gave their checksum. A write
    /// that changes them begins before this, and is seen, or after it, and sees what `record` recorded.
    pub(super) fn if_unchanged<T>(
        &self,
        len: u64,
        record: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        let running = self.running.lock();
        running.as_ref().filter(|running| running.hashed() >= len)?;
        record()
    }

    /// The number of a log's first bytes that a checksum covers.
    pub(super) fn checked_len(&self) -> u64 {
        self.checked.load(Ordering::Acquire)
    }

    /// Records that the first `len` bytes of a log have a checksum and are synced.
    pub(super) fn set_checked(&self, len: u64) {
        self.set_settled();
        self.checksums.fetch_add(1, Ordering::AcqRel);
        self.checked.store(len, Ordering::Release);
    }

    /// The number of checksums recorded so far.
    pub(super) fn checksums(&self) -> u64 {
        self.checksums.load(Ordering::Acquire)
    }

    /// Records that the manifest durably forgot the checksum.
    pub(super) fn clear_checked(&self) {
        self.checked.store(0, Ordering::Release);
    }

    /// Records that copies may differ from `offset` on, where an unfinished change begins. Of a single copy that counts once
    /// there is another.
    pub(super) fn set_doubt(&self, offset: u64) {
        self.doubt.fetch_min(offset, Ordering::AcqRel);
        self.unsettled.store(false, Ordering::Release);
        self.run(|_| false);
    }

    /// Records that copies may differ since a crash.
    pub(super) fn set_unequal(&self, unequal: Unequal) {
        self.set_doubt(unequal.from);
        *self.unequal.lock() = Some(unequal);
    }

    /// The copies that may differ since a crash, until they were aligned or could not be.
    pub(super) fn unequal(&self) -> Option<Unequal> {
        self.unequal.lock().clone()
    }

    /// Records that the alignment after a crash was tried.
    pub(super) fn clear_unequal(&self) {
        self.open.lock().lead = None;
        *self.unequal.lock() = None;
    }

    /// Records that copies were compared and differ: reads go to the one with this number until they are aligned.
    pub(super) fn set_lead(&self, number: u64) {
        self.open.lock().lead = Some(number);
    }

    /// The number of the copy that reads go to, if copies are known to differ.
    pub(super) fn lead(&self) -> Option<u64> {
        self.open.lock().lead
    }

    /// Whether bytes before `end` may differ between the copies since a crash, and these must be compared before one of
    /// them is read.
    pub(super) fn is_unequal_before(&self, end: u64) -> bool {
        self.doubt().is_some_and(|from| from < end)
            && self.unequal.lock().is_some()
            && self.lead().is_none()
    }

    /// Whether bytes before `end` of an object that is written in place may differ between the copies, since a write of
    /// them failed or was given up, and an alignment must be tried before one of them is read.
    pub(super) fn is_doubtful_before(&self, end: u64) -> bool {
        self.is_overwritten()
            && self.doubt().is_some_and(|from| from < end)
            && !self.unsettled.load(Ordering::Acquire)
    }

    /// Records that an alignment failed.
    pub(super) fn set_unsettled(&self) {
        self.unsettled.store(true, Ordering::Release);
    }

    /// Records that copies are equal again, unless the doubt changed from `offset` in the meantime.
    pub(super) fn clear_doubt(&self, offset: u64) {
        let _ = self.doubt.compare_exchange(offset, ALIKE, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The first byte in which copies may differ, if they may.
    pub(super) fn doubt(&self) -> Option<u64> {
        let from = self.doubt.load(Ordering::Acquire);
        if from == ALIKE {
            return None;
        }
        let open = self.open.lock();
        // Fragments are never compared with each other.
        (open.copies.len() > 1 && open.code().is_none()).then_some(from)
    }

    pub(super) fn is_open(&self) -> bool {
        self.handles.load(Ordering::Acquire) > 0
    }

    pub(super) fn open_handle(&self) {
        self.handles.fetch_add(1, Ordering::AcqRel);
    }

    /// Closes a handle. The last one closes the leaf objects.
    pub(super) fn close_handle(&self) {
        if self.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.keep_len();
            // A handle opened in between opens the leaf objects again.
            let mut open = self.open.lock();
            let leaves = open.copies.iter_mut().flat_map(|copy| &mut copy.leaves);
            let closed: Vec<_> = leaves.filter_map(Option::take).collect();
            drop(open);
            drop(closed);
        }
    }

    /// Keeps the length of a log while its leaf objects are closed. One of several copies may be behind: it does not make
    /// the length less. Nor does this undo a write through a handle that is opened meanwhile.
    fn keep_len(&self) {
        let written = self.written_len();
        if let Some(len) = self.log_len() {
            let is_alone = self.open.lock().copies.len() == 1;
            let len = if is_alone { len } else { len.max(written) };
            let _ = self.len.compare_exchange(written, len, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// Makes a sync of the object wait for this edit.
    pub(super) fn wait_for(&self, lsn: Lsn) {
        self.lsn.fetch_max(lsn, Ordering::AcqRel);
    }

    /// The edit that a sync of the object waits for.
    pub(super) fn lsn(&self) -> Lsn {
        self.lsn.load(Ordering::Acquire)
    }

    /// The code, if it is kept as fragments.
    pub(super) fn code(&self) -> Option<Code> {
        self.open.lock().code()
    }

    /// Keeps a copy that is about to be dropped as an outdated one, if the object has it. It may lack what was written since
    /// the last sync, and what is in doubt.
    pub(super) fn outdate(&self, number: u64) {
        let Some(replica) = self.replica(number) else { return };
        let mut lacks = self.unsynced.ranges();
        let doubt = self.doubt.load(Ordering::Acquire);
        lacks.extend((doubt != ALIKE).then_some(doubt..u64::MAX));
        self.resyncs.outdate(replica.placed(), lacks);
    }

    /// Forgets that copies are outdated which were not dropped.
    pub(super) fn forget_what_stays(&self) {
        for Placed { number, .. } in self.resyncs.outdated() {
            if self.replica(number).is_some() {
                self.resyncs.forget_outdated(number);
            }
        }
    }

    /// Every copy, in order.
    pub(super) fn replicas(&self) -> Vec<Arc<Replica>> {
        self.open.lock().copies.iter().map(|copy| Arc::clone(&copy.replica)).collect()
    }

    pub(super) fn replica(&self, number: u64) -> Option<Arc<Replica>> {
        self.open.lock().find(number).map(|copy| Arc::clone(&copy.replica))
    }

    /// The places of all copies.
    pub(super) fn copies(&self) -> Copies {
        let open = self.open.lock();
        let copies = Copies::of(open.copies.iter().map(|copy| copy.replica.placed()));
        copies.expect("an object has a copy")
    }

    /// The record that creates it.
    pub(super) fn create(&self, committed: Option<Committed>, name: Name) -> Record {
        Record::Create { id: self.id, kind: self.kind, copies: self.copies(), committed, name }
    }

    /// The volume for the byte at `offset` of the first copy, existing or not.
    pub(super) fn volume_at(&self, offset: u64) -> VolumeId {
        let open = self.open.lock();
        if let Some(code) = open.code() {
            let (index, _) = code.chunks().locate(offset);
            let mut replicas = open.copies.iter().map(|copy| &copy.replica);
            let holder = replicas.find(|replica| replica.index() == Some(index));
            return holder.unwrap_or(&open.copies[0].replica).volume(0);
        }
        let replica = &open.copies[0].replica;
        let part = replica.chunks.pieces(offset, 1).next().map_or(0, |piece| piece.part);
        replica.volume(part)
    }

    /// The target of a read of `len` bytes, at least one.
    pub(super) fn way(&self, offset: u64, len: usize) -> Way {
        let mut open = self.open.lock();
        if let Some(code) = open.code() {
            let way = open.way_to_fragment(code, offset, len);
            return way.unwrap_or(Way::Fragments(code));
        }
        let at = open.choose(&[], offset, len as u64).unwrap_or(0);
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

    /// The leaf object for a write of one piece, if there is only one copy and the leaf object is open.
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

    /// How long a read of this range would take.
    pub(super) fn expected_read(&self, offset: u64, len: u64) -> ReadTime {
        self.open.lock().expected_read(offset, len)
    }

    /// The next copy to read in this range after those with the numbers `tried` failed.
    pub(super) fn choose(&self, tried: &[u64], offset: u64, len: u64) -> Option<Arc<Replica>> {
        let mut open = self.open.lock();
        let at = open.choose(tried, offset, len)?;
        Some(Arc::clone(&open.copies[at].replica))
    }

    /// The leaf object of a part; opens it if necessary.
    pub(super) async fn leaf(
        &self,
        journal: &Journal,
        replica: &Replica,
        part: usize,
    ) -> Result<Arc<dyn Object>> {
        if let Some(leaf) = self.open_leaf(replica.number, part) {
            return Ok(leaf);
        }
        let Part { slot, opening, fitted } = &replica.parts[part];
        let _one_opens = opening.lock().await;
        if let Some(leaf) = self.open_leaf(replica.number, part) {
            return Ok(leaf);
        }
        let name = Leaf::Object { id: self.id, kind: self.kind, copy: replica.number }.name();
        let opened = async {
            let opened = slot.device()?.open(&name).await?;
            if !fitted.load(Ordering::Acquire) {
                fit(self, replica, part, &*opened).await?;
                fitted.store(true, Ordering::Release);
            }
            Ok(opened)
        };
        let opened: Arc<dyn Object> = opened.await.map_err(|e: Error| {
            let is_lost = e.kind() == ErrorKind::NotFound;
            let e = if is_lost { self.lost(journal, replica, &name) } else { e };
            name_part(self, replica, part, e)
        })?;
        if self.is_open() {
            self.keep_leaf(replica.number, part, &opened);
        }
        Ok(opened)
    }

    /// Makes [`Inode::len`] exact.
    pub(super) async fn know_len(&self, journal: &Journal) -> Result<()> {
        if self.knows_len() { Ok(()) } else { self.learn_len(journal).await }
    }

    /// Learns the length of a log from the first of its copies that answers.
    ///
    /// # Errors
    /// That of the last copy, if none does.
    pub(super) async fn learn_len(&self, journal: &Journal) -> Result<()> {
        let mut last = Ok(());
        for replica in self.replicas() {
            last = self.leaf(journal, &replica, 0).await.map(drop);
            if last.is_ok() {
                break;
            }
        }
        last
    }

    /// The error for a missing leaf object.
    fn lost(&self, journal: &Journal, replica: &Replica, name: &Name) -> Error {
        let has = |object: &Stored| object.copies.get(replica.number).is_some();
        match journal.look(|state| state.object(self.id).map(has)) {
            Some(true) => {
                let what = format!("{name} is missing: restore it, or remove the object");
                Error::new(ErrorKind::Corrupt, what)
            }
            Some(false) => Error::new(ErrorKind::Gone, "the copy was dropped"),
            None => Error::new(ErrorKind::Gone, "the object was removed"),
        }
    }

    fn open_leaf(&self, number: u64, part: usize) -> Option<Arc<dyn Object>> {
        self.open.lock().find(number)?.leaves[part].clone()
    }

    fn keep_leaf(&self, number: u64, part: usize, leaf: &Arc<dyn Object>) {
        if let Some(copy) = self.open.lock().find(number) {
            copy.leaves[part] = Some(Arc::clone(leaf));
        }
    }

    /// Adds a copy, unless it is there already.
    pub(super) fn attach(&self, placed: &Placed, members: &Members) {
        let mut open = self.open.lock();
        if open.find(placed.number).is_none() {
            open.copies.push(OpenCopy::closed(placed, members, true));
        }
    }

    /// Puts these copies in the place of all.
    pub(super) fn replace(&self, copies: &Copies, members: &Members) {
        let copies = copies.iter().map(|placed| OpenCopy::closed(placed, members, true)).collect();
        let old = std::mem::replace(&mut self.open.lock().copies, copies);
        drop(old);
    }

    /// Removes a copy, unless the others do not hold the object.
    pub(super) fn detach(&self, number: u64) -> Option<Arc<Replica>> {
        let mut open = self.open.lock();
        let needs = open.code().map_or(1, Code::data);
        let others = open.copies.iter().filter(|copy| copy.replica.number != number);
        if held(others.map(|copy| copy.replica.fragment().map(|own| own.index))) < needs {
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
    fn closed(placed: &Placed, members: &Members, fitted: bool) -> Self {
        let replica = Arc::new(Replica::new(placed, members, fitted));
        let leaves = (0..replica.parts()).map(|_| None).collect();
        Self { replica, leaves }
    }
}

/// The single piece of a range; `None` if the range is empty or has several pieces.
fn only_piece(chunks: Chunks, offset: u64, len: usize) -> Option<Piece> {
    let first = chunks.pieces(offset, len as u64).next()?;
    (first.len == len as u64).then_some(first)
}

/// Adds the names of the object and the volume to an error of one part.
pub(super) fn name_part(inode: &Inode, replica: &Replica, part: usize, e: Error) -> Error {
    let label = &replica.parts[part].slot.label;
    e.within(format_args!("{} (object {}) on volume {label}", inode.name, inode.id))
}

/// Cuts a leaf object that existed before the pool was opened to the manifest's length: bytes past it were
/// never synced.
async fn fit(inode: &Inode, replica: &Replica, part: usize, leaf: &dyn Object) -> Result<()> {
    if inode.grows() {
        // A log may be shorter than the manifest says. After a crash its longest copy has its length, see `align`.
        match inode.knows_len() {
            true => inode.extend(leaf.len()),
            false => inode.set_len(leaf.len()),
        }
        return Ok(());
    }
    // All bytes of a sealed log were synced, whatever its length was before.
    let len = if inode.kind == Kind::Log { inode.len() } else { inode.len_recovered };
    let expected = replica.part_len(part, len);
    if leaf.len() < expected {
        let what = format!("{} bytes of {expected} are there: restore it", leaf.len());
        return Err(Error::new(ErrorKind::Corrupt, what));
    }
    if leaf.len() > expected {
        leaf.set_len(expected).await?;
    }
    Ok(())
}

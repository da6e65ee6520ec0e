//! The state of a log store in memory, and its rules. No I/O: one lock is held for moments.
//!
//! A record *counts* once it is written (and synced, with durability `Always`); until then it is *under way*. Of two
//! records of a key, the one with the larger sequence is newer, in whatever order they come to count. So a tombstone is
//! kept as long as a put with a smaller sequence is under way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use policy::merge::{Death, Fill, Groups, Life, Merges, Placed, Put, PutLimits, Sealed, Written};
use policy::time::Instant;
use volume::Space;
use volume::buf::PAGE;

use super::FileId;
use super::dirty::Dirty;
use super::figures::Counts;
use super::file::File;
use super::format::{HEADER_LEN, Kind, Layout, key_hash};
use super::index::{Index, Place};
use super::stream::Stream;
use super::writer::Writer;

/// Padding counts as dead when it is more than this part of the records, 1/8, and at least this many bytes.
const PADDING_SHARE: u64 = 8;
const PADDING_MIN: u64 = 4 * PAGE as u64;

/// The state of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    /// Written to, or not synced yet.
    Open,
    /// Final and durable: it may be merged.
    Sealed,
    /// A sync of it failed: records that were not durable are to be copied elsewhere.
    Doubtful,
    /// A merge found damage in it: it stays.
    Damaged,
}

/// The facts about a file.
pub(super) struct Facts {
    pub(super) member: usize,
    pub(super) layout: Layout,
    pub(super) phase: Phase,
    pub(super) handle: Arc<File>,
    /// No record of it has a smaller sequence.
    pub(super) sequence_min: u64,
    /// Bytes of records.
    pub(super) records: u64,
    /// Bytes of live records.
    pub(super) live: u64,
    /// Bytes of tombstones, and the largest sequence of one.
    pub(super) deletions: u64,
    pub(super) deletion_max: u64,
    /// No record needs the tombstones any more, and the policy knows.
    pub(super) deletions_dead: bool,
    /// Bytes on the volume, of the file and of its hint.
    pub(super) len: u64,
    pub(super) hint_len: u64,
    /// The largest sequence that superseded one of its records.
    pub(super) superseding_max: u64,
    /// When all of its records are dead; `None` while it has none.
    pub(super) death: Option<Death>,
    /// Offsets of records that were found damaged.
    pub(super) damaged: BTreeSet<u32>,
}

impl Facts {
    pub(super) fn new(member: usize, layout: Layout, handle: Arc<File>) -> Self {
        Self {
            member,
            layout,
            phase: Phase::Open,
            handle,
            sequence_min: u64::MAX,
            records: 0,
            live: 0,
            deletions: 0,
            deletion_max: 0,
            deletions_dead: false,
            len: 0,
            hint_len: 0,
            superseding_max: 0,
            death: None,
            damaged: BTreeSet::new(),
        }
    }

    /// Counts a record that was put into the file.
    pub(super) fn hold(&mut self, sequence: u64, len: u32, kind: Kind, death: Death) {
        self.sequence_min = self.sequence_min.min(sequence);
        self.records += u64::from(len);
        match kind {
            Kind::Tombstone => {
                self.deletions += u64::from(len);
                self.deletion_max = self.deletion_max.max(sequence);
            }
            Kind::Put => self.death = Some(self.death.map_or(death, |all| all.join(death))),
        }
    }

    /// A sync of it failed, and a crash may take records that count: they are not copied elsewhere yet.
    pub(super) fn is_unsafe(&self) -> bool {
        let counts = self.live > 0 || (self.deletions > 0 && !self.deletions_dead);
        self.phase == Phase::Doubtful && counts
    }

    fn sealed(&self, id: FileId) -> Sealed {
        let needed = if self.deletions_dead { 0 } else { self.deletions };
        // Every file has a header, a hint and some padding, and so would its copy: these are no reason to merge it.
        // Padding between many small groups is, if a copy would have much less.
        let packed = (HEADER_LEN as u64 + self.records).next_multiple_of(PAGE as u64);
        let padding = self.len.saturating_sub(packed);
        let is_worth = padding > self.records / PADDING_SHARE && padding >= PADDING_MIN;
        let padding = if is_worth { padding } else { 0 };
        let bytes = self.records + padding;
        Sealed {
            id,
            partition: u32::from(self.layout.partition),
            bytes,
            dead: bytes - self.live - needed,
            death: self.death.unwrap_or_default(),
        }
    }
}

/// A removed file that may reappear after a crash: its removal is not durable yet.
pub(super) struct PendingRemoval {
    pub(super) layout: Layout,
    pub(super) sequence_min: u64,
    /// The number of its removal on this volume.
    pub(super) removal: u64,
}

/// A file on a volume whose records are unknown, because it could not be read at the opening. A later opening may find
/// them, so tombstones of any key are kept.
pub(super) struct Unread {
    pub(super) member: usize,
    pub(super) len: u64,
}

/// A dead file, which is removed once its last reader is done.
pub(super) struct Dying {
    pub(super) handle: Arc<File>,
    pub(super) layout: Layout,
    pub(super) sequence_min: u64,
    pub(super) len: u64,
}

/// The state of a member volume.
pub(super) struct MemberState {
    pub(super) merges: Merges,
    pub(super) groups: Groups,
    pub(super) limits: PutLimits,
    /// What the store may use of the volume, in bytes.
    pub(super) quota: u64,
    /// Bytes of its own objects, unlinked but open ones included, and of writes about to happen.
    pub(super) own: u64,
    /// The space the volume reported last, reserve included, and `own` at that time.
    pub(super) space: Space,
    pub(super) own_then: u64,
    pub(super) dying: Vec<Dying>,
    pub(super) pending_removals: Vec<PendingRemoval>,
    pub(super) removals: u64,
    pub(super) counts: Counts,
    /// Bytes of the largest refused put, until one is admitted.
    pub(super) refused: u64,
    /// Bytes in the page cache that are not durable yet.
    pub(super) dirty: Dirty,
    /// Files to be copied now: those whose sync failed, and damaged ones whose last record was superseded.
    pub(super) doubtful: Vec<FileId>,
    /// Why the volume is unavailable: its error when asked for its space.
    pub(super) away: Option<String>,
    /// A write failed though there is room: puts go to other volumes until this time.
    pub(super) passed_over: Option<Instant>,
}

impl MemberState {
    /// Whether a put of `len` bytes would be admitted.
    pub(super) fn takes(&self, len: u64, written: u64) -> bool {
        let fill = self.fill(written);
        self.away.is_none() && !matches!(self.limits.admit(len, &fill), Put::Refused { .. })
    }

    /// Whether the largest refused put would be refused again.
    pub(super) fn is_refusing(&self, written: u64) -> bool {
        !self.takes(self.refused.max(1), written)
    }

    /// The fill of the store's part of the volume: its own bytes, and those that it can still write. What others take of
    /// the volume leaves less to fill; merges of this store free none of it.
    pub(super) fn fill(&self, written: u64) -> Fill {
        let grown = self.own.saturating_sub(self.own_then);
        let left = self.quota.saturating_sub(self.own);
        let free = self.space.free.saturating_sub(grown).min(left);
        Fill { capacity: self.own + free, used: self.own, written: Written(written) }
    }
}

/// See the [module](self).
pub(super) struct LogState {
    pub(super) index: Index,
    pub(super) files: BTreeMap<FileId, Facts>,
    pub(super) unread: Vec<Unread>,
    pub(super) members: Vec<MemberState>,
    pub(super) writers: BTreeMap<Stream, Arc<Writer>>,
    /// The next sequence: bytes of records put so far.
    pub(super) sequence: u64,
    /// The end of the leased sequences.
    pub(super) sequence_end: u64,
    pub(super) next_file: u64,
    pub(super) file_end: u64,
    /// Sequences under way, with their partitions.
    under_way: BTreeMap<u64, Layout>,
    /// A file died whole, and merges were not notified yet.
    pub(super) any_died: bool,
    /// Tombstones in the index, oldest first.
    tombstones: VecDeque<(u64, Box<[u8]>)>,
}

impl LogState {
    pub(super) fn new(members: Vec<MemberState>) -> Self {
        Self {
            index: Index::default(),
            files: BTreeMap::new(),
            unread: Vec::new(),
            members,
            writers: BTreeMap::new(),
            sequence: 0,
            sequence_end: 0,
            next_file: 0,
            file_end: 0,
            under_way: BTreeMap::new(),
            any_died: false,
            tombstones: VecDeque::new(),
        }
    }

    /// Gives a sequence to records of `len` bytes for a partition; `None` if a lease has to be renewed first.
    pub(super) fn begin(&mut self, len: u64, layout: Layout) -> Option<u64> {
        let sequence = self.sequence;
        let next = sequence.checked_add(len).filter(|&next| next <= self.sequence_end)?;
        self.sequence = next;
        self.under_way.insert(sequence, layout);
        Some(sequence)
    }

    /// The changes with these sequences have ended, successfully or not.
    pub(super) fn end(&mut self, sequences: impl Iterator<Item = u64>) {
        for sequence in sequences {
            self.under_way.remove(&sequence);
        }
        let first = self.first_under_way();
        while self.tombstones.front().is_some_and(|(sequence, _)| *sequence < first) {
            let Some((sequence, key)) = self.tombstones.pop_front() else { break };
            if self.index.get(&key).is_some_and(|p| p.is_deleted() && p.sequence == sequence) {
                self.index.remove(&key);
            }
        }
    }

    /// The smallest sequence that is under way.
    pub(super) fn first_under_way(&self) -> u64 {
        self.under_way.keys().next().copied().unwrap_or(u64::MAX)
    }

    /// Whether a change of these partitions with at most this sequence is under way.
    pub(super) fn is_under_way(&self, upto: u64, is_of: impl Fn(Layout) -> bool) -> bool {
        self.under_way.range(..=upto).any(|(_, layout)| is_of(*layout))
    }

    /// The group that a put of `key` goes to.
    pub(super) fn place_put(
        &mut self,
        member: usize,
        key: &[u8],
        len: u64,
        dies: Option<u64>,
        sequence: u64,
    ) -> Placed {
        let life = match (dies, self.index.get(key)) {
            (Some(dies), _) => Life::Until(Written(dies)),
            (None, Some(old)) if !old.is_deleted() => Life::Replaces(Written(old.sequence)),
            _ => Life::First,
        };
        self.members[member].groups.put(key_hash(key), life, len, Written(sequence))
    }

    /// Makes a put count, unless a newer record does.
    pub(super) fn count_put(&mut self, key: &[u8], place: Place) {
        match self.index.get(key) {
            Some(newer) if newer.sequence > place.sequence => {
                self.note_superseding(place.file, newer.sequence);
                return;
            }
            Some(old) if !old.is_deleted() => self.supersede(old, place.sequence),
            _ => {}
        }
        self.index.insert(key, place);
        self.file_mut(place.file).live += u64::from(place.len);
    }

    /// Makes a tombstone count, unless a newer record does.
    pub(super) fn count_deletion(&mut self, member: usize, key: &[u8], sequence: u64) {
        match self.index.get(key) {
            Some(newer) if newer.sequence > sequence => return,
            Some(old) if !old.is_deleted() => self.supersede(old, sequence),
            _ => {}
        }
        self.members[member].groups.deleted(key_hash(key), Written(self.sequence));
        if self.first_under_way() < sequence {
            self.index.insert(key, Place::deleted(sequence));
            self.tombstones.push_back((sequence, key.into()));
        } else {
            self.index.remove(key);
        }
    }

    /// Makes a copy count instead of the record at `from`, if that one still does.
    pub(super) fn count_copy(&mut self, key: &[u8], from: (FileId, u32), to: Place) -> bool {
        let current = self.index.get(key);
        let still = current.is_some_and(|place| (place.file, place.offset) == from);
        if still {
            self.index.insert(key, to);
            self.file_mut(to.file).live += u64::from(to.len);
            self.file_mut(from.0).live -= u64::from(to.len);
        }
        still
    }

    /// Whether a tombstone of `key` may still be needed: only if no put counts for the key.
    pub(super) fn is_deletion_newest(&self, key: &[u8]) -> bool {
        self.index.get(key).is_none_or(|place| place.is_deleted())
    }

    /// The file is final and durable: hands it to the policy.
    pub(super) fn seal(&mut self, id: FileId) {
        let facts = self.files.get_mut(&id).expect("its writer seals it");
        facts.phase = Phase::Sealed;
        let (member, sealed) = (facts.member, facts.sealed(id));
        self.members[member].dirty.forget(id);
        self.members[member].merges.sealed(sealed);
    }

    /// The file is dead: queues its removal.
    pub(super) fn retire(&mut self, id: FileId) {
        let facts = self.files.remove(&id).expect("it is retired once");
        assert_eq!(facts.live, 0, "{id:?} is retired with live records");
        let Facts { member, layout, handle, sequence_min, len, hint_len, .. } = facts;
        let len = len + hint_len;
        self.members[member].dirty.forget(id);
        self.members[member].merges.merged(id);
        self.members[member].dying.push(Dying { handle, layout, sequence_min, len });
    }

    /// Tells the policy about files whose tombstones are no longer needed.
    pub(super) fn release_deletions(&mut self) {
        let holders: Vec<_> = self
            .files
            .iter()
            .filter(|(_, f)| f.phase == Phase::Sealed && f.deletions > 0 && !f.deletions_dead)
            .map(|(&id, facts)| (id, facts.deletion_max))
            .collect();
        for (id, newest) in holders {
            if self.first_under_way() > newest && !self.older(id).any(|(_, min)| min < newest) {
                let facts = self.file_mut(id);
                facts.deletions_dead = true;
                let (member, bytes) = (facts.member, facts.deletions);
                self.members[member].merges.died(id, bytes);
            }
        }
    }

    /// Bytes of the files on a volume that could not be read.
    pub(super) fn unread_bytes(&self, member: usize) -> u64 {
        self.unread.iter().filter(|unread| unread.member == member).map(|unread| unread.len).sum()
    }

    /// The layouts and smallest sequences of all other files, including those that may reappear.
    pub(super) fn older(&self, but: FileId) -> impl Iterator<Item = (Layout, u64)> {
        let files = self.files.iter().filter(move |&(&id, _)| id != but);
        let files = files.map(|(_, facts)| (facts.layout, facts.sequence_min));
        let dying = self.members.iter().flat_map(|member| &member.dying);
        let dying = dying.map(|dying| (dying.layout, dying.sequence_min));
        let pending = self.members.iter().flat_map(|member| &member.pending_removals);
        let pending = pending.map(|pending| (pending.layout, pending.sequence_min));
        let unread = self.unread.iter().map(|_| (Layout::ANY, 0));
        files.chain(dying).chain(pending).chain(unread)
    }

    /// Counts a damaged record; says whether it is the first find.
    pub(super) fn found_damaged(&mut self, id: FileId, offset: u32) -> bool {
        let Some(facts) = self.files.get_mut(&id) else { return false };
        let is_new = facts.damaged.insert(offset);
        let member = facts.member;
        self.members[member].counts.damaged += u64::from(is_new);
        is_new
    }

    pub(super) fn file_mut(&mut self, id: FileId) -> &mut Facts {
        self.files.get_mut(&id).expect("the index leads to files that are there")
    }

    fn supersede(&mut self, old: Place, superseding: u64) {
        let facts = self.file_mut(old.file);
        facts.live -= u64::from(old.len);
        facts.superseding_max = facts.superseding_max.max(superseding);
        facts.damaged.remove(&old.offset);
        let (member, phase) = (facts.member, facts.phase);
        let is_empty = facts.live == 0;
        match phase {
            Phase::Sealed => {
                self.members[member].merges.died(old.file, u64::from(old.len));
                self.any_died |= is_empty;
            }
            // Its damaged records are superseded.
            Phase::Damaged if is_empty => self.members[member].doubtful.push(old.file),
            _ => {}
        }
    }

    pub(super) fn note_superseding(&mut self, file: FileId, superseding: u64) {
        let facts = self.file_mut(file);
        facts.superseding_max = facts.superseding_max.max(superseding);
    }
}

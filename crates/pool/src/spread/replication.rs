//! The replication target of a pool: a number of copies of every object, on different volumes, or every fragment of the
//! code that an object is cut by. Tracks shortfalls, repairs them, and notifies the mover.
//!
//! Objects are created with all their copies, and may have fewer later: a volume was full or away when
//! they were created, fails or is lost, a write to one copy failed, or a copy is damaged. A
//! [`Mover`](crate::mover::Mover) repairs that in the background; [`Spread::repair`] does it all at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use policy::placement::VolumeId;
use volume::{ErrorKind, Io, Name, Result};

use super::Spread;
use super::copies::{How, Wanting};
use super::handle::Handle;
use super::inode::Inode;
use crate::leaf::ObjectId;
use crate::manifest::state::Tally;
use crate::manifest::{Copies, Placed, State, Stored};

/// Objects looked at under one lock of the manifest, which takes some 0.1 ms.
const LOOK_AT_ONCE: usize = 1024;

/// The replication target, and the shortfalls found since the mover's last check.
pub(crate) struct Replication {
    /// The number of copies of every object.
    pub(crate) target: usize,
    amiss: Mutex<Amiss>,
}

#[derive(Default)]
struct Amiss {
    /// The mover must be notified.
    due: bool,
    /// Objects with a suspect copy, which failed a call that another copy answered.
    suspects: BTreeSet<ObjectId>,
    /// Tables that should have begun with more copies than they have.
    begun_short: BTreeSet<ObjectId>,
    waker: Option<Waker>,
}

impl Replication {
    pub(super) fn new(target: usize) -> Self {
        // The first check covers everything that happened before.
        let amiss = Mutex::new(Amiss { due: target > 1, ..Amiss::default() });
        Self { target, amiss }
    }

    /// Notifies the mover of a change: a copy was lost, or a volume joined or leaves.
    pub(super) fn due(&self) {
        self.tell(|amiss| amiss.due = true);
    }

    /// Records that a copy of an object failed a call that another copy answered.
    pub(super) fn suspect(&self, id: ObjectId) {
        self.tell(|amiss| amiss.due |= amiss.suspects.insert(id));
    }

    /// Records that a table should have begun with more copies.
    pub(super) fn begun_short(&self, id: ObjectId) {
        self.tell(|amiss| amiss.due |= amiss.begun_short.insert(id));
    }

    /// Objects with a suspect copy since the last call.
    pub(crate) fn take_suspects(&self) -> BTreeSet<ObjectId> {
        std::mem::take(&mut self.amiss.lock().suspects)
    }

    /// Returns suspects that were not checked.
    pub(crate) fn suspect_again(&self, suspects: BTreeSet<ObjectId>) {
        self.amiss.lock().suspects.extend(suspects);
    }

    /// Tables that should have begun with more copies, since the last call.
    pub(crate) fn take_begun_short(&self) -> BTreeSet<ObjectId> {
        std::mem::take(&mut self.amiss.lock().begun_short)
    }

    /// Ready once there is a notification since the last time it was ready.
    pub(crate) fn poll_amiss(&self, cx: &Context<'_>) -> Poll<()> {
        let mut amiss = self.amiss.lock();
        if std::mem::take(&mut amiss.due) {
            return Poll::Ready(());
        }
        amiss.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    fn tell(&self, what: impl FnOnce(&mut Amiss)) {
        let waker = {
            let mut amiss = self.amiss.lock();
            what(&mut amiss);
            amiss.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

/// The redundancy of a pool against its replication target.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Redundancy {
    /// The replication target: the number of copies that every object should have that is not cut into fragments.
    pub target: usize,
    /// Objects with fewer copies, or fragments, on volumes that are present and not draining.
    pub short: u64,
    /// Their bytes.
    pub short_bytes: u64,
    /// Objects that the volumes cannot give now: those that are away, or lost, have all copies, or more fragments than the
    /// code has of parity.
    pub unreadable: u64,
    /// Objects whose copies all failed at once, so that they may differ in bytes that were not acknowledged:
    /// they are aligned before the next write, or after the pool was opened. And objects whose copies were found to differ
    /// after a crash, which go on until their store has read and synced them: without the copy that reads go to, acknowledged
    /// bytes may be lost.
    pub doubtful: u64,
    /// The manifest has fewer copies than the target, and a volume that could hold one: the next look of the mover makes
    /// it. Until then the loss of one volume may keep the pool from changes.
    pub manifest_short: bool,
}

impl Redundancy {
    /// The objects whose redundancy is not what the setting promises, the manifest among them.
    #[must_use]
    pub fn lacking(&self) -> u64 {
        self.short + self.doubtful + u64::from(self.manifest_short)
    }
}

/// The result of a repair.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Repaired {
    /// Copies made.
    pub made: u64,
    /// Objects of the manifest looked at: each once.
    pub looked_at: u64,
    /// Objects that still have fewer copies than they should, by name, and why.
    pub short: Vec<(Name, String)>,
}

/// An object with fewer copies than it should have.
struct Short {
    id: ObjectId,
    /// What to make.
    lacks: Vec<Wanting>,
    /// How many copies or fragments may still be lost, of those on volumes that are here, draining ones too.
    spare: usize,
    /// The volumes of second copies of fragments: they may take the place of what it lacks.
    doubled: Vec<VolumeId>,
}

impl Spread {
    /// The number of copies that it keeps of every object.
    #[must_use]
    pub fn copies_wanted(&self) -> usize {
        self.0.replication.target
    }

    /// The redundancy of the pool while the volumes `gone` do not answer. Takes time by the number of different places of
    /// objects, not by that of objects, so that a health check may ask each second.
    #[must_use]
    pub fn redundancy(&self, gone: &BTreeSet<VolumeId>) -> Redundancy {
        let pool = &self.0;
        let doubtful = pool.catalog.in_doubt().into_iter();
        // The mover compares those of a crash, one after the other; those that it knows to differ wait for their store.
        let is_settled_soon =
            |inode: &Arc<Inode>| inode.unequal().is_some() && inode.lead().is_none();
        let doubtful = doubtful.filter(|inode| !is_settled_soon(inode)).count() as u64;
        let mut found =
            Redundancy { target: pool.replication.target, doubtful, ..Redundancy::default() };
        let here = self.here_without(gone);
        pool.journal.look(|state| {
            let draining = state.draining();
            for (places, Tally { objects, bytes }) in state.tallies() {
                if places.held(|volume| here.contains(&volume)) < places.needs() {
                    found.unreadable += objects;
                }
                let wanted = places.wanted(found.target);
                let usable = |volume| here.contains(&volume) && !draining.contains(&volume);
                if wanted > 1 && places.held(usable) < wanted {
                    found.short += objects;
                    found.short_bytes += bytes;
                }
            }
            let usable = |volume: &&VolumeId| here.contains(volume) && !draining.contains(volume);
            let possible = here.iter().filter(usable).count().min(found.target);
            let held = pool.journal.holders().iter().filter(usable).count();
            found.manifest_short = held < possible;
        });
        found
    }

    /// Warns if there are fewer volumes than the replication target.
    pub(super) fn warn_of_few_volumes(&self) {
        let copies = self.0.replication.target;
        let here = self.here_without(&self.0.journal.draining()).len();
        if let Some(code) = self.code()
            && here < code.fragments()
        {
            tracing::warn!(
                "the pool cuts objects into {} fragments on as many volumes, but only {here} take any: new objects have \
                 fewer fragments until there are more volumes",
                code.fragments()
            );
        }
        if here < copies {
            tracing::warn!(
                "the pool keeps {copies} copies of each object on as many volumes, but only {here} take any: \
                 new objects have fewer copies until there are more volumes"
            );
        }
    }

    /// Makes missing copies: of the manifest, of objects created while volumes were away or full, and of those that lost a
    /// copy since. Copies on absent or draining volumes do not count. It works in the class of `io`, one
    /// object after the other, and calls `tell` with the number of copies made so far. Dropping the future
    /// stops it.
    ///
    /// # Errors
    /// None so far: the result lists the objects that still have too few copies.
    pub async fn repair(&self, io: Io, tell: impl FnMut(u64) + Send) -> Result<Repaired> {
        if let Err(e) = self.keep_manifest_from(&BTreeSet::new()).await {
            tracing::warn!("the manifest has too few copies for now: {e}");
        }
        let how = How::from(io);
        Ok(self.repair_those(|_| true, &BTreeSet::new(), (&how, &how), tell).await)
    }

    /// The same for the few objects that the planner does not handle: unsealed or striped ones. Copies on the
    /// volumes `gone` do not count either. Objects of which one copy is left are copied as `last` says, others as `how`.
    /// Drops copies beyond the replication target, which were made while a volume did not answer.
    pub(crate) async fn repair_others(
        &self,
        gone: &BTreeSet<VolumeId>,
        how: &How,
        last: &How,
    ) -> Repaired {
        let others = |object: &Stored| !object.is_plain();
        let repaired = self.repair_those(others, gone, (how, last), |_| ()).await;
        for (id, volume) in self.surplus(gone) {
            if let Err(e) = self.drop_copy(id, volume).await {
                tracing::debug!("a copy too many stays for now: {e}");
            }
        }
        repaired
    }

    async fn repair_those(
        &self,
        which: impl Fn(&Stored) -> bool + Send + Sync,
        gone: &BTreeSet<VolumeId>,
        (how, last): (&How, &How),
        mut tell: impl FnMut(u64) + Send,
    ) -> Repaired {
        let pool = &self.0;
        let mut repaired = Repaired::default();
        let mut after = None;
        loop {
            let looked = self.look_for_short(after, &which, gone);
            if looked.count == 0 {
                return repaired;
            }
            repaired.looked_at += looked.count;
            after = looked.last;
            let Some(Short { id, lacks, spare, doubled }) = looked.short else { continue };
            let Ok(inode) = pool.catalog.inode_by_id(id) else { continue };
            let mut doubled = doubled.into_iter();
            let (mut made, mut is_whole) = (0, true);
            for what in lacks {
                let how = if spare + made == 0 { last } else { how };
                let mut done = self.copy_anywhere(&inode, what, how).await;
                // The volume with a second copy of a fragment may be the only one left for another. Otherwise that is dropped
                // last: the first one may be damaged.
                while done.as_ref().is_err_and(|e| e.kind() == ErrorKind::OutOfSpace)
                    && let Some(volume) = doubled.next()
                {
                    self.drop_doubled(id, volume).await;
                    done = self.copy_anywhere(&inode, what, how).await;
                }
                match done {
                    Ok(()) => made += 1,
                    Err(e) if e.kind() == ErrorKind::Gone => break,
                    Err(e) => {
                        repaired.short.push((inode.name.clone(), e.to_string()));
                        is_whole = false;
                        break;
                    }
                }
                repaired.made += 1;
                tell(repaired.made);
            }
            for volume in doubled.filter(|_| is_whole) {
                self.drop_doubled(id, volume).await;
            }
        }
    }

    /// Makes the copies that a log lacks, as far as volumes take them, and waits for them. Those on volumes that are away are not
    /// missing. Makes none while copies differ since a crash: the store of the log has to tell first which is right.
    pub(crate) async fn make_missing_copies(&self, log: &Handle, io: Io) {
        let (inode, how) = (log.inode(), How::from(io));
        while !log.copies_differ() && inode.replicas().len() < self.0.replication.target {
            if let Err(e) = self.copy_anywhere(inode, Wanting::Copy, &how).await {
                tracing::debug!("{}: a copy is missing for now: {e}", inode.name);
                return;
            }
        }
    }

    async fn drop_doubled(&self, id: ObjectId, volume: VolumeId) {
        if let Err(e) = self.drop_copy(id, volume).await {
            tracing::debug!("a second copy of a fragment stays for now: {e}");
        }
    }

    /// The present volumes without those `gone`.
    fn here_without(&self, gone: &BTreeSet<VolumeId>) -> BTreeSet<VolumeId> {
        let all = self.0.members.all();
        let here = all.iter().filter(|slot| slot.volume.is_some() && !gone.contains(&slot.id));
        here.map(|slot| slot.id).collect()
    }

    /// One surplus copy of each object with more usable copies than the target, without plain tables, which the
    /// planner handles.
    fn surplus(&self, gone: &BTreeSet<VolumeId>) -> Vec<(ObjectId, VolumeId)> {
        let here = self.here_without(gone);
        self.0.journal.look(|state| {
            let others = state.objects().filter(|(_, object)| !object.is_plain());
            let surplus = others.filter_map(|(id, object)| {
                let usable = |placed: &Placed| is_usable(placed, &here, state);
                let surplus = surplus(&object.copies, self.0.replication.target, usable);
                Some((id, surplus.last().copied()?))
            });
            surplus.collect()
        })
    }

    /// Looks at the next objects after `after`, up to the first one with fewer usable copies than the target, and at
    /// [`LOOK_AT_ONCE`] at most: edits of the manifest wait meanwhile.
    fn look_for_short(
        &self,
        after: Option<ObjectId>,
        which: &impl Fn(&Stored) -> bool,
        gone: &BTreeSet<VolumeId>,
    ) -> Looked {
        let here = self.here_without(gone);
        self.0.journal.look(|state| {
            let mut looked = Looked::default();
            for (id, object) in state.objects_after(after).take(LOOK_AT_ONCE) {
                looked.last = Some(id);
                looked.count += 1;
                if which(object) {
                    let copies = &object.copies;
                    let usable = |placed: &Placed| is_usable(placed, &here, state);
                    let lacks = lacks(copies, self.0.replication.target, usable);
                    if !lacks.is_empty() {
                        let is_here = |placed: &Placed| {
                            placed.layout.volumes().iter().all(|v| here.contains(v))
                        };
                        let spare = copies.held(is_here).saturating_sub(copies.needs());
                        let doubled = surplus(copies, self.0.replication.target, usable);
                        looked.short = Some(Short { id, lacks, spare, doubled });
                        break;
                    }
                }
            }
            looked
        })
    }
}

/// What a look for short objects found.
#[derive(Default)]
struct Looked {
    /// How many were looked at; 0 behind the last of all.
    count: u64,
    /// The last of them.
    last: Option<ObjectId>,
    /// The same if it lacks copies, and how many.
    short: Option<Short>,
}

/// Whether a copy counts: all its volumes are `here`, and none is draining.
fn is_usable(placed: &Placed, here: &BTreeSet<VolumeId>, state: &State) -> bool {
    let counts = |volume: &VolumeId| here.contains(volume) && !state.draining().contains(volume);
    placed.layout.volumes().iter().all(counts)
}

/// What an object lacks: copies up to `target` of those that are `usable`, or fragments without a usable copy, first
/// those without any: a volume that is away may come back with the others.
fn lacks(copies: &Copies, target: usize, usable: impl Fn(&Placed) -> bool) -> Vec<Wanting> {
    let Some(code) = copies.code() else {
        return vec![Wanting::Copy; target.saturating_sub(copies.held(usable))];
    };
    let there: BTreeSet<_> =
        copies.iter().filter(|placed| usable(placed)).filter_map(Placed::index).collect();
    let lacking = (0..code.fragments() as u8).filter(|index| !there.contains(index));
    let mut lacking: Vec<_> = lacking.collect();
    lacking.sort_by_key(|index| copies.iter().any(|placed| placed.index() == Some(*index)));
    lacking.into_iter().map(Wanting::Fragment).collect()
}

/// The volumes of usable copies beyond `target`, or of usable copies of fragments that have another.
fn surplus(copies: &Copies, target: usize, usable: impl Fn(&Placed) -> bool) -> Vec<VolumeId> {
    let usable = copies.iter().filter(|placed| usable(placed));
    let mut seen = BTreeSet::new();
    let more = usable.enumerate().filter(|(at, placed)| match placed.index() {
        None => *at >= target,
        Some(index) => !seen.insert(index),
    });
    more.filter_map(|(_, placed)| placed.layout.volumes().first().copied()).collect()
}

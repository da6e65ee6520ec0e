//! The manifest of an open pool: recorded in memory at once, written to every copy, synced in groups.
//!
//! ```text
//!   record()          written()            durable()
//!   state, memory ──▶ page caches of   ──▶ devices of
//!                     all copies           all copies
//! ```
//! An edit is *recorded* when the state in memory has it, *written* when it survives a crash of the
//! process, *durable* when it survives a crash of the machine. The first task that needs durability
//! syncs for all tasks waiting behind it.
//!
//! The copies of one generation are its *home*. When a copy fails, or the file has become long, the
//! manifest moves to a new home: a snapshot in new objects with the next number. A crash may cut the
//! move at any step:
//!
//! 1. write the snapshot to every copy and sync it;
//! 2. raise the epoch in the headers: first that of the copy that opens the pool alone, if there is one,
//!    or those of full volumes that the manifest leaves; then those of the volumes with copies, then all
//!    others that answer. The first raised header makes the new generation the current one;
//! 3. only then write edits to it, and remove the old copies.
//!
//! An attempt that fails before step 2 has no effect: no header refers to its copies. One that fails in
//! step 2 is repeated with the next number, because the old home may no longer be current. Futures may
//! be dropped at every await: the next caller starts the unfinished work again.
//!
//! A new home must *meet* the old one, as defined in [`quorum`], and every home that may have become current
//! since. If no home does, the manifest stays where it is, and the pool is read-only.

mod home;
mod ledger;
mod quorum;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use futures_util::future::join_all;
use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;
use policy::placement::VolumeId;
use policy::purpose::{Io, Origin, Step};
use volume::{Error, ErrorKind, Intent, IoBuf, Result};

use self::home::{Copy, EXTENT, Failed, Home, Snapshot, on_each, partition};
use self::ledger::{Ids, Ledger};
use crate::header::{self, Header, PoolId};
use crate::leaf::{Leaf, ObjectId};
use crate::manifest::recovery::enough_alone;
use crate::manifest::{Begin, Dead, Record, State, frame};
use crate::members::Members;

/// The number of copies, if there are as many volumes.
const COPIES: usize = 3;
/// The ids that a lease adds. Ids are plenty; a lease costs a record, and a sync if it comes late.
const LEASE: u64 = 1024;
/// With this many ids left, the next lease is recorded, to be durable before they run out.
const LEASE_LOW: u64 = LEASE / 2;
/// The approximate maximum body of a snapshot's frame.
const SNAPSHOT_BODY: usize = 32 * 1024;

const IO: Io = Io::new(Origin::UserWrite, Step::Manifest);

/// The number of an edit; stands for all edits up to it.
pub(crate) type Lsn = u64;

/// The manifest of an open pool.
pub(crate) struct Journal {
    pool: PoolId,
    members: Arc<Members>,
    /// The volumes that are preferred for copies.
    meta: Vec<VolumeId>,
    ledger: Mutex<Ledger>,
    /// Locked while the copies are written.
    home: AsyncMutex<Home>,
    /// Locked by the task that syncs.
    syncing: AsyncMutex<()>,
}

impl Journal {
    /// Moves the recovered state to a new home. `generation` is the highest number seen anywhere, `alone`
    /// the volume that may open the pool alone, `home` the volumes that hold the manifest: empty to move
    /// without a quorum. Durable on return.
    ///
    /// # Errors
    /// Those of the volumes, when none takes a copy.
    pub(crate) async fn start(
        pool: PoolId,
        members: Arc<Members>,
        meta: Vec<VolumeId>,
        mut state: State,
        generation: u64,
        alone: Option<VolumeId>,
        home: Vec<VolumeId>,
    ) -> Result<Self> {
        let issued = state.issued();
        let upto = issued.end + LEASE;
        state.apply(&[Record::Lease { from: issued.start, upto }])?;
        let journal = Self {
            pool,
            members,
            meta,
            ledger: Mutex::new(Ledger {
                state,
                pending: VecDeque::new(),
                recorded: 0,
                written: 0,
                durable: 0,
                generation,
                durable_frames: 0,
                stuck: false,
                ids: Ids { next: issued.end, safe: issued.end, renewal: Some((0, upto)) },
            }),
            home: AsyncMutex::new(Home {
                alone,
                may_count: if home.is_empty() { Vec::new() } else { vec![home] },
                ..Home::none(generation)
            }),
            syncing: AsyncMutex::new(()),
        };
        journal.move_home(&mut *journal.home.lock().await, Vec::new()).await?;
        Ok(journal)
    }

    pub(crate) const fn pool(&self) -> PoolId {
        self.pool
    }

    /// Reads the state in memory.
    pub(crate) fn look<T>(&self, at: impl FnOnce(&State) -> T) -> T {
        at(&self.ledger.lock().state)
    }

    /// The volumes that are being drained.
    pub(crate) fn draining(&self) -> BTreeSet<VolumeId> {
        self.look(|state| state.draining().clone())
    }

    /// The number of the last edit recorded.
    pub(crate) fn recorded(&self) -> Lsn {
        self.ledger.lock().recorded
    }

    /// Whether edit `lsn` is durable.
    pub(crate) fn is_durable(&self, lsn: Lsn) -> bool {
        self.ledger.lock().durable >= lsn
    }

    /// Whether edit `lsn` survives a crash of the process.
    pub(crate) fn is_written(&self, lsn: Lsn) -> bool {
        self.ledger.lock().written >= lsn
    }

    /// Applies an edit in memory, all of it or on error nothing; returns its number and the copies that it
    /// removed. It is neither written nor durable yet.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, `Invalid`, `Gone`: the edit does not fit the state.
    pub(crate) fn record(&self, edit: Vec<Record>) -> Result<(Lsn, Vec<Dead>)> {
        self.ledger.lock().record(edit)
    }

    /// Makes sure that edits can be written; moves the manifest if necessary. Call it before recording, so
    /// that a pool that cannot write does not accumulate edits.
    ///
    /// # Errors
    /// Those of the volumes, when none takes a copy: the pool can be read, but not changed.
    pub(crate) async fn ready(&self) -> Result<()> {
        if !self.ledger.lock().stuck {
            return Ok(());
        }
        let mut home = self.home.lock().await;
        self.write_out(&mut home).await
    }

    /// An id for a new object: unique, even across crashes.
    ///
    /// # Errors
    /// As for [`Journal::durable`], when a new lease is needed.
    pub(crate) async fn issue_id(&self) -> Result<ObjectId> {
        loop {
            let lease = match self.ledger.lock().issue_id()? {
                Ok(id) => return Ok(id),
                Err(lease) => lease,
            };
            self.durable(lease).await?;
        }
    }

    /// Changes the volumes of the pool, and moves the manifest to record that. Durable on return. On error
    /// it calls `undo`, which restores the volumes.
    ///
    /// # Errors
    /// As for [`Journal::ready`].
    pub(crate) async fn change_members(
        &self,
        change: impl FnOnce(&Members),
        undo: impl FnOnce(&Members),
    ) -> Result<()> {
        let mut home = self.home.lock().await;
        change(&self.members);
        let moved = self.move_home(&mut home, Vec::new()).await;
        if moved.is_err() {
            undo(&self.members);
        }
        moved
    }

    /// Moves the manifest if a copy of it is on `volume` and could be elsewhere.
    ///
    /// # Errors
    /// As for [`Journal::ready`].
    pub(crate) async fn leave(&self, volume: VolumeId) -> Result<()> {
        let mut home = self.home.lock().await;
        let is_here = home.copies.iter().any(|copy| copy.volume == volume);
        if is_here && !self.choose(&Vec::new()).contains(&volume) {
            return self.move_home(&mut home, Vec::new()).await;
        }
        Ok(())
    }

    /// Moves the copies off volumes that do not answer, and restores their number: otherwise the pool might
    /// not open with the remaining ones.
    ///
    /// # Errors
    /// As for [`Journal::ready`].
    pub(crate) async fn avoid(&self, silent: &BTreeSet<VolumeId>) -> Result<()> {
        let why = || Error::new(ErrorKind::Unavailable, "it does not answer");
        let failed: Failed = silent.iter().map(|&volume| (volume, why())).collect();
        let mut home = self.home.lock().await;
        let chosen = self.choose(&failed);
        let avoids = home.copies.iter().all(|copy| !silent.contains(&copy.volume));
        if chosen.is_empty() || (avoids && chosen.len() <= home.copies.len()) {
            return Ok(());
        }
        self.move_home(&mut home, failed).await
    }

    /// Marks a clean close. Durable on return.
    ///
    /// # Errors
    /// As for [`Journal::ready`].
    pub(crate) async fn close(&self) -> Result<()> {
        let lsn = {
            let mut home = self.home.lock().await;
            let (lsn, _) = self.record(vec![Record::Close])?;
            if home.lost {
                self.move_home(&mut home, Vec::new()).await?;
            } else {
                // Before any volume has the mark.
                let copies: Vec<_> = home.copies.iter().map(|copy| copy.volume).collect();
                home.alone = enough_alone(&copies, true);
                home.closed = true;
                self.append_pending(&mut home).await?;
            }
            lsn
        };
        self.durable(lsn).await
    }

    /// Waits until edit `lsn` and all before survive a crash of the process.
    ///
    /// # Errors
    /// As for [`Journal::ready`].
    pub(crate) async fn written(&self, lsn: Lsn) -> Result<()> {
        if self.is_written(lsn) {
            return Ok(());
        }
        let mut home = self.home.lock().await;
        if self.is_written(lsn) {
            return Ok(());
        }
        self.write_out(&mut home).await
    }

    /// Waits until edit `lsn` and all before survive a crash of the machine.
    ///
    /// # Errors
    /// As for [`Journal::ready`].
    pub(crate) async fn durable(&self, lsn: Lsn) -> Result<()> {
        if self.is_durable(lsn) {
            return Ok(());
        }
        let _one_at_a_time = self.syncing.lock().await;
        if self.is_durable(lsn) {
            return Ok(());
        }
        // Other tasks may write during this sync: the next sync covers their edits.
        let (generation, frames, upto, copies) = {
            let mut home = self.home.lock().await;
            self.write_out(&mut home).await?;
            let upto = self.ledger.lock().written;
            (home.generation, home.frames, upto, home.copies.clone())
        };
        if self.is_durable(lsn) {
            return Ok(());
        }
        let failed = on_each(&copies, |copy| copy.object.sync(IO)).await;
        if failed.is_empty() {
            self.ledger.lock().synced(generation, frames, upto);
            return Ok(());
        }
        let mut home = self.home.lock().await;
        // If the manifest moved meanwhile, its new home is durable.
        if home.generation == generation {
            home.lost = true;
            self.move_home(&mut home, failed).await?;
        }
        Ok(())
    }

    /// Writes all recorded edits to every copy, or moves the manifest if necessary.
    async fn write_out(&self, home: &mut Home) -> Result<()> {
        let reopened = home.closed && !self.ledger.lock().pending.is_empty();
        if home.lost || reopened {
            return self.move_home(home, Vec::new()).await;
        }
        self.append_pending(home).await
    }

    async fn append_pending(&self, home: &mut Home) -> Result<()> {
        home.unwritten.take(&mut self.ledger.lock(), home.seal, home.frames);
        if home.unwritten.bytes.is_empty() {
            self.ledger.lock().stuck = false;
            return Ok(());
        }
        let failed = home.append().await;
        if !failed.is_empty() {
            // A full volume has all earlier writes; the rest can be retried.
            home.lost |= failed.iter().any(|(_, e)| e.kind() != ErrorKind::OutOfSpace);
            return self.move_home(home, failed).await;
        }
        let upto = home.wrote();
        self.ledger.lock().wrote(upto);
        if home.len >= home.compact_at
            && let Err(e) = self.move_home(home, Vec::new()).await
        {
            if home.lost {
                return Err(e);
            }
            tracing::warn!("manifest not compacted: {e}");
            self.ledger.lock().stuck = false;
            home.compact_at = 2 * home.len;
        }
        Ok(())
    }

    /// Makes a new home on volumes other than those that `failed`.
    async fn move_home(&self, home: &mut Home, mut failed: Failed) -> Result<()> {
        self.ledger.lock().stuck = true;
        let mut moved = false;
        loop {
            let wanted = self.choose(&failed);
            if wanted.is_empty() {
                // An intermediate home may be good enough for now.
                return if moved && !home.lost { Ok(()) } else { Err(self.no_copy_left(failed)) };
            }
            let well = self.members.present().into_iter().map(|(slot, _)| slot.id);
            let well: Vec<_> =
                well.filter(|id| !failed.iter().any(|(other, _)| other == id)).collect();
            // Full volumes answer: their headers can be raised before those of the new home.
            let answers = |id: &VolumeId| {
                let mut failed = failed.iter().filter(|(other, _)| other == id);
                failed.all(|(_, e)| e.kind() == ErrorKind::OutOfSpace)
            };
            let step = quorum::step(&home.may_count, &wanted, &well);
            let (chosen, first) = match (home.alone, step) {
                (Some(alone), _) => (wanted.clone(), vec![alone]),
                (None, Some(step)) => (step, Vec::new()),
                (None, None) if home.may_count.iter().flatten().all(answers) => {
                    // The new home may open without the others: its own volumes come last.
                    let mut first = home.may_count.concat();
                    first.sort_by_key(|id| (wanted.contains(id), *id));
                    first.dedup();
                    (wanted.clone(), first)
                }
                (None, None) if moved && !home.lost => return Ok(()),
                (None, None) => return Err(self.too_few_left(failed)),
            };
            home.tried += 1;
            let next = self.snapshot(home.tried, &chosen);
            let file = IoBuf::from(&next.file[..]);
            let (copies, unwell) = partition(
                &chosen,
                join_all(chosen.iter().map(|&id| self.make_copy(id, home.tried, &file))).await,
            );
            if !unwell.is_empty() {
                self.remove_copies(home.tried, &copies).await;
                failed.extend(unwell);
                continue;
            }
            // From here on the new generation may be the current one.
            home.lost = true;
            let tried = home.tried;
            let raise = |id| self.raise_epoch(id, tried, next.seal);
            if !home.may_count.contains(&chosen) {
                home.may_count.push(chosen.clone());
            }
            for &id in &first {
                if let Err(e) = raise(id).await {
                    failed.push((id, e));
                    return Err(self.no_copy_left(failed));
                }
            }
            if !first.is_empty() {
                home.alone = None;
                home.may_count = vec![chosen.clone()];
            }
            let rest = copies.iter().filter(|copy| !first.contains(&copy.volume));
            let rest: Vec<_> = rest.cloned().collect();
            let unwell = on_each(&rest, |copy| Box::pin(raise(copy.volume))).await;
            if !unwell.is_empty() {
                failed.extend(unwell);
                continue;
            }
            let others = self.members.present().into_iter().map(|(slot, _)| slot.id);
            let others = others.filter(|id| !chosen.contains(id));
            for raised in join_all(others.map(raise)).await {
                if let Err(e) = raised {
                    tracing::warn!("an epoch was not raised: {e}");
                }
            }
            let old = std::mem::replace(home, Home::new(home.tried, copies, &next));
            self.ledger.lock().moved(home.generation, home.frames, next.upto);
            self.remove_copies(old.generation, &old.copies).await;
            if chosen == wanted {
                return Ok(());
            }
            moved = true;
        }
    }

    /// The volumes for copies: first those for metadata, then by number. Draining volumes only if there is
    /// no other.
    fn choose(&self, failed: &Failed) -> Vec<VolumeId> {
        let draining = self.draining();
        let well = |id: &VolumeId| !failed.iter().any(|(other, _)| other == id);
        let present = self.members.present().into_iter().map(|(slot, _)| slot.id);
        let mut present: Vec<_> = present.filter(well).collect();
        if present.iter().any(|id| !draining.contains(id)) {
            present.retain(|id| !draining.contains(id));
        }
        // A stable sort keeps the order of numbers.
        present.sort_by_key(|id| !self.meta.contains(id));
        present.truncate(COPIES);
        present
    }

    /// The snapshot that a new generation's file begins with.
    fn snapshot(&self, generation: u64, copies: &[VolumeId]) -> Snapshot {
        let (bodies, upto) = {
            let ledger = self.ledger.lock();
            // The mark of a clean close applies only to the home that it was written to.
            let records = ledger.state.snapshot().filter(|record| *record != Record::Close);
            (bodies(records), ledger.recorded)
        };
        let begin = Begin {
            pool: self.pool,
            generation,
            snapshot_frames: 1 + bodies.len() as u64,
            volumes: self.members.all().iter().map(|slot| (slot.id, slot.label.clone())).collect(),
            copies: copies.to_vec(),
        };
        let seal = begin.seal();
        let mut file = Vec::new();
        frame::encode(&mut file, seal, 0, 0, &begin.encode());
        for (sequence, body) in (1..).zip(&bodies) {
            frame::encode(&mut file, seal, sequence, 0, body);
        }
        let len = file.len() as u64;
        file.resize(len.next_multiple_of(EXTENT) as usize, 0);
        Snapshot { seal, file, len, frames: begin.snapshot_frames, upto }
    }

    async fn make_copy(&self, id: VolumeId, generation: u64, file: &IoBuf) -> Result<Copy> {
        let volume = self.members.volume(id)?;
        let intent = Intent { len: Some(file.len() as u64), ..Intent::LOG };
        let object = volume.create(&Leaf::Manifest { generation }.name(), &intent).await?;
        object.write_at(0, file.clone(), IO).await?;
        object.sync(IO).await?;
        Ok(Copy { volume: id, object })
    }

    async fn raise_epoch(&self, id: VolumeId, epoch: u64, seal: u64) -> Result<()> {
        let label = self.members.label(id);
        let header = Header { pool: self.pool, volume: id, label, epoch, seal };
        header::write(&*self.members.volume(id)?, &header).await
    }

    /// Removes old copies. The next opening of the pool removes those that fail now.
    async fn remove_copies(&self, generation: u64, copies: &[Copy]) {
        let name = Leaf::Manifest { generation }.name();
        let volumes = copies.iter().filter_map(|copy| self.members.volume(copy.volume).ok());
        let volumes: Vec<_> = volumes.collect();
        for removed in join_all(volumes.iter().map(|volume| volume.remove(&name))).await {
            if let Err(e) = removed {
                tracing::debug!("an old copy of the manifest stays for now: {e}");
            }
        }
    }

    /// The error when half or more of the volumes with the manifest fail: if later only those came back, they
    /// would not know the changes made without them.
    fn too_few_left(&self, failed: Failed) -> Error {
        let e = self.no_copy_left(failed);
        Error::new(
            ErrorKind::Unavailable,
            format!("more than half of the volumes that keep the manifest have to answer: {e}"),
        )
    }

    fn no_copy_left(&self, failed: Failed) -> Error {
        let mut kinds = failed.iter().map(|(_, e)| e.kind());
        let kind = match kinds.next().unwrap_or(ErrorKind::Unavailable) {
            first if kinds.clone().all(|kind| kind == first) => first,
            first if first.is_away() && kinds.all(ErrorKind::is_away) => ErrorKind::Unavailable,
            _ => ErrorKind::Poisoned,
        };
        let causes = self.members.causes(&failed);
        let what = format!(
            "the pool can be read but not changed, because no volume takes its manifest ({causes}): repair one \
             of them or make room, then try again"
        );
        Error::new(kind, what)
    }
}

/// The bodies of the frames that hold `records`.
fn bodies(records: impl Iterator<Item = Record>) -> Vec<Vec<u8>> {
    let mut bodies = vec![Vec::new()];
    for record in records {
        if let Some(last) = bodies.last_mut() {
            record.encode(last);
            if last.len() >= SNAPSHOT_BODY {
                bodies.push(Vec::new());
            }
        }
    }
    bodies.retain(|body| !body.is_empty());
    bodies
}

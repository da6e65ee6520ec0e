//! A log of edits to a state: recorded in memory at once, written to every copy, synced in groups.
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
//! [`Replay`] is the state, for example the manifest of a pool. [`Anchor`] is where its current home is
//! recorded: in the headers of the volumes, or in the state of another journal.
//!
//! The copies of one generation are its *home*. When a copy fails, or the file has become long, the
//! journal moves to a new home: a snapshot in new objects with the next number. A crash may cut the
//! move at any step:
//!
//! 1. write the snapshot to every copy and sync it;
//! 2. make the new generation the current one, with [`Anchor::publish`];
//! 3. only then write edits to it, and remove the old copies.
//!
//! An attempt that fails before step 2 has no effect: no anchor refers to its copies. One that fails in
//! step 2 is repeated with the next number, because the old home may no longer be current. Futures may
//! be dropped at every await: the next caller starts the unfinished work again.
//!
//! If the anchor finds no way to a new home, the journal stays where it is, and takes no more edits.

pub(crate) mod frame;
mod home;
mod ledger;
pub(crate) mod quorum;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use futures_util::future::join_all;
use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;
use policy::placement::VolumeId;
use policy::purpose::Io;
use volume::task::yield_now;
use volume::{Error, ErrorKind, Intent, IoBuf, Name, Result};

use self::home::{Copy, EXTENT, Home, Snapshot, on_each, partition};
pub(crate) use self::home::{Failed, no_copy_left, read_copies};
use self::ledger::Ledger;
use self::quorum::Quorum;
use crate::members::Members;

/// The approximate maximum body of a snapshot's frame.
const SNAPSHOT_BODY: usize = 32 * 1024;

/// A state that a journal keeps, and the bytes of its records.
pub(crate) trait Replay: Sized + Send + Sync {
    /// One change of the state.
    type Record: Send + Sync;
    /// What an edit removed or gives back otherwise.
    type Applied;
    /// The first record of each generation.
    type Begin;
    /// Why bytes could not be decoded.
    type DecodeError: fmt::Display;

    /// The word for the journal of this state in messages.
    const NAME: &'static str;
    /// The words for what cannot be changed without this journal in messages.
    const OWNER: &'static str;
    /// The purpose of the journal's writes.
    const IO: Io;

    /// Applies an edit: all of its records or, on error, none.
    ///
    /// # Errors
    /// Those of the state, when the edit does not fit it.
    fn apply(&mut self, edit: &[Self::Record]) -> Result<Self::Applied>;

    /// Records that turn a new state into this one, for the beginning of a new home.
    fn snapshot(&self) -> impl Iterator<Item = Self::Record>;

    /// Appends a record to `out`: at least one byte.
    fn encode(record: &Self::Record, out: &mut Vec<u8>);

    /// The records of a frame.
    ///
    /// # Errors
    /// These bytes are no records that this program knows.
    fn decode(body: &[u8]) -> Decoded<Vec<Self::Record>, Self>;

    /// The first record of a generation, as [`Anchor::begin`] encoded it.
    ///
    /// # Errors
    /// These bytes are no such record that this program knows.
    fn decode_begin(body: &[u8]) -> Decoded<Self::Begin, Self>;

    /// The number of frames of the snapshot that the generation began with, the first one included.
    fn snapshot_frames(begin: &Self::Begin) -> u64;
}

/// A part of a journal of `S` from its bytes.
pub(crate) type Decoded<T, S> = std::result::Result<T, <S as Replay>::DecodeError>;

/// Where a journal of `S` records its current home, so that the next process finds it.
///
/// Every change goes through the one journal that holds the anchor, so an anchor needs no lock.
pub(crate) trait Anchor<S: Replay>: Send + Sync {
    /// The name of the copies of this generation.
    fn name(&self, generation: u64) -> Name;

    /// The bytes of the first record of a generation whose copies are on these volumes. The record differs from
    /// that of the same generation on other volumes.
    fn begin(&self, generation: u64, snapshot_frames: u64, home: &Quorum) -> Vec<u8>;

    /// The number of copies, if there are as many volumes.
    fn copies(&self) -> usize;

    /// Sorts volumes by preference for copies, and removes those that must not get one.
    fn prefer(&self, state: &S, volumes: &mut Vec<VolumeId>);

    /// The next home on the way to the volumes `wanted`, without those that `failed`.
    ///
    /// # Errors
    /// There is no way: the journal takes no more edits for now.
    fn step(&self, wanted: &[VolumeId], failed: &Failed) -> Result<Step>;

    /// Makes a new home the current one; its copies are durable. Until this returns `true`, a process may find
    /// the old home or the new one. Returns `false` if volumes of the new home failed, and adds them to `failed`:
    /// another home may be tried. `true` is durable on return.
    ///
    /// # Errors
    /// No other home may be tried now.
    fn publish(
        &mut self,
        step: &Step,
        generation: u64,
        seal: u64,
        failed: &mut Failed,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// The home on these volumes is about to get the last edit before a clean close.
    fn closing(&mut self, copies: &[VolumeId]);
}

/// A home to move to, as an anchor chose it.
pub(crate) struct Step {
    /// Its volumes, and how many of them open it.
    pub(crate) home: Quorum,
    /// Volumes that must know the new home before any other; empty if the order does not matter.
    pub(crate) first: Vec<VolumeId>,
}

/// The number of an edit; stands for all edits up to it.
pub(crate) type Lsn = u64;

/// The open journal of a state.
pub(crate) struct Journal<S: Replay, A: Anchor<S>> {
    members: Arc<Members>,
    ledger: Mutex<Ledger<S>>,
    /// Locked while the copies are written.
    home: AsyncMutex<Home<A>>,
    /// The volumes of `home`, without its lock.
    holders: Mutex<Vec<VolumeId>>,
    /// Locked by the task that syncs.
    syncing: AsyncMutex<()>,
}

impl<S: Replay, A: Anchor<S>> Journal<S, A> {
    /// Moves a state to a new home. `generation` is the highest number seen anywhere. Durable on return.
    ///
    /// # Errors
    /// Those of the volumes, when none takes a copy; those of the anchor.
    pub(crate) async fn start(
        members: Arc<Members>,
        anchor: A,
        state: S,
        generation: u64,
    ) -> Result<Self> {
        let journal = Self {
            members,
            ledger: Mutex::new(Ledger::new(state, generation)),
            home: AsyncMutex::new(Home::none(anchor, generation)),
            holders: Mutex::default(),
            syncing: AsyncMutex::new(()),
        };
        journal.move_home(&mut *journal.home.lock().await, Vec::new()).await?;
        Ok(journal)
    }

    /// The volumes that hold a copy.
    pub(crate) fn holders(&self) -> Vec<VolumeId> {
        self.holders.lock().clone()
    }

    /// Reads the state in memory.
    pub(crate) fn look<T>(&self, at: impl FnOnce(&S) -> T) -> T {
        at(&self.ledger.lock().state)
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

    /// Applies an edit of at least one record in memory, all of it or on error nothing; returns its number and
    /// what the state gives back. It is neither written nor durable yet.
    ///
    /// # Errors
    /// Those of the state, when the edit does not fit it.
    pub(crate) fn record(&self, edit: Vec<S::Record>) -> Result<(Lsn, S::Applied)> {
        self.ledger.lock().record(edit)
    }

    /// Makes sure that edits can be written; moves the journal if necessary. Call it before recording, so
    /// that a journal that cannot be written does not accumulate edits.
    ///
    /// # Errors
    /// Those of the volumes, when none takes a copy; those of the anchor. The state can be read, but not changed.
    pub(crate) async fn ready(&self) -> Result<()> {
        if !self.ledger.lock().stuck {
            return Ok(());
        }
        let mut home = self.home.lock().await;
        self.write_out(&mut home).await
    }

    /// Changes the volumes, and moves the journal to record that. Durable on return. On error
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

    /// Moves the journal if a copy of it is on `volume` and could be elsewhere.
    ///
    /// # Errors
    /// As for [`Journal::ready`].
    pub(crate) async fn leave(&self, volume: VolumeId) -> Result<()> {
        let mut home = self.home.lock().await;
        let is_here = home.copies.iter().any(|copy| copy.volume == volume);
        if is_here && !self.choose(&home.anchor, &Vec::new()).contains(&volume) {
            return self.move_home(&mut home, Vec::new()).await;
        }
        Ok(())
    }

    /// Moves the copies off volumes that do not answer, and restores their number: otherwise the journal might
    /// not open with the remaining ones.
    ///
    /// # Errors
    /// As for [`Journal::ready`].
    pub(crate) async fn avoid(&self, silent: &BTreeSet<VolumeId>) -> Result<()> {
        let why = || Error::new(ErrorKind::Unavailable, "it does not answer");
        let failed: Failed = silent.iter().map(|&volume| (volume, why())).collect();
        let mut home = self.home.lock().await;
        let chosen = self.choose(&home.anchor, &failed);
        let avoids = home.copies.iter().all(|copy| !silent.contains(&copy.volume));
        if chosen.is_empty() || (avoids && chosen.len() <= home.copies.len()) {
            return Ok(());
        }
        self.move_home(&mut home, failed).await
    }

    /// Records a last edit, which marks a clean close. The next edit moves the journal to a new home, so that the
    /// mark is never followed by another. Durable on return.
    ///
    /// # Errors
    /// As for [`Journal::ready`].
    pub(crate) async fn close(&self, edit: Vec<S::Record>) -> Result<()> {
        let lsn = {
            let mut home = self.home.lock().await;
            let (lsn, _) = self.record(edit)?;
            if home.lost {
                self.move_home(&mut home, Vec::new()).await?;
            } else {
                // Before any volume has the mark.
                let volumes = home.volumes();
                home.anchor.closing(&volumes);
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
        // Calls that were begun together record their edits first: one sync covers all of them.
        yield_now().await;
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
        let failed = on_each(&copies, |copy| copy.object.sync(S::IO)).await;
        if failed.is_empty() {
            self.ledger.lock().synced(generation, frames, upto);
            return Ok(());
        }
        let mut home = self.home.lock().await;
        // If the journal moved meanwhile, its new home is durable.
        if home.generation == generation {
            home.lost = true;
            self.move_home(&mut home, failed).await?;
        }
        Ok(())
    }

    /// Writes all recorded edits to every copy, or moves the journal if necessary.
    async fn write_out(&self, home: &mut Home<A>) -> Result<()> {
        let reopened = home.closed && !self.ledger.lock().pending.is_empty();
        if home.lost || reopened {
            return self.move_home(home, Vec::new()).await;
        }
        self.append_pending(home).await
    }

    async fn append_pending(&self, home: &mut Home<A>) -> Result<()> {
        home.unwritten.take(&mut self.ledger.lock(), home.seal, home.frames);
        if home.unwritten.bytes.is_empty() {
            self.ledger.lock().stuck = false;
            return Ok(());
        }
        let failed = home.append(S::IO).await;
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
            tracing::warn!("{} not compacted: {e}", S::NAME);
            self.ledger.lock().stuck = false;
            home.compact_at = 2 * home.len;
        }
        Ok(())
    }

    /// Makes a new home on volumes other than those that `failed`.
    async fn move_home(&self, home: &mut Home<A>, mut failed: Failed) -> Result<()> {
        self.ledger.lock().stuck = true;
        let mut moved = false;
        loop {
            let wanted = self.choose(&home.anchor, &failed);
            let step = match wanted[..] {
                [] => Err(no_copy_left::<S>(&self.members, &failed)),
                [..] => home.anchor.step(&wanted, &failed),
            };
            let step = match step {
                Ok(step) => step,
                // An intermediate home may be good enough for now.
                Err(_) if moved && !home.lost => return Ok(()),
                Err(e) => return Err(e),
            };
            home.tried += 1;
            let (generation, chosen) = (home.tried, &step.home.volumes);
            let next = self.snapshot(&home.anchor, generation, &step.home);
            let name = home.anchor.name(generation);
            let file = IoBuf::from(&next.file[..]);
            let (copies, unwell) = partition(
                chosen,
                join_all(chosen.iter().map(|&id| self.make_copy(id, &name, &file))).await,
            );
            if !unwell.is_empty() {
                self.remove_copies(&name, &copies).await;
                failed.extend(unwell);
                continue;
            }
            // From here on the new generation may be the current one.
            home.lost = true;
            if !home.anchor.publish(&step, generation, next.seal, &mut failed).await? {
                continue;
            }
            let (old, old_copies) = home.replace(copies, &next);
            *self.holders.lock() = home.volumes();
            self.ledger.lock().moved(home.generation, home.frames, next.upto);
            self.remove_copies(&home.anchor.name(old), &old_copies).await;
            if step.home == Quorum::majority(wanted) {
                return Ok(());
            }
            moved = true;
        }
    }

    /// The volumes for copies, the best first.
    fn choose(&self, anchor: &A, failed: &Failed) -> Vec<VolumeId> {
        let mut volumes = well(&self.members, failed);
        self.look(|state| anchor.prefer(state, &mut volumes));
        volumes.truncate(anchor.copies());
        volumes
    }

    /// The snapshot that a new generation's file begins with.
    fn snapshot(&self, anchor: &A, generation: u64, home: &Quorum) -> Snapshot {
        let (bodies, upto) = {
            let ledger = self.ledger.lock();
            (bodies(&ledger.state), ledger.recorded)
        };
        let frames = 1 + bodies.len() as u64;
        let begin = anchor.begin(generation, frames, home);
        let seal = frame::seal(&begin);
        let mut file = Vec::new();
        frame::encode(&mut file, seal, 0, 0, &begin);
        for (sequence, body) in (1..).zip(&bodies) {
            frame::encode(&mut file, seal, sequence, 0, body);
        }
        let len = file.len() as u64;
        file.resize(len.next_multiple_of(EXTENT) as usize, 0);
        Snapshot { seal, file, len, frames, upto }
    }

    async fn make_copy(&self, id: VolumeId, name: &Name, file: &IoBuf) -> Result<Copy> {
        let volume = self.members.volume(id)?;
        let intent = Intent { len: Some(file.len() as u64), ..Intent::LOG };
        let object = volume.create(name, &intent).await?;
        object.write_at(0, file.clone(), S::IO).await?;
        object.sync(S::IO).await?;
        Ok(Copy { volume: id, object })
    }

    /// Removes old copies. The next start of the state's owner removes those that fail now.
    async fn remove_copies(&self, name: &Name, copies: &[Copy]) {
        let volumes = copies.iter().filter_map(|copy| self.members.volume(copy.volume).ok());
        let volumes: Vec<_> = volumes.collect();
        for removed in join_all(volumes.iter().map(|volume| volume.remove(name))).await {
            if let Err(e) = removed {
                tracing::debug!("an old copy of the {} stays for now: {e}", S::NAME);
            }
        }
    }
}

/// The volumes that are present and did not fail, by number.
pub(crate) fn well(members: &Members, failed: &Failed) -> Vec<VolumeId> {
    let present = members.present().into_iter().map(|(slot, _)| slot.id);
    present.filter(|id| !failed.iter().any(|(other, _)| other == id)).collect()
}

/// The bodies of the frames that hold the snapshot of `state`.
fn bodies<S: Replay>(state: &S) -> Vec<Vec<u8>> {
    let mut bodies = vec![Vec::new()];
    for record in state.snapshot() {
        if let Some(last) = bodies.last_mut() {
            S::encode(&record, last);
            if last.len() >= SNAPSHOT_BODY {
                bodies.push(Vec::new());
            }
        }
    }
    bodies.retain(|body| !body.is_empty());
    bodies
}

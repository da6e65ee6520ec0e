//! Makes and drops copies of objects: for load, and for volumes that drain or are lost.
//!
//! A copy is made in numbered steps (TANGO):
//!
//! 1. pin the object, so that it stays readable even if it is removed, and issue a number for the copy,
//!    which no other copy ever had;
//! 2. read it in pieces from the copies with the shortest wait, and write the pieces to a leaf object of
//!    that number; stop if the object was removed;
//! 3. compare the checksum, and sync the leaf object;
//! 4. record the copy, if the object still exists; from then on it is read and written;
//! 5. wait until that is durable.
//!
//! After a crash before step 4 is durable, the leaf object is an orphan: the manifest issued its number and
//! does not list it, so the next opening of the pool removes it. Later the copy is as good as any.
//!
//! An object that may still be written is followed while it changes: pieces that were written meanwhile are
//! read again, and writers wait for the last of them.

use std::pin::pin;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use policy::placement::{Candidate, Layout, VolumeId};
use policy::purpose::Origin;
use policy::units::KIB;
use volume::{Error, ErrorKind, Intent, Io, IoBufMut, Name, Object, Result};
use xxhash_rust::xxh3::Xxh3;

use super::handle::Handle;
use super::inode::{Inode, Replica};
use super::{Inner, Spread};
use crate::leaf::{Kind, Leaf, ObjectId};
use crate::manifest::{Placed, Record, Stored};
use crate::members::Occupied;

/// The bytes read at once: one operation of most contracts.
const PIECE: u64 = 256 * KIB;
/// The number of concurrent reads: at a queue, sequential reads would wait for all other requests each time.
const AHEAD: usize = 4;

/// The metadata of an object and its copies.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ObjectStat {
    /// Its number.
    pub id: ObjectId,
    /// One of its names.
    pub name: Name,
    /// Its kind.
    pub kind: Kind,
    /// Its length in bytes; for a log, the length at its first sync.
    pub len: u64,
    /// Whether it has a checksum and never changes.
    pub sealed: bool,
    /// Its copies, in order.
    pub copies: Vec<Placed>,
}

/// A copy that was made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Copied {
    /// The copy's number.
    pub number: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// The checksum of an object's bytes; none if it is unknown.
type Hashed = Option<u64>;

impl Spread {
    /// Every object in the manifest, once, in the order of first names.
    #[must_use]
    pub fn objects(&self) -> Vec<ObjectStat> {
        let mut seen = std::collections::HashSet::new();
        self.0.journal.look(|state| {
            let named = state.names("").filter(|(_, id)| seen.insert(*id));
            let stats = named.filter_map(|(name, id)| Some(stat(id, name, state.object(id)?)));
            stats.collect()
        })
    }

    /// The copies of one object; empty if there is no such object.
    #[must_use]
    pub fn copies_of(&self, id: ObjectId) -> Vec<Placed> {
        self.0.journal.look(|state| {
            let copies = state.object(id).map(|object| &object.copies);
            copies.into_iter().flat_map(|copies| copies.iter().cloned()).collect()
        })
    }

    /// Makes a copy of an object on volume `to`, in the class of `io`. On return the copy is durable, and
    /// reads use it. Dropping the future leaves at most an orphan, which is removed later.
    ///
    /// # Errors
    /// `Gone`: the object was removed meanwhile. `AlreadyExists`: there is a copy on `to`. `Invalid`:
    /// no object goes there. `OutOfSpace`, `Unavailable`, `Busy`: try again, or elsewhere.
    /// `Corrupt`: every copy of the object is damaged.
    pub async fn copy(&self, id: ObjectId, to: VolumeId, io: Io) -> Result<Copied> {
        let slot = self.0.members.get(to);
        let takes_none = || {
            let label = self.0.members.label(to);
            let what = format!("volume {label} takes no copies: it is being emptied, or not here");
            Error::new(ErrorKind::Invalid, what)
        };
        let drains = self.0.journal.look(|state| state.draining().contains(&to));
        let occupied = slot.filter(|_| !drains).and_then(|slot| slot.occupy());
        let occupied = vec![occupied.ok_or_else(takes_none)?];
        self.copy_as(id, Layout::Whole { volume: to }, occupied, io).await
    }

    pub(super) async fn copy_as(
        &self,
        id: ObjectId,
        layout: Layout,
        occupied: Vec<Occupied>,
        io: Io,
    ) -> Result<Copied> {
        let pool = &self.0;
        let handle = self.handle(pool.inode_by_id(id)?);
        pool.must_lack(id, &layout)?;
        pool.journal.ready().await?;
        let placed = Placed { number: pool.journal.issue_id().await?.0, layout };
        if handle.inode().kind == Kind::Log && !handle.inode().knows_len() {
            pool.learn_len(handle.inode()).await?;
        }
        let len = handle.len();
        pool.must_have_room(&placed.layout, len).await?;
        let mut unrecorded =
            UnrecordedCopy { pool, id, kind: handle.inode().kind, placed: placed.clone() };
        let intent = match handle.inode().kind {
            Kind::Log => Intent { len: Some(len), ..Intent::LOG },
            Kind::Table | Kind::Data => Intent { len: Some(len), ..Intent::DATA },
        };
        let made = pool.make_leaves(id, handle.inode().kind, &placed, &intent, None).await;
        let leaves = made.map_err(|(volume, e)| {
            let label = pool.members.label(volume);
            e.within(format_args!("a copy of {} on volume {label}", handle.inode().name))
        })?;
        let target = Target { placed: &placed, leaves };
        let copied = match handle.inode().is_sealed() {
            true => self.copy_sealed(&handle, &target, io).await,
            false => self.copy_living(&handle, &target, io).await,
        };
        match copied {
            Ok(len) => {
                unrecorded.placed.number = 0;
                drop(occupied);
                Ok(Copied { number: placed.number, len })
            }
            Err(e) => {
                // The copy may have been recorded before the error; if not, its leaf objects go now.
                unrecorded.placed.number = 0;
                if !pool.has_copy(id, placed.number) {
                    pool.remove_copy(id, handle.inode().kind, &placed).await;
                }
                Err(e)
            }
        }
    }

    async fn copy_sealed(&self, handle: &Handle, target: &Target<'_>, io: Io) -> Result<u64> {
        let (pool, inode) = (&self.0, handle.inode());
        let expected = pool.checksum(inode.id)?;
        let mut found = self.copy_whole(handle, None, target, io).await?;
        if found != expected {
            // One of the copies is damaged, and it is unknown which: copy from each one alone.
            for replica in inode.replicas() {
                tracing::warn!("{}: read again from volume {}", inode.name, replica.labels());
                found = self.copy_whole(handle, Some(&replica), target, io).await.unwrap_or(None);
                if found == expected {
                    break;
                }
            }
        }
        if found != expected {
            let what = format!(
                "{} (object {}): no copy has the bytes that were written: restore it",
                inode.name, inode.id
            );
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        target.sync(io).await?;
        let len = inode.len();
        self.record_copy(inode, target.placed).await?;
        Ok(len)
    }

    /// Copies all bytes from one copy, or piece by piece from any; returns their checksum.
    async fn copy_whole(
        &self,
        handle: &Handle,
        from: Option<&Replica>,
        target: &Target<'_>,
        io: Io,
    ) -> Result<Hashed> {
        let len = handle.len();
        let piece = async |at: u64| {
            self.0.must_live(handle.inode().id)?;
            let into = IoBufMut::zeroed(PIECE.min(len - at) as usize);
            let read = match from {
                Some(replica) => handle.read_from(replica, at, into, io).await,
                None => handle.read_at(at, into, io).await,
            };
            read.map(|read| (at, read))
        };
        let pieces = (0..len).step_by(PIECE as usize).map(piece);
        let mut pieces = pin!(stream::iter(pieces).buffered(AHEAD));
        let mut hash = Xxh3::new();
        while let Some(piece) = pieces.next().await {
            let (at, piece) = piece?;
            hash.update(&piece);
            target.write(at, piece, io).await?;
        }
        Ok(Some(hash.digest()))
    }

    /// Copies an object that may be written to meanwhile.
    async fn copy_living(&self, handle: &Handle, target: &Target<'_>, io: Io) -> Result<u64> {
        let inode = handle.inode();
        let mut at = 0;
        inode.write_lock.take_touched();
        for round in 0.. {
            // The next round finds later changes before `at`.
            at = self.follow(handle, target, at, io).await?;
            target.sync(io).await?;
            // The most bytes that writers may wait for: twice as many each round, so that it ends.
            let left_max = PIECE << round.min(6);
            at = inode.write_lock.take_touched().unwrap_or(u64::MAX).min(at);
            if handle.len().saturating_sub(at) > left_max {
                continue;
            }
            let exclusive = inode.write_lock.exclusive().await;
            at = inode.write_lock.take_touched().unwrap_or(u64::MAX).min(at);
            if handle.len().saturating_sub(at) > left_max {
                continue;
            }
            // Users' writes wait from here on.
            let io = Io::new(Origin::UserWrite, io.step);
            at = self.follow(handle, target, at, io).await?;
            target.cut(at).await?;
            target.sync(io).await?;
            self.record_copy(inode, target.placed).await?;
            drop(exclusive);
            return Ok(at);
        }
        unreachable!("rounds are not counted out")
    }

    /// Copies from `at` to the end; returns the end.
    async fn follow(
        &self,
        handle: &Handle,
        target: &Target<'_>,
        mut at: u64,
        io: Io,
    ) -> Result<u64> {
        loop {
            self.0.must_live(handle.inode().id)?;
            let read = handle.read_at(at, IoBufMut::zeroed(PIECE as usize), io).await?;
            if read.is_empty() {
                return Ok(at.min(handle.len()));
            }
            let step = read.len() as u64;
            target.write(at, read, io).await?;
            at += step;
        }
    }

    /// Steps 4 and 5.
    async fn record_copy(&self, inode: &Inode, placed: &Placed) -> Result<()> {
        let pool = &self.0;
        let lsn = {
            let _table = pool.table.lock();
            pool.must_lack(inode.id, &placed.layout)?;
            let add = Record::AddCopy { id: inode.id, placed: placed.clone() };
            let lsn = pool.journal.record(vec![add])?.0;
            // The copy is recorded from now on, even if the wait below fails: the next writes must reach it too.
            inode.attach(placed, &pool.members);
            pool.tell_places(inode.id);
            lsn
        };
        pool.journal.durable(lsn).await
    }

    /// Drops the copy of an object on volume `from`. Durable on return; then the bytes are removed.
    ///
    /// # Errors
    /// `NotFound`: there is none. `Invalid`: it is the only one. `Unavailable`: none of the others answers;
    /// or no volume takes the manifest, and the copy is dropped once one does.
    pub async fn drop_copy(&self, id: ObjectId, from: VolumeId) -> Result<()> {
        let pool = &self.0;
        let inode = pool.inode_by_id(id)?;
        pool.journal.ready().await?;
        self.another_must_answer(&inode, from).await?;
        // A write in progress uses the copies that it began with.
        let exclusive = match inode.is_sealed() {
            true => None,
            false => Some(inode.write_lock.exclusive().await),
        };
        let lsn = {
            let mut table = pool.table.lock();
            let number = pool.droppable(&inode, from)?;
            let (lsn, dead) = pool.journal.record(vec![Record::DropCopy { id, number }])?;
            inode.detach(number);
            inode.wait_for(lsn);
            pool.tell_places(id);
            table.condemned.extend(dead.into_iter().map(|dead| (lsn, dead)));
            lsn
        };
        drop(exclusive);
        pool.journal.durable(lsn).await?;
        pool.bury().await;
        Ok(())
    }

    /// Checks that a copy that is not on `from` answers, if there is one, by reading its last byte.
    async fn another_must_answer(&self, inode: &Arc<Inode>, from: VolumeId) -> Result<()> {
        let others = inode.replicas().into_iter();
        let others = others.filter(|replica| !replica.layout.volumes().contains(&from));
        let handle = self.handle(Arc::clone(inode));
        let mut answer = Ok(());
        for replica in others {
            answer = handle.answers(&replica).await;
            if answer.is_ok() {
                break;
            }
        }
        answer.map_err(|e| {
            Error::new(ErrorKind::Unavailable, format!("its other copies do not answer: {e}"))
        })
    }
}

/// The leaf objects of a copy being made.
struct Target<'a> {
    placed: &'a Placed,
    leaves: Vec<Arc<dyn Object>>,
}

impl Target<'_> {
    async fn write(&self, at: u64, data: IoBufMut, io: Io) -> Result<()> {
        let data = data.freeze();
        for piece in self.placed.layout.chunks().pieces(at, data.len() as u64) {
            let from = piece.at as usize;
            let data = data.slice(from..from + piece.len as usize);
            self.leaves[piece.part].write_at(piece.inner, data, io).await?;
        }
        Ok(())
    }

    /// Sets the length to `len`.
    async fn cut(&self, len: u64) -> Result<()> {
        let chunks = self.placed.layout.chunks();
        for (part, leaf) in self.leaves.iter().enumerate() {
            let len = chunks.part_len(len, part);
            if leaf.len() != len {
                leaf.set_len(len).await?;
            }
        }
        Ok(())
    }

    async fn sync(&self, io: Io) -> Result<()> {
        for leaf in &self.leaves {
            leaf.sync(io).await?;
        }
        Ok(())
    }
}

/// A copy that is not recorded yet. Dropping it queues its leaf objects for removal.
struct UnrecordedCopy<'a> {
    pool: &'a Inner,
    id: ObjectId,
    kind: Kind,
    /// With the number 0, dropping does nothing.
    placed: Placed,
}

impl Drop for UnrecordedCopy<'_> {
    fn drop(&mut self) {
        let copy = self.placed.number;
        if copy == 0 || self.pool.has_copy(self.id, copy) {
            return;
        }
        let leaf = Leaf::Object { id: self.id, kind: self.kind, copy };
        let mut table = self.pool.table.lock();
        for &volume in self.placed.layout.volumes() {
            table.orphans.entry(volume).or_default().push(leaf);
        }
    }
}

impl Inner {
    /// Reports the places of an object's copies to placement. Under the lock of the table.
    pub(super) fn tell_places(&self, id: ObjectId) {
        let copies = self.journal.look(|state| Some(state.object(id)?.copies.clone()));
        if let Some(copies) = copies {
            self.placing.lock().set_places(id, &copies);
        }
    }

    /// The inode of an object of the manifest.
    ///
    /// # Errors
    /// `Gone`: there is none.
    pub(super) fn inode_by_id(&self, id: ObjectId) -> Result<Arc<Inode>> {
        let mut table = self.table.lock();
        if !self.journal.look(|state| state.object(id).is_some()) {
            return Err(gone(id));
        }
        if let Some(inode) = table.inodes.get(&id) {
            return Ok(Arc::clone(inode));
        }
        let name = self.journal.look(|state| state.object(id)?.name().cloned());
        let inode = name.and_then(|name| self.inode_of(&mut table, &name, id));
        inode.ok_or_else(|| gone(id))
    }

    /// # Errors
    /// `Gone`: the object was removed.
    fn must_live(&self, id: ObjectId) -> Result<()> {
        if self.journal.look(|state| state.object(id).is_some()) { Ok(()) } else { Err(gone(id)) }
    }

    /// The checksum of a sealed object.
    fn checksum(&self, id: ObjectId) -> Result<Hashed> {
        let committed = self.journal.look(|state| Some(state.object(id)?.committed));
        Ok(committed.ok_or_else(|| gone(id))?.and_then(|committed| committed.checksum))
    }

    fn has_copy(&self, id: ObjectId, number: u64) -> bool {
        let has = |object: &Stored| object.copies.get(number).is_some();
        self.journal.look(|state| state.object(id).is_some_and(has))
    }

    /// Checks that no volume of `layout` holds a part of an object.
    fn must_lack(&self, id: ObjectId, layout: &Layout) -> Result<()> {
        self.journal.look(|state| {
            let object = state.object(id).ok_or_else(|| gone(id))?;
            match object.copies.volumes().find(|volume| layout.volumes().contains(volume)) {
                None => Ok(()),
                Some(volume) => {
                    let label = self.members.label(volume);
                    let what = format!("object {id} has a copy on volume {label}");
                    Err(Error::new(ErrorKind::AlreadyExists, what))
                }
            }
        })
    }

    async fn must_have_room(&self, layout: &Layout, len: u64) -> Result<()> {
        for (part, &volume) in layout.volumes().iter().enumerate() {
            let space = self.members.volume(volume)?.space().await?;
            let candidate = Candidate::new(volume, space.free, space.total);
            if !candidate.takes(layout.chunks().part_len(len, part)) {
                let label = self.members.label(volume);
                let what = format!("volume {label}: no room for a copy of {len} bytes");
                return Err(Error::new(ErrorKind::OutOfSpace, what));
            }
        }
        Ok(())
    }

    /// The number of the copy on volume `from`, if it may be dropped.
    fn droppable(&self, inode: &Inode, from: VolumeId) -> Result<u64> {
        let copies = self.journal.look(|state| Some(state.object(inode.id)?.copies.clone()));
        let copies = copies.ok_or_else(|| gone(inode.id))?;
        let here = |placed: &Placed| placed.layout.volumes().contains(&from);
        let label = || self.members.label(from);
        let found = copies.iter().find(|placed| here(placed)).ok_or_else(|| {
            let what = format!("{}: no copy on volume {}", inode.name, label());
            Error::new(ErrorKind::NotFound, what)
        })?;
        if copies.count() == 1 {
            let what = format!("{}: its only copy is on volume {}", inode.name, label());
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let is_there = |number| inode.replica(number).is_some_and(|replica| replica.is_here());
        let mut others = copies.iter().filter(|placed| placed.number != found.number);
        if is_there(found.number) && !others.any(|placed| is_there(placed.number)) {
            let what = format!("{}: its other copies are away", inode.name);
            return Err(Error::new(ErrorKind::Unavailable, what));
        }
        Ok(found.number)
    }
}

fn stat(id: ObjectId, name: &Name, object: &Stored) -> ObjectStat {
    ObjectStat {
        id,
        name: name.clone(),
        kind: object.kind,
        len: object.committed.map_or(0, |committed| committed.len),
        sealed: object.is_sealed(),
        copies: object.copies.iter().cloned().collect(),
    }
}

fn gone(id: ObjectId) -> Error {
    Error::new(ErrorKind::Gone, format!("object {id} was removed"))
}

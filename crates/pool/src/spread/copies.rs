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
use volume::{Error, ErrorKind, Intent, Io, IoBufMut, Name, Object, Pending, Result};
use xxhash_rust::xxh3::Xxh3;

use super::Spread;
use super::create::Place;
use super::handle::Handle;
use super::inode::{Inode, Replica};
use super::leaves::NewCopy;
use super::placing::Wanted;
use crate::leaf::{Kind, Leaf, ObjectId};
use crate::manifest::{Placed, State, Stored};
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

/// How a copy is made.
#[derive(Clone)]
pub(crate) struct How {
    /// The purpose of its I/O.
    pub(crate) io: Io,
    /// Called before each piece, which waits for it; `None` where only the gates limit the copy.
    pub(crate) wait: Option<Arc<PieceWait>>,
}

pub(crate) type PieceWait = dyn Fn() -> Pending<'static, ()> + Send + Sync;

impl From<Io> for How {
    fn from(io: Io) -> Self {
        Self { io, wait: None }
    }
}

impl How {
    /// Waits until the next piece may go.
    async fn ready(&self) -> Result<()> {
        match &self.wait {
            None => Ok(()),
            Some(wait) => wait().await,
        }
    }
}

/// The checksum of an object's bytes; none if it is unknown.
type Hashed = Option<u64>;

impl Spread {
    /// Every object in the manifest, once, in the order of first names.
    #[must_use]
    pub fn objects(&self) -> Vec<ObjectStat> {
        let stat = |(id, object): (ObjectId, &Stored)| {
            Some(ObjectStat {
                id,
                name: object.name()?.clone(),
                kind: object.kind,
                len: object.len(),
                sealed: object.is_sealed(),
                copies: object.copies.iter().cloned().collect(),
            })
        };
        let look = |state: &State| state.objects().filter_map(stat).collect();
        let mut stats: Vec<_> = self.0.journal.look(look);
        stats.sort_by(|a, b| a.name.cmp(&b.name));
        stats
    }

    /// The copies of one object; empty if there is no such object.
    #[must_use]
    pub fn copies_of(&self, id: ObjectId) -> Vec<Placed> {
        let copies = self.0.catalog.copies(id).ok();
        copies.iter().flat_map(|copies| copies.iter().cloned()).collect()
    }

    /// Whether only one copy of the object is on volumes that are here.
    pub(crate) fn has_one_copy(&self, id: ObjectId) -> bool {
        let members = &self.0.members;
        let is_here =
            |placed: &Placed| placed.layout.volumes().iter().all(|&v| members.volume(v).is_ok());
        self.copies_of(id).iter().filter(|placed| is_here(placed)).count() < 2
    }

    /// Makes a copy of an object on volume `to`, in the class of `io`. On return the copy is durable, and
    /// reads use it. Dropping the future leaves at most an orphan, which is removed later.
    ///
    /// # Errors
    /// `Gone`: the object was removed meanwhile. `AlreadyExists`: there is a copy on `to`. `Invalid`:
    /// no object goes there. `OutOfSpace`, `Unavailable`, `Busy`: try again, or elsewhere.
    /// `Corrupt`: every copy of the object is damaged.
    pub async fn copy(&self, id: ObjectId, to: VolumeId, io: Io) -> Result<Copied> {
        self.copy_by(id, to, &How::from(io)).await
    }

    /// The same, as `how` says.
    pub(crate) async fn copy_by(&self, id: ObjectId, to: VolumeId, how: &How) -> Result<Copied> {
        let pool = &self.0;
        let slot = pool.members.get(to).filter(|_| !pool.journal.draining().contains(&to));
        let occupied = slot.and_then(|slot| slot.occupy()).ok_or_else(|| {
            let label = pool.members.label(to);
            let what = format!("volume {label} takes no copies: it is being emptied, or not here");
            Error::new(ErrorKind::Invalid, what)
        })?;
        self.copy_as(id, Layout::Whole { volume: to }, vec![occupied], how).await
    }

    /// Makes a further copy of an object where placement chooses.
    pub(super) async fn copy_anywhere(&self, inode: &Inode, how: &How) -> Result<()> {
        let Place { flight, occupied } = self.choose_copy(inode).await?;
        self.copy_as(inode.id, flight.layout().clone(), occupied, how).await?;
        flight.land();
        Ok(())
    }

    /// Placement's choice for a further copy of an object.
    pub(super) async fn choose_copy(&self, inode: &Inode) -> Result<Place<'_>> {
        let intent = intent_of(inode);
        let taken: Vec<_> = inode.copies().volumes().collect();
        let wanted = Wanted { id: inode.id, kind: inode.kind, intent: &intent, origin: None };
        self.choose(wanted, &[], Some(&taken)).await.map_err(|_| {
            let what = format!("{}: no other volume takes {} bytes", inode.name, inode.len());
            Error::new(ErrorKind::OutOfSpace, what)
        })
    }

    async fn copy_as(
        &self,
        id: ObjectId,
        layout: Layout,
        occupied: Vec<Occupied>,
        how: &How,
    ) -> Result<Copied> {
        let pool = &self.0;
        let handle = self.handle(pool.catalog.inode_by_id(id)?);
        let inode = handle.inode();
        pool.catalog.must_lack(id, &layout)?;
        pool.journal.ready().await?;
        let number = pool.journal.issue_id().await?.0;
        let placed = Placed { number, layout };
        inode.know_len(&pool.journal).await?;
        self.must_have_room(&placed.layout, inode.len()).await?;
        let mut unrecorded =
            UnrecordedCopy { pool: self, id, kind: inode.kind, placed: Some(placed.clone()) };
        let intent = intent_of(inode);
        let made = pool.leaves.make(id, inode.kind, placed, occupied, &intent, None).await;
        let target = made.map_err(|(volume, e)| {
            let label = pool.members.label(volume);
            e.within(format_args!("a copy of {} on volume {label}", inode.name))
        })?;
        let copied = match inode.is_sealed() {
            true => self.copy_sealed(&handle, &target, how).await,
            false => self.copy_living(&handle, &target, how).await,
        };
        unrecorded.placed = None;
        // The copy may have been recorded before the error; if not, its leaf objects go now.
        if copied.is_err() && !self.has_copy(id, number) {
            pool.leaves.remove_copy(id, inode.kind, &target.placed).await;
        }
        Ok(Copied { number, len: copied? })
    }

    async fn copy_sealed(&self, handle: &Handle, target: &NewCopy, how: &How) -> Result<u64> {
        let (pool, inode) = (&self.0, handle.inode());
        pool.catalog.must_live(inode.id)?;
        let expected = pool.catalog.checked(inode).map(|checked| checked.checksum);
        let mut found = self.copy_whole(handle, None, target, how).await?;
        if found != expected {
            // One of the copies is damaged, and it is unknown which: copy from each one alone.
            for replica in inode.replicas() {
                tracing::warn!("{}: read again from volume {}", inode.name, replica.labels());
                found = self.copy_whole(handle, Some(&replica), target, how).await.unwrap_or(None);
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
        target.sync(how.io).await?;
        let len = inode.len();
        // Steps 4 and 5.
        let lsn = pool.catalog.add_copy(inode, &target.placed)?;
        pool.journal.durable(lsn).await?;
        Ok(len)
    }

    /// Copies all bytes from one copy, or piece by piece from any; returns their checksum.
    async fn copy_whole(
        &self,
        handle: &Handle,
        from: Option<&Replica>,
        target: &NewCopy,
        how: &How,
    ) -> Result<Hashed> {
        let (len, io) = (handle.len(), how.io);
        let piece = async |at: u64| {
            how.ready().await?;
            self.0.catalog.must_live(handle.inode().id)?;
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
    async fn copy_living(&self, handle: &Handle, target: &NewCopy, how: &How) -> Result<u64> {
        let (inode, io) = (handle.inode(), how.io);
        let mut at = 0;
        inode.write_lock.take_touched();
        for round in 0.. {
            // The next round finds later changes before `at`.
            at = self.follow(handle, target, at, how).await?;
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
            at = self.follow(handle, target, at, &How::from(io)).await?;
            target.cut(at).await?;
            target.sync(io).await?;
            // Steps 4 and 5.
            let lsn = self.0.catalog.add_copy(inode, &target.placed)?;
            self.0.journal.durable(lsn).await?;
            drop(exclusive);
            return Ok(at);
        }
        unreachable!("rounds are not counted out")
    }

    /// Copies from `at` to the end; returns the end.
    async fn follow(
        &self,
        handle: &Handle,
        target: &NewCopy,
        mut at: u64,
        how: &How,
    ) -> Result<u64> {
        let io = how.io;
        loop {
            how.ready().await?;
            self.0.catalog.must_live(handle.inode().id)?;
            let read = handle.read_at(at, IoBufMut::zeroed(PIECE as usize), io).await?;
            if read.is_empty() {
                return Ok(at.min(handle.len()));
            }
            let step = read.len() as u64;
            target.write(at, read, io).await?;
            at += step;
        }
    }

    /// Drops the copy of an object on volume `from`. Durable on return; then the bytes are removed.
    ///
    /// # Errors
    /// `NotFound`: there is none. `Invalid`: it is the only one. `Unavailable`: none of the others answers;
    /// or no volume takes the manifest, and the copy is dropped once one does.
    pub async fn drop_copy(&self, id: ObjectId, from: VolumeId) -> Result<()> {
        let pool = &self.0;
        let inode = pool.catalog.inode_by_id(id)?;
        pool.journal.ready().await?;
        self.another_must_answer(&inode, from).await?;
        // A write in progress uses the copies that it began with.
        let exclusive = match inode.is_sealed() {
            true => None,
            false => Some(inode.write_lock.exclusive().await),
        };
        let lsn = pool.catalog.drop_copy(&inode, from)?;
        drop(exclusive);
        pool.journal.durable(lsn).await?;
        self.bury().await;
        Ok(())
    }

    /// Checks that a copy that is not on `from` answers, if there is one, by reading its last byte.
    async fn another_must_answer(&self, inode: &Arc<Inode>, from: VolumeId) -> Result<()> {
        let others = inode.replicas().into_iter();
        let others = others.filter(|replica| !replica.is_on(from));
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

    fn has_copy(&self, id: ObjectId, number: u64) -> bool {
        self.0.catalog.copies(id).is_ok_and(|copies| copies.get(number).is_some())
    }

    async fn must_have_room(&self, layout: &Layout, len: u64) -> Result<()> {
        for (part, &volume) in layout.volumes().iter().enumerate() {
            let space = self.space_of(volume).await?;
            let candidate = Candidate::new(volume, space.free, space.total);
            if !candidate.takes(layout.chunks().part_len(len, part)) {
                let label = self.0.members.label(volume);
                let what = format!("volume {label}: no room for a copy of {len} bytes");
                return Err(Error::new(ErrorKind::OutOfSpace, what));
            }
        }
        Ok(())
    }
}

/// A copy that is not recorded yet. Dropping it queues its leaf objects for removal.
struct UnrecordedCopy<'a> {
    pool: &'a Spread,
    id: ObjectId,
    kind: Kind,
    /// With none, dropping does nothing.
    placed: Option<Placed>,
}

impl Drop for UnrecordedCopy<'_> {
    fn drop(&mut self) {
        let Some(Placed { number, layout }) = &self.placed else { return };
        if !self.pool.has_copy(self.id, *number) {
            let leaf = Leaf::Object { id: self.id, kind: self.kind, copy: *number };
            for &volume in layout.volumes() {
                self.pool.0.leaves.remove_later(volume, leaf);
            }
        }
    }
}

/// The intent of a further copy of an object.
fn intent_of(inode: &Inode) -> Intent {
    let known = match inode.kind {
        Kind::Log => Intent::LOG,
        Kind::Table | Kind::Data => Intent::DATA,
    };
    Intent { len: Some(inode.len()), ..known }
}

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
//! The bytes that a checksum of the manifest covers are hashed while they are copied, all of a sealed object, and those of
//! a log up to its last scrub. If they are not the bytes that were written, the copy is made again from each other copy
//! alone, and copies without the right bytes count as damaged. Bytes without a checksum are copied as they are read: if
//! they were damaged, the store that reads them finds that by the checksums of its records, and
//! [`read_again`](volume::Object::read_again) repairs them from another copy.
//!
//! The last copy but one is dropped only after the other was verified in the same way, and synced if the object may be
//! written.
//!
//! After a crash before step 4 is durable, the leaf object is an orphan: the manifest issued its number and
//! does not list it, so the next opening of the pool removes it. Later the copy is as good as any.
//!
//! An object that may still be written is followed while it changes, see [`follow`](super::follow).

use std::pin::pin;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use policy::placement::{Candidate, Code, Layout, VolumeId};
use policy::purpose::{Origin, Step};
use volume::{Error, ErrorKind, Intent, Io, IoBufMut, Name, Object, Pending, Result};
use xxhash_rust::xxh3::Xxh3;

use super::Spread;
use super::check::{NOT_WRITTEN, read_through};
use super::choose::Place;
use super::handle::Handle;
use super::inode::{Inode, Replica};
use super::leaves::NewCopy;
use super::placing::Wanted;
use super::resync::PIECE;
use crate::leaf::{Kind, Leaf, ObjectId};
use crate::manifest::{Checked, Placed, State, Stored, gone, held};
use crate::members::Occupied;

/// Reads and syncs of the copies that stay when another is dropped.
const VERIFY: Io = Io::new(Origin::Copy, Step::Data);
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
    /// The number of its first bytes that a checksum covers: all of a sealed object, none or some of a log.
    pub checked_len: u64,
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
    pub(super) async fn ready(&self) -> Result<()> {
        match &self.wait {
            None => Ok(()),
            Some(wait) => wait().await,
        }
    }
}

/// What an object lacks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Wanting {
    /// A copy of it.
    Copy,
    /// A copy of this fragment.
    Fragment(u8),
}

/// What the other copies of an object must do before one is dropped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Others {
    /// Two of them answer for the last byte; or one does, and has the bytes that a checksum of the manifest covers. Of
    /// fragments, as many as hold the object have their bytes.
    Hold,
    /// One of them answers for the last byte; as many fragments as hold the object.
    Answer,
}

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
                checked_len: object.checked().map_or(0, |checked| checked.len),
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

    /// Makes an outdated copy of an object new again, or a further one where placement chooses.
    pub(super) async fn copy_anywhere(
        &self,
        inode: &Arc<Inode>,
        what: Wanting,
        how: &How,
    ) -> Result<()> {
        if let Wanting::Fragment(index) = what {
            return self.make_fragment(inode, index, how).await;
        }
        if self.renew(inode, how).await? {
            return Ok(());
        }
        let Place { flight, occupied } = self.choose_copy(inode, inode.len()).await?;
        self.copy_as(inode.id, flight.layout().clone(), occupied, how).await?;
        flight.land();
        self.give_up_outdated(inode).await;
        Ok(())
    }

    /// Placement's choice for a further copy of an object, or a fragment of it, of `len` bytes.
    pub(super) async fn choose_copy(&self, inode: &Inode, len: u64) -> Result<Place<'_>> {
        let intent = intent_of(inode, len);
        let taken: Vec<_> = inode.copies().volumes().collect();
        let wanted = Wanted { id: inode.id, kind: inode.kind, intent: &intent, origin: None };
        self.choose(wanted, &[], Some(&taken)).await.map_err(|_| {
            let what = format!("{}: no other volume takes {len} bytes", inode.name);
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
        if let Some(code) = inode.code() {
            let what =
                format!("{}: it is kept as fragments of {code}, and has no copies", inode.name);
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        pool.journal.ready().await?;
        let number = pool.journal.issue_id().await?.0;
        let placed = Placed { number, layout };
        if inode.is_unequal_before(u64::MAX) {
            self.settle_for_reads(&handle).await?;
        }
        inode.know_len(&pool.journal).await?;
        self.must_have_room(&placed.layout, inode.len()).await?;
        let mut unrecorded =
            UnrecordedCopy { pool: self, id, kind: inode.kind, placed: Some(placed.clone()) };
        let intent = intent_of(inode, inode.len());
        let made = pool.leaves.make(id, inode.kind, placed, occupied, &intent, None).await;
        let target = made.map_err(|(volume, e)| {
            let label = pool.members.label(volume);
            e.within(format_args!("a copy of {} on volume {label}", inode.name))
        })?;
        let target = Arc::new(target);
        let copied = match inode.kind {
            _ if inode.is_sealed() => self.copy_sealed(&handle, &target, how).await,
            Kind::InPlace => self.copy_in_place(&handle, &target, how).await,
            _ => self.copy_living(&handle, &target, how).await,
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
        let checked = pool.catalog.checked(inode).ok_or_else(|| gone(inode.id))?;
        self.copy_checked(handle, checked, target, how).await?;
        target.seal(how.io).await?;
        let len = inode.len();
        // Steps 4 and 5.
        let lsn = pool.catalog.add_copy(inode, &target.placed)?;
        pool.journal.durable(lsn).await?;
        pool.damages.set_verified(inode.id, target.placed.number, checked);
        Ok(len)
    }

    /// Copies the bytes that a checksum covers, and compares them with it. Counts the copies without these bytes as
    /// damaged.
    ///
    /// # Errors
    /// `Corrupt`: no copy has them.
    pub(super) async fn copy_checked(
        &self,
        handle: &Handle,
        checked: Checked,
        target: &NewCopy,
        how: &How,
    ) -> Result<()> {
        let (pool, inode) = (&self.0, handle.inode());
        let Checked { len, checksum } = checked;
        // The bytes of a log lose their checksum before they are written over; then it need not fit.
        let holds = |found: u64| found == checksum || pool.catalog.checked(inode) != Some(checked);
        if holds(self.copy_first(handle, None, len, target, how).await?) {
            return Ok(());
        }
        // One of the copies is damaged, and it is unknown which: copy from each one alone.
        for replica in inode.replicas() {
            tracing::warn!("{}: read again from volume {}", inode.name, replica.labels());
            match self.copy_first(handle, Some(&replica), len, target, how).await {
                Ok(found) if holds(found) => return Ok(()),
                Ok(_) => {
                    pool.damages.tell(inode, &replica, NOT_WRITTEN);
                    pool.replication.suspect(inode.id);
                }
                Err(e) => tracing::debug!("{}: a copy is not copied: {e}", inode.name),
            }
        }
        pool.catalog.must_live(inode.id)?;
        let what = format!(
            "{} (object {}): no copy has the bytes that were written: restore it",
            inode.name, inode.id
        );
        Err(Error::new(ErrorKind::Corrupt, what))
    }

    /// Copies the first `len` bytes from one copy, or piece by piece from any; returns their checksum.
    async fn copy_first(
        &self,
        handle: &Handle,
        from: Option<&Replica>,
        len: u64,
        target: &NewCopy,
        how: &How,
    ) -> Result<u64> {
        let io = how.io;
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
            target.write(at, piece.freeze(), io).await?;
        }
        Ok(hash.digest())
    }

    /// Drops a bad copy by its number; false if another task did, or it is the last. A newer copy on its volume stays. The
    /// others need not be verified: they can only be better.
    pub(super) async fn drop_bad(&self, id: ObjectId, number: u64) -> Result<bool> {
        let dropped = self.drop_copy_if(id, number, Others::Answer).await;
        self.0.replication.due();
        match dropped {
            Ok(()) => {
                self.0.damages.repaired(id, &[number]);
                Ok(true)
            }
            Err(e) => match e.kind() {
                ErrorKind::Gone | ErrorKind::NotFound | ErrorKind::Invalid => Ok(false),
                _ => Err(e),
            },
        }
    }

    /// Drops the copy of an object on volume `from`. Durable on return; then the bytes are removed.
    ///
    /// If only one other copy answers, that is verified before: it is synced if the object may be written, and its bytes
    /// are compared with the checksum of the manifest as far as that covers them. A copy that was verified a short while
    /// ago is not read again: the last 256 are remembered.
    ///
    /// # Errors
    /// `NotFound`: there is none. `Invalid`: it is the only one. `Corrupt`: the other copy is not what was written.
    /// `Unavailable`: none of the others answers; copies differ since a crash, and the store has not read the object yet; or
    /// no volume takes the manifest, and the copy is dropped once one does.
    pub async fn drop_copy(&self, id: ObjectId, from: VolumeId) -> Result<()> {
        let copies = self.0.catalog.copies(id)?;
        let inode = self.0.catalog.inode_by_id(id)?;
        if inode.lead().is_some() {
            // It may be the only good one.
            let what = format!(
                "{}: its copies differ since a crash: the store that wrote it must read it first",
                inode.name
            );
            return Err(Error::new(ErrorKind::Unavailable, what));
        }
        let found = copies.iter().find(|placed| placed.is_on(from)).ok_or_else(|| {
            let what = format!("object {id}: no copy on volume {}", self.0.members.label(from));
            Error::new(ErrorKind::NotFound, what)
        })?;
        self.drop_copy_if(id, found.number, Others::Hold).await
    }

    /// The same for the copy `number`, and a caller that says what the other copies must do.
    pub(super) async fn drop_copy_if(
        &self,
        id: ObjectId,
        number: u64,
        others: Others,
    ) -> Result<()> {
        let pool = &self.0;
        let inode = pool.catalog.inode_by_id(id)?;
        if inode.code().is_some() && !inode.is_sealed() {
            self.rows_must_be_whole()?;
        }
        pool.journal.ready().await?;
        self.another_must(others, &inode, number).await?;
        // A write in progress uses the copies that it began with.
        let exclusive = match inode.is_sealed() {
            true => None,
            false => Some(inode.write_lock.exclusive().await),
        };
        let lsn = pool.catalog.drop_copy(&inode, number)?;
        drop(exclusive);
        pool.journal.durable(lsn).await?;
        self.bury().await;
        Ok(())
    }

    /// Checks that a copy other than `number` does what it must, if there is one.
    async fn another_must(&self, others: Others, inode: &Arc<Inode>, number: u64) -> Result<()> {
        let handle = self.handle(Arc::clone(inode));
        let needs = inode.code().map_or(1, Code::data);
        let (mut answering, mut failed) = (Vec::new(), None);
        for replica in inode.replicas().into_iter().filter(|replica| replica.number != number) {
            match handle.answers(&replica).await {
                Ok(()) => answering.push(replica),
                Err(e) => failed = Some(e),
            }
        }
        let held = held(answering.iter().map(|replica| replica.placed().index()));
        let held = match failed {
            Some(e) if held < needs => Err(e),
            _ if others == Others::Hold && (held == needs || inode.code().is_some()) => {
                self.enough_must_hold(&handle, answering, needs).await
            }
            // Of several copies, the next drop verifies one.
            _ => Ok(()),
        };
        held.map_err(|e| match e.kind() {
            ErrorKind::Corrupt => e,
            _ => {
                let what = format!("its other copies do not answer: {e}");
                Error::new(ErrorKind::Unavailable, what)
            }
        })
    }

    /// Checks that one of these copies, or as many different fragments as the code has of data, are what was written.
    async fn enough_must_hold(
        &self,
        handle: &Handle,
        mut answering: Vec<Arc<Replica>>,
        needs: usize,
    ) -> Result<()> {
        let inode = handle.inode();
        let is_known = |replica: &Arc<Replica>| {
            let checked = replica.checked(self.0.catalog.checked(inode), inode.len());
            checked.is_some_and(|known| self.0.damages.is_verified(inode.id, replica.number, known))
        };
        answering.sort_by_key(|replica| !is_known(replica));
        let (mut good, mut failed) = (Vec::new(), None);
        for replica in answering {
            match self.must_hold(handle, &replica).await {
                Ok(()) => good.push(replica.placed().index()),
                Err(e) => failed = Some(e),
            }
            if held(good.iter().copied()) >= needs {
                return Ok(());
            }
        }
        // None failed if there is none: the catalog refuses to drop the last.
        failed.map_or(Ok(()), Err)
    }

    /// Checks that a copy holds the bytes that a checksum of the manifest covers, and everything durably.
    ///
    /// # Errors
    /// `Corrupt`: it has other bytes, and counts as damaged; those of its volumes.
    async fn must_hold(&self, handle: &Handle, replica: &Replica) -> Result<()> {
        let (pool, inode) = (&self.0, handle.inode());
        if !inode.is_sealed() {
            handle.sync_copy(replica, 0, VERIFY).await?;
        }
        let all = pool.catalog.checked(inode);
        let Some(checked) = replica.checked(all, inode.len()) else { return Ok(()) };
        if pool.damages.is_verified(inode.id, replica.number, checked) {
            return Ok(());
        }
        let [found, _] = read_through(handle, replica, [checked.len; 2], VERIFY).await?;
        if found == checked.checksum {
            pool.damages.set_verified(inode.id, replica.number, checked);
        } else if pool.catalog.checked(inode) == all {
            pool.damages.tell(inode, replica, NOT_WRITTEN);
            pool.replication.suspect(inode.id);
            let what = format!(
                "{} (object {}) on volume {} is not what was written, so no other copy is dropped",
                inode.name,
                inode.id,
                replica.labels()
            );
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        Ok(())
    }

    pub(super) fn has_copy(&self, id: ObjectId, number: u64) -> bool {
        self.0.catalog.copies(id).is_ok_and(|copies| copies.get(number).is_some())
    }

    pub(super) async fn must_have_room(&self, layout: &Layout, len: u64) -> Result<()> {
        for (part, &volume) in layout.volumes().iter().enumerate() {
            let space = self.space_of(volume).await?;
            let candidate = Candidate::new(volume, space.free, space.total);
            if !candidate.takes(layout.part_len(len, part)) {
                let label = self.0.members.label(volume);
                let what = format!("volume {label}: no room for a copy of {len} bytes");
                return Err(Error::new(ErrorKind::OutOfSpace, what));
            }
        }
        Ok(())
    }
}

/// A copy that is not recorded yet. Dropping it queues its leaf objects for removal.
pub(super) struct UnrecordedCopy<'a> {
    pub(super) pool: &'a Spread,
    pub(super) id: ObjectId,
    pub(super) kind: Kind,
    /// With none, dropping does nothing.
    pub(super) placed: Option<Placed>,
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

/// The intent of a further copy of an object, or a fragment of it, of `len` bytes.
pub(super) fn intent_of(inode: &Inode, len: u64) -> Intent {
    let known = match inode.kind {
        Kind::Log => Intent::LOG,
        Kind::Table | Kind::Data => Intent::DATA,
        Kind::InPlace => Intent::IN_PLACE,
    };
    Intent { len: Some(len), ..known }
}

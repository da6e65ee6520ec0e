//! Fragments of objects that are written in place: the first ones, and those that take the place of lost ones.
//!
//! A new fragment is computed piece by piece while the object is written. A piece is computed without a claim on its rows, as
//! slowly as the copier's class goes; what changed meanwhile in any fragment of them is computed once more under a claim, in
//! the users' class. Changes of rows behind it go to the new fragment, too. See [`resync`](super::resync).

use std::ops::Range;
use std::sync::Arc;

use futures_util::future::join_all;
use policy::placement::{Code, Fragment};
use policy::purpose::{Io, Origin};
use volume::{Error, ErrorKind, Intent, Name, Result};

use super::Spread;
use super::choose::{Place, is_about_the_volume};
use super::copies::How;
use super::encode::{Target, placed};
use super::handle::Handle;
use super::inode::{Inode, name_part};
use super::leaves::{At, NewCopy};
use super::placing::Wanted;
use super::rows::rows_of;
use crate::leaf::{Kind, ObjectId};

impl Handle {
    /// Makes an object in place at least this long, with zeros. The next sync records its length.
    pub(crate) async fn grow(&self, len: u64) {
        // A new fragment that is about to be added gets the length before it is, or with the sync.
        let _shared = self.inode().write_lock.shared(0).await;
        self.inode().extend(len);
    }

    /// Makes the fragments as long as those of an object of `len` bytes, if they are shorter: a volume that is full refuses it
    /// here, and loses no fragment. Other failures count in the next sync.
    ///
    /// # Errors
    /// `OutOfSpace`.
    pub(crate) async fn extend_fragments(&self, len: u64) -> Result<()> {
        let replicas = self.inode().replicas();
        let extended = replicas.iter().map(async |replica| {
            let (leaf, len) = (self.leaf_of(replica, 0).await?, replica.part_len(0, len));
            if leaf.len() < len {
                let extended = leaf.set_len(len).await;
                return extended.map_err(|e| name_part(self.inode(), replica, 0, e));
            }
            Ok(())
        });
        let full = |e: &Error| e.kind() == ErrorKind::OutOfSpace;
        join_all(extended).await.into_iter().filter_map(Result::err).find(full).map_or(Ok(()), Err)
    }

    /// Whether the manifest has the object with its first `end` bytes, or never will, since it has no name any more.
    pub(crate) fn is_committed(&self, end: u64) -> bool {
        self.pool().catalog.is_committed(self.inode(), end)
    }

    /// Waits until what the manifest has of the object is durable.
    ///
    /// # Errors
    /// No volume takes the manifest.
    pub(crate) async fn recorded(&self) -> Result<()> {
        self.pool().journal.durable(self.inode().lsn()).await
    }
}

impl Spread {
    /// Creates an empty object that is written in place, as fragments of `code`. It is uncommitted until its first sync.
    ///
    /// # Errors
    /// As for `create`: fewer volumes take a fragment than hold the object.
    pub(crate) async fn create_in_place(&self, name: &Name, code: Code) -> Result<Handle> {
        let (pool, kind) = (&self.0, Kind::InPlace);
        pool.catalog.must_be_free(name)?;
        pool.journal.ready().await?;
        let mut failed: Vec<At> = Vec::new();
        loop {
            let id = pool.journal.issue_id().await?;
            let wanted = Wanted { id, kind, intent: &Intent::IN_PLACE, origin: None };
            let targets = self.choose_fragments(code, wanted, true, &mut failed).await?;
            let is_enough = targets.len() >= code.data();
            let there = targets.len();
            let (made, lost) = self.make_empty(wanted, code, targets).await;
            let hard = lost.iter().position(|(_, e)| !is_about_the_volume(e));
            if is_enough && lost.is_empty() {
                if made.len() < code.fragments() {
                    pool.replication.due();
                }
                let inode = Inode::new(name, id, kind, &made, &pool.members);
                let named = pool.catalog.create_empty(inode);
                if named.is_err() {
                    self.forget_new(id, &made).await;
                }
                let (lsn, inode) = named?;
                pool.journal.written(lsn).await?;
                return Ok(self.handle(inode));
            }
            self.forget_new(id, &made).await;
            if let Some(at) = hard
                && lost[at].1.kind() != ErrorKind::AlreadyExists
            {
                let (_, e) = lost.into_iter().nth(at).unwrap_or_else(|| unreachable!());
                return Err(e.within(name));
            }
            if !is_enough {
                return Err(self.nowhere_in_fragments(name, (code, code.data()), there, &failed));
            }
            for at in lost {
                if at.1.kind() != ErrorKind::AlreadyExists {
                    failed.push(self.warn_of_failed(name, at));
                }
            }
        }
    }

    /// Creates the leaf objects of fragments.
    async fn make_empty(
        &self,
        wanted: Wanted<'_>,
        code: Code,
        targets: Vec<Target<'_>>,
    ) -> (Vec<NewCopy>, Vec<At>) {
        let Wanted { id, kind, intent, .. } = wanted;
        let made = targets.into_iter().map(async |target| {
            let Target { index, number, place: Place { flight, occupied } } = target;
            let volume = flight.layout().volumes()[0];
            let placed = placed(number, Fragment { volume, index, code, checksum: 0 });
            let made = self.0.leaves.make(id, kind, placed, occupied, intent, None).await?;
            flight.land();
            Ok(made)
        });
        let (mut all, mut lost) = (Vec::new(), Vec::new());
        for made in join_all(made).await {
            match made {
                Ok(made) => all.push(made),
                Err(at) => lost.push(at),
            }
        }
        all.sort_by_key(|copy| copy.placed.number);
        (all, lost)
    }

    async fn forget_new(&self, id: ObjectId, made: &[NewCopy]) {
        self.0.placing.forget_table(id);
        self.remove_fragments(id, Kind::InPlace, made).await;
    }

    /// Makes a fragment of an object that is written meanwhile, and records it. Durable on return.
    ///
    /// # Errors
    /// As for [`Spread::copy`]. `Corrupt`: too few other fragments can be read.
    pub(super) async fn follow_fragment(
        &self,
        handle: &Handle,
        (code, index): (Code, usize),
        target: &Arc<NewCopy>,
        how: &How,
    ) -> Result<()> {
        let inode = handle.inode();
        let resync = {
            let _exclusive = inode.write_lock.exclusive().await;
            inode.resyncs.begin(target)
        };
        let len = || code.fragment_len(handle.inode().len(), index);
        // While changes of rows wait.
        let users = Io::new(Origin::UserWrite, how.io.step);
        loop {
            how.ready().await?;
            self.0.catalog.must_live(inode.id)?;
            if let Some(piece) = resync.next(len)? {
                let rows = rows_of(code, &piece);
                // A change that began before the piece was not noted: it ends here.
                drop(handle.rows(code, rows.clone(), users).await?);
                copy_piece(handle, (code, index), &piece, target, how.io).await?;
                let _rows = handle.rows(code, rows, users).await?;
                while let Some(changed) = resync.end_piece() {
                    copy_piece(handle, (code, index), &changed, target, users).await?;
                }
                continue;
            }
            target.sync(how.io).await?;
            let exclusive = inode.write_lock.exclusive().await;
            if let Some(position) = resync.position() {
                if position < len() {
                    continue;
                }
                resync.follow_end(position);
            }
            if !resync.is_complete() {
                continue;
            }
            for leaf in &target.leaves {
                leaf.set_len(len()).await?;
            }
            target.sync(users).await?;
            let lsn = self.0.catalog.add_copy(inode, &target.placed)?;
            self.0.journal.durable(lsn).await?;
            drop(resync);
            drop(exclusive);
            return Ok(());
        }
    }
}

/// Writes a range of a fragment to a new one, read from another copy of it or computed. Where its rows change meanwhile, it has
/// to be written again.
async fn copy_piece(
    handle: &Handle,
    (code, index): (Code, usize),
    piece: &Range<u64>,
    target: &NewCopy,
    io: Io,
) -> Result<()> {
    let len = piece.end - piece.start;
    let mine = handle.inode().replicas().into_iter().find(|r| r.index() == Some(index));
    let copied = match mine.filter(|replica| replica.is_here()) {
        Some(mine) => handle.read_padded(&mine, piece.start, len, io).await,
        None => Err(Error::new(ErrorKind::Gone, "there is no other copy of the fragment")),
    };
    let bytes = match copied {
        Ok(bytes) => bytes,
        Err(_) => handle.compute_range(code, index, piece, io).await?,
    };
    let has = code.fragment_len(handle.inode().len(), index).saturating_sub(piece.start).min(len);
    if has > 0 {
        target.write(piece.start, bytes.freeze().slice(0..has as usize), io).await?;
    }
    Ok(())
}

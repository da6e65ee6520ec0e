//! Copies an object that may be written meanwhile.
//!
//! Logs and tables are mostly appended to: pieces behind the first changed byte are read again, and writers wait for the last of
//! them. Objects that are overwritten in place would keep such a copier from its end. Their writes go to the new copy, too, see
//! [`resync`](super::resync). Writers wait while one piece is copied, and at the end for a sync and the manifest's edit.

use std::ops::Range;
use std::sync::Arc;

use policy::purpose::Origin;
use volume::{Io, IoBufMut, Object, Result};

use super::Spread;
use super::copies::How;
use super::handle::{Handle, padded};
use super::leaves::NewCopy;
use super::resync::{Mirroring, PIECE, Resync};

/// Whether the writers of an object go on while it is copied, or wait for the end of the copy.
#[derive(Clone, Copy)]
enum Writers {
    Work,
    Wait,
}

impl Spread {
    /// Copies an object that may be written to meanwhile.
    pub(super) async fn copy_living(
        &self,
        handle: &Handle,
        target: &NewCopy,
        how: &How,
    ) -> Result<u64> {
        let (inode, io) = (handle.inode(), how.io);
        inode.write_lock.take_touched();
        let checked = self.0.catalog.checked(inode);
        let mut at = 0;
        if let Some(checked) = checked {
            self.copy_checked(handle, checked, target, how).await?;
            at = checked.len;
        }
        for round in 0.. {
            // The next round finds later changes before `at`.
            at = self.follow(handle, target, at, how, Writers::Work).await?;
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
            at = self.follow(handle, target, at, &How::from(io), Writers::Wait).await?;
            target.cut(at).await?;
            target.sync(io).await?;
            // Steps 4 and 5.
            let lsn = self.0.catalog.add_copy(inode, &target.placed)?;
            self.0.journal.durable(lsn).await?;
            drop(exclusive);
            if let Some(checked) = checked {
                self.0.damages.set_verified(inode.id, target.placed.number, checked);
            }
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
        writers: Writers,
    ) -> Result<u64> {
        let io = how.io;
        loop {
            how.ready().await?;
            self.0.catalog.must_live(handle.inode().id)?;
            let into = IoBufMut::zeroed(PIECE as usize);
            let read = match writers {
                Writers::Work => handle.read_at(at, into, io).await?,
                Writers::Wait => handle.read_now(at, into, self.tagged(io)).await?,
            };
            if read.is_empty() {
                return Ok(at.min(handle.len()));
            }
            let step = read.len() as u64;
            target.write(at, read.freeze(), io).await?;
            at += step;
        }
    }

    /// Copies an object that is written in place meanwhile: writes behind the copier go to the copy, too.
    pub(super) async fn copy_in_place(
        &self,
        handle: &Handle,
        target: &Arc<NewCopy>,
        how: &How,
    ) -> Result<u64> {
        let inode = handle.inode();
        let resync = {
            // Writers in progress do not know of it.
            let _exclusive = inode.write_lock.exclusive().await;
            inode.resyncs.begin(target)
        };
        self.copy_missing(handle, resync, how).await
    }

    /// Copies what a new copy lacks of an object that is written in place, and records it. Durable on return.
    pub(super) async fn copy_missing(
        &self,
        handle: &Handle,
        resync: Mirroring<'_>,
        how: &How,
    ) -> Result<u64> {
        let (inode, target) = (handle.inode(), Arc::clone(&resync.target));
        loop {
            how.ready().await?;
            self.0.catalog.must_live(inode.id)?;
            if let Some(piece) = resync.next(|| handle.len())? {
                self.resync_piece(handle, &resync, piece, how.io).await?;
                continue;
            }
            if let Some(position) = resync.position() {
                resync_end(handle, &resync, position).await?;
                continue;
            }
            // Most of it, so that writers wait for the sync of a few bytes below.
            target.sync(how.io).await?;
            let exclusive = inode.write_lock.exclusive().await;
            if !resync.is_complete() {
                continue;
            }
            // Users' writes wait from here on.
            let io = Io::new(Origin::UserWrite, how.io.step);
            let len = handle.len();
            target.cut(len).await?;
            target.sync(io).await?;
            // Steps 4 and 5.
            let lsn = self.0.catalog.add_copy(inode, &target.placed)?;
            self.0.journal.durable(lsn).await?;
            drop(resync);
            drop(exclusive);
            return Ok(len);
        }
    }

    async fn resync_piece(
        &self,
        handle: &Handle,
        resync: &Resync,
        piece: Range<u64>,
        io: Io,
    ) -> Result<()> {
        let len = |range: &Range<u64>| (range.end - range.start) as usize;
        let into = IoBufMut::zeroed(len(&piece));
        let read = handle.read_at(piece.start, into, io).await?;
        resync.target.write(piece.start, padded(read, len(&piece)).freeze(), io).await?;
        let _claim = handle.inode().changes.claim(piece).await;
        // Users' writes to the piece wait from here on. Not for the whole piece, which may wait long in a lower class.
        let io = Io::new(Origin::UserWrite, io.step);
        while let Some(changed) = resync.end_piece() {
            let into = IoBufMut::zeroed(len(&changed));
            let read = handle.read_now(changed.start, into, self.tagged(io)).await?;
            resync.target.write(changed.start, padded(read, len(&changed)).freeze(), io).await?;
        }
        Ok(())
    }
}

/// Makes writes that extend the object go to the new copy, too, if all up to `position` was copied.
async fn resync_end(handle: &Handle, resync: &Resync, position: u64) -> Result<()> {
    // The position is behind the end if the object was shortened.
    let end = position.min(handle.len());
    let _claim = handle.inode().changes.claim(end..u64::MAX).await;
    let len = handle.len();
    if (end..=position).contains(&len) {
        // A gap has zeros.
        resync.target.cut(len).await?;
        resync.follow_end(position);
    }
    Ok(())
}

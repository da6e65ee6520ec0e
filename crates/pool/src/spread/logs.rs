//! Scrubs of logs.
//!
//! A log grows, so it has no checksum of its own while it is written: that would be an edit of the manifest for each
//! sync. A scrub that finds all copies of a log equal records the checksum of the bytes they have then. Appends leave
//! it valid, so the next scrub can say which copy of those bytes is wrong, whether the log is open or closed. A write
//! below them removes the checksum first, durably.
//!
//! Later bytes are compared between the copies. Where they differ, no copy is dropped: the checksums of the store's
//! records decide which copy is right when the store reads them.

use std::sync::Arc;

use volume::Result;

use super::Spread;
use super::check::{Found, IO, NOT_WRITTEN, Problem, found, problem};
use super::handle::Handle;
use super::hashes::{Hashes, read_through};
use super::inode::{Inode, Replica};
use crate::manifest::{Checked, Committed, Record};

impl Spread {
    /// Compares the copies of a log with its checksum and with each other; gives it the checksum of all its bytes where
    /// they are equal.
    pub(super) async fn scrub_log(&self, log: &Handle) -> Vec<Found> {
        let (pool, inode) = (&self.0, log.inode());
        let _one = pool.scrubbing.lock().await;
        // After a failed write copies may differ behind what was acknowledged.
        if inode.doubt().is_some() && self.settle(log).await.is_err() {
            return Vec::new();
        }
        if let Err(e) = pool.learn_len(inode).await {
            tracing::debug!("{}: its length: {e}", inode.name);
        }
        let (end, replicas) = {
            let _exclusive = inode.write_lock.exclusive().await;
            inode.write_lock.watch();
            (inode.len(), inode.replicas())
        };
        let checked = pool.checked(inode);
        // Bytes were lost of the copy that gave the length; another may have them all.
        if let Some(checked) = checked
            && checked.len > end
        {
            return self.scrub_sealed(log, checked).await;
        }
        let at = checked.map_or(0, |checked| checked.len);
        let mut read = Vec::new();
        for replica in &replicas {
            read.push(read_through(log, replica, [at, end], IO).await);
        }
        // Writes below what was read: the bytes that were compared may be from before and after them.
        if inode.write_lock.lowest() < end || inode.doubt().is_some() {
            return Vec::new();
        }
        let is_damaged = |read: &Hashes| checked.is_some_and(|known| read.first != known.checksum);
        let sound: Vec<_> = read.iter().flatten().filter(|read| !is_damaged(read)).collect();
        let equal = sound.windows(2).all(|pair| pair[0].all == pair[1].all);
        if let [first, ..] = &sound[..]
            && equal
            && end > at
        {
            let checked = Checked { len: end, checksum: first.all };
            match self.record_checksum(log, checked, &replicas).await {
                Ok(recorded) => tracing::debug!("{}: a checksum: {recorded}", inode.name),
                Err(e) => tracing::debug!("{}: no checksum for now: {e}", inode.name),
            }
        }
        let judge = |(replica, read): (&Arc<Replica>, Result<Hashes>)| match read {
            Ok(read) if is_damaged(&read) => {
                pool.tell_damage(inode, replica, NOT_WRITTEN);
                Some(found(replica, Some(Problem::Damaged)))
            }
            Ok(_) => Some(found(replica, (!equal).then_some(Problem::Unlike))),
            Err(e) => Some(found(replica, Some(problem(&e)?))),
        };
        replicas.iter().zip(read).filter_map(judge).collect()
    }

    /// Records the checksum of the first bytes of a log, unless they were written over, or copies came or went.
    async fn record_checksum(
        &self,
        log: &Handle,
        checked: Checked,
        replicas: &[Arc<Replica>],
    ) -> Result<bool> {
        let (pool, inode) = (&self.0, log.inode());
        for replica in replicas {
            log.sync_copy(replica, 0, IO).await?;
        }
        pool.journal.ready().await?;
        let exclusive = inode.write_lock.exclusive().await;
        let lsn = {
            let _table = pool.table.lock();
            let numbers = |replicas: &[Arc<Replica>]| -> Vec<u64> {
                replicas.iter().map(|replica| replica.number).collect()
            };
            let same = inode.write_lock.lowest() >= checked.len
                && numbers(&inode.replicas()) == numbers(replicas)
                && inode.doubt().is_none();
            // They differ while a write waits until the checksum is gone.
            let known = pool.checked(inode).map_or(0, |known| known.len);
            // A log that lost its name needs no record.
            let is_named = pool.journal.look(|state| state.object(inode.id).is_some());
            if !same || !is_named || known != inode.checked_len() {
                return Ok(false);
            }
            let committed = Committed { len: checked.len, checksum: Some(checked.checksum) };
            let (lsn, _) = pool.journal.record(vec![Record::Commit { id: inode.id, committed }])?;
            inode.set_checked(checked.len);
            inode.wait_for(lsn);
            lsn
        };
        drop(exclusive);
        pool.journal.durable(lsn).await?;
        Ok(true)
    }

    /// Removes the checksum of a log, durably: its bytes may change after that.
    ///
    /// # Errors
    /// `Unavailable`, `OutOfSpace`, `Poisoned`: no volume takes the manifest.
    pub(super) async fn forget_checksum(&self, inode: &Inode) -> Result<()> {
        let pool = &self.0;
        pool.journal.ready().await?;
        let (lsn, checksums) = {
            let _table = pool.table.lock();
            if let Some(Checked { len, .. }) = pool.checked(inode) {
                let committed = Committed { len, checksum: None };
                let commit = Record::Commit { id: inode.id, committed };
                inode.wait_for(pool.journal.record(vec![commit])?.0);
            }
            // Another write may have recorded it a moment ago: its edit is waited for as well.
            (inode.lsn(), inode.checksums())
        };
        pool.journal.durable(lsn).await?;
        let _table = pool.table.lock();
        // A scrub may have recorded another one meanwhile.
        if inode.checksums() == checksums {
            inode.clear_checked();
        }
        Ok(())
    }
}

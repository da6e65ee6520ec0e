//! Scrubs of logs, and the checksums of their first bytes.
//!
//! A checksum for each sync of a log would be as many edits of the manifest. So a sync records one when it made
//! [`UNRECORDED_MAX`](super::handle::UNRECORDED_MAX) more bytes durable, by the [running checksum](super::running) of a
//! log that this process writes. A scrub that finds all copies of a log equal records one of the bytes they have then.
//! Appends leave it valid, so the next scrub can say which copy of those bytes is wrong, whether the log is open or
//! closed. A write below them removes the checksum first, durably. After a crash the copies are compared behind it.
//!
//! Later bytes are compared between the copies. Where they differ, no copy is dropped: the checksums of the store's
//! records decide which copy is right when the store reads them.

use std::sync::Arc;

use volume::Result;

use super::Spread;
use super::check::{Found, NOT_WRITTEN, Problem, problem, read_through};
use super::handle::Handle;
use super::inode::{Inode, Replica};
use super::scrub::IO;
use crate::manifest::Checked;

impl Spread {
    /// Compares the copies of a log with its checksum and with each other; gives it the checksum of all its bytes where
    /// they are equal.
    pub(super) async fn scrub_log(&self, log: &Handle) -> Vec<Found> {
        let (pool, inode) = (&self.0, log.inode());
        let _one = pool.damages.scrubbing.lock().await;
        // After a failed write copies may differ behind what was acknowledged.
        if inode.doubt().is_some() && self.settle_for_reads(log).await.is_err() {
            return Vec::new();
        }
        if let Err(e) = inode.learn_len(&pool.journal).await {
            tracing::debug!("{}: its length: {e}", inode.name);
        }
        let (end, replicas) = {
            let _exclusive = inode.write_lock.exclusive().await;
            inode.write_lock.watch();
            (inode.len(), inode.replicas())
        };
        let checked = pool.catalog.checked(inode);
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
        let is_damaged =
            |[first, _]: &[u64; 2]| checked.is_some_and(|known| *first != known.checksum);
        let sound: Vec<_> = read.iter().flatten().filter(|read| !is_damaged(read)).collect();
        let equal = sound.windows(2).all(|pair| pair[0][1] == pair[1][1]);
        if let [[_, checksum], ..] = sound[..]
            && equal
            && end > at
        {
            let checked = Checked { len: end, checksum: *checksum };
            match self.record_checksum(log, checked, &replicas).await {
                Ok(recorded) => tracing::debug!("{}: a checksum: {recorded}", inode.name),
                Err(e) => tracing::debug!("{}: no checksum for now: {e}", inode.name),
            }
        }
        let found =
            |replica: &Arc<Replica>, problem| Found { replica: Arc::clone(replica), problem };
        let judge = |(replica, read): (&Arc<Replica>, Result<[u64; 2]>)| match read {
            Ok(read) if is_damaged(&read) => {
                pool.damages.tell(inode, replica, NOT_WRITTEN);
                Some(found(replica, Some(Problem::Damaged)))
            }
            Ok(_) => Some(found(replica, (!equal).then_some(Problem::Unlike))),
            Err(e) => {
                pool.damages.tell_if_damaged(inode, replica.number, &e);
                Some(found(replica, Some(problem(&e)?)))
            }
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
        if inode.write_lock.lowest() < checked.len {
            return Ok(false);
        }
        let Some(lsn) = pool.catalog.set_checked(inode, checked, replicas)? else {
            return Ok(false);
        };
        drop(exclusive);
        pool.journal.durable(lsn).await?;
        Ok(true)
    }

    /// Records the checksum of the first bytes of a log, which its process wrote and all `replicas` now hold durably,
    /// unless they were written over meanwhile. After a crash the copies are compared from there on. If the edit fails
    /// they are compared from further back.
    pub(super) async fn record_synced(
        &self,
        log: &Inode,
        checked: Checked,
        replicas: &[Arc<Replica>],
    ) {
        let pool = &self.0;
        let set = || pool.catalog.set_checked(log, checked, replicas).transpose();
        let recorded = match log.if_unchanged(checked.len, set) {
            None => Ok(()),
            Some(Ok(lsn)) => pool.journal.written(lsn).await,
            Some(Err(e)) => Err(e),
        };
        if let Err(e) = recorded {
            tracing::debug!("{}: no checksum for now: {e}", log.name);
        }
    }
}

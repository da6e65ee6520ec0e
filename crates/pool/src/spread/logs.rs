//! Scrubbing logs.
//!
//! A log grows, so the manifest has no checksum of it while it is written. When a scrub finds a log that is not open,
//! and its copies are the same, it records their checksum: from then on a scrub can say which copy is wrong. A write
//! takes the checksum away again, durably and before the first byte changes.
//!
//! The copies of a log without a checksum are only compared. Where they differ, the checksums of the store's own records
//! decide which is right, when the store reads it.

use std::sync::Arc;

use volume::{Error, IoBufMut, Result};
use xxhash_rust::xxh3::Xxh3;

use super::Spread;
use super::body::{Body, Replica};
use super::check::{Found, IO, Problem, SCRUB_BYTES, found, problem};
use super::handle::Handle;
use crate::manifest::{Committed, Record};

/// A copy that is compared with the others.
struct Compared {
    replica: Arc<Replica>,
    problem: Option<Error>,
}

impl Spread {
    /// Compares the copies of a log without a checksum, and gives it one if it is not open.
    pub(super) async fn scrub_log(&self, log: &Handle) -> Vec<Found> {
        let body = log.body();
        // Copies that failed together are alike again, or have no common content to compare.
        if body.doubt().is_some() && self.settle(log).await.is_err() {
            return Vec::new();
        }
        if let Err(e) = self.0.learn_len(body).await {
            tracing::debug!("{}: not compared: {e}", body.name);
        }
        let begun = body.turn.begun();
        let len = body.len();
        let replicas = body.replicas().into_iter();
        let mut copies: Vec<_> =
            replicas.map(|replica| Compared { replica, problem: None }).collect();
        let mut hash = Xxh3::new();
        let mut at = 0;
        let mut alike = true;
        while alike && at < len {
            let step = SCRUB_BYTES.min(len - at);
            let mut bytes = log.piece(&mut copies, at, step).await;
            if !are_alike(&bytes) {
                // A write may have reached one of them and not yet the other.
                let _alone = body.turn.alone().await;
                bytes = log.piece(&mut copies, at, step).await;
                alike = are_alike(&bytes);
            }
            bytes.first().into_iter().for_each(|bytes| hash.update(bytes));
            at += step;
        }
        if alike {
            let _alone = body.turn.alone().await;
            alike = log.are_of_one_length(&mut copies).await;
        }
        if alike && copies.iter().all(|copy| copy.problem.is_none()) {
            let checksum = hash.digest();
            match self.seal_log(log, Committed { len, checksum: Some(checksum) }, begun).await {
                Ok(sealed) => tracing::debug!("{}: has a checksum: {sealed}", body.name),
                Err(e) => tracing::debug!("{}: has no checksum for now: {e}", body.name),
            }
        }
        let copies =
            copies.into_iter().filter_map(|Compared { replica, problem: failed }| match failed {
                Some(e) => found(&replica, Some(problem(&e)?)),
                None => found(&replica, (!alike).then_some(Problem::Unlike)),
            });
        copies.collect()
    }

    /// Records the checksum of a log that nobody has open, unless it was written since `begun`.
    async fn seal_log(&self, log: &Handle, committed: Committed, begun: u64) -> Result<bool> {
        let (pool, body) = (&self.0, log.body());
        let replicas = body.replicas();
        for replica in &replicas {
            log.sync_copy(replica, 0, IO).await?;
        }
        pool.journal.ready().await?;
        let alone = body.turn.alone().await;
        let lsn = {
            let _table = pool.table.lock();
            let numbers = |replicas: &[Arc<Replica>]| -> Vec<u64> {
                replicas.iter().map(|replica| replica.number).collect()
            };
            let same =
                body.turn.begun() == begun && numbers(&body.replicas()) == numbers(&replicas);
            if !same || body.is_shared() || body.doubt().is_some() {
                return Ok(false);
            }
            let (lsn, _) = pool.journal.record(vec![Record::Commit { id: body.id, committed }])?;
            body.set_len(committed.len);
            body.seal();
            body.wait_for(lsn);
            lsn
        };
        drop(alone);
        pool.journal.durable(lsn).await?;
        Ok(true)
    }

    /// Takes the checksum of a log away. Durable on return: the log may change.
    ///
    /// # Errors
    /// `Unavailable`, `OutOfSpace`, `Poisoned`: no volume takes the manifest.
    pub(super) async fn unseal_log(&self, body: &Body) -> Result<()> {
        let pool = &self.0;
        pool.journal.ready().await?;
        let lsn = {
            let _table = pool.table.lock();
            match pool.committed_len(body) {
                Some(len) => {
                    let committed = Committed { len, checksum: None };
                    let commit = Record::Commit { id: body.id, committed };
                    pool.journal.record(vec![commit])?.0
                }
                // A log without a name needs no record.
                None => body.lsn(),
            }
        };
        body.wait_for(lsn);
        pool.journal.durable(lsn).await?;
        body.unseal();
        Ok(())
    }
}

impl Handle {
    /// The same piece of each copy that can be read.
    async fn piece(&self, copies: &mut [Compared], at: u64, len: u64) -> Vec<IoBufMut> {
        let mut bytes = Vec::new();
        for copy in copies.iter_mut().filter(|copy| copy.problem.is_none()) {
            match self.read_from(&copy.replica, at, IoBufMut::zeroed(len as usize), IO).await {
                Ok(read) => bytes.push(read),
                Err(e) => copy.problem = Some(e),
            }
        }
        bytes
    }

    async fn are_of_one_length(&self, copies: &mut [Compared]) -> bool {
        let mut lens = Vec::new();
        for copy in copies.iter_mut().filter(|copy| copy.problem.is_none()) {
            match self.len_of(&copy.replica).await {
                Ok(len) => lens.push(len),
                Err(e) => copy.problem = Some(e),
            }
        }
        lens.windows(2).all(|pair| pair[0] == pair[1])
    }
}

fn are_alike(copies: &[IoBufMut]) -> bool {
    copies.windows(2).all(|pair| pair[0][..] == pair[1][..])
}

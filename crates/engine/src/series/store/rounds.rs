//! Rounds of upkeep, and the order of their work.

use std::sync::atomic::Ordering;
use std::time::Duration;

use policy::time::Instant;

use super::Inner;
use super::flush::Which;
use super::upkeep::{Pause, Upkeep};
use crate::series::{Error, Result};

/// The write-ahead log has about this many segments at its limit.
pub(super) const SEGMENTS: u64 = 8;
/// From this share of its limit on, upkeep cuts the write-ahead log.
const LONG: f64 = 0.75;
/// From this fullness on, the search for overwritten points runs.
const SCARCE: f64 = 0.9;
/// How often expired blocks are deleted; reads ignore them at once.
const EXPIRY_EVERY: Duration = Duration::from_secs(60);
/// The same while writes are refused.
const EXPIRY_EVERY_FULL: Duration = Duration::from_secs(1);
/// How often owed work is retried.
const OWED_EVERY: Duration = Duration::from_secs(1);

impl Inner {
    /// Does one piece of upkeep; says whether there may be more.
    pub(super) async fn tend_once(&self) -> Result<bool> {
        let mut upkeep = self.upkeep.lock().await;
        let upkeep = &mut *upkeep;
        let now = self.clock.now();
        match self.write_what_waits(upkeep, now).await {
            Ok(false) => self.free_room(upkeep, now).await,
            // Deleting expired or overwritten points may free the missing room.
            Err(error @ Error::OutOfSpace(_)) => match self.free_room(upkeep, now).await? {
                true => Ok(true),
                false => Err(error),
            },
            done => done,
        }
    }

    /// Writes blocks where buffers or the log have grown, carries out owed deletes, and truncates the log.
    async fn write_what_waits(&self, upkeep: &mut Upkeep, now: Instant) -> Result<bool> {
        let (has_ready, is_large, oldest, floor, is_owing) = {
            let mut state = self.state();
            let oldest = state.oldest();
            let floor = state.floor();
            let is_large = state.memory > self.options.buffer_bytes as usize / 2
                || state.catalogue.has_many_shapes();
            let is_owing = !state.owed.is_empty();
            // Taken rows for which there was no room are still to be written.
            let has_ready = state.has_ready() || !state.taken.is_empty();
            (has_ready, is_large, oldest, floor, is_owing)
        };
        if (is_owing || upkeep.is_meta_owed)
            && upkeep.owed_at.is_none_or(|at| now.since(at) >= OWED_EVERY)
        {
            upkeep.owed_at = Some(now);
            match self.pay(upkeep).await {
                Err(error) => {
                    tracing::warn!(store = %self.options.name, %error,
                        "deleted points still take room: removing them is tried again");
                }
                Ok(()) => {
                    upkeep.owed_at = None;
                    return Ok(true);
                }
            }
        }
        // Before full buffers, of which there always are some while users write fast.
        if self.wal_share() > LONG && self.cut_log(upkeep).await? {
            return Ok(true);
        }
        if has_ready {
            return self.write_blocks(upkeep, Which::Ready, None).await;
        }
        if is_large && self.write_blocks(upkeep, Which::Through(u32::MAX), None).await? {
            return Ok(true);
        }
        if let Some((oldest, since)) = oldest
            && now.since(since) >= self.options.age
        {
            return self.write_through(upkeep, oldest).await;
        }
        if floor > upkeep.floor {
            self.checkpoint(upkeep).await?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Regroups blocks, drops overwritten points, and deletes expired blocks.
    async fn free_room(&self, upkeep: &mut Upkeep, now: Instant) -> Result<bool> {
        let fullness = self.log.fullness();
        let is_full = fullness >= 1.0;
        // Regrouping takes room before it frees any. While it fails, expiry goes on.
        if !upkeep.regroup.is_empty() && !is_full && upkeep.regroup_pause.is_over(now) {
            match self.regroup(&mut upkeep.regroup).await {
                Ok(did) => {
                    upkeep.regroup_pause = Pause::default();
                    return Ok(did);
                }
                Err(error) => {
                    tracing::warn!(store = %self.options.name, %error,
                        "regrouping blocks failed, and is tried again later");
                    upkeep.regroup_pause.lengthen(now);
                }
            }
        }
        if fullness >= SCARCE && self.drop_overwritten(&mut upkeep.overwritten, now).await? {
            return Ok(true);
        }
        let every = if is_full { EXPIRY_EVERY_FULL } else { EXPIRY_EVERY };
        let is_due = upkeep.expired_at.is_none_or(|at| now.since(at) >= every);
        if is_due {
            return self.expire(upkeep, now).await;
        }
        Ok(false)
    }

    /// The length of the write-ahead log as a share of its limit.
    fn wal_share(&self) -> f64 {
        self.wal_bytes.load(Ordering::Relaxed) as f64 / self.options.wal_bytes as f64
    }

    /// Cuts the older half off the write-ahead log, in steps: writes some of its rows as blocks, or removes its segments.
    /// False if neither can be done, for instance while a delete is owed.
    async fn cut_log(&self, upkeep: &mut Upkeep) -> Result<bool> {
        let older = self.writer.lock().await.last_before(self.options.wal_bytes / 2);
        let Some(older) = older else { return Ok(false) };
        let (oldest, floor, is_taken) = {
            let mut state = self.state();
            let oldest = state.oldest().map(|(segment, _)| segment);
            (oldest, state.floor(), !state.taken.is_empty())
        };
        if is_taken || oldest.is_some_and(|oldest| oldest <= older) {
            return self.write_through(upkeep, older).await;
        }
        if floor > upkeep.floor {
            self.checkpoint(upkeep).await?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Writes some buffers whose oldest row is in this segment of the log, or in an older one.
    async fn write_through(&self, upkeep: &mut Upkeep, segment: u32) -> Result<bool> {
        {
            let queue = &mut self.state().queue;
            if queue.segment == segment {
                queue.rotate();
            }
        }
        self.write_blocks(upkeep, Which::Through(segment), None).await
    }

    /// Waits until the write-ahead log is below its limit, and cuts it. A log that cannot be cut refuses no writes.
    pub(super) async fn wait_for_log(&self) -> Result<()> {
        while self.wal_share() >= 1.0 {
            let mut upkeep = self.upkeep.lock().await;
            // Another caller may have cut it meanwhile.
            if self.wal_share() >= 1.0 && !self.cut_log(&mut upkeep).await? {
                break;
            }
        }
        Ok(())
    }

    /// Writes blocks until buffers take less than this.
    pub(super) async fn make_room(&self, upkeep: &mut Upkeep, bytes: usize) -> Result<()> {
        while self.state().memory >= bytes {
            let which =
                if self.state().has_ready() { Which::Ready } else { Which::Through(u32::MAX) };
            if !self.write_blocks(upkeep, which, None).await? {
                break;
            }
        }
        Ok(())
    }

    pub(super) async fn flush_all(&self) -> Result<()> {
        let mut upkeep = self.upkeep.lock().await;
        let segment = {
            let queue = &mut self.state().queue;
            if !queue.is_untouched() {
                queue.rotate();
            }
            queue.segment
        };
        while self.write_blocks(&mut upkeep, Which::Through(segment), None).await? {}
        self.checkpoint(&mut upkeep).await
    }

    /// Retries owed work.
    async fn pay(&self, upkeep: &mut Upkeep) -> Result<()> {
        let paid = self.pay_deletes().await;
        self.store_databases(upkeep).await.and(paid)
    }
}

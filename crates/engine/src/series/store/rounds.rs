//! Rounds of upkeep, and the order of their work.

use std::time::Duration;

use policy::time::Instant;

use super::Inner;
use super::flush::Which;
use super::upkeep::{Pause, Upkeep};
use crate::series::{Error, Result};

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
        let (has_ready, is_large, oldest, segment, floor, is_owing) = {
            let mut state = self.state();
            let oldest = state.oldest();
            let floor = state.floor();
            let is_large = state.memory > self.options.buffer_bytes as usize / 2
                || state.catalogue.has_many_shapes();
            let is_owing = !state.owed.is_empty();
            // Taken rows for which there was no room are still to be written.
            let has_ready = state.has_ready() || !state.taken.is_empty();
            (has_ready, is_large, oldest, state.queue.segment, floor, is_owing)
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
        if has_ready {
            return self.write_blocks(upkeep, Which::Ready, None).await;
        }
        if is_large && self.write_blocks(upkeep, Which::Through(u32::MAX), None).await? {
            return Ok(true);
        }
        let segments = u64::from(segment - upkeep.floor.min(segment));
        let is_long = segments * self.segment_bytes() > self.options.wal_bytes;
        if let Some((oldest, since)) = oldest
            && (is_long || now.since(since) >= self.options.age)
        {
            if oldest == segment {
                self.state().queue.rotate();
            }
            return self.write_blocks(upkeep, Which::Through(oldest), None).await;
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

    pub(super) fn segment_bytes(&self) -> u64 {
        self.state().limits.segment_bytes
    }

    /// Writes blocks until buffers have room again.
    pub(super) async fn make_room(&self, upkeep: &mut Upkeep) -> Result<()> {
        let bound = self.options.buffer_bytes as usize;
        while self.state().memory >= bound / 4 * 3 {
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

//! Expiry: ageing of databases, and deletion of blocks that are past their keep time.

use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use bytes::Bytes;
use policy::time::Instant;

use super::key::{BlockKey, GROUP_BITS, Owner};
use super::upkeep::Upkeep;
use super::writing::Writing;
use super::{Counts, Inner};
use crate::log::Edit;
use crate::series::{Error, Result};

/// How many keys one look for expired blocks reads.
const EXPIRED: usize = 4096;
/// How many blocks are deleted at a time when a volume is full.
const OLDEST: usize = 256;
/// How often the age of databases is stored: a restart may lose this much of it.
const TIMES_EVERY: Duration = Duration::from_secs(3600);

impl Inner {
    /// Adds the time since the last call to the age of databases. A database without new points ages, too. A jump of
    /// the wall clock ages none, because this time comes from the monotonic clock.
    async fn age(&self, upkeep: &mut Upkeep, now: Instant) -> Result<()> {
        let passed = upkeep.aged_at.replace(now).map_or(Duration::ZERO, |at| now.since(at));
        let wall = self.clock.wall();
        let (does_keep, was_away) = {
            let mut state = self.state();
            let away = state.away.take_downtime(wall, now);
            let passed = passed.saturating_add(away.unwrap_or_default());
            let databases = &mut state.catalogue.databases;
            databases.values_mut().for_each(|facts| facts.age(passed, wall));
            (databases.values().any(|facts| facts.keep.is_some()), away.is_some())
        };
        let stored = *upkeep.stored_at.get_or_insert(now);
        if does_keep && (was_away || now.since(stored) >= TIMES_EVERY) {
            match self.write_meta(upkeep.floor).await {
                // The next call tries again. Until then a restart would lose the time; expiry itself frees room.
                Err(Error::OutOfSpace(_)) => {}
                written => {
                    written?;
                    upkeep.stored_at = Some(now);
                }
            }
        }
        Ok(())
    }

    /// Deletes expired blocks, and, on a full volume, the oldest blocks.
    pub(super) async fn expire(&self, upkeep: &mut Upkeep, now: Instant) -> Result<bool> {
        self.age(upkeep, now).await?;
        if self.options.full < 1.0 && self.log.fullness() >= self.options.full {
            let oldest = self.oldest_blocks();
            if !oldest.is_empty() {
                self.delete_blocks(&oldest).await?;
                return Ok(true);
            }
        }
        let cutoffs: Option<BTreeMap<u32, i64>> = {
            let state = self.state();
            let all = state.catalogue.databases.values();
            let wall = self.clock.wall();
            let any = all.clone().any(|facts| facts.keep.is_some());
            any.then(|| all.map(|facts| (facts.id, facts.cutoff(wall))).collect())
        };
        let Some(cutoffs) = cutoffs else {
            upkeep.expired_at = Some(now);
            return Ok(false);
        };
        let keys = self.log.keys(b"", upkeep.expiry.as_deref(), EXPIRED);
        upkeep.expiry = keys.last().filter(|_| keys.len() == EXPIRED).cloned();
        if upkeep.expiry.is_none() {
            upkeep.expired_at = Some(now);
        }
        let expired: Vec<BlockKey> = {
            let state = self.state();
            let cutoff = |source: u32| {
                let (measurement, _) = state.catalogue.source_key(source)?;
                let database = state.catalogue.measurements.get(&measurement)?.database;
                cutoffs.get(&database).copied()
            };
            let is_expired = |key: &BlockKey| {
                let cutoff = match key.slot.owner {
                    Owner::Source(source) => cutoff(source),
                    // The block expires with the last of the sources that may share it.
                    Owner::Group(group) => {
                        let first = group << GROUP_BITS;
                        (first..first + (1 << GROUP_BITS)).filter_map(cutoff).min()
                    }
                };
                cutoff.is_some_and(|cutoff| key.slot.end() <= cutoff)
            };
            keys.iter().filter_map(|key| BlockKey::parse(key)).filter(is_expired).collect()
        };
        self.delete_blocks(&expired).await?;
        Ok(!expired.is_empty() || upkeep.expiry.is_some())
    }

    async fn delete_blocks(&self, keys: &[BlockKey]) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        Counts::add(&self.counts.expired, keys.len() as u64);
        let mut writing = Writing::new(self);
        for key in keys {
            writing.add(Edit::Delete { key: key.bytes() }).await?;
        }
        writing.end().await
    }

    /// The blocks whose slots ended first.
    fn oldest_blocks(&self) -> Vec<BlockKey> {
        let mut oldest: BinaryHeap<(i64, BlockKey)> = BinaryHeap::new();
        let mut after: Option<Bytes> = None;
        loop {
            let keys = self.log.keys(b"", after.as_deref(), EXPIRED);
            for key in keys.iter().filter_map(|key| BlockKey::parse(key)) {
                oldest.push((key.slot.end(), key));
                if oldest.len() > OLDEST {
                    oldest.pop();
                }
            }
            if keys.len() < EXPIRED {
                return oldest.into_iter().map(|(_, key)| key).collect();
            }
            after = keys.last().cloned();
        }
    }
}

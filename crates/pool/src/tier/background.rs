//! What a tier does on its own: installs, evictions, checkpoints, and flushes of what is dirty.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, join4, select};
use futures_util::stream::FuturesUnordered;
use policy::promote::{self, Budget};
use policy::time::Instant;
use policy::units::BytesPerSec;
use policy::valve::{self, Plan, Valve};
use volume::Result;

use super::fast::Fast;
use super::flush;
use super::map::Unit;
use super::route::PAGE;
use super::shared::Install;
use super::tier::Tier;

/// Promotions after which a checkpoint is due, whatever the time.
const EDITS_MAX: u64 = 100_000;

/// Time between looks at whether the filter's period has ended.
const ADJUST_EVERY: Duration = Duration::from_secs(5);

/// Time between two looks at which marks were not needed since the last one.
const UNMARK_EVERY: Duration = Duration::from_secs(10);

impl Tier {
    /// Installs, evicts, writes back and writes checkpoints, for ever. Users' calls work without it, but nothing is promoted. One
    /// task may run it.
    pub async fn run(&self) {
        // A flush must go on while a checkpoint waits for the journal that it has locked.
        join4(
            self.run_installs(),
            self.run_flushes(),
            self.run_unmarks(),
            self.record_harmless_losses(),
        )
        .await;
    }

    async fn run_flushes(&self) {
        let mut valve = Valve::new(self.options.thresholds);
        let (mut flushes, mut units) = (FuturesUnordered::new(), HashSet::new());
        let (mut valve_at, mut allowed) = (self.clock.now(), 0);
        loop {
            if self.clock.now() >= valve_at {
                allowed = self.plan(&mut valve).flushes as usize;
                valve_at = self.clock.now() + self.options.valve_every;
            }
            while flushes.len() < allowed
                && let Some((fast, unit)) = self.next_flush(&units)
            {
                units.insert(unit);
                flushes.push(self.flush_unit(fast, unit));
            }
            let ended = {
                let flushed = std::pin::pin!(async {
                    match flushes.next().await {
                        Some(ended) => ended,
                        None => std::future::pending().await,
                    }
                });
                match select(flushed, self.clock.sleep_until(valve_at)).await {
                    Either::Left((ended, _)) => Some(ended),
                    Either::Right(_) => None,
                }
            };
            if let Some((unit, ended)) = ended {
                units.remove(&unit);
                if let Err(e) = ended {
                    tracing::warn!("dirty bytes could not be written back: {e}");
                    // Until the next look.
                    allowed = 0;
                }
            }
        }
    }

    /// Makes durable that a fast volume was given up, if nothing was only there: units may be marked still, and an opening would
    /// refuse to give them up. Where something was lost, the next change does it: until then the volume may come back.
    async fn record_harmless_losses(&self) {
        loop {
            self.clock.sleep(self.options.valve_every).await;
            if self.shared.stale_bytes() == 0
                && let Err(e) = self.shared.fast_for_change().await
            {
                tracing::debug!("a fast volume was given up, which is not recorded yet: {e}");
            }
        }
    }

    async fn flush_unit(&self, fast: Arc<Fast>, unit: Unit) -> (Unit, Result<()>) {
        let flushed = flush::unit(&self.shared, &fast, unit, false).await;
        if flushed.is_err() || self.shared.keeps() {
            return (unit, flushed);
        }
        // Nothing is marked again: its mark is of no use from here on.
        let track = self.shared.tracks.lock().numbered(unit.object).cloned();
        let Some(track) = track else { return (unit, flushed) };
        let marked = (track.name.clone(), unit.extent);
        (unit, flush::unmark(&self.shared, &fast, &[marked]).await)
    }

    /// Clears the marks of units that are clean and were not written lately: one that is written all the time would be marked
    /// again at once, and its writer would wait for that.
    async fn run_unmarks(&self) {
        loop {
            self.clock.sleep(UNMARK_EVERY).await;
            let Some(fast) = self.shared.fast() else { continue };
            let cold = self.shared.dirty.cold();
            if let Err(e) = flush::unmark(&self.shared, &fast, &cold).await {
                tracing::warn!("more is marked as dirty than is: {e}");
            }
        }
    }

    async fn run_installs(&self) {
        let rate = BytesPerSec(self.options.promotion_bytes_per_sec);
        let mut budget = Budget::new(rate, 1.0, self.options.promotion_copies.max(1));
        let mut installs = FuturesUnordered::new();
        let mut checkpoint_at = self.clock.now() + self.options.checkpoint_every;
        let mut adjust_at = self.clock.now() + ADJUST_EVERY;
        loop {
            self.make_room().await;
            if self.clock.now() >= checkpoint_at || self.is_checkpoint_due().await {
                self.write_checkpoint().await;
                checkpoint_at = self.clock.now() + self.options.checkpoint_every;
            }
            if self.clock.now() >= adjust_at {
                self.shared.accesses.adjust();
                adjust_at = self.clock.now() + ADJUST_EVERY;
            }
            let mut wake_at = checkpoint_at.min(adjust_at);
            while let Some(job) = self.next_install(&mut budget, &mut wake_at) {
                installs.push(self.shared.install(job));
            }
            let queued = self.shared.queue.wait();
            let ended = async {
                if installs.next().await.is_none() {
                    std::future::pending().await
                }
            };
            let queued = std::pin::pin!(queued);
            let woken = select(queued, self.clock.sleep_until(wake_at));
            if let Either::Left(((), _)) = select(std::pin::pin!(ended), woken).await {
                budget.finish();
            }
        }
    }

    /// What the next period does about dirty pages.
    fn plan(&self, valve: &mut Valve) -> Plan {
        if let Some(fast) = self.shared.fast() {
            fast.map.lock().tick(self.clock.now());
        }
        let dirty = self.dirty_part();
        // Clean pages give way by themselves.
        let load = self.shared.users_load();
        let plan = valve.plan(valve::Reading { load, dirty, fill: 0.0 });
        self.shared.is_past.store(plan.writes == valve::Writes::Past, Ordering::Relaxed);
        *self.shared.flush.lock() = plan.flush;
        plan
    }

    /// Dirty bytes, as a part of the room.
    fn dirty_part(&self) -> f64 {
        let room = f64::from(self.options.size().places) * PAGE as f64;
        let dirty = self.shared.fast().map_or(0, |fast| fast.map.lock().counted().dirty_bytes);
        dirty as f64 / room
    }

    /// The unit that is dirty for longest of those that are not being flushed, if too much is dirty.
    fn next_flush(&self, flushing: &HashSet<Unit>) -> Option<(Arc<Fast>, Unit)> {
        if self.dirty_part() <= self.options.thresholds.dirty_low {
            return None;
        }
        let fast = self.shared.fast()?;
        let unit = fast.map.lock().dirty_units().find(|unit| !flushing.contains(unit))?;
        Some((fast, unit))
    }

    /// The next install, if there is one and the budget admits it; else `wake_at` is no later than when it may.
    fn next_install(&self, budget: &mut Budget, wake_at: &mut Instant) -> Option<Install> {
        let bytes = self.shared.queue.next_bytes()?;
        match budget.admit(bytes, self.clock.now()) {
            promote::Admission::Now => {}
            promote::Admission::At(at) => {
                *wake_at = at.min(*wake_at);
                return None;
            }
            promote::Admission::Busy => return None,
        }
        let job = self.shared.queue.pop();
        if job.is_none() {
            // It was given up meanwhile.
            budget.finish();
        }
        job.map(|(job, _)| job)
    }

    async fn is_checkpoint_due(&self) -> bool {
        let promotions = self.shared.counters.promotions.get();
        if promotions - self.promotions.load(Ordering::Relaxed) >= EDITS_MAX {
            return true;
        }
        match self.shared.fast() {
            Some(fast) => fast.journal.is_long().await,
            None => false,
        }
    }
}

//! The door: the tier as a volume, what is flushed, and what is written at its end.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use policy::intent::PageReads;
use volume::ranges::{Claim, Ranges};
use volume::{
    Clock, Error, ErrorKind, Intent, Io, IoBuf, Limits, Listed, Name, Object, Pending, ReadTime,
    Result, Space, Volume, ready,
};

use super::back;
use super::fast::Fast;
use super::figures::{Dirt, Figures};
use super::flush;
use super::identity;
use super::map::Unit;
use super::object::TierObject;
use super::options::Options;
use super::shared::Shared;

/// A slow volume with a cache of its hot ranges on a fast one. See the [module](super).
pub struct Tier {
    pub(super) shared: Arc<Shared>,
    pub(super) options: Options,
    pub(super) clock: Clock,
    /// Creations, removals and openings of one name exclude each other.
    pub(super) names: Ranges,
    /// Promotions at the last checkpoint.
    pub(super) promotions: AtomicU64,
}

impl Tier {
    /// Gives up the fast volume, once the slow one has all that is dirty: everything goes to that one.
    ///
    /// # Errors
    /// Those of a flush: then the fast volume is still in use. Else those of the slow volume: the fast one is given up all the
    /// same, and the next change tries again.
    pub async fn detach(&self) -> Result<()> {
        self.flush().await?;
        if let Some(fast) = self.shared.fast() {
            self.shared.detach(&fast, &"it was detached");
        }
        self.shared.raise().await.map(drop)
    }

    /// Gives up the fast volume at once: everything goes to the slow one, and what is dirty is stale from now on.
    ///
    /// # Errors
    /// Those of the slow volume. The fast one is given up all the same, and the next change tries again.
    pub async fn give_up(&self) -> Result<()> {
        if let Some(fast) = self.shared.fast() {
            self.shared.detach(&fast, &"it was detached without a flush");
        }
        self.shared.raise().await.map(drop)
    }

    /// Objects of which bytes were lost with a fast volume, and how many: reads of them fail until they are written.
    #[must_use]
    pub fn stale(&self) -> Vec<(Name, u64)> {
        let bytes =
            |of: Vec<std::ops::Range<u64>>| of.iter().map(|range| range.end - range.start).sum();
        let mut stale: Vec<_> =
            self.shared.stale().into_iter().map(|(name, of)| (name, bytes(of))).collect();
        stale.sort_by(|a, b| a.0.cmp(&b.0));
        stale
    }

    /// Units whose last flush failed, and why one of them did; `None` if there are none.
    #[must_use]
    pub fn unflushed(&self) -> Option<(usize, String)> {
        let fast = self.shared.fast()?;
        let mut unflushed = self.shared.unflushed.lock();
        {
            let map = fast.map.lock();
            unflushed.retain(|unit, _| map.find(*unit).is_some_and(|entry| map.has_dirty(entry)));
        }
        let why = unflushed.values().next()?.clone();
        Some((unflushed.len(), why))
    }

    /// Whether a fast volume is in use.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.shared.fast().is_some()
    }

    /// Writes back everything that is dirty at the call. The slow volume has it durably on return.
    ///
    /// # Errors
    /// Those of the volumes: what could not be written back is as dirty as before, or stale if the fast volume was lost.
    pub async fn flush(&self) -> Result<()> {
        let Some(fast) = self.shared.fast() else { return Ok(()) };
        let units: Vec<_> = fast.map.lock().dirty_units().collect();
        for &unit in &units {
            flush::unit(&self.shared, &fast, unit, true).await?;
        }
        self.unmark_clean(&fast).await
    }

    async fn unmark_clean(&self, fast: &Fast) -> Result<()> {
        flush::unmark(&self.shared, fast, &self.shared.dirty.marked()).await
    }

    /// Installs what is queued, makes what is dirty durable where it is, and writes a checkpoint, so that the next opening finds
    /// every unit. Call it after the last change.
    pub async fn close(&self) {
        self.install_all().await;
        if let Some(fast) = self.shared.fast() {
            let objects = fast.map.lock().unrecorded_objects();
            for object in objects {
                let track = self.shared.tracks.lock().numbered(object).cloned();
                let Some(track) = track else { continue };
                if let Err(e) = back::commit(&self.shared, &fast, &track, 0..u32::MAX).await {
                    tracing::warn!("writes that no sync covered may be lost: {e}");
                }
            }
            if let Err(e) = self.unmark_clean(&fast).await {
                tracing::warn!("more is marked as dirty than is: {e}");
            }
        }
        self.write_checkpoint().await;
    }

    /// Installs what is queued now, without regard to the budget.
    pub async fn install_all(&self) {
        while let Some((job, _)) = self.shared.queue.pop() {
            self.shared.install(job).await;
        }
        self.make_room().await;
    }

    pub(super) async fn make_room(&self) {
        if let Some(fast) = self.shared.fast()
            && let Err(e) = fast.make_room().await
        {
            self.shared.detach(&fast, &e);
        }
    }

    /// Writes a checkpoint now; the fast volume is given up if it fails.
    pub async fn write_checkpoint(&self) {
        self.promotions.store(self.shared.counters.promotions.get(), Ordering::Relaxed);
        if let Some(fast) = self.shared.fast()
            && let Err(e) = self.checkpoint(&fast).await
        {
            self.shared.detach(&fast, &e);
        }
    }

    pub(super) async fn checkpoint(&self, fast: &Fast) -> Result<()> {
        let tracks = &self.shared.tracks;
        let counts = |unit: Unit| {
            let tracks = tracks.lock();
            let track = tracks.numbered(unit.object);
            track.is_some_and(|track| !track.is_bypassed() && track.is_synced(unit.extent))
        };
        let names = |number| tracks.lock().numbered(number).map(|track| track.name.clone());
        fast.checkpoint(counts, names).await
    }

    /// What was counted since the opening.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let (room, since) = self.shared.fast().map_or_else(Default::default, |fast| {
            let map = fast.map.lock();
            (map.counted(), map.dirty_since())
        });
        let age = since.map(|since| self.clock.now().since(since));
        let (stale_bytes, flush) = (self.shared.stale_bytes(), *self.shared.flush.lock());
        self.shared.counters.figures(room, Dirt { stale_bytes, age, flush })
    }

    async fn name_lock(&self, name: &Name) -> Claim {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let key = hasher.finish() >> 1;
        self.names.claim(key..key + 1).await
    }

    fn object(
        &self,
        slow: Arc<dyn Object>,
        track: Arc<super::track::Track>,
        reads: Option<Arc<[PageReads]>>,
    ) -> Arc<dyn Object> {
        track.set_slow(&slow);
        Arc::new(TierObject { shared: Arc::clone(&self.shared), track, slow, reads })
    }

    async fn remove_object(&self, name: &Name) -> Result<()> {
        let _name = self.name_lock(name).await;
        let track = self.shared.tracks.lock().get(name);
        let Some(track) = track else { return self.shared.slow.remove(name).await };
        let all = 0..u64::MAX;
        let _flushes = track.flushes.claim(all.clone()).await;
        let _changes = track.changes.claim(all.clone()).await;
        track.reads.forget(&all);
        loop {
            let Some(fast) = self.shared.fast_for_change().await? else { break };
            if fast.has_dirty(track.number, &all) {
                flush::discard(&self.shared, &fast, &track).await?;
                continue;
            }
            match fast.begin_change(track.number, &all, false) {
                Ok(changed) => {
                    changed.leave();
                    break;
                }
                Err(marked) => {
                    if let Err(e) = fast.journal.doubt(&marked, &fast.map).await {
                        self.shared.detach(&fast, &e);
                    }
                }
            }
        }
        // If the removal fails or is given up, nobody knows whether the object is there: it is not cached any more.
        track.bypass();
        self.shared.slow.remove(name).await?;
        self.shared.tracks.lock().remove(name);
        self.shared.dirty.forget(name).await;
        if track.stale_in(&all).is_some()
            && let Err(e) = self.shared.dirty.set_stale(false, || self.shared.stale(), || {}).await
        {
            // An opening drops what it says of names that are gone.
            tracing::warn!("a removed object is still noted as stale: {e}");
        }
        Ok(())
    }
}

/// The names that begin with `tier.` are the tier's own.
fn refuse(name: &Name, kind: ErrorKind) -> Result<()> {
    if identity::is_reserved(name) {
        return Err(Error::new(kind, format!("{name}: names that begin with tier. are reserved")));
    }
    Ok(())
}

#[deny(clippy::missing_trait_methods)]
impl Volume for Tier {
    fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>> {
        let (name, intent) = (name.clone(), intent.clone());
        Box::pin(async move {
            refuse(&name, ErrorKind::Invalid)?;
            let _name = self.name_lock(&name).await;
            let slow = self.shared.slow.create(&name, &intent).await?;
            let track = self.shared.tracks.lock().create(&name);
            Ok(self.object(slow, track, intent.reads))
        })
    }

    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>> {
        let name = name.clone();
        Box::pin(async move {
            refuse(&name, ErrorKind::NotFound)?;
            let _name = self.name_lock(&name).await;
            let slow = self.shared.slow.open(&name).await?;
            let track = self.shared.tracks.lock().of(&name);
            Ok(self.object(slow, track, None))
        })
    }

    fn remove(&self, name: &Name) -> Pending<'_, ()> {
        let name = name.clone();
        Box::pin(async move {
            refuse(&name, ErrorKind::NotFound)?;
            self.remove_object(&name).await
        })
    }

    fn list(&self) -> Pending<'_, Vec<Listed>> {
        Box::pin(async move {
            let mut listed = self.shared.slow.list().await?;
            listed.retain(|object| !identity::is_reserved(&object.name));
            Ok(listed)
        })
    }

    fn space(&self) -> Pending<'_, Space> {
        self.shared.slow.space()
    }

    /// The mean of both volumes, by the share of bytes that came from each so far.
    fn expected_read(&self) -> ReadTime {
        let slow = self.shared.slow.expected_read();
        let hits = self.shared.counters.hit_bytes.get() as f64;
        let missed = self.shared.counters.missed_bytes.get() as f64;
        match self.shared.fast() {
            Some(fast) if hits > 0.0 => {
                slow.mixed(missed / (hits + missed), fast.slab.volume().expected_read())
            }
            _ => slow,
        }
    }

    fn users_load(&self) -> f64 {
        self.shared.users_load()
    }

    fn limits(&self) -> Limits {
        self.shared.slow.limits()
    }

    fn write_whole(&self, name: &Name, intent: &Intent, data: IoBuf, io: Io) -> Pending<'_, ()> {
        if let Err(e) = refuse(name, ErrorKind::Invalid) {
            return ready(Err(e));
        }
        self.shared.slow.write_whole(name, intent, data, io)
    }

    fn rename(&self, from: &Name, to: &Name) -> Pending<'_, ()> {
        let what = format!("rename {from} to {to}: names change in the pool above a tier");
        ready(Err(Error::new(ErrorKind::Unsupported, what)))
    }

    fn link(&self, from: &Name, to: &Name) -> Pending<'_, ()> {
        let what = format!("link {from} to {to}: names change in the pool above a tier");
        ready(Err(Error::new(ErrorKind::Unsupported, what)))
    }
}

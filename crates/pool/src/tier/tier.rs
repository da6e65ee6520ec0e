//! The door: opening, closing, and the tier as a volume.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, join, select};
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use policy::cache::Kind;
use policy::promote::{self, Budget};
use policy::time::Instant;
use policy::units::{BytesPerSec, KIB, MIB};
use policy::valve::{self, Plan, Thresholds, Valve};
use volume::ranges::{Claim, Ranges};
use volume::{
    Clock, Error, ErrorKind, Intent, Io, IoBuf, Limits, Listed, Name, Object, Pending, Result,
    Space, Volume, ready,
};

use super::accesses::Accesses;
use super::admit::Admit;
use super::back;
use super::dirty::{self, DirtyLog};
use super::fast::Fast;
use super::figures::{Figures, Room};
use super::flush;
use super::identity;
use super::journal::{self, Journal, Stored};
use super::map::{Map, Size, Unit};
use super::object::TierObject;
use super::record::{Checkpoint, Head};
use super::route::PAGE;
use super::shared::{Install, Shared};
use super::slab::Slab;

/// Promotions after which a checkpoint is due, whatever the time.
const EDITS_MAX: u64 = 100_000;

/// Units that may have pages on the fast volume at a time, for each one that fits it as a whole. So pages may be as scattered
/// as to be a sixteenth of their units.
const SCATTERED: u64 = 16;

/// Units that may have pages on any fast volume with as many places.
const ENTRIES_MIN: u64 = 1024;

/// A wait for the slow volume, in seconds, that says that it is fully loaded.
const FULL_WAIT: f64 = 0.004;

/// Time between looks at whether the filter's period has ended.
const ADJUST_EVERY: Duration = Duration::from_secs(5);

/// How a tier uses its fast volume.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of a unit: a power of two from 64 KiB to 64 MiB. 1 MiB by default. Smaller ones take more memory for the same
    /// pages; of larger ones more is in doubt after one write, until the next checkpoint.
    pub unit: u64,
    /// Bytes of the fast volume to use.
    pub bytes: u64,
    /// Which units are evicted first. Clock2Q+ by default.
    pub eviction: Kind,
    /// Bytes a second that installs write to the fast volume at most, and read from the slow one where whole units are
    /// promoted. 100 MiB/s by default. More warms the cache sooner, and leaves less to users.
    pub promotion_bytes_per_sec: u64,
    /// Installs that run at a time at most. 2 by default.
    pub promotion_copies: u32,
    /// Bytes that may wait for their installation in memory. 16 MiB by default.
    pub queue_bytes: u64,
    /// Time between checkpoints. 30 s by default. A crash empties the units that were written since the last one, and those that
    /// were promoted since then.
    pub checkpoint_every: Duration,
    /// The identity of a slow volume that has none yet: a random number.
    pub identity: u64,
    /// Takes a fast volume that belongs to another slow one, and empties it.
    pub take_foreign: bool,
    /// Where writes to objects in place go. To both volumes by default.
    pub writes: Writes,
    /// When dirty units are written back, and when no more pages become dirty.
    pub thresholds: Thresholds,
    /// Time between looks at the load of the slow volume, and at what is dirty. 1 s by default.
    pub valve_every: Duration,
}

/// Where a write goes first.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Writes {
    /// To the slow volume. What was kept back before is written back.
    #[default]
    Through,
    /// A write to an object in place stays on the fast volume, which must not be lost: until a flush it has the only copy.
    Back,
}

impl Options {
    /// The defaults, with `bytes` of the fast volume. `identity` is a random number.
    #[must_use]
    pub const fn new(bytes: u64, identity: u64) -> Self {
        Self {
            unit: MIB,
            bytes,
            eviction: Kind::Clock2QPlus,
            promotion_bytes_per_sec: 100 * MIB,
            promotion_copies: Budget::COPIES,
            queue_bytes: 16 * MIB,
            checkpoint_every: Duration::from_secs(30),
            identity,
            take_foreign: false,
            writes: Writes::Through,
            thresholds: Thresholds::DEFAULT,
            valve_every: Duration::from_secs(1),
        }
    }

    /// The units that fit the fast volume if all their pages are there.
    #[must_use]
    pub const fn units(&self) -> u64 {
        self.bytes / self.unit
    }

    fn size(&self) -> Size {
        let places = u32::try_from(self.bytes / PAGE).unwrap_or(u32::MAX - 1);
        let scattered = self.units().saturating_mul(SCATTERED).max(ENTRIES_MIN);
        let entries = u32::try_from(scattered).unwrap_or(u32::MAX).min(places);
        Size { places, entries, pages: (self.unit / PAGE) as u32 }
    }

    fn check(&self) -> Result<()> {
        let fits = self.unit.is_power_of_two() && (64 * KIB..=64 * MIB).contains(&self.unit);
        if !fits || self.units() < 2 {
            let what = format!(
                "a tier of units of {} bytes on {} bytes: a unit is a power of two from 64 KiB to 64 MiB, and there must be \
                 room for two",
                self.unit, self.bytes
            );
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        Ok(())
    }
}

/// A slow volume with a cache of its hot ranges on a fast one. See the [module](super).
pub struct Tier {
    shared: Arc<Shared>,
    options: Options,
    clock: Clock,
    /// Creations, removals and openings of one name exclude each other.
    names: Ranges,
    /// Promotions at the last checkpoint.
    promotions: AtomicU64,
}

impl Tier {
    /// Opens a slow volume with a fast one. Without `fast`, or with one that fails, everything goes to the slow volume until
    /// [`Tier::reattach`].
    ///
    /// # Errors
    /// `Invalid`: the options make no sense. `Fenced`: the fast volume belongs to another slow one; give it its own, or set
    /// [`Options::take_foreign`]. Else those of the slow volume.
    pub async fn open(
        slow: Arc<dyn Volume>,
        fast: Option<Arc<dyn Volume>>,
        options: Options,
        admit: Box<dyn Admit>,
        clock: &Clock,
    ) -> Result<Self> {
        options.check()?;
        let mut last = identity::read(&*slow).await?;
        let identity = last.map_or(options.identity, |head| head.identity);
        let noted = dirty::read(&*slow, identity).await?;
        let found = match &fast {
            None => None,
            Some(fast) => Self::look(fast, last.map(|head| head.identity), &options).await?,
        };
        let (generation, stored) = match found {
            Some(found) => (Some(found.generation), found.last),
            None => (None, None),
        };
        // An opening writes its epoch to the fast volume first: a crash may have come before the slow one had it.
        let of = |last: Head, raised| Head { epoch: last.epoch + raised, ..last };
        let warm = stored.filter(|stored| {
            let head = stored.checkpoint.head;
            last.is_some_and(|last| head == last || head == of(last, 1))
        });
        if let (Some(warm), Some(before)) = (&warm, last)
            && warm.checkpoint.head != before
        {
            identity::write(&*slow, warm.checkpoint.head).await?;
            last = Some(warm.checkpoint.head);
        }
        let last = last.unwrap_or(Head { identity, epoch: 0 });
        let accesses = Arc::new(Accesses::new(admit, clock.clone()));
        let dirty = DirtyLog::new(Arc::clone(&slow), options.unit, identity, &noted);
        let keeps = options.writes == Writes::Back;
        let (unit, queue) = (options.unit, options.queue_bytes);
        let shared = Shared::new(slow, unit, queue, accesses, last, dirty, keeps);
        let tier = Self {
            shared: Arc::new(shared),
            clock: clock.clone(),
            names: Ranges::default(),
            promotions: AtomicU64::new(0),
            options,
        };
        let mut head = of(last, identity::AWAY);
        let mut is_warm = false;
        if let (Some(warm), Some(fast), Some(generation)) = (warm, &fast, generation) {
            let next = of(last, 1);
            match tier.take(Arc::clone(fast), next, generation, Some(warm)).await {
                Ok(warm) => (head, is_warm) = (next, warm),
                Err(e) if e.kind() == ErrorKind::Invalid => return Err(e),
                Err(e) => tracing::warn!("a tier is opened without its fast volume: {e}"),
            }
        }
        identity::write(&*tier.shared.slow, head).await?;
        tier.shared.set_head(head).await;
        if let (Some(fast), Some(generation), false) = (fast, generation, tier.is_attached())
            && let Err(e) = tier.take(fast, head, generation, None).await
        {
            tracing::warn!("a tier is opened without its fast volume: {e}");
            // It may have a checkpoint of this epoch.
            tier.shared.must_raise();
        }
        tier.take_notes(noted, is_warm).await?;
        Ok(tier)
    }

    /// Follows what the slow volume says of newer bytes. `is_warm` says that the fast volume has what it was marked for.
    async fn take_notes(&self, noted: dirty::Found, is_warm: bool) -> Result<()> {
        let shared = &self.shared;
        let mut stale = noted.stale;
        if !is_warm {
            stale.extend(noted.marked);
        }
        if !stale.is_empty() {
            let listed = shared.slow.list().await?;
            let listed: HashSet<_> = listed.into_iter().map(|o| o.name).collect();
            for (name, ranges) in stale {
                if listed.contains(&name) {
                    // A mark is of a whole unit; what lies behind the end was never written.
                    let end = shared.slow.open(&name).await?.len().next_multiple_of(PAGE);
                    let track = shared.tracks.lock().of(&name);
                    track.with_stale(|stale| {
                        ranges.into_iter().for_each(|range| stale.add(range));
                        stale.remove(&(end..u64::MAX));
                    });
                }
            }
        }
        if let Some(fast) = shared.fast() {
            let dirty: Vec<_> = fast.map.lock().dirty_units().collect();
            let tracks = shared.tracks.lock();
            for unit in dirty {
                if let Some(track) = tracks.numbered(unit.object) {
                    shared.dirty.restore(&track.name, std::iter::once(unit.extent));
                }
            }
        }
        shared.dirty.set_stale(false, || shared.stale(), || {}).await
    }

    /// What is on a fast volume; `None` if it does not answer.
    async fn look(
        fast: &Arc<dyn Volume>,
        identity: Option<u64>,
        options: &Options,
    ) -> Result<Option<journal::Found>> {
        let found = match journal::read(&**fast).await {
            Ok(found) => found,
            Err(e) => {
                tracing::warn!("a tier is opened without its fast volume: {e}");
                return Ok(None);
            }
        };
        if found.identity.is_some() && found.identity != identity && !options.take_foreign {
            let what = "the fast volume is the cache of another slow volume: give the tier its own, or say that it may be \
                        emptied";
            return Err(Error::new(ErrorKind::Fenced, what));
        }
        Ok(Some(found))
    }

    /// Takes a fast volume in use: with the units of `warm`, or empty. True if it has these units.
    ///
    /// # Errors
    /// `Invalid`: it has dirty pages, and another size. Else those of the volumes.
    async fn take(
        &self,
        volume: Arc<dyn Volume>,
        head: Head,
        generation: u64,
        warm: Option<Stored>,
    ) -> Result<bool> {
        let (options, counters) = (&self.options, &self.shared.counters);
        if let Some(warm) = &warm {
            self.check_size(&warm.checkpoint)?;
        }
        let (slab, is_new) = Slab::open(&*volume, options.size().places).await?;
        let map = match warm.filter(|_| !is_new) {
            Some(warm) => self.restored(warm).await?,
            None => None,
        };
        let is_warm = map.is_some();
        let map = map.unwrap_or_else(|| self.empty_map());
        let journal = Journal::new(volume, head, generation, counters);
        let (map, unit) = (Mutex::new(map), options.unit);
        let (accesses, counters) = (Arc::clone(&self.shared.accesses), Arc::clone(counters));
        let fast = Fast { map, slab, journal, unit, accesses, counters };
        self.checkpoint(&fast).await?;
        self.shared.attach(Arc::new(fast))?;
        Ok(is_warm)
    }

    /// A cache of another size is emptied; the only copy of something is not.
    fn check_size(&self, stored: &Checkpoint) -> Result<()> {
        let is_same = u64::from(stored.unit) == self.options.unit
            && stored.places == self.options.size().places;
        let mut units = stored.objects.iter().flat_map(|(_, units)| units);
        if is_same || units.all(|placed| placed.dirty.is_empty()) {
            return Ok(());
        }
        let what = format!(
            "the fast volume has writes that the slow one lacks, in {} places and units of {} bytes: open the tier with these, \
             and flush it",
            stored.places, stored.unit
        );
        Err(Error::new(ErrorKind::Invalid, what))
    }

    fn empty_map(&self) -> Map {
        Map::new(self.options.size(), self.options.eviction)
    }

    /// The map as a checkpoint has it; `None` if it is for another size or makes no sense.
    async fn restored(&self, stored: Stored) -> Result<Option<Map>> {
        let (checkpoint, mut map) = (stored.checkpoint, self.empty_map());
        let fits = u64::from(checkpoint.unit) == self.options.unit
            && checkpoint.places == map.places()
            && checkpoint.is_sound();
        if !fits {
            return Ok(None);
        }
        let listed = self.shared.slow.list().await?;
        let listed: HashSet<_> = listed.into_iter().map(|o| o.name).collect();
        for (name, units) in checkpoint.objects {
            if !listed.contains(&name) {
                continue;
            }
            let object = self.shared.tracks.lock().of(&name).number;
            for placed in units {
                let unit = Unit { object, extent: placed.extent };
                if !map.restore(unit, &placed) {
                    return Ok(None);
                }
            }
        }
        map.restored();
        Ok(Some(map))
    }

    /// Takes an empty fast volume in use, in service. What an earlier one held does not count any more, and this one is
    /// emptied.
    ///
    /// # Errors
    /// `Invalid`: another one is in use. `Fenced`: as for [`Tier::open`]. Else those of the volumes.
    pub async fn reattach(&self, fast: Arc<dyn Volume>) -> Result<()> {
        if self.is_attached() {
            let what = "the tier has a fast volume in use: detach it first";
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let head = self.shared.raise().await?;
        let Some(found) = Self::look(&fast, Some(head.identity), &self.options).await? else {
            return Err(Error::new(ErrorKind::Unavailable, "the fast volume does not answer"));
        };
        let taken = self.take(fast, head, found.generation, None).await;
        if taken.is_err() {
            self.shared.must_raise();
        }
        taken.map(drop)
    }

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
        flush::unmark(&self.shared, &fast, &units).await
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
        }
        self.write_checkpoint().await;
    }

    /// Installs, evicts, writes back and writes checkpoints, for ever. Users' calls work without it, but nothing is promoted. One
    /// task may run it.
    pub async fn run(&self) {
        // A flush must go on while a checkpoint waits for the journal that it has locked.
        join(self.run_installs(), self.run_flushes()).await;
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

    async fn flush_unit(&self, fast: Arc<Fast>, unit: Unit) -> (Unit, Result<()>) {
        let flushed = flush::unit(&self.shared, &fast, unit, false).await;
        let ended = match flushed {
            Ok(()) => flush::unmark(&self.shared, &fast, &[unit]).await,
            Err(e) => Err(e),
        };
        (unit, ended)
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
                installs.push(self.install(job));
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
        let dirty = self.dirty_part();
        let wait = self.shared.slow.expected_wait().as_secs_f64();
        // Clean pages give way by themselves.
        let plan = valve.plan(valve::Reading { load: wait / FULL_WAIT, dirty, fill: 0.0 });
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

    /// Installs what is queued now, without regard to the budget.
    pub async fn install_all(&self) {
        while let Some((job, _)) = self.shared.queue.pop() {
            self.install(job).await;
        }
        self.make_room().await;
    }

    async fn install(&self, job: Install) {
        let Install { fill, source, object } = job;
        let fast = Arc::clone(fill.fast());
        match fast.install(&fill, source).await {
            Ok(_) => {}
            Err(e) => self.shared.failed(&fast, object, fill.extent, &e),
        }
    }

    async fn make_room(&self) {
        if let Some(fast) = self.shared.fast()
            && let Err(e) = fast.make_room().await
        {
            self.shared.detach(&fast, &e);
        }
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

    /// Writes a checkpoint now; the fast volume is given up if it fails.
    pub async fn write_checkpoint(&self) {
        self.promotions.store(self.shared.counters.promotions.get(), Ordering::Relaxed);
        if let Some(fast) = self.shared.fast()
            && let Err(e) = self.checkpoint(&fast).await
        {
            self.shared.detach(&fast, &e);
        }
    }

    async fn checkpoint(&self, fast: &Fast) -> Result<()> {
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
        let room = self.shared.fast().map_or_else(Room::default, |fast| fast.map.lock().counted());
        let (stale, flush) = (self.shared.stale_bytes(), *self.shared.flush.lock());
        self.shared.counters.figures(room, stale, flush)
    }

    async fn name_lock(&self, name: &Name) -> Claim {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let key = hasher.finish() >> 1;
        self.names.claim(key..key + 1).await
    }

    fn object(&self, slow: Arc<dyn Object>, track: Arc<super::track::Track>) -> Arc<dyn Object> {
        track.set_slow(&slow);
        Arc::new(TierObject { shared: Arc::clone(&self.shared), track, slow })
    }

    async fn remove_object(&self, name: &Name) -> Result<()> {
        let _name = self.name_lock(name).await;
        let track = self.shared.tracks.lock().get(name);
        let Some(track) = track else { return self.shared.slow.remove(name).await };
        let all = 0..u64::MAX;
        let _flushes = track.flushes.claim(all.clone()).await;
        let _changes = track.changes.claim(all.clone()).await;
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
            Ok(self.object(slow, track))
        })
    }

    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>> {
        let name = name.clone();
        Box::pin(async move {
            refuse(&name, ErrorKind::NotFound)?;
            let _name = self.name_lock(&name).await;
            let slow = self.shared.slow.open(&name).await?;
            let track = self.shared.tracks.lock().of(&name);
            Ok(self.object(slow, track))
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

    /// That of the slow volume, times the share of bytes that missed so far.
    fn expected_wait(&self) -> Duration {
        let wait = self.shared.slow.expected_wait();
        let hits = self.shared.counters.hit_bytes.get() as f64;
        let missed = self.shared.counters.missed_bytes.get() as f64;
        if hits + missed == 0.0 { wait } else { wait.mul_f64(missed / (hits + missed)) }
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

//! Openings: which fast volume is taken, with what, and what of the objects is stale.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use policy::units::Bytes;
use volume::ranges::Ranges;
use volume::{Clock, Error, ErrorKind, Result, Volume};

use super::accesses::Accesses;
use super::admit::Admit;
use super::dirty::{self, DirtyLog};
use super::fast::Fast;
use super::identity;
use super::journal::{self, Journal, Stored};
use super::map::{Map, Unit};
use super::options::{Options, Writes};
use super::record::{Checkpoint, Head};
use super::route::PAGE;
use super::shared::Shared;
use super::slab::Slab;
use super::tier::Tier;

impl Tier {
    /// Opens a slow volume with a fast one. Without `fast`, or with one that fails, everything goes to the slow volume until
    /// [`Tier::reattach`].
    ///
    /// # Errors
    /// `Invalid`: the options make no sense. `Corrupt`: what the slow volume says of newer bytes is damaged; the error has the way
    /// out. `Fenced`: the fast volume belongs to another slow one; give it its own, or set
    /// [`Options::take_foreign`]. `Unavailable`: without the fast volume bytes would be lost, and [`Options::refuses_loss`] is
    /// set; nothing was changed. Else those of the slow volume.
    pub async fn open(
        slow: Arc<dyn Volume>,
        fast: Option<Arc<dyn Volume>>,
        mut options: Options,
        admit: Box<dyn Admit>,
        clock: &Clock,
    ) -> Result<Self> {
        options.check()?;
        if options.writes == Writes::Through {
            // What was kept back before.
            let (low, high) =
                (&mut options.thresholds.dirty_low, &mut options.thresholds.dirty_high);
            (*low, *high) = (0.0, 0.0);
        }
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
        let of = |last: Head, raised| Head { epoch: last.epoch + raised, ..last };
        let warm = stored.filter(|stored| last.is_some_and(|last| counts(stored, last)));
        if let (Some(warm), Some(before)) = (&warm, last)
            && warm.checkpoint.head != before
        {
            identity::write(&*slow, warm.checkpoint.head).await?;
            last = Some(warm.checkpoint.head);
        }
        noted.check(warm.is_some())?;
        if options.refuses_loss && warm.is_none() {
            refuse_loss(&*slow, &noted).await?;
        }
        let last = last.unwrap_or(Head { identity, epoch: 0 });
        let accesses = Arc::new(Accesses::new(admit, clock.clone()));
        let dirty = DirtyLog::new(Arc::clone(&slow), options.unit, identity, &noted);
        let dirty_max = (options.writes == Writes::Back).then(|| options.dirty_max());
        let (unit, queue) = (options.unit, options.queue_bytes);
        let shared = Shared::new(slow, unit, queue, accesses, last, dirty, dirty_max);
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
                Err(e) if tier.options.refuses_loss && !noted.marked.is_empty() => return Err(e),
                Err(e) => tracing::warn!("a tier is opened without its fast volume: {e}"),
            }
        }
        noted.check(is_warm)?;
        if tier.options.refuses_loss && !is_warm {
            refuse_loss(&*tier.shared.slow, &noted).await?;
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
            for unit in dirty {
                // The marks are locked before the tracks, never within.
                let track = shared.tracks.lock().numbered(unit.object).cloned();
                if let Some(track) = track {
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
        let (slab, is_new) = Slab::open(&volume, options.size().places).await?;
        let map = match warm.filter(|_| !is_new) {
            Some(warm) => self.restored(warm).await?,
            None => None,
        };
        let is_warm = map.is_some();
        let mut map = map.unwrap_or_else(|| self.empty_map());
        map.tick(self.clock.now());
        let journal = Journal::new(volume, head, generation, counters);
        let pins = Arc::clone(map.pins());
        let (map, unit) = (Mutex::new(map), options.unit);
        let (accesses, counters) = (Arc::clone(&self.shared.accesses), Arc::clone(counters));
        let fast = Fast { map, pins, slab, journal, unit, accesses, counters };
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
}

/// Whether the newest bytes of marked units of a slow volume are on this fast one: an opening with it loses none. Changes nothing.
///
/// # Errors
/// Those of the volumes.
pub async fn has_newest(slow: &dyn Volume, fast: &dyn Volume) -> Result<bool> {
    let Some(head) = identity::read(slow).await? else { return Ok(false) };
    let stored = journal::read(fast).await?.last;
    Ok(stored.is_some_and(|stored| counts(&stored, head)))
}

/// Whether what a fast volume has is that of the last opening of a slow one.
fn counts(stored: &Stored, last: Head) -> bool {
    let head = stored.checkpoint.head;
    // An opening writes its epoch to the fast volume first: a crash may have come before the slow one had it.
    head == last || head == Head { epoch: last.epoch + 1, ..last }
}

/// # Errors
/// `Unavailable`: units are marked, and the fast volume that has them is not here, or its map is damaged.
async fn refuse_loss(slow: &dyn Volume, noted: &dirty::Found) -> Result<()> {
    let marks = noted.marks(slow).await?;
    if marks.objects == 0 {
        return Ok(());
    }
    let what = format!(
        "the newest bytes of {} objects, up to {}, are only on the fast volume that the tier had last: bring it back, or say that \
         they may be lost",
        marks.objects,
        Bytes(marks.bytes)
    );
    Err(Error::new(ErrorKind::Unavailable, what))
}

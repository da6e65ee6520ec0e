//! What the tier and its objects share: the fast volume, if one is in use, and the objects that are followed.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwapOption, Guard};
use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;
use policy::valve::Flush;
use volume::{Error, ErrorKind, Name, Result, Volume};

use super::accesses::Accesses;
use super::dirty::DirtyLog;
use super::fast::{Fast, Fill, Source};
use super::figures::Counters;
use super::identity;
use super::map::{Pages, Unit};
use super::promotion::Queue;
use super::record::{self, Head};
use super::route::PAGE;
use super::stale::Stale;
use super::track::Track;

pub(super) struct Shared {
    pub(super) slow: Arc<dyn Volume>,
    pub(super) unit: u64,
    pub(super) accesses: Arc<Accesses>,
    pub(super) queue: Queue<Install>,
    pub(super) tracks: Mutex<Tracks>,
    pub(super) counters: Arc<Counters>,
    fast: ArcSwapOption<Fast>,
    /// Locked while the fast volume in use changes.
    swap: Mutex<()>,
    pub(super) dirty: DirtyLog,
    /// Bytes that may be dirty, if writes to objects in place may stay on the fast volume at all.
    dirty_max: Option<u64>,
    /// No more pages become dirty now.
    pub(super) is_past: AtomicBool,
    pub(super) flush: Mutex<Flush>,
    /// Why the last flush of a unit failed.
    pub(super) unflushed: Mutex<HashMap<Unit, String>>,
    /// A fast volume was given up since the last epoch.
    must_raise: AtomicBool,
    /// The last epoch on the slow volume. Locked while it is raised.
    head: AsyncMutex<Head>,
}

/// A fill that waits for its turn.
pub(super) struct Install {
    pub(super) fill: Fill,
    pub(super) source: Source,
    pub(super) object: u32,
}

/// The objects that are followed, by name and by number.
#[derive(Default)]
pub(super) struct Tracks {
    by_name: HashMap<Name, Arc<Track>>,
    by_number: HashMap<u32, Arc<Track>>,
    last: u32,
}

impl Tracks {
    /// The object of this name, followed from now on.
    pub(super) fn of(&mut self, name: &Name) -> Arc<Track> {
        match self.by_name.get(name) {
            Some(track) => Arc::clone(track),
            None => self.create(name),
        }
    }

    pub(super) fn get(&self, name: &Name) -> Option<Arc<Track>> {
        self.by_name.get(name).cloned()
    }

    pub(super) fn numbered(&self, number: u32) -> Option<&Arc<Track>> {
        self.by_number.get(&number)
    }

    /// A new object has the name.
    pub(super) fn create(&mut self, name: &Name) -> Arc<Track> {
        self.remove(name);
        self.last += 1;
        let track = Arc::new(Track::new(name.clone(), self.last));
        self.by_name.insert(name.clone(), Arc::clone(&track));
        self.by_number.insert(self.last, Arc::clone(&track));
        track
    }

    pub(super) fn remove(&mut self, name: &Name) {
        if let Some(track) = self.by_name.remove(name) {
            track.bypass();
            self.by_number.remove(&track.number);
        }
    }
}

impl Shared {
    /// Without a fast volume; `head` is on the slow one.
    pub(super) fn new(
        slow: Arc<dyn Volume>,
        unit: u64,
        queue_bytes: u64,
        accesses: Arc<Accesses>,
        head: Head,
        dirty: DirtyLog,
        dirty_max: Option<u64>,
    ) -> Self {
        Self {
            slow,
            unit,
            accesses,
            queue: Queue::new(queue_bytes),
            tracks: Mutex::default(),
            counters: Arc::default(),
            dirty,
            dirty_max,
            is_past: AtomicBool::new(false),
            flush: Mutex::default(),
            unflushed: Mutex::default(),
            fast: ArcSwapOption::empty(),
            swap: Mutex::default(),
            must_raise: AtomicBool::new(false),
            head: AsyncMutex::new(head),
        }
    }

    /// The fast volume in use.
    pub(super) fn fast(&self) -> Option<Arc<Fast>> {
        self.fast.load_full()
    }

    /// The same for as long as a read takes, which needs no count of its own.
    pub(super) fn fast_now(&self) -> Guard<Option<Arc<Fast>>> {
        self.fast.load()
    }

    /// The fast volume in use, for a change: the contents of one that was given up never count again.
    ///
    /// # Errors
    /// Those of the slow volume.
    pub(super) async fn fast_for_change(&self) -> Result<Option<Arc<Fast>>> {
        loop {
            {
                let _unchanged = self.swap.lock();
                if !self.must_raise.load(Ordering::Acquire) {
                    return Ok(self.fast());
                }
            }
            self.raise().await?;
        }
    }

    /// Makes the epoch of a fast volume that was given up an old one; returns the current head.
    ///
    /// # Errors
    /// Those of the slow volume.
    pub(super) async fn raise(&self) -> Result<Head> {
        let mut head = self.head.lock().await;
        if self.must_raise.load(Ordering::Acquire) {
            let next = Head { epoch: head.epoch + identity::AWAY, ..*head };
            identity::write(&*self.slow, next).await?;
            *head = next;
            // Until here an opening takes all marked units for stale.
            self.dirty.set_stale(true, || self.stale(), || {}).await?;
            self.must_raise.store(false, Ordering::Release);
        }
        Ok(*head)
    }

    /// Whether writes to objects in place may stay on the fast volume.
    pub(super) const fn keeps(&self) -> bool {
        self.dirty_max.is_some()
    }

    /// Whether more pages of a fast volume may become dirty now. The valve looks from time to time, and bursts come between.
    pub(super) fn may_dirty(&self, fast: &Fast) -> bool {
        let has_room = |max| fast.map.lock().counted().dirty_bytes < max;
        !self.is_past.load(Ordering::Relaxed) && self.dirty_max.is_some_and(has_room)
    }

    /// The users' load of the busier volume.
    pub(super) fn users_load(&self) -> f64 {
        let fast = self.fast().map_or(0.0, |fast| fast.slab.volume().users_load());
        self.slow.users_load().max(fast)
    }

    /// Whether a fast volume is the one in use.
    pub(super) fn is_in_use(&self, fast: &Arc<Fast>) -> bool {
        self.fast_now().as_ref().is_some_and(|current| Arc::ptr_eq(current, fast))
    }

    /// The head that was written to the slow volume.
    pub(super) async fn set_head(&self, head: Head) {
        *self.head.lock().await = head;
    }

    /// Takes a fast volume in use.
    ///
    /// # Errors
    /// `Invalid`: another one is in use.
    pub(super) fn attach(&self, fast: Arc<Fast>) -> Result<()> {
        let _alone = self.swap.lock();
        if self.fast_now().is_some() {
            let what = "the tier has a fast volume in use: detach it first";
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        self.fast.store(Some(fast));
        Ok(())
    }

    /// A fast volume with the current epoch is not taken.
    pub(super) fn must_raise(&self) {
        self.must_raise.store(true, Ordering::Release);
    }

    /// Gives up a fast volume: from now on every call goes to the slow one.
    pub(super) fn detach(&self, fast: &Arc<Fast>, why: &dyn std::fmt::Display) {
        let alone = self.swap.lock();
        if self.is_in_use(fast) {
            self.must_raise.store(true, Ordering::Release);
            self.lose(fast);
            self.fast.store(None);
            self.unflushed.lock().clear();
            self.counters.detached.add(1);
            tracing::warn!("the fast volume of a tier is not used any more: {why}");
        }
        drop(alone);
        // Fills hold the volume that they go to.
        while self.queue.pop().is_some() {}
    }

    /// What is dirty on a fast volume is stale from now on.
    fn lose(&self, fast: &Fast) {
        // A flush that waits for its turn would write older bytes over those of a change that comes first.
        fast.slab.close();
        let dirty = fast.map.lock().die();
        let tracks = self.tracks.lock();
        for Pages { unit, runs, .. } in dirty {
            let Some(track) = tracks.numbered(unit.object) else { continue };
            let at = u64::from(unit.extent) * self.unit;
            track.with_stale(|stale| {
                for run in runs {
                    let byte = |page: u32| at + u64::from(page) * PAGE;
                    stale.add(byte(run.pages().start)..byte(run.pages().end));
                }
            });
            track.lose();
        }
    }

    /// All that is stale.
    pub(super) fn stale(&self) -> record::Ranges {
        let tracks = self.tracks.lock();
        let stale = tracks
            .by_name
            .values()
            .map(|track| (track.name.clone(), track.with_stale(|stale| stale.ranges())));
        stale.filter(|(_, ranges)| !ranges.is_empty()).collect()
    }

    pub(super) fn stale_bytes(&self) -> u64 {
        self.tracks.lock().by_name.values().map(|track| track.with_stale(|s| s.bytes())).sum()
    }

    /// Makes durable that these pages of an object are not stale any more: the slow volume has newer bytes, durably.
    ///
    /// # Errors
    /// Those of the slow volume.
    pub(super) async fn mend(&self, track: &Track, pages: &Range<u64>) -> Result<()> {
        let mended = || {
            let mut all = self.stale();
            for (name, ranges) in &mut all {
                if *name == track.name {
                    let mut stale = Stale::default();
                    std::mem::take(ranges).into_iter().for_each(|range| stale.add(range));
                    stale.remove(pages);
                    *ranges = stale.ranges();
                }
            }
            all
        };
        let then = || track.with_stale(|stale| stale.remove(pages));
        self.dirty.set_stale(false, mended, then).await
    }

    /// Runs a fill to its end; the bytes that are valid now, if it was not void.
    pub(super) async fn install(&self, job: Install) -> u64 {
        let Install { fill, source, object } = job;
        let fast = Arc::clone(fill.fast());
        match fast.install(&fill, source).await {
            Ok(installed) => installed.unwrap_or(0),
            Err(e) => {
                self.failed(&fast, object, fill.extent, &e);
                0
            }
        }
    }

    /// A call to the fast volume failed, for bytes of an object's unit.
    pub(super) fn failed(&self, fast: &Arc<Fast>, object: u32, extent: u32, error: &Error) {
        match error.kind() {
            ErrorKind::Busy => {}
            kind if kind.is_damage() => {
                let at = u64::from(extent) * self.unit;
                fast.forget(object, &(at..at + self.unit));
                tracing::warn!("a unit of a tier is read from the slow volume: {error}");
            }
            _ => self.detach(fast, error),
        }
    }
}

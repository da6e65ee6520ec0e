//! Writes that stay on the fast volume.
//!
//! ```text
//!   claim ─▶ doubt, unless all is dirty ─▶ [map: places, pins] ─▶ fast ─▶ [map: valid, dirty] ─▶ durable: commit
//!   commit   sync of the slab, unless the write was durable │ mark on the slow volume ─▶ record in the journal
//! ```

use std::ops::Range;
use std::sync::Arc;

use futures_util::future::{join, try_join_all};
use policy::cache::Slot;
use volume::{Io, IoBuf, Name, Result};

use super::fast::{Fast, Part, Pins, units};
use super::map::{Pages, Unit};
use super::route::PAGE;
use super::shared::Shared;
use super::slab;
use super::sums;
use super::track::Track;

/// How a write begins.
pub(super) enum Begun {
    /// It must go to the slow volume.
    Past,
    /// These entries need a doubt first.
    Marked(Vec<Slot>),
    Ready(Back),
}

/// A write under way.
pub(super) struct Back {
    parts: Vec<Part>,
    pins: Pins,
    /// The journal names all of its pages.
    pub(super) is_recorded: bool,
}

impl Fast {
    /// Begins a write of `range`, of whole pages, which the caller has claimed. `may_grow` says that pages may become dirty; `counts` that the
    /// filter hears of it.
    pub(super) fn begin_back(
        self: &Arc<Self>,
        object: u32,
        range: &Range<u64>,
        may_grow: bool,
        counts: bool,
    ) -> Begun {
        let mut pins = Pins::new(self);
        let mut map = self.map.lock();
        if map.is_dead() {
            return Begun::Past;
        }
        // What is dirty already stays so: it would be flushed before the slow volume could take the write.
        let may_grow = may_grow && !(counts && self.is_bulk(&mut map, object, range));
        let (mut marked, mut missing) = (Vec::new(), Vec::new());
        for extent in units(range, self.unit) {
            let (_, pages) = self.part(extent, range);
            let unit = Unit { object, extent };
            let entry = map.find(unit);
            let is_dirty = entry.is_some_and(|entry| map.are_dirty(entry, &pages));
            if !(is_dirty || may_grow) {
                return Begun::Past;
            }
            let Some(entry) = entry else {
                missing.push(unit);
                continue;
            };
            // A fill passes over pages that are dirty already.
            if !is_dirty && !map.is_writable(entry, &pages) {
                return Begun::Past;
            }
            if !is_dirty && map.is_marked(entry) {
                marked.push(entry);
            }
            pins.pin(&mut map, entry);
        }
        if !marked.is_empty() {
            return Begun::Marked(marked);
        }
        for unit in missing {
            let Some(entry) = map.take_entry(unit) else { return Begun::Past };
            pins.pin(&mut map, entry);
        }
        let (mut parts, mut is_recorded) = (Vec::new(), true);
        for extent in units(range, self.unit) {
            let (part, pages) = self.part(extent, range);
            let entry = map.find(Unit { object, extent });
            let Some(entry) = entry.filter(|&entry| map.give_places(entry, &pages)) else {
                return Begun::Past;
            };
            let unit_at = u64::from(extent) * self.unit;
            let at = |page: u32| unit_at + u64::from(page) * PAGE;
            parts.extend(map.runs(entry, pages).map(|run| {
                let pages = run.pages();
                let bytes = part.start.max(at(pages.start))..part.end.min(at(pages.end));
                let at = slab::position(run.place) + bytes.start % PAGE;
                Part { entry, at, bytes, pages }
            }));
        }
        if counts {
            self.written(&mut map, object, range);
        }
        for part in &parts {
            is_recorded &= map.are_recorded(part.entry, &part.pages);
            map.begin_back(part.entry, &part.pages);
            map.hit(part.entry);
        }
        drop(map);
        Begun::Ready(Back { parts, pins, is_recorded })
    }

    /// The bytes and the pages of a unit that a range touches.
    fn part(&self, extent: u32, range: &Range<u64>) -> (Range<u64>, Range<u32>) {
        let unit_at = u64::from(extent) * self.unit;
        let part = range.start.max(unit_at)..range.end.min(unit_at + self.unit);
        (part, self.pages_in(extent.into(), range))
    }

    /// Whether a range has dirty pages.
    pub(super) fn has_dirty(&self, object: u32, range: &Range<u64>) -> bool {
        let map = self.map.lock();
        let mut found = map.within(object, units(range, self.unit)).into_iter();
        found.any(|(entry, extent)| {
            let pages = self.pages_in(extent.into(), range);
            map.has_dirty(entry) && !map.dirty_pages(entry, &pages).runs.is_empty()
        })
    }
}

impl Back {
    /// Writes `data` of `offset` to the fast volume; durable on return if `is_durable`.
    pub(super) async fn write(
        &self,
        offset: u64,
        data: &IoBuf,
        io: Io,
        is_durable: bool,
    ) -> Result<()> {
        let puts = self.parts.iter().map(|part| {
            let from = (part.bytes.start - offset) as usize;
            let bytes = data.slice(from..(part.bytes.end - offset) as usize);
            self.pins.fast().slab.put(part.at, bytes, io, is_durable)
        });
        try_join_all(puts).await.map(drop)
    }

    /// [`commit`] of the pages of this write alone, whose bytes are durable.
    pub(super) async fn record(&self, shared: &Shared, track: &Track) -> Result<bool> {
        let fast = self.pins.fast();
        let dirty = || {
            let map = fast.map.lock();
            let of = self.parts.iter().map(|part| map.dirty_pages(part.entry, &part.pages));
            of.collect()
        };
        record(shared, fast, track, dirty, true).await
    }

    /// `data` of `offset` is on the fast volume. False if that was given up meanwhile: then the bytes do not count.
    pub(super) fn end(&self, offset: u64, data: &[u8]) -> bool {
        let sums = sums::of_all(data);
        let mut map = self.pins.fast().map.lock();
        self.parts.iter().all(|part| {
            let first = ((part.bytes.start - offset) / PAGE) as usize;
            map.end_back(part.entry, &part.pages, &sums[first..])
        })
    }
}

impl Drop for Back {
    fn drop(&mut self) {
        let mut map = self.pins.fast().map.lock();
        self.parts.iter().for_each(|part| map.give_up_back(part.entry, &part.pages));
    }
}

/// Makes what was written to these units of the fast volume durable, with what says so. False if the fast volume was given
/// up.
///
/// # Errors
/// Those of the slow volume.
pub(super) async fn commit(
    shared: &Shared,
    fast: &Arc<Fast>,
    track: &Track,
    extents: Range<u32>,
) -> Result<bool> {
    let dirty = || fast.map.lock().unrecorded(track.number, extents.clone());
    record(shared, fast, track, dirty, false).await
}

/// Makes durable what says that these pages are dirty; `are_durable` says that their bytes are.
async fn record(
    shared: &Shared,
    fast: &Arc<Fast>,
    track: &Track,
    dirty: impl Fn() -> Vec<Pages>,
    are_durable: bool,
) -> Result<bool> {
    loop {
        let dirty = dirty();
        let units: Vec<_> = dirty.iter().map(|pages| pages.unit.extent).collect();
        let sync = async { if are_durable { Ok(()) } else { fast.slab.sync().await } };
        let (synced, marked) = join(sync, shared.dirty.mark(&track.name, &units)).await;
        let recorded = match synced {
            Ok(()) => {
                marked?;
                let is_marked = |name: &Name, unit: Unit| shared.dirty.is_marked(name, unit.extent);
                fast.journal.record(&track.name, &dirty, &fast.map, is_marked).await
            }
            Err(e) => Err(e),
        };
        match recorded {
            Ok(true) => return Ok(!fast.map.lock().is_dead()),
            // A mark was cleared meanwhile.
            Ok(false) => {}
            Err(e) => {
                shared.detach(fast, &e);
                return Ok(false);
            }
        }
    }
}

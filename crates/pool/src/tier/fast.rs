//! A fast volume in use: its map, its slab and its journal, and how reads, changes and fills take part in them.
//!
//! ```text
//!   read     settled ─▶ [map: route, pin, hear the filter, begin fills] ─▶ fast and slow together ─▶ fills into the queue
//!   change   claim ─▶ doubt ─▶ [map: drop pages, void fills, pin] ─▶ slow, fast ─▶ [map: valid again]
//!   fill     slab ─▶ [map: valid, unless void]
//! ```
//! What stands in brackets is one critical section of the map. A change claims its range first, and a fill begins only
//! where nothing is claimed: so either the fill sees the claim, or the change sees the fill and makes it void.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use policy::cache::Slot;
use policy::promote::{Access, AccessKind};
use policy::purpose::Io;
use volume::{IoBuf, IoBufMut, Name, Object, Result};

use super::accesses::{Accesses, Hit, Telling};
use super::admit::Admission;
use super::figures::Counters;
use super::journal::Journal;
use super::map::{self, Map, Unit};
use super::route::{self, PAGE, Route};
use super::slab::{OWN, Slab};
use super::track::Track;

/// Slots that are kept free, as a part of all.
const FREE_PART: u32 = 64;

/// Free slots that are enough for any fast volume.
const FREE_MAX: u32 = 1024;

pub(super) struct Fast {
    pub(super) map: Mutex<Map>,
    pub(super) slab: Slab,
    pub(super) journal: Journal,
    pub(super) unit: u64,
    pub(super) accesses: Arc<Accesses>,
    pub(super) counters: Arc<Counters>,
}

/// A read under way.
pub(super) struct Reading {
    pub(super) route: Route,
    /// Units whose missing pages shall be installed.
    pub(super) fills: Vec<Fill>,
    pub(super) pins: Pins,
}

/// The slots that a change touches. Its pages are invalid.
pub(super) struct Changed {
    parts: Vec<Part>,
    pins: Pins,
    /// No reader uses the slots.
    pub(super) is_alone: bool,
}

/// What of a write goes to one slot, and which pages are valid afterwards.
struct Part {
    slot: Slot,
    unit_at: u64,
    bytes: Range<u64>,
    pages: Range<u32>,
}

/// A unit that is being filled.
pub(super) struct Fill {
    fast: Arc<Fast>,
    slot: Slot,
    pub(super) extent: u32,
    /// The rest of the unit is wanted, too.
    pub(super) is_whole: bool,
}

/// A slot that a reader uses.
pub(super) struct Pin<'a> {
    fast: &'a Fast,
    pub(super) slot: Slot,
}

pub(super) struct Pins {
    fast: Arc<Fast>,
    slots: Vec<Slot>,
}

/// What a fill gets its bytes from.
pub(super) enum Source {
    /// Bytes that a user read, at a page of the object.
    Read {
        /// Where the page begins.
        offset: u64,
        /// Whole pages, or pages up to the end of the object and zeros.
        bytes: IoBuf,
    },
    /// The slow volume.
    Slow(Arc<dyn Object>),
}

impl Fast {
    fn pages_per_unit(&self) -> u64 {
        self.unit / PAGE
    }

    /// A read whose pages are all valid and in one unit, the common case: it takes one lock and no memory. `None` is for
    /// [`Fast::begin_read`]. `counts` says that the filter hears of it.
    pub(super) fn begin_hit(
        &self,
        track: &Track,
        range: &Range<u64>,
        counts: bool,
    ) -> Option<Pin<'_>> {
        let extent = range.start / self.unit;
        let unit = Unit { object: track.number, extent: extent.try_into().ok()? };
        let unit_at = extent * self.unit;
        if range.end > unit_at + self.unit {
            return None;
        }
        let mut pages = (range.start - unit_at) / PAGE..(range.end - unit_at).div_ceil(PAGE);
        let mut map = self.map.lock();
        let slot = map.find(unit)?;
        if !pages.all(|page| map.is_valid(slot, page as u32)) {
            return None;
        }
        map.pin(slot);
        if counts {
            map.hit(slot);
            self.heard(&mut map, track.number, slot, range.clone());
        }
        drop(map);
        Some(Pin { fast: self, slot })
    }

    /// Has the filter hear of a hit. `request` is empty for all units of a request but the first.
    fn heard(&self, map: &mut Map, object: u32, slot: Slot, request: Range<u64>) {
        let hit = Hit { object, promoted: map.promoted(slot), request };
        self.accesses.hit(&mut map.batch, hit);
    }

    /// Routes a read of `range`, which no change claims, and begins the fills that the filter and the queue (`may_fill`)
    /// allow. `counts` says that the filter hears of it; otherwise nothing is filled.
    pub(super) fn begin_read(
        self: &Arc<Self>,
        track: &Track,
        range: Range<u64>,
        may_fill: bool,
        counts: bool,
    ) -> Reading {
        let mut map = self.map.lock();
        let first = range.start / self.unit;
        let unit =
            |extent: u64| Some(Unit { object: track.number, extent: extent.try_into().ok()? });
        let slots: Vec<_> =
            (first..range.end.div_ceil(self.unit)).map(|extent| map.find(unit(extent)?)).collect();
        let route = route::route(range.clone(), |page| {
            let slot = slots[(page / self.pages_per_unit() - first) as usize]?;
            map.is_valid(slot, (page % self.pages_per_unit()) as u32).then_some(slot)
        });
        let mut pins = Pins { fast: Arc::clone(self), slots: Vec::new() };
        for (slot, _) in &route.fast {
            map.pin(*slot);
            pins.slots.push(*slot);
        }
        let mut fills = Vec::new();
        if counts {
            pins.slots.iter().for_each(|&slot| map.hit(slot));
            if route.slow.is_empty() {
                let mut request = range;
                for (slot, _) in &route.fast {
                    let request = std::mem::take(&mut request);
                    self.heard(&mut map, track.number, *slot, request);
                }
            } else {
                fills = self.begin_fills(&mut map, track, &range, &route, may_fill);
            }
        }
        drop(map);
        Reading { route, fills, pins }
    }

    /// Begins the fills of what a read of `range` misses.
    fn begin_fills(
        self: &Arc<Self>,
        map: &mut Map,
        track: &Track,
        range: &Range<u64>,
        route: &Route,
        may_fill: bool,
    ) -> Vec<Fill> {
        let mut fills = Vec::new();
        let Telling { mut admit, now } = self.accesses.tell(&mut map.batch);
        let sequential = admit.request(track.number, range);
        route.fast.iter().for_each(|(slot, _)| admit.hit(map.promoted(*slot), now));
        for extent in route.slow.start / self.unit..route.slow.end.div_ceil(self.unit) {
            let Ok(number) = extent.try_into() else { continue };
            let unit = Unit { object: track.number, extent: number };
            let held = map.find(unit);
            let ghost = held.is_none() && map.remembers(unit);
            let access = Access { unit: map::key(unit), kind: AccessKind::Read, sequential, ghost };
            let admission = match held {
                None => admit.missed(access, now),
                Some(slot) => {
                    map.hit(slot);
                    admit.unserved(access, now)
                }
            };
            if admission == Admission::Bypass {
                continue;
            }
            let whole = extent * self.unit..(extent + 1) * self.unit;
            let missed = route.slow.start.max(whole.start)..route.slow.end.min(whole.end);
            let is_whole = admission == Admission::Unit;
            let pages = if is_whole { whole } else { route::widened(&missed) };
            if !may_fill || track.is_bypassed() || !track.changes.is_free(&pages) {
                self.counters.promotions_dropped.add(1);
                continue;
            }
            let slot = held.or_else(|| {
                let slot = map.take_slot(unit)?;
                map.set_promoted(slot, admit.promoted(access.unit));
                Some(slot)
            });
            match slot.filter(|&slot| map.begin_fill(slot)) {
                None => self.counters.promotions_dropped.add(1),
                Some(slot) => {
                    fills.push(Fill { fast: Arc::clone(self), slot, extent: number, is_whole });
                }
            }
        }
        fills
    }

    /// Has the filter hear of a write.
    fn written(&self, map: &mut Map, object: u32, range: &Range<u64>) {
        let Telling { mut admit, now } = self.accesses.tell(&mut map.batch);
        let sequential = admit.request(object, range);
        for extent in units(range, self.unit) {
            let unit = Unit { object, extent };
            let held = map.find(unit);
            let ghost = held.is_none() && map.remembers(unit);
            let access =
                Access { unit: map::key(unit), kind: AccessKind::Write, sequential, ghost };
            match held {
                Some(_) => admit.unserved(access, now),
                None => admit.missed(access, now),
            };
        }
    }

    /// Begins a change of `range`, which the caller has claimed: drops its pages. `counts` says that it is a write, of which
    /// the filter hears.
    ///
    /// # Errors
    /// Slots that need a doubt first.
    pub(super) fn begin_change(
        self: &Arc<Self>,
        object: u32,
        range: &Range<u64>,
        counts: bool,
    ) -> std::result::Result<Changed, Vec<Slot>> {
        let mut map = self.map.lock();
        let found = map.within(object, units(range, self.unit));
        let marked: Vec<_> =
            found.iter().map(|(slot, _)| *slot).filter(|&slot| map.is_marked(slot)).collect();
        if !marked.is_empty() {
            return Err(marked);
        }
        if counts {
            self.written(&mut map, object, range);
        }
        let mut pins = Pins { fast: Arc::clone(self), slots: Vec::new() };
        let (mut parts, mut is_alone) = (Vec::new(), true);
        for (slot, extent) in found {
            let unit_at = u64::from(extent) * self.unit;
            let part = range.start.max(unit_at)..range.end.min(unit_at + self.unit);
            let page = |at: u64| ((at - unit_at) / PAGE) as u32;
            let pages = page(part.start)..(part.end - unit_at).div_ceil(PAGE) as u32;
            // A page that is written in part is valid afterwards if it was before.
            let starts = part.start % PAGE == 0 || map.is_valid(slot, pages.start);
            let ends = part.end % PAGE == 0 || map.is_valid(slot, pages.end - 1);
            let kept = pages.start + u32::from(!starts)..pages.end - u32::from(!ends);
            if map.is_writable(slot) && !kept.is_empty() {
                let at = |page: u32| unit_at + u64::from(page) * PAGE;
                let bytes = part.start.max(at(kept.start))..part.end.min(at(kept.end));
                parts.push(Part { slot, unit_at, bytes, pages: kept });
            }
            is_alone &= !map.is_pinned(slot);
            map.drop_pages(slot, pages);
            map.hit(slot);
            map.pin(slot);
            pins.slots.push(slot);
        }
        drop(map);
        Ok(Changed { parts, pins, is_alone })
    }

    /// Drops pages that cannot be read, or were not what was written.
    pub(super) fn forget(&self, object: u32, range: &Range<u64>) {
        let mut map = self.map.lock();
        for (slot, _) in map.within(object, units(range, self.unit)) {
            map.leave(slot);
        }
    }

    /// Reads pieces of a route into their places in `into`, which begins at `offset`.
    pub(super) async fn read(
        &self,
        slot: Slot,
        piece: Range<u64>,
        into: IoBufMut,
        io: Io,
    ) -> Result<IoBufMut> {
        self.slab.read(slot, piece.start % self.unit, into, io).await
    }

    /// Runs a fill to its end; false if a change made it void, or the slow volume does not answer.
    ///
    /// # Errors
    /// Those of the fast volume.
    pub(super) async fn install(&self, fill: &Fill, source: Source) -> Result<bool> {
        let installed = self.fill(fill, source).await?;
        match installed {
            Some(bytes) => {
                self.counters.promotions.add(1);
                self.counters.promoted_bytes.add(bytes);
            }
            None => self.counters.promotions_dropped.add(1),
        }
        Ok(installed.is_some())
    }

    /// The bytes that are valid now; `None` if the fill is void.
    async fn fill(&self, fill: &Fill, source: Source) -> Result<Option<u64>> {
        let is_void = || self.map.lock().is_aborted(fill.slot);
        let unit_at = u64::from(fill.extent) * self.unit;
        let (offset, bytes) = match source {
            Source::Read { offset, bytes } => (offset, bytes),
            Source::Slow(object) => {
                let into = IoBufMut::zeroed(if is_void() { 0 } else { self.unit as usize });
                match object.read_at(unit_at, into, OWN).await {
                    Ok(bytes) => (unit_at, padded(bytes)),
                    Err(_) => return Ok(None),
                }
            }
        };
        if bytes.is_empty() || is_void() {
            return Ok(None);
        }
        let (within, len) = (offset - unit_at, bytes.len() as u64);
        self.slab.write(fill.slot, within, bytes, OWN).await?;
        let mut map = self.map.lock();
        if map.is_aborted(fill.slot) {
            return Ok(None);
        }
        map.set(fill.slot, (within / PAGE) as u32..((within + len) / PAGE) as u32);
        Ok(Some(len))
    }

    /// Keeps slots free, so that a fill finds one.
    ///
    /// # Errors
    /// Those of the fast volume: it must be given up.
    pub(super) async fn make_room(&self) -> Result<()> {
        let marked = {
            let mut map = self.map.lock();
            let wanted = (map.slots() / FREE_PART).clamp(1, FREE_MAX) as usize;
            let mut marked = map.release();
            for _ in map.free_slots() + marked.len()..wanted {
                if !map.evict() {
                    break;
                }
            }
            if map.free_slots() < wanted {
                marked = map.release();
            }
            marked
        };
        if !marked.is_empty() {
            self.journal.doubt(&marked, &self.map).await?;
            self.map.lock().release();
        }
        Ok(())
    }

    /// Writes a checkpoint of the units for which `counts` holds.
    ///
    /// # Errors
    /// Those of the fast volume: it must be given up.
    pub(super) async fn checkpoint(
        &self,
        counts: impl Fn(Unit) -> bool,
        names: impl Fn(u32) -> Option<Name>,
    ) -> Result<()> {
        let unit = self.unit as u32;
        self.journal.checkpoint(&self.map, &self.slab, unit, counts, names).await
    }
}

impl Source {
    /// The bytes that the fill moves.
    pub(super) fn bytes(&self, unit: u64) -> u64 {
        match self {
            Self::Read { bytes, .. } => bytes.len() as u64,
            Self::Slow(_) => unit,
        }
    }
}

impl Changed {
    /// Writes to the fast volume what a write of `data` at `offset` leaves valid.
    pub(super) async fn write(&self, offset: u64, data: &IoBuf, io: Io) -> Result<()> {
        for part in &self.parts {
            let from = (part.bytes.start - offset) as usize;
            let bytes = data.slice(from..(part.bytes.end - offset) as usize);
            let within = part.bytes.start - part.unit_at;
            self.pins.fast.slab.write(part.slot, within, bytes, io).await?;
        }
        Ok(())
    }

    /// The write is on the slow and on the fast volume: its pages are valid.
    pub(super) fn is_written(&self) {
        let mut map = self.pins.fast.map.lock();
        for part in &self.parts {
            map.set(part.slot, part.pages.clone());
        }
    }

    /// The object is gone: its slots leave.
    pub(super) fn leave(self) {
        let mut map = self.pins.fast.map.lock();
        for &slot in &self.pins.slots {
            map.leave(slot);
        }
    }
}

impl Fill {
    pub(super) const fn fast(&self) -> &Arc<Fast> {
        &self.fast
    }

    /// What of bytes read at `offset` belongs to the unit, in whole pages; `None` if nothing does. `is_end` says that the
    /// object ends with these bytes.
    pub(super) fn pages_of(&self, offset: u64, bytes: &[u8], is_end: bool) -> Option<Source> {
        let unit_at = u64::from(self.extent) * self.fast.unit;
        let end = offset + bytes.len() as u64;
        let from = offset.next_multiple_of(PAGE).max(unit_at);
        let to = if is_end { end } else { end / PAGE * PAGE }.min(unit_at + self.fast.unit);
        if from >= to {
            return None;
        }
        let part = &bytes[(from - offset) as usize..(to - offset) as usize];
        Some(Source::Read { offset: from, bytes: padded(IoBufMut::from(part)) })
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        self.fast.map.lock().end_fill(self.slot);
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.fast.map.lock().unpin(self.slot);
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let mut map = self.fast.map.lock();
        self.slots.iter().for_each(|&slot| map.unpin(slot));
    }
}

/// Bytes with zeros up to the end of their last page: an object that grows has them there.
fn padded(mut bytes: IoBufMut) -> IoBuf {
    let len = bytes.len();
    bytes.resize(len.next_multiple_of(PAGE as usize));
    bytes[len..].fill(0);
    bytes.freeze()
}

/// The units that a range touches.
pub(super) fn units(range: &Range<u64>, unit: u64) -> Range<u32> {
    let number = |unit: u64| u32::try_from(unit).unwrap_or(u32::MAX);
    number(range.start / unit)..number(range.end.div_ceil(unit))
}

//! A fast volume in use: its map, its slab and its journal, and how reads, changes and fills take part in them.
//!
//! ```text
//!   read     settled ─▶ [map: route, pin, hear the filter, begin fills] ─▶ fast and slow together ─▶ fills into the queue
//!   change   claim ─▶ doubt ─▶ [map: drop pages, void fills, pin] ─▶ slow, fast ─▶ [map: valid again]
//!   fill     [map: places, unless void] ─▶ slab ─▶ [map: valid, unless void]
//! ```
//! What stands in brackets is one critical section of the map. A change claims its range first, and a fill begins only
//! where nothing is claimed: so either the fill sees the claim, or the change sees the fill and makes it void.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use policy::cache::Slot;
use policy::intent::PageReads;
use policy::promote::{Access, AccessKind};
use policy::purpose::Io;
use volume::{IoBuf, IoBufMut, Name, Object, Result};

use super::accesses::{Accesses, Hit, Telling};
use super::admit::Admission;
use super::figures::Counters;
use super::fills::Number;
use super::journal::Journal;
use super::map::{self, Map, Unit};
use super::pins::PinCounts;
use super::route::{self, PAGE, Route};
use super::slab::{self, OWN, Slab};
use super::sums::Sum;
use super::track::Track;

pub(super) struct Fast {
    pub(super) map: Mutex<Map>,
    /// Those of the map.
    pub(super) pins: Arc<PinCounts>,
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
    /// A fill found no free entry.
    pub(super) is_short: bool,
}

/// The units that a change touches. Its pages are invalid.
pub(super) struct Changed {
    parts: Vec<Part>,
    pins: Pins,
    /// No reader uses the units' places.
    pub(super) is_alone: bool,
}

/// What of a write goes to places in a row, and which pages are valid afterwards.
pub(super) struct Part {
    pub(super) entry: Slot,
    /// Where the bytes go on the slab.
    pub(super) at: u64,
    /// In bytes of the object.
    pub(super) bytes: Range<u64>,
    pub(super) pages: Range<u32>,
}

/// A unit that is being filled.
pub(super) struct Fill {
    fast: Arc<Fast>,
    entry: Slot,
    pub(super) extent: u32,
    number: Number,
    /// Which pages are filled.
    pages: Range<u32>,
    /// The rest of the unit is wanted, too.
    pub(super) is_whole: bool,
}

/// An entry whose places a reader uses.
pub(super) struct Pin<'a> {
    fast: &'a Fast,
    entry: Slot,
    /// Where the bytes are on the slab.
    pub(super) at: u64,
}

pub(super) struct Pins {
    fast: Arc<Fast>,
    entries: Vec<Slot>,
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

    /// The pages of a unit that a range of the object touches.
    pub(super) fn pages_in(&self, extent: u64, bytes: &Range<u64>) -> Range<u32> {
        let unit_at = extent * self.unit;
        let start = bytes.start.max(unit_at) - unit_at;
        let end = bytes.end.min(unit_at + self.unit) - unit_at;
        (start / PAGE) as u32..end.div_ceil(PAGE) as u32
    }

    /// A read whose pages are all valid, in one unit and in places in a row, the common case: it takes one lock and no memory.
    /// `None` is for [`Fast::begin_read`]. `counts` says that the filter hears of it.
    pub(super) fn begin_hit(
        &self,
        track: &Track,
        range: &Range<u64>,
        counts: bool,
    ) -> Option<Pin<'_>> {
        let extent = range.start / self.unit;
        let unit = Unit { object: track.number, extent: extent.try_into().ok()? };
        if range.end > (extent + 1) * self.unit {
            return None;
        }
        let pages = self.pages_in(extent, range);
        let mut map = self.map.lock();
        let entry = map.find(unit)?;
        let place = map.row_of(entry, &pages)?;
        map.pin(entry);
        if counts {
            map.hit(entry);
            map.see(entry, &pages);
            self.heard(&mut map, track.number, entry, range.clone());
        }
        drop(map);
        Some(Pin { fast: self, entry, at: slab::position(place) + range.start % PAGE })
    }

    /// The page at `at` of an object, for a write of a part of it, with its checksum.
    pub(super) fn begin_merge(&self, track: &Track, at: u64) -> Option<(Pin<'_>, Sum)> {
        let pin = self.begin_hit(track, &(at..at + PAGE), false)?;
        let page = (at % self.unit / PAGE) as u32;
        let sum = self.map.lock().sum(pin.entry, page);
        Some((pin, sum))
    }

    /// Whether a read of a range would be served by the fast volume alone.
    pub(super) fn has_all(&self, object: u32, range: &Range<u64>) -> bool {
        let map = self.map.lock();
        units(range, self.unit).all(|extent| {
            let pages = self.pages_in(extent.into(), range);
            map.find(Unit { object, extent }).is_some_and(|entry| map.are_valid(entry, &pages))
        })
    }

    /// Has the filter hear of a hit. `request` is empty for all units of a request but the first.
    fn heard(&self, map: &mut Map, object: u32, entry: Slot, request: Range<u64>) {
        let hit = Hit { object, promoted: map.promoted(entry), request };
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
        let entries: Vec<_> =
            (first..range.end.div_ceil(self.unit)).map(|extent| map.find(unit(extent)?)).collect();
        let route = route::route(range.clone(), |page| {
            let entry = entries[(page / self.pages_per_unit() - first) as usize]?;
            let number = (page % self.pages_per_unit()) as u32;
            let place = map.place_of(entry, number)?;
            Some(route::Held {
                entry,
                at: slab::position(place),
                is_dirty: map.is_dirty(entry, number),
            })
        });
        let mut pins = Pins { fast: Arc::clone(self), entries: Vec::new() };
        // The pieces of a unit follow each other.
        pins.entries.extend(route.fast.iter().map(|piece| piece.entry));
        pins.entries.dedup();
        pins.entries.iter().for_each(|&entry| map.pin(entry));
        let (mut fills, mut is_short) = (Vec::new(), false);
        if counts {
            for (extent, entry) in (first..).zip(entries) {
                let Some(entry) = entry else { continue };
                map.see(entry, &self.pages_in(extent, &range));
            }
            pins.entries.iter().for_each(|&entry| map.hit(entry));
            if route.slow.is_empty() {
                let mut request = range;
                for &entry in &pins.entries {
                    let request = std::mem::take(&mut request);
                    self.heard(&mut map, track.number, entry, request);
                }
            } else {
                let Telling { mut admit, now } = self.accesses.tell(&mut map.batch);
                let sequential = admit.request(track.number, &range);
                pins.entries.iter().for_each(|&entry| admit.hit(map.promoted(entry), now));
                let telling = Telling { admit, now };
                (fills, is_short) =
                    self.begin_fills(&mut map, telling, sequential, track, &route.slow, may_fill);
            }
        }
        drop(map);
        Reading { route, fills, pins, is_short }
    }

    /// Begins the fills of what a read misses; says whether one of them found no free entry.
    fn begin_fills(
        self: &Arc<Self>,
        map: &mut Map,
        telling: Telling<'_>,
        sequential: bool,
        track: &Track,
        slow: &Range<u64>,
        may_fill: bool,
    ) -> (Vec<Fill>, bool) {
        let (mut fills, mut is_short) = (Vec::new(), false);
        let Telling { mut admit, now } = telling;
        let is_roomy = map.is_roomy();
        for extent in slow.start / self.unit..slow.end.div_ceil(self.unit) {
            let Ok(number) = extent.try_into() else { continue };
            let unit = Unit { object: track.number, extent: number };
            let held = map.find(unit);
            let ghost = held.is_none() && map.missed(unit);
            let access = Access { unit: map::key(unit), kind: AccessKind::Read, sequential, ghost };
            let mut admission = match held {
                None => admit.missed(access, now),
                Some(entry) => {
                    map.hit(entry);
                    admit.unserved(access, now)
                }
            };
            if admission != Admission::Unit && !sequential && is_roomy && admit.fills_room() {
                admission = Admission::Pages;
            }
            let whole = extent * self.unit..(extent + 1) * self.unit;
            let is_whole = admission == Admission::Unit;
            let missed = self.pages_in(extent, slow);
            let pages = match (admission, held) {
                (Admission::Bypass, _) => continue,
                (Admission::Again, Some(entry)) => map.see_again(entry, &missed),
                (Admission::Again | Admission::Pages, _) => missed,
                (Admission::Unit, _) => self.pages_in(extent, &whole),
            };
            if pages.is_empty() || held.is_some_and(|entry| map.is_filling(entry, &pages)) {
                continue;
            }
            let byte = |page: u32| whole.start + u64::from(page) * PAGE;
            let wanted = byte(pages.start)..byte(pages.end);
            if !may_fill || track.is_bypassed() || !track.changes.is_free(&wanted) {
                self.counters.promotions_dropped.add(1);
                continue;
            }
            let entry = held.or_else(|| map.take_entry(unit));
            let begun = entry.and_then(|entry| Some((entry, map.begin_fill(entry, &pages)?)));
            let Some((entry, fill)) = begun else {
                self.counters.promotions_dropped.add(1);
                is_short |= entry.is_none();
                continue;
            };
            if held.is_none() {
                map.set_promoted(entry, admit.promoted(access.unit));
            }
            let fast = Arc::clone(self);
            fills.push(Fill { fast, entry, extent: number, number: fill, pages, is_whole });
        }
        (fills, is_short)
    }

    /// Begins the fills of new pages of an object in `range`, by how often what they hold was read before. The caller has claimed
    /// the range, and the slow volume has its bytes.
    pub(super) fn begin_inherited(
        self: &Arc<Self>,
        object: u32,
        range: &Range<u64>,
        reads: &[PageReads],
    ) -> Vec<Fill> {
        let whole = (range.start.div_ceil(PAGE), range.end.div_ceil(PAGE));
        let from = reads.partition_point(|page| u64::from(page.page) < whole.0);
        let to = reads.partition_point(|page| u64::from(page.page) < whole.1);
        let per_unit = self.pages_per_unit() as u32;
        let mut map = self.map.lock();
        let mut fills = Vec::new();
        for reads in reads[from..to].chunk_by(|a, b| a.page / per_unit == b.page / per_unit) {
            let extent = reads[0].page / per_unit;
            let worth: Vec<_> = reads.iter().filter(|page| map.are_worth(page.reads)).collect();
            if worth.is_empty() {
                continue;
            }
            let unit = Unit { object, extent };
            let Some(entry) = map.find(unit).or_else(|| map.take_entry(unit)) else { return fills };
            for &PageReads { page, reads } in reads {
                map.inherit(entry, page % per_unit, reads);
            }
            for run in worth.chunk_by(|a, b| a.page + 1 == b.page) {
                let first = run[0].page % per_unit;
                let pages = first..first + run.len() as u32;
                let Some(number) = map.begin_fill(entry, &pages) else { continue };
                let fast = Arc::clone(self);
                fills.push(Fill { fast, entry, extent, number, pages, is_whole: false });
            }
        }
        fills
    }

    /// Whether a write that the filter did not hear of yet is a part of a bulk load.
    pub(super) fn is_bulk(&self, map: &mut Map, object: u32, range: &Range<u64>) -> bool {
        self.accesses.tell(&mut map.batch).admit.is_bulk(object, range)
    }

    /// Has the filter hear of a write.
    pub(super) fn written(&self, map: &mut Map, object: u32, range: &Range<u64>) {
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
    /// Entries that need a doubt first.
    pub(super) fn begin_change(
        self: &Arc<Self>,
        object: u32,
        range: &Range<u64>,
        counts: bool,
    ) -> std::result::Result<Changed, Vec<Slot>> {
        let mut map = self.map.lock();
        let found = map.within(object, units(range, self.unit));
        let marked: Vec<_> =
            found.iter().map(|(entry, _)| *entry).filter(|&entry| map.is_marked(entry)).collect();
        if !marked.is_empty() {
            return Err(marked);
        }
        if counts {
            self.written(&mut map, object, range);
        }
        let mut pins = Pins { fast: Arc::clone(self), entries: Vec::new() };
        let (mut parts, mut is_alone) = (Vec::new(), true);
        for (entry, extent) in found {
            let unit_at = u64::from(extent) * self.unit;
            let part = range.start.max(unit_at)..range.end.min(unit_at + self.unit);
            let pages = self.pages_in(extent.into(), range);
            // A page that is written in part is valid afterwards if it was before.
            let starts = part.start % PAGE == 0 || map.is_valid(entry, pages.start);
            let ends = part.end % PAGE == 0 || map.is_valid(entry, pages.end - 1);
            let kept = pages.start + u32::from(!starts)..pages.end - u32::from(!ends);
            let before = parts.len();
            if !kept.is_empty() && map.is_writable(entry, &kept) {
                let at = |page: u32| unit_at + u64::from(page) * PAGE;
                parts.extend(map.runs(entry, kept).map(|run| {
                    let pages = run.pages();
                    let bytes = part.start.max(at(pages.start))..part.end.min(at(pages.end));
                    let at = slab::position(run.place) + bytes.start % PAGE;
                    Part { entry, at, bytes, pages }
                }));
            }
            map.drop_pages(entry, &pages);
            map.hit(entry);
            // A write that uses no places keeps the unit from losing none.
            if parts.len() > before || !counts {
                is_alone &= !map.is_pinned(entry);
                map.pin(entry);
                pins.entries.push(entry);
            }
        }
        drop(map);
        Ok(Changed { parts, pins, is_alone })
    }

    /// Drops pages that cannot be read, or were not what was written.
    pub(super) fn forget(&self, object: u32, range: &Range<u64>) {
        let mut map = self.map.lock();
        for (entry, _) in map.within(object, units(range, self.unit)) {
            if map.has_dirty(entry) {
                map.drop_clean(entry);
            } else {
                map.leave(entry);
            }
        }
    }

    /// Runs a fill to its end. The bytes that are valid now; `None` if a change made it void, or the slow volume does not answer.
    ///
    /// # Errors
    /// Those of the fast volume.
    pub(super) async fn install(&self, fill: &Fill, source: Source) -> Result<Option<u64>> {
        let installed = self.fill(fill, source).await?;
        match installed {
            Some(bytes) => {
                self.counters.promotions.add(1);
                self.counters.promoted_bytes.add(bytes);
            }
            None => self.counters.promotions_dropped.add(1),
        }
        Ok(installed)
    }

    /// The bytes that are valid now; `None` if the fill is void.
    async fn fill(&self, fill: &Fill, source: Source) -> Result<Option<u64>> {
        let is_void = || self.map.lock().is_void(fill.entry, fill.number);
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
        let pages = (within / PAGE) as u32..((within + len) / PAGE) as u32;
        let placed = self.map.lock().place_fill(fill.entry, fill.number, &pages);
        let Some(runs) = placed else { return Ok(None) };
        let _pins = Pins { fast: Arc::clone(&fill.fast), entries: vec![fill.entry] };
        for run in runs {
            let byte = |page: u32| (u64::from(page) * PAGE - within) as usize;
            let part = bytes.slice(byte(run.pages().start)..byte(run.pages().end));
            self.slab.write(slab::position(run.place), part, OWN).await?;
        }
        let mut map = self.map.lock();
        if map.is_void(fill.entry, fill.number) {
            return Ok(None);
        }
        map.set_filled(fill.entry, &pages);
        Ok(Some(len))
    }

    /// Keeps places and entries free, so that a fill finds some.
    ///
    /// # Errors
    /// Those of the fast volume: it must be given up.
    pub(super) async fn make_room(&self) -> Result<()> {
        let rounds = {
            let map = self.map.lock();
            if map.is_short() { map.rounds() } else { 0 }
        };
        for _ in 0..rounds {
            // Users wait for the lock: a few visits at a time.
            if self.map.lock().make_room() {
                break;
            }
        }
        let marked = self.map.lock().release();
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
            self.pins.fast.slab.write(part.at, bytes, io).await?;
        }
        Ok(())
    }

    /// The write is on the slow and on the fast volume: its pages are valid.
    pub(super) fn is_written(&self) {
        let mut map = self.pins.fast.map.lock();
        for part in &self.parts {
            map.set(part.entry, &part.pages);
        }
    }

    /// The object is gone: its units leave.
    pub(super) fn leave(self) {
        let mut map = self.pins.fast.map.lock();
        self.pins.entries.iter().for_each(|&entry| map.leave(entry));
    }
}

impl Fill {
    pub(super) const fn fast(&self) -> &Arc<Fast> {
        &self.fast
    }

    /// What of bytes read at `offset` is filled, in whole pages; `None` if nothing is. `is_end` says that the object ends with
    /// these bytes.
    pub(super) fn pages_of(&self, offset: u64, bytes: &[u8], is_end: bool) -> Option<Source> {
        let unit_at = u64::from(self.extent) * self.fast.unit;
        let end = offset + bytes.len() as u64;
        let byte = |page: u32| unit_at + u64::from(page) * PAGE;
        let from = offset.next_multiple_of(PAGE).max(byte(self.pages.start));
        let to = if is_end { end } else { end / PAGE * PAGE }.min(byte(self.pages.end));
        if from >= to {
            return None;
        }
        let part = &bytes[(from - offset) as usize..(to - offset) as usize];
        Some(Source::Read { offset: from, bytes: padded(IoBufMut::from(part)) })
    }
}

impl Pins {
    pub(super) fn new(fast: &Arc<Fast>) -> Self {
        Self { fast: Arc::clone(fast), entries: Vec::new() }
    }

    pub(super) const fn fast(&self) -> &Arc<Fast> {
        &self.fast
    }

    /// Pins an entry, once more if it is pinned.
    pub(super) fn pin(&mut self, map: &mut Map, entry: Slot) {
        map.pin(entry);
        self.entries.push(entry);
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        self.fast.map.lock().end_fill(self.entry, self.number);
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.fast.pins.unpin(self.entry);
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        self.entries.iter().for_each(|&entry| self.fast.pins.unpin(entry));
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

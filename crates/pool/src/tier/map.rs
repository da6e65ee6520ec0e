//! Which units have pages on the fast volume, which of these are valid, and where they are. Pure: it knows no bytes.
//!
//! ```text
//!            take_entry           place_fill              set
//!   none ───────────────▶ entry ────────────▶ places ───────────▶ valid pages
//!     ▲                                         │ evict: pages that were read seldom, or the unit
//!     │         release: no pin, no mark        ▼
//!     └──────────────────────────────────── waiting
//! ```
//! An *entry* is what is known of one unit: a table of its pages' places, a bitmap of pages that are *valid*, and a count of
//! reads of each page, which need not be valid. A page that a change drops keeps its place, and the next
//! write or fill uses it again.
//!
//! An entry that the durable checkpoint names is *marked*. A marked entry keeps its unit, and each place that it loses
//! waits, until the journal has a durable record that the checkpoint does not count for it any more. So a write always finds
//! the entry whose record it must make, also after an eviction, and no place that the checkpoint names has another page's
//! bytes.

mod dirty;
mod room;
mod snapshot;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use policy::cache::{Eviction, Kind, Slot};
use policy::promote::Period;
use policy::time::Instant;

use super::accesses::Batch;
use super::bits::Bits;
use super::figures::Room;
use super::fills::{Fills, Number};
use super::pins::PinCounts;
use super::places::{Place, Places};
use super::record::Placed;
use super::route::PAGE;
use super::sums::Sum;
use super::table::{Run, Table};
use super::uses::Uses;

pub(super) use dirty::Pages;

const NONE: Slot = Slot::MAX;

/// Reads that pages of a checkpoint count for.
const RESTORED: u8 = 2;

/// Bits of an entry.
const HELD: u8 = 1;
const RANKED: u8 = 2;
const LEAVING: u8 = 4;
/// The current checkpoint names it.
const CURRENT: u8 = 16;
/// The checkpoint that is being written names it.
const NEXT: u8 = 32;

/// A part of an object: its number in this process, and the number of the unit in it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Unit {
    pub(super) object: u32,
    pub(super) extent: u32,
}

/// How much a map may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Places for pages.
    pub(super) places: u32,
    /// Units that may have pages at a time.
    pub(super) entries: u32,
    /// Pages of a unit.
    pub(super) pages: u32,
    /// Units that a snapshot looks at while the map is locked.
    pub(super) at_once: u32,
}

struct Entry {
    unit: Unit,
    /// The next one of the same bucket.
    next: Slot,
    /// When the unit got its entry.
    promoted: Period,
    flags: u8,
    table: Table,
    /// Which of the dirty units it is, by age; 0 if it is none.
    dirty_since: u64,
    /// If a page is dirty: of each page its checksum, or that it is not known.
    sums: Option<Box<[Sum]>>,
}

pub(super) struct Map {
    size: Size,
    buckets: Vec<Slot>,
    /// As many as were needed at a time so far.
    entries: Vec<Entry>,
    pins: Arc<PinCounts>,
    valid: Bits,
    /// Reads of pages.
    uses: Uses,
    /// Pages whose newest bytes are only here.
    dirty: Bits,
    /// Dirty pages that the journal names.
    recorded: Bits,
    /// Dirty pages that did not change since a flush began.
    flushing: Bits,
    /// By age.
    dirty_units: BTreeMap<u64, (Slot, Instant)>,
    last_dirty: u64,
    /// The time of the last [`Map::tick`].
    now: Instant,
    /// Units with dirty pages that are not recorded, by object and number.
    unrecorded: BTreeMap<(u32, u32), Slot>,
    is_dead: bool,
    fills: Fills,
    free: Vec<Slot>,
    leaving: Vec<Slot>,
    places: Places,
    /// Places that marked entries lost.
    limbo: BTreeMap<Slot, Vec<Range<Place>>>,
    /// Places in limbo, and those of entries that leave.
    waiting: u32,
    kind: Kind,
    policy: Box<dyn Eviction>,
    counted: Room,
    /// Hits that the filter did not hear of yet.
    pub(super) batch: Batch,
}

impl Map {
    /// An empty map.
    pub(super) fn new(size: Size, kind: Kind) -> Self {
        Self {
            size,
            buckets: vec![NONE; (size.entries as usize).next_power_of_two()],
            entries: Vec::new(),
            pins: Arc::new(PinCounts::new(size.entries)),
            valid: Bits::new(size.pages),
            uses: Uses::new(size.pages, size.places),
            dirty: Bits::new(size.pages),
            recorded: Bits::new(size.pages),
            flushing: Bits::new(size.pages),
            dirty_units: BTreeMap::new(),
            last_dirty: 0,
            now: Instant::ZERO,
            unrecorded: BTreeMap::new(),
            is_dead: false,
            fills: Fills::default(),
            free: Vec::new(),
            leaving: Vec::new(),
            places: Places::new(size.places),
            limbo: BTreeMap::new(),
            waiting: 0,
            kind,
            policy: kind.policy(),
            counted: Room::default(),
            batch: Batch::with_room(),
        }
    }

    /// Places of the slab.
    pub(super) const fn places(&self) -> u32 {
        self.size.places
    }

    /// What was counted since it is in use.
    pub(super) fn counted(&self) -> Room {
        let policy = Some(self.policy.acts().unwrap_or(self.kind));
        Room { policy, generation: self.uses.generation(), ..self.counted }
    }

    pub(super) fn find(&self, unit: Unit) -> Option<Slot> {
        let mut at = self.buckets[self.bucket(unit)];
        while at != NONE {
            let entry = &self.entries[at as usize];
            if entry.unit == unit {
                return Some(at);
            }
            at = entry.next;
        }
        None
    }

    /// The entries of an object's units in a range, with their units.
    pub(super) fn within(&self, object: u32, extents: Range<u32>) -> Vec<(Slot, u32)> {
        if extents.len() <= self.entries.len() {
            let found = |extent| Some((self.find(Unit { object, extent })?, extent));
            return extents.filter_map(found).collect();
        }
        let entries = self.entries.iter().enumerate();
        let held = entries.filter(|(_, entry)| {
            entry.flags & HELD != 0
                && entry.unit.object == object
                && extents.contains(&entry.unit.extent)
        });
        held.map(|(at, entry)| (at as Slot, entry.unit.extent)).collect()
    }

    /// Gives an entry without a unit one.
    fn hold(&mut self, at: Slot, unit: Unit, table: Table) {
        let bucket = self.bucket(unit);
        let bytes = bytes_of(&table);
        let entry = &mut self.entries[at as usize];
        entry.unit = unit;
        entry.promoted = Period::default();
        entry.flags = HELD | RANKED;
        entry.table = table;
        entry.next = std::mem::replace(&mut self.buckets[bucket], at);
        self.uses.clear(at);
        self.policy.insert(at, key(unit), bytes);
    }

    /// Adds an entry without a unit.
    fn grow(&mut self) {
        let unit = Unit { object: 0, extent: 0 };
        let (promoted, table, sums) = Default::default();
        let (next, flags, dirty_since) = (NONE, 0, 0);
        let entry = Entry { unit, next, promoted, flags, table, dirty_since, sums };
        self.entries.push(entry);
        for bits in [&mut self.valid, &mut self.dirty, &mut self.recorded, &mut self.flushing] {
            bits.grow();
        }
        self.uses.grow();
    }

    /// Puts a unit of a sound checkpoint back into its entry; false if the entry or the unit cannot be.
    pub(super) fn restore(&mut self, unit: Unit, placed: &Placed) -> bool {
        let at = placed.entry;
        if at >= self.size.entries || self.find(unit).is_some() {
            return false;
        }
        while self.entries.len() <= at as usize {
            self.grow();
        }
        if self.entries[at as usize].flags & HELD != 0 {
            return false;
        }
        let mut table = Table::default();
        for &run in placed.runs.iter().chain(&placed.dirty) {
            if !self.places.claim(&run.places()) {
                return false;
            }
            table.insert(run);
        }
        self.hold(at, unit, table);
        for run in placed.runs.iter().chain(&placed.dirty) {
            self.set(at, &run.pages());
            // The checkpoint does not say how often they were read: the first visits take none.
            self.uses.raise(at, &run.pages(), RESTORED);
        }
        self.restore_dirty(at, &placed.dirty);
        true
    }

    /// Collects the free entries again after [`Map::restore`].
    pub(super) fn restored(&mut self) {
        let held = |at: &Slot| self.entries[*at as usize].flags & HELD != 0;
        self.free = (0..self.entries.len() as Slot).rev().filter(|at| !held(at)).collect();
    }

    pub(super) fn hit(&mut self, entry: Slot) {
        if self.entries[entry as usize].flags & RANKED != 0 {
            self.policy.hit(entry);
        }
    }

    /// A read found no entry of the unit. Says whether it was evicted lately.
    pub(super) fn missed(&mut self, unit: Unit) -> bool {
        self.policy.missed(key(unit))
    }

    /// Whether the unit was evicted lately.
    pub(super) fn remembers(&self, unit: Unit) -> bool {
        self.policy.remembers(key(unit))
    }

    /// When the unit got its entry.
    pub(super) fn promoted(&self, entry: Slot) -> Period {
        self.entries[entry as usize].promoted
    }

    pub(super) fn set_promoted(&mut self, entry: Slot, promoted: Period) {
        self.entries[entry as usize].promoted = promoted;
    }

    pub(super) fn is_valid(&self, entry: Slot, page: u32) -> bool {
        self.valid.has(entry, page)
    }

    pub(super) fn are_valid(&self, entry: Slot, pages: &Range<u32>) -> bool {
        self.valid.has_all(entry, pages)
    }

    /// Where a page is, if it is valid.
    pub(super) fn place_of(&self, entry: Slot, page: u32) -> Option<Place> {
        let run = self.entries[entry as usize].table.find(page)?;
        self.is_valid(entry, page).then(|| run.place_of(page))
    }

    /// Where the first of some pages is, if all are valid and their places are in a row.
    pub(super) fn row_of(&self, entry: Slot, pages: &Range<u32>) -> Option<Place> {
        let run = self.entries[entry as usize].table.find(pages.start)?;
        let is_row = pages.end <= run.end() && self.valid.has_all(entry, pages);
        is_row.then(|| run.place_of(pages.start))
    }

    /// The places of the pages in a range that have one.
    pub(super) fn runs(&self, entry: Slot, pages: Range<u32>) -> impl Iterator<Item = Run> + '_ {
        self.entries[entry as usize].table.runs(pages)
    }

    /// A user read these pages. Reads of those that are valid count.
    pub(super) fn see(&mut self, entry: Slot, pages: &Range<u32>) {
        let valid = &self.valid;
        self.uses.add(entry, pages.clone().filter(|&page| valid.has(entry, page)));
    }

    /// A user read pages that are not valid. Returns those from the first to the last one that was read often enough to be worth
    /// room, or has a place.
    pub(super) fn see_again(&mut self, entry: Slot, pages: &Range<u32>) -> Range<u32> {
        self.uses.add(entry, pages.clone());
        let table = &self.entries[entry as usize].table;
        let is_worth = |&page: &u32| self.uses.is_worth(entry, page) || table.find(page).is_some();
        let first = pages.clone().find(is_worth);
        let last = pages.clone().rfind(is_worth);
        first.zip(last).map_or(0..0, |(first, last)| first..last + 1)
    }

    /// Whether pages that were read so often get room: any reads are enough while room is free.
    pub(super) fn are_worth(&self, reads: u8) -> bool {
        self.is_roomy() || self.uses.are_worth(reads)
    }

    /// Raises the count of a page to `reads`, which its records had on another page.
    pub(super) fn inherit(&mut self, entry: Slot, page: u32, reads: u8) {
        self.uses.raise(entry, &(page..page + 1), reads);
    }

    /// Whether a fill of these pages is under way already.
    pub(super) fn is_filling(&self, entry: Slot, pages: &Range<u32>) -> bool {
        self.fills.covers(entry, pages)
    }

    /// Makes pages valid, as [`Map::set`], that a fill has installed, as for one read: a page that nobody reads again leaves at one of
    /// the first visits.
    pub(super) fn set_filled(&mut self, entry: Slot, pages: &Range<u32>) {
        self.uses.raise(entry, pages, 1);
        self.set(entry, pages);
    }

    /// Makes pages valid, which have places, unless the unit leaves.
    pub(super) fn set(&mut self, entry: Slot, pages: &Range<u32>) {
        let held = &self.entries[entry as usize];
        debug_assert!(held.table.gaps(pages).is_empty(), "valid pages have places");
        if held.flags & LEAVING == 0 {
            let set = self.valid.set(entry, pages);
            self.counted.cached_bytes += u64::from(set) * PAGE;
        }
    }

    /// Makes pages invalid, and their fills under way void. The pages keep their places.
    pub(super) fn drop_pages(&mut self, entry: Slot, pages: &Range<u32>) {
        debug_assert!(
            pages.clone().all(|page| !self.dirty.has(entry, page)),
            "dirty pages are flushed first"
        );
        let dropped = self.valid.clear(entry, pages);
        self.counted.cached_bytes -= u64::from(dropped) * PAGE;
        self.fills.void(entry, pages);
    }

    /// The pins of each entry.
    pub(super) const fn pins(&self) -> &Arc<PinCounts> {
        &self.pins
    }

    pub(super) fn pin(&mut self, entry: Slot) {
        self.pins.pin(entry);
    }

    pub(super) fn unpin(&mut self, entry: Slot) {
        self.pins.unpin(entry);
    }

    pub(super) fn is_pinned(&self, entry: Slot) -> bool {
        self.pins.is_pinned(entry)
    }

    /// Whether a write may go to the places of these pages: the unit stays, and no fill of them is under way.
    pub(super) fn is_writable(&self, entry: Slot, pages: &Range<u32>) -> bool {
        self.entries[entry as usize].flags & LEAVING == 0 && !self.fills.touches(entry, pages)
    }

    /// Whether a fill under way is void: a change came, or its unit left.
    pub(super) fn is_void(&self, entry: Slot, fill: Number) -> bool {
        self.fills.is_void(entry, fill)
    }

    /// Whether a checkpoint, the durable one or the one that is being written, names the unit.
    pub(super) fn is_marked(&self, entry: Slot) -> bool {
        self.entries[entry as usize].flags & (CURRENT | NEXT) != 0
    }

    pub(super) fn is_current(&self, entry: Slot) -> bool {
        self.entries[entry as usize].flags & CURRENT != 0
    }

    pub(super) fn is_next(&self, entry: Slot) -> bool {
        self.entries[entry as usize].flags & NEXT != 0
    }

    pub(super) fn unmark(&mut self, entry: Slot) {
        self.entries[entry as usize].flags &= !(CURRENT | NEXT);
    }

    /// The checkpoint that was written is the current one.
    pub(super) fn switch_checkpoint(&mut self) {
        for entry in &mut self.entries {
            let is_next = entry.flags & NEXT != 0;
            entry.flags &= !(CURRENT | NEXT);
            entry.flags |= if is_next { CURRENT } else { 0 };
        }
    }

    fn bucket(&self, unit: Unit) -> usize {
        key(unit) as usize & (self.buckets.len() - 1)
    }
}

/// The bytes of a unit's places, for the policies.
fn bytes_of(table: &Table) -> u32 {
    table.pages() * PAGE as u32
}

/// A hash of a unit, for the policies: numbers that lie close together are spread.
pub(super) fn key(unit: Unit) -> u64 {
    let number = u64::from(unit.object) << 32 | u64::from(unit.extent);
    let mixed = (number ^ number >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}

#[cfg(test)]
mod tests;

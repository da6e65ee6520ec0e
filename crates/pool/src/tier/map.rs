//! Which slot of the fast volume holds which unit, and which of its pages are valid. Pure: it knows no bytes.
//!
//! ```text
//!            take_slot            set                    evict, drop
//!   free ───────────────▶ held, no page ──▶ held, pages ────────────▶ leaving ──▶ free
//!                                                            release: no pin, no mark
//! ```
//! A slot that the durable checkpoint names is *marked*. A marked slot keeps its unit until the journal has a durable
//! record that the checkpoint does not count for it any more. So a write always finds the slot whose record it must
//! make, also after an eviction.

use std::ops::Range;

use policy::cache::{Eviction, Kind, Slot};
use policy::promote::Period;

use super::accesses::Batch;
use super::record::Placed;

const NONE: Slot = Slot::MAX;

/// Victims that are passed over because they are in use, for one eviction.
const PASSED_MAX: usize = 16;

/// Bits of an entry.
const HELD: u8 = 1;
const RANKED: u8 = 2;
const LEAVING: u8 = 4;
/// A change came while a fill was under way: what it fills is old.
const ABORTED: u8 = 8;
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

#[derive(Clone)]
struct Entry {
    unit: Unit,
    /// The next one of the same bucket.
    next: Slot,
    /// Readers, writers and fills that use the slot.
    pins: u32,
    fills: u32,
    /// When the unit got its place.
    promoted: Period,
    flags: u8,
}

pub(super) struct Map {
    /// Words of the bitmap of one slot.
    words: usize,
    buckets: Vec<Slot>,
    entries: Vec<Entry>,
    pages: Vec<u64>,
    free: Vec<Slot>,
    leaving: Vec<Slot>,
    policy: Box<dyn Eviction>,
    bytes_per_unit: u32,
    valid: u64,
    evictions: u64,
    /// Hits that the filter did not hear of yet.
    pub(super) batch: Batch,
}

impl Map {
    /// A map of `slots` free slots with `pages` pages each.
    pub(super) fn new(slots: u32, pages: usize, bytes_per_unit: u32, kind: Kind) -> Self {
        let unit = Unit { object: 0, extent: 0 };
        let entry =
            Entry { unit, next: NONE, pins: 0, fills: 0, promoted: Period::default(), flags: 0 };
        let words = pages.div_ceil(64);
        Self {
            words,
            buckets: vec![NONE; (slots as usize).next_power_of_two()],
            entries: vec![entry; slots as usize],
            pages: vec![0; words * slots as usize],
            free: (0..slots).rev().collect(),
            leaving: Vec::new(),
            policy: kind.policy(),
            bytes_per_unit,
            valid: 0,
            evictions: 0,
            batch: Batch::with_room(),
        }
    }

    pub(super) fn slots(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Valid pages of all units.
    pub(super) const fn valid_pages(&self) -> u64 {
        self.valid
    }

    /// Units that were evicted.
    pub(super) const fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Slots without a unit.
    pub(super) fn free_slots(&self) -> usize {
        self.free.len()
    }

    /// The memory of a unit beside its bitmap and the state of the eviction policy, in bytes.
    #[cfg(test)]
    pub(super) fn bytes_per_slot(&self) -> usize {
        let index = self.buckets.capacity() * size_of::<Slot>();
        let entries = self.entries.capacity() * size_of::<Entry>();
        let lists = 2 * self.entries.len() * size_of::<Slot>();
        (index + entries + lists) / self.entries.len()
    }

    pub(super) fn find(&self, unit: Unit) -> Option<Slot> {
        let mut slot = self.buckets[self.bucket(unit)];
        while slot != NONE {
            let entry = &self.entries[slot as usize];
            if entry.unit == unit {
                return Some(slot);
            }
            slot = entry.next;
        }
        None
    }

    /// The slots of an object's units in a range, with their units.
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
        held.map(|(slot, entry)| (slot as Slot, entry.unit.extent)).collect()
    }

    /// A slot for a unit that has none. `None` if no slot is free and none can be emptied without a record: then one
    /// begins to leave.
    pub(super) fn take_slot(&mut self, unit: Unit) -> Option<Slot> {
        if self.free.is_empty() {
            self.evict();
            self.release();
        }
        let slot = self.free.pop()?;
        self.hold(slot, unit);
        Some(slot)
    }

    fn hold(&mut self, slot: Slot, unit: Unit) {
        let bucket = self.bucket(unit);
        let entry = &mut self.entries[slot as usize];
        entry.unit = unit;
        entry.promoted = Period::default();
        entry.flags = HELD | RANKED;
        entry.next = std::mem::replace(&mut self.buckets[bucket], slot);
        self.policy.insert(slot, key(unit), self.bytes_per_unit);
    }

    /// Puts a unit of the durable checkpoint back; false if the slot does not exist or is not free.
    pub(super) fn restore(&mut self, unit: Unit, pages: &[u64], slot: Slot) -> bool {
        let is_free = self.entries.get(slot as usize).is_some_and(|entry| entry.flags & HELD == 0);
        if !is_free || pages.len() != self.words || self.find(unit).is_some() {
            return false;
        }
        self.hold(slot, unit);
        self.valid += pages.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        self.pages[slot as usize * self.words..][..self.words].copy_from_slice(pages);
        true
    }

    /// Collects the free slots again after [`Map::restore`].
    pub(super) fn restored(&mut self) {
        let held = |slot: &Slot| self.entries[*slot as usize].flags & HELD != 0;
        self.free = (0..self.slots()).rev().filter(|slot| !held(slot)).collect();
    }

    pub(super) fn hit(&mut self, slot: Slot) {
        if self.entries[slot as usize].flags & RANKED != 0 {
            self.policy.hit(slot);
        }
    }

    /// Whether the unit was evicted lately.
    pub(super) fn remembers(&self, unit: Unit) -> bool {
        self.policy.remembers(key(unit))
    }

    /// When the unit in this slot got its place.
    pub(super) fn promoted(&self, slot: Slot) -> Period {
        self.entries[slot as usize].promoted
    }

    pub(super) fn set_promoted(&mut self, slot: Slot, promoted: Period) {
        self.entries[slot as usize].promoted = promoted;
    }

    pub(super) fn is_valid(&self, slot: Slot, page: u32) -> bool {
        let word = self.pages[slot as usize * self.words + page as usize / 64];
        word & (1 << (page % 64)) != 0
    }

    /// Makes pages valid, unless the unit leaves.
    pub(super) fn set(&mut self, slot: Slot, pages: Range<u32>) {
        if self.entries[slot as usize].flags & LEAVING != 0 {
            return;
        }
        for page in pages {
            let word = &mut self.pages[slot as usize * self.words + page as usize / 64];
            self.valid += u64::from(*word & (1 << (page % 64)) == 0);
            *word |= 1 << (page % 64);
        }
    }

    /// Makes pages invalid, and the fills under way void.
    pub(super) fn drop_pages(&mut self, slot: Slot, pages: Range<u32>) {
        for page in pages {
            let word = &mut self.pages[slot as usize * self.words + page as usize / 64];
            self.valid -= u64::from(*word & (1 << (page % 64)) != 0);
            *word &= !(1 << (page % 64));
        }
        let entry = &mut self.entries[slot as usize];
        if entry.fills > 0 {
            entry.flags |= ABORTED;
        }
    }

    /// Makes all pages invalid; the slot is free once it has neither pins nor a mark.
    pub(super) fn leave(&mut self, slot: Slot) {
        self.drop_pages(slot, 0..(self.words * 64) as u32);
        let entry = &mut self.entries[slot as usize];
        if entry.flags & RANKED != 0 {
            self.policy.remove(slot);
        }
        entry.flags &= !RANKED;
        if entry.flags & LEAVING == 0 {
            entry.flags |= LEAVING;
            self.leaving.push(slot);
        }
    }

    /// Chooses a victim, which leaves; false if all units are in use.
    pub(super) fn evict(&mut self) -> bool {
        for _ in 0..PASSED_MAX {
            let Some(slot) = self.policy.evict() else { return false };
            let entry = &mut self.entries[slot as usize];
            if entry.pins > 0 {
                self.policy.insert(slot, key(entry.unit), self.bytes_per_unit);
                continue;
            }
            entry.flags &= !RANKED;
            self.leave(slot);
            self.evictions += 1;
            return true;
        }
        false
    }

    /// Frees the slots that leave and have neither pins nor marks; returns those that have a mark only.
    pub(super) fn release(&mut self) -> Vec<Slot> {
        let mut marked = Vec::new();
        for slot in std::mem::take(&mut self.leaving) {
            let entry = &self.entries[slot as usize];
            if entry.pins > 0 || entry.flags & (CURRENT | NEXT) != 0 {
                self.leaving.push(slot);
                if entry.pins == 0 {
                    marked.push(slot);
                }
                continue;
            }
            self.unlink(slot);
            self.entries[slot as usize].flags = 0;
            self.free.push(slot);
        }
        marked
    }

    fn unlink(&mut self, slot: Slot) {
        let bucket = self.bucket(self.entries[slot as usize].unit);
        let next = self.entries[slot as usize].next;
        let mut at = self.buckets[bucket];
        if at == slot {
            self.buckets[bucket] = next;
            return;
        }
        while self.entries[at as usize].next != slot {
            at = self.entries[at as usize].next;
        }
        self.entries[at as usize].next = next;
    }

    pub(super) fn pin(&mut self, slot: Slot) {
        self.entries[slot as usize].pins += 1;
    }

    pub(super) fn unpin(&mut self, slot: Slot) {
        self.entries[slot as usize].pins -= 1;
    }

    pub(super) fn is_pinned(&self, slot: Slot) -> bool {
        self.entries[slot as usize].pins > 0
    }

    /// Whether a write may go to the slot: it stays, and no fill is under way.
    pub(super) fn is_writable(&self, slot: Slot) -> bool {
        let entry = &self.entries[slot as usize];
        entry.fills == 0 && entry.flags & LEAVING == 0
    }

    /// Begins a fill and pins the slot; false if the unit leaves, or an older fill is void and not over yet.
    pub(super) fn begin_fill(&mut self, slot: Slot) -> bool {
        let entry = &mut self.entries[slot as usize];
        if entry.flags & (LEAVING | ABORTED) != 0 {
            return false;
        }
        entry.fills += 1;
        entry.pins += 1;
        true
    }

    /// Whether a fill under way is void: a change came.
    pub(super) fn is_aborted(&self, slot: Slot) -> bool {
        self.entries[slot as usize].flags & (ABORTED | LEAVING) != 0
    }

    pub(super) fn end_fill(&mut self, slot: Slot) {
        let words = slot as usize * self.words..(slot as usize + 1) * self.words;
        let is_empty = self.pages[words].iter().all(|&word| word == 0);
        let entry = &mut self.entries[slot as usize];
        entry.fills -= 1;
        entry.pins -= 1;
        if entry.fills == 0 {
            entry.flags &= !ABORTED;
            if is_empty && entry.pins == 0 && entry.flags & LEAVING == 0 {
                self.leave(slot);
            }
        }
    }

    /// Whether a checkpoint, the durable one or the one that is being written, names the slot.
    pub(super) fn is_marked(&self, slot: Slot) -> bool {
        self.entries[slot as usize].flags & (CURRENT | NEXT) != 0
    }

    pub(super) fn is_current(&self, slot: Slot) -> bool {
        self.entries[slot as usize].flags & CURRENT != 0
    }

    pub(super) fn is_next(&self, slot: Slot) -> bool {
        self.entries[slot as usize].flags & NEXT != 0
    }

    pub(super) fn unmark(&mut self, slot: Slot) {
        self.entries[slot as usize].flags &= !(CURRENT | NEXT);
    }

    /// The units with valid pages for which `counts` holds, by slot; marks them for the checkpoint that is written now.
    pub(super) fn snapshot(&mut self, counts: impl Fn(Unit) -> bool) -> Vec<(u32, Placed)> {
        let mut units = Vec::new();
        for (slot, entry) in self.entries.iter_mut().enumerate() {
            entry.flags &= !NEXT;
            let pages = &self.pages[slot * self.words..(slot + 1) * self.words];
            let has_pages = pages.iter().any(|&word| word != 0);
            if entry.flags & HELD != 0 && has_pages && counts(entry.unit) {
                entry.flags |= NEXT;
                let (extent, slot) = (entry.unit.extent, slot as Slot);
                units.push((entry.unit.object, Placed { extent, slot, pages: pages.to_vec() }));
            }
        }
        units
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

/// A hash of a unit, for the policies: numbers that lie close together are spread.
pub(super) fn key(unit: Unit) -> u64 {
    let number = u64::from(unit.object) << 32 | u64::from(unit.extent);
    let mixed = (number ^ number >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(slots: u32) -> Map {
        Map::new(slots, 8, 32 << 10, Kind::Lru)
    }

    const fn unit(extent: u32) -> Unit {
        Unit { object: 1, extent }
    }

    #[test]
    fn a_full_map_evicts_and_finds_what_it_holds() {
        let mut map = map(4);
        for extent in 0..10 {
            let slot = map.take_slot(unit(extent)).unwrap();
            map.set(slot, 0..2);
        }
        let held: Vec<_> = (0..10).filter(|&extent| map.find(unit(extent)).is_some()).collect();
        assert_eq!(held, [6, 7, 8, 9]);
        assert_eq!((map.valid_pages(), map.evictions()), (8, 6));
        assert_eq!(map.within(1, 0..u32::MAX).len(), 4);
        assert_eq!(map.within(1, 7..9).len(), 2);
    }

    #[test]
    fn a_marked_slot_keeps_its_unit_until_it_has_a_record() {
        let mut map = map(1);
        let slot = map.take_slot(unit(0)).unwrap();
        map.set(slot, 0..1);
        assert_eq!(map.snapshot(|_| true).len(), 1);
        map.switch_checkpoint();
        assert_eq!(map.take_slot(unit(1)), None);
        assert_eq!(map.find(unit(0)), Some(slot), "a write must find it");
        assert_eq!(map.release(), [slot]);
        map.unmark(slot);
        assert_eq!(map.take_slot(unit(1)), Some(slot));
        assert_eq!(map.find(unit(0)), None);
    }

    #[test]
    fn a_change_makes_the_fills_under_way_void() {
        let mut map = map(2);
        let slot = map.take_slot(unit(0)).unwrap();
        map.set(slot, 7..8);
        assert!(map.begin_fill(slot) && map.begin_fill(slot));
        assert!(!map.is_writable(slot));
        map.drop_pages(slot, 0..1);
        assert!(map.is_aborted(slot) && !map.begin_fill(slot), "the old fill may write later");
        map.end_fill(slot);
        assert!(map.is_aborted(slot));
        map.end_fill(slot);
        assert!(!map.is_aborted(slot) && map.begin_fill(slot));
    }

    #[test]
    fn a_pinned_slot_is_no_victim() {
        let mut map = map(2);
        let first = map.take_slot(unit(0)).unwrap();
        map.pin(first);
        let second = map.take_slot(unit(1)).unwrap();
        assert_eq!(map.take_slot(unit(2)), Some(second));
        map.pin(second);
        assert_eq!(map.take_slot(unit(3)), None);
    }

    #[test]
    fn a_unit_takes_at_most_64_bytes_beside_its_bitmap() {
        let map = Map::new(1 << 16, 256, 1 << 20, Kind::S3Fifo);
        // Links of 8 bytes and an entry of 16 in the policy, whose ghosts are at most as many as its entries.
        assert!(map.bytes_per_slot() + 24 <= 64, "{}", map.bytes_per_slot());
    }
}

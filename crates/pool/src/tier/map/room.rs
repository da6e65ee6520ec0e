//! Entries and places given, and taken back from what is worth least.
//!
//! The policy chooses a unit; of its pages only those go that were not read often enough of late ([`Uses`]): counts by page inside
//! a policy by unit. So a few hot pages stay whatever else their unit holds, and room is lost by the page.
//!
//! [`Uses`]: crate::tier::uses::Uses

use std::ops::Range;

use policy::cache::Slot;

use super::{CURRENT, Entry, HELD, LEAVING, Map, NEXT, RANKED, Unit, bytes_of, key};
use crate::tier::fills::Number;
use crate::tier::places::Place;
use crate::tier::route::PAGE;
use crate::tier::table::{Run, Table};

/// Places and entries that are kept free, as a part of all.
const FREE_PART: u32 = 64;

/// Free places that are enough for any fast volume: 1 GiB.
const FREE_PLACES_MAX: u32 = 1 << 18;

/// Free entries that are enough for any fast volume.
const FREE_ENTRIES_MAX: u32 = 1024;

/// Units that are visited under one lock at most.
const VISITS: usize = 64;

/// Victims that are passed over because they are in use, for one eviction.
const PASSED_MAX: usize = 16;

/// Units that a fill visits at most to make room for itself.
const VISITS_MAX: usize = 32;

/// What a visit of the eviction takes from its victim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::tier) enum Take {
    /// The pages that are not worth their room; the unit, if none is.
    Unworthy,
    /// The unit.
    Unit,
}

impl Map {
    /// Free places, and those that will be free once they have neither pins nor marks.
    pub(in crate::tier) const fn room(&self) -> u32 {
        self.places.free() + self.waiting
    }

    /// Entries that have no unit, or will have none.
    pub(in crate::tier) fn free_entries(&self) -> u32 {
        let unused = self.size.entries - self.entries.len() as u32;
        unused + (self.free.len() + self.leaving.len()) as u32
    }

    /// Whether less than half is free of what should be.
    pub(in crate::tier) fn is_short(&self) -> bool {
        let (places, entries) = self.wanted();
        self.room() < places.div_ceil(2) || self.free_entries() < entries.div_ceil(2)
    }

    /// Whether more is free than evictions leave, of which the last one may take a whole unit.
    pub(in crate::tier) fn is_roomy(&self) -> bool {
        let (places, entries) = self.wanted();
        self.room() > 2 * places + self.size.pages && self.free_entries() > 2 * entries
    }

    /// Visits units until the places and entries that should be free are, or will be. False if it shall be called again, since
    /// it visits few at a time.
    pub(in crate::tier) fn make_room(&mut self) -> bool {
        let (places, entries) = self.wanted();
        for _ in 0..VISITS {
            let take = if self.free_entries() < entries {
                Take::Unit
            } else if self.room() < places {
                Take::Unworthy
            } else {
                return true;
            };
            if !self.evict(take) {
                return true;
            }
        }
        false
    }

    /// Calls of [`Map::make_room`] after which each unit was visited twice, so that a third visit would be for pages that are
    /// read all the time.
    pub(in crate::tier) fn rounds(&self) -> usize {
        2 * self.entries.len().div_ceil(VISITS) + 1
    }

    /// Places and entries that should be free.
    fn wanted(&self) -> (u32, u32) {
        let part = |all: u32, most| (all / FREE_PART).clamp(1, most);
        (part(self.size.places, FREE_PLACES_MAX), part(self.size.entries, FREE_ENTRIES_MAX))
    }

    /// An entry for a unit that has none. `None` if none is free and none can be emptied without a record: then one begins to
    /// leave.
    pub(in crate::tier) fn take_entry(&mut self, unit: Unit) -> Option<Slot> {
        if self.free_entries() == 0 {
            self.evict(Take::Unit);
        }
        if self.free.is_empty() && self.entries.len() == self.size.entries as usize {
            self.release();
        }
        let entry = match self.free.pop() {
            Some(entry) => entry,
            None if self.entries.len() < self.size.entries as usize => {
                self.grow();
                self.entries.len() as Slot - 1
            }
            None => return None,
        };
        self.hold(entry, unit, Table::default());
        Some(entry)
    }

    /// Begins a fill of pages, which has no places yet; `None` if the unit leaves, or an older fill of one of them is void and
    /// not over yet.
    pub(in crate::tier) fn begin_fill(
        &mut self,
        entry: Slot,
        pages: &Range<u32>,
    ) -> Option<Number> {
        let leaves = self.entries[entry as usize].flags & LEAVING != 0;
        if leaves { None } else { self.fills.begin(entry, pages) }
    }

    /// Gives pages of a fill places where they have none, and pins the entry. Returns where they are; `None` if the fill is void,
    /// or too few places are free.
    pub(in crate::tier) fn place_fill(
        &mut self,
        entry: Slot,
        fill: Number,
        pages: &Range<u32>,
    ) -> Option<Vec<Run>> {
        if self.is_void(entry, fill) {
            return None;
        }
        self.pin(entry);
        if self.give_places(entry, pages) {
            // Dirty pages have newer bytes than any fill.
            let mut runs: Vec<_> = self.runs(entry, pages.clone()).collect();
            if self.has_dirty(entry) {
                let clean =
                    runs.iter().flat_map(|run| run.pages().map(|page| (page, run.place_of(page))));
                let clean = clean.filter(|&(page, _)| !self.dirty.has(entry, page));
                runs = clean.map(|(page, place)| Run::new(&(page..page + 1), place)).collect();
            }
            return Some(runs);
        }
        self.unpin(entry);
        None
    }

    /// Gives pages places; false if too few are free.
    pub(in crate::tier) fn give_places(&mut self, entry: Slot, pages: &Range<u32>) -> bool {
        let gaps = self.entries[entry as usize].table.gaps(pages);
        let wanted: u32 = gaps.iter().map(|gap| gap.end - gap.start).sum();
        for _ in 0..VISITS_MAX {
            if self.room() >= wanted || !self.evict(Take::Unworthy) {
                break;
            }
        }
        if self.places.free() < wanted {
            self.release();
        }
        if self.places.free() < wanted {
            return false;
        }
        let table = &mut self.entries[entry as usize].table;
        for gap in gaps {
            // Behind the page before it, where that place is free.
            let before = gap.start.checked_sub(1).and_then(|page| table.find(page));
            let near = before.map(|run| run.places().end);
            let mut page = gap.start;
            for places in self.places.take(gap.end - gap.start, near).into_iter().flatten() {
                let end = page + (places.end - places.start);
                table.insert(Run::new(&(page..end), places.start));
                page = end;
            }
        }
        let bytes = bytes_of(table);
        if wanted > 0 && self.entries[entry as usize].flags & RANKED != 0 {
            self.policy.resize(entry, bytes);
        }
        true
    }

    /// Ends a fill. An entry without pages leaves then.
    pub(in crate::tier) fn end_fill(&mut self, entry: Slot, fill: Number) {
        self.fills.end(entry, fill);
        let held = &self.entries[entry as usize];
        let stays = held.flags & (HELD | LEAVING) == HELD && !self.pins.is_pinned(entry);
        if stays && !self.fills.has_any(entry) && !self.valid.has_any(entry) {
            self.leave(entry);
        }
    }

    /// Makes all pages of a unit invalid; its entry and its places are free once it has neither pins nor a mark.
    pub(in crate::tier) fn leave(&mut self, entry: Slot) {
        self.drop_pages(entry, &(0..self.size.pages));
        let held = &mut self.entries[entry as usize];
        if held.flags & RANKED != 0 {
            self.policy.remove(entry);
        }
        held.flags &= !RANKED;
        if held.flags & LEAVING == 0 {
            held.flags |= LEAVING;
            self.waiting += held.table.pages();
            self.leaving.push(entry);
        }
    }

    /// Visits the unit that is worth least; false if all units are in use.
    ///
    /// Where visits take little, the next ones take more.
    pub(in crate::tier) fn evict(&mut self, take: Take) -> bool {
        for _ in 0..PASSED_MAX {
            let Some(entry) = self.policy.evict() else { return false };
            let held = &self.entries[entry as usize];
            let begins = held.table.pages() == 0 && self.fills.has_any(entry);
            let (is_pinned, hash) = (self.pins.is_pinned(entry) || begins, key(held.unit));
            // What is dirty is only here.
            let is_pinned = is_pinned || (take == Take::Unit && self.has_dirty(entry));
            if !is_pinned && (take == Take::Unit || !self.trim(entry)) {
                self.entries[entry as usize].flags &= !RANKED;
                self.leave(entry);
                self.counted.evictions += 1;
                return true;
            }
            let bytes = bytes_of(&self.entries[entry as usize].table);
            self.policy.keep(entry, hash, bytes);
            if !is_pinned {
                return true;
            }
        }
        false
    }

    /// Takes the pages that are not worth their room from a unit that no reader, writer or fill uses; false if it has no others.
    fn trim(&mut self, entry: Slot) -> bool {
        self.uses.bring_up(entry);
        let (uses, dirty) = (&self.uses, &self.dirty);
        let stays = |page| dirty.has(entry, page) || uses.is_worth(entry, page);
        let had = self.valid.count(entry);
        let dropped = self.valid.retain(entry, stays);
        self.counted.cached_bytes -= u64::from(dropped) * PAGE;
        self.uses.visited(had, dropped);
        if dropped == had {
            return false;
        }
        let valid = &self.valid;
        let held = &mut self.entries[entry as usize];
        let lost = held.table.retain(|page| valid.has(entry, page));
        self.counted.trims += u64::from(!lost.is_empty());
        if self.is_marked(entry) {
            let pages = lost.iter().map(|places| places.end - places.start).sum::<u32>();
            self.waiting += pages;
            self.counted.deferred_pages += u64::from(pages);
            self.limbo.entry(entry).or_default().extend(lost);
        } else {
            lost.into_iter().for_each(|places| self.places.give(places));
        }
        true
    }

    /// Frees the places that marked entries lost and the entries that leave, where there are neither pins nor marks; returns
    /// the entries that have only a mark.
    pub(in crate::tier) fn release(&mut self) -> Vec<Slot> {
        let mut marked = Vec::new();
        for (entry, lost) in std::mem::take(&mut self.limbo) {
            // A trimmed unit has lost these without a reader: pins are for others of its places.
            if self.is_marked(entry) {
                marked.push(entry);
                self.limbo.insert(entry, lost);
                continue;
            }
            self.give_back(lost);
        }
        for entry in std::mem::take(&mut self.leaving) {
            let Entry { flags, .. } = self.entries[entry as usize];
            let is_pinned = self.pins.is_pinned(entry);
            if is_pinned || flags & (CURRENT | NEXT) != 0 {
                self.leaving.push(entry);
                if !is_pinned {
                    marked.push(entry);
                }
                continue;
            }
            self.unlink(entry);
            let held = &mut self.entries[entry as usize];
            held.flags = 0;
            let places = held.table.take();
            self.give_back(places);
            self.free.push(entry);
        }
        marked.sort_unstable();
        marked.dedup();
        marked
    }

    fn give_back(&mut self, places: Vec<Range<Place>>) {
        for places in places {
            self.waiting -= places.end - places.start;
            self.places.give(places);
        }
    }

    fn unlink(&mut self, entry: Slot) {
        self.fills.forget(entry);
        let bucket = self.bucket(self.entries[entry as usize].unit);
        let next = self.entries[entry as usize].next;
        let mut at = self.buckets[bucket];
        if at == entry {
            self.buckets[bucket] = next;
            return;
        }
        while self.entries[at as usize].next != entry {
            at = self.entries[at as usize].next;
        }
        self.entries[at as usize].next = next;
    }
}

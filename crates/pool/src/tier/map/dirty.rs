//! Pages whose newest bytes are only on the fast volume.
//!
//! ```text
//!             finish of a write            record            clean, behind a sync of the slow volume
//!   page ───────────────────────▶ dirty ──────────▶ recorded ──────────────▶ clean, still valid
//!                                   ▲ write │ begin_flush: what stays unchanged from here on may become clean
//! ```
//! A dirty page is valid, keeps its place, and its unit stays. It is *recorded* once the journal names it.

use std::ops::Range;

use policy::cache::Slot;
use policy::time::Instant;

use super::{LEAVING, Map, Unit};
use crate::tier::route::PAGE;
use crate::tier::sums::Sum;
use crate::tier::table::Run;

/// Some pages of one unit, and where they are.
#[derive(Clone, Debug)]
pub(in crate::tier) struct Pages {
    pub(in crate::tier) entry: Slot,
    pub(in crate::tier) unit: Unit,
    pub(in crate::tier) runs: Vec<Run>,
}

impl Map {
    /// The volume was given up: nothing becomes dirty here any more.
    pub(in crate::tier) const fn is_dead(&self) -> bool {
        self.is_dead
    }

    /// The volume is given up: returns all that is dirty.
    pub(in crate::tier) fn die(&mut self) -> Vec<Pages> {
        self.is_dead = true;
        let entries: Vec<_> = self.dirty_units.values().map(|(entry, _)| *entry).collect();
        entries.into_iter().map(|entry| self.dirty_pages(entry, &self.all())).collect()
    }

    const fn all(&self) -> Range<u32> {
        0..self.size.pages
    }

    pub(in crate::tier) fn has_dirty(&self, entry: Slot) -> bool {
        self.dirty.has_any(entry)
    }

    pub(in crate::tier) fn is_dirty(&self, entry: Slot, page: u32) -> bool {
        self.dirty.has(entry, page)
    }

    /// Whether a write of these pages changes nothing that a checkpoint says.
    pub(in crate::tier) fn are_dirty(&self, entry: Slot, pages: &Range<u32>) -> bool {
        self.dirty.has_all(entry, pages)
    }

    pub(in crate::tier) fn are_recorded(&self, entry: Slot, pages: &Range<u32>) -> bool {
        self.recorded.has_all(entry, pages)
    }

    /// The dirty pages of a range.
    pub(in crate::tier) fn dirty_pages(&self, entry: Slot, pages: &Range<u32>) -> Pages {
        self.only(entry, pages, |page| self.dirty.has(entry, page))
    }

    /// The recorded pages of a unit.
    pub(super) fn recorded_runs(&self, entry: Slot) -> Vec<Run> {
        self.only(entry, &self.all(), |page| self.recorded.has(entry, page)).runs
    }

    fn only(&self, entry: Slot, pages: &Range<u32>, wanted: impl Fn(u32) -> bool) -> Pages {
        let held = &self.entries[entry as usize];
        let runs = held.table.only(|page| pages.contains(&page) && wanted(page));
        Pages { entry, unit: held.unit, runs }
    }

    /// The dirty pages of an object's units that are not recorded.
    pub(in crate::tier) fn unrecorded(&self, object: u32, extents: Range<u32>) -> Vec<Pages> {
        let found = self.unrecorded.range((object, extents.start)..(object, extents.end));
        found
            .map(|(_, &entry)| {
                self.only(entry, &self.all(), |page| {
                    self.dirty.has(entry, page) && !self.recorded.has(entry, page)
                })
            })
            .collect()
    }

    /// Objects with dirty pages that are not recorded.
    pub(in crate::tier) fn unrecorded_objects(&self) -> Vec<u32> {
        let mut objects: Vec<_> = self.unrecorded.keys().map(|(object, _)| *object).collect();
        objects.dedup();
        objects
    }

    /// Dirty units, the one that is dirty for longest first.
    pub(in crate::tier) fn dirty_units(&self) -> impl Iterator<Item = Unit> + '_ {
        self.dirty_units.values().map(|&(entry, _)| self.entries[entry as usize].unit)
    }

    /// What becomes dirty from now on is so since `now`.
    pub(in crate::tier) const fn tick(&mut self, now: Instant) {
        self.now = now;
    }

    /// Since when the unit is dirty that is so for longest.
    pub(in crate::tier) fn dirty_since(&self) -> Option<Instant> {
        self.dirty_units.values().next().map(|(_, since)| *since)
    }

    /// A write to these pages begins: those that are valid are dirty from now on.
    pub(in crate::tier) fn begin_back(&mut self, entry: Slot, pages: &Range<u32>) {
        for page in pages.clone() {
            if self.valid.has(entry, page) {
                self.set_dirty(entry, &(page..page + 1));
            }
        }
        self.flushing.clear(entry, pages);
        self.set_sums(entry, pages, |_| None);
    }

    /// A write to these pages, which have these checksums now, ended: they are valid and dirty. False if the unit or the volume
    /// is given up.
    pub(in crate::tier) fn end_back(
        &mut self,
        entry: Slot,
        pages: &Range<u32>,
        sums: &[Sum],
    ) -> bool {
        if self.is_dead || self.entries[entry as usize].flags & LEAVING != 0 {
            return false;
        }
        self.set(entry, pages);
        self.set_dirty(entry, pages);
        self.see(entry, pages);
        self.flushing.clear(entry, pages);
        self.set_sums(entry, pages, |at| sums.get(at).copied().flatten());
        true
    }

    /// A write to these pages was given up.
    pub(in crate::tier) fn give_up_back(&mut self, entry: Slot, pages: &Range<u32>) {
        self.flushing.clear(entry, pages);
    }

    /// The checksum of a dirty page.
    pub(in crate::tier) fn sum(&self, entry: Slot, page: u32) -> Sum {
        self.entries[entry as usize].sums.as_ref().and_then(|sums| sums[page as usize])
    }

    fn set_sums(&mut self, entry: Slot, pages: &Range<u32>, sum: impl Fn(usize) -> Sum) {
        if let Some(sums) = &mut self.entries[entry as usize].sums {
            let sums = &mut sums[pages.start as usize..pages.end as usize];
            sums.iter_mut().enumerate().for_each(|(at, of)| *of = sum(at));
        }
    }

    fn set_dirty(&mut self, entry: Slot, pages: &Range<u32>) {
        let new = self.dirty.set(entry, pages);
        self.counted.dirty_bytes += u64::from(new) * PAGE;
        if new > 0 {
            let since = &mut self.entries[entry as usize].dirty_since;
            if *since == 0 {
                self.last_dirty += 1;
                *since = self.last_dirty;
                self.dirty_units.insert(self.last_dirty, (entry, self.now));
            }
            let pages = self.size.pages as usize;
            let held = &mut self.entries[entry as usize];
            held.sums.get_or_insert_with(|| vec![None; pages].into());
            self.unrecorded.insert((held.unit.object, held.unit.extent), entry);
        }
    }

    /// What an opening found dirty.
    pub(super) fn restore_dirty(&mut self, entry: Slot, runs: &[Run]) {
        for run in runs {
            self.set_dirty(entry, &run.pages());
            self.recorded.set(entry, &run.pages());
        }
        self.note_recorded(entry);
    }

    /// Of some pages, those that are dirty at these places and not recorded.
    pub(in crate::tier) fn to_record(&self, pages: &Pages) -> Option<Pages> {
        let held = &self.entries[pages.entry as usize];
        if held.unit != pages.unit {
            return None;
        }
        let place = |runs: &[Run], page| {
            let run = runs.iter().find(|run| run.pages().contains(&page))?;
            Some(run.place_of(page))
        };
        let found = self.only(pages.entry, &self.all(), |page| {
            let own = held.table.find(page).map(|run| run.place_of(page));
            self.dirty.has(pages.entry, page)
                && !self.recorded.has(pages.entry, page)
                && own == place(&pages.runs, page)
        });
        (!found.runs.is_empty()).then_some(found)
    }

    /// The journal names these pages. No page of theirs became clean meanwhile.
    pub(in crate::tier) fn set_recorded(&mut self, pages: &Pages) {
        for run in &pages.runs {
            self.recorded.set(pages.entry, &run.pages());
        }
        self.note_recorded(pages.entry);
    }

    fn note_recorded(&mut self, entry: Slot) {
        let unit = self.entries[entry as usize].unit;
        let is_left = (0..self.size.pages)
            .any(|page| self.dirty.has(entry, page) && !self.recorded.has(entry, page));
        if !is_left {
            self.unrecorded.remove(&(unit.object, unit.extent));
        }
    }

    /// A flush reads these pages now: those that no write touches from here on may become clean.
    pub(in crate::tier) fn begin_flush(&mut self, pages: &Pages) {
        for run in &pages.runs {
            self.flushing.set(pages.entry, &run.pages());
        }
    }

    /// Of pages that were flushed, those that did not change, and of these the recorded ones.
    pub(in crate::tier) fn flushed(&self, pages: &Pages) -> (Pages, Vec<Run>) {
        let wanted = |page| {
            pages.runs.iter().any(|run| run.pages().contains(&page))
                && self.flushing.has(pages.entry, page)
                && self.dirty.has(pages.entry, page)
        };
        let unchanged = self.only(pages.entry, &self.all(), wanted);
        let recorded = self.only(pages.entry, &self.all(), |page| {
            wanted(page) && self.recorded.has(pages.entry, page)
        });
        (unchanged, recorded.runs)
    }

    /// These pages are as on the slow volume. A fill of them that began before may have older bytes: it is void.
    pub(in crate::tier) fn set_clean(&mut self, pages: &Pages) {
        let entry = pages.entry;
        for run in &pages.runs {
            let cleaned = self.dirty.clear(entry, &run.pages());
            self.counted.dirty_bytes -= u64::from(cleaned) * PAGE;
            self.recorded.clear(entry, &run.pages());
            self.flushing.clear(entry, &run.pages());
            self.fills.void(entry, &run.pages());
        }
        if !self.dirty.has_any(entry) {
            let since = std::mem::take(&mut self.entries[entry as usize].dirty_since);
            self.dirty_units.remove(&since);
            self.entries[entry as usize].sums = None;
        }
        self.note_recorded(entry);
    }

    /// Whether no write has touched a page since a flush of it began.
    pub(in crate::tier) fn is_flushing(&self, entry: Slot, page: u32) -> bool {
        self.flushing.has(entry, page)
    }

    /// Drops what is clean of a unit.
    pub(in crate::tier) fn drop_clean(&mut self, entry: Slot) {
        for page in 0..self.size.pages {
            if self.valid.has(entry, page) && !self.dirty.has(entry, page) {
                self.drop_pages(entry, &(page..page + 1));
            }
        }
    }
}

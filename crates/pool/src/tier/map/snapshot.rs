//! What a checkpoint says of the units, collected some at a time, so that readers need not wait for all of it.

use super::super::record::{self, Placed};
use super::{HELD, Map, NEXT, Unit};

/// Bytes of units that one checkpoint names at most: its frame must be below 4 GiB.
const NAMED_MAX: usize = 2 << 30;
/// The units that were collected so far.
pub(in crate::tier) struct Snapshot {
    /// With the number of their object.
    pub(in crate::tier) units: Vec<(u32, Placed)>,
    bytes: usize,
    /// Units with recorded dirty pages come first: they must find room.
    are_dirty: bool,
    next: usize,
}

impl Map {
    pub(in crate::tier) fn begin_snapshot(&mut self) -> Snapshot {
        self.entries.iter_mut().for_each(|entry| entry.flags &= !NEXT);
        Snapshot { units: Vec::new(), bytes: 0, are_dirty: true, next: 0 }
    }

    /// Adds some of the units with recorded dirty pages, and of those with clean pages for which `counts` holds; marks the latter
    /// for the checkpoint that is written now. False if there are no more. From the begin to the end, what is recorded must stay
    /// so, and no doubt be made.
    pub(in crate::tier) fn add_to(
        &mut self,
        snapshot: &mut Snapshot,
        counts: impl Fn(Unit) -> bool,
    ) -> bool {
        let end = self.entries.len().min(snapshot.next + self.size.at_once as usize);
        for at in snapshot.next..end {
            if self.recorded.has_any(at as u32) == snapshot.are_dirty
                && !self.add_unit(at, snapshot, &counts)
            {
                return false;
            }
        }
        snapshot.next = end;
        if end == self.entries.len() && snapshot.are_dirty {
            (snapshot.are_dirty, snapshot.next) = (false, 0);
            return true;
        }
        end < self.entries.len()
    }

    /// False if it does not fit.
    fn add_unit(&mut self, at: usize, into: &mut Snapshot, counts: impl Fn(Unit) -> bool) -> bool {
        let (held, entry) = (&self.entries[at], at as u32);
        if held.flags & HELD == 0 || !self.valid.has_any(entry) {
            return true;
        }
        let dirty = if into.are_dirty { self.recorded_runs(entry) } else { Vec::new() };
        let is_clean = |page| self.valid.has(entry, page) && !self.dirty.has(entry, page);
        let runs = if counts(held.unit) { held.table.only(is_clean) } else { Vec::new() };
        if runs.is_empty() && dirty.is_empty() {
            return true;
        }
        into.bytes += record::unit_bytes(runs.len() + dirty.len());
        if into.bytes > NAMED_MAX {
            return false;
        }
        let Unit { object, extent } = held.unit;
        if !runs.is_empty() {
            self.entries[at].flags |= NEXT;
        }
        into.units.push((object, Placed { extent, entry, runs, dirty }));
        true
    }
}

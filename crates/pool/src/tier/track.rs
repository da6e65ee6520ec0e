//! An object of the slow volume as the tier follows it: changes under way, and bytes that a crash may still lose.
//!
//! A crash may take back bytes that no sync covered. If the fast volume had them, and said so after the crash, a read
//! would give them until their eviction, and the older bytes of the slow volume afterwards. So a checkpoint leaves out
//! every unit with such bytes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use volume::ranges::Ranges;
use volume::{Name, Object};

use super::reads::Reads;
use super::stale::Stale;

/// A change of more units than this is remembered as one of everything from its beginning on.
const UNITS_MAX: u32 = 64;

/// No sync makes it known what a crash leaves.
const NEVER: u32 = u32::MAX;

pub(super) struct Track {
    pub(super) name: Name,
    /// The object's number in the map, for as long as the tier is open.
    pub(super) number: u32,
    /// Changes of bytes, in whole pages.
    pub(super) changes: Ranges,
    pub(super) reads: Reads,
    /// The object is not cached any more: it was removed, or perhaps was.
    bypass: AtomicBool,
    unsynced: Mutex<Unsynced>,
    /// Writes to it may stay on the fast volume.
    pub(super) is_in_place: bool,
    /// Flushes, and changes of the slow volume.
    pub(super) flushes: Ranges,
    slow: Mutex<Option<Weak<dyn Object>>>,
    has_stale: AtomicBool,
    stale: Mutex<Stale>,
    /// Bytes that no sync covered are stale, and no sync has said so.
    lost: AtomicBool,
    /// Writes that stayed on the fast volume, and those of them that are durable.
    written: AtomicU64,
    committed: AtomicU64,
    /// Bytes that the slow volume has after a crash, 0 before the first sync; and how often the length was cut.
    durable_len: Mutex<(u64, u64)>,
}

#[derive(Default)]
struct Unsynced {
    /// Syncs that have begun.
    syncs: u32,
    units: BTreeMap<u32, Mark>,
    /// Every unit from this one on.
    tail: Option<(u32, Mark)>,
}

#[derive(Clone, Copy, Default)]
struct Mark {
    /// Changes under way.
    changing: u32,
    /// The first sync that covers the last change; 0 if there was none.
    covered_by: u32,
}

impl Mark {
    const fn is_over(self, sync: u32) -> bool {
        self.changing == 0 && self.covered_by <= sync
    }
}

/// How a change ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ended {
    /// Its bytes are durable.
    Durable,
    /// A sync that begins now makes them durable.
    Written,
    /// It failed or was given up.
    Unknown,
}

/// A change under way. If it is dropped, its end is unknown.
pub(super) struct Changing {
    track: Arc<Track>,
    units: Range<u32>,
    ended: Ended,
}

impl Track {
    pub(super) fn new(name: Name, number: u32) -> Self {
        Self {
            is_in_place: name.as_str().ends_with(crate::leaf::IN_PLACE),
            name,
            number,
            changes: Ranges::default(),
            reads: Reads::default(),
            bypass: AtomicBool::new(false),
            unsynced: Mutex::default(),
            flushes: Ranges::default(),
            slow: Mutex::default(),
            has_stale: AtomicBool::new(false),
            stale: Mutex::default(),
            lost: AtomicBool::new(false),
            written: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            durable_len: Mutex::default(),
        }
    }

    /// The object of the slow volume, if a user has it open.
    pub(super) fn slow(&self) -> Option<Arc<dyn Object>> {
        self.slow.lock().as_ref().and_then(Weak::upgrade)
    }

    pub(super) fn set_slow(&self, slow: &Arc<dyn Object>) {
        *self.slow.lock() = Some(Arc::downgrade(slow));
    }

    /// Changes what is stale; returns what `change` does.
    pub(super) fn with_stale<T>(&self, change: impl FnOnce(&mut Stale) -> T) -> T {
        let mut stale = self.stale.lock();
        let done = change(&mut stale);
        self.has_stale.store(!stale.is_empty(), Ordering::Release);
        done
    }

    /// Stale bytes of a range.
    pub(super) fn stale_in(&self, range: &Range<u64>) -> Option<Range<u64>> {
        self.has_stale.load(Ordering::Acquire).then(|| self.stale.lock().find(range))?
    }

    /// A fast volume with dirty bytes of the object was lost.
    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Whether bytes were lost since this was asked last.
    pub(super) fn take_lost(&self) -> bool {
        self.lost.swap(false, Ordering::AcqRel)
    }

    /// A write has ended that stays on the fast volume.
    pub(super) fn written_back(&self) {
        self.written.fetch_add(1, Ordering::AcqRel);
    }

    /// Writes that stayed on the fast volume so far, if some of them are not known to be durable.
    pub(super) fn uncommitted(&self) -> Option<u64> {
        let written = self.written.load(Ordering::Acquire);
        (self.committed.load(Ordering::Acquire) < written).then_some(written)
    }

    pub(super) fn committed(&self, written: u64) {
        self.committed.fetch_max(written, Ordering::AcqRel);
    }

    pub(super) fn durable_len(&self) -> u64 {
        self.durable_len.lock().0
    }

    /// How often the length was cut, for [`Track::set_durable_len`].
    pub(super) fn cuts(&self) -> u64 {
        self.durable_len.lock().1
    }

    /// A sync of the slow volume has made this length durable, if it was not cut since.
    pub(super) fn set_durable_len(&self, len: u64, cuts: u64) {
        let mut durable = self.durable_len.lock();
        if durable.1 == cuts {
            durable.0 = len;
        }
    }

    /// The length is about to change to this one.
    pub(super) fn cut_durable_len(&self, len: u64) {
        let mut durable = self.durable_len.lock();
        *durable = (durable.0.min(len), durable.1 + 1);
    }

    /// Whether no sync has ended since the opening.
    pub(super) fn is_unknown(&self) -> bool {
        self.durable_len() == 0 && self.unsynced.lock().syncs == 0
    }

    /// Whether the slow volume has nothing that a sync would make durable, as far as this process knows.
    pub(super) fn is_all_synced(&self) -> bool {
        let unsynced = self.unsynced.lock();
        unsynced.syncs > 0 && unsynced.tail.is_none() && unsynced.units.is_empty()
    }

    pub(super) fn is_bypassed(&self) -> bool {
        self.bypass.load(Ordering::Acquire)
    }

    pub(super) fn bypass(&self) {
        self.bypass.store(true, Ordering::Release);
    }

    /// A change of these units begins.
    pub(super) fn change(self: &Arc<Self>, units: Range<u32>) -> Changing {
        self.unsynced.lock().each(&units, |mark| mark.changing += 1);
        Changing { track: Arc::clone(self), units, ended: Ended::Unknown }
    }

    /// A sync begins; returns its number.
    pub(super) fn sync_begins(&self) -> u32 {
        let mut unsynced = self.unsynced.lock();
        unsynced.syncs += 1;
        unsynced.syncs
    }

    /// A sync succeeded.
    pub(super) fn synced(&self, sync: u32) {
        let mut unsynced = self.unsynced.lock();
        unsynced.units.retain(|_, mark| !mark.is_over(sync));
        unsynced.tail = unsynced.tail.filter(|(_, mark)| !mark.is_over(sync));
    }

    /// Whether a crash leaves the bytes of a unit as they are.
    pub(super) fn is_synced(&self, unit: u32) -> bool {
        let unsynced = self.unsynced.lock();
        let in_tail = unsynced.tail.is_some_and(|(from, _)| unit >= from);
        !in_tail && !unsynced.units.contains_key(&unit)
    }
}

impl Unsynced {
    fn each(&mut self, units: &Range<u32>, mut apply: impl FnMut(&mut Mark)) {
        if units.end - units.start <= UNITS_MAX {
            units.clone().for_each(|unit| apply(self.units.entry(unit).or_default()));
            return;
        }
        let (from, mark) = self.tail.get_or_insert((units.start, Mark::default()));
        *from = (*from).min(units.start);
        apply(mark);
    }
}

impl Changing {
    pub(super) fn end(mut self, ended: Ended) {
        self.ended = ended;
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        let mut unsynced = self.track.unsynced.lock();
        let covered_by = match self.ended {
            Ended::Durable => 0,
            Ended::Written => unsynced.syncs + 1,
            Ended::Unknown => NEVER,
        };
        let mut is_clean = false;
        unsynced.each(&self.units, |mark| {
            mark.changing -= 1;
            mark.covered_by = mark.covered_by.max(covered_by);
            is_clean |= mark.is_over(0);
        });
        if is_clean {
            unsynced.units.retain(|_, mark| !mark.is_over(0));
            unsynced.tail = unsynced.tail.filter(|(_, mark)| !mark.is_over(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn track() -> Arc<Track> {
        Arc::new(Track::new(Name::new("a").unwrap(), 1))
    }

    #[test]
    fn only_a_sync_that_begins_after_a_change_covers_it() {
        let track = track();
        let change = track.change(3..4);
        let early = track.sync_begins();
        change.end(Ended::Written);
        track.synced(early);
        assert!(!track.is_synced(3) && track.is_synced(2));
        let late = track.sync_begins();
        track.synced(late);
        assert!(track.is_synced(3));
    }

    #[test]
    fn a_durable_change_needs_no_sync_and_covers_no_other() {
        let track = track();
        track.change(0..1).end(Ended::Durable);
        assert!(track.is_synced(0));
        track.change(0..1).end(Ended::Written);
        track.change(0..1).end(Ended::Durable);
        assert!(!track.is_synced(0));
    }

    #[test]
    fn a_change_that_was_given_up_is_never_covered() {
        let track = track();
        drop(track.change(0..2));
        let sync = track.sync_begins();
        track.synced(sync);
        assert!(!track.is_synced(1));
    }

    #[test]
    fn a_large_change_covers_what_follows_it() {
        let track = track();
        track.change(10..1000).end(Ended::Written);
        assert!(track.is_synced(9) && !track.is_synced(10) && !track.is_synced(2000));
        let sync = track.sync_begins();
        track.synced(sync);
        assert!(track.is_synced(2000));
    }
}

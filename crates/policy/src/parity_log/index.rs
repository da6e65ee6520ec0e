//! What a parity server's journal has of one data strip, by range of bytes.
//!
//! A range is in up to three maps. *Originals* has its base: the value that the parity strip on disk counts; where it has
//! none, that is the value which the data strip holds. *Settled* has the newest value that is complete: in place on the data
//! server. *Tentative* has a value that may yet be discarded. So the current value is the first of tentative, settled and
//! originals that the range has, and the parity that fits it is
//!
//! ```text
//!   parity on disk + sum over strips of coefficient * (current - original)
//! ```
//!
//! All of it can be had from the journal's records, in their order, and the parity strip's header.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::intervals::Intervals;
use super::record::{Lsn, Request, Version};
use super::rules::{Rule, Rules};

/// Where the journal has the value of a range.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    /// The record.
    pub lsn: Lsn,
    /// The offset in the strip of the first byte of the record's payload.
    pub start: u64,
    /// The version of the value; the lowest one for a value before a write.
    pub version: Version,
    /// The oldest record that a restart needs to find this place: that of the write for a value before it, else the record
    /// itself.
    pub pin: Lsn,
}

/// A value that may yet be discarded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Tentative {
    place: Place,
    request: Request,
}

/// A value that is complete.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Settled {
    place: Place,
    /// No data record of the range before this one is newer than its base.
    since: Lsn,
}

/// A change of a range that a merge brings to the parity strip.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Delta {
    /// The data strip.
    pub strip: usize,
    /// The bytes of the strip.
    pub range: Range<u64>,
    /// Their newest value.
    pub new: Place,
    /// The value that the parity strip counts.
    pub old: Place,
}

/// What a parity server has of a data strip, for a data server that restarts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// All lower versions are complete.
    pub below: Version,
    /// The epoch of [`Answer::Logged`](super::message::Answer::Logged).
    pub epoch: u64,
    /// Values that may yet be discarded.
    pub tentative: Vec<Unsettled>,
    /// The versions of other values, by range.
    pub held: Vec<(Range<u64>, Version)>,
    /// Ranges whose value before is known.
    pub covered: Vec<Range<u64>>,
}

/// A value that may yet be discarded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unsettled {
    /// The bytes of the strip.
    pub range: Range<u64>,
    /// Where the journal has them.
    pub place: Place,
    /// The client's request.
    pub request: Request,
    /// Whether the value before is known, too.
    pub is_effective: bool,
}

/// The index of one data strip.
#[derive(Clone, Debug, Default)]
pub struct Index {
    originals: Intervals<Place>,
    settled: Intervals<Settled>,
    tentative: Intervals<Tentative>,
    below: Version,
    discarded: BTreeSet<Version>,
    /// Journal bytes that are kept free for each version that may need more records.
    reserved: BTreeMap<Version, u64>,
    rules: Rules,
}

impl Index {
    pub(super) fn new(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Whether a copy of this write needs no record: it is complete, or was discarded.
    #[must_use]
    pub fn is_over(&self, version: Version) -> bool {
        version < self.below && self.rules.keep(Rule::Monotone)
    }

    /// Whether the write was discarded.
    #[must_use]
    pub fn is_discarded(&self, version: Version) -> bool {
        self.discarded.contains(&version)
    }

    /// Whether the journal has this version of the range, or a newer one.
    #[must_use]
    pub fn has(&self, version: Version, range: &Range<u64>) -> bool {
        let mut known = Intervals::default();
        let newer = |place: Place| place.version >= version;
        for (part, found) in self.tentative.within(range.clone()) {
            if newer(found.place) {
                known.insert(part, ());
            }
        }
        for (part, _) in self.older(range.clone()).filter(|&(_, place)| newer(place)) {
            known.insert(part, ());
        }
        self.rules.keep(Rule::Monotone) && known.gaps(range.clone()).is_empty()
    }

    /// Where the value before this write is needed.
    #[must_use]
    pub fn gaps(&self, version: Version) -> Vec<Range<u64>> {
        if !self.rules.keep(Rule::Coverage) {
            return Vec::new();
        }
        self.tentative
            .iter()
            .filter(|(_, found)| found.place.version == version)
            .flat_map(|(range, _)| self.originals.gaps(range))
            .collect()
    }

    /// A new value is durable. Older values of its range are complete: their lock was released.
    pub fn add_data(
        &mut self,
        lsn: Lsn,
        version: Version,
        below: Version,
        request: Request,
        range: &Range<u64>,
    ) {
        self.settle(below);
        let mut free = Intervals::default();
        free.insert(range.clone(), ());
        if self.rules.keep(Rule::Monotone) {
            for (part, found) in self.tentative.within(range.clone()) {
                if found.place.version >= version {
                    free.remove(part);
                }
            }
            for (part, place) in self.older(range.clone()) {
                if place.version >= version {
                    free.remove(part);
                }
            }
        }
        let place = Place { lsn, start: range.start, version, pin: lsn };
        for (part, ()) in free.iter() {
            let before: Vec<_> = self.tentative.within(part.clone()).collect();
            for (part, found) in before {
                put(&mut self.settled, &part, found.place);
            }
            self.tentative.insert(part, Tentative { place, request });
        }
    }

    /// A value before the write of `version` is durable.
    pub fn add_original(&mut self, lsn: Lsn, version: Version, range: &Range<u64>) {
        let waiting: Vec<_> = self.tentative.within(range.clone()).collect();
        for (part, found) in waiting {
            let once = self.rules.keep(Rule::OriginalOnce);
            if found.place.version != version && once {
                continue;
            }
            let gaps = if once { self.originals.gaps(part) } else { vec![part] };
            for gap in gaps {
                let pin = found.place.pin;
                let place = Place { lsn, start: range.start, version: Version::default(), pin };
                self.originals.insert(gap, place);
            }
        }
    }

    /// The write never happened.
    pub fn discard(&mut self, version: Version) {
        self.tentative.retain(|_, found| found.place.version != version);
        self.reserved.remove(&version);
        if self.rules.keep(Rule::Discarded) {
            self.discarded.insert(version);
        }
    }

    /// All lower versions are complete. Says whether that is news.
    pub fn settle(&mut self, below: Version) -> bool {
        if below <= self.below {
            return false;
        }
        self.below = below;
        self.discarded.retain(|&version| version >= below);
        self.reserved.retain(|&version, _| version >= below);
        let settled = &mut self.settled;
        self.tentative.retain(|range, found| {
            let is_tentative = found.place.version >= below;
            if !is_tentative {
                put(settled, &range, found.place);
            }
            is_tentative
        });
        true
    }

    /// All lower versions are complete.
    #[must_use]
    pub fn below(&self) -> Version {
        self.below
    }

    /// Keeps journal bytes free for the records that a write may yet need.
    pub fn reserve(&mut self, version: Version, bytes: u64) {
        self.reserved.insert(version, bytes);
    }

    /// Bytes that [`Index::reserve`] keeps free.
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved.values().sum()
    }

    /// The number of ranges that a merge would take from memory.
    #[must_use]
    pub fn unmerged(&self) -> usize {
        self.settled.len()
    }

    /// Whether the write may yet be discarded.
    #[must_use]
    pub fn is_tentative(&self, version: Version) -> bool {
        self.tentative.iter().any(|(_, found)| found.place.version == version)
    }

    /// The oldest record of a value that may yet be discarded. A merge ends before it.
    #[must_use]
    pub fn first_tentative(&self) -> Option<Lsn> {
        self.tentative.iter().map(|(_, found)| found.place.lsn).min()
    }

    /// Where a merge up to `upto` has to end, so that it leaves no range out that has records before its end. A restart takes
    /// all of them as merged.
    #[must_use]
    pub fn merge_end(&self, upto: Lsn) -> Lsn {
        let mut end = upto;
        loop {
            let split = self.settled.iter().filter(|(_, it)| it.place.lsn > end && it.since <= end);
            match split.map(|(_, it)| it.since).min() {
                Some(since) => end = since - 1,
                None => return end,
            }
        }
    }

    /// The oldest record that a restart needs.
    #[must_use]
    pub fn oldest(&self) -> Option<Lsn> {
        let settled = self.settled.iter().map(|(_, found)| found.place.pin);
        let originals = self.originals.iter().map(|(_, place)| place.pin);
        self.tentative
            .iter()
            .map(|(_, found)| found.place.pin)
            .chain(settled)
            .chain(originals)
            .min()
    }

    /// What a merge up to `upto` changes.
    #[must_use]
    pub fn deltas(&self, strip: usize, upto: Lsn) -> Vec<Delta> {
        let mut deltas = Vec::new();
        let mut add = |range: Range<u64>, new: Place| {
            for (range, old) in self.originals.within(range) {
                deltas.push(Delta { strip, range, new, old });
            }
        };
        for (range, found) in self.settled.iter().filter(|(_, found)| found.place.lsn <= upto) {
            add(range, found.place);
        }
        if !self.rules.keep(Rule::MergeSettled) {
            for (range, found) in self.tentative.iter() {
                add(range, found.place);
            }
        }
        deltas
    }

    /// The parity strip counts the delta now. Its new value stays as the base (a *promoted original*), so that the next
    /// write of the range needs no value before it.
    pub fn promote(&mut self, delta: &Delta, upto: Lsn) {
        self.originals.insert(delta.range.clone(), delta.new);
        let merged: Vec<_> = self.settled.within(delta.range.clone()).collect();
        for (part, found) in merged {
            self.settled.remove(part.clone());
            if found.place.lsn > delta.new.lsn {
                // It came while the strip was written.
                let since = found.since.max(upto + 1);
                self.settled.insert(part, Settled { since, ..found });
            }
        }
        if !self.rules.keep(Rule::MergeSettled) {
            self.tentative.retain(|_, found| found.place != delta.new);
        }
    }

    /// In a restart, when the records up to `upto` were added and the header says that they are merged. A later record
    /// discards the writes in `doomed`: the merge left them out.
    pub fn promote_all(&mut self, upto: Lsn, doomed: &BTreeSet<Version>) {
        let tentative = std::mem::take(&mut self.tentative);
        let settled = std::mem::take(&mut self.settled);
        for (range, found) in settled.iter() {
            debug_assert!(found.place.lsn <= upto, "a record behind the merge");
            self.originals.insert(range, found.place);
        }
        for (range, found) in tentative.iter() {
            if doomed.contains(&found.place.version) {
                self.tentative.insert(range, found);
            } else {
                self.originals.insert(range, found.place);
            }
        }
    }

    /// Forgets base values that records up to `upto` hold. `None`: a range of these records is needed, since it has a newer
    /// value that is not merged, or its version is not below `below`, that of the header. Else says whether there were any.
    pub fn forget(&mut self, upto: Lsn, below: Version) -> Option<bool> {
        let below = if self.rules.keep(Rule::DurableBelow) { below } else { self.below };
        let needed = self.tentative.iter().any(|(_, found)| found.place.pin <= upto)
            || self.settled.iter().any(|(_, found)| found.place.pin <= upto)
            || self.originals.iter().any(|(range, place)| {
                place.pin <= upto
                    && (place.version >= below
                        || self.settled.within(range.clone()).next().is_some()
                        || self.tentative.within(range).next().is_some())
            });
        if needed {
            return None;
        }
        let before = self.originals.len();
        self.originals.retain(|_, place| place.pin > upto);
        Some(self.originals.len() < before)
    }

    /// The current value of a range, where the journal has it: ascending.
    #[must_use]
    pub fn current(&self, range: Range<u64>) -> Vec<(Range<u64>, Place)> {
        let mut current = Intervals::default();
        for (part, place) in self.older(range.clone()) {
            current.insert(part, place);
        }
        for (part, found) in self.tentative.within(range) {
            for (part, _) in self.originals.within(part) {
                current.insert(part, found.place);
            }
        }
        current.iter().collect()
    }

    /// How the current value of a range differs from its base: what a merge of everything would change.
    #[must_use]
    pub fn changes(&self, strip: usize, range: Range<u64>) -> Vec<Delta> {
        let mut changes = Vec::new();
        for (part, new) in self.current(range) {
            for (range, old) in self.originals.within(part).filter(|&(_, old)| old != new) {
                changes.push(Delta { strip, range, new, old });
            }
        }
        changes
    }

    /// The base of a range, where the journal has it: ascending.
    #[must_use]
    pub fn base(&self, range: Range<u64>) -> Vec<(Range<u64>, Place)> {
        self.originals.within(range).collect()
    }

    /// What a data server that restarts needs to know.
    #[must_use]
    pub fn report(&self, epoch: u64) -> Report {
        let tentative = self.tentative.iter().map(|(range, found)| Unsettled {
            is_effective: self.originals.gaps(range.clone()).is_empty(),
            range,
            place: found.place,
            request: found.request,
        });
        let held = self.older(0..u64::MAX);
        Report {
            below: self.below,
            epoch,
            tentative: tentative.collect(),
            held: held.map(|(range, place)| (range, place.version)).collect(),
            covered: self.originals.iter().map(|(range, _)| range).collect(),
        }
    }

    /// Values that are not tentative: bases, then complete ones.
    fn older(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, Place)> + '_ {
        let settled = self.settled.within(range.clone()).map(|(part, found)| (part, found.place));
        self.originals.within(range).chain(settled)
    }

    /// Checks I1, and I5 on what is in memory. For tests.
    #[cfg(test)]
    pub(super) fn check(&self) -> Result<(), String> {
        for (range, Settled { place, .. }) in self.settled.iter() {
            if !self.originals.gaps(range.clone()).is_empty() {
                return Err(format!("I1: {range:?} {place:?} has no base"));
            }
            for (_, base) in self.originals.within(range.clone()) {
                if base.version >= place.version {
                    return Err(format!("I5: {range:?} {place:?} is merged already as {base:?}"));
                }
            }
        }
        for (range, found) in self.tentative.iter() {
            for (_, Settled { place: older, .. }) in self.settled.within(range.clone()) {
                if older.version >= found.place.version || older.lsn >= found.place.lsn {
                    return Err(format!("I5: {range:?} {found:?} lies over {older:?}"));
                }
            }
        }
        Ok(())
    }
}

/// A complete value takes the place of an older one.
fn put(settled: &mut Intervals<Settled>, range: &Range<u64>, place: Place) {
    let before: Vec<_> = settled.within(range.clone()).collect();
    settled.insert(range.clone(), Settled { place, since: place.lsn });
    for (part, older) in before {
        settled.insert(part, Settled { place, since: older.since });
    }
}

//! A write in progress.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::super::intervals::Intervals;
use super::super::message::Ask;
use super::super::record::{Piece, Request, Version};
use super::super::rules::Rule;
use super::{Data, Effect, Known, Outcome, Owner};

#[derive(Debug)]
pub(super) struct Write {
    request: Request,
    piece: Piece,
    stage: Stage,
    /// The client was answered before the strip was durable.
    is_answered: bool,
    /// Parity servers whose answer is missing.
    waiting: BTreeSet<usize>,
    /// Where they need the value before.
    needs: BTreeMap<usize, Vec<Range<u64>>>,
    /// The value before, as far as it was read.
    originals: Vec<Piece>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// The value before is being read, since a parity server is known to need it.
    ReadingFirst,
    /// On its way to the journals.
    Logging,
    /// As [`Stage::Logging`], and the value before is being read.
    Reading,
    /// On its way to the strip.
    Writing,
    /// On its way out of the journals.
    Discarding,
}

impl Write {
    /// What to send again.
    pub(super) fn unanswered(&self, version: Version, below: Version) -> Vec<(usize, Ask)> {
        let ask = |parity: usize| match (self.stage, self.needs.get(&parity)) {
            (Stage::Discarding, _) => Some(Ask::Discard(version)),
            (Stage::Logging | Stage::Reading, None) => {
                let originals = self.originals.clone();
                let (request, piece) = (self.request, self.piece.clone());
                Some(Ask::Log { version, below, request, piece, originals })
            }
            (Stage::Logging, Some(gaps)) => Some(self.original(version, gaps)?),
            (Stage::ReadingFirst | Stage::Reading | Stage::Writing, _) => None,
        };
        self.waiting.iter().filter_map(|&parity| Some((parity, ask(parity)?))).collect()
    }

    /// The value before of these ranges, if it was read.
    fn original(&self, version: Version, gaps: &[Range<u64>]) -> Option<Ask> {
        let cut = |gap: &Range<u64>| {
            let has =
                |piece: &&Piece| piece.range().start <= gap.start && gap.end <= piece.range().end;
            let piece = self.originals.iter().find(has)?;
            Some(Piece::new(gap.start, piece.slice(gap)))
        };
        let pieces = gaps.iter().map(cut).collect::<Option<_>>()?;
        Some(Ask::Original { version, pieces })
    }

    /// Whether a parity server needs a value before that was not read.
    fn lacks_original(&self, version: Version) -> bool {
        self.needs.values().any(|gaps| self.original(version, gaps).is_none())
    }

    /// Servers that left are not waited for.
    pub(super) fn change_view(&mut self, parities: &BTreeSet<usize>) {
        self.waiting.retain(|parity| parities.contains(parity));
        self.needs.retain(|parity, _| parities.contains(parity));
    }
}

impl Data {
    /// The range is locked.
    pub(super) fn start(&mut self, request: Request, piece: Piece) {
        let version = Version { view: self.view, number: self.next };
        self.next += 1;
        let misses = self
            .known
            .iter()
            .filter(|(parity, known)| known.is_complete && self.parities.contains(parity));
        let gaps = union(misses.flat_map(|(_, known)| known.covered.gaps(piece.range())));
        let stage = if gaps.is_empty() { Stage::Logging } else { Stage::ReadingFirst };
        let waiting = self.parities.clone();
        let (needs, originals) = (BTreeMap::new(), Vec::new());
        let is_answered = false;
        let write = Write { request, piece, stage, is_answered, waiting, needs, originals };
        self.writes.insert(version, write);
        if stage == Stage::ReadingFirst {
            self.effects.push(Effect::ReadStrip { version, ranges: gaps });
        } else {
            self.send_write(version);
        }
        self.advance(version);
    }

    fn send_write(&mut self, version: Version) {
        let asks = self.writes[&version].unanswered(version, self.below());
        for (parity, ask) in asks {
            self.send(parity, ask);
        }
    }

    /// Goes on, if the last answer was waited for.
    pub(super) fn advance(&mut self, version: Version) {
        let early = !self.rules.keep(Rule::Everywhere);
        let Some(write) = self.writes.get_mut(&version) else { return };
        let is_missing = |parity: &usize| !write.needs.contains_key(parity);
        match write.stage {
            Stage::Logging | Stage::Reading
                if write.waiting.is_empty()
                    || early && write.waiting.len() < self.parities.len() =>
            {
                write.stage = Stage::Writing;
                let piece = write.piece.clone();
                self.effects.push(Effect::WriteStrip { version, piece });
            }
            Stage::Logging
                if write.lacks_original(version) && !write.waiting.iter().any(is_missing) =>
            {
                // All that are waited for need the value before: one read serves them.
                let gaps = union(write.needs.values().flatten().cloned());
                write.stage = Stage::Reading;
                self.effects.push(Effect::ReadStrip { version, ranges: gaps });
            }
            Stage::Discarding if write.waiting.is_empty() => {
                let request = write.request;
                self.note(request, Outcome::Busy);
                self.end(version);
                self.answer(request, Outcome::Busy);
            }
            _ => {}
        }
    }

    pub(super) fn logged(&mut self, parity: usize, version: Version, epoch: u64) {
        let Some(write) = self.writes.get_mut(&version) else { return };
        if !matches!(write.stage, Stage::Logging | Stage::Reading) {
            return;
        }
        write.waiting.remove(&parity);
        write.needs.remove(&parity);
        let known = self.known.entry(parity).or_default();
        if known.epoch != epoch {
            *known = Known { epoch, ..Known::default() };
        }
        known.covered.insert(write.piece.range(), ());
        self.advance(version);
    }

    pub(super) fn need_original(&mut self, parity: usize, version: Version, gaps: Vec<Range<u64>>) {
        let Some(write) = self.writes.get_mut(&version) else { return };
        if write.stage != Stage::Logging || !write.waiting.contains(&parity) {
            return;
        }
        let ask = write.original(version, &gaps);
        write.needs.insert(parity, gaps);
        match ask {
            Some(ask) => self.send(parity, ask),
            None => self.advance(version),
        }
    }

    pub(super) fn strip_read(&mut self, version: Version, pieces: Vec<Piece>) {
        let Some(write) = self.writes.get_mut(&version) else { return };
        if matches!(write.stage, Stage::ReadingFirst | Stage::Reading) {
            write.stage = Stage::Logging;
            write.originals = pieces;
            self.send_write(version);
            self.advance(version);
        }
    }

    /// Takes a write back that a parity server has no room for: otherwise writes of two strips, each in the way of the other
    /// in one of two journals, would wait for each other.
    pub(super) fn busy(&mut self, version: Version) {
        let Some(write) = self.writes.get_mut(&version) else { return };
        if matches!(write.stage, Stage::Logging | Stage::Reading) {
            write.stage = Stage::Discarding;
            write.waiting.clone_from(&self.parities);
            self.send_write(version);
        }
    }

    pub(super) fn discarded(&mut self, parity: usize, version: Version) {
        let Some(write) = self.writes.get_mut(&version) else { return };
        if write.stage == Stage::Discarding {
            write.waiting.remove(&parity);
            self.advance(version);
        }
    }

    pub(super) fn strip_cached(&mut self, version: Version) {
        let Some(write) = self.writes.get_mut(&version) else { return };
        // Without a parity server no journal could write the bytes again.
        if write.stage != Stage::Writing || self.parities.is_empty() {
            return;
        }
        if std::mem::replace(&mut write.is_answered, true) {
            return;
        }
        let request = write.request;
        self.note(request, Outcome::Written);
        if !self.rules.keep(Rule::Flushed) {
            self.end(version);
        }
        self.answer(request, Outcome::Written);
    }

    pub(super) fn strip_written(&mut self, version: Version) {
        let Some(write) = self.writes.get(&version) else { return };
        let (request, is_answered) = (write.request, write.is_answered);
        if !is_answered {
            self.note(request, Outcome::Written);
        }
        self.end(version);
        if !is_answered {
            self.answer(request, Outcome::Written);
        }
    }

    fn end(&mut self, version: Version) {
        let Some(write) = self.writes.remove(&version) else { return };
        self.locks.release(|&owner| owner == Owner::Write(write.request));
        self.tell_below();
    }
}

fn union(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut union = Intervals::default();
    for range in ranges {
        union.insert(range, ());
    }
    let mut joined: Vec<Range<u64>> = Vec::new();
    for (range, ()) in union.iter() {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}

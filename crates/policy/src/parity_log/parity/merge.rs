//! Merges, and the records that nothing needs after them.
//!
//! A merge counts the settled values of a group into its parity strip. It ends before the first record that may yet be
//! discarded, and splits no range that has records before and after its end. So a restart knows from the header alone what is
//! merged: all data records up to it. Merged values stay in the journal as bases, until half of it is used.

use super::super::index::{Delta, Index};
use super::super::message::{Answer, Subject};
use super::super::record::{Group, Header, Lsn};
use super::super::rules::Rule;
use super::{Effect, Parity};

/// A change of a parity strip. The shell reads both values of each delta from the journal, adds
/// `coefficient * (new - old)` to the range of the strip, and writes strip and header in one atomic step.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Merge {
    /// The group.
    pub group: Group,
    /// The new header.
    pub header: Header,
    /// What changes. The ranges of a strip do not overlap.
    pub deltas: Vec<Delta>,
}

impl Parity {
    /// Plans a merge, unless there is nothing to merge. With `is_for_header` news of complete versions are enough.
    pub(super) fn start_merge(&mut self, group: Group, is_for_header: bool) {
        let durable = self.durable();
        let keep = self.rules.keep(Rule::MergeSettled);
        let Some(state) = self.groups.get_mut(&group) else { return };
        if state.merging.is_some() {
            return;
        }
        let tentative = state.strips.iter().filter_map(Index::first_tentative).min();
        let mut upto = tentative.filter(|_| keep).map_or(durable, |lsn| durable.min(lsn - 1));
        if self.rules.keep(Rule::MergeWhole) {
            // An end that one strip moves may split a range of another.
            loop {
                let end = state.strips.iter().fold(upto, |upto, index| index.merge_end(upto));
                if std::mem::replace(&mut upto, end) == end {
                    break;
                }
            }
        }
        let deltas: Vec<Delta> = state
            .strips
            .iter()
            .enumerate()
            .flat_map(|(strip, index)| index.deltas(strip, upto))
            .collect();
        let below: Vec<_> = state.strips.iter().map(Index::below).collect();
        if deltas.is_empty() && !(is_for_header && below != state.header.below) {
            return;
        }
        // Without a delta the end may lie before that of the last merge.
        let merged = upto.max(state.header.merged);
        let header = Header { merged, encoded: state.header.encoded, below };
        let merge = Merge { group, header, deltas };
        state.merging = Some(merge.clone());
        self.effects.push(Effect::Merge(merge));
    }

    /// The strip counts the merge.
    pub(super) fn merged(&mut self, group: Group) {
        self.touched.insert(group);
        let Some(state) = self.groups.get_mut(&group) else { return };
        let Some(merge) = state.merging.take() else { return };
        state.header = merge.header.clone();
        for delta in &merge.deltas {
            state.strips[delta.strip].promote(delta, merge.header.merged);
        }
    }

    /// Drops records that nothing needs; where they are many, merges and forgets the oldest first.
    pub(super) fn make_room(&mut self) {
        for group in self.touched.clone() {
            let Some(state) = self.groups.get(&group) else { continue };
            let unmerged = state.strips.iter().map(Index::unmerged).sum::<usize>();
            if unmerged > self.journal.options.extents_max {
                self.start_merge(group, false);
            }
        }
        loop {
            self.note_touched();
            let oldest = self.oldest.first().copied();
            let needed = oldest.map_or(Lsn::MAX, |(lsn, _)| lsn).min(self.durable() + 1);
            if self.journal.trim(needed) {
                self.effects.push(Effect::Trim(needed));
            }
            let Some((oldest, group)) = oldest else { return };
            self.touched.insert(group);
            if !self.journal.wants_merge() || !self.forget(group, oldest) {
                return;
            }
        }
    }

    /// Forgets what the oldest records of the group hold. False if a merge or an answer has to come first.
    fn forget(&mut self, group: Group, oldest: Lsn) -> bool {
        let state = self.groups.get_mut(&group).expect("a known group");
        if state.merging.is_some() {
            return false;
        }
        let below = |strip: usize| state.header.below.get(strip).copied().unwrap_or_default();
        let strips = state.strips.iter_mut().enumerate();
        let forgotten: Vec<_> =
            strips.map(|(strip, index)| index.forget(oldest, below(strip))).collect();
        if forgotten.contains(&Some(true)) {
            state.epoch += 1;
        }
        if !forgotten.contains(&None) {
            return true;
        }
        if state.is_member && !state.is_asked {
            state.is_asked = true;
            let view = state.view;
            for (strip, forgotten) in forgotten.iter().enumerate() {
                if forgotten.is_none() {
                    self.send(Subject { view, group, strip }, Answer::AskBelow);
                }
            }
        }
        self.start_merge(group, true);
        false
    }

    /// The last record that is durable.
    fn durable(&self) -> Lsn {
        self.unsynced.front().map_or(self.next, |record| record.lsn) - 1
    }
}

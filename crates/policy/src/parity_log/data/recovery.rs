//! A data server that enters a view without knowing its writes in progress: it asks all parity servers of the view, and
//! decides.

use std::collections::{BTreeMap, BTreeSet};

use super::super::index::Report;
use super::super::message::Ask;
use super::super::record::{Request, Version};
use super::super::rules::{Rule, Rules};
use super::super::view::{Decision, Kept, reconcile};

/// What is known, and what was decided.
#[derive(Debug)]
pub(super) struct Recovery {
    /// Whether the strip's bytes are lost: then nothing is written again.
    pub(super) is_lost: bool,
    /// By parity server.
    pub(super) reports: BTreeMap<usize, Report>,
    decision: Option<Decision>,
    /// Discards that are not confirmed.
    waiting: BTreeSet<(usize, Version)>,
    is_redone: bool,
}

impl Recovery {
    pub(super) fn new(is_lost: bool) -> Self {
        Self {
            is_lost,
            reports: BTreeMap::new(),
            decision: None,
            waiting: BTreeSet::new(),
            is_redone: false,
        }
    }

    /// What to send again.
    pub(super) fn unanswered(&self, parities: &BTreeSet<usize>) -> Vec<(usize, Ask)> {
        let reports = parities.iter().filter(|parity| !self.reports.contains_key(parity));
        let discards =
            self.waiting.iter().map(|&(parity, version)| (parity, Ask::Discard(version)));
        reports.map(|&parity| (parity, Ask::Report)).chain(discards).collect()
    }

    /// Decides once all reports are there: what to send, and what to write again.
    pub(super) fn advance(
        &mut self,
        parities: &BTreeSet<usize>,
        rules: Rules,
    ) -> (Vec<(usize, Ask)>, Vec<Kept>) {
        if self.decision.is_some() || parities.iter().any(|it| !self.reports.contains_key(it)) {
            return (Vec::new(), self.redo());
        }
        let mut decision = reconcile(&self.reports);
        if !rules.keep(Rule::SameEverywhere) {
            decision.discarded.clear();
        }
        for &version in &decision.discarded {
            self.waiting.extend(parities.iter().map(|&parity| (parity, version)));
        }
        self.decision = Some(decision);
        (self.unanswered(parities), self.redo())
    }

    fn redo(&self) -> Vec<Kept> {
        match &self.decision {
            Some(decision) if !self.is_redone => decision.kept.clone(),
            _ => Vec::new(),
        }
    }

    pub(super) fn redone(&mut self) {
        self.is_redone = self.decision.is_some();
    }

    pub(super) fn discarded(&mut self, parity: usize, version: Version) {
        self.waiting.remove(&(parity, version));
    }

    pub(super) fn is_over(&self) -> bool {
        self.decision.is_some() && self.waiting.is_empty() && self.is_redone
    }

    /// The requests whose writes stay.
    pub(super) fn kept(&self) -> impl Iterator<Item = Request> + '_ {
        self.decision.iter().flat_map(|decision| decision.kept.iter().map(|kept| kept.request))
    }
}

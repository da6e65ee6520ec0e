//! Views of a group, and what a data server decides in a new one.
//!
//! A view says which servers are in the group. The master numbers views, and makes a new one when a server starts, is
//! given up, or is back; so a message of a server's former life has an old view. Each server takes its views in order.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::index::{Place, Report};
use super::intervals::Intervals;
use super::record::{Request, Version};

/// How a data strip enters a view.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Entry {
    /// As it was: its server did not stop. A server that was in no view takes it as [`Entry::Restarted`].
    Continued,
    /// Its server was started again, or the strip was rebuilt. A write may be torn.
    Restarted,
    /// It cannot be reached, or its bytes are lost. Another server speaks for it, takes no writes, and has its writes
    /// decided before its bytes are computed from other strips. So in each view until it is rebuilt.
    Lost,
}

/// What becomes of the writes of a strip that were in progress.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Decision {
    /// Writes that every parity server of the view has, lowest version first. They may have been acknowledged, and may be
    /// torn in place.
    pub kept: Vec<Kept>,
    /// Writes that a parity server lacks. They were not acknowledged, and not begun in place.
    pub discarded: BTreeSet<Version>,
}

/// A part of a write that stays.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Kept {
    /// The bytes of the strip.
    pub range: Range<u64>,
    /// A parity server that has them.
    pub parity: usize,
    /// Where its journal has them.
    pub place: Place,
    /// The client's request.
    pub request: Request,
}

/// Decides by the reports of all parity servers of the view.
///
/// A write goes in place after all parity servers have its new value and the one before. So one that a server lacks can
/// be discarded, and only one that all have can be in place, in part or whole.
#[must_use]
pub fn reconcile(reports: &BTreeMap<usize, Report>) -> Decision {
    let below = reports.values().map(|report| report.below).max().unwrap_or_default();
    let mut decision = Decision::default();
    let mut seen: BTreeMap<Version, Intervals<()>> = BTreeMap::new();
    for (&parity, report) in reports {
        for found in &report.tentative {
            let version = found.place.version;
            if version < below {
                continue;
            }
            if !reports.values().all(|report| has(report, version, &found.range)) {
                decision.discarded.insert(version);
                continue;
            }
            let seen = seen.entry(version).or_default();
            for range in seen.gaps(found.range.clone()) {
                let (place, request) = (found.place, found.request);
                decision.kept.push(Kept { range: range.clone(), parity, place, request });
                seen.insert(range, ());
            }
        }
    }
    decision.kept.retain(|kept| !decision.discarded.contains(&kept.place.version));
    decision.kept.sort_by_key(|kept| (kept.place.version, kept.range.start));
    decision
}

/// Whether the parity server counts this version of the range, or a newer one.
fn has(report: &Report, version: Version, range: &Range<u64>) -> bool {
    let mut known = Intervals::default();
    for found in &report.tentative {
        if found.is_effective && found.place.version >= version {
            known.insert(found.range.clone(), ());
        }
    }
    for (held, _) in report.held.iter().filter(|&&(_, held)| held >= version) {
        known.insert(held.clone(), ());
    }
    known.gaps(range.clone()).is_empty()
}

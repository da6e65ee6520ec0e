//! The figures of a mover.

use policy::latency::Times;
use policy::migrate::{Skipped, Whence, Why};

use crate::spread::Redundancy;

/// Counters. All but `planned`, `in_flight` and `redundancy` only grow.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Decisions.
    pub decisions: u64,
    /// Copies made, by reason, as in [`Why::ALL`].
    pub made: [u64; Why::ALL.len()],
    /// Their bytes.
    pub bytes: u64,
    /// The durations of the copies.
    pub times: Times,
    /// Copies dropped, by reason, as in [`Whence::ALL`].
    pub dropped: [u64; Whence::ALL.len()],
    /// Copies abandoned because the table was removed, or already copied, meanwhile.
    pub gone: u64,
    /// Copies that failed otherwise.
    pub failed: u64,
    /// Copies planned and not begun.
    pub planned: u64,
    /// Copies in progress.
    pub in_flight: u64,
    /// Copies not made, by reason.
    pub skipped: Skipped,
    /// The pool's redundancy against its target, as last checked.
    pub redundancy: Redundancy,
}

//! What a mover did.

use policy::latency::Times;
use policy::migrate::{Skipped, Whence, Why};

use crate::spread::Redundancy;

/// Counters that only grow, but for `planned`, `in_flight` and `redundancy`.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Decisions.
    pub decisions: u64,
    /// Copies made, by what for, as in [`Why::ALL`].
    pub made: [u64; Why::ALL.len()],
    /// Their bytes.
    pub bytes: u64,
    /// How long each took.
    pub times: Times,
    /// Copies dropped, by why, as in [`Whence::ALL`].
    pub dropped: [u64; Whence::ALL.len()],
    /// Copies given up because the table went meanwhile.
    pub gone: u64,
    /// Copies that failed otherwise.
    pub failed: u64,
    /// Copies that are planned and were not begun.
    pub planned: u64,
    /// Copies that are being made.
    pub in_flight: u64,
    /// What was not planned, by why.
    pub skipped: Skipped,
    /// How the pool stands with the copies it promises, as of the last look.
    pub redundancy: Redundancy,
}

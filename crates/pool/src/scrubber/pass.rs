//! One pass of a scrubber.

use std::time::Duration;

use crate::spread::{Finding, ScrubPass};

/// One pass.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Pass {
    /// Its number: each pass of a pool has a higher one than the pass before.
    pub number: u64,
    /// Its progress.
    pub at: ScrubPass,
    /// Whether it reads as fast as the gates allow, since it was asked for; else it takes the period.
    pub is_on_demand: bool,
    /// When it began, as time since 1970.
    pub began: Duration,
    /// When it ended, as time since 1970.
    pub ended: Option<Duration>,
    /// The time that the pool was open since it began.
    pub elapsed: Duration,
    /// Copies with missing, wrong or unreadable bytes.
    pub damaged: u64,
    /// Those of them that were repaired: dropped because another copy is good, or written anew from others.
    pub repaired: u64,
    /// Copies that were not read: their volume was away, or refused.
    pub unread: u64,
    /// What it found since the pool was opened; the first thousand.
    pub findings: Vec<Finding>,
}

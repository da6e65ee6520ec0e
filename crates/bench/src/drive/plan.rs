//! What threads are to do.

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use engine::kv::KeyValue;
use policy::time::Instant;
use volume::Clock;

use super::{Counter, Lengths, Mix, Records, Tally};

/// What threads are to do.
pub(crate) struct Drive<'d> {
    pub(crate) store: &'d dyn KeyValue,
    pub(crate) clock: &'d Clock,
    /// What it is called in errors.
    pub(crate) name: &'d str,
    pub(crate) mix: &'d Mix,
    pub(crate) records: &'d dyn Records,
    /// Entries of a scan.
    pub(crate) scans: Lengths,
    pub(crate) counter: &'d Counter,
    pub(crate) threads: usize,
    pub(crate) operations: u64,
    /// From when threads work, and count.
    pub(crate) start: Instant,
    /// When the last operation may start.
    pub(crate) until: Instant,
    /// Operations that end in this time are told; all others are done.
    pub(crate) told: Range<Instant>,
    pub(crate) seed: u64,
    /// Whether every operation is kept for figures by the second.
    pub(crate) dots: bool,
    pub(crate) stop: &'d AtomicBool,
    /// What is looked at meanwhile.
    pub(crate) counts: &'d [Tally<'d>],
    pub(crate) sample_every: Duration,
    /// What samples count their time from.
    pub(crate) origin: Instant,
}

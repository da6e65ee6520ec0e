//! The work of threads.

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use engine::kv::KeyValue;
use policy::time::Instant;
use volume::Clock;

use super::{Counter, Lengths, Mix, Records, Tally};

/// The work of threads.
pub(crate) struct Drive<'d> {
    pub(crate) store: &'d dyn KeyValue,
    pub(crate) clock: &'d Clock,
    /// The name in errors.
    pub(crate) name: &'d str,
    pub(crate) mix: &'d Mix,
    pub(crate) records: &'d dyn Records,
    /// Entries of a scan.
    pub(crate) scans: Lengths,
    pub(crate) counter: &'d Counter,
    pub(crate) threads: usize,
    pub(crate) operations: u64,
    /// When threads start to work.
    pub(crate) start: Instant,
    /// When the last operation may start.
    pub(crate) until: Instant,
    /// The reported interval: operations that end outside it run but are not reported.
    pub(crate) told: Range<Instant>,
    pub(crate) seed: u64,
    /// Whether every operation is kept for figures per second.
    pub(crate) dots: bool,
    pub(crate) stop: &'d AtomicBool,
    /// The counts to sample meanwhile.
    pub(crate) counts: &'d [Tally<'d>],
    pub(crate) sample_every: Duration,
    /// The origin of the samples' times.
    pub(crate) origin: Instant,
}

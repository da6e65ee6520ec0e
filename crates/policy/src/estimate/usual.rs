//! How long the I/Os of a volume usually take while it does not throttle.

use std::collections::VecDeque;
use std::time::Duration;

use crate::contract::Contract;
use crate::latency::Times;

/// A kind of I/O with fewer answers in an interval teaches nothing.
const ANSWERED_MIN: u64 = 16;

/// The calm intervals that a learned time comes from: two minutes.
const CALM_MAX: usize = 240;

/// The learned time is that of the fastest tenth of the calm intervals. A single fast interval decides nothing, and
/// throttled intervals are not calm.
const FASTEST: usize = 10;

/// A provider that throttles has a queue: a request waits for this many others, at least.
const QUEUED_OPS: f64 = 2.0;

/// The properties of an I/O on which its time depends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IoKind {
    /// A read of at most [`IoKind::SMALL_MAX`].
    SmallRead,
    /// A read of more.
    LargeRead,
    /// A write of at most [`IoKind::SMALL_MAX`].
    SmallWrite,
    /// A write of more.
    LargeWrite,
}

impl IoKind {
    /// Number of kinds.
    pub const COUNT: usize = 4;

    /// Up to this many bytes, the transfer time is negligible.
    pub const SMALL_MAX: usize = 16 * 1024;

    /// The kind of an I/O of `len` bytes.
    #[must_use]
    pub const fn of(is_write: bool, len: usize) -> Self {
        match (is_write, len <= Self::SMALL_MAX) {
            (false, true) => Self::SmallRead,
            (false, false) => Self::LargeRead,
            (true, true) => Self::SmallWrite,
            (true, false) => Self::LargeWrite,
        }
    }

    /// Its position among the kinds.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// The usual times of one volume.
#[derive(Clone, Debug)]
pub(super) struct Usual {
    kinds: [P99; IoKind::COUNT],
}

/// How long a kind of I/O takes without throttling.
#[derive(Clone, Debug)]
enum P99 {
    /// The contract says it.
    Known(Duration),
    /// The contract does not say it: the 99th percentiles of the last calm intervals.
    Learned(VecDeque<Duration>),
}

impl Usual {
    pub(super) fn new(contract: &Contract) -> Self {
        // A large I/O may be forwarded whole, at the paid bandwidth, once on its way.
        let moving = contract.paid_bytes_per_sec().map_or(Duration::from_millis(1), |rate| {
            Duration::from_secs_f64(contract.op_bytes_max as f64 / rate as f64)
        });
        let known = |p99: Duration, more: Duration| match p99 {
            Duration::ZERO => P99::Learned(VecDeque::new()),
            p99 => P99::Known(p99 + more),
        };
        let (read, write) = (contract.latency.read.p99, contract.latency.write.p99);
        Self {
            kinds: [
                known(read, Duration::ZERO),
                known(read, moving),
                known(write, Duration::ZERO),
                known(write, moving),
            ],
        }
    }

    /// How many of the answers of an interval have a usual time to compare with, and how many took much longer. The
    /// interval had `per_sec` operations a second.
    pub(super) fn compare(&self, interval: &[Times; IoKind::COUNT], per_sec: f64) -> (u64, u64) {
        let queued = Duration::try_from_secs_f64(QUEUED_OPS / per_sec).unwrap_or(Duration::MAX);
        let (mut answered, mut slow) = (0, 0);
        for (kind, times) in self.kinds.iter().zip(interval) {
            if let Some(p99) = kind.p99() {
                answered += times.count();
                slow += times.longer_than((2 * p99).max(p99.saturating_add(queued)));
            }
        }
        (answered, slow)
    }

    /// Learns from an interval that was calm, or could not be compared.
    pub(super) fn learn(&mut self, interval: &[Times; IoKind::COUNT]) {
        for (kind, times) in self.kinds.iter_mut().zip(interval) {
            if let P99::Learned(calm) = kind
                && times.count() >= ANSWERED_MIN
                && let Some(p99) = times.quantile(0.99)
            {
                if calm.len() == CALM_MAX {
                    calm.pop_front();
                }
                calm.push_back(p99);
            }
        }
    }
}

impl P99 {
    fn p99(&self) -> Option<Duration> {
        match self {
            Self::Known(p99) => Some(*p99),
            Self::Learned(calm) => {
                let mut sorted: Vec<_> = calm.iter().copied().collect();
                sorted.sort_unstable();
                sorted.get(sorted.len() / FASTEST).copied()
            }
        }
    }
}

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

/// The I/Os that a sync makes one after the other: the data, two writes of a journal, a flush.
const SYNC_STEPS: u32 = 4;

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
    /// The sync of a log: its data, what the file system writes for it, and a flush.
    Sync,
}

impl IoKind {
    /// Number of kinds.
    pub const COUNT: usize = Self::ALL.len();

    /// All of them, by [`IoKind::index`].
    pub const ALL: [Self; 5] =
        [Self::SmallRead, Self::LargeRead, Self::SmallWrite, Self::LargeWrite, Self::Sync];

    /// Up to this many bytes, the transfer time is negligible.
    pub const SMALL_MAX: usize = 16 * 1024;

    /// The kind of a read or write of `len` bytes.
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

    /// Its name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SmallRead => "small-read",
            Self::LargeRead => "large-read",
            Self::SmallWrite => "small-write",
            Self::LargeWrite => "large-write",
            Self::Sync => "sync",
        }
    }
}

/// The usual times of one volume, by kind.
#[derive(Clone, Debug)]
pub(super) struct Usual([P99; IoKind::COUNT]);

/// How long a kind of I/O takes without throttling: what the contract says, or what the volume was seen to take where
/// that is longer. The figures of a catalogue are those of an average volume, or assumed.
#[derive(Clone, Debug, Default)]
struct P99 {
    /// By the contract; 0 where it says nothing.
    told: Duration,
    /// The 99th percentiles of the last calm intervals.
    calm: VecDeque<Duration>,
}

impl Usual {
    pub(super) fn new(contract: &Contract) -> Self {
        let mut usual = Self(Default::default());
        usual.set_contract(contract);
        usual
    }

    /// Other terms, of the same volume: what it was seen to take stays.
    pub(super) fn set_contract(&mut self, contract: &Contract) {
        // A large I/O may be forwarded whole, at the paid bandwidth, once on its way.
        let moving = contract.paid_bytes_per_sec().map_or(Duration::from_millis(1), |rate| {
            Duration::from_secs_f64(contract.op_bytes_max as f64 / rate as f64)
        });
        let large = |p99: Duration| if p99.is_zero() { p99 } else { p99 + moving };
        let (read, write) = (contract.latency.read.p99, contract.latency.write.p99);
        let told = [read, large(read), write, large(write), write * SYNC_STEPS];
        for (kind, told) in self.0.iter_mut().zip(told) {
            kind.told = told;
        }
    }

    /// What was learned, by [`IoKind::index`].
    pub(super) fn learned(&self) -> [Option<Duration>; IoKind::COUNT] {
        std::array::from_fn(|index| self.0[index].learned())
    }

    /// Begins with a time learned before. It stays until as many calm intervals show another one as decide: two minutes.
    pub(super) fn resume(&mut self, kind: IoKind, time: Duration) {
        self.0[kind.index()].calm = std::iter::repeat_n(time, CALM_MAX / FASTEST).collect();
    }

    /// How many of the answers of an interval have a usual time to compare with, and how many took much longer. The
    /// interval had `per_sec` operations a second.
    pub(super) fn compare(&self, interval: &[Times; IoKind::COUNT], per_sec: f64) -> (u64, u64) {
        let queued = Duration::try_from_secs_f64(QUEUED_OPS / per_sec).unwrap_or(Duration::MAX);
        let (mut answered, mut slow) = (0, 0);
        for (kind, times) in self.0.iter().zip(interval) {
            if let Some(p99) = kind.p99() {
                answered += times.count();
                slow += times.longer_than((2 * p99).max(p99.saturating_add(queued)));
            }
        }
        (answered, slow)
    }

    /// Learns from an interval that was calm, or could not be compared.
    pub(super) fn learn(&mut self, interval: &[Times; IoKind::COUNT]) {
        for (kind, times) in self.0.iter_mut().zip(interval) {
            if times.count() >= ANSWERED_MIN
                && let Some(p99) = times.quantile(0.99)
            {
                if kind.calm.len() == CALM_MAX {
                    kind.calm.pop_front();
                }
                kind.calm.push_back(p99);
            }
        }
    }
}

impl P99 {
    fn p99(&self) -> Option<Duration> {
        let told = (!self.told.is_zero()).then_some(self.told);
        told.max(self.learned())
    }

    fn learned(&self) -> Option<Duration> {
        let mut sorted: Vec<_> = self.calm.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / FASTEST).copied()
    }
}

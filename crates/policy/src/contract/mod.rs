//! The terms bought for a volume: the limits that the provider enforces, and the latency below them.
//!
//! A [`Contract`] is about one volume. A [`spec::Spec`] is what providers sell by name; the [`catalogue`] holds those
//! that come with the program.

pub mod catalogue;
pub mod instance;
pub mod spec;

use std::time::Duration;

use crate::units::KIB;

/// The largest I/O most providers count as one operation.
pub const OP_BYTES_MAX: u64 = 256 * KIB;

/// What a limit counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Counted {
    /// I/O operations.
    Ops,
    /// Reads alone, where reads and writes are counted apart (Linux's `blkio.throttle`).
    ReadOps,
    /// Writes alone.
    WriteOps,
    /// Bytes moved.
    Bytes,
    /// Bytes read.
    ReadBytes,
    /// Bytes written.
    WriteBytes,
}

impl Counted {
    /// All of them, by [`Counted::index`].
    pub const ALL: [Self; 6] =
        [Self::Ops, Self::ReadOps, Self::WriteOps, Self::Bytes, Self::ReadBytes, Self::WriteBytes];

    /// Its position among them.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether it counts operations, and not bytes.
    #[must_use]
    pub const fn is_ops(self) -> bool {
        matches!(self, Self::Ops | Self::ReadOps | Self::WriteOps)
    }
}

/// Which way a request moves its bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// From the volume.
    Read,
    /// To the volume.
    Write,
}

/// One limit: a continuous token bucket that the provider keeps (Calcspar's traces, ATC 2023).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limit {
    /// The unit of a token.
    pub counts: Counted,
    /// Tokens earned a second. Not zero.
    pub rate_per_sec: u64,
    /// Tokens that can be saved up while idle. Not zero.
    pub depth: u64,
}

impl Limit {
    /// Whether it saves up more than a second's worth, for bursts.
    #[must_use]
    pub const fn is_credits(&self) -> bool {
        self.depth > self.rate_per_sec
    }
}

/// The cost of a request, or of several, at each kind of limit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Cost {
    /// Operations: one for each started [`Contract::op_bytes_max`].
    pub ops: u64,
    /// Those of reads.
    pub read_ops: u64,
    /// Those of writes.
    pub write_ops: u64,
    /// Bytes.
    pub bytes: u64,
    /// Those read.
    pub read_bytes: u64,
    /// Those written.
    pub write_bytes: u64,
}

impl Cost {
    /// The cost of reads.
    #[must_use]
    pub const fn reads(ops: u64, bytes: u64) -> Self {
        Self { ops, read_ops: ops, write_ops: 0, bytes, read_bytes: bytes, write_bytes: 0 }
    }

    /// The cost of writes.
    #[must_use]
    pub const fn writes(ops: u64, bytes: u64) -> Self {
        Self { ops, read_ops: 0, write_ops: ops, bytes, read_bytes: 0, write_bytes: bytes }
    }

    /// A bound for reads and for writes, not the cost of either.
    #[must_use]
    pub const fn either(ops: u64, bytes: u64) -> Self {
        Self { ops, read_ops: ops, write_ops: ops, bytes, read_bytes: bytes, write_bytes: bytes }
    }

    /// What a limit of this kind is charged.
    #[must_use]
    pub const fn of(&self, counts: Counted) -> u64 {
        match counts {
            Counted::Ops => self.ops,
            Counted::ReadOps => self.read_ops,
            Counted::WriteOps => self.write_ops,
            Counted::Bytes => self.bytes,
            Counted::ReadBytes => self.read_bytes,
            Counted::WriteBytes => self.write_bytes,
        }
    }

    /// The figure of each kind of limit.
    #[must_use]
    pub fn each(figure: impl Fn(Counted) -> u64) -> Self {
        Self {
            ops: figure(Counted::Ops),
            read_ops: figure(Counted::ReadOps),
            write_ops: figure(Counted::WriteOps),
            bytes: figure(Counted::Bytes),
            read_bytes: figure(Counted::ReadBytes),
            write_bytes: figure(Counted::WriteBytes),
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: Self) -> Self {
        Self::each(|counts| self.of(counts) + other.of(counts))
    }

    /// What is left without `other`; nothing where that is more.
    #[must_use]
    pub fn less(&self, other: Self) -> Self {
        Self::each(|counts| self.of(counts).saturating_sub(other.of(counts)))
    }

    /// The smaller of each kind.
    #[must_use]
    pub fn least(&self, other: Self) -> Self {
        Self::each(|counts| self.of(counts).min(other.of(counts)))
    }

    /// The larger of each kind.
    #[must_use]
    pub fn most(&self, other: Self) -> Self {
        Self::each(|counts| self.of(counts).max(other.of(counts)))
    }

    /// Without its operations.
    #[must_use]
    pub fn only_bytes(&self) -> Self {
        self.least(Self::either(0, u64::MAX))
    }

    /// That of a request: one that writes nothing reads.
    #[must_use]
    pub const fn direction(&self) -> Direction {
        if self.write_ops > 0 || self.write_bytes > 0 { Direction::Write } else { Direction::Read }
    }
}

/// The terms of one volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Contract {
    /// The name people know it by: `gp3`.
    pub name: String,
    /// Every limit that applies, all at once; none means unlimited.
    pub limits: Vec<Limit>,
    /// The largest I/O counted as one operation, in bytes.
    pub op_bytes_max: u64,
    /// How the volume answers while it is below its limits.
    pub latency: Latency,
    /// The mechanics, when the volume is a spinning disk.
    pub disk: Option<Mechanics>,
    /// The figures without a source, as dotted keys of the contract's file (`latency.write`): reports name them beside
    /// their results.
    pub assumed: Vec<String>,
}

/// Base latency below the contract, for reads and for writes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Latency {
    /// Of reads.
    pub read: Percentiles,
    /// Of writes.
    pub write: Percentiles,
}

/// A latency distribution by five of its percentiles, ascending.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Percentiles {
    /// 1 % are faster.
    pub p1: Duration,
    /// The median.
    pub p50: Duration,
    /// 10 % are slower.
    pub p90: Duration,
    /// 1 % are slower.
    pub p99: Duration,
    /// One in a thousand is slower.
    pub p999: Duration,
}

/// The mechanics of a spinning disk: one arm, one request at a time (see [`crate::disk`]).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mechanics {
    /// Bytes it holds.
    pub capacity: u64,
    /// Revolutions a minute.
    pub rpm: u32,
    /// Moving the arm to the next track.
    pub seek_track: Duration,
    /// Moving the arm across the whole disk.
    pub seek_full: Duration,
    /// Bytes a second under the head, on average over the disk.
    pub transfer_per_sec: u64,
}

impl Mechanics {
    /// I/Os a second of `len` bytes at random places, one after the other.
    #[must_use]
    pub fn random_iops(&self, len: u64) -> f64 {
        // The mean of the square root of the distance of two random places: see the seek of [`crate::disk::Disk`].
        const WAY: f64 = 8.0 / 15.0;
        let seek = self.seek_track + self.seek_full.saturating_sub(self.seek_track).mul_f64(WAY);
        let half_turn = 30.0 / f64::from(self.rpm.max(1));
        let transfer = len as f64 / self.transfer_per_sec.max(1) as f64;
        1.0 / (seek.as_secs_f64() + half_turn + transfer)
    }
}

impl Contract {
    /// A contract without limits and without latency: for volumes without a provider.
    #[must_use]
    pub fn unlimited() -> Self {
        Self {
            name: "unlimited".into(),
            limits: Vec::new(),
            op_bytes_max: OP_BYTES_MAX,
            latency: Latency::default(),
            disk: None,
            assumed: Vec::new(),
        }
    }

    /// The cost of one I/O of `len` bytes. An I/O of no bytes costs one operation.
    #[must_use]
    pub const fn cost(&self, direction: Direction, len: u64) -> Cost {
        let ops = if len == 0 { 1 } else { len.div_ceil(self.op_bytes_max) };
        match direction {
            Direction::Read => Cost::reads(ops, len),
            Direction::Write => Cost::writes(ops, len),
        }
    }

    /// Whether some limit saves up more than a second's worth, for bursts.
    #[must_use]
    pub fn has_credits(&self) -> bool {
        self.limits.iter().any(Limit::is_credits)
    }

    /// The line: paid I/O operations a second, the smallest if several limits count them. Where reads and writes are
    /// counted apart, a load of both may do more.
    #[must_use]
    pub fn paid_iops(&self) -> Option<u64> {
        self.smallest(true)
    }

    /// The terms where the kernel sends I/Os of at most `bytes`: it splits larger ones, and the provider counts each part.
    #[must_use]
    pub fn with_ios_of(mut self, bytes: u64) -> Self {
        if self.limits.iter().any(|limit| limit.counts.is_ops()) {
            self.op_bytes_max = self.op_bytes_max.min(bytes.max(4 * KIB));
        }
        self
    }

    /// Operations a second that the volume should carry: the paid ones, or what the arm of a disk does. `None` where
    /// neither limits them.
    #[must_use]
    pub fn line_iops(&self) -> Option<f64> {
        let paid = self.paid_iops().map(|paid| paid as f64);
        paid.or_else(|| Some(self.disk.as_ref()?.random_iops(self.op_bytes_max)))
    }

    /// What a small read usually takes below the limits; zero if the contract does not say.
    #[must_use]
    pub fn usual_read(&self) -> Duration {
        const SMALL: u64 = 4096;
        let arm = self.disk.as_ref().map(|disk| 1.0 / disk.random_iops(SMALL));
        self.latency.read.p50 + arm.map_or(Duration::ZERO, Duration::from_secs_f64)
    }

    /// Paid bytes a second, if they are limited; the smallest, as above.
    #[must_use]
    pub fn paid_bytes_per_sec(&self) -> Option<u64> {
        self.smallest(false)
    }

    fn smallest(&self, ops: bool) -> Option<u64> {
        let limits = self.limits.iter().filter(|limit| limit.counts.is_ops() == ops);
        limits.map(|limit| limit.rate_per_sec).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables read in pieces of 256 KiB cost a device that gets 128 KiB at once two operations each, and one token.
    #[test]
    fn smaller_ios_than_the_contract_counts_are_charged_each() {
        let of = |counts| {
            let limits = vec![Limit { counts, rate_per_sec: 100, depth: 100 }];
            Contract { limits, ..Contract::unlimited() }
        };
        let split = of(Counted::Ops).with_ios_of(128 * KIB);
        assert_eq!(split.cost(Direction::Read, 256 * KIB), Cost::reads(2, 256 * KIB));
        for bytes in [256 * KIB, 1024 * KIB] {
            assert_eq!(of(Counted::Ops).with_ios_of(bytes), of(Counted::Ops));
        }
        assert_eq!(of(Counted::Bytes).with_ios_of(4 * KIB), of(Counted::Bytes), "it sells none");
    }
}

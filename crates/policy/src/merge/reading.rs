//! Whether a merge reads a whole file, or only its live ranges (PSTA 8(3), 2017).
//!
//! Every range costs the device an access, and gaps that are read too cost their transfer. Skipping a gap pays if
//! reading it takes longer than a jump. Reading by ranges pays if all of them take less than one pass through the file.
//! On a spinning disk a jump is a seek and half a turn; on a volume paid by operation it is one operation, which
//! carries up to 256 KiB anyway.

use std::ops::Range;
use std::time::Duration;

use crate::contract::{Contract, OP_BYTES_MAX};

/// The cost of reading on a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Device {
    /// Bytes a second in one run; infinite without a limit.
    pub bytes_per_sec: f64,
    /// The time of a jump, without transfer.
    pub jump: Duration,
    /// Paid operations a second; infinite without a limit.
    pub ops_per_sec: f64,
    /// The largest I/O that counts as one operation.
    pub op_bytes: u64,
}

impl Device {
    /// The device of a contract.
    #[must_use]
    pub fn of(contract: &Contract) -> Self {
        let limit = |per_sec: Option<u64>| per_sec.map_or(f64::INFINITY, |rate| rate as f64);
        let mut bytes_per_sec = limit(contract.paid_bytes_per_sec());
        let mut jump = Duration::ZERO;
        if let Some(disk) = &contract.disk {
            bytes_per_sec = bytes_per_sec.min(disk.transfer_per_sec as f64);
            // Within a file the arm moves little; the wait for the sector is half a turn.
            let half_turn = Duration::from_secs(30) / disk.rpm.max(1);
            jump = disk.seek_track + half_turn;
        }
        Self {
            bytes_per_sec,
            jump,
            ops_per_sec: limit(contract.paid_iops()),
            op_bytes: contract.op_bytes_max,
        }
    }

    /// What is cheap on both devices: each limit is the lower one of the two.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            bytes_per_sec: self.bytes_per_sec.min(other.bytes_per_sec),
            jump: self.jump.max(other.jump),
            ops_per_sec: self.ops_per_sec.min(other.ops_per_sec),
            op_bytes: self.op_bytes.min(other.op_bytes),
        }
    }

    /// The longest gap to read rather than skip: what the device reads in the time of a jump, and at least 256 KiB,
    /// which is one operation.
    #[must_use]
    pub fn gap_max(&self) -> u64 {
        let jumped = self.bytes_per_sec * self.jump.as_secs_f64();
        if jumped.is_finite() { OP_BYTES_MAX.max(jumped as u64) } else { OP_BYTES_MAX }
    }

    /// Seconds that reading `ranges` keeps the device busy, and their bytes.
    fn price<'a>(&self, ranges: impl Iterator<Item = &'a Range<u64>>) -> (f64, u64) {
        let (mut jumps, mut ops, mut bytes) = (0u64, 0u64, 0u64);
        for range in ranges {
            let len = range.end - range.start;
            jumps += 1;
            ops += len.div_ceil(self.op_bytes.max(1));
            bytes += len;
        }
        let moved = jumps as f64 * self.jump.as_secs_f64() + bytes as f64 / self.bytes_per_sec;
        (moved.max(ops as f64 / self.ops_per_sec), bytes)
    }
}

/// The parts of a file to read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reading {
    /// All of it, from front to end.
    Whole,
    /// These ranges, in this order.
    Ranges(
        /// Ascending; they neither touch nor overlap.
        Vec<Range<u64>>,
    ),
}

/// How to read the `live` ranges of a file of `len` bytes. They are ascending and do not overlap.
///
/// # Panics
/// When they are not.
#[must_use]
pub fn reading(device: &Device, len: u64, live: impl IntoIterator<Item = Range<u64>>) -> Reading {
    let gap_max = device.gap_max();
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for range in live {
        match ranges.last_mut() {
            Some(last) => {
                assert!(last.end <= range.start, "ranges ascend");
                if range.start - last.end < gap_max {
                    last.end = range.end;
                } else {
                    ranges.push(range);
                }
            }
            None => ranges.push(range),
        }
    }
    if device.price(ranges.iter()) < device.price(std::iter::once(&(0..len))) {
        Reading::Ranges(ranges)
    } else {
        Reading::Whole
    }
}

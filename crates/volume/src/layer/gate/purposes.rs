//! What a gate let through, by purpose; counted without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use policy::contract::Cost;
use policy::purpose::Purpose;

use super::PurposeFigures;

/// Counters for each purpose.
#[derive(Default)]
pub(super) struct Purposes([Counted; Purpose::ALL.len()]);

#[derive(Default)]
struct Counted {
    granted: AtomicU64,
    reads: Amount,
    writes: Amount,
    waited_nanos: AtomicU64,
}

/// Operations and bytes in one direction.
#[derive(Default)]
struct Amount {
    ops: AtomicU64,
    bytes: AtomicU64,
}

impl Purposes {
    pub(super) fn record(&self, purpose: Purpose, cost: Cost, waited: Duration) {
        let counted = &self.0[purpose.index()];
        counted.granted.fetch_add(1, Ordering::Relaxed);
        counted.reads.add(cost.read_ops, cost.read_bytes);
        counted.writes.add(cost.write_ops, cost.write_bytes);
        if !waited.is_zero() {
            counted.waited_nanos.fetch_add(nanos(waited), Ordering::Relaxed);
        }
    }

    /// A request that was recorded was not issued.
    pub(super) fn take_back(&self, purpose: Purpose, cost: Cost, waited: Duration) {
        let counted = &self.0[purpose.index()];
        counted.granted.fetch_sub(1, Ordering::Relaxed);
        counted.reads.subtract(cost.read_ops, cost.read_bytes);
        counted.writes.subtract(cost.write_ops, cost.write_bytes);
        counted.waited_nanos.fetch_sub(nanos(waited), Ordering::Relaxed);
    }

    pub(super) fn figures(&self, purpose: Purpose) -> PurposeFigures {
        let counted = &self.0[purpose.index()];
        let [(read_ops, read_bytes), (write_ops, write_bytes)] =
            [&counted.reads, &counted.writes].map(Amount::load);
        PurposeFigures {
            granted: counted.granted.load(Ordering::Relaxed),
            spent: Cost::reads(read_ops, read_bytes).plus(Cost::writes(write_ops, write_bytes)),
            waited: Duration::from_nanos(counted.waited_nanos.load(Ordering::Relaxed)),
        }
    }
}

impl Amount {
    fn add(&self, ops: u64, bytes: u64) {
        if ops > 0 || bytes > 0 {
            self.ops.fetch_add(ops, Ordering::Relaxed);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn subtract(&self, ops: u64, bytes: u64) {
        self.ops.fetch_sub(ops, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn load(&self) -> (u64, u64) {
        (self.ops.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

//! The figures that a gate reports for each class, and for each store.

use std::time::Duration;

use crate::contract::Cost;

/// Figures of one class. All but `queued` only grow, except that refunds lower `spent` and a grant that is put back
/// does not count.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Figures {
    /// Requests waiting now.
    pub queued: u64,
    /// Requests granted.
    pub granted: u64,
    /// Their charges, less refunds.
    pub spent: Cost,
    /// How long they waited.
    pub waits: Waits,
    /// Requests that a full queue refused.
    pub refused: u64,
    /// Requests whose deadline passed.
    pub expired: u64,
    /// Requests cancelled while they waited.
    pub cancelled: u64,
}

/// Figures of one store, in all classes. All but `queued` only grow, except that a grant that is put back does not count.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TenantFigures {
    /// Requests waiting now.
    pub queued: u64,
    /// Requests granted.
    pub granted: u64,
    /// Their charges; refunds are not taken off.
    pub spent: Cost,
}

/// How long requests waited for their grant: a histogram in steps of two.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Waits {
    /// The sum.
    pub total: Duration,
    /// The longest.
    pub max: Duration,
    /// How many waited at most [`Waits::bound`] of the same index, and longer than that of the index before.
    pub counts: [u64; Self::BUCKETS],
}

impl Waits {
    /// The number of steps.
    pub const BUCKETS: usize = 26;

    /// The longest wait counted at `index`: zero, then 1 us, 2 us, 4 us and so on. The last one has no bound.
    #[must_use]
    pub const fn bound(index: usize) -> Duration {
        match index {
            0 => Duration::ZERO,
            _ if index + 1 < Self::BUCKETS => Duration::from_micros(1 << (index - 1)),
            _ => Duration::MAX,
        }
    }

    pub(super) fn record(&mut self, wait: Duration) {
        if wait.is_zero() {
            // The common case, without a division.
            self.counts[0] += 1;
            return;
        }
        self.counts[Self::index(wait)] += 1;
        self.total += wait;
        self.max = self.max.max(wait);
    }

    /// Undoes [`Waits::record`] for a request that waits on. The maximum stays: this request's wait will be longer.
    pub(super) fn forget(&mut self, wait: Duration) {
        self.counts[Self::index(wait)] -= 1;
        self.total -= wait;
    }

    fn index(wait: Duration) -> usize {
        let micros = wait.as_nanos().div_ceil(1000);
        let steps = match micros {
            0 => return 0,
            _ => (micros - 1).checked_ilog2().map_or(0, |log| log + 1),
        };
        (1 + steps as usize).min(Self::BUCKETS - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_is_counted_within_its_bounds() {
        for nanos in [0, 1, 999, 1000, 1001, 2000, 2001, 4000, 5000, 1 << 40, u64::MAX] {
            let wait = Duration::from_nanos(nanos);
            let index = Waits::index(wait);
            assert!(wait <= Waits::bound(index), "{wait:?} at {index}");
            assert!(index == 0 || wait > Waits::bound(index - 1), "{wait:?} at {index}");
        }
    }
}

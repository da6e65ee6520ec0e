//! What a gate shows of each class.

use std::time::Duration;

use crate::contract::Cost;

/// What happened in one class. All but `queued` only grow; `spent` shrinks by refunds, and a grant that is
/// put back was none.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Figures {
    /// Requests that wait now.
    pub queued: u64,
    /// Requests that went.
    pub granted: u64,
    /// What they were charged, less what was given back.
    pub spent: Cost,
    /// How long they waited.
    pub waits: Waits,
    /// Requests a full queue turned away.
    pub refused: u64,
    /// Requests whose deadline passed.
    pub expired: u64,
    /// Requests that were given up while they waited.
    pub cancelled: u64,
}

/// How long requests waited for their grant: a histogram in steps of two.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Waits {
    /// The sum.
    pub total: Duration,
    /// The longest.
    pub max: Duration,
    /// How many waited at most [`Waits::bound`] of the same index, and longer than the one before.
    pub counts: [u64; Self::BUCKETS],
}

impl Waits {
    /// The number of steps.
    pub const BUCKETS: usize = 26;

    /// The longest wait counted at `index`: none at all, then 1 us, 2 us, 4 us and so on. The last
    /// one has no bound.
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
            // The common way, kept clear of divisions.
            self.counts[0] += 1;
            return;
        }
        self.counts[Self::index(wait)] += 1;
        self.total += wait;
        self.max = self.max.max(wait);
    }

    /// Undoes [`Waits::record`], for a request that goes on waiting. The longest stays what it was: this
    /// request waits for longer than it did so far.
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

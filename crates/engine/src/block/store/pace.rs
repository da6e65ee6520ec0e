//! How many regions to clean. To clean a region costs a write and a sync in spare operations, and the next write of the region a
//! mark, for which a user waits. So a device that is written all over is cleaned slowly, and one that is left alone at once.

use std::time::Duration;

use policy::time::Instant;

/// Writes for each region that is cleaned: marks are then at most a sixteenth of the operations.
const WRITES: u64 = 16;
/// The most regions that writes allow to be cleaned later.
const AHEAD: u64 = 1024;

/// The writes of a device, as far as they pay for cleaning.
pub(super) struct Pace {
    seen: u64,
    paid: u64,
    written: Instant,
}

impl Pace {
    pub(super) const fn new(now: Instant) -> Self {
        Self { seen: 0, paid: 0, written: now }
    }

    /// The number of regions that may be cleaned now, on a device that was written `writes` times in all. After a time without
    /// writes all may be.
    pub(super) fn allowed(&mut self, writes: u64, now: Instant, after: Duration) -> usize {
        let new = writes - self.seen;
        self.seen = writes;
        self.paid = (self.paid + new).min(AHEAD * WRITES);
        if new > 0 {
            self.written = now;
        }
        if now.since(self.written) >= after {
            return usize::MAX;
        }
        (self.paid / WRITES) as usize
    }

    /// Charges regions that are being cleaned.
    pub(super) fn cleaned(&mut self, regions: usize) {
        self.paid = self.paid.saturating_sub((regions as u64).saturating_mul(WRITES));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_pay_for_cleaning_and_a_pause_allows_all_of_it() {
        let second = |s| Instant::ZERO + Duration::from_secs(s);
        let after = Duration::from_secs(10);
        let mut pace = Pace::new(second(0));
        assert_eq!(pace.allowed(0, second(1), after), 0);
        assert_eq!(pace.allowed(160, second(2), after), 10);
        pace.cleaned(4);
        assert_eq!(pace.allowed(160, second(3), after), 6);
        assert_eq!(pace.allowed(161, second(11), after), 6);
        assert_eq!(pace.allowed(161, second(21), after), usize::MAX);
        assert_eq!(pace.allowed(1 << 40, second(22), after), AHEAD as usize);
    }
}

//! Spending over the last second: a volume's load against its line.

use crate::contract::{Contract, Cost};
use crate::time::{Instant, NANOS_PER_SEC};

/// Tenths of a second that make the second.
const TENTHS: usize = 10;
/// The second and the current tenth.
const SLOTS: usize = TENTHS + 1;

/// Spending in each of the last tenths of a second.
#[derive(Clone, Debug, Default)]
pub struct Window {
    slots: [Cost; SLOTS],
    /// The number of the current tenth, counted from the clock's origin.
    tenth: u64,
}

impl Window {
    /// Spending of the last ten whole tenths before `now`, without the current one.
    #[must_use]
    pub fn last_second(&self, now: Instant) -> Cost {
        let now = Self::tenth(now).max(self.tenth);
        let mut sum = Cost::default();
        for age in 1..=TENTHS as u64 {
            let Some(tenth) = now.checked_sub(age) else { break };
            let known = tenth <= self.tenth && self.tenth - tenth < SLOTS as u64;
            if known {
                sum = sum.plus(self.slots[Self::slot(tenth)]);
            }
        }
        sum
    }

    /// The last second's spending relative to what was paid for, at the most used limit; 0 without
    /// limits.
    #[must_use]
    pub fn used(&self, contract: &Contract, now: Instant) -> f64 {
        let spent = self.last_second(now);
        let limits = contract.limits.iter();
        let used = limits.map(|limit| spent.of(limit.counts) as f64 / limit.rate_per_sec as f64);
        used.fold(0.0, f64::max)
    }

    pub(super) fn spend(&mut self, now: Instant, cost: Cost) {
        self.turn_to(Self::tenth(now));
        let slot = &mut self.slots[Self::slot(self.tenth)];
        *slot = slot.plus(cost);
    }

    /// Returns spending, as far as the current tenth has any.
    pub(super) fn refund(&mut self, cost: Cost) {
        let slot = &mut self.slots[Self::slot(self.tenth)];
        *slot = slot.less(cost);
    }

    fn turn_to(&mut self, tenth: u64) {
        let passed = tenth.saturating_sub(self.tenth).min(SLOTS as u64);
        self.tenth = self.tenth.max(tenth);
        for age in 0..passed {
            self.slots[Self::slot(self.tenth - age)] = Cost::default();
        }
    }

    const fn tenth(now: Instant) -> u64 {
        now.as_nanos() / (NANOS_PER_SEC / TENTHS as u64)
    }

    const fn slot(tenth: u64) -> usize {
        (tenth % SLOTS as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::contract::{Counted, Limit};

    const ONE: Cost = Cost::reads(1, 4096);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_steady_load_shows_as_its_rate() {
        let mut window = Window::default();
        for millis in 0..3000 {
            window.spend(at(millis), ONE);
        }
        assert_eq!(window.last_second(at(3000)).ops, 1000);
        assert_eq!(window.last_second(at(3550)).ops, 500);
        assert_eq!(window.last_second(at(9000)), Cost::default());
    }

    #[test]
    fn the_limit_that_is_used_most_counts() {
        let limit = |counts, rate_per_sec| Limit { counts, rate_per_sec, depth: 1 };
        let limits = vec![limit(Counted::Ops, 1000), limit(Counted::Bytes, 8192)];
        let contract = Contract { limits, ..Contract::unlimited() };
        let mut window = Window::default();
        window.spend(at(0), ONE);
        assert_eq!(window.used(&contract, at(100)), 0.5);
        assert_eq!(window.used(&Contract::unlimited(), at(100)), 0.0);
    }

    proptest! {
        #[test]
        fn agrees_with_a_list_of_everything(steps in vec((0u64..2500, 1u64..9), 1..60)) {
            let mut window = Window::default();
            let mut now = 0;
            let mut all = Vec::new();
            for (step, ops) in steps {
                now += step;
                window.spend(at(now), Cost::reads(ops, 0));
                all.push((now / 100, ops));
                let recent = all.iter().filter(|(tenth, _)| {
                    *tenth < now / 100 && *tenth + 10 >= now / 100
                });
                let expected: u64 = recent.map(|(_, ops)| ops).sum();
                prop_assert_eq!(window.last_second(at(now)).ops, expected);
            }
        }
    }
}

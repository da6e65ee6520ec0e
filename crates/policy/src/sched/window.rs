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
    slots: [Spent; SLOTS],
    /// The number of the current tenth, counted from the clock's origin.
    tenth: u64,
}

/// Spending in a tenth.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    all: Cost,
    by_users: Cost,
}

impl Window {
    /// Spending of the last ten whole tenths before `now`, without the current one.
    #[must_use]
    pub fn last_second(&self, now: Instant) -> Cost {
        self.sum(now, |spent| spent.all)
    }

    fn sum(&self, now: Instant, of: impl Fn(&Spent) -> Cost) -> Cost {
        let now = Self::tenth(now).max(self.tenth);
        let mut sum = Cost::default();
        for age in 1..=TENTHS as u64 {
            let Some(tenth) = now.checked_sub(age) else { break };
            let known = tenth <= self.tenth && self.tenth - tenth < SLOTS as u64;
            if known {
                sum = sum.plus(of(&self.slots[Self::slot(tenth)]));
            }
        }
        sum
    }

    /// The last second's spending relative to what was paid for, at the most used limit; 0 without
    /// limits.
    #[must_use]
    pub fn used(&self, contract: &Contract, now: Instant) -> f64 {
        Self::part(self.last_second(now), contract)
    }

    /// The same of what users waited for alone.
    #[must_use]
    pub fn used_by_users(&self, contract: &Contract, now: Instant) -> f64 {
        Self::part(self.sum(now, |spent| spent.by_users), contract)
    }

    fn part(spent: Cost, contract: &Contract) -> f64 {
        let limits = contract.limits.iter();
        let used = limits.map(|limit| spent.of(limit.counts) as f64 / limit.rate_per_sec as f64);
        used.fold(0.0, f64::max)
    }

    pub(super) fn spend(&mut self, now: Instant, cost: Cost, of_user: bool) {
        self.turn_to(Self::tenth(now));
        let spent = &mut self.slots[Self::slot(self.tenth)];
        spent.all = spent.all.plus(cost);
        if of_user {
            spent.by_users = spent.by_users.plus(cost);
        }
    }

    /// Returns spending, as far as the current tenth has any.
    pub(super) fn refund(&mut self, cost: Cost, of_user: bool) {
        let spent = &mut self.slots[Self::slot(self.tenth)];
        spent.all = spent.all.less(cost);
        if of_user {
            spent.by_users = spent.by_users.less(cost);
        }
    }

    fn turn_to(&mut self, tenth: u64) {
        let passed = tenth.saturating_sub(self.tenth).min(SLOTS as u64);
        self.tenth = self.tenth.max(tenth);
        for age in 0..passed {
            self.slots[Self::slot(self.tenth - age)] = Spent::default();
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
            window.spend(at(millis), ONE, millis % 4 == 0);
        }
        assert_eq!(window.last_second(at(3000)).ops, 1000);
        assert_eq!(window.last_second(at(3550)).ops, 500);
        assert_eq!(window.last_second(at(9000)), Cost::default());
        let limits = vec![Limit { counts: Counted::Ops, rate_per_sec: 500, depth: 1 }];
        let contract = Contract { limits, ..Contract::unlimited() };
        let used = (window.used(&contract, at(3000)), window.used_by_users(&contract, at(3000)));
        assert_eq!(used, (2.0, 0.5));
        window.refund(ONE, true);
        let used = (window.used(&contract, at(3000)), window.used_by_users(&contract, at(3000)));
        assert_eq!(used, (999.0 / 500.0, 249.0 / 500.0));
    }

    #[test]
    fn the_limit_that_is_used_most_counts() {
        let limit = |counts, rate_per_sec| Limit { counts, rate_per_sec, depth: 1 };
        let limits = vec![limit(Counted::Ops, 1000), limit(Counted::Bytes, 8192)];
        let contract = Contract { limits, ..Contract::unlimited() };
        let mut window = Window::default();
        window.spend(at(0), ONE, true);
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
                window.spend(at(now), Cost::reads(ops, 0), false);
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

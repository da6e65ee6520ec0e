//! DA: a pool for each group as in SA, resized each second by what the high group left in the last two (Calcspar, ATC
//! 2023; the released formula in parts of P).
//!
//! The released code looks at user reads. Here the formula uses the tokens of the high group, because logs and flushes
//! take from the same pool. An idle second counts as one that used nothing; the code attributes it to the second after.

use super::fixed::SHARES;
use super::{GROUPS, Scheme, Used};

/// Private pools that follow the load.
#[derive(Debug)]
pub struct Dynamic {
    shares: [f64; GROUPS],
    /// Use by the high group in the second before the last; `None` before the first.
    before: Option<f64>,
}

impl Dynamic {
    /// Starts as SA.
    #[must_use]
    pub const fn new() -> Self {
        Self { shares: SHARES, before: None }
    }
}

impl Default for Dynamic {
    fn default() -> Self {
        Self::new()
    }
}

impl Scheme for Dynamic {
    fn deal(&mut self, last: Option<Used>) -> [f64; GROUPS] {
        let last = last.map(|used| used.groups[0]);
        let (Some(before), Some(last)) = (std::mem::replace(&mut self.before, last), last) else {
            return self.shares;
        };
        let [high, medium, low] = self.shares;
        let slack = high - last;
        let mut freed = before - last;
        if slack > 0.1 {
            freed += 0.02;
        } else if slack < 0.05 {
            freed -= 0.01;
        }
        let medium = (medium + 0.7 * freed).clamp(0.05, 0.4);
        let low = (low + 0.3 * freed).clamp(0.01, 0.1);
        self.shares = [1.0 - medium - low, medium, low];
        self.shares
    }

    fn pool(&self, group: usize) -> usize {
        group
    }
}

//! A hot part of the key space that moves.
//!
//! YCSB's hot spot is scattered over all keys, and so all tables, by a hash. A placement is tested harder by adjacent
//! keys: they lie in a handful of tables, and a minute later in another handful.

use std::sync::Arc;
use std::time::Duration;

use policy::time::Instant;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::Clock;

use crate::drive::{Choose, scramble};

/// A hot range of keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HotRange {
    /// Its records, per thousand of all.
    pub records_permille: u64,
    /// The share of the choices that falls into it, from 0 to 1; the others are uniform over all records.
    pub choices: f64,
    /// How long it stays.
    pub every: Duration,
}

impl HotRange {
    /// The first record of the range in its period number `period`, and its length, among `records` in the order of
    /// their keys. Consecutive periods have no record in common.
    fn place(&self, period: u64, seed: u64, records: u64) -> (u64, u64) {
        let len = (records * self.records_permille / 1000).clamp(1, records);
        // Golden-ratio steps: each place is far from the last, and places do not repeat soon.
        let begin = scramble(seed) as f64 / u64::MAX as f64;
        let part = (begin + 0.618_033_988_749_895 * period as f64).fract();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of it")]
        let first = ((records - len) as f64 * part) as u64;
        (first, len)
    }
}

/// Chooses records with a hot range.
#[derive(Clone)]
pub(super) struct Moving {
    pub(super) range: HotRange,
    /// The records in the order of their keys.
    pub(super) order: Arc<[u32]>,
    pub(super) clock: Clock,
    /// When the first period began.
    pub(super) start: Instant,
    pub(super) seed: u64,
}

impl Choose for Moving {
    fn record(&mut self, _records: u64, random: &mut Xoshiro256PlusPlus) -> u64 {
        let all = self.order.len() as u64;
        let (first, len) = if random.random_bool(self.range.choices) {
            let gone = self.clock.now().since(self.start);
            let period = gone.as_nanos() / self.range.every.as_nanos().max(1);
            self.range.place(u64::try_from(period).unwrap_or(u64::MAX), self.seed, all)
        } else {
            (0, all)
        };
        u64::from(self.order[(first + random.random_range(0..len)) as usize])
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const RANGE: HotRange =
        HotRange { records_permille: 50, choices: 0.8, every: Duration::from_secs(60) };

    #[test]
    fn it_moves_away_from_where_it_was_and_stays_inside() {
        for seed in 0..20 {
            let places: Vec<_> = (0..50).map(|period| RANGE.place(period, seed, 10_000)).collect();
            assert!(places.iter().all(|&(first, len)| len == 500 && first + len <= 10_000));
            let apart = |pair: &[(u64, u64)]| pair[0].0.abs_diff(pair[1].0) >= 500;
            assert!(places.windows(2).all(apart), "{places:?}");
        }
        assert_eq!(RANGE.place(7, 1, 1), (0, 1));
    }

    #[test]
    fn choices_follow_the_range_when_time_passes() {
        let clock = Clock::simulated();
        // Key order differs from number order.
        let order: Arc<[u32]> = (0..1000).rev().collect();
        let start = clock.now();
        let mut moving = Moving { range: RANGE, order, clock: clock.clone(), start, seed: 3 };
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for period in 0..3 {
            let (first, len) = RANGE.place(period, 3, 1000);
            let hot = (0..10_000).filter(|_| {
                let place = 999 - moving.record(0, &mut random);
                (first..first + len).contains(&place)
            });
            // 80 % of all, and 5 % of the rest.
            let hot = hot.count();
            assert!(hot.abs_diff(8100) < 200, "{hot} in period {period}");
            clock.jump(Duration::from_secs(60));
        }
    }
}

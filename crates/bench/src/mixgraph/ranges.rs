//! Which part of the key space is popular.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Power;

/// The popularity of the n-th most popular range relative to others, `a · exp(b · n) + c · exp(d · n)`, and the number
/// of ranges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TwoTerms {
    /// db_bench's `keyrange_dist_a`.
    pub a: f64,
    /// db_bench's `keyrange_dist_b`.
    pub b: f64,
    /// db_bench's `keyrange_dist_c`.
    pub c: f64,
    /// db_bench's `keyrange_dist_d`.
    pub d: f64,
    /// db_bench's `keyrange_num`: the number of ranges, all of the same number of keys.
    pub ranges: u32,
}

impl TwoTerms {
    /// The papers' values: the most popular of thirty ranges gets three fifths of the accesses.
    pub const PUBLISHED: Self = Self { a: 5.18, b: -2.917, c: 0.0164, d: -0.080_82, ranges: 30 };

    pub(super) fn weight(self, n: u32) -> f64 {
        let n = f64::from(n);
        self.a * (self.b * n).exp() + self.c * (self.d * n).exp()
    }
}

/// A choice among ranges. Shares are whole multiples of the least popular one's, rounded down, and the parameters alone
/// determine the order of ranges, both as in db_bench.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranges {
    /// The end of each range's part of `total`, in the order of keys.
    ends: Vec<u64>,
    total: u64,
    /// Keys of a range.
    size: u64,
}

impl Ranges {
    /// Over `records`, which must be at least the number of ranges.
    ///
    /// # Panics
    /// When no range has a weight above zero, or there are too few records.
    #[must_use]
    pub fn new(records: u64, terms: TwoTerms) -> Self {
        let count = terms.ranges.max(1);
        let size = records / u64::from(count);
        assert!(size > 0, "{records} records for {count} ranges");
        let weights = (1..=count).rev().map(|n| terms.weight(n).max(0.0));
        let weights: Vec<_> = weights.collect();
        let least = weights.iter().copied().find(|weight| *weight > 0.0);
        let amplify = (1.0 / least.expect("some range is accessed")).floor() + 1.0;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded down")]
        let whole = |weight: f64| (amplify * weight).floor() as u64;
        let mut shares: Vec<_> = weights.into_iter().map(whole).collect();
        let total = shares.iter().sum();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(total);
        for range in 0..shares.len() {
            shares.swap(range, random.random_range(0..count as usize));
        }
        let ends = shares.iter().scan(0, |end, share| {
            *end += share;
            Some(*end)
        });
        Self { ends: ends.collect(), total, size }
    }

    pub(super) fn record(&self, power: Power, random: &mut Xoshiro256PlusPlus) -> u64 {
        let drawn = random.random_range(0..self.total);
        let range = self.ends.partition_point(|end| *end <= drawn);
        // The number of distinct draws equals the number of keys, as in db_bench.
        let u = random.random_range(0..self.size) as f64 / self.size as f64;
        range as u64 * self.size + power.offset(u, self.size)
    }

    /// Keys of a range, and the share of accesses of each range in the order of keys.
    #[must_use]
    pub fn shares(&self) -> (u64, Vec<f64>) {
        let starts = std::iter::once(&0).chain(&self.ends);
        let shares = self.ends.iter().zip(starts);
        (self.size, shares.map(|(end, start)| (end - start) as f64 / self.total as f64).collect())
    }
}

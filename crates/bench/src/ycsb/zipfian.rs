//! Ranks by Zipf's law: the k-th most popular of n things is chosen in proportion to 1/k^theta.
//!
//! The quick method of Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD 1994, section 3.2,
//! as in YCSB's `ZipfianGenerator`: one random number, no table. It is exact for the two most popular ranks and near
//! elsewhere: about 16 % too many of ranks 3 and 4, 2 to 4 % too few of the tail. It is kept because YCSB's figures use
//! it.

use rand::{Rng, RngExt};

/// YCSB's skew.
pub(super) const THETA: f64 = 0.99;

/// A choice among a number of ranks that may grow.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Zipfian {
    ranks: u64,
    /// The sum of 1/k^theta over all ranks: the denominator of the shares.
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    /// Chooses among `ranks`, at least one.
    pub(crate) fn new(ranks: u64) -> Self {
        assert!(ranks > 0, "something to choose from");
        let zeta = zeta(ranks);
        // The slope of the curve after the first two ranks; zero if there are no more.
        let eta = match ranks {
            1 | 2 => 0.0,
            _ => (1.0 - (2.0 / ranks as f64).powf(1.0 - THETA)) / (1.0 - zeta_of_two() / zeta),
        };
        Self { ranks, zeta, eta }
    }

    /// Chooses among `ranks` from now on.
    pub(super) fn resize(&mut self, ranks: u64) {
        if ranks != self.ranks {
            *self = Self::new(ranks);
        }
    }

    /// A rank from 0, the most popular one, on.
    pub(crate) fn rank(&self, random: &mut impl Rng) -> u64 {
        self.at(random.random())
    }

    /// The rank below which the share `u` of choices lies, `u` in `[0, 1)`.
    fn at(&self, u: f64) -> u64 {
        let part = u * self.zeta;
        if part < 1.0 {
            return 0;
        }
        if part < zeta_of_two() {
            return 1;
        }
        let base = self.eta * u - self.eta + 1.0;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a rank")]
        let rank = (self.ranks as f64 * base.powf(1.0 / (1.0 - THETA))) as u64;
        rank.min(self.ranks - 1)
    }
}

fn zeta_of_two() -> f64 {
    1.0 + 0.5_f64.powf(THETA)
}

/// The sum of 1/k^theta for k from 1 to `n`: its first terms, and the Euler-Maclaurin formula for the rest, so that the
/// cost does not grow with `n`.
fn zeta(n: u64) -> f64 {
    const TERMS: u64 = 1000;
    let term = |k: f64| k.powf(-THETA);
    let head: f64 = (1..=n.min(TERMS)).map(|k| term(k as f64)).sum();
    if n <= TERMS {
        return head;
    }
    let (from, to) = (TERMS as f64, n as f64);
    let integral = (to.powf(1.0 - THETA) - from.powf(1.0 - THETA)) / (1.0 - THETA);
    let slope = |k: f64| -THETA * k.powf(-THETA - 1.0);
    head + integral + (term(to) - term(from)) / 2.0 + (slope(to) - slope(from)) / 12.0
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn the_sum_is_the_one_added_up_term_by_term() {
        for n in [1, 2, 999, 1000, 1001, 100_000] {
            let naive: f64 = (1..=n).map(|k| (k as f64).powf(-THETA)).sum();
            assert!((zeta(n) - naive).abs() < 1e-10, "{n}: {} is not {naive}", zeta(n));
        }
        // YCSB's ScrambledZipfianGenerator.ZETAN.
        assert!((zeta(10_000_000_000) - 26.469_028_201_783_02).abs() < 1e-6);
    }

    /// The share of choices for ranks from `from` to `to`, by the law.
    fn law(ranks: u64, from: u64, to: u64) -> f64 {
        (from..to).map(|rank| ((rank + 1) as f64).powf(-THETA)).sum::<f64>() / zeta(ranks)
    }

    /// The same by the approximation: its curve, solved for the share.
    fn quick(zipfian: &Zipfian, from: u64, to: u64) -> f64 {
        let below = |rank: u64| match rank {
            0 => 0.0,
            1 => 1.0 / zipfian.zeta,
            _ => {
                let base = (rank as f64 / zipfian.ranks as f64).powf(1.0 - THETA);
                let curve = (base - 1.0 + zipfian.eta) / zipfian.eta;
                curve.max(zeta_of_two() / zipfian.zeta)
            }
        };
        below(to) - below(from)
    }

    /// 0, 1, 2 to 3, 4 to 7 and so on.
    fn octaves(ranks: u64) -> Vec<(u64, u64)> {
        let ends: Vec<_> =
            (0..).map(|n| ranks.min(1 << n)).take_while(|end| *end < ranks).collect();
        let starts = std::iter::once(0).chain(ends.iter().copied());
        starts.zip(ends.iter().copied().chain([ranks])).collect()
    }

    #[test]
    fn ranks_are_as_frequent_as_the_law_says() {
        const DRAWS: u64 = 2_000_000;
        for ranks in [1000, 1_000_000] {
            let zipfian = Zipfian::new(ranks);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
            let mut counts = vec![0_u64; usize::try_from(ranks).expect("a small number")];
            for _ in 0..DRAWS {
                counts[usize::try_from(zipfian.rank(&mut random)).expect("a rank")] += 1;
            }
            let octaves = octaves(ranks);
            let (mut chi_square, mut off_the_law) = (0.0, 0.0);
            for &(from, to) in &octaves {
                let seen = counts[from as usize..to as usize].iter().sum::<u64>() as f64;
                let expected = quick(&zipfian, from, to) * DRAWS as f64;
                chi_square += (seen - expected).powi(2) / expected;
                off_the_law += (seen / DRAWS as f64 - law(ranks, from, to)).abs() / 2.0;
            }
            // With this many degrees of freedom, chance exceeds the limit once in some thousand runs.
            let freedom = (octaves.len() - 1) as f64;
            let limit = freedom + 4.0 * (2.0 * freedom).sqrt();
            assert!(chi_square < limit, "{ranks}: chi-square {chi_square}, limit {limit}");
            // The error of the method itself; see the module.
            assert!(off_the_law < 0.025, "{ranks}: {off_the_law} of the choices are elsewhere");
            for rank in [0, 1] {
                let expected = law(ranks, rank, rank + 1) * DRAWS as f64;
                let off = (counts[rank as usize] as f64 - expected) / expected.sqrt();
                assert!(off.abs() < 4.0, "rank {rank} of {ranks} is {off} deviations off");
            }
        }
    }

    #[test]
    fn few_ranks_and_growing_ones_stay_within_bounds() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut zipfian = Zipfian::new(1);
        for ranks in 1..200 {
            zipfian.resize(ranks);
            assert_eq!(zipfian, Zipfian::new(ranks));
            assert!((0..100).all(|_| zipfian.rank(&mut random) < ranks));
            assert!(zipfian.at(1.0 - f64::EPSILON) < ranks);
        }
    }
}

//! Sizes of values and lengths of scans.

use rand::{Rng, RngExt};

/// The generalized Pareto distribution, as db_bench's `ParetoCdfInversion` draws from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pareto {
    /// Where it starts.
    pub theta: f64,
    /// Its shape: a larger one has a heavier tail; 0 is exponential.
    pub k: f64,
    /// Its scale.
    pub sigma: f64,
}

impl Pareto {
    /// db_bench's sizes of values, as measured at ZippyDB.
    pub const VALUES: Self = Self { theta: 0.0, k: 0.2615, sigma: 25.45 };
    /// db_bench's lengths of scans.
    pub const SCANS: Self = Self { theta: 0.0, k: 2.517, sigma: 14.236 };

    /// The value that the share `u` of draws exceeds, `u` in `(0, 1]`, rounded up.
    pub(crate) fn at(self, u: f64) -> u64 {
        let Self { theta, k, sigma } = self;
        let x = if k == 0.0 { -u.ln() } else { (u.powf(-k) - 1.0) / k };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let whole = (theta + sigma * x).ceil() as u64;
        whole
    }
}

/// The distribution of a length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lengths {
    /// Always the same.
    Fixed(usize),
    /// Uniform from one to the maximum.
    UpTo(usize),
    /// By a Pareto distribution; lengths above `max` are taken modulo `max`, then lengths below `min` become `min`, as
    /// in db_bench.
    Pareto {
        /// The distribution.
        of: Pareto,
        /// The least.
        min: usize,
        /// The most.
        max: usize,
    },
}

impl Lengths {
    pub(crate) fn draw(self, random: &mut impl Rng) -> usize {
        match self {
            Self::Fixed(length) => length,
            Self::UpTo(most) => random.random_range(1..=most),
            Self::Pareto { of, min, max } => {
                let drawn = usize::try_from(of.at(1.0 - random.random::<f64>())).unwrap_or(max);
                let within = if drawn > max { drawn % max } else { drawn };
                within.max(min)
            }
        }
    }

    /// Whether a draw can give `length`.
    pub(crate) fn allows(self, length: usize) -> bool {
        match self {
            Self::Fixed(fixed) => length == fixed,
            Self::UpTo(most) => (1..=most).contains(&length),
            Self::Pareto { min, max, .. } => (min..=max).contains(&length),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn draws_follow_the_distribution() {
        const DRAWS: usize = 200_000;
        for of in [Pareto::VALUES, Pareto::SCANS, Pareto { theta: 5.0, k: 0.0, sigma: 40.0 }] {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
            let lengths = Lengths::Pareto { of, min: 0, max: usize::MAX };
            let drawn: Vec<_> = (0..DRAWS).map(|_| lengths.draw(&mut random)).collect();
            for limit in [10_u32, 30, 100, 300] {
                let x = (f64::from(limit) - of.theta) / of.sigma;
                // The tail computed from its formula, not from the inverse.
                let tail =
                    if of.k == 0.0 { (-x).exp() } else { (1.0 + of.k * x).powf(-1.0 / of.k) };
                let above = drawn.iter().filter(|&&length| length > limit as usize).count();
                let off = above as f64 - tail * DRAWS as f64;
                let deviation = (tail * (1.0 - tail) * DRAWS as f64).sqrt();
                assert!(off.abs() < 5.0 * deviation + 1.0, "{of:?} above {limit}: {off} off");
            }
        }
    }

    #[test]
    fn lengths_keep_to_their_bounds() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let pareto = Lengths::Pareto { of: Pareto::SCANS, min: 10, max: 100 };
        for lengths in [Lengths::Fixed(7), Lengths::UpTo(9), pareto] {
            assert!((0..10_000).all(|_| lengths.allows(lengths.draw(&mut random))), "{lengths:?}");
        }
        assert!(!pareto.allows(9) && !pareto.allows(101) && !Lengths::Fixed(7).allows(8));
    }
}

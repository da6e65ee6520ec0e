//! What is compared, and which blocks are written.

use bench::ycsb::Zipfian;
use rand::{Rng, RngExt};

/// How the device is kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Arm {
    /// Copies of each extent, written in place.
    Copies {
        /// How many.
        count: usize,
    },
    /// Fragments of 4+2, written through a log.
    Logged {
        /// The log's part of the device.
        percent: u64,
        /// All of it is in memory, not an eighth.
        in_memory: bool,
    },
}

/// Which blocks are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Keys {
    /// By Zipf's law with 0.99, scattered.
    Zipf,
    /// Each as often.
    Uniform,
}

/// The one that has bands.
pub(super) const FIVE: Arm = Arm::Logged { percent: 5, in_memory: false };

impl Arm {
    pub(super) const ALL: [Self; 6] = [
        Self::Copies { count: 1 },
        Self::Copies { count: 3 },
        Self::Logged { percent: 1, in_memory: false },
        FIVE,
        Self::Logged { percent: 5, in_memory: true },
        Self::Logged { percent: 25, in_memory: false },
    ];

    pub(super) fn name(self) -> String {
        match self {
            Self::Copies { count: 1 } => "plain".into(),
            Self::Copies { count } => format!("{count} copies"),
            Self::Logged { percent, in_memory: false } => format!("4+2, log {percent} %"),
            Self::Logged { percent, in_memory: true } => format!("4+2, log {percent} %, in memory"),
        }
    }
}

impl Keys {
    pub(super) const ALL: [Self; 2] = [Self::Zipf, Self::Uniform];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Zipf => "zipf 0.99",
            Self::Uniform => "uniform",
        }
    }

    /// The most that a write may cost with a log of 5 %.
    pub(super) const fn band(self) -> Option<f64> {
        match self {
            Self::Zipf => Some(2.0),
            Self::Uniform => Some(2.8),
        }
    }

    /// A choice among `blocks`, a power of two.
    pub(super) fn choose<R: Rng>(self, blocks: u64) -> impl FnMut(&mut R) -> u64 {
        let zipf = (self == Self::Zipf).then(|| Zipfian::new(blocks));
        move |random| match &zipf {
            // An odd factor scatters the ranks over all blocks, each to another one.
            Some(zipf) => zipf.rank(random).wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks,
            None => random.random_range(0..blocks),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn a_window_has_as_many_different_blocks_as_its_law_says() {
        let blocks = 1 << 20;
        let distinct = |keys: Keys| {
            let (mut random, mut choose) =
                (Xoshiro256PlusPlus::seed_from_u64(1), keys.choose(blocks));
            let window = blocks / 20;
            let seen: std::collections::HashSet<_> =
                (0..window).map(|_| choose(&mut random)).collect();
            seen.len() as f64 / window as f64
        };
        assert!((distinct(Keys::Uniform) - 0.975).abs() < 0.01);
        assert!((0.38..0.5).contains(&distinct(Keys::Zipf)), "{}", distinct(Keys::Zipf));
    }
}

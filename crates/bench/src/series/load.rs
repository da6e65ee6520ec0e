//! The writes: the sequence of keys, and the known lifetimes of their values.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The lifetimes of records. All values have the same size, so a share of keys is a share of bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// Keys are written in a cycle (PSTA 8(3), 2017): all records live equally long, and the store is told how long.
    Cyclic,
    /// Uniformly random keys: lifetimes are unknown.
    Random,
    /// Series whose slots are written in a cycle, each kept twice as long as the one before and with equally many
    /// slots; the store is told how long.
    Series {
        /// The ratio of the longest retention to the shortest, a power of two.
        range: u32,
    },
}

/// The next write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Next {
    /// The key, from 0 on.
    pub key: u64,
    /// The number of writes until the key is written again, if known.
    pub again: Option<u64>,
}

/// A sequence of writes.
#[derive(Clone, Debug)]
pub struct Writes {
    load: Load,
    keys: u64,
    written: u64,
    random: Xoshiro256PlusPlus,
    /// In a series: the period of each of its keys, in writes.
    periods: Vec<u64>,
    due: BinaryHeap<Reverse<(u64, u64)>>,
}

impl Load {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Cyclic => "cyclic".into(),
            Self::Random => "random".into(),
            Self::Series { range } => format!("series kept 1 to {range}"),
        }
    }
}

impl Writes {
    /// Writes to `keys` keys; the same seed gives the same writes.
    #[must_use]
    pub fn new(load: Load, keys: u64, seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut due = BinaryHeap::new();
        let mut periods = Vec::new();
        if let Load::Series { range } = load {
            let series = u64::from(range.ilog2()) + 1;
            let kept = |series: u64| (1u64 << series) as f64;
            // Each write advances time by one, so the periods are in total writes.
            let rate: f64 = (0..keys).map(|key| 1.0 / kept(key % series)).sum();
            periods = (0..series).map(|series| (kept(series) * rate).round() as u64).collect();
            due = (0..keys)
                .map(|key| Reverse((random.random_range(0..periods[(key % series) as usize]), key)))
                .collect();
        }
        Self { load, keys, written: 0, random, periods, due }
    }

    /// The number of writes within which every key is written once.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.periods.last().copied().unwrap_or(self.keys)
    }

    /// The next write.
    pub fn draw(&mut self) -> Next {
        let now = self.written;
        self.written += 1;
        match self.load {
            Load::Cyclic => Next { key: now % self.keys, again: Some(self.keys) },
            Load::Random => Next { key: self.random.random_range(0..self.keys), again: None },
            Load::Series { .. } => {
                let Reverse((due, key)) = self.due.pop().expect("every key comes round");
                let series = self.periods.len() as u64;
                let again = due + self.periods[(key % series) as usize];
                self.due.push(Reverse((again, key)));
                // Collisions in the queue can shift the due time.
                Next { key, again: Some(again.saturating_sub(now).max(1)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cyclic_keys_come_round_when_it_was_said() {
        let mut writes = Writes::new(Load::Cyclic, 3, 1);
        let keys: Vec<_> = (0..7).map(|_| writes.draw().key).collect();
        assert_eq!(keys, [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(writes.draw(), Next { key: 1, again: Some(3) });
        assert_eq!(writes.longest(), 3);
    }

    #[test]
    fn series_come_round_about_when_it_was_said_and_the_short_ones_more_often() {
        let keys = 5000;
        let mut writes = Writes::new(Load::Series { range: 16 }, keys, 1);
        let rounds = 4 * writes.longest();
        let mut counts = vec![0u64; keys as usize];
        let mut expected = vec![None; keys as usize];
        for now in 0..rounds {
            let Next { key, again } = writes.draw();
            let again = again.expect("a series says so");
            if let Some(due) = expected[key as usize].replace(now + again) {
                assert!(now.abs_diff(due) <= keys / 50, "{key} due at {due} came at {now}");
            }
            counts[key as usize] += 1;
        }
        let of = |series: u64| {
            let counts = (0..keys).filter(|key| key % 5 == series).map(|key| counts[key as usize]);
            counts.sum::<u64>() as f64
        };
        assert!((of(0) / of(4) - 16.0).abs() < 1.0, "{}", of(0) / of(4));
        assert!(counts.iter().all(|count| *count >= 3));
    }

    #[test]
    fn the_same_seed_gives_the_same_keys() {
        let keys = |seed| {
            let mut writes = Writes::new(Load::Random, 100, seed);
            (0..50).map(|_| writes.draw().key).collect::<Vec<_>>()
        };
        assert_eq!(keys(1), keys(1));
        assert_ne!(keys(1), keys(2));
    }
}

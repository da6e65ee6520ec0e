//! The writes to the store: the next key, and its lifetime if it is known.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

/// How long records live.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lifetimes {
    /// Keys are written round and round: all records live equally long, and their lifetime is known.
    Cyclic,
    /// Any key at any time: lifetimes are unknown, and cannot be guessed.
    Random,
    /// A tenth of the keys gets nine tenths of the writes, at random; lifetimes are unknown.
    Hot,
    /// Series of slots that are written round and round, each twice as fast as the one before, up to `range`
    /// times the slowest, with as many slots in each. Lifetimes are known.
    Series {
        /// The fastest beside the slowest.
        range: u32,
    },
    /// The same, with unknown lifetimes.
    SeriesUntold {
        /// The fastest beside the slowest.
        range: u32,
    },
    /// Every key has its own period, up to `range` times the shortest, with as many keys in each doubling.
    /// Lifetimes are known.
    Spread {
        /// The longest beside the shortest.
        range: u32,
    },
    /// Half of the keys are cyclic and known, half random.
    Mixed,
}

impl Lifetimes {
    /// The name in the table.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Cyclic => "cyclic".into(),
            Self::Random => "random".into(),
            Self::Hot => "hot 90/10".into(),
            Self::Series { range } => format!("series 1:{range}"),
            Self::SeriesUntold { range } => format!("series 1:{range} untold"),
            Self::Spread { range } => format!("spread 1:{range}"),
            Self::Mixed => "half cyclic".into(),
        }
    }
}

/// A key to write, and the number of writes until it is written again, if known.
pub(super) type Next = (u32, Option<u64>);

/// Writes by their lifetimes.
pub(super) struct Load {
    lifetimes: Lifetimes,
    keys: u32,
    written: u64,
    /// The period of each key in writes, for loads with periods.
    periods: Vec<u64>,
    due: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Load {
    pub(super) fn new(lifetimes: Lifetimes, keys: u32, random: &mut Xoshiro256PlusPlus) -> Self {
        let mut load =
            Self { lifetimes, keys, written: 0, periods: Vec::new(), due: BinaryHeap::new() };
        load.periods = match lifetimes {
            Lifetimes::Series { range } | Lifetimes::SeriesUntold { range } => {
                let series = range.ilog2() + 1;
                (0..keys).map(|key| 1 << (key % series)).collect()
            }
            Lifetimes::Spread { range } => {
                let doublings = f64::from(range).log2();
                let mut period = |_: u32| 1e3 * random.random_range(0.0..doublings).exp2();
                (0..keys).map(|key| period(key) as u64).collect()
            }
            Lifetimes::Cyclic | Lifetimes::Random | Lifetimes::Hot | Lifetimes::Mixed => Vec::new(),
        };
        // Scale the periods so that one key is due at each write.
        let rate: f64 = load.periods.iter().map(|&period| 1.0 / period as f64).sum();
        for (key, period) in load.periods.iter_mut().enumerate() {
            *period = ((*period as f64) * rate).round().max(1.0) as u64;
            load.due.push(Reverse((random.random_range(0..*period), key as u32)));
        }
        load
    }

    /// The longest period: there is no equilibrium before every key was written a few times.
    pub(super) fn longest(&self) -> u64 {
        self.periods.iter().copied().max().unwrap_or(0)
    }

    pub(super) fn next(&mut self, random: &mut Xoshiro256PlusPlus) -> Next {
        let now = self.written;
        self.written += 1;
        let keys = self.keys;
        let cyclic = |keys: u32| (now % u64::from(keys)) as u32;
        match self.lifetimes {
            Lifetimes::Cyclic => (cyclic(keys), Some(u64::from(keys))),
            Lifetimes::Random => (random.random_range(0..keys), None),
            Lifetimes::Hot => {
                let hot = keys / 10;
                let key = if random.random_bool(0.9) { 0..hot } else { hot..keys };
                (random.random_range(key), None)
            }
            Lifetimes::Mixed => {
                let half = keys / 2;
                if now.is_multiple_of(2) {
                    ((now / 2 % u64::from(half)) as u32, Some(2 * u64::from(half)))
                } else {
                    (random.random_range(half..keys), None)
                }
            }
            Lifetimes::Series { .. }
            | Lifetimes::SeriesUntold { .. }
            | Lifetimes::Spread { .. } => {
                let Reverse((due, key)) = self.due.pop().expect("every key comes round");
                let period = self.periods[key as usize];
                self.due.push(Reverse((due + period, key)));
                let told = !matches!(self.lifetimes, Lifetimes::SeriesUntold { .. });
                // Colliding keys make the queue late or early.
                (key, told.then(|| (due + period).saturating_sub(now).max(1)))
            }
        }
    }
}

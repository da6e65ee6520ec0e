//! How often keys were read of late, in a fixed number of bytes.
//!
//! A count-min sketch (Cormode and Muthukrishnan, 2005) of counts of four bits: a key has four of them in one line of the
//! processor's cache, and was read at most as often as the smallest says. A read raises only those that are smallest. All counts
//! are halved from time to time; odd ones are rounded up or down at random, so that many keys that are read seldom count for what
//! they are together.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::quality::FixedState;

/// The largest count.
const MOST: u8 = 15;

/// Bits of one count.
const BITS: u32 = 4;

/// The lowest bit of each count in a word, and all but the highest one.
const ODD: u64 = 0x1111_1111_1111_1111;
const HALVES: u64 = 0x7777_7777_7777_7777;

/// Words of a line.
const WORDS: usize = 8;

/// Counts for each key that is told from others: with fewer, keys count for each other.
const COUNTS_PER_KEY: u64 = 8;

#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; WORDS]);

/// The reads of keys. Any thread may call any of its methods; a read that is counted while another thread counts one of a key beside it
/// may be lost.
pub struct KeyCounts {
    lines: Box<[Line]>,
    /// Keys whose count was 0 when they were read, since the counts were halved; halved with them.
    keys: AtomicU64,
    halved: AtomicU64,
}

/// Where a count of a key is.
struct At<'a> {
    word: &'a AtomicU64,
    shift: u32,
}

impl At<'_> {
    fn of(&self, word: u64) -> u8 {
        (word >> self.shift) as u8 & MOST
    }
}

impl KeyCounts {
    /// Makes counts that take about `bytes` bytes, at least 64. They tell a quarter as many keys apart.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let lines = (bytes / size_of::<Line>() as u64).max(1);
        let lines = (0..lines).map(|_| Line::default()).collect();
        Self { lines, keys: AtomicU64::new(0), halved: AtomicU64::new(0) }
    }

    /// Bytes of memory.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        size_of_val::<[Line]>(&self.lines) as u64
    }

    /// A key was read.
    pub fn add(&self, key: &[u8]) {
        let of_key = self.of_key(key);
        let words = of_key.each_ref().map(|at| at.word.load(Ordering::Relaxed));
        let counts = [0, 1, 2, 3].map(|i| of_key[i].of(words[i]));
        let least = counts.into_iter().min().unwrap_or(MOST);
        if least == MOST {
            return;
        }
        if least == 0 {
            self.keys.fetch_add(1, Ordering::Relaxed);
        }
        for i in (0..4).filter(|&i| counts[i] == least) {
            let (at, word) = (&of_key[i], words[i]);
            let raised = word + (1 << at.shift);
            // Lost to another thread that changes the word.
            let _ = at.word.compare_exchange(word, raised, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// How often a key was read, at most 15.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> u8 {
        let counts = self.of_key(key).map(|at| at.of(at.word.load(Ordering::Relaxed)));
        counts.into_iter().min().unwrap_or(0)
    }

    /// Whether users have read more keys since the last [`KeyCounts::halve`] than the counts tell apart.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let counts = self.bytes() * u64::from(u8::BITS / BITS);
        self.keys.load(Ordering::Relaxed) > counts / COUNTS_PER_KEY
    }

    /// Halves all counts.
    pub fn halve(&self) {
        let round = self.halved.fetch_add(1, Ordering::Relaxed);
        for (number, line) in (0_u64..).zip(&self.lines) {
            // One bit for the line: the counts of a key are equal mostly, and stay so.
            let up = if mixed(number ^ round << 40) & 1 == 0 { 0 } else { ODD };
            for word in &line.0 {
                let whole = word.load(Ordering::Relaxed);
                word.store((whole >> 1 & HALVES) + (whole & up), Ordering::Relaxed);
            }
        }
        self.keys.store(self.keys.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
    }

    /// The four counts of a key: one in each pair of words of its line.
    fn of_key(&self, key: &[u8]) -> [At<'_>; 4] {
        let hash = FixedState::default().hash_one(key);
        let line = ((u128::from(hash) * self.lines.len() as u128) >> 64) as usize;
        let words = &self.lines[line].0;
        // The upper bits chose the line.
        let bits = mixed(hash);
        [0, 1, 2, 3].map(|i| {
            let own = (bits >> (5 * i)) as usize & 31;
            At { word: &words[2 * i + own % 2], shift: (own / 2) as u32 * BITS }
        })
    }
}

/// A number whose bits all depend on those of another one (the finalizer of SplitMix64).
fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Vec<u8> {
        format!("user{number}").into_bytes()
    }

    #[test]
    fn keys_count_for_themselves() {
        let counts = KeyCounts::new(1 << 16);
        assert_eq!(counts.bytes(), 1 << 16);
        for number in 0..2000 {
            (0..number % 20).for_each(|_| counts.add(&key(number)));
        }
        let wrong =
            (0..2000).filter(|&n| u64::from(counts.get(&key(n))) != (n % 20).min(15)).count();
        assert!(wrong < 20, "{wrong} of 2000 keys count for others");
        let others: u32 = (2000..4000).map(|n| u32::from(counts.get(&key(n)))).sum();
        assert!(others < 100, "keys that were never read count {others}");
    }

    /// Sums of seldom read keys are what they were: else a page of many such keys would count for nothing.
    #[test]
    fn halves_are_right_on_average() {
        let counts = KeyCounts::new(1 << 16);
        (0..4000).for_each(|n| counts.add(&key(n)));
        let sum = || (0..4000).map(|n| u32::from(counts.get(&key(n)))).sum::<u32>();
        counts.halve();
        assert!((1800..2200).contains(&sum()), "{}", sum());
        counts.halve();
        assert!((850..1150).contains(&sum()), "{}", sum());
        (0..8).for_each(|_| counts.halve());
        assert!(sum() < 30, "{}", sum());
    }

    #[test]
    fn too_many_keys_are_told() {
        let counts = KeyCounts::new(1 << 12);
        let room = (1 << 13) / COUNTS_PER_KEY;
        (0..room * 9 / 10).for_each(|n| (0..3).for_each(|_| counts.add(&key(n))));
        assert!(!counts.is_full(), "reads of the same keys are none");
        (room..2 * room).for_each(|n| counts.add(&key(n)));
        assert!(counts.is_full());
        counts.halve();
        assert!(!counts.is_full());
    }

    #[test]
    fn the_least_memory_is_a_line() {
        let counts = KeyCounts::new(0);
        (0..40).for_each(|_| counts.add(b"a"));
        assert_eq!((counts.bytes(), counts.get(b"a")), (64, MOST));
    }
}

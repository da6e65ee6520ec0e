//! A few records get most of the choices, evenly among them: YCSB's `HotspotIntegerGenerator`.

use rand::{Rng, RngExt};

/// The share of the records that is hot, and the share of the choices they get: YCSB's defaults.
const HOT_RECORDS: f64 = 0.2;
const HOT_CHOICES: f64 = 0.8;

/// A choice among records, the hot ones first.
#[derive(Clone, Debug)]
pub(super) struct Hotspot {
    hot: u64,
    records: u64,
}

impl Hotspot {
    /// Chooses among `records`, at least one.
    pub(super) fn new(records: u64) -> Self {
        assert!(records > 0, "something to choose from");
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of it")]
        let hot = (records as f64 * HOT_RECORDS) as u64;
        Self { hot: hot.max(1), records }
    }

    /// The number of a record.
    pub(super) fn record(&self, random: &mut impl Rng) -> u64 {
        if self.hot == self.records || random.random_bool(HOT_CHOICES) {
            random.random_range(0..self.hot)
        } else {
            random.random_range(self.hot..self.records)
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn a_fifth_of_the_records_gets_four_fifths_of_the_choices() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let hotspot = Hotspot::new(1000);
        let mut counts = [0_u64; 1000];
        (0..1_000_000).for_each(|_| counts[hotspot.record(&mut random) as usize] += 1);
        let hot = counts[..200].iter().sum::<u64>() as f64 / 1e6;
        assert!((hot - HOT_CHOICES).abs() < 0.002, "{hot}");
        // 4000 and 250 on average: six deviations are 379 and 95.
        assert!(counts[..200].iter().all(|&count| count.abs_diff(4000) < 379));
        assert!(counts[200..].iter().all(|&count| count.abs_diff(250) < 95));
    }

    #[test]
    fn one_record_is_hot() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        assert!((0..100).all(|_| Hotspot::new(1).record(&mut random) == 0));
    }
}

//! The newest records are the most popular: YCSB's `SkewedLatestGenerator`.

use rand::Rng;

use super::zipfian::Zipfian;

/// A choice among a growing number of records.
#[derive(Clone, Debug)]
pub(super) struct Latest {
    zipfian: Zipfian,
}

impl Latest {
    /// Chooses among `records` at first, at least one.
    pub(super) fn new(records: u64) -> Self {
        Self { zipfian: Zipfian::new(records) }
    }

    /// The number of a record, now that there are `records`.
    pub(super) fn record(&mut self, records: u64, random: &mut impl Rng) -> u64 {
        self.zipfian.resize(records);
        records - 1 - self.zipfian.rank(random)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn the_newest_record_stays_the_most_popular_while_records_are_inserted() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut latest = Latest::new(1000);
        let mut by_age = vec![0_u64; 11_000];
        for records in 1000..11_000 {
            for _ in 0..50 {
                let record = latest.record(records, &mut random);
                assert!(record < records, "{record} of {records} is not there yet");
                by_age[(records - 1 - record) as usize] += 1;
            }
        }
        let draws = by_age.iter().sum::<u64>() as f64;
        // Zipf's share of the first rank, averaged over the sizes.
        let shares = (1000..11_000).map(|records| 1.0 / sum_of(records));
        let expected = shares.sum::<f64>() / 10_000.0;
        let share = by_age[0] as f64 / draws;
        assert!((share / expected - 1.0).abs() < 0.02, "{share} is not {expected}");
        let newest_hundred = by_age[..100].iter().sum::<u64>() as f64 / draws;
        assert!((0.5..0.6).contains(&newest_hundred), "{newest_hundred}");
        let octaves = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
            .map(|from| by_age[from..2 * from].iter().sum::<u64>() as f64 / from as f64);
        assert!(octaves.is_sorted_by(|newer, older| newer > older), "{octaves:?}");
    }

    /// An approximation of the sum of 1/k^0.99.
    fn sum_of(n: u64) -> f64 {
        0.577_9 + ((n as f64).powf(0.01) - 1.0) / 0.01
    }
}

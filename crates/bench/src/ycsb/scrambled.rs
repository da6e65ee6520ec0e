//! A popularity skew that is scattered over all records.
//!
//! YCSB's `ScrambledZipfianGenerator`: draws a rank among ten billion, whatever the number of records; its hash selects
//! the record. The most popular record gets 3.8 % of the choices. Most ranks share a record with others, so the tail is
//! nearly uniform.

use rand::Rng;

use super::zipfian::Zipfian;

/// YCSB's `ITEM_COUNT`, for which its zeta was computed.
const RANKS: u64 = 10_000_000_000;

/// A choice among records.
#[derive(Clone, Debug)]
pub(super) struct Scrambled {
    zipfian: Zipfian,
    records: u64,
}

impl Scrambled {
    /// Chooses among `records`, at least one.
    pub(super) fn new(records: u64) -> Self {
        assert!(records > 0, "something to choose from");
        Self { zipfian: Zipfian::new(RANKS), records }
    }

    /// The number of a record.
    pub(super) fn record(&self, random: &mut impl Rng) -> u64 {
        fnv(self.zipfian.rank(random)) % self.records
    }
}

/// The 64-bit FNV-1a hash of a number, lowest byte first, without its sign: YCSB's `fnvhash64`.
fn fnv(number: u64) -> u64 {
    let hash = number.to_le_bytes().into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash.cast_signed().unsigned_abs()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::super::zipfian::THETA;
    use super::*;

    #[test]
    fn records_are_as_popular_as_the_ranks_that_hash_to_them() {
        const DRAWS: u64 = 1_000_000;
        const RECORDS: u64 = 1000;
        // The most popular ranks one by one; all others together are uniform.
        const HEAD: u64 = 100_000;
        let zeta = 26.469_028_201_783_02;
        let mut expected = vec![0.0; RECORDS as usize];
        for rank in 0..HEAD {
            let share = ((rank + 1) as f64).powf(-THETA) / zeta;
            expected[(fnv(rank) % RECORDS) as usize] += share;
        }
        let rest = 1.0 - expected.iter().sum::<f64>();
        expected.iter_mut().for_each(|share| *share += rest / RECORDS as f64);

        let scrambled = Scrambled::new(RECORDS);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut counts = vec![0_u64; RECORDS as usize];
        for _ in 0..DRAWS {
            counts[scrambled.record(&mut random) as usize] += 1;
        }
        let seen = |record: usize| counts[record] as f64 / DRAWS as f64;
        let off = expected.iter().enumerate().map(|(record, share)| (seen(record) - share).abs());
        // Of this, 1.3 % are due to chance (a thousand records, a million draws), the rest to the approximation.
        let elsewhere = off.sum::<f64>() / 2.0;
        assert!(elsewhere < 0.03, "{elsewhere} of the choices are elsewhere");
        let hottest = (fnv(0) % RECORDS) as usize;
        let share = seen(hottest) / expected[hottest];
        assert!((0.98..1.02).contains(&share), "the hottest record is {share} of its share");
        assert!(expected[hottest] > 1.0 / zeta);
    }

    #[test]
    fn the_hash_is_ycsbs() {
        // FNV-1a of eight zero bytes is negative; YCSB removes the sign.
        assert_eq!(fnv(0), 0xa8c7_f832_281a_39c5_u64.cast_signed().unsigned_abs());
    }
}

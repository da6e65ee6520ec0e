//! How often each unit was accessed in each of the last eight generations.

use std::cmp::Reverse;

/// Generations that are counted apart.
pub(super) const GENERATIONS: u16 = 8;

/// Bits of a count: enough for thresholds of up to 8.
const BITS: u16 = 4;

const WAYS: usize = 8;

/// A hash table of fixed size, 8 bytes a cell. A unit may be in any cell of one bucket, and displaces the unit with the
/// fewest accesses in its bucket. Beside a count-min sketch of the same memory this forgets units when it is too small,
/// but never counts too much except for one unit in 8,000, which shares its tag with another one in its bucket: a unit
/// that comes once is not promoted. No generation is ever cleared: a cell is brought up to date when its bucket is used.
#[derive(Debug)]
pub(super) struct Counts {
    buckets: Vec<[Cell; WAYS]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// A count of 4 bits for each generation, the current one in the lowest bits. An empty cell has none.
    counts: u32,
    tag: u16,
    /// The generation of the lowest count.
    generation: u16,
}

impl Cell {
    fn advance(&mut self, generation: u16) {
        let passed = generation.wrapping_sub(self.generation);
        self.counts =
            if passed < GENERATIONS { self.counts << (BITS * passed) } else { Default::default() };
        self.generation = generation;
    }

    fn increment(&mut self) {
        if self.counts & 0xf != 0xf {
            self.counts += 1;
        }
    }

    fn sum(self) -> u32 {
        // Pairs of counts as bytes, whose sum fits the uppermost byte of the product.
        let pairs = (self.counts & 0x0f0f_0f0f) + ((self.counts >> BITS) & 0x0f0f_0f0f);
        pairs.wrapping_mul(0x0101_0101) >> 24
    }
}

impl Counts {
    /// Room for at least `units` units.
    pub(super) fn new(units: u64) -> Self {
        let buckets = usize::try_from(units).expect("units fit memory").div_ceil(WAYS);
        Self { buckets: vec![Default::default(); buckets.max(1)] }
    }

    /// Counts an access in this generation; returns the unit's count in this one and the seven before.
    pub(super) fn add(&mut self, unit: u64, generation: u16) -> u32 {
        let (bucket, tag) = self.bucket(unit);
        for cell in &mut *bucket {
            cell.advance(generation);
        }
        let known = bucket.iter_mut().position(|cell| cell.counts != 0 && cell.tag == tag);
        let at = known.unwrap_or_else(|| {
            // Of several, the one whose latest access is longest ago.
            let worth =
                |at: &usize| (bucket[*at].sum(), Reverse(bucket[*at].counts.trailing_zeros()));
            let at = (0..WAYS).min_by_key(worth).unwrap_or(0);
            bucket[at] = Cell { counts: 0, tag, generation };
            at
        });
        bucket[at].increment();
        bucket[at].sum()
    }

    /// Forgets all accesses of a unit.
    pub(super) fn forget(&mut self, unit: u64) {
        let (bucket, tag) = self.bucket(unit);
        for cell in bucket.iter_mut().filter(|cell| cell.tag == tag) {
            cell.counts = 0;
        }
    }

    fn bucket(&mut self, unit: u64) -> (&mut [Cell; WAYS], u16) {
        // Steele et al., SplitMix64: the caller's hash may differ in few bits.
        let mixed = (unit ^ (unit >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let mixed = mixed ^ (mixed >> 31);
        let at = (u128::from(mixed) * self.buckets.len() as u128) >> 64;
        (&mut self.buckets[at as usize], mixed as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_costs_16_bytes_at_most() {
        assert!(size_of::<Cell>() <= 16);
    }

    #[test]
    fn it_counts_this_generation_and_the_seven_before() {
        let mut counts = Counts::new(100);
        // The number of a generation wraps.
        for generation in 0..20_u16 {
            let counted = counts.add(7, generation.wrapping_sub(5));
            assert_eq!(counted, u32::from(generation + 1).min(8));
        }
        assert_eq!(counts.add(7, 14 + 7), 2);
        assert_eq!(counts.add(7, 14 + 7 + 8), 1);
    }

    #[test]
    fn many_accesses_fill_no_other_count() {
        let mut counts = Counts::new(1);
        assert_eq!((0..100).map(|_| counts.add(7, 0)).max(), Some(15));
        assert_eq!(counts.add(7, 1), 16);
        assert_eq!(counts.add(8, 1), 1);
    }

    #[test]
    fn units_with_the_fewest_accesses_make_room() {
        let mut counts = Counts::new(1);
        counts.add(0, 0);
        counts.add(0, 0);
        for unit in 1..100 {
            counts.add(unit, 1);
        }
        assert_eq!(counts.add(0, 1), 3);
    }

    #[test]
    fn what_is_forgotten_starts_anew() {
        let mut counts = Counts::new(8);
        counts.add(1, 0);
        counts.add(2, 0);
        counts.forget(1);
        assert_eq!((counts.add(1, 0), counts.add(2, 0)), (1, 2));
    }
}

use std::ops::{BitAnd, BitOr, Range, Sub};

use super::BLOCK;
use crate::placement::Code;

const WORDS: usize = (Code::STRIP_MAX / BLOCK).div_ceil(64) as usize;

/// A set of blocks of one strip, one bit for each.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Blocks([u64; WORDS]);

impl Blocks {
    pub(super) const NONE: Self = Self([0; WORDS]);
    pub(super) const ALL: Self = Self([u64::MAX; WORDS]);

    /// Adds a block; false if the set had it.
    pub(super) fn insert(&mut self, block: u32) -> bool {
        let (word, bit) = (block as usize / 64, 1 << (block % 64));
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }

    pub(super) fn is_empty(self) -> bool {
        self == Self::NONE
    }

    pub(super) fn has_all(self, others: Self) -> bool {
        (others - self).is_empty()
    }

    /// The smallest range that holds the set.
    pub(super) fn hull(self) -> Self {
        match self.runs()[..] {
            [] => Self::NONE,
            [ref only] => Self::from_iter([only.clone()]),
            [ref first, .., ref last] => Self::from_iter(Some(first.start..last.end)),
        }
    }

    /// The maximal ranges of blocks in the set, ascending.
    pub(super) fn runs(self) -> Vec<Range<u32>> {
        let mut runs = Vec::new();
        let mut from = 0;
        while let Some(start) = self.first_from(from) {
            let end = (Self::ALL - self).first_from(start).unwrap_or(WORDS as u32 * 64);
            runs.push(start..end);
            from = end;
        }
        runs
    }

    /// The first block of the set that is not below `from`.
    fn first_from(self, from: u32) -> Option<u32> {
        let mut mask = u64::MAX << (from % 64);
        for word in from as usize / 64..WORDS {
            let bits = self.0[word] & mask;
            if bits != 0 {
                return Some(word as u32 * 64 + bits.trailing_zeros());
            }
            mask = u64::MAX;
        }
        None
    }
}

impl FromIterator<Range<u32>> for Blocks {
    fn from_iter<I: IntoIterator<Item = Range<u32>>>(ranges: I) -> Self {
        let mut blocks = Self::NONE;
        for range in ranges {
            for word in range.start / 64..range.end.div_ceil(64) {
                let from = range.start.max(word * 64) - word * 64;
                let until = range.end.min(word * 64 + 64) - word * 64;
                if from < until {
                    blocks.0[word as usize] |= (u64::MAX >> (64 - (until - from))) << from;
                }
            }
        }
        blocks
    }
}

impl BitAnd for Blocks {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }
}

impl BitOr for Blocks {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }
}

impl Sub for Blocks {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & !other.0[word]))
    }
}

/// Integer weights, so that sums do not depend on their order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights {
    /// Of one operation.
    pub(super) operation: u64,
    /// Of one block read or written.
    pub(super) block: u64,
    /// The most blocks in an operation.
    pub(super) operation_blocks: u32,
}

impl Weights {
    /// The weight of reading or writing a range of so many blocks.
    pub(super) fn of_range(&self, blocks: u32) -> u64 {
        u64::from(blocks.div_ceil(self.operation_blocks)) * self.operation
            + u64::from(blocks) * self.block
    }

    /// The lightest ranges that hold all blocks of `needed` and besides only blocks of `gaps`.
    pub(super) fn cover(&self, needed: Blocks, gaps: Blocks) -> Vec<Range<u32>> {
        let runs = needed.runs();
        let [first, .., last] = &runs[..] else { return runs };
        let may_fill =
            |gap: Range<u32>| gaps == Blocks::ALL || gaps.has_all([gap].into_iter().collect());
        if last.end - first.start > self.operation_blocks {
            let may_fill: Vec<bool> =
                runs.windows(2).map(|pair| may_fill(pair[0].end..pair[1].start)).collect();
            return self.cover_long(&runs, &may_fill);
        }
        // Every range is one operation, so each gap is judged alone.
        let mut ranges: Vec<Range<u32>> = Vec::with_capacity(runs.len());
        for run in runs {
            match ranges.last_mut() {
                Some(last)
                    if u64::from(run.start - last.end) * self.block < self.operation
                        && may_fill(last.end..run.start) =>
                {
                    last.end = run.end;
                }
                _ => ranges.push(run),
            }
        }
        ranges
    }

    /// As [`cover`](Self::cover), of runs and whether the gap after each may be filled.
    ///
    /// A range can need two operations where shorter ones need one each, so gaps cannot be judged alone. Takes time
    /// quadratic in the number of runs at most.
    fn cover_long(&self, runs: &[Range<u32>], may_fill: &[bool]) -> Vec<Range<u32>> {
        // The least weight of the first `i` runs, and the first run of the last range among them.
        let mut best: Vec<(u64, usize)> = vec![(0, 0)];
        for end in 1..=runs.len() {
            let mut least = (u64::MAX, end - 1);
            for start in (0..end).rev() {
                let weight = self.of_range(runs[end - 1].end - runs[start].start);
                if weight >= least.0 {
                    break;
                }
                least = least.min((best[start].0 + weight, start));
                if start > 0 && !may_fill[start - 1] {
                    break;
                }
            }
            best.push(least);
        }
        let mut ranges = Vec::new();
        let mut end = runs.len();
        while end > 0 {
            let start = best[end].1;
            ranges.push(runs[start].start..runs[end - 1].end);
            end = start;
        }
        ranges.reverse();
        ranges
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn runs_go_over_the_ends_of_words() {
        let ranges = [0..1, 3..64, 65..130, 200..256];
        let blocks: Blocks = ranges.iter().cloned().collect();
        assert_eq!(blocks.runs(), ranges);
        assert_eq!(Blocks::NONE.runs(), []);
        assert_eq!(Blocks::ALL.runs(), Vec::from_iter(Some(0..256)));
        assert_eq!(blocks.hull(), Blocks::ALL);
        assert_eq!(Blocks::NONE.hull(), Blocks::NONE);
        assert_eq!(Blocks::from_iter(Some(70..72)).hull().runs(), Vec::from_iter(Some(70..72)));
    }

    proptest! {
        /// Among all ways to fill gaps.
        #[test]
        fn covers_are_the_lightest(
            needed in 0u32..1 << 10,
            gaps in 0u32..1 << 10,
            operation in 0u64..20,
            block in 0u64..5,
            operation_blocks in 1u32..12,
        ) {
            let weights = Weights { operation, block, operation_blocks };
            let of_mask = |mask: u32| -> Blocks {
                (0..10).filter(|i| mask >> i & 1 == 1).map(|i| i..i + 1).collect()
            };
            let weight = |ranges: &[Range<u32>]| -> u64 {
                ranges.iter().map(|range| weights.of_range(range.end - range.start)).sum()
            };
            let cover = weights.cover(of_mask(needed), of_mask(gaps));
            let covered: Blocks = cover.iter().cloned().collect();
            prop_assert!(covered.has_all(of_mask(needed)));
            prop_assert!(of_mask(needed | gaps).has_all(covered));
            let least = (0..1u32 << 10)
                .filter(|fill| fill & !gaps == 0)
                .map(|fill| weight(&of_mask(needed | fill).runs()))
                .min();
            prop_assert_eq!(Some(weight(&cover)), least);
        }
    }
}

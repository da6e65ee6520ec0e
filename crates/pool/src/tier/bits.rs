//! Sets of pages: a bitmap for each entry, and masks of ranges.

use std::ops::Range;

use policy::cache::Slot;

/// A bitmap of pages for each entry.
pub(super) struct Bits {
    /// Words of one entry.
    words: usize,
    bits: Vec<u64>,
}

impl Bits {
    /// For entries of `pages` pages; none yet.
    pub(super) fn new(pages: u32) -> Self {
        Self { words: pages.div_ceil(64) as usize, bits: Vec::new() }
    }

    /// Makes room for one more entry.
    pub(super) fn grow(&mut self) {
        self.bits.resize(self.bits.len() + self.words, 0);
    }

    fn of(&self, entry: Slot) -> &[u64] {
        &self.bits[entry as usize * self.words..][..self.words]
    }

    fn of_mut(&mut self, entry: Slot) -> &mut [u64] {
        &mut self.bits[entry as usize * self.words..][..self.words]
    }

    pub(super) fn has(&self, entry: Slot, page: u32) -> bool {
        self.of(entry)[page as usize / 64] & (1 << (page % 64)) != 0
    }

    pub(super) fn has_all(&self, entry: Slot, pages: &Range<u32>) -> bool {
        let words = self.of(entry);
        masks(pages).all(|(word, mask)| words[word] & mask == mask)
    }

    pub(super) fn has_any(&self, entry: Slot) -> bool {
        self.of(entry).iter().any(|&word| word != 0)
    }

    /// Sets pages; returns how many were not set.
    pub(super) fn set(&mut self, entry: Slot, pages: &Range<u32>) -> u32 {
        let words = self.of_mut(entry);
        let set = masks(pages).map(|(word, mask)| {
            let new = mask & !words[word];
            words[word] |= mask;
            new.count_ones()
        });
        set.sum()
    }

    /// Clears pages; returns how many were set.
    pub(super) fn clear(&mut self, entry: Slot, pages: &Range<u32>) -> u32 {
        let words = self.of_mut(entry);
        let cleared = masks(pages).map(|(word, mask)| {
            let old = mask & words[word];
            words[word] &= !mask;
            old.count_ones()
        });
        cleared.sum()
    }

    /// Clears pages that do not stay; returns how many were cleared.
    pub(super) fn retain(&mut self, entry: Slot, stays: impl Fn(u32) -> bool) -> u32 {
        let mut cleared = 0;
        for (number, word) in (0..).zip(self.of_mut(entry)) {
            let mut left = *word;
            while left != 0 {
                let bit = left.trailing_zeros();
                left &= left - 1;
                if !stays(number * 64 + bit) {
                    *word &= !(1 << bit);
                    cleared += 1;
                }
            }
        }
        cleared
    }

    /// How many pages are set.
    pub(super) fn count(&self, entry: Slot) -> u32 {
        self.of(entry).iter().map(|word| word.count_ones()).sum()
    }

    /// The bytes of one entry.
    #[cfg(test)]
    pub(super) const fn bytes_per_entry(&self) -> usize {
        self.words * size_of::<u64>()
    }
}

/// The words of a bitmap that a range touches, and the bits of each.
pub(super) fn masks(range: &Range<u32>) -> impl Iterator<Item = (usize, u64)> + use<> {
    let (mut at, end) = (range.start as usize, range.end as usize);
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (word, bit) = (at / 64, at % 64);
        let count = (64 - bit).min(end - at);
        at += count;
        Some((word, (u64::MAX >> (64 - count)) << bit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_masks() {
        assert_eq!(masks(&(3..5)).collect::<Vec<_>>(), [(0, 0b11000)]);
        let all: Vec<_> = masks(&(63..129)).collect();
        assert_eq!(all, [(0, 1 << 63), (1, u64::MAX), (2, 1)]);
        assert_eq!(masks(&(7..7)).count(), 0);
    }

    #[test]
    fn entries_have_bits_of_their_own() {
        let mut bits = Bits::new(65);
        bits.grow();
        bits.grow();
        assert_eq!(bits.set(1, &(60..65)), 5);
        assert_eq!(bits.set(1, &(62..65)), 0);
        assert!(bits.has_all(1, &(60..65)) && !bits.has_all(1, &(59..65)) && !bits.has_any(0));
        assert_eq!(bits.clear(1, &(0..61)), 1);
        assert_eq!((bits.count(1), bits.retain(1, |page| page == 64)), (4, 3));
        assert!(bits.has(1, 64) && !bits.has(1, 63));
    }
}

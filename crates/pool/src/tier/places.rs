//! Which places of the slab are free. Pure.
//!
//! A place has room for one page. Pages that are installed together get places in a row where there are some, so that a
//! read of them is one call.

use std::ops::Range;

use super::bits::masks;

/// The number of a place.
pub(super) type Place = u32;

/// Free stretches that are looked at for one that is long enough.
const LOOKS: usize = 8;

pub(super) struct Places {
    /// A bit for each place, set if it is free.
    free: Vec<u64>,
    /// A bit for each word of `free`, set if it is not 0.
    words: Vec<u64>,
    len: u32,
    count: u32,
    /// Where the next search begins.
    cursor: Place,
}

impl Places {
    /// `len` free places.
    pub(super) fn new(len: u32) -> Self {
        let words = len.div_ceil(64);
        let mut places = Self {
            free: vec![0; words as usize],
            words: vec![0; words.div_ceil(64) as usize],
            len,
            count: 0,
            cursor: 0,
        };
        places.give(0..len);
        places
    }

    /// Free places.
    pub(super) const fn free(&self) -> u32 {
        self.count
    }

    /// Takes `count` places, the first of them at `near` if that one is free; `None` if there are fewer.
    pub(super) fn take(&mut self, count: u32, near: Option<Place>) -> Option<Vec<Range<Place>>> {
        if count > self.count {
            return None;
        }
        let (mut taken, mut rest) = (Vec::new(), count);
        if let Some(near) = near {
            let found = self.stretch(near, rest);
            rest -= self.take_range(&mut taken, found);
        }
        while rest > 0 {
            let found = self.search(rest)?;
            self.cursor = found.end;
            rest -= self.take_range(&mut taken, found);
        }
        Some(taken)
    }

    fn take_range(&mut self, taken: &mut Vec<Range<Place>>, range: Range<Place>) -> u32 {
        self.remove(&range);
        let count = range.end - range.start;
        push(taken, range);
        count
    }

    /// Takes these places; false if one of them is taken or does not exist.
    pub(super) fn claim(&mut self, range: &Range<Place>) -> bool {
        let is_free = range.end <= self.len
            && masks(range).all(|(word, mask)| self.free[word] & mask == mask);
        if is_free {
            self.remove(range);
        }
        is_free
    }

    /// Frees places that were taken.
    pub(super) fn give(&mut self, range: Range<Place>) {
        for (word, mask) in masks(&range) {
            debug_assert_eq!(self.free[word] & mask, 0, "a place is freed once");
            self.free[word] |= mask;
            self.words[word / 64] |= 1 << (word % 64);
            self.count += mask.count_ones();
        }
    }

    fn remove(&mut self, range: &Range<Place>) {
        for (word, mask) in masks(range) {
            self.free[word] &= !mask;
            self.count -= mask.count_ones();
            if self.free[word] == 0 {
                self.words[word / 64] &= !(1 << (word % 64));
            }
        }
    }

    /// Free places in a row from the cursor on, at most `most`: the first row that is long enough, of the next few, or the
    /// longest of them.
    fn search(&self, most: u32) -> Option<Range<Place>> {
        let (mut at, mut longest) = (self.cursor, 0..0);
        for _ in 0..LOOKS {
            let found = self.stretch(self.next(at)?, most);
            at = found.end;
            if found.len() > longest.len() {
                longest = found;
            }
            if longest.len() == most as usize {
                break;
            }
        }
        Some(longest)
    }

    /// The free places in a row that begin here, at most `most`; empty if this one is taken.
    fn stretch(&self, first: Place, most: u32) -> Range<Place> {
        let (mut end, limit) = (first, first.saturating_add(most).min(self.len));
        while end < limit {
            let ones = (self.free[end as usize / 64] >> (end % 64)).trailing_ones();
            end += ones;
            if ones == 0 || end % 64 != 0 {
                break;
            }
        }
        first..end.min(limit).max(first)
    }

    /// The first free place from this one on, and from the beginning after the end.
    fn next(&self, from: Place) -> Option<Place> {
        self.next_below_end(from).or_else(|| self.next_below_end(0))
    }

    fn next_below_end(&self, from: Place) -> Option<Place> {
        let at = from as usize / 64;
        let here = self.free.get(at)? & (u64::MAX << (from % 64));
        if here != 0 {
            return Some(at as Place * 64 + here.trailing_zeros());
        }
        let (mut group, mut mask) = ((at + 1) / 64, u64::MAX << ((at + 1) % 64));
        loop {
            let words = self.words.get(group)? & mask;
            if words != 0 {
                let word = group * 64 + words.trailing_zeros() as usize;
                return Some(word as Place * 64 + self.free[word].trailing_zeros());
            }
            (group, mask) = (group + 1, u64::MAX);
        }
    }
}

/// Appends a range to others, as a part of the last one if it follows it.
pub(super) fn push(ranges: &mut Vec<Range<Place>>, range: Range<Place>) {
    match ranges.last_mut() {
        _ if range.is_empty() => {}
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn one(range: Range<Place>) -> Option<Vec<Range<Place>>> {
        Some(vec![range])
    }

    #[test]
    fn places_in_a_row_are_preferred() {
        let mut places = Places::new(100);
        assert_eq!(places.take(10, None), one(0..10));
        assert_eq!(places.take(3, Some(10)), one(10..13));
        assert_eq!(places.take(3, Some(5)), one(13..16), "near a place that is taken");
        places.give(2..4);
        assert_eq!(places.take(4, Some(2)), Some(vec![2..4, 16..18]));
        places.give(20 - 4..20 - 2);
        places.give(0..1);
        assert_eq!(places.take(83, None), one(16..99), "the longest");
    }

    #[test]
    fn a_row_that_is_long_enough_is_searched_for() {
        let mut places = Places::new(4096);
        assert_eq!(places.take(4096, None), one(0..4096));
        assert_eq!((places.take(1, None), places.free()), (None, 0));
        places.give(70..71);
        places.give(3000..3008);
        assert_eq!(places.take(8, None), one(3000..3008));
        assert_eq!(places.take(1, Some(9999)), one(70..71));
        assert!(!places.claim(&(70..71)) && !places.claim(&(4095..4097)));
        places.give(4090..4096);
        assert!(places.claim(&(4091..4096)) && places.free() == 1);
    }

    #[test]
    fn each_place_is_taken_once() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let (mut places, mut taken) = (Places::new(1000), Vec::<Range<Place>>::new());
        for _ in 0..5000 {
            let count = random.random_range(1..40);
            let near = random.random_range(0..1100);
            match places.take(count, Some(near)) {
                Some(ranges) => {
                    assert_eq!(ranges.iter().map(Range::len).sum::<usize>(), count as usize);
                    taken.extend(ranges);
                }
                None => {
                    for _ in 0..taken.len() / 2 {
                        let at = random.random_range(0..taken.len());
                        places.give(taken.swap_remove(at));
                    }
                }
            }
            let mut all: Vec<_> = taken.iter().cloned().flatten().collect();
            all.sort_unstable();
            assert!(all.is_sorted_by(|one, other| one < other), "none is taken twice");
            assert_eq!(all.len() + places.free() as usize, 1000);
        }
    }
}

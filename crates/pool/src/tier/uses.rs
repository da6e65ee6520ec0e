//! How often each page of an entry was read of late, and how often a page must have been read to be worth its room.
//!
//! Recency alone keeps too little: between two visits of the eviction most pages that are read at all are read once. The counts
//! are of a long time, some sixteen reads for each page of the fast volume. They are four bits a page, and halved once in a
//! generation of reads; an entry is brought up to date when it is used.
//!
//! The *price* is the count that a page must exceed to get room, and to keep it at a visit. It follows from the visits: where they
//! free much of what they see, it falls, and where they free next to nothing, it rises. Where other pages become hot of which none
//! reaches it, the tier installs nothing and makes no visits: so a generation without a visit halves the price.

use std::ops::Range;

use policy::cache::Slot;

/// Pages in one word of counts.
const PAGES: usize = 16;

/// The largest count.
const MOST: u8 = 15;

/// The lowest bit of each count in a word but the highest one, after a shift by one.
const HALVES: u64 = 0x7777_7777_7777_7777;

/// Reads of a generation, for each place of the fast volume. With half as many, pages of the margin differ by no count; with
/// twice as many, it takes too long until other pages that become hot are told from those that were.
const READS_PER_PLACE: u64 = 8;

/// The price falls where visits free more than this part of the pages that they see, and rises below the other.
const MUCH: f32 = 0.15;
const LITTLE: f32 = 0.02;
/// What is taken for the last visits' part after a change of the price.
const USUAL: f32 = 0.08;
/// The weight of one visit.
const WEIGHT: f32 = 0.05;

pub(super) struct Uses {
    /// Words of one entry.
    words: usize,
    counts: Vec<u64>,
    /// The generation to which the counts of each entry are brought up.
    generations: Vec<u32>,
    generation: u32,
    /// Reads until the next one begins.
    left: u64,
    /// Reads of a generation.
    length: u64,
    price: u8,
    /// The part of the pages seen that the last visits freed.
    freed: f32,
    /// Whether there was a visit in this generation.
    was_visited: bool,
}

impl Uses {
    /// For entries of `pages` pages, of a fast volume with so many places; none yet.
    pub(super) fn new(pages: u32, places: u32) -> Self {
        let length = READS_PER_PLACE * u64::from(places.max(1));
        Self {
            words: (pages as usize).div_ceil(PAGES),
            counts: Vec::new(),
            generations: Vec::new(),
            generation: 0,
            left: length,
            length,
            price: 1,
            freed: USUAL,
            was_visited: false,
        }
    }

    /// Makes room for one more entry.
    pub(super) fn grow(&mut self) {
        self.counts.resize(self.counts.len() + self.words, 0);
        self.generations.push(self.generation);
    }

    /// A user read these pages.
    pub(super) fn add(&mut self, entry: Slot, pages: impl Iterator<Item = u32>) {
        self.bring_up(entry);
        for page in pages {
            let count = self.of(entry, page);
            self.set(entry, page, (count + 1).min(MOST));
            self.left -= 1;
            if self.left == 0 {
                self.begin_generation();
            }
        }
    }

    fn begin_generation(&mut self) {
        self.left = self.length;
        self.generation = self.generation.wrapping_add(1);
        if !std::mem::take(&mut self.was_visited) {
            self.price /= 2;
        }
    }

    /// Makes the counts of these pages `least` where they are smaller.
    pub(super) fn raise(&mut self, entry: Slot, pages: &Range<u32>, least: u8) {
        self.bring_up(entry);
        for page in pages.clone() {
            let count = self.of(entry, page);
            self.set(entry, page, count.max(least.min(MOST)));
        }
    }

    /// Forgets the reads of an entry's pages.
    pub(super) fn clear(&mut self, entry: Slot) {
        self.words_of(entry).fill(0);
        self.generations[entry as usize] = self.generation;
    }

    /// Halves the counts of an entry once for each generation that has passed.
    pub(super) fn bring_up(&mut self, entry: Slot) {
        let passed = self.generation.wrapping_sub(self.generations[entry as usize]);
        self.generations[entry as usize] = self.generation;
        for _ in 0..passed.min(4) {
            self.words_of(entry).iter_mut().for_each(|word| *word = *word >> 1 & HALVES);
        }
    }

    /// Whether a page was read more often than the price. Its entry was brought up to date.
    pub(super) fn is_worth(&self, entry: Slot, page: u32) -> bool {
        self.are_worth(self.of(entry, page))
    }

    /// Whether a page that was read so often is worth its room.
    pub(super) const fn are_worth(&self, reads: u8) -> bool {
        reads > self.price
    }

    /// Generations so far.
    pub(super) const fn generation(&self) -> u32 {
        self.generation
    }

    /// The eviction visited a unit of `seen` pages, and took `freed` of them.
    pub(super) fn visited(&mut self, seen: u32, freed: u32) {
        self.was_visited = true;
        if seen == 0 {
            return;
        }
        self.freed += WEIGHT * (freed as f32 / seen as f32 - self.freed);
        if self.freed > MUCH && self.price > 0 {
            (self.price, self.freed) = (self.price - 1, USUAL);
        } else if self.freed < LITTLE && self.price < MOST {
            (self.price, self.freed) = (self.price + 1, USUAL);
        }
    }

    fn words_of(&mut self, entry: Slot) -> &mut [u64] {
        &mut self.counts[entry as usize * self.words..][..self.words]
    }

    fn of(&self, entry: Slot, page: u32) -> u8 {
        let word = self.counts[entry as usize * self.words + page as usize / PAGES];
        (word >> (page as usize % PAGES * 4)) as u8 & MOST
    }

    fn set(&mut self, entry: Slot, page: u32, count: u8) {
        let shift = page as usize % PAGES * 4;
        let word = &mut self.words_of(entry)[page as usize / PAGES];
        *word = *word & !(u64::from(MOST) << shift) | u64::from(count) << shift;
    }

    /// The bytes of one entry.
    #[cfg(test)]
    pub(super) const fn bytes_per_entry(&self) -> usize {
        self.words * size_of::<u64>() + size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_halved_once_in_a_generation() {
        let mut uses = Uses::new(33, 1);
        uses.grow();
        uses.grow();
        for _ in 0..5 {
            uses.add(1, [31, 32].into_iter());
        }
        uses.add(0, std::iter::once(0));
        // The generation of eight reads ended with the fourth call.
        assert_eq!([uses.of(1, 31), uses.of(1, 32), uses.of(1, 30), uses.of(0, 0)], [3, 3, 0, 1]);
        (0..5).for_each(|_| uses.add(0, std::iter::once(0)));
        uses.bring_up(1);
        assert_eq!([uses.of(1, 31), uses.of(1, 32), uses.of(0, 0)], [1, 1, 6]);
        (0..100).for_each(|_| uses.add(0, std::iter::once(0)));
        uses.bring_up(1);
        assert_eq!([uses.of(1, 31), uses.of(1, 32)], [0, 0]);
        assert!(uses.of(0, 0) <= MOST);
    }

    #[test]
    fn the_price_follows_what_visits_free() {
        let mut uses = Uses::new(16, 100);
        uses.grow();
        uses.raise(0, &(3..4), 2);
        assert!(uses.is_worth(0, 3) && !uses.is_worth(0, 4));
        (0..100).for_each(|_| uses.visited(10, 1));
        assert!(uses.is_worth(0, 3), "a tenth is neither much nor little");
        (0..40).for_each(|_| uses.visited(10, 0));
        assert!(!uses.is_worth(0, 3));
        (0..1000).for_each(|_| uses.visited(10, 0));
        uses.raise(0, &(3..4), MOST);
        assert!(!uses.is_worth(0, 3), "room is found whatever was read");
        (0..100).for_each(|_| uses.visited(10, 5));
        uses.clear(0);
        uses.add(0, std::iter::once(3));
        assert!(uses.is_worth(0, 3) && !uses.is_worth(0, 4));
        uses.visited(0, 0);
    }

    /// A cache full of pages that had been read often, and were not any more, would have taken no others for good.
    #[test]
    fn a_price_that_no_page_reaches_falls() {
        let mut uses = Uses::new(16, 2);
        uses.grow();
        (0..400).for_each(|_| uses.visited(10, 0));
        // Two reads of each page in a generation.
        let mut read = || {
            (0..8).for_each(|page| uses.add(0, [page; 2].into_iter()));
            (0..8).any(|page| uses.is_worth(0, page))
        };
        let generations = (0..20).take_while(|_| !read()).count();
        assert!((1..5).contains(&generations), "{generations}");
    }
}

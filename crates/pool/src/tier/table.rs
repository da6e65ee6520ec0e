//! Where the pages of one unit are: runs of pages with places in a row, as in a file system's map of extents. Pure.

use std::ops::Range;

use super::places::{Place, push};

/// Pages in a row whose places are in a row.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Run {
    /// The first page's number in the unit.
    pub(super) page: u16,
    /// Pages. A unit has at most 16,384.
    pub(super) count: u16,
    /// The place of the first page.
    pub(super) place: Place,
}

/// The runs of a unit, by page.
#[derive(Clone, Default)]
pub(super) struct Table(Vec<Run>);

impl Run {
    pub(super) fn new(pages: &Range<u32>, place: Place) -> Self {
        let number = |number: u32| u16::try_from(number).expect("a unit has at most 16,384 pages");
        Self { page: number(pages.start), count: number(pages.end - pages.start), place }
    }

    pub(super) fn pages(self) -> Range<u32> {
        self.page.into()..self.end()
    }

    /// The page behind it.
    pub(super) fn end(self) -> u32 {
        u32::from(self.page) + u32::from(self.count)
    }

    pub(super) fn places(self) -> Range<Place> {
        self.place..self.place + u32::from(self.count)
    }

    /// Where a page of this run is.
    pub(super) fn place_of(self, page: u32) -> Place {
        self.place + (page - u32::from(self.page))
    }

    /// What of it is in this range of pages.
    pub(super) fn within(self, pages: &Range<u32>) -> Option<Self> {
        let own = self.pages();
        let part = own.start.max(pages.start)..own.end.min(pages.end);
        (!part.is_empty()).then(|| Self::new(&part, self.place_of(part.start)))
    }

    fn is_followed_by(self, next: Self) -> bool {
        self.end() == u32::from(next.page) && self.places().end == next.place
    }
}

impl Table {
    /// The run with this page.
    pub(super) fn find(&self, page: u32) -> Option<Run> {
        let after = self.0.partition_point(|run| u32::from(run.page) <= page);
        let run = self.0[..after].last()?;
        run.pages().contains(&page).then_some(*run)
    }

    /// The runs in a range of pages, cut at its ends.
    pub(super) fn runs(&self, pages: Range<u32>) -> impl Iterator<Item = Run> + '_ {
        let first = self.0.partition_point(|run| run.end() <= pages.start);
        self.0[first..].iter().map_while(move |run| run.within(&pages))
    }

    /// The parts of a range of pages that have no place.
    pub(super) fn gaps(&self, pages: &Range<u32>) -> Vec<Range<u32>> {
        let (mut gaps, mut at) = (Vec::new(), pages.start);
        for run in self.runs(pages.clone()) {
            let own = run.pages();
            push(&mut gaps, at..own.start);
            at = own.end;
        }
        push(&mut gaps, at..pages.end);
        gaps
    }

    /// Adds pages that have no place yet.
    pub(super) fn insert(&mut self, run: Run) {
        let at = self.0.partition_point(|other| other.page < run.page);
        debug_assert!(at == 0 || self.0[at - 1].end() <= run.page.into(), "one place a page");
        let joins = at > 0 && self.0[at - 1].is_followed_by(run);
        if joins {
            self.0[at - 1].count += run.count;
        } else {
            self.0.insert(at, run);
        }
        let at = if joins { at - 1 } else { at };
        if let Some(&next) = self.0.get(at + 1)
            && self.0[at].is_followed_by(next)
        {
            self.0[at].count += next.count;
            self.0.remove(at + 1);
        }
    }

    /// Keeps the places of these pages; returns the others.
    pub(super) fn retain(&mut self, keep: impl Fn(u32) -> bool) -> Vec<Range<Place>> {
        let (mut kept, mut lost) = (Self::default(), Vec::new());
        for run in std::mem::take(&mut self.0) {
            for page in run.pages() {
                let place = run.place_of(page);
                if !keep(page) {
                    push(&mut lost, place..place + 1);
                    continue;
                }
                let run = Run::new(&(page..page + 1), place);
                match kept.0.last_mut() {
                    Some(last) if last.is_followed_by(run) => last.count += 1,
                    _ => kept.0.push(run),
                }
            }
        }
        kept.0.shrink_to_fit();
        *self = kept;
        lost
    }

    /// The runs of those pages that `wanted` says.
    pub(super) fn only(&self, wanted: impl Fn(u32) -> bool) -> Vec<Run> {
        let mut only = self.clone();
        only.retain(wanted);
        only.0
    }

    /// Takes all places out.
    pub(super) fn take(&mut self) -> Vec<Range<Place>> {
        let mut places = Vec::new();
        std::mem::take(&mut self.0).into_iter().for_each(|run| push(&mut places, run.places()));
        places
    }

    /// Pages that have a place.
    pub(super) fn pages(&self) -> u32 {
        self.0.iter().map(|run| u32::from(run.count)).sum()
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    fn table(runs: &[(Range<u32>, Place)]) -> Table {
        let mut table = Table::default();
        runs.iter().for_each(|(pages, place)| table.insert(Run::new(pages, *place)));
        table
    }

    #[test]
    fn neighbours_merge_where_pages_and_places_are_in_a_row() {
        let runs = table(&[(0..2, 10), (4..6, 14), (2..4, 12), (6..7, 99), (8..9, 101)]).0;
        assert_eq!(runs, [Run::new(&(0..6), 10), Run::new(&(6..7), 99), Run::new(&(8..9), 101)]);
    }

    #[test]
    fn a_range_is_runs_and_gaps() {
        let table = table(&[(2..6, 10), (6..8, 30), (12..16, 50)]);
        let runs: Vec<_> = table.runs(4..13).collect();
        assert_eq!(runs, [Run::new(&(4..6), 12), Run::new(&(6..8), 30), Run::new(&(12..13), 50)]);
        assert_eq!(table.gaps(&(0..20)), [0..2, 8..12, 16..20]);
        assert_eq!(table.gaps(&(3..7)), []);
        assert_eq!(table.find(5).map(|run| run.place_of(5)), Some(13));
        assert_eq!((table.find(1), table.find(8), table.find(16)), (None, None, None));
    }

    #[test]
    fn places_that_are_not_kept_are_returned() {
        let mut table = table(&[(0..4, 10), (8..10, 14)]);
        assert_eq!(table.retain(|page| page == 1 || page == 9), [10..11, 12..15]);
        assert_eq!(table.0, [Run::new(&(1..2), 11), Run::new(&(9..10), 15)]);
        assert_eq!((table.pages(), table.take(), table.pages()), (2, vec![11..12, 15..16], 0));
    }

    /// Against a place for each page.
    #[test]
    fn a_table_is_an_array_of_places() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
        let (mut table, mut naive) = (Table::default(), [None; 64]);
        for step in 0..4000 {
            if step % 9 == 0 {
                let cut = random.random_range(0..64);
                table.retain(|page| page > cut);
                naive[..=cut as usize].fill(None);
            }
            let page = random.random_range(0..64_u32);
            // Often in a row.
            let place = if random.random_range(0..3) == 0 { step + 1000 } else { page };
            if naive[page as usize].is_none() {
                table.insert(Run::new(&(page..page + 1), place));
                naive[page as usize] = Some(place);
            }
            let found = (0..64).map(|page| table.find(page).map(|run| run.place_of(page)));
            assert!(found.eq(naive), "step {step}");
            assert!(table.0.windows(2).all(|pair| !pair[0].is_followed_by(pair[1])));
        }
    }
}

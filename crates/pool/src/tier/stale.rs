//! Ranges of an object whose newest bytes were on a fast volume that was lost. Pure.

use std::ops::Range;

use super::route::PAGE;

/// Whole pages, in order, that do not touch each other.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Stale(Vec<Range<u64>>);

impl Stale {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    pub(super) fn ranges(&self) -> Vec<Range<u64>> {
        self.0.clone()
    }

    /// The first stale bytes of a range.
    pub(super) fn find(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let at = self.0.partition_point(|stale| stale.end <= range.start);
        let stale = self.0.get(at)?;
        let common = stale.start.max(range.start)..stale.end.min(range.end);
        (!common.is_empty()).then_some(common)
    }

    /// Adds whole pages.
    pub(super) fn add(&mut self, range: Range<u64>) {
        let mut joined = range;
        self.0.retain(|stale| {
            let is_apart = stale.end < joined.start || joined.end < stale.start;
            if !is_apart {
                joined = stale.start.min(joined.start)..stale.end.max(joined.end);
            }
            is_apart
        });
        let at = self.0.partition_point(|stale| stale.end < joined.start);
        self.0.insert(at, joined);
    }

    /// Removes bytes.
    pub(super) fn remove(&mut self, range: &Range<u64>) {
        let parts = self.0.iter().flat_map(|stale| {
            [stale.start..stale.end.min(range.start), stale.start.max(range.end)..stale.end]
        });
        self.0 = parts.filter(|part| !part.is_empty()).collect();
    }
}

/// The pages that a change of `range` makes anew, in an object of `len` bytes: its last page may end in the middle.
pub(super) fn whole(range: &Range<u64>, len: u64) -> Range<u64> {
    let end = if range.end >= len { range.end.next_multiple_of(PAGE) } else { range.end };
    range.start.next_multiple_of(PAGE)..end / PAGE * PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_and_are_cut() {
        let mut stale = Stale::default();
        stale.add(8192..12288);
        stale.add(20480..24576);
        stale.add(12288..16384);
        assert_eq!(stale.ranges(), [8192..16384, 20480..24576]);
        assert_eq!(stale.find(&(0..8192)), None);
        assert_eq!(stale.find(&(16000..30000)), Some(16000..16384));
        stale.remove(&(12288..20480));
        assert_eq!((stale.ranges(), stale.bytes()), (vec![8192..12288, 20480..24576], 8192));
        stale.add(0..40960);
        stale.remove(&(0..40960));
        assert!(stale.is_empty());
    }

    #[test]
    fn only_whole_pages_are_made_anew() {
        assert_eq!(whole(&(1..9000), 20000), 4096..8192);
        assert_eq!(whole(&(4096..9000), 9000), 4096..12288);
    }
}

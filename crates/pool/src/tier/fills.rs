//! The fills under way of each entry, and which of them are void. Pure.
//!
//! A fill begins before its bytes are read. It has places only once it installs them, so it neither holds room meanwhile nor
//! keeps its unit from losing other pages. A change makes the fills of its pages void, and no fill of these begins before
//! they have ended.

use std::collections::HashMap;
use std::ops::Range;

use policy::cache::Slot;

/// The number of a fill; no two have the same.
pub(super) type Number = u64;

#[derive(Default)]
pub(super) struct Fills {
    last: Number,
    of: HashMap<Slot, Vec<Filling>>,
}

struct Filling {
    number: Number,
    pages: Range<u32>,
    is_void: bool,
}

impl Filling {
    fn touches(&self, pages: &Range<u32>) -> bool {
        self.pages.start < pages.end && pages.start < self.pages.end
    }
}

impl Fills {
    fn of(&self, entry: Slot) -> &[Filling] {
        self.of.get(&entry).map_or(&[], Vec::as_slice)
    }

    /// Begins a fill; `None` if one of these pages is void and not over yet.
    pub(super) fn begin(&mut self, entry: Slot, pages: &Range<u32>) -> Option<Number> {
        if self.of(entry).iter().any(|fill| fill.is_void && fill.touches(pages)) {
            return None;
        }
        self.last += 1;
        let (number, pages) = (self.last, pages.clone());
        self.of.entry(entry).or_default().push(Filling { number, pages, is_void: false });
        Some(number)
    }

    pub(super) fn end(&mut self, entry: Slot, number: Number) {
        if let Some(fills) = self.of.get_mut(&entry) {
            fills.retain(|fill| fill.number != number);
            if fills.is_empty() {
                self.of.remove(&entry);
            }
        }
    }

    /// The entry has another unit from now on, or none.
    pub(super) fn forget(&mut self, entry: Slot) {
        self.of.remove(&entry);
    }

    /// A change of these pages makes their fills void.
    pub(super) fn void(&mut self, entry: Slot, pages: &Range<u32>) {
        let fills = self.of.get_mut(&entry).into_iter().flatten();
        fills.filter(|fill| fill.touches(pages)).for_each(|fill| fill.is_void = true);
    }

    /// Whether a change came, or the entry lost its unit.
    pub(super) fn is_void(&self, entry: Slot, number: Number) -> bool {
        self.of(entry).iter().find(|fill| fill.number == number).is_none_or(|fill| fill.is_void)
    }

    pub(super) fn has_any(&self, entry: Slot) -> bool {
        self.of.contains_key(&entry)
    }

    /// Whether one of these pages is being filled.
    pub(super) fn touches(&self, entry: Slot, pages: &Range<u32>) -> bool {
        self.of(entry).iter().any(|fill| fill.touches(pages))
    }

    /// Whether all of these pages are being filled by one that is not void.
    pub(super) fn covers(&self, entry: Slot, pages: &Range<u32>) -> bool {
        let covers = |fill: &Filling| {
            !fill.is_void && fill.pages.start <= pages.start && pages.end <= fill.pages.end
        };
        self.of(entry).iter().any(covers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_makes_the_fills_of_its_pages_void_and_no_others() {
        let mut fills = Fills::default();
        let one = fills.begin(1, &(0..4)).unwrap();
        let two = fills.begin(1, &(4..6)).unwrap();
        let other = fills.begin(2, &(0..4)).unwrap();
        assert!(fills.covers(1, &(1..4)) && !fills.covers(1, &(3..5)));
        fills.void(1, &(3..4));
        assert!(fills.is_void(1, one) && !fills.is_void(1, two) && !fills.is_void(2, other));
        assert!(!fills.covers(1, &(1..4)) && fills.touches(1, &(3..5)));
        assert_eq!(fills.begin(1, &(0..1)), None, "the old one may write later");
        assert!(fills.begin(1, &(5..9)).is_some());
        fills.end(1, one);
        assert!(fills.begin(1, &(0..1)).is_some());
        fills.forget(1);
        assert!(fills.is_void(1, two) && !fills.has_any(1) && fills.has_any(2));
        fills.end(1, two);
    }
}

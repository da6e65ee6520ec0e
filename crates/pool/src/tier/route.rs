//! What of a read comes from the fast volume, and what from the slow one. Pure.
//!
//! ```text
//!   pages       ■ ■ □ ■ □ ■ ■      ■ valid on the fast volume
//!   fast        ───         ───    pieces at both ends, cut at slots
//!   slow            ─────          one operation from the first to the last page that misses
//! ```
//! The slow volume is paid by the operation, so a read costs it at most one, as without the tier.

use std::ops::Range;

use policy::cache::Slot;

/// The size of a page, in bytes.
pub(super) const PAGE: u64 = 4096;

/// Pieces of a read, in bytes of the object.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Route {
    pub(super) fast: Vec<(Slot, Range<u64>)>,
    pub(super) slow: Range<u64>,
}

/// Routes a read of `range`; `slot_of` says where a page is valid.
pub(super) fn route(range: Range<u64>, slot_of: impl Fn(u64) -> Option<Slot>) -> Route {
    let pages = range.start / PAGE..range.end.div_ceil(PAGE);
    let slots: Vec<_> = pages.clone().map(&slot_of).collect();
    let bytes = |page: u64| (page * PAGE).max(range.start)..((page + 1) * PAGE).min(range.end);
    let first = slots.iter().position(Option::is_none);
    let last = slots.iter().rposition(Option::is_none);
    let mut route = Route::default();
    if let (Some(first), Some(last)) = (first, last) {
        let page = |at: usize| pages.start + at as u64;
        route.slow = bytes(page(first)).start..bytes(page(last)).end;
    }
    for (page, slot) in pages.zip(slots) {
        let part = bytes(page);
        let is_slow = route.slow.start < part.end && part.start < route.slow.end;
        if part.is_empty() || is_slow {
            continue;
        }
        let Some(slot) = slot else { continue };
        match route.fast.last_mut() {
            Some((same, piece)) if *same == slot && piece.end == part.start => {
                piece.end = part.end;
            }
            _ => route.fast.push((slot, part)),
        }
    }
    route
}

/// The range with its first and last page whole.
pub(super) const fn widened(range: &Range<u64>) -> Range<u64> {
    range.start / PAGE * PAGE..range.end.div_ceil(PAGE).saturating_mul(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routed(range: Range<u64>, valid: &str) -> Route {
        let valid = valid.as_bytes();
        route(range, |page| match valid.get(page as usize)? {
            b'.' => None,
            slot => Some(Slot::from(slot - b'0')),
        })
    }

    #[test]
    fn a_hit_never_goes_to_the_slow_volume() {
        let whole = routed(0..5 * PAGE, "11122");
        assert_eq!(whole.fast, [(1, 0..3 * PAGE), (2, 3 * PAGE..5 * PAGE)]);
        assert!(whole.slow.is_empty());
        assert_eq!(routed(4000..4100, "11").fast, [(1, 4000..4100)]);
    }

    #[test]
    fn misses_are_one_operation() {
        let found = routed(100..7 * PAGE - 1, "11.1.22");
        assert_eq!(found.slow, 2 * PAGE..5 * PAGE);
        assert_eq!(found.fast, [(1, 100..2 * PAGE), (2, 5 * PAGE..7 * PAGE - 1)]);
        assert_eq!(routed(5..9, ".").slow, 5..9);
        assert_eq!(routed(7..7, "1"), Route { slow: 0..0, fast: vec![] });
    }
}

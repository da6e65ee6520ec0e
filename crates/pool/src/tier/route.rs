//! What of a read comes from the fast volume, and what from the slow one. Pure.
//!
//! ```text
//!   pages       ■ ■ □ ■ □ ■ ■      ■ valid on the fast volume
//!   fast        ───         ───    pieces at both ends, cut where places are not in a row
//!   slow            ─────          one operation from the first to the last page that misses
//! ```
//! The slow volume is paid by the operation, so a read costs it at most one, as without the tier.

use std::ops::Range;

use policy::cache::Slot;

/// The size of a page, in bytes.
pub(super) const PAGE: u64 = 4096;

/// The pieces of a read.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Route {
    pub(super) fast: Vec<Piece>,
    /// In bytes of the object.
    pub(super) slow: Range<u64>,
}

/// Bytes in a row on the fast volume, of one unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Piece {
    /// The entry of the unit.
    pub(super) entry: Slot,
    /// Where the bytes are on the slab.
    pub(super) at: u64,
    /// In bytes of the object.
    pub(super) bytes: Range<u64>,
}

/// A page that is valid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) entry: Slot,
    /// Where it is on the slab.
    pub(super) at: u64,
    /// The slow volume has older bytes.
    pub(super) is_dirty: bool,
}

/// Routes a read of `range`; `find` gives a page that is valid. What is dirty comes from the fast volume, also where the slow
/// one is read across it.
pub(super) fn route(range: Range<u64>, find: impl Fn(u64) -> Option<Held>) -> Route {
    let pages = range.start / PAGE..range.end.div_ceil(PAGE);
    let found: Vec<_> = pages.clone().map(&find).collect();
    let bytes = |page: u64| (page * PAGE).max(range.start)..((page + 1) * PAGE).min(range.end);
    let first = found.iter().position(Option::is_none);
    let last = found.iter().rposition(Option::is_none);
    let mut route = Route::default();
    if let (Some(first), Some(last)) = (first, last) {
        let page = |at: usize| pages.start + at as u64;
        route.slow = bytes(page(first)).start..bytes(page(last)).end;
    }
    for (page, found) in pages.zip(found) {
        let part = bytes(page);
        let is_slow = route.slow.start < part.end && part.start < route.slow.end;
        let Some(Held { entry, at, is_dirty }) = found else { continue };
        if part.is_empty() || is_slow && !is_dirty {
            continue;
        }
        let piece = Piece { entry, at: at + part.start % PAGE, bytes: part };
        match route.fast.last_mut() {
            Some(last) if last.is_followed_by(&piece) => last.bytes.end = piece.bytes.end,
            _ => route.fast.push(piece),
        }
    }
    route
}

impl Piece {
    fn is_followed_by(&self, next: &Self) -> bool {
        self.entry == next.entry
            && self.bytes.end == next.bytes.start
            && self.at + (self.bytes.end - self.bytes.start) == next.at
    }
}

/// The range with its first and last page whole.
pub(super) const fn widened(range: &Range<u64>) -> Range<u64> {
    range.start / PAGE * PAGE..range.end.div_ceil(PAGE).saturating_mul(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each letter is a unit of pages whose places are in a row; a capital one has them elsewhere.
    fn routed(range: Range<u64>, valid: &str) -> Route {
        let valid = valid.as_bytes();
        route(range, |page| match valid.get(page as usize)? {
            b'.' => None,
            unit => {
                let away = if unit.is_ascii_uppercase() { 1 << 20 } else { 0 };
                let (entry, at) = (unit.to_ascii_lowercase().into(), away + page * PAGE);
                Some(Held { entry, at, is_dirty: entry == Slot::from(b'd') })
            }
        })
    }

    fn piece(entry: char, at: u64, bytes: Range<u64>) -> Piece {
        Piece { entry: entry.into(), at, bytes }
    }

    #[test]
    fn a_hit_never_goes_to_the_slow_volume() {
        let whole = routed(0..5 * PAGE, "aaabb");
        let pieces = [('a', 0..3 * PAGE), ('b', 3 * PAGE..5 * PAGE)];
        assert_eq!(whole.fast, pieces.map(|(entry, bytes)| piece(entry, bytes.start, bytes)));
        assert!(whole.slow.is_empty());
        assert_eq!(routed(4000..4100, "aa").fast, [piece('a', 4000, 4000..4100)]);
    }

    #[test]
    fn places_that_are_not_in_a_row_are_pieces_of_their_own() {
        let found = routed(10..3 * PAGE, "aAa").fast;
        let far = (1 << 20) + PAGE;
        let first = piece('a', 10, 10..PAGE);
        let last = piece('a', 2 * PAGE, 2 * PAGE..3 * PAGE);
        assert_eq!(found, [first, piece('a', far, PAGE..2 * PAGE), last]);
    }

    #[test]
    fn misses_are_one_operation() {
        let found = routed(100..7 * PAGE - 1, "aa.a.bb");
        assert_eq!(found.slow, 2 * PAGE..5 * PAGE);
        let end = 5 * PAGE..7 * PAGE - 1;
        assert_eq!(found.fast, [piece('a', 100, 100..2 * PAGE), piece('b', 5 * PAGE, end)]);
        assert_eq!(routed(5..9, ".").slow, 5..9);
        assert_eq!(routed(7..7, "a"), Route { slow: 0..0, fast: vec![] });
    }
}

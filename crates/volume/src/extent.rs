//! Ranges of an object that have room on the device, and ranges that have none.

use std::ops::Range;

use crate::{Object, Pending, ready};

/// A range of an object, in bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Extent {
    /// Where it is.
    pub range: Range<u64>,
    /// It takes no room, and reads as zeros. Other extents may hold zeros, too.
    pub is_hole: bool,
}

/// What [`Object::zero`] does with the room of the bytes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Zeros {
    /// Frees it: a later write there may find the volume full.
    Free,
    /// Keeps it, and takes it where there is a hole: a later write there finds room.
    Keep,
}

/// [`Object::extents`] of an object whose holes are not known: one extent of data.
pub fn all_data<O: Object + ?Sized>(object: &O, offset: u64, len: u64) -> Pending<'_, Vec<Extent>> {
    let mut all = Vec::new();
    push(&mut all, within(offset, len, object.len()), false);
    ready(Ok(all))
}

/// Appends an extent; joins it with the last one if both are of a kind.
pub fn push(extents: &mut Vec<Extent>, range: Range<u64>, is_hole: bool) {
    if range.is_empty() {
        return;
    }
    match extents.last_mut() {
        Some(last) if last.is_hole == is_hole && last.range.end == range.start => {
            last.range.end = range.end;
        }
        _ => extents.push(Extent { range, is_hole }),
    }
}

/// The part of `offset..offset + len` that an object of `end` bytes has.
#[must_use]
pub fn within(offset: u64, len: u64, end: u64) -> Range<u64> {
    let to = offset.saturating_add(len).min(end);
    offset.min(to)..to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_a_kind_are_one_extent() {
        let mut extents = Vec::new();
        for (range, is_hole) in [(0..4, false), (4..4, true), (4..8, false), (8..9, true)] {
            push(&mut extents, range, is_hole);
        }
        let expected =
            [Extent { range: 0..8, is_hole: false }, Extent { range: 8..9, is_hole: true }];
        assert_eq!(extents, expected);
    }

    #[test]
    fn a_range_ends_where_the_object_does() {
        assert_eq!(within(2, 3, 10), 2..5);
        assert_eq!(within(8, 5, 10), 8..10);
        assert_eq!(within(12, 5, 10), 10..10);
        assert_eq!(within(1, u64::MAX, 10), 1..10);
    }
}

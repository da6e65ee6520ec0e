//! Positions of scans. Redis' cursors are numbers, but a position among ordered keys is a key: this table maps numbers
//! to keys.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use parking_lot::Mutex;

/// A key, a field or a member.
pub(super) type Place = Bytes;

/// The limit on the bytes of all positions; the oldest are dropped first. It allows 100,000 concurrent scans over keys
/// of common length.
const BYTES_MAX: usize = 16 << 20;
/// The cost of a position besides its own bytes.
const ENTRY_BYTES: usize = 128;

/// The positions of unfinished scans.
#[derive(Debug, Default)]
pub(super) struct Cursors(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    last: u64,
    /// By age: numbers are given out in order.
    places: BTreeMap<u64, Place>,
    numbers: HashMap<Place, u64>,
    bytes: usize,
}

impl Cursors {
    /// The number of this place, never zero. Scans at the same place share it.
    pub(super) fn keep(&self, place: Place) -> u64 {
        let kept = &mut *self.0.lock();
        if let Some(&number) = kept.numbers.get(&place) {
            return number;
        }
        kept.last += 1;
        let number = kept.last;
        kept.bytes += place.len() + ENTRY_BYTES;
        kept.numbers.insert(place.clone(), number);
        kept.places.insert(number, place);
        while kept.bytes > BYTES_MAX
            && let Some((_, oldest)) = kept.places.pop_first()
        {
            kept.bytes -= oldest.len() + ENTRY_BYTES;
            kept.numbers.remove(&oldest);
        }
        number
    }

    /// The place with this number.
    pub(super) fn place(&self, number: u64) -> Option<Place> {
        self.0.lock().places.get(&number).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_found_until_too_many_came_after_it() {
        let cursors = Cursors::default();
        let first = cursors.keep(Bytes::from_static(b"first"));
        assert_eq!(cursors.keep(Bytes::from_static(b"first")), first);
        assert_eq!(cursors.place(first).as_deref(), Some(&b"first"[..]));
        let place = |n: usize| Bytes::from(format!("{n:01000}"));
        let last = (0..BYTES_MAX / 1000).map(|n| cursors.keep(place(n))).last();
        assert!(last.and_then(|last| cursors.place(last)).is_some());
        assert_eq!(cursors.place(first), None);
        assert!(cursors.0.lock().bytes <= BYTES_MAX);
    }
}

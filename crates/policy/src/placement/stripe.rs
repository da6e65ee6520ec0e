use std::ops::RangeInclusive;

use super::{Candidate, Layout, New, Placement, Tables, first_from, whole};
use crate::units::KIB;

/// Stripes every object over all volumes, in chunks: RAID0, the strongest of the key-blind baselines (TANGO).
///
/// Logs, and objects no longer than a chunk, stay whole, on the volumes in turn: a striped log would need a sync on
/// every volume instead of one.
#[derive(Clone, Copy, Debug)]
pub struct Stripe {
    chunk: u64,
}

impl Stripe {
    /// Valid chunk sizes in bytes. With smaller chunks a large read pays an operation for too few bytes; a provider
    /// counts a larger chunk as two.
    pub const CHUNKS: RangeInclusive<u64> = 64 * KIB..=256 * KIB;

    /// Stripes with chunks of `chunk` bytes.
    ///
    /// # Panics
    /// When `chunk` is not in [`Stripe::CHUNKS`] or not whole pages of 4 KiB.
    #[must_use]
    pub fn new(chunk: u64) -> Self {
        assert!(Self::CHUNKS.contains(&chunk) && chunk.is_multiple_of(4 * KIB), "chunk of {chunk}");
        Self { chunk }
    }
}

impl Placement for Stripe {
    fn choose(&mut self, new: New<'_>, candidates: &[Candidate], _: &Tables) -> Option<Layout> {
        // The first chunk rotates over the volumes; otherwise all short objects would share one.
        let first = new.object.checked_rem(candidates.len() as u64)? as usize;
        let len = new.intent.len.unwrap_or(u64::MAX);
        if new.intent.is_log() || len <= self.chunk {
            let at = first_from(candidates, first, new.len())?;
            return Some(whole(&candidates[at]));
        }
        let (before, from) = candidates.split_at(first);
        let mut over: Vec<_> = from.iter().chain(before).filter(|c| c.healthy).collect();
        // Each volume left out makes the others' parts longer, so repeat until all have room for theirs.
        loop {
            let width = over.len() as u64;
            let known = new.len();
            let part = Chunks { chunk: self.chunk, parts: width }.longest_part(known);
            over.retain(|candidate| candidate.takes(part));
            if over.len() as u64 == width {
                break;
            }
        }
        match over[..] {
            [] => None,
            [only] => Some(whole(only)),
            _ => {
                let volumes = over.iter().map(|candidate| candidate.volume).collect();
                Some(Layout::Striped { chunk: self.chunk, volumes })
            }
        }
    }
}

/// The arithmetic of striping: chunk `k` of the object is chunk `k / parts` of part `k % parts`.
///
/// ```text
///   object   | 0 | 1 | 2 | 3 | 4 | 5 | 6 |
///   part 0   | 0 |     3     |     6
///   part 1       | 1 |     4
///   part 2           | 2 |     5
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Chunks {
    chunk: u64,
    parts: u64,
}

/// A run of bytes that lies in one chunk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Piece {
    /// Which part holds it.
    pub part: usize,
    /// Where it begins in the part, in bytes.
    pub inner: u64,
    /// Where it begins in the request, in bytes.
    pub at: u64,
    /// How many bytes it has. Not zero.
    pub len: u64,
}

impl Chunks {
    /// One part that holds everything.
    pub const WHOLE: Self = Self { chunk: u64::MAX, parts: 1 };

    /// Chunks of `chunk` bytes dealt out over `parts` parts.
    ///
    /// # Panics
    /// When either is zero.
    #[must_use]
    pub fn new(chunk: u64, parts: u64) -> Self {
        assert!(chunk > 0 && parts > 0, "{parts} parts of chunks of {chunk} bytes");
        Self { chunk, parts }
    }

    /// The part that holds byte `offset`, and the offset in it.
    #[must_use]
    pub const fn locate(self, offset: u64) -> (usize, u64) {
        let (number, within) = (offset / self.chunk, offset % self.chunk);
        ((number % self.parts) as usize, number / self.parts * self.chunk + within)
    }

    /// The byte of the object that lies at `inner` of `part`: the inverse of [`Chunks::locate`].
    #[must_use]
    pub const fn offset(self, part: usize, inner: u64) -> u64 {
        let number = inner / self.chunk * self.parts + part as u64;
        number * self.chunk + inner % self.chunk
    }

    /// The pieces of `len` bytes at `offset`, in the order of the object.
    pub fn pieces(self, offset: u64, len: u64) -> impl Iterator<Item = Piece> {
        let mut at = 0;
        std::iter::from_fn(move || {
            if at == len {
                return None;
            }
            let from = offset + at;
            let (part, inner) = self.locate(from);
            let piece =
                Piece { part, inner, at, len: (len - at).min(self.chunk - from % self.chunk) };
            at += piece.len;
            Some(piece)
        })
    }

    /// How long `part` is when the object has `total` bytes.
    #[must_use]
    pub const fn part_len(self, total: u64, part: usize) -> u64 {
        let (rounds, rest) = (total / self.chunk / self.parts, total / self.chunk % self.parts);
        let part = part as u64;
        let last = if part < rest {
            self.chunk
        } else if part == rest {
            total % self.chunk
        } else {
            0
        };
        rounds * self.chunk + last
    }

    /// The length of the object whose parts have these lengths: it ends with the last byte of any part.
    ///
    /// Exact when each part is as long as [`Chunks::part_len`] says, or only the parts that do not
    /// hold the last byte are shorter.
    #[must_use]
    pub fn total_len(self, parts: impl IntoIterator<Item = u64>) -> u64 {
        let ends = parts.into_iter().enumerate().filter(|&(_, len)| len > 0);
        ends.map(|(part, len)| self.offset(part, len - 1) + 1).max().unwrap_or(0)
    }

    const fn longest_part(self, total: u64) -> u64 {
        if self.parts == 0 { 0 } else { self.part_len(total, 0) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chunks() -> impl Strategy<Value = Chunks> {
        prop_oneof![
            Just(Chunks::WHOLE),
            (1u64..20, 1u64..8).prop_map(|(chunk, parts)| Chunks::new(chunk, parts)),
            (Stripe::CHUNKS, 2u64..12).prop_map(|(chunk, parts)| Chunks::new(chunk, parts)),
        ]
    }

    proptest! {
        #[test]
        fn an_offset_is_found_again(chunks in chunks(), offset in 0u64..1 << 40) {
            let (part, inner) = chunks.locate(offset);
            prop_assert!((part as u64) < chunks.parts);
            prop_assert_eq!(chunks.offset(part, inner), offset);
        }

        #[test]
        fn pieces_cover_a_request_once_and_in_order(
            chunks in chunks(), offset in 0u64..1 << 24, len in 0u64..1 << 12,
        ) {
            let mut next = 0;
            for piece in chunks.pieces(offset, len) {
                prop_assert!(piece.len > 0);
                prop_assert_eq!(piece.at, next);
                prop_assert_eq!(chunks.locate(offset + piece.at), (piece.part, piece.inner));
                let last = chunks.locate(offset + piece.at + piece.len - 1);
                prop_assert_eq!(last, (piece.part, piece.inner + piece.len - 1));
                next += piece.len;
            }
            prop_assert_eq!(next, len);
        }

        #[test]
        fn no_two_bytes_share_a_place(chunk in 1u64..9, parts in 1u64..6, len in 0u64..200) {
            let chunks = Chunks::new(chunk, parts);
            let mut places: Vec<_> = (0..len).map(|offset| chunks.locate(offset)).collect();
            places.sort_unstable();
            // Every part is filled from its start without holes, to its expected length.
            let expected: Vec<_> = (0..parts as usize)
                .flat_map(|part| (0..chunks.part_len(len, part)).map(move |inner| (part, inner)))
                .collect();
            prop_assert_eq!(places, expected);
        }

        #[test]
        fn the_length_follows_from_the_parts(chunks in chunks(), len in 0u64..1 << 40) {
            let parts: Vec<_> =
                (0..chunks.parts as usize).map(|part| chunks.part_len(len, part)).collect();
            prop_assert_eq!(parts.iter().sum::<u64>(), len);
            prop_assert_eq!(chunks.total_len(parts.iter().copied()), len);
            // Parts cut short by a gap do not matter, as long as the last byte is there.
            if let Some(last) = len.checked_sub(1) {
                let (holder, _) = chunks.locate(last);
                let short = parts.iter().enumerate().map(|(i, &l)| if i == holder { l } else { l / 2 });
                prop_assert_eq!(chunks.total_len(short), len);
            }
        }
    }
}

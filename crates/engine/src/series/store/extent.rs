//! How far the values of a row go, found without decoding each.

use crate::series::Kind;
use crate::series::batch::{take_value, take_varint};

/// The extent of the values of a shape's rows.
pub(super) struct Extent(Vec<Part>);

enum Part {
    /// Floats, of this many bytes.
    Bytes(usize),
    /// This many integers, signed or not.
    Numbers(u32),
    Value(Kind),
}

impl Extent {
    pub(super) fn of(kinds: impl IntoIterator<Item = Kind>) -> Self {
        let mut parts = Vec::new();
        for kind in kinds {
            match (kind, parts.last_mut()) {
                (Kind::Float, Some(Part::Bytes(len))) => *len += 8,
                (Kind::Float, _) => parts.push(Part::Bytes(8)),
                (Kind::Integer | Kind::Unsigned, Some(Part::Numbers(count))) => *count += 1,
                (Kind::Integer | Kind::Unsigned, _) => parts.push(Part::Numbers(1)),
                (Kind::Boolean | Kind::Text, _) => parts.push(Part::Value(kind)),
            }
        }
        Self(parts)
    }

    /// Takes the values of a row; `None` if they do not decode.
    pub(super) fn take<'a>(&self, from: &mut &'a [u8]) -> Option<&'a [u8]> {
        let before = *from;
        for part in &self.0 {
            match *part {
                Part::Bytes(len) => *from = from.get(len..)?,
                Part::Numbers(count) => pass_numbers(from, count)?,
                Part::Value(kind) => drop(take_value(from, kind)?),
            }
        }
        Some(&before[..before.len() - from.len()])
    }
}

/// Passes over numbers of `put_varint`, several at once where they are short.
fn pass_numbers(from: &mut &[u8], mut count: u32) -> Option<()> {
    while count > 0 {
        // The last byte of a number is the first one without the high bit.
        let word = from.first_chunk().map_or(u64::MAX, |word| u64::from_le_bytes(*word));
        let mut ends = !word & 0x8080_8080_8080_8080;
        if ends == 0 {
            // A long number, or few bytes are left.
            take_varint(from)?;
            count -= 1;
            continue;
        }
        let here = ends.count_ones().min(count);
        for _ in 1..here {
            ends &= ends - 1;
        }
        *from = &from[ends.trailing_zeros() as usize / 8 + 1..];
        count -= here;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::series::batch::put_varint;

    /// A start keeps values of the log undecoded, and later decodes them as checked.
    #[test]
    fn an_extent_ends_where_decoding_each_value_does() {
        let kinds = [Kind::Float, Kind::Integer, Kind::Unsigned, Kind::Boolean, Kind::Text];
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut decoded = 0;
        for round in 0..40_000 {
            let mut bytes = Vec::new();
            for _ in 0..random.random_range(0..12) {
                put_varint(&mut bytes, u64::MAX >> random.random_range(0..64));
            }
            // High bits are common, so that some numbers are too long.
            let common = random.random_range(0..=255u8);
            let more = random.random_range(0..14);
            bytes.extend((0..more).map(|_| random.random::<u8>() | common & 0x80));
            // Integers alone, or all kinds.
            let some = if round % 2 == 0 { &kinds[1..3] } else { &kinds[..] };
            let row: Vec<Kind> = (0..random.random_range(1..12))
                .map(|_| some[random.random_range(0..some.len())])
                .collect();
            let mut rest = &bytes[..];
            let is_row = row.iter().all(|&kind| take_value(&mut rest, kind).is_some());
            let mut from = &bytes[..];
            let values = Extent::of(row.iter().copied()).take(&mut from);
            assert_eq!(values.is_some(), is_row, "{row:?} {bytes:?}");
            if let Some(values) = values {
                assert_eq!((values.len() + rest.len(), from), (bytes.len(), rest), "{row:?}");
                decoded += 1;
            }
        }
        assert!((5_000..35_000).contains(&decoded), "{decoded}");
    }
}

//! Records as bytes: keys that spread over the key space, and values that say whose they are.
//!
//! ```text
//! key    zeros … | scrambled number, 16 hex digits         in the order of a hash, as YCSB inserts
//! value  mark of the key, 8 bytes | random bytes …         random: what compresses needs no volume
//! ```

use bytes::{Bytes, BytesMut};
use rand::Rng;

/// The shortest key: the digits.
pub const KEY_BYTES_MIN: usize = 16;
/// The shortest value: the mark.
pub const VALUE_BYTES_MIN: usize = 8;

/// The sizes of records.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shape {
    /// Bytes of a key, at least [`KEY_BYTES_MIN`].
    pub key_bytes: usize,
    /// Bytes of a value, at least [`VALUE_BYTES_MIN`].
    pub value_bytes: usize,
}

impl Shape {
    /// The key of the record with this number. No two have the same.
    pub(super) fn key(self, record: u64) -> Bytes {
        let (number, width) = (scramble(record), self.key_bytes);
        format!("{number:0width$x}").into()
    }

    /// A value for the record with this number.
    pub(super) fn value(self, record: u64, random: &mut impl Rng) -> Bytes {
        let mut value = BytesMut::zeroed(self.value_bytes);
        let (mark, rest) = value.split_at_mut(VALUE_BYTES_MIN);
        mark.copy_from_slice(&mark_of(scramble(record)));
        random.fill_bytes(rest);
        value.freeze()
    }

    /// Whether `value` is one that was written under `key`.
    pub(super) fn belongs(self, key: &[u8], value: &[u8]) -> bool {
        let digits = key.len().checked_sub(KEY_BYTES_MIN).map(|zeros| &key[zeros..]);
        let number = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u64::from_str_radix(digits, 16).ok());
        key.len() == self.key_bytes
            && value.len() == self.value_bytes
            && number.is_some_and(|number| value.starts_with(&mark_of(number)))
    }
}

fn mark_of(scrambled: u64) -> [u8; VALUE_BYTES_MIN] {
    scramble(scrambled).to_le_bytes()
}

/// A number for each number, far from its neighbours': the finalizer of SplitMix64 (Steele, Lea and
/// Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014), a bijection.
fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    const SHAPE: Shape = Shape { key_bytes: 20, value_bytes: 64 };

    #[test]
    fn keys_have_their_size_differ_and_spread() {
        let keys: BTreeSet<_> = (0..10_000).map(|record| SHAPE.key(record)).collect();
        assert_eq!(keys.len(), 10_000);
        assert!(keys.iter().all(|key| key.len() == 20 && key.starts_with(b"0000")));
        let low = keys.iter().filter(|key| key[4] < b'8').count();
        assert!(low.abs_diff(5000) < 300, "{low} of 10000 in the lower half");
    }

    #[test]
    fn a_value_belongs_to_its_key_alone() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let value = SHAPE.value(7, &mut random);
        assert_eq!(value.len(), 64);
        assert!(SHAPE.belongs(&SHAPE.key(7), &value));
        assert!(SHAPE.belongs(&SHAPE.key(7), &SHAPE.value(7, &mut random)), "any of its values");
        assert!(!SHAPE.belongs(&SHAPE.key(8), &value));
        assert!(!SHAPE.belongs(&SHAPE.key(7), &value[..63]));
        assert!(!SHAPE.belongs(b"key 7", &value) && !SHAPE.belongs(&[0xff; 20], &value));
    }
}

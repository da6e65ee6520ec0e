//! Records as bytes: values that name their record and length.
//!
//! ```text
//! value  mark of key and length, 8 bytes | random bytes …   random: what compresses needs no volume
//! ```

use bytes::{Bytes, BytesMut};
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// The shortest value: the mark.
pub const VALUE_BYTES_MIN: usize = 8;

/// Keys and values of records by their numbers.
pub(crate) trait Records: Sync {
    /// The key of the record with this number. No two have the same.
    fn key(&self, record: u64) -> Bytes;

    /// A value for the record with this number.
    fn value(&self, record: u64, random: &mut Xoshiro256PlusPlus) -> Bytes;

    /// Whether `value` is one that was written under `key`.
    fn belongs(&self, key: &[u8], value: &[u8]) -> bool;
}

/// A value of `len` bytes for the key or record with the number `whose`.
pub(crate) fn value(whose: u64, len: usize, random: &mut impl Rng) -> Bytes {
    let mut value = BytesMut::zeroed(len.max(VALUE_BYTES_MIN));
    let mark = mark(whose, value.len());
    let (head, rest) = value.split_at_mut(VALUE_BYTES_MIN);
    head.copy_from_slice(&mark);
    random.fill_bytes(rest);
    value.freeze()
}

/// Whether `value` was made for `whose` and has its original length.
pub(crate) fn belongs(whose: u64, value: &[u8]) -> bool {
    value.starts_with(&mark(whose, value.len()))
}

fn mark(whose: u64, len: usize) -> [u8; VALUE_BYTES_MIN] {
    scramble(whose ^ scramble(len as u64)).to_le_bytes()
}

/// Maps each number to one far from its neighbours': the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast
/// splittable pseudorandom number generators", OOPSLA 2014), a bijection.
pub(crate) fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn a_value_is_one_numbers_and_of_one_length() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for len in [8, 64, 1000] {
            let value = value(7, len, &mut random);
            assert!(value.len() == len && belongs(7, &value));
            assert!(!belongs(8, &value) && !belongs(7, &value[..len - 1]));
            let longer = [&value[..], &[0]].concat();
            assert!(!belongs(7, &longer));
        }
        assert_eq!(value(7, 3, &mut random).len(), VALUE_BYTES_MIN);
    }
}

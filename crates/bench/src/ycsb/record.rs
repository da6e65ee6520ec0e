//! Records as bytes: keys that spread over the key space.
//!
//! ```text
//! key    zeros … | scrambled number, 16 hex digits         in the order of a hash, as YCSB inserts
//! ```

use bytes::Bytes;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::drive::{Records, belongs, scramble, value};

/// The shortest key: the digits.
pub const KEY_BYTES_MIN: usize = 16;

/// The sizes of records.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shape {
    /// Bytes of a key, at least [`KEY_BYTES_MIN`].
    pub key_bytes: usize,
    /// Bytes of a value, at least [`VALUE_BYTES_MIN`](super::VALUE_BYTES_MIN).
    pub value_bytes: usize,
}

impl Records for Shape {
    fn key(&self, record: u64) -> Bytes {
        let (number, width) = (scramble(record), self.key_bytes);
        format!("{number:0width$x}").into()
    }

    fn value(&self, record: u64, random: &mut Xoshiro256PlusPlus) -> Bytes {
        value(scramble(record), self.value_bytes, random)
    }

    fn belongs(&self, key: &[u8], value: &[u8]) -> bool {
        let digits = key.len().checked_sub(KEY_BYTES_MIN).map(|zeros| &key[zeros..]);
        let number = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u64::from_str_radix(digits, 16).ok());
        key.len() == self.key_bytes
            && value.len() == self.value_bytes
            && number.is_some_and(|number| belongs(number, value))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;

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

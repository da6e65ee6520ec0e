//! Keys that are fetched ahead part by part, until their values have bytes enough.

use super::*;
use crate::keyspace::{Expiry, FETCHED_BYTES_MAX};

/// A stage with `keys` strings of `len` bytes, and a transaction of one part for each.
fn parts(keys: usize, len: usize) -> (Stage, Touches) {
    let stage = Stage::new();
    let value = Bytes::from(vec![b'x'; len]);
    let mut parts = Touches::default();
    for n in 0..keys {
        let key = format!("k{n}");
        stage.write(&[&key], |on| {
            on.put_string(key.as_bytes(), value.clone(), Expiry::Never).expect("memory");
        });
        parts.add(bytes(&key), Touch::Peek);
        parts.end_part();
    }
    (stage, parts)
}

/// 128 reads of 64 MiB that came together were 8 GiB of memory for one connection.
#[test]
fn long_values_are_not_all_fetched_ahead() {
    let (stage, parts) = parts(128, FETCHED_BYTES_MAX / 16);
    let mut transaction = stage.space.begin(&parts).expect("it begins");
    let fetched = transaction.parts_fetched();
    assert!((16..=24).contains(&fetched), "{fetched}");
    assert!(transaction.string(b"k127").expect("memory").is_some(), "the others can be read");
}

#[test]
fn one_part_is_fetched_however_long_its_values_are() {
    let (stage, _) = parts(12, FETCHED_BYTES_MAX);
    let mut one = Touches::default();
    (0..12).for_each(|n| one.add(bytes(&format!("k{n}")), Touch::Peek));
    one.end_part();
    let reads = stage.reads(|| {
        let transaction = stage.space.begin(&one).expect("it begins");
        assert_eq!(transaction.parts_fetched(), 1);
    });
    assert_eq!(reads, 1, "at one moment");
}

#[test]
fn short_values_are_all_fetched_some_keys_at_a_time() {
    let (stage, parts) = parts(128, 10);
    let reads = stage.reads(|| {
        assert_eq!(stage.space.begin(&parts).expect("it begins").parts_fetched(), 128);
    });
    assert_eq!(reads, 16);
}

//! Keys fetched ahead part by part, up to a number of bytes.

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

/// Once, 128 pipelined reads of 64 MiB took 8 GiB of memory for one connection.
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

/// Values of which only the length was asked were all in memory at once, or counted as too many.
#[test]
fn long_values_that_are_looked_at_are_in_memory_some_at_a_time() {
    const KEYS: usize = 100;
    const LEN: usize = FETCHED_BYTES_MAX / 4;
    let stage = Stage::new();
    let record = Bytes::from([&[1], &vec![b'x'; LEN][..]].concat());
    let keys: Vec<_> = (0..KEYS).map(|n| format!("k{n}")).collect();
    keys.iter().for_each(|key| stage.put_raw(format!("k{key}"), record.clone()));
    let mut touches = Touches::default();
    keys.iter().for_each(|key| touches.add(bytes(key), Touch::Look));
    stage.store.read_at_once.store(0, Ordering::Relaxed);
    let mut on = stage.space.begin_within(&touches, within(FETCHED_BYTES_MAX)).expect("it begins");
    for key in &keys {
        assert_eq!(on.string_len(key.as_bytes()), Ok(Some(LEN as u64)));
    }
    let most = stage.store.read_at_once.load(Ordering::Relaxed);
    assert!((LEN..=FETCHED_BYTES_MAX).contains(&most), "{most}");
}

/// Values that are read have their whole limit, and no more, beside values that are only looked at.
#[test]
fn only_values_that_are_read_count_against_the_limit() {
    let stage = Stage::new();
    let put = |key: &str, len: usize| {
        stage.write(&[key], |on| {
            let value = Bytes::from(vec![b'x'; len]);
            on.put_string(key.as_bytes(), value, Expiry::Never).expect("memory");
        });
    };
    put("read", 90);
    put("look", 500);
    put("write", 700);
    let mut touches = touches(Touch::Peek, &["read"]);
    touches.add(bytes("look"), Touch::Look);
    touches.add(bytes("gone"), Touch::Look);
    let begin = |touches: &Touches, max| {
        let mut on = stage.space.begin_within(touches, within(max))?;
        let lengths = ["look", "gone"].map(|key| on.string_len(key.as_bytes()));
        assert_eq!(lengths, [Ok(Some(500)), Ok(None)]);
        Ok(on.string(b"read")?.map(|value| value.len()))
    };
    assert_eq!(begin(&touches, 100), Ok(Some(90)));
    assert_eq!(begin(&touches, 90), Err(Error::TooLong(90)), "a record has a byte more");
    touches.add(bytes("write"), Touch::Write);
    touches.add(bytes("write"), Touch::Look);
    assert_eq!(begin(&touches, 100), Ok(Some(90)));
    // A key that is read as well is held in memory, and counts.
    touches.add(bytes("look"), Touch::Peek);
    assert_eq!(begin(&touches, 600), Ok(Some(90)));
    assert_eq!(begin(&touches, 100), Err(Error::TooLong(100)));
}

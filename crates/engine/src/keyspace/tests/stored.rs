//! Stored bytes: those of version 1, and arbitrary ones.

use std::ops::Bound;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::keyspace::Expiry;

/// Records as version 1 wrote them: a record a line, key and value in hexadecimal digits.
const VERSION_1: &str = include_str!("../../../testdata/keyspace-1.txt");

fn lines(text: &str) -> BTreeMap<Bytes, Bytes> {
    let bytes = |hex: &str| -> Bytes {
        let digits = hex.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).expect("digits"));
        digits.map(|two| u8::from_str_radix(two, 16).expect("digits")).collect()
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let records = lines.map(|line| line.split_once(' ').expect("a key and a value"));
    records.map(|(key, value)| (bytes(key), bytes(value))).collect()
}

fn scored(of: &[(&str, f64)]) -> Vec<(Bytes, f64)> {
    of.iter().map(|(member, score)| (bytes(member), *score)).collect()
}

fn fields(of: &[(&str, &str)]) -> Vec<(Bytes, Bytes)> {
    of.iter().map(|(field, value)| (bytes(field), bytes(value))).collect()
}

const SCORED: [(&str, f64); 4] =
    [("low", f64::NEG_INFINITY), ("under", -1.5), ("zero", 0.0), ("over", 2.5)];

/// The contents of `testdata`.
fn written() -> Stage {
    let stage = Stage::new();
    stage.write(&["string", "hash", "sorted", "later"], |on| {
        on.put_string(b"string", bytes("value"), Expiry::Never).expect("memory");
        on.put_string(b"later", bytes("gone"), Expiry::At(2000)).expect("memory");
        on.hash_set(b"hash", &fields(&[("a", "1"), ("b", "")])).expect("memory");
        on.set_expires(b"hash", Some(3000)).expect("memory");
        on.sorted_put(b"sorted", &scored(&SCORED)).expect("memory");
    });
    stage
}

#[test]
fn version_1_is_written_as_ever() {
    let found: Vec<_> = written().store.everything().into_iter().collect();
    let expected: Vec<_> = lines(VERSION_1).into_iter().collect();
    let hex = |bytes: &Bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let text = found.iter().map(|(key, value)| format!("{} {}\n", hex(key), hex(value)));
    assert_eq!(found, expected, "written now:\n{}", text.collect::<String>());
}

#[test]
fn version_1_still_opens() {
    let store = Arc::new(Probe::default());
    let records = lines(VERSION_1).into_iter().map(|(key, value)| Change::Put(key, value));
    store.memory.apply(&records.collect::<Vec<_>>()).expect("memory");
    let wall = Arc::new(AtomicU64::new(1000));
    let space = Stage::open(&store, &wall).expect("it opens");
    let stage = Stage { store, wall, space };
    stage.audit();
    stage.touch(Touch::Read, &["string", "hash", "sorted", "later"], |on| {
        assert_eq!(on.string(b"string"), Ok(Some(bytes("value"))));
        assert_eq!(on.expires(b"string"), Ok(Some(None)));
        assert_eq!(on.string(b"later"), Ok(Some(bytes("gone"))));
        assert_eq!(on.expires(b"later"), Ok(Some(Some(2000))));
        let hash = fields(&[("a", "1"), ("b", "")]);
        assert_eq!(on.hash_entries(b"hash", None, 9), Ok(hash));
        assert_eq!(on.expires(b"hash"), Ok(Some(Some(3000))));
        let all = (Bound::Unbounded, Bound::Unbounded);
        assert_eq!(on.sorted_range(b"sorted", all, false, 0, 9), Ok(scored(&SCORED)));
    });
    // The keyspace goes on from there, and removes expired keys of it.
    stage.at(2500);
    assert_eq!(stage.space.remove_expired(), Ok(false));
    stage.write(&["hash", "sorted", "more"], |on| {
        assert_eq!(on.hash_set(b"more", &fields(&[("a", "2")])), Ok(1));
        on.put_string(b"sorted", bytes("value"), Expiry::Never).expect("memory");
        assert_eq!(on.delete(b"hash"), Ok(true));
    });
    stage.audit();
    assert_eq!(stage.space.count().map(|count| count.keys), Ok(3));
}

/// A main record of a known kind, or arbitrary bytes.
fn record() -> impl Strategy<Value = Vec<u8>> {
    let collection = (any::<bool>(), any::<bool>(), any::<u64>(), 0..4_u64, any::<u64>(), 0..4_u8);
    let collection = collection.prop_map(|(hash, expires, time, id, len, near)| {
        let len = [len, 1, u64::MAX, 0][usize::from(near)];
        let kind = if hash { 2 } else { 3 };
        let time = if expires { time.to_le_bytes().to_vec() } else { Vec::new() };
        let header = vec![kind | u8::from(expires) << 7];
        [header, time, id.to_le_bytes().to_vec(), len.to_le_bytes().to_vec()].concat()
    });
    prop_oneof![collection, vec(any::<u8>(), 0..24)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Calls give an error that names the place, or an answer; they never panic.
    #[test]
    fn any_bytes_in_a_main_record_are_answered(record in record()) {
        let ask: &[fn(&mut Transaction<'_>) -> Result<()>] = &[
            |on| on.kind(b"k").map(drop),
            |on| on.string(b"k").map(drop),
            |on| on.hash_len(b"k").map(drop),
            |on| on.hash_get(b"k", &[bytes("e0"), bytes("e1")]).map(drop),
            |on| on.hash_entries(b"k", None, 9).map(drop),
            |on| on.hash_set(b"k", &fields(&[("e0", "v"), ("new", "v")])).map(drop),
            |on| on.hash_delete(b"k", &[bytes("e0"), bytes("e1"), bytes("e2")]).map(drop),
            |on| on.sorted_scores(b"k", &[bytes("e0"), bytes("e1")]).map(drop),
            |on| on.sorted_put(b"k", &scored(&[("e0", 9.0), ("new", 1.0)])).map(drop),
            |on| on.sorted_delete(b"k", &[bytes("e0"), bytes("e1"), bytes("e2")]).map(drop),
            |on| on.sorted_range(b"k", (Bound::Unbounded, Bound::Unbounded), true, 1, 9).map(drop),
            |on| on.set_expires(b"k", Some(5000)).map(drop),
            |on| on.keys(b"", 9).map(drop),
            |on| on.put_string(b"k", bytes("v"), Expiry::Keep),
            |on| on.delete(b"k").map(drop),
        ];
        for ask in ask {
            let stage = Stage::new();
            // The elements that ids 0 and 1 of the record may refer to.
            stage.write(&["h", "z"], |on| {
                on.hash_set(b"h", &fields(&[("e0", "v"), ("e1", "v"), ("e2", "v")])).expect("memory");
                on.sorted_put(b"z", &scored(&[("e0", 1.0), ("e1", 2.0), ("e2", 3.0)])).expect("memory");
            });
            stage.put_raw(format::main_key(b"k"), record.clone());
            stage.put_raw(format::mark_key(stage.space.stripes.of(b"k")), Bytes::new());
            stage.space.stripes.mark(stage.space.stripes.of(b"k"), true);
            match stage.write(&["k"], ask) {
                Ok(()) | Err(Error::WrongKind) => {}
                Err(Error::Store(kv::Error::Corrupt(text))) => {
                    prop_assert!(text.contains('"'), "{}", text);
                }
                Err(other) => prop_assert!(false, "{}", other),
            }
        }
    }
}

#[test]
fn elements_and_expiries_that_are_not_readable_are_errors() {
    let corrupt = |result: Result<()>| {
        assert!(matches!(result, Err(Error::Store(kv::Error::Corrupt(_)))), "{result:?}");
    };
    let stage = written();
    let id = 1;
    for score in [&b"short"[..], &[0; 9], &f64::NAN.to_le_bytes()] {
        stage.put_raw(format::member_key(id, b"zero"), score.to_vec());
        let zero = [bytes("zero")];
        corrupt(
            stage
                .touch(Touch::Read, &["sorted"], |on| on.sorted_scores(b"sorted", &zero).map(drop)),
        );
        corrupt(stage.write(&["sorted"], |on| on.sorted_delete(b"sorted", &zero).map(drop)));
    }
    let short = [&b"z"[..], &id.to_be_bytes(), b"\x01"].concat();
    stage.put_raw(short, Bytes::new());
    corrupt(stage.touch(Touch::Read, &["sorted"], |on| {
        let all = (Bound::Unbounded, Bound::Unbounded);
        on.sorted_range(b"sorted", all, false, 0, 9).map(drop)
    }));
    stage.put_raw(&b"t\0\0"[..], Bytes::new());
    corrupt(stage.space.remove_expired().map(drop));
}

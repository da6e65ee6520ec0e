//! One suite that every [`KeyValue`] passes: the memory model and the real stores alike.
//!
//! A test hands [`run`] a way to make a fresh, empty store:
//!
//! ```
//! use engine::kv::conformance::{self, Once};
//! use engine::kv::Memory;
//!
//! conformance::run(|| Box::new(Once(Memory::default())));
//! ```
//!
//! Stores that can be reopened bring a [`Harness`] of their own, which reopens them and cuts their power.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::{Change, Durability, KeyRange, KeyValue, Scan};

/// How the suite reaches a store under test.
pub trait Harness {
    /// The store. The suite holds no reference to it across [`Harness::reopen`].
    fn store(&self) -> &dyn KeyValue;

    /// Closes the store and opens it again, with power restored; false if the store cannot be reopened.
    fn reopen(&mut self) -> bool {
        false
    }

    /// Cuts the power after `steps` more changes of what is on the store's devices: every write fails from then on
    /// until [`Harness::reopen`]. False if the harness cannot cut power.
    fn cut_power_after(&mut self, steps: u64) -> bool {
        let _ = steps;
        false
    }
}

/// A harness for a store that cannot be reopened.
pub struct Once<S>(pub S);

impl<S: KeyValue> Harness for Once<S> {
    fn store(&self) -> &dyn KeyValue {
        &self.0
    }
}

/// Runs every case, each on a fresh store.
///
/// # Panics
/// When the store does not do what [`KeyValue`] promises; the case is named on stderr.
pub fn run(make: impl Fn() -> Box<dyn Harness>) {
    for (name, case) in CASES {
        let _named = NameOnPanic(name);
        case(&mut *make());
    }
}

type Case = fn(&mut dyn Harness);

const CASES: [(&str, Case); 11] = [
    ("keys are ordered as byte strings", ordering),
    ("values are given in the order of the keys asked for", gets),
    ("changes of a batch are made in their order", batches),
    ("ranges are deleted from their first key to before their last", ranges),
    ("scans stop at their limits", limits),
    ("a walk goes on behind the last key", walks),
    ("keys and values are empty or large", sizes),
    ("what is counted is there", counts),
    ("a reader beside a writer sees one moment", moments),
    ("what was written is there after a reopening", reopenings),
    ("a batch is there whole or not at all after a power cut", power_cuts),
];

struct NameOnPanic(&'static str);

impl Drop for NameOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("conformance case: {}", self.0);
        }
    }
}

fn put(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Change {
    Change::Put(Bytes::copy_from_slice(key.as_ref()), Bytes::copy_from_slice(value.as_ref()))
}

fn delete(key: impl AsRef<[u8]>) -> Change {
    Change::Delete(Bytes::copy_from_slice(key.as_ref()))
}

fn range(from: impl AsRef<[u8]>, to: Option<&[u8]>) -> KeyRange {
    let from = Bytes::copy_from_slice(from.as_ref());
    KeyRange { from, to: to.map(Bytes::copy_from_slice) }
}

fn apply(store: &dyn KeyValue, changes: &[Change]) {
    store.apply(changes).expect("a store with all its devices takes a batch");
}

fn get(store: &dyn KeyValue, key: impl AsRef<[u8]>) -> Option<Bytes> {
    let found = store.get_many(&[Bytes::copy_from_slice(key.as_ref())]).expect("a get");
    assert_eq!(found.len(), 1, "one key, one answer");
    found.into_iter().next().flatten()
}

fn scan(store: &dyn KeyValue, range: KeyRange, reverse: bool) -> Vec<(Bytes, Bytes)> {
    let (entries_max, bytes_max) = (usize::MAX, usize::MAX);
    store.scan(&Scan { range, reverse, entries_max, bytes_max }).expect("a scan")
}

fn keys(store: &dyn KeyValue) -> Vec<Bytes> {
    scan(store, KeyRange::ALL, false).into_iter().map(|(key, _)| key).collect()
}

/// Keys that expose a wrong order: of characters, of signed bytes, by length.
const TRICKY: [&[u8]; 12] = [
    b"",
    b"\0",
    b"\0\0",
    b"\0\xff",
    b"a",
    b"a\0",
    b"ab",
    b"b",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
];

fn ordering(harness: &mut dyn Harness) {
    let store = harness.store();
    let changes: Vec<_> = TRICKY.iter().rev().map(|key| put(key, key)).collect();
    apply(store, &changes);
    let forward = scan(store, KeyRange::ALL, false);
    assert!(forward.iter().map(|(key, _)| &key[..]).eq(TRICKY), "{forward:?}");
    assert!(forward.iter().all(|(key, value)| key == value));
    let mut backward = scan(store, KeyRange::ALL, true);
    backward.reverse();
    assert_eq!(forward, backward);
    for (from, first) in TRICKY.iter().enumerate() {
        for (to, end) in TRICKY.iter().enumerate() {
            let within = range(first, Some(end));
            let expected = TRICKY.get(from..to).unwrap_or_default();
            let found = scan(store, within.clone(), false);
            assert!(
                found.iter().map(|(key, _)| &key[..]).eq(expected.iter().copied()),
                "{within:?}"
            );
            let found = scan(store, within.clone(), true);
            let reversed = expected.iter().rev().copied();
            assert!(found.iter().map(|(key, _)| &key[..]).eq(reversed), "{within:?} in reverse");
        }
    }
}

fn gets(harness: &mut dyn Harness) {
    let store = harness.store();
    assert_eq!(store.get_many(&[]), Ok(Vec::new()));
    apply(store, &[put("a", "1"), put("b", "2"), put("c", "3")]);
    let asked = ["c", "x", "a", "c", "", "b"].map(Bytes::from);
    let expected = [Some("3"), None, Some("1"), Some("3"), None, Some("2")];
    let expected: Vec<_> = expected.map(|value| value.map(Bytes::from)).into();
    assert_eq!(store.get_many(&asked), Ok(expected));
}

fn batches(harness: &mut dyn Harness) {
    let store = harness.store();
    apply(store, &[]);
    apply(store, &[put("k", "1"), put("k", "2")]);
    assert_eq!(get(store, "k").as_deref(), Some(&b"2"[..]));
    apply(store, &[put("k", "3"), delete("k")]);
    assert_eq!(get(store, "k"), None);
    apply(store, &[delete("k"), put("k", "4"), delete("absent")]);
    assert_eq!(get(store, "k").as_deref(), Some(&b"4"[..]));
    // A range takes what the batch put before it and leaves what it puts after.
    for end in [None, Some(&b"n"[..])] {
        let gone = Change::DeleteRange(range("k", end));
        apply(store, &[put("a", "5"), put("l", "5"), put("m", "5"), gone, put("m", "6")]);
        assert_eq!(keys(store), ["a", "m"]);
        assert_eq!(get(store, "m").as_deref(), Some(&b"6"[..]));
    }
    let all = || Change::DeleteRange(KeyRange::ALL);
    apply(store, &[all(), put("z", "7"), all(), put("y", "8"), put("y", "9")]);
    assert_eq!(scan(store, KeyRange::ALL, false), [("y".into(), "9".into())]);
}

fn ranges(harness: &mut dyn Harness) {
    let store = harness.store();
    let fill = || {
        let mut changes = vec![Change::DeleteRange(KeyRange::ALL)];
        changes.extend(TRICKY.iter().map(|key| put(key, "v")));
        apply(store, &changes);
        assert_eq!(keys(store), TRICKY, "everything is back after it was deleted");
    };
    let check = |gone: KeyRange| {
        fill();
        apply(store, &[Change::DeleteRange(gone.clone())]);
        let left: Vec<_> = TRICKY.into_iter().filter(|key| !gone.contains(key)).collect();
        assert_eq!(keys(store), left, "without {gone:?}");
        for key in TRICKY {
            assert_eq!(get(store, key).is_none(), gone.contains(key), "{key:?} in {gone:?}");
        }
    };
    check(KeyRange::ALL);
    check(range("a", Some(b"b")));
    check(range("a", Some(b"a\0")));
    check(range("a", Some(b"a")));
    check(range("b", Some(b"a")));
    check(range("c", Some(b"d")));
    check(range("", Some(b"")));
    check(range("a\x01", None));
    check(range(b"\xff\xff", None));
    check(range(b"\xff\xff\xff", None));
    check(KeyRange::with_prefix(&b"a"[..]));
    check(KeyRange::with_prefix(&b"\xff"[..]));
    check(KeyRange::with_prefix(&b"\0\xff"[..]));
    // On an empty store.
    apply(store, &[Change::DeleteRange(KeyRange::ALL)]);
    apply(store, &[Change::DeleteRange(KeyRange::ALL), Change::DeleteRange(range("a", None))]);
    assert_eq!(keys(store), [""; 0]);
}

fn limits(harness: &mut dyn Harness) {
    let store = harness.store();
    let changes: Vec<_> = (0..20_u8).map(|n| put([n], [n; 9])).collect();
    apply(store, &changes);
    let found = |reverse, entries_max, bytes_max| {
        let limited = Scan { range: KeyRange::ALL, reverse, entries_max, bytes_max };
        let found = store.scan(&limited).expect("a scan");
        let keys: Vec<_> = found.into_iter().map(|(key, _)| key[0]).collect();
        let mut expected: Vec<_> = (0..20).collect();
        if reverse {
            expected.reverse();
        }
        expected.truncate(keys.len());
        assert_eq!(keys, expected, "the first of the walk");
        keys.len()
    };
    for reverse in [false, true] {
        for entries_max in [0, 1, 7, 20, 21] {
            assert_eq!(found(reverse, entries_max, usize::MAX), entries_max.min(20));
        }
        // Ten bytes an entry: a scan stops with the entry that reaches the limit.
        for (bytes_max, entries) in [(0, 1), (1, 1), (10, 1), (11, 2), (100, 10), (10_000, 20)] {
            assert_eq!(found(reverse, usize::MAX, bytes_max), entries, "{bytes_max} bytes");
        }
        assert_eq!(found(reverse, 3, 10_000), 3);
        assert_eq!(found(reverse, 3, 15), 2);
    }
}

fn walks(harness: &mut dyn Harness) {
    let store = harness.store();
    let changes: Vec<_> = TRICKY.iter().map(|key| put(key, "v")).collect();
    apply(store, &changes);
    let mut seen = Vec::new();
    let mut from = Bytes::new();
    loop {
        let rest = KeyRange { from, to: None };
        let part = Scan { range: rest, reverse: false, entries_max: 5, bytes_max: usize::MAX };
        let part = store.scan(&part).expect("a scan");
        let Some((last, _)) = part.last() else { break };
        from = [&last[..], b"\0"].concat().into();
        seen.extend(part.into_iter().map(|(key, _)| key));
    }
    assert_eq!(seen, TRICKY);
}

fn sizes(harness: &mut dyn Harness) {
    const MIB: usize = 1 << 20;
    let entries = [
        (Bytes::new(), Bytes::new()),
        (Bytes::from_static(b"empty"), Bytes::new()),
        (vec![b'k'; 64 << 10].into(), Bytes::from_static(b"of a long key")),
        (Bytes::from_static(b"large"), (0..5 * MIB).map(|i| (i % 251) as u8).collect()),
    ];
    let changes = entries.iter().map(|(key, value)| Change::Put(key.clone(), value.clone()));
    let changes: Vec<_> = changes.collect();
    apply(harness.store(), &changes);
    let check = |store: &dyn KeyValue| {
        for (key, value) in &entries {
            assert!(get(store, key).as_ref() == Some(value), "a key of {} bytes", key.len());
        }
        assert_eq!(keys(store).len(), entries.len());
    };
    check(harness.store());
    if harness.reopen() {
        check(harness.store());
    }
}

fn counts(harness: &mut dyn Harness) {
    let store = harness.store();
    let count = |range: &KeyRange| store.count(range).expect("a count");
    assert_eq!(count(&KeyRange::ALL).keys, 0);
    let number = |n: u32| n.to_be_bytes();
    let changes: Vec<_> = (0..100).map(|n| put(number(n), "v")).collect();
    apply(store, &changes);
    apply(store, &changes);
    for (range, keys) in [
        (KeyRange::ALL, 100),
        (range(number(10), Some(&number(20))), 10),
        (range(number(90), None), 10),
        (range(number(20), Some(&number(10))), 0),
        (range(number(100), None), 0),
    ] {
        let found = count(&range);
        assert_eq!((found.keys, found.exact), (keys, true), "few keys are counted: {range:?}");
    }
    apply(store, &[Change::DeleteRange(KeyRange { from: vec![0, 0, 0, 50].into(), to: None })]);
    assert_eq!(count(&KeyRange::ALL).keys, 50);
    const MANY: u32 = 30_000;
    for part in 0..MANY / 1000 {
        let changes: Vec<_> =
            (0..1000).map(|n| put(number(part * 1000 + n), "some value")).collect();
        apply(store, &changes);
    }
    let found = count(&KeyRange::ALL);
    let many = u64::from(MANY);
    let right = if found.exact { many..=many } else { many / 2..=many * 2 };
    assert!(right.contains(&found.keys), "{found:?} of {many}");
}

/// A writer gives ten keys one version after the other, each in one batch that deletes them first.
fn moments(harness: &mut dyn Harness) {
    const KEYS: u8 = 10;
    const VERSIONS: u32 = 200;
    let store = harness.store();
    let asked: Vec<_> = (0..KEYS).map(|n| Bytes::from(vec![b'k', n])).collect();
    let batch = |version: u32| {
        let mut changes = vec![Change::DeleteRange(KeyRange::with_prefix(&b"k"[..]))];
        changes.extend(asked.iter().map(|key| put(key, version.to_be_bytes())));
        changes
    };
    apply(store, &batch(0));
    let written = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in 1..=VERSIONS {
                apply(store, &batch(version));
            }
            written.store(true, Ordering::Release);
        });
        let mut last = 0;
        loop {
            let over = written.load(Ordering::Acquire);
            let got: Option<Vec<_>> = store.get_many(&asked).expect("a get").into_iter().collect();
            let got = got.expect("no moment is without the keys");
            let forward = scan(store, KeyRange::ALL, false);
            let backward = scan(store, KeyRange::ALL, true);
            for found in [got, values(&forward), values(&backward)] {
                assert_eq!(found.len(), usize::from(KEYS), "no moment is without the keys");
                let version = u32::from_be_bytes(found[0][..].try_into().expect("a version"));
                assert!(found.iter().all(|value| *value == found[0]), "two moments: {found:?}");
                assert!(version >= last, "{version} after {last}: a moment that was over");
                last = version;
            }
            if over {
                assert_eq!(last, VERSIONS, "what was acknowledged is seen");
                break;
            }
        }
    });
}

fn values(entries: &[(Bytes, Bytes)]) -> Vec<Bytes> {
    entries.iter().map(|(_, value)| value.clone()).collect()
}

fn reopenings(harness: &mut dyn Harness) {
    for round in 0..3_u8 {
        let changes: Vec<_> = (0..100).map(|n| put([round, n], [n; 100])).collect();
        apply(harness.store(), &changes);
        let one = Change::DeleteRange(range([round, 50], Some(&[round, 60])));
        apply(harness.store(), &[one, delete([round, 1])]);
        if !harness.reopen() {
            return;
        }
        let store = harness.store();
        for round in 0..=round {
            for n in 0..100 {
                let gone = n == 1 || (50..60).contains(&n);
                let expected = (!gone).then(|| Bytes::from(vec![n; 100]));
                assert_eq!(get(store, [round, n]), expected, "key {n} of round {round}");
            }
        }
    }
}

/// Each batch writes its number to every key. After the cut all keys have one number: that of the last acknowledged
/// batch or of the failed one, or an earlier one where the store promises less.
fn power_cuts(harness: &mut dyn Harness) {
    const KEYS: usize = 20;
    const CUTS: u64 = 40;
    let every_key: Vec<_> = (0..KEYS).map(|n| Bytes::from(format!("key {n}"))).collect();
    let batch = |number: u64| {
        // The length changes, so that cuts come at every place of a record.
        let value = [&number.to_be_bytes()[..], &vec![0; number as usize % 700]].concat();
        every_key.iter().map(|key| put(key, &value)).collect::<Vec<_>>()
    };
    let (mut number, mut acknowledged) = (0, 0);
    for steps in 0..CUTS {
        if !harness.cut_power_after(steps) {
            return;
        }
        let failed = loop {
            number += 1;
            match harness.store().apply(&batch(number)) {
                Ok(()) => acknowledged = number,
                Err(_) => break number,
            }
        };
        assert!(harness.reopen(), "a store that the power can be taken from opens again");
        let store = harness.store();
        let found = store.get_many(&every_key).expect("a get after the power is back");
        let version = |value: &Option<Bytes>| {
            value.as_ref().map_or(0, |value| {
                u64::from_be_bytes(value[..8].try_into().expect("eight bytes of number"))
            })
        };
        let left = version(&found[0]);
        assert!(found.iter().all(|value| version(value) == left), "cut at {steps}: {found:?}");
        assert!(left <= failed, "cut at {steps}: {left} was never written");
        if store.durability() == Durability::Always {
            assert!(left >= acknowledged, "cut at {steps}: {acknowledged} is lost, {left} is left");
        }
        // State found after a reopening stays.
        acknowledged = left;
    }
}

//! Many threads on few keys.

use std::sync::atomic::AtomicBool;
use std::thread::{self, ScopedJoinHandle};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::*;
use crate::keyspace::Expiry;

const THREADS: u64 = 6;
const ROUNDS: u64 = 300;

/// Draws differ between threads, and repeat from run to run.
fn drawn(thread: u64, round: u64) -> u64 {
    xxh3_64_with_seed(&round.to_le_bytes(), thread)
}

fn number(value: Option<&Bytes>) -> u64 {
    value.map_or(0, |value| std::str::from_utf8(value).expect("digits").parse().expect("digits"))
}

/// The number of a key, whatever the key holds: its letter says what that is.
fn read(on: &mut Transaction<'_>, key: &str) -> u64 {
    let (field, key) = ([bytes("n")], key.as_bytes());
    match key[0] {
        b's' => number(on.string(key).expect("a string").as_ref()),
        b'h' => number(on.hash_get(key, &field).expect("a hash")[0].as_ref()),
        _ => on.sorted_scores(key, &field).expect("a set")[0].map_or(0, |score| score as u64),
    }
}

fn write(on: &mut Transaction<'_>, key: &str, n: u64) {
    let (field, text, key) = (bytes("n"), Bytes::from(n.to_string()), key.as_bytes());
    match key[0] {
        b's' => on.put_string(key, text, Expiry::Keep).expect("a string"),
        b'h' => drop(on.hash_set(key, &[(field, text)]).expect("a hash")),
        _ => drop(on.sorted_put(key, &[(field, n as f64)]).expect("a set")),
    }
}

const KEYS: [&str; 7] = ["s1", "s2", "s3", "h1", "h2", "z1", "z2"];

/// Up to four keys in any order, some of them twice, with the touches they need and with others.
fn some_keys(thread: u64, round: u64) -> (Vec<&'static str>, Touches) {
    let draw = drawn(thread, round);
    let keys: Vec<_> =
        (0..1 + draw % 4).map(|n| KEYS[(draw >> (8 + 8 * n)) as usize % 7]).collect();
    let mut touches = touches(Touch::Write, &keys);
    for n in 0..draw >> 60 {
        let touch = [Touch::Peek, Touch::Read, Touch::Replace][(n % 3) as usize];
        touches.add(bytes(KEYS[(draw >> (4 * n + 3)) as usize % 7]), touch);
    }
    if draw.is_multiple_of(50) {
        touches.add_everything();
    }
    (keys, touches)
}

/// Waits for the threads, and tells the others to stop, even if one panicked.
fn joined<T>(threads: Vec<ScopedJoinHandle<'_, T>>, done: &AtomicBool) -> Vec<T> {
    let ends: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
    done.store(true, Ordering::Relaxed);
    ends.into_iter().map(|end| end.expect("no panic")).collect()
}

/// Each transaction adds one to each of its keys; meanwhile others lock everything, look for expired keys, and walk
/// over all. If the test ends, there is no deadlock.
#[test]
fn no_increment_is_lost_and_nobody_waits_in_a_circle() {
    let stage = Stage::new();
    let done = AtomicBool::new(false);
    let mut added = BTreeMap::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                stage.space.remove_expired().expect("memory");
                stage.touch(Touch::Peek, &["s1"], |on| on.keys(b"", 5).map(drop)).expect("memory");
                stage.space.watch(&bytes("h1")).expect("memory");
            }
        });
        let adding = |thread| {
            let mut added = Vec::new();
            for round in 0..ROUNDS {
                let (keys, touches) = some_keys(thread, round);
                let mut transaction = stage.space.begin(&touches).expect("memory");
                for key in &keys {
                    let n = read(&mut transaction, key);
                    write(&mut transaction, key, n + 1);
                }
                // One in eight is dropped without a commit.
                if !drawn(thread, round).is_multiple_of(8) {
                    transaction.commit().expect("memory");
                    added.extend(keys);
                }
            }
            added
        };
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || adding(n))).collect();
        for key in joined(threads, &done).into_iter().flatten() {
            *added.entry(key).or_insert(0) += 1;
        }
    });
    for key in KEYS {
        assert_eq!(stage.touch(Touch::Read, &[key], |on| read(on, key)), added[key], "{key}");
    }
    stage.audit();
}

/// A reader of several keys sees them as they are between transactions, both alone and with a key that the same
/// transaction writes.
#[test]
fn several_keys_are_seen_at_one_moment() {
    let stage = Stage::new();
    let accounts = ["s1", "s2", "s3"];
    stage.write(&accounts, |on| accounts.iter().for_each(|key| write(on, key, 1000)));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let looking = |more: Option<&'static str>| {
            while !done.load(Ordering::Relaxed) {
                let mut touches = touches(Touch::Peek, &accounts);
                more.into_iter().for_each(|more| touches.add(bytes(more), Touch::Replace));
                let mut transaction = stage.space.begin(&touches).expect("memory");
                let sum: u64 = accounts.iter().map(|key| read(&mut transaction, key)).sum();
                assert_eq!(sum, 3000);
            }
        };
        let lookers = [None, Some("s4")].map(|more| scope.spawn(move || looking(more)));
        let moving = |thread| {
            for round in 0..ROUNDS {
                let draw = drawn(thread, round) as usize;
                let (from, to) = (accounts[draw % 3], accounts[draw / 3 % 3]);
                stage.write(&[from, to], |on| {
                    let left = read(on, from) - 1;
                    write(on, from, left);
                    let more = read(on, to) + 1;
                    write(on, to, more);
                });
            }
        };
        let movers: Vec<_> = (0..3).map(|n| scope.spawn(move || moving(n))).collect();
        joined(movers, &done);
        lookers.into_iter().for_each(|looker| looker.join().expect("the sum is always the same"));
    });
}

/// Bytes move from string to string while a reader asks for their lengths, in several calls of the store: the limit is
/// one byte.
#[test]
fn several_lengths_are_seen_at_one_moment() {
    let stage = Stage::new();
    let strings = ["s1", "s2", "s3", "s4", "s5"];
    let put = |on: &mut Transaction<'_>, key: &str, len: usize| {
        let value = Bytes::from(vec![b'x'; len]);
        on.put_string(key.as_bytes(), value, Expiry::Never).expect("memory");
    };
    stage.write(&strings, |on| strings.iter().for_each(|key| put(on, key, 100)));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let looking = || {
            let touches = touches(Touch::Look, &strings);
            while !done.load(Ordering::Relaxed) {
                let mut on = stage.space.begin_within(&touches, within(1)).expect("memory");
                let length = |key: &&str| on.string_len(key.as_bytes()).expect("a string");
                let sum: u64 = strings.iter().filter_map(length).sum();
                assert_eq!(sum, 500);
            }
        };
        let looker = scope.spawn(looking);
        let moving = |thread| {
            for round in 0..ROUNDS {
                let draw = drawn(thread, round) as usize;
                let (from, to) = (strings[draw % 5], strings[draw / 5 % 5]);
                stage.write(&[from, to], |on| {
                    let length = |on: &mut Transaction<'_>, key: &str| {
                        on.string_len(key.as_bytes())
                            .expect("a string")
                            .map_or(0, |len| len as usize)
                    };
                    let left = length(on, from).saturating_sub(1);
                    let moved = length(on, from) - left;
                    put(on, from, left);
                    let more = length(on, to) + moved;
                    put(on, to, more);
                });
            }
        };
        let movers: Vec<_> = (0..3).map(|n| scope.spawn(move || moving(n))).collect();
        joined(movers, &done);
        looker.join().expect("the sum is always the same");
    });
}

/// A collection is never seen half made or half gone, while other transactions replace it by strings and make it again.
#[test]
fn collections_are_seen_whole() {
    let stage = Stage::new();
    let done = AtomicBool::new(false);
    let fields: Vec<_> = (0..12).map(|n| (Bytes::from(format!("f{n}")), bytes("v"))).collect();
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                stage.touch(Touch::Read, &["k"], |on| {
                    if on.kind(b"k") == Ok(Some(Kind::Hash)) {
                        let len = on.hash_len(b"k").expect("a hash");
                        let entries = on.hash_entries(b"k", None, usize::MAX).expect("a hash");
                        assert_eq!(entries.len() as u64, len);
                    }
                });
            }
        });
        let writing = |thread| {
            for round in 0..ROUNDS {
                let draw = drawn(thread, round);
                let some = &fields[..1 + (draw >> 8) as usize % 12];
                match draw % 3 {
                    0 => stage.touch(Touch::Replace, &["k"], |on| {
                        on.put_string(b"k", bytes("v"), Expiry::Never).expect("memory");
                    }),
                    1 => stage.write(&["k"], |on| {
                        on.delete(b"k").expect("memory");
                        on.hash_set(b"k", some).expect("memory");
                    }),
                    _ => stage.write(&["k"], |on| {
                        let some: Vec<_> = some.iter().map(|(field, _)| field.clone()).collect();
                        on.hash_delete(b"k", &some).or(Ok::<_, Error>(0)).expect("or a string");
                    }),
                }
            }
        };
        let writers: Vec<_> = (0..3).map(|n| scope.spawn(move || writing(n))).collect();
        joined(writers, &done);
        reader.join().expect("it saw whole collections");
    });
    stage.audit();
}

/// Each thread watches, reads, and writes the next value unless another thread was quicker; some threads delete and
/// recreate the key in one transaction.
#[test]
fn a_watch_misses_no_change() {
    let stage = Stage::new();
    let key = bytes("s1");
    let add = |_| loop {
        let watched = stage.space.watch(&key).expect("memory");
        let seen = stage.touch(Touch::Peek, &["s1"], |on| read(on, "s1"));
        let mut transaction = stage.space.begin(&touches(Touch::Write, &["s1"])).expect("memory");
        if transaction.is_unchanged(&watched).expect("memory") {
            write(&mut transaction, "s1", seen + 1);
            return transaction.commit().expect("memory");
        }
    };
    let make_again = |_| {
        stage.write(&["s1"], |on| {
            let n = read(on, "s1");
            on.delete(b"s1").expect("memory");
            write(on, "s1", n + 1);
        });
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || match thread % 3 {
                0 => (0..ROUNDS).for_each(make_again),
                _ => (0..ROUNDS).for_each(add),
            });
        }
    });
    assert_eq!(stage.touch(Touch::Read, &["s1"], |on| read(on, "s1")), THREADS * ROUNDS);
}

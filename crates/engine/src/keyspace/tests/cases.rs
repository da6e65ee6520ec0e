//! Single calls: regressions, and cases that are easy to forget.

use super::*;
use crate::keyspace::{Expiry, Watched};

fn hash(fields: std::ops::Range<u32>) -> Vec<(Bytes, Bytes)> {
    fields.map(|n| (Bytes::from(format!("f{n:03}")), Bytes::from(n.to_string()))).collect()
}

#[test]
fn nothing_is_made_of_nothing() {
    let stage = Stage::new();
    let empty = stage.store.everything();
    stage.write(&["k"], |on| {
        assert_eq!(on.hash_set(b"k", &[]), Ok(0));
        assert_eq!(on.sorted_put(b"k", &[]), Ok((0, 0)));
        assert_eq!(on.hash_delete(b"k", &[bytes("f")]), Ok(0));
        assert_eq!(on.sorted_delete(b"k", &[bytes("m")]), Ok(0));
        assert_eq!(on.kind(b"k"), Ok(None));
    });
    assert_eq!(stage.store.everything(), empty);
}

#[test]
fn zeros_have_no_sign() {
    let stage = Stage::new();
    stage.write(&["k"], |on| {
        assert_eq!(on.sorted_put(b"k", &[(bytes("m"), -0.0)]), Ok((1, 0)));
        assert_eq!(on.sorted_put(b"k", &[(bytes("m"), 0.0)]), Ok((0, 0)));
        let scores = on.sorted_scores(b"k", &[bytes("m")]).expect("it is one");
        assert_eq!(scores[0].map(f64::to_bits), Some(0));
    });
    stage.audit();
}

#[test]
#[should_panic(expected = "a NaN has no place in an order")]
fn a_nan_is_no_score() {
    Stage::new().write(&["k"], |on| on.sorted_put(b"k", &[(bytes("m"), f64::NAN)]).map(drop)).ok();
}

/// Fields are written even if their values are the same, a count only if it changed.
#[test]
fn a_main_record_is_written_only_when_it_changes() {
    let stage = Stage::new();
    stage.write(&["k"], |on| on.hash_set(b"k", &hash(0..3)).map(drop)).expect("it is set");
    let applied = stage.store.changes.lock().len();
    let watched = stage.space.watch(&bytes("k")).expect("it is watched");
    stage.write(&["k"], |on| assert_eq!(on.hash_set(b"k", &hash(1..2)), Ok(0)));
    let changes = stage.store.changes.lock().split_off(applied);
    assert!(matches!(&changes[..], [Change::Put(record, _)] if record[0] == b'h'), "{changes:?}");
    stage.write(&["k"], |on| assert_eq!(on.is_unchanged(&watched), Ok(false)));
}

#[test]
fn small_collections_go_by_element_and_large_ones_by_range() {
    for (fields, ranges) in [(4, 0), (5, 1), (20, 1)] {
        let stage = Stage::new();
        stage.write(&["k"], |on| on.hash_set(b"k", &hash(0..fields)).map(drop)).expect("it is set");
        let applied = stage.store.changes.lock().len();
        stage.write(&["k"], |on| assert_eq!(on.delete(b"k"), Ok(true)));
        let changes = stage.store.changes.lock().split_off(applied);
        let found = changes.iter().filter(|change| matches!(change, Change::DeleteRange(_)));
        assert_eq!(found.count(), ranges, "{fields} fields: {changes:?}");
        stage.audit();
    }
}

/// A main record that understates its elements does not have all of them held in memory.
#[test]
fn more_elements_than_are_said_go_by_range() {
    let stage = Stage::new();
    stage.write(&["k"], |on| on.hash_set(b"k", &hash(0..20)).map(drop)).expect("it is set");
    let few = Main { expires: None, value: Value::Hash(Collection { id: 0, len: 1 }) };
    stage.put_raw(format::main_key(b"k"), few.encode());
    stage.write(&["k"], |on| assert_eq!(on.delete(b"k"), Ok(true)));
    stage.audit();
}

#[test]
fn a_string_on_a_stripe_without_collections_is_put_blindly() {
    let stage = Stage::new();
    let put = || {
        stage.touch(Touch::Replace, &["k"], |on| {
            on.put_string(b"k", bytes("v"), Expiry::At(2000)).expect("it is put");
        });
    };
    assert_eq!(stage.reads(put), 0);
    assert_eq!(stage.reads(put), 0);
    // A neighbour on its stripe is read, too.
    let stripe = stage.space.stripes.of(b"k");
    let neighbour = neighbours(&stage.space, stripe).next().expect("there are many");
    stage.write(&[&neighbour], |on| on.hash_set(neighbour.as_bytes(), &hash(0..9)).map(drop)).ok();
    assert_eq!(stage.reads(put), 1, "one look, for all keys of the transaction");
    stage.touch(Touch::Replace, &[&neighbour], |on| {
        on.put_string(neighbour.as_bytes(), bytes("v"), Expiry::Never).expect("it is put");
    });
    stage.audit();
    // The mark outlives the collection; clearing everything removes it.
    assert_eq!(stage.reads(put), 1);
    let mut everything = Touches::default();
    everything.add_everything();
    let mut transaction = stage.space.begin(&everything).expect("it begins");
    transaction.clear();
    transaction.commit().expect("it is committed");
    assert_eq!(stage.reads(put), 0);
    stage.audit();
}

#[test]
fn marks_are_known_after_a_reopening_and_not_before_they_are_stored() {
    let mut stage = Stage::new();
    let begin = |stage: &Stage| {
        let mut transaction = stage.space.begin(&touches(Touch::Write, &["k"])).expect("it begins");
        transaction.hash_set(b"k", &hash(0..2)).expect("it is set");
        stage.fail_call(1);
        assert_eq!(transaction.commit(), Err(stage.failure()));
    };
    begin(&stage);
    stage.audit();
    stage.write(&["k"], |on| on.hash_set(b"k", &hash(0..2)).map(drop)).expect("it is set");
    stage.audit();
    stage.reopen();
    stage.audit();
    let put = || {
        stage.touch(Touch::Replace, &["k"], |on| {
            on.put_string(b"k", bytes("v"), Expiry::Never).expect("it is put");
        });
    };
    assert_eq!(stage.reads(put), 2, "its main record, and its fields");
    stage.audit();
}

/// No id is used twice, even if the store fails while ids are taken.
#[test]
fn ids_are_used_once() {
    let mut stage = Stage::new();
    let mut seen = BTreeSet::new();
    for round in 0..20_u64 {
        let key = format!("k{round}");
        let mut transaction =
            stage.space.begin(&touches(Touch::Write, &[&key])).expect("it begins");
        stage.fail_call(round % 3);
        let set = transaction.hash_set(key.as_bytes(), &hash(0..1));
        stage.fail_call(0);
        if set.is_ok() {
            transaction.commit().expect("it is committed");
            let main = &stage.store.everything()[&format::main_key(key.as_bytes())];
            let Some(Main { value: Value::Hash(hash), .. }) = Main::decode(main) else {
                panic!("{main:?}")
            };
            assert!(seen.insert(hash.id), "id {} again", hash.id);
        } else {
            drop(transaction);
        }
        if round % 4 == 3 {
            stage.reopen();
        }
    }
    assert!(seen.len() > 10);
    stage.audit();
}

/// The expiry has to stay as long as the key does.
#[test]
fn a_clock_set_back_while_expired_keys_are_removed_leaves_their_expiries() {
    let stage = Stage::new();
    let put = |on: &mut Transaction<'_>| on.put_string(b"k", bytes("v"), Expiry::At(1500));
    stage.write(&["k"], put).expect("it is put");
    // The first reading of the clock finds the key due, the next one does not, later ones do.
    let looks = AtomicU64::new(0);
    let wall = move || if looks.fetch_add(1, Ordering::Relaxed) == 1 { 1400 } else { 1600 };
    let store: Arc<dyn KeyValue> = Arc::<Probe>::clone(&stage.store);
    let space = Keyspace::open(store, Box::new(wall), SEED).expect("it opens");
    assert_eq!(space.remove_expired(), Ok(false));
    assert_eq!(space.expired(), 0);
    stage.audit();
    assert_eq!(space.remove_expired(), Ok(false));
    assert_eq!(space.expired(), 1);
    assert_eq!(stage.space.count(), Ok(Count { keys: 0, exact: true }));
    assert_eq!(stage.space.count_expiring(), Ok(Count { keys: 0, exact: true }));
}

#[test]
fn expiries_that_were_overwritten_blindly_remove_nothing() {
    let stage = Stage::new();
    let put = |expiry| {
        stage.touch(Touch::Replace, &["k"], |on| {
            on.put_string(b"k", bytes("v"), expiry).expect("it is put");
        });
    };
    let expiries = [Expiry::At(1001), Expiry::At(1003), Expiry::At(1002), Expiry::Never];
    expiries.into_iter().for_each(put);
    stage.at(1010);
    assert_eq!(stage.space.count_expiring().map(|count| count.keys), Ok(3));
    assert_eq!(stage.space.remove_expired(), Ok(false));
    assert_eq!(stage.space.count_expiring().map(|count| count.keys), Ok(0));
    assert_eq!(stage.space.expired(), 0);
    assert_eq!(stage.touch(Touch::Peek, &["k"], |on| on.string(b"k")), Ok(Some(bytes("v"))));
}

#[test]
fn expired_keys_are_removed_some_at_a_time_until_none_is_left() {
    let stage = Stage::new();
    for n in 0..12 {
        let key = format!("k{n}");
        stage.write(&[&key], |on| {
            on.hash_set(key.as_bytes(), &hash(0..6)).expect("it is set");
            on.set_expires(key.as_bytes(), Some(1100 + n)).expect("it expires");
        });
    }
    stage.at(1110);
    let rounds = std::iter::repeat_with(|| stage.space.remove_expired()).take(3);
    assert_eq!(rounds.collect::<Vec<_>>(), [Ok(true), Ok(true), Ok(false)]);
    assert_eq!(stage.space.expired(), 11);
    assert_eq!(stage.space.count(), Ok(Count { keys: 1, exact: true }));
    stage.audit();
}

#[test]
fn a_failed_commit_counts_no_expired_key() {
    let stage = Stage::new();
    stage.write(&["k"], |on| on.put_string(b"k", bytes("v"), Expiry::At(1001))).expect("it is put");
    stage.at(1001);
    // The calls are the scan, the keys, then the changes.
    stage.fail_call(3);
    assert_eq!(stage.space.remove_expired(), Err(stage.failure()));
    assert_eq!(stage.space.expired(), 0);
    assert_eq!(stage.space.remove_expired(), Ok(false));
    assert_eq!(stage.space.expired(), 1);
}

/// A transaction that reads far into a large set, or all keys of large values, holds one page at a time: as much as a
/// scan asks for.
#[test]
fn large_ranges_are_read_by_the_page() {
    let stage = Stage::new();
    let scored: Vec<_> = (0..50).map(|n| (Bytes::from(format!("m{n:02}")), f64::from(n))).collect();
    stage.write(&["z"], |on| on.sorted_put(b"z", &scored).map(drop)).expect("it is put");
    let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    stage.touch(Touch::Read, &["z"], |on| {
        assert_eq!(on.sorted_range(b"z", all, false, 45, 2).as_deref(), Ok(&scored[45..47]));
        let backwards = on.sorted_range(b"z", all, true, 48, 9).expect("a set");
        assert_eq!(backwards, [scored[1].clone(), scored[0].clone()]);
        assert_eq!(on.sorted_range(b"z", all, false, 50, 9), Ok(Vec::new()));
        assert_eq!(on.sorted_range(b"z", all, false, usize::MAX, usize::MAX), Ok(Vec::new()));
    });
    let asked = stage.store.scanned_max.load(Ordering::Relaxed);
    assert!(asked <= 3, "{asked} entries asked for at once");
}

#[test]
#[should_panic(expected = "others may be at a key that is changed")]
fn who_reads_does_not_write() {
    Stage::new()
        .touch(Touch::Read, &["k"], |on| on.put_string(b"k", bytes("v"), Expiry::Never))
        .ok();
}

#[test]
#[should_panic(expected = "others may change a key that is read")]
fn who_peeks_reads_no_elements() {
    Stage::new().touch(Touch::Peek, &["k"], |on| on.hash_entries(b"k", None, 1).map(drop)).ok();
}

#[test]
#[should_panic(expected = "others may be at the keys that are removed")]
fn who_removes_everything_holds_everything() {
    Stage::new().touch(Touch::Write, &["k"], |on| on.clear());
}

#[test]
fn another_programs_data_is_left_alone() {
    let stage = Stage::new();
    let refused = |records: &[(&'static [u8], &'static [u8])]| {
        let store = Arc::new(Probe::default());
        let put = |(key, value): &(&'static [u8], &'static [u8])| {
            Change::Put(Bytes::from_static(key), Bytes::from_static(value))
        };
        store.memory.apply(&records.iter().map(put).collect::<Vec<_>>()).expect("memory");
        let before = store.everything();
        let opened = Stage::open(&store, &stage.wall).err();
        assert_eq!(store.everything(), before);
        opened.expect("the keyspace refuses it")
    };
    assert_eq!(refused(&[(b"ship", b"plimsoll")]), Error::NotAKeyspace);
    assert_eq!(refused(&[(b"v", b"")]), Error::NotAKeyspace);
    assert_eq!(refused(&[(b"v", b"plimsoll\x02\0\0\0\0\0\0\0\0\0\0\0")]), Error::NotAKeyspace);
    assert_eq!(refused(&[(b"v", b"plimsoll\x01\0\0\0\0\0\0\0\0\0\0\0more")]), Error::NotAKeyspace);
    let one = (&b"v"[..], &b"plimsoll\x01\0\0\0\0\0\0\0\0\0\0\0"[..]);
    let corrupt = |error| matches!(error, Error::Store(kv::Error::Corrupt(_)));
    assert!(corrupt(refused(&[one, (b"i", b"short")])));
    assert!(corrupt(refused(&[one, (b"c\x01", b"")])));
}

/// All ways to change a key, and calls that leave it unchanged.
#[test]
fn a_watched_key_is_changed_by_whatever_changes_it() {
    type Change = fn(&Stage);
    let changes: &[(&str, Change)] = &[
        ("a string", |stage| {
            stage.touch(Touch::Replace, &["k"], |on| {
                on.put_string(b"k", bytes("v"), Expiry::Never).expect("it is put");
            });
        }),
        ("a field", |stage| {
            stage.write(&["k"], |on| on.hash_set(b"k", &hash(0..1)).map(drop)).expect("it is set");
        }),
        ("a field less", |stage| {
            let field = [bytes("f001")];
            stage.write(&["k"], |on| assert_eq!(on.hash_delete(b"k", &field), Ok(1)));
        }),
        ("an expiry", |stage| {
            stage.write(&["k"], |on| assert_eq!(on.set_expires(b"k", Some(5000)), Ok(true)));
        }),
        ("an end", |stage| {
            stage.write(&["k"], |on| assert_eq!(on.delete(b"k"), Ok(true)));
        }),
        ("an end and a beginning", |stage| {
            stage.write(&["k"], |on| {
                assert_eq!(on.delete(b"k"), Ok(true));
                assert_eq!(on.hash_set(b"k", &hash(0..9)), Ok(9));
            });
        }),
        ("a set in its place", |stage| {
            stage.write(&["k"], |on| {
                assert_eq!(on.delete(b"k"), Ok(true));
                assert_eq!(on.sorted_put(b"k", &[(bytes("m"), 1.0)]), Ok((1, 0)));
            });
        }),
        ("the end of everything", |stage| {
            let mut everything = Touches::default();
            everything.add_everything();
            let mut transaction = stage.space.begin(&everything).expect("it begins");
            transaction.clear();
            transaction.commit().expect("it is committed");
        }),
        ("its time", |stage| stage.at(4000)),
        ("its time, and its removal", |stage| {
            stage.at(4000);
            assert_eq!(stage.space.remove_expired(), Ok(false));
        }),
        ("an unknown outcome", |stage| {
            let mut transaction =
                stage.space.begin(&touches(Touch::Write, &["k"])).expect("it begins");
            transaction.delete(b"k").expect("it is deleted");
            stage.fail_call(1);
            assert_eq!(transaction.commit(), Err(stage.failure()));
        }),
    ];
    let unchanged = |stage: &Stage, watched: &Watched| {
        stage.touch(Touch::Peek, &["k"], |on| on.is_unchanged(watched).expect("memory"))
    };
    let made = || {
        let stage = Stage::new();
        stage.write(&["k"], |on| {
            on.hash_set(b"k", &hash(0..9)).expect("it is set");
            on.set_expires(b"k", Some(3000)).expect("it expires");
        });
        stage
    };
    for (what, change) in changes {
        let stage = made();
        let watched = stage.space.watch(&bytes("k")).expect("it is watched");
        assert!(unchanged(&stage, &watched));
        change(&stage);
        assert!(!unchanged(&stage, &watched), "{what}");
    }
    let stage = made();
    let watched = stage.space.watch(&bytes("k")).expect("it is watched");
    stage.write(&["k", "other"], |on| {
        on.hash_entries(b"k", None, 9).expect("a hash");
        on.set_expires(b"k", Some(3000)).expect("as before");
        on.put_string(b"other", bytes("v"), Expiry::Never).expect("it is put");
    });
    let transaction = stage.space.begin(&touches(Touch::Write, &["k"])).map(|mut dropped| {
        dropped.delete(b"k").expect("it is deleted");
    });
    transaction.expect("it begins");
    assert!(unchanged(&stage, &watched));
}

/// As in Redis: removing everything changes only keys that exist. Once it changed all keys, and a client that watched
/// for a key to appear tried again in vain.
#[test]
fn a_watched_key_that_is_not_there_is_not_changed_by_the_end_of_everything() {
    let stage = Stage::new();
    let clear = |stage: &Stage| {
        let mut everything = Touches::default();
        everything.add_everything();
        let mut transaction = stage.space.begin(&everything).expect("it begins");
        transaction.clear();
        transaction.commit().expect("it is committed");
    };
    let unchanged = |watched: &Watched| {
        stage.touch(Touch::Peek, &["k"], |on| on.is_unchanged(watched).expect("memory"))
    };
    stage.write(&["other"], |on| on.put_string(b"other", bytes("v"), Expiry::Never)).expect("put");
    let watched = stage.space.watch(&bytes("k")).expect("it is watched");
    clear(&stage);
    assert!(unchanged(&watched));
    // The key existed in between.
    stage.write(&["k"], |on| on.put_string(b"k", bytes("v"), Expiry::Never)).expect("put");
    clear(&stage);
    assert!(!unchanged(&watched));
}

/// A look at a key leaves no expiry of it behind.
#[test]
fn a_key_that_was_looked_at_has_one_expiry() {
    let stage = Stage::new();
    let expiring = |left| {
        assert_eq!(stage.space.count_expiring(), Ok(Count { keys: left, exact: true }));
    };
    for expires in [2000, 3000, 2500] {
        stage
            .write(&["k"], |on| on.put_string(b"k", bytes("v"), Expiry::At(expires)))
            .expect("put");
        expiring(1);
    }
    stage.write(&["k"], |on| assert_eq!(on.set_expires(b"k", Some(4000)), Ok(true)));
    expiring(1);
    stage.write(&["k"], |on| assert_eq!(on.set_expires(b"k", None), Ok(true)));
    expiring(0);
}

//! A store without room, in which deletes still work.

use super::*;
use crate::keyspace::Expiry;

fn scored(members: std::ops::Range<u32>) -> Vec<(Bytes, f64)> {
    members.map(|member| (bytes(&format!("m{member}")), f64::from(member))).collect()
}

fn fields(numbers: std::ops::Range<u32>) -> Vec<(Bytes, Bytes)> {
    numbers.map(|n| (bytes(&format!("f{n}")), bytes("v"))).collect()
}

fn full() -> Stage {
    let stage = Stage::new();
    stage.write(&["s", "h", "z", "late"], |on| {
        on.put_string(b"s", bytes("v"), Expiry::Never).expect("memory");
        on.put_string(b"late", bytes("v"), Expiry::At(2000)).expect("memory");
        on.hash_set(b"h", &fields(0..20)).expect("memory");
        on.set_expires(b"h", Some(9000)).expect("memory");
        on.sorted_put(b"z", &scored(0..20)).expect("memory");
    });
    stage.store.full.store(true, Ordering::Relaxed);
    stage
}

/// Removing a field rewrites the record with the count: a full store once refused that like a put.
#[test]
fn what_leaves_less_than_there_was_is_done_in_a_full_store() {
    type Remove = fn(&mut Transaction<'_>);
    let removals: [(&str, Remove); 6] = [
        ("a string", |on| assert_eq!(on.delete(b"s"), Ok(true))),
        ("a hash", |on| assert_eq!(on.delete(b"h"), Ok(true))),
        ("a field", |on| assert_eq!(on.hash_delete(b"h", &[bytes("f1")]), Ok(1))),
        ("all fields", |on| {
            let all: Vec<_> = fields(0..20).into_iter().map(|(field, _)| field).collect();
            assert_eq!(on.hash_delete(b"h", &all), Ok(20));
        }),
        ("a member", |on| assert_eq!(on.sorted_delete(b"z", &[bytes("m1")]), Ok(1))),
        ("by a time that is over", |on| assert_eq!(on.set_expires(b"z", Some(1)), Ok(true))),
    ];
    for (what, remove) in removals {
        let stage = full();
        let keys = touches(Touch::Write, &["s", "h", "z", "late"]);
        let mut transaction = stage.space.begin(&keys).expect("it begins");
        remove(&mut transaction);
        assert_eq!(transaction.commit(), Ok(()), "{what}");
        stage.audit();
    }
}

#[test]
fn a_full_store_is_cleared_and_its_keys_expire() {
    let stage = full();
    stage.at(2000);
    assert_eq!(stage.space.remove_expired(), Ok(false));
    assert_eq!(stage.space.expired(), 1);
    let mut everything = Touches::default();
    everything.add_everything();
    let mut transaction = stage.space.begin(&everything).expect("it begins");
    transaction.put_string(b"s", bytes("w"), Expiry::Never).expect("it is put");
    transaction.clear();
    assert_eq!(transaction.commit(), Ok(()), "earlier puts of the transaction are dropped, too");
    assert_eq!(stage.space.count(), Ok(Count { keys: 0, exact: true }));
    stage.audit();
}

#[test]
fn what_may_grow_is_refused_by_a_full_store_with_all_that_goes_along() {
    type Grow = fn(&mut Transaction<'_>);
    let writes: [(&str, Grow); 4] = [
        ("a string", |on| on.put_string(b"s", bytes("w"), Expiry::Never).expect("memory")),
        ("a field", |on| assert_eq!(on.hash_set(b"h", &fields(0..1)), Ok(0))),
        // It writes the whole value again, of any length.
        ("an expiry", |on| assert_eq!(on.set_expires(b"s", Some(9000)), Ok(true))),
        ("a member for another", |on| {
            assert_eq!(on.sorted_delete(b"z", &[bytes("m1")]), Ok(1));
            assert_eq!(on.sorted_put(b"z", &scored(30..31)), Ok((1, 0)));
        }),
    ];
    for (what, write) in writes {
        let stage = full();
        let before = stage.store.everything();
        let keys = touches(Touch::Write, &["s", "h", "z", "late"]);
        let mut transaction = stage.space.begin(&keys).expect("it begins");
        assert_eq!(transaction.delete(b"late"), Ok(true));
        write(&mut transaction);
        assert_eq!(transaction.commit(), Err(Error::Store(stage.store.no_room())), "{what}");
        assert_eq!(stage.store.everything(), before, "{what}");
    }
}

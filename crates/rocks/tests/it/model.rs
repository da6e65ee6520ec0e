//! The same random operations on a database and on a map; the first difference is a bug.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rust_rocksdb::{IteratorMode, WriteBatch};

use crate::support::{compact, key, open, pool, value, volumes};

#[derive(Clone, Debug)]
enum Op {
    Put(Vec<(u32, u32)>),
    Delete(u32),
    DeleteRange(u32, u32),
    Flush,
    Compact,
    Reopen,
    Scan(u32),
}

const KEYS: u32 = 400;

fn any_op() -> impl Strategy<Value = Op> {
    let pairs = prop::collection::vec((0..KEYS, any::<u32>()), 1..300);
    prop_oneof![
        8 => pairs.prop_map(Op::Put),
        3 => (0..KEYS).prop_map(Op::Delete),
        1 => (0..KEYS, 0..KEYS / 10).prop_map(|(from, count)| Op::DeleteRange(from, from + count)),
        3 => Just(Op::Flush),
        1 => Just(Op::Compact),
        1 => Just(Op::Reopen),
        3 => (0..KEYS).prop_map(Op::Scan),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_database_does_what_a_map_does(
        count in 1usize..7,
        ops in prop::collection::vec(any_op(), 1..60),
    ) {
        let volumes = volumes(count);
        let mut db = Some(open(&pool(&volumes)));
        let mut map = BTreeMap::new();
        for op in ops {
            let here = db.as_ref().expect("it is opened again at once");
            match op {
                Op::Put(pairs) => {
                    let mut batch = WriteBatch::default();
                    for (i, version) in pairs {
                        batch.put(key(i), value(i, version));
                        map.insert(i, version);
                    }
                    here.write(&batch).unwrap();
                }
                Op::Delete(i) => {
                    here.delete(key(i)).unwrap();
                    map.remove(&i);
                }
                Op::DeleteRange(from, upto) => {
                    let mut batch = WriteBatch::default();
                    batch.delete_range(key(from), key(upto));
                    here.write(&batch).unwrap();
                    map.retain(|i, _| !(from..upto).contains(i));
                }
                Op::Flush => here.flush().unwrap(),
                Op::Compact => compact(here),
                Op::Reopen => {
                    drop(db.take());
                    db = Some(open(&pool(&volumes)));
                }
                Op::Scan(from) => {
                    let start = key(from);
                    let start = IteratorMode::From(&start, rust_rocksdb::Direction::Forward);
                    for (found, (&i, &version)) in here.iterator(start).zip(map.range(from..)) {
                        let (k, v) = found.unwrap();
                        prop_assert_eq!((&*k, &*v), (&key(i)[..], &value(i, version)[..]));
                    }
                }
            }
        }
        let db = db.expect("it is opened again at once");
        for i in 0..KEYS {
            let expected = map.get(&i).map(|&version| value(i, version));
            prop_assert_eq!(db.get(key(i)).unwrap(), expected);
        }
        let all: Vec<_> = db.iterator(IteratorMode::Start).map(|found| found.unwrap().0).collect();
        let expected: Vec<Box<[u8]>> = map.keys().map(|&i| key(i).into()).collect();
        prop_assert_eq!(all, expected);
    }
}

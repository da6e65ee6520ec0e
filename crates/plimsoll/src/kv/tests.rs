use std::sync::Arc;

use bytes::Bytes;
use engine::kv::{Change, Count, KeyRange, KeyValue, Memory, Scan};
use policy::placement::RoundRobin;
use policy::units::{KIB, MIB};
use pool::spread::{Opening, Spread};
use pool::{Member, PoolId};
use proptest::collection::vec;
use proptest::prelude::*;
use volume::Clock;
use volume::mem::Mem;
use volume::task::block_on;

use super::*;

mod cache;
mod conformance;
mod crash;
mod embedding;
mod errors;
mod hangs;
mod moving;
mod power_cuts;
mod room;
mod writes;

/// Three volumes in memory, which survive the store on them.
struct Volumes(Vec<Arc<Mem>>);

impl Volumes {
    fn new() -> Self {
        Self(["a", "b", "c"].map(|label| Arc::new(Mem::new(label))).into())
    }

    fn open(&self, options: &Options) -> Db {
        let members = self.0.iter().zip(["a", "b", "c"]);
        let members = members.map(|(volume, label)| Member::new(label, Arc::clone(volume)));
        let opening = Opening::new(RoundRobin::default()).create_if_missing(PoolId(1));
        let pool = block_on(Spread::open(members.collect(), opening)).expect("the pool opens");
        open(pool, Clock::real(), options).expect("the store opens")
    }
}

fn small() -> Options {
    Options { memory: 32 * MIB, ..Options::default() }
}

#[derive(Clone, Debug)]
enum Step {
    Apply(Vec<Change>),
    Get(Vec<Bytes>),
    Scan(Scan),
    Flush,
    Reopen,
}

/// Ranges with an end, without one, and with an end before the start.
fn range() -> impl Strategy<Value = KeyRange> {
    let key = || (0..20_u8).prop_map(|n| Bytes::from(format!("key {n}")));
    (key(), proptest::option::of(key())).prop_map(|(from, to)| KeyRange { from, to })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || (0..20_u8).prop_map(|n| Bytes::from(format!("key {n}")));
    let keys = || vec(key(), 1..6);
    let change = prop_oneof![
        3 => (key(), vec(any::<u8>(), 0..100)).prop_map(|(k, v)| Change::Put(k, v.into())),
        1 => key().prop_map(Change::Delete),
        1 => range().prop_map(Change::DeleteRange),
    ];
    let scan = (range(), any::<bool>(), 0..8_usize, 0..300_usize);
    let scan = scan.prop_map(|(range, reverse, entries_max, bytes_max)| {
        Step::Scan(Scan { range, reverse, entries_max, bytes_max })
    });
    let step = prop_oneof![
        6 => vec(change, 1..8).prop_map(Step::Apply),
        3 => keys().prop_map(Step::Get),
        3 => scan,
        1 => Just(Step::Flush),
        1 => Just(Step::Reopen),
    ];
    vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_store_is_a_map_across_flushes_and_reopenings(steps in steps()) {
        let volumes = Volumes::new();
        let (model, mut store) = (Memory::default(), volumes.open(&small()));
        for step in steps {
            match &step {
                Step::Apply(changes) => {
                    prop_assert_eq!(store.apply(changes), model.apply(changes));
                }
                Step::Get(keys) => {
                    prop_assert_eq!(store.get_many(keys), model.get_many(keys));
                }
                Step::Scan(scan) => prop_assert_eq!(store.scan(scan), model.scan(scan)),
                Step::Flush => store.flush().expect("memory takes a table"),
                Step::Reopen => {
                    store.close();
                    store = volumes.open(&small());
                }
            }
            prop_assert_eq!(store.count(&KeyRange::ALL), model.count(&KeyRange::ALL));
        }
    }
}

#[test]
fn a_range_without_end_takes_what_the_batch_put_before() {
    let store = Volumes::new().open(&small());
    let put = |key| Change::Put(Bytes::from_static(key), Bytes::new());
    let batch = [put(b"a"), put(b"z"), Change::DeleteRange(KeyRange::ALL), put(b"b")];
    store.apply(&batch).expect("memory takes it");
    assert_eq!(store.count(&KeyRange::ALL), Ok(Count { keys: 1, exact: true }));
    assert_eq!(store.get(b"b").expect("a get").as_deref(), Some(&b""[..]));
}

fn put(n: u64) -> Change {
    Change::Put(format!("{n:08}").into(), Bytes::from_static(b"v"))
}

#[test]
fn few_keys_are_counted_and_many_estimated() {
    let store = Volumes::new().open(&small());
    let few: Vec<_> = (0..COUNT_EXACT_MAX).map(put).collect();
    store.apply(&few).expect("memory takes them");
    assert_eq!(store.count(&KeyRange::ALL), Ok(Count { keys: COUNT_EXACT_MAX, exact: true }));
    store.apply(&[put(COUNT_EXACT_MAX)]).expect("memory takes it");
    let estimate = store.count(&KeyRange::ALL).expect("an estimate");
    assert!(!estimate.exact);
    assert!(estimate.keys.abs_diff(COUNT_EXACT_MAX + 1) <= 1, "{estimate:?}");
}

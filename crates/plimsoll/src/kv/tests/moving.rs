//! Copies of hot tables, below RocksDB on volumes that are throttled as by their provider.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use policy::contract::{Contract, Counted, Limit};
use policy::migrate::{Policy, Terms, Why};
use policy::placement::Single;
use policy::purpose::Class;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::kv::{CachePolicy, Store};
use crate::volumes::Volume;

const RECORDS: u32 = 2000;
/// After this many reads without effect, some minutes, a test that waits for it fails.
const GETS_MAX: u64 = 60_000;

fn open_store() -> Store {
    let limit = Limit { counts: Counted::Ops, rate_per_sec: 400, depth: 400 };
    let contract = Contract { limits: vec![limit], ..Contract::unlimited() };
    let volumes = ["a", "b", "c"];
    let volumes = volumes.map(|name| Volume::memory(name, contract.clone()).simulated());
    let options = Options {
        cache_policy: CachePolicy::None,
        compression: Compression::None,
        compression_last: Compression::None,
        ..small()
    };
    let terms = Terms { every: Duration::from_secs(1), ..Terms::default() };
    let store = Store::builder().volumes(volumes).opening(Opening::new(Single)).options(options);
    store.migrate(Policy::Level, terms).open().expect("memory opens")
}

/// Users' reads at each volume.
fn reads(store: &Store) -> BTreeMap<String, u64> {
    let of = |device: &Arc<crate::volumes::Device>| {
        let meter = device.gate().meter();
        (device.name().to_owned(), meter.classes[Class::Foreground.index()].spent.ops)
    };
    store.devices().here().iter().map(of).collect()
}

/// Reads with many threads at once until `enough` is true.
fn read_until(store: &Store, enough: impl Fn() -> bool + Sync) {
    let (done, gets) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for seed in 0..12 {
            let (done, gets, enough) = (&done, &gets, &enough);
            scope.spawn(move || {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
                while !done.load(Ordering::Relaxed) {
                    let n = random.random_range(0..RECORDS);
                    let got = store.get(n.to_be_bytes()).expect("a get").expect("it was put");
                    assert_eq!(got, vec![n as u8; 1000]);
                    let all = gets.fetch_add(1, Ordering::Relaxed);
                    if enough() || all > GETS_MAX {
                        done.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert!(enough(), "not in {GETS_MAX} gets: {:?}, {:?}", reads(store), store.pool().copies());
}

#[test]
fn a_hot_table_gets_a_copy_and_reads_go_to_both() {
    let store = open_store();
    for n in 0..RECORDS {
        store.put(n.to_be_bytes(), [n as u8; 1000]).expect("memory takes it");
    }
    store.flush().expect("memory takes a table");
    let tables = || {
        let objects = store.pool().objects().into_iter();
        objects.filter(|object| object.kind == pool::Kind::Table).collect::<Vec<_>>()
    };
    assert!(tables().iter().all(|table| table.copies.len() == 1));
    let before = reads(&store);
    read_until(&store, || store.pool().copies().made[Why::Heat as usize] > 0);
    assert!(tables().iter().any(|table| table.copies.len() > 1), "{:?}", store.pool().copies());
    let others = |reads: &BTreeMap<String, u64>| reads["b"] + reads["c"];
    assert_eq!(others(&before), 0, "all is on the first volume");
    // Reads are split: with this many, every volume has some.
    read_until(&store, || others(&reads(&store)) >= 2000);
    let (after, first) = (reads(&store), before["a"]);
    assert!(after["a"] - first >= 2000, "{after:?}");
    store.close().expect("no other handle exists");
}

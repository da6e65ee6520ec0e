//! The cache of blocks, under a RocksDB that flushes and compacts.

use std::collections::BTreeMap;

use policy::contract::Contract;
use policy::purpose::Class;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::Name;

use super::*;
use crate::kv::{CachePolicy, Compression, Store};
use crate::volumes::Volume;

const POLICIES: [CachePolicy; 5] = [
    CachePolicy::S3Fifo,
    CachePolicy::Sieve,
    CachePolicy::Lru,
    CachePolicy::None,
    CachePolicy::RocksDb,
];

/// Small tables and a small cache, so that much is compacted and little stays.
fn busy(cache_policy: CachePolicy) -> Options {
    Options {
        cache_policy,
        cache: Some(256 * KIB),
        memtable: Some(256 * KIB),
        table_size: Some(128 * KIB),
        level_base: Some(512 * KIB),
        compression: Compression::None,
        compression_last: Compression::None,
        ..small()
    }
}

fn open_store(options: Options) -> Store {
    let volumes = ["a", "b", "c"].map(|name| Volume::memory(name, Contract::unlimited()));
    Store::builder().volumes(volumes).options(options).open().expect("memory opens")
}

/// I/Os of the volumes that a user waited for.
fn foreground(store: &Store) -> u64 {
    let of = |device: &crate::volumes::Device| {
        device.gate().meter().classes[Class::Foreground.index()].spent.ops
    };
    store.devices().here().iter().map(of).sum()
}

#[test]
fn whatever_is_cached_a_get_gives_what_was_put_last() {
    for policy in POLICIES {
        let store = open_store(busy(policy));
        let mut model = BTreeMap::new();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        for round in 0..12_000_u32 {
            let key = random.random_range(0..3000_u32).to_be_bytes();
            let value = vec![round as u8; random.random_range(0..600)];
            store.put(key, &value).expect("memory takes it");
            model.insert(key, value);
            let asked = random.random_range(0..3000_u32).to_be_bytes();
            assert_eq!(store.get(asked).expect("a get").as_ref(), model.get(&asked), "{policy:?}");
            if let Some(cache) = store.cache() {
                assert!(
                    cache.bytes <= cache.bytes_max && cache.bytes_max <= 256 * KIB,
                    "{cache:?}"
                );
            }
        }
        store.compact_range(None::<&[u8]>, None::<&[u8]>);
        for chunk in (0..3000_u32).collect::<Vec<_>>().chunks(16) {
            let keys: Vec<_> = chunk.iter().map(|n| n.to_be_bytes()).collect();
            for (key, got) in keys.iter().zip(store.multi_get(&keys)) {
                assert_eq!(got.expect("a get").as_ref(), model.get(key), "{policy:?}");
            }
        }
        let all = store.iterator(rust_rocksdb::IteratorMode::Start);
        let all = all.map(|entry| entry.expect("an entry"));
        assert!(all.eq(model.into_iter().map(|(k, v)| (k.into(), v.into()))), "{policy:?}");
    }
}

#[test]
fn what_is_asked_for_often_costs_fewer_ios() {
    let ios_per_get = |policy| {
        let store = open_store(busy(policy));
        for n in 0..4000_u32 {
            store.put(n.to_be_bytes(), [n as u8; 1000]).expect("memory takes it");
        }
        store.compact_range(None::<&[u8]>, None::<&[u8]>);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(9);
        let before = foreground(&store);
        for _ in 0..4000 {
            // Most reads are of a fiftieth of the keys.
            let hot = random.random_bool(0.9);
            let n = if hot { random.random_range(0..80) } else { random.random_range(0..4000_u32) };
            assert!(store.get(n.to_be_bytes()).expect("a get").is_some());
        }
        (foreground(&store) - before) as f64 / 4000.0
    };
    let plain = ios_per_get(CachePolicy::None);
    assert!((0.95..1.05).contains(&plain), "{plain}: one each, if none is kept");
    for policy in [CachePolicy::S3Fifo, CachePolicy::Sieve, CachePolicy::Lru] {
        let cached = ios_per_get(policy);
        assert!(cached < 0.25, "{policy:?}: {cached} I/Os a get");
    }
}

#[test]
fn tables_that_are_gone_leave_nothing_in_the_cache() {
    let store = open_store(busy(CachePolicy::S3Fifo));
    for n in 0..500_u32 {
        store.put(n.to_be_bytes(), [1; 500]).expect("memory takes it");
    }
    store.flush().expect("memory takes a table");
    for n in 0..500_u32 {
        store.get(n.to_be_bytes()).expect("a get");
    }
    assert!(store.cache().is_some_and(|cache| cache.entries > 50));
    store
        .delete_range_cf(&store.cf_handle("default").expect("one"), 0_u32.to_be_bytes(), [255; 4])
        .expect("memory takes it");
    store.compact_range(None::<&[u8]>, None::<&[u8]>);
    // Whoever looks at the tables last removes them: RocksDB does it in the background.
    store.disable_file_deletions().expect("it may");
    store.enable_file_deletions().expect("it may again");
    assert_eq!(store.cache().map(|cache| cache.entries), Some(0));
}

#[test]
fn damage_that_was_mended_is_not_in_the_cache() {
    let device = Arc::new(Mem::new("a"));
    let volume = Volume::other("a", Arc::clone(&device), Contract::unlimited());
    let store =
        Store::builder().volume(volume).options(busy(CachePolicy::S3Fifo)).open().expect("opens");
    for n in 0..100_u32 {
        store.put(n.to_be_bytes(), [n as u8; 100]).expect("memory takes it");
    }
    store.flush().expect("memory takes a table");
    let table = device.image().into_keys().find(|name: &Name| name.as_str().ends_with(".tab"));
    let table = table.expect("a table");
    device.damage(&table, 500, |byte| *byte ^= 1);
    for _ in 0..3 {
        let error = store.get(0_u32.to_be_bytes()).expect_err("the block is damaged");
        assert_eq!(error.kind(), rust_rocksdb::ErrorKind::Corruption, "{error}");
    }
    device.damage(&table, 500, |byte| *byte ^= 1);
    assert_eq!(store.get(0_u32.to_be_bytes()), Ok(Some(vec![0; 100])));
}

//! The cache of blocks, below a RocksDB that flushes and compacts.

use std::collections::BTreeMap;

use policy::contract::Contract;
use policy::purpose::Class;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::Name;

use super::*;
use crate::kv::{CachePolicy, Store};
use crate::volumes::Volume;

const POLICIES: [CachePolicy; 6] = [
    CachePolicy::Lrfu,
    CachePolicy::S3Fifo,
    CachePolicy::Sieve,
    CachePolicy::Lru,
    CachePolicy::None,
    CachePolicy::RocksDb,
];

/// Small tables and a small cache, so that compactions are frequent and few blocks stay.
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
    open_at(options, Clock::real())
}

fn open_at(options: Options, clock: Clock) -> Store {
    let volumes = ["a", "b", "c"].map(|name| Volume::memory(name, Contract::unlimited()));
    Store::builder().volumes(volumes).options(options).clock(clock).open().expect("memory opens")
}

/// I/Os of the volumes that users waited for.
fn foreground(store: &Store) -> u64 {
    let of = |device: &Arc<crate::volumes::Device>| {
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
                assert!(cache.bytes.max(cache.bytes_max) <= 256 * KIB, "{policy:?}: {cache:?}");
                // While indexes grow the limit falls: single reads leave at once, blocks within a second.
                assert!(
                    cache.bytes <= cache.bytes_max || cache.entries == 0,
                    "{policy:?}: {cache:?}"
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
    assert!((0.95..1.05).contains(&plain), "{plain}: one I/O for each get, without a cache");
    for policy in [CachePolicy::Lrfu, CachePolicy::S3Fifo, CachePolicy::Sieve, CachePolicy::Lru] {
        let cached = ios_per_get(policy);
        assert!(cached < 0.25, "{policy:?}: {cached} I/Os a get");
    }
}

#[test]
fn tables_that_are_gone_leave_nothing_in_the_cache() {
    let store = open_store(busy(CachePolicy::Lrfu));
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
    // The last user of the tables removes them: RocksDB does it in the background.
    store.disable_file_deletions().expect("it may");
    store.enable_file_deletions().expect("it may again");
    assert_eq!(store.cache().map(|cache| cache.entries), Some(0));
}

#[test]
fn damage_that_was_mended_is_not_in_the_cache() {
    let device = Arc::new(Mem::new("a"));
    let volume = Volume::other("a", Arc::clone(&device), Contract::unlimited());
    let store =
        Store::builder().volume(volume).options(busy(CachePolicy::Lrfu)).open().expect("opens");
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

/// Advances the clock by a second, once the one thread that waits for it does.
fn pass_a_second(clock: &Clock) {
    while clock.advance().is_none() {
        std::thread::yield_now();
    }
}

#[test]
fn a_neighbourhood_that_is_read_a_lot_is_read_ahead() {
    // Simulated time: only the store's cache sizer waits for it.
    let clock = Clock::simulated();
    let options = Options {
        cache: Some(8 * MIB),
        memtable: Some(8 * MIB),
        table_size: Some(8 * MIB),
        ..busy(CachePolicy::Lrfu)
    };
    let store = open_at(options, clock.clone());
    for n in 0..4000_u32 {
        store.put(n.to_be_bytes(), [n as u8; 1000]).expect("memory takes it");
    }
    store.flush().expect("memory takes a table");
    let get = |n: u32| {
        assert_eq!(store.get(n.to_be_bytes()).expect("a get"), Some(vec![n as u8; 1000]));
    };
    // Some of the keys from 1.12 to 1.23 MB: all in the fifth 256 KiB.
    (1100..1200).step_by(20).for_each(get);
    pass_a_second(&clock);
    while store.cache().is_none_or(|cache| cache.prefetches == 0) {
        std::thread::yield_now();
    }
    let before = foreground(&store);
    (1100..1200).for_each(get);
    assert_eq!(foreground(&store), before, "also for keys that were not read before");
    let cache = store.cache().expect("there is one");
    assert!(cache.useful == 1 && cache.prefetched_hits > 50, "{cache:?}");
    store.close().expect("it closes, whatever the time");
}

/// I/Os of a hundred gets of hot keys, before and after a compaction rewrites their tables.
fn ios_around_a_compaction(rewarm: bool) -> (u64, u64, pool::cache::Figures) {
    let clock = Clock::simulated();
    let options = Options {
        cache: Some(16 * MIB),
        memtable: Some(8 * MIB),
        table_size: Some(8 * MIB),
        // One level under the newest tables, so that the one compaction is from those.
        level_base: Some(64 * MIB),
        rewarm,
        ..busy(CachePolicy::Lrfu)
    };
    let store = open_at(options, clock.clone());
    let put = |keys: std::ops::Range<u32>, value: u8| {
        for n in keys {
            store.put(n.to_be_bytes(), [value; 1000]).expect("memory takes it");
        }
        store.flush().expect("memory takes a table");
        store.compact_range(None::<&[u8]>, None::<&[u8]>);
    };
    let ios = |value: u8| {
        let before = foreground(&store);
        for n in 1100..1200_u32 {
            assert_eq!(store.get(n.to_be_bytes()).expect("a get"), Some(vec![value; 1000]));
        }
        foreground(&store) - before
    };
    put(0..4000, 1);
    ios(1);
    pass_a_second(&clock);
    while store.cache().is_none_or(|cache| cache.prefetches == 0) {
        std::thread::yield_now();
    }
    let hot = ios(1);
    // A flush, and a compaction with the older tables.
    put(900..1400, 2);
    let anew = ios(2);
    let figures = store.cache().expect("there is one");
    store.close().expect("it closes, whatever the time");
    (hot, anew, figures)
}

#[test]
fn what_is_hot_stays_so_when_its_tables_are_written_anew() {
    let (hot, anew, figures) = ios_around_a_compaction(true);
    assert_eq!((hot, anew), (0, 0), "{figures:?}");
    assert!(figures.rewarmed_useful > 0, "{figures:?}");
    let (hot, anew, figures) = ios_around_a_compaction(false);
    assert_eq!((hot, figures.rewarmed), (0, 0));
    assert!(anew >= 20, "{anew} I/Os: a block of 4 KiB has four of the keys");
}

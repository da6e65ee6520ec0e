//! Uses of an embedded store beyond putting and getting keys.

use engine::kv::Durability;
use policy::contract::Contract;
use policy::purpose::Class;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rust_rocksdb::{IngestExternalFileOptions, MergeOperands, SstFileWriter, WriteBatch};
use volume::layer::call::Op;
use volume::layer::crash::{Crash, Power};
use volume::layer::trace::{Trace, TraceLog};

use super::*;
use crate::Error;
use crate::kv::{Compression, Family, Store, destroy, restore};
use crate::volumes::{Pool, Tiering, Volume};

fn sum(_: &[u8], old: Option<&[u8]>, added: &MergeOperands) -> Option<Vec<u8>> {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    let sum = old.map_or(0, number) + added.iter().map(number).sum::<u64>();
    Some(sum.to_le_bytes().to_vec())
}

fn tally() -> Family {
    Family::new("tally").rocks(|options| options.set_merge_operator_associative("sum", sum))
}

fn three() -> Vec<Volume> {
    ["a", "b", "c"].map(|name| Volume::memory(name, Contract::unlimited())).into()
}

fn reopen(volumes: &[Volume]) -> Store {
    let store = Store::builder().volumes(volumes.to_vec()).options(small()).family(tally());
    store.open().expect("memory opens")
}

#[test]
fn families_come_back_whether_they_are_named_or_not() {
    let volumes = three();
    let store = reopen(&volumes);
    store.create_family(Family::new("log").tables(|tables| tables.set_block_size(1024))).unwrap();
    store.create_family(Family::new("gone")).unwrap();
    assert!(store.create_family(Family::new("log")).is_err(), "there is one already");
    {
        let [log, tally] = ["log", "tally"].map(|name| store.cf_handle(name).unwrap());
        let mut batch = WriteBatch::default();
        batch.put_cf(&log, b"1", b"sailed");
        batch.merge_cf(&tally, b"miles", 40_u64.to_le_bytes());
        store.write(&batch).unwrap();
        store.merge_cf(&tally, b"miles", 2_u64.to_le_bytes()).unwrap();
        store.flush_cf(&log).unwrap();
    }
    store.drop_cf("gone").unwrap();
    assert!(store.family_options("gone").is_none());
    store.close().unwrap();

    let store = reopen(&volumes);
    let mut names = store.cf_names();
    names.sort();
    assert_eq!(names, ["default", "log", "tally"]);
    let [log, tally] = ["log", "tally"].map(|name| store.cf_handle(name).unwrap());
    assert_eq!(store.get_cf(&log, b"1").unwrap().as_deref(), Some(&b"sailed"[..]));
    assert_eq!(store.get_cf(&tally, b"miles").unwrap(), Some(42_u64.to_le_bytes().to_vec()));
    assert_eq!(store.get(b"1").unwrap(), None);
}

#[test]
fn a_store_that_is_shared_cannot_be_closed() {
    let store = reopen(&three());
    let shared = Arc::clone(store.db());
    assert!(matches!(store.close(), Err(Error::InUse)));
    assert_eq!(shared.get(b"k").unwrap(), None);
}

#[test]
fn snapshots_and_iterators_see_one_moment() {
    let store = reopen(&three());
    store.put("a", "1").unwrap();
    let snapshot = store.snapshot();
    store.put("b", "2").unwrap();
    store.delete("a").unwrap();
    assert_eq!(snapshot.iterator(rust_rocksdb::IteratorMode::Start).count(), 1);
    assert_eq!(snapshot.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(store.get(b"a").unwrap(), None);
}

#[test]
fn tables_made_elsewhere_are_taken_in() {
    let store = reopen(&three());
    let options = store.family_options("default").unwrap();
    let mut writer = SstFileWriter::create(&options);
    writer.open("/import.sst").unwrap();
    for n in 0..100_u8 {
        writer.put([n], b"imported").unwrap();
    }
    writer.finish().unwrap();
    drop(writer);
    let mut how = IngestExternalFileOptions::default();
    how.set_move_files(true);
    store.ingest_external_file_opts(&how, vec!["/import.sst"]).unwrap();
    assert_eq!(store.count(&KeyRange::ALL), Ok(Count { keys: 100, exact: true }));
}

#[test]
fn a_checkpoint_is_a_store_of_its_own_until_it_is_destroyed() {
    let volumes = three();
    let store = reopen(&volumes);
    store.put("k", "then").unwrap();
    store.checkpoint("monday").unwrap();
    assert!(store.checkpoint("monday").is_err(), "there is one already");
    store.put("k", "now").unwrap();

    let (pool, clock) = (store.pool().spread().clone(), store.clock().clone());
    let options = Options { name: "kv/monday".into(), ..small() };
    let monday = open_with(pool.clone(), clock.clone(), &options, [tally()]).unwrap();
    assert_eq!(monday.get(b"k").unwrap().as_deref(), Some(&b"then"[..]));
    assert!(destroy(pool.clone(), clock.clone(), "kv/monday").is_err(), "it is open");
    monday.close();
    destroy(pool.clone(), clock, "kv/monday").unwrap();
    assert_eq!(block_on(pool.list_prefix("kv/monday/")).unwrap(), []);
    assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"now"[..]));
}

#[test]
fn a_backup_is_put_on_other_volumes() {
    let dir = tempfile::tempdir().unwrap();
    let store = reopen(&three());
    for version in ["1", "2"] {
        store.put("k", version).unwrap();
        store.put_cf(&store.cf_handle("tally").unwrap(), "n", 7_u64.to_le_bytes()).unwrap();
        store.back_up(dir.path()).unwrap();
    }
    store.put("k", "3").unwrap();
    assert_eq!(store.backups(dir.path()).unwrap().get_backup_info().len(), 2);
    let (pool, clock) = (store.pool().spread().clone(), store.clock().clone());
    let refused = restore(pool, clock, &small(), dir.path());
    assert!(refused.unwrap_err().to_string().contains("open already"));
    store.close().unwrap();

    let elsewhere = three();
    let store = reopen(&elsewhere);
    store.put("other", "gone after").unwrap();
    let (pool, clock) = (store.pool().spread().clone(), store.clock().clone());
    drop(store);
    restore(pool.clone(), clock.clone(), &small(), dir.path()).unwrap();
    let store = open_with(pool, clock, &small(), [tally()]).unwrap();
    assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(store.get(b"other").unwrap(), None);
    let n = store.get_cf(&store.cf_handle("tally").unwrap(), "n").unwrap();
    assert_eq!(n, Some(7_u64.to_le_bytes().to_vec()));
}

#[test]
fn no_backup_in_a_directory_that_is_not_there() {
    let store = reopen(&three());
    let (pool, clock) = (store.pool().spread().clone(), store.clock().clone());
    drop(store);
    let error = restore(pool, clock, &small(), "/nonexistent/backups").unwrap_err();
    assert!(error.to_string().starts_with("/nonexistent/backups: no such directory"), "{error}");
    assert!(!std::path::Path::new("/nonexistent").exists());
}

/// Reads the same values twice; gives the I/Os of the volumes for the second time.
fn reads_again(options: Options) -> u64 {
    let volumes = three();
    let store = Store::builder().volumes(volumes).options(options).open().unwrap();
    for n in 0..200_u32 {
        store.put(n.to_be_bytes(), [n as u8; 4000]).unwrap();
    }
    store.flush().unwrap();
    let read_all = || {
        for n in 0..200_u32 {
            assert_eq!(store.get(n.to_be_bytes()).unwrap(), Some(vec![n as u8; 4000]));
        }
    };
    let foreground = Class::ALL.iter().position(|&class| class == Class::Foreground).unwrap();
    let issued = || {
        let devices = store.devices().here();
        devices
            .iter()
            .map(|device| device.gate().meter().classes[foreground].spent.ops)
            .sum::<u64>()
    };
    read_all();
    let before = issued();
    read_all();
    issued() - before
}

#[test]
fn data_that_are_not_cached_are_read_from_volumes_and_nothing_else_is() {
    let options = || Options { compression: Compression::None, ..small() };
    assert_eq!(reads_again(options()), 0, "everything is cached");
    // One operation each: indexes and filters are in memory, and so is the end of a fresh table.
    let reads = reads_again(Options { cache_data: false, ..options() });
    assert!((195..=200).contains(&reads), "{reads} operations for 200 reads");
}

/// Of a store with records of about 280 bytes: the reads of values that reach its volume, those of them that touch two pages, and
/// the bytes of its tables.
fn reads_of_values(blocks_in_pages: Option<bool>, has_tier: bool) -> (usize, usize, usize) {
    let (calls, clock) = (TraceLog::new(100_000), Clock::simulated());
    let slow = Trace::new(Mem::new("slow"), "slow", &calls, &clock);
    let slow = Volume::other("slow", slow, Contract::unlimited());
    let pool = match has_tier {
        true => {
            let fast = Volume::memory("fast", Contract::unlimited());
            Pool::builder().tier("cached", fast, slow, Tiering::default().size(16 * MIB))
        }
        false => Pool::builder().volume(slow),
    };
    let options = Options { cache_data: false, blocks_in_pages, ..small() };
    let pool = Arc::new(pool.open().unwrap());
    let store = Store::builder().pool(pool).options(options).open().unwrap();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let value = || (0..32).flat_map(|_| random.next_u64().to_le_bytes()).collect::<Vec<_>>();
    let values: Vec<_> = std::iter::repeat_with(value).take(3000).collect();
    for (n, value) in values.iter().enumerate() {
        store.put(format!("{n:024}"), value).unwrap();
    }
    store.flush().unwrap();
    let before = calls.records().len();
    for (n, value) in values.iter().enumerate().step_by(7) {
        assert_eq!(store.get(format!("{n:024}")).unwrap().as_ref(), Some(value));
    }
    let calls = calls.records();
    let reads = calls[before..].iter().map(|one| &one.call).filter(|call| call.op == Op::Read);
    let reads: Vec<_> = reads.filter(|call| call.len > 3000).collect();
    let two = reads.iter().filter(|call| call.offset / 4096 < (call.offset + call.len - 1) / 4096);
    let bytes = store.live_files().unwrap().iter().map(|file| file.size).sum();
    (reads.len(), two.count(), bytes)
}

/// A cache tier keeps whole pages: blocks that began anywhere took the room of two, and its hits were few.
#[test]
fn blocks_lie_in_pages_where_the_pool_has_a_cache_tier() {
    let (reads, two, packed) = reads_of_values(None, false);
    assert!(reads > 100 && two > reads / 2, "{two} of {reads}");
    let (reads, two, padded) = reads_of_values(Some(true), false);
    assert!(reads > 100 && two == 0, "{two} of {reads}");
    assert!((packed + packed / 50..packed + packed / 8).contains(&padded), "{padded} of {packed}");
    let (_, _, tiered) = reads_of_values(None, true);
    assert!(tiered.abs_diff(padded) < padded / 100, "{tiered}, {padded}");
}

/// Of a store before a cache tier that holds half of it: the bytes that reads of some keys miss, once they were read often and a
/// compaction has written all tables anew.
fn missed_after_compaction(counts_reads: bool) -> u64 {
    let fast = Volume::memory("fast", Contract::unlimited());
    let slow = Volume::memory("slow", Contract::unlimited());
    let tiering = Tiering::default().size(16 * MIB);
    let pool = Arc::new(Pool::builder().tier("cached", fast, slow, tiering).open().unwrap());
    let counts_reads = Some(counts_reads);
    let options = Options {
        cache_data: false,
        counts_reads,
        compression: Compression::None,
        compression_last: Compression::None,
        ..small()
    };
    let store = Store::builder().pool(Arc::clone(&pool)).options(options).open().unwrap();
    let key = |n: u32| Bytes::from(format!("{n:024}"));
    let fill = || {
        for n in 0..30_000 {
            store.put(key(n), [n as u8; 1000]).unwrap();
        }
        store.compact_range(None::<&[u8]>, None::<&[u8]>);
    };
    fill();
    let read = |keys: &mut dyn Iterator<Item = u32>| {
        for n in keys {
            let found = store.get_many(&[key(n)]).unwrap();
            assert_eq!(found, [Some(vec![n as u8; 1000].into())]);
        }
    };
    // As many pages as are kept free at any time: none has to wait for room.
    let hot = || (0..30_000).step_by(601);
    (0..5).for_each(|_| read(&mut hot()));
    // All other room of the fast volume is taken, too.
    read(&mut (0..30_000).step_by(3));
    (0..5).for_each(|_| read(&mut hot()));
    fill();
    let missed = || pool.tiers()[0].figures().missed_bytes;
    let before = missed();
    read(&mut hot());
    missed() - before
}

/// A compaction gives all records a new place. The tier took the tables for new ones, of which nothing had been read.
#[test]
fn what_is_read_often_stays_cached_across_compactions() {
    let (counted, not) = (missed_after_compaction(true), missed_after_compaction(false));
    let all = 50 * 4096;
    assert!(not > all * 9 / 10, "{not} bytes missed of {all}");
    assert!(counted < all / 2, "{counted} bytes missed of {all}, {not} without counts");
}

#[test]
fn writes_that_say_nothing_wait_for_what_the_store_says() {
    for (durability, survives) in [(Durability::Always, true), (Durability::EverySec, false)] {
        let power = Power::new();
        let crash = Crash::new(Mem::new("a"), &power);
        let options = Options { durability, wal_sync_interval: HOUR, ..small() };
        let volume = Volume::other("a", crash.clone(), Contract::unlimited());
        let store =
            Store::builder().volume(volume).options(options).family(tally()).open().unwrap();
        let family = store.cf_handle("tally").unwrap();
        store.put("put", "").unwrap();
        store.put_cf(&family, "put", "").unwrap();
        store.put_cf(&family, "deleted", "").unwrap();
        store.merge_cf(&family, "merged", 1_u64.to_le_bytes()).unwrap();
        store.delete_cf(&family, "deleted").unwrap();
        let mut batch = WriteBatch::default();
        batch.put("batch", "");
        store.write(&batch).unwrap();
        power.cut();
        drop(family);
        drop(store);

        let volume = Volume::other("a", crash.survivor(1), Contract::unlimited());
        let store =
            Store::builder().volume(volume).options(small()).family(tally()).open().unwrap();
        let family = store.cf_handle("tally").unwrap();
        let found = [store.get("put"), store.get("batch"), store.get_cf(&family, "merged")];
        if survives {
            assert!(found.iter().all(|found| matches!(found, Ok(Some(_)))), "{found:?}");
            assert_eq!(store.get_cf(&family, "deleted"), Ok(None));
        } else {
            // No caller waited for the last write, so a crash may lose it, with some seed.
            let lost = (0..20).any(|seed| {
                let volume = Volume::other("a", crash.survivor(seed), Contract::unlimited());
                let store = Store::builder().volume(volume).options(small()).family(tally()).open();
                store.unwrap().get("batch").unwrap().is_none()
            });
            assert!(lost, "no crash lost an unsynced write");
        }
    }
}

const HOUR: std::time::Duration = std::time::Duration::from_secs(3600);

#[test]
fn tables_that_pile_up_raise_the_pressure_until_they_are_merged() {
    let family = Family::new("piled").rocks(|options| {
        options.set_disable_auto_compactions(true);
        options.set_level_zero_slowdown_writes_trigger(4);
        options.set_level_zero_stop_writes_trigger(100);
    });
    let store = Store::builder().volumes(three()).options(small()).family(family);
    let store = store.open().expect("memory opens");
    let mut seen = Vec::new();
    for n in 0..4_u8 {
        let piled = store.cf_handle("piled").unwrap();
        store.put_cf(&piled, [n], b"x").unwrap();
        store.flush_cf(&piled).unwrap();
        seen.push(store.pressure().flush);
    }
    assert_eq!(seen, [0.25, 0.5, 0.75, 1.0]);
    // The pressure monitor has told the gates, or is about to: flushes count in the class of that moment.
    let urgent = || {
        let devices = store.devices().here();
        let gates = devices.iter().map(|device| device.gate().meter());
        gates.map(|meter| meter.classes[Class::Urgent.index()].granted).sum::<u64>()
    };
    let raised = (0..1000).any(|_| {
        let before = urgent();
        store.put("k", "v").unwrap();
        store.flush().unwrap();
        urgent() == before
    });
    assert!(raised, "a flush went among users' reads");
    let piled = store.cf_handle("piled").unwrap();
    store.compact_range_cf(&piled, None::<&[u8]>, None::<&[u8]>);
    assert!(store.pressure().flush < 0.75, "what is left is in the other family");
    drop(piled);
    store.close().unwrap();
}

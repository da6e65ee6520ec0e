//! Least overlap under RocksDB: placement always knows the same tables as RocksDB, and tables that are read
//! together lie apart.

use std::collections::BTreeMap;

use policy::placement::{LeastOverlap, Placement, RoundRobin};
use pool::PoolId;
use pool::spread::{Opening, Spread};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rocks::Db;
use rust_rocksdb::{CompactOptions, IngestExternalFileOptions, LiveFile, SstFileWriter};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Name, Volume};

use crate::support::{
    NAME, compact, fill, key, options, plain, pool_of, settle, try_open_families, value, volumes,
};

const FAMILIES: [&str; 2] = ["default", "other"];

fn pool(volumes: &[Mem], placement: impl Placement + 'static) -> Spread {
    let opening = Opening::new(placement).create_if_missing(PoolId(7));
    pool_of(plain(volumes), opening).unwrap()
}

fn open(pool: &Spread) -> Db {
    try_open_families(pool, &FAMILIES, options()).unwrap()
}

/// A table by the name it has in the pool: its family, level and keys.
type Tables = BTreeMap<Name, (String, Option<u8>, Option<(Vec<u8>, Vec<u8>)>)>;

fn name_of(file: &LiveFile) -> Name {
    Name::new(&format!("{NAME}{}", file.name)).unwrap()
}

/// RocksDB's tables.
fn live(db: &Db) -> Tables {
    let files = db.live_files().unwrap();
    let table = |file: LiveFile| {
        let number = FAMILIES.iter().position(|name| *name == file.column_family_name).unwrap();
        let keys = file.start_key.clone().zip(file.end_key.clone());
        let level = u8::try_from(file.level).ok();
        (name_of(&file), (format!("{NAME}#{number}"), level, keys))
    };
    files.into_iter().map(table).collect()
}

/// The tables that placement considers: those with a family that are not leaving.
fn known(pool: &Spread) -> Tables {
    let listed = block_on(pool.list()).unwrap();
    let names: BTreeMap<u64, Name> = listed
        .into_iter()
        .filter(|listed| listed.name.as_str().rsplit_once('/').is_some_and(|(dir, _)| dir == NAME))
        .map(|listed| (block_on(pool.stat(&listed.name)).unwrap().id.0, listed.name))
        .collect();
    pool.with_tables(|tables| {
        let known = tables.iter().filter(|t| !t.family.0.is_empty() && !t.leaving);
        known
            .map(|table| {
                let keys = table.keys.map(|keys| (keys.first.to_vec(), keys.last.to_vec()));
                let name = names[&table.object].clone();
                (name, (table.family.0.to_string(), table.level, keys))
            })
            .collect()
    })
}

#[track_caller]
fn compare(db: &Db, pool: &Spread) -> Tables {
    settle(db);
    let live = live(db);
    assert_eq!(known(pool), live);
    live
}

fn deepest(tables: &Tables) -> u8 {
    tables.values().filter_map(|(_, level, _)| *level).max().unwrap_or(0)
}

#[test]
fn placement_knows_the_tables_that_rocksdb_knows() {
    let volumes = volumes(4);
    let first = pool(&volumes, LeastOverlap::new(7));
    let db = open(&first);
    let other = || db.cf_handle("other").unwrap();
    compare(&db, &first);
    // Trivial moves take ascending keys down; the next ones are merged.
    for round in 0..6 {
        fill(&db, round * 2000..(round + 1) * 2000, round);
        db.flush().unwrap();
        compare(&db, &first);
    }
    let ascending = compare(&db, &first);
    assert!(deepest(&ascending) > 0, "nothing was moved");
    for version in 0..4 {
        for i in (version..12_000).step_by(3) {
            db.put(key(i), value(i, version)).unwrap();
            db.put_cf(other(), key(i), value(i, version)).unwrap();
        }
        compare(&db, &first);
    }
    let merged = compare(&db, &first);
    assert!(deepest(&merged) > 1 && merged.len() > 20, "{}", merged.len());
    // Deleted keys, and removed tables.
    for i in 3000..9000 {
        db.delete(key(i)).unwrap();
    }
    db.flush().unwrap();
    compact(&db);
    compare(&db, &first);
    db.delete_file_in_range(key(9000), key(12_000)).unwrap();
    compare(&db, &first);
    // A change of level by hand, which RocksDB reports to no listener.
    let mut by_hand = CompactOptions::default();
    by_hand.set_change_level(true);
    by_hand.set_target_level(4);
    db.compact_range_cf_opt::<&[u8], &[u8]>(other(), None, None, &by_hand);
    settle(&db);
    db.describe_tables();
    assert!(deepest(&compare(&db, &first)) >= 4);
    // An ingested table.
    let mut installed = options();
    db.shim().install(&mut installed);
    let mut writer = SstFileWriter::create(&installed);
    writer.open("/import.sst").unwrap();
    writer.put(key(20_000), b"").unwrap();
    writer.finish().unwrap();
    let mut moved = IngestExternalFileOptions::default();
    moved.set_move_files(true);
    db.ingest_external_file_opts(&moved, vec!["/import.sst"]).unwrap();
    db.describe_tables();
    let before = compare(&db, &first);
    drop(db);
    block_on(first.close()).unwrap();
    drop(first);

    let second = pool(&volumes, LeastOverlap::new(7));
    let db = open(&second);
    assert_eq!(compare(&db, &second), before);
}

/// The number of overlapping pairs of tables of neighbouring levels, and how many lie on one volume.
fn together(db: &Db, pool: &Spread) -> (u32, u32) {
    let tables: Vec<_> = live(db)
        .into_iter()
        .map(|(name, (family, level, keys))| {
            let on = block_on(pool.stat(&name)).unwrap().layout.volumes()[0];
            (family, level.unwrap(), keys.unwrap(), on)
        })
        .collect();
    let (mut pairs, mut together) = (0, 0);
    for (family, level, (first, last), on) in &tables {
        for (other_family, below, (from, to), other_on) in &tables {
            if family == other_family && *below == level + 1 && first <= to && from <= last {
                pairs += 1;
                together += u32::from(on == other_on);
            }
        }
    }
    (pairs, together)
}

/// Loads random keys; returns the share of overlapping pairs that lie on one volume.
fn part_together(placement: impl Placement + 'static) -> f64 {
    let pool = pool(&volumes(4), placement);
    let mut small = options();
    small.set_max_background_jobs(1);
    small.set_max_bytes_for_level_base(128 << 10);
    small.set_max_bytes_for_level_multiplier(4.0);
    small.set_target_file_size_base(16 << 10);
    let db = try_open_families(&pool, &FAMILIES, small).unwrap();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let (mut pairs, mut on_one) = (0, 0);
    for _ in 0..8 {
        for _ in 0..4000 {
            let i = random.next_u32() % 30_000;
            db.put(key(i), value(i, 1)).unwrap();
        }
        db.flush().unwrap();
        settle(&db);
        let (more, together) = together(&db, &pool);
        (pairs, on_one) = (pairs + more, on_one + together);
    }
    println!("{on_one} of {pairs} pairs lie on one volume");
    assert!(pairs > 200, "{pairs} pairs are too few");
    f64::from(on_one) / f64::from(pairs)
}

#[test]
fn tables_that_are_read_together_lie_apart() {
    let by_turns = part_together(RoundRobin::default());
    let apart = part_together(LeastOverlap::new(7));
    // By chance, 25 %. A table overlaps some four of the next level, on four volumes: not every pair can
    // be apart.
    assert!((0.15..0.35).contains(&by_turns), "{by_turns}");
    assert!(apart < by_turns / 2.0, "{apart} of {by_turns}");
}

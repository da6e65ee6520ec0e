//! Features beside plain keys: column families, merges, snapshots, ingestion, archives.

use rocks::Settings;
use rust_rocksdb::{
    Direction, IngestExternalFileOptions, IteratorMode, MergeOperands, Options, ReadOptions,
    SstFileWriter, WriteBatch, WriteOptions,
};
use volume::Clock;
use volume::layer::crash::{Crash, Power};

use crate::support::{
    NAME, check, compact, fill, key, names, open, open_families, opening, options, plain, pool,
    pool_of, settle, try_open, value, volumes,
};

const VOLUMES: usize = 4;

#[test]
fn column_families_come_and_go_with_their_tables() {
    let volumes = volumes(VOLUMES);
    {
        let pool = pool(&volumes);
        let mut db = open(&pool);
        fill(&db, 0..500, 1);
        for name in ["sailors", "ships"] {
            let mut options = options();
            db.shim().install(&mut options);
            db.create_cf(name, &options).unwrap();
            let family = db.cf_handle(name).unwrap();
            for i in 0..2000 {
                db.put_cf(family, key(i), value(i, 2)).unwrap();
            }
            db.flush_cf(family).unwrap();
        }
        let tables = |pool| names(pool, "kv/").iter().filter(|n| is_table(n.as_str())).count();
        let before = tables(&pool);
        db.drop_cf("sailors").unwrap();
        fill(&db, 500..600, 1);
        db.flush().unwrap();
        settle(&db);
        assert!(tables(&pool) < before, "the tables of a family go with it");
    }
    let db = open_families(&pool(&volumes), &["default", "ships"]);
    check(&db, 0..600, 1);
    let ships = db.cf_handle("ships").unwrap();
    for i in 0..2000 {
        assert_eq!(db.get_cf(ships, key(i)).unwrap(), Some(value(i, 2)));
    }
}

fn is_table(name: &str) -> bool {
    name.ends_with(".sst")
}

#[test]
fn a_batch_over_families_is_whole_after_a_reopening_that_flushed_one_of_them() {
    let volumes = volumes(VOLUMES);
    let families = ["default", "ships"];
    {
        let db = open_families(&pool(&volumes), &families);
        let ships = db.cf_handle("ships").unwrap();
        for i in 0..3000 {
            let mut batch = WriteBatch::default();
            batch.put(key(i), value(i, 1));
            batch.put_cf(ships, key(i), value(i, 2));
            batch.delete_cf(ships, key(i / 2));
            db.write(&batch).unwrap();
        }
        db.flush_cf(ships).unwrap();
    }
    let db = open_families(&pool(&volumes), &families);
    let ships = db.cf_handle("ships").unwrap();
    check(&db, 0..3000, 1);
    for i in 0..3000 {
        let expected = (i > 1499).then(|| value(i, 2));
        assert_eq!(db.get_cf(ships, key(i)).unwrap(), expected, "key {i}");
    }
}

/// Adds numbers.
fn sum(_key: &[u8], existing: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or(0);
    let added: u64 = operands.iter().map(number).sum();
    Some((existing.map_or(0, number) + added).to_le_bytes().to_vec())
}

fn summing() -> Options {
    let mut options = options();
    options.set_merge_operator_associative("sum", sum);
    options
}

#[test]
fn merges_add_up_over_memtables_levels_and_reopenings() {
    let volumes = volumes(VOLUMES);
    for round in 1..=3u64 {
        let db = try_open(&pool(&volumes), summing()).unwrap();
        for add in 0..10u64 {
            for i in 0..300 {
                db.merge(key(i), (add + u64::from(i)).to_le_bytes()).unwrap();
            }
            if add % 3 == 0 {
                db.flush().unwrap();
            }
        }
        if round == 2 {
            compact(&db);
        }
        for i in 0..300 {
            let expected = round * (45 + 10 * u64::from(i));
            assert_eq!(db.get(key(i)).unwrap().as_deref(), Some(&expected.to_le_bytes()[..]));
        }
    }
}

#[test]
fn a_snapshot_outlives_the_tables_it_was_taken_over() {
    let volumes = volumes(VOLUMES);
    let pool = pool(&volumes);
    let db = open(&pool);
    fill(&db, 0..3000, 1);
    db.flush().unwrap();
    let snapshot = db.snapshot();
    let mut old = db.raw_iterator();
    old.seek_to_first();
    for version in 2..5 {
        fill(&db, 0..3000, version);
        db.flush().unwrap();
        compact(&db);
    }
    settle(&db);
    // The iterator holds tables that were removed since; the snapshot reads their keys from new ones.
    for i in 0..3000 {
        assert_eq!((old.key(), old.value()), (Some(&key(i)[..]), Some(&value(i, 1)[..])));
        old.next();
        assert_eq!(snapshot.get(key(i)).unwrap(), Some(value(i, 1)));
    }
    old.status().unwrap();
    check(&db, 0..3000, 4);
}

#[test]
fn iterators_go_both_ways_within_their_bounds() {
    let volumes = volumes(VOLUMES);
    fill(&open(&pool(&volumes)), 0..4000, 1);
    let db = open(&pool(&volumes));
    compact(&db);
    fill(&db, 2000..2010, 2);
    let mut bounded = ReadOptions::default();
    bounded.set_iterate_lower_bound(key(1995));
    bounded.set_iterate_upper_bound(key(2015));
    let found = db.iterator_opt(IteratorMode::Start, bounded).map(|found| found.unwrap().1);
    let expected: Vec<_> =
        (1995..2015).map(|i| value(i, 1 + u32::from((2000..2010).contains(&i)))).collect();
    assert!(found.map(Vec::from).eq(expected));
    let from = key(2004);
    let back = db.iterator(IteratorMode::From(&from, Direction::Reverse));
    let keys = back.map(|found| found.unwrap().0);
    assert!(keys.eq((0..=2004).rev().map(|i| Box::from(key(i)))));
}

#[test]
fn tables_are_ingested_over_and_under_what_is_there() {
    let volumes = volumes(VOLUMES);
    {
        let pool = pool(&volumes);
        let db = open(&pool);
        fill(&db, 0..1000, 1);
        db.flush().unwrap();
        let snapshot = db.snapshot();
        let mut options = options();
        db.shim().install(&mut options);
        for (step, moves) in [(0, false), (1, true)] {
            let path = format!("/import-{step}.sst");
            let mut writer = SstFileWriter::create(&options);
            writer.open(&path).unwrap();
            for i in 500 + 1000 * step..1500 + 1000 * step {
                writer.put(key(i), value(i, 2)).unwrap();
            }
            writer.finish().unwrap();
            let mut how = IngestExternalFileOptions::default();
            how.set_move_files(moves);
            db.ingest_external_file_opts(&how, vec![&path]).unwrap();
            let left = names(&pool, &format!("kv{path}")).len();
            assert_eq!(left, usize::from(!moves), "a file that is moved has one name");
        }
        // Because of the snapshot each gets its own sequence number, which is not written into the table.
        assert_eq!(snapshot.get(key(700)).unwrap(), Some(value(700, 1)));
        assert_eq!(snapshot.get(key(2000)).unwrap(), None);
    }
    let db = open(&pool(&volumes));
    compact(&db);
    check(&db, 0..500, 1);
    check(&db, 500..2500, 2);
}

#[test]
fn archived_logs_are_kept_up_to_their_size() {
    let volumes = volumes(VOLUMES);
    let archived = |pool: &pool::spread::Spread| names(pool, "kv/archive/").len();
    let mut options = options();
    options.set_wal_size_limit_mb(1);
    let pool = pool(&volumes);
    let db = try_open(&pool, options).unwrap();
    fill(&db, 0..3000, 1);
    db.flush().unwrap();
    settle(&db);
    assert!(archived(&pool) > 0);
    let updates = db.get_updates_since(1).unwrap();
    assert!(updates.map(Result::unwrap).take(1000).count() == 1000);
}

#[test]
fn writes_that_skip_the_log_are_for_databases_that_recycle_none() {
    let volumes = volumes(VOLUMES);
    let mut unlogged = WriteOptions::default();
    unlogged.disable_wal(true);
    {
        let db = open(&pool(&volumes));
        db.put_opt(key(0), value(0, 1), &unlogged).unwrap();
        db.flush().unwrap();
        db.put_opt(key(1), value(1, 1), &unlogged).unwrap();
    }
    let settings = Settings { wal_recycled: 4, ..Settings::default() };
    let db = rocks::open(pool(&volumes), Clock::real(), NAME, options(), settings).unwrap();
    check(&db, 0..1, 1);
    let error = db.put_opt(key(0), value(0, 1), &unlogged).unwrap_err();
    assert!(error.as_ref().contains("recycle_log_file_num"), "{error}");
}

/// With recycled logs, RocksDB 11.12 does not open this database, or opens it without key 5001: the
/// ingested table takes a sequence number that no log has, and the log after a recycled one must begin
/// with the next number (docs/adr/0008).
#[test]
fn logs_before_and_after_an_ingestion_are_both_replayed() {
    let power = Power::new();
    let crash: Vec<_> = volumes(VOLUMES).into_iter().map(|v| Crash::new(v, &power)).collect();
    let families = ["default", "ships"];
    let db = open_families(&pool_of(plain(&crash), opening()).unwrap(), &families);
    let ships = db.cf_handle("ships").unwrap();
    for version in 0..6 {
        fill(&db, 0..600, version);
        db.put_cf(ships, b"a", b"b").unwrap();
        db.flush_cf(ships).unwrap();
        db.flush().unwrap();
    }
    let mut sync = WriteOptions::default();
    sync.set_sync(true);
    db.put_opt(key(5000), value(5000, 1), &sync).unwrap();
    db.put_cf(ships, b"a", b"c").unwrap();
    let mut options = options();
    db.shim().install(&mut options);
    let mut writer = SstFileWriter::create(&options);
    writer.open("/import.sst").unwrap();
    writer.put(key(10), value(10, 9)).unwrap();
    writer.finish().unwrap();
    db.ingest_external_file(vec!["/import.sst"]).unwrap();
    // Begins a new log while the default family's keys of the last one are in memory only.
    db.flush_cf(ships).unwrap();
    db.put_opt(key(5001), value(5001, 1), &sync).unwrap();
    power.cut();
    let survivors: Vec<_> = crash.iter().map(|volume| volume.survivor(1)).collect();
    let db = open_families(&pool(&survivors), &families);
    check(&db, 5000..5002, 1);
    check(&db, 10..11, 9);
}

//! Every file of RocksDB, of any kind, is a name of the pool.

use std::collections::BTreeSet;
use std::path::Path;

use pool::Kind;
use pool::spread::Spread;
use rocks::{Db, Settings, Shim};
use rust_rocksdb::checkpoint::Checkpoint;
use rust_rocksdb::{DB, IngestExternalFileOptions, Options, SstFileWriter};
use volume::task::block_on;
use volume::{Clock, Name};

use crate::support::{
    check, compact, fill, key, names, open, options, pool, settle, try_open, value, volumes,
};

/// The kinds of the files: `000012.sst` is `.sst`, `MANIFEST-000005` is `MANIFEST-`.
fn kinds(pool: &Spread) -> BTreeSet<String> {
    let letters = |name: &Name| {
        let file = name.as_str().rsplit('/').next().unwrap_or_default();
        file.chars().filter(|c| !c.is_ascii_digit()).collect()
    };
    names(pool, "kv/").iter().map(letters).collect()
}

fn blob_options() -> Options {
    let mut options = options();
    options.set_enable_blob_files(true);
    options.set_min_blob_size(1000);
    options
}

#[test]
fn every_kind_of_file_is_in_the_pool_and_none_on_the_local_disk() {
    let volumes = volumes(3);
    let pool = pool(&volumes);
    let db = try_open(&pool, blob_options()).unwrap();
    fill(&db, 0..1000, 1);
    db.put(b"large", vec![7; 300_000]).unwrap();
    db.flush().unwrap();
    let found = kinds(&pool);
    for kind in [".sst", ".blob", ".log", "MANIFEST-", "CURRENT", "OPTIONS-", "IDENTITY"] {
        assert!(found.contains(kind), "{kind} is not among {found:?}");
    }
    for name in names(&pool, "") {
        let local = name.as_str().strip_prefix("kv").expect("all names are the database's");
        assert!(!Path::new(name.as_str()).exists() && !Path::new(local).exists(), "{name}");
    }
    assert!(!Path::new("kv").exists());
    for name in names(&pool, "kv/") {
        let is_table = name.as_str().ends_with(".sst") || name.as_str().ends_with(".blob");
        let kind = block_on(pool.stat(&name)).unwrap().kind;
        assert_eq!(kind == Kind::Table, is_table, "{name} is {kind:?}");
    }
}

#[test]
fn blob_files_of_many_windows_are_read_back() {
    let volumes = volumes(3);
    let large = |i: u8| vec![i; 100_000 + usize::from(i)];
    {
        let db = try_open(&pool(&volumes), blob_options()).unwrap();
        for i in 0..30 {
            db.put([i], large(i)).unwrap();
        }
        db.flush().unwrap();
        compact(&db);
    }
    let db = try_open(&pool(&volumes), blob_options()).unwrap();
    for i in 0..30 {
        assert_eq!(db.get([i]).unwrap(), Some(large(i)));
    }
}

#[test]
fn tables_that_find_no_memory_are_streamed() {
    let volumes = volumes(3);
    let settings = Settings { table_buffers: 0, ..Settings::default() };
    let few = Settings { table_buffer_max: 20_000, table_tails: 0, ..Settings::default() };
    for (version, settings) in [(1, settings), (2, few)] {
        let pool = pool(&volumes);
        let mut options = options();
        options.set_write_buffer_size(2 << 20);
        options.set_target_file_size_base(2 << 20);
        let db = rocks::open(pool, Clock::real(), "kv", options, settings).unwrap();
        fill(&db, 0..10_000, version);
        db.flush().unwrap();
        compact(&db);
        check(&db, 0..10_000, version);
    }
    check(&open(&pool(&volumes)), 0..10_000, 2);
}

#[test]
fn column_families_are_kept_apart() {
    let volumes = volumes(3);
    for reopened in [false, true] {
        let shim = Shim::new(pool(&volumes), Clock::real(), "kv", Settings::default()).unwrap();
        let mut options = options();
        options.create_missing_column_families(true);
        shim.install(&mut options);
        let families = ["default", "sailors", "ships"].map(|name| (name, options.clone()));
        let db = DB::open_cf_with_opts(&options, Shim::PATH, families).unwrap();
        let db = Db::new(db, shim);
        let [sailors, ships] = ["sailors", "ships"].map(|name| db.cf_handle(name).unwrap());
        if !reopened {
            db.put_cf(sailors, b"1", b"Samuel").unwrap();
            db.put_cf(ships, b"1", b"Samaritan").unwrap();
            db.flush_cf(ships).unwrap();
        }
        assert_eq!(db.get_cf(sailors, b"1").unwrap().as_deref(), Some(&b"Samuel"[..]));
        assert_eq!(db.get_cf(ships, b"1").unwrap().as_deref(), Some(&b"Samaritan"[..]));
        assert_eq!(db.get(b"1").unwrap(), None);
    }
}

#[test]
fn a_checkpoint_is_a_database_of_its_own() {
    let volumes = volumes(3);
    let pool = pool(&volumes);
    {
        let db = open(&pool);
        fill(&db, 0..2000, 1);
        db.flush().unwrap();
        fill(&db, 2000..2100, 1);
        Checkpoint::new(&db).unwrap().create_checkpoint("/yesterday").unwrap();
        fill(&db, 0..2100, 2);
        compact(&db);
        check(&db, 0..2100, 2);
    }
    let settings = Settings::default();
    let yesterday =
        rocks::open(pool.clone(), Clock::real(), "kv/yesterday", options(), settings).unwrap();
    check(&yesterday, 0..2100, 1);
    check(&open(&pool), 0..2100, 2);
}

#[test]
fn tables_made_elsewhere_are_taken_in() {
    let volumes = volumes(3);
    let pool = pool(&volumes);
    let shim = Shim::new(pool.clone(), Clock::real(), "kv", Settings::default()).unwrap();
    let mut options = options();
    shim.install(&mut options);
    let db = Db::new(DB::open(&options, Shim::PATH).unwrap(), shim);
    fill(&db, 0..100, 1);
    let mut writer = SstFileWriter::create(&options);
    writer.open("/import.sst").unwrap();
    for i in 50..500 {
        writer.put(key(i), value(i, 2)).unwrap();
    }
    writer.finish().unwrap();
    for moves in [false, true] {
        let mut how = IngestExternalFileOptions::default();
        how.set_move_files(moves);
        db.ingest_external_file_opts(&how, vec!["/import.sst"]).unwrap();
    }
    check(&db, 0..50, 1);
    check(&db, 50..500, 2);
    assert!(!pool.contains(&Name::new("kv/import.sst").unwrap()), "it was moved the second time");
}

#[test]
fn a_database_is_open_once() {
    let volumes = volumes(2);
    let pool = pool(&volumes);
    let first = open(&pool);
    let Err(second) = try_open(&pool, options()) else { panic!("two databases of one name") };
    assert!(second.to_string().contains("open already"), "{second}");
    drop(first);
    open(&pool);
}

#[test]
fn names_of_files_rocksdb_removed_are_free() {
    let volumes = volumes(3);
    let pool = pool(&volumes);
    let db = open(&pool);
    for version in 0..5 {
        fill(&db, 0..3000, version);
        db.flush().unwrap();
        compact(&db);
    }
    settle(&db);
    let live: BTreeSet<_> =
        db.live_files().unwrap().iter().map(|file| format!("kv{}", file.name)).collect();
    let tables = names(&pool, "kv/").into_iter().map(|name| name.to_string());
    let tables: BTreeSet<_> = tables.filter(|name| name.ends_with(".sst")).collect();
    assert_eq!(tables, live);
}

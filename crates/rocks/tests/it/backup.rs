//! Copies of a database: backups, checkpoints, and exported column families.

use policy::placement::VolumeId;
use policy::purpose::{Io, Origin, Step};
use pool::Kind;
use pool::spread::Spread;
use rocks::{Db, Settings};
use rust_rocksdb::backup::{BackupEngine, BackupEngineOptions, RestoreOptions};
use rust_rocksdb::checkpoint::Checkpoint;
use rust_rocksdb::{Env, ImportColumnFamilyOptions, WaitForCompactOptions};
use volume::Clock;
use volume::mem::Mem;
use volume::task::block_on;

use crate::support::{
    check, compact, fill, key, label, names, open, open_families, opening, options, plain, pool,
    pool_of, try_open_at, value, volumes,
};

const VOLUMES: usize = 4;

/// Two levels of tables, and keys that are in the log only.
fn filled(pool: &Spread) -> Db {
    let db = open_families(pool, &["default"]);
    fill(&db, 0..3000, 1);
    db.flush().unwrap();
    compact(&db);
    fill(&db, 1000..2000, 2);
    db.flush().unwrap();
    fill(&db, 3000..3100, 2);
    db
}

fn check_filled(db: &Db) {
    check(db, 0..1000, 1);
    check(db, 1000..2000, 2);
    check(db, 2000..3000, 1);
    check(db, 3000..3100, 2);
    assert_eq!(db.get(key(3100)).unwrap(), None);
}

fn open_at(pool: &Spread, name: &str) -> Db {
    try_open_at(pool, name, options()).expect("the database opens")
}

/// Backups at `path` of the pool, or of the environment `elsewhere`.
fn backups(db: &Db, path: &str, elsewhere: Option<&Env>) -> BackupEngine {
    let mut options = BackupEngineOptions::new(path).unwrap();
    if let Some(env) = elsewhere {
        options.set_env(env);
    }
    BackupEngine::open(&options, db.shim().env()).expect("the backups open")
}

fn restore(engine: &mut BackupEngine, path: &str) {
    engine.restore_from_latest_backup(path, path, &RestoreOptions::default()).expect("it restores");
}

#[test]
fn backups_on_the_same_pool_are_made_verified_purged_and_restored() {
    let volumes = volumes(VOLUMES);
    {
        let pool = pool(&volumes);
        let db = filled(&pool);
        let mut engine = backups(&db, "/backups", None);
        engine.create_new_backup(&db).unwrap();
        fill(&db, 0..500, 3);
        engine.create_new_backup_flush(&db, true).unwrap();
        fill(&db, 0..3100, 4);
        compact(&db);
        let ids: Vec<_> = engine.get_backup_info().iter().map(|info| info.backup_id).collect();
        assert_eq!(ids, [1, 2]);
        ids.iter().for_each(|&id| engine.verify_backup(id).unwrap());
    }
    let pool = pool(&volumes);
    let db = open(&pool);
    // As in another process: the engine reads the list of backups from their files.
    let mut engine = backups(&db, "/backups", None);
    engine.restore_from_backup("/first", "/first", &RestoreOptions::default(), 1).unwrap();
    check_filled(&open_at(&pool, "kv/first"));
    engine.purge_old_backups(1).unwrap();
    engine.verify_backup(2).unwrap();
    restore(&mut engine, "/second");
    let second = open_at(&pool, "kv/second");
    check(&second, 0..500, 3);
    check(&second, 500..1000, 1);
    check(&db, 0..3100, 4);
}

#[test]
fn a_backup_takes_the_place_of_the_database_it_is_of() {
    let volumes = volumes(VOLUMES);
    let pool = pool(&volumes);
    let mut engine = {
        let db = filled(&pool);
        let mut engine = backups(&db, "/backups", None);
        engine.create_new_backup(&db).unwrap();
        fill(&db, 0..3100, 4);
        engine
    };
    restore(&mut engine, "/");
    drop(engine);
    check_filled(&open(&pool));
}

#[test]
fn backups_on_the_local_disk_outlive_the_pool() {
    let disk = tempfile::tempdir().unwrap();
    let path = disk.path().to_str().expect("a path that is text");
    let local = Env::new().unwrap();
    {
        let pool = pool(&volumes(VOLUMES));
        let db = filled(&pool);
        backups(&db, path, Some(&local)).create_new_backup(&db).unwrap();
    }
    let pool = pool(&volumes(2));
    let other = open_at(&pool, "other");
    restore(&mut backups(&other, path, Some(&local)), "/restored");
    check_filled(&open_at(&pool, "other/restored"));
}

/// Copies every table, so that one of its two volumes is the last.
fn copy_tables(pool: &Spread) {
    let last = VolumeId(VOLUMES as u16 - 1);
    for object in pool.objects().into_iter().filter(|object| object.kind == Kind::Table) {
        let is_on_last = object.copies[0].layout.volumes().contains(&last);
        let to = if is_on_last { VolumeId(1) } else { last };
        block_on(pool.copy(object.id, to, Io::new(Origin::Copy, Step::Data))).expect("a copy");
    }
}

/// The tables of the database itself, by name.
fn tables(pool: &Spread) -> usize {
    let names = names(pool, "kv/").into_iter();
    names
        .filter(|name| name.as_str().ends_with(".sst") && !name.as_str()[3..].contains('/'))
        .count()
}

#[test]
fn tables_with_copies_are_backed_up_once_and_any_copy_will_do() {
    let disk = tempfile::tempdir().unwrap();
    let path = disk.path().to_str().expect("a path that is text");
    let local = Env::new().unwrap();
    let volumes = volumes(VOLUMES);
    let opening = || opening().meta([label(0)]);
    let backed_up = || std::fs::read_dir(disk.path().join("shared_checksum")).unwrap().count();
    {
        let pool = pool_of(plain(&volumes), opening()).unwrap();
        let db = filled(&pool);
        // No compaction may replace a copied table or add one.
        db.flush().unwrap();
        db.set_options(&[("disable_auto_compactions", "true")]).unwrap();
        db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
        copy_tables(&pool);
        Checkpoint::new(&db).unwrap().create_checkpoint("/kept").unwrap();
        backups(&db, path, Some(&local)).create_new_backup(&db).unwrap();
        assert_eq!(backed_up(), tables(&pool));
        drop(db);
        block_on(pool.close()).unwrap();
    }
    // The last volume is lost, and with it a copy of each table.
    let pool = pool_of(plain(&volumes[..VOLUMES - 1]), opening().allow_away()).unwrap();
    let db = open(&pool);
    check_filled(&db);
    check_filled(&open_at(&pool, "kv/kept"));
    let mut engine = backups(&db, path, Some(&local));
    engine.create_new_backup_flush(&db, true).unwrap();
    assert!(backed_up() > 1 && engine.get_backup_info().len() == 2);
    engine.verify_backup(2).unwrap();
    drop((engine, db));

    let other = self::pool(&self::volumes(2));
    let beside = open_at(&other, "other");
    restore(&mut backups(&beside, path, Some(&local)), "/restored");
    check_filled(&open_at(&other, "other/restored"));
}

#[test]
fn checkpoints_hold_what_was_written_before_with_the_log_or_without() {
    let volumes = volumes(VOLUMES);
    {
        let db = filled(&pool(&volumes));
        let checkpoint = Checkpoint::new(&db).unwrap();
        checkpoint.create_checkpoint("/flushed").unwrap();
        // A log of less than 1 GiB is copied instead of flushed.
        checkpoint.create_checkpoint_with_log_size("/logged", 1 << 30).unwrap();
        fill(&db, 0..3100, 4);
        compact(&db);
        let Err(twice) = checkpoint.create_checkpoint("/flushed") else { panic!("it is there") };
        assert!(twice.as_ref().contains("exists"), "{twice}");
    }
    let pool = pool(&volumes);
    for name in ["kv/flushed", "kv/logged"] {
        check_filled(&open_at(&pool, name));
    }
    check(&open(&pool), 0..3100, 4);
}

#[test]
fn a_column_family_is_exported_and_imported_by_copy_and_by_move() {
    let volumes = volumes(VOLUMES);
    let (copied, moved) = (import(false), import(true));
    {
        let pool = pool(&volumes);
        let mut db = filled(&pool);
        let default = db.cf_handle("default").unwrap();
        let exported =
            Checkpoint::new(&db).unwrap().export_column_family(default, "/export").unwrap();
        fill(&db, 0..3100, 4);
        let mut options = options();
        db.shim().install(&mut options);
        db.create_column_family_with_import(&options, "copied", &copied, &exported).unwrap();
        db.create_column_family_with_import(&options, "moved", &moved, &exported).unwrap();
        check_family(&db, "copied");
        check_family(&db, "moved");
    }
    let db = open_families(&pool(&volumes), &["default", "copied", "moved"]);
    check_family(&db, "copied");
    check_family(&db, "moved");
    check(&db, 0..3100, 4);
}

fn import(moves: bool) -> ImportColumnFamilyOptions {
    let mut options = ImportColumnFamilyOptions::default();
    options.set_move_files(moves);
    options
}

fn check_family(db: &Db, name: &str) {
    let family = db.cf_handle(name).unwrap();
    for (i, version) in [(0, 1), (1500, 2), (2999, 1), (3099, 2)] {
        assert_eq!(db.get_cf(family, key(i)).unwrap(), Some(value(i, version)), "{name}: {i}");
    }
    assert_eq!(db.iterator_cf(family, rust_rocksdb::IteratorMode::Start).count(), 3100);
}

#[test]
fn a_backup_with_a_flipped_byte_is_found_and_not_restored() {
    let volumes: Vec<Mem> = volumes(1);
    let pool = pool(&volumes);
    let db = filled(&pool);
    let mut engine = backups(&db, "/backups", None);
    engine.create_new_backup(&db).unwrap();
    let name = names(&pool, "kv/backups/shared_checksum/");
    let stat = block_on(pool.stat(&name[0])).unwrap();
    let leaf = volume::Name::new(&format!("o{}.tab", stat.id)).unwrap();
    volumes[0].damage(&leaf, stat.len / 2, |byte| *byte ^= 4);
    let restored = engine.restore_from_latest_backup("/back", "/back", &RestoreOptions::default());
    let error = restored.expect_err("it is damaged");
    assert!(error.as_ref().contains("orruption"), "{error}");
    check_filled(&db);
    let settings = Settings::default();
    let Err(missing) = rocks::open(pool, Clock::real(), "kv/back", strict(), settings) else {
        panic!("a database was left half restored")
    };
    assert!(missing.to_string().contains("does not exist"), "{missing}");
}

fn strict() -> rust_rocksdb::Options {
    let mut options = options();
    options.create_if_missing(false);
    options
}

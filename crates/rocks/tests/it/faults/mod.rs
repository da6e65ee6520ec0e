//! Volumes that fail: errors are clear, other volumes are served, nothing is lost.

mod damage;
mod every;
mod kinds;
mod space;

use std::sync::Arc;

use pool::spread::Spread;
use rocks::Db;
use rust_rocksdb::ErrorKind as RocksKind;
use volume::layer::call::Op;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::mem::Mem;
use volume::{Clock, ErrorKind, Volume};

use crate::support::{
    check, compact, fill, key, label, layered, open, opening, options, pool, pool_of, settle,
    try_open, value, volumes,
};

/// A pool whose volumes fail as `plan` says; logs and the manifest are on the first one.
fn faulty(volumes: &[Mem], plan: &FaultPlan) -> Spread {
    let clock = Clock::real();
    let layered = layered(volumes, |volume, label| Fault::new(volume, label, plan, &clock));
    pool_of(layered, opening().meta([label(0)])).unwrap()
}

/// Reads every key; returns how many were read, and the errors of the others.
fn survey(db: &Db, keys: u32, version: u32) -> (u32, Vec<rust_rocksdb::Error>) {
    let mut errors = Vec::new();
    for i in 0..keys {
        match db.get(key(i)) {
            Ok(found) => assert_eq!(found, Some(value(i, version)), "key {i}"),
            Err(error) => errors.push(error),
        }
    }
    (keys - errors.len() as u32, errors)
}

#[test]
fn with_a_data_volume_away_a_database_opens_and_serves_the_rest() {
    let volumes = volumes(3);
    let healthy = FaultPlan::new(0);
    {
        let db = open(&faulty(&volumes, &healthy));
        fill(&db, 0..6000, 1);
        db.flush().unwrap();
        compact(&db);
    }
    {
        let present: Vec<_> = volumes[..2].to_vec();
        let members: Vec<_> = crate::support::plain(&present);
        let pool = pool_of(members, opening().meta([label(0)]).allow_away()).unwrap();
        let db = open(&pool);
        let (served, errors) = survey(&db, 6000, 1);
        assert!(served > 500 && errors.len() > 500, "{served} served");
        assert!(errors[0].as_ref().contains("volume v2 is away"), "{}", errors[0]);
        fill(&db, 6000..9000, 1);
        db.flush().unwrap();
        check(&db, 6000..9000, 1);
    }
    let db = open(&faulty(&volumes, &healthy));
    check(&db, 0..9000, 1);
}

#[test]
fn a_volume_that_goes_away_while_running_costs_only_its_tables() {
    let volumes = volumes(3);
    let plan = FaultPlan::new(0);
    let db = open(&faulty(&volumes, &plan));
    fill(&db, 0..6000, 1);
    db.flush().unwrap();
    compact(&db);
    let away = plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)).volume(&label(2)));
    let (served, errors) = survey(&db, 6000, 1);
    assert!(served > 500 && errors.len() > 500, "{served} served");
    // Writes go on, and flushes go to the volumes that are present.
    fill(&db, 6000..6200, 1);
    db.flush().unwrap();
    check(&db, 6000..6200, 1);
    plan.lift(away);
    check(&db, 0..6200, 1);
}

#[test]
fn a_database_without_its_logs_does_not_open_and_says_so() {
    let volumes = volumes(2);
    let plan = FaultPlan::new(0);
    drop(open(&faulty(&volumes, &plan)));
    let pool = faulty(&volumes, &plan);
    plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)).volume(&label(0)).named("*.log"));
    let Err(error) = try_open(&pool, options()) else { panic!("it opened without its logs") };
    assert!(error.to_string().contains("v0"), "{error}");
}

/// Resumes at once; RocksDB itself tries only at intervals.
fn resume(db: &Db) {
    while let Err(error) = db.resume() {
        assert_eq!(error.kind(), RocksKind::Busy, "{error}");
        std::thread::yield_now();
    }
}

#[test]
fn writes_go_on_when_the_volume_of_the_log_is_back() {
    for effect in [Effect::Fail(ErrorKind::Unavailable), Effect::FailAfter(ErrorKind::Unavailable)]
    {
        let volumes = volumes(2);
        let plan = FaultPlan::new(0);
        {
            let db = open(&faulty(&volumes, &plan));
            fill(&db, 0..100, 1);
            let away = plan.inject(Rule::new(effect).volume(&label(0)).named("o*.log"));
            let error = db.put(key(100), value(100, 1)).unwrap_err();
            assert!(error.as_ref().contains("v0"), "{error}");
            check(&db, 0..100, 1);
            plan.lift(away);
            resume(&db);
            fill(&db, 100..200, 1);
            check(&db, 0..200, 1);
        }
        check(&open(&faulty(&volumes, &plan)), 0..200, 1);
    }
}

#[test]
fn a_table_whose_sync_fails_is_written_elsewhere() {
    let volumes = volumes(3);
    let plan = FaultPlan::new(0);
    let db = open(&faulty(&volumes, &plan));
    fill(&db, 0..300, 1);
    plan.inject(Rule::new(Effect::Fail(ErrorKind::Poisoned)).on(Op::Sync).named("*.tab").nth(0));
    db.flush().unwrap();
    fill(&db, 300..600, 1);
    db.flush().unwrap();
    compact(&db);
    check(&db, 0..600, 1);
}

#[test]
fn a_failed_sync_of_the_log_stops_writes_and_loses_nothing() {
    let volumes = volumes(2);
    let plan = FaultPlan::new(0);
    let pool = faulty(&volumes, &plan);
    let mut sync = rust_rocksdb::WriteOptions::default();
    sync.set_sync(true);
    {
        let db = open(&pool);
        for i in 0..10 {
            db.put_opt(key(i), value(i, 1), &sync).unwrap();
        }
        plan.inject(Rule::new(Effect::Fail(ErrorKind::Poisoned)).on(Op::Sync).named("o*.log"));
        db.put_opt(key(10), value(10, 1), &sync).unwrap_err();
        let refused = db.put(key(11), value(11, 1)).unwrap_err();
        assert!(refused.as_ref().contains("v0"), "{refused}");
        check(&db, 0..10, 1);
    }
    plan.clear();
    drop(pool);
    check(&open(&faulty(&volumes, &plan)), 0..10, 1);
}

#[test]
fn the_pool_outlives_a_database_that_failed_to_open() {
    let volumes = volumes(2);
    let pool = pool(&volumes);
    let mut options = options();
    options.create_if_missing(false);
    let Err(error) = try_open(&pool, options) else { panic!("there was nothing to open") };
    assert!(error.to_string().contains("does not exist"), "{error}");
    let db = open(&pool);
    fill(&db, 0..10, 1);
    settle(&db);
    drop(db);
    let volume: Arc<dyn Volume> = Arc::new(pool);
    assert!(!volume::task::block_on(volume.list()).unwrap().is_empty());
}

//! A store of points, as an embedding program uses it.

use std::sync::mpsc;
use std::time::Duration;

use policy::contract::Contract;
use volume::ErrorKind;
use volume::layer::call::Op;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::mem::Mem;

use super::*;
use crate::kv;

mod shared;

fn batch(times: std::ops::Range<i64>) -> Batch {
    let mut batch = Batch::new("db");
    for time in times {
        batch.begin("m");
        batch.tag("s", "a");
        batch.field("f", Value::Integer(time));
        batch.end(time).expect("a row that fits");
    }
    batch
}

fn database() -> Database {
    Database { name: "db".into(), keep: None }
}

fn open(volume: Volume) -> Store {
    Store::builder().volume(volume).open().unwrap()
}

fn times(store: &Store) -> Vec<i64> {
    let found = store.find(&Selector::all("db")).unwrap();
    let points = found.iter().flat_map(|info| store.points(info.id, Span::ALL));
    points
        .flat_map(|points| points.unwrap().iter().map(|(time, _)| time).collect::<Vec<_>>())
        .collect()
}

#[test]
fn what_was_written_and_deleted_is_so_after_a_close_and_after_a_drop() {
    let mem = Mem::new("v");
    let volume = || Volume::other("v", mem.clone(), Contract::unlimited());
    let store = open(volume());
    store.create_database(database()).unwrap();
    assert_eq!(store.write(batch(0..100)).unwrap().points, 100);
    store.close().unwrap();
    let store = open(volume());
    assert_eq!(times(&store), (0..100).collect::<Vec<_>>());
    assert_eq!(store.delete(Selector::all("db"), Span { from: 0, to: 90 }).unwrap(), 1);
    drop(store);
    assert_eq!(times(&open(volume())), (90..100).collect::<Vec<_>>());
}

#[test]
fn a_pool_serves_two_stores_and_closes_with_the_last() {
    let mems = ["a", "b", "c"].map(Mem::new);
    let open = || {
        let volume = |mem: &Mem| Volume::other(mem.label(), mem.clone(), Contract::unlimited());
        let pool = Pool::builder().volumes(mems.iter().map(volume)).copies(2).open().unwrap();
        let pool = Arc::new(pool);
        let keys = kv::Store::builder().pool(Arc::clone(&pool)).open().unwrap();
        (keys, Store::builder().pool(pool).open().unwrap())
    };
    let (keys, points) = open();
    points.create_database(database()).unwrap();
    points.write(batch(0..100)).unwrap();
    keys.put("ship", "plimsoll").unwrap();
    points.close().unwrap();
    assert_eq!(keys.get("ship").unwrap().as_deref(), Some(&b"plimsoll"[..]), "the pool is open");
    keys.close().unwrap();
    let (keys, points) = open();
    assert_eq!(times(&points), (0..100).collect::<Vec<_>>());
    keys.close().unwrap();
    points.write(batch(100..200)).unwrap();
    points.close().unwrap();
    let (keys, points) = open();
    assert_eq!(times(&points), (0..200).collect::<Vec<_>>());
    assert_eq!(keys.get("ship").unwrap().as_deref(), Some(&b"plimsoll"[..]));
    assert!(points.pool().is_some() && points.health().is_healthy());
}

#[test]
fn an_unknown_database_is_an_error_of_the_stores_error_type() {
    let store = open(Volume::other("v", Mem::new("v"), Contract::unlimited()));
    assert!(matches!(
        store.write(batch(0..1)),
        Err(Error::Series(engine::series::Error::NotFound(_)))
    ));
}

/// When closing failed, the store's threads once waited for ever.
#[test]
fn a_store_whose_volume_fails_ends_with_an_error() {
    let plan = FaultPlan::new(1);
    let clock = Clock::real();
    let fault = Fault::new(Mem::new("v"), "v", &plan, &clock);
    let volume = Volume::other("v", fault, Contract::unlimited());
    let store = Store::builder().volume(volume).clock(clock.clone()).open().unwrap();
    store.create_database(database()).unwrap();
    store.write(batch(0..100)).unwrap();
    for op in [Op::Write, Op::Sync, Op::Create] {
        plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)).on(op));
    }
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(store.close().is_err()));
    assert_eq!(told.recv_timeout(Duration::from_secs(120)), Ok(true));
}

//! A pool's knowledge of its tables, and the weights of its volumes.

use std::time::Duration;

use policy::intent::{Family, KeyRange, Kind};
use policy::placement::{Keys, LeastOverlap, RoundRobin, VolumeId};
use policy::purpose::{Origin, Step};
use policy::units::KIB;
use policy::weight::Seen;
use pool::spread::{Change, Opening, Spread, VolumeStat};
use volume::layer::call::Op as Call;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, ErrorKind, Intent, Io, IoBuf, IoBufMut, Object, Volume};

use crate::rig::{POOL, members, mems, name};

const USER: Io = Io::new(Origin::UserRead, Step::Data);
const FLUSH: Io = Io::new(Origin::Flush, Step::Data);
const MERGE: Io = Io::new(Origin::Compaction { level: 1 }, Step::Data);

/// Bytes of a table: two blocks of heat.
const LEN: usize = 400 * KIB as usize;

fn pool(volumes: &[Mem]) -> Spread {
    let opening = Opening::new(LeastOverlap::new(7)).create_if_missing(POOL);
    block_on(Spread::open(members(volumes), opening)).unwrap()
}

fn family() -> Family {
    Family("kv#0".into())
}

fn table(level: u8, first: &str, last: &str) -> Intent {
    let range = KeyRange { first: first.as_bytes().into(), last: last.as_bytes().into() };
    let kind = Kind::Table { family: family(), level: Some(level), range: Some(range) };
    Intent { kind, len: None, ..Intent::DATA }
}

fn write(pool: &Spread, text: &str, intent: &Intent, io: Io) {
    let data = IoBuf::from(&vec![7; LEN][..]);
    block_on(pool.write_whole(&name(text), intent, data, io)).unwrap();
}

/// Reads 4 KiB `times` times, alternating between blocking and asynchronous reads.
fn read(pool: &Spread, text: &str, times: usize, io: Io) {
    let object = block_on(pool.open_handle(&name(text))).unwrap();
    for i in 0..times {
        let offset = (i * 5000 % (LEN - 4096)) as u64;
        match i % 2 {
            0 => drop(block_on(object.read_at(offset, IoBufMut::zeroed(4096), io)).unwrap()),
            _ => {
                object.blocking_read_at(offset, &mut [0; 4096], io).unwrap();
            }
        }
    }
}

fn volume_of(pool: &Spread, text: &str) -> VolumeId {
    block_on(pool.stat(&name(text))).unwrap().layout.volumes()[0]
}

fn rate_of(pool: &Spread, text: &str) -> f32 {
    let id = block_on(pool.stat(&name(text))).unwrap().id;
    pool.with_tables(|tables| tables.get(id.0).unwrap().rate)
}

fn seen(pool: &Spread, paid: u64) -> Vec<Seen> {
    let volumes = pool.volumes();
    volumes
        .iter()
        .map(|&VolumeStat { id: volume, .. }| Seen {
            volume,
            paid: Some(paid),
            commits: 0,
            saturated: false,
            answer: Duration::ZERO,
        })
        .collect()
}

#[test]
fn users_warm_what_they_read_and_nobody_else_does() {
    let pool = pool(&mems(3));
    write(&pool, "a", &table(1, "a", "m"), MERGE);
    write(&pool, "b", &table(1, "n", "z"), MERGE);
    let seen = seen(&pool, 100);
    pool.on_second(1, &seen);
    read(&pool, "a", 40, USER);
    let others =
        [Origin::Open, Origin::Bulk, Origin::Copy, Origin::Relief, Origin::Scrub, Origin::Prefetch];
    for origin in others {
        read(&pool, "b", 10, Io::new(origin, Step::Data));
    }
    read(&pool, "b", 10, MERGE);
    pool.on_second(2, &seen);
    assert_eq!((rate_of(&pool, "a"), rate_of(&pool, "b")), (20.0, 0.0));
    let weights = pool.weights();
    assert_eq!(weights[&volume_of(&pool, "a")], 0.2);
    assert_eq!(weights[&volume_of(&pool, "b")], 0.0);
    let rates: Vec<_> = pool.rates().into_iter().map(|((_, on), rate)| (on, rate)).collect();
    assert_eq!(rates, [(volume_of(&pool, "a"), 20.0)]);
    // No read, and no call of `on_second`, for three seconds.
    pool.on_second(5, &seen);
    assert_eq!(rate_of(&pool, "a"), 2.5);
    block_on(pool.change(&[Change::Remove { name: name("a") }])).unwrap();
    pool.on_second(6, &seen);
    assert!(pool.weights().values().all(|&weight| weight == 0.0) && pool.rates().is_empty());
}

#[test]
fn a_merged_table_is_as_hot_as_what_it_was_made_of() {
    let pool = pool(&mems(2));
    write(&pool, "a", &table(1, "a", "c"), MERGE);
    write(&pool, "b", &table(2, "a", "e"), MERGE);
    let seen = seen(&pool, 100);
    pool.on_second(1, &seen);
    read(&pool, "a", 40, USER);
    read(&pool, "b", 80, USER);
    pool.on_second(2, &seen);
    let before: f64 = pool.weights().values().sum();
    assert!((before - 0.6).abs() < 1e-6, "{before}");
    // All heat of the first table, half of the second's: at once, before any read.
    write(&pool, "c", &table(2, "a", "c"), MERGE);
    assert_eq!(rate_of(&pool, "c"), 40.0);
    let now: f64 = pool.weights().values().sum();
    assert!((now - 1.0).abs() < 1e-6, "{now}");
    for text in ["a", "b"] {
        block_on(pool.change(&[Change::Remove { name: name(text) }])).unwrap();
    }
    pool.on_second(3, &seen);
    let weights = pool.weights();
    assert!((weights[&volume_of(&pool, "c")] - 0.2).abs() < 1e-6, "{weights:?}");
    assert_eq!(rate_of(&pool, "c"), 20.0, "it cools down like everything");
}

#[test]
fn flushes_and_logs_weigh_too() {
    let pool = pool(&mems(2));
    let mut seen = seen(&pool, 10);
    pool.on_second(1, &seen);
    write(&pool, "a", &table(0, "a", "z"), FLUSH);
    write(&pool, "b", &table(1, "a", "z"), MERGE);
    seen[1].commits += 6;
    pool.on_second(2, &seen);
    let mut expected = [0.0, 0.3];
    // Two operations of 256 KiB, of which the average has half.
    expected[usize::from(volume_of(&pool, "a").0)] += 0.1;
    let weights: Vec<_> = pool.weights().into_values().collect();
    assert_eq!(weights, expected);
}

#[test]
fn tables_are_known_while_they_are_there_and_after_reopening_by_what_is_told() {
    let volumes = mems(2);
    let before = pool(&volumes);
    write(&before, "kv/1", &table(1, "a", "m"), MERGE);
    write(&before, "kv/2", &table(1, "n", "z"), MERGE);
    let known = |pool: &Spread| pool.with_tables(policy::placement::Tables::len);
    assert_eq!(known(&before), 2);
    before.set_table_level(&name("kv/1"), 3);
    before.set_table_leaving(&name("kv/2"), true);
    let found = |pool: &Spread, level| {
        let (mut found, keys) = (Vec::new(), Keys { first: b"a", last: b"z" });
        pool.with_tables(|tables| {
            tables.overlapping(&family(), level, keys, |t| found.push((t.object, t.leaving)));
        });
        found
    };
    assert_eq!(found(&before, 3), [(1, false)]);
    assert_eq!(found(&before, 1), [(2, true)]);
    block_on(before.close()).unwrap();
    drop(before);

    let after = pool(&volumes);
    assert_eq!(known(&after), 2);
    assert_eq!(found(&after, 3), []);
    after.describe_table(&name("kv/1"), &family(), Some(3), Some(Keys { first: b"a", last: b"m" }));
    assert_eq!(found(&after, 3), [(1, false)]);
    after.with_tables(|tables| {
        let table = tables.get(1).unwrap();
        assert_eq!((table.len, table.on.len()), (LEN as u64, 1));
    });
    // Its database removed it, but a checkpoint has it too.
    block_on(after.link(&name("kv/1"), &name("kv/checkpoint/1"))).unwrap();
    after.disown_table(&name("kv/1"));
    block_on(after.remove(&name("kv/1"))).unwrap();
    assert_eq!((found(&after, 3), known(&after)), (vec![], 2));
    block_on(after.remove(&name("kv/checkpoint/1"))).unwrap();
    assert_eq!(known(&after), 1);
}

#[test]
fn a_table_that_could_not_be_written_is_not_known_and_weighs_nothing() {
    let (plan, clock) = (FaultPlan::new(0), Clock::simulated());
    let volumes: Vec<_> = mems(2)
        .into_iter()
        .map(|mem| std::sync::Arc::new(Fault::new(mem.clone(), mem.label(), &plan, &clock)))
        .collect();
    let opening = Opening::new(RoundRobin::default()).create_if_missing(POOL);
    let pool = block_on(Spread::open(members(&volumes), opening)).unwrap();
    write(&pool, "a", &table(1, "a", "c"), MERGE);
    let seen = seen(&pool, 100);
    pool.on_second(1, &seen);
    read(&pool, "a", 40, USER);
    pool.on_second(2, &seen);
    let before = pool.weights();
    plan.inject(Rule::new(Effect::Fail(ErrorKind::OutOfSpace)).on(Call::Write).named("o*"));
    let data = IoBuf::from(&vec![7; LEN][..]);
    let refused = block_on(pool.write_whole(&name("b"), &table(2, "a", "c"), data, MERGE));
    assert!(refused.is_err());
    assert_eq!(pool.weights(), before);
    assert_eq!(pool.with_tables(policy::placement::Tables::len), 1);
    plan.clear();
    write(&pool, "b", &table(2, "a", "c"), MERGE);
    assert_eq!(pool.with_tables(policy::placement::Tables::len), 2);
}

//! Background work: what it must not delay, and what must not delay it.

use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::future::{Either, join, join_all, select};
use volume::layer::call::Op;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::layer::trace::{Trace, TraceLog};
use volume::{Intent, Listed, Object, Space};

use super::overwritten::Search;
use super::*;

const MILLIS: fn(u64) -> Duration = Duration::from_millis;

pub(super) fn open_on(world: &World, volume: Arc<dyn Volume>) -> Store {
    let members = vec![("v0".to_string(), volume)];
    let opening = Store::open(members, world.options.clone(), world.clock.clone(), Some(ID));
    let (store, _) = world.clock.run(opening).unwrap();
    world.clock.run(store.create_database(database(None))).unwrap();
    store
}

fn open_with(world: &World, plan: &FaultPlan) -> Store {
    open_on(world, Arc::new(Fault::new(world.crash.clone(), "v0", plan, &world.clock)))
}

fn every_second() -> World {
    let mut world = World::new();
    world.options.durability = Durability::Interval(Duration::from_secs(1));
    world
}

/// The first problem of a background task.
fn problem(store: &Store) -> Option<String> {
    store.health().tasks.into_iter().find_map(|task| task.problem)
}

/// Tends the store until `done` has ended.
pub(super) async fn tended(store: &Store, done: impl Future<Output = ()>) {
    match select(std::pin::pin!(store.tend()), std::pin::pin!(done)).await {
        Either::Left(_) => panic!("the store is open"),
        Either::Right(_) => {}
    }
}

fn times(world: &World, store: &Store, source: &str) -> Vec<i64> {
    let tags = Predicate::Tag("s".into(), Test::Is(source.into()));
    let found = store.find(&Selector::all("db").tagged(tags), None, 1).unwrap();
    let points = found.first().map(|info| world.points(store, info.id, Scan::of(Span::ALL)));
    points.map_or_else(Vec::new, |points| points.unwrap().into_iter().map(|at| at.0).collect())
}

/// Syncs once shared a loop and a lock with upkeep: there were none while points were deleted or regrouped.
#[test]
fn syncs_go_on_each_second_while_a_delete_takes_long() {
    for seed in 0..10 {
        let mut world = every_second();
        let plan = FaultPlan::new(seed);
        let store = open_with(&world, &plan);
        let mut batch = Batch::new("db");
        for slot in 0..40 {
            for n in 0..2 {
                let time = slot * (1 << 54) + n * SECOND;
                row(&mut batch, "a", "f", time, Value::Float(1.0));
            }
        }
        world.clock.run(store.write(batch, None)).unwrap();
        world.clock.run(store.flush()).unwrap();
        plan.inject(Rule::new(Effect::Slow(Duration::from_secs(1))).on(Op::Read));
        let span = Span { from: SECOND, to: i64::MAX };
        let is_deleted = AtomicBool::new(false);
        let deleting = async {
            world.clock.sleep(MILLIS(50)).await;
            let _ = store.delete(Selector::all("db"), span).await;
            is_deleted.store(true, Ordering::Relaxed);
            std::future::pending::<()>().await;
        };
        let watched = async {
            for n in 0..4 {
                world.clock.sleep(Duration::from_secs(1)).await;
                store.write(one("b", n, 1.0), None).await.unwrap();
            }
            world.clock.sleep(MILLIS(1200)).await;
            world.power.cut();
        };
        let beside = async {
            select(std::pin::pin!(deleting), std::pin::pin!(watched)).await;
        };
        world.clock.run(tended(&store, beside));
        assert!(!is_deleted.load(Ordering::Relaxed), "it was to take longer");
        world.reboot(seed);
        let store = world.open();
        assert_eq!(times(&world, &store, "b"), [0, 1, 2, 3], "seed {seed}");
    }
}

/// Bytes that an opening of the store reads.
fn bytes_read_by_opening(world: &World) -> u64 {
    let log = TraceLog::new(100_000);
    let volume = Trace::new(world.crash.clone(), "v0", &log, &world.clock);
    drop(open_on(world, Arc::new(volume)));
    assert_eq!(log.forgotten(), 0);
    let records = log.records();
    let reads = records.iter().filter(|record| record.call.op == Op::Read);
    reads.map(|read| read.call.len).sum()
}

/// Full buffers once went before the log, and there always are some while users write fast. So the log kept all that was
/// written: a start after a crash read and compressed it, and took a hundred times as long as one after an orderly end.
#[test]
fn a_start_after_a_crash_reads_no_more_than_the_limit_of_the_log() {
    for is_tended in [false, true] {
        let mut world = World::new();
        world.options.buffer_bytes = 256 << 10;
        let store = world.with_database();
        let mut written = 0;
        // Each writer writes many points of one source, and one point each of many others.
        let writer = async |writer: i64| {
            let mut bytes = 0;
            for n in 0..60 {
                let mut batch = Batch::new("db");
                for point in 0..100 {
                    let value = Value::Integer(point << 40 | n);
                    row(&mut batch, &format!("fast{writer}"), "f", n * 100 + point, value);
                }
                row(&mut batch, &format!("slow{writer}-{n}"), "f", n, Value::Integer(n));
                bytes += batch.bytes() as u64;
                store.write(batch, None).await.unwrap();
                // Sharing the thread with upkeep.
                world.clock.sleep(Duration::from_micros(1)).await;
            }
            bytes
        };
        let writing = async { written = join_all((0..4).map(writer)).await.iter().sum() };
        match is_tended {
            false => world.clock.run(writing),
            true => world.clock.run(tended(&store, writing)),
        }
        let limit = world.options.wal_bytes;
        assert!(written > 5 * limit, "{written} bytes were written");
        drop(store);
        world.reboot(1);
        // A batch of each writer may have been under way when the log reached its limit.
        let bound = limit + 4 * (written / 240);
        let after_crash = bytes_read_by_opening(&world);
        let (store, report) = world.try_open().unwrap();
        assert!(report.segment_bytes > 0 && report.segment_bytes <= bound, "{report:?}");
        for writer in 0..4 {
            assert_eq!(times(&world, &store, &format!("fast{writer}")).len(), 6000);
            assert_eq!(times(&world, &store, &format!("slow{writer}-59")), [59]);
        }
        world.clock.run(store.close()).unwrap();
        drop(store);
        let orderly = bytes_read_by_opening(&world);
        // The log store reads the file that it last wrote.
        let bound = bound + world.options.log.file_bytes;
        assert!(after_crash <= orderly + bound, "{after_crash} bytes, and {orderly} otherwise");
    }
}

/// A start waited for blocks that upkeep could write as well: those of three quarters of the buffers.
#[test]
fn a_start_after_a_crash_writes_no_blocks_while_the_buffers_hold_the_rows() {
    let mut world = World::new();
    (world.options.buffer_bytes, world.options.wal_bytes) = (1 << 20, 1 << 20);
    let store = world.with_database();
    for source in 0..4 {
        let mut batch = Batch::new("db");
        for n in 0..1_200_i64 {
            let value = Value::Integer(n.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64));
            row(&mut batch, &format!("s{source}"), "f", n, value);
        }
        world.clock.run(store.write(batch, None)).unwrap();
    }
    let bytes = store.figures().buffer_bytes;
    drop(store);
    world.reboot(1);
    world.options.buffer_bytes = bytes / 10 * 11;
    let (store, report) = world.try_open().unwrap();
    assert_eq!(report.blocks, 0);
    assert_eq!(store.figures().buffer_bytes, bytes);
    for source in 0..4 {
        assert_eq!(times(&world, &store, &format!("s{source}")).len(), 1_200);
    }
}

/// With a lock that wakes any waiter, one of four busy writers once waited for a minute.
#[test]
fn no_writer_waits_while_the_others_go_on() {
    let mut world = World::new();
    world.options.buffer_bytes = 64 << 10;
    drop(world.with_database());
    let plan = FaultPlan::new(0);
    let store = open_with(&world, &plan);
    plan.inject(Rule::new(Effect::Slow(MILLIS(1))));
    let done = [const { AtomicU32::new(0) }; 4];
    let writer = async |writer: usize| {
        let mut ahead = 0;
        for n in 0..100 {
            let mut batch = Batch::new("db");
            for point in 0..100 {
                let value = Value::Integer(point << 40 | n);
                row(&mut batch, &format!("s{writer}"), "f", n * 100 + point, value);
            }
            store.write(batch, None).await.unwrap();
            let mine = done[writer].fetch_add(1, Ordering::Relaxed) + 1;
            let least = done.iter().map(|done| done.load(Ordering::Relaxed)).min();
            ahead = ahead.max(mine - least.unwrap_or(mine));
        }
        ahead
    };
    let mut ahead = Vec::new();
    world.clock.run(tended(&store, async { ahead = join_all((0..4).map(writer)).await }));
    assert!(ahead.iter().all(|&ahead| ahead <= 4), "batches ahead of the slowest: {ahead:?}");
}

/// Writers cut the log, too, and a client may go away at any moment. Whatever was stored by then, a start finds all
/// answered points.
#[test]
fn a_writer_that_is_dropped_while_it_cuts_the_log_loses_nothing() {
    for seed in 0..20 {
        let mut world = World::new();
        let plan = FaultPlan::new(seed);
        let store = open_with(&world, &plan);
        plan.inject(Rule::new(Effect::Slow(MILLIS(1))));
        let mut answered = Vec::new();
        for n in 0..400 {
            let mut batch = Batch::new("db");
            let text = "x".repeat(400);
            row(&mut batch, &format!("s{n}"), "f", n, Value::Text(&text));
            let (write, gone) = (store.write(batch, None), world.clock.sleep(MILLIS(7)));
            match world.clock.run(select(write, std::pin::pin!(gone))) {
                Either::Left((done, _)) => {
                    done.unwrap();
                    answered.push(n);
                }
                Either::Right(_) => {}
            }
        }
        drop(store);
        world.reboot(seed);
        let (store, report) = world.try_open().unwrap();
        assert!(report.damage.is_empty() && report.segment_bytes < 80 << 10, "{report:?}");
        assert!((100..400).contains(&answered.len()), "{} were answered", answered.len());
        for n in answered {
            assert_eq!(times(&world, &store, &format!("s{n}")), [n], "seed {seed}");
        }
    }
}

/// After a failed sync of the log, its rows once counted as synced: they became durable an hour later.
#[test]
fn a_failed_sync_is_made_up_for_at_once() {
    for seed in 0..10 {
        let mut world = every_second();
        let plan = FaultPlan::new(seed);
        let store = open_with(&world, &plan);
        let wal =
            || Rule::new(Effect::Fail(ErrorKind::Unavailable)).on(Op::Sync).named("series-wal/*");
        plan.inject(wal().calls(0..1));
        let watched = async {
            store.write(one("a", 1, 1.0), None).await.unwrap();
            world.clock.sleep(MILLIS(1500)).await;
            world.power.cut();
        };
        world.clock.run(tended(&store, watched));
        world.reboot(seed);
        assert_eq!(times(&world, &world.open(), "a"), [1], "seed {seed}");
    }
}

#[test]
fn a_sync_that_fails_again_and_again_is_reported_until_one_succeeds() {
    let world = every_second();
    let plan = FaultPlan::new(1);
    let store = open_with(&world, &plan);
    let failing = plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)).on(Op::Sync));
    let watched = async {
        store.write(one("a", 1, 1.0), None).await.unwrap();
        for _ in 0..5 {
            world.clock.sleep(MILLIS(1400)).await;
            let why = problem(&store).expect("it is reported");
            assert!(why.contains("may be lost"), "{why}");
            assert!(store.sync().await.is_err());
        }
        plan.lift(failing);
        world.clock.sleep(MILLIS(300)).await;
        let syncs = store.health().tasks.into_iter().find(|task| task.task == "syncs of points");
        assert_eq!(syncs.expect("it runs").problem, None);
        // Upkeep, which syncs before it writes blocks, is tried again each second.
        world.clock.sleep(MILLIS(1400)).await;
        assert_eq!(problem(&store), None);
        store.sync().await.unwrap();
    };
    world.clock.run(tended(&store, watched));
}

/// A failed round of upkeep once left no trace but a line in the log each second.
#[test]
fn upkeep_that_fails_again_and_again_is_reported_until_it_succeeds() {
    let mut world = every_second();
    world.options.age = Duration::from_secs(1);
    let plan = FaultPlan::new(1);
    let store = open_with(&world, &plan);
    // The write-ahead log works, and no block can be written.
    let blocks =
        Rule::new(Effect::Fail(ErrorKind::Unavailable)).on(Op::Write).named("series-blocks/*");
    let failing = plan.inject(blocks);
    let watched = async {
        store.write(one("a", 1, 1.0), None).await.unwrap();
        world.clock.sleep(Duration::from_secs(8)).await;
        let health = store.health();
        let upkeep = health.tasks.iter().find(|task| task.task == "upkeep of points").unwrap();
        let why = upkeep.problem.as_deref().expect("it is reported");
        assert!(why.starts_with("upkeep of points failed"), "{why}");
        assert!(!health.is_healthy() && health.writes_refused.is_none(), "{health:?}");
        plan.lift(failing);
        world.clock.sleep(Duration::from_secs(3)).await;
        assert!(store.figures().blocks > 0);
        assert_eq!(problem(&store), None);
        assert!(store.health().is_healthy());
    };
    world.clock.run(tended(&store, watched));
}

/// A round that waits for ever is no failure: the task was alive, and nothing was done.
#[test]
fn upkeep_that_hangs_is_reported() {
    let mut world = every_second();
    world.options.age = Duration::from_secs(1);
    let plan = FaultPlan::new(1);
    let store = open_with(&world, &plan);
    let hour = Duration::from_secs(3600);
    plan.inject(Rule::new(Effect::Slow(hour)).on(Op::Write).named("series-blocks/*"));
    let watched = async {
        store.write(one("a", 1, 1.0), None).await.unwrap();
        world.clock.sleep(Duration::from_secs(300)).await;
        assert_eq!(problem(&store), None);
        world.clock.sleep(Duration::from_secs(600)).await;
        let why = problem(&store).expect("it is reported");
        assert!(why.starts_with("upkeep of points completed nothing for"), "{why}");
    };
    world.clock.run(tended(&store, watched));
}

/// Users waited for a write that hung, and health said that writes were taken until it failed.
#[test]
fn a_write_that_hangs_counts_as_refused_before_it_ends() {
    for op in [Op::Write, Op::Sync] {
        let mut world = World::new();
        world.options.timeout = Duration::from_secs(5);
        let plan = FaultPlan::new(1);
        let store = open_with(&world, &plan);
        let hangs = Rule::new(Effect::Slow(Duration::from_secs(20))).on(op).calls(0..1);
        plan.inject(hangs.named("series-wal/*"));
        let refused = || store.health().writes_refused;
        let watched = async {
            let polled = async {
                world.clock.sleep(Duration::from_secs(5)).await;
                assert_eq!(refused(), None, "{op:?}: it may be slow");
                world.clock.sleep(Duration::from_secs(2)).await;
                let why = refused().expect("users wait");
                assert_eq!(why, "a write of the write-ahead log has had no answer for 7 s");
            };
            join(async { store.write(one("a", 1, 1.0), None).await.unwrap() }, polled).await;
            assert_eq!(refused(), None, "{op:?}: it has ended");
        };
        world.clock.run(tended(&store, watched));
    }
}

#[test]
fn a_write_that_its_caller_gave_up_is_ended_and_counts_no_longer() {
    let world = World::new();
    let plan = FaultPlan::new(1);
    let store = open_with(&world, &plan);
    let hangs = Rule::new(Effect::Slow(Duration::from_secs(3600))).on(Op::Write).calls(0..1);
    plan.inject(hangs.named("series-wal/*"));
    let watched = async {
        let write = store.write(one("a", 1, 1.0), None);
        let given_up = world.clock.sleep(Duration::from_millis(100));
        assert!(matches!(select(write, given_up).await, Either::Right(_)));
        world.clock.sleep(Duration::from_secs(60)).await;
        assert_eq!(store.health().writes_refused, None);
    };
    world.clock.run(tended(&store, watched));
}

#[test]
fn a_writer_that_waits_for_a_failing_sync_gets_its_error() {
    let world = World::new();
    let plan = FaultPlan::new(1);
    let store = open_with(&world, &plan);
    plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)).on(Op::Sync).calls(0..1));
    let written = world.clock.run(store.write(one("a", 1, 1.0), None));
    assert!(matches!(written, Err(Error::Unavailable(_))), "{written:?}");
    world.clock.run(store.write(one("a", 2, 1.0), None)).unwrap();
}

/// A volume whose next removals panic.
struct Touchy {
    inner: Crash,
    panics: Arc<AtomicU32>,
}

impl Volume for Touchy {
    fn create(&self, name: &Name, intent: &Intent) -> volume::Pending<'_, Arc<dyn Object>> {
        self.inner.create(name, intent)
    }

    fn open(&self, name: &Name) -> volume::Pending<'_, Arc<dyn Object>> {
        self.inner.open(name)
    }

    fn remove(&self, name: &Name) -> volume::Pending<'_, ()> {
        let left = self.panics.load(Ordering::Relaxed);
        if left > 0 {
            self.panics.store(left - 1, Ordering::Relaxed);
            panic!("touchy");
        }
        self.inner.remove(name)
    }

    fn list(&self) -> volume::Pending<'_, Vec<Listed>> {
        self.inner.list()
    }

    fn space(&self) -> volume::Pending<'_, Space> {
        self.inner.space()
    }
}

/// Upkeep was once not supervised: a panic ended it, and syncs with it.
#[test]
fn a_panic_of_upkeep_is_reported_and_upkeep_starts_again() {
    let mut world = every_second();
    world.options.age = Duration::from_secs(1);
    let panics = Arc::new(AtomicU32::new(0));
    let volume = Touchy { inner: world.crash.clone(), panics: Arc::clone(&panics) };
    let store = open_on(&world, Arc::new(volume));
    world.clock.run(store.flush()).unwrap();
    let watched = async {
        panics.store(3, Ordering::Relaxed);
        store.write(one("a", 1, 1.0), None).await.unwrap();
        let mut reports = 0;
        for second in 0..20 {
            store.write(one("b", second, 1.0), None).await.unwrap();
            world.clock.sleep(MILLIS(1200)).await;
            if let Some(why) = problem(&store) {
                assert!(why.contains("upkeep of points panicked: touchy"), "{why}");
                reports += 1;
            }
        }
        assert_eq!(panics.load(Ordering::Relaxed), 0);
        assert!(reports > 0 && problem(&store).is_none());
        assert!(store.figures().blocks > 0);
        world.power.cut();
    };
    world.clock.run(tended(&store, watched));
    world.reboot(1);
    assert_eq!(times(&world, &world.open(), "b"), (0..20).collect::<Vec<_>>());
}

/// After a failed close the tasks once went on, and a caller that joined them waited for ever.
#[test]
fn tasks_end_though_closing_fails() {
    let world = every_second();
    let plan = FaultPlan::new(1);
    let store = open_with(&world, &plan);
    world.clock.run(store.write(one("a", 1, 1.0), None)).unwrap();
    for op in [Op::Write, Op::Sync, Op::Create] {
        plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)).on(op));
    }
    let end = async {
        let (closed, ()) = join(store.close(), store.tend()).await;
        assert!(matches!(closed, Err(Error::Unavailable(_))), "{closed:?}");
    };
    let too_long = world.clock.sleep(Duration::from_secs(600));
    assert!(matches!(
        world.clock.run(select(std::pin::pin!(end), std::pin::pin!(too_long))),
        Either::Left(_)
    ));
}

/// A reader may have made its plan before the block came that hides the dropped points.
#[test]
fn a_reader_on_its_way_misses_nothing_when_overwritten_points_are_dropped() {
    let world = World::new();
    let store = world.with_database();
    let write = |value: f64| {
        let mut batch = Batch::new("db");
        for slot in 0..4 {
            for n in 0..300 {
                row(&mut batch, "a", "f", slot * (1 << 54) + n * SECOND, Value::Float(value));
            }
        }
        world.clock.run(store.write(batch, None)).unwrap();
        world.clock.run(store.flush()).unwrap();
    };
    write(1.0);
    let before = store.0.log.keys(b"b", None, usize::MAX);
    let series = store.find(&Selector::all("db"), None, 1).unwrap()[0].id;
    let mut cursor = store.read(series, Scan::of(Span::ALL));
    let first = world.clock.run(cursor.next()).unwrap().unwrap();
    write(2.0);
    assert!(store.0.log.keys(b"b", None, usize::MAX).len() > before.len());
    let mut search = Search::default();
    while world.clock.run(store.0.drop_overwritten(&mut search, world.clock.now())).unwrap() {}
    let left = store.0.log.keys(b"b", None, usize::MAX);
    assert!(before.iter().all(|key| !left.contains(key)), "the first blocks are gone");
    let mut times: Vec<i64> = first.iter().map(|(time, _)| time).collect();
    while let Some(points) = world.clock.run(cursor.next()).unwrap() {
        times.extend(points.iter().map(|(time, _)| time));
    }
    assert_eq!(times.len(), 4 * 300);
    assert!(
        world
            .points(&store, series, Scan::of(Span::ALL))
            .unwrap()
            .iter()
            .all(|point| point.1 == Scalar::Float(2.0))
    );
}

/// Only points that later blocks have are dropped, and only of the fields there.
#[test]
fn what_was_overwritten_in_part_stays_in_part() {
    let mut world = World::new();
    let store = world.with_database();
    let (mut old, mut new) = (Batch::new("db"), Batch::new("db"));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    for n in 0..400 {
        old.begin("m");
        old.tag("s", "a");
        // Incompressible values.
        old.field("f", Value::Integer(random.random()));
        old.field("g", Value::Integer(random.random()));
        old.end(n * SECOND).unwrap();
        if n < 300 {
            row(&mut new, "a", "f", n * SECOND, Value::Integer(1000));
        }
    }
    for batch in [old, new] {
        world.clock.run(store.write(batch, None)).unwrap();
        world.clock.run(store.flush()).unwrap();
    }
    let series: Vec<SeriesId> =
        store.find(&Selector::all("db"), None, 9).unwrap().iter().map(|info| info.id).collect();
    let read = |store: &Store| world.columns(store, &series, Scan::of(Span::ALL));
    let before = read(&store);
    let bytes = |store: &Store| -> usize {
        let keys = store.0.log.keys(b"b", None, usize::MAX);
        keys.iter().map(|key| world.clock.run(store.0.log.get(key)).unwrap().unwrap().len()).sum()
    };
    let (took, mut search) = (bytes(&store), Search::default());
    while world.clock.run(store.0.drop_overwritten(&mut search, world.clock.now())).unwrap() {}
    assert!(bytes(&store) < took, "{took} bytes before and {} after", bytes(&store));
    assert_eq!(read(&store), before);
    drop(store);
    world.reboot(1);
    let store = world.open();
    let read = world.columns(&store, &series, Scan::of(Span::ALL));
    assert_eq!(read, before);
}

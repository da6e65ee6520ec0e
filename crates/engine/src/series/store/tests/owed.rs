//! Calls that run out of room midway: their answer tells their outcome.

use volume::layer::call::Op;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::{Intent, IoBufMut, Name};

use super::*;
use policy::purpose::{Io, Origin, Step};

const STRANGE: Io = Io::new(Origin::UserWrite, Step::Data);
const CAPACITY: u64 = 4 << 20;

/// A store on one volume whose calls can fail.
struct Rig {
    clock: Clock,
    mem: Mem,
    plan: FaultPlan,
    options: Options,
}

impl Rig {
    fn new(durability: Durability) -> Self {
        let mut options = Options::new(1);
        options.durability = durability;
        options.buffer_bytes = 64 << 10;
        options.source_bytes = 8 << 10;
        let mem = Mem::with_capacity("v0", CAPACITY);
        Self { clock: Clock::simulated(), mem, plan: FaultPlan::new(1), options }
    }

    fn open(&self) -> Store {
        let fault: Arc<dyn Volume> =
            Arc::new(Fault::new(self.mem.clone(), "v0", &self.plan, &self.clock));
        let members = vec![("v0".to_string(), fault)];
        let opening = Store::open(members, self.options.clone(), self.clock.clone(), Some(ID));
        self.clock.run(opening).expect("a start needs no room").0
    }

    fn with_database(&self) -> Store {
        let store = self.open();
        self.clock.run(store.create_database(database(None))).unwrap();
        store
    }

    /// A store of 404 points of each field on a full volume, with a delete that finds no room.
    fn with_an_owed_delete(&self, keep: Option<Duration>) -> Store {
        let store = self.open();
        self.clock.run(store.create_database(database(keep))).unwrap();
        // More blocks than the reserve could take when they are rewritten.
        self.write(&store, 0..400);
        self.clock.run(store.flush()).unwrap();
        self.write(&store, 400..404);
        for op in [Op::Write, Op::Create] {
            self.fail(op, "series-blocks/0*");
        }
        let _ = self.clock.run(store.delete(everything_that_goes(), Span::ALL));
        drop(store);
        self.plan.clear();
        self.take_the_rest();
        let store = self.open();
        assert!(!store.0.state().owed.is_empty(), "there was room for it");
        store
    }

    fn fail(&self, op: Op, name: &str) {
        let full = Effect::Fail(ErrorKind::OutOfSpace);
        self.plan.inject(Rule::new(full).on(op).named(name));
    }

    /// Rows of incompressible texts, in two fields of a few sources, at these times.
    fn write(&self, store: &Store, times: std::ops::Range<i64>) {
        for time in times {
            let mut batch = Batch::new("db");
            for source in ["a", "b", "c"] {
                batch.begin("m");
                batch.tag("s", source);
                batch.field("stays", Value::Text(&text(time, 0)));
                batch.field("goes", Value::Text(&text(time, 1)));
                batch.end(time * SECOND).unwrap();
            }
            self.clock.run(store.write(batch, None)).unwrap();
        }
    }

    /// The seconds at which a field of a source has its text.
    fn times(&self, store: &Store, source: &str, field: &str) -> Vec<i64> {
        let tags = Predicate::Tag("s".into(), Test::Is(source.into()));
        let found = store.find(&Selector::all("db").tagged(tags).field(field), None, 1).unwrap();
        let Some(info) = found.first() else { return Vec::new() };
        let mut cursor = store.read(info.id, Scan::of(Span::ALL));
        let mut times = Vec::new();
        while let Some(points) = self.clock.run(cursor.next()).unwrap() {
            for (time, value) in points.iter() {
                let time = time / SECOND;
                assert_eq!(value, Value::Text(&text(time, i64::from(field == "goes"))));
                times.push(time);
            }
        }
        times
    }

    fn assert_deleted(&self, store: &Store, stays: std::ops::Range<i64>, again: &[i64]) {
        for source in ["a", "b", "c"] {
            assert_eq!(self.times(store, source, "stays"), stays.clone().collect::<Vec<_>>());
            assert_eq!(self.times(store, source, "goes"), again);
        }
    }

    /// Another program takes the volume to the last byte.
    fn take_the_rest(&self) {
        self.clock.run(async {
            let object =
                self.mem.create(&Name::new("stranger").unwrap(), &Intent::DATA).await.unwrap();
            let free = self.mem.space().await.unwrap().free;
            let bytes = IoBufMut::zeroed(usize::try_from(free).unwrap()).freeze();
            object.write_at(0, bytes, STRANGE).await.unwrap();
            object.sync(STRANGE).await.unwrap();
            assert_eq!(self.mem.space().await.unwrap().free, 0);
        });
    }

    fn give_it_back(&self) {
        self.clock.run(self.mem.remove(&Name::new("stranger").unwrap())).unwrap();
    }

    fn tend(&self, store: &Store) {
        for _ in 0..3 {
            self.clock.jump(Duration::from_secs(61));
            while self.clock.run(store.tend_once()).unwrap() {}
            while self.clock.run(store.0.log.tend_once(0)).unwrap() {}
        }
    }
}

fn text(time: i64, field: i64) -> String {
    let mut random = Xoshiro256PlusPlus::seed_from_u64((time * 2 + field) as u64);
    (0..700).map(|_| char::from(random.random_range(b' '..=b'~'))).collect()
}

fn everything_that_goes() -> Selector {
    Selector::all("db").field("goes")
}

/// It was once answered `OutOfSpace`, which says that it is not stored, and the next start found it.
#[test]
fn a_write_whose_sync_finds_no_room_is_in_doubt() {
    let rig = Rig::new(Durability::Always);
    let store = rig.with_database();
    rig.write(&store, 0..1);
    rig.fail(Op::Sync, "series-wal/*");
    let written = rig.clock.run(store.write(one("d", 1, 1.0), None));
    assert!(matches!(written, Err(Error::Unavailable(_))), "{written:?}");
    rig.plan.clear();
    drop(store);
    let store = rig.open();
    assert_eq!(store.cardinality(&Selector::all("db")).unwrap(), 7, "it is there");
}

/// A write that cannot be undone is in doubt, too.
#[test]
fn a_refused_write_that_stays_in_the_log_is_in_doubt() {
    let rig = Rig::new(Durability::Always);
    let store = rig.with_database();
    rig.write(&store, 0..1);
    let full = Effect::FailAfter(ErrorKind::OutOfSpace);
    rig.plan.inject(Rule::new(full).on(Op::Write).named("series-wal/*"));
    rig.fail(Op::SetLen, "series-wal/*");
    let written = rig.clock.run(store.write(one("d", 1, 1.0), None));
    assert!(matches!(written, Err(Error::Unavailable(_))), "{written:?}");
    rig.plan.clear();
    drop(store);
    assert_eq!(rig.open().cardinality(&Selector::all("db")).unwrap(), 7, "it is there");
}

/// The delete is in the log, but there is no room to rewrite blocks. It was once answered `OutOfSpace`, and the deleted
/// points came back until the next start.
#[test]
fn a_delete_for_which_blocks_find_no_room_counts_at_once() {
    let rig = Rig::new(Durability::Always);
    let mut store = rig.with_database();
    rig.write(&store, 0..40);
    rig.clock.run(store.flush()).unwrap();
    rig.write(&store, 40..44);
    for op in [Op::Write, Op::Create] {
        rig.fail(op, "series-blocks/0*");
    }
    assert_eq!(rig.clock.run(store.delete(everything_that_goes(), Span::ALL)).unwrap(), 3);
    rig.assert_deleted(&store, 0..44, &[]);
    // Points written later at the same times stay.
    rig.write(&store, 7..8);
    rig.assert_deleted(&store, 0..44, &[7]);
    for _ in 0..2 {
        drop(store);
        store = rig.open();
        rig.assert_deleted(&store, 0..44, &[7]);
    }
    rig.plan.clear();
    rig.tend(&store);
    assert!(store.0.state().owed.is_empty());
    rig.clock.run(store.flush()).unwrap();
    {
        let mut state = store.0.state();
        let segment = state.queue.segment;
        assert_eq!(state.floor(), segment, "the log is truncated");
    }
    rig.assert_deleted(&store, 0..44, &[7]);
    drop(store);
    rig.assert_deleted(&rig.open(), 0..44, &[7]);
}

/// A delete over a bad sector was once owed for ever, and kept the log from its segment on.
#[test]
fn a_delete_over_blocks_that_cannot_be_read_does_not_keep_the_log() {
    let rig = Rig::new(Durability::Always);
    let store = rig.with_database();
    rig.write(&store, 0..40);
    rig.clock.run(store.flush()).unwrap();
    rig.fail(Op::Write, "series-blocks/0*");
    rig.fail(Op::Create, "series-blocks/0*");
    rig.clock.run(store.delete(everything_that_goes(), Span::ALL)).unwrap();
    assert!(!store.0.state().owed.is_empty());
    rig.plan.clear();
    let unreadable = Rule::new(Effect::Fail(ErrorKind::Io)).on(Op::Read);
    rig.plan.inject(unreadable.named("series-blocks/*"));
    rig.tend(&store);
    assert!(store.0.state().owed.is_empty());
    rig.clock.run(store.flush()).unwrap();
    let mut state = store.0.state();
    let segment = state.queue.segment;
    assert_eq!(state.floor(), segment, "the log is truncated");
}

/// Expiry once waited for blocks that could not be regrouped.
#[test]
fn blocks_expire_while_others_cannot_be_regrouped() {
    let rig = Rig::new(Durability::Always);
    let store = rig.open();
    rig.clock.run(store.create_database(database(Some(Duration::from_secs(3600))))).unwrap();
    for time in 0..40 {
        rig.write(&store, time..time + 1);
        rig.clock.run(store.flush()).unwrap();
    }
    let waiting = || rig.clock.run(async { store.0.upkeep.lock().await.regroup.len() });
    assert!(waiting() > 0);
    let away = Rule::new(Effect::Fail(ErrorKind::Unavailable)).on(Op::Read);
    rig.plan.inject(away.named("series-blocks/0*"));
    for _ in 0..100 {
        rig.clock.jump(Duration::from_secs(3600));
        rig.clock.run(store.tend_once()).unwrap();
    }
    assert!(store.figures().expired > 0);
}

/// An opening carried out a delete from the log: where that found no room, the store did not open.
#[test]
fn a_store_opens_on_a_volume_without_room_for_a_delete_that_is_in_its_log() {
    let rig = Rig::new(Durability::Interval(Duration::from_secs(1)));
    let mut store = rig.with_an_owed_delete(None);
    rig.assert_deleted(&store, 0..404, &[]);
    drop(store);
    store = rig.open();
    rig.assert_deleted(&store, 0..404, &[]);
    rig.give_it_back();
    let before = store.figures().log.volumes[0].live_bytes;
    rig.tend(&store);
    assert!(store.0.state().owed.is_empty());
    let after = store.figures().log.volumes[0].live_bytes;
    assert!(after < before * 3 / 4, "{before} bytes before, {after} after");
    rig.write(&store, 3..4);
    rig.assert_deleted(&store, 0..404, &[3]);
    rig.clock.run(store.flush()).unwrap();
    drop(store);
    rig.assert_deleted(&rig.open(), 0..404, &[3]);
}

/// Upkeep stopped at rows without room, so expired blocks stayed, and room never came.
#[test]
fn what_expired_gives_the_room_that_other_work_needs() {
    let rig = Rig::new(Durability::Interval(Duration::from_secs(1)));
    let store = rig.with_an_owed_delete(Some(Duration::from_secs(3600)));
    assert!(!store.0.state().taken.is_empty(), "there was room for the rows");
    for _ in 0..100 {
        rig.clock.jump(Duration::from_secs(3600));
        let _ = rig.clock.run(store.tend_once());
        let _ = rig.clock.run(store.0.log.tend_once(0));
    }
    assert!(store.figures().expired > 0);
    assert!(store.0.state().owed.is_empty() && store.0.state().taken.is_empty());
    assert_eq!(store.health().writes_refused, None);
    rig.write(&store, 500_000..500_001);
    assert_eq!(rig.times(&store, "a", "stays"), [500_000]);
}

/// The database was in memory all the same: creating it again did nothing, and a crash took it with its points.
#[test]
fn a_database_that_could_not_be_stored_is_not_there() {
    let rig = Rig::new(Durability::Always);
    let store = rig.open();
    for op in [Op::Write, Op::Create] {
        rig.fail(op, "series-blocks/0*");
    }
    for _ in 0..2 {
        rig.clock.run(store.create_database(database(None))).unwrap_err();
        assert_eq!(store.databases(), []);
    }
    rig.plan.clear();
    rig.clock.run(store.create_database(database(None))).unwrap();
    for op in [Op::Write, Op::Create] {
        rig.fail(op, "series-blocks/0*");
    }
    let longer = database(Some(Duration::from_secs(9)));
    rig.clock.run(store.create_database(longer)).unwrap_err();
    assert_eq!(store.databases(), [database(None)]);
    rig.plan.clear();
    rig.write(&store, 0..3);
    drop(store);
    assert_eq!(rig.times(&rig.open(), "a", "stays"), [0, 1, 2]);
}

/// The database was missing in memory, and there again after a restart.
#[test]
fn a_database_whose_drop_was_refused_is_still_there() {
    let rig = Rig::new(Durability::Always);
    let store = rig.with_database();
    rig.write(&store, 0..3);
    rig.fail(Op::Write, "series-wal/*");
    rig.fail(Op::Create, "series-wal/*");
    let dropped = rig.clock.run(store.drop_database("db"));
    assert!(matches!(dropped, Err(Error::OutOfSpace(_))), "{dropped:?}");
    assert_eq!(rig.times(&store, "a", "stays"), [0, 1, 2]);
    rig.plan.clear();
    rig.write(&store, 3..4);
    drop(store);
    let store = rig.open();
    assert_eq!(rig.times(&store, "a", "goes"), [0, 1, 2, 3]);
    // The log takes the drop, but blocks cannot be deleted: the database is gone, and another call stores that.
    for op in [Op::Write, Op::Create] {
        rig.fail(op, "series-blocks/0*");
    }
    let dropped = rig.clock.run(store.drop_database("db"));
    assert!(matches!(dropped, Err(Error::Unavailable(_))), "{dropped:?}");
    assert_eq!(store.databases(), []);
    assert!(rig.clock.run(store.drop_database("db")).is_err());
    rig.plan.clear();
    assert!(!rig.clock.run(store.drop_database("db")).unwrap());
    drop(store);
    assert_eq!(rig.open().databases(), []);
}

/// A caller that waited long did not see the first of many failures, and took it for a success.
#[test]
fn the_first_of_many_failures_is_still_one() {
    let mut queue = queue::Queue::new(ID, 1);
    let first = queue.push(&[b"one"]);
    queue.fail(0, &Error::OutOfSpace("v0".into()));
    for _ in 0..200 {
        let done = queue.standing();
        queue.push(&[b"more"]);
        queue.fail(done, &Error::OutOfSpace("v0".into()));
    }
    assert!(matches!(queue.failure(first), Some(Error::Unavailable(_))));
    assert_eq!(queue.failure(queue.ticket), None, "later tickets did not fail");
}

/// The refusal named a setting that does not exist.
#[test]
fn a_full_block_index_names_the_setting_that_bounds_it() {
    let mut rig = Rig::new(Durability::Always);
    rig.options.log.index_bytes_max = 16 << 10;
    rig.options.log.index_setting = "index_memory under [series]";
    let store = rig.with_database();
    let mut refused = None;
    for n in 0..2000 {
        // A block in its own slot.
        rig.clock.run(store.write(one("a", n << 55, 1.0), None)).unwrap();
        if let Err(error) = rig.clock.run(store.flush()) {
            refused = Some((n, error));
            break;
        }
    }
    let (n, error) = refused.expect("it is bounded");
    assert!((100..1000).contains(&n), "{n} blocks");
    let Error::OutOfSpace(why) = error else { panic!("{error:?}") };
    assert!(why.contains("index_memory under [series]"), "{why}");
    // Accepted points are there, and deletes make room.
    let all = Selector::all("db");
    let info = store.find(&all, None, 1).unwrap().remove(0);
    let mut cursor = store.read(info.id, Scan::of(Span::ALL));
    let mut count = 0;
    while let Some(points) = rig.clock.run(cursor.next()).unwrap() {
        count += points.len() as i64;
    }
    assert_eq!(count, n + 1);
    rig.clock.run(store.delete(all, Span { from: 0, to: 90 << 55 })).unwrap();
    rig.clock.run(store.flush()).unwrap();
}

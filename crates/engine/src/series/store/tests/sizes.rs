//! Wide, long or sparse rows: all accepted rows are written.

use volume::layer::call::Op;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};

use super::*;

/// Files of the default size.
fn real() -> World {
    let mut world = World::new();
    world.options = Options::new(1);
    world.options.durability = Durability::Never;
    world
}

/// This many rows of one source, each with one field that no other row has.
fn sparse(rows: u32) -> Batch {
    let mut batch = Batch::new("db");
    for n in 0..rows {
        row(&mut batch, "a", &format!("field_{n}"), i64::from(n) * SECOND, Value::Float(0.5));
    }
    batch
}

fn count(world: &World, store: &Store) -> usize {
    let found = store.find(&Selector::all("db"), None, usize::MAX).unwrap();
    let sources = found.chunk_by(|a, b| a.tags == b.tags);
    let points = |infos: &[Info]| -> usize {
        let ids: Vec<SeriesId> = infos.iter().map(|info| info.id).collect();
        world.columns(store, &ids, Scan::of(Span::ALL)).iter().map(Vec::len).sum()
    };
    sources.map(points).sum()
}

/// 65,000 lines of one field each took 4.4 GiB, and their blocks exceeded the log store's limit. They were never
/// written, closing failed for them, and the next start found them again.
#[test]
fn rows_of_one_field_each_take_memory_and_bytes_by_their_number() {
    const ROWS: u32 = 65_000;
    let mut world = real();
    let store = world.with_database();
    let before = store.figures();
    let written = world.clock.run(store.write(sparse(ROWS), None)).unwrap();
    assert_eq!((written.rows, written.refused), (ROWS as usize, 0));
    let figures = store.figures();
    let (buffers, catalogue) = (
        figures.buffer_bytes - before.buffer_bytes,
        figures.catalogue_bytes - before.catalogue_bytes,
    );
    println!("{buffers} bytes in buffers, {catalogue} in the catalogue");
    assert!(buffers < 24 << 20, "{buffers} bytes in buffers");
    assert!(catalogue < 16 << 20, "{catalogue} bytes in the catalogue");
    // As an older version left its store: the log has the rows, and no block does.
    world.clock.run(store.sync()).unwrap();
    drop(store);
    world.power.cut();
    world.reboot(1);
    let store = world.open();
    assert_eq!(store.figures().series, u64::from(ROWS));
    world.clock.run(store.flush()).unwrap();
    let figures = store.figures();
    assert_eq!(figures.active, 0);
    assert!(figures.buffer_bytes < 1 << 10, "{} bytes in buffers", figures.buffer_bytes);
    assert!(figures.block_bytes < 8 << 20, "{} bytes of blocks", figures.block_bytes);
    let found = store.find(&Selector::all("db"), None, usize::MAX).unwrap();
    let some: Vec<SeriesId> = found.iter().step_by(100).map(|info| info.id).collect();
    let columns = world.columns(&store, &some, Scan::of(Span::ALL));
    assert!(columns.iter().all(|points| points.len() == 1) && columns.len() == 650);
    world.clock.run(store.close()).unwrap();
}

/// Blocks of many sources, of long texts, or of many columns at one time, in files that take values of 16 KiB.
#[test]
fn whatever_was_accepted_is_written_to_blocks() {
    let text = "x".repeat(5000);
    let mut wide = Batch::new("db");
    wide.begin("m");
    wide.tag("s", "wide");
    for field in 0..1200 {
        wide.field(&format!("f{field}"), Value::Integer(i64::MAX - field));
    }
    wide.end(1).unwrap();
    let mut long = Batch::new("db");
    for n in 0..20 {
        for source in 0..20 {
            row(&mut long, &format!("long {source}"), "text", n * SECOND, Value::Text(&text));
        }
    }
    let mut names = Batch::new("db");
    for n in 0..300 {
        let field = format!("{}{n}", "a field with a long name ".repeat(8));
        row(&mut names, "names", &field, 1, Value::Boolean(true));
    }
    let mut tags = Batch::new("db");
    for n in 0..300 {
        let tag = format!(
            "{n} {}",
            (0..200).map(|at| ((n * at * 7919 % 89) as u8 + 33) as char).collect::<String>()
        );
        row(&mut tags, &tag, "f", 1, Value::Float(1.0));
    }
    for (batch, points) in [(wide, 1200), (long, 400), (names, 300), (tags, 300)] {
        let mut world = World::new();
        world.options.buffer_bytes = 16 << 20;
        let store = world.with_database();
        let written = world.clock.run(store.write(batch, None)).unwrap();
        assert_eq!((written.refused, written.points), (0, points));
        world.clock.run(store.flush()).unwrap();
        world.tend(&store);
        assert_eq!((store.figures().active, count(&world, &store)), (0, points));
        drop(store);
        world.power.cut();
        world.reboot(3);
        let store = world.open();
        assert_eq!(count(&world, &store), points);
        // Points can be deleted from divided blocks, in part and as a whole.
        let span = Span { from: i64::MIN, to: SECOND };
        world.clock.run(store.delete(Selector::all("db"), span)).unwrap();
        assert!(count(&world, &store) < points);
        world.clock.run(store.delete(Selector::all("db"), Span::ALL)).unwrap();
        world.clock.run(store.close()).unwrap();
        let store = world.open();
        assert_eq!((count(&world, &store), store.figures().series), (0, 0));
    }
}

#[test]
fn what_could_never_be_written_is_refused() {
    let world = World::new();
    let store = world.with_database();
    let mut batch = one("a", 1, 1.0);
    row(&mut batch, "b", "text", 1, Value::Text(&"x".repeat(9000)));
    row(&mut batch, "c", "text", 1, Value::Text(&"x".repeat(7000)));
    let written = world.clock.run(store.write(batch, None)).unwrap();
    assert_eq!((written.rows, written.refused), (2, 1));
    assert!(
        matches!(&written.rejected[0].reason, Reason::TooLong { field, .. } if field == "text")
    );
    world.clock.run(store.flush()).unwrap();
    assert_eq!(count(&world, &store), 2);
}

/// Another order of a row's fields was once another shape, kept for ever.
#[test]
fn the_order_of_fields_makes_no_difference_and_shapes_are_forgotten() {
    let mut world = real();
    let store = world.with_database();
    let idle = store.figures().buffer_bytes;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
    let write = |store: &Store, random: &mut Xoshiro256PlusPlus, times: std::ops::Range<i64>| {
        for time in times {
            let mut fields: Vec<i64> = (0..6).collect();
            for at in 0..6 {
                fields.swap(at, random.random_range(0..6));
            }
            let mut batch = Batch::new("db");
            batch.begin("m");
            batch.tag("s", "a");
            // One field comes twice: its last value counts.
            batch.field(&format!("f{}", fields[0]), Value::Text("first"));
            for field in fields {
                batch.field(&format!("f{field}"), Value::Text(&format!("{time} {field}")));
            }
            batch.end(time * SECOND).unwrap();
            assert_eq!(world.clock.run(store.write(batch, None)).unwrap().rows, 1);
        }
    };
    let check = |store: &Store, count: usize| {
        let found = store.find(&Selector::all("db"), None, 9).unwrap();
        assert_eq!(found.len(), 6);
        for info in found {
            let points = world.points(store, info.id, Scan::of(Span::ALL)).unwrap();
            assert_eq!(points.len(), count);
            for (time, value) in points {
                let wanted = format!("{} {}", time / SECOND, &info.field[1..]);
                assert_eq!(value, Scalar::Text(wanted.into()));
            }
        }
    };
    write(&store, &mut random, 0..300);
    let shapes = store.0.state().catalogue.shapes.iter().filter(|shape| shape.rows > 0).count();
    assert_eq!(shapes, 1);
    check(&store, 300);
    world.clock.run(store.flush()).unwrap();
    assert_eq!(store.figures().buffer_bytes, idle, "rows in blocks take no buffer");
    write(&store, &mut random, 300..400);
    check(&store, 400);
    world.clock.run(store.sync()).unwrap();
    drop(store);
    world.power.cut();
    world.reboot(2);
    let store = world.open();
    let found = store.find(&Selector::all("db"), None, 9).unwrap();
    assert_eq!(world.points(&store, found[0].id, Scan::of(Span::ALL)).unwrap().len(), 400);
}

/// Sets of fields were once kept for ever, one for each number of fields that a source had had: 2 bytes times the
/// square.
#[test]
fn a_source_that_grows_keeps_one_set_of_fields() {
    let world = real();
    let store = world.with_database();
    for n in 0..2000 {
        let mut batch = Batch::new("db");
        row(&mut batch, "a", &format!("field_{n}"), 1, Value::Boolean(true));
        world.clock.run(store.write(batch, None)).unwrap();
    }
    let figures = store.figures();
    assert!(figures.catalogue_bytes < 400_000, "{} bytes", figures.catalogue_bytes);
    assert_eq!(figures.series, 2000);
}

/// A batch of a session was once marked as stored before the log took it. When the log failed after the client had
/// given up waiting, the mark stayed: the repeated batch was acknowledged, and never stored.
#[test]
fn a_batch_that_the_log_did_not_take_is_not_taken_for_a_repetition() {
    let world = World::new();
    let plan = FaultPlan::new(1);
    let volume = Fault::new(world.crash.clone(), "v0", &plan, &world.clock);
    let members = vec![("v0".to_string(), Arc::new(volume) as Arc<dyn Volume>)];
    let opening = Store::open(members, world.options.clone(), world.clock.clone(), Some(ID));
    let (store, _) = world.clock.run(opening).unwrap();
    world.clock.run(store.create_database(database(None))).unwrap();
    let session = || Some(Session { client: "c".into(), sequence: 1 });
    let slow = plan.inject(Rule::new(Effect::Slow(Duration::from_secs(9))).on(Op::Write));
    world.clock.run(async {
        // The client goes away while the log is written.
        let given_up = store.write(one("a", 1, 1.0), session());
        let wait = world.clock.sleep(Duration::from_secs(1));
        futures_util::future::select(given_up, std::pin::pin!(wait)).await;
    });
    plan.lift(slow);
    let failing = plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)).on(Op::Write));
    assert!(world.clock.run(store.write(one("b", 1, 1.0), None)).is_err());
    plan.lift(failing);
    let written = world.clock.run(store.write(one("a", 1, 1.0), session())).unwrap();
    assert!(!written.repeated && written.rows == 1);
    let written = world.clock.run(store.write(one("a", 1, 1.0), session())).unwrap();
    assert!(written.repeated);
}

/// The default settings, made for large volumes, work on small ones: files, buffers and the log shrink.
#[test]
fn the_defaults_work_on_a_pool_of_small_volumes() {
    for mib in [100, 300, 1024, 3 * 1024] {
        for volumes in [1, 3, 12] {
            let mut world = World::new();
            world.options = Options::new(volumes);
            let mems = (0..volumes).map(|n| {
                let bytes = mib * (1 << 20) / u64::from(volumes);
                Mem::with_capacity(&format!("v{n}"), bytes)
            });
            let members = mems.map(|mem| Member::new(mem.label(), mem.clone())).collect();
            let opening = Opening::new(RoundRobin::default()).create_if_missing(PoolId(5));
            let pool = world.clock.run(Spread::open(members, opening)).unwrap();
            let open = || {
                let members = vec![("pool".to_string(), Arc::new(pool.clone()) as Arc<dyn Volume>)];
                let opening =
                    Store::open(members, world.options.clone(), world.clock.clone(), Some(ID));
                world.clock.run(opening).unwrap_or_else(|e| panic!("{mib} MiB, {volumes}: {e}")).0
            };
            let store = open();
            world.clock.run(store.create_database(database(None))).unwrap();
            world.clock.run(store.write(sparse(1000), None)).unwrap();
            world.clock.run(store.close()).unwrap();
            drop(store);
            assert_eq!(count(&world, &open()), 1000);
        }
    }
}

//! Deleted and expired points leave nothing behind.

use super::*;

fn many(sources: u32, time: i64) -> Batch {
    let mut batch = Batch::new("db");
    for source in 0..sources {
        batch.begin("m");
        batch.tag("s", &format!("source {source}"));
        batch.tag("region", &format!("region {}", source % 7));
        batch.field("f", Value::Float(1.0));
        batch.end(time).unwrap();
    }
    batch
}

fn large() -> World {
    let mut world = World::new();
    world.options = Options::new(1);
    world.options.durability = Durability::Never;
    world
}

/// A deleted series once stayed in the catalogue for ever.
#[test]
fn the_catalogue_is_as_small_after_a_delete_as_before() {
    const SOURCES: u32 = 20_000;
    let drop_series: fn(&World, &Store) = |world, store| {
        let gone = Test::Matches(crate::series::Pattern::new("^source").unwrap());
        let selector = Selector::all("db").tagged(Predicate::Tag("s".into(), gone));
        let deleted = world.clock.run(store.delete(selector, Span::ALL)).unwrap();
        assert_eq!(deleted, u64::from(SOURCES));
    };
    let drop_database: fn(&World, &Store) = |world, store| {
        assert!(world.clock.run(store.drop_database("db")).unwrap());
        world.clock.run(store.create_database(database(None))).unwrap();
        world.clock.run(store.write(one("stays", 1, 1.0), None)).unwrap();
    };
    for drop_all in [drop_series, drop_database] {
        let mut world = large();
        let store = world.with_database();
        world.clock.run(store.write(one("stays", 1, 1.0), None)).unwrap();
        let before = store.figures();
        for round in 0..3 {
            world.clock.run(store.write(many(SOURCES, round), None)).unwrap();
            world.clock.run(store.write(many(SOURCES / 2, round + 9), None)).unwrap();
            if round > 0 {
                world.clock.run(store.flush()).unwrap();
            }
            let full = store.figures();
            assert!(full.catalogue_bytes > before.catalogue_bytes + 1_000_000);
            drop_all(&world, &store);
            let after = store.figures();
            assert_eq!((after.series, after.sources), (1, 1));
            let (before, after) = (before.catalogue_bytes, after.catalogue_bytes);
            assert!(after < before + 100_000, "{before} bytes before, {after} after");
            assert_eq!(store.tag_values(&Selector::all("db"), "s").unwrap(), ["stays"]);
            assert_eq!(store.tag_keys(&Selector::all("db")).unwrap(), ["s"]);
        }
        world.clock.run(store.close()).unwrap();
        world.reboot(1);
        let store = world.open();
        assert_eq!((store.figures().series, store.figures().sources), (1, 1));
    }
}

/// The log has a source, its delete, and another source with the same tags.
#[test]
fn a_series_that_is_written_again_is_there_once_after_a_crash() {
    let kinds = [Value::Float(1.0), Value::Text("now a text"), Value::Integer(7)];
    for seed in 0..6 {
        for stop in 0..3 {
            let mut world = World::new();
            let mut store = world.with_database();
            for (round, value) in kinds.iter().enumerate() {
                let time = round as i64;
                let write = |store: &Store| {
                    let mut batch = Batch::new("db");
                    row(&mut batch, "a", "f", time, *value);
                    row(&mut batch, "b", "f", time, *value);
                    let written = world.clock.run(store.write(batch, None)).unwrap();
                    assert_eq!((written.rows, written.refused), (2, 0), "of another kind now");
                };
                write(&store);
                if seed % 2 == 1 {
                    world.clock.run(store.flush()).unwrap();
                }
                let deleted = world.clock.run(store.delete(Selector::all("db"), Span::ALL));
                assert_eq!(deleted.unwrap(), 2);
                assert_eq!(store.figures().sources, 0);
                assert!(store.measurements(&Selector::all("db")).unwrap().is_empty());
                write(&store);
                if stop == 1 {
                    world.clock.run(store.flush()).unwrap();
                }
                drop(store);
                world.power.cut();
                world.reboot(seed + 10 * stop);
                store = world.open();
                let found = store.find(&Selector::all("db"), None, 9).unwrap();
                assert_eq!(found.len(), 2, "seed {seed}, {stop}: {found:?}");
                for info in found {
                    let points = world.points(&store, info.id, Scan::of(Span::ALL)).unwrap();
                    assert_eq!(points, [(time, value.to_scalar())]);
                }
                assert_eq!(store.cardinality(&Selector::all("db")).unwrap(), 2);
                world.clock.run(store.delete(Selector::all("db"), Span::ALL)).unwrap();
            }
        }
    }
}

/// A walk over lists of sources resumes where it was, although they got shorter.
#[test]
fn questions_and_deletes_side_by_side_agree() {
    let world = large();
    let store = world.with_database();
    world.clock.run(store.write(many(3000, 1), None)).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..20 {
                for region in [1, 3, 5] {
                    let of = Test::Is(format!("region {region}"));
                    let selector = Selector::all("db").tagged(Predicate::Tag("region".into(), of));
                    let deleting = store.delete(selector, Span::ALL);
                    volume::task::block_on(deleting).unwrap();
                }
                volume::task::block_on(store.write(many(3000, round), None)).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        // Regions 0, 2, 4 and 6 exist all the time, and once.
        let steady = Test::Matches(crate::series::Pattern::new("region [0246]").unwrap());
        let selector = Selector::all("db").tagged(Predicate::Tag("region".into(), steady));
        let wanted = (0..3000).filter(|source| source % 7 % 2 == 0).count() as u64;
        while !done.load(Ordering::Relaxed) {
            assert_eq!(store.cardinality(&selector).unwrap(), wanted);
            let values = store.tag_values(&Selector::all("db"), "s").unwrap().len() as u64;
            assert!((wanted..=3000).contains(&values));
        }
    });
    assert_eq!(store.cardinality(&Selector::all("db")).unwrap(), 3000);
}

/// Retention once went by the latest point: without new points, the last ones stayed for ever.
#[test]
fn points_expire_where_no_more_come() {
    let hour = Duration::from_secs(3600);
    let mut world = World::new();
    let store = world.open();
    world.clock.run(store.create_database(database(Some(hour * 3)))).unwrap();
    let now = world.clock.wall().as_nanos() as i64;
    let mut batch = one("a", now, 1.0);
    row(&mut batch, "a", "f", now - 1, Value::Float(2.0));
    world.clock.run(store.write(batch, None)).unwrap();
    world.clock.run(store.flush()).unwrap();
    world.tend(&store);
    let count = |store: &Store| {
        let found = store.find(&Selector::all("db"), None, 1).unwrap();
        world.points(store, found[0].id, Scan::of(Span::ALL)).unwrap().len()
    };
    for _ in 0..2 {
        world.clock.jump(hour);
        world.tend(&store);
        assert_eq!(count(&store), 2);
    }
    // A restart keeps the measured time.
    world.clock.run(store.sync()).unwrap();
    drop(store);
    let store = world.open();
    world.tend(&store);
    // A jump of the clock alone expires nothing.
    let offset = Duration::from_secs(1_700_000_000) + hour * 1000;
    world.clock.set_wall_offset(offset);
    world.tend(&store);
    assert_eq!(count(&store), 2);
    world.clock.jump(hour + Duration::from_secs(120));
    world.tend(&store);
    assert_eq!(count(&store), 0);
    world.options.series_max = 1;
}

/// The downtime of the program was once not counted: points with a keep time of three hours were there a week later.
#[test]
fn points_expire_for_the_time_the_program_was_away() {
    let hour = Duration::from_secs(3600);
    let mut world = World::new();
    world.clock.set_wall_offset(Duration::from_secs(1_700_000_000));
    let store = world.open();
    world.clock.run(store.create_database(database(Some(hour * 3)))).unwrap();
    let now = world.clock.wall().as_nanos() as i64;
    world.clock.run(store.write(one("a", now, 1.0), None)).unwrap();
    world.clock.run(store.close()).unwrap();
    let count = |world: &World, store: &Store| {
        let found = store.find(&Selector::all("db"), None, 1).unwrap();
        world.points(store, found[0].id, Scan::of(Span::ALL)).unwrap().len()
    };
    world.reboot(1);
    world.clock.set_wall_offset(Duration::from_secs(1_700_000_000) + hour * 24 * 7);
    // The program ends again before it trusts the clock.
    let store = world.open();
    world.tend(&store);
    world.clock.jump(hour / 2);
    world.tend(&store);
    assert_eq!(count(&world, &store), 1, "the clock may be wrong");
    world.clock.run(store.create_database(Database { name: "other".into(), keep: None })).unwrap();
    world.reboot(2);
    let store = world.open();
    world.tend(&store);
    assert_eq!(count(&world, &store), 1);
    world.clock.jump(hour + Duration::from_secs(61));
    world.tend(&store);
    assert_eq!(count(&world, &store), 0);
    assert!(store.figures().expired > 0);
}

/// A restart does not age old points that were loaded.
#[test]
fn a_restart_makes_loaded_points_no_older() {
    let hour = Duration::from_secs(3600);
    let mut world = World::new();
    world.clock.set_wall_offset(Duration::from_secs(1_700_000_000));
    let store = world.open();
    world.clock.run(store.create_database(database(Some(hour * 3)))).unwrap();
    // Points of years ago.
    world.clock.run(store.write(one("a", SECOND, 1.0), None)).unwrap();
    world.clock.run(store.close()).unwrap();
    world.reboot(1);
    let store = world.open();
    world.tend(&store);
    world.clock.jump(hour + Duration::from_secs(61));
    world.tend(&store);
    let found = store.find(&Selector::all("db"), None, 1).unwrap();
    assert_eq!(world.points(&store, found[0].id, Scan::of(Span::ALL)).unwrap().len(), 1);
}

//! Single cases.

use super::*;

fn first(store: &Store, source: &str) -> SeriesId {
    let tags = Predicate::Tag("s".into(), Test::Is(source.into()));
    store.find(&Selector::all("db").tagged(tags), None, 1).unwrap()[0].id
}

#[test]
fn a_batch_sent_again_is_stored_once_after_a_crash_and_a_checkpoint_too() {
    let mut world = World::new();
    let mut store = world.with_database();
    let session = |sequence| Some(Session { client: "sensor".into(), sequence });
    world.clock.run(store.write(one("a", 1, 1.0), session(1))).unwrap();
    world.clock.run(store.write(one("a", 1, 2.0), session(2))).unwrap();
    for seed in 0..3 {
        world.power.cut();
        world.reboot(seed);
        store = world.open();
        // Stored again, the batch would put the older value over the newer one.
        let written = world.clock.run(store.write(one("a", 1, 1.0), session(1))).unwrap();
        assert!(written.repeated && written.rows == 0);
        let points = world.points(&store, first(&store, "a"), Scan::of(Span::ALL)).unwrap();
        assert_eq!(points, [(1, Scalar::Float(2.0))]);
        world.clock.run(store.flush()).unwrap();
    }
    let written = world.clock.run(store.write(one("a", 2, 1.0), session(3))).unwrap();
    assert!(!written.repeated && written.rows == 1);
}

#[test]
fn a_damaged_block_is_named_and_the_others_are_read() {
    let world = World::new();
    let store = world.with_database();
    for slot in 0..3 {
        let mut batch = Batch::new("db");
        for n in 0..300 {
            let time = slot * (SECOND << 20) + n * SECOND;
            row(&mut batch, "a", "f", time, Value::Float((n * n * 7919 % 10_007) as f64 / 7.0));
        }
        world.clock.run(store.write(batch, None)).unwrap();
        world.clock.run(store.flush()).unwrap();
    }
    let series = first(&store, "a");
    let all = world.points(&store, series, Scan::of(Span::ALL)).unwrap().len();
    assert_eq!(all, 900);
    // Some byte in the middle of a block, found by the magic of blocks.
    let is_file = |name: &str| name.ends_with(".seg") || name.ends_with(".log");
    let mem = world.crash.after_process_death();
    let (name, bytes) = mem
        .image()
        .into_iter()
        .find(|(name, bytes)| {
            is_file(name.as_str()) && bytes.windows(4).any(|window| window == b"PlSe")
        })
        .expect("blocks are in files");
    let at = bytes.windows(4).position(|window| window == b"PlSe").expect("a block") + 40;
    mem.damage(&name, at as u64, |byte| *byte ^= 1);
    let clock = Clock::simulated();
    let volume: Arc<dyn Volume> = Arc::new(mem);
    let members = vec![("v0".to_string(), volume)];
    let opening = Store::open(members, world.options.clone(), clock.clone(), None);
    let (store, _) = clock.run(opening).unwrap();
    let mut cursor = store.read(series, Scan::of(Span::ALL));
    let (mut found, mut errors) = (0, Vec::new());
    loop {
        match clock.run(cursor.next()) {
            Ok(Some(points)) => found += points.len(),
            Ok(None) => break,
            Err(error) => errors.push(error.to_string()),
        }
    }
    assert!(found > 0 && found < all && errors.len() == 1, "{found}: {errors:?}");
    assert!(errors[0].contains("series m,s=a, slot from"), "{errors:?}");
}

#[test]
fn kinds_are_fixed_and_survive() {
    let mut world = World::new();
    let store = world.with_database();
    world.clock.run(store.write(one("a", 1, 1.0), None)).unwrap();
    let mut batch = one("b", 1, 1.0);
    row(&mut batch, "a", "f", 2, Value::Integer(1));
    row(&mut batch, "c", "g", 2, Value::Text("x"));
    for flush in [false, true] {
        world.reboot(1);
        let store = world.open();
        let written = world.clock.run(store.write(batch.clone(), None)).unwrap();
        assert_eq!((written.rows, written.refused), (2, 1));
        assert!(matches!(
            &written.rejected[0].reason,
            Reason::Conflict { stored: Kind::Float, .. }
        ));
        let fields = store.fields("db", "m").unwrap();
        assert_eq!(fields, [("f".to_string(), Kind::Float), ("g".to_string(), Kind::Text)]);
        assert_eq!(store.cardinality(&Selector::all("db")).unwrap(), 3);
        assert_eq!(store.tag_values(&Selector::all("db"), "s").unwrap(), ["a", "b", "c"]);
        assert_eq!(store.tag_keys(&Selector::all("db").field("g")).unwrap(), ["s"]);
        assert_eq!(store.measurements(&Selector::all("db")).unwrap(), ["m"]);
        if flush {
            world.clock.run(store.flush()).unwrap();
        }
    }
}

#[test]
fn points_expire_by_time_unless_only_the_clock_or_only_a_point_jumps() {
    let world = World::new();
    let store = world.with_database();
    let hour = Duration::from_secs(3600);
    world.clock.run(store.create_database(database(Some(hour)))).unwrap();
    let now = 1_600_000_000 * SECOND;
    world.clock.set_wall_offset(Duration::from_nanos(now as u64));
    let mut batch = Batch::new("db");
    for minute in 0..30 {
        row(&mut batch, "a", "f", now - minute * 60 * SECOND, Value::Float(1.0));
    }
    world.clock.run(store.write(batch, None)).unwrap();
    let count =
        |store: &Store| world.points(store, first(store, "a"), Scan::of(Span::ALL)).unwrap().len();
    // A point from the future alone expires nothing.
    world.clock.run(store.write(one("a", now * 2, 1.0), None)).unwrap();
    assert_eq!(count(&store), 31);
    world.clock.run(store.flush()).unwrap();
    world.tend(&store);
    assert_eq!(count(&store), 31);
    // Both together expire points older than an hour: at once for reads, and soon on the volume.
    world.clock.set_wall_offset(Duration::from_nanos(now as u64 * 2));
    assert_eq!(count(&store), 1);
    world.clock.jump(Duration::from_secs(61));
    world.tend(&store);
    assert!(store.figures().expired > 0);
    let refused = world.clock.run(store.write(one("a", now, 1.0), None)).unwrap();
    assert_eq!(refused.rejected[0].reason, Reason::Expired);
}

#[test]
fn a_database_that_was_dropped_is_gone_and_its_name_free() {
    let mut world = World::new();
    let store = world.with_database();
    world.clock.run(store.write(one("a", 1, 1.0), None)).unwrap();
    world.clock.run(store.flush()).unwrap();
    world.clock.run(store.write(one("b", 1, 1.0), None)).unwrap();
    assert!(world.clock.run(store.drop_database("db")).unwrap());
    assert!(!world.clock.run(store.drop_database("db")).unwrap());
    assert!(matches!(store.cardinality(&Selector::all("db")), Err(Error::NotFound(_))));
    world.reboot(4);
    let store = world.with_database();
    assert_eq!(store.cardinality(&Selector::all("db")).unwrap(), 0);
    let mut batch = Batch::new("db");
    row(&mut batch, "a", "f", 5, Value::Text("another kind"));
    assert_eq!(world.clock.run(store.write(batch, None)).unwrap().rows, 1);
    // The log still has records from before the drop: their numbers are not used again.
    world.power.cut();
    world.reboot(5);
    let store = world.open();
    let points = world.points(&store, first(&store, "a"), Scan::of(Span::ALL)).unwrap();
    assert_eq!(points, [(5, Scalar::Text("another kind".into()))]);
    assert_eq!(store.cardinality(&Selector::all("db")).unwrap(), 1);
}

#[test]
fn sources_that_write_little_share_blocks_and_slots_are_regrouped() {
    let world = World::new();
    let store = world.with_database();
    for round in 0..20 {
        let mut batch = Batch::new("db");
        for source in 0..40 {
            let time = round * 600 * SECOND + source;
            row(&mut batch, &source.to_string(), "f", time, Value::Float(round as f64));
        }
        world.clock.run(store.write(batch, None)).unwrap();
        world.clock.run(store.flush()).unwrap();
        world.tend(&store);
    }
    let figures = store.figures();
    assert!(figures.blocks < 20 * 5, "{} blocks for 40 sources", figures.blocks);
    assert!(figures.regrouped > 0 && figures.log.keys < 20, "{figures:?}");
    for source in ["0", "39"] {
        let points = world.points(&store, first(&store, source), Scan::of(Span::ALL)).unwrap();
        assert_eq!(points.len(), 20);
    }
}

#[test]
fn buffers_and_log_stay_within_their_bounds() {
    let mut world = World::new();
    world.options.buffer_bytes = 64 << 10;
    let store = world.with_database();
    let mut largest = 0;
    for round in 0..60 {
        let mut batch = Batch::new("db");
        for source in 0..100 {
            for n in 0..4 {
                let time = (round * 4 + n) * SECOND;
                row(&mut batch, &source.to_string(), "f", time, Value::Float(1.0 / (n + 1) as f64));
            }
        }
        world.clock.run(store.write(batch, None)).unwrap();
        largest = largest.max(store.figures().buffer_bytes);
    }
    world.tend(&store);
    assert!(largest < 96 << 10, "{largest} bytes in buffers");
    let logs = world.clock.run(world.crash.list()).unwrap();
    let logs = logs.iter().filter(|listed| listed.name.as_str().starts_with("series-wal/"));
    let bytes: u64 = logs.map(|listed| listed.len).sum();
    assert!(bytes < 80 << 10, "{bytes} bytes of write-ahead log");
    assert!(store.room().free > 0.4);
    for source in ["0", "99"] {
        let points = world.points(&store, first(&store, source), Scan::of(Span::ALL)).unwrap();
        assert_eq!(points.len(), 240);
    }
}

#[test]
fn more_series_than_allowed_are_refused_and_the_others_go_on() {
    let mut world = World::new();
    world.options.series_max = 3;
    let store = world.with_database();
    for source in 0..5 {
        let written = world.clock.run(store.write(one(&source.to_string(), 1, 1.0), None)).unwrap();
        assert_eq!(written.rows, usize::from(source < 3));
    }
    assert_eq!(world.clock.run(store.write(one("1", 2, 1.0), None)).unwrap().rows, 1);
}

#[test]
fn what_is_made_up_takes_no_more_memory_than_allowed() {
    let mut world = World::new();
    world.options.series_max = 10;
    let store = world.with_database();
    let write = |measurement: &str, tag: &str, field: &str| {
        let mut batch = Batch::new("db");
        batch.begin(measurement);
        batch.tag("s", tag);
        batch.field(field, Value::Integer(1));
        batch.end(1).unwrap();
        world.clock.run(store.write(batch, None)).unwrap()
    };
    for n in 0..10 {
        assert_eq!(write("m", "a", &format!("f{n}")).rows, 1);
    }
    let before = store.figures().catalogue_bytes;
    for n in 0..1000 {
        let name = n.to_string();
        for (measurement, tag, field) in
            [(&name[..], "a", "f0"), ("m", &name, "f0"), ("m", "a", &name)]
        {
            let written = write(measurement, tag, field);
            assert_eq!(written.rejected[0].reason, Reason::TooManySeries(10));
        }
    }
    assert_eq!(store.figures().catalogue_bytes, before);
    assert_eq!(store.fields("db", "m").unwrap().len(), 10);
    assert_eq!(store.measurements(&Selector::all("db")).unwrap(), ["m"]);
    assert_eq!(write("m", "a", "f7").rows, 1);
}

/// Blocks of one round may be in slots of different lengths. Regrouping once gave an older block that round, which hid
/// which of the two was older: a point came back with its old value.
#[test]
fn regrouping_brings_nothing_back_beside_a_block_of_the_same_round() {
    let world = World::new();
    let store = world.with_database();
    let write = |rows: &[(&str, i64, f64)]| {
        let mut batch = Batch::new("db");
        for &(source, time, value) in rows {
            row(&mut batch, source, "f", time * SECOND, Value::Float(value));
        }
        world.clock.run(store.write(batch, None)).unwrap();
        world.clock.run(store.flush()).unwrap();
    };
    // A single row is in a slot of days, a row each second in one of an hour.
    write(&[("y", 100, 1.0)]);
    write(&[("x", 1, 1.0), ("y", 100, 2.0), ("y", 101, 2.0), ("y", 102, 2.0)]);
    // The slot of days has ended.
    write(&[("x", (1 << 48) / SECOND + 5, 1.0)]);
    world.tend(&store);
    let y = first(&store, "y");
    let points = world.points(&store, y, Scan::of(Span::ALL)).unwrap();
    let values: Vec<_> = points.into_iter().map(|(time, value)| (time / SECOND, value)).collect();
    assert_eq!(values, [100, 101, 102].map(|time| (time, Scalar::Float(2.0))));
}

#[test]
fn what_is_older_than_the_interval_survives_the_machine() {
    for seed in 0..20 {
        let mut world = World::new();
        world.options.durability = Durability::Interval(Duration::from_secs(1));
        let store = world.with_database();
        world.clock.run(store.write(one("a", 1, 1.0), None)).unwrap();
        let tending = store.clone();
        let later = world.clock.sleep(Duration::from_millis(1500));
        world.clock.run(async {
            futures_util::future::select(std::pin::pin!(tending.tend()), later).await;
        });
        world.clock.run(store.write(one("a", 2, 2.0), None)).unwrap();
        world.power.cut();
        world.reboot(seed);
        let store = world.open();
        let points = world.points(&store, first(&store, "a"), Scan::of(Span::ALL)).unwrap();
        assert_eq!(points[0], (1, Scalar::Float(1.0)));
        assert!(points[1..].iter().all(|point| *point == (2, Scalar::Float(2.0))));
    }
}

#[test]
fn a_log_that_fails_is_left_and_the_next_segment_tells_everything_again() {
    let mut world = World::new();
    let store = world.with_database();
    world.clock.run(store.write(one("a", 1, 1.0), None)).unwrap();
    // As when a volume fails: whether the batch is stored is unknown.
    {
        let mut state = store.0.state();
        let (wall, now) = (world.clock.wall(), world.clock.now());
        state.accept(&one("b", 1, 1.0), None, &[true], wall, now).unwrap();
        let done = state.queue.ticket - 1;
        state.queue.fail(done, &Error::Unavailable("away".into()));
    }
    for (source, time) in [("c", 1), ("b", 2), ("a", 2)] {
        world.clock.run(store.write(one(source, time, 1.0), None)).unwrap();
    }
    world.power.cut();
    world.reboot(3);
    let store = world.open();
    for (source, times) in [("a", vec![1, 2]), ("b", vec![2]), ("c", vec![1])] {
        let points = world.points(&store, first(&store, source), Scan::of(Span::ALL)).unwrap();
        assert_eq!(points.into_iter().map(|(time, _)| time).collect::<Vec<_>>(), times);
    }
}

/// The memory of a known series. More by hand: `SERIES_KNOWN=1000000 cargo test --release -p plimsoll-engine known --
/// --nocapture`.
#[test]
fn known_series_take_little_memory() {
    let known = std::env::var("SERIES_KNOWN").ok().and_then(|known| known.parse().ok());
    let known: u32 = known.unwrap_or(20_000);
    for (tags, fields) in [(2, 1), (10, 10)] {
        let mut world = World::new();
        world.options = Options::new(1);
        world.options.durability = Durability::Never;
        let store = world.with_database();
        let mut batch = Batch::new("db");
        for source in 0..known / fields {
            batch.begin("cpu");
            batch.tag("host", &format!("host_{source}"));
            for tag in 1..tags {
                batch.tag(&format!("tag{tag}"), &format!("value {}", source % (tag * 7)));
            }
            for field in 0..fields {
                batch.field(&format!("field{field}"), Value::Integer(1));
            }
            batch.end(SECOND).unwrap();
            if batch.len() == 5000 {
                let rows = std::mem::replace(&mut batch, Batch::new("db"));
                world.clock.run(store.write(rows, None)).unwrap();
            }
        }
        world.clock.run(store.write(batch, None)).unwrap();
        world.clock.run(store.flush()).unwrap();
        let figures = store.figures();
        let each = figures.catalogue_bytes as f64 / figures.series as f64;
        println!("{} series, {tags} tags, {fields} fields: {each:.1} bytes each", figures.series);
        assert!(figures.series == u64::from(known / fields * fields) && each < 250.0);
        drop(store);
        let store = world.open();
        assert_eq!(store.figures().series, figures.series);
    }
}

/// A query over many series once held the lock that writes need until it was answered.
#[test]
fn writes_go_on_while_metadata_are_asked() {
    const SOURCES: u32 = 20_000;
    const WRITES: u64 = 5;
    let mut world = World::new();
    world.options = Options::new(1);
    world.options.durability = Durability::Never;
    let store = world.with_database();
    let mut batch = Batch::new("db");
    for source in 0..SOURCES {
        row(&mut batch, &format!("source {source}"), "f", 1, Value::Float(1.0));
    }
    world.clock.run(store.write(batch, None)).unwrap();
    let pattern = Test::Matches(crate::series::Pattern::new("(1|2).*(3|4)$").unwrap());
    let selector = Selector::all("db").tagged(Predicate::Tag("s".into(), pattern));
    let (written, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for time in 2.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                volume::task::block_on(store.write(one("source 1", time, 1.0), None)).unwrap();
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Two of them may come just before a query and just after it.
        let mut most = 0;
        for _ in 0..1000 {
            let before = written.load(Ordering::Relaxed);
            let count = store.cardinality(&selector).unwrap();
            assert!(0 < count && count < u64::from(SOURCES));
            most = most.max(written.load(Ordering::Relaxed) - before);
            if most >= WRITES {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
        assert!(most >= WRITES, "at most {most} while a question was answered");
    });
}

#[test]
fn metadata_are_the_same_by_any_way_to_ask() {
    const SOURCES: u32 = 3000;
    let mut world = World::new();
    world.options = Options::new(1);
    let store = world.with_database();
    let mut batch = Batch::new("db");
    for source in 0..SOURCES {
        batch.begin("m");
        batch.tag("s", &format!("{source:04}"));
        if source % 3 > 0 {
            batch.tag("third", &(source % 3).to_string());
        }
        batch.field("f", Value::Float(1.0));
        batch.end(1).unwrap();
    }
    world.clock.run(store.write(batch, None)).unwrap();
    let tag = |key: &str, test| Predicate::Tag(key.into(), test);
    let is = |value: &str| Test::Is(value.into());
    let count = |tags| store.cardinality(&Selector::all("db").tagged(tags)).unwrap();
    let (third, of) = (u64::from(SOURCES) / 3, |value| tag("third", is(value)));
    assert_eq!(count(Predicate::All), 3 * third);
    assert_eq!(count(of("1")), third);
    assert_eq!(count(of("")), third);
    assert_eq!(count(tag("third", Test::IsNot("1".into()))), 2 * third);
    assert_eq!(count(tag("none", is(""))), 3 * third);
    assert_eq!(count(Predicate::Not(Box::new(of("1")))), 2 * third);
    assert_eq!(count(Predicate::Or(vec![of("1"), of("2")])), 2 * third);
    assert_eq!(count(Predicate::And(vec![of("1"), tag("s", is("0004"))])), 1);
    assert_eq!(count(Predicate::And(vec![of("1"), of("2")])), 0);
    let every = Selector::all("db");
    // The same sources, chosen one by one.
    let chosen = every.clone().tagged(tag("s", Test::IsNot("x".into())));
    for selector in [&every, &chosen] {
        assert_eq!(store.tag_values(selector, "s").unwrap().len(), SOURCES as usize);
        assert_eq!(store.tag_values(selector, "third").unwrap(), ["1", "2"]);
        assert_eq!(store.tag_keys(selector).unwrap(), ["s", "third"]);
        assert_eq!(store.measurements(selector).unwrap(), ["m"]);
        let all = store.find(selector, None, usize::MAX).unwrap();
        assert_eq!(all.len(), SOURCES as usize);
        let later = store.find(selector, Some(all[999].id), 700).unwrap();
        assert_eq!(later, all[1000..1700]);
    }
}

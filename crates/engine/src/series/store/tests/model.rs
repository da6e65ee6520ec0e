//! The store compared with a map, through flushes, deletes, restarts, crashes and power cuts, and on a pool also through
//! damage of one copy.

use super::*;

const SOURCES: usize = 6;
const FIELDS: [(&str, Kind); 3] =
    [("float", Kind::Float), ("integer", Kind::Integer), ("text", Kind::Text)];

type Key = (usize, usize);
type Map = BTreeMap<Key, BTreeMap<i64, Scalar>>;

/// The points that the store should hold, and those that it may hold because a call was interrupted.
#[derive(Clone, Default)]
struct Model {
    sure: Map,
    /// Values that points may have instead; `None` for no point.
    maybe: BTreeMap<(Key, i64), Vec<Option<Scalar>>>,
}

/// A source, a time, and values by fields.
type Row = (usize, i64, Vec<(usize, u8)>);

#[derive(Clone, Debug)]
enum Op {
    Write(Vec<Row>),
    Delete(Option<usize>, Option<usize>, Span),
    Flush,
    Tend,
    Sync,
}

fn scalar(field: usize, n: u8) -> Scalar {
    match FIELDS[field].1 {
        Kind::Float => Scalar::Float(f64::from(n) / 4.0),
        Kind::Integer => Scalar::Integer(i64::from(n) - 128),
        _ => Scalar::Text(format!("text {}", n % 7).into()),
    }
}

fn any_op(random: &mut Xoshiro256PlusPlus) -> Op {
    match random.random_range(0..20) {
        0..15 => {
            let base = random.random_range(0..400);
            let row = |random: &mut Xoshiro256PlusPlus| {
                // Mostly in order, some late, some long ago.
                let time = match random.random_range(0..10) {
                    0 => random.random_range(-300i64..400) * 3600,
                    1 => base - random.random_range(0..30),
                    _ => base + random.random_range(0..20),
                };
                let mut fields = Vec::new();
                for field in 0..FIELDS.len() {
                    if random.random_range(0..4) > 0 {
                        fields.push((field, random.random()));
                    }
                }
                if fields.is_empty() {
                    fields.push((0, random.random()));
                }
                // The first sources write most.
                let source = random.random_range(0..SOURCES * SOURCES).isqrt();
                (SOURCES - 1 - source.min(SOURCES - 1), time * SECOND, fields)
            };
            let rows = random.random_range(1..25);
            Op::Write((0..rows).map(|_| row(random)).collect())
        }
        15 => {
            let from = random.random_range(-100i64..400) * SECOND;
            let some = Span { from, to: from + random.random_range(0..100) * SECOND };
            // Now and then over all times: then sources are dropped.
            let span = if random.random_bool(0.25) { Span::ALL } else { some };
            let source = random.random_bool(0.7).then(|| random.random_range(0..SOURCES));
            let field = random.random_bool(0.5).then(|| random.random_range(0..FIELDS.len()));
            Op::Delete(source, field, span)
        }
        16 => Op::Flush,
        17 => Op::Sync,
        _ => Op::Tend,
    }
}

impl Model {
    /// Applies a completed operation.
    fn apply(&mut self, op: &Op) {
        match op {
            Op::Write(rows) => {
                for (source, time, fields) in rows {
                    for &(field, n) in fields {
                        let key = (*source, field);
                        self.maybe.remove(&(key, *time));
                        self.sure.entry(key).or_default().insert(*time, scalar(field, n));
                    }
                }
            }
            Op::Delete(source, field, span) => {
                let is_cut = |key: &Key, time: i64| {
                    source.is_none_or(|source| source == key.0)
                        && field.is_none_or(|field| field == key.1)
                        && span.contains(time)
                };
                for (key, points) in &mut self.sure {
                    points.retain(|&time, _| !is_cut(key, time));
                }
                self.maybe.retain(|(key, time), _| !is_cut(key, *time));
            }
            Op::Flush | Op::Tend | Op::Sync => {}
        }
    }

    /// Applies an interrupted operation: each point is as before or as after it.
    fn apply_maybe(&mut self, op: &Op) {
        let mut after = self.clone();
        after.apply(op);
        let all = |map: &Map| -> BTreeSet<(Key, i64)> {
            map.iter().flat_map(|(key, of)| of.keys().map(|&time| (*key, time))).collect()
        };
        for (key, time) in all(&self.sure).union(&all(&after.sure)).copied() {
            let of = |map: &Map| map.get(&key).and_then(|points| points.get(&time)).cloned();
            if of(&self.sure) != of(&after.sure) {
                self.maybe.entry((key, time)).or_default().push(of(&after.sure));
            }
        }
    }

    /// Compares, and takes over the state of uncertain points.
    fn check(&mut self, world: &World, store: &Store, random: &mut Xoshiro256PlusPlus) {
        for source in 0..SOURCES {
            for (field, (name, kind)) in FIELDS.iter().enumerate() {
                let key = (source, field);
                let tags = Predicate::Tag("s".into(), Test::Is(source.to_string()));
                let selector = Selector::all("db").of("m").field(*name).tagged(tags);
                let found = store.find(&selector, None, 2).unwrap();
                let found: BTreeMap<i64, Scalar> = match &found[..] {
                    [] => BTreeMap::new(),
                    [info] => {
                        assert_eq!((info.kind, info.tag("s")), (*kind, &*source.to_string()));
                        let points = world.points(store, info.id, Scan::of(Span::ALL)).unwrap();
                        assert!(points.is_sorted_by(|a, b| a.0 < b.0), "no time twice");
                        self.check_scan(world, store, info.id, &points, random);
                        points.into_iter().collect()
                    }
                    _ => panic!("one series found twice"),
                };
                let sure = self.sure.entry(key).or_default();
                let times: BTreeSet<i64> = sure.keys().chain(found.keys()).copied().collect();
                for time in times {
                    let (wanted, got) = (sure.get(&time), found.get(&time));
                    let maybe = self.maybe.remove(&(key, time)).unwrap_or_default();
                    let fits = wanted == got || maybe.iter().any(|maybe| maybe.as_ref() == got);
                    assert!(
                        fits,
                        "{key:?} at {time}: {got:?} where {wanted:?} was written, or {maybe:?}"
                    );
                }
                *sure = found;
            }
            check_columns(world, store, source, random);
        }
        self.maybe.clear();
    }

    fn check_scan(
        &self,
        world: &World,
        store: &Store,
        series: SeriesId,
        all: &[(i64, Scalar)],
        random: &mut Xoshiro256PlusPlus,
    ) {
        let from = random.random_range(-1000i64..400) * SECOND;
        let span = Span { from, to: from + random.random_range(0..1_000_000) * SECOND };
        let scan = Scan { span, descending: random.random(), limit: random.random_range(0..40) };
        let mut wanted: Vec<_> =
            all.iter().filter(|(time, _)| span.contains(*time)).cloned().collect();
        if scan.descending {
            wanted.reverse();
        }
        wanted.truncate(scan.limit);
        assert_eq!(world.points(store, series, scan).unwrap(), wanted, "{scan:?}");
    }
}

/// Reading series of a source side by side gives the points of each alone.
fn check_columns(world: &World, store: &Store, source: usize, random: &mut Xoshiro256PlusPlus) {
    let tags = Predicate::Tag("s".into(), Test::Is(source.to_string()));
    let mut infos = store.find(&Selector::all("db").of("m").tagged(tags), None, 9).unwrap();
    let first = random.random_range(0..=infos.len());
    infos.rotate_left(first);
    infos.truncate(random.random_range(1..=FIELDS.len()));
    if infos.is_empty() {
        return;
    }
    let ids: Vec<SeriesId> = infos.iter().map(|info| info.id).collect();
    let limit = if random.random() { usize::MAX } else { random.random_range(0..40) };
    let scan = Scan { descending: random.random(), limit, ..Scan::of(Span::ALL) };
    let found = world.columns(store, &ids, scan);
    let unlimited = Scan { limit: usize::MAX, ..scan };
    let all = ids.iter().map(|id| world.points(store, *id, unlimited).unwrap());
    let all: Vec<Vec<(i64, Scalar)>> = all.collect();
    let mut times: Vec<i64> = all.iter().flatten().map(|(time, _)| *time).collect();
    times.sort_unstable();
    times.dedup();
    if scan.descending {
        times.reverse();
    }
    times.truncate(limit);
    for (all, found) in all.iter().zip(&found) {
        assert_eq!(found[..], all[..found.len()], "{scan:?}");
        let wanted = all.iter().filter(|(time, _)| times.contains(time)).count();
        assert!(found.len() >= wanted, "{scan:?}: {} of {wanted}", found.len());
    }
}

fn batch(rows: &[Row]) -> Batch {
    let mut batch = Batch::new("db");
    for (source, time, fields) in rows {
        batch.begin("m");
        batch.tag("s", &source.to_string());
        for &(field, n) in fields {
            batch.field(FIELDS[field].0, scalar(field, n).as_value());
        }
        batch.end(*time).unwrap();
    }
    batch
}

fn run(world: &World, store: &Store, op: &Op) -> Result<()> {
    match op {
        Op::Write(rows) => {
            let written = world.clock.run(store.write(batch(rows), None))?;
            assert_eq!((written.rows, written.refused), (rows.len(), 0));
        }
        Op::Delete(source, field, span) => {
            let mut selector = Selector::all("db");
            if let Some(source) = source {
                let test = Test::Is(source.to_string());
                selector = selector.tagged(Predicate::Tag("s".into(), test));
            }
            if let Some(field) = field {
                selector = selector.field(FIELDS[*field].0);
            }
            world.clock.run(store.delete(selector, *span))?;
        }
        Op::Flush => world.clock.run(store.flush())?,
        Op::Sync => world.clock.run(store.sync())?,
        Op::Tend => {
            while world.clock.run(store.tend_once())? {}
            while world.clock.run(store.0.log.tend_once(0)).map_err(|error| failed(&error))? {}
        }
    }
    Ok(())
}

/// Rounds of the model test. More by hand: `SERIES_ROUNDS=2000 cargo test --release -p plimsoll-engine model`.
fn rounds(few: u64) -> u64 {
    std::env::var("SERIES_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(few)
}

#[test]
fn holds_what_a_map_holds_through_restarts_deaths_and_power_cuts() {
    for seed in 0..rounds(40) {
        println!("seed {seed}");
        live(World::new(), seed);
    }
}

/// One volume of the pool goes and comes back, in its state of that time, at any restart. Its copies rot.
#[test]
fn holds_what_a_map_holds_on_a_pool_that_misses_a_volume_or_has_a_rotten_one() {
    let rotten = (0..rounds(40)).map(|seed| {
        println!("seed {seed}");
        live(World::on_pool(), seed)
    });
    assert!(rotten.sum::<usize>() > 40);
}

/// The pool's members are pools of two volumes. One of these goes and comes back, and its copies rot.
#[test]
fn holds_what_a_map_holds_on_a_pool_of_pools_that_misses_a_volume_or_has_a_rotten_one() {
    let rotten = (0..rounds(40)).map(|seed| {
        println!("seed {seed}");
        live(World::on_pool_of_pools(), seed)
    });
    assert!(rotten.sum::<usize>() > 40);
}

/// Runs several lives of a store. Returns the number of bits that rotted before an opening after a crash.
fn live(mut world: World, seed: u64) -> usize {
    let mut rotten = 0;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let random = &mut random;
    world.options.source_bytes = [300, 600, 4000][random.random_range(0..3)];
    let always = random.random();
    world.options.durability = if always { Durability::Always } else { Durability::Never };
    let mut store = Some(world.with_database());
    let mut model = Model::default();
    // The state that is certainly durable, and the operations answered since.
    let mut durable = Model::default();
    let mut since: Vec<Op> = Vec::new();
    for _ in 0..random.random_range(2..5) {
        let cut = random.random_bool(0.6).then(|| random.random_range(1..250));
        if let Some(steps) = cut {
            world.power.cut_after(steps);
        }
        let living = store.take().expect("it was opened");
        for _ in 0..random.random_range(10..60) {
            let op = any_op(random);
            match run(&world, &living, &op) {
                Ok(()) => {
                    model.apply(&op);
                    since.push(op.clone());
                    if matches!(op, Op::Flush | Op::Sync) || always {
                        durable = model.clone();
                        since.clear();
                    }
                }
                Err(error) => {
                    assert!(world.power.is_off(), "seed {seed}: {op:?}: {error}");
                    model.apply_maybe(&op);
                    since.push(op);
                    break;
                }
            }
        }
        let is_crash = world.power.is_off() || cut.is_some();
        if is_crash {
            world.power.cut();
            drop(living);
            world.reboot(random.random());
            // Each operation since may be there or not.
            for op in &since {
                let mut after = Model { sure: durable.sure.clone(), ..Model::default() };
                after.apply_maybe(op);
                let maybe = std::mem::take(&mut after.maybe);
                maybe
                    .into_iter()
                    .for_each(|(at, of)| durable.maybe.entry(at).or_default().extend(of));
                if let Op::Write(rows) = op {
                    for (source, time, fields) in rows {
                        for &(field, n) in fields {
                            let at = ((*source, field), *time);
                            durable.maybe.entry(at).or_default().push(Some(scalar(field, n)));
                        }
                    }
                }
            }
            model = durable.clone();
        } else if random.random() {
            world.clock.run(living.close()).unwrap();
        }
        since.clear();
        if !world.others.is_empty() && random.random() {
            let flipped = world.rot(random);
            rotten += if is_crash { flipped } else { 0 };
        }
        world.is_one_away = !world.others.is_empty() && random.random();
        let opened = world.open();
        model.check(&world, &opened, random);
        world.tend(&opened);
        model.check(&world, &opened, random);
        world.clock.run(opened.sync()).unwrap();
        durable = model.clone();
        store = Some(opened);
    }
    rotten
}

#[test]
fn recovers_from_a_cut_at_every_step() {
    recovers(World::new);
}

#[test]
fn recovers_on_a_pool_from_a_cut_at_every_step_that_takes_a_volume_along() {
    recovers(World::on_pool);
}

#[test]
fn recovers_on_a_pool_of_pools_from_a_cut_at_every_step_that_takes_a_volume_along() {
    recovers(World::on_pool_of_pools);
}

fn recovers(new: fn() -> World) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(77);
    let ops: Vec<Op> = (0..45).map(|_| any_op(&mut random)).collect();
    let whole = {
        let world = new();
        let store = world.with_database();
        let before = world.power.steps();
        ops.iter().for_each(|op| run(&world, &store, op).unwrap());
        world.power.steps() - before
    };
    let stride = (whole / rounds(120)).max(1);
    for steps in (0..whole).step_by(stride as usize) {
        let mut world = new();
        let store = world.with_database();
        world.power.cut_after(steps);
        let mut model = Model::default();
        for op in &ops {
            match run(&world, &store, op) {
                Ok(()) => model.apply(op),
                Err(_) => {
                    assert!(world.power.is_off(), "after {steps} steps");
                    model.apply_maybe(op);
                    break;
                }
            }
        }
        drop(store);
        world.reboot(steps);
        world.is_one_away = !world.others.is_empty() && steps % 2 == 1;
        // The machine fails again during recovery, twice.
        for again in 1..3 {
            world.power.cut_after(steps % 7 * again);
            let _cut = world.try_open();
            world.reboot(steps + again);
        }
        let store = world.open();
        model.check(&world, &store, &mut random);
    }
}

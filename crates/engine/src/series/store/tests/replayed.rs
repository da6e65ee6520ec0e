//! A store opened from the log of another compared with that one, which still lives.

use policy::purpose::{Io, Origin, Step};
use volume::IoBuf;

use super::open::segment_of;
use super::*;

const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

/// A store on a volume of its own.
struct Twin {
    volume: Mem,
    options: Options,
    clock: Clock,
}

/// Every series with its points.
type Contents = Vec<(Info, Vec<(i64, Scalar)>)>;

impl Twin {
    fn new(buffer_bytes: u64, wal_bytes: u64) -> Self {
        let mut options = Options::new(1);
        options.durability = Durability::Never;
        options.log.partitions = 1;
        (options.buffer_bytes, options.wal_bytes) = (buffer_bytes, wal_bytes);
        Self { volume: Mem::new("v0"), options, clock: Clock::simulated() }
    }

    fn open(&self) -> (Store, Report) {
        let volume: Arc<dyn Volume> = Arc::new(self.volume.clone());
        let members = vec![("v0".to_string(), volume)];
        let opening = Store::open(members, self.options.clone(), self.clock.clone(), Some(ID));
        self.clock.run(opening).unwrap()
    }

    /// As a process finds it that starts after this one was killed.
    fn fork(&self) -> Self {
        let (options, clock) = (self.options.clone(), self.clock.clone());
        Self { volume: self.volume.fork("v0"), options, clock }
    }

    fn segments(&self) -> Vec<volume::Listed> {
        let listed = self.clock.run(self.volume.list()).unwrap();
        listed.into_iter().filter(|listed| listed.name.as_str().contains("-wal/")).collect()
    }

    /// Changes the body of a record of the only segment, under a valid checksum.
    fn change_record(&self, at: usize, change: impl FnOnce(&mut Vec<u8>)) {
        let name = self.segments().pop().unwrap().name;
        let segment = segment_of("series", &name).unwrap();
        let object = self.clock.run(self.volume.open(&name)).unwrap();
        let bytes = self.clock.run(open::read_segment(&*object, ID, segment)).unwrap();
        let records = wal::Records::new(&bytes, ID, segment).unwrap();
        let mut bodies: Vec<Vec<u8>> = records.map(<[u8]>::to_vec).collect();
        change(&mut bodies[at]);
        let mut changed = wal::header(ID, segment).to_vec();
        for body in bodies {
            let offset = changed.len() as u64;
            wal::put_record(&mut changed, segment, offset, &[&body]);
        }
        self.clock.run(object.set_len(changed.len() as u64)).unwrap();
        let io = Io::new(Origin::Open, Step::Log);
        self.clock.run(object.write_at(0, IoBuf::from(&changed[..]), io)).unwrap();
    }

    fn contents(&self, store: &Store) -> Contents {
        let infos = store.find(&Selector::all("db"), None, usize::MAX).unwrap();
        let points = |info: Info| {
            let (mut points, mut cursor) = (Vec::new(), store.read(info.id, Scan::of(Span::ALL)));
            while let Some(more) = self.clock.run(cursor.next()).unwrap() {
                points.extend(more.iter().map(|(time, value)| (time, value.to_scalar())));
            }
            (info, points)
        };
        infos.into_iter().map(points).collect()
    }
}

/// Rows of few sources and times, so that points are written again; with fields in any order, some of them twice.
fn any_batch(random: &mut Xoshiro256PlusPlus, rows: usize) -> Batch {
    let mut batch = Batch::new("db");
    for _ in 0..rows {
        batch.begin(["m", "n"][random.random_range(0..2)]);
        batch.tag("s", &random.random_range(0..20).to_string());
        if random.random() {
            batch.tag("t", "x");
        }
        for _ in 0..random.random_range(1..9) {
            let field = random.random_range(0..NAMES.len());
            let n: u64 = random.random::<u64>() >> random.random_range(0..64);
            let text = format!("text {n}");
            let value = match field {
                0 => Value::Integer(n as i64),
                1 => Value::Unsigned(n),
                2 => Value::Boolean(n.is_multiple_of(2)),
                3 => Value::Text(&text),
                _ => Value::Float(n as f64),
            };
            batch.field(NAMES[field], value);
        }
        batch.end(random.random_range(0..500) * SECOND).unwrap();
    }
    batch
}

fn any_delete(random: &mut Xoshiro256PlusPlus) -> (Selector, Span) {
    let from = random.random_range(0..500) * SECOND;
    let some = Span { from, to: from + random.random_range(0..100) * SECOND };
    let test = Test::Is(random.random_range(0..20).to_string());
    let selector = Selector::all("db").tagged(Predicate::Tag("s".into(), test));
    // Over all times, sources are dropped, and later ones take their tags.
    (selector, if random.random() { some } else { Span::ALL })
}

/// With small buffers, replaying writes blocks on its way.
#[test]
fn a_store_opened_from_a_log_holds_what_the_store_holds_that_wrote_it() {
    let bounds =
        [(64 << 20, 64 << 20), (64 << 20, 2 << 20), (1 << 20, 64 << 20), (256 << 10, 1 << 20)];
    for (seed, (buffer_bytes, wal_bytes)) in (0..).zip(bounds) {
        let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
        let twin = Twin::new(buffer_bytes, wal_bytes);
        let (store, _) = twin.open();
        twin.clock.run(store.create_database(database(None))).unwrap();
        let mut deletes = 0;
        for _ in 0..60 {
            let rows = random.random_range(1..1500);
            if rows > 1350 {
                let (selector, span) = any_delete(random);
                twin.clock.run(store.delete(selector, span)).unwrap();
                deletes += 1;
            }
            twin.clock.run(store.write(any_batch(random, rows / 2), None)).unwrap();
        }
        let other = twin.fork();
        let (opened, report) = other.open();
        assert!(report.torn.is_empty() && report.damage.is_empty(), "{report:?}");
        println!("seed {seed}: {} segments, {} bytes", report.segments, report.segment_bytes);
        assert!(deletes > 0 && report.segment_bytes > 500 << 10, "{deletes} {report:?}");
        let figures = |store: &Store| (store.figures().series, store.figures().sources);
        assert_eq!(figures(&opened), figures(&store), "seed {seed}");
        assert!(other.contents(&opened) == twin.contents(&store), "seed {seed}");
        // The memory it counts is what its blocks free.
        other.clock.run(opened.flush()).unwrap();
        assert_eq!(opened.figures().buffer_bytes, 0, "seed {seed}");
        assert!(other.contents(&opened) == twin.contents(&store), "seed {seed}");
    }
}

#[test]
fn a_torn_log_gives_the_batches_before_the_cut() {
    let random = &mut Xoshiro256PlusPlus::seed_from_u64(1);
    let twin = Twin::new(64 << 20, 64 << 20);
    let (store, _) = twin.open();
    twin.clock.run(store.create_database(database(None))).unwrap();
    // The length of the log after each batch, and what the store held then.
    let mut states = Vec::new();
    for _ in 0..12 {
        twin.clock.run(store.write(any_batch(random, 2000), None)).unwrap();
        let last = twin.segments().pop().unwrap();
        states.push((last.len, twin.contents(&store)));
    }
    for round in 0..24 {
        let (end, before) = states[random.random_range(0..states.len() - 1)].clone();
        let next = states.iter().map(|(end, _)| *end).find(|next| *next > end).unwrap();
        let cut = if round == 0 { end } else { random.random_range(end + 1..next) };
        let other = twin.fork();
        let last = other.segments().pop().unwrap().name;
        let object = other.clock.run(other.volume.open(&last)).unwrap();
        other.clock.run(object.set_len(cut)).unwrap();
        let (opened, report) = other.open();
        assert_eq!((report.torn.len(), report.damage.len()), (usize::from(cut > end), 0));
        assert!(other.contents(&opened) == before, "cut at {cut}");
    }
}

/// A program that errs may write such a record.
#[test]
fn an_inconsistent_record_is_reported_and_the_others_are_replayed() {
    let twin = Twin::new(64 << 20, 64 << 20);
    let (store, _) = twin.open();
    twin.clock.run(store.create_database(database(None))).unwrap();
    for time in 0..5 {
        twin.clock.run(store.write(one("a", time, 1.0), None)).unwrap();
    }
    let replayed = |change: fn(&mut Vec<u8>)| {
        let other = twin.fork();
        other.change_record(2, change);
        let (opened, report) = other.open();
        assert!(report.torn.is_empty(), "{report:?}");
        let [(_, points)] = &other.contents(&opened)[..] else { panic!("one series") };
        let times: Vec<i64> = points.iter().map(|(time, _)| *time).collect();
        (report.damage.len(), times)
    };
    assert_eq!(replayed(|_| ()), (0, vec![0, 1, 2, 3, 4]));
    let without = (1, vec![0, 1, 3, 4]);
    assert_eq!(replayed(|body| body[0] = 9), without, "an unknown kind");
    assert_eq!(replayed(|body| body[0] = wal::DELETE), without, "no delete");
    assert_eq!(replayed(|body| body.truncate(body.len() - 1)), without, "half a row");
    assert_eq!(replayed(|body| body.truncate(2)), without, "half a head");
    // Rows before the inconsistency count.
    assert_eq!(replayed(|body| body.push(0)), (1, vec![0, 1, 2, 3, 4]), "a row and a half");
}

//! A store on full volumes: which calls are refused, which always work, and how room comes back.

use futures_util::future::{Either, select};
use policy::purpose::{Io, Origin, Step};
use volume::{Intent, IoBufMut, Name};

use super::*;

const CAPACITY: u64 = 4 << 20;
const SOURCES: usize = 5;
/// Bytes of a point's text.
const TEXT: usize = 1500;
/// The time within which deletes give their room back.
const SOON: Duration = Duration::from_secs(30);
const STRANGE: Io = Io::new(Origin::UserWrite, Step::Data);

type Points = BTreeMap<usize, BTreeMap<i64, Arc<str>>>;

/// Times of the points of one write, and their texts.
type Written = Vec<(i64, Arc<str>)>;

/// A machine with small volumes, and a model of the answered writes.
struct Machine {
    clock: Clock,
    power: Power,
    volumes: Vec<Crash>,
    options: Options,
    random: Xoshiro256PlusPlus,
    model: Points,
    /// The points of an interrupted write.
    unsure: Option<(usize, Written)>,
    time: i64,
}

impl Machine {
    fn new(volumes: u16, durability: Durability, seed: u64) -> Self {
        let mut options = Options::new(volumes);
        options.durability = durability;
        options.buffer_bytes = 256 << 10;
        options.source_bytes = 8 << 10;
        let power = Power::new();
        let label = |n| format!("v{n}");
        let crash = |n| Crash::new(Mem::with_capacity(&label(n), CAPACITY), &power);
        Self {
            clock: Clock::simulated(),
            volumes: (0..volumes).map(crash).collect(),
            power,
            options,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            model: Points::new(),
            unsure: None,
            time: 0,
        }
    }

    fn open(&self) -> Store {
        let member = |(n, volume): (usize, &Crash)| {
            (format!("v{n}"), Arc::new(volume.clone()) as Arc<dyn Volume>)
        };
        let members = self.volumes.iter().enumerate().map(member).collect();
        let opening = Store::open(members, self.options.clone(), self.clock.clone(), Some(ID));
        self.clock.run(opening).expect("a start needs no room").0
    }

    fn with_database(&self) -> Store {
        let store = self.open();
        self.clock.run(store.create_database(database(None))).unwrap();
        store
    }

    /// Runs `work` while the store is tended.
    fn run<T>(&self, store: &Store, work: impl Future<Output = T>) -> T {
        let tending = store.clone();
        self.clock.run(async {
            match select(std::pin::pin!(work), std::pin::pin!(tending.tend())).await {
                Either::Left((done, _)) => done,
                Either::Right(_) => panic!("the store was closed"),
            }
        })
    }

    fn pass(&self, store: &Store, time: Duration) {
        self.run(store, self.clock.sleep(time));
    }

    /// A few points of one source, with incompressible text.
    fn any_batch(&mut self) -> (Batch, usize, Vec<(i64, Arc<str>)>) {
        let source = self.random.random_range(0..SOURCES);
        let mut batch = Batch::new("db");
        let mut points = Vec::new();
        for _ in 0..self.random.random_range(1..6) {
            self.time += SECOND;
            let text = self.any_text();
            row(&mut batch, &source.to_string(), "f", self.time, Value::Text(&text));
            points.push((self.time, text.into()));
        }
        (batch, source, points)
    }

    /// Writes one batch. Answered points go to the model; refused ones must not be found.
    fn write(&mut self, store: &Store) -> Result<()> {
        let (batch, source, points) = self.any_batch();
        let written = self.run(store, store.write(batch, None));
        match written {
            Ok(written) => {
                assert_eq!(written.rows, points.len());
                self.model.entry(source).or_default().extend(points);
                Ok(())
            }
            Err(error) => {
                if !matches!(error, Error::OutOfSpace(_)) {
                    self.unsure = Some((source, points));
                }
                Err(error)
            }
        }
    }

    /// Writes until the store has refused writes for a while; gives the number of accepted batches.
    fn fill(&mut self, store: &Store) -> usize {
        let (mut taken, mut refused) = (0, 0);
        while refused < 5 {
            match self.write(store) {
                Ok(()) => (taken, refused) = (taken + 1, 0),
                Err(Error::OutOfSpace(_)) => {
                    let health = store.health();
                    assert!(health.writes_refused.is_some(), "refused, and health is {health:?}");
                    refused += 1;
                    self.pass(store, Duration::from_millis(300));
                }
                Err(error) => panic!("{error}"),
            }
        }
        taken
    }

    /// Overwrites some points with other texts.
    fn overwrite(&mut self, store: &Store) -> Result<usize> {
        let source = self.random.random_range(0..SOURCES);
        let times: Vec<i64> = self.model[&source].keys().copied().collect();
        let from = self.random.random_range(0..times.len());
        let mut batch = Batch::new("db");
        let mut points = Vec::new();
        for &time in times[from..].iter().take(5) {
            let text = self.any_text();
            row(&mut batch, &source.to_string(), "f", time, Value::Text(&text));
            points.push((time, text.into()));
        }
        let count = points.len();
        self.run(store, store.write(batch, None))?;
        self.model.entry(source).or_default().extend(points);
        Ok(count * TEXT)
    }

    fn any_text(&mut self) -> String {
        (0..TEXT).map(|_| char::from(self.random.random_range(b' '..=b'~'))).collect()
    }

    fn bytes(&self) -> usize {
        self.model.values().flat_map(BTreeMap::values).map(|text| text.len()).sum()
    }

    /// Deletes nine tenths, in one of three ways.
    fn delete_most(&mut self, store: &Store, how: u64) {
        match how % 3 {
            0 => {
                let times: Vec<i64> =
                    self.model.values().flat_map(|points| points.keys().copied()).collect();
                let (first, last) = (times.iter().min().unwrap(), times.iter().max().unwrap());
                let span = Span { from: *first, to: first + (last - first) / 10 * 9 };
                let all = Selector::all("db");
                self.run(store, store.delete(all, span)).expect("deletes always work");
                for points in self.model.values_mut() {
                    points.retain(|time, _| !span.contains(*time));
                }
            }
            1 => {
                assert!(self.run(store, store.drop_database("db")).expect("drops always work"));
                self.run(store, store.create_database(database(None))).unwrap();
                self.model.clear();
            }
            _ => {
                for source in 1..SOURCES {
                    let tags = Predicate::Tag("s".into(), Test::Is(source.to_string()));
                    let of = Selector::all("db").tagged(tags);
                    self.run(store, store.delete(of, Span::ALL)).expect("deletes always work");
                    self.model.remove(&source);
                }
            }
        }
    }

    /// Reads everything: answered points are there, refused and deleted ones are not.
    fn check(&mut self, store: &Store, when: &str) {
        let mut found = Points::new();
        if !store.databases().is_empty() {
            for info in store.find(&Selector::all("db"), None, usize::MAX).unwrap() {
                let source: usize = info.tags[0].1.parse().unwrap();
                let mut cursor = store.read(info.id, Scan::of(Span::ALL));
                while let Some(points) = self.clock.run(cursor.next()).unwrap() {
                    for (time, value) in points.iter() {
                        let Scalar::Text(text) = value.to_scalar() else { panic!("a text") };
                        found.entry(source).or_default().insert(time, text);
                    }
                }
            }
        }
        if let Some((source, points)) = self.unsure.take() {
            for (time, text) in points {
                if found.get(&source).is_some_and(|found| found.get(&time) == Some(&text)) {
                    self.model.entry(source).or_default().insert(time, text);
                }
            }
        }
        self.model.retain(|_, points| !points.is_empty());
        for source in 0..SOURCES {
            let (none, also_none) = (BTreeMap::new(), BTreeMap::new());
            let is = found.get(&source).unwrap_or(&none);
            let should = self.model.get(&source).unwrap_or(&also_none);
            let lost: Vec<_> = should.keys().filter(|time| !is.contains_key(time)).collect();
            let back: Vec<_> = is.keys().filter(|time| !should.contains_key(time)).collect();
            assert!(lost.is_empty() && back.is_empty(), "{when}: lost {lost:?}, back {back:?}");
            assert!(is == should, "{when}: other values");
        }
    }

    /// Waits until the store reports that it takes writes again.
    fn wait_for_room(&self, store: &Store) {
        let began = self.clock.now();
        while store.health().writes_refused.is_some() {
            self.pass(store, Duration::from_millis(100));
            let waited = self.clock.now().since(began);
            assert!(waited < SOON, "no room after {waited:?}: {:#?}", store.figures().log);
        }
    }

    /// Ends the process or the machine, and starts it again.
    fn restart(&mut self, store: Store, is_power: bool) -> Store {
        drop(store);
        if is_power {
            self.power.cut();
            let seed = self.random.random();
            let survivors: Vec<_> =
                self.volumes.iter().map(|volume| volume.survivor(seed)).collect();
            self.power = Power::new();
            self.volumes = survivors.into_iter().map(|mem| Crash::new(mem, &self.power)).collect();
        }
        self.open()
    }

    /// Another program takes all the rest of a volume.
    fn take_the_rest(&self, volume: usize) {
        self.clock.run(async {
            let volume = &self.volumes[volume];
            let name = Name::new("stranger").unwrap();
            let object = volume.create(&name, &Intent::DATA).await.unwrap();
            let free = volume.space().await.unwrap().free;
            let bytes = IoBufMut::zeroed(usize::try_from(free).unwrap()).freeze();
            object.write_at(0, bytes, STRANGE).await.unwrap();
            object.sync(STRANGE).await.unwrap();
            assert_eq!(volume.space().await.unwrap().free, 0);
        });
    }

    fn give_it_back(&self, volume: usize) {
        let name = Name::new("stranger").unwrap();
        self.clock.run(self.volumes[volume].remove(&name)).unwrap();
    }
}

/// Cycles of a full disk: fill, get refusals, delete, fill again.
fn rounds(count: u64, volumes: u16, durability: Durability, death: Option<bool>, seed: u64) {
    let mut machine = Machine::new(volumes, durability, seed);
    let mut store = machine.with_database();
    for round in 0..count {
        let taken = machine.fill(&store);
        assert!(taken > 0, "round {round}: nothing was taken");
        if round == 0 {
            let share = machine.bytes() as f64 / (CAPACITY * u64::from(volumes)) as f64;
            assert!(share >= 0.7, "{share:.2} of the volumes are users' data");
        }
        machine.check(&store, &format!("round {round}, full"));
        if let Some(is_power) = death {
            store = machine.restart(store, is_power);
            machine.check(&store, &format!("round {round}, full, after a death"));
        }
        machine.delete_most(&store, round);
        if let Some(is_power) = death.filter(|_| round % 2 == 0) {
            // At any moment of the work that deletes leave.
            let later = Duration::from_millis(machine.random.random_range(0..500));
            machine.pass(&store, later);
            store = machine.restart(store, is_power);
        }
        machine.check(&store, &format!("round {round}, deleted"));
        machine.wait_for_room(&store);
    }
    machine.clock.run(store.close()).expect("an orderly end");
    let store = machine.open();
    machine.check(&store, "after the end");
}

#[test]
fn full_again_and_again_on_one_volume() {
    rounds(3, 1, Durability::Interval(Duration::from_secs(1)), None, 1);
}

#[test]
fn full_again_and_again_on_three_volumes() {
    rounds(3, 3, Durability::Interval(Duration::from_secs(1)), None, 2);
}

#[test]
fn full_again_and_again_while_the_process_dies() {
    rounds(3, 1, Durability::Interval(Duration::from_secs(1)), Some(false), 3);
    rounds(3, 3, Durability::Interval(Duration::from_secs(1)), Some(false), 4);
}

#[test]
fn full_again_and_again_while_the_power_goes() {
    rounds(3, 1, Durability::Always, Some(true), 5);
    rounds(3, 3, Durability::Always, Some(true), 6);
}

/// The store fills the volume, and then another program takes the rest to the last byte.
#[test]
fn where_others_took_the_rest_a_start_succeeds_deletes_work_and_writes_come_back() {
    let mut machine = Machine::new(1, Durability::Interval(Duration::from_secs(1)), 7);
    let mut store = machine.with_database();
    for _ in 0..200 {
        machine.write(&store).unwrap();
    }
    machine.pass(&store, Duration::from_secs(2));
    machine.take_the_rest(0);
    machine.pass(&store, Duration::from_secs(1));
    // Segments of the log that upkeep removes make some room.
    machine.fill(&store);
    assert!(store.health().writes_refused.is_some());
    store = machine.restart(store, false);
    machine.check(&store, "after a death");
    machine.clock.run(store.close()).expect("an orderly end");
    store = machine.open();
    machine.check(&store, "after an orderly end");
    machine.delete_most(&store, 2);
    machine.check(&store, "deleted");
    machine.wait_for_room(&store);
    machine.write(&store).expect("there is room of what was deleted");
    machine.give_it_back(0);
    machine.pass(&store, Duration::from_secs(5));
    assert!(machine.fill(&store) > 100);
    machine.check(&store, "full again");
}

#[test]
fn one_full_volume_of_three_is_passed_over() {
    let mut machine = Machine::new(3, Durability::Interval(Duration::from_secs(1)), 8);
    let store = machine.with_database();
    machine.take_the_rest(1);
    machine.pass(&store, Duration::from_secs(1));
    for _ in 0..400 {
        machine.write(&store).expect("the others have room");
    }
    assert_eq!(store.health().writes_refused, None);
    machine.clock.run(store.flush()).unwrap();
    machine.check(&store, "one is full");
    let store = machine.restart(store, false);
    machine.check(&store, "after a death");
}

#[test]
fn a_refused_batch_is_nowhere_though_half_of_it_was_written() {
    use volume::layer::call::Op;
    use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};

    let clock = Clock::simulated();
    let mem = Mem::new("v0");
    let plan = FaultPlan::new(1);
    let open = || {
        let fault: Arc<dyn Volume> = Arc::new(Fault::new(mem.clone(), "v0", &plan, &clock));
        let members = vec![("v0".to_string(), fault)];
        clock.run(Store::open(members, World::new().options, clock.clone(), Some(ID))).unwrap().0
    };
    let store = open();
    clock.run(store.create_database(database(None))).unwrap();
    clock.run(store.write(one("a", 1, 1.0), None)).unwrap();
    let full = Effect::FailAfter(ErrorKind::OutOfSpace);
    plan.inject(Rule::new(full).on(Op::Write).named("series-wal/*"));
    let session = || Some(Session { client: "c".into(), sequence: 1 });
    let refused = clock.run(store.write(one("a", 2, 2.0), session()));
    assert!(matches!(refused, Err(Error::OutOfSpace(_))), "{refused:?}");
    assert!(store.health().writes_refused.is_some());
    let times = |store: &Store| -> Vec<i64> {
        let infos = store.find(&Selector::all("db"), None, 9).unwrap();
        let mut cursor = store.read(infos[0].id, Scan::of(Span::ALL));
        let mut times = Vec::new();
        while let Some(points) = clock.run(cursor.next()).unwrap() {
            times.extend(points.iter().map(|(time, _)| time));
        }
        times
    };
    assert_eq!(times(&store), [1]);
    plan.clear();
    clock.run(store.flush()).unwrap();
    assert_eq!(times(&store), [1], "nor is it in a block");
    drop(store);
    let store = open();
    assert_eq!(times(&store), [1], "nor after a restart");
    // The client sends the refused batch again.
    let written = clock.run(store.write(one("a", 2, 2.0), session())).unwrap();
    assert!(!written.repeated);
    assert_eq!(times(&store), [1, 2]);
}

#[test]
fn health_is_green_again_without_a_write_of_a_user() {
    let mut machine = Machine::new(1, Durability::Interval(Duration::from_secs(1)), 9);
    let store = machine.with_database();
    machine.fill(&store);
    assert!(store.health().writes_refused.is_some());
    machine.delete_most(&store, 0);
    machine.wait_for_room(&store);
    machine.write(&store).expect("health said so");
}

/// Overwritten points stayed unless eight blocks of a slot came together, until no write was possible.
#[test]
fn points_that_are_overwritten_again_and_again_take_no_more_room() {
    for (seed, volumes) in [(10, 1), (11, 3)] {
        let capacity = (CAPACITY * u64::from(volumes)) as usize;
        let mut machine = Machine::new(volumes, Durability::Interval(Duration::from_secs(1)), seed);
        let mut store = machine.with_database();
        while machine.bytes() < capacity * 45 / 100 {
            machine.write(&store).expect("there is room");
        }
        let mut written = 0;
        for round in 0..4 {
            while written < capacity * (round + 1) {
                match machine.overwrite(&store) {
                    Ok(bytes) => written += bytes,
                    Err(Error::OutOfSpace(_)) => machine.wait_for_room(&store),
                    Err(error) => panic!("{error}"),
                }
            }
            machine.check(&store, "overwritten");
            store = machine.restart(store, false);
            machine.check(&store, "overwritten, after a death");
        }
    }
}

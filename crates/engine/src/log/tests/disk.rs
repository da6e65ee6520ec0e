//! The store on a spinning disk, in virtual time: how much of the disk's bandwidth users get, and what takes the rest.
//!
//! Everyday rounds are short. `LOG_DISK="put=never live=0.6 fills=24" cargo test -p plimsoll-engine --release --
//! --nocapture on_a_disk_as_given` plays a given round and prints its account.

use std::cell::{Cell, RefCell};

use futures_util::future::{join, join_all};
use policy::budget::Share;
use policy::contract::catalogue;
use policy::contract::spec::Bought;
use policy::disk::Busy;
use policy::time::Instant;
use policy::units::Bytes as Size;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::gate::Gate;
use volume::layer::simulate::Simulate;

use super::*;

/// The load of a round, and its store.
#[derive(Clone, Debug)]
struct Shape {
    capacity: u64,
    options: Options,
    value: usize,
    clients: u32,
    load: Load,
    lives: bool,
    fills: f64,
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Load {
    /// Keys in turn, cyclically.
    Cyclic,
    Random,
    /// Seven series with equally many slots, each half as fast as the one before.
    Series,
}

impl Shape {
    fn new(live: f64) -> Self {
        let disk = catalogue::find("hdd-7200").unwrap();
        let disk = disk.contract(Some(Size(64 << 30)), Bought::default()).unwrap();
        let mut options = Options::new(1);
        options.live = live;
        options.file_bytes = 2 * MIB;
        options.durability = Durability::Never;
        options.groups = 1;
        options.device = Device::of(&disk);
        Self {
            capacity: 128 * MIB,
            options,
            value: 64 << 10,
            clients: 8,
            load: Load::Cyclic,
            lives: true,
            fills: 4.0,
            seed: 1,
        }
    }

    fn set(&mut self, name: &str, text: &str) {
        let number: f64 = text.parse().unwrap_or_default();
        let options = &mut self.options;
        match name {
            "capacity" => self.capacity = number as u64 * MIB,
            "file" => options.file_bytes = (number * MIB as f64) as u64,
            "value" => self.value = number as usize * 1024,
            "live" => options.live = number,
            "target" => options.target = number,
            "groups" => options.groups = number as u8,
            "partitions" => options.partitions = number as u16,
            "clients" => self.clients = number as u32,
            "fills" => self.fills = number,
            "seed" => self.seed = number as u64,
            "lives" => self.lives = number != 0.0,
            "rule" => options.rule = Rule::named(text).unwrap(),
            "put" => {
                options.durability = match text {
                    "always" => Durability::Always,
                    "interval" => Durability::Interval(Duration::from_secs(1)),
                    _ => Durability::Never,
                }
            }
            "load" => {
                self.load = match text {
                    "random" => Load::Random,
                    "series" => Load::Series,
                    _ => Load::Cyclic,
                }
            }
            _ => panic!("{name}?"),
        }
    }

    fn record(&self) -> u64 {
        format::record_len(4, self.value) as u64
    }

    fn keys(&self) -> u32 {
        (self.options.live * self.capacity as f64 / self.record() as f64) as u32
    }
}

/// The next key, and the number of puts until it comes again.
struct Source {
    load: Load,
    keys: u32,
    put: u64,
    random: Xoshiro256PlusPlus,
    /// For series: the next one due, in units of the fastest one's period.
    due: BTreeSet<(u64, u32)>,
}

const SERIES: u32 = 7;

impl Source {
    fn new(shape: &Shape) -> Self {
        let keys = shape.keys() / SERIES * SERIES;
        let due = (0..SERIES).map(|series| (0, series)).collect();
        let random = Xoshiro256PlusPlus::seed_from_u64(shape.seed);
        Self { load: shape.load, keys, put: 0, random, due }
    }

    fn next(&mut self) -> (u32, Option<u64>) {
        let n = self.put;
        self.put += 1;
        let keys = u64::from(self.keys);
        match self.load {
            Load::Cyclic => ((n % keys) as u32, Some(keys)),
            Load::Random => (self.random.random_range(0..self.keys), None),
            Load::Series => {
                let (due, series) = self.due.pop_first().expect("there are series");
                self.due.insert((due + (1 << series), series));
                let slots = keys / u64::from(SERIES);
                let slot = (due >> series) % slots;
                // The number of puts for each cycle of the slowest series.
                let turn = 2.0 - 0.5f64.powi(SERIES as i32 - 1);
                let again = slots as f64 * f64::from(1 << series) * turn;
                ((slot * u64::from(SERIES) + u64::from(series)) as u32, Some(again as u64))
            }
        }
    }
}

/// The results of a round.
struct Played {
    /// MB/s, fill by fill of the disk.
    pace: Vec<f64>,
    /// When each put was answered, in seconds.
    answered: Vec<f64>,
    figures: Figures,
    /// Over the second half of the puts.
    amplification: f64,
    whole: f64,
    peak: f64,
    busy: Busy,
    span: Duration,
    bytes: u64,
    requests: u64,
    put: u64,
    refused: u64,
}

fn play(shape: &Shape) -> Played {
    let clock = Clock::simulated();
    let disk = catalogue::find("hdd-7200").unwrap();
    let contract = disk.contract(Some(Size(64 << 30)), Bought::default()).unwrap();
    let mem = Mem::with_capacity("d", shape.capacity);
    let disk = Arc::new(Simulate::new(mem, &contract, clock.clone(), 1));
    let gate = Gate::new(Arc::clone(&disk), "d", &contract, Share::default(), clock.clone());
    let members = vec![Member::new("d", gate)];
    let opening = Store::open(members, shape.options.clone(), clock.clone(), Some(ID));
    let (store, _) = clock.run(opening).unwrap();
    let total = (shape.fills * shape.capacity as f64 / shape.record() as f64) as u64;
    let first_fill = shape.capacity / shape.record();
    let source = RefCell::new(Source::new(shape));
    let (refused, left) = (Cell::new(0), Cell::new(shape.clients));
    let answered = RefCell::new(Vec::<Instant>::new());
    let before = Cell::new(Counts::default());
    let peak = Cell::new(0f64);
    let value = Bytes::from(value(1, shape.value));
    let began = clock.now();
    let client = async || {
        while source.borrow().put < total {
            let (key, again) = source.borrow_mut().next();
            let lives = again.filter(|_| shape.lives).map(|again| again * shape.record());
            let key = key.to_be_bytes();
            while let Err(error) = store.put(&key, value.clone(), lives).await {
                assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
                refused.set(refused.get() + 1);
                clock.sleep(Duration::from_secs(1)).await;
            }
            let mut answered = answered.borrow_mut();
            answered.push(clock.now());
            if answered.len() as u64 == (total / 2).max(first_fill) {
                before.set(store.figures().volumes[0].counts);
            }
            if answered.len() as u64 > first_fill && answered.len().is_multiple_of(16) {
                peak.set(peak.get().max(store.figures().volumes[0].fill));
            }
        }
        left.set(left.get() - 1);
        if left.get() == 0 {
            store.close().await.unwrap();
        }
    };
    clock.run(join(join_all((0..shape.clients).map(|_| client())), store.tend(0)));
    let span = clock.now().since(began);
    let answered = answered.into_inner();
    let mut from = began;
    let pace = answered.chunks_exact(first_fill as usize).map(|fill| {
        let last = fill[fill.len() - 1];
        let secs = last.since(from).as_secs_f64();
        from = last;
        fill.len() as f64 * shape.record() as f64 / 1e6 / secs
    });
    let pace = pace.collect();
    let answered = answered.iter().map(|at| at.since(began).as_secs_f64()).collect();
    let figures = store.figures();
    let (counts, before) = (figures.volumes[0].counts, before.get());
    let meter = disk.meter();
    let since = |of: fn(&Counts) -> u64| (of(&counts) - of(&before)) as f64;
    Played {
        pace,
        answered,
        amplification: 1.0 + since(|c| c.copied_bytes) / since(|c| c.put_bytes),
        whole: since(|c| c.died_whole) / (since(|c| c.died_whole) + since(|c| c.merged)),
        peak: peak.get(),
        busy: meter.disk.unwrap(),
        span,
        bytes: meter.total.bytes,
        requests: meter.total.requests,
        put: counts.put_bytes,
        refused: refused.get(),
        figures,
    }
}

impl Played {
    fn account(&self) -> String {
        let secs = self.span.as_secs_f64();
        let part = |time: Duration| 100.0 * time.as_secs_f64() / secs;
        let Busy { seek, turn, transfer } = self.busy;
        let counts = &self.figures.volumes[0].counts;
        format!(
            "{:.1} MB/s put; a second of the disk: {:.0} % transfer, {:.0} % seek, {:.0} % turn, {:.0} % \
             idle; {} requests of {:.0} KiB; WA {:.3}, {:.2} died whole, peak {:.3}, {} merged, read {:.2} of \
             put, {} refused, {} delayed {:?}\nby fill {:.0?}",
            self.put as f64 / 1e6 / secs,
            part(transfer),
            part(seek),
            part(turn),
            100.0 - part(self.busy.total()),
            self.requests,
            self.bytes as f64 / 1024.0 / self.requests as f64,
            self.amplification,
            self.whole,
            self.peak,
            counts.merged,
            counts.read_bytes as f64 / self.put as f64,
            self.refused,
            counts.delayed,
            counts.delay,
            self.pace,
        )
    }
}

/// The disk gives 135 MB/s in one run.
#[test]
fn most_of_a_disk_reaches_those_who_put() {
    let mut shape = Shape::new(0.6);
    (shape.capacity, shape.options.file_bytes, shape.fills) = (256 * MIB, 16 * MIB, 5.0);
    let played = play(&shape);
    let is_right = |&rate: &f64| rate > 95.0 && rate >= 0.85 * played.pace[0];
    assert!(played.pace.iter().all(is_right), "{}", played.account());
    assert_eq!(played.amplification, 1.0);
}

/// Full files that waited for their sync were once not counted: puts filled five of them at the speed of memory, and
/// then no put was answered until one was on the disk.
#[test]
fn puts_are_answered_as_evenly_as_the_disk_writes() {
    let mut shape = Shape::new(0.6);
    (shape.capacity, shape.options.file_bytes, shape.clients) = (512 * MIB, 16 * MIB, 64);
    let played = play(&shape);
    // While the disk writes half a file's worth, a put waits for no more than a piece and the sealing of a file.
    let window = 8e6 / 135e6;
    let mut longest = 0f64;
    let mut from = 0.0;
    for &at in &played.answered {
        longest = longest.max(at - from);
        from = at;
    }
    assert!(longest < window, "no put was answered for {longest:.3} s; {}", played.account());
    let first = played.answered.iter().take_while(|at| **at < window).count() as f64;
    let ahead = first * shape.record() as f64 - 8e6;
    assert!(ahead < 9e6, "{ahead} bytes were answered before the disk had them");
}

/// Each group of durable answers costs a turn of the disk, and a group holds the puts of all waiting clients.
#[test]
fn those_who_wait_for_a_disk_share_its_turns() {
    let rate = |clients| {
        let mut shape = Shape::new(0.6);
        (shape.options.durability, shape.clients, shape.fills) = (Durability::Always, clients, 1.0);
        let played = play(&shape);
        played.put as f64 / 1e6 / played.span.as_secs_f64()
    };
    let [one, eight] = [1, 8].map(rate);
    assert!(eight > 4.5 * one, "{eight} against {one}");
}

#[test]
fn files_die_whole_on_a_disk_that_is_nearly_full() {
    for lives in [true, false] {
        let mut shape = Shape::new(0.85);
        (shape.capacity, shape.options.file_bytes) = (512 * MIB, 4 * MIB);
        (shape.value, shape.lives, shape.fills) = (128 << 10, lives, 4.0);
        let played = play(&shape);
        assert!(played.amplification <= 1.05, "lives: {lives}; {}", played.account());
        assert_eq!(played.refused, 0);
    }
}

/// At equal peak fill, which decides about delays.
#[test]
fn where_series_differ_a_disk_copies_less_than_by_greed() {
    let mut shape = Shape::new(0.7);
    (shape.load, shape.fills) = (Load::Series, 8.0);
    (shape.options.file_bytes, shape.options.groups) = (MIB, 4);
    let ours = play(&shape);
    (shape.options.rule, shape.options.target) = (Rule::Greedy, 0.93);
    let greedy = play(&shape);
    let accounts = || format!("{}\n{}", ours.account(), greedy.account());
    assert!(ours.amplification <= 0.85 * greedy.amplification, "{}", accounts());
    assert!((ours.peak - greedy.peak).abs() < 0.02, "{}", accounts());
}

#[test]
fn on_a_disk_as_given() {
    let Ok(given) = std::env::var("LOG_DISK") else { return };
    for given in given.split(',') {
        let mut shape = Shape::new(0.5);
        for (name, text) in given.split_whitespace().filter_map(|part| part.split_once('=')) {
            shape.set(name, text);
        }
        println!("{given}\n{}", play(&shape).account());
    }
}

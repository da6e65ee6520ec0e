//! A mover on a pool of volumes with contracts, in virtual time.

use std::cell::Cell;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all, join3, select};
use parking_lot::Mutex;
use policy::budget::Share;
use policy::contract::{Contract, Counted, Latency, Limit, Percentiles};
use policy::intent::{Family, KeyRange, Kind};
use policy::latency::Times;
use policy::migrate::{Policy, Terms, Whence, Why};
use policy::placement::{Single, VolumeId};
use policy::purpose::{Class, Origin, Step};
use policy::units::MIB;
use policy::weight::Seen;
use pool::mover::{Figures, GateLoad, Mover};
use pool::spread::{Checksum, Opening, Spread};
use pool::{Member, ObjectId};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::gate::Gate;
use volume::mem::Mem;
use volume::{Clock, Intent, Io, IoBuf, IoBufMut, Object, Volume};

use super::jitter::Jitter;
use super::rig::{POOL, mems, name};

const LINE: u64 = 400;
const TABLES: u64 = 8;
const READ: Io = Io::new(Origin::UserRead, Step::Data);

/// Three volumes of 400 operations a second, and a pool that places everything on the first.
struct Scene {
    clock: Clock,
    gates: Vec<Arc<Gate<Jitter<Mem>>>>,
    pool: Spread,
    /// How long users' reads took.
    took: Mutex<Times>,
}

impl Scene {
    async fn open(clock: &Clock, mems: Vec<Mem>) -> Self {
        Self::open_with(clock, mems, 1).await
    }

    async fn open_with(clock: &Clock, mems: Vec<Mem>, copies: usize) -> Self {
        Self::open_slow(clock, mems, copies, Duration::ZERO, Latency::default()).await
    }

    /// On volumes of this latency as their contract has it, of which the first takes longer.
    async fn open_slow(
        clock: &Clock,
        mems: Vec<Mem>,
        copies: usize,
        slow: Duration,
        latency: Latency,
    ) -> Self {
        let limit = Limit { counts: Counted::Ops, rate_per_sec: LINE, depth: LINE };
        let contract = Contract { limits: vec![limit], latency, ..Contract::unlimited() };
        let gate = |(at, mem): (usize, &Mem)| {
            let share = Share::default();
            let each = if at == 0 { slow } else { Duration::ZERO };
            let device = Jitter::slow(mem.clone(), clock, 1, each);
            Arc::new(Gate::new(device, mem.label(), &contract, share, clock.clone()))
        };
        let gates: Vec<_> = mems.iter().enumerate().map(gate).collect();
        let members = mems.iter().zip(&gates);
        let members = members.map(|(mem, gate)| Member::new(mem.label(), Arc::clone(gate)));
        let opening = Opening::new(Single).copies(copies).create_if_missing(POOL);
        let pool = Spread::open(members.collect(), opening).await.expect("the pool opens");
        Self { clock: clock.clone(), gates, pool, took: Mutex::default() }
    }

    /// Tables of a mebibyte, `t0` and so on, each with its own keys.
    async fn write_tables(&self) {
        for number in 0..TABLES {
            self.write_table(&format!("t{number}"), 1, number, Origin::Flush).await;
        }
    }

    async fn write_table(&self, text: &str, level: u8, number: u64, origin: Origin) {
        let io = Io::new(origin, Step::Data);
        let intent = intent(level, number);
        let written = self.pool.write_whole(&name(text), &intent, data(number), io).await;
        written.expect("there is room");
    }

    /// The same for a table whose keys and length are unknown before it is complete.
    async fn stream_table(&self, text: &str, level: u8, number: u64, origin: Origin) {
        let (io, name) = (Io::new(origin, Step::Data), name(text));
        let known = intent(level, number);
        let Kind::Table { family, level, .. } = known.kind.clone() else { unreachable!() };
        let unknown = Intent { kind: Kind::Table { family, level, range: None }, ..Intent::DATA };
        let table = self.pool.create(&name, &unknown).await.expect("there is room");
        table.write_at(0, data(number), io).await.expect("there is room");
        table.sync(io).await.expect("volumes are well");
        let mut checksum = Checksum::default();
        checksum.update(&data(number));
        let sealed = self.pool.seal_table(&name, &checksum, &known, origin).await;
        sealed.expect("volumes are well");
    }

    /// Reads tables as fast as gates allow, with sixteen concurrent reads.
    async fn read_tables(&self, tables: u64) {
        self.read_by(16, Duration::ZERO, tables).await;
    }

    /// So many readers read tables. Each pauses after a read.
    async fn read_by(&self, readers: u64, pause: Duration, tables: u64) {
        let random = Mutex::new(Xoshiro256PlusPlus::seed_from_u64(5));
        let handles = (0..tables).map(async |number| {
            self.pool.open_handle(&name(&format!("t{number}"))).await.expect("it is there")
        });
        let handles = join_all(handles).await;
        let readers = (0..readers).map(async |_| {
            loop {
                let (table, page) = {
                    let mut random = random.lock();
                    (random.random_range(0..handles.len()), random.random_range(0..MIB / 4096))
                };
                let into = IoBufMut::zeroed(4096);
                let began = self.clock.now();
                handles[table].read_at(page * 4096, into, READ).await.expect("a page");
                self.took.lock().record(self.clock.now().since(began));
                self.clock.sleep(pause).await;
            }
        });
        join_all(readers).await;
    }

    /// Updates the weights of volumes each second.
    async fn weigh(&self, from: u32) {
        for second in from.. {
            self.clock.sleep(Duration::from_secs(1)).await;
            let seen = (0..).zip(&self.gates).map(|(id, gate)| Seen {
                volume: VolumeId(id),
                paid: Some(LINE),
                commits: gate.meter().classes[Class::Commit.index()].spent.ops,
                saturated: false,
                answer: gate.meter().usual_read,
            });
            self.pool.on_second(second, &seen.collect::<Vec<_>>());
        }
    }

    fn look(&self) -> Vec<GateLoad> {
        let load = |(id, gate): (u16, &Arc<Gate<Jitter<Mem>>>)| {
            let meter = gate.meter();
            let users = &meter.classes[Class::Foreground.index()];
            let commits = &meter.classes[Class::Commit.index()];
            GateLoad {
                volume: VolumeId(id),
                line: Some(LINE as f64),
                line_bytes: None,
                answer: None,
                granted: users.spent.plus(commits.spent).less(meter.copies().spent),
                reads: users.granted - meter.copies().granted,
                waited: users.waits.total - meter.copies().waited,
                last_second: meter.last_second.ops,
            }
        };
        (0..).zip(&self.gates).map(load).collect()
    }

    fn mover(&self, policy: Policy) -> (impl Future<Output = ()>, Arc<Mutex<Figures>>) {
        let mover = Mover::new(self.pool.clone(), self.clock.clone(), policy, Terms::default());
        let figures = mover.figures();
        (mover.run(|| self.look()), figures)
    }

    fn reads(&self) -> Vec<u64> {
        let reads =
            |gate: &Arc<Gate<Jitter<Mem>>>| gate.meter().classes[Class::Foreground.index()].granted;
        self.gates.iter().map(reads).collect()
    }

    fn id(&self, text: &str) -> ObjectId {
        let objects = self.pool.objects();
        objects.into_iter().find(|object| object.name == name(text)).expect("it is there").id
    }

    fn copies(&self, text: &str) -> usize {
        self.pool.copies_of(self.id(text)).len()
    }
}

/// A table with keys that no table of another number has.
fn intent(level: u8, number: u64) -> Intent {
    let key = |at: u64| (number * 100 + at).to_be_bytes().into();
    let range = Some(KeyRange { first: key(0), last: key(99) });
    let kind = Kind::Table { family: Family("f".into()), level: Some(level), range };
    Intent { kind, len: None, ..Intent::DATA }
}

fn data(number: u64) -> IoBuf {
    IoBuf::from(&vec![number as u8; MIB as usize][..])
}

/// Runs `all` until `story` ends.
async fn while_told(story: impl Future<Output = ()>, all: impl Future) {
    let all = async {
        all.await;
        pending::<()>().await;
    };
    select(pin!(story), pin!(all)).await;
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn hot_tables_are_copied_and_their_reads_use_all_volumes() {
    becomes_level(false);
}

/// A compaction of all hot tables takes long on a hot volume.
#[test]
fn hot_tables_that_are_compacted_for_long_are_copied_too() {
    becomes_level(true);
}

fn becomes_level(leaving: bool) {
    let clock = Clock::simulated();
    clock.run(async {
        let scene = Scene::open(&clock, mems(3)).await;
        scene.write_tables().await;
        for number in 0..TABLES {
            scene.pool.set_table_leaving(&name(&format!("t{number}")), leaving);
        }
        let (mover, figures) = scene.mover(Policy::Level);
        let (hot, cold) = (Cell::new(0), Cell::new(0));
        let story = async {
            clock.sleep(seconds(20)).await;
            cold.set(scene.reads().iter().sum());
            assert_eq!(scene.reads()[1..], [0, 0], "all is on the first volume");
            clock.sleep(seconds(60)).await;
            let before = scene.reads();
            clock.sleep(seconds(20)).await;
            let after = scene.reads();
            hot.set(after.iter().sum::<u64>() - before.iter().sum::<u64>());
            for (after, before) in after.iter().zip(before) {
                let used = (after - before) as f64 / (20 * LINE) as f64;
                assert!(used > 0.9, "{used}");
            }
        };
        let all = join3(scene.read_tables(TABLES), scene.weigh(0), mover);
        while_told(story, all).await;
        let figures = figures.lock().clone();
        assert!(hot.get() as f64 > 2.7 * cold.get() as f64, "{} after {}", hot.get(), cold.get());
        let heat = figures.made[Why::Heat as usize];
        assert!((2..=TABLES * 2).contains(&heat), "{figures:?}");
        assert_eq!(figures.bytes, heat * MIB);
        assert_eq!((figures.times.count(), figures.failed, figures.gone), (heat, 0, 0));
    });
}

/// No volume is near its line.
#[test]
fn tables_that_are_read_on_a_slow_device_are_copied_to_a_faster_one() {
    let clock = Clock::simulated();
    clock.run(async {
        let usual = Percentiles::constant(Duration::from_micros(200));
        let latency = Latency { read: usual, write: usual };
        let slow = Duration::from_millis(8);
        let scene = Scene::open_slow(&clock, mems(3), 1, slow, latency).await;
        scene.write_tables().await;
        let (mover, figures) = scene.mover(Policy::Level);
        let p99 = |from: &Times| {
            let took = scene.took.lock().clone();
            took.since(from).quantile(0.99).expect("there were some")
        };
        let story = async {
            clock.sleep(seconds(15)).await;
            assert!(p99(&Times::default()) > slow, "all is on the first volume");
            clock.sleep(seconds(45)).await;
            let (before, reads) = (scene.took.lock().clone(), scene.reads());
            clock.sleep(seconds(20)).await;
            assert!(p99(&before) < slow / 8, "{:?}", p99(&before));
            // It is tried again now and then.
            let by = |at: usize| scene.reads()[at] - reads[at];
            assert!(by(0) * 50 < by(1) + by(2), "{} of {}", by(0), by(1) + by(2));
        };
        let readers = scene.read_by(2, Duration::from_millis(20), TABLES);
        while_told(story, join3(readers, scene.weigh(0), mover)).await;
        let made = figures.lock().made;
        assert_eq!((made[Why::Speed as usize], made[Why::Heat as usize]), (TABLES, 0));
    });
}

/// In class idle the copies took a hundred times as long: one operation a second.
#[test]
fn lost_copies_are_made_again_at_the_line_and_users_hardly_notice() {
    const MANY: u64 = 48;
    let clock = Clock::simulated();
    clock.run(async {
        let mems = mems(3);
        let before = Scene::open(&clock, mems.clone()).await;
        for number in 0..MANY {
            before.write_table(&format!("t{number}"), 1, number, Origin::Flush).await;
        }
        before.pool.close().await.expect("volumes are well");
        drop(before);
        // All tables have one copy, and should have two.
        let scene = Scene::open_with(&clock, mems, 2).await;
        let (mover, figures) = scene.mover(Policy::Off);
        let took = || scene.took.lock().clone();
        let p99 = |from: &Times| took().since(from).quantile(0.99).expect("there were some");
        let story = async {
            clock.sleep(seconds(3)).await;
            let from = took();
            clock.sleep(seconds(6)).await;
            let alone = p99(&from);
            let (from, began) = (took(), clock.now());
            let made = || figures.lock().made[Why::Repair as usize];
            while made() < MANY {
                clock.sleep(Duration::from_millis(100)).await;
            }
            let (lasted, beside) = (clock.now().since(began), p99(&from));
            assert!(lasted < seconds(15), "{lasted:?}");
            assert!(beside.as_secs_f64() < 1.2 * alone.as_secs_f64(), "{beside:?}, not {alone:?}");
            println!("{MANY} tables in {lasted:?}; users' p99 {beside:?}, alone {alone:?}");
        };
        let mover = async {
            clock.sleep(seconds(9)).await;
            mover.await;
        };
        let all = join3(scene.read_tables(MANY), scene.weigh(0), mover);
        while_told(story, all).await;
        assert!((0..MANY).all(|number| scene.copies(&format!("t{number}")) == 2));
    });
}

#[test]
fn what_nobody_reads_any_more_goes_back_to_one_copy() {
    let clock = Clock::simulated();
    clock.run(async {
        let scene = Scene::open(&clock, mems(3)).await;
        scene.write_tables().await;
        let id = scene.id("t3");
        scene.pool.copy(id, VolumeId(2), Io::new(Origin::Copy, Step::Data)).await.unwrap();
        let (mover, figures) = scene.mover(Policy::Level);
        let story = async {
            clock.sleep(seconds(295)).await;
            assert_eq!(scene.copies("t3"), 2);
            clock.sleep(seconds(10)).await;
            assert_eq!(scene.copies("t3"), 1);
        };
        let weigh = scene.weigh(0);
        while_told(story, join(weigh, mover)).await;
        assert_eq!(figures.lock().dropped[Whence::Cold as usize], 1);
    });
}

#[test]
fn tables_leave_a_volume_that_is_drained_without_any_policy() {
    let clock = Clock::simulated();
    clock.run(async {
        let scene = Scene::open(&clock, mems(3)).await;
        scene.write_tables().await;
        // Compacted, but still open for a reader.
        scene.pool.set_table_leaving(&name("t0"), true);
        scene.pool.set_draining(VolumeId(0), true).await.unwrap();
        let (mover, figures) = scene.mover(Policy::Off);
        let story = async {
            clock.sleep(seconds(45)).await;
            for number in 0..TABLES {
                let copies = scene.pool.copies_of(scene.id(&format!("t{number}")));
                assert!(copies.iter().all(|copy| copy.layout.volumes() != [VolumeId(0)]));
            }
        };
        while_told(story, mover).await;
        let figures = figures.lock().clone();
        assert_eq!(figures.made[Why::Drain as usize], TABLES);
        assert_eq!(figures.dropped[Whence::Drain as usize], TABLES);
    });
}

#[test]
fn a_mover_that_ends_at_any_moment_leaves_nothing_behind() {
    let leaves = |mems: &[Mem]| -> usize {
        let names = mems.iter().flat_map(|mem| mem.image().into_keys());
        names.filter(|name| name.as_str().ends_with(".tab")).count()
    };
    let (mut between, mut cut) = (0, 0);
    // The first copies begin 200 ms apart, and take some milliseconds.
    let begins = [1_000_000, 1_200_000, 1_400_000];
    for micros in begins.into_iter().flat_map(|at| (at..at + 6000).step_by(400)) {
        let clock = Clock::simulated();
        let mems = mems(3);
        clock.run(async {
            let scene = Scene::open(&clock, mems.clone()).await;
            scene.write_tables().await;
            scene.pool.set_draining(VolumeId(0), true).await.unwrap();
            let (mover, _) = scene.mover(Policy::Off);
            while_told(clock.sleep(Duration::from_micros(micros)), mover).await;
        });
        let before = leaves(&mems);
        clock.run(async {
            let scene = Scene::open(&clock, mems.clone()).await;
            assert_eq!(scene.pool.check().await.unwrap().findings, []);
            let copies = (0..TABLES).map(|number| scene.copies(&format!("t{number}")));
            let copies: usize = copies.sum();
            assert_eq!(copies, leaves(&mems), "{micros}");
            between += u64::from((TABLES as usize + 1..TABLES as usize * 2).contains(&copies));
            cut += u64::from(before > copies);
        });
    }
    assert!(between > 3 && cut > 0, "{between} ended between copies, {cut} in the middle of one");
}

#[test]
fn what_takes_the_place_of_a_hot_table_begins_with_two_copies() {
    let clock = Clock::simulated();
    clock.run(async {
        let scene = Scene::open(&clock, mems(3)).await;
        scene.write_tables().await;
        let (mover, _) = scene.mover(Policy::Level);
        let story = async {
            clock.sleep(seconds(15)).await;
            let compaction = Origin::Compaction { level: 1 };
            scene.pool.set_table_leaving(&name("t0"), true);
            scene.write_table("early", 2, 0, compaction).await;
            assert_eq!(scene.copies("early"), 1, "nothing is hot for long enough");
            clock.sleep(seconds(30)).await;
            scene.pool.set_table_leaving(&name("t1"), true);
            scene.write_table("hot", 2, 1, compaction).await;
            assert_eq!(scene.copies("hot"), 2);
            // The tables that it replaces have no reads.
            scene.write_table("cold", 2, 99, compaction).await;
            assert_eq!(scene.copies("cold"), 1);
        };
        let reads = scene.read_tables(TABLES);
        let weigh = scene.weigh(0);
        while_told(story, join3(reads, weigh, mover)).await;
    });
}

/// Its second copy needs reads of a hot volume, so the mover makes it, paced as all copies for heat, before
/// the next decision.
#[test]
fn a_streamed_table_gets_the_copies_that_one_written_whole_begins_with() {
    let clock = Clock::simulated();
    clock.run(async {
        let scene = Scene::open(&clock, mems(3)).await;
        scene.write_tables().await;
        let (mover, figures) = scene.mover(Policy::Level);
        let story = async {
            clock.sleep(seconds(45)).await;
            let compaction = Origin::Compaction { level: 1 };
            let heat = figures.lock().made[Why::Heat as usize];
            scene.pool.set_table_leaving(&name("t1"), true);
            scene.write_table("whole", 2, 1, compaction).await;
            scene.stream_table("streamed", 2, 1, compaction).await;
            scene.stream_table("cold", 2, 99, compaction).await;
            assert_eq!(scene.copies("whole"), 2);
            clock.sleep(seconds(4)).await;
            assert_eq!((scene.copies("streamed"), scene.copies("cold")), (2, 1));
            assert_eq!((scene.pool.streamed_tables(), scene.pool.begun_with_more()), (2, 2));
            assert_eq!(figures.lock().made[Why::Heat as usize], heat + 1, "and no more");
        };
        let reads = scene.read_tables(TABLES);
        let weigh = scene.weigh(0);
        while_told(story, join3(reads, weigh, mover)).await;
    });
}

#[test]
fn a_table_from_memory_begins_as_hot_as_the_last_one_was() {
    let clock = Clock::simulated();
    clock.run(async {
        let scene = Scene::open(&clock, mems(3)).await;
        scene.write_table("t0", 0, 0, Origin::Flush).await;
        let (mover, _) = scene.mover(Policy::Level);
        let story = async {
            clock.sleep(seconds(45)).await;
            // With other keys it inherits no heat of an existing table.
            scene.write_table("next", 0, 50, Origin::Flush).await;
            assert_eq!(scene.copies("next"), 3, "as many as there are volumes");
            scene.write_table("deep", 1, 99, Origin::Compaction { level: 0 }).await;
            assert_eq!(scene.copies("deep"), 1);
        };
        let (reads, weigh) = (scene.read_tables(1), scene.weigh(0));
        while_told(story, join3(reads, weigh, mover)).await;
    });
}

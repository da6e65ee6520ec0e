//! A key-value store and a store of time series on one pool.

use std::time::Instant;

use engine::kv::{Change, KeyValue};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::Volume as _;

use super::*;
use crate::kv::Compression;

const CAPACITY: u64 = 80_000_000;
/// On a real volume room is back within seconds; beside other tests it may take longer.
const PATIENCE: Duration = Duration::from_secs(180);
/// Bytes of a key's value, and of a point's text.
const VALUE: usize = 50_000;
const TEXT: usize = 1500;

/// Volumes in memory of this size together, and two stores on them. Their data does not compress.
struct Stage {
    mems: Vec<Mem>,
    pool: Arc<Pool>,
    keys: kv::Store,
    points: Store,
    random: Xoshiro256PlusPlus,
    time: i64,
}

fn volume(mem: &Mem) -> Volume {
    Volume::other(mem.label(), mem.clone(), Contract::unlimited())
}

impl Stage {
    fn new(volumes: u64, copies: usize) -> Self {
        let mem = |n| Mem::with_capacity(&format!("v{n}"), CAPACITY / volumes);
        let mems: Vec<_> = (0..volumes).map(mem).collect();
        let pool = Pool::builder().volumes(mems.iter().map(volume)).copies(copies).open().unwrap();
        let pool = Arc::new(pool);
        let options = kv::Options {
            memory: 32 << 20,
            compression: Compression::None,
            compression_last: Compression::None,
            ..kv::Options::default()
        };
        let keys = kv::Store::builder().pool(Arc::clone(&pool)).options(options).open().unwrap();
        let options = Options {
            buffer_bytes: 1 << 20,
            source_bytes: 64 << 10,
            wal_bytes: 2 << 20,
            ..Options::new(1)
        };
        let points = Store::builder().pool(Arc::clone(&pool)).options(options).open().unwrap();
        points.create_database(database()).unwrap();
        let random = Xoshiro256PlusPlus::seed_from_u64(1);
        Self { mems, pool, keys, points, random, time: 0 }
    }

    /// Free bytes on the volumes, each copy counted once.
    fn free(&self) -> u64 {
        let free = self.mems.iter().map(|mem| block_on(mem.space()).unwrap().free);
        policy::room::writable(&free.collect::<Vec<_>>(), block_on(self.pool.room()).copies)
    }

    fn put(&mut self, n: u64) -> engine::kv::Result<()> {
        let mut value = vec![0; VALUE];
        self.random.fill(&mut value[..]);
        self.keys.apply(&[Change::Put(key(n), value.into())])
    }

    fn delete(&self, keys: std::ops::Range<u64>) {
        for n in keys {
            self.keys.apply_freeing(&[Change::Delete(key(n))]).expect("a full pool takes deletes");
        }
    }

    /// Writes a point; whether it was taken.
    fn point(&mut self) -> bool {
        self.batch(1)
    }

    /// Writes some points at once; whether they were taken.
    fn batch(&mut self, count: i64) -> bool {
        let mut batch = Batch::new("db");
        for n in 1..=count {
            let text: String = (0..TEXT).map(|_| self.random.random_range('!'..'~')).collect();
            batch.begin("m");
            batch.field("f", Value::Text(&text));
            batch.end(self.time + n).expect("a row that fits");
        }
        match self.points.write(batch) {
            Ok(_) => {
                self.time += count;
                true
            }
            Err(Error::Series(engine::series::Error::OutOfSpace(_))) => false,
            Err(other) => panic!("{other}"),
        }
    }
}

fn key(n: u64) -> bytes::Bytes {
    format!("key {n:06}").into()
}

fn in_time(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn keys_leave_points_the_room_for_their_deletes() {
    let mut stage = Stage::new(1, 1);
    // An eighth of the pool.
    (0..CAPACITY / 8 / TEXT as u64).for_each(|_| assert!(stage.point()));
    let mut keys = 0;
    while stage.put(keys).is_ok() {
        keys += 1;
    }
    assert!(stage.keys.health().writes_refused.is_some());
    let kept = stage.points.room_kept();
    // The keys' own reserve, of which their last flushes may have a part, would be enough for the points alone.
    let both = stage.pool.reserve();
    let left = stage.free();
    assert!(left >= kept + (both - kept) * 5 / 6, "{left} of {both} bytes are left");
    let all = Span { from: 0, to: stage.time };
    stage.points.delete(Selector::all("db"), all).expect("a full pool takes deletes");
    in_time("room is back for points", || stage.point());
    stage.delete(0..keys);
    in_time("room is back for puts", || stage.put(keys).is_ok());
}

#[test]
fn points_leave_keys_the_room_for_their_deletes() {
    let mut stage = Stage::new(1, 1);
    // An eighth of the pool.
    let keys = CAPACITY / 8 / VALUE as u64;
    (0..keys).for_each(|n| stage.put(n).unwrap());
    // A nearly full store delays each batch, whatever its size.
    while stage.batch(200) {}
    let kept = stage.pool.reserve() - stage.points.room_kept();
    assert!(stage.free() >= kept, "{} of {kept} bytes are left to the keys", stage.free());
    let mut more = keys;
    while stage.put(more).is_ok() {
        more += 1;
    }
    assert!(stage.keys.health().writes_refused.is_some());
    stage.delete(0..more);
    in_time("room is back for puts", || stage.put(more).is_ok());
    assert_eq!(times(&stage.points), (1..=stage.time).collect::<Vec<_>>());
    let all = Span { from: 0, to: stage.time };
    stage.points.delete(Selector::all("db"), all).expect("a full pool takes deletes");
    in_time("room is back for points", || stage.point());
    (0..more).for_each(|n| assert_eq!(stage.keys.get(key(n)).unwrap(), None, "{n}"));
    assert_eq!(stage.keys.get(key(more)).unwrap().map(|value| value.len()), Some(VALUE));
}

/// Two stores of one name once wrote the same files.
#[test]
fn a_name_is_of_one_open_store() {
    let mem = Mem::new("v");
    let pool = Arc::new(Pool::builder().volume(volume(&mem)).open().unwrap());
    let open = || Store::builder().pool(Arc::clone(&pool)).open();
    let first = open().unwrap();
    let refused = open().err().expect("it is open");
    assert!(matches!(&refused, Error::Pool(e) if e.kind() == ErrorKind::Fenced), "{refused}");
    let named = kv::Options { name: "series".into(), ..kv::Options::default() };
    let keys = kv::Store::builder().pool(Arc::clone(&pool)).options(named);
    assert!(keys.open().is_err_and(|refused| refused.to_string().contains("open already")));
    first.close().unwrap();
    open().unwrap().close().unwrap();
}

impl Stage {
    /// Writes a few keys and points.
    fn write(&mut self, round: u64) {
        (0..20).for_each(|n| self.put(round * 20 + n).unwrap());
        assert!((0..200).all(|_| self.point()));
    }

    /// Checks that all of `rounds` is there.
    fn verify(&self, rounds: u64) {
        for n in 0..rounds * 20 {
            assert_eq!(self.keys.get(key(n)).unwrap().map(|value| value.len()), Some(VALUE), "{n}");
        }
        assert_eq!(times(&self.points), (1..=self.time).collect::<Vec<_>>());
    }
}

#[test]
fn a_volume_is_drained_and_another_lost_while_both_stores_write() {
    let mut stage = Stage::new(3, 2);
    stage.write(0);
    let plan = FaultPlan::new(1);
    let add = |stage: &Stage, name: &str| {
        let mem = Mem::with_capacity(name, CAPACITY);
        let fault = Fault::new(mem, name, &plan, stage.pool.clock());
        stage.pool.add_volume(&Volume::other(name, fault, Contract::unlimited())).unwrap();
    };
    add(&stage, "d");
    add(&stage, "e");

    // Drained.
    let pool = Arc::clone(&stage.pool);
    let io = volume::Io::new(policy::purpose::Origin::Bulk, policy::purpose::Step::Data);
    let draining = std::thread::spawn(move || {
        let id = pool.volume_id("v0").expect("it is in the pool");
        let begun = Instant::now();
        // Files that are being written leave once they are synced.
        while !block_on(pool.drain(id, io, |_| ())).unwrap().objects.is_empty() {
            assert!(begun.elapsed() < PATIENCE, "v0 is not empty");
            std::thread::sleep(Duration::from_millis(50));
        }
        drop(pool);
    });
    let mut rounds = 1;
    while !draining.is_finished() || rounds < 5 {
        stage.write(rounds);
        rounds += 1;
    }
    draining.join().unwrap();
    stage.pool.remove_volume("v0").unwrap();
    stage.verify(rounds);

    // Lost, in the middle of writes, and replaced.
    plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)).volume("d"));
    for _ in 0..5 {
        stage.write(rounds);
        rounds += 1;
    }
    stage.verify(rounds);
    stage.pool.remove_lost_volume("d", false).unwrap();
    in_time("every copy is made again", || {
        let redundancy = stage.pool.redundancy(&std::collections::BTreeSet::new());
        redundancy.short + redundancy.doubtful == 0
    });
    stage.write(rounds);
    stage.verify(rounds + 1);
    let pieces = block_on(stage.pool.list()).unwrap().into_iter();
    let pieces: Vec<_> = pieces.filter(|listed| listed.name.as_str().contains("reserve")).collect();
    assert_eq!(pieces, [], "the reserve is the pool's, and is not copied");
}

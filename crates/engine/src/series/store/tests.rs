use std::collections::{BTreeMap, BTreeSet};

use policy::placement::RoundRobin;
use pool::spread::{Opening, Spread};
use pool::{Member, PoolId};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::crash::{Crash, Power};
use volume::mem::Mem;
use volume::{Name, Volume};

use super::*;
use crate::log::StoreId;
use crate::series::{Kind, Predicate, Reason, Scalar, Test, Value};

mod cases;
mod copies;
mod full;
mod gone;
mod inspected;
mod model;
mod owed;
mod replayed;
mod scrub;
mod sizes;
mod upkeep;

const ID: StoreId = StoreId([9; 16]);
const SECOND: i64 = 1_000_000_000;

/// A machine with one volume, or with a pool of several, and the options of its store.
struct World {
    clock: Clock,
    power: Power,
    crash: Crash,
    /// The pool's further volumes.
    others: Vec<Crash>,
    /// How many volumes are a member of the pool; more than one of them are a pool themselves.
    member_volumes: usize,
    /// Whether the first volume of the pool is away.
    is_one_away: bool,
    options: Options,
}

impl World {
    fn new() -> Self {
        let mut options = Options::new(1);
        options.durability = Durability::Always;
        options.buffer_bytes = 64 << 10;
        options.source_bytes = 600;
        options.wal_bytes = 64 << 10;
        options.log.file_bytes = 64 << 10;
        options.log.live = 0.3;
        options.log.groups = 1;
        let power = Power::new();
        let crash = Crash::new(Mem::new("v0"), &power);
        let (others, is_one_away) = (Vec::new(), false);
        let clock = Clock::simulated();
        Self { clock, power, crash, others, member_volumes: 1, is_one_away, options }
    }

    /// A world whose store has two partitions, on a pool that keeps two copies of everything on three volumes.
    fn on_pool() -> Self {
        let mut world = Self::new();
        world.others = ["v1", "v2"].map(|name| Crash::new(Mem::new(name), &world.power)).into();
        world.options.log.partitions = 2;
        world
    }

    /// The same store, on a pool of three pools of two volumes each.
    fn on_pool_of_pools() -> Self {
        let mut world = Self::on_pool();
        let more = ["v3", "v4", "v5"].map(|name| Crash::new(Mem::new(name), &world.power));
        world.others.extend(more);
        world.member_volumes = 2;
        world
    }

    fn pool(&self) -> volume::Result<Spread> {
        let volumes = std::iter::once(&self.crash).chain(&self.others).enumerate();
        let volumes: Vec<_> =
            volumes.map(|(at, crash)| Member::new(format!("v{at}"), crash.clone())).collect();
        let mut members = Vec::new();
        for (at, volumes) in volumes.chunks(self.member_volumes).enumerate() {
            let here = &volumes[usize::from(self.is_one_away && at == 0)..];
            match self.member_volumes {
                1 => members.extend_from_slice(here),
                _ => match self.pool_of(here.to_vec(), 1, PoolId(6 + at as u128)) {
                    Ok(pool) => members.push(Member::new(format!("pool {at}"), pool)),
                    // As the facade does: a pool without enough of its volumes is away.
                    Err(error) if self.is_one_away && error.kind().is_away() => {}
                    Err(error) => return Err(error),
                },
            }
        }
        self.pool_of(members, 2, PoolId(5))
    }

    fn pool_of(&self, members: Vec<Member>, copies: usize, id: PoolId) -> volume::Result<Spread> {
        let opening = Opening::new(RoundRobin::default()).copies(copies);
        let opening = match self.is_one_away {
            true => opening.allow_away(),
            false => opening.create_if_missing(id),
        };
        self.clock.run(Spread::open(members, opening))
    }

    fn try_open(&self) -> Result<(Store, Report)> {
        let volume: Arc<dyn Volume> = match self.others.is_empty() {
            true => Arc::new(self.crash.clone()),
            false => Arc::new(self.pool().map_err(|error| failed(&error))?),
        };
        let members = vec![("v0".to_string(), volume)];
        self.clock.run(Store::open(members, self.options.clone(), self.clock.clone(), Some(ID)))
    }

    fn open(&self) -> Store {
        self.try_open().unwrap().0
    }

    fn with_database(&self) -> Store {
        let store = self.open();
        self.clock.run(store.create_database(database(None))).unwrap();
        store
    }

    /// Starts the machine again, with the bytes that survived.
    fn reboot(&mut self, seed: u64) {
        let power = Power::new();
        for crash in std::iter::once(&mut self.crash).chain(&mut self.others) {
            *crash = Crash::new(crash.survivor(seed), &power);
        }
        self.power = power;
    }

    /// Flips some bits in one copy of an object, on the pool's first volume; returns how many. All damage is there, and no
    /// other volume goes away, so each object keeps a good copy that can be read.
    fn rot(&self, random: &mut Xoshiro256PlusPlus) -> usize {
        let image = self.crash.after_process_death().image();
        // Of a pool of pools, the inner pool has the header and the manifest of the outer one as objects, too.
        let objects = (self.member_volumes > 1).then(|| {
            let volumes = [&self.crash, &self.others[0]].map(Crash::after_process_death);
            let members = volumes.into_iter().enumerate();
            let members = members.map(|(at, mem)| Member::new(format!("v{at}"), mem)).collect();
            let opening = Opening::new(RoundRobin::default());
            let inner = self.clock.run(Spread::open(members, opening)).unwrap().objects();
            let copies = inner.into_iter().filter(|object| object.name.as_str().starts_with('o'));
            copies.map(|object| format!("o{}", object.id)).collect::<Vec<_>>()
        });
        let is_copy = |leaf: &str| match &objects {
            Some(objects) => objects.iter().any(|object| leaf.starts_with(object)),
            None => leaf.starts_with('o'),
        };
        let copies = image.iter().filter_map(|(leaf, bytes)| {
            let used: Vec<_> = (0..bytes.len()).filter(|&at| bytes[at] != 0).collect();
            (is_copy(leaf.as_str()) && !used.is_empty()).then_some((leaf, used))
        });
        let copies: Vec<_> = copies.collect();
        if copies.is_empty() {
            return 0;
        }
        let (leaf, used) = &copies[random.random_range(0..copies.len())];
        let flips = (0..random.random_range(1..6)).filter_map(|_| {
            let (at, bit) = (used[random.random_range(0..used.len())], random.random_range(0..8));
            self.crash.damage(leaf, at as u64, |byte| byte ^ 1 << bit)
        });
        flips.count()
    }

    fn tend(&self, store: &Store) {
        while self.clock.run(store.tend_once()).unwrap() {}
        while self.clock.run(store.0.log.tend_once(0)).unwrap() {}
    }

    /// The points of several series of a source, side by side.
    fn columns(&self, store: &Store, series: &[SeriesId], scan: Scan) -> Vec<Vec<(i64, Scalar)>> {
        let mut cursor = store.read_columns(series, scan);
        let mut found = vec![Vec::new(); series.len()];
        // The end of the previous piece.
        let mut behind: Option<i64> = None;
        let is_before =
            |one: i64, other: i64| if scan.descending { one > other } else { one < other };
        while let Some(columns) = self.clock.run(cursor.next()).unwrap() {
            assert_eq!(columns.len(), series.len());
            assert!(columns.iter().any(|points| !points.is_empty()));
            let times = || columns.iter().flat_map(|points| points.times.iter().copied());
            assert!(behind.is_none_or(|behind| times().all(|time| is_before(behind, time))));
            behind = if scan.descending { times().min() } else { times().max() };
            for (into, points) in found.iter_mut().zip(&columns) {
                into.extend(points.iter().map(|(time, value)| (time, value.to_scalar())));
            }
        }
        found
    }

    fn points(&self, store: &Store, series: SeriesId, scan: Scan) -> Result<Vec<(i64, Scalar)>> {
        let mut cursor = store.read(series, scan);
        let mut found = Vec::new();
        while let Some(points) = self.clock.run(cursor.next())? {
            assert!(!points.is_empty());
            found.extend(points.iter().map(|(time, value)| (time, value.to_scalar())));
        }
        Ok(found)
    }
}

fn database(keep: Option<Duration>) -> Database {
    Database { name: "db".into(), keep }
}

/// One row of one field.
fn row(batch: &mut Batch, source: &str, field: &str, time: i64, value: Value<'_>) {
    batch.begin("m");
    batch.tag("s", source);
    batch.field(field, value);
    batch.end(time).unwrap();
}

fn one(source: &str, time: i64, value: f64) -> Batch {
    let mut batch = Batch::new("db");
    row(&mut batch, source, "f", time, Value::Float(value));
    batch
}

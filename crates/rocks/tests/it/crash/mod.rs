//! The machine or the process crashes at a random moment under a live database.
//!
//! The default numbers of rounds are small; `PLIMSOLL_ROUNDS=400` runs more.

mod live;
mod steps;

use std::collections::BTreeMap;
use std::sync::Arc;

use policy::placement::Code;
use pool::spread::Spread;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rocks::Settings;
use rust_rocksdb::{Options, WriteOptions};
use volume::layer::crash::{Crash, Power};
use volume::mem::Mem;
use volume::{Clock, Volume};

use crate::support::{
    NAME, key, open, opening, options, plain, pool, pool_of, pool_of_pools, rounds, try_open,
    value, volumes,
};

const KEYS: u32 = 50;
const VOLUMES: usize = 3;

/// What a machine has.
struct Shape {
    volumes: usize,
    /// The pool that they make.
    pool: fn(Vec<Arc<dyn Volume>>) -> volume::Result<Spread>,
    /// How many volumes may be lost with a crash.
    losses: usize,
    /// The objects on volumes that a table has.
    table_leaves: usize,
}

const FLAT: Shape = Shape {
    volumes: VOLUMES,
    pool: |volumes| pool_of(volumes, opening()),
    losses: 0,
    table_leaves: 1,
};
/// Two pools, and every object is in one of them.
const JOINED: Shape =
    Shape { volumes: 4, pool: |volumes| pool_of_pools(volumes, 1), losses: 0, table_leaves: 1 };
/// Two pools, and every object is in both.
const MIRRORED: Shape = Shape { pool: |volumes| pool_of_pools(volumes, 2), ..JOINED };
/// Tables are cut into three fragments of data and two of parity.
const CODED: Shape = Shape {
    volumes: 6,
    pool: |volumes| {
        let code = Code::new(3, 2, 4 << 10).expect("a code");
        pool_of(volumes, opening().code(code).allow_away())
    },
    losses: 2,
    table_leaves: 5,
};

impl Shape {
    /// Its volumes on one power supply.
    fn machine(&self, power: &Power) -> Vec<Crash> {
        volumes(self.volumes).into_iter().map(|volume| Crash::new(volume, power)).collect()
    }

    /// The pool of what a crash left.
    fn survived(&self, survivors: &[Mem]) -> Spread {
        (self.pool)(plain(survivors)).expect("the volumes are a pool or blank")
    }

    /// The pool of what is left if as many volumes as may be are lost with the crash.
    fn survived_losses(&self, survivors: &[Mem], random: &mut Xoshiro256PlusPlus) -> Spread {
        let mut left = survivors.to_vec();
        for _ in 0..self.losses {
            left.swap_remove(random.next_u64() as usize % left.len());
        }
        self.survived(&left)
    }
}

/// The last version of a key that was acknowledged, and the last one tried.
#[derive(Default)]
struct Known {
    acknowledged: u32,
    tried: u32,
}

/// Writes versions of all keys, one after the other, until a write fails; flushes every 150 writes.
fn write_until_the_end(db: &rocks::Db, sync: bool) -> BTreeMap<u32, Known> {
    let mut options = WriteOptions::default();
    options.set_sync(sync);
    let mut known: BTreeMap<u32, Known> = BTreeMap::new();
    for version in 1.. {
        let i = version * 7 % KEYS;
        let key_known = known.entry(i).or_default();
        key_known.tried = version;
        if db.put_opt(key(i), value(i, version), &options).is_err() {
            break;
        }
        key_known.acknowledged = version;
        if version % 150 == 0 {
            let _ = db.flush();
        }
    }
    known
}

/// Checks that each key has its last acknowledged version, or the one being written at the crash.
fn check(survivors: &[Mem], known: &BTreeMap<u32, Known>, seed: u64) {
    let db = open(&pool(survivors));
    for (&i, Known { acknowledged, tried }) in known {
        let found = db.get(key(i)).expect("a get");
        let allowed = [*acknowledged, *tried].map(|v| (v > 0).then(|| value(i, v)));
        assert!(
            allowed.contains(&found),
            "seed {seed}: key {i} is {found:?}, not version {acknowledged} or {tried}"
        );
    }
    // The database still takes writes.
    db.put(b"after", b"the crash").unwrap();
    db.flush().unwrap();
}

/// Most of a round, RocksDB waits a second before a retry, in threads that all databases of the process
/// share: enough threads for all concurrent rounds.
fn patient() -> Options {
    let mut options = options();
    options.set_max_background_jobs(64);
    // RocksDB and its writers would wait for the volumes to come back.
    options.set_max_bgerror_resume_count(0);
    options
}

/// The volumes of a flat pool on one power supply.
fn machine(power: &Power) -> Vec<Crash> {
    FLAT.machine(power)
}

#[test]
fn what_was_synced_survives_a_power_cut() {
    rounds(24, |seed| {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let power = Power::new();
        let crash = machine(&power);
        let known = {
            let pool = pool_of(plain(&crash), opening()).unwrap();
            power.cut_after(random.next_u64() % 3000);
            match try_open(&pool, patient()) {
                Ok(db) => write_until_the_end(&db, true),
                Err(_) => BTreeMap::new(),
            }
        };
        assert!(power.is_off());
        let survivors: Vec<_> = crash.iter().map(|v| v.survivor(random.next_u64())).collect();
        check(&survivors, &known, seed);
    });
}

#[test]
fn what_was_written_survives_the_process() {
    rounds(16, |seed| {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let power = Power::new();
        let crash = machine(&power);
        let known = {
            let pool = pool_of(plain(&crash), opening()).unwrap();
            let db = try_open(&pool, patient()).unwrap();
            power.cut_after(random.next_u64() % 3000);
            write_until_the_end(&db, false)
        };
        let survivors: Vec<_> = crash.iter().map(Crash::after_process_death).collect();
        check(&survivors, &known, seed);
    });
}

#[test]
fn what_was_flushed_needs_no_log() {
    rounds(8, |seed| {
        let power = Power::new();
        let crash = machine(&power);
        {
            let pool = pool_of(plain(&crash), opening()).unwrap();
            let settings = Settings { wal_recycled: 0, ..Settings::default() };
            let db = rocks::open(pool, Clock::real(), NAME, patient(), settings).unwrap();
            let mut unlogged = WriteOptions::default();
            unlogged.disable_wal(true);
            for i in 0..KEYS {
                db.put_opt(key(i), value(i, 1), &unlogged).unwrap();
            }
            db.flush().unwrap();
            power.cut();
        }
        let survivors: Vec<_> = crash.iter().map(|v| v.survivor(seed)).collect();
        crate::support::check(&open(&pool(&survivors)), 0..KEYS, 1);
    });
}

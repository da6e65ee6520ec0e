//! The conformance suite of key-value stores, over several kinds of volumes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::kv::conformance::{self, Harness};
use policy::contract::Contract;
use policy::placement::Stripe;
use tempfile::TempDir;
use volume::layer::crash::{Crash, Power};

use super::*;
use crate::kv::{Durability, Family, Store};
use crate::volumes::Volume;

/// The volumes below a store under test.
pub(super) enum Ground {
    /// Directories on the disk.
    Directories(TempDir, usize),
    /// Volumes of a machine whose power can be cut.
    Machine { power: Power, volumes: Vec<Crash>, seed: u64 },
}

pub(super) struct Stores {
    ground: Ground,
    options: Options,
    opening: fn() -> Opening,
    store: Option<Store>,
    watch: Option<Watch>,
}

impl Stores {
    pub(super) fn new(ground: Ground, options: Options, opening: fn() -> Opening) -> Self {
        let mut stores = Self { ground, options, opening, store: None, watch: None };
        stores.open();
        stores
    }

    fn open(&mut self) {
        let volumes: Vec<_> = match &self.ground {
            Ground::Directories(dir, count) => {
                (0..*count).map(|n| directory(dir.path(), n)).collect()
            }
            Ground::Machine { volumes, .. } => {
                let volumes = volumes.iter().enumerate();
                let named = volumes.map(|(n, volume)| {
                    Volume::other(format!("v{n}"), volume.clone(), Contract::unlimited())
                });
                named.collect()
            }
        };
        let impatient = |options: &mut rust_rocksdb::Options| {
            // RocksDB's pause of a second would take most of a round with a cut.
            options.set_bgerror_resume_retry_interval(1000);
        };
        let builder = Store::builder()
            .volumes(volumes)
            .options(self.options.clone())
            .family(Family::main().rocks(impatient));
        let store = builder.opening((self.opening)()).open().expect("the store opens");
        if let Ground::Machine { power, .. } = &self.ground {
            self.watch = Some(Watch::start(power.clone(), Arc::clone(store.db())));
        }
        self.store = Some(store);
    }
}

/// Stops a store that has lost its power: otherwise a writer that waits for room in memory would wait until the power
/// is back.
pub(super) struct Watch {
    over: Arc<AtomicBool>,
    watching: JoinHandle<()>,
}

impl Watch {
    pub(super) fn start(power: Power, store: Arc<Db>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let watching = {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                while !over.load(Ordering::Acquire) {
                    if power.is_off() {
                        store.cancel_all_background_work(false);
                        return;
                    }
                    std::thread::park_timeout(Duration::from_millis(1));
                }
            })
        };
        Self { over, watching }
    }

    pub(super) fn end(self) {
        self.over.store(true, Ordering::Release);
        self.watching.thread().unpark();
        self.watching.join().expect("it has nothing to panic about");
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.take() {
            watch.end();
        }
    }
}

fn directory(under: &Path, n: usize) -> Volume {
    let path = under.join(format!("v{n}"));
    std::fs::create_dir_all(&path).expect("a directory in the directory of tests");
    Volume::directory(format!("v{n}"), path, Contract::unlimited())
}

impl Harness for Stores {
    fn store(&self) -> &dyn KeyValue {
        &**self.store.as_ref().expect("there is a store between reopenings").db()
    }

    fn reopen(&mut self) -> bool {
        if let Some(watch) = self.watch.take() {
            watch.end();
        }
        // Writes that a failed close cannot make durable were not promised to be.
        let _ = self.store.take().map(Store::close);
        if let Ground::Machine { power, volumes, seed } = &mut self.ground {
            *power = Power::new();
            *seed += 1;
            let survivor = |volume: &Crash| Crash::new(volume.survivor(*seed), power);
            *volumes = volumes.iter().map(survivor).collect();
        }
        self.open();
        true
    }

    fn cut_power_after(&mut self, steps: u64) -> bool {
        match &self.ground {
            Ground::Directories(..) => false,
            Ground::Machine { power, .. } => {
                power.cut_after(steps);
                true
            }
        }
    }
}

pub(super) fn in_turn() -> Opening {
    Opening::new(RoundRobin::default())
}

pub(super) fn machine(count: usize) -> Ground {
    let power = Power::new();
    let volume = |n| Crash::new(Mem::new(&format!("v{n}")), &power);
    Ground::Machine { volumes: (0..count).map(volume).collect(), power, seed: 0 }
}

/// Small memtables: flushes and compactions run during any test.
pub(super) fn restless() -> Options {
    Options {
        memtable: Some(64 * KIB),
        table_size: Some(64 * KIB),
        level_base: Some(256 * KIB),
        ..small()
    }
}

fn directories(count: usize) -> Ground {
    Ground::Directories(tempfile::tempdir().expect("a directory"), count)
}

#[test]
fn a_store_over_one_volume_of_a_machine_conforms() {
    let always = || Options { durability: Durability::Always, ..small() };
    conformance::run(|| Box::new(Stores::new(machine(1), always(), in_turn)));
}

#[test]
fn a_store_over_several_volumes_of_a_machine_conforms() {
    conformance::run(|| Box::new(Stores::new(machine(4), restless(), in_turn)));
}

#[test]
fn a_store_over_striped_volumes_conforms() {
    let striped = || Opening::new(Stripe::new(64 * KIB));
    let uncached = || Options { cache_data: false, durability: Durability::Always, ..small() };
    conformance::run(|| Box::new(Stores::new(machine(3), uncached(), striped)));
}

#[test]
fn a_store_over_directories_conforms() {
    for count in [1, 3] {
        conformance::run(|| Box::new(Stores::new(directories(count), small(), in_turn)));
    }
}

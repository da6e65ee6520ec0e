//! The place of a bench's store: on simulated volumes, or on the user's beside other stores.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use bench::ycsb::{Cache, Shape, Tally, Volume as Measured};
use plimsoll::kv::{self, CacheFigures, Options, Store};
use policy::units::Bytes;
use volume::task::block_on;
use volume::{Clock, Volume};

use super::mark::{self, Keys, Mark, Owner};
use crate::command::scratch::Scratch;
use crate::members::Members;
use crate::settings::{Kv, Pool, Settings};
use crate::wiring;

/// The peak space for each byte written, while compactions run, including the logs.
const ROOM_FOR_EACH_BYTE: u64 = 3;

/// The place.
pub(super) struct Place {
    pub(super) settings: Settings,
    /// The store's name in the pool.
    name: String,
    /// Whether to keep the store.
    pub(super) keep: bool,
    /// Dropped last.
    scratch: Option<Scratch>,
}

/// Simulated volumes.
pub(super) struct Simulated<'a> {
    pub(super) volumes: u64,
    pub(super) contract: &'a str,
    pub(super) placement: &'a str,
    pub(super) memory: &'a str,
}

impl Place {
    /// Simulated volumes in a directory under `parent` that is removed when this is dropped.
    pub(super) fn simulated(parent: &Path, simulated: &Simulated<'_>) -> anyhow::Result<Self> {
        let scratch = Scratch::new(parent, "bench")?;
        let file = scratch.path().join("plimsoll.toml");
        let settings = Settings::parse(&file, &simulated.settings())?;
        Ok(Self { settings, name: "bench".into(), keep: false, scratch: Some(scratch) })
    }

    /// The volumes of a settings file, with a separate store in their pool.
    pub(super) fn of_user(file: &Path, store: &str, keep: bool) -> anyhow::Result<Self> {
        let settings = Settings::load(file)?;
        ensure!(
            settings.kv.is_some(),
            "{} has no section [kv]: the bench takes the store's pool and memory from it",
            file.display()
        );
        Ok(Self { settings, name: store.into(), keep, scratch: None })
    }

    /// Opens a store that holds the first `records` or none, and returns their number. A store of an earlier run is
    /// reused if it matches, and removed otherwise.
    ///
    /// # Errors
    /// The store holds other data, or the volumes have too little space.
    pub(super) fn open(
        &self,
        clock: &Clock,
        records: u64,
        shape: Shape,
        keys: Keys,
    ) -> anyhow::Result<(Store, u64)> {
        let mut store = self.store(clock)?;
        let fresh = Mark { loaded: records, records: None, shape, keys };
        match mark::owner(&**store.db())? {
            Owner::Nobody => {}
            Owner::Somebody => {
                store.close()?;
                let (name, pool) = (&self.name, &self.pool().name);
                bail!(
                    "store {name} in pool {pool} holds data that is not a bench's; nothing was \
                     changed. Name another one with --store"
                );
            }
            Owner::Bench(Mark { loaded, records: Some(there), shape: same, keys: order })
                if loaded == records && same == shape && order == keys =>
            {
                fresh.write(&**store.db())?;
                return Ok((store, there));
            }
            Owner::Bench(_) => {
                self.remove(store)?;
                store = self.store(clock)?;
            }
        }
        if let Err(error) = self.check_room(&store, records, shape) {
            self.remove(store)?;
            return Err(error);
        }
        fresh.write(&**store.db())?;
        Ok((store, 0))
    }

    fn store(&self, clock: &Clock) -> plimsoll::Result<Store> {
        let pool = wiring::pool(&self.settings, self.pool(), clock).open()?;
        let options = Options { name: self.name.clone(), ..self.kv().options.clone() };
        Store::builder().pool(Arc::new(pool)).options(options).open()
    }

    /// The settings of stores on the place.
    pub(super) fn kv(&self) -> &Kv {
        self.settings.kv.as_ref().expect("a place was refused without them")
    }

    /// The pool.
    pub(super) fn pool(&self) -> &Pool {
        self.settings.pool(&self.kv().pool).expect("[kv] names one")
    }

    fn check_room(&self, store: &Store, records: u64, shape: Shape) -> anyhow::Result<()> {
        let record = (shape.key_bytes + shape.value_bytes) as u64;
        let needed = records.saturating_mul(record).saturating_mul(ROOM_FOR_EACH_BYTE);
        let devices = store.devices().here();
        let spaces = devices.iter().map(|device| block_on(device.gate().space()));
        let spaces = spaces.collect::<Result<Vec<_>, _>>()?;
        let free = spaces.iter().map(|space| space.free);
        // Directories on one file system share its free space.
        let free = if self.scratch.is_some() { free.min().unwrap_or(0) } else { free.sum() };
        if needed > free {
            let (needed, free) = (Bytes(needed), Bytes(free));
            bail!(
                "{records} records need about {needed} while they are written, and {free} are free: \
                 ask for fewer --records, or for another place (--dir, -c)"
            );
        }
        Ok(())
    }

    /// Closes the store; removes it, or leaves it with `mark` if it is kept.
    pub(super) fn close(&self, store: Store, mark: Mark) -> anyhow::Result<()> {
        if !self.keep {
            return self.remove(store);
        }
        mark.write(&**store.db())?;
        Ok(store.close()?)
    }

    /// Closes the store and removes it.
    pub(super) fn remove(&self, store: Store) -> anyhow::Result<()> {
        let clock = store.pool().clock().clone();
        store.close()?;
        if self.scratch.is_some() {
            // It is removed with its volumes.
            return Ok(());
        }
        let members = Members::open(&self.settings, self.pool(), &clock)?;
        let pool = members.open_pool(wiring::opening(&self.settings, self.pool()))?;
        kv::destroy(pool.clone(), clock, &self.name)
            .with_context(|| format!("removing the store {}", self.name))?;
        block_on(pool.close()).context("closing the pool")?;
        members.close()
    }
}

/// The volumes for the bench.
pub(super) fn volumes(store: &Store) -> Vec<Measured<'static>> {
    let devices = store.devices().here().into_iter();
    let volumes = devices.map(|device| Measured {
        name: device.name().into(),
        paid_iops: device.gate().meter().contract.paid_iops(),
        ops: Tally::new(move || device.gate().meter().spent().ops),
    });
    volumes.collect()
}

/// The caches for the bench: memory, counted in reads of tables, and the tiers of the pool, counted in bytes.
pub(super) fn caches(store: &Store) -> Vec<Cache<'_>> {
    let db = store.db();
    let memory = db.cache().map(|_| {
        let count = |of: fn(CacheFigures) -> u64| Tally::new(move || db.cache().map_or(0, of));
        let hits = count(|cache| cache.all_hits());
        let asked = count(|cache| cache.all_hits() + cache.misses);
        Cache { name: "memory".into(), hits, asked }
    });
    let tiers = store.pool().tiers().into_iter().map(|tier| {
        let hits = Tally::new(move || tier.figures().hit_bytes);
        let asked = move || {
            let figures = tier.figures();
            figures.hit_bytes + figures.missed_bytes
        };
        Cache { name: format!("tier {}", tier.name()), hits, asked: Tally::new(asked) }
    });
    memory.into_iter().chain(tiers).collect()
}

impl Simulated<'_> {
    fn settings(&self) -> String {
        let Self { volumes, contract, placement, memory } = self;
        let mut text = String::new();
        let names: Vec<_> = (1..=*volumes).map(|number| format!("s{number}")).collect();
        for name in &names {
            write!(
                text,
                "[volume.{name}]\npath = \"{name}\"\ncontract = {contract:?}\nsimulate = true\n\n"
            )
            .expect("a string takes any text");
        }
        text + &format!(
            "[pool.main]\nplacement = {placement:?}\nvolumes = {names:?}\n\n\
             [kv]\npool = \"main\"\nmemory = {memory:?}\n"
        )
    }
}

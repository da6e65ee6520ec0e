//! The stores of the program, and the pools that they are on.
//!
//! Each pool opens by itself, and each store on it. A store that cannot be opened, or whose pool cannot, stays out; its
//! reason is kept for `/health`, and the program tries again. The others serve meanwhile.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, anyhow};
use parking_lot::Mutex;
use plimsoll::volumes::{Away, Device, Pool};
use plimsoll::{block, kv, series};
use volume::Clock;

use crate::settings::Settings;
use crate::wiring;

/// The stores, and the pools of those that are on one.
#[derive(Default)]
pub(crate) struct Stores {
    roots: Vec<Root>,
    kv: OnceLock<kv::Store>,
    series: OnceLock<series::Store>,
    block: OnceLock<block::Store>,
    /// Why stores of the settings are not open.
    failed: Mutex<BTreeMap<&'static str, anyhow::Error>>,
}

/// A pool that stores are on.
struct Root {
    name: String,
    /// The stores on it.
    stores: Vec<&'static str>,
    open: OnceLock<Arc<Pool>>,
    /// Held while it is opened: two of its stores may be tried again at a time.
    opening: Mutex<()>,
}

/// A pool that stores are on, and that is open.
#[derive(Clone, Copy)]
pub(super) struct Opened<'s> {
    pub(super) name: &'s str,
    pub(super) pool: &'s Pool,
    /// The stores on it.
    pub(super) stores: &'s [&'static str],
}

/// The names of the stores in `/health`: their sections in the settings.
pub(super) const KV: &str = "kv";
pub(super) const SERIES: &str = "series";
pub(super) const BLOCK: &str = "block";

impl Root {
    /// The pool, which is opened if it is not open yet.
    fn open(&self, settings: &Settings, clock: &Clock) -> anyhow::Result<&Arc<Pool>> {
        let _one_at_a_time = self.opening.lock();
        if let Some(pool) = self.open.get() {
            return Ok(pool);
        }
        let of = settings.pool(&self.name).expect("the settings were checked: stores name pools");
        let pool = wiring::pool(settings, of, clock).open()?;
        let kv = settings.kv.iter().map(|kv| (KV, &kv.options.name, kv.io_weight));
        let series = settings.series.iter().map(|(of, _)| (SERIES, &of.options.name, of.io_weight));
        let block = settings.block.iter().map(|of| (BLOCK, &of.options.name, of.io_weight));
        for (store, name, weight) in kv.chain(series).chain(block) {
            if self.stores.contains(&store) {
                pool.set_io_weight(name, weight.into());
            }
        }
        Ok(self.open.get_or_init(|| Arc::new(pool)))
    }
}

impl Stores {
    /// Opens the pools, and the stores that can be opened.
    ///
    /// # Errors
    /// Of a pool or a store, if no store can be opened.
    pub(crate) fn open(settings: &Settings, clock: &Clock) -> anyhow::Result<Self> {
        let stores = Self { roots: roots(settings), ..Self::default() };
        let mut first = None;
        for root in &stores.roots {
            let Err(error) = root.open(settings, clock) else { continue };
            for &store in &root.stores {
                let why = anyhow!("{error:#}");
                stores.note(store, &OnceLock::<()>::new(), Err(why));
            }
            first = first.or(Some(error));
        }
        let is_left = |store| !stores.failed.lock().contains_key(store);
        let opened = [
            is_left(KV) && stores.open_kv(settings, clock),
            is_left(SERIES) && stores.open_series(settings, clock),
            is_left(BLOCK) && stores.open_block(settings, clock),
        ];
        if opened.contains(&true) {
            return Ok(stores);
        }
        let of_store = stores.failed.lock().pop_first().map(|(_, error)| error);
        first.or(of_store).map_or(Ok(stores), Err)
    }

    /// Opens the key-value store and its pool, if the settings have one; whether it is open.
    pub(super) fn open_kv(&self, settings: &Settings, clock: &Clock) -> bool {
        let Some(of) = &settings.kv else { return false };
        let opened = self.open_root(KV, settings, clock).and_then(|pool| {
            let builder = kv::Store::builder().pool(pool.context("its pool")?);
            Ok(builder.options(of.options.clone()).open()?)
        });
        self.note(KV, &self.kv, opened)
    }

    /// Opens the store of time series and its pool, if the settings have one; whether it is open.
    pub(super) fn open_series(&self, settings: &Settings, clock: &Clock) -> bool {
        let Some((series, _)) = &settings.series else { return false };
        let opened = self.open_root(SERIES, settings, clock);
        let opened =
            opened.and_then(|pool| wiring::series_store(settings, series, pool.as_ref(), clock));
        self.note(SERIES, &self.series, opened)
    }

    /// Opens the store of block devices and its pool, if the settings have one; whether it is open.
    pub(super) fn open_block(&self, settings: &Settings, clock: &Clock) -> bool {
        let Some(of) = &settings.block else { return false };
        let opened = self.open_root(BLOCK, settings, clock).and_then(|pool| {
            Ok(block::Store::open(pool.context("its pool")?, of.options.clone())?)
        });
        self.note(BLOCK, &self.block, opened)
    }

    /// The pool of a store, which is opened if it is not open yet; `None` if the store is on none.
    fn open_root(
        &self,
        store: &str,
        settings: &Settings,
        clock: &Clock,
    ) -> anyhow::Result<Option<Arc<Pool>>> {
        let root = self.roots.iter().find(|root| root.stores.contains(&store));
        root.map(|root| root.open(settings, clock).map(Arc::clone)).transpose()
    }

    fn note<S>(&self, name: &'static str, slot: &OnceLock<S>, opened: anyhow::Result<S>) -> bool {
        let mut failed = self.failed.lock();
        match opened {
            Ok(store) => {
                failed.remove(name);
                // The start, and then one task, open it, and no other.
                assert!(slot.set(store).is_ok(), "{name} is opened once");
                true
            }
            Err(error) => {
                tracing::error!("{name} is not open, and is tried again: {error:#}");
                failed.insert(name, error);
                false
            }
        }
    }

    /// The pools that stores are on and that are open.
    pub(super) fn pools(&self) -> impl Iterator<Item = Opened<'_>> {
        self.roots.iter().filter_map(|root| {
            let pool = root.open.get()?;
            Some(Opened { name: &root.name, pool, stores: &root.stores })
        })
    }

    /// The pools that stores are on and that could not be opened, and a store on each.
    pub(super) fn closed_pools(&self) -> impl Iterator<Item = (&str, &'static str)> {
        let closed = self.roots.iter().filter(|root| root.open.get().is_none());
        closed.filter_map(|root| Some((&*root.name, *root.stores.first()?)))
    }

    /// The pool of a store, if it is open.
    pub(super) fn pool_of(&self, store: &str) -> Option<Opened<'_>> {
        self.pools().find(|root| root.stores.contains(&store))
    }

    /// The key-value store, if it is open.
    pub(super) fn kv(&self) -> Option<&kv::Store> {
        self.kv.get()
    }

    /// The store of time series, if it is open.
    pub(super) fn series(&self) -> Option<&series::Store> {
        self.series.get()
    }

    /// The store of block devices, if it is open.
    pub(super) fn block(&self) -> Option<&block::Store> {
        self.block.get()
    }

    /// The stores that are not open, and why.
    pub(super) fn failed(&self) -> Vec<(&'static str, String)> {
        let failed = self.failed.lock();
        failed.iter().map(|(&name, error)| (name, format!("{error:#}"))).collect()
    }

    /// The volumes that are here, those of pools first.
    pub(super) fn here(&self) -> Vec<Arc<Device>> {
        let of_pools = self.pools().flat_map(|root| root.pool.devices().here());
        of_pools.chain(self.own()).collect()
    }

    /// The volumes that a store has for itself, and that are here.
    pub(super) fn own(&self) -> Vec<Arc<Device>> {
        self.own_volumes().map(|store| store.devices().here()).unwrap_or_default()
    }

    /// The volumes that are away.
    pub(super) fn away(&self) -> Vec<Away> {
        self.pools().flat_map(|root| root.pool.devices().away()).collect()
    }

    /// The volume of this name, if it is here.
    pub(super) fn device(&self, name: &str) -> Option<Arc<Device>> {
        self.here().into_iter().find(|device| device.name() == name)
    }

    /// The store of time series, if it is on volumes of its own.
    fn own_volumes(&self) -> Option<&series::Store> {
        self.series().filter(|store| store.pool().is_none())
    }

    /// Closes them, and each pool with its last store: everything is durable on return.
    pub(super) fn close(self) -> anyhow::Result<()> {
        let Self { roots, kv, series, block, failed: _ } = self;
        let mut closed = Vec::new();
        for root in roots {
            // A store that finds no other user of its pool closes it. A pool without an open store has no other user.
            let unused = root.open.into_inner().and_then(Arc::into_inner);
            let unused = unused.map_or(Ok(()), Pool::close);
            closed.push(unused.with_context(|| format!("pool {}", root.name)));
        }
        let block = block.into_inner().map_or(Ok(()), block::Store::close);
        let series = series.into_inner().map_or(Ok(()), series::Store::close);
        closed.extend([
            kv.into_inner().map_or(Ok(()), kv::Store::close).map_err(anyhow::Error::from),
            series.context("the store of time series"),
            block.context("the store of block devices"),
        ]);
        let mut errors = closed.into_iter().filter_map(Result::err);
        let first = errors.next();
        errors.for_each(|error| tracing::error!("{error:#}"));
        first.map_or(Ok(()), Err)
    }
}

/// The pools that stores are on, none of them open.
fn roots(settings: &Settings) -> Vec<Root> {
    let on = settings.stores_on_pools();
    let root = |pool: &crate::settings::Pool| Root {
        name: pool.name.clone(),
        stores: on.iter().filter(|(_, name)| *name == pool.name).map(|&(store, _)| store).collect(),
        open: OnceLock::new(),
        opening: Mutex::default(),
    };
    settings.roots().into_iter().map(root).collect()
}

//! The stores of the program, and the pool that they are on.
//!
//! Each store opens by itself. One that cannot be opened stays out, its reason is kept for `/health`, and the program
//! tries again; the others serve meanwhile.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use parking_lot::Mutex;
use plimsoll::volumes::{Away, Device, Pool};
use plimsoll::{block, kv, series};
use volume::Clock;

use crate::settings::Settings;
use crate::wiring;

/// The stores, and the pool of those that are on one.
#[derive(Default)]
pub(crate) struct Stores {
    pub(crate) pool: Option<Arc<Pool>>,
    kv: OnceLock<kv::Store>,
    series: OnceLock<series::Store>,
    block: OnceLock<block::Store>,
    /// Why stores of the settings are not open.
    failed: Mutex<BTreeMap<&'static str, anyhow::Error>>,
}

/// The names of the stores in `/health`.
pub(super) const KV: &str = "kv";
pub(super) const SERIES: &str = "series";
pub(super) const BLOCK: &str = "block";

impl Stores {
    /// Opens the pool, and the stores that can be opened.
    ///
    /// # Errors
    /// Of the pool; or of a store, if none can be opened.
    pub(crate) fn open(settings: &Settings, clock: &Clock) -> anyhow::Result<Self> {
        let pool = settings.pool().map(|pool| wiring::pool(settings, pool, clock).open());
        let pool = pool.transpose()?.map(Arc::new);
        if let Some(pool) = &pool {
            let kv = settings.kv.iter().map(|kv| (&kv.options.name, kv.io_weight));
            let series = settings.series.iter().map(|(of, _)| (&of.options.name, of.io_weight));
            let block = settings.block.iter().map(|of| (&of.options.name, of.io_weight));
            let weights = kv.chain(series).chain(block);
            weights.for_each(|(name, weight)| pool.set_io_weight(name, weight.into()));
        }
        let stores = Self { pool, ..Self::default() };
        let opened = [
            stores.open_kv(settings),
            stores.open_series(settings, clock),
            stores.open_block(settings),
        ];
        let first = stores.failed.lock().pop_first();
        match first {
            Some((_, error)) if !opened.contains(&true) => Err(error),
            Some((name, error)) => {
                stores.failed.lock().insert(name, error);
                Ok(stores)
            }
            None => Ok(stores),
        }
    }

    /// Opens the key-value store, if the settings have one; whether it is open.
    pub(super) fn open_kv(&self, settings: &Settings) -> bool {
        let (Some(kv), Some(pool)) = (&settings.kv, &self.pool) else { return false };
        let builder = kv::Store::builder().pool(Arc::clone(pool));
        let opened = builder.options(kv.options.clone()).open().map_err(Into::into);
        self.note(KV, &self.kv, opened)
    }

    /// Opens the store of time series, if the settings have one; whether it is open.
    pub(super) fn open_series(&self, settings: &Settings, clock: &Clock) -> bool {
        let Some((series, _)) = &settings.series else { return false };
        let opened = wiring::series_store(settings, series, self.pool.as_ref(), clock);
        self.note(SERIES, &self.series, opened)
    }

    /// Opens the store of block devices, if the settings have one; whether it is open.
    pub(super) fn open_block(&self, settings: &Settings) -> bool {
        let (Some(of), Some(pool)) = (&settings.block, &self.pool) else { return false };
        let opened = block::Store::open(Arc::clone(pool), of.options.clone());
        let opened = opened.map_err(Into::into);
        self.note(BLOCK, &self.block, opened)
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

    /// The volumes that are here, the pool's first.
    pub(super) fn here(&self) -> Vec<Arc<Device>> {
        let own = self.own_volumes().map(|store| store.devices().here());
        let pool = self.pool.iter().map(|pool| pool.devices().here());
        pool.chain(own).flatten().collect()
    }

    /// The volumes that are away.
    pub(super) fn away(&self) -> Vec<Away> {
        self.pool.as_ref().map(|pool| pool.devices().away()).unwrap_or_default()
    }

    /// The volume of this name, if it is here.
    pub(super) fn device(&self, name: &str) -> Option<Arc<Device>> {
        self.here().into_iter().find(|device| device.name() == name)
    }

    /// The store of time series, if it is on volumes of its own.
    fn own_volumes(&self) -> Option<&series::Store> {
        self.series().filter(|store| store.pool().is_none())
    }

    /// Closes them, and the pool with the last one: everything is durable on return.
    pub(super) fn close(self) -> anyhow::Result<()> {
        let Self { pool, kv, series, block, failed: _ } = self;
        // A store that finds no other user of the pool closes it.
        drop(pool);
        let block = block.into_inner().map_or(Ok(()), block::Store::close);
        let series = series.into_inner().map_or(Ok(()), series::Store::close);
        let closed = [
            kv.into_inner().map_or(Ok(()), kv::Store::close).map_err(anyhow::Error::from),
            series.context("the store of time series"),
            block.context("the store of block devices"),
        ];
        let mut errors = closed.into_iter().filter_map(Result::err);
        let first = errors.next();
        errors.for_each(|error| tracing::error!("{error:#}"));
        first.map_or(Ok(()), Err)
    }
}

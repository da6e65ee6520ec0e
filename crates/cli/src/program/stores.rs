//! The open stores of the program, and the pool that they are on.

use std::sync::Arc;

use anyhow::Context;
use plimsoll::volumes::{Away, Device, Pool};
use plimsoll::{kv, series};

/// The stores, and the pool of those that are on one.
#[derive(Default)]
pub(crate) struct Stores {
    pub(crate) pool: Option<Arc<Pool>>,
    pub(crate) kv: Option<kv::Store>,
    pub(crate) series: Option<series::Store>,
}

impl Stores {
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
        self.series.as_ref().filter(|store| store.pool().is_none())
    }

    /// Closes them, and the pool with the last one: everything is durable on return.
    pub(super) fn close(self) -> anyhow::Result<()> {
        let Self { pool, kv, series } = self;
        // A store that finds no other user of the pool closes it.
        drop(pool);
        let series =
            series.map_or(Ok(()), series::Store::close).context("the store of time series");
        let kv = kv.map_or(Ok(()), kv::Store::close);
        if let (Err(_), Err(series)) = (&kv, &series) {
            tracing::error!("{series:#}");
        }
        kv?;
        series
    }
}

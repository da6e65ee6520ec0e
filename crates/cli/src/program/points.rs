//! The store of time series, and the volumes it is on.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use anyhow::{Context, bail};
use engine::health::StoreHealth;
use engine::log::StoreId;
use engine::series::store::Store;
use plimsoll::volumes::{Device, Devices};
use volume::Clock;

use crate::settings::{Series, Settings};
use crate::wiring;

/// An open store.
pub(crate) struct Points {
    pub(crate) store: Store,
    devices: Devices,
}

impl Points {
    /// Opens the store, or makes it on volumes that are blank. Takes as long as a recovery.
    pub(crate) async fn open(
        settings: &Settings,
        series: &Series,
        clock: &Clock,
    ) -> anyhow::Result<Self> {
        let volumes = wiring::series_volumes(settings, &series.volumes);
        let devices = Devices::open(&volumes, clock).context("series.volumes")?;
        if let Some(away) = devices.away().first() {
            bail!("{away}: the store of time series needs all of series.volumes");
        }
        let member = |device: &Arc<Device>| (device.name().to_owned(), device.volume());
        let members = devices.here().iter().map(member).collect();
        // Differs from store to store.
        let any = || RandomState::new().hash_one(0).to_le_bytes();
        let id = [any(), any()].concat().try_into().expect("twice eight bytes");
        let opened =
            Store::open(members, series.options.clone(), clock.clone(), Some(StoreId(id))).await;
        let (store, report) = opened.context("the store of time series")?;
        for torn in &report.torn {
            tracing::info!("series: {torn} ends where a crash cut it");
        }
        for damage in &report.damage {
            tracing::error!("series: {damage}: its points are lost");
        }
        Ok(Self { store, devices })
    }

    /// The volumes.
    pub(super) fn devices(&self) -> Vec<Arc<Device>> {
        self.devices.here()
    }

    /// What the store does for its users now.
    pub(super) fn health(&self) -> StoreHealth {
        self.store.health()
    }

    /// Makes everything durable, and lets nothing through to the volumes any more.
    pub(super) async fn close(&self) -> anyhow::Result<()> {
        let closed = self.store.close().await;
        self.devices.close();
        closed.context("the store of time series")
    }
}

//! Converts settings into arguments of the library.

use anyhow::Context;
use plimsoll::kv::{Builder, Store};
use plimsoll::series;
use plimsoll::volumes::{Devices, Volume};
use policy::contract::Contract;
use policy::placement::{Hash, LeastOverlap, RoundRobin, Single, Stripe};
use pool::spread::Opening;
use volume::Clock;

use crate::settings::{self, Overlap, Placement, Settings};

/// The volumes of the store's pool.
pub(crate) fn volumes(settings: &Settings) -> Vec<Volume> {
    let parts = parts(settings);
    parts.into_iter().map(|(volume, most)| device(volume).at_most(most)).collect()
}

/// The settings of each of them, and the contract of its gate: its own, or its part of the machine's limits.
pub(crate) fn parts(settings: &Settings) -> Vec<(&settings::Volume, Contract)> {
    let volume = |name: &String| {
        let volume = settings.volumes.iter().find(|volume| volume.name == *name);
        volume.expect("the settings were checked when they were read")
    };
    let volumes: Vec<_> = settings.kv_pool().volumes.iter().map(volume).collect();
    let contracts: Vec<_> = volumes.iter().map(|volume| &volume.contract).collect();
    let divided = settings.instance.limits().divide(&contracts);
    volumes.into_iter().zip(divided).collect()
}

fn device(settings: &settings::Volume) -> Volume {
    let settings::Volume { name, path, contract, share, adapt, scheduler, .. } = settings;
    let volume = Volume::directory(name, path, contract.clone());
    let volume = volume.share(*share).adapt(*adapt).scheduler(*scheduler);
    if settings.simulate { volume.simulated() } else { volume }
}

/// Opens the volumes of the store's pool.
pub(crate) fn devices(settings: &Settings, clock: &Clock) -> plimsoll::Result<Devices> {
    Devices::open(&volumes(settings), clock)
}

/// The options to open the store's pool.
pub(crate) fn opening(settings: &Settings) -> Opening {
    let opening = match settings.kv_pool().placement {
        Placement::Single => Opening::new(Single),
        Placement::RoundRobin => Opening::new(RoundRobin::default()),
        Placement::Hash => Opening::new(Hash),
        Placement::Stripe(chunk) => Opening::new(Stripe::new(chunk)),
        Placement::LeastOverlap(Overlap::Count) => Opening::new(LeastOverlap::default()),
        Placement::LeastOverlap(Overlap::Heat) => Opening::new(LeastOverlap::default().by_heat()),
    };
    opening.meta(settings.kv.meta.clone()).copies(settings.kv_pool().copies)
}

/// The volumes of the store of time series. They belong to no pool, so the machine's limits are not divided among them.
pub(crate) fn series_volumes(settings: &Settings, names: &[String]) -> Vec<Volume> {
    let named = settings.volumes.iter().filter(|volume| names.contains(&volume.name));
    named.map(device).collect()
}

/// Opens the store of time series, and logs its state.
pub(crate) fn series_store(
    settings: &Settings,
    series: &settings::Series,
    clock: &Clock,
) -> anyhow::Result<series::Store> {
    let store = series::Store::builder()
        .volumes(series_volumes(settings, &series.volumes))
        .options(series.options.clone())
        .clock(clock.clone())
        .open()
        .context("the store of time series, on series.volumes")?;
    for torn in &store.report().torn {
        tracing::info!("series: {torn} ends where a crash cut it");
    }
    for damage in &store.report().damage {
        tracing::error!("series: {damage}: its points are lost");
    }
    Ok(store)
}

/// A builder of the store on its volumes.
pub(crate) fn store(settings: &Settings, clock: &Clock) -> Builder {
    Store::builder()
        .volumes(volumes(settings))
        .opening(opening(settings))
        .migrate(settings.kv_pool().migration.policy, settings.kv_pool().migration.terms)
        .options(settings.kv.options.clone())
        .clock(clock.clone())
}

//! Converts settings into arguments of the library.

use std::sync::Arc;

use anyhow::Context;
use plimsoll::series;
use plimsoll::volumes::{Devices, Pool, PoolBuilder, Side, Tiering, Volume};
use policy::contract::Contract;
use policy::placement::{Hash, LeastOverlap, RoundRobin, Single, Stripe};
use pool::spread::Opening;
use volume::Clock;

use crate::settings::{self, On, Overlap, Placement, Settings};

/// The volumes that are used and have such names.
fn of(settings: &Settings, wanted: impl Fn(&String) -> bool) -> Vec<Volume> {
    let parts = parts(settings).into_iter().filter(|(volume, _)| wanted(&volume.name));
    parts.map(|(volume, most)| device(volume).at_most(most)).collect()
}

/// The settings of each volume in use, and the contract of its gate: its own, or its part of the machine's limits.
pub(crate) fn parts(settings: &Settings) -> Vec<(&settings::Volume, Contract)> {
    let volumes: Vec<_> = settings.in_use().collect();
    let contracts: Vec<_> = volumes.iter().map(|volume| &volume.contract).collect();
    let divided = settings.instance.limits().divide(&contracts);
    volumes.into_iter().zip(divided).collect()
}

fn device(settings: &settings::Volume) -> Volume {
    let settings::Volume {
        name,
        path,
        contract,
        share,
        adapt,
        journal_ops,
        scheduler,
        timeout,
        ..
    } = settings;
    let volume = Volume::directory(name, path, contract.clone());
    let volume = volume.share(*share).adapt(*adapt).scheduler(*scheduler).timeout(*timeout);
    let volume = journal_ops.iter().fold(volume, |volume, &ops| volume.journal_ops(ops));
    if settings.simulate { volume.simulated() } else { volume }
}

/// Opens the volumes that are members of a pool themselves.
pub(crate) fn devices(
    settings: &Settings,
    pool: &settings::Pool,
    clock: &Clock,
) -> plimsoll::Result<Devices> {
    Devices::open(&of(settings, |name| pool.volumes.contains(name)), clock)
}

/// The options to open the pool.
pub(crate) fn opening(settings: &Settings, pool: &settings::Pool) -> Opening {
    let opening = match pool.placement {
        Placement::Single => Opening::new(Single),
        Placement::RoundRobin => Opening::new(RoundRobin::default()),
        Placement::Hash => Opening::new(Hash),
        Placement::Stripe(chunk) => Opening::new(Stripe::new(chunk)),
        Placement::LeastOverlap(Overlap::Count) => Opening::new(LeastOverlap::default()),
        Placement::LeastOverlap(Overlap::Heat) => Opening::new(LeastOverlap::default().by_heat()),
    };
    // They are members of the pool that the store is on.
    let meta = settings.kv.as_ref().filter(|kv| kv.pool == pool.name).map(|kv| kv.meta.clone());
    let opening = opening.meta(meta.unwrap_or_default()).copies(pool.copies);
    pool.code.into_iter().fold(opening, Opening::code)
}

/// A builder of the pool, with the pools below it.
pub(crate) fn pool(settings: &Settings, pool: &settings::Pool, clock: &Clock) -> PoolBuilder {
    let below = settings.pools.iter().filter(|below| pool.volumes.contains(&below.name));
    let builder = below.fold(Pool::builder(), |builder, below| match &below.tier {
        None => builder.pool(&below.name, self::pool(settings, below, clock)),
        Some(tier) => {
            let tiering = Tiering::default().eviction(tier.eviction).promotion(tier.promotion);
            let tiering = tiering.writes(tier.writes);
            let tiering = tier.size.into_iter().fold(tiering, Tiering::size);
            let side = |name| side(settings, name, clock);
            builder.tier(&below.name, side(&tier.fast), side(&tier.slow), tiering)
        }
    });
    builder
        .volumes(of(settings, |name| pool.volumes.contains(name)))
        .opening(opening(settings, pool))
        .migrate(pool.migration.policy, pool.migration.terms)
        .scrub_every(pool.scrub_every)
        .log_len(pool.write_log)
        .log_memory(pool.write_log_memory)
        .clock(clock.clone())
}

/// A side of a tier.
fn side(settings: &Settings, name: &str, clock: &Clock) -> Side {
    match settings.pools.iter().find(|pool| pool.name == *name) {
        Some(pool) => Side::Pool(name.into(), self::pool(settings, pool, clock)),
        None => Side::Volume(volume(settings, name)),
    }
}

/// The volume of this name, which is in use.
pub(crate) fn volume(settings: &Settings, name: &str) -> Volume {
    let found = of(settings, |other| other == name).pop();
    found.expect("the settings were checked: it is a volume below a pool of a store")
}

/// Opens the slow side of a tier, if that is a volume.
pub(crate) fn slow_volume(
    settings: &Settings,
    tier: &settings::Tier,
    clock: &Clock,
) -> plimsoll::Result<Devices> {
    Devices::open(&[volume(settings, &tier.slow)], clock)
}

/// Opens the fast side of a tier, if that is a volume.
pub(crate) fn fast_volume(
    settings: &Settings,
    tier: &settings::Tier,
    clock: &Clock,
) -> plimsoll::Result<Devices> {
    Devices::open(&[volume(settings, &tier.fast)], clock)
}

/// The volumes of a store of time series that is on no pool.
pub(crate) fn series_volumes(settings: &Settings, names: &[String]) -> Vec<Volume> {
    of(settings, |name| names.contains(name))
}

/// Opens the store of time series, and logs its state.
pub(crate) fn series_store(
    settings: &Settings,
    series: &settings::Series,
    pool: Option<&Arc<Pool>>,
    clock: &Clock,
) -> anyhow::Result<series::Store> {
    let builder = series::Store::builder().options(series.options.clone()).clock(clock.clone());
    let builder = match (&series.on, pool) {
        (On::Volumes(names), _) => builder.volumes(series_volumes(settings, names)),
        (On::Pool(_), Some(pool)) => builder.pool(Arc::clone(pool)),
        (On::Pool(_), None) => unreachable!("its pool is opened before a store"),
    };
    let store = builder.open().context("the store of time series")?;
    let report = store.report();
    if report.segment_bytes > 0 {
        let (log, replay) = (report.log_took.as_secs_f64(), report.replay_took.as_secs_f64());
        tracing::info!(
            "series: the last run did not end in order: {} files without a hint, of {} MiB, and hints of {} MiB were read \
             in {log:.2} s, {} MiB of the write-ahead log replayed and {} blocks written in {replay:.2} s",
            report.log.scanned,
            report.log.scanned_bytes >> 20,
            report.log.hint_bytes >> 20,
            report.segment_bytes >> 20,
            report.blocks,
        );
    }
    for torn in &report.torn {
        tracing::info!("series: {torn} ends where a crash cut it");
    }
    for damage in &report.damage {
        tracing::error!("series: {damage}: its points are lost");
    }
    Ok(store)
}

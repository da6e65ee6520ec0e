//! A store to measure: a database loaded on a pool in memory, and forks of it on simulated volumes.
//!
//! The places of tables depend on the load, so each placement loads its own database, from the same seed. Schemes that
//! differ only afterwards start from forks of one.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use bench::drive::Tally;
use bench::spread::{Bench, Copies, Counted, Paid};
use plimsoll::kv::{CachePolicy, Options, Store};
use plimsoll::volumes::{Device, Volume};
use policy::budget::Share;
use policy::contract::{Contract, Latency, catalogue};
use policy::purpose::Class;
use volume::Clock;
use volume::mem::Mem;

use super::super::fixture::{compact, family, options};
use super::scale::{SHAPE, Scale, VOLUME_DIVISOR};
use super::schemes::{Placed, Scheme};
use super::watched::{CopyOps, Watched};

/// Loading threads.
const LOADERS: usize = 4;

/// The speed-up of volumes during load and opening.
const WIDE: u64 = 1000;

/// The time to open the stores of a group, for estimates of the duration.
pub(super) const OPENING: Duration = Duration::from_secs(4);

/// A gp3 volume, a part of one, or a multiple.
fn gp3(times: u64, parts: u64) -> anyhow::Result<Contract> {
    let mut contract = catalogue::find("gp3")?.contract(None, Default::default())?;
    for limit in &mut contract.limits {
        limit.rate_per_sec = limit.rate_per_sec * times / parts;
        limit.depth = limit.depth * times / parts;
    }
    Ok(contract)
}

/// The contract of a measured volume.
pub(super) fn contract() -> anyhow::Result<Contract> {
    gp3(1, VOLUME_DIVISOR)
}

/// The contract during load and opening: practically no waits.
fn wide() -> anyhow::Result<Contract> {
    Ok(Contract { latency: Latency::default(), ..gp3(WIDE, 1)? })
}

/// A loaded database, closed.
pub(super) struct Image {
    placed: Placed,
    mems: Vec<Mem>,
    scale: Scale,
}

impl Image {
    /// Whether `scheme` starts from it.
    pub(super) fn serves(&self, scheme: &Scheme) -> bool {
        self.placed == scheme.placed && self.mems.len() == scheme.volumes
    }

    /// Loads records, and waits for the compactions.
    pub(super) fn load(
        scheme: &Scheme,
        scale: &Scale,
        seed: u64,
        clock: &Clock,
        stop: &AtomicBool,
    ) -> anyhow::Result<Self> {
        let mems = (1..=scheme.volumes).map(|number| Mem::new(&label(number))).collect();
        let image = Self { placed: scheme.placed, mems, scale: *scale };
        // The load reads nothing, so no table is copied.
        let (store, _) = open(&image.mems, scheme, scale, clock)?;
        Bench::new(&**store.db(), clock, SHAPE, 0, stop).load(scale.records, LOADERS, seed)?;
        compact(&store)?;
        store.close()?;
        Ok(image)
    }

    /// Opens a fork of it on simulated volumes, without their contract yet.
    pub(super) fn open(&self, scheme: &Scheme, clock: &Clock) -> anyhow::Result<Fixture> {
        let forks: Vec<_> = self.mems.iter().map(|mem| mem.fork(mem.label())).collect();
        let (store, mut copies) = open(&forks, scheme, &self.scale, clock)?;
        let contract = contract()?;
        let joins = scheme.grows.then(|| {
            let blank = Mem::new(&label(forks.len() + 1));
            let (volume, counted) = watched(&blank, &contract);
            copies.push(counted);
            volume
        });
        Ok(Fixture { store, contract, copies, joins })
    }
}

fn label(number: usize) -> String {
    format!("v{number}")
}

fn count(device: &Device, copies: &CopyOps, counted: Counted) -> u64 {
    let users = |is: bool| {
        let classes = device.gate().meter().classes;
        let of = Class::ALL.iter().zip(classes);
        let of = of.filter(|(class, _)| (**class == Class::Foreground) == is);
        of.map(|(_, figures)| figures.spent.ops).sum()
    };
    match counted {
        Counted::Users => users(true),
        Counted::Others => users(false),
        Counted::Copies => copies.read(),
        Counted::Overdrafts => device.seen_by_provider().unwrap_or_default().throttled,
    }
}

/// A store of one scheme.
pub(super) struct Fixture {
    pub(super) store: Store,
    contract: Contract,
    /// Copy operations of each volume, by its label.
    copies: Vec<(String, CopyOps)>,
    /// The volume that will join.
    joins: Option<Volume>,
}

impl Fixture {
    /// Applies the contract from now on.
    pub(super) fn enforce(&self) {
        self.store.devices().here().iter().for_each(|device| device.set_contract(&self.contract));
    }

    /// Adds the volume that will join, if there is one, during the run.
    pub(super) fn join(&self) -> anyhow::Result<()> {
        let Some(volume) = &self.joins else { return Ok(()) };
        self.store.add_volume(volume).context("taking in one more volume")
    }

    /// The counters of each volume during a run; zero for one that has not joined.
    pub(super) fn counts(&self) -> Vec<Tally<'_>> {
        let devices = self.store.devices();
        let of = |(label, copies): &'_ (String, CopyOps)| {
            let known = Arc::new(OnceLock::new());
            Counted::ALL.map(|counted| {
                let (label, copies, known) = (label.clone(), copies.clone(), Arc::clone(&known));
                Tally::new(move || {
                    if known.get().is_none()
                        && let Some(device) = devices.get(&label)
                    {
                        let _another = known.set(device);
                    }
                    known.get().map_or(0, |device| count(device, &copies, counted))
                })
            })
        };
        self.copies.iter().flat_map(of).collect()
    }

    /// Copies made so far.
    pub(super) fn copies(&self) -> Copies {
        let figures = self.store.copies();
        Copies { made: figures.made.iter().sum(), bytes: figures.bytes, times: figures.times }
    }

    pub(super) fn paid(&self) -> Paid {
        let iops = self.contract.paid_iops().unwrap_or(0);
        let iops = self.store.devices().here().iter().map(|_| iops).collect();
        Paid { iops, rho: Share::default().rho() }
    }

    pub(super) fn close(self) -> anyhow::Result<()> {
        // Running compactions end sooner under a fast contract.
        let wide = wide()?;
        self.store.devices().here().iter().for_each(|device| device.set_contract(&wide));
        self.store.close().context("closing a store that was measured")
    }
}

/// A simulated volume on `mem`, and the counter of its copies.
fn watched(mem: &Mem, contract: &Contract) -> (Volume, (String, CopyOps)) {
    let copies = CopyOps::default();
    let watched = Watched { inner: mem.clone(), copies: copies.clone() };
    let volume = Volume::other(mem.label(), watched, contract.clone()).simulated();
    (volume, (mem.label().to_owned(), copies))
}

fn open(
    mems: &[Mem],
    scheme: &Scheme,
    scale: &Scale,
    clock: &Clock,
) -> anyhow::Result<(Store, Vec<(String, CopyOps)>)> {
    let options = Options {
        // Only metadata in memory, as in the paper.
        cache_data: false,
        cache_policy: CachePolicy::RocksDb,
        prefetch: false,
        ..options(scale.sizes)
    };
    let wide = wide()?;
    let (volumes, copies): (Vec<_>, Vec<_>) = mems.iter().map(|mem| watched(mem, &wide)).unzip();
    let store = Store::builder()
        .volumes(volumes)
        .opening(scheme.placed.opening())
        .migrate(scheme.migrate, scheme.terms())
        .options(options)
        .family(family(|_| {}))
        .clock(clock.clone());
    let store = store.open();
    Ok((store.with_context(|| format!("a store of the scheme {}", scheme.name))?, copies))
}

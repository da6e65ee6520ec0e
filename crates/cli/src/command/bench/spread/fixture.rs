//! A store to measure: a database loaded on a pool in memory, and forks of it on simulated volumes or on
//! real ones.
//!
//! The places of tables depend on the load, so each placement loads its own database, from the same seed. Schemes that
//! differ only afterwards start from forks of one.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use bench::compare::{self, CountedBy};
use bench::drive::Tally;
use bench::spread::{Bench, Copies, Counted, Paid};
use plimsoll::kv::{CachePolicy, Options, Store};
use plimsoll::volumes::{Device, Volume};
use policy::budget::Share;
use policy::contract::Contract;
use policy::purpose::Class;
use volume::Clock;
use volume::dir::BlockDevice;
use volume::dir::{Dir, DirOptions};
use volume::mem::Mem;

use super::super::fixture::{compact, family, options, wide};
use super::super::real::{RealVolume, RealVolumes};
use super::super::watched::{CopyIo, Watched};
use super::scale::{SHAPE, Scale};
use super::schemes::{Placed, Scheme};

/// Loading threads.
const LOADERS: usize = 4;

/// The time to open the stores of a group, for estimates of the duration.
pub(super) const OPENING: Duration = Duration::from_secs(4);

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
        let wide = wide()?;
        let volumes = image.mems.iter().map(|mem| simulated(mem, &wide)).collect();
        let (store, _) = open(volumes, scheme, scale, clock)?;
        Bench::new(&**store.db(), clock, SHAPE, 0, stop).load(scale.records, LOADERS, seed)?;
        compact(&store)?;
        store.close()?;
        Ok(image)
    }

    /// Opens a fork of it: on simulated volumes, without their contract yet, or on the first of `real` ones.
    pub(super) fn open(
        &self,
        scheme: &Scheme,
        real: Option<&RealVolumes>,
        clock: &Clock,
    ) -> anyhow::Result<Fixture> {
        let mut forks: Vec<_> = self.mems.iter().map(|mem| mem.fork(mem.label())).collect();
        if scheme.grows {
            forks.push(Mem::new(&label(forks.len() + 1)));
        }
        let wide = wide()?;
        let (mut volumes, contracts) = match real {
            None => {
                let contracts = scheme.contracts()?;
                // The one that joins does so under its contract.
                let at_first = |at| if at < scheme.volumes { &wide } else { &contracts[at] };
                let forks = forks.iter().enumerate();
                (forks.map(|(at, fork)| simulated(fork, at_first(at))).collect(), contracts)
            }
            Some(real) => {
                let copied = |at: usize| on_real(&forks[at], &real.all[at]);
                let volumes: Vec<_> = compare::at_once(forks.len(), copied)?;
                let all = real.all.iter().take(volumes.len());
                (volumes, all.map(|volume| volume.contract.clone()).collect())
            }
        };
        let joins = if scheme.grows { volumes.pop() } else { None };
        let (store, mut counters) = open(volumes, scheme, &self.scale, clock)?;
        let joins = joins.map(|(volume, counted)| {
            counters.push(counted);
            volume
        });
        let counted_by =
            real.map_or(CountedBy::Simulator, |real| real.counted_by(scheme.volumes_max()));
        Ok(Fixture { store, contracts, counters, joins, counted_by })
    }
}

fn label(number: usize) -> String {
    format!("v{number}")
}

/// A counter of a volume; what only its device has is zero until it joins.
fn count(device: Option<&Arc<Device>>, counters: &VolumeCounters, counted: Counted) -> u64 {
    let users = |device: &Device, is: bool| {
        let classes = device.gate().meter().classes;
        let of = Class::ALL.iter().zip(classes);
        let of = of.filter(|(class, _)| (**class == Class::Foreground) == is);
        of.map(|(_, figures)| figures.spent.ops).sum()
    };
    let kernel = || counters.kernel.as_ref().and_then(BlockDevice::ios).unwrap_or(0);
    match (counted, device) {
        (Counted::Provider, _) => kernel(),
        (_, None) => 0,
        (Counted::Users, Some(device)) => users(device, true),
        (Counted::Others, Some(device)) => users(device, false),
        (Counted::Copies, Some(_)) => counters.copies.ops(),
        (Counted::Overdrafts, Some(device)) => {
            device.seen_by_provider().unwrap_or_default().throttled
        }
    }
}

/// A store of one scheme.
pub(super) struct Fixture {
    pub(super) store: Store,
    /// In the order of the counters.
    contracts: Vec<Contract>,
    counters: Vec<VolumeCounters>,
    /// The volume that will join.
    joins: Option<Volume>,
    pub(super) counted_by: CountedBy,
}

/// What is counted of a volume besides its gate's figures.
#[derive(Clone)]
struct VolumeCounters {
    label: String,
    copies: CopyIo,
    /// The kernel's counters of its real device.
    kernel: Option<BlockDevice>,
}

impl Fixture {
    /// Applies the contract from now on. Real volumes have it from the beginning.
    pub(super) fn enforce(&self) {
        if self.counted_by == CountedBy::Simulator {
            for (counters, contract) in self.counters.iter().zip(&self.contracts) {
                if let Some(device) = self.store.devices().get(&counters.label) {
                    device.set_contract(contract);
                }
            }
        }
    }

    /// Adds the volume that will join, if there is one, during the run.
    pub(super) fn join(&self) -> anyhow::Result<()> {
        let Some(volume) = &self.joins else { return Ok(()) };
        self.store.pool().add_volume(volume).context("taking in one more volume")
    }

    /// The counters of each volume during a run; zero for one that has not joined.
    pub(super) fn counts(&self) -> Vec<Tally<'_>> {
        let devices = self.store.devices();
        let of = |counters: &'_ VolumeCounters| {
            let known = Arc::new(OnceLock::new());
            Counted::ALL.map(|counted| {
                let (counters, known) = (counters.clone(), Arc::clone(&known));
                Tally::new(move || {
                    if known.get().is_none()
                        && let Some(device) = devices.get(&counters.label)
                    {
                        let _another = known.set(device);
                    }
                    count(known.get(), &counters, counted)
                })
            })
        };
        self.counters.iter().flat_map(of).collect()
    }

    /// Copies made so far.
    pub(super) fn copies(&self) -> Copies {
        let figures = self.store.pool().copies();
        Copies { made: figures.made.iter().sum(), bytes: figures.bytes, times: figures.times }
    }

    pub(super) fn paid(&self) -> Paid {
        let here = self.store.devices().here().len();
        let lines = self.contracts.iter().take(here).map(Contract::line_iops);
        let iops = lines.map(|line| line.unwrap_or(0.0) as u64).collect();
        Paid { iops, rho: Share::default().rho() }
    }

    pub(super) fn close(self) -> anyhow::Result<()> {
        if self.counted_by == CountedBy::Simulator {
            // Running compactions end sooner under a fast contract.
            let wide = wide()?;
            self.store.devices().here().iter().for_each(|device| device.set_contract(&wide));
        }
        self.store.close().context("closing a store that was measured")
    }
}

/// A simulated volume on `mem`, and its counters.
fn simulated(mem: &Mem, contract: &Contract) -> (Volume, VolumeCounters) {
    let (volume, counters) = watched(mem.label(), Arc::new(mem.clone()), contract, None);
    (volume.simulated(), counters)
}

/// A real volume with a copy of `mem`, and its counters.
fn on_real(mem: &Mem, real: &RealVolume) -> anyhow::Result<(Volume, VolumeCounters)> {
    let dir = Dir::open(real.copy(mem)?, DirOptions::default())?;
    Ok(watched(mem.label(), Arc::new(dir), &real.contract, real.counters.clone()))
}

fn watched(
    label: &str,
    inner: Arc<dyn volume::Volume>,
    contract: &Contract,
    kernel: Option<BlockDevice>,
) -> (Volume, VolumeCounters) {
    let copies = CopyIo::default();
    let watched = Watched { inner, copies: copies.clone() };
    let volume = Volume::other(label, watched, contract.clone());
    (volume, VolumeCounters { label: label.into(), copies, kernel })
}

fn open(
    volumes: Vec<(Volume, VolumeCounters)>,
    scheme: &Scheme,
    scale: &Scale,
    clock: &Clock,
) -> anyhow::Result<(Store, Vec<VolumeCounters>)> {
    let options = Options {
        // Only metadata in memory, as in the paper.
        cache_data: false,
        cache_policy: CachePolicy::RocksDb,
        prefetch: false,
        ..options(scale.sizes)
    };
    let (volumes, counters): (Vec<_>, Vec<_>) = volumes.into_iter().unzip();
    let store = Store::builder()
        .volumes(volumes)
        .opening(scheme.placed.opening())
        .migrate(scheme.migrate, scheme.terms())
        .options(options)
        .family(family(|_| {}))
        .clock(clock.clone());
    let store = store.open();
    Ok((store.with_context(|| format!("a store of the scheme {}", scheme.name))?, counters))
}

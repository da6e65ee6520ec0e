//! From settings to running parts: directories, gates, the pool, the store.
//!
//! ```text
//! store (kv::Db) -> pool (Spread) -> gate -> [simulate] -> dir      one of the last three per volume
//! ```

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use anyhow::Context;
use plimsoll::kv;
use policy::contract::Contract;
use policy::placement::{Hash, RoundRobin, Single, Stripe};
use pool::spread::{Opening, Spread};
use pool::{Member, PoolId};
use volume::dir::{Dir, DirOptions};
use volume::layer::gate::Gate;
use volume::layer::simulate::{Count, Simulate};
use volume::task::block_on;
use volume::{Clock, ErrorKind, Volume};

use crate::settings::{self, Placement, Settings};

/// A device volume behind its gate.
pub(crate) struct Device {
    /// Its name.
    pub(crate) name: String,
    /// What keeps it to its contract.
    pub(crate) gate: Arc<Gate<Arc<dyn Volume>>>,
    /// What plays the provider, if the volume is simulated.
    pub(crate) provider: Option<Arc<Simulate<Dir>>>,
}

/// The devices of a pool, and those of them that could not be opened.
pub(crate) struct Devices {
    /// The devices that are there.
    pub(crate) here: Vec<Device>,
    /// What is wrong with those that are not, a line each.
    pub(crate) away: Vec<String>,
}

/// Everything below the doors.
pub(crate) struct Stack {
    pub(crate) devices: Devices,
    pub(crate) pool: Spread,
    pub(crate) store: Arc<kv::Db>,
}

impl Device {
    fn open(settings: &settings::Volume, clock: &Clock, dirs: &DirOptions) -> volume::Result<Self> {
        // A missing mount must not be papered over; the directory of a simulated volume is only ours.
        let options = DirOptions { create: settings.simulate, ..dirs.clone() };
        let dir = Dir::open(&settings.path, options)?;
        let contract = &settings.contract;
        let (device, provider): (Arc<dyn Volume>, _) = if settings.simulate {
            let simulated = Simulate::new(dir, contract, clock.clone(), any_number());
            let simulated = Arc::new(simulated);
            (Arc::clone(&simulated) as _, Some(simulated))
        } else {
            (Arc::new(dir), None)
        };
        let (name, share) = (settings.name.clone(), settings.share);
        let gate = Arc::new(Gate::new(device, &name, contract, share, clock.clone()));
        Ok(Self { name, gate, provider })
    }

    /// What the provider has seen of it, if somebody plays the provider.
    pub(crate) fn seen_by_provider(&self) -> Option<Count> {
        self.provider.as_ref().map(|provider| provider.meter().total)
    }

    /// Goes by new terms from now on; whoever plays the provider does so first, and starts with all of
    /// them in hand, so that nothing the gate lets through overdraws them.
    pub(crate) fn set_contract(&self, contract: &Contract) {
        if let Some(provider) = &self.provider {
            provider.set_contract(contract);
        }
        self.gate.set_contract(contract);
    }
}

impl Devices {
    /// Opens the volumes of the store's pool.
    ///
    /// # Errors
    /// Another process has one of them, or every one is away.
    pub(crate) fn open(settings: &Settings, clock: &Clock) -> anyhow::Result<Self> {
        let dirs = DirOptions::default();
        let (mut here, mut away) = (Vec::new(), Vec::new());
        for name in &settings.kv_pool().volumes {
            let volume = settings.volumes.iter().find(|volume| volume.name == *name);
            let volume = volume.expect("the settings were checked when they were read");
            match Device::open(volume, clock, &dirs) {
                Ok(device) => here.push(device),
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    away.push(format!("volume {name} is away: {error}"));
                }
                Err(error) => return Err(error).with_context(|| format!("volume {name}")),
            }
        }
        if here.is_empty() {
            anyhow::bail!("no volume is there:\n  {}", away.join("\n  "));
        }
        Ok(Self { here, away })
    }

    /// The devices as a pool takes them.
    pub(crate) fn members(&self) -> Vec<Member> {
        let members = self.here.iter();
        members.map(|device| Member::new(&*device.name, Arc::clone(&device.gate))).collect()
    }

    /// Opens the pool on them; makes it if all of them are there and blank.
    pub(crate) fn open_pool(&self, settings: &Settings) -> anyhow::Result<Spread> {
        let mut opening = opening(settings);
        if self.away.is_empty() {
            let id = u128::from(any_number()) << 64 | u128::from(any_number());
            opening = opening.create_if_missing(PoolId(id));
        } else {
            opening = opening.allow_away();
        }
        self.open_as(settings, opening)
    }

    /// Opens the pool on them whatever was lost: see [`Opening::salvage`].
    pub(crate) fn salvage_pool(&self, settings: &Settings) -> anyhow::Result<Spread> {
        self.open_as(settings, opening(settings).allow_away().salvage())
    }

    fn open_as(&self, settings: &Settings, opening: Opening) -> anyhow::Result<Spread> {
        block_on(Spread::open(self.members(), opening))
            .with_context(|| format!("pool {}", settings.kv_pool().name))
    }

    /// Lets nothing through any more.
    pub(crate) fn close(&self) {
        self.here.iter().for_each(|device| device.gate.close());
    }
}

impl Stack {
    /// Opens everything below the doors. It blocks, for as long as a recovery takes.
    pub(crate) fn open(settings: &Settings, clock: &Clock) -> anyhow::Result<Self> {
        let devices = Devices::open(settings, clock)?;
        for line in &devices.away {
            tracing::warn!("{line}");
        }
        let pool = devices.open_pool(settings)?;
        let options = kv::Options {
            memory: settings.kv.memory,
            durability: settings.kv.durability,
            wal_sync_interval: settings.kv.wal_sync_interval,
            ..kv::Options::default()
        };
        let store = kv::open(pool.clone(), clock.clone(), &options).context("the store")?;
        Ok(Self { devices, pool, store: Arc::new(store) })
    }

    /// Closes the store, then the pool, then the gates: on return everything is durable.
    ///
    /// # Errors
    /// Somebody still holds the store, or the pool could not be made durable.
    pub(crate) fn close(self) -> anyhow::Result<()> {
        Arc::into_inner(self.store).context("something still uses the store")?.close();
        block_on(self.pool.close()).context("closing the pool")?;
        self.devices.close();
        Ok(())
    }
}

fn opening(settings: &Settings) -> Opening {
    let opening = match settings.kv_pool().placement {
        Placement::Single => Opening::new(Single),
        Placement::RoundRobin => Opening::new(RoundRobin::default()),
        Placement::Hash => Opening::new(Hash),
        Placement::Stripe(chunk) => Opening::new(Stripe::new(chunk)),
    };
    opening.meta(settings.kv.meta.clone())
}

/// A number that differs from run to run and from call to call.
fn any_number() -> u64 {
    RandomState::new().hash_one(0)
}

//! The members of a pool, opened for a command that opens no store.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use ::pool::spread::Report;
use ::pool::tier::{Always, Options, Tier};
use ::pool::{Member, Spread};
use anyhow::Context;
use plimsoll::volumes::Devices;
use policy::units::GIB;
use volume::task::block_on;
use volume::{Clock, Volume};

use crate::settings::{self, Pool, Settings};
use crate::wiring;

/// The volumes of a pool, and the pools that are its members.
pub(crate) struct Members {
    devices: Devices,
    below: Vec<(String, Self, Spread)>,
    tiers: Vec<(String, Slow)>,
}

/// The slow side of a tier, which has everything: the fast one has copies only.
struct Slow {
    member: Arc<dyn Volume>,
    /// It, if it is a volume.
    devices: Option<Devices>,
    /// It, if it is a pool.
    pool: Option<(Members, Spread)>,
}

impl Members {
    /// Opens them; pools below are recovered, if they were not closed. The caches of tiers are empty afterwards, since
    /// objects may change without them.
    pub(crate) fn open(settings: &Settings, pool: &Pool, clock: &Clock) -> anyhow::Result<Self> {
        Self::open_all(settings, pool, true, clock)
    }

    /// The same for [`Members::inspect`] alone, which changes nothing: caches stay as they are.
    pub(crate) fn open_to_look(
        settings: &Settings,
        pool: &Pool,
        clock: &Clock,
    ) -> anyhow::Result<Self> {
        Self::open_all(settings, pool, false, clock)
    }

    fn open_all(
        settings: &Settings,
        pool: &Pool,
        to_change: bool,
        clock: &Clock,
    ) -> anyhow::Result<Self> {
        let devices = wiring::devices(settings, pool, clock)?;
        let (mut below, mut tiers) = (Vec::new(), Vec::new());
        for of in settings.pools.iter().filter(|of| pool.volumes.contains(&of.name)) {
            if let Some(tier) = &of.tier {
                let slow = Slow::open(settings, tier, to_change, clock);
                let slow = slow.with_context(|| format!("pool {}", of.name))?;
                tiers.push((of.name.clone(), slow));
                continue;
            }
            let (members, opened) = Self::open_below(settings, of, clock)?;
            below.push((of.name.clone(), members, opened));
        }
        Ok(Self { devices, below, tiers })
    }

    fn open_below(settings: &Settings, of: &Pool, clock: &Clock) -> anyhow::Result<(Self, Spread)> {
        let members = Self::open(settings, of, clock)?;
        let opened = members.open_pool(wiring::opening(settings, of));
        let opened = opened.with_context(|| format!("pool {}", of.name))?;
        Ok((members, opened))
    }

    /// The volumes that are members themselves, and those that tiers have as their slow sides.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &Devices> {
        let slow = self.tiers.iter().filter_map(|(_, slow)| slow.devices.as_ref());
        std::iter::once(&self.devices).chain(slow)
    }

    /// As [`Devices::open_pool`].
    pub(crate) fn open_pool(&self, opening: ::pool::spread::Opening) -> plimsoll::Result<Spread> {
        self.devices.open_pool(self.pools(), opening)
    }

    /// As [`Devices::salvage_pool`].
    pub(crate) fn salvage_pool(
        &self,
        opening: ::pool::spread::Opening,
    ) -> plimsoll::Result<Spread> {
        self.devices.salvage_pool(self.pools(), opening)
    }

    /// As [`Spread::inspect`].
    pub(crate) fn inspect(&self) -> volume::Result<Report> {
        let members: Vec<_> = self.devices.members().into_iter().chain(self.pools()).collect();
        block_on(Spread::inspect(&members))
    }

    fn pools(&self) -> Vec<Member> {
        let pools = self.below.iter().map(|(name, _, pool)| Member::new(&**name, pool.clone()));
        let slow = |(name, slow): &(String, Slow)| Member::new(&**name, Arc::clone(&slow.member));
        pools.chain(self.tiers.iter().map(slow)).collect()
    }

    /// Closes pools and gates. The pool on them must be closed.
    pub(crate) fn close(self) -> anyhow::Result<()> {
        for (name, members, pool) in self.below {
            block_on(pool.close()).with_context(|| format!("pool {name}"))?;
            members.close()?;
        }
        for (name, Slow { member, devices, pool }) in self.tiers {
            drop(member);
            if let Some((members, pool)) = pool {
                block_on(pool.close()).with_context(|| format!("pool {name}"))?;
                members.close()?;
            }
            devices.iter().for_each(Devices::close);
        }
        self.devices.close();
        Ok(())
    }
}

impl Slow {
    fn open(
        settings: &Settings,
        of: &settings::Tier,
        to_change: bool,
        clock: &Clock,
    ) -> anyhow::Result<Self> {
        let found = settings.pools.iter().find(|pool| pool.name == of.slow);
        let (member, devices, pool): (Arc<dyn Volume>, _, _) = match found {
            Some(pool) => {
                let (members, pool) = Members::open_below(settings, pool, clock)?;
                (Arc::new(pool.clone()), None, Some((members, pool)))
            }
            None => {
                let devices = wiring::slow_volume(settings, of, clock)?;
                let device = devices.here().pop().context("it is away")?;
                (device.volume(), Some(devices), None)
            }
        };
        if !to_change {
            return Ok(Self { member, devices, pool });
        }
        // An opening without the fast side makes what that holds an old cache.
        let identity = RandomState::new().hash_one(0);
        let opened = Tier::open(member, None, Options::new(GIB, identity), Box::new(Always), clock);
        let member: Arc<dyn Volume> = Arc::new(block_on(opened)?);
        Ok(Self { member, devices, pool })
    }
}

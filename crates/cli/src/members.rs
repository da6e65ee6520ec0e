//! The members of a pool, opened for a command that opens no store.

use ::pool::spread::Report;
use ::pool::{Member, Spread};
use anyhow::Context;
use plimsoll::volumes::Devices;
use volume::Clock;
use volume::task::block_on;

use crate::settings::{Pool, Settings};
use crate::wiring;

/// The volumes of a pool, and the pools that are its members.
pub(crate) struct Members {
    devices: Devices,
    below: Vec<(String, Self, Spread)>,
}

impl Members {
    /// Opens them; pools below are recovered, if they were not closed.
    pub(crate) fn open(settings: &Settings, pool: &Pool, clock: &Clock) -> anyhow::Result<Self> {
        let devices = wiring::devices(settings, pool, clock)?;
        let mut below = Vec::new();
        for of in settings.pools.iter().filter(|of| pool.volumes.contains(&of.name)) {
            let members = Self::open(settings, of, clock)?;
            let opened = members.open_pool(wiring::opening(settings, of));
            let opened = opened.with_context(|| format!("pool {}", of.name))?;
            below.push((of.name.clone(), members, opened));
        }
        Ok(Self { devices, below })
    }

    /// The volumes that are members themselves.
    pub(crate) const fn devices(&self) -> &Devices {
        &self.devices
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
        let pools = self.below.iter();
        pools.map(|(name, _, pool)| Member::new(&**name, pool.clone())).collect()
    }

    /// Closes pools and gates. The pool on them must be closed.
    pub(crate) fn close(self) -> anyhow::Result<()> {
        for (name, members, pool) in self.below {
            block_on(pool.close()).with_context(|| format!("pool {name}"))?;
            members.close()?;
        }
        self.devices.close();
        Ok(())
    }
}

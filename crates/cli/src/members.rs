//! The members of a pool, opened for a command that opens no store.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use ::pool::spread::Report;
use ::pool::tier::{Always, Marks, Options, Tier, dirty_marks, has_newest};
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

/// The slow side of a tier, which has everything, unless writes were kept on the fast one.
struct Slow {
    found: TierFound,
    member: Arc<dyn Volume>,
    /// It, if it is a volume.
    devices: Option<Devices>,
    /// It, if it is a pool.
    pool: Option<(Members, Spread)>,
}

/// What a tier has that is not on its slow side.
pub(crate) struct TierFound {
    /// The name of the fast side.
    pub(crate) fast: String,
    /// The name of the slow side.
    pub(crate) slow: String,
    /// Of the slow side.
    pub(crate) marks: Marks,
    /// Why the fast side is not the one that has the newest bytes; `None` if it is, or there are none.
    pub(crate) missing: Option<String>,
}

impl Members {
    /// Opens them; pools below are recovered, if they were not closed. The caches of tiers are empty afterwards, since
    /// objects may change without them.
    ///
    /// # Errors
    /// A tier has bytes that its slow side lacks: nothing was changed.
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

    /// The tiers, by name.
    pub(crate) fn tiers(&self) -> impl Iterator<Item = (&str, &TierFound)> {
        self.tiers.iter().map(|(name, slow)| (&**name, &slow.found))
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
        for (name, Slow { member, devices, pool, found: _ }) in self.tiers {
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
        let marks = block_on(dirty_marks(&*member))?;
        let missing = (marks.objects > 0).then(|| missing(settings, of, &*member, clock)).flatten();
        let (fast, slow) = (of.fast.clone(), of.slow.clone());
        let found = TierFound { fast, slow, marks, missing };
        if !to_change {
            return Ok(Self { found, member, devices, pool });
        }
        // An opening without the fast side makes what that holds an old cache.
        let identity = RandomState::new().hash_one(0);
        let options = Options { refuses_loss: true, ..Options::new(GIB, identity) };
        let opened = block_on(Tier::open(member, None, options, Box::new(Always), clock));
        let opened = opened.with_context(|| {
            format!(
                "{} cannot be opened without {}: start the server, which takes that in use, and write it back by `plimsoll \
                 tier flush`",
                of.slow, of.fast
            )
        });
        let member: Arc<dyn Volume> = Arc::new(opened?);
        Ok(Self { found, member, devices, pool })
    }
}

/// Why the fast side of a tier does not have the bytes that `slow` lacks; `None` if it has.
fn missing(
    settings: &Settings,
    of: &settings::Tier,
    slow: &dyn Volume,
    clock: &Clock,
) -> Option<String> {
    let found = settings.pools.iter().find(|pool| pool.name == of.fast);
    let has = match found {
        Some(pool) => Members::open_below(settings, pool, clock).and_then(|(members, pool)| {
            let has = block_on(has_newest(slow, &pool))?;
            block_on(pool.close())?;
            members.close()?;
            Ok(has)
        }),
        None => wiring::fast_volume(settings, of, clock).map_err(anyhow::Error::from).and_then(
            |devices| {
                let device = devices.here().pop().context("it is away")?;
                let has = block_on(has_newest(slow, &*device.volume()))?;
                devices.close();
                Ok(has)
            },
        ),
    };
    match has {
        Ok(true) => None,
        Ok(false) => Some("it is another one, or empty".into()),
        Err(error) => Some(format!("{error:#}")),
    }
}

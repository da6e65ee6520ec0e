//! An open pool: its devices, and the threads that tend it, whatever stores are on it.

mod load_sampler;
mod moving;
mod recycling;
mod reserving;
mod scrubbing;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use policy::migrate::{Policy, Terms};
use policy::placement::{Code, LeastOverlap, Placement, VolumeId, losses_survived, members_for};
use policy::price::Price;
use policy::purpose::Tenant;
use pool::Member;
use pool::logged::{self, Logged};
pub use pool::mover::Figures as Copies;
use pool::scrubber::Passes;
use pool::spread::{Opening, Spread};
use volume::Clock;
use volume::heartbeat::TaskHealth;
use volume::task::block_on;

use self::load_sampler::LoadSampler;
use self::moving::Moving;
use self::recycling::Recycling;
use self::reserving::set_aside;
use self::scrubbing::Scrubbing;
use super::tier::{CacheTier, Fast, Tiering};
use super::{Away, Devices, Volume};
use crate::every_second::EverySecond;
use crate::{Error, Result};

/// A pool that is open: several volumes as one. Stores share it, each under a name of its own
/// ([`kv::Options::name`](crate::kv::Options::name), [`series::Options::name`](crate::series::Options::name)). It
/// dereferences to [`Spread`], which has all calls.
///
/// Its own threads restore missing copies, copy hot tables, empty draining volumes, read back and compare every copy now
/// and then, keep what the gates learned of their volumes, and set aside on the devices what the stores reserve. Dropping
/// it stops them; [`Pool::close`] also makes everything durable.
pub struct Pool {
    // Dropped in this order.
    recycling: Recycling,
    moving: Moving,
    scrubbing: Scrubbing,
    tending: [EverySecond; 2],
    logged: Logged,
    spread: Spread,
    /// The members that are pools, by name.
    below: Vec<(String, Self)>,
    tiers: Vec<TierMember>,
    devices: Devices,
    clock: Clock,
    /// The weights of stores that do not have 1.
    io_weights: Mutex<BTreeMap<Tenant, f64>>,
}

/// A member that is a tier, and the sides of it that are pools, by name.
struct TierMember {
    // Closed in this order.
    tier: CacheTier,
    slow: Option<(String, Pool)>,
    fast: Option<(String, Pool)>,
    devices: Devices,
}

/// Seconds between two writes of what the gates learned.
const LEARNED_EVERY: u32 = 60;

/// A side of a tier: see [`PoolBuilder::tier`].
#[expect(clippy::large_enum_variant, reason = "there are two of them for each tier")]
pub enum Side {
    /// A volume.
    Volume(Volume),
    /// A pool, under this name.
    Pool(String, PoolBuilder),
}

impl From<Volume> for Side {
    fn from(volume: Volume) -> Self {
        Self::Volume(volume)
    }
}

/// Opens a pool.
pub struct PoolBuilder {
    volumes: Vec<Volume>,
    pools: Vec<(String, Self)>,
    tiers: Vec<TierRecipe>,
    opening: Opening,
    migrate: (Policy, Terms),
    scrub_every: Option<Duration>,
    log_len: u64,
    log_memory: u64,
    clock: Option<Clock>,
}

struct TierRecipe {
    name: String,
    fast: Side,
    slow: Side,
    options: Tiering,
}

impl Default for PoolBuilder {
    fn default() -> Self {
        Self {
            volumes: Vec::new(),
            pools: Vec::new(),
            tiers: Vec::new(),
            opening: Opening::new(LeastOverlap::default()),
            migrate: (Policy::default(), Terms::default()),
            scrub_every: Some(policy::scrub::PERIOD),
            log_len: logged::Options::default().limit,
            log_memory: logged::Options::default().memory,
            clock: None,
        }
    }
}

impl Pool {
    /// Starts to open a pool.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    ///
    /// use plimsoll::volumes::{Pool, Volume, contract};
    /// use plimsoll::{kv, series};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let gp3 = contract("gp3")?;
    /// let volumes = ["a", "b", "c"];
    /// let volumes = volumes.map(|v| Volume::directory(v, format!("/mnt/ebs-{v}"), gp3.clone()));
    /// let pool = Arc::new(Pool::builder().volumes(volumes).copies(2).open()?);
    /// let ships = kv::Store::builder().pool(Arc::clone(&pool)).open()?;
    /// let tides = series::Store::builder().pool(pool).open()?;
    /// tides.close()?;
    /// ships.close()?; // the last one closes the pool, too
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn builder() -> PoolBuilder {
        PoolBuilder::default()
    }

    /// The pool's own handle, to be shared.
    #[must_use]
    pub const fn spread(&self) -> &Spread {
        &self.spread
    }

    /// The pool as a store called `name` has it, also for objects that are written in place: on a pool of fragments these
    /// go through a log, which [`Spread`] alone knows nothing of.
    #[must_use]
    pub fn volume(&self, name: &str) -> Logged {
        self.logged.with(self.spread.enter(name))
    }

    /// What the log of objects in place holds and did: see [`PoolBuilder::log_len`].
    #[must_use]
    pub fn log_figures(&self) -> logged::Figures {
        self.logged.figures()
    }

    /// The open volumes, also below members that are pools, and those that are away.
    #[must_use]
    pub const fn devices(&self) -> &Devices {
        &self.devices
    }

    /// The clock of all parts.
    #[must_use]
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Figures of the copies of objects made and dropped: see [`PoolBuilder::migrate`].
    #[must_use]
    pub fn copies(&self) -> Copies {
        self.moving.figures()
    }

    /// The passes of its scrub: progress, findings, and passes on demand. See [`PoolBuilder::scrub_every`].
    #[must_use]
    pub const fn scrubs(&self) -> &Passes {
        self.scrubbing.passes()
    }

    /// The pools directly below that hold its objects, by name: its members, and the slow sides of tiers.
    #[must_use]
    pub fn below(&self) -> Vec<(&str, &Self)> {
        let slow = self.tiers.iter().filter_map(|member| member.slow.as_ref());
        self.below.iter().chain(slow).map(|(name, pool)| (&**name, pool)).collect()
    }

    /// All pools directly below, by name: also the fast sides of tiers.
    #[must_use]
    pub fn all_below(&self) -> Vec<(&str, &Self)> {
        let fast = self.tiers.iter().filter_map(|member| member.fast.as_ref());
        let fast = fast.map(|(name, pool)| (&**name, pool));
        self.below().into_iter().chain(fast).collect()
    }

    /// All pools below at any depth, by name, each before those below it.
    #[must_use]
    pub fn tree_below(&self) -> Vec<(&str, &Self)> {
        let with_tree = |(name, pool)| std::iter::once((name, pool)).chain(Self::tree_below(pool));
        self.all_below().into_iter().flat_map(with_tree).collect()
    }

    /// The tiers among its members and those of the pools below.
    #[must_use]
    pub fn tiers(&self) -> Vec<&CacheTier> {
        let own = self.tiers.iter().map(|member| &member.tier);
        own.chain(self.all_below().into_iter().flat_map(|(_, pool)| pool.tiers())).collect()
    }

    /// The pool of the tree that has a member of this name: this one, or one below.
    #[must_use]
    pub fn with_member(&self, name: &str) -> Option<&Self> {
        if self.spread.volume_id(name).is_some() {
            return Some(self);
        }
        self.all_below().into_iter().find_map(|(_, pool)| pool.with_member(name))
    }

    /// Why objects cannot be read, for people; `None` if each has a readable copy.
    #[must_use]
    pub fn unreadable(&self) -> Option<String> {
        let unreadable = self.copies().redundancy.unreadable;
        (unreadable > 0).then(|| {
            format!(
                "{unreadable} objects have no copy that can be read: bring back the volumes that are away"
            )
        })
    }

    /// The number of objects of pools below, and of the sides of tiers, that have fewer copies or fragments than their setting
    /// asks for, or none that can be read.
    #[must_use]
    pub fn short_below(&self) -> u64 {
        let of = |pool: &Self| {
            let own = pool.copies().redundancy;
            own.lacking() + own.unreadable + pool.short_below()
        };
        self.below().into_iter().map(|(_, pool)| of(pool)).sum()
    }

    /// How its background tasks do, and those of pools below.
    #[must_use]
    pub fn tasks(&self) -> Vec<TaskHealth> {
        let tending = self.tending.iter().map(EverySecond::health);
        let own = [self.recycling.health(), self.moving.health(), self.scrubbing.health()];
        let own = own.into_iter().chain(tending);
        let tiers = self.tiers.iter().map(|member| member.tier.health());
        let below = self.all_below().into_iter().flat_map(|(_, pool)| pool.tasks());
        own.chain(tiers).chain(below).collect()
    }

    /// Adds a blank volume as a member of this pool. Durable on return: new objects go there from now on. Later openings have to name it.
    ///
    /// # Errors
    /// `Volume`: it cannot be used, or is in use. `Pool`: it is not blank, the pool has one of that name, or it did not
    /// take it.
    pub fn add_volume(&self, volume: &Volume) -> Result<()> {
        self.devices.add(volume, &self.spread, &self.clock)?;
        if let Some(device) = self.devices.get(volume.name()) {
            let weights = self.io_weights.lock();
            weights.iter().for_each(|(&store, &weight)| device.gate().set_io_weight(store, weight));
        }
        Ok(())
    }

    /// Gives the store called `name` this weight beside the pool's others: its part of each volume's tokens where several
    /// stores wait in a class. Default 1 for each; more for one store makes the others wait longer.
    ///
    /// # Panics
    /// `weight` is not above 0, or is infinite.
    pub fn set_io_weight(&self, name: &str, weight: f64) {
        let store = self.spread.enter(name).tenant();
        let mut weights = self.io_weights.lock();
        weights.insert(store, weight);
        self.devices.here().iter().for_each(|device| device.gate().set_io_weight(store, weight));
    }

    /// Removes a volume that [`Spread::drain`] has emptied, and closes it. Durable on return.
    ///
    /// # Errors
    /// `Pool`: there is none of that name, or it is not empty.
    pub fn remove_volume(&self, name: &str) -> Result<()> {
        let id = self.member(name)?;
        block_on(self.spread.remove_volume(id)).map_err(Error::Pool)?;
        self.devices.forget(name);
        Ok(())
    }

    /// Removes a volume that does not answer and is lost for good. Durable on return. Gives the objects that were only
    /// there; there must be none, unless `give_up`: see [`Spread::remove_lost`].
    ///
    /// # Errors
    /// `Pool`: there is none of that name; it is available; or it has the only copies of the objects named.
    pub fn remove_lost_volume(&self, name: &str, give_up: bool) -> Result<Vec<volume::Name>> {
        let id = self.member(name)?;
        let lost = block_on(self.spread.remove_lost(id, give_up)).map_err(Error::Pool)?;
        self.devices.forget(name);
        Ok(lost)
    }

    fn member(&self, name: &str) -> Result<VolumeId> {
        self.spread.volume_id(name).ok_or_else(|| {
            let what = format!("volume {name}: the pool has none of that name");
            Error::Pool(volume::Error::new(volume::ErrorKind::NotFound, what))
        })
    }

    /// Closes the pool, then the gates: on return everything is durable. Its stores must be closed.
    ///
    /// # Errors
    /// `Pool`: the last changes could not be made durable; writes keep the durability they had.
    pub fn close(self) -> Result<()> {
        let Self {
            recycling,
            moving,
            scrubbing,
            tending,
            logged,
            spread,
            below,
            tiers,
            devices,
            ..
        } = self;
        drop((recycling, moving, scrubbing, tending, logged));
        block_on(spread.close()).map_err(Error::Pool)?;
        // They hold its objects open.
        drop(spread);
        let mut below: Vec<_> = below.into_iter().map(|(_, pool)| pool).collect();
        for TierMember { tier, slow, fast, devices } in tiers {
            tier.close();
            devices.close();
            below.extend(slow.into_iter().chain(fast).map(|(_, pool)| pool));
        }
        below.into_iter().try_for_each(Self::close)?;
        devices.close();
        Ok(())
    }

    /// Closes it if this is its last handle: the last store on a pool closes it.
    pub(crate) fn release(self: Arc<Self>) -> Result<()> {
        Arc::into_inner(self).map_or(Ok(()), Self::close)
    }
}

impl Deref for Pool {
    type Target = Spread;

    fn deref(&self) -> &Spread {
        &self.spread
    }
}

impl PoolBuilder {
    /// Adds a volume. The order does not matter to an existing pool.
    #[must_use]
    pub fn volume(mut self, volume: Volume) -> Self {
        self.volumes.push(volume);
        self
    }

    /// Adds volumes.
    #[must_use]
    pub fn volumes(mut self, volumes: impl IntoIterator<Item = Volume>) -> Self {
        self.volumes.extend(volumes);
        self
    }

    /// Adds a pool as a member, under this name. It places whole objects over its own members, and keeps copies of
    /// them if it is told to. Its clock is this one's. Names, links and stores belong to the outermost pool.
    #[must_use]
    pub fn pool(mut self, name: impl Into<String>, pool: Self) -> Self {
        self.pools.push((name.into(), pool));
        self
    }

    /// Adds a member called `name` that has a cache of the hot ranges of `slow` on `fast`: see [`pool::tier`]. Its room and
    /// rates are those of `slow`, and reads of what is on `fast` cost `slow` nothing. `fast` may be lost at any time, unless
    /// [`Tiering::writes`] keeps writes there. It must not be a tier itself, and nor must `slow`.
    #[must_use]
    pub fn tier(
        mut self,
        name: impl Into<String>,
        fast: impl Into<Side>,
        slow: impl Into<Side>,
        options: Tiering,
    ) -> Self {
        let (name, fast, slow) = (name.into(), fast.into(), slow.into());
        self.tiers.push(TierRecipe { name, fast, slow, options });
        self
    }

    /// Sets how the pool is opened: besides placement and copies, the volumes for logs and manifest. It overrides
    /// earlier calls of [`PoolBuilder::copies`] and [`PoolBuilder::placement`]; later ones override it.
    #[must_use]
    pub fn opening(mut self, opening: Opening) -> Self {
        self.opening = opening;
        self
    }

    /// Keeps `copies` copies of each object, each on another volume: stores survive the loss of all but one of them.
    /// Default: one.
    #[must_use]
    pub fn copies(mut self, copies: usize) -> Self {
        self.opening = self.opening.copies(copies);
        self
    }

    /// Cuts complete objects longer than a strip into fragments, each on another volume, and keeps one copy more of all
    /// others than the code has parity fragments: stores survive the loss of as many volumes, for fewer bytes than as
    /// many copies would take. See [`Opening::code`].
    #[must_use]
    pub fn code(mut self, code: Code) -> Self {
        self.opening = self.opening.code(code);
        self
    }

    /// Sets the placement of new objects. Default: tables apart from those they are read with, [`LeastOverlap`].
    #[must_use]
    pub fn placement(mut self, placement: impl Placement + 'static) -> Self {
        self.opening = self.opening.placement(placement);
        self
    }

    /// Copies tables that are read often from volumes whose users wait to others, as `policy` and `terms` say. Default:
    /// [`Policy::Level`]. Under any policy, missing copies are restored and draining volumes are emptied, each ten
    /// seconds as much as [`policy::migrate`] allows.
    #[must_use]
    pub fn migrate(mut self, policy: Policy, terms: Terms) -> Self {
        self.migrate = (policy, terms);
        self
    }

    /// Reads back every copy of every table, log and full file once within this time, in spare capacity of the volumes,
    /// compares it with its checksum, and replaces a bad copy where another is good. A restart goes on where the last run
    /// ended. Shorter finds damage sooner, before the other copy rots too, and costs reads; `None` reads only when
    /// [`Passes::begin`] says so. Default: [`policy::scrub::PERIOD`].
    #[must_use]
    pub const fn scrub_every(mut self, period: Option<Duration>) -> Self {
        self.scrub_every = period;
        self
    }

    /// Lets the log of objects in place on a [pool of fragments](PoolBuilder::code) grow to about this many bytes, each copy
    /// counted once: a block that is overwritten before it leaves the log goes in place once. An opening reads all of it.
    /// Default: 1 GiB.
    #[must_use]
    pub const fn log_len(mut self, bytes: u64) -> Self {
        self.log_len = bytes;
        self
    }

    /// Keeps at most this many bytes of the log in memory: half of them the newest, half of them for blocks that are read back before
    /// they go in place. Each read back is an operation of the volumes; none is where this is twice [`PoolBuilder::log_len`].
    /// Default: 128 MiB.
    #[must_use]
    pub const fn log_memory(mut self, bytes: u64) -> Self {
        self.log_memory = bytes;
        self
    }

    /// Uses an existing clock. By default it starts one.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Opens volumes and pool; creates the pool if every volume is available and blank. Blocks for as long as a recovery
    /// takes.
    ///
    /// Unavailable volumes do not prevent this, as long as one volume is available and more than half of the copies of
    /// the pool's manifest are: [`Devices::away`] names the missing ones.
    ///
    /// # Errors
    /// The message names the volume, and what to do.
    pub fn open(self) -> Result<Pool> {
        let Self {
            volumes,
            pools,
            tiers,
            opening,
            migrate,
            scrub_every,
            log_len,
            log_memory,
            clock,
        } = self;
        let (policy, terms) = migrate;
        let clock = clock.unwrap_or_else(Clock::real);
        let (mut below, mut away) = (Vec::new(), Vec::new());
        for (name, pool) in pools {
            match pool.clock(clock.clone()).open() {
                Ok(pool) => below.push((name, pool)),
                Err(error) if is_away(&error) => away.push(Away { name, why: error.to_string() }),
                Err(error) => return Err(error),
            }
        }
        let mut opened = Vec::new();
        for recipe in tiers {
            recipe.check()?;
            let name = recipe.name.clone();
            match TierMember::open(recipe, &clock) {
                Ok(tier) => opened.push(tier),
                Err(error) if is_away(&error) => away.push(Away { name, why: error.to_string() }),
                Err(error) => return Err(error),
            }
        }
        let tiers = opened;
        let pools = below.iter().map(|(name, pool)| (name.clone(), pool.devices.clone()));
        let of_tiers = tiers.iter().map(|of| (of.tier.name().to_owned(), of.devices.clone()));
        let pools = pools.chain(of_tiers).collect();
        let devices = Devices::open_below(&volumes, pools, away, &clock)?;
        for away in devices.away() {
            tracing::warn!("{away}");
        }
        if devices.holding().is_empty() {
            return Err(Error::AllAway(devices.away().iter().map(Away::to_string).collect()));
        }
        let pools = below.iter().map(|(name, pool)| Member::new(&**name, pool.logged.clone()));
        let of_tiers = tiers.iter().map(|of| Member::new(of.tier.name(), of.tier.volume()));
        let spread = devices.open_pool(pools.chain(of_tiers).collect(), opening)?;
        // Before copies are made or dropped.
        let options = log_options(log_len, log_memory, &devices);
        let logged = block_on(Logged::open(spread.clone(), options)).map_err(Error::Pool)?;
        let recycling = Recycling::start(logged.clone(), clock.clone());
        let tending = [look(&spread, &devices, &clock), reserve(&spread, &devices, &clock)];
        let moving = Moving::start(spread.clone(), devices.clone(), clock.clone(), policy, terms);
        let scrubbing = Scrubbing::start(&spread, &devices, &clock, scrub_every);
        let io_weights = Mutex::default();
        Ok(Pool {
            recycling,
            moving,
            scrubbing,
            tending,
            logged,
            spread,
            below,
            tiers,
            devices,
            clock,
            io_weights,
        })
    }
}

impl PoolBuilder {
    /// The volumes that it may lose without losing an object.
    fn losses(&self) -> usize {
        let volumes = self.volumes.iter().map(|_| 0);
        let pools = self.pools.iter().map(|(_, pool)| pool.losses());
        let members = volumes.chain(pools).chain(self.tiers.iter().map(TierRecipe::losses));
        losses_survived(self.opening.copies_wanted(), members)
    }
}

impl Side {
    fn losses(&self) -> usize {
        match self {
            Self::Volume(_) => 0,
            Self::Pool(_, pool) => pool.losses(),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Volume(volume) => volume.name(),
            Self::Pool(name, _) => name,
        }
    }
}

impl TierRecipe {
    fn losses(&self) -> usize {
        let slow = self.slow.losses();
        if self.options.keeps_writes() { slow.min(self.fast.losses()) } else { slow }
    }

    /// # Errors
    /// `Pool`, `Invalid`: writes would stay on a side that survives fewer losses than the other one.
    fn check(&self) -> Result<()> {
        let (of_fast, of_slow) = (self.fast.losses(), self.slow.losses());
        if !self.options.needs_as_many() || of_fast >= of_slow {
            return Ok(());
        }
        let (name, fast, slow) = (&self.name, self.fast.name(), self.slow.name());
        let what = format!(
            "tier {name}: writes would stay on {fast}, which survives the loss of {of_fast} volumes, before {slow}, which \
             survives {of_slow}: give it a fast pool with {} copies{}, write through, or say that they may be lost by \
             back-unsafe",
            of_slow + 1,
            match of_slow {
                0 | 1 => String::new(),
                _ => format!(
                    " on {} volumes or more, of which more than half keep its manifest",
                    members_for(of_slow)
                ),
            }
        );
        Err(Error::Pool(volume::Error::new(volume::ErrorKind::Invalid, what)))
    }
}

impl TierMember {
    fn open(recipe: TierRecipe, clock: &Clock) -> Result<Self> {
        let TierRecipe { name, fast, slow, options } = recipe;
        let (devices, slow, slow_pool) = match slow {
            Side::Volume(volume) => {
                let devices = Devices::open(std::slice::from_ref(&volume), clock)?;
                let slow = devices.own().first().map(|device| device.volume());
                let slow = slow.expect("a volume that is away is an error");
                (devices, (volume.name().to_owned(), slow), None)
            }
            Side::Pool(name, pool) => {
                let pool = pool.clock(clock.clone()).open()?;
                let below = vec![(name.clone(), pool.devices.clone())];
                let devices = Devices::open_below(&[], below, Vec::new(), clock)?;
                let slow: Arc<dyn volume::Volume> = Arc::new(pool.logged.clone());
                (devices, (name.clone(), slow), Some((name, pool)))
            }
        };
        let (cache, fast, fast_pool) = match fast {
            Side::Volume(volume) => {
                (Devices::open_cache(&volume, clock), Fast::Volume(volume), None)
            }
            Side::Pool(name, pool) => match pool.clock(clock.clone()).open() {
                Ok(pool) => {
                    let below = vec![(name.clone(), pool.devices.clone())];
                    let cache = Devices::open_below(&[], below, Vec::new(), clock)?;
                    let fast: Arc<dyn volume::Volume> = Arc::new(pool.logged.clone());
                    (cache, Fast::Pool(name.clone(), Some(fast)), Some((name, pool)))
                }
                Err(error) => {
                    let away = Away { name: name.clone(), why: error.to_string() };
                    let cache = Devices::open_below(&[], Vec::new(), vec![away], clock)?;
                    (cache, Fast::Pool(name, None), None)
                }
            },
        };
        let devices = devices.with_cache(cache.clone());
        let tier = CacheTier::open(name, slow, fast, options, &devices, cache, clock)?;
        Ok(Self { tier, slow: slow_pool, fast: fast_pool, devices })
    }
}

/// How the log is kept on these devices.
fn log_options(limit: u64, memory: u64, devices: &Devices) -> logged::Options {
    let usual = logged::Options::default();
    let devices = devices.holding();
    let price = devices.iter().find_map(|device| Price::of(&device.gate().bought()));
    let price = price.unwrap_or(usual.price);
    let file_len = usual.file_len.min(limit / 16);
    logged::Options { limit, file_len, memory: memory.min(2 * limit), price }
}

/// Whether a pool that did not open may be back later, as a volume that is away.
fn is_away(error: &Error) -> bool {
    match error {
        Error::AllAway(_) => true,
        Error::Pool(error) => error.kind().is_away(),
        _ => false,
    }
}

/// Looks at the volumes' load, for placement, and keeps what their gates learned.
fn look(pool: &Spread, devices: &Devices, clock: &Clock) -> EverySecond {
    let mut sampler = LoadSampler::new(devices.clone(), pool.clone(), clock.clone());
    let (devices, mut looks) = (devices.clone(), 0_u32);
    EverySecond::start("sampling loads", clock, move || {
        sampler.look();
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(LEARNED_EVERY) {
            devices.own().iter().for_each(|device| device.keep_learned());
        }
    })
}

/// Sets the stores' reserves aside, in a thread of its own: a volume that hangs holds it up.
fn reserve(pool: &Spread, devices: &Devices, clock: &Clock) -> EverySecond {
    let (pool, devices) = (pool.clone(), devices.clone());
    EverySecond::start("keeping the reserve", clock, move || set_aside(&pool, &devices))
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod tier_tests;

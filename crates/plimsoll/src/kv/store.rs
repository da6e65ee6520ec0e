//! A store and everything below it, put together in a few lines.
//!
//! ```text
//! Store: Db -> pool (Spread) -> devices: gate -> [simulate] -> directory
//! ```

use std::ops::Deref;
use std::sync::Arc;

use engine::health::StoreHealth;
use policy::migrate::{Policy, Terms};
use policy::placement::{LeastOverlap, Placement, VolumeId};
use pool::spread::{Opening, Spread};
use volume::Clock;
use volume::task::block_on;

use super::db::open_under;
use super::load_sampler::LoadSampler;
use super::moving::Moving;
use super::pressure_monitor::PressureMonitor;
use super::reclaim::Reclaim;
use super::{Copies, Db, Family, Options, load};
use crate::volumes::{Devices, Volume};
use crate::{Error, Result};

/// A store, its pool and their volumes. It dereferences to [`Db`].
///
/// Dropping it closes the store as [`Db`] does; [`Store::close`] also closes the pool, and reports errors.
pub struct Store {
    // Dropped in this order.
    moving: Moving,
    monitor: PressureMonitor,
    reclaim: Reclaim,
    db: Arc<Db>,
    pool: Spread,
    devices: Devices,
    clock: Clock,
}

/// Builds a store.
pub struct Builder {
    volumes: Vec<Volume>,
    opening: Opening,
    options: Options,
    families: Vec<Family>,
    migrate: (Policy, Terms),
    clock: Option<Clock>,
}

impl Store {
    /// Starts to build a store.
    ///
    /// ```no_run
    /// use plimsoll::kv::Store;
    /// use plimsoll::volumes::{Volume, contract};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let gp3 = contract("gp3")?;
    /// let store = Store::builder()
    ///     .volume(Volume::directory("a", "/mnt/ebs-a", gp3.clone()))
    ///     .volume(Volume::directory("b", "/mnt/ebs-b", gp3))
    ///     .open()?;
    /// store.put("ship", "plimsoll")?;
    /// store.close()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn builder() -> Builder {
        Builder {
            volumes: Vec::new(),
            opening: Opening::new(LeastOverlap::default()),
            options: Options::default(),
            families: Vec::new(),
            migrate: (Policy::default(), Terms::default()),
            clock: None,
        }
    }

    /// The store itself, to be shared. [`Store::close`] requires that all clones are dropped.
    #[must_use]
    pub fn db(&self) -> &Arc<Db> {
        &self.db
    }

    /// The pool it is on.
    #[must_use]
    pub fn pool(&self) -> &Spread {
        &self.pool
    }

    /// The volumes the pool is on.
    #[must_use]
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Figures of the copies of tables made and dropped: see [`Builder::migrate`].
    #[must_use]
    pub fn copies(&self) -> Copies {
        self.moving.figures()
    }

    /// The store's condition now, and what it needs. Costs a walk over the pool's names, and no I/O.
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        let redundancy = self.copies().redundancy;
        let damage = self.pool.damage();
        let unreadable = (redundancy.unreadable > 0).then(|| {
            format!(
                "{} objects have no copy that can be read: bring back the volumes that are away",
                redundancy.unreadable
            )
        });
        let stopped = [("pressure", self.monitor.is_alive()), ("reclaim", self.reclaim.is_alive())];
        let stopped = stopped.into_iter().find(|(_, alive)| !alive);
        StoreHealth {
            writes_refused: self.db.shim().stopped().or_else(|| self.db.room().refusal()),
            reads_refused: unreadable,
            copies_short: redundancy.short + redundancy.doubtful,
            damaged: damage.left,
            upkeep_stopped: stopped.map(|(name, _)| {
                format!(
                    "the thread {name} ended with a panic: restart, and report what the log says"
                )
            }),
        }
    }

    /// The clock of all parts.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Adds a blank volume to the pool. Durable on return: new tables go there from now on. Later openings have to name
    /// it.
    ///
    /// # Errors
    /// `Volume`: it cannot be used, or is in use. `Pool`: it is not blank, the pool has one of that name, or it did not
    /// take it.
    pub fn add_volume(&self, volume: &Volume) -> Result<()> {
        self.devices.add(volume, &self.pool, &self.clock)
    }

    /// Removes a volume from the pool that [`Spread::drain`] has emptied, and closes it. Durable on return.
    ///
    /// # Errors
    /// `Pool`: there is none of that name, or it is not empty.
    pub fn remove_volume(&self, name: &str) -> Result<()> {
        let id = self.member(name)?;
        block_on(self.pool.remove_volume(id)).map_err(Error::Pool)?;
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
        let lost = block_on(self.pool.remove_lost(id, give_up)).map_err(Error::Pool)?;
        self.devices.forget(name);
        Ok(lost)
    }

    fn member(&self, name: &str) -> Result<VolumeId> {
        self.pool.volume_id(name).ok_or_else(|| {
            let what = format!("volume {name}: the pool has none of that name");
            Error::Pool(volume::Error::new(volume::ErrorKind::NotFound, what))
        })
    }

    /// Closes the store, then the pool, then the gates: on return everything is durable.
    ///
    /// # Errors
    /// `InUse`: another handle of the store exists. `Pool`: the last changes could not be made durable; writes keep the
    /// durability they had.
    pub fn close(self) -> Result<()> {
        let Self { moving, monitor, reclaim, db, pool, devices, clock: _ } = self;
        drop((moving, monitor, reclaim));
        Arc::into_inner(db).ok_or(Error::InUse)?.close();
        block_on(pool.close()).map_err(Error::Pool)?;
        devices.close();
        Ok(())
    }
}

impl Deref for Store {
    type Target = Db;

    fn deref(&self) -> &Db {
        &self.db
    }
}

impl Builder {
    /// Adds a volume to the pool. The order does not matter to an existing pool.
    #[must_use]
    pub fn volume(mut self, volume: Volume) -> Self {
        self.volumes.push(volume);
        self
    }

    /// Adds volumes to the pool.
    #[must_use]
    pub fn volumes(mut self, volumes: impl IntoIterator<Item = Volume>) -> Self {
        self.volumes.extend(volumes);
        self
    }

    /// Sets how the pool is opened: besides placement and copies, the volumes for logs and manifest. It overrides
    /// earlier calls of [`Builder::copies`] and [`Builder::placement`]; later ones override it.
    #[must_use]
    pub fn opening(mut self, opening: Opening) -> Self {
        self.opening = opening;
        self
    }

    /// Keeps `copies` copies of each object, each on another volume: the store survives the loss of all but one of
    /// them. Default: one.
    #[must_use]
    pub fn copies(mut self, copies: usize) -> Self {
        self.opening = self.opening.copies(copies);
        self
    }

    /// Sets the placement of new tables. Default: apart from tables they are read with, [`LeastOverlap`].
    #[must_use]
    pub fn placement(mut self, placement: impl Placement + 'static) -> Self {
        self.opening = self.opening.placement(placement);
        self
    }

    /// Sets the options of the store.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Opens a column family as `family` says, and creates it if it is missing. Other existing families are opened with
    /// the store's options.
    #[must_use]
    pub fn family(mut self, family: Family) -> Self {
        self.families.push(family);
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

    /// Uses an existing clock. By default it starts one.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Opens volumes, pool and store; creates pool and store if every volume is available and blank. Blocks for as long
    /// as a recovery takes.
    ///
    /// Unavailable volumes do not prevent this, as long as one volume is available and more than half of the copies of
    /// the pool's manifest are: [`Devices::away`] names the missing ones.
    ///
    /// # Errors
    /// The message names the volume, and what to do.
    pub fn open(self) -> Result<Store> {
        let Self { volumes, opening, options, families, migrate, clock } = self;
        let clock = clock.unwrap_or_else(Clock::real);
        let devices = Devices::open(&volumes, &clock)?;
        for away in devices.away() {
            tracing::warn!("{away}");
        }
        let pool = devices.open_pool(opening)?;
        let loads = load::of(&devices, &pool);
        let db = open_under(pool.clone(), clock.clone(), &options, families, loads)
            .map_err(|source| Error::Store { name: options.name, source })?;
        let db = Arc::new(db);
        let sampler = LoadSampler::new(devices.clone(), pool.clone(), clock.clone());
        let monitor = PressureMonitor::start(&db, devices.clone(), sampler);
        let reclaim = Reclaim::start(Arc::clone(db.inner()), pool.clone(), devices.clone());
        let (policy, terms) = migrate;
        let moving = Moving::start(pool.clone(), devices.clone(), clock.clone(), policy, terms);
        Ok(Store { moving, monitor, reclaim, db, pool, devices, clock })
    }
}

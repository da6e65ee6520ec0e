//! A store and everything below it, put together in a few lines.
//!
//! ```text
//! Store: Db -> Pool (Spread) -> devices: gate -> [simulate] -> directory
//! ```

use std::ops::Deref;
use std::sync::Arc;

use engine::health::StoreHealth;
use policy::migrate::{Policy, Terms};
use policy::placement::Placement;
use pool::spread::{NameLease, Opening};
use volume::{Clock, Name};

use super::db::open_under;
use super::pressure_monitor::PressureMonitor;
use super::reclaim::Reclaim;
use super::{Db, Family, Options, load};
use crate::volumes::{Devices, Pool, PoolBuilder, Volume};
use crate::{Error, Result};

/// A store on its pool. It dereferences to [`Db`].
///
/// Dropping it closes the store as [`Db`] does; [`Store::close`] also closes the pool, and reports errors.
pub struct Store {
    // Dropped in this order.
    monitor: PressureMonitor,
    reclaim: Reclaim,
    db: Arc<Db>,
    /// No other store of the name is open on the pool.
    name: NameLease,
    pool: Arc<Pool>,
}

/// Builds a store.
#[derive(Default)]
pub struct Builder {
    /// A pool that is open; otherwise `new` opens one.
    pool: Option<Arc<Pool>>,
    new: PoolBuilder,
    options: Options,
    families: Vec<Family>,
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
        Builder::default()
    }

    /// The store itself, to be shared. [`Store::close`] requires that all clones are dropped.
    #[must_use]
    pub fn db(&self) -> &Arc<Db> {
        &self.db
    }

    /// The pool it is on.
    #[must_use]
    pub const fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The volumes of its pool.
    #[must_use]
    pub fn devices(&self) -> &Devices {
        self.pool.devices()
    }

    /// The clock of all parts.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        self.pool.clock()
    }

    /// The store's condition now, and what it needs. Costs a walk over the pool's names, and no I/O.
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        let redundancy = self.pool.copies().redundancy;
        let own = [self.monitor.health(), self.reclaim.health(), self.db.shim().log_syncs()];
        StoreHealth {
            writes_refused: self.db.shim().stopped().or_else(|| self.db.room().refusal()),
            reads_refused: self.pool.unreadable(),
            copies_short: redundancy.lacking(),
            damaged: self.pool.damage().left,
            tasks: own.into_iter().chain(self.pool.tasks()).collect(),
        }
    }

    /// Closes the store; then the pool and its gates, unless others use it. On return everything is durable.
    ///
    /// # Errors
    /// `InUse`: another handle of the store exists. `Pool`: the last changes could not be made durable; writes keep the
    /// durability they had.
    pub fn close(self) -> Result<()> {
        let Self { monitor, reclaim, db, name, pool } = self;
        drop((monitor, reclaim));
        Arc::into_inner(db).ok_or(Error::InUse)?.close();
        drop(name);
        pool.release()
    }
}

impl Deref for Store {
    type Target = Db;

    fn deref(&self) -> &Db {
        &self.db
    }
}

impl Builder {
    /// Opens the store on a pool that is open, beside the pool's other stores. What the builder says of a pool has no
    /// effect then.
    #[must_use]
    pub fn pool(mut self, pool: Arc<Pool>) -> Self {
        self.pool = Some(pool);
        self
    }

    /// Adds a volume to the pool: see [`PoolBuilder::volume`].
    #[must_use]
    pub fn volume(mut self, volume: Volume) -> Self {
        self.new = self.new.volume(volume);
        self
    }

    /// Adds volumes to the pool: see [`PoolBuilder::volumes`].
    #[must_use]
    pub fn volumes(mut self, volumes: impl IntoIterator<Item = Volume>) -> Self {
        self.new = self.new.volumes(volumes);
        self
    }

    /// Sets how the pool is opened: see [`PoolBuilder::opening`].
    #[must_use]
    pub fn opening(mut self, opening: Opening) -> Self {
        self.new = self.new.opening(opening);
        self
    }

    /// Keeps `copies` copies of each object: see [`PoolBuilder::copies`].
    #[must_use]
    pub fn copies(mut self, copies: usize) -> Self {
        self.new = self.new.copies(copies);
        self
    }

    /// Sets the placement of new tables: see [`PoolBuilder::placement`].
    #[must_use]
    pub fn placement(mut self, placement: impl Placement + 'static) -> Self {
        self.new = self.new.placement(placement);
        self
    }

    /// Sets what is copied to other volumes: see [`PoolBuilder::migrate`].
    #[must_use]
    pub fn migrate(mut self, policy: Policy, terms: Terms) -> Self {
        self.new = self.new.migrate(policy, terms);
        self
    }

    /// Uses an existing clock: see [`PoolBuilder::clock`].
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.new = self.new.clock(clock);
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

    /// Opens the pool as [`PoolBuilder::open`] does, unless one was given, and the store; creates the store if it is
    /// missing. Blocks for as long as a recovery takes.
    ///
    /// # Errors
    /// `Store`: one of this name is open on the pool, or it cannot be opened. The message names the volume, and what to do.
    pub fn open(self) -> Result<Store> {
        let Self { pool, new, mut options, families } = self;
        let pool = match pool {
            Some(pool) => pool,
            None => Arc::new(new.open()?),
        };
        let has_tier = !pool.tiers().is_empty();
        options.blocks_in_pages.get_or_insert(has_tier);
        options.counts_reads.get_or_insert(has_tier);
        let (devices, clock) = (pool.devices().clone(), pool.clock().clone());
        let spread = pool.spread().clone();
        let loads = load::of(&devices, &spread);
        let lease = Name::new(&options.name).and_then(|name| spread.lease_name(&name));
        let db = lease
            .map_err(rocks::Error::from)
            .and_then(|lease| Ok((open_under(spread, clock, &options, families, loads)?, lease)));
        let (db, name) = db.map_err(|source| Error::Store { name: options.name, source })?;
        let db = Arc::new(db);
        let monitor = PressureMonitor::start(&db, &pool);
        let reclaim = Reclaim::start(Arc::clone(db.inner()));
        Ok(Store { monitor, reclaim, db, name, pool })
    }
}

//! A store of time series and everything below it, built in a few lines.
//!
//! ```text
//! Store: engine::series::store (write-ahead log, buffers, blocks) -> engine::log -> Pool, or devices -> gate -> directory
//! ```
//!
//! ```no_run
#![doc = include_str!("../examples/sensors.rs")]
//! ```

use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use engine::health::StoreHealth;
use engine::log::StoreId;
pub use engine::series::store::{Figures, Options, Report, Store as Engine};
pub use engine::series::{
    Batch, Database, Durability, Info, Points, Predicate, Scalar, Scan, Selector, SeriesId, Span,
    Test, Value, Written,
};
use engine::series::{Cursor, Series};
use policy::merge;
use pool::spread::{Kept, NameLease, Spread};
use volume::task::block_on;
use volume::{Clock, Name};

use crate::volumes::{Device, Devices, Pool, Volume};
use crate::{Error, Result};

/// A store of points on a pool, or on volumes of its own. It dereferences to [`Engine`], which has all calls and does not block: use it
/// with the trait [`engine::series::Series`] and an executor. The calls defined here block the thread.
///
/// Its own threads write blocks, merge, sync and expire. Dropping it closes the store; [`Store::close`] also reports
/// errors.
pub struct Store {
    engine: Engine,
    on: On,
    report: Report,
    clock: Clock,
    threads: Vec<JoinHandle<()>>,
}

/// What a store is on.
enum On {
    /// A pool, which other stores may share. It has the copies, and survives what the pool does.
    Pool(Arc<Pool>, Tenancy),
    /// Volumes of its own, all of which it needs.
    Volumes(Devices),
}

/// The store as a tenant of a pool.
struct Tenancy {
    /// The pool's handle for this store.
    pool: Spread,
    /// No other store of the name is open.
    _name: NameLease,
}

/// Builds a store.
#[derive(Default)]
pub struct Builder {
    pool: Option<Arc<Pool>>,
    volumes: Vec<Volume>,
    options: Option<Options>,
    clock: Option<Clock>,
}

impl Store {
    /// Starts to build a store.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The store itself, for protocol servers. A clone does not keep it open.
    #[must_use]
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The findings of the opening: where a crash cut its logs short, and damage.
    #[must_use]
    pub const fn report(&self) -> &Report {
        &self.report
    }

    /// The pool it is on; `None` on volumes of its own.
    #[must_use]
    pub const fn pool(&self) -> Option<&Arc<Pool>> {
        match &self.on {
            On::Pool(pool, _) => Some(pool),
            On::Volumes(_) => None,
        }
    }

    /// The volumes it is on.
    #[must_use]
    pub fn devices(&self) -> &Devices {
        match &self.on {
            On::Pool(pool, _) => pool.devices(),
            On::Volumes(devices) => devices,
        }
    }

    /// The clock of all parts.
    #[must_use]
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The store's condition now, and what it needs, with the background tasks of its pool.
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        let mut health = self.engine.health();
        health.tasks.extend(self.pool().into_iter().flat_map(|pool| pool.tasks()));
        health
    }

    /// Creates a database, or changes how long it keeps points. Durable on return.
    ///
    /// # Errors
    /// `Invalid`: the name, or too many databases; otherwise as the kind says.
    pub fn create_database(&self, database: Database) -> Result<()> {
        Ok(block_on(Series::create_database(&self.engine, database))?)
    }

    /// Stores the valid rows of a batch; [`Written`] names the others. An answered write survives what
    /// [`Options::durability`] says.
    ///
    /// # Errors
    /// `Busy`: try later; `OutOfSpace`: nothing was done; otherwise as the kind says.
    pub fn write(&self, batch: Batch) -> Result<Written> {
        Ok(block_on(Series::write(&self.engine, batch, None))?)
    }

    /// The points of a series in an interval of times, earliest first, piece by piece.
    #[must_use]
    pub fn points(&self, series: SeriesId, span: Span) -> Pieces {
        Pieces(Series::read(&self.engine, series, Scan::of(span)))
    }

    /// The selected series, each with its source and field.
    ///
    /// # Errors
    /// `NotFound`: there is no such database.
    pub fn find(&self, selector: &Selector) -> Result<Vec<Info>> {
        Ok(Series::find(&self.engine, selector, None, usize::MAX)?)
    }

    /// Deletes points that were answered before the call; gives the number of series. As durable as a write.
    ///
    /// # Errors
    /// As the kind says. It needs no room.
    pub fn delete(&self, selector: Selector, span: Span) -> Result<u64> {
        Ok(block_on(Series::delete(&self.engine, selector, span))?)
    }

    /// Writes buffered rows as blocks and closes the store; then its volumes, unless other stores use them. On return
    /// everything is durable.
    ///
    /// # Errors
    /// As the kind says; answered writes stay as durable as they were.
    pub fn close(mut self) -> Result<()> {
        let closed = self.end();
        let pool = match &self.on {
            On::Pool(pool, _) => Arc::clone(pool),
            On::Volumes(devices) => {
                devices.close();
                return closed;
            }
        };
        drop(self);
        closed.and(pool.release())
    }

    fn end(&mut self) -> Result<()> {
        let closed = block_on(self.engine.close());
        for thread in self.threads.drain(..) {
            // The thread fails only by a panic, which was reported.
            let _ = thread.join();
        }
        closed?;
        Ok(())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // After `close` no thread is left.
        if !self.threads.is_empty()
            && let Err(error) = self.end()
        {
            tracing::error!(%error, "closing a store of time series failed");
        }
        if let On::Volumes(devices) = &self.on {
            devices.close();
        }
    }
}

impl Deref for Store {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

/// The points of a series, piece by piece, read on demand.
pub struct Pieces(Box<dyn Cursor>);

impl Iterator for Pieces {
    type Item = Result<Points>;

    fn next(&mut self) -> Option<Self::Item> {
        block_on(self.0.next()).map_err(Error::from).transpose()
    }
}

impl On {
    /// The number of volumes: at least as many partitions write in parallel.
    fn volumes(&self) -> u16 {
        let count = match self {
            Self::Pool(pool, _) => pool.volumes().len(),
            Self::Volumes(devices) => devices.here().len(),
        };
        u16::try_from(count).unwrap_or(u16::MAX)
    }

    /// How long a volume may take for a call, the slowest one.
    fn timeout(&self) -> Option<Duration> {
        let devices = match self {
            Self::Pool(pool, _) => pool.devices(),
            Self::Volumes(devices) => devices,
        };
        devices.here().iter().map(|device| device.timeout()).max()
    }

    /// The cost of reads on its volumes: a merge may read any of them.
    fn reads(&self) -> Option<merge::Device> {
        let devices = match self {
            Self::Pool(pool, _) => pool.devices(),
            Self::Volumes(devices) => devices,
        };
        let costs = devices.here().into_iter();
        let costs = costs.map(|device| merge::Device::of(&device.gate().bought()));
        costs.reduce(merge::Device::and)
    }

    /// What the store sees as volumes, with their names for people. A pool is one: it places the logs of all partitions.
    fn members(&self) -> Vec<(String, Arc<dyn volume::Volume>)> {
        match self {
            Self::Pool(_, tenancy) => vec![("pool".into(), Arc::new(tenancy.pool.clone()) as _)],
            Self::Volumes(devices) => {
                let member = |device: &Arc<Device>| (device.name().to_owned(), device.volume());
                devices.here().iter().map(member).collect()
            }
        }
    }
}

impl Builder {
    /// Opens the store on a pool that is open, beside the pool's other stores: its logs and blocks have the pool's
    /// copies, and go where the pool places them. Otherwise the store has the [volumes](Builder::volume) to itself.
    #[must_use]
    pub fn pool(mut self, pool: Arc<Pool>) -> Self {
        self.pool = Some(pool);
        self
    }

    /// Adds a volume of the store's own.
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

    /// Sets the options of the store. Default: [`Options::new`] for its volumes. Their `timeout` is that of the volumes,
    /// whatever is set.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = Some(options);
        self
    }

    /// Uses an existing clock. By default it starts one.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Opens volumes and store, or creates the store on blank volumes. Blocks for as long as a recovery takes.
    ///
    /// # Errors
    /// `Away`: a volume is unavailable, and the store needs all of them. `Pool` of kind `Fenced`: a store of this name
    /// is open on the pool. The message names the volume, and what to do.
    pub fn open(self) -> Result<Store> {
        let Self { pool, volumes, options, clock } = self;
        let (on, clock) = match pool {
            Some(pool) => {
                let clock = pool.clock().clone();
                let name =
                    options.as_ref().map_or_else(|| Options::new(1).name, |o| o.name.clone());
                let lease = Name::new(&name).and_then(|name| pool.lease_name(&name));
                let lease = lease.map_err(Error::Pool)?;
                let tenancy = Tenancy { pool: pool.enter(&name), _name: lease };
                (On::Pool(pool, tenancy), clock)
            }
            None => {
                let clock = clock.unwrap_or_else(Clock::real);
                let devices = Devices::open(&volumes, &clock)?;
                if let Some(away) = devices.away().first() {
                    return Err(Error::Away(away.to_string()));
                }
                (On::Volumes(devices), clock)
            }
        };
        let mut options = options.unwrap_or_else(|| Options::new(on.volumes()));
        // A pool sets aside what its stores keep, and scrubs its objects.
        options.log.allocates = matches!(on, On::Volumes(_));
        options.scrub_every = options.scrub_every.filter(|_| matches!(on, On::Volumes(_)));
        options.timeout = on.timeout().unwrap_or(options.timeout);
        options.log.device = on.reads().unwrap_or(options.log.device);
        let members = on.members();
        // Differs from store to store.
        let any = || u128::from(RandomState::new().hash_one(0));
        let id = StoreId((any() << 64 | any()).to_le_bytes());
        let (engine, report) = block_on(Engine::open(members, options, clock.clone(), Some(id)))?;
        if let On::Pool(_, Tenancy { pool, .. }) = &on {
            pool.keep(Kept { reserve: engine.room_kept(), pending: 0 });
        }
        let tending = engine.tasks().into_iter().enumerate().map(|(number, task)| {
            std::thread::Builder::new()
                .name(format!("series {number}"))
                .spawn(move || block_on(task))
                .expect("the system has room for one more thread")
        });
        let threads = tending.collect();
        Ok(Store { engine, on, report, clock, threads })
    }
}

#[cfg(test)]
mod tests;

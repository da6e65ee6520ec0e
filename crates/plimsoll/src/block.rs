//! Block devices on a pool, built in a few lines.
//!
//! ```text
//! Store: engine::block::store (extents, checksums, marks) -> Pool -> gate -> directory
//! ```
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use plimsoll::block::{self, BlockDevice, BlockDevices, Durable, IoBuf};
//! use plimsoll::volumes::{Pool, Volume, contract};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let gp3 = contract("gp3")?;
//! let volumes = ["a", "b"].map(|v| Volume::directory(v, format!("/mnt/{v}"), gp3.clone()));
//! let pool = Arc::new(Pool::builder().volumes(volumes).copies(2).open()?);
//! let store = block::Store::open(pool, block::Options::default())?;
//! store.create("disk", 10 << 30)?;
//! let disk = store.engine().open("disk").await?;
//! disk.write(0, IoBuf::from(&[1; 4096][..]), Durable::Now).await?;
//! store.close()?;
//! # Ok(())
//! # }
//! ```

use std::ops::Deref;
use std::sync::Arc;

pub use engine::block::store::{Figures, Info, Options, Store as Engine};
pub use engine::block::{
    BlockDevice, BlockDevices, Durable, Extent, Geometry, IoBuf, IoBufMut, Zeros,
};
use engine::health::StoreHealth;
use policy::contract::Contract;
use pool::spread::NameLease;
use volume::Name;
use volume::task::block_on;

use crate::every_second::EverySecond;
use crate::volumes::Pool;
use crate::{Error, Result};

/// The part of what was paid for that devices may be sold together. The rest is what the budget leaves out, rho, and what
/// repairs, merges and scrubs always get.
pub const SOLD_MAX: f64 = 0.9;

/// A store of block devices on a pool. It dereferences to [`Engine`], which has all calls and does not block: use it
/// with an executor. The calls defined here block the thread.
///
/// A thread of its own writes checksums. Dropping it ends that thread; [`Store::close`] also makes everything durable.
pub struct Store {
    // Dropped in this order.
    cleaning: EverySecond,
    engine: Engine,
    /// No other store of the name is open.
    name: NameLease,
    pool: Arc<Pool>,
}

impl Store {
    /// Opens the store on a pool that is open, beside the pool's other stores, or makes one without devices.
    ///
    /// # Errors
    /// `Pool` of kind `Fenced`: a store of this name is open on the pool. `Block`: as the kind says.
    pub fn open(pool: Arc<Pool>, options: Options) -> Result<Self> {
        let name = Name::new(&options.name).and_then(|name| pool.lease_name(&name));
        let name = name.map_err(Error::Pool)?;
        let volume = Arc::new(pool.enter(&options.name));
        let engine = block_on(Engine::open(volume, options, pool.clock().clone()))?;
        let cleaned = engine.clone();
        let cleaning = EverySecond::start("cleaning block devices", pool.clock(), move || {
            if let Err(error) = block_on(cleaned.tend()) {
                tracing::warn!("block devices are not clean, and it is tried again: {error}");
            }
        });
        Ok(Self { cleaning, engine, name, pool })
    }

    /// The store itself, for protocol servers. A clone does not keep it open.
    #[must_use]
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The pool it is on.
    #[must_use]
    pub const fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The store's condition now, and what it needs, with the background tasks of its pool.
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        let mut health = self.engine.health();
        health.reads_refused = self.pool.unreadable();
        health.tasks.push(self.cleaning.health());
        health.tasks.extend(self.pool.tasks());
        health
    }

    /// Makes a device of zeros, which takes no room yet: [`Engine::create`]. Durable on return.
    ///
    /// # Errors
    /// `Block`: as the kind says.
    pub fn create(&self, name: &str, size: u64) -> Result<()> {
        Ok(block_on(self.engine.create(name, size))?)
    }

    /// Changes the size of a device: [`Engine::resize`]. Durable on return.
    ///
    /// # Errors
    /// `Block`: as the kind says.
    pub fn resize(&self, name: &str, size: u64, shrink: bool) -> Result<()> {
        Ok(block_on(self.engine.resize(name, size, shrink))?)
    }

    /// Sets what the clients of a device get at most, from now on; `None` is no limit. Durable on return. Together, devices are
    /// sold no more than [`SOLD_MAX`] of what was paid for the volumes, where each write counts once for each copy; unless
    /// `oversell` allows it.
    ///
    /// # Errors
    /// `Block` of kind `Invalid`: the volumes cannot give it, and the message has the sum. Else as the kind says.
    pub fn set_limit(&self, name: &str, limit: Option<Contract>, oversell: bool) -> Result<()> {
        if let (Some(limit), false) = (&limit, oversell) {
            self.check_sold(name, limit)?;
        }
        Ok(block_on(self.engine.set_limit(name, limit))?)
    }

    /// Checks that the volumes can give `limit` to the device `name`, beside what the others were sold.
    fn check_sold(&self, name: &str, limit: &Contract) -> Result<()> {
        let copies = writes_for_one(&self.pool);
        let others = self.engine.list().into_iter();
        let others = others.filter(|device| device.name != name).filter_map(|device| device.limit);
        let sold: Vec<_> = others.chain([limit.clone()]).collect();
        let volumes = self.pool.devices().here();
        for (unit, rate) in [
            ("operations", Contract::paid_iops as fn(&Contract) -> Option<u64>),
            ("bytes", Contract::paid_bytes_per_sec),
        ] {
            let paid = volumes.iter().map(|device| rate(&device.gate().bought()));
            // A volume without a limit gives anything.
            let Some(paid) = paid.sum::<Option<u64>>() else { continue };
            let most = (paid as f64 * SOLD_MAX) as u64 / copies;
            let sum: u64 = sold.iter().filter_map(rate).sum();
            if sum > most {
                return Err(engine::block::Error::Invalid(format!(
                    "device {name}: {sum} {unit} a second would be sold in all, and the volumes give {most}: {paid} were paid for, of which {:.0} % are for sale, and a write takes {copies} of them. Set a lower limit, add a volume, or allow overselling",
                    100.0 * SOLD_MAX,
                ))
                .into());
            }
        }
        Ok(())
    }

    /// Deletes a device and its bytes: [`Engine::delete`]. Durable on return.
    ///
    /// # Errors
    /// `Block`: as the kind says.
    pub fn delete(&self, name: &str) -> Result<()> {
        Ok(block_on(self.engine.delete(name))?)
    }

    /// Makes everything durable and closes the store; then the pool, unless other stores use it.
    ///
    /// # Errors
    /// As the kind says; acknowledged changes stay as durable as they were.
    pub fn close(self) -> Result<()> {
        let Self { cleaning, engine, name, pool } = self;
        drop(cleaning);
        let closed = block_on(engine.close());
        // They hold the pool.
        drop((engine, name));
        let released = pool.release();
        closed?;
        released
    }
}

impl Deref for Store {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

/// The number of writes to volumes that one write to the pool takes.
fn writes_for_one(pool: &Pool) -> u64 {
    let below = pool.below().iter().map(|(_, pool)| writes_for_one(pool));
    pool.copies_wanted() as u64 * below.max().unwrap_or(1)
}

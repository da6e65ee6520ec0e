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

pub use engine::block::store::{DeviceFigures, Figures, Info, Options, Store as Engine};
pub use engine::block::{
    BlockDevice, BlockDevices, Durable, Extent, Geometry, Holder, IoBuf, IoBufMut, Lease, Zeros,
};
use engine::health::StoreHealth;
use parking_lot::Mutex;
use policy::contract::{Contract, Counted};
use policy::units::{BytesPerSec, Iops};
use pool::spread::{NameLease, Verifying};
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
/// While it is open, the [scrub of its pool](crate::volumes::PoolBuilder::scrub_every) reads its devices back, too. A thread of its own writes checksums. Dropping it ends that thread; [`Store::close`] also makes everything durable.
pub struct Store {
    // Dropped in this order.
    verifying: Verifying,
    cleaning: EverySecond,
    engine: Engine,
    /// Held while devices are sold something: the sum must not change in between.
    selling: Mutex<()>,
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
        let volume = Arc::new(pool.volume(&options.name));
        let begin = format!("{}/", options.name);
        let engine = block_on(Engine::open(volume, options, pool.clock().clone()))?;
        let cleaned = engine.clone();
        let cleaning = EverySecond::start("cleaning block devices", pool.clock(), move || {
            if let Err(error) = block_on(cleaned.tend()) {
                tracing::warn!("block devices are not clean, and it is tried again: {error}");
            }
        });
        let verifying = pool.verify_with(&begin, Arc::new(engine.clone()));
        Ok(Self { verifying, cleaning, engine, selling: Mutex::new(()), name, pool })
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

    /// Makes a device whose clients get at most `limit`: [`Engine::create_limited`], if [`Store::set_limit`] would take it.
    /// Durable on return.
    ///
    /// # Errors
    /// As [`Store::set_limit`]: there is no device then.
    pub fn create_limited(
        &self,
        name: &str,
        size: u64,
        limit: Option<Contract>,
        oversell: bool,
    ) -> Result<()> {
        let _one_at_a_time = self.selling.lock();
        self.check_sold(name, limit.as_ref(), oversell)?;
        Ok(block_on(self.engine.create_limited(name, size, limit))?)
    }

    /// Sets what the clients of a device get at most, from now on; `None` is no limit. Durable on return. Together, devices are
    /// sold no more than [`SOLD_MAX`] of what was paid for the volumes that are available, where each write counts once
    /// for each copy; unless `oversell` allows it. The sum has the lasting rates: bursts above them are not in it.
    ///
    /// # Errors
    /// `Block` of kind `Invalid`: the volumes cannot give it, and the message has the sum. Else as the kind says.
    pub fn set_limit(&self, name: &str, limit: Option<Contract>, oversell: bool) -> Result<()> {
        let _one_at_a_time = self.selling.lock();
        self.check_sold(name, limit.as_ref(), oversell)?;
        Ok(block_on(self.engine.set_limit(name, limit))?)
    }

    /// Checks that the volumes can give `limit` to the device `name`, beside what the others were sold.
    fn check_sold(&self, name: &str, limit: Option<&Contract>, oversell: bool) -> Result<()> {
        let (Some(limit), false) = (limit, oversell) else { return Ok(()) };
        let copies = writes_for_one(&self.pool);
        let others = self.engine.list().into_iter().filter(|device| device.name != name);
        let others: Vec<_> = others.filter_map(|device| device.limit).collect();
        let volumes = self.pool.devices().holding();
        for Unit { of, shown, paid, sold } in UNITS {
            let paid = volumes.iter().map(|device| paid(&device.gate().bought()));
            // A volume without a limit gives anything.
            let Some(paid) = paid.sum::<Option<u64>>() else { continue };
            let most = (paid as f64 * SOLD_MAX) as u64 / copies;
            let Some(wanted) = sold(limit) else {
                return Err(invalid(format!(
                    "device {name}: its limit sets no {of} a second, and the volumes give {} in all. Set one, or allow overselling",
                    shown(most)
                )));
            };
            // Those that were oversold are counted with what they say.
            let before: u64 = others.iter().filter_map(sold).sum();
            let sum = before.saturating_add(wanted);
            if sum > most {
                return Err(invalid(format!(
                    "device {name}: {} would be sold in all, {} of it to others, and the volumes give {}: {} are paid for, of which {:.0} % are for sale, and a write takes {copies} of them. Set a lower limit, add a volume, or allow overselling",
                    shown(sum),
                    shown(before),
                    shown(most),
                    shown(paid),
                    100.0 * SOLD_MAX,
                )));
            }
        }
        Ok(())
    }

    /// Ends the lease of a device, whoever holds it: [`BlockDevices::release`]. Durable on return.
    ///
    /// # Errors
    /// `Block`: as the kind says.
    pub fn release(&self, name: &str) -> Result<()> {
        Ok(block_on(BlockDevices::release(&self.engine, name, None))?)
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
        let Self { verifying, cleaning, engine, selling: _, name, pool } = self;
        drop((verifying, cleaning));
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

/// What is sold: operations or bytes a second.
struct Unit {
    of: &'static str,
    shown: fn(u64) -> String,
    /// What a volume gives under its contract.
    paid: fn(&Contract) -> Option<u64>,
    /// What a device takes at most under its limit.
    sold: fn(&Contract) -> Option<u64>,
}

const UNITS: [Unit; 2] = [
    Unit {
        of: "operations",
        shown: |rate| Iops(rate).to_string(),
        paid: Contract::paid_iops,
        sold: ops_sold,
    },
    Unit {
        of: "bytes",
        shown: |rate| BytesPerSec(rate).to_string(),
        paid: Contract::paid_bytes_per_sec,
        sold: bytes_sold,
    },
];

fn ops_sold(limit: &Contract) -> Option<u64> {
    sold(limit, Counted::Ops, [Counted::ReadOps, Counted::WriteOps])
}

/// Operations of the largest size take as many bytes, if the limit sets no bytes.
fn bytes_sold(limit: &Contract) -> Option<u64> {
    let bytes = sold(limit, Counted::Bytes, [Counted::ReadBytes, Counted::WriteBytes]);
    bytes.or_else(|| Some(ops_sold(limit)?.saturating_mul(limit.op_bytes_max)))
}

/// The lasting rate of reads and writes together.
fn sold(limit: &Contract, both: Counted, apart: [Counted; 2]) -> Option<u64> {
    let rate = |counts: Counted| {
        let limits = limit.limits.iter().filter(|limit| limit.counts == counts);
        limits.map(|limit| limit.rate_per_sec).min()
    };
    let apart = apart.map(rate).into_iter().sum::<Option<u64>>();
    [rate(both), apart].into_iter().flatten().min()
}

fn invalid(what: String) -> Error {
    engine::block::Error::Invalid(what).into()
}

/// The number of writes to volumes that one write to the pool takes.
fn writes_for_one(pool: &Pool) -> u64 {
    let below = pool.below().into_iter().map(|(_, pool)| writes_for_one(pool));
    pool.copies_wanted() as u64 * below.max().unwrap_or(1)
}

#[cfg(test)]
mod tests;

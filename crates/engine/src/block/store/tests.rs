//! The store on pools in memory.

mod copies;
mod costs;
mod crashes;
mod devices;
mod full;
mod leases;
mod model;
mod removals;
mod scrubs;
mod scrubs_of_fragments;
mod stored;
mod tiered;

use std::ops::Range;
use std::sync::Arc;

use ::pool::PoolId;
use ::pool::spread::{Opening, Spread};
use policy::placement::RoundRobin;
use volume::Extent as Part;
use volume::layer::crash::{Crash, Power};
use volume::layer::fault::{Fault, FaultPlan};
use volume::layer::trace::{Trace, TraceLog};
use volume::mem::Mem;

use super::super::{Durable, Zeros};
use super::shape::BLOCK;
use super::*;

/// Volumes of one machine, a pool on them, and a store on that.
struct Rig {
    clock: Clock,
    power: Power,
    crashes: Vec<Crash>,
    log: TraceLog,
    /// What goes wrong on the volumes: nothing at first.
    plan: FaultPlan,
    copies: usize,
    options: Options,
}

impl Rig {
    fn new(volumes: usize, copies: usize) -> Self {
        let (clock, power) = (Clock::simulated(), Power::new());
        let crash = |n: usize| Crash::new(Mem::new(&format!("v{n}")), &power);
        let options = Options { extent_bytes: REGION, ..Options::default() };
        let crashes = (0..volumes).map(crash).collect();
        let (log, plan) = (TraceLog::new(1 << 16), FaultPlan::new(0));
        Self { clock, power, crashes, log, plan, copies, options }
    }

    async fn open(&self) -> Result<(Spread, Store)> {
        let trace =
            |crash: &Crash, label: &str| Trace::new(crash.clone(), label, &self.log, &self.clock);
        let members = (0..).zip(&self.crashes).map(|(n, crash)| {
            let label = format!("v{n}");
            let faulty = Fault::new(trace(crash, &label), &label, &self.plan, &self.clock);
            ::pool::Member::new(&*label, Arc::new(faulty))
        });
        let opening = Opening::new(RoundRobin::default()).create_if_missing(PoolId(7));
        let pool = Spread::open(members.collect(), opening.copies(self.copies)).await;
        let pool = pool.map_err(|e| failed("the pool", e))?;
        let store = Store::open(Arc::new(pool.clone()), self.options.clone(), self.clock.clone());
        Ok((pool, store.await?))
    }

    /// The machine loses what was not durable.
    fn crash(&mut self, seed: u64) {
        self.power.cut();
        self.restart(|crash| crash.survivor(seed));
    }

    /// The process dies.
    fn kill(&mut self) {
        self.restart(Crash::after_process_death);
    }

    fn restart(&mut self, survivor: impl Fn(&Crash) -> Mem) {
        let power = Power::new();
        self.crashes =
            self.crashes.iter().map(|crash| Crash::new(survivor(crash), &power)).collect();
        self.power = power;
    }
}

/// Opens a device.
async fn device(store: &Store, name: &str) -> Arc<dyn BlockDevice> {
    BlockDevices::open(store, name).await.unwrap()
}

/// Reads a range into bytes.
async fn read(device: &dyn BlockDevice, offset: u64, len: usize) -> Result<Vec<u8>> {
    Ok(device.read(offset, IoBufMut::zeroed(len)).await?.to_vec())
}

fn bytes(len: usize, fill: u8) -> IoBuf {
    IoBuf::from(&vec![fill; len][..])
}

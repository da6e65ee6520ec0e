//! A device on six simulated volumes, and its client.

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use policy::budget::Share;
use policy::contract::spec::Bought;
use policy::contract::{Contract, catalogue};
use policy::placement::{Code, RoundRobin};
use policy::purpose::{Class, Io, Origin, Step};
use policy::units::{Bytes, GIB, KIB};
use pool::logged::{self, Logged};
use pool::spread::{Opening, Spread};
use pool::{Member, PoolId};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::heartbeat::{Heartbeat, SILENCE_MAX};
use volume::layer::gate::Gate;
use volume::layer::simulate::Simulate;
use volume::mem::Mem;
use volume::{Clock, Intent, IoBuf, Name, Object, Volume};

use super::arm::{Arm, Keys};

/// The volumes.
const VOLUMES: usize = 6;

/// The objects that the device is cut into: several on each volume.
const EXTENTS: u64 = 16;

const BLOCK: u64 = 4096;

/// Bytes that weigh as much as an operation on gp3.
const BYTES_PER_OPERATION: f64 = 43_690.0;

/// A durable write that a user waits for.
const WRITE: Io = Io::new(Origin::UserWrite, Step::Data);

/// What writes cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Got {
    /// Operations granted, for each write.
    pub(super) operations: f64,
    /// Bytes granted, for each write.
    pub(super) bytes: f64,
    /// Writes a second, until the log was empty.
    pub(super) per_sec: f64,
    /// From a write to its acknowledgement.
    pub(super) p50: Duration,
    pub(super) p99: Duration,
}

impl Got {
    /// The cost of a write, in operations that the volumes sell.
    pub(super) fn units(&self) -> f64 {
        self.operations.max(self.bytes / BYTES_PER_OPERATION)
    }
}

/// The volume.
pub(super) fn gp3() -> anyhow::Result<Contract> {
    Ok(catalogue::find("gp3")?.contract(Some(Bytes(100 * GIB)), Bought::default())?)
}

/// Writes as many random blocks as a device of `bytes` has, and empties the log.
pub(super) fn measure(
    arm: Arm,
    keys: Keys,
    bytes: u64,
    depth: usize,
    seed: u64,
) -> anyhow::Result<Got> {
    let clock = Clock::simulated();
    clock.run(async {
        let gp3 = gp3()?;
        let gates: Vec<_> = (0..VOLUMES as u64)
            .map(|number| {
                let label = format!("v{number}");
                let seed = seed << 8 | number;
                let volume = Simulate::new(Mem::new(&label), &gp3, clock.clone(), seed);
                Arc::new(Gate::new(volume, &label, &gp3, Share::default(), clock.clone()))
            })
            .collect();
        let members = gates.iter().enumerate();
        let members = members.map(|(n, gate)| Member::new(format!("v{n}"), Arc::clone(gate)));
        let opening =
            Opening::new(RoundRobin::default()).create_if_missing(PoolId(u128::from(seed) + 1));
        let (opening, limit) = match arm {
            Arm::Copies { count } => (opening.copies(count), GIB),
            Arm::Logged { percent, .. } => {
                (opening.code(Code::new(4, 2, 256 * KIB)?), bytes * percent / 100)
            }
        };
        let pool = Spread::open(members.collect(), opening).await?;
        // The memory is the part of the log that the default is of the usual log. Half of it is for the newest.
        let memory = match arm {
            Arm::Logged { in_memory: true, .. } => 2 * limit,
            _ => limit / 8,
        };
        let file_len = limit / 32;
        let options = logged::Options { limit, file_len, memory, ..logged::Options::default() };
        let device = Logged::open(pool, options).await?;
        let mut extents = Vec::new();
        for number in 0..EXTENTS {
            let name = Name::new(&format!("disk/{number}"))?;
            let extent = device.create(&name, &Intent::IN_PLACE).await?;
            extent.set_len(bytes / EXTENTS).await?;
            extent.sync(WRITE).await?;
            extents.push(extent);
        }
        // The volumes save up what they may.
        clock.sleep(Duration::from_secs(2)).await;
        let before = granted(&gates);
        let heartbeat = Heartbeat::new("in place", SILENCE_MAX, &clock);
        let begin = clock.now();
        let client = pin!(write(&clock, &extents, keys, bytes / BLOCK, depth, seed));
        let latencies = match select(client, pin!(device.run(&clock, &heartbeat))).await {
            Either::Left((latencies, _)) => latencies?,
            Either::Right(((), _)) => unreachable!("it runs until it is dropped"),
        };
        device.drain().await?;
        let took = clock.now().since(begin);
        let after = granted(&gates);
        let writes = latencies.len() as f64;
        let quantile = |part: f64| latencies[(part * writes) as usize];
        Ok(Got {
            operations: (after.0 - before.0) / writes,
            bytes: (after.1 - before.1) / writes,
            per_sec: writes / took.as_secs_f64(),
            p50: quantile(0.5),
            p99: quantile(0.99),
        })
    })
}

/// Writes `count` random blocks durably, `depth` at a time; returns their latencies in order.
async fn write(
    clock: &Clock,
    extents: &[Arc<dyn Object>],
    keys: Keys,
    count: u64,
    depth: usize,
    seed: u64,
) -> anyhow::Result<Vec<Duration>> {
    let left = Cell::new(count);
    let workers = (0..depth as u64).map(async |worker| {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed << 32 | worker);
        let (mut choose, mut latencies) = (keys.choose(count), Vec::new());
        while let Some(less) = left.get().checked_sub(1) {
            left.set(less);
            let block = choose(&mut random);
            let extent = &extents[(block % EXTENTS) as usize];
            let begin = clock.now();
            let data = IoBuf::from(&[worker as u8 + 1; BLOCK as usize][..]);
            extent.write_durable(block / EXTENTS * BLOCK, data, WRITE).await?;
            latencies.push(clock.now().since(begin));
        }
        anyhow::Ok(latencies)
    });
    let latencies: anyhow::Result<Vec<_>> = join_all(workers).await.into_iter().collect();
    let mut latencies = latencies?.concat();
    latencies.sort_unstable();
    Ok(latencies)
}

/// Operations and bytes that the gates granted in all classes.
fn granted<V: Volume>(gates: &[Arc<Gate<V>>]) -> (f64, f64) {
    let mut sum = (0.0, 0.0);
    for gate in gates {
        let meter = gate.meter();
        for class in Class::ALL {
            let spent = meter.classes[class.index()].spent;
            sum.0 += spent.ops as f64;
            sum.1 += spent.bytes as f64;
        }
    }
    sum
}

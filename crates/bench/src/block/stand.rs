//! A store of block devices on a pool of simulated gp3 volumes, in virtual time, and the clients of its devices.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use engine::block::store::{Options, Store};
use engine::block::{BlockDevice, BlockDevices, Durable, IoBuf, IoBufMut};
use futures_util::future::{Either, join_all, select};
use policy::budget::Share;
use policy::contract::spec::Bought;
use policy::contract::{Contract, Counted, Limit, catalogue};
use policy::migrate::{Policy, Terms};
use policy::placement::LeastOverlap;
use policy::purpose::{Io, Origin, Step};
use policy::time::Instant;
use policy::units::{Bytes, GIB, KIB, MIB};
use pool::mover::{GateLoad, Mover};
use pool::spread::{Opening, Spread};
use pool::{Member, PoolId};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::layer::gate::Gate;
use volume::layer::simulate::Simulate;
use volume::mem::Mem;
use volume::{Clock, ErrorKind, Intent, Name, Volume};

use super::{Case, DEVICES};

/// The size of a device: one region, so that its mark and its checksums stay in memory.
const SIZE: u64 = 4 * MIB;

/// The unit of clients.
const BLOCK: usize = 4096;

/// The most requests of one paced client that are under way.
const WORKERS: u64 = 16;

/// One read of a scrub.
const SCRUB_BYTES: u64 = 256 * KIB;

/// The bytes that are scrubbed again and again.
const SCRUBBED: u64 = 16 * MIB;

/// An object that is only there to be repaired.
const PIECE: u64 = 16 * MIB;

/// Between two looks whether the pool is whole again.
const LOOK_EVERY: Duration = Duration::from_millis(20);

type Gated = Arc<Gate<Simulate<Fault<Mem>>>>;

/// A store, its devices, and the pool below.
pub(super) struct Stand {
    clock: Clock,
    store: Store,
    pool: Spread,
    gates: Vec<Gated>,
    plan: FaultPlan,
    /// What each device is sold, in operations a second.
    sold: u64,
    run: Duration,
    seed: Cell<u64>,
}

/// What a paced client got.
pub(super) struct Got {
    /// The turn of each request, and how long it took from there to its answer.
    latencies: Vec<(Instant, Duration)>,
}

impl Got {
    /// Requests whose turn came before `until` and that were answered within a second of it, as a part of those.
    pub(super) fn share(&self, until: Instant) -> f64 {
        let of = self.until(until);
        let in_time = of.clone().filter(|took| *took <= Duration::from_secs(1)).count();
        in_time as f64 / of.count() as f64
    }

    /// How long those took whose turn came before `until`.
    pub(super) fn until(&self, until: Instant) -> impl Iterator<Item = Duration> + Clone {
        self.latencies.iter().filter(move |(turn, _)| *turn < until).map(|&(_, took)| took)
    }
}

/// A volume.
pub(super) fn gp3() -> anyhow::Result<Contract> {
    Ok(catalogue::find("gp3")?.contract(Some(Bytes(100 * GIB)), Bought::default())?)
}

impl Stand {
    /// Fills the devices and gives each a limit of `sold` operations a second; clients will run for `run`.
    pub(super) async fn open(
        clock: &Clock,
        case: &Case,
        sold: u64,
        run: Duration,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let (gp3, plan) = (gp3()?, FaultPlan::new(seed));
        let gates = (0..case.volumes as u64).map(|number| {
            let label = format!("v{number}");
            let disk = Fault::new(Mem::new(&label), &label, &plan, clock);
            let disk = Simulate::new(disk, &gp3, clock.clone(), seed << 8 | number);
            Arc::new(Gate::new(disk, &label, &gp3, Share::default(), clock.clone()))
        });
        let gates: Vec<Gated> = gates.collect();
        let members = gates.iter().enumerate();
        let members = members.map(|(n, gate)| Member::new(format!("v{n}"), Arc::clone(gate)));
        let opening = Opening::new(LeastOverlap::new(seed))
            .create_if_missing(PoolId(u128::from(seed) + 1))
            .copies(case.copies);
        let pool = Spread::open(members.collect(), opening).await?;
        let options = Options { extent_bytes: SIZE, ..Options::default() };
        let store = Store::open(Arc::new(pool.enter("block")), options, clock.clone()).await?;
        let limit = Limit { counts: Counted::Ops, rate_per_sec: sold, depth: sold };
        let limit = Contract { limits: vec![limit], ..Contract::unlimited() };
        let part = vec![1; MIB as usize];
        for number in 0..DEVICES {
            let name = number.to_string();
            store.create(&name, SIZE).await?;
            let disk = BlockDevices::open(&store, &name).await?;
            for at in (0..SIZE).step_by(part.len()) {
                disk.write(at, IoBuf::from(&part[..]), Durable::Later).await?;
            }
            disk.flush().await?;
            store.set_limit(&name, Some(limit.clone())).await?;
        }
        let beside = pool.enter("beside");
        let piece = IoBuf::from(&vec![1; PIECE as usize][..]);
        let io = Io::new(Origin::Flush, Step::Data);
        for number in 0..case.beside / PIECE {
            let name = Name::new(&format!("beside/{number}"))?;
            beside.write_whole(&name, &Intent::DATA, piece.clone(), io).await?;
        }
        // Devices and volumes save up what they may.
        clock.sleep(Duration::from_secs(2)).await;
        let seed = Cell::new(seed << 32);
        Ok(Self { clock: clock.clone(), store, pool, gates, plan, sold, run, seed })
    }

    /// A volume fails all calls from now on, and the pool makes good what it had. Returns when it has: at the end of the run at the
    /// latest.
    pub(super) async fn repair(&self, begin: Instant) -> Instant {
        self.plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)).volume("v0"));
        let terms = Terms { silence_max: Duration::from_secs(1), ..Terms::default() };
        let mover = Mover::new(self.pool.clone(), self.clock.clone(), Policy::Off, terms);
        let loads = || {
            let volumes = self.pool.volumes().into_iter().zip(&self.gates);
            volumes.map(|(volume, gate)| GateLoad::of(volume.id, &gate.meter())).collect()
        };
        let whole = async {
            let lost = self.pool.volume_id("v0").into_iter().collect();
            while self.pool.redundancy(&lost).short > 0 && self.clock.now() < begin + self.run {
                self.clock.sleep(LOOK_EVERY).await;
            }
            self.clock.now()
        };
        match select(std::pin::pin!(mover.run(loads)), std::pin::pin!(whole)).await {
            Either::Left(_) => begin + self.run,
            Either::Right((at, _)) => at,
        }
    }

    /// Offers a device what it was sold, at equal distances from `begin` on.
    pub(super) async fn offer(&self, device: usize, begin: Instant) -> anyhow::Result<Got> {
        let disk = self.device(device).await?;
        let offered = self.sold * self.run.as_secs();
        let workers = (0..WORKERS).map(async |worker| {
            let (mut random, mut latencies) = (self.random(), Vec::new());
            for number in (worker..offered).step_by(WORKERS as usize) {
                let due = begin + self.run.mul_f64(number as f64 / offered as f64);
                self.clock.sleep_until(due).await;
                request(&*disk, &mut random).await?;
                latencies.push((due, self.clock.now().since(due)));
            }
            anyhow::Ok(latencies)
        });
        let latencies: anyhow::Result<Vec<_>> = join_all(workers).await.into_iter().collect();
        Ok(Got { latencies: latencies?.concat() })
    }

    /// Keeps `depth` requests of a device under way; returns how many were answered a second.
    pub(super) async fn flood(
        &self,
        device: usize,
        depth: usize,
        begin: Instant,
    ) -> anyhow::Result<f64> {
        let disk = self.device(device).await?;
        let workers = (0..depth).map(async |_| {
            let (mut random, mut answered) = (self.random(), 0);
            while self.clock.now() < begin + self.run {
                request(&*disk, &mut random).await?;
                answered += u64::from(self.clock.now() <= begin + self.run);
            }
            anyhow::Ok(answered)
        });
        let answered: anyhow::Result<Vec<u64>> = join_all(workers).await.into_iter().collect();
        Ok(answered?.iter().sum::<u64>() as f64 / self.run.as_secs_f64())
    }

    /// Reads as a scrub does, as fast as it may; returns the reads a second.
    pub(super) async fn scrub(&self, begin: Instant) -> anyhow::Result<f64> {
        let beside = self.pool.enter("scrubbed");
        let object = beside.create(&Name::new("scrubbed/all")?, &Intent::DATA).await?;
        object.set_len(SCRUBBED).await?;
        let mut reads = 0;
        while self.clock.now() < begin + self.run {
            let at = reads * SCRUB_BYTES % SCRUBBED;
            let into = IoBufMut::zeroed(SCRUB_BYTES as usize);
            match object.read_at(at, into, Io::new(Origin::Scrub, Step::Data)).await {
                Ok(_) => reads += 1,
                // There is nothing to spare for work that can wait.
                Err(error) if error.kind() == ErrorKind::Busy => {
                    self.clock.sleep(Duration::from_millis(5)).await;
                }
                Err(error) => return Err(error).context("a read of the scrub"),
            }
        }
        Ok(reads as f64 / self.run.as_secs_f64())
    }

    /// Cleans the store every second, as its owner does.
    pub(super) async fn clean(&self, begin: Instant) -> anyhow::Result<()> {
        while self.clock.now() < begin + self.run {
            self.clock.sleep(Duration::from_secs(1)).await;
            self.store.tend().await?;
        }
        Ok(())
    }

    async fn device(&self, number: usize) -> anyhow::Result<Arc<dyn BlockDevice>> {
        Ok(BlockDevices::open(&self.store, &number.to_string()).await?)
    }

    fn random(&self) -> Xoshiro256PlusPlus {
        self.seed.set(self.seed.get() + 1);
        Xoshiro256PlusPlus::seed_from_u64(self.seed.get())
    }
}

/// A request for a random block: seven of ten are reads, the others durable writes.
async fn request(disk: &dyn BlockDevice, random: &mut Xoshiro256PlusPlus) -> anyhow::Result<()> {
    let at = random.random_range(0..SIZE / BLOCK as u64) * BLOCK as u64;
    if random.random_range(0..10) < 7 {
        disk.read(at, IoBufMut::zeroed(BLOCK)).await?;
    } else {
        disk.write(at, IoBuf::from(&[2; BLOCK][..]), Durable::Now).await?;
    }
    Ok(())
}

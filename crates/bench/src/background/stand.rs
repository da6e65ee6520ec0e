//! A device and a log store on a pool of simulated volumes, and the pool's own work.

use std::cell::RefCell;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use engine::block::store::{self, Store as Blocks};
use engine::block::{BlockDevice, BlockDevices, Durable};
use engine::log::{self, Durability, Store, StoreId};
use futures_util::future::join4;
use policy::budget::Share;
use policy::migrate::{Policy, Terms};
use policy::placement::{Code, RoundRobin};
use policy::purpose::{Io, Origin, Purpose, Step};
use policy::units::{KIB, MIB};
use pool::logged::{self, Logged};
use pool::mover::{GateLoad, Mover};
use pool::scrubber::Scrubber;
use pool::spread::{Opening, Spread, Verifying};
use pool::{Member, PoolId};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::heartbeat::{Heartbeat, SILENCE_MAX};
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::layer::gate::Gate;
use volume::layer::simulate::Simulate;
use volume::mem::Mem;
use volume::{Clock, Error, ErrorKind, IoBuf, IoBufMut, Pending};

use super::arms::{Layout, Work};
use super::scale::{PUTS_PER_SEC, VALUE, VOLUMES, gp3};
use crate::tier::volumes::{Target, stamped};

/// The objects that the device is cut into, of whole regions.
const EXTENTS: u64 = 16;

/// Room of the log store where merges have work, and where they have none.
const ROOM: [u64; 2] = [64 * MIB, 4096 * MIB];

/// Keys of the log store: their values take half of the smaller room.
const KEYS: u64 = ROOM[0] / 2 / VALUE as u64;

/// Between two looks for a pass of the scrub that ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Between two rounds in which the store of devices writes what it owes.
const TEND_EVERY: Duration = Duration::from_secs(1);

const DEVICE: &str = "disk";

type Gated = Arc<Gate<Simulate<Fault<Mem>>>>;

/// Everything that is open.
pub(super) struct Stand {
    clock: Clock,
    gates: Vec<Gated>,
    plan: FaultPlan,
    pool: Spread,
    logged: Logged,
    blocks: Blocks,
    pub(super) device: Device,
    /// Lets scrubs read the device, too.
    _verifying: Verifying,
    /// The first failure of the work beside the users.
    failure: RefCell<Option<anyhow::Error>>,
    store: Store,
    work: Work,
}

/// The device, as users read and write it.
pub(super) struct Device(Arc<dyn BlockDevice>);

impl Target for Device {
    fn read(&self, at: u64, into: IoBufMut) -> Pending<'_, IoBufMut> {
        Box::pin(async move { self.0.read(at, into).await.map_err(failed) })
    }

    fn write(&self, at: u64, data: IoBuf) -> Pending<'_, ()> {
        Box::pin(async move { self.0.write(at, data, Durable::Now).await.map_err(failed) })
    }
}

fn failed(error: engine::block::Error) -> Error {
    Error::new(ErrorKind::Io, error.to_string())
}

impl Stand {
    /// Opens a pool, and fills the device and the log store.
    pub(super) async fn open(
        layout: Layout,
        work: Work,
        data: u64,
        clock: &Clock,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let (gp3, plan) = (gp3()?, FaultPlan::new(seed));
        let gates: Vec<Gated> = (0..VOLUMES as u64)
            .map(|number| {
                let label = format!("v{number}");
                let disk = Fault::new(Mem::new(&label), &label, &plan, clock);
                let disk = Simulate::new(disk, &gp3, clock.clone(), seed << 8 | number);
                Arc::new(Gate::new(disk, &label, &gp3, Share::default(), clock.clone()))
            })
            .collect();
        let members = gates.iter().enumerate();
        let members = members.map(|(n, gate)| Member::new(format!("v{n}"), Arc::clone(gate)));
        let opening =
            Opening::new(RoundRobin::default()).create_if_missing(PoolId(u128::from(seed) + 1));
        let opening = match layout {
            Layout::Fragments => opening.code(Code::new(4, 2, 256 * KIB)?),
            Layout::Copies => opening.copies(2),
        };
        let pool = Spread::open(members.collect(), opening).await?;
        // A twentieth of the device, half of which is in memory.
        let limit = data / 20;
        let options = logged::Options {
            limit,
            file_len: limit / 32,
            memory: limit,
            ..logged::Options::default()
        };
        let logged = Logged::open(pool.enter("block"), options).await?;
        let below = Arc::new(logged.with(pool.enter("block")));
        let options = store::Options { extent_bytes: data / EXTENTS, ..store::Options::default() };
        let blocks = Blocks::open(below, options, clock.clone()).await?;
        let device = fill(&blocks, data).await?;
        logged.drain().await?;
        let verifying = pool.verify_with("block/", Arc::new(blocks.clone()));
        let store = open_store(&pool, work, clock, seed).await?;
        let clock = clock.clone();
        let stand = Self {
            clock,
            gates,
            plan,
            pool,
            logged,
            blocks,
            device,
            store,
            work,
            _verifying: verifying,
            failure: RefCell::default(),
        };
        // What is complete becomes fragments, and volumes save up what they may.
        stand.pool.recode(Io::new(Origin::Copy, Step::Data)).await;
        stand.clock.sleep(Duration::from_secs(2)).await;
        Ok(stand)
    }

    /// A volume fails all calls from now on, except in the arm that keeps all.
    pub(super) fn lose_one(&self) {
        if self.work != Work::HEALTHY {
            self.plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)).volume("v0"));
        }
    }

    /// Does what the pool and the stores do beside their users' calls, for ever.
    pub(super) async fn work(&self) {
        let heartbeat = Heartbeat::new("in place", SILENCE_MAX, &self.clock);
        let store = async { futures_util::join!(self.store.tend(0), self.put_all(), self.tend()) };
        let recycle = self.logged.run(&self.clock, &heartbeat);
        join4(recycle, self.rebuild(), self.scrub(), store).await;
    }

    async fn tend(&self) {
        loop {
            self.clock.sleep(TEND_EVERY).await;
            if let Err(error) = self.blocks.tend().await {
                return self.fail(error.into());
            }
        }
    }

    fn fail(&self, error: anyhow::Error) {
        self.failure.borrow_mut().get_or_insert(error);
    }

    /// # Errors
    /// The first of the work beside the users.
    pub(super) fn must_work(&self) -> anyhow::Result<()> {
        self.failure.borrow_mut().take().map_or(Ok(()), Err)
    }

    async fn rebuild(&self) {
        if !self.work.rebuild {
            return pending().await;
        }
        let terms = Terms { silence_max: Duration::from_secs(1), ..Terms::default() };
        let mover = Mover::new(self.pool.clone(), self.clock.clone(), Policy::Off, terms);
        let look = || {
            let volumes = self.pool.volumes().into_iter().zip(&self.gates);
            volumes.map(|(volume, gate)| GateLoad::of(volume.id, &gate.meter())).collect()
        };
        mover.run(look).await;
    }

    async fn scrub(&self) {
        if !self.work.scrub {
            return pending().await;
        }
        let scrubber = Scrubber::new(self.pool.clone(), self.clock.clone(), None, None);
        let passes = scrubber.passes();
        let again = async {
            loop {
                let _ = passes.begin();
                self.clock.sleep(LOOK_EVERY).await;
            }
        };
        futures_util::join!(scrubber.run(|_| ()), again);
    }

    /// Puts random keys at equal distances.
    async fn put_all(&self) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let begin = self.clock.now();
        for nth in 0_u64.. {
            let due = Duration::from_secs(nth).div_f64(PUTS_PER_SEC as f64);
            self.clock.sleep_until(begin + due).await;
            if let Err(error) = put(&self.store, random.random_range(0..KEYS)).await {
                return self.fail(error.into());
            }
        }
    }

    /// Operations granted for each kind of work so far.
    pub(super) fn granted(&self) -> Granted {
        let mut all = Granted::default();
        for gate in &self.gates {
            let meter = gate.meter();
            let of = |purpose: Purpose| meter.purposes[purpose.index()].spent;
            let [scrub, merge] = [Purpose::Scrub, Purpose::Merge].map(of);
            // What can wait for another loss runs as a copy.
            for rebuild in [Purpose::Rebuild, Purpose::Copy].map(of) {
                all.rebuild += rebuild.ops;
                all.rebuilt_bytes += rebuild.write_bytes;
            }
            all.scrub += scrub.ops;
            all.merge += merge.ops;
            all.total += meter.spent().ops;
        }
        all
    }

    /// Requests that the providers made wait.
    pub(super) fn overdrafts(&self) -> u64 {
        self.gates.iter().map(|gate| gate.inner().meter().total.throttled).sum()
    }

    /// Whether everything has its copies or fragments on the volumes that answer.
    pub(super) fn pool_is_whole(&self) -> bool {
        let lost = self.pool.volume_id("v0").into_iter().collect();
        self.pool.redundancy(&lost).short == 0
    }
}

/// Operations, and bytes, that gates granted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Granted {
    pub(super) rebuild: u64,
    pub(super) rebuilt_bytes: u64,
    pub(super) scrub: u64,
    pub(super) merge: u64,
    pub(super) total: u64,
}

impl Granted {
    /// The growth since `before`.
    pub(super) const fn since(&self, before: &Self) -> Self {
        // A count can fall when a token is returned.
        Self {
            rebuild: self.rebuild.saturating_sub(before.rebuild),
            rebuilt_bytes: self.rebuilt_bytes.saturating_sub(before.rebuilt_bytes),
            scrub: self.scrub.saturating_sub(before.scrub),
            merge: self.merge.saturating_sub(before.merge),
            total: self.total.saturating_sub(before.total),
        }
    }
}

async fn fill(blocks: &Blocks, data: u64) -> anyhow::Result<Device> {
    blocks.create(DEVICE, data).await?;
    let device = BlockDevices::open(blocks, DEVICE).await?;
    for at in (0..data).step_by(MIB as usize) {
        let bytes = stamped(at, MIB.min(data - at));
        device.write(at, IoBuf::from(&bytes[..]), Durable::Later).await?;
    }
    device.flush().await?;
    Ok(Device(device))
}

async fn open_store(pool: &Spread, work: Work, clock: &Clock, seed: u64) -> anyhow::Result<Store> {
    let mut options = log::Options::new(1);
    options.file_bytes = MIB;
    options.durability = Durability::Interval(Duration::from_secs(1));
    options.quota = ROOM[usize::from(!work.merges)];
    options.allocates = false;
    let member = log::Member::new("pool", pool.enter("series"));
    let id = Some(StoreId(u128::from(seed).to_le_bytes()));
    let (store, _) = Store::open(vec![member], options, clock.clone(), id).await?;
    // The largest fill without merges.
    let puts = async {
        for key in 0..KEYS * 3 / 2 {
            put(&store, key % KEYS).await?;
        }
        anyhow::Ok(())
    };
    crate::tier::volumes::beside(puts, store.tend(0)).await.context("filling the log store")?;
    ensure!(store.contains(&0_u64.to_be_bytes()), "the log store lacks what was put");
    Ok(store)
}

async fn put(store: &Store, key: u64) -> volume::Result<()> {
    store.put(&key.to_be_bytes(), Bytes::from(vec![7; VALUE]), None).await
}

//! Tiers on volumes that tests can watch, cut and fail.

use std::sync::Arc;

use futures_util::future::{Either, select};
use policy::cache::Kind;
use policy::promote::Access;
use policy::purpose::{Origin, Step};
use policy::time::Instant;
use policy::units::KIB;
use pool::tier::{Admission, Admit, Always, Options, Tier};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::crash::{Crash, Power};
use volume::layer::fault::{Fault, FaultPlan};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, Intent, Io, IoBuf, IoBufMut, Name, Object, Result, Volume};

use crate::delay::Delay;

pub(crate) const IO: Io = Io::new(Origin::UserWrite, Step::Data);
pub(crate) const PAGE: u64 = 4096;
pub(crate) const UNIT: u64 = 64 * KIB;

/// Admits by chance.
pub(crate) struct Chance(pub(crate) Xoshiro256PlusPlus);

impl Admit for Chance {
    fn missed(&mut self, _: Access, _: Instant) -> Admission {
        match self.0.random_range(0..4) {
            0 => Admission::Bypass,
            1 => Admission::Unit,
            _ => Admission::Pages,
        }
    }

    fn unserved(&mut self, access: Access, now: Instant) -> Admission {
        self.missed(access, now)
    }
}

/// A device and how to fail it.
pub(crate) struct Device {
    pub(crate) power: Power,
    pub(crate) crash: Crash,
    pub(crate) plan: FaultPlan,
    pub(crate) volume: Arc<dyn Volume>,
}

impl Device {
    pub(crate) fn new(mem: Mem, clock: &Clock, wait_us: u64, seed: u64) -> Self {
        let (power, plan) = (Power::new(), FaultPlan::new(seed));
        let crash = Crash::new(mem, &power);
        let fault = Fault::new(crash.clone(), "device", &plan, clock);
        let volume = Arc::new(Delay::new(fault, clock, wait_us, seed));
        Self { power, crash, plan, volume }
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Options for `slots` units of 64 KiB.
pub(crate) fn options(slots: u64) -> Options {
    Options { unit: UNIT, eviction: Kind::Lru, ..Options::new(slots * UNIT, 77) }
}

pub(crate) async fn open(
    slow: &(impl Volume + Clone + 'static),
    fast: Option<&Arc<dyn Volume>>,
    options: Options,
    clock: &Clock,
) -> Result<Tier> {
    Tier::open(Arc::new(slow.clone()), fast.cloned(), options, Box::new(Always), clock).await
}

pub(crate) fn open_now(
    slow: &(impl Volume + Clone + 'static),
    fast: &Arc<dyn Volume>,
    options: Options,
) -> Tier {
    block_on(open(slow, Some(fast), options, &Clock::simulated())).unwrap()
}

/// Runs `work` beside the tier's own work.
pub(crate) async fn beside<T>(tier: &Tier, work: impl Future<Output = T>) -> T {
    match select(std::pin::pin!(work), std::pin::pin!(tier.run())).await {
        Either::Left((done, _)) => done,
        Either::Right(((), _)) => unreachable!("the tier works for ever"),
    }
}

/// A synced object of `len` bytes, each page full of its number plus `seed`.
pub(crate) async fn fill(volume: &dyn Volume, text: &str, len: u64, seed: u8) -> Arc<dyn Object> {
    let object = volume.create(&name(text), &Intent::DATA).await.unwrap();
    object.write_at(0, IoBuf::from(&content(len, seed)[..]), IO).await.unwrap();
    object.sync(IO).await.unwrap();
    object
}

pub(crate) fn content(len: u64, seed: u8) -> Vec<u8> {
    (0..len).map(|at| ((at / PAGE) as u8).wrapping_add(seed)).collect()
}

pub(crate) async fn read(object: &dyn Object, offset: u64, len: u64) -> Vec<u8> {
    object.read_at(offset, IoBufMut::zeroed(len as usize), IO).await.unwrap().to_vec()
}

//! The volumes of one arm, in virtual time.

use std::sync::Arc;

use anyhow::Context;
use bench::tier::volumes::{Counted, Demand, Durable, Target, stamped};
use policy::budget::Share;
use policy::contract::Contract;
use policy::units::MIB;
use pool::tier::{Options, Promotion, Tier, Writes};
use volume::layer::gate::Gate;
use volume::layer::simulate::Simulate;
use volume::mem::{Image, Mem};
use volume::{Clock, Intent, Name, Object, Volume};

use super::arms::{Arm, Flushes};
use super::raised::Raised;
use super::scale::{Scale, fast, slow, wide};

type Gated = Arc<Gate<Simulate<Mem>>>;

/// The object that clients use, by a name of one that is written in place.
const DATA: &str = "data.inp";

/// The identity of a slow volume; any number.
const IDENTITY: u64 = 1;

/// The data on a volume in memory: arms take forks of it.
pub(super) fn image(scale: &Scale) -> anyhow::Result<Mem> {
    let image = Image::from([(Name::new(DATA)?, stamped(0, scale.data))]);
    Ok(Mem::from_image("slow", image))
}

/// What clients use, and the volumes below.
pub(super) struct Fixture {
    pub(super) target: Box<dyn Target>,
    pub(super) cache: Cache,
    slow: Gated,
    fast: Option<Gated>,
}

/// The cache of an arm.
pub(super) enum Cache {
    None,
    Tier(Arc<Tier>),
    Demand(Arc<Demand>),
}

/// A demand cache that the fixture reads counters of.
struct Shared(Arc<Demand>);

impl Target for Shared {
    fn read(&self, at: u64, into: volume::IoBufMut) -> volume::Pending<'_, volume::IoBufMut> {
        self.0.read(at, into)
    }

    fn write(&self, at: u64, data: volume::IoBuf) -> volume::Pending<'_, ()> {
        self.0.write(at, data)
    }
}

/// An object as clients use it.
fn clients(object: Arc<dyn Object>, is_durable: bool) -> Box<dyn Target> {
    if is_durable { Box::new(Durable(object)) } else { Box::new(object) }
}

impl Fixture {
    pub(super) async fn open(
        arm: Arm,
        cache: u64,
        image: &Mem,
        clock: &Clock,
        seed: u64,
        is_durable: bool,
    ) -> anyhow::Result<Self> {
        let gated = |mem: Mem, contract: &Contract| -> Gated {
            let label = mem.label().to_owned();
            let volume = Simulate::new(mem, contract, clock.clone(), seed);
            Arc::new(Gate::new(volume, &label, contract, Share::default(), clock.clone()))
        };
        let contract = match arm {
            Arm::Wide => wide()?,
            Arm::Fast => fast(),
            Arm::Tier(..) | Arm::Back(_) | Arm::BackPages | Arm::Demand | Arm::Slow => slow()?,
        };
        let below = gated(image.fork("slow"), &contract);
        let name = Name::new(DATA)?;
        let blank = || gated(Mem::new("fast"), &fast());
        let (target, cache, above): (Box<dyn Target>, _, _) = match arm {
            Arm::Tier(..) | Arm::Back(_) | Arm::BackPages => {
                let above = blank();
                let (promotion, unit, writes) = match arm {
                    Arm::Tier(promotion, unit) => (promotion, unit, Writes::Through),
                    Arm::BackPages => (Promotion::Demand, MIB, Writes::Back),
                    _ => (Promotion::Lazy, MIB, Writes::Back),
                };
                let mut options = Options { unit, writes, ..Options::new(cache, IDENTITY) };
                let mut slow: Arc<dyn Volume> = below.clone();
                if matches!(arm, Arm::Back(Flushes::Open | Flushes::Foreground)) {
                    let always = f64::INFINITY;
                    options.thresholds.load_open = always;
                    options.thresholds.load_close = always;
                }
                if arm == Arm::Back(Flushes::Foreground) {
                    slow = Arc::new(Raised { inner: slow });
                }
                let admit = promotion.admit(&options, clock.now());
                let tier = Tier::open(slow, Some(above.clone()), options, admit, clock);
                let tier = Arc::new(tier.await.context("a tier")?);
                let target = tier.open(&name).await?;
                (clients(target, is_durable), Cache::Tier(tier), Some(above))
            }
            Arm::Demand => {
                let above = blank();
                let slow = below.open(&name).await?;
                let fast = above.create(&name, &Intent::IN_PLACE).await?;
                fast.set_len(cache).await?;
                let slots = u32::try_from(cache / MIB)?;
                let demand = Arc::new(Demand::new(slow, fast, MIB, slots));
                (Box::new(Shared(Arc::clone(&demand))), Cache::Demand(demand), Some(above))
            }
            Arm::Slow | Arm::Wide | Arm::Fast => {
                let target: Arc<dyn Object> = below.open(&name).await?;
                (clients(target, is_durable), Cache::None, None)
            }
        };
        Ok(Self { target, cache, slow: below, fast: above })
    }

    /// Does what the tier does beside its users' calls, for ever.
    pub(super) async fn work(&self) {
        match &self.cache {
            Cache::Tier(tier) => tier.run().await,
            Cache::None | Cache::Demand(_) => std::future::pending().await,
        }
    }

    /// Dirty bytes now; `None` if no write stays in the cache.
    pub(super) fn dirty_bytes(&self) -> Option<u64> {
        match &self.cache {
            Cache::Tier(tier) => Some(tier.figures().dirty_bytes),
            Cache::None | Cache::Demand(_) => None,
        }
    }

    /// Everything that is counted, so far.
    pub(super) fn counted(&self) -> Counted {
        let seen = self.slow.inner().meter().total;
        let (hit_bytes, read_bytes, promoted_bytes) = match &self.cache {
            Cache::None => (0, 0, 0),
            Cache::Tier(tier) => {
                let figures = tier.figures();
                let read = figures.hit_bytes + figures.missed_bytes;
                (figures.hit_bytes, read, figures.promoted_bytes)
            }
            Cache::Demand(demand) => {
                (demand.hit_bytes(), demand.read_bytes(), demand.promoted_bytes())
            }
        };
        Counted {
            slow_ops: self.slow.meter().spent().ops,
            fast_ops: self.fast.as_ref().map_or(0, |fast| fast.meter().spent().ops),
            requests: seen.requests,
            overdrafts: seen.throttled,
            hit_bytes,
            read_bytes,
            promoted_bytes,
        }
    }
}

//! The rows of volumes of a simulated machine, and the weather: volumes that fail, hang and come back.
//!
//! ```text
//!   Simulate ── Deadline ── Fault ── Crash        one row for each volume
//! ```

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use policy::contract::Contract;
use pool::spread::ObjectStat;
use pool::{Kind, Placed};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::call::Op;
use volume::layer::crash::{Crash, Power};
use volume::layer::deadline::Deadline;
use volume::layer::fault::{Effect, Fault, FaultPlan, Injected, Rule};
use volume::layer::simulate::Simulate;
use volume::mem::{Image, Mem};
use volume::{ErrorKind, Name, Volume};

use crate::Sim;

/// How long a call may take, in milliseconds: longer than the slowest that does not hang.
const TIMEOUTS_MS: std::ops::Range<u64> = 2..100;

/// The volumes of one machine, from its start to its end. Clones share them.
#[derive(Clone)]
pub(crate) struct Rows {
    pub(crate) power: Power,
    pub(crate) plan: FaultPlan,
    pub(crate) crashes: Vec<Crash>,
    pub(crate) faults: Vec<Arc<Fault<Arc<dyn Volume>>>>,
    pub(crate) volumes: Vec<Arc<dyn Volume>>,
    /// Volumes that failed: any part of their unsynced bytes may be lost.
    pub(crate) failed: Rc<RefCell<Vec<bool>>>,
    /// A volume was full.
    pub(crate) was_full: Rc<Cell<bool>>,
}

impl Rows {
    /// A row for each image. `leaf` is what the faults see of a volume, and `contract` draws that of a row.
    pub(crate) fn boot(
        sim: &Sim,
        images: &[Image],
        random: &mut Xoshiro256PlusPlus,
        leaf: impl Fn(&Crash) -> Arc<dyn Volume>,
        contract: impl Fn(&mut Xoshiro256PlusPlus) -> Contract,
    ) -> Self {
        let (power, plan) = (Power::new(), FaultPlan::new(random.random()));
        let crashes: Vec<_> = (0..)
            .zip(images)
            .map(|(i, image)| Crash::new(Mem::from_image(&label(i), image.clone()), &power))
            .collect();
        let clock = sim.clock();
        let fault =
            |(i, crash): (u32, &Crash)| Arc::new(Fault::new(leaf(crash), &label(i), &plan, clock));
        let faults: Vec<_> = (0..).zip(&crashes).map(fault).collect();
        let volumes = (0..).zip(&faults).map(|(i, fault)| {
            let timeout = Duration::from_millis(random.random_range(TIMEOUTS_MS));
            let limited = Deadline::new(Arc::clone(fault), &label(i), timeout, clock.clone());
            let contract = contract(random);
            let device = Simulate::new(limited, &contract, clock.clone(), random.random());
            Arc::new(device) as Arc<dyn Volume>
        });
        let volumes = volumes.collect();
        let failed = Rc::new(RefCell::new(vec![false; images.len()]));
        Self { power, plan, crashes, faults, volumes, failed, was_full: Rc::default() }
    }

    /// Makes a volume fail as the rules say.
    pub(crate) fn fail(&self, volume: u32, rules: &[Rule]) -> Vec<Injected> {
        self.failed.borrow_mut()[volume as usize] = true;
        let rules = rules.iter().map(|rule| rule.clone().volume(&label(volume)));
        rules.map(|rule| self.plan.inject(rule)).collect()
    }

    pub(crate) fn spawn_storm(&self, sim: &Sim) {
        self.spawn_storm_of(sim, (0..self.faults.len() as u32).collect());
    }

    /// A storm that only these volumes are in.
    pub(crate) fn spawn_storm_of(&self, sim: &Sim, volumes: Vec<u32>) {
        sim.spawn("weather", self.clone().storm(sim.clone(), volumes));
    }

    /// Changes of objects in place fail on one volume, for moments.
    pub(crate) fn spawn_flicker(&self, sim: &Sim, volume: u32) {
        sim.spawn("weather", self.clone().flicker(sim.clone(), volume));
    }

    async fn flicker(self, sim: Sim, volume: u32) {
        let mut random = sim.random("weather");
        for _ in 0..random.random_range(1..40) {
            let wait = Duration::from_micros(random.random_range(0..10_000));
            sim.clock().sleep(wait).await;
            let effect = match random.random_range(0..4) {
                0 => Effect::FailAfter(ErrorKind::TimedOut),
                1 => Effect::Slow(Duration::from_micros(random.random_range(0..200_000))),
                _ => Effect::Fail(ErrorKind::Io),
            };
            let op = [Op::Write, Op::Write, Op::Sync, Op::SetLen][random.random_range(0..4)];
            let injected = self.fail(volume, &[Rule::new(effect).on(op).named("*.inp")]);
            sim.note("weather", format_args!("! {volume} fails: {op:?}, {effect:?}"));
            let wait = Duration::from_micros(random.random_range(0..10_000));
            sim.clock().sleep(wait).await;
            injected.into_iter().for_each(|rule| self.plan.lift(rule));
        }
    }

    /// Sets of volumes fail for a while, also overlapping.
    async fn storm(self, sim: Sim, all: Vec<u32>) {
        let mut random = sim.random("weather");
        let mut injected = Vec::new();
        for _ in 0..random.random_range(1..8) {
            sim.clock().sleep(Duration::from_micros(random.random_range(0..60_000))).await;
            if random.random_bool(0.5) {
                let some = some_of(all.len() as u32, &mut random);
                let volumes: Vec<_> = some.into_iter().map(|at| all[at as usize]).collect();
                let (rules, fills) = rules(&mut random);
                self.was_full.set(self.was_full.get() || fills);
                sim.note("weather", format_args!("! {volumes:?} fail: {rules:?}"));
                for volume in volumes {
                    injected.extend(self.fail(volume, &rules));
                }
            } else {
                injected.retain(|&rule| {
                    let stays = random.random_bool(0.3);
                    if !stays {
                        self.plan.lift(rule);
                    }
                    stays
                });
                sim.note("weather", format_args!("! {} faults are left", injected.len()));
                for fault in &self.faults {
                    if random.random_bool(0.7) {
                        fault.probe();
                    }
                }
            }
        }
        if random.random_bool(0.5) {
            sim.note("weather", format_args!("! it is over"));
            self.plan.clear();
            self.faults.iter().for_each(|fault| fault.probe());
        }
    }
}

/// What its rows are called.
pub(crate) fn label(number: u32) -> String {
    format!("s{number}")
}

/// The name of a copy on its volume, see `docs/format`.
pub(crate) fn leaf(object: &ObjectStat, placed: &Placed) -> Name {
    let (id, number) = (object.id, placed.number);
    let end = match object.kind {
        Kind::Table => "tab",
        Kind::Data => "dat",
        Kind::Log => "log",
        Kind::InPlace => "inp",
    };
    let name = match number {
        0 => format!("o{id}.{end}"),
        _ => format!("o{id}-{number:016x}.{end}"),
    };
    Name::new(&name).expect("letters, digits, dots and dashes make a valid name")
}

/// Draws a part of `count` volumes or members, mostly more than one.
pub(crate) fn some_of(count: u32, random: &mut Xoshiro256PlusPlus) -> Vec<u32> {
    let share = [0.3, 0.6, 0.9][random.random_range(0..3)];
    let mut some: Vec<_> = (0..count).filter(|_| random.random_bool(share)).collect();
    if some.is_empty() {
        some.push(random.random_range(0..count));
    }
    some
}

/// Random failures of a volume, and whether it is full.
fn rules(random: &mut Xoshiro256PlusPlus) -> (Vec<Rule>, bool) {
    let kinds = [ErrorKind::Unavailable, ErrorKind::TimedOut, ErrorKind::Io, ErrorKind::Poisoned];
    let kind = kinds[random.random_range(0..kinds.len())];
    let effect = match random.random_bool(0.3) && kind != ErrorKind::Poisoned {
        true => Effect::FailAfter(kind),
        false => Effect::Fail(kind),
    };
    let rule = Rule::new(effect);
    // Its end comes long after the limit; the call then takes effect.
    let hangs = Duration::from_millis(random.random_range(10..2_000));
    let hang = Rule::new(Effect::Slow(hangs));
    const FILLS: u32 = 9;
    let which = random.random_range(0..12);
    let rules = match which {
        // The volume answers again while the writes are under way.
        10 | 11 => vec![hang.named("o*").on(Op::Write)],
        6 => vec![hang],
        7 => vec![hang.clone().on(Op::Write), hang.on(Op::SetLen)],
        8 => vec![hang.on(Op::Sync)],
        FILLS => vec![Rule::new(Effect::Full)],
        0 | 1 => vec![Rule::new(Effect::Fail(ErrorKind::Unavailable))],
        2 => vec![rule.clone().on(Op::Write), rule.clone().on(Op::SetLen), rule.on(Op::Create)],
        3 => vec![rule.on(Op::Sync)],
        4 => vec![rule.clone().on(Op::Write), rule.clone().on(Op::SetLen), rule.on(Op::Sync)],
        _ => vec![rule.named("o*")],
    };
    (rules, which == FILLS)
}

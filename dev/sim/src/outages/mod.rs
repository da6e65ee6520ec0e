//! A pool whose volumes fail together: writes, syncs or all calls, away and back in any order, while the
//! process and the machine crash too.
//!
//! ```text
//!   users · a copier, which makes and drops copies · the weather
//!      │                                               │ any set of volumes
//!   Spread ── Fault ── Simulate ── Crash          one row for each volume
//! ```
//!
//! Invariants:
//!
//! - a read returns the last acknowledged version or a later attempt, never an older one or a removed
//!   object. A read of an object whose volumes are away fails with `Unavailable`;
//! - when every volume is back, every acknowledged object is there;
//! - an object is also there without a volume that failed together with others, if a copy was on another
//!   volume when they failed, and without any one volume after all copies were repaired;
//! - the pool opens with all of its volumes, and of three or more with all but one.
//!
//! The seed chooses the volumes that come back: each life begins with any of them.

mod client;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use policy::placement::{LeastOverlap, RoundRobin, VolumeId};
use policy::purpose::{Io, Origin, Step};
use policy::units::KIB;
use pool::spread::Opening;
use pool::{Member, PoolId, Spread};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::call::Op;
use volume::layer::crash::{Crash, Power};
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::layer::simulate::Simulate;
use volume::mem::{Image, Mem};
use volume::{ErrorKind, Volume};

use self::client::{Client, Sure};
use crate::device::any_contract;
use crate::{Program, Sim};

/// See the [module](self).
pub const PROGRAM: Program = Program {
    name: "outages",
    about: "A pool whose volumes fail together and come back in any order: nothing lost, nothing old",
    run,
};

const COPY: Io = Io::new(Origin::Copy, Step::Data);

/// The failures in a life of the pool.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Weather {
    Calm,
    /// Volumes fail and come back, one or several at a time, with all kinds of failures.
    Storm,
    /// Several volumes fail at one moment and stay failed; one of them is lost in the next life.
    Together,
}

struct World {
    copies: usize,
    clients: Vec<Rc<Client>>,
    images: Vec<Image>,
}

fn run(sim: &Sim) -> String {
    let mut random = sim.random("set-up");
    let volumes: u32 = random.random_range(2..=6);
    let copies = random.random_range(2..=3.min(volumes as usize));
    let clients = (0..random.random_range(1..=3)).map(|n| Rc::new(Client::new(sim, n))).collect();
    let images = formatted(sim, volumes, copies);
    let mut world = World { copies, clients, images };
    let mut lost = None;
    let mut told = Vec::new();
    for life in 0..random.random_range(2..=6) {
        let weather = match random.random_range(0..10) {
            0..2 => Weather::Calm,
            2..6 => Weather::Storm,
            _ => Weather::Together,
        };
        let away = match lost {
            Some(lost) => vec![lost],
            None => away(&mut random, volumes),
        };
        sim.note("machine", format_args!("! life {life}, {weather:?}, away {away:?}"));
        told.push(format!("{weather:?}/{}", away.len()));
        let promised = lost.is_some();
        lost = live(sim, &mut world, &mut random, weather, &away, promised);
        if lost.is_none() {
            world.clients.iter().for_each(|client| client.forget_promise());
        }
    }
    sim.note("machine", format_args!("! everything is back"));
    calm_end(sim, &mut world, &mut random, lost);
    let counts = world.clients.iter().map(|client| client.counts());
    let (acknowledged, refused) = counts.fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
    format!(
        "{volumes} volumes, {copies} copies, {acknowledged} acknowledged, {refused} refused, {}",
        told.join(", ")
    )
}

/// Volumes that are away when the pool is opened.
fn away(random: &mut Xoshiro256PlusPlus, volumes: u32) -> Vec<u32> {
    if random.random_bool(0.5) {
        return Vec::new();
    }
    (0..volumes).filter(|_| random.random_bool(0.35)).collect()
}

fn opening(copies: usize, random: &mut Xoshiro256PlusPlus) -> Opening {
    let opening = match random.random_bool(0.5) {
        true => Opening::new(RoundRobin::default()),
        false => Opening::new(LeastOverlap::new(random.random())),
    };
    opening.create_if_missing(PoolId(1)).copies(copies).allow_away()
}

/// Volumes with a new pool on them.
fn formatted(sim: &Sim, volumes: u32, copies: usize) -> Vec<Image> {
    let mems: Vec<_> = (0..volumes).map(|i| Mem::new(&label(i))).collect();
    let members = (0..).zip(&mems).map(|(i, mem)| Member::new(label(i), mem.clone())).collect();
    let opening = opening(copies, &mut sim.random("format"));
    let made = sim.clock().run(Spread::open(members, opening)).expect("memory does not fail");
    drop(made);
    mems.iter().map(Mem::image).collect()
}

/// One life of the pool, without the volumes `away`. If several failed together, returns the one that stays
/// away in the next life.
fn live(
    sim: &Sim,
    world: &mut World,
    random: &mut Xoshiro256PlusPlus,
    weather: Weather,
    away: &[u32],
    promised: bool,
) -> Option<u32> {
    let machine = Machine::boot(sim, &world.images, random);
    let opened = Rc::new(RefCell::new(None));
    let lost = Rc::new(Cell::new(None));
    let early = !promised && weather == Weather::Storm && random.random_bool(0.3);
    if early {
        machine.spawn_storm(sim);
    }
    let all = away.is_empty() && !early;
    sim.spawn("opener", {
        let (sim, clients, opened) = (sim.clone(), world.clients.clone(), Rc::clone(&opened));
        let (members, opening) = (machine.members(away), opening(world.copies, random));
        let (power, lost, machine) = (machine.power.clone(), Rc::clone(&lost), machine.clone());
        let volumes = world.images.len();
        async move {
            let pool = match Spread::open(members, opening).await {
                Ok(pool) => pool,
                Err(error) => {
                    let fine = !all && error.kind() == ErrorKind::Unavailable;
                    assert!(fine || early || power.is_off(), "opening: {error}");
                    sim.note("opener", format_args!("! {error}"));
                    return;
                }
            };
            *opened.borrow_mut() = Some(pool.clone());
            if !early {
                let sure = if all { Sure::All } else { Sure::Promised };
                for client in &clients {
                    client.verify(&pool, sure).await;
                }
            }
            for client in &clients {
                let name = client.home().to_owned();
                sim.spawn(&name, Rc::clone(client).work(sim.clone(), pool.clone()));
            }
            match weather {
                Weather::Calm => {}
                Weather::Storm if early => {}
                Weather::Storm => machine.spawn_storm(&sim),
                Weather::Together => {
                    let strike = machine.clone().strike(sim.clone(), pool.clone(), clients, lost);
                    sim.spawn("weather", strike);
                }
            }
            if weather != Weather::Together {
                sim.spawn("copier", copy(sim.clone(), pool, volumes));
            }
        }
    });
    let death = machine.live_and_die(sim, random);
    drop(opened);
    world.clients.iter().for_each(|client| client.stop());
    machine.images(&mut world.images, away, death, random);
    let here = |lost: &u32| !away.contains(lost);
    lost.get().filter(here)
}

/// Every volume is back: every acknowledged object is there, and stays when any one volume is lost.
fn calm_end(sim: &Sim, world: &mut World, random: &mut Xoshiro256PlusPlus, lost: Option<u32>) {
    if lost.is_some() {
        // Volumes that failed together also come back together.
        world.clients.iter().for_each(|client| client.forget_promise());
    }
    let machine = Machine::boot(sim, &world.images, random);
    let closes = random.random_bool(0.5);
    let opening_all = opening(world.copies, random);
    sim.clock().run(async {
        let pool = Spread::open(machine.members(&[]), opening_all).await;
        let pool = pool.unwrap_or_else(|e| panic!("opening with everything: {e}"));
        for client in &world.clients {
            client.verify(&pool, Sure::All).await;
        }
        let repaired = pool.repair(COPY, |_| ()).await.expect("nothing fails");
        assert_eq!(repaired.short, [], "copies that cannot be made");
        pool.flush().await.expect("nothing fails");
        if closes {
            pool.close().await.expect("nothing fails");
        }
    });
    let death = if random.random_bool(0.5) { Death::Power } else { Death::Process };
    machine.power.cut();
    machine.images(&mut world.images, &[], death, random);
    let volumes = world.images.len() as u32;
    let gone = random.random_range(0..volumes);
    if volumes == 2 {
        return;
    }
    sim.note("machine", format_args!("! volume {gone} is lost"));
    let machine = Machine::boot(sim, &world.images, random);
    let opening = opening(world.copies, random);
    sim.clock().run(async {
        let pool = Spread::open(machine.members(&[gone]), opening).await;
        let pool = pool.unwrap_or_else(|e| panic!("opening without volume {gone}: {e}"));
        for client in &world.clients {
            client.verify(&pool, Sure::All).await;
        }
    });
}

/// Repairs missing copies, makes further ones, and drops some.
async fn copy(sim: Sim, pool: Spread, volumes: usize) {
    let mut random = sim.random("copier");
    for _ in 0..random.random_range(0..8) {
        sim.clock().sleep(Duration::from_micros(random.random_range(0..60_000))).await;
        if random.random_bool(0.3) {
            let made = pool.repair(COPY, |_| ()).await.map(|repaired| repaired.made);
            sim.note("copier", format_args!("  repaired {made:?}"));
            continue;
        }
        let objects = pool.objects();
        if objects.is_empty() {
            continue;
        }
        let object = &objects[random.random_range(0..objects.len())];
        let volume = VolumeId(random.random_range(0..volumes) as u16);
        let done = match random.random_bool(0.4) {
            true => pool.drop_copy(object.id, volume).await,
            false => pool.copy(object.id, volume, COPY).await.map(drop),
        };
        sim.note("copier", format_args!("  {} on {volume}: {done:?}", object.name));
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Death {
    Process,
    Power,
}

/// Volumes of one machine, from its start to its end.
#[derive(Clone)]
struct Machine {
    power: Power,
    plan: FaultPlan,
    crashes: Vec<Crash>,
    faults: Vec<Arc<Fault<Simulate<Crash>>>>,
    /// Volumes that failed: any part of their unsynced bytes may be lost.
    failed: Rc<RefCell<Vec<bool>>>,
}

impl Machine {
    fn boot(sim: &Sim, images: &[Image], random: &mut Xoshiro256PlusPlus) -> Self {
        let (power, plan) = (Power::new(), FaultPlan::new(random.random()));
        let crashes: Vec<_> = (0..)
            .zip(images)
            .map(|(i, image)| Crash::new(Mem::from_image(&label(i), image.clone()), &power))
            .collect();
        let faults = (0..).zip(&crashes).map(|(i, crash)| {
            let contract = any_contract(random, 500..8_000, 10..200, 16 * KIB);
            let (clock, seed) = (sim.clock().clone(), random.random());
            let device = Simulate::new(crash.clone(), &contract, clock.clone(), seed);
            Arc::new(Fault::new(device, &label(i), &plan, &clock))
        });
        let faults = faults.collect();
        let failed = Rc::new(RefCell::new(vec![false; images.len()]));
        Self { power, plan, crashes, faults, failed }
    }

    fn members(&self, away: &[u32]) -> Vec<Member> {
        let here = (0..).zip(&self.faults).filter(|(i, _)| !away.contains(i));
        here.map(|(i, fault)| Member {
            label: label(i),
            volume: Arc::clone(fault) as Arc<dyn Volume>,
        })
        .collect()
    }

    /// A set of volumes, mostly more than one.
    fn some_volumes(&self, random: &mut Xoshiro256PlusPlus) -> Vec<u32> {
        let volumes = self.faults.len() as u32;
        let share = [0.3, 0.6, 0.9][random.random_range(0..3)];
        let mut some: Vec<_> = (0..volumes).filter(|_| random.random_bool(share)).collect();
        if some.is_empty() {
            some.push(random.random_range(0..volumes));
        }
        some
    }

    /// Random failures of a volume.
    fn rules(random: &mut Xoshiro256PlusPlus) -> Vec<Rule> {
        let kinds = [ErrorKind::Unavailable, ErrorKind::Io, ErrorKind::Poisoned];
        let kind = kinds[random.random_range(0..kinds.len())];
        let effect = match random.random_bool(0.3) && kind != ErrorKind::Poisoned {
            true => Effect::FailAfter(kind),
            false => Effect::Fail(kind),
        };
        let rule = Rule::new(effect);
        match random.random_range(0..6) {
            0 | 1 => vec![Rule::new(Effect::Fail(ErrorKind::Unavailable))],
            2 => vec![rule.clone().on(Op::Write), rule.clone().on(Op::SetLen), rule.on(Op::Create)],
            3 => vec![rule.on(Op::Sync)],
            4 => vec![rule.clone().on(Op::Write), rule.clone().on(Op::SetLen), rule.on(Op::Sync)],
            _ => vec![rule.named("o*")],
        }
    }

    fn fail(&self, volume: u32, rules: &[Rule]) -> Vec<volume::layer::fault::Injected> {
        self.failed.borrow_mut()[volume as usize] = true;
        let rules = rules.iter().map(|rule| rule.clone().volume(&label(volume)));
        rules.map(|rule| self.plan.inject(rule)).collect()
    }

    fn spawn_storm(&self, sim: &Sim) {
        sim.spawn("weather", self.clone().storm(sim.clone()));
    }

    /// Sets of volumes fail for a while, also overlapping.
    async fn storm(self, sim: Sim) {
        let mut random = sim.random("weather");
        let mut injected = Vec::new();
        for _ in 0..random.random_range(1..8) {
            sim.clock().sleep(Duration::from_micros(random.random_range(0..60_000))).await;
            if random.random_bool(0.5) {
                let (volumes, rules) = (self.some_volumes(&mut random), Self::rules(&mut random));
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

    /// Several volumes fail at one moment.
    async fn strike(
        self,
        sim: Sim,
        pool: Spread,
        clients: Vec<Rc<Client>>,
        lost: Rc<Cell<Option<u32>>>,
    ) {
        let mut random = sim.random("strike");
        sim.clock().sleep(Duration::from_micros(random.random_range(0..150_000))).await;
        let volumes = self.some_volumes(&mut random);
        let gone = volumes[random.random_range(0..volumes.len())];
        for client in &clients {
            client.take_promise(&pool, VolumeId(gone as u16));
        }
        let (unavailable, poisoned) = (ErrorKind::Unavailable, ErrorKind::Poisoned);
        let dead = Rule::new(Effect::Fail(unavailable));
        let rules = match random.random_range(0..4) {
            0 | 1 => vec![dead],
            2 => vec![dead.clone().on(Op::Write), dead.clone().on(Op::Sync), dead.on(Op::Create)],
            _ => vec![Rule::new(Effect::Fail(poisoned)).on(Op::Sync)],
        };
        sim.note("weather", format_args!("! {volumes:?} fail together: {rules:?}; {gone} is lost"));
        for volume in volumes {
            self.fail(volume, &rules);
        }
        lost.set(Some(gone));
    }

    fn live_and_die(&self, sim: &Sim, random: &mut Xoshiro256PlusPlus) -> Death {
        let steps_max = [200, 3_000, 30_000][random.random_range(0..3)];
        let steps = random.random_range(0..steps_max);
        let death = if random.random_bool(0.5) { Death::Power } else { Death::Process };
        for _ in 0..steps {
            if !sim.step() {
                break;
            }
        }
        sim.end_all_tasks();
        self.power.cut();
        sim.note("machine", format_args!("! death of the {death:?}"));
        death
    }

    /// The images that the next life begins with.
    fn images(
        &self,
        images: &mut [Image],
        away: &[u32],
        death: Death,
        random: &mut Xoshiro256PlusPlus,
    ) {
        let failed = self.failed.borrow();
        for (i, (crash, image)) in self.crashes.iter().zip(images).enumerate() {
            if away.contains(&(i as u32)) {
                continue;
            }
            *image = match death {
                Death::Process if !failed[i] => crash.after_process_death().image(),
                Death::Process | Death::Power => crash.survivor(random.random()).image(),
            };
        }
    }
}

fn label(number: u32) -> String {
    format!("s{number}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{replay, search};

    #[test]
    fn outages_together_lose_nothing() {
        let report = search(&PROGRAM, 0..60, 1);
        assert!(report.failures.is_empty(), "{}", report.failures[0]);
        assert!(report.distinct > 40, "{} different endings", report.distinct);
    }

    #[test]
    fn the_same_seed_gives_the_same_log() {
        for seed in 0..10 {
            let (first, second) = (replay(&PROGRAM, seed), replay(&PROGRAM, seed));
            assert!(first.0 == second.0, "seed {seed}");
        }
    }
}

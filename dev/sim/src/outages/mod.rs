//! A pool whose volumes fail together: writes, syncs or all calls, away and back in any order, while the
//! process and the machine crash too, or the pool is closed. Volumes also hang, are full, and rot.
//!
//! ```text
//!   users · a copier, which makes and drops copies · scrubs · the weather
//!      │                                                         │ any set of volumes
//!   Spread ── Simulate ── Deadline ── Fault ── Crash        one row for each volume
//! ```
//!
//! With some seeds the members of the pool are pools of two such volumes. There a member is what a volume is below: it has
//! a copy of an object, and is lost as a whole.
//!
//! Invariants:
//!
//! - a read returns the last acknowledged version or a later attempt, never an older one or a removed
//!   object, also while volumes fail. A read of an object whose volumes are away fails with `Unavailable`;
//! - where a copy has rotten bytes, a reader whose check refuses them gets those of a good copy, if it can be reached.
//!   In the end all copies of every object are good;
//! - when every volume is back, every acknowledged object is there;
//! - an object is also there without a volume that failed together with others, if a copy was on another
//!   volume when they failed, and without any one volume after all copies were repaired;
//! - the pool opens with all of its volumes, and of three or more with all but one.
//!
//! The seed chooses the volumes that come back: each life begins with any of them.

mod client;
mod expect;
mod rot;
mod tree;
mod weather;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use policy::placement::{LeastOverlap, RoundRobin, VolumeId};
use policy::purpose::{Io, Origin, Step};
use policy::units::KIB;
use pool::spread::{Opening, Problem};
use pool::{PoolId, Spread};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::crash::Crash;
use volume::mem::{Image, Mem};
use volume::{Name, Volume};

use self::client::{Client, Sure};
use self::rot::Rot;
use self::tree::Tree;
use crate::device::any_contract;
use crate::rows::{Rows, label};
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
    /// No volume fails, but bits rot in copies.
    Rot,
}

struct World {
    tree: Tree,
    copies: usize,
    rot: Rc<Rot>,
    clients: Vec<Rc<Client>>,
    images: Vec<Image>,
}

fn run(sim: &Sim) -> String {
    let mut random = sim.random("set-up");
    let members: u32 = random.random_range(2..=6);
    let copies = random.random_range(2..=3.min(members as usize));
    let tree = Tree::draw(sim, members);
    let volumes = tree.volumes();
    let rot = Rc::new(Rot::default());
    let client = |n| Rc::new(Client::new(sim, n, Rc::clone(&rot)));
    let clients = (0..random.random_range(1..=3)).map(client).collect();
    let images = formatted(sim, &tree, copies);
    let mut world = World { tree, copies, rot, clients, images };
    let mut lost = None;
    let mut told = Vec::new();
    for life in 0..random.random_range(2..=6) {
        let weather = match random.random_range(0..12) {
            0..2 => Weather::Calm,
            2..5 => Weather::Storm,
            5..8 => Weather::Rot,
            _ => Weather::Together,
        };
        world.rot.begin_life();
        let away = match lost {
            Some(lost) => world.tree.of(lost).to_vec(),
            None if world.rot.must_heal() => Vec::new(),
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
    let shape = if world.tree.is_flat() { String::new() } else { format!("{members} members of ") };
    format!(
        "{shape}{volumes} volumes, {copies} copies, {acknowledged} acknowledged, {refused} refused, {}",
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
fn formatted(sim: &Sim, tree: &Tree, copies: usize) -> Vec<Image> {
    let mems: Vec<_> = (0..tree.volumes()).map(|i| Mem::new(&label(i))).collect();
    let members = tree.formatted(&mems, 0).expect("memory does not fail");
    let opening = opening(copies, &mut sim.random("format"));
    let made = sim.clock().run(Spread::open(members, opening)).expect("memory does not fail");
    drop(made);
    mems.iter().map(Mem::image).collect()
}

/// One life of the pool, without the volumes `away`. If several members failed together, returns the one that stays
/// away in the next life.
fn live(
    sim: &Sim,
    world: &mut World,
    random: &mut Xoshiro256PlusPlus,
    weather: Weather,
    away: &[u32],
    promised: bool,
) -> Option<u32> {
    let machine = Machine::boot(sim, world, away, random);
    let opened = Rc::new(RefCell::new(None));
    let lost = Rc::new(Cell::new(None));
    let must_heal = world.rot.must_heal();
    let may_start_early = !promised && !must_heal && weather == Weather::Storm;
    let early = may_start_early && random.random_bool(0.3);
    if early {
        machine.rows.spawn_storm(sim);
    }
    let all = away.is_empty() && !early;
    let rots = match weather {
        Weather::Calm | Weather::Together => false,
        Weather::Storm => !early && random.random_bool(0.5),
        Weather::Rot => true,
    };
    let heals = all && (must_heal || random.random_bool(0.5));
    sim.spawn("opener", {
        let (sim, clients, opened) = (sim.clone(), world.clients.clone(), Rc::clone(&opened));
        let opening = opening(world.copies, random);
        let (power, lost, machine) =
            (machine.rows.power.clone(), Rc::clone(&lost), machine.clone());
        async move {
            let opening = async { Spread::open(machine.members(&sim).await?, opening).await };
            let pool = match opening.await {
                Ok(pool) => pool,
                Err(error) => {
                    let fine = !all && error.kind().is_away();
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
            if heals {
                for client in &clients {
                    client.heal(&pool, false).await;
                }
                machine.rot.clear();
            }
            let is_quiet = matches!(weather, Weather::Calm | Weather::Rot);
            let sure = if all && is_quiet { Sure::All } else { Sure::Nothing };
            for client in &clients {
                let name = client.home().to_owned();
                sim.spawn(&name, Rc::clone(client).work(sim.clone(), pool.clone()));
                sim.spawn(&name, Rc::clone(client).watch(sim.clone(), pool.clone(), sure));
            }
            if rots {
                let (clients, pool) = (clients.clone(), pool.clone());
                let len_of =
                    move |name: &Name| clients.iter().find_map(|client| client.len_of(name));
                sim.spawn("rot", machine.clone().rot(sim.clone(), pool, len_of, weather));
            }
            match weather {
                Weather::Calm | Weather::Rot => {}
                Weather::Storm if early => {}
                Weather::Storm => machine.rows.spawn_storm(&sim),
                Weather::Together => {
                    let strike = machine.clone().strike(sim.clone(), pool.clone(), clients, lost);
                    sim.spawn("weather", strike);
                }
            }
            if weather != Weather::Together {
                let rot = Rc::clone(&machine.rot);
                let scrubs = scrub(sim.clone(), pool.clone(), Rc::clone(&rot), sure);
                sim.spawn("scrub", scrubs);
                sim.spawn("copier", copy(sim.clone(), pool, machine));
            }
        }
    });
    let death = machine.live_and_die(sim, &world.clients, &opened, random);
    machine.images(&mut world.images, death, random);
    let here = |lost: &u32| !world.tree.of(*lost).iter().all(|volume| away.contains(volume));
    lost.get().filter(here)
}

/// Every volume is back: every acknowledged object is there, and stays when any one member is lost, or a part of it.
fn calm_end(sim: &Sim, world: &mut World, random: &mut Xoshiro256PlusPlus, lost: Option<u32>) {
    if lost.is_some() {
        // Volumes that failed together also come back together.
        world.clients.iter().for_each(|client| client.forget_promise());
    }
    let machine = Machine::boot(sim, world, &[], random);
    let closes = random.random_bool(0.5);
    let opening_all = opening(world.copies, random);
    sim.clock().run(async {
        let members = machine.members(sim).await.expect("every volume is here");
        let pool = Spread::open(members, opening_all).await;
        let pool = pool.unwrap_or_else(|e| panic!("opening with everything: {e}"));
        let reads_first = random.random_bool(0.5);
        if reads_first {
            for client in &world.clients {
                client.verify(&pool, Sure::All).await;
            }
        }
        let report = pool.scrub(|_| ()).await.expect("nothing fails");
        let loss = report.findings.iter().find(|finding| finding.is_loss());
        assert_eq!(loss, None, "a scrub finds a loss");
        pool.mend(&report).await.expect("nothing fails");
        let repaired = pool.repair(COPY, |_| ()).await.expect("nothing fails");
        assert_eq!(repaired.short, [], "copies that cannot be made");
        for client in &world.clients {
            client.verify(&pool, Sure::All).await;
            client.heal(&pool, true).await;
        }
        world.rot.clear();
        pool.flush().await.expect("nothing fails");
        if closes {
            pool.close().await.expect("nothing fails");
        }
    });
    if closes {
        machine.close_below(sim);
    }
    let death = if random.random_bool(0.5) { Death::Power } else { Death::Process };
    machine.rows.power.cut();
    machine.images(&mut world.images, death, random);
    let members = world.tree.members();
    let gone = random.random_range(0..members);
    if members == 2 {
        return;
    }
    let mut away = world.tree.of(gone).to_vec();
    if away.len() > 1 && random.random() {
        away.truncate(1);
    }
    sim.note("machine", format_args!("! the volumes {away:?} of member {gone} are lost"));
    let machine = Machine::boot(sim, world, &away, random);
    let opening = opening(world.copies, random);
    sim.clock().run(async {
        let members = machine.members(sim).await.expect("every other volume is here");
        let pool = Spread::open(members, opening).await;
        let pool = pool.unwrap_or_else(|e| panic!("opening without {away:?}: {e}"));
        for client in &world.clients {
            client.verify(&pool, Sure::All).await;
        }
    });
}

/// Scrubs the open pool, and replaces the damaged copies that it finds.
async fn scrub(sim: Sim, pool: Spread, rot: Rc<Rot>, sure: Sure) {
    let mut random = sim.random("scrub");
    for _ in 0..random.random_range(0..4) {
        sim.clock().sleep(Duration::from_micros(random.random_range(0..100_000))).await;
        let mut report = pool.scrub(|_| ()).await.expect("what cannot be read is a finding");
        let loss = report.findings.iter().find(|finding| finding.is_loss());
        assert!(sure != Sure::All || loss.is_none(), "a scrub finds a loss: {loss:?}");
        // A copy that was read before another one rotted may be the last good one.
        report.findings.retain(|finding| {
            let is_fresh = finding.copy.is_some_and(|(id, _)| rot.is_fresh(id));
            finding.problem == Problem::Damaged || !is_fresh
        });
        let mended = pool.mend(&report).await;
        sim.note("scrub", format_args!("  {} findings, {mended:?}", report.findings.len()));
    }
}

/// Repairs missing copies, makes further ones, and drops some.
async fn copy(sim: Sim, pool: Spread, machine: Machine) {
    let (rot, members) = (&machine.rot, machine.tree.members());
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
        // Those with a copy that rotted in an earlier life first: the others must not follow it.
        let rotten: Vec<_> = objects
            .iter()
            .filter(|object| rot.has(object.id) && !rot.is_fresh(object.id))
            .collect();
        let is_rotten = !rotten.is_empty();
        let object = match rotten.len() {
            0 => &objects[random.random_range(0..objects.len())],
            len => rotten[random.random_range(0..len)],
        };
        let good = object.copies.iter().find(|placed| !rot.is_in(object.id, placed));
        let volume = match good {
            Some(good) if is_rotten && random.random_bool(0.5) => good.layout.volumes()[0],
            _ => VolumeId(random.random_range(0..members as usize) as u16),
        };
        let done =
            match object.copies.iter().any(|placed| placed.layout.volumes().contains(&volume)) {
                true if rot.is_fresh(object.id) => continue,
                true => {
                    rot.spare(Some(object.id));
                    let dropped = pool.drop_copy(object.id, volume).await;
                    rot.spare(None);
                    dropped
                }
                false => {
                    let copied = pool.copy(object.id, volume, COPY).await;
                    let spread =
                        copied.is_ok() && rot.has_spread(&machine, &pool, object.id, volume);
                    assert!(!spread, "{}: a rotten copy was copied", object.name);
                    copied.map(drop)
                }
            };
        sim.note("copier", format_args!("  {} on {volume}: {done:?}", object.name));
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Death {
    Process,
    Power,
    /// The pool was closed, or at least the process tried to; then it ended.
    Closed,
}

/// Volumes of one machine, from its start to its end.
#[derive(Clone)]
struct Machine {
    tree: Tree,
    /// The pools below that are open, by the number of the member.
    below: Rc<RefCell<BTreeMap<u32, Spread>>>,
    /// Draws the placement in them.
    seed: u64,
    rows: Rows,
    away: Vec<u32>,
    rot: Rc<Rot>,
}

impl Machine {
    fn boot(sim: &Sim, world: &World, away: &[u32], random: &mut Xoshiro256PlusPlus) -> Self {
        let leaf = |crash: &Crash| Arc::new(crash.clone()) as Arc<dyn Volume>;
        let contract =
            |random: &mut Xoshiro256PlusPlus| any_contract(random, 500..8_000, 10..200, 16 * KIB);
        let rows = Rows::boot(sim, &world.images, random, leaf, contract);
        let seed = if world.tree.is_flat() { 0 } else { random.random() };
        Self {
            tree: world.tree.clone(),
            below: Rc::default(),
            seed,
            rows,
            away: away.to_vec(),
            rot: Rc::clone(&world.rot),
        }
    }

    fn live_and_die(
        &self,
        sim: &Sim,
        clients: &[Rc<Client>],
        opened: &RefCell<Option<Spread>>,
        random: &mut Xoshiro256PlusPlus,
    ) -> Death {
        let steps_max = [200, 3_000, 30_000][random.random_range(0..3)];
        let steps = random.random_range(0..steps_max);
        let death = match random.random_range(0..5) {
            0..2 => Death::Power,
            2..4 => Death::Process,
            _ => Death::Closed,
        };
        for _ in 0..steps {
            if !sim.step() {
                break;
            }
        }
        let in_order = death == Death::Closed && random.random_bool(0.7);
        if in_order {
            clients.iter().for_each(|client| client.finish());
            sim.run();
        }
        sim.end_all_tasks();
        let pool = opened.take();
        // A close in order with every volume here leaves the mark of a clean end.
        if !in_order || !self.away.is_empty() {
            self.rot.before_death(self, pool.as_ref());
        }
        if let Some(pool) = pool.filter(|_| death == Death::Closed) {
            let closed = sim.clock().run(pool.close());
            sim.note("machine", format_args!("! closed: {closed:?}"));
            self.close_below(sim);
        }
        clients.iter().for_each(|client| client.stop());
        self.rows.power.cut();
        sim.note("machine", format_args!("! death of the {death:?}"));
        death
    }

    /// The images that the next life begins with.
    fn images(&self, images: &mut [Image], death: Death, random: &mut Xoshiro256PlusPlus) {
        let failed = self.rows.failed.borrow();
        for (i, (crash, image)) in self.rows.crashes.iter().zip(images).enumerate() {
            if self.away.contains(&(i as u32)) {
                continue;
            }
            *image = match death {
                Death::Process | Death::Closed if !failed[i] => crash.after_process_death().image(),
                Death::Process | Death::Power | Death::Closed => {
                    crash.survivor(random.random()).image()
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{replay, search};

    #[test]
    fn outages_together_lose_nothing() {
        let report = search(&PROGRAM, 0..300, 1);
        assert!(report.failures.is_empty(), "{}", report.failures[0]);
        assert!(report.distinct > 200, "{} different endings", report.distinct);
    }

    #[test]
    fn the_same_seed_gives_the_same_log() {
        for seed in 0..10 {
            let (first, second) = (replay(&PROGRAM, seed), replay(&PROGRAM, seed));
            assert!(first.0 == second.0, "seed {seed}");
        }
    }
}

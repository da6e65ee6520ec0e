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
//! a copy of an object, and is lost as a whole. With others the pool has an erasure code, see `coded`.
//!
//! Invariants:
//!
//! - a read returns the last acknowledged version or a later attempt, never an older one or a removed
//!   object, also while volumes fail. A read of an object whose volumes are away fails with `Unavailable`;
//! - where a copy has rotten bytes, a reader whose check refuses them gets those of a good copy, if it can be reached.
//!   In the end all copies of every object are good. Of fragments, it takes as many good ones as the code has of data, and
//!   in the end all are there;
//! - when every volume is back, every acknowledged object is there;
//! - an object is also there without a volume that failed together with others, if a copy was on another
//!   volume when they failed, and without any one volume after all copies were repaired;
//! - the pool opens with all of its volumes, and of three or more with all but one; with a code, also without as many as
//!   that has parity fragments. Without these, too, every object is there.
//!
//! The seed chooses the volumes that come back: each life begins with any of them.

mod client;
mod coded;
mod expect;
mod rot;
mod tree;
mod weather;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use policy::placement::{Code, LeastOverlap, RoundRobin, VolumeId};
use policy::purpose::{Io, Origin, Step};
use policy::units::KIB;
use pool::spread::{ObjectStat, Opening, Problem, VolumeState};
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
    /// Several volumes fail at one moment and stay failed; one of them is lost in the next life, or several if the pool has
    /// a code.
    Together,
    /// No volume fails, but bits rot in copies.
    Rot,
}

struct World {
    tree: Tree,
    redundancy: Redundancy,
    rot: Rc<Rot>,
    clients: Vec<Rc<Client>>,
    images: Vec<Image>,
}

/// How the pool keeps objects.
#[derive(Clone, Copy)]
struct Redundancy {
    copies: usize,
    code: Option<Code>,
}

impl Redundancy {
    /// How many members may be lost at one moment.
    fn losses(self) -> usize {
        self.code.map_or(1, Code::parity)
    }
}

fn run(sim: &Sim) -> String {
    let mut random = sim.random("set-up");
    let mut members: u32 = random.random_range(2..=6);
    let copies = random.random_range(2..=3.min(members as usize));
    let mut redundancy = Redundancy { copies, code: None };
    let mut tree = Tree::draw(sim, members);
    if let Some((code, of)) = coded::draw(sim).filter(|_| tree.is_flat()) {
        (members, tree) = (of, Tree::flat(of));
        redundancy = Redundancy { copies: code.parity() + 1, code: Some(code) };
    }
    let volumes = tree.volumes();
    let rot = Rc::new(Rot::default());
    let client = |n| Rc::new(Client::new(sim, n, Rc::clone(&rot), redundancy.code.is_some()));
    let clients = (0..random.random_range(1..=3)).map(client).collect();
    let images = formatted(sim, &tree, redundancy);
    let mut world = World { tree, redundancy, rot, clients, images };
    let mut lost = Vec::new();
    let mut told = Vec::new();
    for life in 0..random.random_range(2..=6) {
        let weather = match random.random_range(0..12) {
            0..2 => Weather::Calm,
            2..5 => Weather::Storm,
            5..8 => Weather::Rot,
            _ => Weather::Together,
        };
        world.rot.begin_life();
        let away = match &lost[..] {
            [] if world.rot.must_heal() => Vec::new(),
            [] => away(&mut random, volumes),
            lost => world.tree.of_all(lost),
        };
        sim.note("machine", format_args!("! life {life}, {weather:?}, away {away:?}"));
        told.push(format!("{weather:?}/{}", away.len()));
        let promised = !lost.is_empty();
        lost = live(sim, &mut world, &mut random, weather, &away, promised);
        if lost.is_empty() {
            world.clients.iter().for_each(|client| client.forget_promise());
        }
    }
    sim.note("machine", format_args!("! everything is back"));
    let (in_fragments, objects) = calm_end(sim, &mut world, &mut random, &lost);
    let counts = world.clients.iter().map(|client| client.counts());
    let (acknowledged, refused) = counts.fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
    let shape = if world.tree.is_flat() { String::new() } else { format!("{members} members of ") };
    let code = redundancy
        .code
        .map(|code| format!("{code} with {in_fragments} of {objects} objects in fragments, "));
    let (copies, code) = (redundancy.copies, code.unwrap_or_default());
    format!(
        "{shape}{volumes} volumes, {copies} copies, {code}{acknowledged} acknowledged, {refused} refused, {}",
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

fn opening(redundancy: Redundancy, random: &mut Xoshiro256PlusPlus) -> Opening {
    let opening = match random.random_bool(0.5) {
        true => Opening::new(RoundRobin::default()),
        false => Opening::new(LeastOverlap::new(random.random())),
    };
    let opening = opening.create_if_missing(PoolId(1)).allow_away();
    match redundancy.code {
        Some(code) => opening.code(code),
        None => opening.copies(redundancy.copies),
    }
}

/// Volumes with a new pool on them.
fn formatted(sim: &Sim, tree: &Tree, redundancy: Redundancy) -> Vec<Image> {
    let mems: Vec<_> = (0..tree.volumes()).map(|i| Mem::new(&label(i))).collect();
    let members = tree.formatted(&mems, 0).expect("memory does not fail");
    let opening = opening(redundancy, &mut sim.random("format"));
    let made = sim.clock().run(Spread::open(members, opening)).expect("memory does not fail");
    drop(made);
    mems.iter().map(Mem::image).collect()
}

/// One life of the pool, without the volumes `away`. If several members failed together, returns those that stay away in
/// the next life.
fn live(
    sim: &Sim,
    world: &mut World,
    random: &mut Xoshiro256PlusPlus,
    weather: Weather,
    away: &[u32],
    promised: bool,
) -> Vec<u32> {
    let machine = Machine::boot(sim, world, away, random);
    let opened = Rc::new(RefCell::new(None));
    let lost = Rc::new(RefCell::new(Vec::new()));
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
        let opening = opening(world.redundancy, random);
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
    let mut lost = lost.take();
    lost.retain(|&lost| !world.tree.of(lost).iter().all(|volume| away.contains(volume)));
    lost
}

/// Every volume is back: every acknowledged object is there, and stays when any one member is lost, or a part of it; with a
/// code, when as many are as that has parity fragments. Returns how many acknowledged objects are in fragments, and how many
/// there are.
fn calm_end(
    sim: &Sim,
    world: &mut World,
    random: &mut Xoshiro256PlusPlus,
    lost: &[u32],
) -> (usize, usize) {
    if !lost.is_empty() {
        // Volumes that failed together also come back together.
        world.clients.iter().for_each(|client| client.forget_promise());
    }
    let machine = Machine::boot(sim, world, &[], random);
    let closes = random.random_bool(0.5);
    let opening_all = opening(world.redundancy, random);
    let counts = sim.clock().run(async {
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
        for volume in pool.volumes().iter().filter(|volume| volume.state == VolumeState::Draining) {
            pool.set_draining(volume.id, false).await.expect("nothing fails");
        }
        if pool.code().is_some() {
            pool.recode(COPY).await;
        }
        let repaired = pool.repair(COPY, |_| ()).await.expect("nothing fails");
        assert_eq!(repaired.short, [], "copies that cannot be made");
        for client in &world.clients {
            client.verify(&pool, Sure::All).await;
            client.heal(&pool, true).await;
        }
        world.rot.clear();
        pool.flush().await.expect("nothing fails");
        let found = pool.check().await.expect("nothing fails").findings;
        assert_eq!(found, [], "the manifest and the volumes differ");
        let is_acknowledged = |object: &ObjectStat| {
            world.clients.iter().any(|client| client.len_of(&object.name).is_some())
        };
        let counts = machine.must_be_complete(&pool, is_acknowledged).await;
        if closes {
            pool.close().await.expect("nothing fails");
        }
        counts
    });
    if closes {
        machine.close_below(sim);
    }
    let death = if random.random_bool(0.5) { Death::Power } else { Death::Process };
    machine.rows.power.cut();
    machine.images(&mut world.images, death, random);
    let members = world.tree.members();
    let mut gone = vec![random.random_range(0..members)];
    if members == 2 {
        return counts;
    }
    while gone.len() < world.redundancy.losses() {
        let further = random.random_range(0..members);
        gone.extend((!gone.contains(&further)).then_some(further));
    }
    let mut away = world.tree.of_all(&gone);
    if world.redundancy.code.is_none() && away.len() > 1 && random.random() {
        away.truncate(1);
    }
    sim.note("machine", format_args!("! the volumes {away:?} of the members {gone:?} are lost"));
    let machine = Machine::boot(sim, world, &away, random);
    let opening = opening(world.redundancy, random);
    sim.clock().run(async {
        let members = machine.members(sim).await.expect("every other volume is here");
        let pool = Spread::open(members, opening).await;
        let pool = pool.unwrap_or_else(|e| panic!("opening without {away:?}: {e}"));
        for client in &world.clients {
            client.verify(&pool, Sure::All).await;
        }
    });
    counts
}

/// Scrubs the open pool, and replaces the damaged copies that it finds.
async fn scrub(sim: Sim, pool: Spread, rot: Rc<Rot>, sure: Sure) {
    let has_code = pool.code().is_some();
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
        let held = has_code.then(|| rot.hold(None));
        let mended = pool.mend(&report).await;
        drop(held);
        sim.note("scrub", format_args!("  {} findings, {mended:?}", report.findings.len()));
    }
}

/// Repairs missing copies, makes further ones, and drops some. With a code, empties volumes and cuts objects.
async fn copy(sim: Sim, pool: Spread, machine: Machine) {
    let (rot, members) = (&machine.rot, machine.tree.members());
    let mut random = sim.random("copier");
    for _ in 0..random.random_range(0..8) {
        sim.clock().sleep(Duration::from_micros(random.random_range(0..60_000))).await;
        if pool.code().is_some() && random.random_bool(0.15) {
            machine.drain(&sim, &pool, &mut random).await;
            continue;
        }
        if pool.code().is_some() && random.random_bool(0.1) {
            let cut = pool.recode(COPY).await;
            sim.note("copier", format_args!("  {cut} objects are cut into fragments"));
            continue;
        }
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
                    // The other one may be verified already.
                    let _held = rot.hold(Some(object.id));
                    pool.drop_copy(object.id, volume).await
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
    /// The pool was closed, or at least the process tried to; then it ended, and maybe the machine's power did.
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
    redundancy: Redundancy,
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
            redundancy: world.redundancy,
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
        let has_power = match death {
            Death::Process => true,
            Death::Power => false,
            Death::Closed => random.random(),
        };
        for (i, (crash, image)) in self.rows.crashes.iter().zip(images).enumerate() {
            if self.away.contains(&(i as u32)) {
                continue;
            }
            *image = match has_power && !failed[i] {
                true => crash.after_process_death().image(),
                false => crash.survivor(random.random()).image(),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::{replay, search};

    /// Objects in fragments, and all objects, of the pools with a code in a search.
    static OBJECTS: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

    const COUNTED: Program = Program {
        run: |sim| {
            let ending = run(sim);
            if let Some((_, counts)) = ending.split_once(" with ") {
                let numbers = counts.split(' ').filter_map(|word| word.parse::<usize>().ok());
                for (number, sum) in numbers.zip(&OBJECTS) {
                    sum.fetch_add(number, Ordering::Relaxed);
                }
            }
            ending
        },
        ..PROGRAM
    };

    #[test]
    fn outages_together_lose_nothing() {
        let report = search(&COUNTED, 0..300, 1);
        assert!(report.failures.is_empty(), "{}", report.failures[0]);
        assert!(report.distinct > 200, "{} different endings", report.distinct);
        let [in_fragments, all] = OBJECTS.each_ref().map(|sum| sum.load(Ordering::Relaxed));
        assert!(all > 300 && in_fragments * 3 > all, "{in_fragments} of {all} in fragments");
    }

    #[test]
    fn the_same_seed_gives_the_same_log() {
        for seed in 0..10 {
            let (first, second) = (replay(&PROGRAM, seed), replay(&PROGRAM, seed));
            assert!(first.0 == second.0, "seed {seed}");
        }
    }
}

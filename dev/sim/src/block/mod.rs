//! Block devices on a pool whose volumes fail, hang and come back in any order, while the process and the machine crash
//! too, or the store is closed. Bits also rot.
//!
//! ```text
//!   clients of each device · an operator · cleaning · repairs · the weather
//!      │
//!   Store ── Spread ── Simulate ── Deadline ── Fault ── Narrow ── Crash     one row for each volume
//! ```
//!
//! With one half of the seeds the pool keeps extents as fragments of an erasure code, and writes them through a log: see
//! `coded`.
//!
//! Invariants, for each sector of 512 bytes:
//!
//! - its history is linearizable: a read returns the last acknowledged change or one under way, and what was read once
//!   does not go back, also while volumes fail and come back. A change that failed or was given up took effect before it
//!   ended, or never does; in a pool with a code one that failed may take effect until the process ends;
//! - what was acknowledged or read survives the death of the process, and what was durable or flushed that of the machine.
//!   What was read once after a crash stays;
//! - where a copy of a block rots, a reader gets the right bytes, or `Corrupt` if there is no other copy;
//! - a hole that [`BlockDevice::extents`](engine::block::BlockDevice::extents) names is zeros;
//! - while no volume fails or is away, no call fails; in a pool with a code also while as many volumes fail, are away or are
//!   lost as it has parity fragments;
//! - the devices are those that were made and not deleted, of the size that was acknowledged last;
//! - after a close nothing is in doubt at the next opening, and copies that did not rot are alike;
//! - once all is in place, parity fits its data;
//! - a scrub beside all this finds nothing lost that did not rot in every copy.

mod client;
mod coded;
mod copies;
mod decay;
mod disk;
mod history;
mod narrow;
mod rot;
mod scrub;
mod spoil;
mod spoiling;
mod upkeep;
mod weather;
mod world;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use engine::block::BlockDevices;
use engine::block::store::{Options, Store};
use policy::contract::Contract;
use policy::placement::{LeastOverlap, RoundRobin};
use policy::purpose::{Io, Origin, Step};
use policy::units::KIB;
use pool::logged::Logged;
use pool::spread::{Opening, Verifying};
use pool::{Member, PoolId, Spread};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::crash::Crash;
use volume::mem::{Image, Mem};
use volume::{Verify, Volume};

use self::client::{Client, operate};
use self::coded::Coded;
use self::disk::{Disk, islands};
use self::history::Keeps;
use self::narrow::{Above, Narrow};
use self::weather::Weather;
use self::world::World;
use crate::device::any_contract;
use crate::rows::{Rows, label};
use crate::{Program, Sim};

/// See the [module](self).
pub const PROGRAM: Program = Program {
    name: "block",
    about: "Block devices on volumes that fail and come back, with crashes and rot: nothing lost, nothing old",
    run,
};

const COPY: Io = Io::new(Origin::Copy, Step::Data);

/// What the lives of the store have in common.
struct Lives {
    world: Rc<World>,
    copies: usize,
    images: Vec<Image>,
    /// The last life ended with a close that left nothing in doubt.
    was_closed: bool,
    /// Bytes rotted in one of them.
    rotted: bool,
}

/// The parts of a running store.
#[derive(Clone)]
struct Running {
    pool: Spread,
    /// The log of a pool with a code.
    logged: Option<Logged>,
    store: Store,
    _verifying: Rc<Verifying>,
}

fn run(sim: &Sim) -> String {
    let mut random = sim.random("set-up");
    let volumes = random.random_range(1..=4);
    let copies = random.random_range(1..=3.min(volumes));
    let coded = Coded::draw(sim);
    let volumes = coded.as_ref().map_or(volumes, |coded| coded.volumes as usize);
    let options = Options {
        durable: random.random_bool(0.2),
        checksum_bytes: if random.random_bool(0.5) { 0 } else { 1 << 20 },
        clean_after: Duration::from_micros(random.random_range(0..50_000)),
        dirty_regions_max: random.random_range(1..8),
        ..Options::default()
    };
    let world = Rc::new(World::new(sim, options, coded));
    let images = formatted(&world, volumes, copies, &mut random);
    let mut lives = Lives { world, copies, images, was_closed: false, rotted: false };
    let mut told = Vec::new();
    for life in 0..random.random_range(2..=5) {
        let weather = match random.random_range(0..10) {
            drawn if let Some(coded) = &lives.world.coded => match (life, drawn) {
                (0, _) => Weather::Calm,
                _ => coded.weather(&mut random),
            },
            _ if life == 0 || !lives.world.rot.is_empty() => Weather::Calm,
            0..2 => Weather::Calm,
            2..5 => Weather::Rot,
            _ if lives.copies > 1 && random.random_bool(0.5) => Weather::Flicker,
            _ => Weather::Storm,
        };
        let world = Rc::clone(&lives.world);
        let away = match &world.coded {
            Some(coded) => coded.begin_life(weather, &mut lives.images, &mut random),
            None => {
                let lacks = weather == Weather::Storm && volumes > 1 && random.random_bool(0.3);
                lacks.then(|| random.random_range(0..volumes as u32)).into_iter().collect()
            }
        };
        sim.note("machine", format_args!("! life {life}, {weather:?}, away {away:?}"));
        told.push(format!("{weather:?}"));
        lives.rotted |= weather == Weather::Rot;
        live(sim, &mut lives, &mut random, weather, &away);
    }
    sim.note("machine", format_args!("! everything is back"));
    calm_end(sim, &mut lives, &mut random);
    let world = &lives.world;
    let code = world.coded.as_ref().map(|coded| format!(" of {}", coded.code));
    let code = code.unwrap_or_default();
    let (devices, refused) = (world.disks.borrow().len(), world.refused.get());
    let (calls, weather) = (world.tick(), told.join(", "));
    format!(
        "{volumes} volumes{code}, {copies} copies, {devices} devices, {calls} begins and ends, {refused} refused, {weather}"
    )
}

/// Volumes with a new pool on them.
fn formatted(
    world: &World,
    volumes: usize,
    copies: usize,
    random: &mut Xoshiro256PlusPlus,
) -> Vec<Image> {
    let mems: Vec<_> = (0..volumes as u32).map(|i| Mem::new(&label(i))).collect();
    let spare = world.coded.as_ref().map(|coded| coded.blank.borrow().clone()).unwrap_or_default();
    let members = (0..).zip(&mems).filter(|(i, _)| !spare.contains(i));
    let members = members.map(|(_, mem)| Member::new(mem.label(), mem.clone())).collect();
    let made = world.sim.clock().run(Spread::open(members, opening(world, copies, random)));
    drop(made.expect("memory does not fail"));
    mems.iter().map(Mem::image).collect()
}

fn boot(sim: &Sim, lives: &Lives, random: &mut Xoshiro256PlusPlus) -> (Rows, bool) {
    let shows_holes = random.random();
    let has_code = lives.world.coded.is_some();
    let leaf = move |crash: &Crash| match has_code {
        true => Arc::new(crash.clone()) as Arc<dyn Volume>,
        false => Arc::new(Narrow::new(crash.clone(), shows_holes)),
    };
    // A region is read in sixteen pieces, to align it.
    let contract = |random: &mut Xoshiro256PlusPlus| -> Contract {
        any_contract(random, 2_000..20_000, 100..2_000, 256 * KIB)
    };
    (Rows::boot(sim, &lives.images, random, leaf, contract), shows_holes)
}

fn opening(world: &World, copies: usize, random: &mut Xoshiro256PlusPlus) -> Opening {
    let opening = match random.random_bool(0.5) {
        true => Opening::new(RoundRobin::default()),
        false => Opening::new(LeastOverlap::new(random.random())),
    };
    let opening = opening.create_if_missing(PoolId(1)).allow_away();
    match &world.coded {
        Some(coded) => opening.code(coded.code),
        None => opening.copies(copies),
    }
}

/// Opens the pool without the volumes `away`, its log if it has a code, and the store.
async fn open(
    world: &World,
    (rows, shows_holes): (&Rows, bool),
    away: &BTreeSet<u32>,
    opening: Opening,
) -> Result<Running, String> {
    let blank = world.coded.as_ref().map(|coded| coded.blank.borrow().clone()).unwrap_or_default();
    let here = (0..).zip(&rows.volumes).filter(|(i, _)| !away.contains(i) && !blank.contains(i));
    let members = here.map(|(i, volume)| Member { label: label(i), volume: Arc::clone(volume) });
    let pool = Spread::open(members.collect(), opening).await.map_err(|error| error.to_string())?;
    let (logged, volume) = match &world.coded {
        Some(coded) => {
            let logged = Logged::open(pool.clone(), coded.options).await;
            let logged = logged.map_err(|error| format!("the log: {error}"))?;
            let narrow = Narrow::above(logged.clone(), shows_holes);
            (Some(logged), Arc::new(narrow) as Arc<dyn Volume>)
        }
        None => (None, Arc::new(pool.clone()) as Arc<dyn Volume>),
    };
    let store = Store::open(volume, world.options.clone(), world.sim.clock().clone()).await;
    let store = store.map_err(|error| error.to_string())?;
    let verify: Arc<dyn Verify> = match logged {
        Some(_) => Arc::new(Above(store.clone())),
        None => Arc::new(store.clone()),
    };
    let _verifying = Rc::new(pool.verify_with("block/", verify));
    Ok(Running { pool, logged, store, _verifying })
}

/// One life of the store, without the volumes `away`.
fn live(
    sim: &Sim,
    lives: &mut Lives,
    random: &mut Xoshiro256PlusPlus,
    weather: Weather,
    away: &BTreeSet<u32>,
) {
    let world = Rc::clone(&lives.world);
    world.weather.set(weather);
    world.lacks_volumes.set(weather == Weather::Storm && !away.is_empty());
    world.finishes.set(false);
    world.rot.begin_life();
    let (rows, shows_holes) = boot(sim, lives, random);
    world.was_full.replace(Rc::clone(&rows.was_full));
    let storms = matches!(weather, Weather::Storm | Weather::Few | Weather::Flicker);
    let early = storms && random.random_bool(0.2);
    let storm = {
        let (sim, rows) = (sim.clone(), rows.clone());
        let of = world.coded.as_ref().map(Coded::failing);
        let flickers = random.random_range(0..lives.images.len() as u32);
        move || match of.clone() {
            _ if weather == Weather::Flicker => rows.spawn_flicker(&sim, flickers),
            Some(volumes) => rows.spawn_storm_of(&sim, volumes),
            None => rows.spawn_storm(&sim),
        }
    };
    if early {
        storm();
    }
    let running = Rc::new(RefCell::new(None));
    sim.spawn("opener", {
        let (sim, world, rows) = (sim.clone(), Rc::clone(&world), rows.clone());
        let (opening, running) = (opening(&world, lives.copies, random), Rc::clone(&running));
        let away = away.clone();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(random.random());
        let was_closed = std::mem::take(&mut lives.was_closed);
        async move {
            let opened = open(&world, (&rows, shows_holes), &away, opening).await;
            let opened = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    assert!(world.may_fail() || rows.power.is_off(), "opening: {error}");
                    sim.note("opener", format_args!("! {error}"));
                    return;
                }
            };
            *running.borrow_mut() = Some(opened.clone());
            world.compare(&opened.store);
            let in_doubt = opened.store.figures().dirty_regions;
            assert!(!was_closed || in_doubt == 0, "{in_doubt} regions are in doubt after a close");
            begin(&sim, &world, &rows, &opened, &mut random).await;
            if storms && !early {
                storm();
            }
        }
    });
    end(sim, lives, &rows, &running, random, away);
}

/// Makes a device if there is none, and begins all tasks.
async fn begin(
    sim: &Sim,
    world: &Rc<World>,
    rows: &Rows,
    Running { pool, logged, store, .. }: &Running,
    random: &mut Xoshiro256PlusPlus,
) {
    if let Some(coded) = &world.coded {
        // Each death may leave a volume that is being emptied.
        coded.use_enough(world, pool).await;
    }
    if let Some(coded) = &world.coded
        && random.random_bool(0.4)
    {
        coded.replace(world, pool, rows).await;
        coded.repair(world, pool).await;
    }
    if world.disks.borrow().is_empty() {
        world.create(store, Disk::any_size(random)).await;
    }
    if random.random_bool(0.3) {
        read_all(world, store, random).await;
    }
    let seeded =
        |random: &mut Xoshiro256PlusPlus| Xoshiro256PlusPlus::seed_from_u64(random.random());
    for disk in &*world.disks.borrow() {
        let hot = random.random_range(0..8);
        for _ in 0..random.random_range(1..=4) {
            let (world, disk) = (Rc::clone(world), Rc::clone(disk));
            let name = disk.name.clone();
            let client = Client { world, disk, random: seeded(random), hot };
            sim.spawn(&name, client.work(store.clone()));
        }
    }
    if random.random_bool(0.4) {
        sim.spawn("operator", operate(Rc::clone(world), store.clone(), seeded(random)));
    }
    sim.spawn("cleaner", tend(Rc::clone(world), store.clone(), seeded(random)));
    sim.spawn("scrub", scrub::scrub(Rc::clone(world), pool.clone()));
    if let Some(logged) = logged {
        let (world, pool, logged) = (Rc::clone(world), pool.clone(), logged.clone());
        if random.random_bool(0.7) {
            sim.spawn("recycler", upkeep::recycle(world.clone(), logged.clone(), seeded(random)));
        }
        let (rows, random, store) = (rows.clone(), seeded(random), store.clone());
        match world.weather.get() {
            Weather::Rot => {
                sim.spawn("rot", spoiling::decay(world, store, (pool, logged), rows, random));
            }
            _ => sim.spawn("mover", upkeep::tend(world, pool, rows, random)),
        }
        return;
    }
    if world.weather.get() == Weather::Rot {
        let (world, store, pool) = (Rc::clone(world), store.clone(), pool.clone());
        sim.spawn("rot", decay::decay(world, store, pool, rows.clone(), seeded(random)));
    } else if world.rot.is_empty() && random.random_bool(0.7) {
        sim.spawn("copier", repair(Rc::clone(world), pool.clone(), seeded(random)));
    }
}

/// Cleans regions now and then.
async fn tend(world: Rc<World>, store: Store, mut random: Xoshiro256PlusPlus) {
    for _ in 0..random.random_range(0..10) {
        world.sim.clock().sleep(Duration::from_micros(random.random_range(0..30_000))).await;
        if world.finishes.get() {
            return;
        }
        let tended = store.tend().await;
        world.sim.note("cleaner", format_args!(". {tended:?}"));
        let lacks = world.disks.borrow().iter().any(|disk| world.rot.may_lack(&disk.name));
        assert!(tended.is_ok() || world.may_fail() || lacks, "cleaning: {tended:?}");
    }
}

/// Makes missing copies now and then.
async fn repair(world: Rc<World>, pool: Spread, mut random: Xoshiro256PlusPlus) {
    let (passes, wait) = match world.weather.get() {
        Weather::Flicker => (40, 8_000),
        _ => (5, 60_000),
    };
    for _ in 0..random.random_range(0..passes) {
        world.sim.clock().sleep(Duration::from_micros(random.random_range(0..wait))).await;
        if world.finishes.get() {
            return;
        }
        let repaired = pool.repair(COPY, |_| ()).await;
        let repaired = repaired.map(|repaired| (repaired.made, repaired.short));
        world.sim.note("copier", format_args!("  repaired {repaired:?}"));
    }
}

/// Reads every sector that has a history.
async fn read_all(world: &Rc<World>, store: &Store, random: &mut Xoshiro256PlusPlus) {
    let disks = world.disks.borrow().clone();
    for disk in disks {
        let Ok(device) = BlockDevices::open(store, &disk.name).await else { continue };
        let seeded = Xoshiro256PlusPlus::seed_from_u64(random.random());
        let (world, disk) = (Rc::clone(world), Rc::clone(&disk));
        let mut client = Client { world, disk, random: seeded, hot: 0 };
        for island in islands(device.geometry().size) {
            client.read(&*device, island).await;
        }
    }
}

/// The process runs for a while and ends, in one of three ways.
fn end(
    sim: &Sim,
    lives: &mut Lives,
    rows: &Rows,
    running: &RefCell<Option<Running>>,
    random: &mut Xoshiro256PlusPlus,
    away: &BTreeSet<u32>,
) {
    let world = Rc::clone(&lives.world);
    let steps_max = [300, 5_000, 50_000][random.random_range(0..3)];
    let steps = random.random_range(0..steps_max);
    for _ in 0..steps {
        if !sim.step() {
            break;
        }
    }
    let closes = random.random_bool(0.3);
    if closes && random.random_bool(0.7) {
        world.finishes.set(true);
        sim.run();
    }
    sim.end_all_tasks();
    let mut closed = false;
    if let Some(Running { pool, store, .. }) = running.take()
        && closes
    {
        let flushed = world.tick();
        let done = sim.clock().run(store.close());
        let left = store.figures().dirty_regions;
        sim.note("machine", format_args!("! closed: {done:?}, {left} regions with marks"));
        let lacks = world.disks.borrow().iter().any(|disk| world.rot.may_lack(&disk.name));
        assert!(done.is_ok() || world.may_fail() || lacks, "closing: {done:?}");
        closed = done.is_ok();
        if closed {
            world.disks.borrow().iter().for_each(|disk| disk.flushed(flushed));
        }
        if random.random_bool(0.8) {
            let done = sim.clock().run(pool.close());
            sim.note("machine", format_args!("! pool closed: {done:?}"));
        }
    }
    lives.was_closed = closed && away.is_empty();
    if let Some(coded) = &world.coded {
        coded.spoiled.mend(rows);
    }
    if !closed || random.random_bool(0.5) {
        world.rot.mend(rows);
    }
    let dies = random.random_bool(0.5);
    rows.power.cut();
    sim.note("machine", format_args!("! the {} dies", if dies { "machine" } else { "process" }));
    for (i, (crash, image)) in (0..).zip(rows.crashes.iter().zip(&mut lives.images)) {
        if !away.contains(&i) {
            *image = match dies {
                true => crash.survivor(random.random()).image(),
                false => crash.after_process_death().image(),
            };
        }
    }
    world.die(if dies { Keeps::Durable } else { Keeps::Acknowledged });
}

/// Every volume is back: every block is readable, before and after a close.
fn calm_end(sim: &Sim, lives: &mut Lives, random: &mut Xoshiro256PlusPlus) {
    let world = Rc::clone(&lives.world);
    world.weather.set(Weather::Calm);
    world.lacks_volumes.set(false);
    for is_last in [false, true] {
        world.rot.begin_life();
        if let Some(coded) = &world.coded {
            coded.begin_life(Weather::Calm, &mut lives.images, random);
        }
        let (rows, shows_holes) = boot(sim, lives, random);
        let opening = opening(&world, lives.copies, random);
        sim.clock().run(async {
            let opened = open(&world, (&rows, shows_holes), &BTreeSet::new(), opening).await;
            let Running { pool, logged, store, _verifying } =
                opened.unwrap_or_else(|error| panic!("opening with everything: {error}"));
            world.compare(&store);
            let in_doubt = store.figures().dirty_regions;
            assert!(!lives.was_closed || in_doubt == 0, "{in_doubt} regions are in doubt");
            if let Some(coded) = &world.coded {
                coded.use_all(&world, &pool).await;
                coded.replace(&world, &pool, &rows).await;
                let repaired = pool.repair(COPY, |_| ()).await.expect("nothing fails");
                assert_eq!(repaired.short, [], "fragments that cannot be made");
            } else if world.rot.is_empty() && random.random() {
                let repaired = pool.repair(COPY, |_| ()).await.expect("nothing fails");
                assert_eq!(repaired.short, [], "copies that cannot be made");
            }
            // A read puts a copy right that is not as its checksums say.
            let compares = !is_last && world.coded.is_none() && !lives.rotted;
            if !compares {
                read_all(&world, &store, random).await;
            }
            let lacks = world.disks.borrow().iter().any(|disk| world.rot.may_lack(&disk.name));
            let closed = store.close().await;
            assert!(closed.is_ok() || lacks, "{closed:?}");
            if let (Some(coded), Some(logged)) = (&world.coded, &logged) {
                logged.drain().await.expect("nothing fails");
                let figures = logged.figures();
                assert_eq!(figures.blocks, 0, "all is in place: {figures:?}");
                coded.must_fit(&pool, &rows);
            }
            pool.close().await.expect("nothing fails");
            if compares {
                copies::must_be_alike(&pool, &rows);
            }
            lives.was_closed = closed.is_ok();
        });
        world.rot.mend(&rows);
        rows.power.cut();
        if !is_last {
            for (crash, image) in rows.crashes.iter().zip(&mut lives.images) {
                *image = crash.survivor(random.random()).image();
            }
            world.die(Keeps::Acknowledged);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{replay, search};

    #[test]
    fn block_devices_lose_nothing_and_go_back_to_nothing() {
        let report = search(&PROGRAM, 0..200, 1);
        assert!(report.failures.is_empty(), "{}", report.failures[0]);
        assert!(report.distinct > 150, "{} different endings", report.distinct);
    }

    #[test]
    fn the_same_seed_gives_the_same_log() {
        for seed in 0..10 {
            let (first, second) = (replay(&PROGRAM, seed), replay(&PROGRAM, seed));
            assert!(first.0 == second.0, "seed {seed}");
        }
    }
}

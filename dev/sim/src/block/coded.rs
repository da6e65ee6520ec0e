//! Pools that keep extents as fragments of an erasure code, with one half of the seeds. Their extents are written through
//! a log.
//!
//! ```text
//!   Store ── Narrow ── Logged ── Spread ── Simulate ── Deadline ── Fault ── Crash     one row for each volume
//! ```
//! Such a pool survives what happens to as many volumes as the code has parity fragments. So the search keeps the set of
//! volumes that something happened to since every object had all of its fragments. In [`Weather::Few`] the members of this
//! set fail, are away, or are lost and replaced, they are never more than that, and no call may fail.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select};
use policy::placement::{Code, VolumeId};
use policy::units::KIB;
use pool::logged::{Logged, Options};
use pool::spread::VolumeState;
use pool::{Member, Spread};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::heartbeat::{Heartbeat, SILENCE_MAX};
use volume::mem::Image;

use super::COPY;
use super::spoil::Spoiled;
use super::world::{Weather, World};
use crate::Sim;
use crate::rows::{Rows, label};

/// One pool of this many has a code.
const CODES_ONE_IN: u32 = 2;

/// A pool with a code, over all lives of the store. Volumes are named by their rows.
pub(super) struct Coded {
    pub(super) code: Code,
    pub(super) options: Options,
    pub(super) volumes: u32,
    /// Volumes whose fragments and copies may be missing or old.
    affected: RefCell<BTreeSet<u32>>,
    /// Volumes that are not known to be the pool's: spare ones, and those that replace lost ones.
    pub(super) blank: RefCell<BTreeSet<u32>>,
    pub(super) spoiled: Spoiled,
}

impl Coded {
    /// A code, and the volumes of the pool that has it; `None` with the other seeds. It has a stream of its own, so
    /// those draw what they always did.
    pub(super) fn draw(sim: &Sim) -> Option<Self> {
        let mut random = sim.random("code");
        if random.random_range(0..CODES_ONE_IN) > 0 {
            return None;
        }
        let (data, parity) = [(2, 1), (3, 2), (4, 2)][random.random_range(0..3)];
        let strip = [4, 8, 16][random.random_range(0..3)] * KIB;
        let code = Code::new(data, parity, strip).expect("its numbers are within bounds");
        let limit = random.random_range(48..256) * KIB;
        let file_len = limit / random.random_range(2..6);
        let memory = if random.random_bool(0.5) { 0 } else { limit };
        let options = Options { limit, file_len, memory, ..Options::default() };
        let (more, spare) = (random.random_range(0..=1), random.random_range(0..=1));
        let first = code.fragments() as u32 + more;
        Some(Self {
            code,
            options,
            volumes: first + spare,
            affected: RefCell::default(),
            blank: RefCell::new((first..first + spare).collect()),
            spoiled: Spoiled::default(),
        })
    }

    /// Draws the weather of a life.
    pub(super) fn weather(&self, random: &mut Xoshiro256PlusPlus) -> Weather {
        let affected = self.affected.borrow().len();
        let weather = match random.random_range(0..10) {
            0..2 => Weather::Calm,
            2..4 => Weather::Rot,
            4..8 => Weather::Few,
            _ => Weather::Storm,
        };
        let may_be = match weather {
            Weather::Calm => true,
            // What rots affects a fragment, too.
            Weather::Rot => affected == 0,
            Weather::Few => affected <= self.code.parity() && !self.spoiled.is_unfit(),
            // A lost volume beside all others would be too much.
            Weather::Storm => {
                let (affected, blank) = (self.affected.borrow(), self.blank.borrow());
                affected.is_disjoint(&blank) && !self.spoiled.is_unfit()
            }
        };
        if may_be { weather } else { Weather::Calm }
    }

    /// Draws the volumes that something happens to in a life, takes the bytes of those that are lost, and returns those
    /// that are away.
    pub(super) fn begin_life(
        &self,
        weather: Weather,
        images: &mut [Image],
        random: &mut Xoshiro256PlusPlus,
    ) -> BTreeSet<u32> {
        let (mut affected, mut blank) = (self.affected.borrow_mut(), self.blank.borrow_mut());
        let mut away = BTreeSet::new();
        match weather {
            Weather::Few => {
                let wanted = random.random_range(1..=self.code.parity());
                while affected.len() < wanted {
                    affected.insert(random.random_range(0..self.volumes));
                }
                for &row in &*affected {
                    match random.random_range(0..10) {
                        0..3 => drop(blank.insert(row)),
                        3..5 if !blank.contains(&row) => drop(away.insert(row)),
                        _ => {}
                    }
                }
            }
            Weather::Storm => {
                *affected = (0..self.volumes).collect();
                if random.random_bool(0.3) {
                    away.insert(random.random_range(0..self.volumes));
                }
            }
            Weather::Calm | Weather::Rot => {}
        }
        blank.iter().for_each(|&row| images[row as usize].clear());
        away
    }

    /// The volumes that fail in this life.
    pub(super) fn failing(&self) -> Vec<u32> {
        self.affected.borrow().iter().copied().collect()
    }

    /// Whether a volume may be affected, and is from now on.
    fn affect(&self, row: u32, weather: Weather) -> bool {
        let mut affected = self.affected.borrow_mut();
        let may = match weather {
            Weather::Storm => true,
            Weather::Calm => affected.contains(&row) || affected.len() < self.code.parity(),
            Weather::Few => affected.contains(&row),
            Weather::Rot => false,
        };
        if may {
            affected.insert(row);
        }
        may
    }

    /// Removes lost volumes, and adds blank ones.
    pub(super) async fn replace(&self, world: &World, pool: &Spread, rows: &Rows) {
        let weather = world.weather.get();
        if weather == Weather::Storm {
            // One that joins without an answer is lost.
            return;
        }
        let blank = self.blank.borrow().clone();
        for row in blank {
            let lost = pool.volumes().into_iter().find(|stat| stat.label == label(row));
            if let Some(lost) = lost {
                if lost.state != VolumeState::Away {
                    continue;
                }
                let removed = pool.remove_lost(lost.id, false).await;
                world.sim.note("mover", format_args!("  {} is lost: {removed:?}", lost.label));
                let fine = removed.is_ok() || rows.power.is_off();
                assert!(fine, "removing a lost volume: {removed:?}");
                if removed.is_err() {
                    continue;
                }
            }
            let was_affected = self.affected.borrow().contains(&row);
            if !self.affect(row, weather) {
                continue;
            }
            let volume = std::sync::Arc::clone(&rows.volumes[row as usize]);
            let added = pool.add_volume(Member { label: label(row), volume }).await;
            world.sim.note("mover", format_args!("  {} is added: {added:?}", label(row)));
            let calm = weather == Weather::Calm;
            assert!(added.is_ok() || !calm || rows.power.is_off(), "adding: {added:?}");
            if added.is_ok() {
                self.blank.borrow_mut().remove(&row);
                if !was_affected {
                    self.affected.borrow_mut().remove(&row);
                }
            }
        }
    }

    /// Makes missing fragments and copies. While no volume fails, all of them.
    pub(super) async fn repair(&self, world: &World, pool: &Spread) {
        let repaired = pool.repair(COPY, |_| ()).await;
        world.sim.note("mover", format_args!("  repaired {repaired:?}"));
        let volumes = pool.volumes();
        let all = volumes.iter().all(|volume| volume.state == VolumeState::Active);
        if world.weather.get() != Weather::Calm || !all {
            return;
        }
        match repaired {
            Ok(repaired) if repaired.short.is_empty() => self.affected.borrow_mut().clear(),
            Ok(repaired) => world.sim.note("mover", format_args!("! short: {:?}", repaired.short)),
            Err(error) => panic!("repairing: {error}"),
        }
    }

    /// Empties a volume, and lets it take objects again.
    async fn drain(&self, world: &World, pool: &Spread, random: &mut Xoshiro256PlusPlus) {
        let row = random.random_range(0..self.volumes);
        let Some(volume) = pool.volume_id(&label(row)) else { return };
        if !self.affect(row, world.weather.get()) {
            return;
        }
        let drained = pool.drain(volume, COPY, |_| ()).await.map(|left| left.objects.len());
        world.sim.note("mover", format_args!("  {} is emptied, left: {drained:?}", label(row)));
        self.undrain(world, pool, volume).await;
    }

    async fn undrain(&self, world: &World, pool: &Spread, volume: VolumeId) {
        let used = pool.set_draining(volume, false).await;
        world.sim.note("mover", format_args!("  {volume} is used again: {used:?}"));
    }

    /// Lets all volumes take objects.
    pub(super) async fn use_all(&self, world: &World, pool: &Spread) {
        for stat in pool.volumes() {
            if stat.state == VolumeState::Draining {
                self.undrain(world, pool, stat.id).await;
            }
        }
    }
}

/// Volumes are replaced and emptied, and objects repaired, while clients write. Some of it is given up.
pub(super) async fn tend(
    world: Rc<World>,
    pool: Spread,
    rows: Rows,
    mut random: Xoshiro256PlusPlus,
) {
    let Some(coded) = &world.coded else { return };
    for _ in 0..random.random_range(0..8) {
        world.sim.clock().sleep(Duration::from_micros(random.random_range(0..50_000))).await;
        if world.finishes.get() {
            return;
        }
        let what = random.random_range(0..10);
        let patience = Duration::from_micros(random.random_range(0..20_000));
        let gives_up = random.random_bool(0.15);
        let work = async {
            match what {
                0..3 => coded.replace(&world, &pool, &rows).await,
                3 | 4 => coded.drain(&world, &pool, &mut random).await,
                5 => coded.use_all(&world, &pool).await,
                _ => coded.repair(&world, &pool).await,
            }
        };
        if gives_up {
            for_a_while(&world, work, patience).await;
        } else {
            work.await;
        }
    }
}

/// The log is brought in place for a while, by one of its two ways.
pub(super) async fn recycle(world: Rc<World>, logged: Logged, mut random: Xoshiro256PlusPlus) {
    let patience = Duration::from_micros(random.random_range(0..300_000));
    if random.random_bool(0.7) {
        let clock = world.sim.clock();
        let heartbeat = Heartbeat::new("in place", SILENCE_MAX, clock);
        for_a_while(&world, logged.run(clock, &heartbeat), patience).await;
        return;
    }
    for _ in 0..random.random_range(0..5) {
        world.sim.clock().sleep(Duration::from_micros(random.random_range(0..50_000))).await;
        if world.finishes.get() {
            return;
        }
        let patience = Duration::from_micros(random.random_range(0..100_000));
        let drained = for_a_while(&world, logged.drain(), patience).await;
        let fine = world.may_fail() || !matches!(drained, Some(Err(_)));
        assert!(fine, "bringing all in place: {drained:?}");
    }
}

async fn for_a_while<T>(
    world: &World,
    work: impl Future<Output = T>,
    patience: Duration,
) -> Option<T> {
    let end = pin!(world.sim.clock().sleep(patience));
    match select(pin!(work), end).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(_) => None,
    }
}

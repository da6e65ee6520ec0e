//! Volumes of a pool with a code are replaced and emptied, objects are repaired, and the log is brought in place, while
//! clients write.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select};
use policy::placement::VolumeId;
use pool::logged::Logged;
use pool::spread::VolumeState;
use pool::{Member, Spread};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::heartbeat::{Heartbeat, SILENCE_MAX};

use super::COPY;
use super::coded::Coded;
use super::weather::Weather;
use super::world::World;
use crate::rows::{Rows, label};

impl Coded {
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
            Ok(repaired) if repaired.short.is_empty() => {
                // A blank one whose addition was given up may be a member all the same, and is lost when the next life begins.
                let blank = self.blank.borrow();
                self.affected.borrow_mut().retain(|row| blank.contains(row));
            }
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

    /// Lets all volumes take objects, if those that are not being emptied are too few for an object.
    pub(super) async fn use_enough(&self, world: &World, pool: &Spread) {
        let volumes = pool.volumes();
        let draining = volumes.iter().filter(|stat| stat.state == VolumeState::Draining).count();
        if volumes.len() - draining < self.code.fragments() {
            self.use_all(world, pool).await;
        }
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

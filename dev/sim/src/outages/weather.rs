//! Volumes that fail, one or several at a time.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use policy::placement::VolumeId;
use pool::Spread;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::ErrorKind;
use volume::layer::call::Op;
use volume::layer::fault::{Effect, Rule};

use super::client::Client;
use super::{Machine, label};
use crate::Sim;

impl Machine {
    /// Draws a part of `count` volumes or members, mostly more than one.
    fn some_of(count: u32, random: &mut Xoshiro256PlusPlus) -> Vec<u32> {
        let share = [0.3, 0.6, 0.9][random.random_range(0..3)];
        let mut some: Vec<_> = (0..count).filter(|_| random.random_bool(share)).collect();
        if some.is_empty() {
            some.push(random.random_range(0..count));
        }
        some
    }

    /// All volumes of the member `gone`, and some of those of each other member.
    fn volumes_of(&self, members: &[u32], gone: u32, random: &mut Xoshiro256PlusPlus) -> Vec<u32> {
        let mut volumes = Vec::new();
        for &member in members {
            match self.tree.of(member) {
                [first, second] if member != gone => match random.random_range(0..4) {
                    0 => volumes.push(*first),
                    1 => volumes.push(*second),
                    _ => volumes.extend([first, second]),
                },
                all => volumes.extend(all),
            }
        }
        volumes
    }

    /// Random failures of a volume.
    fn rules(random: &mut Xoshiro256PlusPlus) -> Vec<Rule> {
        let kinds =
            [ErrorKind::Unavailable, ErrorKind::TimedOut, ErrorKind::Io, ErrorKind::Poisoned];
        let kind = kinds[random.random_range(0..kinds.len())];
        let effect = match random.random_bool(0.3) && kind != ErrorKind::Poisoned {
            true => Effect::FailAfter(kind),
            false => Effect::Fail(kind),
        };
        let rule = Rule::new(effect);
        // Its end comes long after the limit; the call then takes effect.
        let hangs = Duration::from_millis(random.random_range(10..2_000));
        let hang = Rule::new(Effect::Slow(hangs));
        match random.random_range(0..12) {
            // The volume answers again while the writes are under way.
            10 | 11 => vec![hang.named("o*").on(Op::Write)],
            6 => vec![hang],
            7 => vec![hang.clone().on(Op::Write), hang.on(Op::SetLen)],
            8 => vec![hang.on(Op::Sync)],
            9 => vec![Rule::new(Effect::Full)],
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

    pub(super) fn spawn_storm(&self, sim: &Sim) {
        sim.spawn("weather", self.clone().storm(sim.clone()));
    }

    /// Sets of volumes fail for a while, also overlapping.
    async fn storm(self, sim: Sim) {
        let mut random = sim.random("weather");
        let mut injected = Vec::new();
        for _ in 0..random.random_range(1..8) {
            sim.clock().sleep(Duration::from_micros(random.random_range(0..60_000))).await;
            if random.random_bool(0.5) {
                let (volumes, rules) = (
                    Self::some_of(self.faults.len() as u32, &mut random),
                    Self::rules(&mut random),
                );
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

    /// Volumes of several members fail at one moment, all of those of the member that is lost.
    pub(super) async fn strike(
        self,
        sim: Sim,
        pool: Spread,
        clients: Vec<Rc<Client>>,
        lost: Rc<Cell<Option<u32>>>,
    ) {
        let mut random = sim.random("strike");
        sim.clock().sleep(Duration::from_micros(random.random_range(0..150_000))).await;
        let members = Self::some_of(self.tree.members(), &mut random);
        let gone = members[random.random_range(0..members.len())];
        for client in &clients {
            client.take_promise(&pool, VolumeId(gone as u16));
        }
        let (unavailable, poisoned) = (ErrorKind::Unavailable, ErrorKind::Poisoned);
        let dead = Rule::new(Effect::Fail(unavailable));
        let hang = Rule::new(Effect::Slow(Duration::from_secs(random.random_range(1..100))));
        let rules = match random.random_range(0..6) {
            0 | 1 => vec![dead],
            4 => vec![hang],
            5 => vec![hang.clone().on(Op::Write), hang.on(Op::Sync)],
            2 => vec![dead.clone().on(Op::Write), dead.clone().on(Op::Sync), dead.on(Op::Create)],
            _ => vec![Rule::new(Effect::Fail(poisoned)).on(Op::Sync)],
        };
        let volumes = self.volumes_of(&members, gone, &mut random);
        sim.note("weather", format_args!("! {volumes:?} fail together: {rules:?}; {gone} is lost"));
        for volume in volumes {
            self.fail(volume, &rules);
        }
        lost.set(Some(gone));
    }
}

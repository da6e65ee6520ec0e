//! Volumes of several members that fail at one moment.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use policy::placement::VolumeId;
use pool::Spread;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::ErrorKind;
use volume::layer::call::Op;
use volume::layer::fault::{Effect, Rule};

use super::Machine;
use super::client::Client;
use crate::Sim;
use crate::rows::some_of;

impl Machine {
    /// All volumes of the members `gone`, and some of those of each other member.
    fn volumes_of(
        &self,
        members: &[u32],
        gone: &[u32],
        random: &mut Xoshiro256PlusPlus,
    ) -> Vec<u32> {
        let mut volumes = Vec::new();
        for &member in members {
            match self.tree.of(member) {
                [first, second] if !gone.contains(&member) => match random.random_range(0..4) {
                    0 => volumes.push(*first),
                    1 => volumes.push(*second),
                    _ => volumes.extend([first, second]),
                },
                all => volumes.extend(all),
            }
        }
        volumes
    }

    /// Volumes of several members fail at one moment, all of those of the members that are lost.
    pub(super) async fn strike(
        self,
        sim: Sim,
        pool: Spread,
        clients: Vec<Rc<Client>>,
        lost: Rc<RefCell<Vec<u32>>>,
    ) {
        let mut random = sim.random("strike");
        sim.clock().sleep(Duration::from_micros(random.random_range(0..150_000))).await;
        let members = some_of(self.tree.members(), &mut random);
        let mut gone = vec![members[random.random_range(0..members.len())]];
        let losses = self.redundancy.losses().min(members.len());
        if losses > 1 {
            for _ in 1..random.random_range(1..=losses) {
                let left: Vec<_> = members.iter().filter(|member| !gone.contains(member)).collect();
                gone.push(*left[random.random_range(0..left.len())]);
            }
        }
        let volumes: Vec<_> = gone.iter().map(|&gone| VolumeId(gone as u16)).collect();
        for client in &clients {
            client.take_promise(&pool, &volumes);
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
        let volumes = self.volumes_of(&members, &gone, &mut random);
        sim.note("weather", format_args!("! {volumes:?} fail together: {rules:?}; lost: {gone:?}"));
        for volume in volumes {
            self.rows.fail(volume, &rules);
        }
        *lost.borrow_mut() = gone;
    }
}

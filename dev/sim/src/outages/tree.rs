//! The members of the pool: a volume each, or, with some seeds, mostly pools of two volumes.
//!
//! The pools below keep one copy of everything, so a member loses objects with either of its volumes. An object is lost
//! when each of the members with its copies is: that budget counts members, not volumes.

use std::collections::BTreeMap;

use policy::placement::{Layout, LeastOverlap, RoundRobin, VolumeId};
use pool::spread::{ObjectStat, Opening};
use pool::{Member, PoolId, Spread};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Name, Result};

use super::Machine;
use crate::Sim;
use crate::rows::{label, leaf};

/// One seed of this many has pools as members.
const TREES_ONE_IN: u32 = 5;

/// The volumes of each member.
#[derive(Clone)]
pub(super) struct Tree(Vec<Vec<u32>>);

/// Where an object of a pool is: a volume, and the name of the leaf object there.
type Place = (usize, Name);

impl Tree {
    /// The tree with this number of members. It has a stream of its own, so other seeds draw what they always did.
    pub(super) fn draw(sim: &Sim, members: u32) -> Self {
        let mut random = sim.random("tree");
        let is_flat = random.random_range(0..TREES_ONE_IN) > 0;
        let mut next = 0..;
        let volumes = |count| next.by_ref().take(count).collect();
        let sizes = (0..members).map(|_| 1 + usize::from(!is_flat && random.random_bool(0.8)));
        Self(sizes.map(volumes).collect())
    }

    /// The tree whose members are volumes.
    pub(super) fn flat(members: u32) -> Self {
        Self((0..members).map(|volume| vec![volume]).collect())
    }

    pub(super) fn members(&self) -> u32 {
        self.0.len() as u32
    }

    pub(super) fn volumes(&self) -> u32 {
        self.0.iter().map(|volumes| volumes.len() as u32).sum()
    }

    pub(super) fn is_flat(&self) -> bool {
        self.volumes() == self.members()
    }

    /// The volumes of a member.
    pub(super) fn of(&self, member: u32) -> &[u32] {
        &self.0[member as usize]
    }

    /// The volumes of these members.
    pub(super) fn of_all(&self, members: &[u32]) -> Vec<u32> {
        members.iter().flat_map(|&member| self.of(member)).copied().collect()
    }

    fn of_id(&self, member: VolumeId) -> &[u32] {
        &self.0[usize::from(member.0)]
    }

    /// The pool's members, of volumes that do not fail; and the pools below.
    pub(super) fn formatted(&self, mems: &[Mem], seed: u64) -> Result<Vec<Member>> {
        let numbered = (0..).zip(&self.0);
        let members = numbered.map(|(at, volumes)| {
            let volumes = volumes.iter().map(|&i| Member::new(label(i), mems[i as usize].clone()));
            let mut volumes: Vec<_> = volumes.collect();
            if volumes.len() > 1 {
                let pool = block_on(Spread::open(volumes, opening(at, seed)))?;
                return Ok(Member::new(pool_label(at), pool));
            }
            Ok(volumes.remove(0))
        });
        members.collect()
    }
}

fn pool_label(member: u32) -> String {
    format!("p{member}")
}

/// The opening of the pool that is this member.
fn opening(member: u32, seed: u64) -> Opening {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed.wrapping_add(u64::from(member)));
    let opening = match random.random() {
        true => Opening::new(RoundRobin::default()),
        false => Opening::new(LeastOverlap::new(random.random())),
    };
    opening.create_if_missing(PoolId(2 + u128::from(member))).allow_away()
}

impl Machine {
    /// Opens the pools below. A pool that lacks too many of its volumes is away.
    pub(super) async fn members(&self, sim: &Sim) -> Result<Vec<Member>> {
        let mut members = Vec::new();
        for (at, volumes) in (0..).zip(&self.tree.0) {
            let here = volumes.iter().filter(|volume| !self.away.contains(volume));
            let mut here: Vec<_> = here
                .map(|&i| {
                    let volume = self.rows.volumes[i as usize].clone();
                    Member { label: label(i), volume }
                })
                .collect();
            if here.is_empty() || volumes.len() == 1 {
                members.append(&mut here);
                continue;
            }
            let lacks = here.len() < volumes.len();
            match Spread::open(here, opening(at, self.seed)).await {
                Ok(pool) => {
                    self.below.borrow_mut().insert(at, pool.clone());
                    members.push(Member::new(pool_label(at), pool));
                }
                Err(e) if e.kind().is_away() && (lacks || self.fails(volumes)) => {
                    sim.note("opener", format_args!("  {} is away: {e}", pool_label(at)));
                }
                Err(e) => return Err(e),
            }
        }
        Ok(members)
    }

    fn fails(&self, volumes: &[u32]) -> bool {
        let failed = self.rows.failed.borrow();
        self.rows.power.is_off() || volumes.iter().any(|&volume| failed[volume as usize])
    }

    /// Where a leaf object of the pool is, below its member.
    pub(super) fn place(&self, member: VolumeId, leaf: &Name) -> Option<Place> {
        let volumes = self.tree.of_id(member);
        if let [volume] = volumes {
            return Some((*volume as usize, leaf.clone()));
        }
        let below = self.below.borrow();
        let objects = below.get(&u32::from(member.0))?.objects();
        let object = objects.iter().find(|object| object.name == *leaf)?;
        place_below(volumes, object)
    }

    /// Closes the pools below, after the pool.
    pub(super) fn close_below(&self, sim: &Sim) {
        let below: BTreeMap<u32, Spread> = std::mem::take(&mut *self.below.borrow_mut());
        for (member, pool) in below {
            let closed = sim.clock().run(pool.close());
            sim.note("machine", format_args!("! {} closed: {closed:?}", pool_label(member)));
        }
    }
}

/// Where the only copy of an object of a pool below is.
fn place_below(volumes: &[u32], object: &ObjectStat) -> Option<Place> {
    let placed = object.copies.first()?;
    let Layout::Whole { volume } = placed.layout else { return None };
    Some((volumes[usize::from(volume.0)] as usize, leaf(object, placed)))
}

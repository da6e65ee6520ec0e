//! Bytes that are not what was written: which copies have any, and whether another could answer.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use volume::ErrorKind;

use super::body::{Body, Replica};
use super::{Inner, Spread};
use crate::leaf::ObjectId;

/// Damage that was found since a pool was opened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Damage {
    /// Copies with bytes that are missing or not what was written, each counted once.
    pub found: u64,
    /// Those of them for which another copy answered, or that were dropped, each counted once.
    pub repaired: u64,
    /// Those of them that the pool still has, and that no other copy made good.
    pub left: u64,
}

/// One copy of an object, by the number of either.
type Copy = (ObjectId, u64);

/// What is counted of it.
#[derive(Default)]
pub(super) struct Damages(Mutex<Told>);

#[derive(Default)]
struct Told {
    found: u64,
    repaired: u64,
    /// Copies that were told of, and whether another made them good. Those that are gone leave when they are counted.
    copies: BTreeMap<Copy, bool>,
}

impl Spread {
    /// Damage that reads, scrubs and those who distrusted what they read found since the pool was opened.
    #[must_use]
    pub fn damage(&self) -> Damage {
        let is_there = |&(id, number): &Copy| self.0.has_replica(id, number);
        // Not while the damages are locked: whoever tells of damage may hold the table.
        let known: Vec<Copy> = self.0.damages.0.lock().copies.keys().copied().collect();
        let gone: BTreeSet<Copy> = known.into_iter().filter(|copy| !is_there(copy)).collect();
        let mut told = self.0.damages.0.lock();
        told.copies.retain(|copy, _| !gone.contains(copy));
        let left = told.copies.values().filter(|repaired| !**repaired).count() as u64;
        Damage { found: told.found, repaired: told.repaired, left }
    }
}

impl Inner {
    /// A copy has bytes that are not what was written. Logged once for each.
    pub(super) fn tell_damage(&self, body: &Body, replica: &Replica, why: &str) {
        {
            let mut told = self.damages.0.lock();
            if told.copies.contains_key(&(body.id, replica.number)) {
                return;
            }
            told.copies.insert((body.id, replica.number), false);
            told.found += 1;
        }
        let (name, id, labels) = (&body.name, body.id, replica.labels());
        tracing::error!("{name} (object {id}) on volume {labels} is damaged: {why}");
    }

    /// Whether a copy was told of already.
    pub(super) fn is_told(&self, id: ObjectId, number: u64) -> bool {
        self.damages.0.lock().copies.contains_key(&(id, number))
    }

    /// [`Inner::tell_damage`] of a read that failed, if it shows damage.
    pub(super) fn tell_if_damage(&self, body: &Body, number: u64, e: &volume::Error) {
        if e.kind() == ErrorKind::Corrupt
            && let Some(replica) = body.replica(number)
        {
            self.tell_damage(body, &replica, &e.to_string());
        }
    }

    /// Another copy answered for these of an object, or they were dropped. What was not told of does not count.
    pub(super) fn tell_repaired(&self, id: ObjectId, numbers: &[u64]) {
        let mut told = self.damages.0.lock();
        let Told { repaired, copies, .. } = &mut *told;
        for number in numbers {
            if let Some(good @ false) = copies.get_mut(&(id, *number)) {
                *good = true;
                *repaired += 1;
            }
        }
    }

    /// Whether an object that was opened has a copy.
    fn has_replica(&self, id: ObjectId, number: u64) -> bool {
        let table = self.table.lock();
        table.bodies.get(&id).is_some_and(|body| body.replica(number).is_some())
    }
}

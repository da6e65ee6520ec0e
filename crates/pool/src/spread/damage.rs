//! Damage: copies with bytes that differ from those written or cannot be read, and whether another copy could answer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;

use super::Spread;
use super::inode::{Inode, Replica};
use crate::leaf::ObjectId;
use crate::manifest::Checked;

/// How many single copies are remembered as read through.
const READ_THROUGH_MAX: usize = 4096;

/// How many copies are remembered as verified. A drain verifies each copy right before it drops another, so a few are
/// enough to read none twice; a copy that was verified long ago may have rotted since.
const VERIFIED_MAX: usize = 256;

/// Damage found since a pool was opened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Damage {
    /// Copies with missing, wrong or unreadable bytes, each counted once.
    pub found: u64,
    /// The number of times that another copy answered for a damaged one or replaced it, or that a scrub found the damage
    /// written over.
    pub repaired: u64,
    /// Those of them that the pool still has, and for which no other copy answered.
    pub left: u64,
}

/// One copy of an object, by the number of each.
type Copy = (ObjectId, u64);

/// The damage found since the pool was opened. Each of its inner locks is taken alone.
#[derive(Default)]
pub(super) struct Damages {
    /// Locked while a log or an object in place is scrubbed, before every other lock.
    pub(super) scrubbing: AsyncMutex<()>,
    known: Mutex<Known>,
    /// Single copies that were read through because a reader could not use their bytes.
    read_through: Mutex<BTreeSet<Copy>>,
    /// The object whose store verifies it now, and the copies of it that were told of meanwhile: whether each was repaired.
    watched: Mutex<Option<(ObjectId, BTreeMap<u64, bool>)>>,
    /// The copies verified last by a checksum of the manifest, and that checksum; the oldest first.
    verified: Mutex<VecDeque<(Copy, Checked)>>,
}

#[derive(Default)]
struct Known {
    found: u64,
    repaired: u64,
    /// Damaged copies, and whether another answered for them. [`Spread::damage`] removes those that the pool dropped.
    copies: BTreeMap<Copy, bool>,
}

impl Spread {
    /// Damage that reads, scrubs and [`Spread::distrust`] found since the pool was opened.
    #[must_use]
    pub fn damage(&self) -> Damage {
        let is_there = |&(id, number): &Copy| self.0.catalog.has_replica(id, number);
        let known: Vec<Copy> = self.0.damages.known.lock().copies.keys().copied().collect();
        let gone: BTreeSet<Copy> = known.into_iter().filter(|copy| !is_there(copy)).collect();
        let mut known = self.0.damages.known.lock();
        known.copies.retain(|copy, _| !gone.contains(copy));
        let left = known.copies.values().filter(|repaired| !**repaired).count() as u64;
        Damage { found: known.found, repaired: known.repaired, left }
    }
}

impl Damages {
    /// Counts and logs a damaged copy, once for each.
    pub(super) fn tell(&self, inode: &Inode, replica: &Replica, why: &str) {
        if let Some((_, told)) = self.watched.lock().as_mut().filter(|(id, _)| *id == inode.id) {
            told.insert(replica.number, false);
        }
        {
            let mut known = self.known.lock();
            if known.copies.contains_key(&(inode.id, replica.number)) {
                return;
            }
            known.copies.insert((inode.id, replica.number), false);
            known.found += 1;
        }
        let (name, id, labels) = (&inode.name, inode.id, replica.labels());
        self.verified.lock().retain(|(copy, _)| *copy != (id, replica.number));
        tracing::error!("{name} (object {id}) on volume {labels} is damaged: {why}");
    }

    /// Whether damage of a copy was found, which may have been repaired.
    pub(super) fn has_found(&self, id: ObjectId, number: u64) -> bool {
        self.known.lock().copies.contains_key(&(id, number))
    }

    /// The store of an object verified all of its bytes, and only these copies of it are damaged: damage of the others that was
    /// known has been written over since.
    pub(super) fn verified_all(&self, id: ObjectId, damaged: &BTreeMap<u64, bool>) {
        let known: Vec<u64> = {
            let known = self.known.lock();
            let of = known.copies.keys().filter(|(object, _)| *object == id);
            of.map(|(_, number)| *number).collect()
        };
        let healed: Vec<_> =
            known.into_iter().filter(|number| !damaged.contains_key(number)).collect();
        self.repaired(id, &healed);
    }

    /// Watches an object, whose damage may be known from before. The caller has locked `scrubbing`.
    pub(super) fn watch(&self, id: ObjectId) -> Watch<'_> {
        *self.watched.lock() = Some((id, BTreeMap::new()));
        Watch(self)
    }

    /// Whether the caller should verify a single copy: true for the first call only.
    pub(super) fn begin_reading_through(&self, id: ObjectId, number: u64) -> bool {
        let mut read_through = self.read_through.lock();
        if read_through.len() >= READ_THROUGH_MAX {
            read_through.clear();
        }
        read_through.insert((id, number))
    }

    /// Lets the next caller verify a copy that could not be read now.
    pub(super) fn give_up_reading_through(&self, id: ObjectId, number: u64) {
        self.read_through.lock().remove(&(id, number));
    }

    /// Records that the first bytes of a copy have their checksum.
    pub(super) fn set_verified(&self, id: ObjectId, number: u64, checked: Checked) {
        let mut verified = self.verified.lock();
        verified.retain(|(copy, _)| *copy != (id, number));
        if verified.len() == VERIFIED_MAX {
            verified.pop_front();
        }
        verified.push_back(((id, number), checked));
    }

    /// Whether a copy is among those verified last, with this checksum.
    pub(super) fn is_verified(&self, id: ObjectId, number: u64, checked: Checked) -> bool {
        self.verified.lock().contains(&((id, number), checked))
    }

    /// [`Damages::tell`] of a read that failed, if it shows damage.
    pub(super) fn tell_if_damaged(&self, inode: &Inode, number: u64, e: &volume::Error) {
        if e.kind().is_damage()
            && let Some(replica) = inode.replica(number)
        {
            self.tell(inode, &replica, &e.to_string());
        }
    }

    /// Another copy answered for these copies of an object, or they were dropped. Copies that were not told of do not
    /// count.
    pub(super) fn repaired(&self, id: ObjectId, numbers: &[u64]) {
        if let Some((_, told)) = self.watched.lock().as_mut().filter(|(of, _)| *of == id) {
            let told = told.iter_mut().filter(|(number, _)| numbers.contains(number));
            told.for_each(|(_, repaired)| *repaired = true);
        }
        let mut known = self.known.lock();
        let Known { repaired, copies, .. } = &mut *known;
        for number in numbers {
            if let Some(good @ false) = copies.get_mut(&(id, *number)) {
                *good = true;
                *repaired += 1;
            }
        }
    }
}

/// An object is watched until this is dropped.
pub(super) struct Watch<'a>(&'a Damages);

impl Watch<'_> {
    /// The copies that were told of since, by their numbers, and whether each was repaired.
    pub(super) fn found(&self) -> BTreeMap<u64, bool> {
        self.0.watched.lock().as_ref().map(|(_, told)| told.clone()).unwrap_or_default()
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        *self.0.watched.lock() = None;
    }
}

//! Bits that rot in one copy of an object, and the bytes as they were.
//!
//! One copy of an object rots, never the last good one, and none again before all of its copies were found good. Of
//! fragments up to as many rot as the code has parity fragments, while enough others are good and on volumes that are here.
//! The pool promises more for some bytes than for others:
//!
//! - a sealed object may rot at any moment, also where volumes fail: the rotten copy does not spread, and does not stand
//!   in for a good one;
//! - a write that fails on the good copy of any other object drops that copy. So those rot only where no volume fails or is
//!   away, and all are read before one does;
//! - where no checksum of the manifest covers the bytes, only a reader knows that they are wrong. The pool finds a good
//!   copy while it runs, and after a crash if the object is read before it changes (ADR 29).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use policy::placement::{Layout, VolumeId};
use pool::spread::ObjectStat;
use pool::{ObjectId, Placed, Spread};
use rand::RngExt;
use volume::task::block_on;
use volume::{IoBufMut, Name, Volume};

use super::{COPY, Machine, Weather, coded};
use crate::Sim;
use crate::rows::leaf;

/// The rotten copies of all objects, over all lives of the pool.
#[derive(Default)]
pub(super) struct Rot {
    spots: RefCell<BTreeMap<ObjectId, Vec<Spot>>>,
    life: Cell<u32>,
    /// Objects that do not begin to rot, see [`Rot::hold`].
    held: RefCell<Vec<Option<ObjectId>>>,
}

/// Until it is dropped, an object does not begin to rot.
pub(super) struct Held {
    rot: Rc<Rot>,
    id: Option<ObjectId>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.rot.held.borrow_mut();
        if let Some(at) = held.iter().position(|id| *id == self.id) {
            held.swap_remove(at);
        }
    }
}

/// A byte that rotted.
struct Spot {
    volume: VolumeId,
    /// The number of the copy.
    number: u64,
    offset: u64,
    bad: u8,
    sealed: bool,
    life: u32,
}

impl Rot {
    pub(super) fn begin_life(&self) {
        self.life.set(self.life.get() + 1);
    }

    /// Keeps an object, or all, from beginning to rot: of the copies that were verified one may be the last.
    pub(super) fn hold(self: &Rc<Self>, id: Option<ObjectId>) -> Held {
        self.held.borrow_mut().push(id);
        Held { rot: Rc::clone(self), id }
    }

    fn is_held(&self, id: ObjectId) -> bool {
        self.held.borrow().iter().any(|held| held.is_none_or(|held| held == id))
    }

    /// Whether a copy of an object is rotten, as far as it is known.
    pub(super) fn has(&self, id: ObjectId) -> bool {
        self.spots.borrow().contains_key(&id)
    }

    /// Whether this copy rotted, or one that was on the same volume; or this fragment.
    pub(super) fn is_in(&self, id: ObjectId, placed: &Placed) -> bool {
        let is_in = |spot: &Spot| match placed.layout {
            Layout::Fragment(_) => placed.number == spot.number,
            Layout::Whole { .. } | Layout::Striped { .. } => {
                placed.layout.volumes().contains(&spot.volume)
            }
        };
        self.spots.borrow().get(&id).is_some_and(|spots| spots.iter().any(is_in))
    }

    /// Whether a copy rotted in this life. The pool may have verified it just before, and then does not verify it again;
    /// and bytes without a checksum look the same to it.
    pub(super) fn is_fresh(&self, id: ObjectId) -> bool {
        self.spots.borrow().get(&id).is_some_and(|spots| self.are_fresh(spots))
    }

    /// The same of any object.
    pub(super) fn is_any_fresh(&self) -> bool {
        self.spots.borrow().values().any(|spots| self.are_fresh(spots))
    }

    fn are_fresh(&self, spots: &[Spot]) -> bool {
        spots.iter().any(|spot| spot.life == self.life.get() || !spot.sealed)
    }

    /// Whether an object rots that is not sealed: no volume may be away or fail before it was read.
    pub(super) fn must_heal(&self) -> bool {
        self.spots.borrow().values().flatten().any(|spot| !spot.sealed)
    }

    /// Every copy of every object was found good.
    pub(super) fn clear(&self) {
        self.spots.borrow_mut().clear();
    }

    /// Whether a further copy, or fragment, of an object may rot.
    fn may_begin(&self, object: &ObjectStat) -> bool {
        let rotten = self.spots.borrow().get(&object.id).map_or(0, Vec::len);
        let code = object.copies.iter().find_map(|placed| placed.layout.fragment());
        rotten < code.map_or(1, |own| own.code.parity()) && !self.is_held(object.id)
    }

    /// Damages a byte of one copy of an object, below what was acknowledged. False if there is no such byte.
    fn spoil(
        &self,
        machine: &Machine,
        object: &ObjectStat,
        len: u64,
        random: &mut impl RngExt,
    ) -> bool {
        let is_here = |placed: &Placed| match placed.layout {
            Layout::Whole { volume } => machine
                .place(volume, &leaf(object, placed))
                .is_some_and(|(device, _)| !machine.away.contains(&(device as u32))),
            Layout::Striped { .. } | Layout::Fragment(_) => false,
        };
        if object.copies.len() < 2 || !object.copies.iter().all(is_here) {
            return false;
        }
        let placed = &object.copies[random.random_range(0..object.copies.len())];
        let offset = random.random_range(0..len);
        let flip = 1 << random.random_range(0..8);
        self.damage(machine, object, placed, (offset, flip))
    }

    /// Damages a byte of a fragment, if enough others are good and on volumes that are here. Both `objects` list it: as it was
    /// before the manifest was durable, and is now.
    fn spoil_fragment(
        &self,
        machine: &Machine,
        [before, object]: [&ObjectStat; 2],
        random: &mut impl RngExt,
    ) -> bool {
        let is_good = |placed: &Placed| {
            let is_away = |volume: &VolumeId| machine.away.contains(&u32::from(volume.0));
            before.copies.contains(placed)
                && !placed.layout.volumes().iter().any(is_away)
                && !self.is_in(object.id, placed)
        };
        let placed = &object.copies[random.random_range(0..object.copies.len())];
        let len = placed.layout.len(object.len);
        if len == 0
            || !is_good(placed)
            || !coded::suffice(object, |other| other.number != placed.number && is_good(other))
        {
            return false;
        }
        let at = (random.random_range(0..len), 1 << random.random_range(0..8));
        self.damage(machine, object, placed, at)
    }

    /// Flips bits of a byte of a copy. False if there is no such byte.
    fn damage(
        &self,
        machine: &Machine,
        object: &ObjectStat,
        placed: &Placed,
        (offset, flip): (u64, u8),
    ) -> bool {
        let volume = placed.layout.volumes()[0];
        let Some((device, leaf)) = machine.place(volume, &leaf(object, placed)) else {
            return false;
        };
        let crash = &machine.rows.crashes[device];
        let Some(good) = crash.damage(&leaf, offset, |byte| byte ^ flip) else {
            return false;
        };
        let spot = Spot {
            volume,
            number: placed.number,
            offset,
            bad: good ^ flip,
            sealed: object.sealed,
            life: self.life.get(),
        };
        self.spots.borrow_mut().entry(object.id).or_default().push(spot);
        true
    }

    /// Whether a further copy of an object that was sealed when it rotted has the rotten byte too.
    pub(super) fn has_spread(
        &self,
        machine: &Machine,
        pool: &Spread,
        id: ObjectId,
        volume: VolumeId,
    ) -> bool {
        let spots = self.spots.borrow();
        let other = |spot: &&Spot| spot.sealed && spot.volume != volume;
        let Some(spot) = spots.get(&id).and_then(|spots| spots.iter().find(other)) else {
            return false;
        };
        let objects = pool.objects();
        let found = objects.iter().find(|object| object.id == id).and_then(|object| {
            let placed =
                object.copies.iter().find(|placed| placed.layout.volumes().contains(&volume))?;
            machine.place(volume, &leaf(object, placed))
        });
        let Some((device, leaf)) = found else { return false };
        let crash = &machine.rows.crashes[device];
        let read = block_on(async {
            let copy = crash.open(&leaf).await?;
            copy.read_at(spot.offset, IoBufMut::zeroed(1), COPY).await
        });
        read.expect("a device below its faults does not fail")[0] == spot.bad
    }
}

/// Mostly leaves only the objects for which `is_better` is true, if there are any.
fn prefer(
    objects: &mut Vec<ObjectStat>,
    is_better: impl Fn(&ObjectStat) -> bool,
    random: &mut impl RngExt,
) {
    if objects.iter().any(&is_better) && random.random_bool(0.7) {
        objects.retain(is_better);
    }
}

impl Machine {
    /// Bits of copies rot, now and then, in the first `len_of` bytes of an object.
    pub(super) async fn rot(
        self,
        sim: Sim,
        pool: Spread,
        len_of: impl Fn(&Name) -> Option<u64>,
        weather: Weather,
    ) {
        let mut random = sim.random("rot");
        let has_code = pool.code().is_some();
        for _ in 0..random.random_range(1..if has_code { 40 } else { 12 }) {
            sim.clock().sleep(Duration::from_micros(random.random_range(0..30_000))).await;
            let before = pool.objects();
            // Checksums that the manifest does not have yet cover nothing after a crash.
            if pool.flush().await.is_err() {
                continue;
            }
            let mut objects = pool.objects();
            objects.retain(|object| {
                // Only where no volume fails does a reader always reach a good copy.
                let may = weather == Weather::Rot || object.sealed;
                may && self.rot.may_begin(object)
            });
            if has_code {
                prefer(&mut objects, |object| coded::has_fragments(&object.copies), &mut random);
                // Of most objects that rot, several fragments do.
                prefer(&mut objects, |object| self.rot.has(object.id), &mut random);
            }
            if objects.is_empty() {
                continue;
            }
            let object = &objects[random.random_range(0..objects.len())];
            let len = len_of(&object.name);
            let len = len.map(|len| if object.sealed { len.min(object.len) } else { len });
            let Some(len) = len.filter(|&len| len > 0) else { continue };
            let rots = match coded::has_fragments(&object.copies) {
                false => self.rot.spoil(&self, object, len, &mut random),
                true => before.iter().find(|before| before.id == object.id).is_some_and(|before| {
                    self.rot.spoil_fragment(&self, [before, object], &mut random)
                }),
            };
            if rots {
                sim.note("rot", format_args!("! {} of {:?}", object.name, object.copies));
            }
        }
    }
}

//! A cache of equal units, without their bytes.

use policy::cache::{Eviction, Slot};
use policy::promote::{Access, AccessKind, Period};
use policy::time::Instant;

use super::scheme::{Promote, Scheme};

/// What happened in a cache.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Accesses: one for each unit that a request touches.
    pub accesses: u64,
    /// Those that found their unit.
    pub hits: u64,
    /// Units that were installed.
    pub promoted: u64,
}

/// A request, as promotion sees it.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub(super) kind: AccessKind,
    /// Whether it continues a sequential run.
    pub(super) sequential: bool,
    pub(super) now: Instant,
}

/// Units by number, held as a policy decides.
pub(super) struct Cache {
    policy: Box<dyn Eviction>,
    promotion: Box<dyn Promote>,
    unit_bytes: u32,
    room: usize,
    /// The slot of each unit.
    slots: Vec<Option<Slot>>,
    /// The unit in each slot that was ever used.
    held: Vec<u32>,
    /// When the unit in each of them was installed.
    promoted: Vec<Period>,
    free: Vec<Slot>,
    counts: Counts,
}

impl Cache {
    /// An empty cache of `room` units, for units of numbers below `footprint`.
    pub(super) fn new(scheme: Scheme, unit_bytes: u32, room: usize, footprint: usize) -> Self {
        Self {
            policy: scheme.kind.policy(),
            promotion: scheme.promotion.start(room),
            unit_bytes,
            room,
            slots: vec![None; footprint],
            held: Vec::new(),
            promoted: Vec::new(),
            free: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// An access of a request to a unit, by its number.
    pub(super) fn access(&mut self, unit: u32, seen: Seen) {
        let now = seen.now;
        self.counts.accesses += 1;
        if let Some(slot) = self.slots[unit as usize] {
            self.counts.hits += 1;
            self.promotion.hit(self.promoted[slot as usize], now);
            return self.policy.hit(slot);
        }
        let (key, Seen { kind, sequential, .. }) = (key(unit), seen);
        let ghost = self.policy.missed(key);
        if !self.promotion.promotes(Access { unit: key, kind, sequential, ghost }, now) {
            return;
        }
        if self.held.len() - self.free.len() == self.room
            && let Some(slot) = self.policy.evict()
        {
            self.slots[self.held[slot as usize] as usize] = None;
            self.free.push(slot);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.held.push(unit);
            self.promoted.push(Period::default());
            Slot::try_from(self.held.len() - 1)
                .expect("a slot for each unit, and they have u32 numbers")
        });
        self.held[slot as usize] = unit;
        self.promoted[slot as usize] = self.promotion.promoted(key);
        self.slots[unit as usize] = Some(slot);
        self.counts.promoted += 1;
        self.policy.insert(slot, key, self.unit_bytes);
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }
}

/// A hash of a unit's number, different for each (the finaliser of Steele et al., SplitMix64).
fn key(unit: u32) -> u64 {
    let mixed = u64::from(unit).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

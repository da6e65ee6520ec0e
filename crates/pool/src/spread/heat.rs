//! The heat of the bytes on each volume: users' reads that reach it.
//!
//! A read counts when it goes to a volume, for its blocks and the copy that it reads. Reads from memory do
//! not count, because a cached table need not move. Compactions, prefetches, copies and scrubs do not
//! count either: they end by themselves, or would occur on any volume.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use policy::heat::{Block, Heats, Second};
use policy::placement::VolumeId;
use policy::purpose::{Io, Origin};

use crate::leaf::ObjectId;

/// Parts of the heats, each with its lock. A read holds one for some tens of nanoseconds.
const PARTS: usize = 64;

/// The heats of blocks, on each volume.
pub(super) struct DeviceHeats {
    parts: Box<[Mutex<Part>]>,
    now: AtomicU32,
    /// Objects that are gone since the last sweep.
    gone: Mutex<HashSet<u64>>,
}

/// A list, because there are few volumes.
type Part = Vec<(VolumeId, Heats)>;

/// Reads a second that went to each copy of an object.
pub(super) type Rates = BTreeMap<(ObjectId, VolumeId), f32>;

impl Default for DeviceHeats {
    fn default() -> Self {
        let parts = (0..PARTS).map(|_| Mutex::default()).collect();
        Self { parts, now: AtomicU32::new(0), gone: Mutex::default() }
    }
}

impl DeviceHeats {
    /// Counts a read of `len` bytes at `offset` of an object from a volume.
    pub(super) fn count(&self, volume: VolumeId, object: ObjectId, offset: u64, len: u64, io: Io) {
        if io.origin != Origin::UserRead {
            return;
        }
        let now = self.now.load(Ordering::Relaxed);
        // Once for each operation that the volume counts.
        for start in (0..len).step_by(Block::BYTES as usize) {
            let block = Block::at(object.0, offset + start);
            of(&mut self.part(block).lock(), volume).count(block, now);
        }
    }

    /// Gives an object of `len` bytes on a volume a first heat of `rate` reads a second.
    pub(super) fn begin(&self, volume: VolumeId, object: ObjectId, len: u64, rate: f32) {
        let now = self.now.load(Ordering::Relaxed);
        let blocks = Block::count(len);
        for index in 0..blocks {
            let block = Block { object: object.0, index };
            of(&mut self.part(block).lock(), volume).begin(block, rate / blocks as f32, now);
        }
    }

    /// Forgets an object at the next sweep.
    pub(super) fn forget(&self, object: ObjectId) {
        self.gone.lock().insert(object.0);
    }

    /// Sets the time to `now`; returns the rates of existing objects that are not cold.
    pub(super) fn sweep(&self, now: Second) -> Rates {
        self.now.store(now, Ordering::Relaxed);
        let gone = std::mem::take(&mut *self.gone.lock());
        let mut rates = Rates::new();
        for part in &self.parts {
            for (volume, heats) in &mut *part.lock() {
                if !gone.is_empty() {
                    heats.retain(|block| !gone.contains(&block.object));
                }
                heats.sweep(now, |block, rate| {
                    *rates.entry((ObjectId(block.object), *volume)).or_default() += rate;
                });
            }
        }
        rates
    }

    fn part(&self, block: Block) -> &Mutex<Part> {
        let mixed =
            (block.object ^ u64::from(block.index) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.parts[(mixed >> 32) as usize % PARTS]
    }
}

fn of(part: &mut Part, volume: VolumeId) -> &mut Heats {
    let at = part.iter().position(|(other, _)| *other == volume).unwrap_or_else(|| {
        part.push((volume, Heats::default()));
        part.len() - 1
    });
    &mut part[at].1
}

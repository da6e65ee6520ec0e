//! How hot what lies on each volume is: what users read of it that memory did not have.
//!
//! A read is counted where it goes to a volume, for the block it begins in and the copy it takes: what
//! is answered from memory warms nothing, for a cached table is no reason to move it. Compactions,
//! prefetches, copies and scrubs do not count either, they go away by themselves or come again wherever the
//! bytes are.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use policy::heat::{Block, Heats, Second};
use policy::placement::VolumeId;
use policy::purpose::{Io, Origin};

use crate::leaf::ObjectId;

/// Parts of the heats, each with its lock. A read takes one of them for some tens of nanoseconds.
const PARTS: usize = 64;

/// The heats of blocks, on each volume.
pub(super) struct DeviceHeats {
    parts: Box<[Mutex<Part>]>,
    now: AtomicU32,
    /// Objects that are gone since the last sweep.
    gone: Mutex<HashSet<u64>>,
}

/// Few volumes: a list is searched faster than a map.
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
    /// `len` bytes from `offset` of an object are read from a volume.
    pub(super) fn count(&self, volume: VolumeId, object: ObjectId, offset: u64, len: u64, io: Io) {
        if io.origin != Origin::UserRead {
            return;
        }
        let now = self.now.load(Ordering::Relaxed);
        // As many operations as the volume counts.
        for start in (0..len).step_by(Block::BYTES as usize) {
            let block = Block::at(object.0, offset + start);
            of(&mut self.part(block).lock(), volume).count(block, now);
        }
    }

    /// An object of `len` bytes on a volume begins as hot as `rate` reads a second.
    pub(super) fn begin(&self, volume: VolumeId, object: ObjectId, len: u64, rate: f32) {
        let now = self.now.load(Ordering::Relaxed);
        let blocks = Block::count(len);
        for index in 0..blocks {
            let block = Block { object: object.0, index };
            of(&mut self.part(block).lock(), volume).begin(block, rate / blocks as f32, now);
        }
    }

    /// An object is gone.
    pub(super) fn forget(&self, object: ObjectId) {
        self.gone.lock().insert(object.0);
    }

    /// It is `now` from here on. How hot everything is that is not cold, and not gone.
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

//! Whole blocks in memory, and the heat of all blocks.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use policy::heat::{Block, Heats, Second};
use policy::inherit::Fences;
use policy::intent::Family;
use policy::placement::VolumeId;
use policy::prefetch::Mode;
use volume::{IoBuf, Object};

use super::Figures;
use crate::leaf::ObjectId;
use crate::spread::Handle;

/// The bytes of the budget that a block takes, with overhead. The last block of an object counts in full:
/// it may be shorter, but its memory was allocated whole.
pub(super) const BLOCK_BYTES: u64 = Block::BYTES + 256;

/// Parts of the heats, each with its lock: reads of one table share a lock, reads of several rarely do.
const PARTS: usize = 16;

/// A table whose keys are known and in the order of their bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Table {
    /// The key space its keys are in.
    pub family: Family,
    /// The level it was built for. It may have sunk since.
    pub level: u8,
    /// The keys its blocks begin with.
    pub fences: Fences,
}

#[derive(Default)]
pub(super) struct Prefetched {
    heats: [Mutex<Heats>; PARTS],
    blocks: RwLock<HashMap<Block, Loaded>>,
    /// Blocks that have room: those in memory, and those being read.
    taken: Mutex<HashSet<Block>>,
    /// The number of `taken` blocks.
    reserved: AtomicU64,
    /// Locked before `blocks`.
    objects: Mutex<HashMap<ObjectId, Known>>,
    /// Existing tables whose keys are known.
    pub(super) tables: Mutex<HashMap<ObjectId, Arc<Table>>>,
    /// The worth of a block's room for single reads, as the bits of a float.
    displaced: AtomicU32,
    pub(super) modes: Mutex<BTreeMap<VolumeId, Mode>>,
    hits: AtomicU64,
    hit_bytes: AtomicU64,
    pub(super) prefetches: AtomicU64,
    pub(super) rewarmed: AtomicU64,
    rewarmed_useful: AtomicU64,
    useful: AtomicU64,
    wasted: AtomicU64,
}

/// An object that was opened and still exists.
struct Known {
    handle: Weak<Handle>,
    blocks: u32,
}

/// A block in memory: all bytes of it that its object has.
struct Loaded {
    bytes: IoBuf,
    source: Source,
    /// Has answered a read.
    used: AtomicBool,
}

/// The source of a block in memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Source {
    /// A read of the volume.
    Volume,
    /// The writer of the table.
    Writer,
}

impl Prefetched {
    pub(super) fn open(&self, handle: &Arc<Handle>) {
        let known = Known { handle: Arc::downgrade(handle), blocks: Block::count(handle.len()) };
        self.objects.lock().insert(handle.id(), known);
    }

    pub(super) fn forget(&self, object: ObjectId) {
        self.tables.lock().remove(&object);
        let mut objects = self.objects.lock();
        let Some(known) = objects.remove(&object) else { return };
        let mut heats = self.part(object).lock();
        // A read at its end may have warmed the block after it.
        for index in 0..=known.blocks {
            let block = Block { object: object.0, index };
            heats.forget(block);
            self.drop_block(block);
        }
    }

    /// The open object a block belongs to.
    pub(super) fn handle(&self, block: Block) -> Option<Arc<Handle>> {
        self.objects.lock().get(&ObjectId(block.object))?.handle.upgrade()
    }

    /// Counts a read of a user, and answers it if all of it is in memory.
    pub(super) fn get(
        &self,
        object: ObjectId,
        offset: u64,
        len: usize,
        now: Second,
        mut into: impl FnMut(&[u8]),
    ) -> bool {
        {
            let mut heats = self.part(object).lock();
            for block in Block::touched(object.0, offset, len as u64) {
                heats.count(block, now);
            }
        }
        let end = offset + len as u64;
        let (first, last) =
            (Block::at(object.0, offset), Block::at(object.0, end.saturating_sub(1)));
        let blocks = self.blocks.read();
        if blocks.is_empty() {
            return false;
        }
        let part = |index: u32| {
            let block = Block { index, ..first };
            let loaded = blocks.get(&block)?;
            let from = offset.max(block.start()) - block.start();
            let to = end.min(block.start() + Block::BYTES) - block.start();
            // None for bytes past the end of the object.
            Some((loaded, loaded.bytes.get(from as usize..to as usize)?))
        };
        if (first.index..=last.index).any(|index| part(index).is_none()) {
            return false;
        }
        for (loaded, bytes) in (first.index..=last.index).filter_map(part) {
            into(bytes);
            self.use_block(loaded);
        }
        self.hits.fetch_add(1, Ordering::Relaxed);
        self.hit_bytes.fetch_add(len as u64, Ordering::Relaxed);
        true
    }

    pub(super) fn block(&self, block: Block) -> Option<IoBuf> {
        let blocks = self.blocks.read();
        let loaded = blocks.get(&block)?;
        self.use_block(loaded);
        Some(loaded.bytes.clone())
    }

    fn use_block(&self, loaded: &Loaded) {
        if !loaded.used.load(Ordering::Relaxed) && !loaded.used.swap(true, Ordering::Relaxed) {
            self.useful.fetch_add(1, Ordering::Relaxed);
            if loaded.source == Source::Writer {
                self.rewarmed_useful.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn distrust(&self, object: ObjectId, offset: u64, len: usize) {
        Block::touched(object.0, offset, len as u64).for_each(|block| self.drop_block(block));
    }

    /// Forgets the heat of a block that cannot be read.
    pub(super) fn cool(&self, block: Block) {
        self.part(ObjectId(block.object)).lock().forget(block);
    }

    /// Gives a new block its first heat.
    pub(super) fn begin(&self, block: Block, heat: f32, now: Second) {
        self.part(ObjectId(block.object)).lock().begin(block, heat, now);
    }

    /// Passes every block that is not cold to `tell`.
    pub(super) fn sweep(&self, now: Second, mut tell: impl FnMut(Block, f32)) {
        self.heats.iter().for_each(|part| part.lock().sweep(now, &mut tell));
    }

    /// The blocks in memory.
    pub(super) fn here(&self) -> Vec<Block> {
        self.blocks.read().keys().copied().collect()
    }

    /// The bytes of the budget that blocks hold, in memory or being read.
    pub(super) fn bytes_reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed) * BLOCK_BYTES
    }

    /// Reads a second that a block's room would save for single reads, as of the prefetcher's last second.
    pub(super) fn displaced(&self) -> f32 {
        f32::from_bits(self.displaced.load(Ordering::Relaxed))
    }

    pub(super) fn set_displaced(&self, reads: f32) {
        self.displaced.store(reads.to_bits(), Ordering::Relaxed);
    }

    /// The number of blocks that have room and are not in memory yet.
    pub(super) fn on_their_way(&self) -> usize {
        let taken = self.taken.lock().len();
        taken.saturating_sub(self.blocks.read().len())
    }

    pub(super) fn has_room(&self, block: Block) -> bool {
        self.taken.lock().contains(&block)
    }

    /// Reserves room for a block, unless it has room or `most` bytes are used. The caller then keeps the
    /// block, or gives the room back.
    pub(super) fn reserve(&self, block: Block, most: u64) -> bool {
        let mut taken = self.taken.lock();
        if (taken.len() as u64 + 1) * BLOCK_BYTES > most || !taken.insert(block) {
            return false;
        }
        self.reserved.store(taken.len() as u64, Ordering::Relaxed);
        true
    }

    pub(super) fn give_back(&self, block: Block) {
        let mut taken = self.taken.lock();
        taken.remove(&block);
        self.reserved.store(taken.len() as u64, Ordering::Relaxed);
    }

    /// Keeps a block that has room; false if its object was removed in the meantime.
    pub(super) fn keep(&self, block: Block, bytes: IoBuf, source: Source) -> bool {
        let objects = self.objects.lock();
        if !objects.contains_key(&ObjectId(block.object)) {
            drop(objects);
            self.give_back(block);
            return false;
        }
        let loaded = Loaded { bytes, source, used: AtomicBool::new(false) };
        self.blocks.write().insert(block, loaded);
        true
    }

    pub(super) fn drop_block(&self, block: Block) {
        let dropped = self.blocks.write().remove(&block);
        if let Some(loaded) = dropped {
            self.give_back(block);
            if !loaded.used.into_inner() {
                self.wasted.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn add_to(&self, sum: &mut Figures) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        sum.prefetched_hits += count(&self.hits);
        sum.hit_bytes += count(&self.hit_bytes);
        sum.blocks += self.blocks.read().len() as u64;
        sum.prefetches += count(&self.prefetches);
        sum.rewarmed += count(&self.rewarmed);
        sum.rewarmed_useful += count(&self.rewarmed_useful);
        sum.useful += count(&self.useful);
        sum.wasted += count(&self.wasted);
        sum.bytes += self.bytes_reserved();
    }

    fn part(&self, object: ObjectId) -> &Mutex<Heats> {
        &self.heats[object.0 as usize % PARTS]
    }
}

//! A part of a cache under one lock: entries by key, and the entries of each object.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use policy::cache::{Eviction, Ghosts, Kind, Slot};
use policy::heat::Block;

use super::{Figures, Key};
use crate::leaf::ObjectId;

/// The memory of an entry beside its bytes, in all tables and queues: counts against the limit.
pub const ENTRY_OVERHEAD: u64 = 224;

/// The shard remembers one evicted entry for each two that it holds.
const GONE_PART: usize = 2;

const NONE: Slot = Slot::MAX;

pub(super) struct Shard {
    /// By hash. Two keys of the same hash displace each other.
    slots: HashMap<u64, Slot, BuildHasherDefault<AsItIs>>,
    entries: Vec<Entry>,
    free: Vec<Slot>,
    /// The first entry of each object; the others are linked to it.
    objects: HashMap<ObjectId, Slot>,
    policy: Box<dyn Eviction>,
    /// Evicted entries, by their hashes.
    gone: Ghosts,
    returns: u64,
    accesses: u64,
    bytes: u64,
    hits: u64,
    hit_bytes: u64,
}

struct Entry {
    hash: u64,
    key: Key,
    bytes: Box<[u8]>,
    /// The neighbours among the entries of its object.
    next: Slot,
    previous: Slot,
}

impl Entry {
    const fn size(&self) -> u64 {
        self.bytes.len() as u64 + ENTRY_OVERHEAD
    }
}

impl Shard {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            slots: HashMap::default(),
            entries: Vec::new(),
            free: Vec::new(),
            objects: HashMap::new(),
            policy: kind.policy(),
            gone: Ghosts::default(),
            returns: 0,
            accesses: 0,
            bytes: 0,
            hits: 0,
            hit_bytes: 0,
        }
    }

    pub(super) fn get(
        &mut self,
        hash: u64,
        key: Key,
        len: usize,
        mut into: impl FnMut(&[u8]),
    ) -> bool {
        if let Some(&slot) = self.slots.get(&hash) {
            let entry = &self.entries[slot as usize];
            if entry.key == key
                && let Some(bytes) = entry.bytes.get(..len)
            {
                into(bytes);
                self.policy.hit(slot);
                self.hits += 1;
                self.accesses += 1;
                self.hit_bytes += len as u64;
                return true;
            }
        }
        false
    }

    /// Keeps `bytes`; evicts others until the shard holds at most `most` bytes.
    pub(super) fn insert(&mut self, hash: u64, key: Key, bytes: Box<[u8]>, most: u64) {
        if let Some(&slot) = self.slots.get(&hash) {
            let entry = &self.entries[slot as usize];
            if entry.key == key && entry.bytes.len() >= bytes.len() {
                return; // Another reader was faster.
            }
            self.policy.remove(slot);
            self.take_out(slot);
        }
        let entry = Entry { hash, key, bytes, next: NONE, previous: NONE };
        let size = entry.size();
        self.returns += u64::from(self.gone.take(hash).is_some());
        if size > most {
            return;
        }
        self.shrink(most - size);
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                let slot = Slot::try_from(self.entries.len()).expect("fewer than 4 billion blocks");
                self.entries.push(entry);
                slot
            }
        };
        self.link(key.object, slot);
        self.slots.insert(hash, slot);
        self.bytes += size;
        self.accesses += 1;
        self.policy.insert(slot, hash, u32::try_from(size).unwrap_or(u32::MAX));
    }

    /// Evicts entries until at most `most` bytes are held.
    pub(super) fn shrink(&mut self, most: u64) {
        while self.bytes > most
            && let Some(slot) = self.policy.evict()
        {
            let most = self.slots.len() / GONE_PART;
            self.gone.push(self.entries[slot as usize].hash, (), most);
            self.take_out(slot);
        }
    }

    pub(super) fn remove(&mut self, hash: u64, key: Key) {
        if let Some(&slot) = self.slots.get(&hash)
            && self.entries[slot as usize].key == key
        {
            self.policy.remove(slot);
            self.take_out(slot);
        }
    }

    pub(super) fn forget(&mut self, object: ObjectId) {
        while let Some(&slot) = self.objects.get(&object) {
            self.policy.remove(slot);
            self.take_out(slot);
        }
    }

    /// Drops the entries that begin in `block`.
    pub(super) fn drop_block(&mut self, block: Block) {
        let mut next = self.objects.get(&ObjectId(block.object)).copied().unwrap_or(NONE);
        while let Some(entry) = self.entries.get(next as usize) {
            let slot = std::mem::replace(&mut next, entry.next);
            if Block::at(block.object, entry.key.offset) == block {
                self.policy.remove(slot);
                self.take_out(slot);
            }
        }
    }

    pub(super) fn add_to(&self, sum: &mut Figures) {
        sum.hits += self.hits;
        sum.hit_bytes += self.hit_bytes;
        sum.entries += self.slots.len() as u64;
        sum.bytes += self.bytes;
    }

    /// Insertions of entries that were evicted shortly before.
    pub(super) const fn returns(&self) -> u64 {
        self.returns
    }

    /// The room that all remembered evicted entries would need.
    pub(super) fn gone_bytes(&self) -> u64 {
        let each = self.bytes.checked_div(self.slots.len() as u64).unwrap_or(0);
        each * self.gone.len() as u64
    }

    /// Hits and insertions.
    pub(super) const fn accesses(&self) -> u64 {
        self.accesses
    }

    /// The part of the accesses that `room` bytes of the least useful entries get; `None` if the policy does
    /// not know.
    pub(super) fn least_share(&self, room: u64) -> Option<f32> {
        let each = self.bytes.checked_div(self.slots.len() as u64)?;
        Some(self.policy.least_share()? * room as f32 / each as f32)
    }

    /// Bytes held.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Puts an entry first among those of its object.
    fn link(&mut self, object: ObjectId, slot: Slot) {
        let next = self.objects.insert(object, slot).unwrap_or(NONE);
        self.entries[slot as usize].next = next;
        if next != NONE {
            self.entries[next as usize].previous = slot;
        }
    }

    /// Frees the slot of an entry that the policy has removed.
    fn take_out(&mut self, slot: Slot) {
        let entry = &mut self.entries[slot as usize];
        self.bytes -= entry.size();
        entry.bytes = Box::default();
        let Entry { hash, key, next, previous, .. } = *entry;
        self.slots.remove(&hash);
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
        match (previous, next) {
            (NONE, NONE) => drop(self.objects.remove(&key.object)),
            (NONE, next) => drop(self.objects.insert(key.object, next)),
            (previous, next) => self.entries[previous as usize].next = next,
        }
        self.free.push(slot);
    }
}

/// The identity: keys are hashes already.
#[derive(Default)]
pub(super) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a hash is a number");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

//! Memory in front of a pool's tables, in the pieces they are read in.
//!
//! RocksDB asks for one block of a table at a time: some 4 KiB that begin and end anywhere. What it
//! asked for is kept as it is on the volume, compressed and with its checksum, under the number of its
//! object, which no other ever has, and its offset. So a cached byte is verified each time it is read,
//! as one from a volume is, and no memory goes to the halves of pages around a block.
//!
//! Which entry goes when room is needed is [`policy::cache`]'s to say.

mod shard;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use policy::cache::Kind;
use policy::units::{KIB, MIB};

pub use self::shard::ENTRY_OVERHEAD;
use self::shard::Shard;
use crate::leaf::ObjectId;

/// Reads of more than this are not kept: indexes and filters that stay in memory anyway, and scans.
const ENTRY_MAX: usize = 64 * KIB as usize;

/// A shard has room for some hundred blocks at least, so that all fill evenly.
const SHARD_BYTES: u64 = 2 * MIB;
const SHARDS_MAX: u64 = 64;

/// How a cache is made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Options {
    /// Bytes it may hold at most, with what it takes to find them.
    pub bytes: u64,
    /// Who goes when room is needed; `None` keeps nothing that was read.
    pub policy: Option<Kind>,
}

/// A cache over the objects of one pool. Clones are handles to the same one.
#[derive(Clone)]
pub struct Cache(Arc<Inner>);

struct Inner {
    shards: Box<[Mutex<Shard>]>,
    /// Bytes all shards together may hold.
    bytes_max: AtomicU64,
    keeps_reads: bool,
}

/// What a cache shows. All but `bytes`, `bytes_max` and `entries` only grow.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Figures {
    /// Reads answered from what was read before.
    pub hits: u64,
    /// Reads that went to a volume.
    pub misses: u64,
    /// Bytes of reads answered from memory.
    pub hit_bytes: u64,
    /// Reads that are kept.
    pub entries: u64,
    /// Bytes held, with what it takes to find them.
    pub bytes: u64,
    /// Bytes it may hold now.
    pub bytes_max: u64,
}

impl Figures {
    /// Hits of all reads, from 0 to 1; none before the first read.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        let reads = self.hits + self.misses;
        (reads > 0).then(|| self.hits as f64 / reads as f64)
    }
}

/// What is kept under which number.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Key {
    object: ObjectId,
    offset: u64,
}

impl Key {
    /// Murmur3's finisher over both: every bit counts everywhere.
    fn hash(self) -> u64 {
        let mut hash = self.object.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.offset;
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^ (hash >> 33)
    }
}

impl Cache {
    /// An empty cache.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let Options { bytes, policy } = options;
        let count = (bytes / SHARD_BYTES).clamp(1, SHARDS_MAX).next_power_of_two();
        let shard = |_| Mutex::new(Shard::new(policy.unwrap_or(Kind::S3Fifo)));
        Self(Arc::new(Inner {
            shards: (0..count).map(shard).collect(),
            bytes_max: AtomicU64::new(bytes),
            keeps_reads: policy.is_some(),
        }))
    }

    /// What is cached of one object. Only bytes that never change may be.
    #[must_use]
    pub fn of(&self, object: ObjectId) -> CachedObject {
        CachedObject { cache: self.clone(), object }
    }

    /// Holds `bytes` at most from now on; what is too much goes at once.
    pub fn set_bytes(&self, bytes: u64) {
        self.0.bytes_max.store(bytes, Ordering::Relaxed);
        let most = self.0.shard_bytes();
        self.0.shards.iter().for_each(|shard| shard.lock().shrink(most));
    }

    /// An object is gone: so is what was kept of it.
    pub fn forget(&self, object: ObjectId) {
        self.0.shards.iter().for_each(|shard| shard.lock().forget(object));
    }

    /// What it did so far, and holds now.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let mut sum =
            Figures { bytes_max: self.0.bytes_max.load(Ordering::Relaxed), ..Figures::default() };
        self.0.shards.iter().for_each(|shard| shard.lock().add_to(&mut sum));
        sum
    }
}

impl Inner {
    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        // Other bits than the shard's own table goes by.
        let at = (hash >> 32) as usize & (self.shards.len() - 1);
        &self.shards[at]
    }

    fn shard_bytes(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed) / self.shards.len() as u64
    }
}

/// What is cached of one object.
pub struct CachedObject {
    cache: Cache,
    object: ObjectId,
}

impl CachedObject {
    /// Hands over the `len` bytes from `offset` on, in their order, in one piece or several; or gives
    /// false if they are not all here.
    pub fn get(&self, offset: u64, len: usize, into: impl FnMut(&[u8])) -> bool {
        let key = self.key(offset);
        let hash = key.hash();
        self.cache.0.shard(hash).lock().get(hash, key, len, into)
    }

    /// Keeps `bytes`, which were read at `offset`, as long as they are worth it.
    pub fn insert(&self, offset: u64, bytes: &[u8]) {
        let inner = &self.cache.0;
        if !inner.keeps_reads || bytes.len() > ENTRY_MAX {
            return;
        }
        let key = self.key(offset);
        let hash = key.hash();
        // Copied before the lock is taken.
        let copy = Box::from(bytes);
        inner.shard(hash).lock().insert(hash, key, copy, inner.shard_bytes());
    }

    /// Forgets what is kept of a read that turned out to be damaged.
    pub fn distrust(&self, offset: u64) {
        let key = self.key(offset);
        let hash = key.hash();
        self.cache.0.shard(hash).lock().remove(hash, key);
    }

    const fn key(&self, offset: u64) -> Key {
        Key { object: self.object, offset }
    }
}

#[cfg(test)]
mod tests;

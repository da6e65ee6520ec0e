//! Memory in front of a pool's tables: what was read of them, and what will be.
//!
//! ```text
//!   a user's read ─► shard: read before? ─► heat counted ─► prefetched: its block here? ─► volume
//!                        ▲ kept as it was read                    ▲ 256 KiB for one spare token
//! ```
//!
//! RocksDB asks for one block of a table at a time: some 4 KiB that begin and end anywhere. What it
//! asked for is kept as it is on the volume, compressed and with its checksum, under the number of its
//! object, which no other ever has, and its offset. So a cached byte is verified each time it is read,
//! as one from a volume is, and no memory goes to the halves of pages around a block. Which of them
//! goes when room is needed is [`policy::cache`]'s to say.
//!
//! Where many reads go to one neighbourhood, [`prefetch`] brings all of it, 256 KiB for one operation,
//! as long as the volume has operations to spare. Both share one budget: a prefetched block takes the
//! room of single reads, if it saves more operations than they do.

pub mod prefetch;
mod prefetched;
mod rewarm;
mod shard;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use policy::cache::Kind;
use policy::heat::{Block, Second};
use policy::placement::VolumeId;
use policy::prefetch::Mode;
use policy::units::{KIB, MIB};
use volume::IoBuf;

use self::prefetched::Prefetched;
pub use self::rewarm::Table;
pub use self::shard::ENTRY_OVERHEAD;
use self::shard::Shard;
use crate::leaf::ObjectId;
use crate::spread::Handle;

/// Reads of more than this are not kept: indexes and filters that stay in memory anyway, and scans.
const ENTRY_MAX: usize = 64 * KIB as usize;

/// A shard has room for some hundred blocks at least, so that all fill evenly.
const SHARD_BYTES: u64 = 2 * MIB;
const SHARDS_MAX: u64 = 64;

/// Room of a shard that may stay empty because the next read does not fit it.
const SLACK: u64 = 8 * KIB;

/// The part of all bytes that is for single reads whatever blocks are worth, as one in so many.
const READS_PART: u64 = 8;

/// How a cache is made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Options {
    /// Bytes it may hold at most, with what it takes to find them.
    pub bytes: u64,
    /// Who goes when room is needed; `None` keeps nothing because it was read.
    pub policy: Option<Kind>,
    /// Whether whole blocks are prefetched.
    pub prefetch: bool,
    /// Whether hot blocks of new tables are kept as they are written; only where blocks are prefetched.
    pub rewarm: bool,
}

/// A cache over the objects of one pool. Clones are handles to the same one.
#[derive(Clone)]
pub struct Cache(Arc<Inner>);

struct Inner {
    shards: Box<[Mutex<Shard>]>,
    keeps_reads: bool,
    rewarms: bool,
    prefetched: Option<Prefetched>,
    /// Bytes for everything.
    bytes_max: AtomicU64,
    /// The second that is being counted in.
    now: AtomicU32,
    misses: AtomicU64,
    tail_hits: AtomicU64,
}

/// What a cache shows. All but `bytes`, `bytes_max`, `entries` and `blocks` only grow.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Figures {
    /// Reads answered from what was read before.
    pub hits: u64,
    /// Reads answered from prefetched blocks.
    pub prefetched_hits: u64,
    /// Reads answered from the ends of tables that were just written.
    pub tail_hits: u64,
    /// Reads that went to a volume.
    pub misses: u64,
    /// Bytes of reads answered from memory.
    pub hit_bytes: u64,
    /// Reads that are kept.
    pub entries: u64,
    /// Whole blocks that are kept, prefetched or re-warmed.
    pub blocks: u64,
    /// Blocks that were read ahead.
    pub prefetches: u64,
    /// Blocks of new tables that were kept as they were written.
    pub rewarmed: u64,
    /// Those of them that answered at least one read.
    pub rewarmed_useful: u64,
    /// Blocks that answered at least one read, however they came.
    pub useful: u64,
    /// Blocks that went and never answered one.
    pub wasted: u64,
    /// Bytes held, with what it takes to find them.
    pub bytes: u64,
    /// Bytes it may hold now.
    pub bytes_max: u64,
}

impl Figures {
    /// Reads that cost no operation, of all reads, from 0 to 1; none before the first read.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        let hits = self.hits + self.prefetched_hits + self.tail_hits;
        let reads = hits + self.misses;
        (reads > 0).then(|| hits as f64 / reads as f64)
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
        let Options { bytes, policy, prefetch, rewarm } = options;
        let count = (bytes / SHARD_BYTES).clamp(1, SHARDS_MAX).next_power_of_two();
        let shard = |_| Mutex::new(Shard::new(policy.unwrap_or(Kind::Lrfu)));
        Self(Arc::new(Inner {
            shards: (0..count).map(shard).collect(),
            keeps_reads: policy.is_some(),
            rewarms: rewarm && prefetch,
            prefetched: prefetch.then(Prefetched::default),
            bytes_max: AtomicU64::new(bytes),
            now: AtomicU32::new(0),
            misses: AtomicU64::new(0),
            tail_hits: AtomicU64::new(0),
        }))
    }

    /// What is cached of an open object, which must never change any more.
    #[must_use]
    pub fn open(&self, object: &Arc<Handle>) -> CachedObject {
        if let Some(prefetched) = &self.0.prefetched {
            prefetched.open(object);
        }
        CachedObject { cache: self.clone(), object: object.id() }
    }

    /// Holds `bytes` at most from now on; what is too much goes at once, or, of prefetched blocks,
    /// within a second.
    pub fn set_bytes(&self, bytes: u64) {
        self.0.bytes_max.store(bytes, Ordering::Relaxed);
        self.0.shrink();
    }

    /// An object is gone: so is what was kept of it.
    pub fn forget(&self, object: ObjectId) {
        if let Some(prefetched) = &self.0.prefetched {
            prefetched.forget(object);
        }
        self.0.shards.iter().for_each(|shard| shard.lock().forget(object));
    }

    /// Whether each volume has operations to spare for prefetching; of those whose load is known.
    #[must_use]
    pub fn modes(&self) -> BTreeMap<VolumeId, Mode> {
        self.0
            .prefetched
            .as_ref()
            .map(|prefetched| prefetched.modes.lock().clone())
            .unwrap_or_default()
    }

    /// What it did so far, and holds now.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let mut sum = Figures {
            bytes_max: self.0.bytes_max.load(Ordering::Relaxed),
            misses: self.0.misses.load(Ordering::Relaxed),
            tail_hits: self.0.tail_hits.load(Ordering::Relaxed),
            ..Figures::default()
        };
        self.0.shards.iter().for_each(|shard| shard.lock().add_to(&mut sum));
        if let Some(prefetched) = &self.0.prefetched {
            prefetched.add_to(&mut sum);
        }
        sum
    }
}

impl Inner {
    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        // Other bits than the shard's own table goes by.
        let at = (hash >> 32) as usize & (self.shards.len() - 1);
        &self.shards[at]
    }

    fn now(&self) -> Second {
        self.now.load(Ordering::Relaxed)
    }

    /// Bytes that prefetched blocks leave for single reads.
    fn bytes_for_reads(&self) -> u64 {
        let blocks = self.prefetched.as_ref().map_or(0, Prefetched::bytes_reserved);
        self.bytes_max.load(Ordering::Relaxed).saturating_sub(blocks)
    }

    /// Bytes that prefetched blocks may have. Some are left for single reads, where those are kept: from
    /// none it could not be told what they are worth.
    fn bytes_for_blocks(&self) -> u64 {
        let all = self.bytes_max.load(Ordering::Relaxed);
        if self.keeps_reads { all - all / READS_PART } else { all }
    }

    fn shard_bytes(&self) -> u64 {
        self.bytes_for_reads() / self.shards.len() as u64
    }

    fn shrink(&self) {
        let most = self.shard_bytes();
        self.shards.iter().for_each(|shard| shard.lock().shrink(most));
    }

    /// Bytes that single reads hold.
    fn bytes_of_reads(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().bytes()).sum()
    }

    /// Drops single reads whose bytes a block has.
    fn drop_reads_of(&self, block: Block) {
        self.shards.iter().for_each(|shard| shard.lock().drop_block(block));
    }

    /// What single reads did so far, and what is known of the worth of their room.
    fn reads(&self) -> Reads {
        let (mut returns, mut gone, mut accesses, mut shares) = (0, 0, 0, Some(0.0));
        for shard in &self.shards {
            let shard = shard.lock();
            returns += shard.returns();
            gone += shard.gone_bytes();
            accesses += shard.accesses();
            let share = shard.least_share(Block::BYTES);
            shares = shares.zip(share).map(|(sum, share)| sum + share);
        }
        let count = self.shards.len() as f32;
        Reads {
            accesses,
            returns,
            return_room: Block::BYTES as f32 / gone.max(Block::BYTES / 4) as f32,
            // A shard has its part of the accesses.
            least_share: shares.map(|sum| sum / (count * count)),
        }
    }
}

/// Single reads, up to now.
struct Reads {
    /// Those that were answered, and those that are kept.
    accesses: u64,
    /// Those that came back not long after they had to go.
    returns: u64,
    /// A block's part of the room those would have needed.
    return_room: f32,
    /// The part of all accesses that go to those worth least, of a block's room; `None` if the policy
    /// cannot tell.
    least_share: Option<f32>,
}

impl Reads {
    /// How many reads a block's room answers, or would answer, since `before`.
    fn worth(&self, before: &Self) -> f32 {
        match self.least_share {
            Some(share) => (self.accesses - before.accesses) as f32 * share,
            None => (self.returns - before.returns) as f32 * self.return_room,
        }
    }
}

/// What is cached of one object.
pub struct CachedObject {
    cache: Cache,
    object: ObjectId,
}

impl CachedObject {
    /// Hands over the `len` bytes from `offset` on, in their order, in one piece or several; or gives
    /// false if they are not all here. It counts as a read of a user.
    pub fn get(&self, offset: u64, len: usize, mut into: impl FnMut(&[u8])) -> bool {
        let inner = &self.cache.0;
        let (key, now) = (self.key(offset), inner.now());
        let hash = key.hash();
        if inner.keeps_reads && inner.shard(hash).lock().get(hash, key, len, &mut into) {
            return true;
        }
        if let Some(prefetched) = &inner.prefetched
            && prefetched.get(self.object, offset, len, now, into)
        {
            return true;
        }
        inner.misses.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// Keeps `bytes`, which were read at `offset`, as long as they are worth it.
    pub fn insert(&self, offset: u64, bytes: &[u8]) {
        let inner = &self.cache.0;
        if !inner.keeps_reads || bytes.len() > ENTRY_MAX || bytes.is_empty() {
            return;
        }
        let key = self.key(offset);
        let hash = key.hash();
        // Copied before the lock is taken.
        let copy = Box::from(bytes);
        inner.shard(hash).lock().insert(hash, key, copy, inner.shard_bytes());
    }

    /// All bytes of a block, if it is prefetched. It counts for nothing.
    #[must_use]
    pub fn block(&self, index: u64) -> Option<IoBuf> {
        let block = Block { object: self.object.0, index: u32::try_from(index).ok()? };
        self.cache.0.prefetched.as_ref()?.block(block)
    }

    /// A read was answered from elsewhere in memory.
    pub fn count_tail_hit(&self) {
        self.cache.0.tail_hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets what is kept of a read of `len` bytes that turned out to be damaged.
    pub fn distrust(&self, offset: u64, len: usize) {
        let inner = &self.cache.0;
        let key = self.key(offset);
        let hash = key.hash();
        inner.shard(hash).lock().remove(hash, key);
        if let Some(prefetched) = &inner.prefetched {
            prefetched.distrust(self.object, offset, len);
        }
    }

    const fn key(&self, offset: u64) -> Key {
        Key { object: self.object, offset }
    }
}

#[cfg(test)]
mod tests;

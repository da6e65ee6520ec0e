//! A cache of a pool's tables: past reads, and prefetched blocks.
//!
//! ```text
//!   a user's read ─► shard: read before? ─► count heat ─► prefetched: block here? ─► volume
//!                        ▲ kept as it was read               ▲ 256 KiB for one spare token
//! ```
//!
//! RocksDB reads one block of a table at a time: some 4 KiB at any offset. The cache keeps the bytes as
//! they are on the volume, compressed and with their checksum. The key is the object's number, which
//! is never reused, and the offset. So RocksDB verifies a cached block each time, as it does one from a
//! volume, and no memory goes to the rest of the pages around a block. [`policy::cache`] chooses which
//! entries to evict.
//!
//! Where many reads go to one neighbourhood, [`prefetch`] reads all of it, 256 KiB for one operation,
//! while the volume has operations to spare. Both share one budget: a prefetched block displaces single
//! reads if it saves more operations than they do.

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
pub use self::prefetched::Table;
pub use self::shard::ENTRY_OVERHEAD;
use self::shard::Shard;
use crate::leaf::ObjectId;
use crate::spread::Handle;

/// Larger reads are not kept: they are scans, or indexes and filters that stay in memory anyway.
const ENTRY_MAX: usize = 64 * KIB as usize;

/// A shard has room for at least some hundred blocks, so that all shards fill evenly.
const SHARD_BYTES: u64 = 2 * MIB;
const SHARDS_MAX: u64 = 64;

/// Room of a shard that may stay empty because the next read does not fit.
const SLACK: u64 = 8 * KIB;

/// One in this many bytes is reserved for single reads, at any worth of blocks.
const READS_PART: u64 = 8;

/// The options of a cache.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Options {
    /// The most bytes it may hold, with its own overhead.
    pub bytes: u64,
    /// The eviction policy of single reads; `None` keeps no single reads.
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
    /// The most bytes of single reads and blocks together.
    bytes_max: AtomicU64,
    /// Held from when single reads get less room until they are evicted, and while [`Cache::figures`] sums up.
    shrinking: Mutex<()>,
    /// The current second, for heats.
    now: AtomicU32,
    misses: AtomicU64,
    tail_hits: AtomicU64,
}

/// The figures of a cache. All but `bytes`, `bytes_max`, `entries` and `blocks` only grow.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Figures {
    /// Reads answered from earlier single reads.
    pub hits: u64,
    /// Reads answered from prefetched blocks.
    pub prefetched_hits: u64,
    /// Reads answered from the ends of tables that were just written.
    pub tail_hits: u64,
    /// Reads that went to a volume.
    pub misses: u64,
    /// Bytes of reads answered from memory.
    pub hit_bytes: u64,
    /// Single reads held.
    pub entries: u64,
    /// Whole blocks held, prefetched or re-warmed.
    pub blocks: u64,
    /// Blocks that were read ahead.
    pub prefetches: u64,
    /// Blocks of new tables that were kept as they were written.
    pub rewarmed: u64,
    /// Those of them that answered at least one read.
    pub rewarmed_useful: u64,
    /// Blocks of both kinds that answered at least one read.
    pub useful: u64,
    /// Blocks dropped without answering a read.
    pub wasted: u64,
    /// Bytes held, with the cache's own overhead.
    pub bytes: u64,
    /// Bytes it may hold now.
    pub bytes_max: u64,
}

impl Figures {
    /// Reads that cost no operation.
    #[must_use]
    pub const fn all_hits(&self) -> u64 {
        self.hits + self.prefetched_hits + self.tail_hits
    }

    /// Reads that cost no operation, of all reads, from 0 to 1; none before the first read.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        let hits = self.all_hits();
        let reads = hits + self.misses;
        (reads > 0).then(|| hits as f64 / reads as f64)
    }
}

/// The key of a single read.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Key {
    object: ObjectId,
    offset: u64,
}

impl Key {
    /// Murmur3's finisher over both: every input bit affects every output bit.
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
            shrinking: Mutex::new(()),
            now: AtomicU32::new(0),
            misses: AtomicU64::new(0),
            tail_hits: AtomicU64::new(0),
        }))
    }

    /// The cached part of an open object, which must never change any more.
    #[must_use]
    pub fn open(&self, object: &Arc<Handle>) -> CachedObject {
        if let Some(prefetched) = &self.0.prefetched {
            prefetched.open(object);
        }
        CachedObject { cache: self.clone(), object: object.id() }
    }

    /// Limits the cache to `bytes`. It evicts single reads over the limit at once, prefetched blocks
    /// within a second.
    pub fn set_bytes(&self, bytes: u64) {
        let _shrinking = self.0.shrinking.lock();
        self.0.bytes_max.store(bytes, Ordering::Relaxed);
        self.0.shrink();
    }

    /// Drops everything cached of a removed object.
    pub fn forget(&self, object: ObjectId) {
        if let Some(prefetched) = &self.0.prefetched {
            prefetched.forget(object);
        }
        self.0.shards.iter().for_each(|shard| shard.lock().forget(object));
    }

    /// Whether each volume has operations to spare for prefetching, for volumes whose load is known.
    #[must_use]
    pub fn modes(&self) -> BTreeMap<VolumeId, Mode> {
        let prefetched = self.0.prefetched.as_ref();
        prefetched.map(|prefetched| prefetched.modes.lock().clone()).unwrap_or_default()
    }

    /// Its counters so far, and its contents now.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let _shrinking = self.0.shrinking.lock();
        let mut sum = Figures {
            bytes_max: self.0.bytes_max.load(Ordering::Relaxed),
            misses: self.0.misses.load(Ordering::Relaxed),
            tail_hits: self.0.tail_hits.load(Ordering::Relaxed),
            ..Figures::default()
        };
        self.0.shards.iter().for_each(|shard| shard.lock().add_to(&mut sum));
        // Last: meanwhile blocks can only give room to single reads.
        if let Some(prefetched) = &self.0.prefetched {
            prefetched.add_to(&mut sum);
        }
        sum
    }
}

impl Inner {
    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        // Other bits than those that the shard's own table uses.
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

    /// The most bytes of prefetched blocks. Single reads, where they are kept, always have some bytes:
    /// without any, their worth could not be measured.
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

    /// Drops single reads that a block contains.
    fn drop_reads_of(&self, block: Block) {
        self.shards.iter().for_each(|shard| shard.lock().drop_block(block));
    }

    /// The counters of single reads, and the estimates of the worth of their room.
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
            // A shard has 1/count of the accesses.
            least_share: shares.map(|sum| sum / (count * count)),
        }
    }
}

/// Counters of single reads, and estimates of the worth of their room.
struct Reads {
    /// Hits and insertions.
    accesses: u64,
    /// Reads of entries that were evicted shortly before.
    returns: u64,
    /// A block's part of the room that those entries would have needed.
    return_room: f32,
    /// The part of all accesses that a block's room of the least useful entries gets; `None` if the
    /// policy does not know.
    least_share: Option<f32>,
}

impl Reads {
    /// The number of reads since `before` that a block's room of single reads answered, or would have.
    fn worth(&self, before: &Self) -> f32 {
        match self.least_share {
            Some(share) => (self.accesses - before.accesses) as f32 * share,
            None => (self.returns - before.returns) as f32 * self.return_room,
        }
    }
}

/// The cached part of one object.
pub struct CachedObject {
    cache: Cache,
    object: ObjectId,
}

impl CachedObject {
    /// Passes the `len` bytes at `offset` to `into`, in order, in one piece or several; false if some are
    /// missing. Counts as a read of a user.
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

    /// Caches `bytes`, which were read at `offset`.
    pub fn insert(&self, offset: u64, bytes: &[u8]) {
        let inner = &self.cache.0;
        if !inner.keeps_reads || bytes.len() > ENTRY_MAX || bytes.is_empty() {
            return;
        }
        let key = self.key(offset);
        let hash = key.hash();
        // Copied before locking.
        let copy = Box::from(bytes);
        inner.shard(hash).lock().insert(hash, key, copy, inner.shard_bytes());
    }

    /// All bytes of a block, if it is in memory. Counts neither as a hit nor as heat.
    #[must_use]
    pub fn block(&self, index: u64) -> Option<IoBuf> {
        let block = Block { object: self.object.0, index: u32::try_from(index).ok()? };
        self.cache.0.prefetched.as_ref()?.block(block)
    }

    /// Counts a read that was answered from the end of a fresh table.
    pub fn count_tail_hit(&self) {
        self.cache.0.tail_hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Drops the cached bytes of a damaged read of `len` bytes.
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

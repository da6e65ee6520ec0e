//! Room for a store's own work: users' writes are refused before deletes, flushes and compactions lack it.
//!
//! [`policy::room`] decides how much to reserve, and when to refuse writes. This module asks it without a system call
//! for each write: a look at the volumes allows a number of bytes, which writes use up. The next look is due when they
//! are used up, or after a quarter of a second.

use std::cmp::Reverse;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use policy::reclaim::DeletedRange;
use policy::room::{self, Level0Merge, Sizes, Valve};
use policy::time::Instant;
use policy::units::{Bytes, MIB};
use pool::spread::{self, Kept, Spread};
use volume::task::block_on;
use volume::{Clock, ErrorKind};

use super::Options;
use super::waiting::waiting;

/// The most bytes that a look allows: other programs may fill the volumes meanwhile.
const ALLOWED_MAX: u64 = 64 * MIB;

/// The longest a write waits for flushes and compactions that may free room.
const WORK_MAX: Duration = Duration::from_secs(10);

/// The time between two looks while writes are refused.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How to end a lack of room. Every `OutOfSpace` of a store says it, so callers do not repeat it.
pub(super) const WAY_OUT: &str = "delete keys, or add a volume";

/// The most deleted ranges that are remembered.
const RANGES_MAX: usize = 256;

/// How long a waiting write pauses between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A store at work: pending writes and merges.
pub(super) trait Working {
    /// The clock of its waits.
    fn clock(&self) -> &Clock;

    /// Whether it flushes or compacts, or is about to.
    fn is_working(&self) -> bool;

    /// Bytes that memtables hold.
    fn unflushed(&self) -> u64;

    /// What the next merge of the first level rewrites.
    fn merge(&self) -> Level0Merge;
}

/// The room of one store, which its writers share.
pub(super) struct Room {
    pool: Spread,
    sizes: Sizes,
    /// Bytes that may be written before the next look.
    allowed: AtomicI64,
    refuses: AtomicBool,
    looks: Mutex<Looks>,
    /// Keys deleted since the last flush of deletes.
    deleted_keys: AtomicU64,
    /// About the bytes of ranges deleted since then.
    deleted_bytes: AtomicU64,
    /// The largest deleted ranges that no compaction was made for. A restart forgets them: see [`policy::reclaim`].
    ranges: Mutex<Vec<DeletedRange>>,
    /// Shared by writes; exclusive while files of a deleted range are removed, which removes every key in them.
    writing: RwLock<()>,
}

#[derive(Default)]
struct Looks {
    valve: Valve,
    /// How much users could write at the last look.
    for_users: u64,
    /// The volumes that lacked files then.
    lack: FilesLack,
    /// The time of that look.
    at: Option<Instant>,
}

/// How many of the volumes lack files (inodes), so that they count as full. Displays nothing if none does.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct FilesLack {
    volumes: usize,
    of: usize,
}

impl fmt::Display for FilesLack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { volumes, of } = self;
        if *volumes == 0 {
            return Ok(());
        }
        write!(f, " ({volumes} of {of} lack inodes, whatever their free bytes: see `df -i`)")
    }
}

/// A write refused for lack of room, with the way out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Refused {
    lack: FilesLack,
    left: u64,
    reserve: u64,
    bytes: u64,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lack, left, reserve, bytes } = self;
        write!(
            f,
            "the volumes are full{lack}: {} are left for users beside the {} that deletes and compactions \
             need, and this write of {} takes twice its size, in the log and in a table; {WAY_OUT}",
            Bytes(*left),
            Bytes(*reserve),
            Bytes(*bytes),
        )
    }
}

/// Sizes for a store with these options in `pool`. A new store is refused where it would have too little room; an
/// existing one opens anyway.
///
/// # Errors
/// `OutOfSpace`, with the arithmetic.
pub(super) fn sizes(pool: &Spread, options: &Options, is_there: bool) -> volume::Result<Sizes> {
    let room = block_on(pool.room());
    let sizes = match room::sizes(room.total, options.wanted()) {
        Err(_) if is_there => Sizes::smallest(options.wanted()),
        Err(small) => {
            let what = format!("{}: {small}", options.name);
            return Err(volume::Error::new(ErrorKind::OutOfSpace, what));
        }
        Ok(sizes) => sizes,
    };
    if sizes.shrunk {
        tracing::info!(
            volumes = %Bytes(room.total),
            memtable = %Bytes(sizes.memtable),
            table = %Bytes(sizes.table),
            reserve = %Bytes(sizes.reserve),
            "the volumes are small: memtables and tables are smaller than the settings say"
        );
    }
    Ok(sizes)
}

impl Room {
    pub(super) fn new(pool: Spread, sizes: Sizes) -> Self {
        pool.keep(Kept { reserve: sizes.reserve, pending: 0 });
        Self {
            pool,
            sizes,
            allowed: AtomicI64::new(0),
            refuses: AtomicBool::new(false),
            looks: Mutex::default(),
            deleted_keys: AtomicU64::new(0),
            deleted_bytes: AtomicU64::new(0),
            ranges: Mutex::default(),
            writing: RwLock::new(()),
        }
    }

    pub(super) const fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Admits a user's write of `bytes` if the last look allowed it.
    pub(super) fn enter_allowed(&self, bytes: u64) -> Option<RwLockReadGuard<'_, ()>> {
        let cost = i64::try_from(Valve::cost(bytes)).unwrap_or(i64::MAX);
        let allowed = !self.refuses.load(Ordering::Relaxed)
            && self.allowed.fetch_sub(cost, Ordering::Relaxed) >= cost;
        allowed.then(|| self.share())
    }

    /// Looks, and admits a user's write of `bytes` or refuses it. While the `store` flushes or compacts, it holds room
    /// that it will free, so the write waits for that first. Blocks the thread.
    pub(super) fn enter(
        &self,
        bytes: u64,
        store: &impl Working,
    ) -> Result<RwLockReadGuard<'_, ()>, Refused> {
        self.admit(bytes, store)?;
        Ok(self.share())
    }

    fn admit(&self, bytes: u64, store: &impl Working) -> Result<(), Refused> {
        let begun = store.clock().now();
        loop {
            let works = store.is_working();
            {
                let now = store.clock().now();
                let waits = works && now.since(begun) < WORK_MAX;
                let mut looks = self.looks.lock();
                // While writes are refused, one look serves all of them.
                if !looks.valve.refuses() || looks.at.is_none_or(|at| now.since(at) >= LOOK_EVERY) {
                    (looks.for_users, looks.lack) = self.measure(store.unflushed(), store.merge());
                    looks.at = Some(now);
                    if looks.takes(bytes, waits, &self.sizes) {
                        self.settle(&looks);
                        self.allow(looks.for_users.saturating_sub(Valve::cost(bytes)));
                        return Ok(());
                    }
                    self.settle(&looks);
                }
                if looks.valve.refuses() || !waits {
                    let Looks { for_users: left, lack, .. } = *looks;
                    return Err(Refused { lack, left, reserve: self.sizes.reserve, bytes });
                }
            }
            block_on(store.clock().sleep(LOOK_AGAIN));
        }
    }

    /// Always admits a write that frees room, and counts the `keys` it deletes.
    pub(super) fn enter_freeing(&self, keys: u64) -> RwLockReadGuard<'_, ()> {
        self.count_deleted(keys);
        self.share()
    }

    /// The right to write beside others. A thread of an executor hands its other tasks on before it waits for one that
    /// is [alone](Self::alone).
    pub(super) fn share(&self) -> RwLockReadGuard<'_, ()> {
        self.writing.try_read().unwrap_or_else(|| waiting(|| self.writing.read()))
    }

    /// Waits at most `wait_max` until no write is in progress, and excludes others, which wait meanwhile. `None` if a
    /// write takes longer: it may be stalled, for as long as volumes are full or away. Blocks the thread.
    pub(super) fn alone(&self, wait_max: Duration) -> Option<RwLockWriteGuard<'_, ()>> {
        self.writing.try_write_for(wait_max)
    }

    /// Counts deleted keys.
    pub(super) fn count_deleted(&self, keys: u64) {
        if keys > 0 {
            self.deleted_keys.fetch_add(keys, Ordering::Relaxed);
        }
    }

    /// Records a deleted range.
    pub(super) fn add_deleted(&self, range: DeletedRange) {
        self.deleted_bytes.fetch_add(range.bytes, Ordering::Relaxed);
        let mut ranges = self.ranges.lock();
        ranges.push(range);
        if ranges.len() > RANGES_MAX {
            ranges.sort_unstable_by_key(|range| Reverse(range.bytes));
            ranges.truncate(RANGES_MAX / 2);
        }
    }

    /// The deleted ranges, as far as they are known.
    pub(super) fn deleted_ranges(&self) -> Vec<DeletedRange> {
        self.ranges.lock().clone()
    }

    /// Forgets the deleted ranges with keys from `first` to `last`, which were compacted.
    pub(super) fn forget_deleted(&self, first: &[u8], last: &[u8]) {
        self.ranges.lock().retain(|range| !range.meets(first, last));
    }

    /// Looks at the free room.
    pub(super) fn look(&self, unflushed: u64, merge: Level0Merge) {
        let mut looks = self.looks.lock();
        (looks.for_users, looks.lack) = self.measure(unflushed, merge);
        let for_users = looks.for_users;
        // Only a write that finds no room in the end closes the valve.
        if looks.valve.refuses() {
            looks.valve.see(for_users, &self.sizes);
        }
        self.settle(&looks);
        self.allow(for_users);
    }

    /// Whether room should be reclaimed: users have less left than the reserve.
    pub(super) fn is_scarce(&self) -> bool {
        self.refuses.load(Ordering::Relaxed) || self.looks.lock().for_users < self.sizes.reserve
    }

    /// About the bytes that the deletes since the last flush of deletes free once they are compacted, where a key and its
    /// value have `mean` bytes.
    pub(super) fn deleted(&self, mean: u64) -> u64 {
        let keys = self.deleted_keys.load(Ordering::Relaxed).saturating_mul(mean);
        keys.saturating_add(self.deleted_bytes.load(Ordering::Relaxed))
    }

    /// The deletes since the last call, as keys and as bytes of ranges, which are about to be flushed.
    pub(super) fn take_deleted(&self) -> (u64, u64) {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        (take(&self.deleted_keys), take(&self.deleted_bytes))
    }

    /// Gives back deletes that were taken and not flushed.
    pub(super) fn return_deleted(&self, (keys, bytes): (u64, u64)) {
        self.deleted_keys.fetch_add(keys, Ordering::Relaxed);
        self.deleted_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Why users' writes are refused, if they are.
    pub(super) fn refusal(&self) -> Option<String> {
        if !self.refuses.load(Ordering::Relaxed) {
            return None;
        }
        let Looks { for_users, lack, .. } = *self.looks.lock();
        let reserve = self.sizes.reserve;
        Some(format!(
            "the volumes are full{lack}: {} are left beside the {} that deletes and compactions need; \
             {WAY_OUT}",
            Bytes(for_users),
            Bytes(reserve)
        ))
    }

    /// How much users may write, and the volumes that lack files.
    fn measure(&self, unflushed: u64, merge: Level0Merge) -> (u64, FilesLack) {
        let pool = block_on(self.pool.room());
        let there = there(&pool, unflushed, merge);
        let reserve = self.sizes.reserve;
        self.pool
            .keep(Kept { reserve, pending: there.needed(&self.sizes).saturating_sub(reserve) });
        (there.for_users(&self.sizes), FilesLack { volumes: pool.lack_files, of: pool.volumes })
    }

    /// Frees the room of tables that RocksDB has removed. Usually the next table does that; where none finds room, none does.
    pub(super) fn free_removed(&self) {
        block_on(self.pool.free_removed());
    }

    /// The room now.
    pub(super) fn there(&self, unflushed: u64, merge: Level0Merge) -> room::Room {
        there(&block_on(self.pool.room()), unflushed, merge)
    }

    /// Allows a quarter of the rest, so that looks become more frequent as room runs out. And a quarter of the reserve: where
    /// a quota does not show in the rest, writes take the reserve until the next look.
    fn allow(&self, for_users: u64) {
        let allowed = (for_users.min(self.sizes.reserve) / 4).min(ALLOWED_MAX);
        self.allowed.store(i64::try_from(allowed).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    fn settle(&self, looks: &Looks) {
        let refuses = looks.valve.refuses();
        if self.refuses.swap(refuses, Ordering::Relaxed) != refuses {
            if refuses {
                tracing::warn!(
                    left = %Bytes(looks.for_users),
                    reserve = %Bytes(self.sizes.reserve),
                    "the volumes are full{}: writes are refused until keys are deleted or a volume is added",
                    looks.lack
                );
            } else {
                tracing::info!(left = %Bytes(looks.for_users), "there is room again: writes are taken");
            }
        }
    }
}

/// The room of a store in `pool`.
const fn there(pool: &spread::Room, unflushed: u64, merge: Level0Merge) -> room::Room {
    room::Room { writable: pool.writable, last: pool.last, unflushed, merge }
}

impl Looks {
    /// Whether a write is admitted; if it may still wait, a refusal does not close the valve yet.
    fn takes(&mut self, bytes: u64, waits: bool, sizes: &Sizes) -> bool {
        let mut valve = self.valve;
        let takes = valve.admit(bytes, self.for_users, sizes);
        if takes || !waits {
            self.valve = valve;
        }
        takes
    }
}

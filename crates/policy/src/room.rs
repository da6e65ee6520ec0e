//! Space on volumes: what a store keeps for its own work, and when it refuses users' writes.
//!
//! A store on a log-structured tree needs space to free space: a delete is written before anything goes, and a
//! compaction writes its outputs before it removes its inputs. So the store refuses users' writes while there is still
//! room for both, and always takes deletes. Memtables and tables shrink with the volumes, so that the reserve stays a
//! small part of them.

use std::fmt;

use crate::units::{Bytes, KIB, MIB};

/// The share of the volumes that a memtable takes at most: 1/192. With the reserve of
/// [`Sizes::reserve`] that leaves more than three quarters of 300 MB for users.
const MEMTABLE_SHARE: u64 = 192;

/// The smallest memtable that is worth a table of its own.
const MEMTABLE_MIN: u64 = 256 * KIB;

/// Manifests, names and the file system's own bookkeeping.
const METADATA: u64 = 2 * MIB;

/// The reserve takes at most 1 / `RESERVE_SHARE` of the volumes.
const RESERVE_SHARE: u64 = 5;

/// Tables of the first level that a compaction usually merges, and two that arrive meanwhile.
const LEVEL0_TABLES: u64 = 6;

/// The sizes that an owner would like.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Wanted {
    /// Bytes of a memtable.
    pub memtable: u64,
    /// Memtables that may wait for a flush.
    pub memtables: u64,
    /// Bytes of a table.
    pub table: u64,
    /// Bytes of the first sorted level.
    pub level_base: u64,
}

/// Sizes that fit the volumes. All in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sizes {
    /// One memtable.
    pub memtable: u64,
    /// One table.
    pub table: u64,
    /// The first sorted level.
    pub level_base: u64,
    /// Room that users' writes never get: enough for a merge of the first level into the next, and for the flush of all
    /// memtables.
    pub reserve: u64,
    /// Whether a size had to shrink to fit the volumes.
    pub shrunk: bool,
}

/// Volumes too small for a store: their size, and that of the smallest reserve.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TooSmall {
    /// Bytes of the volumes together, each copy counted once.
    pub total: u64,
    /// Bytes of the smallest reserve.
    pub reserve: u64,
}

impl fmt::Display for TooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the volumes have room for {}: deletes, flushes and compactions need {} of their own, which may \
             be a fifth at most; give the store volumes of at least {}",
            Bytes(self.total),
            Bytes(self.reserve),
            Bytes(self.reserve * RESERVE_SHARE),
        )
    }
}

/// Sizes for a store on volumes of `total` bytes, each copy counted once.
///
/// # Errors
/// The smallest reserve would be more than a fifth of the volumes. An existing store goes on with [`Sizes::smallest`].
pub fn sizes(total: u64, wanted: Wanted) -> Result<Sizes, TooSmall> {
    let smallest = Sizes::smallest(wanted);
    if smallest.reserve > total / RESERVE_SHARE {
        return Err(TooSmall { total, reserve: smallest.reserve });
    }
    let most = (total / MEMTABLE_SHARE).max(MEMTABLE_MIN);
    Ok(Sizes::at_most(most, wanted))
}

impl Sizes {
    /// The smallest sizes a store works with.
    #[must_use]
    pub fn smallest(wanted: Wanted) -> Self {
        Self::at_most(MEMTABLE_MIN, wanted)
    }

    fn at_most(most: u64, wanted: Wanted) -> Self {
        let memtable = wanted.memtable.min(most);
        let table = wanted.table.min(most);
        let level_base = wanted.level_base.min(4 * most);
        let shrunk =
            (memtable, table, level_base) != (wanted.memtable, wanted.table, wanted.level_base);
        let mut sizes = Self { memtable, table, level_base, reserve: 0, shrunk };
        sizes.reserve = sizes.merge() + wanted.memtables * memtable + METADATA;
        sizes
    }

    /// The merge of the first level into the next that the reserve covers.
    #[must_use]
    pub const fn merge(&self) -> u64 {
        LEVEL0_TABLES * self.memtable + 2 * self.level_base
    }
}

/// How many bytes can be written to volumes with this much room each, when every byte goes to `copies` of them. It is
/// the largest `x` such that the volumes together take `copies · x`, each at most one copy.
#[must_use]
pub fn writable(free: &[u64], copies: usize) -> u64 {
    let copies = copies.clamp(1, free.len().max(1));
    let mut free = free.to_vec();
    free.sort_unstable_by(|a, b| b.cmp(a));
    // With the k largest volumes full to x, the others have to take the remaining copies.
    (0..copies)
        .map(|whole| free[whole.min(free.len())..].iter().sum::<u64>() / (copies - whole) as u64)
        .min()
        .unwrap_or(0)
}

/// The sizes of the next merge of the first level, in bytes.
///
/// All tables of the first level may overlap each other and all tables of the target level. Under fast writes both grow
/// beyond their usual size: the merge claims the next level's tables, so they are not merged further down meanwhile.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Level0Merge {
    /// The first level.
    pub level0: u64,
    /// The level that the first is merged into.
    pub base: u64,
}

impl Level0Merge {
    /// The most it writes before any input is removed.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.level0.saturating_add(self.base)
    }

    /// The merges of two families that share their volumes: the sum of the first levels, and the larger of the levels
    /// below. Merges that do not fit side by side are made one after the other.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { level0: self.level0.saturating_add(other.level0), base: self.base.max(other.base) }
    }
}

/// The space of a store at one moment, in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Room {
    /// Bytes that can be written to the volumes, each copy counted once.
    pub writable: u64,
    /// Of them, the bytes that are not for compactions.
    pub last: u64,
    /// Bytes in memtables, which flushes will write.
    pub unflushed: u64,
    /// The next merge.
    pub merge: Level0Merge,
}

impl Room {
    /// Bytes that the store needs for its own work: the reserve, the memtables, and what the next merge takes beyond the
    /// merge that the reserve covers.
    #[must_use]
    pub const fn needed(&self, sizes: &Sizes) -> u64 {
        let backlog = self.merge.bytes().saturating_sub(sizes.merge());
        sizes.reserve.saturating_add(self.unflushed).saturating_add(backlog)
    }

    /// Bytes that users may still write.
    #[must_use]
    pub const fn for_users(&self, sizes: &Sizes) -> u64 {
        self.writable.saturating_sub(self.needed(sizes))
    }

    /// Bytes that compactions may write while memtables are flushed.
    #[must_use]
    pub const fn for_compactions(&self) -> u64 {
        let flushes = self.unflushed.saturating_add(METADATA);
        self.writable.saturating_sub(if flushes > self.last { flushes } else { self.last })
    }

    /// The same if memtables may lack room afterwards: half of what there is.
    #[must_use]
    pub const fn for_compactions_at_need(&self) -> u64 {
        let (half, rest) = (self.writable / 2, self.writable.saturating_sub(self.last));
        if half < rest { half } else { rest }
    }

    /// The bytes that the next merge lacks; 0 if it fits.
    #[must_use]
    pub const fn lacks(&self) -> u64 {
        self.merge.bytes().saturating_sub(self.for_compactions())
    }
}

/// Whether users' writes are accepted.
///
/// After a refusal, writes are refused until there is clearly more room, so that the answer does not change with every
/// write to a nearly full store.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Valve {
    refuses: bool,
}

impl Valve {
    /// The cost of a write of `bytes` until it is in a table: its record in the log, and the table.
    #[must_use]
    pub const fn cost(bytes: u64) -> u64 {
        bytes.saturating_mul(2)
    }

    /// Whether it refuses users' writes.
    #[must_use]
    pub const fn refuses(self) -> bool {
        self.refuses
    }

    /// Updates the state with the room there is.
    pub const fn see(&mut self, for_users: u64, sizes: &Sizes) {
        let margin = 2 * sizes.memtable;
        if for_users >= margin + sizes.table {
            self.refuses = false;
        } else if for_users < sizes.table {
            self.refuses = true;
        }
    }

    /// Whether a user's write of `bytes` is accepted with room `for_users`. A refusal of a very large write does not
    /// close the valve for writes of ordinary size.
    pub const fn admit(&mut self, bytes: u64, for_users: u64, sizes: &Sizes) -> bool {
        self.see(for_users, sizes);
        !self.refuses && Self::cost(bytes) <= for_users
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::units::GIB;

    const USUAL: Wanted =
        Wanted { memtable: 32 * MIB, memtables: 4, table: 32 * MIB, level_base: 128 * MIB };

    #[test]
    fn large_volumes_change_nothing() {
        let sizes = sizes(100 * GIB, USUAL).unwrap();
        assert_eq!(sizes.memtable, USUAL.memtable);
        assert_eq!((sizes.table, sizes.level_base), (USUAL.table, USUAL.level_base));
        assert!(!sizes.shrunk);
        assert_eq!(sizes.reserve, (6 * 32 + 2 * 128 + 4 * 32 + 2) * MIB);
    }

    #[test]
    fn three_hundred_megabytes_leave_more_than_three_quarters_to_users() {
        // Of a 300 MB file ext4 leaves about 273 MB.
        let total = 273_000_000;
        let sizes = sizes(total, USUAL).unwrap();
        assert!(sizes.shrunk);
        // At the first refusal a log may hold as much as the memtables.
        let used = sizes.reserve + 8 * sizes.memtable;
        assert!((total - used) * 100 / total >= 75, "{sizes:?}");
    }

    #[test]
    fn a_store_on_volumes_that_are_too_small_is_refused_with_the_arithmetic() {
        let refused = sizes(30 * MIB, USUAL).unwrap_err();
        assert_eq!(refused, TooSmall { total: 30 * MIB, reserve: 6 * MIB + 512 * KIB });
        assert_eq!(
            refused.to_string(),
            "the volumes have room for 30 MiB: deletes, flushes and compactions need 6.5 MiB of \
             their own, which may be a fifth at most; give the store volumes of at least 32.5 MiB"
        );
        assert!(sizes(33 * MIB, USUAL).is_ok());
    }

    #[test]
    fn copies_go_to_different_volumes() {
        assert_eq!(writable(&[10, 10, 10], 1), 30);
        assert_eq!(writable(&[10, 10, 10], 2), 15);
        assert_eq!(writable(&[100, 10, 10], 2), 20);
        assert_eq!(writable(&[100, 0], 2), 0);
        assert_eq!(writable(&[100], 2), 100, "a lone volume takes one copy");
        assert_eq!(writable(&[], 2), 0);
    }

    proptest! {
        #[test]
        fn no_more_copies_can_be_placed(free in prop::collection::vec(0_u64..50, 1..6), copies in 1_usize..4) {
            let copies = copies.min(free.len());
            let fits = |x: u64| free.iter().map(|&f| f.min(x)).sum::<u64>() >= copies as u64 * x;
            let most = writable(&free, copies);
            prop_assert!(fits(most));
            prop_assert!(!fits(most + 1));
        }

        #[test]
        fn the_reserve_is_a_fifth_at_most(total in 0_u64..1 << 45) {
            if let Ok(sizes) = sizes(total, USUAL) {
                prop_assert!(sizes.reserve <= total / 5);
            }
        }
    }

    /// Seen on three volumes of 300 MB with two copies: a merge of 112 MB, and a reserve of 40 MB.
    #[test]
    fn users_are_refused_before_the_next_merge_does_not_fit() {
        let wanted =
            Wanted { memtable: 8 * MIB, memtables: 4, table: 8 * MIB, level_base: 32 * MIB };
        let sizes = sizes(410_000_000, wanted).unwrap();
        let merge = Level0Merge { level0: 49_000_000, base: 63_000_000 };
        let last = sizes.reserve / 8;
        let room = |writable| Room { writable, last, unflushed: 0, merge };
        assert!(sizes.reserve < 45_000_000, "{sizes:?}");
        assert_eq!(room(sizes.reserve + 60_000_000).for_users(&sizes), 0);
        let takes = (0..200).map(|n| room(n * 1_000_000));
        for room in takes.filter(|room| room.for_users(&sizes) > 0) {
            assert_eq!(room.lacks(), 0, "{room:?}");
        }
        assert!(room(160_000_000).for_users(&sizes) > 0);
        let usual = Room {
            merge: Level0Merge { level0: 4 * sizes.memtable, base: sizes.level_base },
            ..room(0)
        };
        assert_eq!(Room { writable: sizes.reserve + 1, ..usual }.for_users(&sizes), 1);
    }

    #[test]
    fn a_merge_waits_for_the_flush_of_what_is_in_memory() {
        let merge = Level0Merge { level0: 5 * MIB, base: 10 * MIB };
        let room = Room { writable: 20 * MIB, last: 0, unflushed: 3 * MIB, merge };
        assert_eq!((room.for_compactions(), room.lacks()), (15 * MIB, 0));
        assert_eq!(Room { unflushed: 4 * MIB, ..room }.lacks(), MIB);
    }

    /// A step that was planned with the last room would fail each second.
    #[test]
    fn compactions_are_planned_without_the_last_room() {
        let room = Room { writable: 20 * MIB, last: 8 * MIB, ..Room::default() };
        let at = |unflushed| Room { unflushed, ..room }.for_compactions() / MIB;
        assert_eq!([0, 6 * MIB, 7 * MIB].map(at), [12, 12, 11], "a flush may take it");
        assert_eq!(room.for_compactions_at_need(), 10 * MIB);
        let less = |writable| Room { writable, ..room }.for_compactions_at_need();
        assert_eq!([12 * MIB, 7 * MIB].map(less), [4 * MIB, 0]);
    }

    #[test]
    fn families_merge_one_after_the_other() {
        let a = Level0Merge { level0: 1, base: 20 };
        let b = Level0Merge { level0: 3, base: 10 };
        assert_eq!(a.and(b), Level0Merge { level0: 4, base: 20 });
        assert_eq!(a.and(b).bytes(), 24);
    }

    #[test]
    fn what_is_refused_once_stays_refused_until_there_is_clearly_more_room() {
        let sizes = sizes(300 * MIB, USUAL).unwrap();
        let mut valve = Valve::default();
        assert!(valve.admit(1000, sizes.table, &sizes));
        assert!(!valve.admit(1000, sizes.table - 1, &sizes));
        assert!(!valve.admit(1000, sizes.table + sizes.memtable, &sizes));
        assert!(valve.refuses());
        assert!(valve.admit(1000, sizes.table + 2 * sizes.memtable, &sizes));
    }

    #[test]
    fn a_write_too_large_for_the_room_left_closes_the_valve_for_itself_only() {
        let sizes = sizes(300 * MIB, USUAL).unwrap();
        let mut valve = Valve::default();
        let room = 20 * MIB;
        assert!(!valve.admit(11 * MIB, room, &sizes));
        assert!(valve.admit(10 * MIB, room, &sizes) && !valve.refuses());
    }
}

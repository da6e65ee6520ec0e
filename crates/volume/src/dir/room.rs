//! The room that a file system has, also where it does not say so: one with a quota may report the room of the whole device.
//!
//! A file system that refused a write for lack of room has no more than what was removed since, whatever it reports. Whether it
//! has more after all, as when a quota was raised, is tried now and then.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use policy::units::{GIB, MIB};
use rustix::fs::StatVfs;

use crate::Space;

/// Files that a volume keeps for work that frees room. The reserve of a store has room for about forty tables of the usual
/// size, and users write up to 64 MiB between two looks at the room.
const FILES_SPARE: u64 = 64;
/// It keeps at most this part of all its files, 1/5.
const FILES_SHARE: u64 = 5;
/// A report is right if it tells at most this many bytes more than what was removed since the last refusal: a write is refused
/// before the last byte is taken, and others take and remove bytes meanwhile.
const NEAR: u64 = 16 * MIB;
/// With this much room, a store need not know whether there is more, and a try would take all of it for a moment.
const PLENTY: u64 = GIB;
/// The time from a refusal, or from a try that failed, to the next try.
const REFUSED: Duration = Duration::from_secs(10);
/// The time from a try that was right to the next one.
const TAKEN: Duration = Duration::from_secs(1);

/// What is known of the room beside what the file system reports.
#[derive(Default)]
pub(super) struct Room(Mutex<Option<Limit>>);

/// Where the file system refused a write.
struct Limit {
    /// The bytes that were used on it then, by whomever.
    used: u64,
    /// How many more are tried next.
    more: u64,
    try_at: Instant,
}

impl Limit {
    /// A try of `more` bytes beyond the limit follows after the time `wait`.
    fn at(used: u64, more: u64, wait: Duration, now: Instant) -> Self {
        Self { used, more, try_at: now + wait }
    }
}

impl Room {
    /// Takes note that the file system refused a write for lack of room.
    pub(super) fn note(&self, stat: &StatVfs, now: Instant) {
        // It lacks files (inodes), and reports that.
        if lacks_files(stat) {
            return;
        }
        let mut limit = self.0.lock();
        let used = used(stat);
        // A large write is refused some way before the limit that a smaller one met.
        let known = limit.as_ref().map(|limit| limit.used).filter(|&known| known <= used + NEAR);
        *limit = Some(Limit::at(known.map_or(used, |known| known.max(used)), NEAR, REFUSED, now));
    }

    /// The space of a file system that reports `stat`. `takes` tries whether it takes a number of bytes.
    pub(super) fn space(
        &self,
        stat: &StatVfs,
        now: Instant,
        takes: impl FnOnce(u64) -> bool,
    ) -> Space {
        let space = space_of(stat);
        let mut limit = self.0.lock();
        let Some(known) = &mut *limit else { return space };
        let used = used(stat);
        let free = known.used.saturating_sub(used);
        if free + NEAR >= space.free {
            return space;
        }
        if free >= PLENTY || now < known.try_at {
            return Space { free, ..space };
        }
        let tried = (free + known.more).min(space.free);
        if !takes(tried) {
            *known = Limit::at(known.used, NEAR, REFUSED, now);
            return Space { free, ..space };
        }
        *known = Limit::at(used + tried, known.more * 2, TAKEN, now);
        Space { free: tried, ..space }
    }
}

/// The bytes that are used.
fn used(stat: &StatVfs) -> u64 {
    stat.f_blocks.saturating_sub(stat.f_bfree) * stat.f_frsize
}

/// Whether it runs out of files (inodes).
fn lacks_files(stat: &StatVfs) -> bool {
    // File systems that make files while they have bytes report zero files in all.
    let spare = FILES_SPARE.min(stat.f_files / FILES_SHARE);
    stat.f_files > 0 && stat.f_favail <= spare
}

/// The room that a file system reports. One that runs out of files has none, whatever its free bytes: a user's write would
/// take a file that a flush, a compaction or a delete needs.
fn space_of(stat: &StatVfs) -> Space {
    let lacks_files = lacks_files(stat);
    let free = if lacks_files { 0 } else { stat.f_bavail * stat.f_frsize };
    Space { total: stat.f_blocks * stat.f_frsize, free, lacks_files }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;

    /// A file system of 8 GiB under a quota that does not show, and the time.
    struct Quota {
        room: Room,
        used: u64,
        quota: u64,
        now: Instant,
        tries: Vec<u64>,
    }

    impl Quota {
        /// It is full, and refused a write.
        fn full(quota: u64) -> Self {
            let (room, now) = (Room::default(), Instant::now());
            let mut full = Self { room, used: quota, quota, now, tries: Vec::new() };
            assert_eq!(full.free(), 8 * GIB - quota, "no write was refused");
            full.refuse();
            full
        }

        fn stat(&self) -> StatVfs {
            let mut stat = rustix::fs::statvfs("/dev/shm").unwrap();
            (stat.f_frsize, stat.f_blocks, stat.f_files) = (BLOCK, 8 * GIB / BLOCK, 0);
            stat.f_bfree = stat.f_blocks - self.used / BLOCK;
            stat.f_bavail = stat.f_bfree;
            stat
        }

        fn refuse(&self) {
            self.room.note(&self.stat(), self.now);
        }

        fn free(&mut self) -> u64 {
            let stat = self.stat();
            let takes = |len| {
                self.tries.push(len);
                self.used + len <= self.quota
            };
            self.room.space(&stat, self.now, takes).free
        }

        fn after(&mut self, wait: Duration) -> u64 {
            self.now += wait;
            self.free()
        }
    }

    /// The report counted again once 16 MiB were set aside, so that a store took the room for its own that a quota kept
    /// from it.
    #[test]
    fn a_file_system_that_refused_a_write_has_what_was_removed_since() {
        let mut ext4 = Quota::full(400 * MIB);
        assert_eq!(ext4.free(), 0);
        ext4.used -= 100 * MIB;
        assert_eq!([ext4.free(), ext4.after(REFUSED)], [100 * MIB; 2]);
        assert_eq!(ext4.tries, [116 * MIB]);
        ext4.used += 70 * MIB;
        assert_eq!([ext4.after(REFUSED / 2), ext4.after(REFUSED)], [30 * MIB; 2]);
        assert_eq!(ext4.tries, [116 * MIB, 46 * MIB]);
    }

    #[test]
    fn a_quota_that_was_raised_is_found_step_by_step() {
        let mut ext4 = Quota::full(400 * MIB);
        ext4.quota = 8 * GIB;
        ext4.used -= 10 * MIB;
        let mut found = vec![ext4.after(REFUSED / 2), ext4.after(REFUSED / 2)];
        found.extend((0..7).map(|_| ext4.after(TAKEN)));
        let mib = [10, 26, 58, 122, 250, 506, 1018, 2042, 2042];
        assert_eq!(found, mib.map(|mib| mib * MIB));
        // The next refusal is of the file system itself.
        ext4.used = 8 * GIB - MIB;
        ext4.refuse();
        ext4.used -= 5 * GIB;
        assert_eq!(ext4.free(), 5 * GIB + MIB);
    }

    /// A write of 5 MiB is refused up to 5 MiB before one of a page is.
    #[test]
    fn a_refusal_before_the_known_limit_does_not_lower_it_unless_it_is_far() {
        let mut ext4 = Quota::full(400 * MIB);
        ext4.used -= NEAR;
        ext4.refuse();
        assert_eq!(ext4.free(), NEAR);
        // The user's other files take a part of the quota.
        ext4.used -= MIB;
        ext4.refuse();
        assert_eq!(ext4.free(), 0);
        ext4.used += 3 * MIB;
        ext4.refuse();
        ext4.used -= 2 * MIB;
        assert_eq!(ext4.free(), 2 * MIB);
    }

    /// A try takes room for a moment. Of a nearly full file system it once took all that was left, from the deletes.
    #[test]
    fn the_last_bytes_of_a_file_system_are_not_taken_for_a_try() {
        let mut ext4 = Quota::full(8 * GIB);
        for left in [0, BLOCK, NEAR, PLENTY] {
            ext4.used = ext4.quota - left;
            assert_eq!(ext4.after(REFUSED), left);
        }
        assert_eq!(ext4.tries, []);
    }

    /// It would have no bytes, either, until many were removed.
    #[test]
    fn a_lack_of_files_is_not_one_of_bytes() {
        let ext4 = Quota::full(400 * MIB);
        let mut stat = ext4.stat();
        (stat.f_files, stat.f_favail) = (10_000, 64);
        let room = Room::default();
        room.note(&stat, ext4.now);
        stat.f_favail = 65;
        assert_eq!(room.space(&stat, ext4.now, |_| false).free, 8 * GIB - 400 * MIB);
    }

    /// Users' writes once took the last inodes, and the deletes that would have freed some failed.
    #[test]
    fn a_file_system_that_runs_out_of_files_has_no_room() {
        let mut stat = rustix::fs::statvfs("/dev/shm").unwrap();
        (stat.f_frsize, stat.f_blocks, stat.f_bavail) = (4096, 1000, 900);
        let mut free = |files, left| {
            (stat.f_files, stat.f_favail) = (files, left);
            let Space { total, free, lacks_files } = space_of(&stat);
            assert_eq!((total, lacks_files), (1000 * 4096, free == 0));
            free
        };
        let all = 900 * 4096;
        assert_eq!(
            [free(10_000, 5_000), free(10_000, 65), free(10_000, 64), free(10_000, 0)],
            [all, all, 0, 0]
        );
        // A file system with few files keeps a fifth of them.
        assert_eq!([free(50, 11), free(50, 10)], [all, 0]);
        assert_eq!(free(0, 0), all, "it makes files as long as it has bytes");
    }
}

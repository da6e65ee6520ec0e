//! The room that a file system has, also where it does not say so: one with a quota may report the room of the whole device.
//!
//! Once a file system refused a write for lack of room, it has as much as it sets aside, whatever it reports. A call that asks for
//! the space tries that, unless the file system itself reports little: its last bytes are for work that frees room.

use std::sync::atomic::{AtomicBool, Ordering};

use policy::units::{KIB, MIB};
use rustix::fs::StatVfs;
use rustix::io::Errno;

use super::sys::is_full;
use crate::Space;

/// Files that a volume keeps for work that frees room. The reserve of a store has room for about forty tables of the usual
/// size, and users write up to 64 MiB between two looks at the room.
const FILES_SPARE: u64 = 64;
/// It keeps at most this part of all its files, 1/5.
const FILES_SHARE: u64 = 5;
/// What a file system that refused a write must be able to set aside, in bytes, before its report counts again.
const TRIED: u64 = 16 * MIB;
/// The least that is tried.
const LEAST: u64 = 64 * KIB;

/// Whether the file system refused a write for lack of room.
#[derive(Default)]
pub(super) struct Room {
    refused: AtomicBool,
}

impl Room {
    /// Takes note of an error.
    pub(super) fn note(&self, errno: Errno) {
        if is_full(errno) {
            self.refused.store(true, Ordering::Relaxed);
        }
    }

    /// The space that the file system reports. Once it refused a write and reports more than [`TRIED`], only as much is free
    /// as it sets aside: `sets_aside` tries this many bytes, then fewer. Once it sets all of them aside, its report counts
    /// again.
    pub(super) fn space(&self, stat: &StatVfs, sets_aside: impl FnOnce(u64) -> u64) -> Space {
        let space = space_of(stat);
        if space.free <= TRIED || !self.refused.load(Ordering::Relaxed) {
            return space;
        }
        let free = sets_aside(TRIED);
        if free < TRIED {
            return Space { free, ..space };
        }
        self.refused.store(false, Ordering::Relaxed);
        space
    }
}

/// The bytes to try, the most first.
pub(super) fn steps(most: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(most), |len| Some(len / 2)).take_while(|&len| len >= LEAST)
}

/// The room that a file system reports. One that runs out of files (inodes) has none, whatever its free bytes: a user's
/// write would take a file that a flush, a compaction or a delete needs.
fn space_of(stat: &StatVfs) -> Space {
    // File systems that make files while they have bytes report zero files in all.
    let spare = FILES_SPARE.min(stat.f_files / FILES_SHARE);
    let lacks_files = stat.f_files > 0 && stat.f_favail <= spare;
    let free = if lacks_files { 0 } else { stat.f_bavail * stat.f_frsize };
    Space { total: stat.f_blocks * stat.f_frsize, free, lacks_files }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quotas of users, and those of btrfs, are not in what the file system reports: users' writes once took the room that was
    /// kept for deletes.
    #[test]
    fn a_file_system_that_refused_a_write_has_no_room_until_it_sets_some_aside() {
        let mut stat = rustix::fs::statvfs("/dev/shm").unwrap();
        (stat.f_frsize, stat.f_bavail) = (4096, 1 << 20);
        (stat.f_files, stat.f_favail) = (0, 0);
        let (room, all) = (Room::default(), 4 << 30);
        let free = |stat: &StatVfs, takes: u64| {
            let sets_aside = |most| steps(most).find(|&len| len <= takes).unwrap_or(0);
            room.space(stat, sets_aside).free
        };
        for errno in [Errno::DQUOT, Errno::NOSPC] {
            assert_eq!(free(&stat, 0), all, "no write was refused");
            room.note(errno);
            room.note(Errno::IO);
            assert_eq!([free(&stat, 0), free(&stat, TRIED - 1)], [0, TRIED / 2]);
            assert_eq!([free(&stat, TRIED), free(&stat, 0)], [all, all]);
        }
    }

    /// A try takes room for a moment. Of a nearly full file system it once took all that was left, from the deletes.
    #[test]
    fn the_last_bytes_of_a_file_system_are_not_taken_for_a_try() {
        let mut stat = rustix::fs::statvfs("/dev/shm").unwrap();
        (stat.f_frsize, stat.f_files, stat.f_favail) = (4096, 0, 0);
        let room = Room::default();
        room.note(Errno::NOSPC);
        for pages in [0, 1, TRIED / 4096] {
            stat.f_bavail = pages;
            let tries = |_| panic!("it reports {pages} pages");
            assert_eq!(room.space(&stat, tries).free, pages * 4096);
        }
        stat.f_bavail = TRIED / 4096 + 1;
        assert_eq!(room.space(&stat, |most| most / 2).free, TRIED / 2, "the refusal still counts");
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

//! Tries out whether a file system takes direct I/O, whether its device works, and what a sync costs.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, FallocateFlags, OFlags};
use rustix::io::{self, Errno, ReadWriteFlags};

use super::block_device::BlockDevice;
use super::lock::LOCK;
use super::sys::{self, is_full, preallocate};
use super::{FILE_FLAGS, FILE_MODE};
use crate::IoBufMut;
use crate::buf::PAGE;

const PROBE: &str = "plimsoll.probe";

/// As many appends in a row that make the same number of writes were not disturbed by other programs.
const AGREE: usize = 3;
/// Appends at most.
const APPENDS_MAX: usize = 15;
/// Where they never agreed, the least counts, unless it is more than this: then they are the writes of others. ext4 adds
/// two.
const JOURNAL_MAX: u64 = 4;

/// What the sync of a page costs that was appended to a file.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SyncCost {
    /// The writes that the file system adds to it, for its journal. `None` where the kernel does not count for the
    /// directory, or other programs use the device all the time.
    pub journal_ops: Option<u64>,
    /// Whether the sync of a page over another writes less. Where the kernel does not count, as known of the file system.
    pub saves_in_place: bool,
    /// How long the fastest took; `None` where none succeeded.
    pub takes: Option<Duration>,
}

/// Whether the file system takes direct I/O, found by trying it.
pub(super) fn probe_direct(root: &OwnedFd, path: &Path) -> crate::Result<bool> {
    let failed = |errno| sys::error(path, "ask what file system it is", errno);
    // It accepts the flag and ignores it.
    if is_memory(root).map_err(failed)? {
        return Ok(false);
    }
    match try_out(root, true) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(false),
        // A full file system takes no write. Opening an existing file with the flag tells most of
        // it.
        Err(errno) if is_full(errno) => {
            match fs::openat(root, LOCK, FILE_FLAGS | OFlags::DIRECT, FILE_MODE) {
                Ok(_) => Ok(true),
                Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(false),
                Err(errno) => Err(failed(errno)),
            }
        }
        Err(errno) => Err(sys::error(path, "try direct I/O", errno)),
    }
}

/// Whether the file system consists of page cache.
fn is_memory(root: &OwnedFd) -> io::Result<bool> {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    Ok(matches!(fs::fstatfs(root)?.f_type as u64, TMPFS | RAMFS))
}

/// Whether the file system is one of those that write in place what is in place.
fn is_in_place(root: &OwnedFd) -> io::Result<bool> {
    const EXT4: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    Ok(matches!(fs::fstatfs(root)?.f_type as u64, EXT4 | XFS))
}

/// Writes a page, syncs it and reads it back.
pub(super) fn try_out(root: &OwnedFd, direct: bool) -> io::Result<()> {
    let direct = if direct { OFlags::DIRECT } else { OFlags::empty() };
    let fd = fs::openat(root, PROBE, FILE_FLAGS | OFlags::CREATE | direct, FILE_MODE)?;
    let mut page = IoBufMut::zeroed(PAGE);
    page.fill(0xa5);
    let written = sys::write_all_at(&fd, &page, 0).map_err(Errno::from);
    let tried = written.and_then(|()| fs::fsync(&fd)).and_then(|()| {
        page.fill(0);
        sys::read_at(&fd, &mut page, 0)
    });
    let removed = fs::unlinkat(root, PROBE, AtFlags::empty());
    let back = tried?;
    removed?;
    if back == PAGE && page.iter().all(|&byte| byte == 0xa5) { Ok(()) } else { Err(Errno::IO) }
}

/// Sets room aside for a moment, or writes a page where the file system cannot.
pub(super) fn set_aside(root: &OwnedFd, len: u64) -> io::Result<()> {
    let fd = fs::openat(root, PROBE, FILE_FLAGS | OFlags::CREATE, FILE_MODE)?;
    let page = [0xa5; PAGE];
    let set = preallocate(&fd, Some(len));
    let set = set.and_then(|()| sys::write_all_at(&fd, &page, 0).map_err(Errno::from));
    fs::unlinkat(root, PROBE, AtFlags::empty())?;
    set
}

/// Reads a page from the device: for a full volume, which takes no probe.
pub(super) fn try_reading(root: &OwnedFd) -> io::Result<()> {
    let fd = fs::openat(root, LOCK, FILE_FLAGS | OFlags::DIRECT, FILE_MODE)?;
    sys::read_at(&fd, &mut IoBufMut::zeroed(PAGE), 0).map(drop)
}

/// What file systems differ in, found by trying it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Abilities {
    /// A range of a file can be made a hole.
    pub(super) holes: bool,
    /// A write through the page cache can be refused where it would wait: XFS and btrfs can, ext4 cannot.
    pub(super) nowait_writes: bool,
}

pub(super) fn abilities(root: &OwnedFd) -> Abilities {
    let Ok(fd) = fs::openat(root, PROBE, FILE_FLAGS | OFlags::CREATE, FILE_MODE) else {
        return Abilities::default();
    };
    let byte = [IoSlice::new(&[0xa5])];
    let written = io::pwritev2(&fd, &byte, 0, ReadWriteFlags::NOWAIT);
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let made = fs::fallocate(&fd, flags, 0, PAGE as u64);
    // A later probe removes what stays.
    let _ = fs::unlinkat(root, PROBE, AtFlags::empty());
    let nowait_writes = matches!(written, Ok(_) | Err(Errno::AGAIN));
    Abilities { holes: made.is_ok(), nowait_writes }
}

/// Appends pages to a file of its own, and syncs each. `device` is the block device below, if the kernel counts for it.
pub(super) fn sync_cost(root: &OwnedFd, device: Option<&BlockDevice>) -> io::Result<SyncCost> {
    let fd = fs::openat(root, PROBE, FILE_FLAGS | OFlags::CREATE, FILE_MODE)?;
    let page = [0xa5; PAGE];
    let ios = || device.and_then(BlockDevice::ios).unwrap_or_default();
    let written = || device.and_then(BlockDevice::bytes_written).unwrap_or_default();
    let write = |at: u64| {
        sys::write_all_at(&fd, &page, at).map_err(Errno::from)?;
        fs::fdatasync(&fd)
    };
    let (mut end, mut takes, mut appended) = (0, Duration::MAX, u64::MAX);
    let measured = settled(|| {
        let (before, bytes, from) = (ios(), written(), Instant::now());
        write(end)?;
        end += PAGE as u64;
        takes = takes.min(from.elapsed());
        appended = appended.min(written().saturating_sub(bytes));
        Ok::<_, Errno>(ios().saturating_sub(before).saturating_sub(1))
    });
    // Others only add to what is counted.
    let overwritten = (0..end).step_by(PAGE).take(AGREE).try_fold(u64::MAX, |least, at| {
        let before = written();
        write(at)?;
        Ok::<_, Errno>(least.min(written().saturating_sub(before)))
    });
    fs::unlinkat(root, PROBE, AtFlags::empty())?;
    let (counted, overwritten) = (measured?, overwritten?);
    let (journal_ops, saves_in_place) = match device {
        Some(_) => (counted, overwritten < appended),
        None => (is_memory(root)?.then_some(0), is_in_place(root)?),
    };
    Ok(SyncCost { journal_ops, saves_in_place, takes: Some(takes) })
}

/// The writes that an append makes beside its data, by the first of them that agree.
fn settled<E>(mut append: impl FnMut() -> Result<u64, E>) -> Result<Option<u64>, E> {
    let mut made: Vec<u64> = Vec::new();
    while made.len() < APPENDS_MAX {
        made.push(append()?);
        if let Some([first, others @ ..]) = made.last_chunk::<AGREE>()
            && others.iter().all(|other| other == first)
        {
            return Ok(Some(*first));
        }
    }
    Ok(made.into_iter().min().filter(|&least| least <= JOURNAL_MAX))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn settled_by(made: &[u64]) -> (Option<u64>, usize) {
        let (mut next, mut taken) = (made.iter().copied().cycle(), 0);
        let Ok(settled) = settled(|| {
            taken += 1;
            Ok::<_, Infallible>(next.next().unwrap())
        });
        (settled, taken)
    }

    /// A foreign write in each of three appends counted as the journal's, and more than four as no journal at all.
    #[test]
    fn a_disturbed_measurement_goes_on() {
        assert_eq!(settled_by(&[2, 2, 2]), (Some(2), 3));
        assert_eq!(settled_by(&[3, 2, 2, 2]), (Some(2), 4), "the first makes the file");
        assert_eq!(settled_by(&[9, 7, 2, 8, 2, 2, 2]), (Some(2), 7));
        assert_eq!(settled_by(&[6, 6, 6]), (Some(6), 3), "a journal that writes more");
        assert_eq!(settled_by(&[3, 5, 2, 9]), (Some(2), APPENDS_MAX));
        assert_eq!(settled_by(&[50, 61, 47, 52]), (None, APPENDS_MAX), "nobody knows");
    }
}

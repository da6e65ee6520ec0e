//! Tries out whether a file system takes direct I/O, whether its device works, and what its journal writes.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self, AtFlags, OFlags};
use rustix::io::Errno;

use super::block_device::BlockDevice;
use super::lock::LOCK;
use super::{FILE_FLAGS, FILE_MODE, sys};
use crate::buf::PAGE;
use crate::{IoBufMut, Result};

const PROBE: &str = "plimsoll.probe";

/// Appends to measure the journal by: the least of them counts, since others use the device too.
const APPENDS: u64 = 3;
/// More writes than this at each append are those of other programs.
const JOURNAL_MAX: u64 = 4;

/// Whether the file system takes direct I/O, found by trying it.
pub(super) fn probe_direct(root: &OwnedFd, path: &Path) -> Result<bool> {
    let failed = |errno| sys::error(path, "ask what file system it is", errno);
    // These accept the flag and ignore it: they consist of page cache.
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    if matches!(fs::fstatfs(root).map_err(failed)?.f_type as u64, TMPFS | RAMFS) {
        return Ok(false);
    }
    match try_out(root, true) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(false),
        // A full file system takes no write. Opening an existing file with the flag tells most of
        // it.
        Err(Errno::NOSPC | Errno::DQUOT) => {
            match fs::openat(root, LOCK, FILE_FLAGS | OFlags::DIRECT, FILE_MODE) {
                Ok(_) => Ok(true),
                Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(false),
                Err(errno) => Err(failed(errno)),
            }
        }
        Err(errno) => Err(sys::error(path, "try direct I/O", errno)),
    }
}

/// Writes a page, syncs it and reads it back.
pub(super) fn try_out(root: &OwnedFd, direct: bool) -> rustix::io::Result<()> {
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

/// Reads a page from the device: for a full volume, which takes no probe.
pub(super) fn try_reading(root: &OwnedFd) -> rustix::io::Result<()> {
    let fd = fs::openat(root, LOCK, FILE_FLAGS | OFlags::DIRECT, FILE_MODE)?;
    sys::read_at(&fd, &mut IoBufMut::zeroed(PAGE), 0).map(drop)
}

/// The writes beside the data that a synced append makes, as the kernel counts them on `device`.
pub(super) fn journal_ops(root: &OwnedFd, device: &BlockDevice) -> rustix::io::Result<u64> {
    let fd = fs::openat(root, PROBE, FILE_FLAGS | OFlags::CREATE, FILE_MODE)?;
    let page = [0xa5; PAGE];
    let ios = || device.ios().unwrap_or_default();
    let appended = (0..APPENDS).map(|at| {
        let before = ios();
        sys::write_all_at(&fd, &page, at * PAGE as u64)?;
        fs::fdatasync(&fd)?;
        Ok(ios().saturating_sub(before))
    });
    let least = appended.collect::<rustix::io::Result<Vec<_>>>();
    fs::unlinkat(root, PROBE, AtFlags::empty())?;
    let beside = least?.into_iter().min().unwrap_or_default().saturating_sub(1);
    Ok(if beside <= JOURNAL_MAX { beside } else { 0 })
}

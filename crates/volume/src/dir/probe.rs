//! Tries out whether a file system takes direct I/O, and whether its device works.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self, AtFlags, OFlags};
use rustix::io::Errno;

use super::lock::LOCK;
use super::{FILE_FLAGS, FILE_MODE, sys};
use crate::buf::PAGE;
use crate::{IoBufMut, Result};

const PROBE: &str = "plimsoll.probe";

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
    let tried = sys::write_all_at(&fd, &page, 0).and_then(|()| fs::fsync(&fd)).and_then(|()| {
        page.fill(0);
        sys::read_at(&fd, &mut page, 0)
    });
    let removed = fs::unlinkat(root, PROBE, AtFlags::empty());
    let back = tried?;
    removed?;
    if back == PAGE && page.iter().all(|&byte| byte == 0xa5) { Ok(()) } else { Err(Errno::IO) }
}

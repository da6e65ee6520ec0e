//! A volume is open in one process at a time.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self, FlockOperation, OFlags};
use rustix::io::Errno;

use super::sys::{self, is_full};
use super::{FILE_FLAGS, FILE_MODE};
use crate::{Error, ErrorKind, Result};

pub(super) const LOCK: &str = "plimsoll.lock";

/// Keeps other processes out while it lives. The kernel releases it when the process ends, however
/// that ends. The file stays, and means nothing without the lock.
pub(super) struct Lock {
    fd: OwnedFd,
}

impl Lock {
    /// Takes the lock of the volume in `root`, which `path` names in errors.
    pub(super) fn take(root: &OwnedFd, path: &Path) -> Result<Self> {
        let failed = |errno| sys::error(path, "lock it", errno);
        let fd = fs::openat(root, LOCK, FILE_FLAGS | OFlags::CREATE, FILE_MODE).map_err(failed)?;
        match fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let message = format!(
                    "volume {}: open in process {}: stop that one first",
                    path.display(),
                    holder(&fd)
                );
                return Err(Error::new(ErrorKind::Fenced, message));
            }
            Err(errno) => return Err(failed(errno)),
        }
        // Overwrites in place: a full file system has no room for a new page.
        let pid = format!("{}\n", std::process::id());
        let written = sys::write_all_at(&fd, pid.as_bytes(), 0);
        match written.map_err(Errno::from).and_then(|()| fs::ftruncate(&fd, pid.len() as u64)) {
            // The lock holds; only its holder's number is missing from the file.
            Ok(()) => Ok(Self { fd }),
            Err(errno) if is_full(errno) => Ok(Self { fd }),
            Err(errno) => Err(failed(errno)),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: until a child that this process just started executes its program,
        // it has a copy of the descriptor and would hold the lock.
        let _ = fs::flock(&self.fd, FlockOperation::Unlock);
    }
}

/// The process that the file names: its number, or a word if the file holds none.
fn holder(fd: &OwnedFd) -> String {
    let mut text = [0; 20];
    let len = sys::read_at(fd, &mut text, 0).unwrap_or_default();
    let pid = std::str::from_utf8(&text[..len]).unwrap_or_default().trim();
    if pid.parse::<u32>().is_ok() { pid.to_owned() } else { "unknown".to_owned() }
}

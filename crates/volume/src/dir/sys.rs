//! System calls that finish what they begin, and what their errors mean.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::{self, Errno, retry_on_intr};

use crate::buf::PAGE;
use crate::{Error, ErrorKind};

/// Fills `into` from `offset` on; returns how many bytes there were before the file ended.
pub(super) fn read_at(fd: &OwnedFd, into: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        let read = retry_on_intr(|| io::pread(fd, &mut into[done..], offset + done as u64))?;
        done += read;
        // A part of a page is the end of the file, and a read from there would not be aligned.
        if read == 0 || !done.is_multiple_of(PAGE) {
            break;
        }
    }
    Ok(done)
}

/// Writes all of `data` at `offset`.
pub(super) fn write_all_at(fd: &OwnedFd, data: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < data.len() {
        match retry_on_intr(|| io::pwrite(fd, &data[done..], offset + done as u64))? {
            0 => return Err(Errno::IO),
            written => done += written,
        }
    }
    Ok(())
}

/// The length the kernel reports for a file.
pub(super) fn len(st_size: i64) -> u64 {
    u64::try_from(st_size).expect("the kernel reports no negative length")
}

/// An error of the volume at `path` while `doing` something.
pub(super) fn error(path: &Path, doing: impl fmt::Display, errno: Errno) -> Error {
    let (kind, way_out) = meaning(errno);
    let way_out = if way_out.is_empty() { String::new() } else { format!(" ({way_out})") };
    let message = format!("volume {}: {doing}{way_out}", path.display());
    Error::with_source(kind, message, errno.into())
}

fn meaning(errno: Errno) -> (ErrorKind, &'static str) {
    match errno {
        Errno::NOENT => (ErrorKind::NotFound, ""),
        Errno::EXIST => (ErrorKind::AlreadyExists, ""),
        Errno::NOSPC | Errno::DQUOT => (ErrorKind::OutOfSpace, "make room or write elsewhere"),
        Errno::IO
        | Errno::NODEV
        | Errno::NXIO
        | Errno::STALE
        | Errno::REMOTEIO
        | Errno::NOTCONN
        | Errno::TIMEDOUT
        | Errno::HOSTDOWN => (
            ErrorKind::Unavailable,
            "see that the device is attached, healthy and mounted, then try again",
        ),
        Errno::ROFS => (
            ErrorKind::Unavailable,
            "the file system is read-only, perhaps after an error: mend and remount it",
        ),
        Errno::FBIG | Errno::OVERFLOW => (ErrorKind::Invalid, "no file is that long"),
        Errno::MFILE | Errno::NFILE => (ErrorKind::Io, "raise the limit of open files"),
        Errno::ACCESS | Errno::PERM => (ErrorKind::Io, "give this user the right to it"),
        _ => (ErrorKind::Io, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_where_what_and_the_way_out() {
        let e = error(Path::new("/mnt/a"), "write 512 bytes at 0 of x", Errno::NOSPC);
        assert_eq!(e.kind(), ErrorKind::OutOfSpace);
        assert_eq!(
            e.to_string(),
            "volume /mnt/a: write 512 bytes at 0 of x (make room or write elsewhere): \
             No space left on device (os error 28)"
        );
    }

    #[test]
    fn a_device_that_went_away_is_unavailable() {
        for errno in [Errno::IO, Errno::NODEV, Errno::STALE, Errno::ROFS] {
            assert_eq!(error(Path::new("/"), "x", errno).kind(), ErrorKind::Unavailable);
        }
    }

    #[test]
    fn a_device_that_takes_nothing_ends_a_write() {
        let full =
            rustix::fs::open("/dev/full", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty())
                .unwrap();
        assert_eq!(write_all_at(&full, b"bytes", 0), Err(Errno::NOSPC));
    }
}

//! System calls that finish what they begin, and what their errors mean.

use std::fmt;
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self, FallocateFlags, SeekFrom};
use rustix::io::{self, Errno, ReadWriteFlags, retry_on_intr};

use crate::buf::PAGE;
use crate::extent::{self, Extent, Zeros};
use crate::{Error, ErrorKind};

/// A system call that tests can make fail.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Call {
    /// Opens or creates a file.
    Open,
    Read,
    Write,
    SetLen,
    SetMode,
    /// Sets room aside.
    Allocate,
    /// Syncs a file or the directory.
    Sync,
}

/// Stands before each of these calls. In tests it fails as [`hook`] says.
#[cfg(not(test))]
pub(super) const fn before(_: Call) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
pub(super) use hook::before;

#[cfg(test)]
pub(super) mod hook {
    //! Errors of system calls, for the calls of one thread.

    use std::cell::RefCell;

    use rustix::io;

    use super::Call;

    type Hook = Box<dyn FnMut(Call) -> io::Result<()>>;

    thread_local! {
        static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
    }

    /// Removes the hook when it is dropped.
    pub(in super::super) struct Hooked(());

    /// Asks `hook` before each call of this thread.
    pub(in super::super) fn ask(hook: impl FnMut(Call) -> io::Result<()> + 'static) -> Hooked {
        HOOK.set(Some(Box::new(hook)));
        Hooked(())
    }

    pub(in super::super) fn before(call: Call) -> io::Result<()> {
        HOOK.with_borrow_mut(|hook| hook.as_mut().map_or(Ok(()), |hook| hook(call)))
    }

    impl Drop for Hooked {
        fn drop(&mut self) {
            HOOK.set(None);
        }
    }
}

/// Fills `into` from `offset` on; returns how many bytes there were before the file ended.
pub(super) fn read_at(fd: &OwnedFd, into: &mut [u8], offset: u64) -> io::Result<usize> {
    before(Call::Read)?;
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

/// A write that failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Unwritten {
    pub(super) errno: Errno,
    /// Some bytes were written before.
    pub(super) begun: bool,
}

impl From<Errno> for Unwritten {
    fn from(errno: Errno) -> Self {
        Self { errno, begun: false }
    }
}

impl From<Unwritten> for Errno {
    fn from(failed: Unwritten) -> Self {
        failed.errno
    }
}

/// The result of a write.
pub(super) type Written = Result<(), Unwritten>;

/// Writes all of `data` at `offset`.
pub(super) fn write_all_at(fd: &OwnedFd, data: &[u8], offset: u64) -> Written {
    let mut done = 0;
    while done < data.len() {
        let written = before(Call::Write)
            .and_then(|()| retry_on_intr(|| io::pwrite(fd, &data[done..], offset + done as u64)));
        match written {
            Ok(0) => return Err(Unwritten { errno: Errno::IO, begun: done > 0 }),
            Ok(written) => done += written,
            Err(errno) => return Err(Unwritten { errno, begun: done > 0 }),
        }
    }
    Ok(())
}

/// Writes all of `data` at `offset`, durably, with the length that it gives the file.
pub(super) fn write_all_durably_at(fd: &OwnedFd, data: &[u8], offset: u64) -> Written {
    let mut done = 0;
    while done < data.len() {
        let rest = [IoSlice::new(&data[done..])];
        let at = offset + done as u64;
        let written = before(Call::Write)
            .and_then(|()| before(Call::Sync))
            .and_then(|()| retry_on_intr(|| io::pwritev2(fd, &rest, at, ReadWriteFlags::DSYNC)));
        match written {
            Ok(0) => return Err(Unwritten { errno: Errno::IO, begun: done > 0 }),
            Ok(written) => done += written,
            Err(errno) => return Err(Unwritten { errno, begun: done > 0 }),
        }
    }
    Ok(())
}

/// Makes a range of a file zeros without a change of its length.
pub(super) fn zero(fd: &OwnedFd, range: &Range<u64>, room: Zeros) -> io::Result<()> {
    before(Call::Allocate)?;
    let how = match room {
        Zeros::Free => FallocateFlags::PUNCH_HOLE,
        Zeros::Keep => FallocateFlags::ZERO_RANGE,
    };
    let len = range.end - range.start;
    retry_on_intr(|| fs::fallocate(fd, how | FallocateFlags::KEEP_SIZE, range.start, len))
}

/// The extents of a range of a file.
pub(super) fn extents(fd: &OwnedFd, range: Range<u64>) -> io::Result<Vec<Extent>> {
    let seek = |to: SeekFrom| match fs::seek(fd, to) {
        Ok(at) => Ok(at.min(range.end)),
        // Behind the last data, or, in a race, behind the end of the file.
        Err(Errno::NXIO) => Ok(range.end),
        Err(errno) => Err(errno),
    };
    let (mut found, mut at) = (Vec::new(), range.start);
    while at < range.end {
        let data = seek(SeekFrom::Data(at))?;
        extent::push(&mut found, at..data, true);
        if data == range.end {
            break;
        }
        let hole = seek(SeekFrom::Hole(data))?;
        extent::push(&mut found, data..hole, false);
        at = hole;
    }
    Ok(found)
}

/// The length the kernel reports for a file.
pub(super) fn len(st_size: i64) -> u64 {
    u64::try_from(st_size).expect("the kernel reports no negative length")
}

/// An error of the volume at `path` while `doing` something.
pub(super) fn error(path: &Path, doing: impl fmt::Display, errno: Errno) -> Error {
    let (kind, way_out) = meaning(errno);
    failed(path, doing, errno, kind, way_out)
}

/// As [`error`] for a device that failed at the bytes of one object, and works otherwise.
pub(super) fn damaged(path: &Path, doing: impl fmt::Display, errno: Errno) -> Error {
    let way_out = "the volume works otherwise: use another copy, or restore the object";
    failed(path, doing, errno, ErrorKind::Io, way_out)
}

fn failed(
    path: &Path,
    doing: impl fmt::Display,
    errno: Errno,
    kind: ErrorKind,
    way_out: &str,
) -> Error {
    let way_out = if way_out.is_empty() { String::new() } else { format!(" ({way_out})") };
    let message = format!("volume {}: {doing}{way_out}", path.display());
    Error::with_source(kind, message, errno.into())
}

/// Whether the device or the file system failed at some bytes. The number does not tell an unreadable sector from a
/// device that is gone. With `O_DIRECT` a medium error is `NODATA`, a failed integrity check `ILSEQ`; file systems
/// answer `UCLEAN` or `BADMSG` where the checksum of their own block is wrong.
pub(super) const fn is_of_bytes(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::IO | Errno::NODATA | Errno::ILSEQ | Errno::REMOTEIO | Errno::UCLEAN | Errno::BADMSG
    )
}

/// Whether the file system has no room, or the user, group or project no more of it.
pub(super) const fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::DQUOT)
}

/// Sets room aside without changing the length, on file systems that can.
pub(super) fn preallocate(fd: &OwnedFd, len: Option<u64>) -> io::Result<()> {
    let Some(len) = len.filter(|&len| len > 0) else { return Ok(()) };
    before(Call::Allocate)?;
    match fs::fallocate(fd, FallocateFlags::KEEP_SIZE, 0, len) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        other => other,
    }
}

/// Errors of the process (limits, rights, memory) and unknown ones are `Busy`: they say nothing about stored bytes.
fn meaning(errno: Errno) -> (ErrorKind, &'static str) {
    match errno {
        Errno::NOENT => (ErrorKind::NotFound, ""),
        Errno::EXIST => (ErrorKind::AlreadyExists, ""),
        errno if is_full(errno) => (ErrorKind::OutOfSpace, "make room or write elsewhere"),
        Errno::NODEV
        | Errno::NXIO
        | Errno::STALE
        | Errno::NOLINK
        | Errno::NOTCONN
        | Errno::TIMEDOUT
        | Errno::HOSTDOWN => (ErrorKind::Unavailable, ATTACH),
        errno if is_of_bytes(errno) => (ErrorKind::Unavailable, ATTACH),
        Errno::ROFS => (
            ErrorKind::Unavailable,
            "the file system is read-only, perhaps after an error: mend and remount it",
        ),
        Errno::OPNOTSUPP | Errno::NOSYS => {
            (ErrorKind::Unsupported, "the file system cannot do that: do without")
        }
        Errno::FBIG | Errno::OVERFLOW => (ErrorKind::Invalid, "no file is that long"),
        Errno::MFILE | Errno::NFILE => (ErrorKind::Busy, "raise the limit of open files"),
        Errno::ACCESS | Errno::PERM => (ErrorKind::Busy, "give this user the right to it"),
        Errno::NOMEM | Errno::NOBUFS => (ErrorKind::Busy, "the system is short of memory"),
        _ => (ErrorKind::Busy, "the system refused the call: try again"),
    }
}

/// The way out where a device does not answer.
const ATTACH: &str = "see that the device is attached, healthy and mounted, then try again";

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
        for errno in [Errno::IO, Errno::NODATA, Errno::NODEV, Errno::STALE, Errno::ROFS] {
            assert_eq!(error(Path::new("/"), "x", errno).kind(), ErrorKind::Unavailable);
        }
    }

    #[test]
    fn what_the_process_lacks_is_no_error_of_the_volume() {
        for (errno, way_out) in [
            (Errno::MFILE, "limit of open files"),
            (Errno::NFILE, "limit of open files"),
            (Errno::ACCESS, "right"),
            (Errno::PERM, "right"),
            (Errno::NOMEM, "memory"),
            (Errno::INTR, "try again"),
            (Errno::BADF, "try again"),
        ] {
            let e = error(Path::new("/"), "x", errno);
            assert_eq!(e.kind(), ErrorKind::Busy, "{e}");
            assert!(e.to_string().contains(way_out), "{e}");
        }
    }

    #[test]
    fn a_device_that_takes_nothing_ends_a_write() {
        let full = fs::open("/dev/full", fs::OFlags::RDWR, fs::Mode::empty()).unwrap();
        let failed = Unwritten { errno: Errno::NOSPC, begun: false };
        assert_eq!(write_all_at(&full, b"bytes", 0), Err(failed));
    }
}

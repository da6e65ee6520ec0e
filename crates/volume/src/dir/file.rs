//! One object: a file, and the rules by which bytes get into and out of it.

use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use rustix::fs::{self, Mode};
use rustix::io::Errno;

use super::ahead::Ahead;
use super::pages::{Parts, within_page};
use super::sys::{Call, Unwritten};
use super::{AHEAD_MODE, FILE_FLAGS, FILE_MODE, Shared, sys};
use crate::buf::PAGE;
use crate::ranges::Ranges;
use crate::{Error, ErrorKind, Extent, IoBufMut, Name, Result, Zeros};

/// The longest file the kernel can address.
const LEN_MAX: u64 = i64::MAX as u64;

/// An open object. All handles of one object share it.
pub(super) struct File {
    pub(super) volume: Arc<Shared>,
    name: Name,
    pub(super) is_log: bool,
    /// Open with `O_DIRECT` if `direct`.
    pub(super) fd: OwnedFd,
    pub(super) direct: bool,
    /// The same file through the page cache, opened when a part of a page is first written.
    cached: OnceLock<OwnedFd>,
    /// Changed under `pages`.
    len: AtomicU64,
    /// Changes under way, also those whose callers gave up.
    pub(super) changes: Ranges,
    /// Bytes or a length may not be durable yet.
    is_unsynced: AtomicBool,
    /// Shared by writes of whole pages; exclusive for parts of pages and for changes of the length. What a log was written
    /// ahead.
    pub(super) pages: Arc<RwLock<Option<Ahead>>>,
    syncing: Mutex<()>,
    /// The change of the directory at which the object was made or found.
    born: u64,
    poisoned: AtomicBool,
}

impl File {
    pub(super) fn new(
        volume: Arc<Shared>,
        name: Name,
        is_log: bool,
        fd: OwnedFd,
        len: u64,
        born: u64,
    ) -> Self {
        Self {
            direct: volume.is_direct(is_log),
            poisoned: volume.health.has_lost(&name).into(),
            volume,
            name,
            is_log,
            fd,
            cached: OnceLock::new(),
            len: len.into(),
            changes: Ranges::default(),
            // An earlier process may have left some.
            is_unsynced: true.into(),
            pages: Arc::default(),
            syncing: Mutex::default(),
            born,
        }
    }

    pub(super) const fn name(&self) -> &Name {
        &self.name
    }

    pub(super) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// How many of `wanted` bytes at `offset` a read may give: the file of a log may be longer than the object.
    pub(super) fn readable(&self, offset: u64, wanted: usize) -> usize {
        let left = self.len().saturating_sub(offset);
        if self.is_log {
            usize::try_from(left).map_or(wanted, |left| left.min(wanted))
        } else {
            wanted
        }
    }

    pub(super) fn read_at(&self, offset: u64, mut into: IoBufMut) -> Result<IoBufMut> {
        into.resize(self.readable(offset, into.len()));
        let wanted = into.len();
        let read = if self.direct && within_page(offset) == 0 {
            let pages = &mut into.whole_pages_mut()[..wanted.next_multiple_of(PAGE)];
            self.read_into(offset, pages)?.min(wanted)
        } else {
            self.read_into(offset, &mut into)?
        };
        into.resize(read);
        Ok(into)
    }

    /// Reads into memory of any alignment; reads that direct I/O refuses go through an aligned
    /// buffer.
    pub(super) fn read_into(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let wanted = self.readable(offset, into.len());
        let into = &mut into[..wanted];
        if wanted == 0 || offset >= self.len() {
            return Ok(0);
        }
        let failed = |errno| self.unread(offset, wanted, errno);
        let skip = within_page(offset);
        let whole =
            skip == 0 && wanted.is_multiple_of(PAGE) && into.as_ptr().addr().is_multiple_of(PAGE);
        if whole || !self.direct {
            return sys::read_at(&self.fd, into, offset).map_err(failed);
        }
        let mut pages = IoBufMut::zeroed((skip + wanted).next_multiple_of(PAGE));
        let read = sys::read_at(&self.fd, &mut pages, offset - skip as u64).map_err(failed)?;
        let got = read.saturating_sub(skip).min(wanted);
        into[..got].copy_from_slice(&pages[skip..skip + got]);
        Ok(got)
    }

    pub(super) fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check_writable()?;
        if data.is_empty() {
            return Ok(());
        }
        let end = self.end(offset, data.len())?;
        let parts = Parts::of(offset, data.len());
        let written = if self.is_log {
            self.write_log(offset, data, end)
        } else if !self.direct {
            let _shared = self.pages.read();
            self.grow(end, sys::write_all_at(&self.fd, data, offset))
        } else if parts.are_whole() {
            let _shared = self.pages.read();
            self.grow(end, self.write_pages(data, offset))
        } else {
            let _exclusive = self.pages.write();
            self.grow(end, self.write_parts(parts, data, offset))
        };
        self.changed();
        written.map_err(|failed| self.unwritten(offset, data.len(), failed))
    }

    fn write_log(&self, offset: u64, data: &[u8], end: u64) -> sys::Written {
        let shared = self.pages.read();
        if shared.is_none() {
            return self.grow(end, sys::write_all_at(&self.fd, data, offset));
        }
        drop(shared);
        let mut ahead = self.pages.write();
        let len = self.len();
        match &*ahead {
            Some(_) if end <= len => sys::write_all_at(&self.fd, data, offset),
            Some(file) if offset <= len && file.has_room(end) => {
                let bytes = [data, &file.tail(end)].concat();
                let written = sys::write_all_at(&self.fd, &bytes, offset);
                if !written.is_err_and(|failed| !failed.begun) {
                    self.len.store(end, Ordering::Release);
                }
                written
            }
            Some(_) => {
                self.cut_ahead(&mut ahead)?;
                self.grow(end, sys::write_all_at(&self.fd, data, offset))
            }
            None => self.grow(end, sys::write_all_at(&self.fd, data, offset)),
        }
    }

    /// Writes at least `more` bytes behind the end of a log ahead; says whether it could. They may be lost until the next sync.
    pub(super) fn write_ahead(&self, more: u64) -> bool {
        if !self.is_log || more == 0 || self.check_writable().is_err() {
            return false;
        }
        let mut pages = self.pages.write();
        let (len, before) = (self.len(), *pages);
        let end = Ahead::end_for(len, more);
        if before.is_some_and(|file| end <= file.end) {
            return true;
        }
        // The next opening could not tell the file from one of a longer object.
        if before.is_none() && !self.keeps_mode(AHEAD_MODE) {
            return false;
        }
        self.changed();
        let file = match before {
            Some(file) => file.until(end),
            None => Ahead::draw(end),
        };
        // From the object's end, also where filling is already: with the bytes before it, it is one write.
        let mut bytes = file.tail(len);
        bytes.extend(file.filling(len + bytes.len() as u64..end));
        let written = sys::write_all_at(&self.fd, &bytes, len);
        *pages = Some(file);
        if let Err(Unwritten { errno, .. }) = written {
            tracing::debug!(
                "{}: {} is not written ahead: {errno}",
                self.volume.path.display(),
                self.name
            );
            // A file that is neither written ahead nor cut could be taken for a longer object.
            if let Err(errno) = self.cut_ahead(&mut pages) {
                let _ = self.poison(errno);
            }
            return false;
        }
        true
    }

    /// Makes the file as long as the object.
    fn cut_ahead(&self, ahead: &mut Option<Ahead>) -> rustix::io::Result<()> {
        if ahead.is_some() {
            sys::before(Call::SetLen)?;
            fs::ftruncate(&self.fd, self.len())?;
            *ahead = None;
            self.changed();
            fs::fchmod(&self.fd, FILE_MODE)?;
        }
        Ok(())
    }

    /// Gives the file a mode; says whether it has it then. Some file systems refuse or ignore the call (vfat, CIFS).
    fn keeps_mode(&self, mode: Mode) -> bool {
        let set = sys::before(Call::SetMode).and_then(|()| fs::fchmod(&self.fd, mode));
        let now = set.and_then(|()| fs::fstat(&self.fd));
        now.is_ok_and(|stat| Mode::from_raw_mode(stat.st_mode).contains(mode))
    }

    pub(super) fn unread(&self, offset: u64, wanted: usize, errno: Errno) -> Error {
        self.error(format_args!("read {wanted} bytes at {offset} of"), errno)
    }

    /// A change was made, which a sync that began before it may not cover.
    pub(super) fn changed(&self) {
        self.is_unsynced.store(true, Ordering::Release);
    }

    pub(super) fn end(&self, offset: u64, len: usize) -> Result<u64> {
        let end = offset.checked_add(len as u64).filter(|&end| end <= LEN_MAX);
        end.ok_or_else(|| {
            self.error(format_args!("write of {len} bytes at {offset} of"), Errno::FBIG)
        })
    }

    pub(super) fn unwritten(
        &self,
        offset: u64,
        len: usize,
        Unwritten { errno, begun }: Unwritten,
    ) -> Error {
        let e = self.error(format_args!("write {len} bytes at {offset} of"), errno);
        if begun { e.in_doubt() } else { e }
    }

    /// Whole pages go to the device in one forced write; others with the sync of the object.
    pub(super) fn write_durable(&self, offset: u64, data: &[u8]) -> Result<()> {
        if !self.direct || !Parts::of(offset, data.len()).are_whole() {
            self.write_at(offset, data)?;
            return self.sync();
        }
        self.check_writable()?;
        if !data.is_empty() {
            let end = self.end(offset, data.len())?;
            let _shared = self.pages.read();
            let written = match data.as_ptr().addr().is_multiple_of(PAGE) {
                true => sys::write_all_durably_at(&self.fd, data, offset),
                false => sys::write_all_durably_at(&self.fd, &IoBufMut::from(data), offset),
            };
            self.grow(end, written).map_err(|failed| {
                // The device may have lost earlier writes with it.
                if self.is_unsynced.load(Ordering::Acquire) && sys::is_of_bytes(failed.errno) {
                    return self.poison(failed.errno);
                }
                self.changed();
                self.unwritten(offset, data.len(), failed)
            })?;
        }
        self.settle_name()
    }

    pub(super) fn zero(&self, range: &Range<u64>, room: Zeros) -> Result<()> {
        self.check_writable()?;
        let _exclusive = self.pages.write();
        let range = range.start..range.end.min(self.len());
        if range.is_empty() {
            return Ok(());
        }
        let zeroed = sys::zero(&self.fd, &range, room);
        self.changed();
        zeroed.map_err(|errno| {
            let doing =
                format!("make {} bytes at {} zeros in", range.end - range.start, range.start);
            self.error(doing, errno)
        })
    }

    pub(super) fn extents(&self, range: Range<u64>) -> Result<Vec<Extent>> {
        sys::extents(&self.fd, range).map_err(|errno| self.error("look for holes in", errno))
    }

    /// Writes the parts in the order of their offsets, so that after a failure, too, the file ends
    /// with written bytes.
    fn write_parts(&self, parts: Parts, data: &[u8], offset: u64) -> sys::Written {
        let at = |part: usize| offset + part as u64;
        let after = |done: usize| {
            move |failed: Unwritten| Unwritten { begun: failed.begun || done > 0, ..failed }
        };
        let cached = self.cached()?;
        sys::write_all_at(cached, &data[parts.head.clone()], at(parts.head.start))?;
        self.write_pages(&data[parts.pages.clone()], at(parts.pages.start))
            .map_err(after(parts.pages.start))?;
        sys::write_all_at(cached, &data[parts.tail.clone()], at(parts.tail.start))
            .map_err(after(parts.tail.start))
    }

    /// Writes whole pages directly, from memory that is page-aligned too.
    fn write_pages(&self, pages: &[u8], offset: u64) -> sys::Written {
        if pages.as_ptr().addr().is_multiple_of(PAGE) {
            sys::write_all_at(&self.fd, pages, offset)
        } else {
            sys::write_all_at(&self.fd, &IoBufMut::from(pages), offset)
        }
    }

    /// Records the length after a write up to `end`. A failed write counts too: some of its bytes
    /// may be there.
    pub(super) fn grow(&self, end: u64, written: sys::Written) -> sys::Written {
        let end = match written {
            Ok(()) => end,
            Err(_) => fs::fstat(&self.fd).map_or(0, |stat| sys::len(stat.st_size)),
        };
        self.len.fetch_max(end, Ordering::AcqRel);
        written
    }

    pub(super) fn set_len(&self, len: u64) -> Result<()> {
        self.check_writable()?;
        let mut pages = self.pages.write();
        let cut = self.cut_ahead(&mut pages);
        let cut = cut.and_then(|()| sys::before(Call::SetLen));
        let cut = cut.and_then(|()| fs::ftruncate(&self.fd, len));
        self.changed();
        cut.map_err(|errno| self.error(format_args!("set to {len} bytes the length of"), errno))?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// Makes the file as long as the object, and syncs it.
    pub(super) fn seal(&self) -> Result<()> {
        self.check_writable()?;
        let cut = self.cut_ahead(&mut self.pages.write());
        cut.map_err(|errno| self.error("cut to its length", errno))?;
        self.sync()
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.sync_by(|| sys::before(Call::Sync).and_then(|()| fs::fdatasync(&self.fd)))
    }

    /// Makes bytes, length and name durable; `sync_bytes` makes the first two durable.
    pub(super) fn sync_by(
        &self,
        sync_bytes: impl FnOnce() -> rustix::io::Result<()>,
    ) -> Result<()> {
        // One sync at a time: the kernel reports a failure to one of concurrent syncs only.
        let _alone = self.syncing.lock();
        self.check_writable()?;
        self.is_unsynced.store(false, Ordering::Release);
        sync_bytes().map_err(|errno| self.poison(errno))?;
        self.settle_name()
    }

    fn settle_name(&self) -> Result<()> {
        let settled = self.volume.names.settle(self.born, || fs::fsync(&self.volume.objects));
        settled.map_err(|errno| self.poison(errno))
    }

    /// The same file without `O_DIRECT`, opened through this process' table of open files: its name
    /// may be gone, or belong to another object by now.
    fn cached(&self) -> rustix::io::Result<&OwnedFd> {
        if let Some(cached) = self.cached.get() {
            return Ok(cached);
        }
        let again = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        // The entry is a link to this very file.
        let flags = FILE_FLAGS.difference(fs::OFlags::NOFOLLOW);
        let fd = fs::open(again, flags, Mode::empty())?;
        Ok(self.cached.get_or_init(|| fd))
    }

    pub(super) fn check_writable(&self) -> Result<()> {
        if self.poisoned.load(Ordering::Acquire) {
            let message = format!(
                "volume {}: {}: a sync failed earlier: what the device holds is unknown",
                self.volume.path.display(),
                self.name
            );
            return Err(Error::new(ErrorKind::Poisoned, message));
        }
        Ok(())
    }

    /// A sync failed: returns the error, and makes every later call fail.
    fn poison(&self, errno: Errno) -> Error {
        self.poisoned.store(true, Ordering::Release);
        self.volume.health.poison(&self.name);
        let message = format!(
            "volume {}: sync {}: failed, so write it elsewhere and probe the volume",
            self.volume.path.display(),
            self.name
        );
        Error::with_source(ErrorKind::Poisoned, message, errno.into())
    }

    fn error(&self, doing: impl std::fmt::Display, errno: Errno) -> Error {
        self.volume.object_error(format_args!("{doing} {}", self.name), errno)
    }
}

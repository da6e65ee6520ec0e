//! Reads and writes of a file that hold no thread.
//!
//! Short ones go through a ring, [`IoPool::transfer`](crate::io_pool::IoPool::transfer). What a ring does not take (parts
//! of pages past the page cache, long transfers, a file system that would have to wait first) is made by a thread, as every
//! other call is. Appends to logs go through the page cache: a ring takes them on file systems that can refuse to wait,
//! as XFS and btrfs can and ext4 cannot. Durable writes are never for a ring: in it the kernel makes them durable on a
//! thread of its own, which took two to five times as long as `pwritev2` on ext4 (Linux 6.18).

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::file::File;
use super::pages::{Parts, within_page};
use super::sys::{self, Call, Unwritten};
use crate::buf::PAGE;
use crate::ranges::Claim;
use crate::ring::{BYTES_MAX, Memory, Transfer};
use crate::{IoBuf, IoBufMut, Result};

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What became of a write by the ring.
enum Outcome {
    Ended(Result<()>),
    /// A thread makes it, under the same claim.
    ByThread(Claim),
}

pub(super) async fn read(file: Arc<File>, offset: u64, mut into: IoBufMut) -> Result<IoBufMut> {
    into.resize(file.readable(offset, into.len()));
    let wanted = into.len();
    let skip = if file.direct { within_page(offset) } else { 0 };
    let len = if file.direct { (skip + wanted).next_multiple_of(PAGE) } else { wanted };
    if offset < file.len() && file.is_for_ring(len) {
        sys::before(Call::Read).map_err(|errno| file.unread(offset, wanted, errno))?;
        let at = offset - skip as u64;
        let (pages, outside) = match skip {
            0 => {
                into.resize(len);
                (into, None)
            }
            _ => (IoBufMut::unread(len), Some(into)),
        };
        let moved = file.transfer(at, Memory::Read(pages), |moved, memory| (moved, memory));
        let (moved, Memory::Read(mut pages)) = moved.await else { unreachable!("it was a read") };
        match moved {
            Ok(got) if got == len || at + got as u64 >= file.len() => {
                let got = got.saturating_sub(skip).min(wanted);
                let Some(mut into) = outside else {
                    pages.resize(got);
                    return Ok(pages);
                };
                into[..got].copy_from_slice(&pages[skip..skip + got]);
                into.resize(got);
                return Ok(into);
            }
            Err(errno) if !file.is_for_thread(errno) => {
                return Err(file.unread(offset, wanted, errno));
            }
            // A thread makes it from its start.
            _ => into = outside.unwrap_or(pages),
        }
        into.resize(wanted);
    }
    let reader = Arc::clone(&file);
    file.volume.io.run(move || reader.read_at(offset, into)).await
}

pub(super) async fn write(file: Arc<File>, offset: u64, data: IoBuf) -> Result<()> {
    let mut claim = file.changes.claim(span(offset, data.len() as u64)).await;
    if file.writes_by_ring(offset, &data) {
        match write_by_ring(&file, offset, data.clone(), claim).await? {
            Outcome::Ended(written) => return written,
            Outcome::ByThread(back) => claim = back,
        }
    }
    let writer = Arc::clone(&file);
    let write = move || {
        let written = writer.write_at(offset, &data);
        drop(claim);
        written
    };
    file.volume.io.run(write).await
}

async fn write_by_ring(
    file: &Arc<File>,
    offset: u64,
    data: IoBuf,
    claim: Claim,
) -> Result<Outcome> {
    let shared = file.pages.try_read_arc().filter(|ahead| ahead.is_none());
    let Some(shared) = shared else { return Ok(Outcome::ByThread(claim)) };
    file.check_writable()?;
    let (len, end) = (data.len(), file.end(offset, data.len())?);
    if sys::before(Call::Write).is_err() {
        // The thread fails in the same way, and says it in its words.
        return Ok(Outcome::ByThread(claim));
    }
    let writer = Arc::clone(file);
    let ended = move |moved: std::result::Result<usize, Errno>, _memory| {
        let written = match moved {
            Ok(moved) if moved == len => Ok(()),
            Err(errno) if !writer.is_for_thread(errno) => Err(Unwritten::from(errno)),
            _ => return Outcome::ByThread(claim),
        };
        let written = writer.grow(end, written);
        drop(shared);
        writer.changed();
        let written = written.map_err(|failed| writer.unwritten(offset, len, failed));
        drop(claim);
        Outcome::Ended(written)
    };
    Ok(file.transfer(offset, Memory::Write(data), ended).await)
}

/// The range of a call on `len` bytes at `offset`.
pub(super) const fn span(offset: u64, len: u64) -> Range<u64> {
    offset..offset.saturating_add(len)
}

fn is_whole_pages(offset: u64, data: &IoBuf) -> bool {
    Parts::of(offset, data.len()).are_whole() && data.as_ptr().addr().is_multiple_of(PAGE)
}

impl File {
    fn writes_by_ring(&self, offset: u64, data: &IoBuf) -> bool {
        let can = match self.direct {
            true => is_whole_pages(offset, data),
            false => self.volume.abilities.nowait_writes,
        };
        can && self.is_for_ring(data.len())
    }

    fn is_for_ring(&self, len: usize) -> bool {
        (1..=BYTES_MAX).contains(&len)
            && self.volume.io.has_ring()
            && self.volume.takes_rings.load(Ordering::Relaxed)
    }

    /// Whether a thread has to make a call that the ring gave back.
    fn is_for_thread(&self, errno: Errno) -> bool {
        match errno {
            // It would have waited, or its thread ended.
            Errno::AGAIN | Errno::CANCELED | Errno::INTR => true,
            Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS => {
                tracing::info!(
                    volume = %self.volume.path.display(),
                    "no io_uring here ({errno}): reads and writes go through threads"
                );
                self.volume.takes_rings.store(false, Ordering::Relaxed);
                true
            }
            _ => false,
        }
    }

    fn transfer<T, F>(
        self: &Arc<Self>,
        offset: u64,
        memory: Memory,
        ended: F,
    ) -> impl Future<Output = T> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(std::result::Result<usize, Errno>, Memory) -> T + Send + 'static,
    {
        let file: Arc<dyn AsFd + Send + Sync> = Arc::<Self>::clone(self);
        self.volume.io.transfer(Transfer { file, offset, memory }, ended)
    }
}

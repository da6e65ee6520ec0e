//! Appending: puts of many callers go into one file in groups, each written and synced at once.
//!
//! ```text
//!   put ─▶ queue ─▶ the first caller to lock the file writes for all ─▶ they count ─▶ answers
//! ```
//! Writes to a device are whole pages. The last page of a group is padded with zeros; if the group was small and the
//! page is not synced, the next group writes it again. Writes to the page cache have no padding. After a sync the next
//! record begins on a new page: synced bytes are never written again, so no crash can take them.
//!
//! A future may be dropped at any await. A task that finds an interrupted write abandons the file, since the write may
//! still arrive, and writes the group to a new one.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::lock::Mutex as AsyncMutex;
use parking_lot::Mutex;
use policy::merge::Death;
use policy::purpose::Io;
use volume::buf::PAGE;
use volume::{Error, ErrorKind, IoBuf, IoBufMut, Result};

use super::file::File;
use super::format::{self, Entry, HEADER_LEN, Head, Header, Kind, encode_entry, encode_record};
use super::stream::Stream;

/// Puts of up to about this many bytes are written together.
pub(super) const GROUP_MAX: u64 = 4 << 20;
/// A file is sealed when its hint would be longer: each open file holds that much in memory.
pub(super) const ENTRIES_MAX: usize = 16 << 20;
/// A page stays padded, and is not written again, if the padding is at most this part of the write: 1/8.
const PADDING_SHARE: usize = 8;
/// Buffers larger than this are not kept.
const BUFFER_KEPT: usize = 1 << 20;

/// A record to be written.
pub(super) struct Change {
    pub(super) key: Box<[u8]>,
    /// `None` for a tombstone.
    pub(super) value: Option<Bytes>,
    pub(super) sequence: u64,
    pub(super) death: Death,
}

impl Change {
    pub(super) fn kind(&self) -> Kind {
        if self.value.is_some() { Kind::Put } else { Kind::Tombstone }
    }

    /// The sequence at which it is certain to be dead; 0 if unknown.
    pub(super) fn dies(&self) -> u64 {
        self.death.known().map_or(0, |dies| dies.0)
    }

    pub(super) fn len(&self) -> u64 {
        format::record_len(self.key.len(), self.value.as_ref().map_or(0, Bytes::len)) as u64
    }
}

/// Records that count all at once, or not at all.
pub(super) struct Pending {
    pub(super) changes: Vec<Change>,
    pub(super) len: u64,
    pub(super) done: Arc<Done>,
}

impl Pending {
    /// The sequence that marks them as under way.
    pub(super) fn sequence(&self) -> u64 {
        self.changes[0].sequence
    }
}

/// The outcome of a group member, for the caller that waits.
#[derive(Default)]
pub(super) struct Done(Mutex<Ending>);

#[derive(Default)]
struct Ending {
    outcome: Option<std::result::Result<(), (ErrorKind, String)>>,
    waiting: Option<Waker>,
}

impl Done {
    pub(super) fn outcome(&self) -> Option<Result<()>> {
        let outcome = self.0.lock().outcome.clone()?;
        Some(outcome.map_err(|(kind, message)| Error::new(kind, message)))
    }

    pub(super) fn set(&self, outcome: &Result<()>) {
        let copy = match outcome {
            Ok(()) => Ok(()),
            Err(error) => Err((error.kind(), error.to_string())),
        };
        let waiting = {
            let mut ending = self.0.lock();
            ending.outcome = Some(copy);
            ending.waiting.take()
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Ready with the outcome. Only one task may wait at a time.
    pub(super) fn wait(&self) -> impl Future<Output = Result<()>> + Unpin {
        poll_fn(|cx: &mut Context<'_>| {
            if let Some(outcome) = self.outcome() {
                return Poll::Ready(outcome);
            }
            let mut ending = self.0.lock();
            ending.waiting = Some(cx.waker().clone());
            // The outcome may have been set in between.
            if ending.outcome.is_some() {
                cx.waker().wake_by_ref()
            }
            Poll::Pending
        })
    }
}

/// Appends to one stream.
pub(super) struct Writer {
    pub(super) stream: Stream,
    /// Its length is bounded by the callers, each of which waits for its answer.
    queue: Mutex<VecDeque<Pending>>,
    /// Locked by the task that writes.
    pub(super) output: AsyncMutex<Output>,
}

/// The state of writing.
#[derive(Default)]
pub(super) struct Output {
    pub(super) open: Option<Open>,
    /// Puts taken from the queue and not answered yet.
    pub(super) group: Vec<Pending>,
    /// A write or a sync is under way, or was interrupted.
    pub(super) writing: bool,
}

/// An open file and its buffer.
pub(super) struct Open {
    pub(super) file: Arc<File>,
    /// Bytes from `start` up to the last record.
    buffer: IoBufMut,
    /// A multiple of pages, except in the page cache.
    start: u64,
    /// The end of the last record written, and of the last one synced.
    pub(super) written: u64,
    pub(super) synced: u64,
    /// The end of what its last hint covers.
    pub(super) hinted: u64,
    /// The entries of its hint: of all records appended.
    pub(super) entries: Vec<u8>,
    pub(super) records: u32,
    /// The end of the last of them; the next record begins there or on a later page.
    records_end: u64,
    /// The state when all of its records counted: restored if a group cannot be written.
    mark: Mark,
    /// The state when all of its records were written.
    flushed: Mark,
}

#[derive(Clone, Copy)]
struct Mark {
    buffer: usize,
    start: u64,
    entries: usize,
    records: u32,
    records_end: u64,
}

impl Writer {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, queue: Mutex::default(), output: AsyncMutex::default() }
    }

    pub(super) fn push(&self, pending: Pending) {
        self.queue.lock().push_back(pending);
    }

    /// Whether the queue is empty.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.lock().is_empty()
    }

    /// Takes the next group, of at least one put: as much as fits into the bytes `left` in the open file, or else into
    /// the `new` bytes of another.
    pub(super) fn take_group(&self, left: u64, new: u64) -> Vec<Pending> {
        let mut queue = self.queue.lock();
        let fits = queue.front().is_some_and(|first| first.len <= left);
        let room = GROUP_MAX.min(if fits { left } else { new });
        let (mut group, mut bytes) = (Vec::new(), 0);
        while let Some(next) = queue.front() {
            if !group.is_empty() && bytes + next.len > room {
                break;
            }
            bytes += next.len;
            group.extend(queue.pop_front());
        }
        group
    }
}

impl Open {
    pub(super) fn new(file: Arc<File>, header: &Header) -> Self {
        let buffer = IoBufMut::from(&header.encode()[..]);
        let end = HEADER_LEN as u64;
        let mark = Mark { buffer: HEADER_LEN, start: 0, entries: 0, records: 0, records_end: end };
        Self {
            file,
            buffer,
            start: 0,
            written: 0,
            synced: 0,
            hinted: 0,
            entries: Vec::new(),
            records: 0,
            records_end: end,
            mark,
            flushed: mark,
        }
    }

    /// Where the next record begins.
    pub(super) fn end(&self) -> u64 {
        self.start + self.buffer.len() as u64
    }

    /// Bytes of the file, once all is written.
    pub(super) fn padded(&self) -> u64 {
        self.end().next_multiple_of(PAGE as u64)
    }

    pub(super) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Whether `len` more bytes fit into a file of `file_bytes`.
    pub(super) fn fits(&self, len: u64, file_bytes: u64) -> bool {
        self.records == 0 || (self.end() + len <= file_bytes && self.entries.len() < ENTRIES_MAX)
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.synced < self.written
    }

    /// All appended records count: later [`Open::undo`] and [`Open::cut`] go back to here.
    pub(super) fn counts(&mut self) {
        self.mark = self.now();
        self.flushed = self.mark;
    }

    fn now(&self) -> Mark {
        let Self { start, records, records_end, .. } = *self;
        let (buffer, entries) = (self.buffer.len(), self.entries.len());
        Mark { buffer, start, entries, records, records_end }
    }

    /// Appends a record to the buffer; gives its offset.
    pub(super) fn append(&mut self, head: Head, key: &[u8], value: &[u8]) -> u32 {
        let offset = u32::try_from(self.end()).expect("files are shorter than 4 GiB");
        let durable = u32::try_from(self.synced).expect("files are shorter than 4 GiB");
        let buffer = &mut self.buffer;
        let head = Head { durable, ..head };
        encode_record(self.file.seal, &head, key, value, |part| buffer.extend_from_slice(part));
        let len = format::record_len(key.len(), value.len()) as u32;
        let entry = Entry { sequence: head.sequence, offset, len, kind: head.kind, key };
        encode_entry(&entry, &mut self.entries);
        self.records += 1;
        self.records_end = self.end();
        offset
    }

    /// Writes the buffer. After an error the bytes behind the last successful write are unknown, and [`Open::undo`] or
    /// [`Open::cut_unwritten`] must follow.
    pub(super) async fn write(&mut self, io: Io) -> Result<()> {
        let end = self.end();
        if end == self.written {
            return Ok(());
        }
        let len = self.buffer.len();
        // The page cache gets only new bytes: the sync writes all of it, and pays for it.
        let is_log = self.file.object.is_log();
        let padded = if is_log { len } else { len.next_multiple_of(PAGE) };
        let mut pages = std::mem::replace(&mut self.buffer, IoBufMut::with_capacity(0));
        pages.extend_from_slice(&[0; PAGE][..padded - len]);
        let pages = pages.freeze();
        let written = self.file.object.write_at(self.start, pages.clone(), io).await;
        let until = if written.is_ok() { len } else { self.flushed.buffer };
        // To write the last page again costs a spinning disk a turn; to leave it padded costs some room.
        let is_closed = is_log || padded - len <= len / PADDING_SHARE;
        let keep = match &written {
            Ok(()) if is_closed => len,
            Ok(()) => len - len % PAGE,
            Err(_) => 0,
        };
        self.refill(pages, keep..until);
        written?;
        let done = if is_closed { padded } else { keep };
        self.start += done as u64;
        self.written = if is_closed { self.start } else { end };
        self.flushed = self.now();
        Ok(())
    }

    /// A sync of all written bytes succeeded: none of them is written again.
    pub(super) fn synced(&mut self) {
        self.close_page();
        self.synced = self.written;
    }

    /// Closes the pages written so far, so that a sync may begin: later writes leave them alone. Gives their end.
    pub(super) fn close_page(&mut self) -> u64 {
        if self.end() == self.written {
            self.start = self.padded();
            self.buffer.resize(0);
            self.written = self.start;
            self.flushed = self.now();
        }
        self.written
    }

    /// A sync that began at the end [`Open::close_page`] gave succeeded.
    pub(super) fn synced_until(&mut self, until: u64) {
        self.synced = self.synced.max(until);
    }

    /// Forgets records that do not count, none of which was written.
    pub(super) fn undo(&mut self) {
        assert_eq!(self.mark.start, self.start, "a group that was written is not undone");
        self.buffer.resize(self.mark.buffer);
        self.cut();
    }

    /// Forgets records that do not count, before the file is closed.
    pub(super) fn cut(&mut self) {
        self.cut_to(self.mark);
    }

    /// Forgets records after a write of them failed, before the file is closed; gives the end of the last one that is left.
    pub(super) fn cut_unwritten(&mut self) -> u64 {
        self.buffer.resize(self.flushed.buffer);
        self.cut_to(self.flushed);
        self.records_end
    }

    fn cut_to(&mut self, mark: Mark) {
        self.entries.truncate(mark.entries);
        self.records = mark.records;
        self.records_end = mark.records_end;
    }

    /// The end of the last record that counts, with the padding that was written: none in the page cache.
    pub(super) fn covers(&self) -> u64 {
        let Mark { start, buffer, records_end, .. } = self.mark;
        if self.file.object.is_log() { records_end } else { start + buffer as u64 }
    }

    /// Puts `range` of the written bytes back into the buffer.
    fn refill(&mut self, pages: IoBuf, range: std::ops::Range<usize>) {
        let kept = pages.slice(range);
        let small = kept.len() <= PAGE;
        self.buffer = if small {
            // Reuses the memory unless another holder has it.
            let mut page = [0; PAGE];
            page[..kept.len()].copy_from_slice(&kept);
            let len = kept.len();
            drop(kept);
            let mut buffer = pages
                .reclaim()
                .filter(|buffer| buffer.capacity() <= BUFFER_KEPT)
                .unwrap_or_else(|| IoBufMut::with_capacity(PAGE));
            buffer.extend_from_slice(&page[..len]);
            buffer
        } else {
            IoBufMut::from(&kept[..])
        };
    }
}

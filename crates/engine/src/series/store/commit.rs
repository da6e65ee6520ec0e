//! Writing the log: waiting callers write for each other.
//!
//! The caller that locks the writer writes, and syncs, all queued records. Its future may be dropped midway; the
//! unfinished chunks stay with the writer, and the next caller writes the same bytes to the same place again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use policy::purpose::{Io, Origin, Step};
use volume::{ErrorKind, Intent, IoBuf, Name, Object};

use super::queue::Chunk;
use super::{Inner, failed, in_doubt};
use crate::log::Durability;
use crate::series::{Error, Result};

const LOG: Io = Io::new(Origin::UserWrite, Step::Log);
/// The pause before a failed log is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How much longer than a volume's limit a write may take: a pool goes on with its other volumes then.
const GRACE: Duration = Duration::from_millis(1500);

#[derive(Default)]
pub(super) struct Writer {
    open: Option<OpenSegment>,
    under_way: VecDeque<Chunk>,
    /// Older segments written to since their last sync.
    unsynced: Vec<OpenSegment>,
    written: u64,
    synced: u64,
    /// The size of each existing segment, in bytes.
    sizes: BTreeMap<u32, u64>,
}

/// A segment that was written to.
struct OpenSegment {
    number: u32,
    object: Arc<dyn Object>,
    /// A write to it failed or was interrupted, and may still arrive.
    is_in_doubt: bool,
}

impl OpenSegment {
    /// Makes the segment durable when the writer has left it, and seals it: after a crash, a pool need not compare the
    /// copies of a sealed object. A segment that cannot be sealed is as good for the store.
    async fn end(&self) -> Result<()> {
        if !self.is_in_doubt {
            match self.object.seal(LOG).await {
                Ok(()) => return Ok(()),
                Err(error) => tracing::warn!(segment = self.number, %error,
                    "a segment of the write-ahead log is not sealed on its volume"),
            }
        }
        self.object.sync(LOG).await.map_err(|error| failed(&error))
    }
}

impl Writer {
    /// A writer that has not written yet, with the sizes of existing segments.
    pub(super) fn new(sizes: BTreeMap<u32, u64>) -> Self {
        Self { sizes, ..Self::default() }
    }

    /// The last segment that has more than `bytes` from its start to the end of the log.
    pub(super) fn last_before(&self, bytes: u64) -> Option<u32> {
        let mut newer = 0;
        let mut sizes = self.sizes.iter().rev();
        let found = sizes.find(|(_, size)| {
            newer += **size;
            newer > bytes
        });
        found.map(|(&segment, _)| segment)
    }
}

impl Inner {
    /// Waits until the records up to `ticket` are written, or durable. They count once written, or, with durability
    /// `Always`, once durable.
    ///
    /// # Errors
    /// `OutOfSpace` and `Busy`: the records are nowhere, and never will be; others: they do not count, but the next
    /// start may find them.
    pub(super) async fn commit(&self, ticket: u64, durable: bool) -> Result<()> {
        let mut writer = self.writer.lock().await;
        if writer.written < ticket || durable && writer.synced < ticket {
            self.waits_since.lock().get_or_insert_with(|| self.clock.now());
        }
        if writer.written < ticket
            && let Err(error) = self.write_queued(&mut writer).await
        {
            let error = self.cut_back(&mut writer, error).await;
            self.fail(&mut writer, &error);
        }
        let counts_durable = self.options.durability == Durability::Always;
        if !counts_durable {
            self.state().settle(writer.written);
        }
        if durable
            && writer.synced < ticket
            && let Err(error) = self.sync_written(&mut writer).await
        {
            writer.written = writer.synced;
            writer.open = None;
            writer.unsynced.clear();
            self.state().queue.failed_segments += 1;
            // The records are in the log, but a crash may take them.
            self.fail(&mut writer, &in_doubt(error));
            writer.synced = writer.written;
        }
        if counts_durable {
            self.state().settle(writer.synced);
        }
        *self.waits_since.lock() = None;
        drop(writer);
        self.state().queue.failure(ticket).map_or(Ok(()), Err)
    }

    async fn write_queued(&self, writer: &mut Writer) -> Result<()> {
        writer.under_way.append(&mut self.state().queue.chunks);
        while let Some(chunk) = writer.under_way.front() {
            let (segment, offset) = (chunk.segment, chunk.offset);
            if writer.open.as_ref().is_none_or(|open| open.number != segment) {
                // Whatever comes of it, there may be an object to remove.
                writer.sizes.entry(segment).or_default();
                let object = self.segment(segment).await?;
                let open = OpenSegment { number: segment, object, is_in_doubt: false };
                writer.unsynced.extend(writer.open.replace(open));
            }
            let open = writer.open.as_mut().expect("it was opened");
            let chunk = writer.under_way.front().expect("it is still there");
            let was_in_doubt = std::mem::replace(&mut open.is_in_doubt, true);
            let written = open.object.write_at(offset, IoBuf::from(&chunk.bytes[..]), LOG).await;
            written.map_err(|error| failed(&error))?;
            open.is_in_doubt = was_in_doubt;
            let chunk = writer.under_way.pop_front().expect("it is still there");
            writer.written = chunk.ticket;
            let size = writer.sizes.entry(segment).or_default();
            let end = chunk.offset + chunk.bytes.len() as u64;
            let grown = end.saturating_sub(*size);
            self.log.count_beside(self.volume_of(segment), grown, 0);
            self.wal_bytes.fetch_add(grown, Ordering::Relaxed);
            *size = end.max(*size);
        }
        *self.refusing.lock() = None;
        Ok(())
    }

    /// Cuts off what a failed write left in its segment, because a start would read it. If the cut fails, the write is
    /// in doubt, so the error does not say that it was refused.
    async fn cut_back(&self, writer: &mut Writer, error: Error) -> Error {
        let Some(OpenSegment { number, object, .. }) = &writer.open else { return error };
        let Some(chunk) = writer.under_way.front().filter(|chunk| chunk.segment == *number) else {
            return error;
        };
        if object.len() <= chunk.offset {
            return error;
        }
        let cut = match object.set_len(chunk.offset).await {
            Ok(()) => object.sync(LOG).await,
            failed => failed,
        };
        match cut {
            Ok(()) => error,
            Err(_) => in_doubt(error),
        }
    }

    async fn sync_written(&self, writer: &mut Writer) -> Result<()> {
        let reached = writer.written;
        while let Some(left) = writer.unsynced.last() {
            left.end().await?;
            writer.unsynced.pop();
        }
        if let Some(open) = &writer.open {
            open.object.sync(LOG).await.map_err(|error| failed(&error))?;
        }
        writer.synced = reached;
        Ok(())
    }

    /// Fails all records after the last written one. The writer leaves the segment; the next sync covers it.
    fn fail(&self, writer: &mut Writer, error: &Error) {
        tracing::warn!(store = %self.options.name, %error,
            "the write-ahead log failed: the store goes on in another segment");
        *self.refusing.lock() = Some(error.to_string());
        let mut state = self.state();
        state.withdraw(writer.written);
        state.queue.fail(writer.written, error);
        let ticket = state.queue.ticket;
        drop(state);
        writer.under_way.clear();
        writer.unsynced.extend(writer.open.take());
        writer.written = ticket;
    }

    /// Why users' writes are not taken now: the log failed, or does not answer.
    pub(super) fn log_refuses(&self) -> Option<String> {
        if let Some(why) = &*self.refusing.lock() {
            return Some(format!("the write-ahead log fails: {why}"));
        }
        let waited = self.clock.now().since((*self.waits_since.lock())?);
        (waited > self.options.timeout + GRACE).then(|| {
            format!("a write of the write-ahead log has had no answer for {} s", waited.as_secs())
        })
    }

    /// Whether a failed write has to be tried again, or one that its caller gave up has to be ended.
    fn is_log_left(&self) -> bool {
        self.refusing.lock().is_some()
            || self.waits_since.lock().is_some() && self.writer.try_lock().is_ok()
    }

    /// Retries a failed log until it works: writers may have given up meanwhile.
    pub(super) async fn watch_log(&self) {
        while !self.is_closing() {
            // A log that fails again shows as refused writes.
            self.heartbeats.watch.completed();
            self.clock.sleep(RETRY).await;
            if self.is_log_left() {
                let ticket = {
                    let queue = &mut self.state().queue;
                    if !queue.is_untouched() {
                        queue.rotate();
                    }
                    queue.begin();
                    queue.ticket
                };
                // It is logged where it fails.
                let _ = self.commit(ticket, true).await;
            }
        }
    }

    /// Opens a segment's object, or creates it.
    async fn segment(&self, segment: u32) -> Result<Arc<dyn Object>> {
        let volume = self.log.volume(self.volume_of(segment));
        let name = self.segment_name(segment);
        match volume.create(&name, &Intent::LOG).await {
            // A caller created it and was dropped.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                volume.open(&name).await.map_err(|error| failed(&error))
            }
            made => made.map_err(|error| failed(&error)),
        }
    }

    /// The position of a segment's volume.
    pub(super) fn volume_of(&self, segment: u32) -> usize {
        segment as usize % self.log.volumes()
    }

    /// Removes the segments before `floor`. If a removal fails, the next opening removes the segment.
    pub(super) async fn forget_segments(&self, floor: u32) {
        loop {
            let first = self.writer.lock().await.sizes.keys().next().copied();
            let Some(segment) = first.filter(|&first| first < floor) else { return };
            let position = self.volume_of(segment);
            let removed = self.log.volume(position).remove(&self.segment_name(segment)).await;
            let size = self.writer.lock().await.sizes.remove(&segment).unwrap_or(0);
            // No start reads it, even if it is still there.
            self.wal_bytes.fetch_sub(size, Ordering::Relaxed);
            match removed {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    let volume = &self.members[position].0;
                    tracing::warn!(%volume, %error,
                        "a segment of the write-ahead log stays until the next opening");
                }
                _ => self.log.count_beside(position, 0, size),
            }
        }
    }

    /// The name of a segment's object.
    pub(super) fn segment_name(&self, segment: u32) -> Name {
        let name = format!("{}-wal/{segment:08x}.log", self.options.name);
        Name::new(&name).expect("the store's name was checked")
    }
}

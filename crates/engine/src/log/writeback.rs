//! From the page cache to the device: where nobody waits for a sync, writes are gathered, so that a disk gets
//! them in large pieces, file after file.
//!
//! ```text
//!   group ─▶ page cache ─▶ answered        8 MiB of a file, or too much of all ─▶ sync, out of everybody's way
//! ```
//! A disk that is given each group as it comes turns once for each: between the end of one write and the
//! beginning of the next the sector has passed by. At 8 MiB that and the way from one open file to another
//! are some tenth of the time.
//!
//! [`Store::tend`](super::Store::tend) does it. Where it does not keep pace, or nobody runs it, those who put do,
//! before they write more.

use std::collections::BTreeMap;
use std::sync::Arc;

use volume::{ErrorKind, Result};

use super::state::Stream;
use super::writer::Writer;
use super::{Inner, WRITE};

/// What of a file is written back at once.
const PIECE: u64 = 8 << 20;
/// So much may be in the page cache for each volume: a piece of each open file and two on their way, up to this.
/// Where that is less than a piece of each, the file with most is written back from half of it on.
const DIRTY_MAX: u64 = 256 << 20;
/// But no more than this part of the volume, 1/32: a dead file cannot go before what killed it is durable.
const DIRTY_SHARE: u64 = 32;

/// Bytes in the page cache of one volume that are not durable yet.
pub(super) struct Dirty {
    max: u64,
    /// Of each stream's open file, those for which no sync has begun.
    waiting: BTreeMap<Stream, u64>,
    /// These, and those for which one has.
    total: u64,
}

impl Dirty {
    /// Of a volume of so many bytes, with up to so many files open.
    pub(super) fn of(capacity: u64, open: u64) -> Self {
        let max = (PIECE * (open + 2)).min(DIRTY_MAX).min(capacity / DIRTY_SHARE);
        Self { max, waiting: BTreeMap::new(), total: 0 }
    }

    /// Counts what was written; says whether there is something to write back now.
    pub(super) fn wrote(&mut self, stream: Stream, bytes: u64) -> bool {
        let waiting = self.waiting.entry(stream).or_default();
        *waiting += bytes;
        self.total += bytes;
        let bytes = *waiting;
        self.is_due(bytes)
    }

    fn is_due(&self, bytes: u64) -> bool {
        bytes >= PIECE || self.total >= self.max / 2
    }

    /// The stream to write back now.
    fn due(&self) -> Option<Stream> {
        let (&stream, &most) = self.waiting.iter().max_by_key(|&(_, &bytes)| bytes)?;
        self.is_due(most).then_some(stream)
    }

    fn is_full(&self) -> bool {
        self.total >= self.max
    }
}

/// Bytes of a stream that somebody writes back now.
pub(super) struct Claim<'a> {
    inner: &'a Inner,
    seat: usize,
    bytes: u64,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.inner.state().seats[self.seat].dirty.total -= self.bytes;
            self.inner.bell.ring();
        }
    }
}

impl Inner {
    /// Writes back what is due, until the store is closed.
    pub(super) async fn write_back_always(&self, seat: usize) {
        loop {
            let seen = self.bell.rings();
            if self.is_closing() {
                return;
            }
            if !self.write_back_due(seat).await {
                self.bell.after(seen).await;
            }
        }
    }

    /// Waits while there is too much in the page cache, and writes back meanwhile.
    pub(super) async fn hold_back(&self, seat: usize) {
        loop {
            let seen = self.bell.rings();
            if !self.state().seats[seat].dirty.is_full() {
                return;
            }
            if !self.write_back_due(seat).await {
                // All of it is on its way.
                self.bell.after(seen).await;
            }
        }
    }

    /// Says whether there was anything.
    async fn write_back_due(&self, seat: usize) -> bool {
        let due = {
            let state = self.state();
            let stream = state.seats[seat].dirty.due();
            stream.map(|stream| (stream, state.writers.get(&stream).map(Arc::clone)))
        };
        let Some((stream, writer)) = due else { return false };
        let claim = self.claim_stream(stream);
        if let Some(writer) = writer
            && let Err(error) = self.write_back(&writer, claim).await
        {
            // Who waits for durability hears of it, and so does the next who writes.
            tracing::warn!(volume = %self.disks[seat].label, %error, "writing back failed");
        }
        true
    }

    /// Whoever gets it syncs the stream, or need not.
    pub(super) fn claim_stream(&self, stream: Stream) -> Claim<'_> {
        let seat = stream.seat;
        let bytes = self.state().seats[seat].dirty.waiting.remove(&stream).unwrap_or_default();
        Claim { inner: self, seat, bytes }
    }

    /// Writes what is queued for a stream and makes its open file durable. Others go on writing while the
    /// device works.
    pub(super) async fn write_back(&self, writer: &Writer, _claim: Claim<'_>) -> Result<()> {
        let (file, until) = {
            let mut output = writer.output.lock().await;
            while !writer.is_idle() || !output.group.is_empty() {
                self.write_group(writer, &mut output).await;
            }
            let Some(open) = output.open.as_mut().filter(|open| open.is_dirty()) else {
                return Ok(());
            };
            let until = open.close_page();
            open.counts();
            (Arc::clone(&open.file), until)
        };
        let synced = self.sync_object(writer.stream.seat, &*file.object, WRITE).await;
        let mut output = writer.output.lock().await;
        if let Some(open) = output.open.as_mut().filter(|open| Arc::ptr_eq(&open.file, &file)) {
            match &synced {
                Ok(()) => open.synced_until(until),
                Err(error) if error.kind() == ErrorKind::Poisoned => {
                    self.abandon(writer, &mut output);
                }
                Err(_) => {}
            }
        }
        synced
    }
}

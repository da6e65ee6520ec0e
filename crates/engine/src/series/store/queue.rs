//! The queue of the write-ahead log, and the tickets that failed.
//!
//! A task that queues a record gets a ticket; a writer takes chunks from the front. A failure goes to all tasks whose
//! tickets it covers, and the log goes on in another segment.

use std::collections::VecDeque;

use super::wal;
use crate::log::StoreId;
use crate::series::Error;

/// Records to be written to the log.
pub(super) struct Queue {
    store: StoreId,
    pub(super) segment: u32,
    offset: u64,
    pub(super) chunks: VecDeque<Chunk>,
    /// Bytes queued since the store was opened; a write waits for its value here.
    pub(super) ticket: u64,
    /// Ranges of failed tickets, and why they failed.
    pub(super) failures: Vec<(u64, u64, Error)>,
    /// A segment failed since the catalogue was stored: its definitions may be nowhere else.
    pub(super) is_catalogue_owed: bool,
    /// How often a sync failed: answered rows of those segments are durable only once they are in blocks.
    pub(super) failed_segments: u64,
    /// How many of those failures no longer matter: all rows of their segments are in blocks.
    pub(super) replaced_segments: u64,
}

/// Bytes of a segment that are written in one call.
#[derive(Clone)]
pub(super) struct Chunk {
    pub(super) segment: u32,
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) ticket: u64,
}

/// A chunk is closed at this many bytes.
const CHUNK: usize = 4 << 20;
/// How many failures are kept apart.
const FAILURES: usize = 64;

impl Queue {
    pub(super) fn new(store: StoreId, segment: u32) -> Self {
        let chunks = VecDeque::new();
        Self {
            store,
            segment,
            offset: 0,
            chunks,
            ticket: 0,
            failures: Vec::new(),
            is_catalogue_owed: false,
            failed_segments: 0,
            replaced_segments: 0,
        }
    }

    /// Starts another segment.
    pub(super) fn rotate(&mut self) {
        self.segment += 1;
        self.offset = 0;
    }

    /// Whether the segment has at least this many bytes.
    pub(super) const fn is_segment_full(&self, bytes: u64) -> bool {
        self.offset >= bytes
    }

    pub(super) fn is_untouched(&self) -> bool {
        self.offset <= wal::HEADER as u64
    }

    /// Queues a record; gives the ticket to wait for.
    pub(super) fn push(&mut self, parts: &[&[u8]]) -> u64 {
        let fits = |chunk: &Chunk| chunk.segment == self.segment && chunk.bytes.len() < CHUNK;
        if !self.chunks.back().is_some_and(fits) {
            let (segment, offset) = (self.segment, self.offset);
            self.chunks.push_back(Chunk { segment, offset, bytes: Vec::new(), ticket: 0 });
        }
        let chunk = self.chunks.back_mut().expect("there is one");
        let before = chunk.bytes.len();
        if self.offset == 0 {
            chunk.bytes.extend_from_slice(&wal::header(self.store, self.segment));
        }
        let at = chunk.offset + chunk.bytes.len() as u64;
        wal::put_record(&mut chunk.bytes, self.segment, at, parts);
        let more = (chunk.bytes.len() - before) as u64;
        self.offset += more;
        self.ticket += more;
        chunk.ticket = self.ticket;
        self.ticket
    }

    /// Queues the header of a segment that has no record yet, so that the segment exists.
    pub(super) fn begin(&mut self) {
        let bytes = wal::header(self.store, self.segment).to_vec();
        self.offset = bytes.len() as u64;
        self.ticket += self.offset;
        let (segment, ticket) = (self.segment, self.ticket);
        self.chunks.push_back(Chunk { segment, offset: 0, bytes, ticket });
    }

    /// Fails everything after `done`: a start may find its records or not. The log goes on in another segment.
    pub(super) fn fail(&mut self, done: u64, error: &Error) {
        self.chunks.clear();
        self.is_catalogue_owed = true;
        self.failures.push((done, self.ticket, error.clone()));
        if self.failures.len() > FAILURES {
            // A task that still waits for one of the oldest only learns that its record may have failed.
            let (from, ..) = self.failures.remove(0);
            let why = "the write-ahead log failed several times meanwhile".to_string();
            self.failures[0] = (from, self.failures[0].1, Error::Unavailable(why));
        }
        self.rotate();
        // Later tickets are beyond the failed range, even if no record is queued until then.
        self.begin();
    }

    /// The last ticket that did not fail: it covers every record in the queue now.
    pub(super) fn standing(&self) -> u64 {
        let mut ticket = self.ticket;
        while let Some(&(from, ..)) =
            self.failures.iter().find(|(from, to, _)| *from < ticket && ticket <= *to)
        {
            ticket = from;
        }
        ticket
    }

    /// Why a ticket failed; `None` if it did not.
    pub(super) fn failure(&self, ticket: u64) -> Option<Error> {
        let of = self.failures.iter().find(|(from, to, _)| *from < ticket && ticket <= *to);
        of.map(|(_, _, error)| error.clone())
    }
}

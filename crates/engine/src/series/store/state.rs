//! What is known in memory: the catalogue, the buffers, and what the log still has to write.
//!
//! A row is taken in under one lock: its source and shape are looked up, and the same bytes are appended
//! to the source's buffer and to the log. What that costs does not depend on how many sources there are.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use policy::time::Instant;

use super::catalogue::{Catalogue, NONE};
use super::rows;
use super::sessions::Sessions;
use super::wal::{self, put_text, take_bytes, take_text, take_u32};
use crate::log::StoreId;
use crate::series::batch::{Strings, put_varint, take_value, take_varint};
use crate::series::memory::no_database;
use crate::series::{
    Batch, Error, Kind, REJECTED_MAX, Reason, Rejected, Result, RowRef, Session, Written,
};

/// A buffer may not be made smaller than this: blocks of a few rows cost more than they save.
const SOURCE_BYTES_MIN: usize = 256;

pub(super) struct State {
    pub(super) catalogue: Catalogue,
    pub(super) sessions: Sessions,
    buffers: Vec<Buffer>,
    free: Vec<u32>,
    /// Sources whose buffers are full.
    ready: VecDeque<u32>,
    /// Sources by the segment that has the oldest row of their buffer.
    aging: VecDeque<Aging>,
    /// Rows on their way into blocks.
    pub(super) taken: BTreeMap<u32, Arc<Taken>>,
    /// Bytes of buffers, those taken among them.
    pub(super) memory: usize,
    pub(super) queue: Queue,
    /// The next round of blocks.
    pub(super) round: u64,
    pub(super) limits: Limits,
    pub(super) accepted_points: u64,
}

/// The bounds of a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) buffer_bytes: usize,
    pub(super) source_bytes: usize,
    pub(super) segment_bytes: u64,
    pub(super) series: u64,
}

struct Buffer {
    source: u32,
    first: u32,
    is_ready: bool,
    rows: Vec<u8>,
}

struct Aging {
    segment: u32,
    since: Instant,
    sources: Vec<u32>,
}

/// The rows of a source that are on their way into blocks.
pub(super) struct Taken {
    pub(super) first: u32,
    pub(super) rows: Vec<u8>,
}

/// What the log has to write.
pub(super) struct Queue {
    store: StoreId,
    pub(super) segment: u32,
    offset: u64,
    pub(super) chunks: VecDeque<Chunk>,
    /// Bytes queued since the store was opened: what a write waits for.
    pub(super) ticket: u64,
    /// Tickets that failed, and why.
    pub(super) failures: Vec<(u64, u64, Error)>,
    /// A segment failed since the catalogue was stored: what it told may be told nowhere.
    pub(super) is_untold: bool,
}

/// Bytes of a segment that are written at once.
#[derive(Clone)]
pub(super) struct Chunk {
    pub(super) segment: u32,
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) ticket: u64,
}

/// A chunk is closed at this many bytes.
const CHUNK: usize = 4 << 20;

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
            is_untold: false,
        }
    }

    /// Begins another segment.
    pub(super) fn rotate(&mut self) {
        self.segment += 1;
        self.offset = 0;
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

    /// Queues the header of a segment nobody wrote to, so that the segment is there.
    pub(super) fn begin(&mut self) {
        let bytes = wal::header(self.store, self.segment).to_vec();
        self.offset = bytes.len() as u64;
        self.ticket += self.offset;
        let (segment, ticket) = (self.segment, self.ticket);
        self.chunks.push_back(Chunk { segment, offset: 0, bytes, ticket });
    }

    /// Everything after `done` failed: what was written there may or may not be found again. It goes on
    /// in another segment.
    pub(super) fn fail(&mut self, done: u64, error: &Error) {
        self.chunks.clear();
        self.is_untold = true;
        self.failures.push((done, self.ticket, error.clone()));
        if self.failures.len() > 64 {
            self.failures.remove(0);
        }
        self.rotate();
    }

    /// Why a ticket failed, if it did.
    pub(super) fn failure(&self, ticket: u64) -> Option<Error> {
        let of = self.failures.iter().find(|(from, to, _)| *from < ticket && ticket <= *to);
        of.map(|(_, _, error)| error.clone())
    }
}

impl State {
    pub(super) fn new(store: StoreId, segment: u32, limits: Limits) -> Self {
        Self {
            catalogue: Catalogue::default(),
            sessions: Sessions::default(),
            buffers: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            aging: VecDeque::new(),
            taken: BTreeMap::new(),
            memory: 0,
            queue: Queue::new(store, segment),
            round: 0,
            limits,
            accepted_points: 0,
        }
    }

    /// How many sources have a buffer.
    pub(super) fn active(&self) -> usize {
        self.buffers.len() - self.free.len()
    }

    /// When a buffer is full: less for each if there are so many that they would not fit. Those that fill
    /// it then are those that write most; the others wait for their age.
    fn source_bytes(&self) -> usize {
        let fair = self.limits.buffer_bytes / 2 / self.active().max(1);
        fair.clamp(SOURCE_BYTES_MIN, self.limits.source_bytes.max(SOURCE_BYTES_MIN))
    }

    /// Takes a batch in; gives what to answer, and the ticket to wait for.
    pub(super) fn accept(
        &mut self,
        batch: &Batch,
        session: Option<&Session>,
        wall: Duration,
        now: Instant,
    ) -> Result<(Written, u64)> {
        let name = batch.database();
        let facts = self.catalogue.databases.get(name).ok_or_else(|| no_database(name))?;
        let (database, cutoff) = (facts.id, facts.cutoff(wall));
        if let Some(session) = session
            && self.sessions.knows(session)?
        {
            let written = Written { repeated: true, ..Written::default() };
            return Ok((written, self.queue.ticket));
        }
        if self.queue.offset >= self.limits.segment_bytes {
            self.queue.rotate();
        }
        let (keys, shapes) = batch.counts();
        let mut taking = Taking {
            cutoff,
            database,
            newest: i64::MIN,
            keys: vec![(NONE, 0); keys],
            shape_numbers: vec![(NONE, 0); shapes],
            ..Taking::default()
        };
        let mut written = Written::default();
        for (at, row) in batch.rows().enumerate() {
            match self.take_row(&mut taking, &row, now) {
                Ok(points) => {
                    written.rows += 1;
                    written.points += points;
                }
                Err(reason) => {
                    written.refused += 1;
                    if written.rejected.len() < REJECTED_MAX {
                        written.rejected.push(Rejected { row: at, reason });
                    }
                }
            }
        }
        self.accepted_points += written.points as u64;
        if let Some(facts) = self.catalogue.databases.get_mut(name) {
            facts.newest = facts.newest.max(taking.newest);
        }
        if written.rows == 0 && session.is_none() {
            return Ok((written, self.queue.ticket));
        }
        let mut head = vec![wal::BATCH];
        put_text(&mut head, session.map_or(&[], |session| session.client.as_bytes()));
        put_varint(&mut head, session.map_or(0, |session| session.sequence));
        put_varint(&mut head, taking.shape_count);
        let mut middle = Vec::new();
        put_varint(&mut middle, taking.source_count);
        let parts = [&head, &taking.shapes, &middle, &taking.sources, &taking.rows];
        let ticket = self.queue.push(&parts.map(Vec::as_slice));
        if let Some(session) = session {
            self.sessions.add(&session.client, session.sequence);
        }
        Ok((written, ticket))
    }

    fn take_row(
        &mut self,
        taking: &mut Taking,
        row: &RowRef<'_>,
        now: Instant,
    ) -> std::result::Result<usize, Reason> {
        if row.time < taking.cutoff {
            return Err(Reason::Expired);
        }
        let catalogue = &mut self.catalogue;
        let too_many = Reason::TooManySeries(self.limits.series);
        let is_full = catalogue.series >= self.limits.series;
        // What a batch has several times is looked up once.
        let (known, measurement) = taking.keys[row.key_number as usize];
        let found = (known != NONE).then_some(known);
        let tags = &row.key[2 + row.measurement().len()..];
        let (found, measurement) = match found {
            Some(_) => (found, measurement),
            None => {
                let of = catalogue.measurement(taking.database, row.measurement(), !is_full);
                let of = of.ok_or_else(|| too_many.clone())?;
                (catalogue.find_source(of, tags), of)
            }
        };
        if is_full && catalogue.grows(measurement, found, row.shape) {
            return Err(too_many);
        }
        let known = &mut taking.shape_numbers[row.shape_number as usize];
        let shape = match *known {
            (shape, of) if shape != NONE && of == measurement => shape,
            _ => {
                let shape = catalogue.shape(measurement, row.shape)?;
                *known = (shape, measurement);
                shape
            }
        };
        let source = match found {
            Some(source) => source,
            None => {
                let source = catalogue.sources.len() as u32;
                catalogue.define_source(source, measurement, Strings(tags)).ok_or(too_many)?;
                source
            }
        };
        taking.keys[row.key_number as usize] = (source, measurement);
        let Shape { set, points } = {
            let shape = &catalogue.shapes[shape as usize];
            Shape { set: shape.set, points: shape.columns.len() }
        };
        catalogue.extend(source, set);
        self.tell(taking, source, shape, measurement, row);
        put_varint(&mut taking.rows, u64::from(source));
        let start = taking.rows.len();
        rows::put(&mut taking.rows, shape, row.time, row.values);
        taking.newest = taking.newest.max(row.time);
        let encoded = std::mem::take(&mut taking.rows);
        self.append(source, &encoded[start..], self.queue.segment, now);
        taking.rows = encoded;
        Ok(points)
    }

    /// Says in this segment what the numbers mean, if that was not said yet.
    fn tell(
        &mut self,
        taking: &mut Taking,
        source: u32,
        shape: u32,
        measurement: u32,
        row: &RowRef<'_>,
    ) {
        let catalogue = &mut self.catalogue;
        let segment = self.queue.segment;
        let facts = &mut catalogue.shapes[shape as usize];
        if facts.told != segment {
            facts.told = segment;
            let of = &catalogue.measurements[&measurement];
            taking.shape_count += 1;
            let into = &mut taking.shapes;
            put_varint(into, u64::from(shape));
            put_varint(into, u64::from(measurement));
            put_varint(into, u64::from(of.database));
            put_text(into, of.name.as_bytes());
            put_varint(into, facts.columns.len() as u64);
            for &(field, kind) in facts.columns.iter() {
                put_varint(into, u64::from(field));
                into.push(kind as u8);
                put_text(into, of.fields[usize::from(field)].0.as_bytes());
            }
        }
        let facts = &mut catalogue.sources[source as usize];
        if facts.told != segment {
            facts.told = segment;
            taking.source_count += 1;
            let into = &mut taking.sources;
            put_varint(into, u64::from(source));
            put_varint(into, u64::from(measurement));
            let name = 2 + usize::from(u16::from_le_bytes([row.key[0], row.key[1]]));
            put_text(into, &row.key[name..]);
        }
    }

    /// Adds an encoded row to its source's buffer.
    fn append(&mut self, source: u32, row: &[u8], segment: u32, now: Instant) {
        let full = self.source_bytes();
        let facts = &mut self.catalogue.sources[source as usize];
        if facts.buffer == NONE {
            let buffer = Buffer { source, first: segment, is_ready: false, rows: Vec::new() };
            facts.buffer = match self.free.pop() {
                Some(at) => {
                    self.buffers[at as usize] = buffer;
                    at
                }
                None => {
                    self.buffers.push(buffer);
                    self.buffers.len() as u32 - 1
                }
            };
            match self.aging.back_mut() {
                Some(last) if last.segment == segment => last.sources.push(source),
                _ => self.aging.push_back(Aging { segment, since: now, sources: vec![source] }),
            }
            self.memory += size_of::<Buffer>();
        }
        let buffer = &mut self.buffers[facts.buffer as usize];
        let before = buffer.rows.capacity();
        buffer.rows.extend_from_slice(row);
        self.memory += buffer.rows.capacity() - before;
        if !buffer.is_ready && buffer.rows.len() >= full {
            buffer.is_ready = true;
            self.ready.push_back(source);
        }
    }

    /// Whether there are full buffers.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes up to `max` full buffers on their way into blocks.
    pub(super) fn take_ready(&mut self, max: usize) {
        for _ in 0..max {
            let Some(source) = self.ready.pop_front() else { return };
            let is_ready = self.buffer(source).is_some_and(|buffer| buffer.is_ready);
            if is_ready {
                self.take(source);
            }
        }
    }

    /// Takes up to `max` buffers whose oldest row is in the oldest segment; none behind `through`.
    pub(super) fn take_oldest(&mut self, through: u32, max: usize) {
        let mut count = 0;
        while let Some(oldest) = self.aging.front_mut() {
            if oldest.segment > through || count >= max {
                return;
            }
            let segment = oldest.segment;
            let at = oldest.sources.len().saturating_sub(max - count);
            let sources = oldest.sources.split_off(at);
            if oldest.sources.is_empty() {
                self.aging.pop_front();
            }
            count += sources.len();
            for source in sources {
                if self.buffer(source).is_some_and(|buffer| buffer.first == segment) {
                    self.take(source);
                }
            }
        }
    }

    /// Takes a source's buffer, behind what was taken of it before.
    pub(super) fn take(&mut self, source: u32) {
        let Some(facts) = self.catalogue.sources.get_mut(source as usize) else { return };
        if facts.buffer == NONE {
            return;
        }
        let at = std::mem::replace(&mut facts.buffer, NONE);
        let buffer = &mut self.buffers[at as usize];
        buffer.is_ready = false;
        let rows = std::mem::take(&mut buffer.rows);
        let first = buffer.first;
        self.free.push(at);
        self.memory -= size_of::<Buffer>();
        let taken = match self.taken.remove(&source) {
            None => Taken { first, rows },
            Some(before) => {
                self.memory -= rows.capacity() + before.rows.capacity();
                let mut all = before.rows.clone();
                all.extend_from_slice(&rows);
                self.memory += all.capacity();
                Taken { first: before.first, rows: all }
            }
        };
        self.taken.insert(source, Arc::new(taken));
    }

    /// What was taken is in blocks.
    pub(super) fn put_down(&mut self, taken: &[(u32, Arc<Taken>)]) {
        for (source, taken) in taken {
            if self.taken.get(source).is_some_and(|now| Arc::ptr_eq(now, taken)) {
                self.taken.remove(source);
                self.memory -= taken.rows.capacity();
            }
        }
    }

    fn buffer(&self, source: u32) -> Option<&Buffer> {
        let at = self.catalogue.sources.get(source as usize)?.buffer;
        self.buffers.get(at as usize).filter(|buffer| buffer.source == source)
    }

    /// Rows of a source that are in no block yet, older ones first.
    pub(super) fn waiting(&self, source: u32) -> [&[u8]; 2] {
        let taken = self.taken.get(&source).map_or(&[][..], |taken| &taken.rows);
        [taken, self.buffer(source).map_or(&[][..], |buffer| &buffer.rows)]
    }

    /// The oldest segment that has rows which are in no block, and since when there are rows in it.
    pub(super) fn oldest(&mut self) -> Option<(u32, Instant)> {
        while let Some(front) = self.aging.front_mut() {
            while let Some(&source) = front.sources.last() {
                let at = self.catalogue.sources[source as usize].buffer;
                let buffer = self.buffers.get(at as usize);
                if buffer.is_some_and(|buffer| buffer.first == front.segment) {
                    return Some((front.segment, front.since));
                }
                front.sources.pop();
            }
            self.aging.pop_front();
        }
        None
    }

    /// Segments before this one have nothing that is not in blocks.
    pub(super) fn floor(&mut self) -> u32 {
        let taken = self.taken.values().map(|taken| taken.first).min();
        let oldest = self.oldest().map(|(segment, _)| segment);
        let queued = self.queue.chunks.front().map(|chunk| chunk.segment);
        [taken, oldest, queued].into_iter().flatten().fold(self.queue.segment, u32::min)
    }

    /// Takes in a batch again that is in the log. None if it makes no sense.
    pub(super) fn replay(
        &mut self,
        mut body: &[u8],
        segment: u32,
        numbers: &mut Numbers,
        now: Instant,
    ) -> Option<()> {
        let from = &mut body;
        let client = take_text(from)?.to_string();
        let sequence = take_varint(from)?;
        for _ in 0..take_varint(from)? {
            let (number, measurement) = (take_u32(from)?, take_u32(from)?);
            let (database, name) = (take_u32(from)?, take_text(from)?);
            let is_there = self.catalogue.databases.values().any(|facts| facts.id == database);
            if is_there {
                self.catalogue.define_measurement(measurement, database, name);
            }
            let mut columns = Vec::new();
            for _ in 0..take_varint(from)? {
                let field = u16::try_from(take_varint(from)?).ok()?;
                let (&kind, rest) = from.split_first()?;
                *from = rest;
                let kind = Kind::from_byte(kind)?;
                let name = take_text(from)?;
                if is_there && !self.catalogue.define_field(measurement, field, name, kind) {
                    return None;
                }
                columns.push((field, kind));
            }
            let shape = is_there.then(|| self.catalogue.add_shape(measurement, columns.clone()));
            numbers.shapes.insert(number, (shape, columns));
        }
        for _ in 0..take_varint(from)? {
            let (source, measurement) = (take_u32(from)?, take_u32(from)?);
            let tags = take_bytes(from)?;
            let is_there = self.catalogue.measurements.contains_key(&measurement);
            if is_there && !self.catalogue.has_source(source) {
                self.catalogue.define_source(source, measurement, Strings(tags))?;
            }
        }
        while !from.is_empty() {
            let source = take_u32(from)?;
            let (number, time) = rows::take_head(from)?;
            let (shape, columns) = numbers.shapes.get(&number)?;
            let values = *from;
            for &(_, kind) in columns {
                take_value(from, kind)?;
            }
            let Some(shape) = *shape else { continue };
            if !self.catalogue.has_source(source) {
                return None;
            }
            let mut row = Vec::new();
            rows::put(&mut row, shape, time, &values[..values.len() - from.len()]);
            let facts = &self.catalogue.shapes[shape as usize];
            let (set, measurement) = (facts.set, facts.measurement);
            self.catalogue.extend(source, set);
            let database = self.catalogue.measurements[&measurement].database;
            let mut all = self.catalogue.databases.values_mut();
            if let Some(facts) = all.find(|facts| facts.id == database) {
                facts.newest = facts.newest.max(time);
            }
            self.append(source, &row, segment, now);
        }
        if !client.is_empty() {
            self.sessions.add(&client, sequence);
        }
        Some(())
    }
}

/// What a segment's numbers of shapes mean now; no shape if its database is gone.
#[derive(Default)]
pub(super) struct Numbers {
    shapes: BTreeMap<u32, (Option<u32>, Fields)>,
}

/// The fields of a shape, by their numbers, and what they hold.
type Fields = Vec<(u16, Kind)>;

struct Shape {
    set: u32,
    points: usize,
}

/// A batch that is taken in.
#[derive(Default)]
struct Taking {
    database: u32,
    cutoff: i64,
    /// The source and measurement of each key of the batch, and the shape and measurement of each shape, once
    /// they were looked up.
    keys: Vec<(u32, u32)>,
    shape_numbers: Vec<(u32, u32)>,
    newest: i64,
    shapes: Vec<u8>,
    shape_count: u64,
    sources: Vec<u8>,
    source_count: u64,
    rows: Vec<u8>,
}

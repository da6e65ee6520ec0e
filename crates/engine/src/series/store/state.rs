//! The state in memory: the catalogue, and rows on their way from a writer to a block.
//!
//! A row is accepted under one lock: its source and shape are looked up, and the same bytes go to the source's buffer
//! and to the log. The cost does not depend on the number of sources.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use policy::time::Instant;

use super::away::Away;
use super::catalogue::{Catalogue, Grown};
use super::cuts::Owed;
use super::queue::Queue;
use super::rows;
use super::sessions::Sessions;
use super::shapes::Order;
use super::sources::NONE;
use super::wal::{self, put_text};
use crate::log::StoreId;
use crate::series::batch::{Strings, put_varint, shape_fields};
use crate::series::memory::no_database;
use crate::series::{
    Batch, REJECTED_MAX, Reason, Rejected, Result, RowRef, Session, Value, Written,
};

/// The smallest limit of a buffer: blocks of a few rows cost more than they save.
const SOURCE_BYTES_MIN: usize = 256;

pub(super) struct SeriesState {
    pub(super) catalogue: Catalogue,
    /// Sessions of clients, with their stored batches.
    pub(super) sessions: Sessions,
    buffers: Vec<Buffer>,
    free: Vec<u32>,
    /// Sources whose buffers are full.
    ready: VecDeque<u32>,
    /// Sources by the segment of the oldest row in their buffer.
    aging: VecDeque<Aging>,
    /// Rows being written to blocks, by source.
    pub(super) taken: BTreeMap<u32, Arc<Taken>>,
    /// Bytes of buffers, taken ones included, and of the shapes of their rows.
    pub(super) memory: usize,
    pub(super) queue: Queue,
    /// The next round of blocks.
    pub(super) round: u64,
    pub(super) limits: Limits,
    pub(super) accepted_points: u64,
    /// Changes that are not in the log yet, in its order: reads do not see them.
    staged: VecDeque<Staged>,
    /// Deletes that are not carried out in blocks yet, in their order.
    pub(super) owed: VecDeque<Arc<Owed>>,
    pub(super) away: Away,
}

/// A change that counts once the log has it.
struct Staged {
    ticket: u64,
    segment: u32,
    since: Instant,
    change: Change,
}

enum Change {
    Batch(StagedBatch),
    /// Takes the buffered rows of these sources.
    Take(Vec<u32>),
}

struct StagedBatch {
    database: String,
    newest: i64,
    points: u64,
    session: Option<Session>,
    /// Encoded as in the log.
    rows: Vec<u8>,
    ends: Vec<StagedRow>,
}

/// A row that is not in the log yet.
#[derive(Clone, Copy)]
struct StagedRow {
    source: u32,
    shape: u32,
    /// Its start and end in the batch's rows, without its source.
    start: u32,
    end: u32,
}

/// The limits of a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) buffer_bytes: usize,
    pub(super) source_bytes: usize,
    pub(super) segment_bytes: u64,
    pub(super) series: u64,
    /// The longest value that fits a block, and the longest record of a source that the log store takes.
    pub(super) value_bytes: usize,
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

/// The rows of a source that are being written to blocks.
pub(super) struct Taken {
    pub(super) first: u32,
    pub(super) rows: Vec<u8>,
}

impl SeriesState {
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
            staged: VecDeque::new(),
            owed: VecDeque::new(),
            away: Away::default(),
        }
    }

    /// How many sources have a buffer.
    pub(super) fn active(&self) -> usize {
        self.buffers.len() - self.free.len()
    }

    /// The size at which a buffer is full: smaller when too many sources have one. The sources that reach it then write
    /// most; others wait for their age.
    fn source_bytes(&self) -> usize {
        let fair = self.limits.buffer_bytes / 2 / self.active().max(1);
        fair.clamp(SOURCE_BYTES_MIN, self.limits.source_bytes.max(SOURCE_BYTES_MIN))
    }

    /// Accepts a batch; gives the answer, and the ticket to wait for. The batch counts when the log has it:
    /// [`SeriesState::settle`]. `takes` says for each volume whether its log has room for the batch.
    pub(super) fn accept(
        &mut self,
        batch: &Batch,
        session: Option<&Session>,
        takes: &[bool],
        wall: Duration,
        now: Instant,
    ) -> Result<(Written, u64)> {
        let name = batch.database();
        let facts = self.catalogue.databases.get(name).ok_or_else(|| no_database(name))?;
        let (database, cutoff) = (facts.id, facts.cutoff(wall));
        if let Some(session) = session {
            if self.sessions.knows(session)? {
                let written = Written { repeated: true, ..Written::default() };
                return Ok((written, self.queue.ticket));
            }
            self.sessions.make_place(&session.client, now)?;
        }
        // The same batch is in flight: this one gets the same outcome.
        if let Some(ticket) = session.and_then(|session| self.staged_ticket(session)) {
            return Ok((Written { repeated: true, ..Written::default() }, ticket));
        }
        if self.queue.is_segment_full(self.limits.segment_bytes) {
            self.queue.rotate();
        }
        for _ in 0..takes.len() {
            if !takes[self.queue.segment as usize % takes.len()] && takes.contains(&true) {
                self.queue.rotate();
            }
        }
        let (keys, shapes) = batch.counts();
        let mut taking = Taking {
            cutoff,
            database,
            newest: i64::MIN,
            keys: vec![(NONE, 0); keys],
            shape_numbers: vec![ShapeFound::default(); shapes],
            ..Taking::default()
        };
        let mut written = Written::default();
        for (at, row) in batch.rows().enumerate() {
            match self.take_row(&mut taking, &row) {
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
        self.catalogue.settle(std::mem::take(&mut taking.grown));
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
        let batch = StagedBatch {
            database: name.to_string(),
            newest: taking.newest,
            points: written.points as u64,
            session: session.cloned(),
            rows: taking.rows,
            ends: taking.ends,
        };
        self.stage(ticket, Change::Batch(batch), now);
        Ok((written, ticket))
    }

    /// Takes the buffered rows of these sources once the log has everything queued up to `ticket`.
    pub(super) fn stage_take(&mut self, ticket: u64, sources: Vec<u32>, now: Instant) {
        self.stage(ticket, Change::Take(sources), now);
    }

    fn stage(&mut self, ticket: u64, change: Change, since: Instant) {
        let staged = Staged { ticket, segment: self.queue.segment, since, change };
        self.memory += staged.memory();
        self.staged.push_back(staged);
    }

    fn staged_ticket(&self, session: &Session) -> Option<u64> {
        let is_it = |staged: &&Staged| match &staged.change {
            Change::Batch(batch) => batch.session.as_ref() == Some(session),
            Change::Take(_) => false,
        };
        self.staged.iter().find(is_it).map(|staged| staged.ticket)
    }

    /// The log has everything up to this ticket: these changes count from now on.
    pub(super) fn settle(&mut self, upto: u64) {
        while let Some(staged) = self.staged.pop_front_if(|staged| staged.ticket <= upto) {
            self.memory -= staged.memory();
            let batch = match staged.change {
                Change::Batch(batch) => batch,
                Change::Take(sources) => {
                    sources.into_iter().for_each(|source| self.take(source));
                    continue;
                }
            };
            for row in batch.ends {
                // The source may have been dropped meanwhile.
                if self.catalogue.has_source(row.source) {
                    let bytes = &batch.rows[row.start as usize..row.end as usize];
                    self.append(row.source, bytes, staged.segment, staged.since);
                } else {
                    self.let_go(row.shape, 1);
                }
            }
            self.accepted_points += batch.points;
            if let Some(facts) = self.catalogue.databases.get_mut(&batch.database) {
                facts.newest = facts.newest.max(batch.newest);
            }
            if let Some(session) = batch.session {
                self.sessions.add(&session.client, session.sequence, staged.since);
            }
        }
    }

    /// Drops the changes after this ticket, which are not in the log and never count.
    pub(super) fn withdraw(&mut self, after: u64) {
        while let Some(staged) = self.staged.pop_back_if(|staged| staged.ticket > after) {
            self.memory -= staged.memory();
            if let Change::Batch(batch) = staged.change {
                batch.ends.iter().for_each(|row| self.let_go(row.shape, 1));
            }
        }
    }

    /// Rows of a shape are neither in a buffer nor on their way to one.
    pub(super) fn let_go(&mut self, shape: u32, rows: usize) {
        let before = self.catalogue.shape_bytes;
        self.catalogue.let_go(shape, rows);
        self.memory -= before - self.catalogue.shape_bytes;
    }

    fn take_row(
        &mut self,
        taking: &mut Taking,
        row: &RowRef<'_>,
    ) -> std::result::Result<usize, Reason> {
        if row.time < taking.cutoff {
            return Err(Reason::Expired);
        }
        let max = self.limits.value_bytes;
        if row.values.len() > max {
            let is_long =
                |value: &Value<'_>| matches!(value, Value::Text(text) if text.len() > max);
            if let Some((field, _)) = row.fields().find(|(_, value)| is_long(value)) {
                return Err(Reason::TooLong { field: field.into(), max });
            }
        }
        let catalogue = &mut self.catalogue;
        let too_many = Reason::TooManySeries(self.limits.series);
        let is_full = catalogue.series >= self.limits.series;
        // A key that a batch has several times is looked up once.
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
        if is_full && catalogue.grows(measurement, found, row.shape, &taking.grown) {
            return Err(too_many);
        }
        let known = &mut taking.shape_numbers[row.shape_number as usize];
        if known.shape == NONE || known.of != measurement {
            let before = catalogue.shape_bytes;
            let (shape, order) = catalogue.shape(measurement, row.shape)?;
            self.memory += catalogue.shape_bytes - before;
            *known = ShapeFound { shape, of: measurement, order };
        }
        let (shape, set, points) = {
            let facts = &catalogue.shapes[known.shape as usize];
            (known.shape, facts.set, facts.columns.len())
        };
        if catalogue.record_bytes(found, tags, set, &taking.grown) > self.limits.value_bytes {
            return Err(Reason::TooManyFields(row.measurement().to_string()));
        }
        let source = match found {
            Some(source) => source,
            None => {
                let source = catalogue.sources.next();
                catalogue.define_source(source, measurement, Strings(tags)).ok_or(too_many)?;
                source
            }
        };
        taking.keys[row.key_number as usize] = (source, measurement);
        catalogue.extend(source, set, &mut taking.grown);
        put_varint(&mut taking.rows, u64::from(source));
        let start = taking.rows.len();
        match &taking.shape_numbers[row.shape_number as usize].order {
            None => rows::put(&mut taking.rows, shape, row.time, row.values),
            Some(order) => {
                let kinds = shape_fields(row.shape).map(|(_, kind)| kind);
                rows::put_ordered(&mut taking.rows, shape, row.time, row.values, kinds, order)
                    .expect("a row has a value for each field");
            }
        }
        self.log_definitions(taking, source, shape, measurement, row);
        taking.newest = taking.newest.max(row.time);
        self.catalogue.shapes[shape as usize].rows += 1;
        let (start, end) = (start as u32, taking.rows.len() as u32);
        taking.ends.push(StagedRow { source, shape, start, end });
        Ok(points)
    }

    /// Defines source and shape in this segment of the log, unless it has their definitions.
    fn log_definitions(
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
        if facts.logged_in != segment {
            facts.logged_in = segment;
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
        let facts = &mut catalogue.sources[source];
        if facts.logged_in != segment {
            facts.logged_in = segment;
            taking.source_count += 1;
            let into = &mut taking.sources;
            put_varint(into, u64::from(source));
            put_varint(into, u64::from(measurement));
            let name = 2 + usize::from(u16::from_le_bytes([row.key[0], row.key[1]]));
            put_text(into, &row.key[name..]);
        }
    }

    /// Appends an encoded row to its source's buffer.
    pub(super) fn append(&mut self, source: u32, row: &[u8], segment: u32, now: Instant) {
        let facts = &mut self.catalogue.sources[source];
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
        let at = facts.buffer as usize;
        let buffer = &mut self.buffers[at];
        let before = buffer.rows.capacity();
        buffer.rows.extend_from_slice(row);
        self.memory += buffer.rows.capacity() - before;
        let (is_ready, len) = (buffer.is_ready, buffer.rows.len());
        if !is_ready && len >= SOURCE_BYTES_MIN && len >= self.source_bytes() {
            self.buffers[at].is_ready = true;
            self.ready.push_back(source);
        }
    }

    /// Whether there are full buffers.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes up to `max` full buffers, to be written to blocks.
    pub(super) fn take_ready(&mut self, max: usize) {
        for _ in 0..max {
            let Some(source) = self.ready.pop_front() else { return };
            let is_ready = self.buffer(source).is_some_and(|buffer| buffer.is_ready);
            if is_ready {
                self.take(source);
            }
        }
    }

    /// Takes up to `max` buffers whose oldest row is in the oldest segment; none beyond `through`.
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

    /// Takes a source's buffer, and appends it to rows taken before.
    pub(super) fn take(&mut self, source: u32) {
        let Some(facts) = self.catalogue.sources.get_mut(source) else { return };
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

    /// Taken rows are in blocks now. `shapes` says how many there were of each shape.
    pub(super) fn put_down(&mut self, taken: &[(u32, Arc<Taken>)], shapes: &HashMap<u32, usize>) {
        for (source, taken) in taken {
            // The same rows as then: only the task that writes blocks takes rows.
            self.taken.remove(source);
            self.memory -= taken.rows.capacity();
        }
        let shapes = shapes.iter().filter(|(_, rows)| **rows > 0);
        shapes.for_each(|(&shape, &rows)| self.let_go(shape, rows));
    }

    /// The sources of rows that are not in the log yet.
    pub(super) fn staged_sources(&self) -> HashSet<u32> {
        let batch = |staged: &'_ Staged| match &staged.change {
            Change::Batch(batch) => batch.ends.iter().map(|row| row.source).collect(),
            Change::Take(_) => Vec::new(),
        };
        self.staged.iter().flat_map(batch).collect()
    }

    /// Whether a source has rows that are in no block; staged rows do not count.
    pub(super) fn is_waiting(&self, source: u32) -> bool {
        self.waiting(source).iter().any(|rows| !rows.is_empty())
    }

    fn buffer(&self, source: u32) -> Option<&Buffer> {
        let at = self.catalogue.sources.get(source)?.buffer;
        self.buffers.get(at as usize).filter(|buffer| buffer.source == source)
    }

    /// Rows of a source that are in no block yet, older ones first.
    pub(super) fn waiting(&self, source: u32) -> [&[u8]; 2] {
        let taken = self.taken.get(&source).map_or(&[][..], |taken| &taken.rows);
        [taken, self.buffer(source).map_or(&[][..], |buffer| &buffer.rows)]
    }

    /// The oldest segment with rows that are in no block, and the time of its first row.
    pub(super) fn oldest(&mut self) -> Option<(u32, Instant)> {
        while let Some(front) = self.aging.front_mut() {
            while let Some(&source) = front.sources.last() {
                let at = self.catalogue.sources[source].buffer;
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

    /// The first segment that is still needed: all rows of earlier ones are in blocks.
    pub(super) fn floor(&mut self) -> u32 {
        let taken = self.taken.values().map(|taken| taken.first).min();
        let oldest = self.oldest().map(|(segment, _)| segment);
        let queued = self.queue.chunks.front().map(|chunk| chunk.segment);
        let staged = self.staged.front().map(|staged| staged.segment);
        let owed = self.owed.front().map(|owed| owed.segment);
        [taken, oldest, queued, staged, owed]
            .into_iter()
            .flatten()
            .fold(self.queue.segment, u32::min)
    }
}

/// A shape that was looked up.
#[derive(Clone)]
struct ShapeFound {
    shape: u32,
    /// The measurement of the shape.
    of: u32,
    order: Option<Order>,
}

impl Default for ShapeFound {
    fn default() -> Self {
        Self { shape: NONE, of: 0, order: None }
    }
}

/// The state of accepting a batch.
#[derive(Default)]
struct Taking {
    database: u32,
    cutoff: i64,
    /// The source and measurement of each key of the batch, and the shape of each shape of it, once they were looked
    /// up.
    keys: Vec<(u32, u32)>,
    shape_numbers: Vec<ShapeFound>,
    /// Fields that the batch brings to sources.
    grown: Grown,
    newest: i64,
    shapes: Vec<u8>,
    shape_count: u64,
    sources: Vec<u8>,
    source_count: u64,
    rows: Vec<u8>,
    ends: Vec<StagedRow>,
}

impl Staged {
    fn memory(&self) -> usize {
        match &self.change {
            Change::Batch(batch) => {
                batch.rows.capacity() + size_of::<StagedRow>() * batch.ends.capacity()
            }
            Change::Take(sources) => size_of::<u32>() * sources.capacity(),
        }
    }
}

//! The catalogue of databases, measurements, fields and sources, in memory, with an inverted index.
//!
//! A source is a list of *pairs*, by number: each is a tag of a measurement with a value, and lists its sources. So a
//! source takes four bytes for each tag, and a few more in the lists of its pairs.
//!
//! A deleted source is removed at once. Lists, pairs and strings that only it used are removed later, in small steps
//! ([`Catalogue::tidy`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::index::{Posting, Symbols};
use super::sets::{EMPTY, Sets};
use super::shapes::{Order, Shape};
use super::sources::{NONE, PAGE, Sources};
use crate::series::batch::{Strings, shape_fields};
use crate::series::lookup::Lookup;
use crate::series::memory::no_database;
use crate::series::{Kind, Reason, Result, Selector, SeriesId};

/// The most combinations of fields in the buffers of a database. Most clients have a few. Once their rows are in
/// blocks, combinations are dropped, so a client that makes up many does little harm.
const SHAPES_MAX: u32 = 1 << 17;
/// The memory of a shape besides its columns, in bytes: its place, its entry in the map, the allocation.
const SHAPE_COST: usize = 80;
/// The memory of a field besides its name, in bytes: its entries in the list and in the map, the allocation.
const FIELD_COST: usize = 80;
/// The memory of a measurement besides its name and fields, in bytes, approximately.
const MEASUREMENT_COST: usize = 400;

#[derive(Debug, Default)]
pub(super) struct Catalogue {
    pub(super) databases: BTreeMap<String, DatabaseFacts>,
    pub(super) next_database: u32,
    pub(super) measurements: BTreeMap<u32, Measurement>,
    pub(super) next_measurement: u32,
    by_name: HashMap<(u32, Arc<str>), u32>,
    symbols: Symbols,
    pairs: Vec<Pair>,
    pair_lookup: Lookup,
    /// Each source's measurement, then its pairs.
    keys: Vec<u32>,
    /// How many of the keys belong to deleted sources.
    dead_keys: usize,
    pub(super) sources: Sources,
    source_lookup: Lookup,
    pub(super) shapes: Vec<Shape>,
    free_shapes: Vec<u32>,
    /// How many shapes each database has.
    shape_counts: HashMap<u32, u32>,
    /// Bytes of the shapes. Buffered rows need them, so they count as buffers do.
    pub(super) shape_bytes: usize,
    pub(super) sets: Sets,
    /// Bytes of the names of measurements and fields.
    name_bytes: usize,
    /// Bytes of the lists of sources, counted here because summing them up would take too long.
    posting_bytes: usize,
    /// Pairs whose list has deleted sources.
    loose_pairs: BTreeSet<u32>,
    /// Tags of measurements whose list has deleted pairs.
    loose_tags: BTreeSet<(u32, u32)>,
    /// Measurements whose list has deleted sources.
    loose_measurements: BTreeSet<u32>,
    /// Grows when pairs or lists of sources get shorter: a walk over them then has to restart.
    pub(super) epoch: u64,
    /// The number of series.
    pub(super) series: u64,
    pub(super) dirty_measurements: BTreeSet<u32>,
    pub(super) dirty_pages: BTreeSet<u32>,
}

/// Fields that rows bring to sources and that are in no set yet, by source. Sets are made once for all rows of a batch.
#[derive(Debug, Default)]
pub(super) struct Grown(HashMap<u32, BTreeSet<u16>>);

impl Grown {
    fn has(&self, source: u32, field: u16) -> bool {
        self.0.get(&source).is_some_and(|fields| fields.contains(&field))
    }
}

/// The outcome of reading a source from a log or a page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Restored {
    /// The source is known now.
    Known,
    /// A newer source has its tags: all of this one's points were deleted, and later records say so.
    Replaced,
    /// The record is inconsistent.
    Nonsense,
}

#[derive(Clone, Debug)]
pub(super) struct DatabaseFacts {
    pub(super) id: u32,
    pub(super) keep: Option<Duration>,
    /// The time of the latest point, plus the time measured since.
    pub(super) newest: i64,
}

impl DatabaseFacts {
    /// A database without points.
    pub(super) fn new(id: u32, keep: Option<Duration>) -> Self {
        Self { id, keep, newest: i64::MIN }
    }

    /// Points before this time are expired. A clock that jumps ahead expires nothing, and neither does a point from the
    /// future: only both together do.
    pub(super) fn cutoff(&self, wall: Duration) -> i64 {
        let Some(keep) = self.keep else { return i64::MIN };
        let now = i64::try_from(wall.as_nanos()).unwrap_or(i64::MAX).min(self.newest);
        now.saturating_sub(i64::try_from(keep.as_nanos()).unwrap_or(i64::MAX))
    }

    /// Adds measured time: a point written now would be that much later than the latest one. Never goes beyond the wall
    /// clock.
    pub(super) fn age(&mut self, passed: Duration, wall: Duration) {
        if self.newest == i64::MIN {
            return;
        }
        let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let aged = self.newest.saturating_add(nanos(passed)).min(nanos(wall));
        self.newest = self.newest.max(aged);
    }
}

#[derive(Debug)]
pub(super) struct Measurement {
    pub(super) database: u32,
    pub(super) name: Arc<str>,
    pub(super) fields: Vec<(Arc<str>, Kind)>,
    field_ids: HashMap<Arc<str>, u16>,
    /// The shape of each set of fields.
    shape_ids: HashMap<u32, u32>,
    pub(super) all: Option<Posting>,
    /// The pairs of each tag.
    tags: BTreeMap<u32, Vec<u32>>,
}

#[derive(Debug)]
struct Pair {
    measurement: u32,
    key: u32,
    value: u32,
    /// `None` once it is deleted.
    sources: Option<Posting>,
}

fn pair_hash(measurement: u32, key: u32, value: u32) -> u64 {
    let mut bytes = [0; 12];
    for (into, part) in bytes.chunks_exact_mut(4).zip([measurement, key, value]) {
        into.copy_from_slice(&part.to_le_bytes());
    }
    xxh3_64(&bytes)
}

/// The hash of a source's tags as encoded in keys.
fn source_hash(measurement: u32, tags: &[u8]) -> u64 {
    xxh3_64_with_seed(tags, u64::from(measurement))
}

impl Catalogue {
    /// The id of a measurement of a database. Creates it if it is missing and `may_grow`.
    pub(super) fn measurement(&mut self, database: u32, name: &str, may_grow: bool) -> Option<u32> {
        let name: Arc<str> = name.into();
        let found = self.by_name.get(&(database, Arc::clone(&name))).copied();
        if found.is_some() || !may_grow {
            return found;
        }
        let id = self.next_measurement;
        self.define_measurement(id, database, &name);
        self.dirty_measurements.insert(id);
        Some(id)
    }

    /// Takes over a measurement from a log or a page. False if a newer one has its name: then all points of this one
    /// were deleted.
    pub(super) fn define_measurement(&mut self, id: u32, database: u32, name: &str) -> bool {
        self.next_measurement = self.next_measurement.max(id.saturating_add(1));
        if self.measurements.contains_key(&id) {
            return true;
        }
        let name: Arc<str> = name.into();
        match self.by_name.get(&(database, Arc::clone(&name))).copied() {
            Some(newer) if newer > id => return false,
            Some(older) => self.forget_measurement(older),
            None => {}
        }
        self.name_bytes += MEASUREMENT_COST + name.len();
        self.by_name.insert((database, Arc::clone(&name)), id);
        let new = Measurement {
            database,
            name,
            fields: Vec::new(),
            field_ids: HashMap::new(),
            shape_ids: HashMap::new(),
            all: None,
            tags: BTreeMap::new(),
        };
        self.measurements.insert(id, new);
        true
    }

    /// Takes over a field from a log or a page; says whether it is consistent with the known ones.
    pub(super) fn define_field(
        &mut self,
        measurement: u32,
        field: u16,
        name: &str,
        kind: Kind,
    ) -> bool {
        let Some(of) = self.measurements.get_mut(&measurement) else { return false };
        let at = usize::from(field);
        if let Some((known, had)) = of.fields.get(at).filter(|(known, _)| !known.is_empty()) {
            return **known == *name && *had == kind;
        }
        // Where a log failed, a field may come before older ones.
        while of.fields.len() <= at {
            of.fields.push(("".into(), kind));
        }
        self.name_bytes += FIELD_COST + name.len();
        let name: Arc<str> = name.into();
        of.fields[at] = (Arc::clone(&name), kind);
        of.field_ids.insert(name, field);
        self.dirty_measurements.insert(measurement);
        true
    }

    /// The shape of a row, and the order of its columns in the row; creates missing fields. An error says why there is
    /// none.
    pub(super) fn shape(
        &mut self,
        measurement: u32,
        bytes: &[u8],
    ) -> std::result::Result<(u32, Option<Order>), Reason> {
        let of = self.measurements.get(&measurement).expect("a measurement was made");
        let mut columns = Vec::new();
        let mut new: Vec<(&str, Kind)> = Vec::new();
        let mut new_ids: HashMap<&str, usize> = HashMap::new();
        for (name, given) in shape_fields(bytes) {
            let stored = match of.field_ids.get(name) {
                Some(&field) => of.fields[usize::from(field)].1,
                None => {
                    let at = *new_ids.entry(name).or_insert_with(|| {
                        new.push((name, given));
                        new.len() - 1
                    });
                    new[at].1
                }
            };
            if stored != given {
                let (measurement, field) = (of.name.to_string(), name.into());
                return Err(Reason::Conflict { measurement, field, given, stored });
            }
        }
        if of.fields.len() + new.len() > usize::from(u16::MAX) {
            return Err(Reason::TooManyFields(of.name.to_string()));
        }
        let (first, database) = (of.fields.len(), of.database);
        let is_full = self.shape_counts.get(&database).is_some_and(|&count| count >= SHAPES_MAX);
        if is_full && (!new.is_empty() || !self.has_shape(measurement, bytes)) {
            return Err(Reason::TooManyShapes(SHAPES_MAX as usize));
        }
        for (at, (name, kind)) in new.into_iter().enumerate() {
            self.define_field(measurement, (first + at) as u16, name, kind);
        }
        let of = &self.measurements[&measurement];
        columns.extend(shape_fields(bytes).map(|(name, kind)| (of.field_ids[name], kind)));
        Ok(self.shape_of(measurement, &columns))
    }

    /// Whether there is a shape for a row whose fields all exist.
    fn has_shape(&self, measurement: u32, bytes: &[u8]) -> bool {
        let of = &self.measurements[&measurement];
        let mut fields: Vec<u16> =
            shape_fields(bytes).map(|(name, _)| of.field_ids[name]).collect();
        fields.sort_unstable();
        fields.dedup();
        self.sets.find(&fields).is_some_and(|set| of.shape_ids.contains_key(&set))
    }

    /// The shape of rows with these columns. If they have another order, or one comes twice, also gives the position of
    /// each column of the shape among them: the last one counts.
    pub(super) fn shape_of(
        &mut self,
        measurement: u32,
        columns: &[(u16, Kind)],
    ) -> (u32, Option<Order>) {
        let mut fields: Vec<u16> = columns.iter().map(|(field, _)| *field).collect();
        fields.sort_unstable();
        fields.dedup();
        let known = self
            .sets
            .find(&fields)
            .and_then(|set| self.measurements.get(&measurement)?.shape_ids.get(&set).copied());
        let is_plain = fields.len() == columns.len();
        if let Some(shape) = known
            && is_plain
            && *self.shapes[shape as usize].columns == *columns
        {
            return (shape, None);
        }
        let last: HashMap<u16, u32> =
            columns.iter().enumerate().map(|(at, (field, _))| (*field, at as u32)).collect();
        let shape = known.unwrap_or_else(|| {
            let is_last = |(at, (field, _)): &(usize, &(u16, Kind))| last[field] == *at as u32;
            let columns = columns.iter().enumerate().filter(is_last).map(|(_, column)| *column);
            let columns = columns.collect();
            self.add_shape(measurement, columns, &fields)
        });
        let order = self.shapes[shape as usize].columns.iter().map(|(field, _)| last[field]);
        let order: Order = order.collect();
        let is_same = is_plain && order.iter().enumerate().all(|(at, &of)| at as u32 == of);
        (shape, (!is_same).then_some(order))
    }

    fn add_shape(&mut self, measurement: u32, columns: Arc<[(u16, Kind)]>, fields: &[u16]) -> u32 {
        let set = self.sets.acquire(fields);
        self.shape_bytes += SHAPE_COST + columns.len() * size_of::<(u16, Kind)>();
        let new = Shape { measurement, columns, set, logged_in: NONE, rows: 0 };
        let shape = match self.free_shapes.pop() {
            Some(shape) => {
                self.shapes[shape as usize] = new;
                shape
            }
            None => {
                self.shapes.push(new);
                self.shapes.len() as u32 - 1
            }
        };
        if let Some(of) = self.measurements.get_mut(&measurement) {
            of.shape_ids.insert(set, shape);
            *self.shape_counts.entry(of.database).or_default() += 1;
        }
        shape
    }

    /// Rows of a shape went to blocks. Drops the shape if it has no rows left.
    pub(super) fn let_go(&mut self, shape: u32, rows: usize) {
        let of = &mut self.shapes[shape as usize];
        of.rows -= rows;
        if of.rows > 0 {
            return;
        }
        let (set, measurement) = (of.set, of.measurement);
        let columns = std::mem::replace(&mut of.columns, [].into());
        self.shape_bytes -= SHAPE_COST + columns.len() * size_of::<(u16, Kind)>();
        self.sets.release(set);
        self.free_shapes.push(shape);
        if self.free_shapes.len() == self.shapes.len() {
            (self.shapes, self.free_shapes) = (Vec::new(), Vec::new());
        }
        if let Some(of) = self.measurements.get_mut(&measurement) {
            of.shape_ids.remove(&set);
            if let Some(count) = self.shape_counts.get_mut(&of.database) {
                *count -= 1;
            }
        }
    }

    /// Whether a database has too many shapes: its rows should go to blocks.
    pub(super) fn has_many_shapes(&self) -> bool {
        self.shape_counts.values().any(|&count| count > SHAPES_MAX / 2)
    }

    /// Whether a row of this shape would add a series to its source, or a field; `None` stands for a source that does
    /// not exist yet.
    pub(super) fn grows(
        &self,
        measurement: u32,
        source: Option<u32>,
        bytes: &[u8],
        grown: &Grown,
    ) -> bool {
        let (Some(source), Some(of)) = (source, self.measurements.get(&measurement)) else {
            return true;
        };
        let had = self.fields_of(source);
        let is_known = |name: &str| {
            of.field_ids
                .get(name)
                .is_some_and(|field| had.binary_search(field).is_ok() || grown.has(source, *field))
        };
        shape_fields(bytes).any(|(name, _)| !is_known(name))
    }

    /// The fields of a source, ascending.
    pub(super) fn fields_of(&self, source: u32) -> &[u16] {
        self.sets.get(self.sources[source].set)
    }

    /// The most bytes of a source's record in a page, once it has these fields, too.
    pub(super) fn record_bytes(
        &self,
        source: Option<u32>,
        tags: &[u8],
        set: u32,
        grown: &Grown,
    ) -> usize {
        const FIELD: usize = 3;
        let had = source.map_or(EMPTY, |source| self.sources[source].set);
        if had == set {
            return 0;
        }
        let more = source.and_then(|source| grown.0.get(&source)).map_or(0, BTreeSet::len);
        let fields = self.sets.get(had).len() + more + self.sets.get(set).len();
        // Its number, its measurement, two lengths, and the head of the record.
        tags.len() + fields * FIELD + 40
    }

    /// Adds fields to a source: effective once [`Catalogue::settle`] is called.
    pub(super) fn extend(&mut self, source: u32, set: u32, grown: &mut Grown) {
        let had = self.sources[source].set;
        if had == set {
            return;
        }
        let (old, more) = (self.sets.get(had), self.sets.get(set));
        let mut new = more.iter().filter(|field| old.binary_search(field).is_err()).peekable();
        if new.peek().is_none() {
            return;
        }
        let pending = grown.0.entry(source).or_default();
        let before = pending.len();
        pending.extend(new);
        self.series += (pending.len() - before) as u64;
    }

    /// Gives sources the fields that rows brought.
    pub(super) fn settle(&mut self, grown: Grown) {
        for (source, more) in grown.0 {
            let had = self.sources[source].set;
            let mut fields = self.sets.get(had).to_vec();
            fields.extend(more);
            fields.sort_unstable();
            fields.dedup();
            self.set_fields(source, &fields);
        }
    }

    fn set_fields(&mut self, source: u32, fields: &[u16]) {
        let set = self.sets.acquire(fields);
        let had = std::mem::replace(&mut self.sources[source].set, set);
        self.sets.release(had);
        self.dirty_pages.insert(source / PAGE);
    }

    /// Takes over a source's fields from a page.
    pub(super) fn load_fields(&mut self, source: u32, mut fields: Vec<u16>) {
        fields.sort_unstable();
        fields.dedup();
        self.series += fields.len() as u64;
        self.series -= self.fields_of(source).len() as u64;
        self.set_fields(source, &fields);
    }

    /// The source with these tags, encoded as in keys.
    pub(super) fn find_source(&self, measurement: u32, tags: &[u8]) -> Option<u32> {
        self.source_lookup.get(source_hash(measurement, tags), |source| {
            let Some((of, known)) = self.source_key(source) else { return false };
            let mut rest = tags;
            let mut takes = |text: &str| {
                let (len, behind) = rest.split_first_chunk::<2>()?;
                rest = behind.strip_prefix(text.as_bytes())?;
                (usize::from(u16::from_le_bytes(*len)) == text.len()).then_some(())
            };
            let mut known = known.flat_map(|(key, value)| [key, value]);
            of == measurement && known.all(|text| takes(text).is_some()) && rest.is_empty()
        })
    }

    /// Appends a source's tags, encoded as in keys.
    pub(super) fn put_tags(&self, source: u32, into: &mut Vec<u8>) {
        let tags = self.source_key(source).into_iter().flat_map(|(_, tags)| tags);
        for text in tags.flat_map(|(key, value)| [key, value]) {
            into.extend_from_slice(&(text.len() as u16).to_le_bytes());
            into.extend_from_slice(text.as_bytes());
        }
    }

    fn find_pair(&self, measurement: u32, key: u32, value: u32) -> Option<u32> {
        self.pair_lookup.get(pair_hash(measurement, key, value), |pair| {
            let pair = &self.pairs[pair as usize];
            (pair.measurement, pair.key, pair.value) == (measurement, key, value)
        })
    }

    /// Whether a source exists.
    pub(super) fn has_source(&self, source: u32) -> bool {
        self.sources.get(source).is_some()
    }

    /// Takes over a source from a log or a page.
    pub(super) fn restore_source(
        &mut self,
        source: u32,
        measurement: u32,
        tags: &[u8],
    ) -> Restored {
        if self.has_source(source) {
            return Restored::Known;
        }
        match self.find_source(measurement, tags) {
            Some(newer) if newer > source => return Restored::Replaced,
            Some(older) => self.forget_source(older),
            None => {}
        }
        match self.define_source(source, measurement, Strings(tags)) {
            Some(()) => Restored::Known,
            None => Restored::Nonsense,
        }
    }

    /// Creates a source with this id. `None` if there are too many strings or keys.
    pub(super) fn define_source(
        &mut self,
        source: u32,
        measurement: u32,
        tags: Strings<'_>,
    ) -> Option<()> {
        let hash = source_hash(measurement, tags.0);
        let mut strings = tags;
        let mut pairs = Vec::new();
        while let Some(tag) = strings.next() {
            let (key, value) = (self.symbols.intern(tag)?, self.symbols.intern(strings.next()?)?);
            match self.find_pair(measurement, key, value) {
                Some(pair) => {
                    if let Some(sources) = &mut self.pairs[pair as usize].sources {
                        self.posting_bytes += sources.push(source);
                    }
                    pairs.push(pair);
                }
                None => {
                    let pair = self.pairs.len() as u32;
                    let sources = Some(Posting::One(source));
                    self.pairs.push(Pair { measurement, key, value, sources });
                    self.pair_lookup.insert(pair, pair_hash(measurement, key, value));
                    let of = self.measurements.get_mut(&measurement)?;
                    of.tags.entry(key).or_default().push(pair);
                    pairs.push(pair);
                }
            }
        }
        let start = u32::try_from(self.keys.len()).ok().filter(|&start| start != NONE)?;
        self.keys.push(measurement);
        self.keys.extend_from_slice(&pairs);
        self.sources.insert(source, start, pairs.len() as u16);
        self.source_lookup.insert(source, hash);
        let of = self.measurements.get_mut(&measurement)?;
        match &mut of.all {
            Some(all) => self.posting_bytes += all.push(source),
            none => *none = Some(Posting::One(source)),
        }
        self.dirty_pages.insert(source / PAGE);
        Some(())
    }

    /// The measurement and tags of a source, if there is one.
    pub(super) fn source_key(
        &self,
        source: u32,
    ) -> Option<(u32, impl Iterator<Item = (&str, &str)>)> {
        let facts = self.sources.get(source)?;
        let start = facts.start as usize;
        let pairs = &self.keys[start + 1..=start + usize::from(facts.tags)];
        let text = move |&pair: &u32| {
            let pair = &self.pairs[pair as usize];
            (self.symbols.text(pair.key), self.symbols.text(pair.value))
        };
        Some((self.keys[start], pairs.iter().map(text)))
    }

    /// The database of a source.
    pub(super) fn database_of(&self, source: u32) -> Option<&DatabaseFacts> {
        let (measurement, _) = self.source_key(source)?;
        let id = self.measurements.get(&measurement)?.database;
        self.databases.values().find(|facts| facts.id == id)
    }

    /// The kind of a series' field.
    pub(super) fn kind_of(&self, source: u32, field: u16) -> Option<Kind> {
        let (measurement, _) = self.source_key(source)?;
        let of = self.measurements.get(&measurement)?;
        Some(of.fields.get(usize::from(field))?.1)
    }

    /// Drops a database: its measurements and sources are no longer found.
    pub(super) fn forget_database(&mut self, id: u32) -> Vec<u32> {
        let all = self.measurements.iter().filter(|(_, of)| of.database == id);
        let gone: Vec<u32> = all.map(|(&measurement, _)| measurement).collect();
        gone.iter().for_each(|&measurement| self.forget_measurement(measurement));
        self.shape_counts.remove(&id);
        gone
    }

    /// Drops a measurement with its sources.
    fn forget_measurement(&mut self, measurement: u32) {
        let mut sources = Vec::new();
        if let Some(all) = self.measurements.get(&measurement).and_then(|of| of.all.as_ref()) {
            all.collect(&mut sources);
        }
        sources.into_iter().for_each(|source| self.forget_source(source));
        self.remove_measurement(measurement);
    }

    fn remove_measurement(&mut self, measurement: u32) {
        let Some(of) = self.measurements.remove(&measurement) else { return };
        let names: usize = of
            .fields
            .iter()
            .filter(|(name, _)| !name.is_empty())
            .map(|(name, _)| FIELD_COST + name.len())
            .sum();
        self.name_bytes -= MEASUREMENT_COST + of.name.len() + names;
        self.posting_bytes -= of.all.as_ref().map_or(0, Posting::memory);
        let name = (of.database, of.name);
        if self.by_name.get(&name) == Some(&measurement) {
            self.by_name.remove(&name);
        }
        // The next write of the catalogue removes its record.
        self.dirty_measurements.insert(measurement);
        self.loose_measurements.remove(&measurement);
        self.epoch += 1;
    }

    /// Drops a source that has no rows in buffers.
    pub(super) fn forget_source(&mut self, source: u32) {
        let Some(&facts) = self.sources.get(source) else { return };
        if facts.buffer != NONE {
            return;
        }
        let mut tags = Vec::new();
        self.put_tags(source, &mut tags);
        let start = facts.start as usize;
        let measurement = self.keys[start];
        let pairs = &self.keys[start + 1..=start + usize::from(facts.tags)];
        self.loose_pairs.extend(pairs);
        self.loose_measurements.insert(measurement);
        self.dead_keys += 1 + usize::from(facts.tags);
        self.source_lookup.remove(source, source_hash(measurement, &tags));
        self.series -= self.sets.get(facts.set).len() as u64;
        self.sets.release(facts.set);
        self.sources.remove(source);
        self.dirty_pages.insert(source / PAGE);
    }

    /// Takes one step to free memory of deleted sources; says whether there is more to do. The caller holds the lock
    /// meanwhile. Steps take time in proportion to deleted entries, and rarely to all.
    pub(super) fn tidy(&mut self) -> bool {
        if let Some(pair) = self.loose_pairs.pop_first() {
            self.tidy_pair(pair);
            return true;
        }
        if let Some((measurement, key)) = self.loose_tags.pop_first() {
            self.tidy_tag(measurement, key);
            return true;
        }
        if let Some(measurement) = self.loose_measurements.pop_first() {
            let Some(of) = self.measurements.get_mut(&measurement) else { return true };
            let before = of.all.as_ref().map_or(0, Posting::memory);
            of.all =
                of.all.take().and_then(|all| all.retain(|one| self.sources.get(one).is_some()));
            self.posting_bytes -= before;
            self.posting_bytes += of.all.as_ref().map_or(0, Posting::memory);
            self.epoch += 1;
            if of.all.is_none() {
                self.remove_measurement(measurement);
            }
            return true;
        }
        if self.dead_keys * 2 > self.keys.len() {
            self.compact();
            return true;
        }
        false
    }

    fn tidy_pair(&mut self, number: u32) {
        let pair = &mut self.pairs[number as usize];
        let Some(sources) = pair.sources.take() else { return };
        self.posting_bytes -= sources.memory();
        pair.sources = sources.retain(|source| self.sources.get(source).is_some());
        self.epoch += 1;
        if let Some(sources) = &pair.sources {
            self.posting_bytes += sources.memory();
            return;
        }
        let (measurement, key, value) = (pair.measurement, pair.key, pair.value);
        self.pair_lookup.remove(number, pair_hash(measurement, key, value));
        self.loose_tags.insert((measurement, key));
    }

    /// Removes deleted pairs from the list of their tag.
    fn tidy_tag(&mut self, measurement: u32, key: u32) {
        self.epoch += 1;
        let Some(of) = self.measurements.get_mut(&measurement) else { return };
        let Some(pairs) = of.tags.get_mut(&key) else { return };
        pairs.retain(|&pair| self.pairs[pair as usize].sources.is_some());
        pairs.shrink_to_fit();
        if pairs.is_empty() {
            of.tags.remove(&key);
        }
    }

    /// Renumbers pairs and strings without the deleted ones.
    fn compact(&mut self) {
        let old = std::mem::take(&mut self.symbols);
        let mut numbers = vec![NONE; self.pairs.len()];
        let mut pairs = Vec::new();
        self.pair_lookup = Lookup::default();
        for of in self.measurements.values_mut() {
            of.tags.clear();
        }
        for (number, mut pair) in std::mem::take(&mut self.pairs).into_iter().enumerate() {
            if pair.sources.is_none() {
                continue;
            }
            let texts = [pair.key, pair.value].map(|symbol| self.symbols.intern(old.text(symbol)));
            let [Some(key), Some(value)] = texts else {
                unreachable!("they are fewer than before")
            };
            (pair.key, pair.value) = (key, value);
            let new = pairs.len() as u32;
            numbers[number] = new;
            self.pair_lookup.insert(new, pair_hash(pair.measurement, key, value));
            if let Some(of) = self.measurements.get_mut(&pair.measurement) {
                of.tags.entry(key).or_default().push(new);
            }
            pairs.push(pair);
        }
        pairs.shrink_to_fit();
        self.pairs = pairs;
        let mut keys = Vec::with_capacity(self.keys.len() - self.dead_keys);
        for (_, facts) in self.sources.iter_mut() {
            let start = facts.start as usize;
            facts.start = keys.len() as u32;
            keys.push(self.keys[start]);
            let pairs = &self.keys[start + 1..=start + usize::from(facts.tags)];
            keys.extend(pairs.iter().map(|&pair| numbers[pair as usize]));
        }
        (self.keys, self.dead_keys) = (keys, 0);
        self.epoch += 1;
    }

    /// The id of a measurement of a database.
    pub(super) fn find_measurement(&self, database: u32, name: &str) -> Option<u32> {
        self.by_name.get(&(database, name.into())).copied()
    }

    /// The sources of a measurement with this tag, if any.
    pub(super) fn pair_of(&self, measurement: u32, key: &str, value: &str) -> Option<&Posting> {
        let (key, value) = (self.symbols.find(key)?, self.symbols.find(value)?);
        self.find_pair(measurement, key, value).and_then(|pair| self.sources_of(pair))
    }

    /// Up to `max` pairs of a tag of a measurement, from position `at` on. Within an epoch a pair keeps its position.
    pub(super) fn pairs_of(&self, measurement: u32, key: &str, at: usize, max: usize) -> &[u32] {
        let of = self.measurements.get(&measurement);
        let pairs = of.zip(self.symbols.find(key)).and_then(|(of, key)| of.tags.get(&key));
        let pairs = pairs.map_or(&[][..], |pairs| &pairs[at.min(pairs.len())..]);
        &pairs[..max.min(pairs.len())]
    }

    /// The keys of tags of a measurement's sources.
    pub(super) fn keys_of(&self, measurement: u32) -> Vec<String> {
        let of = self.measurements.get(&measurement);
        let keys = of.into_iter().flat_map(|of| of.tags.keys());
        keys.map(|&key| self.symbols.text(key).to_string()).collect()
    }

    /// The value of a pair.
    pub(super) fn value_of(&self, pair: u32) -> &str {
        self.symbols.text(self.pairs[pair as usize].value)
    }

    /// The sources of a pair, unless it is deleted.
    pub(super) fn sources_of(&self, pair: u32) -> Option<&Posting> {
        self.pairs.get(pair as usize)?.sources.as_ref()
    }

    /// The selected fields of a source.
    pub(super) fn wanted_fields(
        &self,
        selector: &Selector,
        of: &Measurement,
        source: u32,
    ) -> Vec<u16> {
        let wants = |field: &u16| selector.wants_field(&of.fields[usize::from(*field)].0);
        self.fields_of(source).iter().copied().filter(wants).collect()
    }

    pub(super) fn fields(&self, database: &str, measurement: &str) -> Result<Vec<(String, Kind)>> {
        let facts = self.databases.get(database).ok_or_else(|| no_database(database))?;
        let id = self.by_name.get(&(facts.id, measurement.into()));
        let mut fields: Vec<(String, Kind)> = id.map_or_else(Vec::new, |id| {
            let of = &self.measurements[id];
            let named = of.fields.iter().filter(|(name, _)| !name.is_empty());
            named.map(|(name, kind)| (name.to_string(), *kind)).collect()
        });
        fields.sort();
        Ok(fields)
    }

    /// Its memory in bytes, without its shapes, which count as buffers.
    pub(super) fn memory(&self) -> usize {
        let tags = self.measurements.values().flat_map(|of| of.tags.values());
        let lists: usize = tags.map(|pairs| pairs.capacity() * 4 + 48).sum();
        self.symbols.memory()
            + self.pairs.capacity() * size_of::<Pair>()
            + self.pair_lookup.memory()
            + self.keys.capacity() * 4
            + self.sources.memory()
            + self.source_lookup.memory()
            + self.posting_bytes
            + self.sets.memory()
            + self.name_bytes
            + lists
    }
}

/// The id of the series of a source's field.
pub(super) fn series_id(source: u32, field: u16) -> SeriesId {
    SeriesId(u64::from(source) << 16 | u64::from(field))
}

/// The source of a series.
pub(super) fn source_of(series: SeriesId) -> u32 {
    u32::try_from(series.0 >> 16).unwrap_or(NONE)
}

/// The field of a series.
pub(super) fn field_of(series: SeriesId) -> u16 {
    series.0 as u16
}

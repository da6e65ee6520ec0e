//! What is known of databases, measurements, fields and sources, in memory, with an inverted index.
//!
//! A source is a list of *pairs*: a tag of a measurement with a value, by number. A pair knows its sources.
//! So a source takes four bytes for each tag, and a few more in the lists of its pairs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::index::{Posting, Symbols};
use crate::series::batch::{Strings, shape_fields};
use crate::series::lookup::Lookup;
use crate::series::memory::no_database;
use crate::series::{Kind, Reason, Result, Selector, SeriesId};

/// How many sources share a record of the catalogue.
pub(super) const PAGE: u32 = 1024;
/// Combinations of fields, in their order. A client has a few; one that makes them up takes memory for each.
const SHAPES_MAX: usize = 1 << 18;
/// No buffer, or no segment.
pub(super) const NONE: u32 = u32::MAX;

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
    pub(super) sources: Vec<Source>,
    source_lookup: Lookup,
    pub(super) shapes: Vec<Shape>,
    pub(super) sets: Vec<Arc<[u16]>>,
    set_ids: HashMap<Arc<[u16]>, u32>,
    /// Bytes of the lists of sources, without which they would have to be looked at for it.
    posting_bytes: usize,
    /// How many series there are.
    pub(super) series: u64,
    pub(super) dirty_measurements: BTreeSet<u32>,
    pub(super) dirty_pages: BTreeSet<u32>,
}

#[derive(Clone, Debug)]
pub(super) struct DatabaseFacts {
    pub(super) id: u32,
    pub(super) keep: Option<Duration>,
    /// The latest time of a point.
    pub(super) newest: i64,
}

impl DatabaseFacts {
    /// Points before this time are gone. A clock that jumps ahead takes nothing away, and neither does a
    /// point from the future: only both do.
    pub(super) fn cutoff(&self, wall: Duration) -> i64 {
        let Some(keep) = self.keep else { return i64::MIN };
        let now = i64::try_from(wall.as_nanos()).unwrap_or(i64::MAX).min(self.newest);
        now.saturating_sub(i64::try_from(keep.as_nanos()).unwrap_or(i64::MAX))
    }
}

#[derive(Debug)]
pub(super) struct Measurement {
    pub(super) database: u32,
    pub(super) name: Arc<str>,
    pub(super) fields: Vec<(Arc<str>, Kind)>,
    field_ids: HashMap<Arc<str>, u16>,
    shape_ids: HashMap<Box<[u8]>, u32>,
    pub(super) all: Option<Posting>,
    /// The pairs of each tag.
    tags: BTreeMap<u32, Vec<u32>>,
}

#[derive(Debug)]
struct Pair {
    measurement: u32,
    key: u32,
    value: u32,
    sources: Posting,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    /// Where it begins in the keys; [`NONE`] if there is no such source.
    start: u32,
    tags: u16,
    /// Which fields it has.
    pub(super) set: u32,
    /// Its buffer.
    pub(super) buffer: u32,
    /// The segment of the log that told last what it is.
    pub(super) told: u32,
}

const NOBODY: Source = Source { start: NONE, tags: 0, set: 0, buffer: NONE, told: NONE };

/// Fields of a row, in its order.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) measurement: u32,
    pub(super) columns: Arc<[(u16, Kind)]>,
    pub(super) set: u32,
    pub(super) told: u32,
}

fn pair_hash(measurement: u32, key: u32, value: u32) -> u64 {
    let mut bytes = [0; 12];
    for (into, part) in bytes.chunks_exact_mut(4).zip([measurement, key, value]) {
        into.copy_from_slice(&part.to_le_bytes());
    }
    xxh3_64(&bytes)
}

/// Of a source's tags as they are in keys.
fn source_hash(measurement: u32, tags: &[u8]) -> u64 {
    xxh3_64_with_seed(tags, u64::from(measurement))
}

impl Catalogue {
    /// Which measurement of a database this is, made if need be and if something may be made.
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

    /// A measurement as it was told by a log or a page.
    pub(super) fn define_measurement(&mut self, id: u32, database: u32, name: &str) {
        let name: Arc<str> = name.into();
        self.by_name.insert((database, Arc::clone(&name)), id);
        self.measurements.entry(id).or_insert_with(|| Measurement {
            database,
            name,
            fields: Vec::new(),
            field_ids: HashMap::new(),
            shape_ids: HashMap::new(),
            all: None,
            tags: BTreeMap::new(),
        });
        self.next_measurement = self.next_measurement.max(id + 1);
    }

    /// A field as it was told; says whether that fits what is known.
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
        // Where a log failed, a field may be told before those that are older.
        while of.fields.len() <= at {
            of.fields.push(("".into(), kind));
        }
        let name: Arc<str> = name.into();
        of.fields[at] = (Arc::clone(&name), kind);
        of.field_ids.insert(name, field);
        self.dirty_measurements.insert(measurement);
        true
    }

    /// The shape of a row, and fields it brings made; or why there is none.
    pub(super) fn shape(
        &mut self,
        measurement: u32,
        bytes: &[u8],
    ) -> std::result::Result<u32, Reason> {
        let of = self.measurements.get_mut(&measurement).expect("a measurement was made");
        if let Some(&shape) = of.shape_ids.get(bytes) {
            return Ok(shape);
        }
        if self.shapes.len() >= SHAPES_MAX {
            return Err(Reason::TooManyShapes(SHAPES_MAX));
        }
        let mut new = Vec::new();
        for (name, given) in shape_fields(bytes) {
            let known = of.field_ids.get(name).map(|&field| of.fields[usize::from(field)].1);
            let known = known
                .or_else(|| new.iter().find(|(other, _)| *other == name).map(|&(_, kind)| kind));
            match known {
                Some(stored) if stored != given => {
                    let (measurement, field) = (of.name.to_string(), name.into());
                    return Err(Reason::Conflict { measurement, field, given, stored });
                }
                Some(_) => {}
                None => new.push((name, given)),
            }
        }
        if of.fields.len() + new.len() > usize::from(u16::MAX) {
            return Err(Reason::TooManyFields(of.name.to_string()));
        }
        let first = of.fields.len();
        let new: Vec<(String, Kind)> =
            new.into_iter().map(|(name, kind)| (name.to_string(), kind)).collect();
        for (at, (name, kind)) in new.into_iter().enumerate() {
            self.define_field(measurement, (first + at) as u16, &name, kind);
        }
        let of = &self.measurements[&measurement];
        let columns: Vec<(u16, Kind)> =
            shape_fields(bytes).map(|(name, kind)| (of.field_ids[name], kind)).collect();
        let shape = self.add_shape(measurement, columns);
        let of = self.measurements.get_mut(&measurement).expect("it is there");
        of.shape_ids.insert(bytes.into(), shape);
        Ok(shape)
    }

    pub(super) fn add_shape(&mut self, measurement: u32, columns: Vec<(u16, Kind)>) -> u32 {
        let mut fields: Vec<u16> = columns.iter().map(|(field, _)| *field).collect();
        fields.sort_unstable();
        fields.dedup();
        let set = self.set(fields);
        self.shapes.push(Shape { measurement, columns: columns.into(), set, told: NONE });
        self.shapes.len() as u32 - 1
    }

    /// The number of a set of fields. The first one is empty: new sources have it.
    pub(super) fn set(&mut self, fields: Vec<u16>) -> u32 {
        if self.sets.is_empty() {
            self.sets.push([].into());
            self.set_ids.insert([].into(), 0);
        }
        let fields: Arc<[u16]> = fields.into();
        if let Some(&set) = self.set_ids.get(&fields) {
            return set;
        }
        self.sets.push(Arc::clone(&fields));
        let set = self.sets.len() as u32 - 1;
        self.set_ids.insert(fields, set);
        set
    }

    /// Whether a row of this shape would make another series of its source, or a field; none: a source that
    /// is not there.
    pub(super) fn grows(&self, measurement: u32, source: Option<u32>, bytes: &[u8]) -> bool {
        let (Some(source), Some(of)) = (source, self.measurements.get(&measurement)) else {
            return true;
        };
        let had = self.sets.get(self.sources[source as usize].set as usize);
        let had = had.map_or(&[][..], |set| set);
        let is_known = |name: &str| {
            of.field_ids.get(name).is_some_and(|field| had.binary_search(field).is_ok())
        };
        shape_fields(bytes).any(|(name, _)| !is_known(name))
    }

    /// The source has these fields, too.
    pub(super) fn extend(&mut self, source: u32, set: u32) {
        let had = self.sources[source as usize].set;
        if had == set {
            return;
        }
        let (old, more) = (&self.sets[had as usize], &self.sets[set as usize]);
        if more.iter().all(|field| old.binary_search(field).is_ok()) {
            return;
        }
        let mut fields: Vec<u16> = old.iter().chain(more.iter()).copied().collect();
        fields.sort_unstable();
        fields.dedup();
        self.series += (fields.len() - old.len()) as u64;
        self.sources[source as usize].set = self.set(fields);
        self.dirty_pages.insert(source / PAGE);
    }

    /// The source with these tags, as they are in keys.
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

    /// A source's tags as they are in keys.
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

    /// Sources that are made later have ids from `next` on.
    pub(super) fn pass_over(&mut self, next: u32) {
        self.sources.resize((next as usize).max(self.sources.len()), NOBODY);
    }

    /// Whether a source is known.
    pub(super) fn has_source(&self, source: u32) -> bool {
        self.sources.get(source as usize).is_some_and(|facts| facts.start != NONE)
    }

    /// Makes a source with this id. None if there are too many strings or keys.
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
                    self.posting_bytes += self.pairs[pair as usize].sources.push(source);
                    pairs.push(pair);
                }
                None => {
                    let pair = self.pairs.len() as u32;
                    let sources = Posting::One(source);
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
        self.pass_over(source + 1);
        self.sources[source as usize] = Source { start, tags: pairs.len() as u16, ..NOBODY };
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
        let facts = self.sources.get(source as usize).filter(|facts| facts.start != NONE)?;
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

    /// What a series' field holds.
    pub(super) fn kind_of(&self, source: u32, field: u16) -> Option<Kind> {
        let (measurement, _) = self.source_key(source)?;
        let of = self.measurements.get(&measurement)?;
        Some(of.fields.get(usize::from(field))?.1)
    }

    /// A database is gone: nothing of it is found any more.
    pub(super) fn forget_database(&mut self, id: u32) -> Vec<u32> {
        let gone: Vec<u32> = self
            .measurements
            .iter()
            .filter(|(_, of)| of.database == id)
            .map(|(&measurement, _)| measurement)
            .collect();
        for measurement in &gone {
            let of = self.measurements.remove(measurement).expect("it was just found");
            self.by_name.remove(&(id, of.name));
            self.dirty_measurements.remove(measurement);
            let mut sources = Vec::new();
            of.all.iter().for_each(|all| all.collect(&mut sources));
            for source in sources {
                let set = self.sources[source as usize].set;
                self.series -= self.sets[set as usize].len() as u64;
                self.dirty_pages.insert(source / PAGE);
            }
        }
        gone
    }

    /// A measurement of a database.
    pub(super) fn find_measurement(&self, database: u32, name: &str) -> Option<u32> {
        self.by_name.get(&(database, name.into())).copied()
    }

    /// The sources of a measurement with this tag, if there are some.
    pub(super) fn pair_of(&self, measurement: u32, key: &str, value: &str) -> Option<&Posting> {
        let (key, value) = (self.symbols.find(key)?, self.symbols.find(value)?);
        self.find_pair(measurement, key, value).map(|pair| self.sources_of(pair))
    }

    /// Up to `max` pairs of a tag of a measurement, from the one `at` this place on: a place stays a pair's.
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

    /// The sources of a pair.
    pub(super) fn sources_of(&self, pair: u32) -> &Posting {
        &self.pairs[pair as usize].sources
    }

    /// The fields of a source that are wanted.
    pub(super) fn wanted_fields(
        &self,
        selector: &Selector,
        of: &Measurement,
        source: u32,
    ) -> Vec<u16> {
        let set = &self.sets[self.sources[source as usize].set as usize];
        let wants = |field: &u16| selector.wants_field(&of.fields[usize::from(*field)].0);
        set.iter().copied().filter(wants).collect()
    }

    pub(super) fn fields(&self, database: &str, measurement: &str) -> Result<Vec<(String, Kind)>> {
        let facts = self.databases.get(database).ok_or_else(|| no_database(database))?;
        let id = self.by_name.get(&(facts.id, measurement.into()));
        let mut fields: Vec<(String, Kind)> = id.map_or_else(Vec::new, |id| {
            let of = &self.measurements[id];
            let told = of.fields.iter().filter(|(name, _)| !name.is_empty());
            told.map(|(name, kind)| (name.to_string(), *kind)).collect()
        });
        fields.sort();
        Ok(fields)
    }

    /// What it takes in memory, in bytes: what grows with the number of sources.
    pub(super) fn memory(&self) -> usize {
        let tags = self.measurements.values().flat_map(|of| of.tags.values());
        let lists: usize = tags.map(|pairs| pairs.capacity() * 4 + 48).sum();
        self.symbols.memory()
            + self.pairs.capacity() * size_of::<Pair>()
            + self.pair_lookup.memory()
            + self.keys.capacity() * 4
            + self.sources.capacity() * size_of::<Source>()
            + self.source_lookup.memory()
            + self.posting_bytes
            + lists
    }
}

/// The series of a source's field.
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

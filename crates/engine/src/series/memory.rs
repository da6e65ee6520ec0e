//! The model that real stores are compared with.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;

use super::{
    Batch, Columns, Cursor, Database, Durability, Error, Info, Kind, Pending, Points, REJECTED_MAX,
    Reason, Rejected, Result, Room, SESSION_WINDOW, Scalar, Scan, Selector, Series, SeriesId,
    Session, Span, Written,
};
use crate::health::StoreHealth;

/// Maps in memory: the model that real stores are compared with. It survives nothing and expires nothing: it only
/// remembers how long a database keeps points.
#[derive(Debug, Default)]
pub struct Memory {
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    databases: BTreeMap<String, Contents>,
    series: u64,
}

#[derive(Debug, Default)]
struct Contents {
    keep: Option<Duration>,
    kinds: BTreeMap<(String, String), Kind>,
    series: BTreeMap<Key, One>,
    /// Stored sequences, by client.
    sessions: BTreeMap<String, BTreeSet<u64>>,
}

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Key {
    measurement: Arc<str>,
    tags: Vec<(Arc<str>, Arc<str>)>,
    field: Arc<str>,
}

#[derive(Debug)]
struct One {
    id: SeriesId,
    kind: Kind,
    points: BTreeMap<i64, Scalar>,
}

/// How many points a cursor gives at a time.
const CHUNK: usize = 1000;

impl Memory {
    fn write_now(&self, batch: &Batch, session: Option<Session>) -> Result<Written> {
        let mut state = self.state.write();
        let State { databases, series } = &mut *state;
        let contents =
            databases.get_mut(batch.database()).ok_or_else(|| no_database(batch.database()))?;
        if let Some(session) = session {
            let stored = contents.sessions.entry(session.client).or_default();
            if stored.contains(&session.sequence) {
                return Ok(Written { repeated: true, ..Written::default() });
            }
            let newest = stored.last().copied().unwrap_or(0);
            if session.sequence.saturating_add(SESSION_WINDOW) <= newest {
                return Err(behind(session.sequence, newest));
            }
            stored.insert(session.sequence);
        }
        let mut written = Written::default();
        for (at, row) in batch.rows().enumerate() {
            let conflict = row.fields().find_map(|(field, value)| {
                let stored = *contents.kinds.get(&(row.measurement().into(), field.into()))?;
                let given = value.kind();
                let (measurement, field) = (row.measurement().into(), field.into());
                (given != stored).then_some(Reason::Conflict { measurement, field, given, stored })
            });
            if let Some(reason) = conflict {
                written.refused += 1;
                if written.rejected.len() < REJECTED_MAX {
                    written.rejected.push(Rejected { row: at, reason });
                }
                continue;
            }
            written.rows += 1;
            for (field, value) in row.fields() {
                written.points += 1;
                contents.kinds.insert((row.measurement().into(), field.into()), value.kind());
                let key = Key {
                    measurement: row.measurement().into(),
                    tags: row.tags().map(|(key, value)| (key.into(), value.into())).collect(),
                    field: field.into(),
                };
                let one = contents.series.entry(key).or_insert_with(|| {
                    *series += 1;
                    One { id: SeriesId(*series), kind: value.kind(), points: BTreeMap::new() }
                });
                one.points.insert(row.time, value.to_scalar());
            }
        }
        Ok(written)
    }

    fn walk(&self, series: &[SeriesId], scan: Scan) -> Walk {
        let state = self.state.read();
        let all = || state.databases.values().flat_map(|contents| &contents.series);
        let found = series.iter().map(|&id| all().find(|(_, one)| one.id == id));
        let found: Vec<Option<(&Key, &One)>> = found.collect();
        let sources = found.iter().flatten().map(|(key, _)| (&key.measurement, &key.tags));
        assert!(sources.collect::<BTreeSet<_>>().len() <= 1, "series of one source");
        let mut times = BTreeSet::new();
        for (_, one) in found.iter().flatten().filter(|_| !scan.span.is_empty()) {
            times.extend(one.points.range(scan.span.from..scan.span.to).map(|(&time, _)| time));
        }
        let mut times: Vec<i64> = times.into_iter().collect();
        if scan.descending {
            times.reverse();
        }
        let kind = |one: &Option<(&Key, &One)>| one.map_or(Kind::Float, |(_, one)| one.kind);
        let mut given = vec![0; series.len()];
        let mut chunks = VecDeque::new();
        for times in times.chunks(CHUNK) {
            let mut chunk: Vec<Points> = found.iter().map(|one| Points::new(kind(one))).collect();
            for time in times {
                if given.iter().any(|&given| given >= scan.limit) {
                    break;
                }
                for (at, one) in found.iter().enumerate() {
                    if let Some(value) = one.and_then(|(_, one)| one.points.get(time)) {
                        chunk[at].push(*time, value.as_value());
                        given[at] += 1;
                    }
                }
            }
            if chunk.iter().any(|points| !points.is_empty()) {
                chunks.push_back(chunk);
            }
        }
        Walk(chunks)
    }

    /// Calls `ask` for every selected series.
    fn each<T>(
        &self,
        selector: &Selector,
        mut ask: impl FnMut(&Key, &One) -> Option<T>,
    ) -> Result<Vec<T>> {
        let state = self.state.read();
        let contents = state
            .databases
            .get(&selector.database)
            .ok_or_else(|| no_database(&selector.database))?;
        let wanted = contents.series.iter().filter(|(key, _)| key.is_selected(selector));
        Ok(wanted.filter_map(|(key, one)| ask(key, one)).collect())
    }
}

impl Contents {
    /// Drops sources whose series are all selected, and measurements without any left.
    fn forget(&mut self, selector: &Selector) {
        let source = |key: &Key| (Arc::clone(&key.measurement), key.tags.clone());
        let rest = self.series.keys().filter(|key| !key.is_selected(selector));
        let stay: BTreeSet<_> = rest.map(source).collect();
        self.series.retain(|key, _| stay.contains(&source(key)) || !key.is_selected(selector));
        let left: BTreeSet<Arc<str>> =
            self.series.keys().map(|key| Arc::clone(&key.measurement)).collect();
        self.kinds.retain(|(measurement, _), _| left.contains(measurement.as_str()));
    }
}

impl Key {
    fn is_selected(&self, selector: &Selector) -> bool {
        let tag = |key: &str| {
            self.tags.iter().find(|(name, _)| **name == *key).map_or("", |(_, value)| &**value)
        };
        selector.wants_measurement(&self.measurement)
            && selector.wants_field(&self.field)
            && selector.tags.holds(&tag)
    }

    fn info(&self, one: &One) -> Info {
        Info {
            id: one.id,
            measurement: Arc::clone(&self.measurement),
            tags: self.tags.clone(),
            field: Arc::clone(&self.field),
            kind: one.kind,
        }
    }
}

impl Series for Memory {
    fn write(&self, batch: Batch, session: Option<Session>) -> Pending<'_, Written> {
        let written = self.write_now(&batch, session);
        Box::pin(async move { written })
    }

    fn delete(&self, selector: Selector, span: Span) -> Pending<'_, u64> {
        let mut state = self.state.write();
        let deleted = match state.databases.get_mut(&selector.database) {
            None => Err(no_database(&selector.database)),
            Some(contents) => {
                let mut series = 0;
                for (_, one) in
                    contents.series.iter_mut().filter(|(key, _)| key.is_selected(&selector))
                {
                    series += 1;
                    one.points.retain(|&time, _| !span.contains(time));
                }
                if span == Span::ALL {
                    contents.forget(&selector);
                }
                Ok(series)
            }
        };
        Box::pin(async move { deleted })
    }

    fn find(
        &self,
        selector: &Selector,
        after: Option<SeriesId>,
        limit: usize,
    ) -> Result<Vec<Info>> {
        let mut found = self.each(selector, |key, one| Some(key.info(one)))?;
        found.sort_by_key(|info| info.id);
        found.retain(|info| after.is_none_or(|after| info.id > after));
        found.truncate(limit);
        Ok(found)
    }

    fn read(&self, series: SeriesId, scan: Scan) -> Box<dyn Cursor> {
        Box::new(self.walk(&[series], scan))
    }

    fn read_columns(&self, series: &[SeriesId], scan: Scan) -> Box<dyn Columns> {
        Box::new(self.walk(series, scan))
    }

    fn create_database(&self, database: Database) -> Pending<'_, ()> {
        let Database { name, keep } = database;
        let made = if (1..=255).contains(&name.len()) {
            self.state.write().databases.entry(name).or_default().keep = keep;
            Ok(())
        } else {
            Err(Error::Invalid(format!("database {name:?}: give it a name of 1 to 255 bytes")))
        };
        Box::pin(async move { made })
    }

    fn drop_database(&self, name: &str) -> Pending<'_, bool> {
        let had = self.state.write().databases.remove(name).is_some();
        Box::pin(async move { Ok(had) })
    }

    fn databases(&self) -> Vec<Database> {
        let state = self.state.read();
        let database = |(name, contents): (&String, &Contents)| Database {
            name: name.clone(),
            keep: contents.keep,
        };
        state.databases.iter().map(database).collect()
    }

    fn measurements(&self, selector: &Selector) -> Result<Vec<String>> {
        sorted(self.each(selector, |key, _| Some(vec![key.measurement.to_string()])))
    }

    fn tag_keys(&self, selector: &Selector) -> Result<Vec<String>> {
        let names = |key: &Key| key.tags.iter().map(|(name, _)| name.to_string()).collect();
        sorted(self.each(selector, |key, _| Some(names(key))))
    }

    fn tag_values(&self, selector: &Selector, key: &str) -> Result<Vec<String>> {
        sorted(self.each(selector, |source, _| {
            let (_, value) = source.tags.iter().find(|(name, _)| **name == *key)?;
            Some(vec![value.to_string()])
        }))
    }

    fn fields(&self, database: &str, measurement: &str) -> Result<Vec<(String, Kind)>> {
        let state = self.state.read();
        let contents = state.databases.get(database).ok_or_else(|| no_database(database))?;
        let of = contents.kinds.iter().filter(|((name, _), _)| name == measurement);
        Ok(of.map(|((_, field), &kind)| (field.clone(), kind)).collect())
    }

    fn cardinality(&self, selector: &Selector) -> Result<u64> {
        Ok(self.each(selector, |_, _| Some(()))?.len() as u64)
    }

    fn room(&self) -> Room {
        Room { free: 1.0, retry_after: Duration::ZERO }
    }

    fn health(&self) -> StoreHealth {
        StoreHealth::default()
    }

    fn durability(&self) -> Durability {
        Durability::Never
    }
}

fn sorted(lists: Result<Vec<Vec<String>>>) -> Result<Vec<String>> {
    let names: BTreeSet<_> = lists?.into_iter().flatten().collect();
    Ok(names.into_iter().collect())
}

/// The error of every store for a missing database.
pub(crate) fn no_database(name: &str) -> Error {
    Error::NotFound(format!("database {name:?}: create it first"))
}

/// The error of every store for a batch that comes too late.
pub(crate) fn behind(sequence: u64, newest: u64) -> Error {
    Error::Invalid(format!(
        "sequence {sequence} is {SESSION_WINDOW} or more behind {newest}: the store no longer knows whether \
         it stored it"
    ))
}

/// Points copied when the walk began, of each series in each piece.
struct Walk(VecDeque<Vec<Points>>);

impl Columns for Walk {
    fn next(&mut self) -> Pending<'_, Option<Vec<Points>>> {
        let next = self.0.pop_front();
        Box::pin(async move { Ok(next) })
    }
}

impl Cursor for Walk {
    fn next(&mut self) -> Pending<'_, Option<Points>> {
        let next = self.0.pop_front().and_then(|mut columns| columns.pop());
        Box::pin(async move { Ok(next) })
    }
}

#[cfg(test)]
mod tests {
    use volume::task::block_on;

    use super::*;
    use crate::series::{Predicate, Test, Value};

    fn batch(time: i64, usage: f64) -> Batch {
        let mut batch = Batch::new("db");
        batch.begin("cpu");
        batch.tag("host", "a");
        batch.field("usage", Value::Float(usage));
        batch.end(time).unwrap();
        batch
    }

    fn all(memory: &Memory, scan: Scan) -> Vec<(i64, Scalar)> {
        let selector = Selector::all("db").of("cpu").field("usage");
        let info = memory.find(&selector, None, 9).unwrap().remove(0);
        let mut cursor = memory.read(info.id, scan);
        let mut found = Vec::new();
        while let Some(points) = block_on(cursor.next()).unwrap() {
            found.extend(points.iter().map(|(time, value)| (time, value.to_scalar())));
        }
        found
    }

    #[test]
    fn the_last_write_of_a_time_counts_and_batches_are_stored_once() {
        let memory = Memory::default();
        assert!(matches!(block_on(memory.write(batch(1, 0.0), None)), Err(Error::NotFound(_))));
        block_on(memory.create_database(Database { name: "db".into(), keep: None })).unwrap();
        let session = |sequence| Some(Session { client: "c".into(), sequence });
        for (time, usage, sequence) in [(2, 2.0, 100), (1, 1.0, 99), (2, 3.0, 101), (2, 2.0, 100)] {
            let written = block_on(memory.write(batch(time, usage), session(sequence))).unwrap();
            assert_eq!(written.repeated, written.rows == 0);
        }
        assert!(block_on(memory.write(batch(9, 9.0), session(37))).is_err(), "64 behind 101");
        let float = Scalar::Float;
        assert_eq!(all(&memory, Scan::of(Span::ALL)), [(1, float(1.0)), (2, float(3.0))]);
        let last = Scan { span: Span::ALL, descending: true, limit: 1 };
        assert_eq!(all(&memory, last), [(2, float(3.0))]);
        let none = Predicate::Tag("host".into(), Test::IsNot("a".into()));
        assert_eq!(memory.cardinality(&Selector::all("db").tagged(none)).unwrap(), 0);
        let deleted = memory.delete(Selector::all("db"), Span { from: 2, to: 3 });
        assert_eq!(block_on(deleted).unwrap(), 1);
        assert_eq!(all(&memory, Scan::of(Span::ALL)), [(1, float(1.0))]);
    }

    #[test]
    fn a_row_of_another_kind_is_refused_in_influxdbs_words_and_the_others_are_stored() {
        let memory = Memory::default();
        block_on(memory.create_database(Database { name: "db".into(), keep: None })).unwrap();
        let mut mixed = batch(1, 1.0);
        mixed.begin("cpu");
        mixed.field("usage", Value::Integer(1));
        mixed.end(2).unwrap();
        let written = block_on(memory.write(mixed, None)).unwrap();
        assert_eq!((written.rows, written.refused, written.rejected[0].row), (1, 1, 1));
        assert_eq!(
            written.rejected[0].reason.to_string(),
            "field type conflict: input field \"usage\" on measurement \"cpu\" is type integer, \
             already exists as type float"
        );
    }
}

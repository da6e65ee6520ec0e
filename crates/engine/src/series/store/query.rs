//! Queries of metadata while others write: in small steps, between which other tasks get the lock of the state.
//!
//! Ids of sources and measurements only grow, and never change their meaning. So a walk resumes where it was: it sees
//! everything there when it began, and perhaps newer entries. It restarts only if lists got shorter meanwhile because
//! sources were deleted.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::MutexGuard;

use super::Inner;
use super::catalogue::{Catalogue, series_id, source_of};
use super::index::{Place, Posting, difference, intersection, union};
use crate::series::memory::no_database;
use crate::series::{Info, Predicate, Result, Selector, SeriesId, Test};

/// How many sources, values or measurements one step looks at: some tens of microseconds, with patterns some hundreds.
const STEP: usize = 512;

/// The context of one query.
pub(super) struct Query<'a> {
    inner: &'a Inner,
    selector: &'a Selector,
    /// The id of the database, if it is no longer found by name.
    database: Option<u32>,
}

/// The sources of a measurement, collected on first use.
struct All<'a> {
    query: &'a Query<'a>,
    measurement: u32,
    sources: OnceCell<Vec<u32>>,
}

impl All<'_> {
    fn get(&self) -> &[u32] {
        let of = self.measurement;
        let all = move |catalogue: &Catalogue, step: &mut dyn FnMut(&Posting)| {
            if let Some(all) = catalogue.measurements.get(&of).and_then(|of| of.all.as_ref()) {
                step(all);
            }
        };
        self.sources.get_or_init(|| self.query.posting(all))
    }
}

impl<'a> Query<'a> {
    pub(super) fn new(inner: &'a Inner, selector: &'a Selector) -> Self {
        Self { inner, selector, database: None }
    }

    /// A query about a database that is being dropped, which its name no longer finds.
    pub(super) fn dropped(inner: &'a Inner, selector: &'a Selector, database: u32) -> Self {
        Self { inner, selector, database: Some(database) }
    }

    /// Walks over lists, and restarts if they got shorter meanwhile. The walk gets the epoch of the lists, and gives
    /// `None` when that changed.
    fn walk<T>(&self, mut walk: impl FnMut(u64) -> Option<T>) -> T {
        loop {
            let epoch = self.step(|catalogue| catalogue.epoch);
            if let Some(found) = walk(epoch) {
                return found;
            }
        }
    }

    /// One step, if the lists are still of this epoch.
    fn step_of<T>(&self, epoch: u64, look: impl FnOnce(&Catalogue) -> T) -> Option<T> {
        self.step(|catalogue| (catalogue.epoch == epoch).then(|| look(catalogue)))
    }

    /// One step.
    fn step<T>(&self, look: impl FnOnce(&Catalogue) -> T) -> T {
        let state = self.inner.state();
        let seen = look(&state.catalogue);
        // Unlocking fairly hands the lock over: this task would take it again at once otherwise.
        MutexGuard::unlock_fair(state);
        seen
    }

    /// The measurements selected by name, whatever their sources.
    fn measurements(&self) -> Result<Vec<u32>> {
        let name = &self.selector.database;
        let find = |catalogue: &Catalogue| catalogue.databases.get(name).map(|facts| facts.id);
        let database = self.database.or_else(|| self.step(find));
        let database = database.ok_or_else(|| no_database(name))?;
        if let Some(Test::Is(name)) = &self.selector.measurement {
            let known = self.step(|catalogue| catalogue.find_measurement(database, name));
            return Ok(known.into_iter().collect());
        }
        let (mut wanted, mut next) = (Vec::new(), Some(0));
        while let Some(first) = next {
            next = self.step(|catalogue| {
                let mut last = None;
                for (&id, of) in catalogue.measurements.range(first..).take(STEP) {
                    last = Some(id);
                    if of.database == database && self.selector.wants_measurement(&of.name) {
                        wanted.push(id);
                    }
                }
                last?.checked_add(1)
            });
        }
        Ok(wanted)
    }

    /// The selected sources, by measurement, ascending.
    pub(super) fn select(&self) -> Result<Vec<(u32, Vec<u32>)>> {
        let mut selected = Vec::new();
        for measurement in self.measurements()? {
            let sources = self.sources(measurement);
            if !sources.is_empty() {
                selected.push((measurement, sources));
            }
        }
        Ok(selected)
    }

    fn sources(&self, measurement: u32) -> Vec<u32> {
        let all = All { query: self, measurement, sources: OnceCell::new() };
        self.holding(&self.selector.tags, &all)
    }

    /// The sources of a measurement for which a predicate holds.
    fn holding(&self, predicate: &Predicate, all: &All<'_>) -> Vec<u32> {
        match predicate {
            Predicate::All => all.get().to_vec(),
            Predicate::And(parts) => {
                let mut parts = parts.iter();
                let Some(first) = parts.next() else { return all.get().to_vec() };
                parts.fold(self.holding(first, all), |left, part| {
                    if left.is_empty() {
                        left
                    } else {
                        intersection(&left, &self.holding(part, all))
                    }
                })
            }
            Predicate::Or(parts) => {
                let parts = parts.iter();
                parts.fold(Vec::new(), |found, part| union(found, self.holding(part, all)))
            }
            Predicate::Not(part) => difference(all.get(), &self.holding(part, all)),
            Predicate::Tag(key, test) => {
                // Sources without the tag have an empty value: if that passes, the sources that fail are subtracted
                // from all.
                let missing = test.passes("");
                let of = all.measurement;
                if let (Test::Is(value), false) = (test, missing) {
                    return self.posting(|catalogue, step| {
                        if let Some(sources) = catalogue.pair_of(of, key, value) {
                            step(sources);
                        }
                    });
                }
                let found = self.tagged(of, key, |value| test.passes(value) != missing);
                if missing { difference(all.get(), &found) } else { found }
            }
        }
    }

    /// The sources of a measurement whose tag of this key has a value that passes.
    fn tagged(&self, measurement: u32, key: &str, wants: impl Fn(&str) -> bool) -> Vec<u32> {
        self.walk(|epoch| {
            let (mut found, mut long) = (Vec::new(), Vec::new());
            let mut at = 0;
            loop {
                let seen = self.step_of(epoch, |catalogue| {
                    let pairs = catalogue.pairs_of(measurement, key, at, STEP);
                    for &pair in pairs {
                        if wants(catalogue.value_of(pair))
                            && let Some(sources) = catalogue.sources_of(pair)
                        {
                            match sources.memory() <= STEP {
                                true => sources.collect(&mut found),
                                false => long.push(pair),
                            }
                        }
                    }
                    pairs.len()
                })?;
                at += seen;
                if seen < STEP {
                    break;
                }
            }
            for pair in long {
                let of = |catalogue: &Catalogue, step: &mut dyn FnMut(&Posting)| {
                    catalogue.sources_of(pair).into_iter().for_each(step);
                };
                found.extend(self.posting_of(epoch, of)?);
            }
            found.sort_unstable();
            Some(found)
        })
    }

    /// All sources of a list, which `find` looks up again in each step.
    fn posting(&self, find: impl Fn(&Catalogue, &mut dyn FnMut(&Posting))) -> Vec<u32> {
        self.walk(|epoch| self.posting_of(epoch, &find))
    }

    fn posting_of(
        &self,
        epoch: u64,
        find: impl Fn(&Catalogue, &mut dyn FnMut(&Posting)),
    ) -> Option<Vec<u32>> {
        let (mut sources, mut place) = (Vec::new(), Place::default());
        loop {
            let mut more = false;
            self.step_of(epoch, |catalogue| {
                find(catalogue, &mut |posting| {
                    more = posting.collect_from(&mut place, STEP, &mut sources);
                });
            })?;
            if !more {
                return Some(sources);
            }
        }
    }

    /// Visits those of some sources that have a selected field.
    fn each(
        &self,
        measurement: u32,
        sources: &[u32],
        mut look: impl FnMut(&Catalogue, u32, &[u16]),
    ) {
        for sources in sources.chunks(STEP) {
            self.step(|catalogue| {
                // The database may be dropped by now.
                let Some(of) = catalogue.measurements.get(&measurement) else { return };
                for &source in sources {
                    let fields = catalogue.wanted_fields(self.selector, of, source);
                    if !fields.is_empty() || self.selector.field.is_none() {
                        look(catalogue, source, &fields);
                    }
                }
            });
        }
    }

    /// Whether every source of a measurement is selected.
    fn wants_all(&self) -> bool {
        self.selector.tags == Predicate::All && self.selector.field.is_none()
    }

    /// See [`crate::series::Series::find`].
    pub(super) fn find(&self, after: Option<SeriesId>, limit: usize) -> Result<Vec<Info>> {
        let mut sources: Vec<(u32, u32)> = Vec::new();
        for (measurement, wanted) in self.select()? {
            sources.extend(wanted.into_iter().map(|source| (source, measurement)));
        }
        sources.sort_unstable();
        let first = after.map_or(0, source_of);
        let sources = &sources[sources.partition_point(|&(source, _)| source < first)..];
        let mut found = Vec::new();
        for sources in sources.chunks(STEP) {
            self.step(|catalogue| {
                for &(source, measurement) in sources {
                    self.push_series(catalogue, source, measurement, after, limit, &mut found);
                }
            });
            if found.len() >= limit {
                break;
            }
        }
        Ok(found)
    }

    /// Adds the description of each selected series of a source.
    fn push_series(
        &self,
        catalogue: &Catalogue,
        source: u32,
        measurement: u32,
        after: Option<SeriesId>,
        limit: usize,
        found: &mut Vec<Info>,
    ) {
        let Some(of) = catalogue.measurements.get(&measurement) else { return };
        let mut tags: Option<Vec<(Arc<str>, Arc<str>)>> = None;
        for field in catalogue.wanted_fields(self.selector, of, source) {
            let id = series_id(source, field);
            if after.is_some_and(|after| id <= after) {
                continue;
            }
            if found.len() >= limit {
                return;
            }
            let tags = tags.get_or_insert_with(|| {
                let key = catalogue.source_key(source);
                key.map_or_else(Vec::new, |(_, tags)| {
                    tags.map(|(key, value)| (key.into(), value.into())).collect()
                })
            });
            let (name, kind) = &of.fields[usize::from(field)];
            found.push(Info {
                id,
                measurement: Arc::clone(&of.name),
                tags: tags.clone(),
                field: Arc::clone(name),
                kind: *kind,
            });
        }
    }

    /// See [`crate::series::Series::measurements`].
    pub(super) fn measurement_names(&self) -> Result<Vec<String>> {
        let mut names = BTreeSet::new();
        for measurement in self.measurements()? {
            let mut is_wanted = false;
            if self.wants_all() {
                is_wanted = self.step(|catalogue| {
                    catalogue.measurements.get(&measurement).is_some_and(|of| of.all.is_some())
                });
            } else {
                for sources in self.sources(measurement).chunks(STEP) {
                    self.each(measurement, sources, |_, _, _| is_wanted = true);
                    if is_wanted {
                        break;
                    }
                }
            }
            if is_wanted {
                names.extend(self.step(|catalogue| {
                    catalogue.measurements.get(&measurement).map(|of| of.name.to_string())
                }));
            }
        }
        Ok(names.into_iter().collect())
    }

    /// See [`crate::series::Series::tag_keys`].
    pub(super) fn tag_keys(&self) -> Result<Vec<String>> {
        let mut names = BTreeSet::new();
        for measurement in self.measurements()? {
            if self.wants_all() {
                names.extend(self.step(|catalogue| catalogue.keys_of(measurement)));
                continue;
            }
            self.each(measurement, &self.sources(measurement), |catalogue, source, _| {
                for (key, _) in catalogue.source_key(source).into_iter().flat_map(|(_, tags)| tags)
                {
                    if !names.contains(key) {
                        names.insert(key.to_string());
                    }
                }
            });
        }
        Ok(names.into_iter().collect())
    }

    /// See [`crate::series::Series::tag_values`].
    pub(super) fn tag_values(&self, key: &str) -> Result<Vec<String>> {
        let mut names = BTreeSet::new();
        let mut add = |value: &str| {
            if !names.contains(value) {
                names.insert(value.to_string());
            }
        };
        for measurement in self.measurements()? {
            if self.wants_all() {
                self.walk(|epoch| {
                    let mut at = 0;
                    loop {
                        let seen = self.step_of(epoch, |catalogue| {
                            let pairs = catalogue.pairs_of(measurement, key, at, STEP);
                            pairs.iter().for_each(|&pair| add(catalogue.value_of(pair)));
                            pairs.len()
                        })?;
                        at += seen;
                        if seen < STEP {
                            return Some(());
                        }
                    }
                });
                continue;
            }
            self.each(measurement, &self.sources(measurement), |catalogue, source, _| {
                let tags = catalogue.source_key(source).into_iter().flat_map(|(_, tags)| tags);
                tags.filter(|(name, _)| *name == key).for_each(|(_, value)| add(value));
            });
        }
        Ok(names.into_iter().collect())
    }

    /// See [`crate::series::Series::cardinality`].
    pub(super) fn cardinality(&self) -> Result<u64> {
        let mut count = 0;
        for (measurement, sources) in self.select()? {
            self.each(measurement, &sources, |_, _, fields| count += fields.len() as u64);
        }
        Ok(count)
    }

    /// The selected fields of each source that has some.
    pub(super) fn fields(&self) -> Result<Vec<(u32, Vec<u16>)>> {
        let mut found = Vec::new();
        for (measurement, sources) in self.select()? {
            self.each(measurement, &sources, |_, source, fields| {
                if !fields.is_empty() {
                    found.push((source, fields.to_vec()));
                }
            });
        }
        Ok(found)
    }
}

//! Reads points that pass the filter: fields of a source side by side, as needed for conditions.
//!
//! A store returns the points of several series of a source interval by interval. So all values at a time arrive
//! together, and only a piece of each series is in memory.

use std::collections::{BTreeSet, HashMap};

use engine::series::{Columns, Info, Points, Scan};

use super::context::Context;
use super::filter::{self, Filter, Rows, Tests};
use crate::http::refusal::Refusal;

/// Series of one source, in order.
pub(super) type Source<'a> = Vec<&'a Info>;

/// Series grouped by source.
pub(super) fn sources(series: &[Info]) -> Vec<Source<'_>> {
    let mut places: HashMap<&[_], usize> = HashMap::new();
    let mut sources: Vec<Source<'_>> = Vec::new();
    for info in series {
        let place = *places.entry(&info.tags[..]).or_insert(sources.len());
        if place == sources.len() {
            sources.push(Vec::new());
        }
        sources[place].push(info);
    }
    sources
}

/// A walk over several fields of a source.
pub(super) struct Walk<'a> {
    tests: Option<Tests<'a>>,
    /// The requested fields first, then those that only the filter tests.
    fields: Vec<&'a str>,
    wanted: usize,
    columns: Box<dyn Columns>,
    descending: bool,
}

impl<'a> Walk<'a> {
    /// A walk over the `wanted` series of a source, which has others that the filter may test. `None` if no point can
    /// pass.
    pub(super) fn new(
        context: &Context<'_>,
        filter: &'a Filter,
        source: &[&'a Info],
        wanted: &[&'a Info],
        scan: Scan,
    ) -> Option<Self> {
        let first = wanted.first()?;
        let has = |field: &str| source.iter().any(|info| *info.field == *field);
        let tests = match filter.of(&|key| first.tag(key), &has) {
            Rows::Nothing => return None,
            Rows::Every => None,
            Rows::Where(tests) => Some(tests),
        };
        let mut tested = BTreeSet::new();
        // Points are filtered after the read, so the store cannot apply the limit.
        let mut limit = scan.limit;
        if let Some(tests) = &tests {
            tests.fields(&mut tested);
            limit = usize::MAX;
        }
        let others = source.iter().filter(|info| {
            tested.contains(&*info.field) && wanted.iter().all(|wanted| wanted.id != info.id)
        });
        let (fields, ids): (Vec<_>, Vec<_>) =
            wanted.iter().chain(others).map(|info| (&*info.field, info.id)).unzip();
        let columns = context.store.read_columns(&ids, Scan { limit, ..scan });
        let (wanted, descending) = (wanted.len(), scan.descending);
        Some(Self { tests, fields, wanted, columns, descending })
    }

    /// The next points of each wanted field, in order; they may be empty. `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Points>>, Refusal> {
        let Some(columns) = self.columns.next().await? else { return Ok(None) };
        let Some(tests) = &self.tests else { return Ok(Some(columns)) };
        let column = |field: &str| {
            let at = self.fields.iter().position(|other| *other == field)?;
            Some(&columns[at])
        };
        let times = tests.times(&column, self.descending);
        let wanted = columns.iter().take(self.wanted);
        Ok(Some(wanted.map(|points| filter::at(points, &times, self.descending)).collect()))
    }
}

//! The series that a statement refers to.

use std::collections::BTreeSet;

use engine::series::{Info, Predicate, Selector, Span, Test as StoreTest};

use super::context::Context;
use super::fields::Fields;
use super::filter::Filter;
use crate::http::influxql::{Condition, Named, Source};
use crate::http::refusal::Refusal;

/// The most series that one statement may select.
pub(super) const SERIES_MAX: usize = 100_000;

/// The span, and the remaining condition.
pub(super) fn split(filter: Option<&Condition>) -> Result<(Span, Option<Condition>), Refusal> {
    let Some(filter) = filter else { return Ok((Span::ALL, None)) };
    let (span, rest) = filter.clone().split().map_err(Refusal::bad)?;
    // The statement's span includes its end, the store's does not; no point has the largest time.
    let empty = span.from > span.to;
    let to = if empty { span.from } else { span.to.saturating_add(1) };
    Ok((Span { from: span.from, to }, rest))
}

/// A test for a measurement's name or pattern.
pub(super) fn measurement(named: &Named) -> StoreTest {
    match named {
        Named::Is(name) => StoreTest::Is(name.clone()),
        Named::Like(pattern) => StoreTest::Matches(pattern.compiled().clone()),
    }
}

/// Every measurement in these sources, with its database; all of the database if there are no sources.
pub(super) fn measurements(
    context: &Context<'_>,
    on: Option<&String>,
    from: &[Source],
) -> Result<Vec<(String, String)>, Refusal> {
    let mut found = Vec::new();
    if from.is_empty() {
        let database = context.database(on)?;
        for name in context.store.measurements(&Selector::all(database.clone()))? {
            found.push((database.clone(), name));
        }
    }
    for source in from {
        let database = context.database(source.database.as_ref().or(on))?;
        match &source.measurement {
            Named::Is(name) => found.push((database, name.clone())),
            like @ Named::Like(_) => {
                let all = Selector {
                    measurement: Some(measurement(like)),
                    ..Selector::all(database.clone())
                };
                for name in context.store.measurements(&all)? {
                    found.push((database.clone(), name));
                }
            }
        }
    }
    Ok(found)
}

/// The condition on tags, for statements that cannot test fields. `fields` distinguishes fields from tags.
pub(super) fn predicate(
    condition: Option<&Condition>,
    fields: &Fields,
) -> Result<Predicate, Refusal> {
    let filter = Filter::new(condition, fields)?;
    let mut tested = BTreeSet::new();
    filter.fields(&mut tested);
    match tested.first() {
        Some(field) => {
            Err(Refusal::bad(format!("{field:?} is a field: only SELECT supports fields in WHERE")))
        }
        None => Ok(filter.tags()),
    }
}

/// All selected series.
pub(super) fn find(context: &Context<'_>, selector: &Selector) -> Result<Vec<Info>, Refusal> {
    // One large call: the store examines all of its series for each call.
    const AT_ONCE: usize = SERIES_MAX + 1;
    let mut found: Vec<Info> = Vec::new();
    loop {
        let after = found.last().map(|info| info.id);
        let more = context.store.find(selector, after, AT_ONCE)?;
        let done = more.len() < AT_ONCE;
        found.extend(more);
        if found.len() > SERIES_MAX {
            return Err(Refusal::bad(format!(
                "more than {SERIES_MAX} series match: choose fewer by their tags"
            )));
        }
        if done {
            return Ok(found);
        }
    }
}

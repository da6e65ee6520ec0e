//! Aggregates of points, in windows of time or over the whole span.

use std::collections::BTreeMap;

use engine::series::aggregate::{Aggregation, Fill as StoreFill, Function, Limits, Windows};
use engine::series::{Info, Points, Scalar, Scan, Span, Value};

use super::context::Context;
use super::filter::Filter;
use super::plan::{self, Leaf};
use super::reading::Reading;
use super::walk::{self, Source, Walk};
use crate::http::influxql::Fill;
use crate::http::refusal::Refusal;
use crate::http::table::Cell;

pub(super) async fn read(
    context: &Context<'_>,
    reading: &Reading<'_>,
    series: &[Info],
) -> Result<Vec<Cell>, Refusal> {
    for leaf in &reading.plan.leaves {
        if let Leaf::Sum(function, field) = leaf
            && let Some(kind) = reading.fields.get(field)
        {
            plan::check(*function, *kind)?;
        }
    }
    let mut rows = match (&reading.plan.leaves[..], reading.window) {
        ([Leaf::Sum(function, _)], None) if picks(*function) => {
            let picked = pick(context, reading, *function, series).await?;
            picked.into_iter().map(|(time, value)| (time, vec![Some(value)])).collect()
        }
        _ => sum_up(context, reading, series).await?,
    };
    if reading.select.descending {
        rows.reverse();
    }
    let (offset, limit) = reading.page();
    let columns = &reading.plan.columns;
    let mut cells = Vec::new();
    for (time, values) in rows.into_iter().skip(offset).take(limit) {
        cells.push(Cell::Time(time));
        cells.extend(columns.iter().map(|(_, formula)| Cell::from(formula.value(&values))));
    }
    Ok(cells)
}

/// Rows: a time, and a value for each leaf.
type Rows = Vec<(i64, Vec<Option<Scalar>>)>;

async fn sum_up(
    context: &Context<'_>,
    reading: &Reading<'_>,
    series: &[Info],
) -> Result<Rows, Refusal> {
    let leaves = &reading.plan.leaves;
    let windowed = reading.window.is_some();
    let mut span = reading.span;
    if windowed && span.to == i64::MAX {
        // By default, windows end now.
        span.to = context.now.saturating_add(1).max(span.from);
    }
    let fill = fill(reading);
    if windowed && span.from == i64::MIN && fill != StoreFill::None {
        // The first window starts at the first point.
        let Some(first) = first(context, reading, span, series).await? else {
            return Ok(Vec::new());
        };
        span.from = first;
    }
    let windows = Windows {
        span,
        every: reading.window.map(|window| window.every),
        offset: reading.window.map_or(0, |window| window.offset),
    };
    let most = context.values_max / (leaves.len() + 1);
    let limits = Limits { windows: most, values: context.values_max };
    // The values at a time, one for each leaf.
    let mut rows: BTreeMap<i64, Vec<Option<Scalar>>> = BTreeMap::new();
    let mut points_seen = false;
    let sources = sources(reading, series);
    for (field, kind) in reading.fields {
        let mut sums = Vec::new();
        for (at, leaf) in leaves.iter().enumerate() {
            if let Leaf::Sum(function, of) = leaf
                && of == field
            {
                sums.push((at, Aggregation::new(*function, *kind, windows, limits)?));
            }
        }
        if sums.is_empty() {
            continue;
        }
        for source in &sources {
            let Some(mut points) = read_one(context, reading, source, field, Scan::of(span)) else {
                continue;
            };
            while let Some(points) = points.next().await? {
                points_seen |= !points.is_empty();
                for (_, sum) in &mut sums {
                    sum.add(&points)?;
                }
                tokio::task::yield_now().await;
            }
        }
        for (at, sum) in sums {
            for window in sum.finish(fill)? {
                let row = rows.entry(window.start).or_insert_with(|| vec![None; leaves.len()]);
                row[at] = window.value;
            }
        }
    }
    if !points_seen {
        return Ok(Vec::new());
    }
    // Without windows the time is the start of the span, or 1970 if the span has no start.
    let time = |start| if !windowed && start == i64::MIN { 0 } else { start };
    Ok(rows.into_iter().map(|(start, row)| (time(start), row)).collect())
}

fn fill(reading: &Reading<'_>) -> StoreFill {
    if reading.window.is_none() {
        return StoreFill::None;
    }
    match reading.select.fill {
        Fill::Null => StoreFill::Null,
        Fill::None => StoreFill::None,
        Fill::Previous => StoreFill::Previous,
        Fill::Linear => StoreFill::Linear,
        Fill::Number(number) => StoreFill::Value(number),
    }
}

/// The time of the earliest point.
async fn first(
    context: &Context<'_>,
    reading: &Reading<'_>,
    span: Span,
    series: &[Info],
) -> Result<Option<i64>, Refusal> {
    let mut first: Option<i64> = None;
    let scan = Scan { limit: 1, ..Scan::of(span) };
    for source in sources(reading, series) {
        for field in reading.plan.fields() {
            let Some(mut points) = read_one(context, reading, &source, field, scan) else {
                continue;
            };
            while let Some(points) = points.next().await? {
                if let Some(&time) = points.times.first() {
                    first = Some(first.map_or(time, |first| first.min(time)));
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
    }
    Ok(first)
}

/// Series grouped by source; one by one without a filter, which might test other fields of the source.
fn sources<'a>(reading: &Reading<'_>, series: &'a [Info]) -> Vec<Source<'a>> {
    match reading.filter {
        Filter::Every => series.iter().map(|info| vec![info]).collect(),
        _ => walk::sources(series),
    }
}

/// The points of a source's field that pass the filter.
fn read_one<'a>(
    context: &Context<'_>,
    reading: &Reading<'a>,
    source: &[&'a Info],
    field: &str,
    scan: Scan,
) -> Option<One<'a>> {
    let wanted = *source.iter().find(|info| *info.field == *field)?;
    Walk::new(context, reading.filter, source, &[wanted], scan).map(One)
}

/// A walk over one field.
struct One<'a>(Walk<'a>);

impl One<'_> {
    async fn next(&mut self) -> Result<Option<Points>, Refusal> {
        Ok(self.0.next().await?.and_then(|mut columns| columns.pop()))
    }
}

/// Whether a function selects one of the points: if used alone, it also returns the point's time.
fn picks(function: Function) -> bool {
    matches!(function, Function::First | Function::Last | Function::Min | Function::Max)
}

async fn pick(
    context: &Context<'_>,
    reading: &Reading<'_>,
    function: Function,
    series: &[Info],
) -> Result<Option<(i64, Scalar)>, Refusal> {
    let span = reading.span;
    let one = matches!(function, Function::First | Function::Last);
    let scan = match function {
        Function::First => Scan { limit: 1, ..Scan::of(span) },
        Function::Last => Scan { limit: 1, descending: true, ..Scan::of(span) },
        _ => Scan::of(span),
    };
    let mut best: Option<(i64, Scalar)> = None;
    for source in sources(reading, series) {
        for field in reading.plan.fields() {
            let Some(mut points) = read_one(context, reading, &source, field, scan) else {
                continue;
            };
            while let Some(points) = points.next().await? {
                for (time, value) in points.iter() {
                    let better = best.as_ref().is_none_or(|(best_time, best)| match function {
                        Function::First => time < *best_time,
                        Function::Last => time > *best_time,
                        Function::Min => is_less(value, best.as_value()),
                        _ => is_less(best.as_value(), value),
                    });
                    if better {
                        best = Some((time, value.to_scalar()));
                    }
                }
                // All further points are later than this one, or earlier.
                if one && !points.is_empty() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
    }
    Ok(best)
}

/// Whether a number is less than another of its kind.
fn is_less(one: Value<'_>, other: Value<'_>) -> bool {
    match (one, other) {
        (Value::Integer(one), Value::Integer(other)) => one < other,
        (Value::Unsigned(one), Value::Unsigned(other)) => one < other,
        _ => one.as_f64() < other.as_f64(),
    }
}

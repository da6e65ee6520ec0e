//! `SELECT`: finds series, groups them by their tags, and reads group by group.
//!
//! Fields that only the condition tests are found too, and accompany the series of their source; the answer omits them.

use std::collections::BTreeMap;

use engine::series::{Info, Selector, Test as StoreTest};

use super::context::Context;
use super::fields::Fields;
use super::filter::Filter;
use super::plan::{Known, Plan};
use super::reading::Reading;
use super::{choose, raw, sums};
use crate::http::influxql::{Dimension, Select};
use crate::http::refusal::Refusal;
use crate::http::table::Table;

pub(super) async fn select(context: &Context<'_>, select: &Select) -> Result<Vec<Table>, Refusal> {
    let (span, rest) = choose::split(select.filter.as_ref())?;
    let window = select.group.iter().find_map(|by| match by {
        Dimension::Time(window) => Some(*window),
        _ => None,
    });
    let mut tables = Vec::new();
    let mut values = 0;
    let mut skip = select.soffset.unwrap_or(0);
    let mut left = select.slimit.filter(|&limit| limit > 0).unwrap_or(u64::MAX);
    for (database, name) in choose::measurements(context, None, &select.from)? {
        let fields: Fields = context.store.fields(&database, &name)?.into_iter().collect();
        if fields.is_empty() {
            continue;
        }
        let filter = Filter::new(rest.as_ref(), &fields)?;
        let selector = Selector { tags: filter.tags(), ..Selector::all(database).of(&name) };
        let known_tags = context.store.tag_keys(&selector)?;
        let grouped = grouped(&select.group, &known_tags);
        let known = Known { fields: &fields, tags: &known_tags, grouped: &grouped };
        let plan = Plan::new(&select.columns, &known)?;
        let mut needed = plan.fields();
        if needed.is_empty() {
            continue;
        }
        if window.is_some() && !plan.is_sums() {
            return Err(Refusal::bad("GROUP BY requires at least one aggregate function"));
        }
        let filter = filter.beyond_tags();
        filter.fields(&mut needed);
        let field = StoreTest::In(needed.into_iter().map(str::to_owned).collect());
        let found = choose::find(context, &Selector { field: Some(field), ..selector })?;
        let reading =
            Reading { plan: &plan, fields: &fields, filter: &filter, span, window, select };
        for (by, series) in groups(found, &grouped) {
            if left == 0 {
                return Ok(tables);
            }
            let cells = if plan.is_sums() {
                sums::read(context, &reading, &series).await?
            } else {
                raw::read(context, &reading, &series).await?
            };
            if cells.is_empty() {
                continue;
            }
            if skip > 0 {
                skip -= 1;
                continue;
            }
            left -= 1;
            values += cells.len();
            context.check_values(values)?;
            let columns = plan.columns.iter().map(|(name, _)| name.clone());
            let columns = std::iter::once("time".to_owned()).chain(columns).collect();
            let tags = grouped.iter().cloned().zip(by).collect();
            tables.push(Table { name: name.clone(), tags, columns, cells });
        }
    }
    Ok(tables)
}

/// The tags that rows are grouped by.
fn grouped(group: &[Dimension], known: &[String]) -> Vec<String> {
    let mut tags: Vec<String> = Vec::new();
    for by in group {
        match by {
            Dimension::Time(_) => {}
            Dimension::Tag(name) => tags.push(name.clone()),
            Dimension::All => tags.extend(known.iter().cloned()),
            Dimension::Like(pattern) => {
                tags.extend(known.iter().filter(|tag| pattern.is_in(tag)).cloned());
            }
        }
    }
    tags.sort_unstable();
    tags.dedup();
    tags
}

/// Series by the values of these tags.
fn groups(found: Vec<Info>, tags: &[String]) -> BTreeMap<Vec<String>, Vec<Info>> {
    let mut groups: BTreeMap<Vec<String>, Vec<Info>> = BTreeMap::new();
    for info in found {
        let by = tags.iter().map(|tag| info.tag(tag).to_owned()).collect();
        groups.entry(by).or_default().push(info);
    }
    groups
}

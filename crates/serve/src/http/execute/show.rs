//! `SHOW`: databases, measurements, tags, fields and series, in the tables of InfluxDB 1.x.

use engine::series::{Scalar, Selector};

use super::choose;
use super::context::Context;
use super::fields::Fields;
use crate::http::influxql::{Condition, KeyTest, Page, Show, Source};
use crate::http::refusal::Refusal;
use crate::http::table::{Cell, Table};

pub(super) fn show(context: &Context<'_>, show: &Show) -> Result<Vec<Table>, Refusal> {
    let tables = match show {
        Show::Databases => vec![databases(context)],
        Show::RetentionPolicies { on } => vec![policies(context, on.as_ref())?],
        Show::Measurements { on, with, filter, page } => {
            let database = context.database(on.as_ref())?;
            let tags = choose::predicate(filter.as_ref(), &Fields::new())?;
            let measurement = with.as_ref().map(choose::measurement);
            let selector = Selector { measurement, tags, ..Selector::all(database) };
            let mut table = Table::new("measurements", &["name"]);
            let names = context.store.measurements(&selector)?;
            table.cells = page.of(names).map(Cell::text).collect();
            vec![table]
        }
        Show::TagKeys { on, from, filter, page } => {
            each(context, on.as_ref(), from, filter.as_ref(), &["tagKey"], |selector, table| {
                let keys = context.store.tag_keys(&selector)?;
                table.cells = page.of(keys).map(Cell::text).collect();
                Ok(())
            })?
        }
        Show::TagValues { on, from, with, filter, page } => each(
            context,
            on.as_ref(),
            from,
            filter.as_ref(),
            &["key", "value"],
            |selector, table| {
                table.cells = tag_values(context, &selector, with, *page)?;
                Ok(())
            },
        )?,
        Show::FieldKeys { on, from, page } => {
            let columns = ["fieldKey", "fieldType"];
            let mut tables = Vec::new();
            for (database, name) in choose::measurements(context, on.as_ref(), from)? {
                let mut table = Table::new(&name, &columns);
                let fields = context.store.fields(&database, &name)?;
                table.cells = page
                    .of(fields)
                    .flat_map(|(field, kind)| [Cell::text(field), Cell::text(kind.to_string())])
                    .collect();
                tables.push(table);
            }
            tables
        }
        Show::Series { on, from, filter, page } => {
            let mut keys = Vec::new();
            each(context, on.as_ref(), from, filter.as_ref(), &["key"], |selector, _| {
                let found = choose::find(context, &selector)?;
                keys.extend(found.iter().map(key));
                Ok(())
            })?;
            // A series of the store is one field of a series of InfluxDB.
            keys.sort_unstable();
            keys.dedup();
            let mut table = Table::new("", &["key"]);
            table.cells = page.of(keys).map(Cell::text).collect();
            vec![table]
        }
    };
    let cells = tables.iter().map(|table| table.cells.len()).sum();
    context.check_values(cells)?;
    let some = |table: &Table| !table.cells.is_empty() || matches!(show, Show::Databases);
    Ok(tables.into_iter().filter(some).collect())
}

fn databases(context: &Context<'_>) -> Table {
    let mut table = Table::new("databases", &["name"]);
    let databases = context.store.databases().into_iter();
    let databases: Vec<_> =
        databases.filter(|database| context.grant.reaches(&database.name)).collect();
    table.cells = databases.iter().map(|database| Cell::text(&database.name)).collect();
    table
}

/// One policy for each database, under the name that clients expect.
fn policies(context: &Context<'_>, on: Option<&String>) -> Result<Table, Refusal> {
    let name = context.database(on)?;
    let databases = context.store.databases();
    let Some(database) = databases.into_iter().find(|database| database.name == name) else {
        return Err(Refusal::bad(format!("database not found: {name}")));
    };
    let columns = ["name", "duration", "shardGroupDuration", "replicaN", "default"];
    let mut table = Table::new("", &columns);
    let keep = database.keep.map_or(0, |keep| keep.as_secs());
    table.cells = vec![
        Cell::text("autogen"),
        Cell::text(format!("{}h{}m{}s", keep / 3600, keep / 60 % 60, keep % 60)),
        Cell::text("168h0m0s"),
        Cell::Value(Scalar::Integer(1)),
        Cell::Value(Scalar::Boolean(true)),
    ];
    if keep == 0 {
        table.cells[1] = Cell::text("0s");
    }
    Ok(table)
}

/// A table for each measurement.
fn each(
    context: &Context<'_>,
    on: Option<&String>,
    from: &[Source],
    filter: Option<&Condition>,
    columns: &[&str],
    mut fill: impl FnMut(Selector, &mut Table) -> Result<(), Refusal>,
) -> Result<Vec<Table>, Refusal> {
    let (_, filter) = choose::split(filter)?;
    let mut tables = Vec::new();
    for (database, name) in choose::measurements(context, on, from)? {
        let fields = context.store.fields(&database, &name)?.into_iter().collect();
        let tags = choose::predicate(filter.as_ref(), &fields)?;
        let mut table = Table::new(&name, columns);
        fill(Selector { tags, ..Selector::all(database).of(&name) }, &mut table)?;
        tables.push(table);
    }
    Ok(tables)
}

fn tag_values(
    context: &Context<'_>,
    selector: &Selector,
    with: &KeyTest,
    page: Page,
) -> Result<Vec<Cell>, Refusal> {
    let mut pairs = Vec::new();
    for key in context.store.tag_keys(selector)? {
        if with.means(&key) {
            let values = context.store.tag_values(selector, &key)?;
            pairs.extend(values.into_iter().map(|value| (key.clone(), value)));
        }
    }
    Ok(page.of(pairs).flat_map(|(key, value)| [Cell::text(key), Cell::text(value)]).collect())
}

/// A source in line protocol.
fn key(info: &engine::series::Info) -> String {
    let escape = |text: &str| {
        let mut escaped = String::with_capacity(text.len());
        for character in text.chars() {
            if matches!(character, ',' | ' ' | '=') {
                escaped.push('\\');
            }
            escaped.push(character);
        }
        escaped
    };
    let mut key = info.measurement.replace(',', "\\,").replace(' ', "\\ ");
    for (name, value) in &info.tags {
        key.push_str(&format!(",{}={}", escape(name), escape(value)));
    }
    key
}

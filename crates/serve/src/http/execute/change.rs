//! Statements that change stored data.

use std::time::Duration;

use axum::http::StatusCode;
use engine::series::{Database, Predicate, Selector, Span};

use super::Asked;
use super::choose;
use crate::http::influxql::{Condition, Source, Statement};
use crate::http::refusal::Refusal;
use crate::http::table::Table;

pub(super) async fn change(
    asked: &Asked<'_>,
    statement: &Statement,
) -> Result<Vec<Table>, Refusal> {
    let store = asked.store;
    match statement {
        Statement::CreateDatabase { name, keep } => {
            asked.grant.database(name)?;
            // An existing database keeps its retention unless the statement sets one.
            let is_there = store.databases().iter().any(|database| database.name == *name);
            if !is_there || keep.is_some() {
                store.create_database(kept(name, keep.flatten())).await?;
            }
        }
        Statement::Keep { database, keep } => {
            asked.grant.database(database)?;
            if !store.databases().iter().any(|known| known.name == *database) {
                let told = format!("database not found: {database}");
                return Err(Refusal::new(StatusCode::NOT_FOUND, told));
            }
            store.create_database(kept(database, *keep)).await?;
        }
        Statement::DropDatabase(name) => {
            asked.grant.database(name)?;
            store.drop_database(name).await?;
        }
        Statement::DropMeasurement(name) => {
            let selector = Selector::all(asked.database(None)?).of(name);
            store.delete(selector, Span::ALL).await?;
        }
        Statement::DropSeries { from, filter } => {
            let (span, rest) = choose::split(filter.as_ref())?;
            if span != Span::ALL {
                return Err(Refusal::bad("DROP SERIES doesn't support time in WHERE clause"));
            }
            delete(asked, from, rest.as_ref(), Span::ALL).await?;
        }
        Statement::Delete { from, filter } => {
            let (span, rest) = choose::split(filter.as_ref())?;
            delete(asked, from, rest.as_ref(), span).await?;
        }
        Statement::Select(_) | Statement::Show(_) => {}
    }
    Ok(Vec::new())
}

fn kept(name: &str, nanos: Option<i64>) -> Database {
    let keep = nanos.map(|nanos| Duration::from_nanos(nanos.unsigned_abs()));
    Database { name: name.to_owned(), keep }
}

async fn delete(
    asked: &Asked<'_>,
    from: &[Source],
    tags: Option<&Condition>,
    span: Span,
) -> Result<(), Refusal> {
    // Checks every condition before it deletes anything.
    let mut whole = Vec::new();
    for (database, measurement) in choose::measurements(asked, None, from)? {
        let fields = asked.store.fields(&database, &measurement)?.into_iter().collect();
        let tags: Predicate = choose::predicate(tags, &fields)?;
        whole.push(Selector { tags, ..Selector::all(database).of(&measurement) });
    }
    for selector in whole {
        asked.store.delete(selector, span).await?;
    }
    Ok(())
}

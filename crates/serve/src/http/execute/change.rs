//! Statements that change stored data.

use std::time::Duration;

use axum::http::StatusCode;
use engine::series::{Database, Predicate, Selector, Span};

use super::choose;
use super::context::Context;
use crate::http::influxql::{Condition, Source, Statement};
use crate::http::refusal::Refusal;
use crate::http::table::Table;

pub(super) async fn change(
    context: &Context<'_>,
    statement: &Statement,
) -> Result<Vec<Table>, Refusal> {
    let store = context.store;
    match statement {
        Statement::CreateDatabase { name, keep } => {
            context.grant.database(name)?;
            // An existing database keeps its retention unless the statement sets one.
            let is_there = store.databases().iter().any(|database| database.name == *name);
            if !is_there || keep.is_some() {
                store.create_database(kept(name, keep.flatten())).await?;
            }
        }
        Statement::Keep { database, keep } => {
            context.grant.database(database)?;
            if !store.databases().iter().any(|known| known.name == *database) {
                let told = format!("database not found: {database}");
                return Err(Refusal::new(StatusCode::NOT_FOUND, told));
            }
            store.create_database(kept(database, *keep)).await?;
        }
        Statement::DropDatabase(name) => {
            context.grant.database(name)?;
            store.drop_database(name).await?;
        }
        Statement::DropMeasurement(name) => {
            let selector = Selector::all(context.database(None)?).of(name);
            store.delete(selector, Span::ALL).await?;
        }
        Statement::DropSeries { from, filter } => {
            let (span, rest) = choose::split(filter.as_ref())?;
            if span != Span::ALL {
                return Err(Refusal::bad("DROP SERIES doesn't support time in WHERE clause"));
            }
            delete(context, from, rest.as_ref(), Span::ALL).await?;
        }
        Statement::Delete { from, filter } => {
            let (span, rest) = choose::split(filter.as_ref())?;
            delete(context, from, rest.as_ref(), span).await?;
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
    context: &Context<'_>,
    from: &[Source],
    tags: Option<&Condition>,
    span: Span,
) -> Result<(), Refusal> {
    // Checks every condition before it deletes anything.
    let mut whole = Vec::new();
    for (database, measurement) in choose::measurements(context, None, from)? {
        let fields = context.store.fields(&database, &measurement)?.into_iter().collect();
        let tags: Predicate = choose::predicate(tags, &fields)?;
        whole.push(Selector { tags, ..Selector::all(database).of(&measurement) });
    }
    for selector in whole {
        context.store.delete(selector, span).await?;
    }
    Ok(())
}

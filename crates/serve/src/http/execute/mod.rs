//! Statements to tables, over any store of series.

mod change;
mod choose;
mod context;
mod fields;
mod filter;
mod formula;
mod plan;
mod raw;
mod reading;
mod select;
mod show;
mod sums;
mod walk;

pub(super) use context::Context;

use super::influxql::Statement;
use super::refusal::Refusal;
use super::table::Table;

/// Runs long computations without blocking other connections: on a runtime of several threads, those move to another
/// thread.
fn beside_others<T>(work: impl FnOnce() -> T) -> T {
    match tokio::runtime::Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(tokio::runtime::RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Executes a statement.
pub(super) async fn execute(
    context: &Context<'_>,
    statement: &Statement,
) -> Result<Vec<Table>, Refusal> {
    match statement {
        Statement::Select(select) => select::select(context, select).await,
        Statement::Show(show) => beside_others(|| show::show(context, show)),
        change => {
            if !context.may_change {
                return Err(Refusal::bad("statements that change data are accepted by POST only"));
            }
            change::change(context, change).await
        }
    }
}

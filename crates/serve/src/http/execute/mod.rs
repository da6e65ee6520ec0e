//! Statements to tables, over any store of series.

mod change;
mod choose;
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

use engine::series::Series;

use super::access::Grant;
use super::influxql::Statement;
use super::refusal::Refusal;
use super::table::Table;

/// The context of all statements of a request.
pub(super) struct Asked<'a> {
    pub(super) store: &'a dyn Series,
    /// The database of statements that name none.
    pub(super) database: Option<&'a str>,
    /// Nanoseconds since 1970.
    pub(super) now: i64,
    /// The limit on values in an answer.
    pub(super) values_max: usize,
    /// Whether the request may change stored data.
    pub(super) may_change: bool,
    /// The client's rights.
    pub(super) grant: &'a Grant,
}

impl Asked<'_> {
    /// The database of a statement.
    fn database(&self, named: Option<&String>) -> Result<String, Refusal> {
        let name = named.map(String::as_str).or(self.database);
        let name = name.ok_or_else(|| Refusal::bad("database name required"))?;
        self.grant.database(name)?;
        Ok(name.to_owned())
    }

    fn check_values(&self, values: usize) -> Result<(), Refusal> {
        if values <= self.values_max {
            return Ok(());
        }
        let max = self.values_max;
        Err(Refusal::bad(format!(
            "the answer has more than {max} values: ask for a shorter time, longer windows, or with LIMIT"
        )))
    }
}

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
    asked: &Asked<'_>,
    statement: &Statement,
) -> Result<Vec<Table>, Refusal> {
    match statement {
        Statement::Select(select) => select::select(asked, select).await,
        Statement::Show(show) => beside_others(|| show::show(asked, show)),
        change => {
            if !asked.may_change {
                return Err(Refusal::bad(
                    "statements that change what is stored are taken by POST only",
                ));
            }
            change::change(asked, change).await
        }
    }
}

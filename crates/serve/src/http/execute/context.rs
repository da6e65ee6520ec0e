//! What all statements of a request have in common.

use engine::series::Series;

use crate::http::access::Grant;
use crate::http::refusal::Refusal;

/// The context of all statements of a request.
pub(in crate::http) struct Context<'a> {
    pub(in crate::http) store: &'a dyn Series,
    /// The database of statements that name none.
    pub(in crate::http) database: Option<&'a str>,
    /// Nanoseconds since 1970.
    pub(in crate::http) now: i64,
    /// The limit on values in an answer.
    pub(in crate::http) values_max: usize,
    /// Whether the request may change stored data.
    pub(in crate::http) may_change: bool,
    /// The client's rights.
    pub(in crate::http) grant: &'a Grant,
}

impl Context<'_> {
    /// The database of a statement.
    pub(super) fn database(&self, named: Option<&String>) -> Result<String, Refusal> {
        let name = named.map(String::as_str).or(self.database);
        let name = name.ok_or_else(|| Refusal::bad("database name required"))?;
        self.grant.database(name)?;
        Ok(name.to_owned())
    }

    pub(super) fn check_values(&self, values: usize) -> Result<(), Refusal> {
        if values <= self.values_max {
            return Ok(());
        }
        let max = self.values_max;
        Err(Refusal::bad(format!(
            "the answer has more than {max} values: ask for a shorter time or longer windows, or add LIMIT"
        )))
    }
}

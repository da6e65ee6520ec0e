//! The statements, and their text form.

use std::fmt;

use super::{Condition, Pattern, Select, Show};

/// One statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// A query for points or aggregates.
    Select(Box<Select>),
    /// A list of databases, measurements, tags, fields or series.
    Show(Show),
    /// `CREATE DATABASE name WITH DURATION …`
    CreateDatabase {
        /// Its name.
        name: String,
        /// The retention, if given.
        keep: Option<Keep>,
    },
    /// `CREATE` or `ALTER RETENTION POLICY … ON database DURATION …`: a database has one.
    Keep {
        /// The database.
        database: String,
        /// The retention.
        keep: Keep,
    },
    /// `DROP DATABASE name`.
    DropDatabase(String),
    /// `DROP MEASUREMENT name`.
    DropMeasurement(String),
    /// `DROP SERIES FROM … WHERE …`: whole series by their tags.
    DropSeries {
        /// In these measurements; in all if empty.
        from: Vec<Source>,
        /// The condition on tags.
        filter: Option<Condition>,
    },
    /// `DELETE FROM … WHERE …`: points by tags and time.
    Delete {
        /// In these measurements; in all if empty.
        from: Vec<Source>,
        /// The condition on tags and time.
        filter: Option<Condition>,
    },
}

/// The retention, in nanoseconds; `None` means forever.
pub type Keep = Option<i64>;

/// A source after `FROM`.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The database, if given.
    pub database: Option<String>,
    /// The retention policy, if given.
    pub policy: Option<String>,
    /// The measurement.
    pub measurement: Named,
}

/// One name, or all names that match a pattern.
#[derive(Clone, Debug, PartialEq)]
pub enum Named {
    /// This name.
    Is(String),
    /// All matching names.
    Like(Pattern),
}

impl Named {
    /// Whether it includes `name`.
    #[must_use]
    pub fn means(&self, name: &str) -> bool {
        match self {
            Self::Is(is) => is == name,
            Self::Like(pattern) => pattern.is_in(name),
        }
    }
}

/// A name in double quotes.
pub(super) struct Quoted<'a>(pub(super) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        write!(f, "\"{text}\"")
    }
}

/// Items separated by commas.
pub(super) struct Listed<'a, T>(pub(super) &'a [T]);

impl<T: fmt::Display> fmt::Display for Listed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, item) in self.0.iter().enumerate() {
            write!(f, "{}{item}", if n == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// `FROM` and `WHERE`, each if nonempty.
pub(super) struct FromWhere<'a>(pub(super) &'a [Source], pub(super) Option<&'a Condition>);

impl fmt::Display for FromWhere<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.is_empty() {
            write!(f, " FROM {}", Listed(self.0))?;
        }
        self.1.map_or(Ok(()), |filter| write!(f, " WHERE {filter}"))
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(name) => Quoted(name).fmt(f),
            Self::Like(pattern) => pattern.fmt(f),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.database, &self.policy) {
            (Some(database), Some(policy)) => {
                write!(f, "{}.{}.", Quoted(database), Quoted(policy))?;
            }
            (Some(database), None) => write!(f, "{}..", Quoted(database))?,
            (None, Some(policy)) => write!(f, "{}.", Quoted(policy))?,
            (None, None) => {}
        }
        self.measurement.fmt(f)
    }
}

/// A duration in InfluxQL.
struct Shown(Keep);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(nanos) => write!(f, "{nanos}ns"),
            None => f.write_str("INF"),
        }
    }
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Select(select) => select.fmt(f),
            Self::Show(show) => show.fmt(f),
            Self::CreateDatabase { name, keep: None } => {
                write!(f, "CREATE DATABASE {}", Quoted(name))
            }
            Self::CreateDatabase { name, keep: Some(keep) } => {
                write!(f, "CREATE DATABASE {} WITH DURATION {}", Quoted(name), Shown(*keep))
            }
            Self::Keep { database, keep } => write!(
                f,
                "ALTER RETENTION POLICY \"autogen\" ON {} DURATION {}",
                Quoted(database),
                Shown(*keep)
            ),
            Self::DropDatabase(name) => write!(f, "DROP DATABASE {}", Quoted(name)),
            Self::DropMeasurement(name) => write!(f, "DROP MEASUREMENT {}", Quoted(name)),
            Self::DropSeries { from, filter } => {
                write!(f, "DROP SERIES{}", FromWhere(from, filter.as_ref()))
            }
            Self::Delete { from, filter } => {
                write!(f, "DELETE{}", FromWhere(from, filter.as_ref()))
            }
        }
    }
}

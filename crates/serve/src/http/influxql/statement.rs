//! What can be asked, and how it shows.

use std::fmt;

use super::{Condition, Pattern, Select, Show};

/// One statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// Points, or what they amount to.
    Select(Box<Select>),
    /// What there is.
    Show(Show),
    /// `CREATE DATABASE name WITH DURATION …`
    CreateDatabase {
        /// Its name.
        name: String,
        /// How long it keeps points, if that is said.
        keep: Option<Keep>,
    },
    /// `CREATE` or `ALTER RETENTION POLICY … ON database DURATION …`: a database has one.
    Keep {
        /// The database.
        database: String,
        /// How long it keeps points.
        keep: Keep,
    },
    /// `DROP DATABASE name`.
    DropDatabase(String),
    /// `DROP MEASUREMENT name`.
    DropMeasurement(String),
    /// `DROP SERIES FROM … WHERE …`: whole series by their tags.
    DropSeries {
        /// Of these measurements; of all if there are none.
        from: Vec<Source>,
        /// Which of them.
        filter: Option<Condition>,
    },
    /// `DELETE FROM … WHERE …`: points by tags and time.
    Delete {
        /// Of these measurements; of all if there are none.
        from: Vec<Source>,
        /// Which of them.
        filter: Option<Condition>,
    },
}

/// How long points are kept, in nanoseconds; none: for ever.
pub type Keep = Option<i64>;

/// What follows `FROM`.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The database, if it is named.
    pub database: Option<String>,
    /// The retention policy, if it is named.
    pub policy: Option<String>,
    /// The measurement.
    pub measurement: Named,
}

/// One thing, or those whose name a pattern is found in.
#[derive(Clone, Debug, PartialEq)]
pub enum Named {
    /// This one.
    Is(String),
    /// Those.
    Like(Pattern),
}

impl Named {
    /// Whether `name` is meant.
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

/// Things with commas between them.
pub(super) struct Listed<'a, T>(pub(super) &'a [T]);

impl<T: fmt::Display> fmt::Display for Listed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, item) in self.0.iter().enumerate() {
            write!(f, "{}{item}", if n == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// `FROM` and `WHERE`, where there is something behind them.
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

/// A duration, as it is written.
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

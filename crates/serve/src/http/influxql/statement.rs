//! The statements: from text and back.

use std::fmt;

use super::condition::{Condition, FromWhere};
use super::error::ParseError;
use super::lexer::Token;
use super::names::{Quoted, Source};
use super::parser::Parser;
use super::select::Select;
use super::show::Show;

/// The longest text, in bytes.
pub const TEXT_BYTES_MAX: usize = 256 * 1024;
/// The most statements of one text.
pub const STATEMENTS_MAX: usize = 100;

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

/// Parses all statements of `text`, separated by semicolons. `now` is the value of `now()`, in nanoseconds since 1970.
///
/// # Errors
/// The first mistake, and its place.
pub fn parse(text: &str, now: i64) -> Result<Vec<Statement>, ParseError> {
    if text.len() > TEXT_BYTES_MAX {
        let what = format!("found {} bytes, expected {TEXT_BYTES_MAX} at most", text.len());
        return Err(ParseError::new("", 0, what));
    }
    let mut parser = Parser::new(text, now)?;
    let mut statements = Vec::new();
    loop {
        while parser.takes_sign(";")? {}
        if parser.token == Token::End {
            break;
        }
        if statements.len() == STATEMENTS_MAX {
            return Err(parser.error(&format!("found more than {STATEMENTS_MAX} statements")));
        }
        statements.push(parser.statement()?);
        if parser.token != Token::End && parser.token != Token::Sign(";") {
            return Err(parser.expected("; or the end"));
        }
    }
    if statements.is_empty() {
        return Err(parser.expected("SELECT, SHOW, CREATE, ALTER, DROP or DELETE"));
    }
    Ok(statements)
}

impl Parser<'_> {
    fn statement(&mut self) -> Result<Statement, ParseError> {
        if self.takes("SELECT")? {
            return Ok(Statement::Select(Box::new(Select::parse(self)?)));
        }
        if self.takes("SHOW")? {
            return Ok(Statement::Show(Show::parse(self)?));
        }
        if self.takes("CREATE")? {
            if self.sees("RETENTION") {
                return self.retention_policy();
            }
            self.require("DATABASE")?;
            let name = self.name("the name of a database")?;
            let keep = if self.takes("WITH")? { self.policy()? } else { None };
            return Ok(Statement::CreateDatabase { name, keep });
        }
        if self.takes("ALTER")? {
            return self.retention_policy();
        }
        if self.takes("DROP")? {
            if self.takes("DATABASE")? {
                return Ok(Statement::DropDatabase(self.name("the name of a database")?));
            }
            if self.takes("MEASUREMENT")? {
                return Ok(Statement::DropMeasurement(self.name("the name of a measurement")?));
            }
            if self.takes("SERIES")? {
                let (from, filter) = self.sources_and_filter("DROP SERIES")?;
                return Ok(Statement::DropSeries { from, filter });
            }
            return Err(self.expected("DATABASE, MEASUREMENT or SERIES"));
        }
        if self.takes("DELETE")? {
            let (from, filter) = self.sources_and_filter("DELETE")?;
            return Ok(Statement::Delete { from, filter });
        }
        Err(self.expected("SELECT, SHOW, CREATE, ALTER, DROP or DELETE"))
    }

    /// `RETENTION POLICY name ON database DURATION …`
    fn retention_policy(&mut self) -> Result<Statement, ParseError> {
        self.require("RETENTION")?;
        self.require("POLICY")?;
        self.name("the name of a policy")?;
        self.require("ON")?;
        let database = self.name("the name of a database")?;
        let keep = self.policy()?.ok_or_else(|| self.expected("DURATION"))?;
        Ok(Statement::Keep { database, keep })
    }

    /// The clauses of a policy, of which only the duration has an effect.
    fn policy(&mut self) -> Result<Option<Keep>, ParseError> {
        let mut keep = None;
        while !matches!(self.token, Token::End | Token::Sign(";")) {
            if self.takes("DURATION")? {
                keep = Some(self.keep()?);
            } else if self.takes("SHARD")? {
                self.require("DURATION")?;
                self.keep()?;
            } else if self.takes("REPLICATION")? {
                self.count()?;
            } else if self.takes("NAME")? {
                self.name("the name of a policy")?;
            } else if !self.takes("DEFAULT")? {
                return Err(self.expected("DURATION, REPLICATION, SHARD DURATION, NAME or DEFAULT"));
            }
        }
        Ok(keep)
    }

    fn keep(&mut self) -> Result<Keep, ParseError> {
        if self.takes("INF")? {
            return Ok(None);
        }
        let Token::Duration(nanos) = self.token else {
            return Err(self.expected("a duration, such as 30d, or INF"));
        };
        self.advance()?;
        // As in InfluxDB, a duration of zero means unlimited.
        Ok(Some(nanos).filter(|nanos| *nanos > 0))
    }

    fn sources_and_filter(
        &mut self,
        what: &str,
    ) -> Result<(Vec<Source>, Option<Condition>), ParseError> {
        let from = if self.takes("FROM")? { self.sources()? } else { Vec::new() };
        let filter = self.filter()?;
        if from.is_empty() && filter.is_none() {
            return Err(self.expected(&format!("FROM or WHERE, to choose what {what} removes")));
        }
        Ok((from, filter))
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

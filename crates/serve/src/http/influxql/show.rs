//! `SHOW` statements.

use std::fmt;

use super::condition::{Condition, FromWhere};
use super::error::ParseError;
use super::names::{Listed, Named, Quoted, Source};
use super::parser::Parser;
use super::pattern::Pattern;

/// What to show, and of which database (the request's, if none is named).
#[derive(Clone, Debug, PartialEq)]
pub enum Show {
    /// `SHOW DATABASES`
    Databases,
    /// `SHOW RETENTION POLICIES`
    RetentionPolicies {
        /// Of this database.
        on: Option<String>,
    },
    /// `SHOW MEASUREMENTS`
    Measurements {
        /// Of this database.
        on: Option<String>,
        /// The names to match.
        with: Option<Named>,
        /// The condition on the tags of their series.
        filter: Option<Condition>,
        /// The part of the list.
        page: Page,
    },
    /// `SHOW TAG KEYS`
    TagKeys {
        /// Of this database.
        on: Option<String>,
        /// In these measurements.
        from: Vec<Source>,
        /// The condition on the tags of series.
        filter: Option<Condition>,
        /// The part of the list.
        page: Page,
    },
    /// `SHOW TAG VALUES`
    TagValues {
        /// Of this database.
        on: Option<String>,
        /// In these measurements.
        from: Vec<Source>,
        /// The tags.
        with: KeyTest,
        /// The condition on the tags of series.
        filter: Option<Condition>,
        /// The part of the list.
        page: Page,
    },
    /// `SHOW FIELD KEYS`
    FieldKeys {
        /// Of this database.
        on: Option<String>,
        /// In these measurements.
        from: Vec<Source>,
        /// The part of the list.
        page: Page,
    },
    /// `SHOW SERIES`
    Series {
        /// Of this database.
        on: Option<String>,
        /// In these measurements.
        from: Vec<Source>,
        /// The condition on tags.
        filter: Option<Condition>,
        /// The part of the list.
        page: Page,
    },
}

/// A part of a list.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Page {
    /// The most items.
    pub limit: Option<u64>,
    /// Items to skip.
    pub offset: Option<u64>,
}

impl Page {
    /// The part of `all`.
    pub fn of<T>(self, all: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
        let places = |count: Option<u64>, usual| {
            count.map_or(usual, |count| usize::try_from(count).unwrap_or(usize::MAX))
        };
        // As in InfluxDB, a limit of 0 means no limit.
        let limit = self.limit.filter(|&limit| limit > 0);
        all.into_iter().skip(places(self.offset, 0)).take(places(limit, usize::MAX))
    }
}

/// A selection of tags.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyTest {
    /// `KEY = "a"`, `KEY IN ("a", "b")`
    In(Vec<String>),
    /// `KEY != "a"`
    IsNot(String),
    /// `KEY =~ /a/`
    Like(Pattern),
    /// `KEY !~ /a/`
    Unlike(Pattern),
}

impl KeyTest {
    /// Whether this tag is selected.
    #[must_use]
    pub fn means(&self, key: &str) -> bool {
        match self {
            Self::In(keys) => keys.iter().any(|meant| meant == key),
            Self::IsNot(not) => not != key,
            Self::Like(pattern) => pattern.is_in(key),
            Self::Unlike(pattern) => !pattern.is_in(key),
        }
    }
}

const EXPECTED: &str =
    "DATABASES, MEASUREMENTS, TAG KEYS, TAG VALUES, FIELD KEYS, SERIES or RETENTION POLICIES";

impl Show {
    /// The statement after `SHOW`.
    pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Self, ParseError> {
        if parser.takes("DATABASES")? {
            return Ok(Self::Databases);
        }
        if parser.takes("RETENTION")? {
            parser.require("POLICIES")?;
            return Ok(Self::RetentionPolicies { on: parser.on()? });
        }
        if parser.takes("MEASUREMENTS")? {
            let on = parser.on()?;
            let with = parser.with_measurement()?;
            return Ok(Self::Measurements {
                on,
                with,
                filter: parser.filter()?,
                page: parser.page()?,
            });
        }
        if parser.takes("TAG")? {
            if parser.takes("KEYS")? {
                let (on, from) = (parser.on()?, parser.from()?);
                return Ok(Self::TagKeys {
                    on,
                    from,
                    filter: parser.filter()?,
                    page: parser.page()?,
                });
            }
            if !parser.takes("VALUES")? {
                return Err(parser.expected("KEYS or VALUES"));
            }
            let (on, from) = (parser.on()?, parser.from()?);
            let with = parser.with_key()?;
            let filter = parser.filter()?;
            return Ok(Self::TagValues { on, from, with, filter, page: parser.page()? });
        }
        if parser.takes("FIELD")? {
            parser.require("KEYS")?;
            return Ok(Self::FieldKeys {
                on: parser.on()?,
                from: parser.from()?,
                page: parser.page()?,
            });
        }
        if parser.takes("SERIES")? {
            let (on, from) = (parser.on()?, parser.from()?);
            return Ok(Self::Series { on, from, filter: parser.filter()?, page: parser.page()? });
        }
        Err(parser.expected(EXPECTED))
    }
}

impl Parser<'_> {
    fn on(&mut self) -> Result<Option<String>, ParseError> {
        if self.takes("ON")? { self.name("the name of a database").map(Some) } else { Ok(None) }
    }

    fn from(&mut self) -> Result<Vec<Source>, ParseError> {
        if self.takes("FROM")? { self.sources() } else { Ok(Vec::new()) }
    }

    fn with_measurement(&mut self) -> Result<Option<Named>, ParseError> {
        if !self.takes("WITH")? {
            return Ok(None);
        }
        self.require("MEASUREMENT")?;
        if self.takes_sign("=~")? {
            return Ok(Some(Named::Like(self.pattern()?)));
        }
        self.require_sign("=")?;
        Ok(Some(Named::Is(self.name("the name of a measurement")?)))
    }

    fn with_key(&mut self) -> Result<KeyTest, ParseError> {
        self.require("WITH")?;
        self.require("KEY")?;
        let key = "the name of a tag";
        if self.takes_sign("=~")? {
            return self.pattern().map(KeyTest::Like);
        }
        if self.takes_sign("!~")? {
            return self.pattern().map(KeyTest::Unlike);
        }
        if self.takes_sign("=")? {
            return Ok(KeyTest::In(vec![self.name(key)?]));
        }
        if self.takes_sign("!=")? || self.takes_sign("<>")? {
            return self.name(key).map(KeyTest::IsNot);
        }
        if !self.takes("IN")? {
            return Err(self.expected("=, !=, =~, !~ or IN"));
        }
        self.require_sign("(")?;
        let mut keys = vec![self.name(key)?];
        while self.takes_sign(",")? {
            keys.push(self.name(key)?);
        }
        self.require_sign(")")?;
        Ok(KeyTest::In(keys))
    }

    fn page(&mut self) -> Result<Page, ParseError> {
        if self.takes("ORDER")? {
            self.require("BY")?;
            return Err(self.expected("no ORDER BY: lists are always sorted by name"));
        }
        let limit = if self.takes("LIMIT")? { Some(self.count()?) } else { None };
        let offset = if self.takes("OFFSET")? { Some(self.count()?) } else { None };
        Ok(Page { limit, offset })
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limit.map_or(Ok(()), |limit| write!(f, " LIMIT {limit}"))?;
        self.offset.map_or(Ok(()), |offset| write!(f, " OFFSET {offset}"))
    }
}

impl fmt::Display for KeyTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::In(keys) => {
                let keys: Vec<_> = keys.iter().map(|key| Quoted(key)).collect();
                write!(f, "IN ({})", Listed(&keys))
            }
            Self::IsNot(key) => write!(f, "!= {}", Quoted(key)),
            Self::Like(pattern) => write!(f, "=~ {pattern}"),
            Self::Unlike(pattern) => write!(f, "!~ {pattern}"),
        }
    }
}

impl fmt::Display for Show {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct On<'a>(&'a Option<String>);
        impl fmt::Display for On<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_ref().map_or(Ok(()), |on| write!(f, " ON {}", Quoted(on)))
            }
        }
        match self {
            Self::Databases => f.write_str("SHOW DATABASES"),
            Self::RetentionPolicies { on } => write!(f, "SHOW RETENTION POLICIES{}", On(on)),
            Self::Measurements { on, with, filter, page } => {
                write!(f, "SHOW MEASUREMENTS{}", On(on))?;
                match with {
                    None => {}
                    Some(Named::Is(name)) => write!(f, " WITH MEASUREMENT = {}", Quoted(name))?,
                    Some(Named::Like(pattern)) => write!(f, " WITH MEASUREMENT =~ {pattern}")?,
                }
                write!(f, "{}{page}", FromWhere(&[], filter.as_ref()))
            }
            Self::TagKeys { on, from, filter, page } => {
                write!(f, "SHOW TAG KEYS{}{}{page}", On(on), FromWhere(from, filter.as_ref()))
            }
            Self::TagValues { on, from, with, filter, page } => {
                write!(f, "SHOW TAG VALUES{}{} WITH KEY {with}", On(on), FromWhere(from, None))?;
                write!(f, "{}{page}", FromWhere(&[], filter.as_ref()))
            }
            Self::FieldKeys { on, from, page } => {
                write!(f, "SHOW FIELD KEYS{}{}{page}", On(on), FromWhere(from, None))
            }
            Self::Series { on, from, filter, page } => {
                write!(f, "SHOW SERIES{}{}{page}", On(on), FromWhere(from, filter.as_ref()))
            }
        }
    }
}

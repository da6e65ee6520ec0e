//! Selecting series by tests of measurement, field and tags, and the description of a series.

use std::fmt;
use std::sync::Arc;

use super::value::Kind;

/// The id of a series: fixed for the life of the store, and never reused.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SeriesId(pub u64);

/// The description of a series.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Info {
    /// Its id.
    pub id: SeriesId,
    /// Its measurement.
    pub measurement: Arc<str>,
    /// Its tags, in the order of their keys.
    pub tags: Vec<(Arc<str>, Arc<str>)>,
    /// Its field.
    pub field: Arc<str>,
    /// The field's kind.
    pub kind: Kind,
}

impl Info {
    /// The value of a tag; "" if it has none, as in InfluxDB.
    #[must_use]
    pub fn tag(&self, key: &str) -> &str {
        self.tags.iter().find(|(name, _)| **name == *key).map_or("", |(_, value)| value)
    }
}

/// A regular expression without back-references: matching takes time linear in the text.
#[derive(Clone)]
pub struct Pattern(regex_lite::Regex);

/// The most memory of a compiled pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;

impl Pattern {
    /// Compiles a pattern; it matches anywhere unless anchored.
    ///
    /// # Errors
    /// A message that names the flaw.
    pub fn new(pattern: &str) -> Result<Self, String> {
        let built = regex_lite::RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).build();
        built.map(Self).map_err(|error| format!("regular expression /{pattern}/: {error}"))
    }

    /// Whether it matches somewhere in a text.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/", self.0.as_str())
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

/// A test of a name or of a tag's value. A missing tag has the value "".
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// `=`
    Is(String),
    /// `!=`
    IsNot(String),
    /// One of these, as a list of names selects.
    In(Vec<String>),
    /// `=~`
    Matches(Pattern),
    /// `!~`
    MatchesNot(Pattern),
}

impl Test {
    /// Whether `text` passes.
    #[must_use]
    pub fn passes(&self, text: &str) -> bool {
        match self {
            Self::Is(wanted) => wanted == text,
            Self::IsNot(other) => other != text,
            Self::In(wanted) => wanted.iter().any(|wanted| wanted == text),
            Self::Matches(pattern) => pattern.matches(text),
            Self::MatchesNot(pattern) => !pattern.matches(text),
        }
    }
}

/// Tests of tags, combined.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Predicate {
    /// Every source.
    #[default]
    All,
    /// The tag of this key passes the test.
    Tag(String, Test),
    /// All of them hold.
    And(Vec<Predicate>),
    /// One of them holds.
    Or(Vec<Predicate>),
    /// It does not hold.
    Not(Box<Predicate>),
}

impl Predicate {
    /// Whether it holds for the tags that `tag` looks up.
    pub fn holds<'t>(&self, tag: &impl Fn(&str) -> &'t str) -> bool {
        match self {
            Self::All => true,
            Self::Tag(key, test) => test.passes(tag(key)),
            Self::And(all) => all.iter().all(|one| one.holds(tag)),
            Self::Or(any) => any.iter().any(|one| one.holds(tag)),
            Self::Not(one) => !one.holds(tag),
        }
    }
}

/// A selection of series of a database.
#[derive(Clone, Debug, PartialEq)]
pub struct Selector {
    /// The database.
    pub database: String,
    /// The test of the measurement; `None` for all.
    pub measurement: Option<Test>,
    /// The test of the field; `None` for all.
    pub field: Option<Test>,
    /// The predicate over tags.
    pub tags: Predicate,
}

impl Selector {
    /// Every series of a database.
    #[must_use]
    pub fn all(database: impl Into<String>) -> Self {
        Self { database: database.into(), measurement: None, field: None, tags: Predicate::All }
    }

    /// Restricted to one measurement.
    #[must_use]
    pub fn of(mut self, measurement: impl Into<String>) -> Self {
        self.measurement = Some(Test::Is(measurement.into()));
        self
    }

    /// Restricted to one field.
    #[must_use]
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(Test::Is(field.into()));
        self
    }

    /// Restricted to these tags.
    #[must_use]
    pub fn tagged(mut self, tags: Predicate) -> Self {
        self.tags = tags;
        self
    }

    pub(crate) fn wants_measurement(&self, name: &str) -> bool {
        self.measurement.as_ref().is_none_or(|test| test.passes(name))
    }

    pub(crate) fn wants_field(&self, name: &str) -> bool {
        self.field.as_ref().is_none_or(|test| test.passes(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tag_is_an_empty_one() {
        let none = |_: &str| "";
        let tag = |test| Predicate::Tag("host".into(), test);
        assert!(tag(Test::Is(String::new())).holds(&none));
        assert!(tag(Test::IsNot("a".into())).holds(&none));
        assert!(tag(Test::Matches(Pattern::new("^$").unwrap())).holds(&none));
        assert!(!tag(Test::Matches(Pattern::new("a").unwrap())).holds(&none));
        assert!(Predicate::Not(Box::new(tag(Test::Is("a".into())))).holds(&none));
    }

    #[test]
    fn patterns_that_grow_without_bound_are_refused() {
        assert!(Pattern::new("(((a{100}){100}){100})").is_err());
        assert!(Pattern::new("(").is_err());
    }
}

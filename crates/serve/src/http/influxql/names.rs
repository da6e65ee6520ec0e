//! The names in statements: of measurements, tags and fields, and their text form.

use std::fmt;

use super::pattern::Pattern;

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

/// The name of a tag or a field.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// The name.
    pub name: String,
    /// Its kind, if given.
    pub kind: Option<Kind>,
}

/// The kind of a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A tag.
    Tag,
    /// A field of any kind.
    Field,
    /// A field of floats.
    Float,
    /// A field of integers.
    Integer,
    /// A field of nonnegative integers.
    Unsigned,
    /// A field of texts.
    String,
    /// A field of booleans.
    Boolean,
}

impl Reference {
    /// Whether it is the timestamp.
    #[must_use]
    pub fn is_time(&self) -> bool {
        self.kind.is_none() && self.name.eq_ignore_ascii_case("time")
    }
}

impl Kind {
    /// The kind with this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        use Kind::{Boolean, Field, Float, Integer, String, Tag, Unsigned};
        let all = [Tag, Field, Float, Integer, Unsigned, String, Boolean];
        all.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tag => "tag",
            Self::Field => "field",
            Self::Float => "float",
            Self::Integer => "integer",
            Self::Unsigned => "unsigned",
            Self::String => "string",
            Self::Boolean => "boolean",
        }
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

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Quoted(&self.name).fmt(f)?;
        self.kind.map_or(Ok(()), |kind| write!(f, "::{}", kind.name()))
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

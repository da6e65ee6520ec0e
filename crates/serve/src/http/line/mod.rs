//! InfluxDB's line protocol: bytes to points, independent of sockets and stores.
//!
//! ```text
//! cpu,host=a,region=eu\ west usage=0.5,count=3i,note="two\nlines" 1700000000000000000
//! ---------- head ---------- ------------- fields ---------------- --- timestamp ---
//! ```
//!
//! This is the hot path of every writer, so a line is parsed once and never copied: fields are ranges in the line, text
//! is unescaped on access, and the head is parsed only when it is new to the caller ([`Head::parse`]). The input is
//! untrusted, so a decoder holds at most one unfinished line of bounded length; a mistake invalidates only its line.
//!
//! The rules are those of InfluxDB 1.x (`models/points.go`), which clients are tested with: a backslash
//! escapes a comma, a blank or an equals sign outside of strings and a quote or a backslash inside of
//! them, and stands for itself before anything else; a line ends at a line feed that is not inside of a
//! string. Unlike there, text is UTF-8.

mod decoder;
mod head;
mod parse;
mod problem;
mod text;

use std::borrow::Cow;
use std::ops::Range;

pub use decoder::Decoder;
pub use head::{Head, Tag, Tags, split};
pub use problem::{BadLine, Problem};

/// The unit of a timestamp.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Precision {
    /// Nanoseconds.
    #[default]
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Minutes.
    Minutes,
    /// Hours.
    Hours,
}

impl Precision {
    /// The precision a client names: `ns`, `us`, `ms`, `s` (v2), or `n`, `u`, `ms`, `s`, `m`, `h` (v1).
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "ns" | "n" => Self::Nanoseconds,
            "us" | "u" | "µ" | "µs" => Self::Microseconds,
            "ms" => Self::Milliseconds,
            "s" => Self::Seconds,
            "m" => Self::Minutes,
            "h" => Self::Hours,
            _ => return None,
        })
    }

    /// Nanoseconds of one unit.
    #[must_use]
    pub fn nanos(self) -> i64 {
        match self {
            Self::Nanoseconds => 1,
            Self::Microseconds => 1_000,
            Self::Milliseconds => 1_000_000,
            Self::Seconds => 1_000_000_000,
            Self::Minutes => 60 * 1_000_000_000,
            Self::Hours => 3600 * 1_000_000_000,
        }
    }
}

/// One line: points of one instant.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    text: &'a str,
    head: usize,
    fields: &'a [Place],
    number: u64,
    timestamp: Option<i64>,
}

impl<'a> Line<'a> {
    /// Measurement and tags as sent, including escapes. Equal heads mean the same series; one series may have several
    /// heads, with different orders of tags. [`Head::parse`] parses it.
    #[must_use]
    pub fn head(&self) -> &'a str {
        &self.text[..self.head]
    }

    /// The fields in their order; at least one. A name may occur twice; the last one counts.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = Field<'a>> + use<'a> {
        let text = self.text;
        self.fields.iter().map(move |place| place.field(text))
    }

    /// Nanoseconds since 1970; `None` if the server is to set the time.
    #[must_use]
    pub fn timestamp(&self) -> Option<i64> {
        self.timestamp
    }

    /// The number of its first line in the input, from 1.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// A mistake at this byte of the line, found by the caller.
    #[must_use]
    pub fn bad(&self, byte: usize, problem: Problem) -> BadLine {
        BadLine::new(self.number, byte, self.text.as_bytes(), problem)
    }
}

/// A name and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Field<'a> {
    /// The name, unescaped.
    pub name: Cow<'a, str>,
    /// Its value.
    pub value: Value<'a>,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// `1`, `1.5`, `-1e6`: finite.
    Float(f64),
    /// `1i`.
    Integer(i64),
    /// `1u`.
    Unsigned(u64),
    /// `t`, `true`, `F`, …
    Boolean(bool),
    /// `"text"`, unescaped.
    String(Cow<'a, str>),
}

/// The place of a field in its line.
#[derive(Clone, Debug)]
struct Place {
    name: Range<u32>,
    name_is_escaped: bool,
    value: Held,
}

/// A value, or its place in the line.
#[derive(Clone, Debug)]
enum Held {
    Float(f64),
    Integer(i64),
    Unsigned(u64),
    Boolean(bool),
    String { text: Range<u32>, is_escaped: bool },
}

impl Place {
    fn field<'a>(&self, line: &'a str) -> Field<'a> {
        let slice = |range: &Range<u32>| &line[range.start as usize..range.end as usize];
        let name = slice(&self.name);
        Field {
            name: if self.name_is_escaped {
                text::unescape_name(name)
            } else {
                Cow::Borrowed(name)
            },
            value: match &self.value {
                Held::Float(value) => Value::Float(*value),
                Held::Integer(value) => Value::Integer(*value),
                Held::Unsigned(value) => Value::Unsigned(*value),
                Held::Boolean(value) => Value::Boolean(*value),
                Held::String { text, is_escaped: false } => {
                    Value::String(Cow::Borrowed(slice(text)))
                }
                Held::String { text, is_escaped: true } => {
                    Value::String(text::unescape_string(slice(text)))
                }
            },
        }
    }
}

#[cfg(test)]
mod tests;

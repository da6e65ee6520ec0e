//! What can be wrong with a line, in InfluxDB's words where it has some.

use std::fmt;

/// How much of a line is shown to whoever sent it.
const SHOWN_BYTES_MAX: usize = 100;

/// A line that is no point. It was skipped; those around it were not.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub struct BadLine {
    /// Where it begins in what was sent: its first line is 1.
    pub line: u64,
    /// Which byte of it cannot be understood, from 0; the byte behind it if something is missing.
    pub byte: usize,
    /// The line, or its beginning.
    pub text: String,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a line.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// It begins with a comma.
    #[error("missing measurement")]
    MissingMeasurement,
    /// Nothing before an equals sign among the tags.
    #[error("missing tag key")]
    MissingTagKey,
    /// Nothing behind it, or no equals sign at all.
    #[error("missing tag value")]
    MissingTagValue,
    /// A comma or an equals sign in a tag's value.
    #[error("invalid tag format: a comma, blank or equals sign in it needs a backslash")]
    InvalidTag,
    /// The same tag twice.
    #[error("duplicate tags: {0}")]
    DuplicateTag(String),
    /// Nothing behind measurement and tags.
    #[error("missing fields")]
    MissingFields,
    /// Nothing before an equals sign among the fields.
    #[error("missing field key")]
    MissingFieldKey,
    /// Nothing behind it, or no equals sign at all.
    #[error("missing field value")]
    MissingFieldValue,
    /// A value of no kind that there is.
    #[error("invalid field format: a number, 1i, 1u, true, false or \"text\" is")]
    InvalidValue,
    /// A number that is none, or that 64 bits do not hold.
    #[error("invalid number")]
    InvalidNumber,
    /// A quote without its end.
    #[error("unbalanced quotes")]
    UnbalancedQuotes,
    /// Something between a closing quote and the next field.
    #[error("invalid field format: a comma or a blank follows a string")]
    AfterString,
    /// A timestamp that is no whole number.
    #[error("bad timestamp")]
    BadTimestamp,
    /// Nanoseconds that 64 bits do not hold.
    #[error("time outside range -9223372036854775806 to 9223372036854775806")]
    TimeOutOfRange,
    /// Something behind the timestamp.
    #[error("bad timestamp: something follows it")]
    AfterTimestamp,
    /// A tag or a field has the name of the timestamp.
    #[error("input field or tag \"time\" is invalid: it is the name of the timestamp")]
    NamedTime,
    /// Text in another encoding.
    #[error("invalid UTF-8")]
    NotUtf8,
    /// More bytes than a line may have.
    #[error("line longer than {max} bytes")]
    TooLong {
        /// What it may have.
        max: usize,
    },
    /// No store takes such a row.
    #[error("{0}")]
    Unfit(String),
    /// The store does not take it.
    #[error("{0}")]
    Refused(String),
}

impl BadLine {
    pub(super) fn new(line: u64, byte: usize, text: &[u8], problem: Problem) -> Self {
        let shown = &text[..text.len().min(SHOWN_BYTES_MAX)];
        let mut text = String::from_utf8_lossy(shown).escape_debug().to_string();
        if shown.len() == SHOWN_BYTES_MAX {
            text.push('…');
        }
        Self { line, byte, text, problem }
    }
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, byte, text, problem } = self;
        if let Problem::Refused(why) = problem {
            return write!(f, "{why} (line {line})");
        }
        write!(f, "unable to parse '{text}': {problem} (line {line}, byte {byte})")
    }
}

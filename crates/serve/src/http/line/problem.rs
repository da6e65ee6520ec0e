//! Mistakes in a line, in InfluxDB's words where it has some.

use std::fmt;

/// The bytes of a line that its sender sees at most.
const SHOWN_BYTES_MAX: usize = 100;

/// A line that is not a point. It was skipped; the lines around it were not.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub struct BadLine {
    /// The number of its first line in the input, from 1.
    pub line: u64,
    /// The byte of the mistake, from 0; the byte after the line if something is missing.
    pub byte: usize,
    /// The line, or its beginning.
    pub text: String,
    /// The mistake.
    pub problem: Problem,
}

/// A mistake in a line.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// It begins with a comma.
    #[error("missing measurement")]
    MissingMeasurement,
    /// Nothing stands before an equals sign among the tags.
    #[error("missing tag key")]
    MissingTagKey,
    /// Nothing stands after it, or there is no equals sign.
    #[error("missing tag value")]
    MissingTagValue,
    /// A comma or an equals sign in a tag's value.
    #[error("invalid tag format: put a backslash before a comma, blank or equals sign in a tag")]
    InvalidTag,
    /// A tag occurs twice.
    #[error("duplicate tags: {0}")]
    DuplicateTag(String),
    /// Nothing follows measurement and tags.
    #[error("missing fields")]
    MissingFields,
    /// Nothing stands before an equals sign among the fields.
    #[error("missing field key")]
    MissingFieldKey,
    /// Nothing stands after it, or there is no equals sign.
    #[error("missing field value")]
    MissingFieldValue,
    /// A value of no known kind.
    #[error("invalid field format: give a number, 1i, 1u, true, false or \"text\"")]
    InvalidValue,
    /// An invalid number, or one that does not fit in 64 bits.
    #[error("invalid number")]
    InvalidNumber,
    /// A quote without its end.
    #[error("unbalanced quotes")]
    UnbalancedQuotes,
    /// Something stands between a closing quote and the next field.
    #[error("invalid field format: put a comma or a blank after a string")]
    AfterString,
    /// A timestamp that is not a whole number.
    #[error("bad timestamp")]
    BadTimestamp,
    /// Nanoseconds that do not fit in 64 bits.
    #[error("time outside range -9223372036854775806 to 9223372036854775806")]
    TimeOutOfRange,
    /// Something follows the timestamp.
    #[error("bad timestamp: end the line after it")]
    AfterTimestamp,
    /// A tag or a field has the timestamp's name.
    #[error("input field or tag \"time\" is invalid: it is reserved as the name of the timestamp")]
    NamedTime,
    /// Text that is not UTF-8.
    #[error("invalid UTF-8")]
    NotUtf8,
    /// More bytes than a line may have.
    #[error("line longer than {max} bytes")]
    TooLong {
        /// The limit.
        max: usize,
    },
    /// No store accepts such a row.
    #[error("{0}")]
    Unfit(String),
    /// The store refuses it.
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

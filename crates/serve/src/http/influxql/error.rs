//! Mistakes in a text of statements.

/// Text that is not a supported statement.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("error parsing query: {what} at line {line}, char {character}")]
pub struct ParseError {
    /// What was found, and what is accepted.
    pub what: String,
    /// Where: the first line is 1.
    pub line: usize,
    /// Where in that line: the first character is 1.
    pub character: usize,
}

impl ParseError {
    pub(super) fn new(text: &str, at: usize, what: String) -> Self {
        let before = &text[..at.min(text.len())];
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self { what, line, character: before[start..].chars().count() + 1 }
    }
}

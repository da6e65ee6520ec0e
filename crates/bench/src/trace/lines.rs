//! Lines of a limited length.

use std::io::{self, BufRead, Read};

/// The longest line, in bytes: a binary file read as text has lines of any length.
const LINE_MAX: u64 = 4096;

/// What came next.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Line<'a> {
    /// A line, without its end.
    Text(&'a str),
    /// More than [`LINE_MAX`] bytes without a line end, or bytes that are not UTF-8.
    NotText,
    /// The end of the file.
    End,
}

/// Reads the next line into `buffer`.
pub(super) fn next<'a>(from: &mut dyn BufRead, buffer: &'a mut Vec<u8>) -> io::Result<Line<'a>> {
    buffer.clear();
    from.take(LINE_MAX + 1).read_until(b'\n', buffer)?;
    if buffer.is_empty() {
        return Ok(Line::End);
    }
    if buffer.len() as u64 > LINE_MAX {
        return Ok(Line::NotText);
    }
    Ok(std::str::from_utf8(buffer).map_or(Line::NotText, |line| Line::Text(line.trim_end())))
}

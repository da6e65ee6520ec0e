//! Splits a stream of bytes into lines; between pieces it keeps at most one unfinished line.

use super::field::{Field, Place};
use super::parse::{self, Found, Shape};
use super::precision::Precision;
use super::problem::{BadLine, Problem};

/// Splits a stream of bytes into lines.
///
/// ```
/// use serve::http::line::{Decoder, Precision};
///
/// let mut decoder = Decoder::new(Precision::Seconds, 1024);
/// decoder.push(b"cpu,host=a usage=0.5 17\ncpu,ho");
/// let line = decoder.next().expect("it is whole").expect("it is good");
/// assert_eq!((line.head(), line.timestamp()), ("cpu,host=a", Some(17_000_000_000)));
/// assert!(decoder.next().is_none());
/// decoder.push(b"st=b usage=1");
/// assert!(decoder.next().is_none());
/// decoder.finish();
/// assert!(decoder.next().is_some_and(|line| line.is_ok()));
/// ```
#[derive(Debug)]
pub struct Decoder {
    precision: Precision,
    line_bytes_max: usize,
    buffer: Vec<u8>,
    /// The end of the consumed part of the buffer.
    at: usize,
    /// The length of the buffer when its first line was last found unfinished, or 0. The line is parsed again only when
    /// the buffer has grown by a quarter: otherwise tiny pieces would cost quadratic time.
    unfinished: usize,
    /// The number of the next line.
    number: u64,
    /// Whether it is inside a line that was too long.
    skipping: bool,
    finished: bool,
    fields: Vec<Place>,
}

/// Places of fields kept allocated between lines.
const FIELDS_KEPT: usize = 1024;

impl Decoder {
    /// A decoder at the start of a stream, with lines of at most `line_bytes_max` bytes (and at most 2 GiB).
    #[must_use]
    pub fn new(precision: Precision, line_bytes_max: usize) -> Self {
        Self {
            precision,
            line_bytes_max: line_bytes_max.min(u32::MAX as usize / 2),
            buffer: Vec::new(),
            at: 0,
            unfinished: 0,
            number: 1,
            skipping: false,
            finished: false,
            fields: Vec::new(),
        }
    }

    /// Appends the next piece of the stream. Before the next piece, call [`Decoder::next`] until it returns `None`: at
    /// most one unfinished line is buffered then.
    pub fn push(&mut self, piece: &[u8]) {
        self.room().extend_from_slice(piece);
    }

    /// The buffer, to whose end the caller may append the next piece.
    pub fn room(&mut self) -> &mut Vec<u8> {
        self.buffer.drain(..self.at);
        self.unfinished = self.unfinished.saturating_sub(self.at);
        self.at = 0;
        &mut self.buffer
    }

    /// Ends the stream: the buffered rest is the last line.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Buffered bytes that are not parsed yet.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.buffer.len() - self.at
    }

    /// The next line, or its mistake; `None` if it needs more bytes.
    #[expect(clippy::should_implement_trait, reason = "a line borrows from the decoder")]
    pub fn next(&mut self) -> Option<Result<Line<'_>, BadLine>> {
        match self.find()? {
            Err(bad) => Some(Err(bad)),
            Ok((at, number, Shape { start, head, end, timestamp, .. })) => {
                let text = &self.buffer[at + start..at + end];
                let text = std::str::from_utf8(text).expect("looked at when the line was found");
                Some(Ok(Line { text, head, fields: &self.fields, number, timestamp }))
            }
        }
    }

    /// Finds the next line and advances past it. Returns its position, its number, and its shape.
    fn find(&mut self) -> Option<Result<(usize, u64, Shape), BadLine>> {
        self.fields.shrink_to(FIELDS_KEPT);
        loop {
            if self.skipping && !self.skip() {
                return None;
            }
            let waiting = self.waiting();
            if waiting == 0 || (!self.finished && self.waits_for_more(waiting)) {
                return None;
            }
            let input = &self.buffer[self.at..];
            let (at, number) = (self.at, self.number);
            match parse::line(input, self.finished, self.precision, &mut self.fields) {
                Found::Nothing(len) => {
                    self.number += u64::from(input[..len].ends_with(b"\n"));
                    self.advance(len);
                }
                Found::Line(shape) if shape.end - shape.start > self.line_bytes_max => {
                    let bad = self.too_long(shape.start);
                    self.number += shape.breaks + 1;
                    self.advance(shape.next);
                    return Some(Err(bad));
                }
                Found::Line(shape) => {
                    self.number += shape.breaks + 1;
                    self.advance(shape.next);
                    return Some(Ok((at, number, shape)));
                }
                Found::Unfinished if waiting > self.line_bytes_max => {
                    let bad = self.too_long(0);
                    self.skipping = true;
                    return Some(Err(bad));
                }
                Found::Unfinished => {
                    self.unfinished = self.buffer.len();
                    return None;
                }
                Found::Bad(byte, problem) => {
                    let end = match parse::end_of_line(input) {
                        Some(end) => end,
                        None if self.finished => input.len(),
                        None if waiting > self.line_bytes_max => {
                            let bad = self.too_long(0);
                            self.skipping = true;
                            return Some(Err(bad));
                        }
                        None => {
                            self.unfinished = self.buffer.len();
                            return None;
                        }
                    };
                    let line = &input[..end];
                    let text = line.trim_ascii();
                    let blanks = line.len() - line.trim_ascii_start().len();
                    let bad = BadLine::new(number, byte.saturating_sub(blanks), text, problem);
                    self.number += memchr::memchr_iter(b'\n', line).count() as u64;
                    self.advance(end);
                    return Some(Err(bad));
                }
            }
        }
    }

    fn advance(&mut self, len: usize) {
        self.at += len;
        self.unfinished = 0;
    }

    /// Whether too few bytes arrived to parse an unfinished line again.
    fn waits_for_more(&self, waiting: usize) -> bool {
        let new = self.buffer.len().saturating_sub(self.unfinished);
        self.unfinished > 0 && waiting <= self.line_bytes_max && new < waiting / 4
    }

    fn too_long(&self, start: usize) -> BadLine {
        let text = &self.buffer[self.at + start..];
        let max = self.line_bytes_max;
        BadLine::new(self.number, max, text, Problem::TooLong { max })
    }

    /// Skips past the next line feed, ignoring quotes; false if it has not arrived.
    fn skip(&mut self) -> bool {
        let rest = &self.buffer[self.at..];
        match memchr::memchr(b'\n', rest) {
            Some(end) => {
                self.number += 1;
                self.skipping = false;
                self.advance(end + 1);
                true
            }
            None => {
                self.advance(rest.len());
                false
            }
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
    /// heads, with different orders of tags. [`Head::parse`](super::Head::parse) parses it.
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

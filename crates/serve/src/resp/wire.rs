//! Bytes to requests, and replies to bytes; independent of sockets and stores.
//!
//! Replies are framed by the `redis-protocol` crate. Requests are not: they are untrusted input, and the crate's
//! decoder recurses into nested arrays without limit, starts over on every read, and has no size limits. A request is
//! simpler: an array of bulk strings, or one line of words. [`Decoder`] reads each byte once, holds no more than has
//! arrived, and reports malformed input in Redis' own words. The crate's decoder is the oracle of the tests.

use std::mem;
use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};

/// One request: the command's name and its arguments. Never empty.
pub type Request = Vec<Bytes>;

/// The longest inline command, in bytes (Redis' `PROTO_INLINE_MAX_SIZE`).
const INLINE_BYTES_MAX: usize = 64 * 1024;
/// The longest line with a length: sign, digits of an `i64`, and some slack.
const LENGTH_LINE_BYTES_MAX: usize = 32;
/// Capacity for arguments that a decoder keeps between requests.
const ARGS_KEPT: usize = 64;

/// The limits on a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// The longest argument, in bytes: Redis' `proto-max-bulk-len`.
    pub bulk_bytes_max: usize,
    /// The longest request, in bytes, including its framing.
    pub request_bytes_max: usize,
    /// The most arguments of a request, including the command's name.
    pub args_max: usize,
    /// Whether the client has authenticated: Redis words the same errors differently before.
    pub authenticated: bool,
}

impl Limits {
    /// The limits before authentication: enough for `HELLO` and `AUTH`, as in Redis.
    #[must_use]
    pub fn unauthenticated() -> Self {
        Self {
            bulk_bytes_max: 16 * 1024,
            request_bytes_max: 10 * 16 * 1024,
            args_max: 10,
            authenticated: false,
        }
    }
}

/// Bytes that are not a request. Later bytes cannot be interpreted: reply and close.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("Protocol error: {0}")]
pub struct ProtocolError(String);

impl ProtocolError {
    fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

/// Splits a stream of bytes into requests; keeps its position between calls.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    /// How far the bytes of the unfinished request were examined.
    seen: usize,
    /// Arguments missing from the unfinished array; `None` between requests.
    missing: Option<usize>,
    /// The length of the arriving argument, once its header was read.
    bulk: Option<usize>,
    /// The ranges of the complete arguments of the unfinished request.
    args: Vec<Range<usize>>,
}

impl Decoder {
    /// A decoder at the start of a stream.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, seen: 0, missing: None, bulk: None, args: Vec::new() }
    }

    /// Applies new limits from the next argument on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Takes the next complete request off the front of `input`. If it is incomplete, leaves it there and returns
    /// `None`: call again when more has arrived. Arguments share memory with `input`.
    ///
    /// # Errors
    /// The stream is malformed: reply with the error and close.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<Request>, ProtocolError> {
        loop {
            match (self.missing, input.first()) {
                (Some(0), _) => return Ok(Some(self.take(input))),
                (Some(missing), _) => {
                    if !self.argument(input)? {
                        return Ok(None);
                    }
                    self.missing = Some(missing - 1);
                }
                (None, None) => return Ok(None),
                (None, Some(b'*')) => {
                    if !self.array_header(input)? {
                        return Ok(None);
                    }
                }
                (None, Some(_)) => {
                    let Some(words) = self.inline(input)? else { return Ok(None) };
                    if !words.is_empty() {
                        return Ok(Some(words));
                    }
                }
            }
        }
    }

    fn take(&mut self, input: &mut BytesMut) -> Request {
        let whole = input.split_to(mem::take(&mut self.seen)).freeze();
        self.missing = None;
        let request = self.args.drain(..).map(|range| whole.slice(range)).collect();
        // Frees the capacity of a request with a million arguments.
        self.args.shrink_to(ARGS_KEPT);
        request
    }

    /// Reads `*<count>`; false if it has not arrived completely. Skips an empty array.
    fn array_header(&mut self, input: &mut BytesMut) -> Result<bool, ProtocolError> {
        let Some(line) = length_line(input, 0, "mbulk count")? else { return Ok(false) };
        let Some(count) = line.number else {
            return Err(ProtocolError::new("invalid multibulk length"));
        };
        match usize::try_from(count) {
            Err(_) | Ok(0) => input.advance(line.end),
            Ok(count) if count <= self.limits.args_max => {
                self.seen = line.end;
                self.missing = Some(count);
            }
            Ok(_) => return Err(self.too_large("multibulk length")),
        }
        Ok(true)
    }

    /// Reads `$<length>` and that many bytes; false if they have not arrived completely.
    fn argument(&mut self, input: &BytesMut) -> Result<bool, ProtocolError> {
        let bulk = match self.bulk {
            Some(bulk) => bulk,
            None => match self.argument_header(input)? {
                Some(bulk) => *self.bulk.insert(bulk),
                None => return Ok(false),
            },
        };
        // Like Redis, skips the two bytes after an argument without examining them.
        let end = self.seen + bulk + 2;
        if input.len() < end {
            return Ok(false);
        }
        self.args.push(self.seen..self.seen + bulk);
        self.seen = end;
        self.bulk = None;
        Ok(true)
    }

    fn argument_header(&mut self, input: &BytesMut) -> Result<Option<usize>, ProtocolError> {
        match input.get(self.seen) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(other) => {
                let found = other.escape_ascii();
                return Err(ProtocolError::new(format!("expected '$', got '{found}'")));
            }
        }
        let Some(line) = length_line(input, self.seen, "bulk count")? else { return Ok(None) };
        let Some(len) = line.number.and_then(|len| usize::try_from(len).ok()) else {
            return Err(ProtocolError::new("invalid bulk length"));
        };
        if len > self.limits.bulk_bytes_max {
            return Err(self.too_large("bulk length"));
        }
        if line.end + len > self.limits.request_bytes_max {
            return Err(ProtocolError::new("too big request"));
        }
        self.seen = line.end;
        Ok(Some(len))
    }

    fn too_large(&self, what: &str) -> ProtocolError {
        let how = if self.limits.authenticated { "invalid" } else { "unauthenticated" };
        ProtocolError::new(format!("{how} {what}"))
    }

    /// Reads one line of words; `None` if it has not arrived completely.
    fn inline(&mut self, input: &mut BytesMut) -> Result<Option<Request>, ProtocolError> {
        let newline = input[self.seen..].iter().position(|&byte| byte == b'\n');
        let len = self.seen + newline.unwrap_or(input.len() - self.seen);
        // Unlike Redis, independent of whether the end arrived in the same piece.
        if len > INLINE_BYTES_MAX {
            return Err(ProtocolError::new("too big inline request"));
        }
        let Some(newline) = newline else {
            self.seen = input.len();
            return Ok(None);
        };
        let line = input.split_to(mem::take(&mut self.seen) + newline + 1);
        let line = &line[..line.len() - 1];
        let words = split_words(line.strip_suffix(b"\r").unwrap_or(line))
            .ok_or_else(|| ProtocolError::new("unbalanced quotes in request"))?;
        Ok(Some(words))
    }
}

/// A line with a length.
struct LengthLine {
    /// The number, if it is valid.
    number: Option<i64>,
    /// The end of the line.
    end: usize,
}

/// Reads the line that starts at `start` with its one-byte type; `None` if it has not arrived completely.
fn length_line(
    input: &[u8],
    start: usize,
    what: &str,
) -> Result<Option<LengthLine>, ProtocolError> {
    let line = &input[start + 1..];
    let Some(len) = line.iter().take(LENGTH_LINE_BYTES_MAX).position(|&byte| byte == b'\r') else {
        if line.len() >= LENGTH_LINE_BYTES_MAX {
            return Err(ProtocolError::new(format!("too big {what} string")));
        }
        return Ok(None);
    };
    if line.len() < len + 2 {
        return Ok(None);
    }
    let number = std::str::from_utf8(&line[..len]).ok().and_then(|text| text.parse().ok());
    Ok(Some(LengthLine { number, end: start + 1 + len + 2 }))
}

/// Splits an inline command as Redis does: words between blanks, `"…"` with escapes, `'…'` with `\'` only; a closing
/// quote ends its word. `None` if a quote is not closed.
fn split_words(line: &[u8]) -> Option<Request> {
    let mut words = Request::new();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(words);
        }
        let mut word = Vec::new();
        let mut quote = None;
        loop {
            match (quote, rest) {
                (None, []) => break,
                (Some(_), []) => return None,
                (None, [byte, ..]) if byte.is_ascii_whitespace() => break,
                (None, [open @ (b'"' | b'\''), after @ ..]) => {
                    quote = Some(*open);
                    rest = after;
                }
                (Some(open), [byte, after @ ..]) if *byte == open => {
                    if after.first().is_some_and(|next| !next.is_ascii_whitespace()) {
                        return None;
                    }
                    rest = after;
                    break;
                }
                (Some(b'"'), [b'\\', escaped, ..]) => {
                    let (byte, len) = unescape(*escaped, &rest[2..]);
                    word.push(byte);
                    rest = &rest[1 + len..];
                }
                (Some(b'\''), [b'\\', b'\'', after @ ..]) => {
                    word.push(b'\'');
                    rest = after;
                }
                (_, [byte, after @ ..]) => {
                    word.push(*byte);
                    rest = after;
                }
            }
        }
        words.push(word.into());
    }
}

/// The byte for `\` and `escaped`, and the number of bytes consumed after the `\`.
fn unescape(escaped: u8, after: &[u8]) -> (u8, usize) {
    if escaped == b'x'
        && let Some(digits) = after.get(..2)
        && digits.iter().all(u8::is_ascii_hexdigit)
        && let Ok(text) = std::str::from_utf8(digits)
        && let Ok(byte) = u8::from_str_radix(text, 16)
    {
        return (byte, 3);
    }
    let byte = match escaped {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    };
    (byte, 1)
}

#[cfg(test)]
mod tests;

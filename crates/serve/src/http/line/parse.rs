//! Parses one line in one pass over its bytes.

use super::field::{Held, Place};
use super::precision::Precision;
use super::problem::Problem;
use super::text::is_protected;

/// The largest timestamp, as in InfluxDB, which reserves larger ones for "no time".
const TIME_MAX: i64 = i64::MAX - 1;

/// The result of parsing the start of some bytes.
#[derive(Debug)]
pub(super) enum Found {
    /// A line.
    Line(Shape),
    /// A comment or blanks, of this length in bytes.
    Nothing(usize),
    /// Its end has not arrived.
    Unfinished,
    /// Not a line: the mistake, and its byte.
    Bad(usize, Problem),
}

/// The parts of a line; its fields are returned separately.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// The length of the blanks before it.
    pub(super) start: usize,
    /// Bytes of measurement and tags.
    pub(super) head: usize,
    /// The end of its text.
    pub(super) end: usize,
    /// The start of the next line.
    pub(super) next: usize,
    /// Line feeds inside strings.
    pub(super) breaks: u64,
    pub(super) timestamp: Option<i64>,
}

/// Reads the line at the front of `input`; its fields replace those in `fields`, with places relative to the line's
/// start. `last` says that nothing follows `input`.
pub(super) fn line(
    input: &[u8],
    last: bool,
    precision: Precision,
    fields: &mut Vec<Place>,
) -> Found {
    fields.clear();
    let mut cursor = Cursor { input, at: 0, last };
    match cursor.line(precision, fields) {
        Ok(found) => found,
        Err(Stop::Unfinished) => Found::Unfinished,
        Err(Stop::Bad(at, problem)) => Found::Bad(at, problem),
    }
}

/// The end of a bad line, after its line feed; `None` if that has not arrived. As in InfluxDB (`scanLine`), quotes
/// count only where a value may start, so that a quote among the tags does not swallow later lines.
pub(super) fn end_of_line(input: &[u8]) -> Option<usize> {
    let mut at = input.iter().position(|&byte| !is_blank(byte))?;
    let (mut fields, mut quoted) = (false, false);
    let (mut equals, mut commas) = (0, 0);
    while at < input.len() {
        let next = || input.get(at + 1).copied();
        match input[at] {
            b'\\' if quoted && next().is_some_and(|b| b == b'"' || b == b'\\') => at += 1,
            b'\\' if !quoted && next().is_some_and(is_protected) => at += 1,
            b' ' => fields = true,
            b'=' if fields && !quoted => equals += 1,
            b',' if fields && !quoted => commas += 1,
            b'"' if equals > commas => quoted = !quoted,
            b'\n' if !quoted => return Some(at + 1),
            _ => {}
        }
        at += 1;
    }
    None
}

/// Bytes to skip before a line.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | 0)
}

/// Why parsing stopped early.
enum Stop {
    Unfinished,
    Bad(usize, Problem),
}

struct Cursor<'a> {
    input: &'a [u8],
    at: usize,
    last: bool,
}

impl Cursor<'_> {
    fn line(&mut self, precision: Precision, fields: &mut Vec<Place>) -> Result<Found, Stop> {
        while self.peek().is_some_and(is_blank) {
            self.at += 1;
        }
        match self.peek() {
            None if self.last => return Ok(Found::Nothing(self.at)),
            None => return Err(Stop::Unfinished),
            Some(b'\n') => return Ok(Found::Nothing(self.at + 1)),
            Some(b'#') => {
                return match memchr::memchr(b'\n', &self.input[self.at..]) {
                    Some(end) => Ok(Found::Nothing(self.at + end + 1)),
                    None if self.last => Ok(Found::Nothing(self.input.len())),
                    None => Err(Stop::Unfinished),
                };
            }
            Some(_) => {}
        }
        let start = self.at;
        self.head()?;
        let head = self.at - start;
        if head == 0 || self.input[start] == b',' {
            return Err(Stop::Bad(start, Problem::MissingMeasurement));
        }
        self.blanks();
        let breaks = self.fields(start, fields)?;
        let mut end = self.at;
        self.blanks();
        let timestamp = match self.peek() {
            Some(b'\n' | b'\r') | None => None,
            Some(_) => {
                let timestamp = self.timestamp(precision)?;
                end = self.at;
                self.blanks();
                Some(timestamp)
            }
        };
        if self.peek() == Some(b'\r') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'\n') => self.at += 1,
            Some(_) => return self.bad(Problem::AfterTimestamp),
            None if self.last => {}
            None => return Err(Stop::Unfinished),
        }
        if let Err(error) = std::str::from_utf8(&self.input[start..end]) {
            return Err(Stop::Bad(start + error.valid_up_to(), Problem::NotUtf8));
        }
        Ok(Found::Line(Shape { start, head, end, next: self.at, breaks, timestamp }))
    }

    /// Skips measurement and tags, up to the blank after them.
    fn head(&mut self) -> Result<(), Stop> {
        loop {
            let Some(found) = memchr::memchr2(b' ', b'\n', &self.input[self.at..]) else {
                self.at = self.input.len();
                return self.ends(Problem::MissingFields);
            };
            self.at += found;
            if self.input[self.at] == b'\n' {
                return self.bad(Problem::MissingFields);
            }
            if self.at == 0 || self.input[self.at - 1] != b'\\' {
                return Ok(());
            }
            self.at += 1;
        }
    }

    /// Parses the fields, up to the byte after them; returns the number of line feeds in them.
    fn fields(&mut self, start: usize, fields: &mut Vec<Place>) -> Result<u64, Stop> {
        let mut breaks = 0;
        if matches!(self.peek(), Some(b'\n' | b'\r')) {
            return self.bad(Problem::MissingFields);
        }
        if self.peek().is_none() {
            return self.ends(Problem::MissingFields);
        }
        loop {
            let from = self.at;
            let name_is_escaped = self.name()?;
            let name = place(from - start, self.at - start);
            if self.at - from == 4 && &self.input[from..self.at] == b"time" {
                return Err(Stop::Bad(from, Problem::NamedTime));
            }
            // Skips the equals sign.
            self.at += 1;
            let value = self.value(start, &mut breaks)?;
            fields.push(Place { name, name_is_escaped, value });
            match self.peek() {
                Some(b',') => self.at += 1,
                _ => return Ok(breaks),
            }
        }
    }

    /// Skips a field's name, up to its equals sign; returns whether it contains backslashes.
    fn name(&mut self) -> Result<bool, Stop> {
        let from = self.at;
        let mut is_escaped = false;
        loop {
            match self.peek() {
                Some(b'=') if self.at == from => return self.bad(Problem::MissingFieldKey),
                Some(b'=') => return Ok(is_escaped),
                Some(b'\\') => {
                    is_escaped = true;
                    self.at += 1;
                    if self.peek().is_some_and(is_protected) {
                        self.at += 1;
                    }
                }
                Some(b',' | b' ' | b'\n') if self.at == from => {
                    return self.bad(Problem::MissingFieldKey);
                }
                Some(b',' | b' ' | b'\n') => return self.bad(Problem::MissingFieldValue),
                Some(_) => self.at += 1,
                None => return self.ends(Problem::MissingFieldValue),
            }
        }
    }

    fn value(&mut self, start: usize, breaks: &mut u64) -> Result<Held, Stop> {
        match self.peek() {
            Some(b'0'..=b'9' | b'-' | b'.') => self.number(),
            Some(b'"') => self.string(start, breaks),
            Some(b't' | b'T' | b'f' | b'F') => self.boolean(),
            Some(b',' | b' ' | b'\n' | b'\r') => self.bad(Problem::MissingFieldValue),
            Some(_) => self.bad(Problem::InvalidValue),
            None => self.ends(Problem::MissingFieldValue),
        }
    }

    fn number(&mut self) -> Result<Held, Stop> {
        let from = self.at;
        let negative = self.peek() == Some(b'-');
        self.at += usize::from(negative);
        let digits = self.at;
        let mut value: u64 = 0;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            self.at += 1;
        }
        // A number with this many digits always fits.
        const DIGITS_SAFE: usize = 18;
        let fits = (1..=DIGITS_SAFE).contains(&(self.at - digits));
        let (number, kind) = (from..self.at, self.peek());
        let held = match kind {
            Some(b'i' | b'u') => {
                self.at += 1;
                let text = || std::str::from_utf8(&self.input[number]).unwrap_or_default();
                match kind {
                    Some(b'i') if fits => {
                        // It fits in 63 bits.
                        let value = value as i64;
                        Some(Held::Integer(if negative { -value } else { value }))
                    }
                    Some(b'i') => text().parse().ok().map(Held::Integer),
                    _ if fits && !negative => Some(Held::Unsigned(value)),
                    _ => text().parse().ok().map(Held::Unsigned),
                }
            }
            None if !self.last => return Err(Stop::Unfinished),
            _ => {
                self.over_value();
                if self.peek().is_none() && !self.last {
                    return Err(Stop::Unfinished);
                }
                let text = std::str::from_utf8(&self.input[from..self.at]).unwrap_or_default();
                // Rust accepts words such as `inf`, which InfluxDB does not.
                let plain = text
                    .bytes()
                    .all(|b| matches!(b, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E'));
                let value = text.parse().ok().filter(|value: &f64| plain && value.is_finite());
                value.map(Held::Float)
            }
        };
        match (held, self.peek()) {
            (Some(held), Some(b',' | b' ' | b'\n' | b'\r')) => Ok(held),
            (Some(held), None) if self.last => Ok(held),
            (_, None) if !self.last => Err(Stop::Unfinished),
            _ => Err(Stop::Bad(from, Problem::InvalidNumber)),
        }
    }

    fn boolean(&mut self) -> Result<Held, Stop> {
        let from = self.at;
        self.over_value();
        if self.peek().is_none() && !self.last {
            return Err(Stop::Unfinished);
        }
        match &self.input[from..self.at] {
            b"t" | b"T" | b"true" | b"True" | b"TRUE" => Ok(Held::Boolean(true)),
            b"f" | b"F" | b"false" | b"False" | b"FALSE" => Ok(Held::Boolean(false)),
            _ => Err(Stop::Bad(from, Problem::InvalidValue)),
        }
    }

    fn over_value(&mut self) {
        while !matches!(self.peek(), Some(b',' | b' ' | b'\n' | b'\r') | None) {
            self.at += 1;
        }
    }

    fn string(&mut self, start: usize, breaks: &mut u64) -> Result<Held, Stop> {
        let quote = self.at;
        self.at += 1;
        let mut is_escaped = false;
        loop {
            let Some(found) = memchr::memchr3(b'"', b'\\', b'\n', &self.input[self.at..]) else {
                self.at = self.input.len();
                break;
            };
            self.at += found;
            match self.input[self.at] {
                b'"' => {
                    let text = place(quote + 1 - start, self.at - start);
                    self.at += 1;
                    return match self.peek() {
                        Some(b',' | b' ' | b'\n' | b'\r') | None => {
                            Ok(Held::String { text, is_escaped })
                        }
                        Some(_) => self.bad(Problem::AfterString),
                    };
                }
                b'\\' => {
                    is_escaped = true;
                    let next = self.input.get(self.at + 1);
                    self.at += if matches!(next, Some(b'"' | b'\\')) { 2 } else { 1 };
                }
                _ => {
                    *breaks += 1;
                    self.at += 1;
                }
            }
        }
        if self.last {
            Err(Stop::Bad(quote, Problem::UnbalancedQuotes))
        } else {
            Err(Stop::Unfinished)
        }
    }

    fn timestamp(&mut self, precision: Precision) -> Result<i64, Stop> {
        let from = self.at;
        let negative = self.peek() == Some(b'-');
        self.at += usize::from(negative);
        let digits = self.at;
        let mut value = Some(0_i64);
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            let tens = value.and_then(|value| value.checked_mul(10));
            value = tens.and_then(|value| value.checked_add(i64::from(digit - b'0')));
            self.at += 1;
        }
        match self.peek() {
            None if !self.last => return Err(Stop::Unfinished),
            Some(b' ' | b'\n' | b'\r') | None if self.at > digits => {}
            _ => return self.bad(Problem::BadTimestamp),
        }
        let nanos = value.and_then(|value| value.checked_mul(precision.nanos()));
        let nanos = nanos.filter(|&nanos| nanos <= TIME_MAX);
        let nanos = nanos.map(|nanos| if negative { -nanos } else { nanos });
        nanos.ok_or(Stop::Bad(from, Problem::TimeOutOfRange))
    }

    fn peek(&self) -> Option<u8> {
        self.input.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while self.peek() == Some(b' ') {
            self.at += 1;
        }
    }

    fn bad<T>(&self, problem: Problem) -> Result<T, Stop> {
        Err(Stop::Bad(self.at, problem))
    }

    /// The input ends here: a mistake if nothing follows, otherwise unfinished.
    fn ends<T>(&self, problem: Problem) -> Result<T, Stop> {
        if self.last { self.bad(problem) } else { Err(Stop::Unfinished) }
    }
}

/// A range in a line, whose bounded length fits in 32 bits.
fn place(start: usize, end: usize) -> std::ops::Range<u32> {
    let place = |at| u32::try_from(at).expect("a line is bounded");
    place(start)..place(end)
}

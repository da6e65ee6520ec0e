//! Measurement and tags.

use std::borrow::Cow;

use super::problem::Problem;
use super::text::{is_protected, unescape_measurement, unescape_name};

/// The part of a line that identifies the series of its fields.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Head<'a> {
    /// The measurement, never empty.
    pub measurement: Cow<'a, str>,
    /// Keys and values, sorted by key, each key once. Neither is empty.
    pub tags: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Head<'a> {
    /// Parses a line's [head](super::Line::head).
    ///
    /// # Errors
    /// The mistake, and its byte.
    pub fn parse(raw: &'a str) -> Result<Self, (usize, Problem)> {
        let (measurement, tags) = split(raw)?;
        let end = tags.at;
        let mut tags = tags.collect::<Result<Vec<_>, _>>()?;
        tags.sort_by(|(one, _), (other, _)| one.cmp(other));
        if let Some(twice) = tags.windows(2).find(|two| two[0].0 == two[1].0) {
            return Err((end, Problem::DuplicateTag(twice[0].0.to_string())));
        }
        Ok(Self { measurement, tags })
    }
}

/// A tag's key and value.
pub type Tag<'a> = (Cow<'a, str>, Cow<'a, str>);

/// A line's [head](super::Line::head) as its measurement and an iterator over its tags in their given order: for
/// callers that sort them anyway.
///
/// # Errors
/// It begins with a comma.
pub fn split(raw: &str) -> Result<(Cow<'_, str>, Tags<'_>), (usize, Problem)> {
    let end = part(raw, 0, |byte| byte == b',');
    if end == 0 {
        return Err((0, Problem::MissingMeasurement));
    }
    Ok((unescape_measurement(&raw[..end]), Tags { raw, at: end }))
}

/// An iterator over the tags of a head. It ends after a mistake.
#[derive(Clone, Debug)]
pub struct Tags<'a> {
    raw: &'a str,
    /// The comma before the next one.
    at: usize,
}

impl<'a> Tags<'a> {
    fn tag(&mut self) -> Result<Tag<'a>, (usize, Problem)> {
        let raw = self.raw;
        let start = self.at + 1;
        // Ends the iteration after a mistake.
        self.at = raw.len();
        let equals = part(raw, start, |byte| byte == b',' || byte == b'=');
        if equals == start {
            return Err((start, Problem::MissingTagKey));
        }
        if raw.as_bytes().get(equals) != Some(&b'=') {
            return Err((equals, Problem::MissingTagValue));
        }
        let end = part(raw, equals + 1, |byte| byte == b',' || byte == b'=');
        if end == equals + 1 {
            return Err((end, Problem::MissingTagValue));
        }
        if raw.as_bytes().get(end) == Some(&b'=') {
            return Err((end, Problem::InvalidTag));
        }
        let key = unescape_name(&raw[start..equals]);
        if key == "time" {
            return Err((start, Problem::NamedTime));
        }
        self.at = end;
        Ok((key, unescape_name(&raw[equals + 1..end])))
    }
}

impl<'a> Iterator for Tags<'a> {
    type Item = Result<Tag<'a>, (usize, Problem)>;

    fn next(&mut self) -> Option<Self::Item> {
        (self.at < self.raw.len()).then(|| self.tag())
    }
}

/// The end of the part that starts at `from`: the first unescaped byte for which `ends` holds.
fn part(raw: &str, from: usize, ends: impl Fn(u8) -> bool) -> usize {
    let bytes = raw.as_bytes();
    let mut at = from;
    while at < bytes.len() {
        if bytes[at] == b'\\' && bytes.get(at + 1).copied().is_some_and(is_protected) {
            at += 2;
        } else if ends(bytes[at]) {
            return at;
        } else {
            at += 1;
        }
    }
    bytes.len()
}

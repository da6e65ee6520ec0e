//! Iteration: `SCAN` and its relatives, which continue from a cursor, and `KEYS`.

use bytes::Bytes;
use engine::keyspace::{Kind, Touch};

use super::keys::kind_name;
use super::row::{Command, Data, FIRST, Failure, NO_KEYS, Outcome, READS};
use super::words::{integer, is, syntax_error};
use crate::resp::cursors::Place;
use crate::resp::glob::matches;
use crate::resp::reply::{Reply, digits};

/// The commands of this file.
pub(super) static ROWS: &[Command] = &[
    Command::data("hscan", -3, READS, FIRST, Touch::Read, hscan).about(
        "hash",
        "2.8.0",
        "Incrementally iterate hash fields and associated values",
    ),
    Command::data("keys", 2, READS, NO_KEYS, Touch::Peek, keys).about(
        "generic",
        "1.0.0",
        "Find all keys matching the given pattern",
    ),
    Command::data("scan", -2, READS, NO_KEYS, Touch::Peek, scan).about(
        "generic",
        "2.8.0",
        "Incrementally iterate the keys space",
    ),
    Command::data("zscan", -3, READS, FIRST, Touch::Read, zscan).about(
        "sorted-set",
        "2.8.0",
        "Incrementally iterate sorted sets elements and associated scores",
    ),
];

/// Keys read at a time.
const KEYS_AT_ONCE: usize = 1024;
/// The most entries that one call examines, regardless of `COUNT`: other clients wait meanwhile.
const COUNT_MAX: i64 = 100_000;

/// `KEYS pattern`.
fn keys(data: &mut Data<'_, '_>) -> Outcome {
    let pattern = &data.words[1];
    let (mut from, mut found) = (Bytes::new(), Vec::new());
    loop {
        let page = data.transaction.keys(&from, KEYS_AT_ONCE)?;
        for (key, _) in page.keys {
            if matches(pattern, &key) {
                data.transaction.keeps(1, key.len())?;
                found.push(Reply::Bulk(key));
            }
        }
        match page.next {
            Some(next) => from = next,
            None => return Ok(Reply::Array(found)),
        }
    }
}

/// An option that only some scans have.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Own {
    /// `TYPE type`.
    Kind,
    /// A flag of this name: [`Options::names_only`].
    NamesOnly(&'static str),
}

/// The options of a scan, after its cursor.
struct Options<'w> {
    pattern: Option<&'w Bytes>,
    count: usize,
    kind: Option<&'w Bytes>,
    /// Whether to show fields or members without values or scores.
    names_only: bool,
}

impl<'w> Options<'w> {
    /// Parses the options that all scans have, and the one in `own`.
    fn read(mut words: &'w [Bytes], own: Own) -> Result<Self, Failure> {
        let mut read = Self { pattern: None, count: 10, kind: None, names_only: false };
        loop {
            if let (Own::NamesOnly(name), [option, rest @ ..]) = (own, words)
                && is(option, name)
            {
                read.names_only = true;
                words = rest;
                continue;
            }
            let [option, value, rest @ ..] = words else { break };
            words = rest;
            if is(option, "match") {
                read.pattern = Some(value);
            } else if is(option, "count") {
                let count = integer(value)?;
                if count < 1 {
                    return Err(syntax_error().into());
                }
                read.count = usize::try_from(count.min(COUNT_MAX)).expect("a positive number");
            } else if own == Own::Kind && is(option, "type") {
                read.kind = Some(value);
            } else {
                return Err(syntax_error().into());
            }
        }
        if words.is_empty() { Ok(read) } else { Err(syntax_error().into()) }
    }

    fn wants(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| matches(pattern, name))
    }

    fn wants_kind(&self, kind: Kind) -> bool {
        self.kind.is_none_or(|wanted| is(wanted, kind_name(kind)))
    }
}

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`: shows every key once that exists from the first call to the
/// last.
fn scan(data: &mut Data<'_, '_>) -> Outcome {
    let options = Options::read(&data.words[2..], Own::Kind)?;
    let from = place(data, &data.words[1])?.unwrap_or_default();
    let page = data.transaction.keys(&from, options.count)?;
    let wanted = |(key, kind): &(Bytes, Kind)| options.wants(key) && options.wants_kind(*kind);
    let keys = page.keys.into_iter().filter(wanted).map(|(key, _)| Reply::Bulk(key)).collect();
    Ok(answer(data, page.next, keys))
}

/// `HSCAN key cursor [MATCH pattern] [COUNT count] [NOVALUES]`.
fn hscan(data: &mut Data<'_, '_>) -> Outcome {
    let options = Options::read(&data.words[3..], Own::NamesOnly("novalues"))?;
    let after = place(data, &data.words[2])?;
    let page = data.transaction.hash_entries(&data.words[1], after.as_deref(), options.count)?;
    let last = page.last().filter(|_| page.len() == options.count);
    let next = last.map(|(field, _)| field.clone());
    let wanted = page.into_iter().filter(|(field, _)| options.wants(field));
    let value = |value| (!options.names_only).then_some(Reply::Bulk(value));
    let shown = wanted.flat_map(|(field, of)| [Some(Reply::Bulk(field)), value(of)]);
    let shown = shown.flatten().collect();
    Ok(answer(data, next, shown))
}

/// `ZSCAN key cursor [MATCH pattern] [COUNT count] [NOSCORES]`.
fn zscan(data: &mut Data<'_, '_>) -> Outcome {
    let options = Options::read(&data.words[3..], Own::NamesOnly("noscores"))?;
    let after = place(data, &data.words[2])?;
    let page = data.transaction.sorted_members(&data.words[1], after.as_deref(), options.count)?;
    let last = page.last().filter(|_| page.len() == options.count);
    let next = last.map(|(member, _)| member.clone());
    let wanted = page.into_iter().filter(|(member, _)| options.wants(member));
    // Scores are bulk strings here, in RESP3 too.
    let score = |score| (!options.names_only).then(|| Reply::Bulk(digits(score).into()));
    let shown = wanted.flat_map(|(member, of)| [Some(Reply::Bulk(member)), score(of)]);
    let shown = shown.flatten().collect();
    Ok(answer(data, next, shown))
}

/// The position of the scan with this cursor; `None` at the start.
fn place(data: &Data<'_, '_>, cursor: &[u8]) -> Result<Option<Bytes>, Failure> {
    let number = std::str::from_utf8(cursor).ok().and_then(|text| text.parse().ok());
    let number: u64 = number.ok_or_else(|| Reply::error("invalid cursor"))?;
    if number == 0 {
        return Ok(None);
    }
    match data.service.cursors.place(number) {
        Some(place) => Ok(Some(place)),
        None => Err(Reply::error(
            "invalid cursor: the server has restarted since, or too many other scans have begun; begin again at 0",
        )
        .into()),
    }
}

fn answer(data: &Data<'_, '_>, next: Option<Place>, shown: Vec<Reply>) -> Reply {
    let cursor = next.map_or(0, |next| data.service.cursors.keep(next));
    Reply::Array(vec![Reply::Bulk(cursor.to_string().into()), Reply::Array(shown)])
}

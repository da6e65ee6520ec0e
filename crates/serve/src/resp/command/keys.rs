//! Commands on keys of any kind.

use engine::keyspace::{Kind, Touch};

use super::row::{
    ALL, Command, Data, FIRST, Failure, NO_KEYS, Outcome, READS_FAST, REMOVES, Run, WRITES_FAST,
};
use super::words::{integer, invalid_expire_time, is, shown, syntax_error};
use crate::resp::reply::Reply;

/// The commands of this file.
pub(super) static ROWS: &[Command] = &[
    Command::data("dbsize", 1, READS_FAST, NO_KEYS, Touch::Peek, dbsize).about(
        "server",
        "1.0.0",
        "Return the number of keys: counted while they are few, else estimated",
    ),
    Command::data("del", -2, &["write"], ALL, Touch::Write, del).about(
        "generic",
        "1.0.0",
        "Delete a key",
    ),
    Command::data("exists", -2, READS_FAST, ALL, Touch::Look, exists).about(
        "generic",
        "1.0.0",
        "Determine if a key exists",
    ),
    Command::data("expire", -3, WRITES_FAST, FIRST, Touch::Write, expire).about(
        "generic",
        "1.0.0",
        "Set a key's time to live in seconds",
    ),
    Command::data("expireat", -3, WRITES_FAST, FIRST, Touch::Write, expireat).about(
        "generic",
        "1.2.0",
        "Set the expiration for a key as a UNIX timestamp",
    ),
    Command::data("expiretime", 2, READS_FAST, FIRST, Touch::Look, expiretime).about(
        "generic",
        "7.0.0",
        "Get the expiration Unix timestamp for a key",
    ),
    flush("flushall", "Remove all keys: there is one database"),
    flush("flushdb", "Remove all keys of the database"),
    Command::data("persist", 2, WRITES_FAST, FIRST, Touch::Write, persist).about(
        "generic",
        "2.2.0",
        "Remove the expiration from a key",
    ),
    Command::data("pexpire", -3, WRITES_FAST, FIRST, Touch::Write, pexpire).about(
        "generic",
        "2.6.0",
        "Set a key's time to live in milliseconds",
    ),
    Command::data("pexpireat", -3, WRITES_FAST, FIRST, Touch::Write, pexpireat).about(
        "generic",
        "2.6.0",
        "Set the expiration for a key as a UNIX timestamp specified in milliseconds",
    ),
    Command::data("pexpiretime", 2, READS_FAST, FIRST, Touch::Look, pexpiretime).about(
        "generic",
        "7.0.0",
        "Get the expiration Unix timestamp for a key in milliseconds",
    ),
    Command::data("pttl", 2, READS_FAST, FIRST, Touch::Look, pttl).about(
        "generic",
        "2.6.0",
        "Get the time to live for a key in milliseconds",
    ),
    Command::data("touch", -2, READS_FAST, ALL, Touch::Look, exists).about(
        "generic",
        "3.2.1",
        "Count the keys that exist: there is no time of last access to change",
    ),
    Command::data("ttl", 2, READS_FAST, FIRST, Touch::Look, ttl).about(
        "generic",
        "1.0.0",
        "Get the time to live for a key in seconds",
    ),
    Command::data("type", 2, READS_FAST, FIRST, Touch::Look, kind).about(
        "generic",
        "1.0.0",
        "Determine the type stored at key",
    ),
    Command::data("unlink", -2, REMOVES, ALL, Touch::Write, del).about(
        "generic",
        "4.0.0",
        "Delete a key; space is reclaimed later, as it always is",
    ),
];

const fn flush(name: &'static str, summary: &'static str) -> Command {
    let (group, since) = ("server", "1.0.0");
    let run = Run::Everything(flushdb);
    Command { name, arity: -1, flags: &["write"], keys: NO_KEYS, group, since, summary, run }
}

/// `DBSIZE`.
fn dbsize(data: &mut Data<'_, '_>) -> Outcome {
    Ok(Reply::count(data.transaction.count()?.keys))
}

/// `DEL key…`, `UNLINK key…`: replies the number of deleted keys.
fn del(data: &mut Data<'_, '_>) -> Outcome {
    let mut deleted = 0;
    for key in &data.words[1..] {
        deleted += u64::from(data.transaction.delete(key)?);
    }
    Ok(Reply::count(deleted))
}

/// `EXISTS key…`: replies the number of existing keys; a key named twice counts twice.
fn exists(data: &mut Data<'_, '_>) -> Outcome {
    let mut found = 0;
    for key in &data.words[1..] {
        found += u64::from(data.transaction.kind(key)?.is_some());
    }
    data.service.stats.looked_up(found, data.words.len() as u64 - 1);
    Ok(Reply::count(found))
}

/// `TYPE key`.
fn kind(data: &mut Data<'_, '_>) -> Outcome {
    Ok(Reply::Status(data.transaction.kind(&data.words[1])?.map_or("none", kind_name)))
}

/// Redis' name for the kind of a key.
pub(super) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::String => "string",
        Kind::Hash => "hash",
        Kind::SortedSet => "zset",
    }
}

/// `FLUSHDB [ASYNC | SYNC]`, `FLUSHALL` alike.
fn flushdb(data: &mut Data<'_, '_>) -> Outcome {
    match &data.words[1..] {
        [] => {}
        [how] if is(how, "async") || is(how, "sync") => {}
        _ => return Err(syntax_error().into()),
    }
    data.transaction.clear();
    Ok(Reply::OK)
}

/// The unit of a time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
}

impl Unit {
    const fn milliseconds(self) -> i64 {
        match self {
            Self::Seconds => 1000,
            Self::Milliseconds => 1,
        }
    }
}

/// The time `number` units after `base`, in milliseconds since 1970; times before 1970 become 1970. `None` on overflow.
pub(super) fn deadline(number: i64, unit: Unit, base: u64) -> Option<u64> {
    let base = i64::try_from(base).ok()?;
    let at = number.checked_mul(unit.milliseconds())?.checked_add(base)?;
    Some(u64::try_from(at).unwrap_or(0))
}

/// `EXPIRE key seconds [NX | XX | GT | LT]`.
fn expire(data: &mut Data<'_, '_>) -> Outcome {
    let now = data.transaction.now();
    set_end(data, Unit::Seconds, now, "expire")
}

/// `PEXPIRE key milliseconds [NX | XX | GT | LT]`.
fn pexpire(data: &mut Data<'_, '_>) -> Outcome {
    let now = data.transaction.now();
    set_end(data, Unit::Milliseconds, now, "pexpire")
}

/// `EXPIREAT key seconds [NX | XX | GT | LT]`, since 1970.
fn expireat(data: &mut Data<'_, '_>) -> Outcome {
    set_end(data, Unit::Seconds, 0, "expireat")
}

/// `PEXPIREAT key milliseconds [NX | XX | GT | LT]`, since 1970.
fn pexpireat(data: &mut Data<'_, '_>) -> Outcome {
    set_end(data, Unit::Milliseconds, 0, "pexpireat")
}

fn set_end(data: &mut Data<'_, '_>, unit: Unit, base: u64, name: &'static str) -> Outcome {
    let key = &data.words[1];
    let number = integer(&data.words[2])?;
    let end = deadline(number, unit, base).ok_or_else(|| invalid_expire_time(name))?;
    let conditions = EndConditions::read(&data.words[3..])?;
    let Some(old) = data.transaction.expires(key)? else { return Ok(Reply::Integer(0)) };
    let changes = conditions.hold(old, end);
    if changes {
        data.transaction.set_expires(key, Some(end))?;
    }
    Ok(Reply::Integer(i64::from(changes)))
}

/// Conditions on setting an expiry. A key without an expiry counts as ending never.
#[derive(Clone, Copy, Debug, Default)]
struct EndConditions {
    /// `NX`: only if the key has no expiry.
    none: bool,
    /// `XX`: only if the key has an expiry.
    some: bool,
    /// `GT`: only if the expiry moves later.
    later: bool,
    /// `LT`: only if the expiry moves earlier.
    earlier: bool,
}

impl EndConditions {
    fn read(words: &[bytes::Bytes]) -> Result<Self, Failure> {
        let mut read = Self::default();
        for word in words {
            match &word.to_ascii_lowercase()[..] {
                b"nx" => read.none = true,
                b"xx" => read.some = true,
                b"gt" => read.later = true,
                b"lt" => read.earlier = true,
                _ => {
                    let word = shown(word);
                    return Err(Reply::error(format_args!("Unsupported option {word}")).into());
                }
            }
        }
        if read.none && (read.some || read.later || read.earlier) {
            const ALONE: &str = "NX and XX, GT or LT options at the same time are not compatible";
            return Err(Reply::error(ALONE).into());
        }
        if read.later && read.earlier {
            const EITHER: &str = "GT and LT options at the same time are not compatible";
            return Err(Reply::error(EITHER).into());
        }
        Ok(read)
    }

    fn hold(self, old: Option<u64>, new: u64) -> bool {
        !(self.none && old.is_some()
            || self.some && old.is_none()
            || self.later && old.is_none_or(|old| new <= old)
            || self.earlier && old.is_some_and(|old| new >= old))
    }
}

/// `TTL key`.
fn ttl(data: &mut Data<'_, '_>) -> Outcome {
    // Rounded to the nearest second, as Redis does.
    let now = data.transaction.now();
    end(data, |expires| (expires.saturating_sub(now) + 500) / 1000)
}

/// `PTTL key`.
fn pttl(data: &mut Data<'_, '_>) -> Outcome {
    let now = data.transaction.now();
    end(data, |expires| expires.saturating_sub(now))
}

/// `EXPIRETIME key`.
fn expiretime(data: &mut Data<'_, '_>) -> Outcome {
    end(data, |expires| (expires + 500) / 1000)
}

/// `PEXPIRETIME key`.
fn pexpiretime(data: &mut Data<'_, '_>) -> Outcome {
    end(data, |expires| expires)
}

fn end(data: &mut Data<'_, '_>, shown: impl Fn(u64) -> u64) -> Outcome {
    let expires = data.transaction.expires(&data.words[1])?;
    data.service.stats.looked_up(u64::from(expires.is_some()), 1);
    Ok(match expires {
        None => Reply::Integer(-2),
        Some(None) => Reply::Integer(-1),
        Some(Some(expires)) => Reply::count(shown(expires)),
    })
}

/// `PERSIST key`.
fn persist(data: &mut Data<'_, '_>) -> Outcome {
    let key = &data.words[1];
    let had_one = matches!(data.transaction.expires(key)?, Some(Some(_)));
    if had_one {
        data.transaction.set_expires(key, None)?;
    }
    Ok(Reply::Integer(i64::from(had_one)))
}

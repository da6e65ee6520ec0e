//! Commands on strings.

use bytes::{Bytes, BytesMut};
use engine::keyspace::{Expiry, Touch};

use super::keys::{Unit, deadline};
use super::row::{
    ALL, Command, Data, FIRST, Failure, Outcome, READS, READS_FAST, REMOVES, WRITES, WRITES_FAST,
};
use super::words::{
    double, index_range, integer, invalid_expire_time, is, sum, syntax_error, wrong_arity,
};
use crate::resp::reply::Reply;

/// The commands of this file.
pub(super) static ROWS: &[Command] = &[
    Command::data("append", 3, WRITES_FAST, FIRST, Touch::Write, append).about(
        "string",
        "2.0.0",
        "Append a value to a key",
    ),
    Command::data("decr", 2, WRITES_FAST, FIRST, Touch::Write, decr).about(
        "string",
        "1.0.0",
        "Decrement the integer value of a key by one",
    ),
    Command::data("decrby", 3, WRITES_FAST, FIRST, Touch::Write, decrby).about(
        "string",
        "1.0.0",
        "Decrement the integer value of a key by the given number",
    ),
    Command::data("get", 2, READS_FAST, FIRST, Touch::Peek, get).about(
        "string",
        "1.0.0",
        "Get the value of a key",
    ),
    Command::data("getdel", 2, REMOVES, FIRST, Touch::Write, getdel).about(
        "string",
        "6.2.0",
        "Get the value of a key and delete the key",
    ),
    Command::data("getex", -2, WRITES_FAST, FIRST, Touch::Write, getex).about(
        "string",
        "6.2.0",
        "Get the value of a key and optionally set its expiration",
    ),
    Command::data("getrange", 4, READS, FIRST, Touch::Peek, getrange).about(
        "string",
        "2.4.0",
        "Get a substring of the string stored at a key",
    ),
    Command::data("getset", 3, WRITES_FAST, FIRST, Touch::Write, getset).about(
        "string",
        "1.0.0",
        "Set the string value of a key and return its old value",
    ),
    Command::data("incr", 2, WRITES_FAST, FIRST, Touch::Write, incr).about(
        "string",
        "1.0.0",
        "Increment the integer value of a key by one",
    ),
    Command::data("incrby", 3, WRITES_FAST, FIRST, Touch::Write, incrby).about(
        "string",
        "1.0.0",
        "Increment the integer value of a key by the given amount",
    ),
    Command::data("incrbyfloat", 3, WRITES_FAST, FIRST, Touch::Write, incrbyfloat).about(
        "string",
        "2.6.0",
        "Increment the float value of a key by the given amount",
    ),
    Command::data("mget", -2, READS_FAST, ALL, Touch::Peek, mget).about(
        "string",
        "1.0.0",
        "Get the values of all the given keys",
    ),
    Command::data("mset", -3, WRITES, (1, -1, 2), Touch::Replace, mset).about(
        "string",
        "1.0.1",
        "Set multiple keys to multiple values",
    ),
    Command::data("msetnx", -3, WRITES, (1, -1, 2), Touch::Write, msetnx).about(
        "string",
        "1.0.1",
        "Set multiple keys to multiple values, only if none of the keys exist",
    ),
    Command::data("psetex", 4, WRITES, FIRST, Touch::Replace, psetex).about(
        "string",
        "2.6.0",
        "Set the value and expiration in milliseconds of a key",
    ),
    Command::data("set", -3, WRITES, FIRST, Touch::Replace, set).about(
        "string",
        "1.0.0",
        "Set the string value of a key",
    ),
    Command::data("setex", 4, WRITES, FIRST, Touch::Replace, setex).about(
        "string",
        "2.0.0",
        "Set the value and expiration of a key",
    ),
    Command::data("setnx", 3, WRITES_FAST, FIRST, Touch::Write, setnx).about(
        "string",
        "1.0.0",
        "Set the value of a key, only if the key does not exist",
    ),
    Command::data("setrange", 4, WRITES, FIRST, Touch::Write, setrange).about(
        "string",
        "2.2.0",
        "Overwrite part of a string at key starting at the specified offset",
    ),
    Command::data("strlen", 2, READS_FAST, FIRST, Touch::Look, strlen).about(
        "string",
        "2.2.0",
        "Get the length of the value stored in a key",
    ),
];

/// `GET key`.
fn get(data: &mut Data<'_, '_>) -> Outcome {
    Ok(looked_up(data)?.into())
}

/// The string of the first key, counted as a hit or a miss.
fn looked_up(data: &mut Data<'_, '_>) -> Result<Option<Bytes>, Failure> {
    let value = data.transaction.string(&data.words[1])?;
    data.service.stats.looked_up(u64::from(value.is_some()), 1);
    Ok(value)
}

/// `MGET key…`: a key of another kind counts as missing.
fn mget(data: &mut Data<'_, '_>) -> Outcome {
    let mut values = Vec::with_capacity(data.words.len() - 1);
    for key in &data.words[1..] {
        values.push(match data.transaction.string(key) {
            Err(engine::keyspace::Error::WrongKind) => None,
            value => value?,
        });
    }
    let found = values.iter().flatten().count() as u64;
    data.service.stats.looked_up(found, values.len() as u64);
    Ok(Reply::Array(values.into_iter().map(Reply::from).collect()))
}

/// `STRLEN key`.
fn strlen(data: &mut Data<'_, '_>) -> Outcome {
    let length = data.transaction.string_len(&data.words[1])?;
    data.service.stats.looked_up(u64::from(length.is_some()), 1);
    Ok(Reply::count(length.unwrap_or(0)))
}

/// `GETRANGE key start end`: both ends are included; negative ones count from the end.
fn getrange(data: &mut Data<'_, '_>) -> Outcome {
    let (start, end) = (integer(&data.words[2])?, integer(&data.words[3])?);
    let value = looked_up(data)?.unwrap_or_default();
    let before_all = |at: i64| at < 0 && at.unsigned_abs() > value.len() as u64;
    // As in Redis, an end before the first byte becomes the first byte, unless it is before the start.
    let end = if before_all(end) && !(start < 0 && start > end) { 0 } else { end };
    let range = index_range(start, end, value.len());
    Ok(Reply::Bulk(value.slice(range)))
}

/// `GETDEL key`.
fn getdel(data: &mut Data<'_, '_>) -> Outcome {
    let value = looked_up(data)?;
    if value.is_some() {
        data.transaction.delete(&data.words[1])?;
    }
    Ok(value.into())
}

/// `GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]`.
fn getex(data: &mut Data<'_, '_>) -> Outcome {
    let expires = match &data.words[2..] {
        [] => Expiry::Keep,
        [option] if is(option, "persist") => Expiry::Never,
        [option, time] => expiry_option(data, option, time)?.ok_or_else(syntax_error)?,
        _ => return Err(syntax_error().into()),
    };
    let value = looked_up(data)?;
    let key = &data.words[1];
    match expires {
        Expiry::Keep => {}
        Expiry::Never => {
            data.transaction.set_expires(key, None)?;
        }
        Expiry::At(expires) => {
            data.transaction.set_expires(key, Some(expires))?;
        }
    }
    Ok(value.into())
}

/// The expiry of an option such as `EX` with its time; `None` for another option.
fn expiry_option(
    data: &Data<'_, '_>,
    option: &[u8],
    time: &[u8],
) -> Result<Option<Expiry>, Failure> {
    const UNITS: [(&str, Unit, bool); 4] = [
        ("ex", Unit::Seconds, true),
        ("px", Unit::Milliseconds, true),
        ("exat", Unit::Seconds, false),
        ("pxat", Unit::Milliseconds, false),
    ];
    let Some((_, unit, from_now)) = UNITS.iter().find(|(name, ..)| is(option, name)) else {
        return Ok(None);
    };
    lifetime(data, time, *unit, *from_now).map(Some)
}

/// The expiry of a key written with a time to live, which must be positive.
fn lifetime(
    data: &Data<'_, '_>,
    time: &[u8],
    unit: Unit,
    from_now: bool,
) -> Result<Expiry, Failure> {
    let number = integer(time)?;
    let base = if from_now { data.transaction.now() } else { 0 };
    let expires = if number > 0 { deadline(number, unit, base) } else { None };
    let name = String::from_utf8_lossy(&data.words[0]).to_ascii_lowercase();
    let expires = expires.ok_or_else(|| invalid_expire_time(&name))?;
    Ok(Expiry::At(expires))
}

/// The options of `SET`.
struct SetOptions {
    expiry: Option<Expiry>,
    /// `NX`: only if the key is missing; `XX`: only if it exists.
    only_if_there: Option<bool>,
    /// `GET`: reply the old value.
    get: bool,
}

impl SetOptions {
    fn read(data: &Data<'_, '_>) -> Result<Self, Failure> {
        let mut options = Self { expiry: None, only_if_there: None, get: false };
        let mut words = &data.words[3..];
        while let [option, rest @ ..] = words {
            words = rest;
            if is(option, "nx") && options.only_if_there != Some(true) {
                options.only_if_there = Some(false);
            } else if is(option, "xx") && options.only_if_there != Some(false) {
                options.only_if_there = Some(true);
            } else if is(option, "get") {
                options.get = true;
            } else if options.expiry.is_none() && is(option, "keepttl") {
                options.expiry = Some(Expiry::Keep);
            } else if options.expiry.is_none()
                && let [time, rest @ ..] = rest
            {
                words = rest;
                options.expiry = Some(expiry_option(data, option, time)?.ok_or_else(syntax_error)?);
            } else {
                return Err(syntax_error().into());
            }
        }
        Ok(options)
    }
}

/// `SET key value [NX | XX] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]`.
fn set(data: &mut Data<'_, '_>) -> Outcome {
    let (key, value) = (&data.words[1], data.words[2].clone());
    if data.words.len() == 3 {
        data.transaction.put_string(key, value, Expiry::Never)?;
        return Ok(Reply::OK);
    }
    let options = SetOptions::read(data)?;
    let old = if options.get { looked_up(data)? } else { None };
    let stored = match options.only_if_there {
        None => true,
        Some(wanted) => data.transaction.kind(key)?.is_some() == wanted,
    };
    if stored {
        data.transaction.put_string(key, value, options.expiry.unwrap_or(Expiry::Never))?;
    }
    Ok(match (options.get, stored) {
        (true, _) => old.into(),
        (false, true) => Reply::OK,
        (false, false) => Reply::Null,
    })
}

/// `SETEX key seconds value`.
fn setex(data: &mut Data<'_, '_>) -> Outcome {
    set_for(data, Unit::Seconds)
}

/// `PSETEX key milliseconds value`.
fn psetex(data: &mut Data<'_, '_>) -> Outcome {
    set_for(data, Unit::Milliseconds)
}

fn set_for(data: &mut Data<'_, '_>, unit: Unit) -> Outcome {
    let expiry = lifetime(data, &data.words[2], unit, true)?;
    data.transaction.put_string(&data.words[1], data.words[3].clone(), expiry)?;
    Ok(Reply::OK)
}

/// `SETNX key value`.
fn setnx(data: &mut Data<'_, '_>) -> Outcome {
    let (key, value) = (&data.words[1], data.words[2].clone());
    let there = data.transaction.kind(key)?.is_some();
    if !there {
        data.transaction.put_string(key, value, Expiry::Never)?;
    }
    Ok(Reply::Integer(i64::from(!there)))
}

/// `GETSET key value`.
fn getset(data: &mut Data<'_, '_>) -> Outcome {
    let old = looked_up(data)?;
    data.transaction.put_string(&data.words[1], data.words[2].clone(), Expiry::Never)?;
    Ok(old.into())
}

/// `MSET key value…`: atomic.
fn mset(data: &mut Data<'_, '_>) -> Outcome {
    for (key, value) in pairs(data, "mset")? {
        data.transaction.put_string(key, value.clone(), Expiry::Never)?;
    }
    Ok(Reply::OK)
}

/// `MSETNX key value…`: atomic; sets nothing if one of the keys exists.
fn msetnx(data: &mut Data<'_, '_>) -> Outcome {
    let pairs = pairs(data, "msetnx")?;
    for (key, _) in &pairs {
        if data.transaction.kind(key)?.is_some() {
            return Ok(Reply::Integer(0));
        }
    }
    for (key, value) in pairs {
        data.transaction.put_string(key, value.clone(), Expiry::Never)?;
    }
    Ok(Reply::Integer(1))
}

fn pairs<'a>(
    data: &Data<'a, '_>,
    name: &'static str,
) -> Result<Vec<(&'a Bytes, &'a Bytes)>, Failure> {
    let (pairs, rest) = data.words[1..].as_chunks();
    if !rest.is_empty() {
        return Err(wrong_arity(name).into());
    }
    Ok(pairs.iter().map(|[key, value]| (key, value)).collect())
}

/// `INCR key`.
fn incr(data: &mut Data<'_, '_>) -> Outcome {
    add(data, 1)
}

/// `DECR key`.
fn decr(data: &mut Data<'_, '_>) -> Outcome {
    add(data, -1)
}

/// `INCRBY key number`.
fn incrby(data: &mut Data<'_, '_>) -> Outcome {
    add(data, integer(&data.words[2])?)
}

/// `DECRBY key number`.
fn decrby(data: &mut Data<'_, '_>) -> Outcome {
    let less = integer(&data.words[2])?;
    add(data, less.checked_neg().ok_or_else(|| Reply::error("decrement would overflow"))?)
}

fn add(data: &mut Data<'_, '_>, more: i64) -> Outcome {
    let key = &data.words[1];
    let old = data.transaction.string(key)?.map_or(Ok(0), |value| integer(&value))?;
    let sum = sum(old, more)?;
    data.transaction.put_string(key, sum.to_string().into(), Expiry::Keep)?;
    Ok(Reply::Integer(sum))
}

/// `INCRBYFLOAT key number`.
fn incrbyfloat(data: &mut Data<'_, '_>) -> Outcome {
    let key = &data.words[1];
    let not_a_float = || Reply::error("value is not a valid float");
    let old = match data.transaction.string(key)? {
        None => 0.0,
        Some(value) => double(&value).ok_or_else(not_a_float)?,
    };
    let sum = old + double(&data.words[2]).ok_or_else(not_a_float)?;
    if !sum.is_finite() {
        return Err(Reply::error("increment would produce NaN or Infinity").into());
    }
    // Without an exponent, as in Redis.
    let text = Bytes::from(sum.to_string());
    data.transaction.put_string(key, text.clone(), Expiry::Keep)?;
    Ok(Reply::Bulk(text))
}

/// `APPEND key value`: replies the new length.
fn append(data: &mut Data<'_, '_>) -> Outcome {
    let old = data.transaction.string(&data.words[1])?.unwrap_or_default();
    let new = [&old[..], &data.words[2]].concat();
    put_longer(data, new.into())
}

/// `SETRANGE key offset value`: replies the new length. Pads with zeros.
fn setrange(data: &mut Data<'_, '_>) -> Outcome {
    let offset = usize::try_from(integer(&data.words[2])?)
        .map_err(|_| Reply::error("offset is out of range"))?;
    let part = &data.words[3];
    let old = data.transaction.string(&data.words[1])?.unwrap_or_default();
    if part.is_empty() {
        return Ok(Reply::count(old.len() as u64));
    }
    let end = offset.saturating_add(part.len());
    check_length(data, end)?;
    let mut new = BytesMut::from(&old[..]);
    new.resize(old.len().max(end), 0);
    new[offset..end].copy_from_slice(part);
    put_longer(data, new.freeze())
}

fn put_longer(data: &mut Data<'_, '_>, value: Bytes) -> Outcome {
    check_length(data, value.len())?;
    let len = value.len() as u64;
    data.transaction.put_string(&data.words[1], value, Expiry::Keep)?;
    Ok(Reply::count(len))
}

/// Checks that a growing string stays within the longest value a client may send.
fn check_length(data: &Data<'_, '_>, len: usize) -> Result<(), Reply> {
    if len > data.service.settings.bulk_bytes_max {
        return Err(Reply::error("string exceeds maximum allowed size (proto-max-bulk-len)"));
    }
    Ok(())
}

//! Commands on hashes.

use bytes::Bytes;
use engine::keyspace::Touch;

use super::row::{Command, Data, FIRST, Failure, Outcome, READS, READS_FAST, REMOVES, WRITES_FAST};
use super::words::{integer, sum, wrong_arity};
use crate::resp::reply::Reply;

/// The commands of this file.
pub(super) static ROWS: &[Command] = &[
    Command::data("hdel", -3, REMOVES, FIRST, Touch::Write, hdel).about(
        "hash",
        "2.0.0",
        "Delete one or more hash fields",
    ),
    Command::data("hexists", 3, READS_FAST, FIRST, Touch::Read, hexists).about(
        "hash",
        "2.0.0",
        "Determine if a hash field exists",
    ),
    Command::data("hget", 3, READS_FAST, FIRST, Touch::Read, hget).about(
        "hash",
        "2.0.0",
        "Get the value of a hash field",
    ),
    Command::data("hgetall", 2, READS, FIRST, Touch::Read, hgetall).about(
        "hash",
        "2.0.0",
        "Get all the fields and values in a hash",
    ),
    Command::data("hincrby", 4, WRITES_FAST, FIRST, Touch::Write, hincrby).about(
        "hash",
        "2.0.0",
        "Increment the integer value of a hash field by the given number",
    ),
    Command::data("hkeys", 2, READS, FIRST, Touch::Read, hkeys).about(
        "hash",
        "2.0.0",
        "Get all the fields in a hash",
    ),
    Command::data("hlen", 2, READS_FAST, FIRST, Touch::Look, hlen).about(
        "hash",
        "2.0.0",
        "Get the number of fields in a hash",
    ),
    Command::data("hmget", -3, READS_FAST, FIRST, Touch::Read, hmget).about(
        "hash",
        "2.0.0",
        "Get the values of all the given hash fields",
    ),
    Command::data("hmset", -4, WRITES_FAST, FIRST, Touch::Write, hmset).about(
        "hash",
        "2.0.0",
        "Set multiple hash fields to multiple values",
    ),
    Command::data("hset", -4, WRITES_FAST, FIRST, Touch::Write, hset).about(
        "hash",
        "2.0.0",
        "Set the string value of a hash field",
    ),
    Command::data("hsetnx", 4, WRITES_FAST, FIRST, Touch::Write, hsetnx).about(
        "hash",
        "2.0.0",
        "Set the value of a hash field, only if the field does not exist",
    ),
    Command::data("hstrlen", 3, READS_FAST, FIRST, Touch::Read, hstrlen).about(
        "hash",
        "3.2.0",
        "Get the length of the value of a hash field",
    ),
    Command::data("hvals", 2, READS, FIRST, Touch::Read, hvals).about(
        "hash",
        "2.0.0",
        "Get all the values in a hash",
    ),
];

/// `HSET key field value…`: replies the number of new fields.
fn hset(data: &mut Data<'_, '_>) -> Outcome {
    Ok(Reply::count(put(data, "hset")?))
}

/// `HMSET key field value…`.
fn hmset(data: &mut Data<'_, '_>) -> Outcome {
    put(data, "hmset")?;
    Ok(Reply::OK)
}

fn put(data: &mut Data<'_, '_>, name: &'static str) -> Result<u64, Failure> {
    let (pairs, rest) = data.words[2..].as_chunks();
    if !rest.is_empty() {
        return Err(wrong_arity(name).into());
    }
    let entries: Vec<_> =
        pairs.iter().map(|[field, value]| (field.clone(), value.clone())).collect();
    Ok(data.transaction.hash_set(&data.words[1], &entries)?)
}

/// `HSETNX key field value`.
fn hsetnx(data: &mut Data<'_, '_>) -> Outcome {
    if length(data)?.is_some() {
        return Ok(Reply::Integer(0));
    }
    let entry = (data.words[2].clone(), data.words[3].clone());
    data.transaction.hash_set(&data.words[1], &[entry])?;
    Ok(Reply::Integer(1))
}

/// `HGET key field`.
fn hget(data: &mut Data<'_, '_>) -> Outcome {
    Ok(value(data)?.into())
}

/// `HEXISTS key field`.
fn hexists(data: &mut Data<'_, '_>) -> Outcome {
    Ok(Reply::Integer(i64::from(length(data)?.is_some())))
}

/// `HSTRLEN key field`.
fn hstrlen(data: &mut Data<'_, '_>) -> Outcome {
    Ok(Reply::count(length(data)?.unwrap_or(0)))
}

/// The length of the value of the first named field.
fn length(data: &mut Data<'_, '_>) -> Result<Option<u64>, Failure> {
    let length = data.transaction.hash_value_len(&data.words[1], &data.words[2])?;
    data.service.stats.looked_up(u64::from(length.is_some()), 1);
    Ok(length)
}

/// The value of the first named field.
fn value(data: &mut Data<'_, '_>) -> Result<Option<Bytes>, Failure> {
    let value = data.transaction.hash_get(&data.words[1], &data.words[2..3])?.swap_remove(0);
    data.service.stats.looked_up(u64::from(value.is_some()), 1);
    Ok(value)
}

/// `HMGET key field…`.
fn hmget(data: &mut Data<'_, '_>) -> Outcome {
    let values = data.transaction.hash_get(&data.words[1], &data.words[2..])?;
    let found = values.iter().any(Option::is_some);
    data.service.stats.looked_up(u64::from(found), 1);
    Ok(Reply::Array(values.into_iter().map(Reply::from).collect()))
}

/// `HGETALL key`.
fn hgetall(data: &mut Data<'_, '_>) -> Outcome {
    let entries = all(data)?;
    let bulk = |(field, value)| (Reply::Bulk(field), Reply::Bulk(value));
    Ok(Reply::Map(entries.into_iter().map(bulk).collect()))
}

/// `HKEYS key`.
fn hkeys(data: &mut Data<'_, '_>) -> Outcome {
    let fields = data.transaction.hash_fields(&data.words[1])?;
    data.service.stats.looked_up(u64::from(!fields.is_empty()), 1);
    Ok(Reply::Array(fields.into_iter().map(Reply::Bulk).collect()))
}

/// `HVALS key`.
fn hvals(data: &mut Data<'_, '_>) -> Outcome {
    Ok(Reply::Array(all(data)?.into_iter().map(|(_, value)| Reply::Bulk(value)).collect()))
}

fn all(data: &mut Data<'_, '_>) -> Result<Vec<(Bytes, Bytes)>, Failure> {
    let entries = data.transaction.hash_entries(&data.words[1], None, usize::MAX)?;
    data.service.stats.looked_up(u64::from(!entries.is_empty()), 1);
    Ok(entries)
}

/// `HLEN key`.
fn hlen(data: &mut Data<'_, '_>) -> Outcome {
    Ok(Reply::count(data.transaction.hash_len(&data.words[1])?))
}

/// `HDEL key field…`: replies the number of deleted fields.
fn hdel(data: &mut Data<'_, '_>) -> Outcome {
    Ok(Reply::count(data.transaction.hash_delete(&data.words[1], &data.words[2..])?))
}

/// `HINCRBY key field number`.
fn hincrby(data: &mut Data<'_, '_>) -> Outcome {
    let more = integer(&data.words[3])?;
    let old = data.transaction.hash_get(&data.words[1], &data.words[2..3])?.swap_remove(0);
    let not_an_integer = |_| Reply::error("hash value is not an integer");
    let old = old.map_or(Ok(0), |value| integer(&value)).map_err(not_an_integer)?;
    let sum = sum(old, more)?;
    let entry = (data.words[2].clone(), sum.to_string().into());
    data.transaction.hash_set(&data.words[1], &[entry])?;
    Ok(Reply::Integer(sum))
}

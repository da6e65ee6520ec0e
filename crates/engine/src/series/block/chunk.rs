//! Encoding of a source's rows.

use std::collections::HashSet;
use std::sync::Arc;

use super::numbers::{self, put_floats, put_integers, take_floats, take_integers};
use super::table::{Column, Table};
use super::{Bad, ROWS_MAX};
use crate::series::batch::{put_varint, take_varint};
use crate::series::value::{Kind, Points, Values};

const BAD_COLUMNS: Bad = Bad::Sense("columns");
const BAD_ROWS: Bad = Bad::Sense("rows");
const BAD_TEXTS: Bad = Bad::Sense("strings");

/// The rows that have a value of a column: all of them, those whose bit is set, or those listed.
const ALL: u8 = 0;
const BITS: u8 = 1;
const LIST: u8 = 2;
/// The most bytes of a list before its rows: their number, and the length of the list.
const LIST_HEAD: usize = 10;

/// Dictionaries of at least this many bytes are tried with lz4.
const LZ4_FROM: usize = 64;
/// The longest dictionary accepted when read, in bytes.
const TEXTS_MAX: usize = 64 << 20;

/// The most that a chunk takes, in bytes. Removing values never makes it larger.
pub(super) fn bytes_max(table: &Table) -> usize {
    let rows = table.times.len();
    let column = |column: &Column| {
        let count = column.values.len();
        let values = match &column.values {
            Values::Float(_) | Values::Integer(_) | Values::Unsigned(_) => {
                numbers::bytes_max(count, 64)
            }
            Values::Boolean(_) => numbers::bytes_max(count, 1),
            Values::Text(texts) => {
                let texts: usize = texts.iter().map(|text| text.len() + 3).sum();
                texts + 15 + numbers::bytes_max(count, 64)
            }
        };
        let present = rows.div_ceil(8).min(LIST_HEAD + numbers::bytes_max(count, 32));
        // Field, kind, length, and the coding of the rows.
        10 + present + values
    };
    12 + numbers::bytes_max(rows, 64) + table.columns.iter().map(column).sum::<usize>()
}

/// Appends a chunk; says whether a column lists its rows.
pub(super) fn encode(table: &Table, into: &mut Vec<u8>) -> bool {
    let rows = table.times.len();
    assert!(rows <= ROWS_MAX, "a slot is divided before it has this many rows");
    put_varint(into, rows as u64);
    let mut times = Vec::new();
    put_integers(&mut times, &table.times);
    put_varint(into, times.len() as u64);
    put_varint(into, table.columns.len() as u64);
    let mut columns = Vec::new();
    let mut has_lists = false;
    for column in &table.columns {
        let start = columns.len();
        has_lists |= put_column(&mut columns, column, rows);
        put_varint(into, u64::from(column.field));
        into.push(column.values.kind() as u8);
        put_varint(into, (columns.len() - start) as u64);
    }
    into.extend_from_slice(&times);
    into.extend_from_slice(&columns);
    has_lists
}

/// Appends a column; says whether it lists its rows.
fn put_column(into: &mut Vec<u8>, column: &Column, rows: usize) -> bool {
    let mut is_list = false;
    match &column.rows {
        None => into.push(ALL),
        Some(present) => {
            let bits = rows.div_ceil(8);
            let list = (present.len() < bits).then(|| {
                let mut list = Vec::new();
                put_integers(&mut list, &present.iter().map(|&row| row.into()).collect::<Vec<_>>());
                list
            });
            if let Some(list) = list.filter(|list| LIST_HEAD + list.len() < bits) {
                is_list = true;
                into.push(LIST);
                put_varint(into, present.len() as u64);
                put_varint(into, list.len() as u64);
                into.extend_from_slice(&list);
            } else {
                into.push(BITS);
                let mut bits = vec![0u8; bits];
                present.iter().for_each(|&row| bits[row as usize / 8] |= 1 << (row % 8));
                into.extend_from_slice(&bits);
            }
        }
    }
    match &column.values {
        Values::Float(values) => put_floats(into, values),
        Values::Integer(values) => put_integers(into, values),
        Values::Unsigned(values) => {
            put_integers(into, &values.iter().map(|&value| value as i64).collect::<Vec<_>>());
        }
        Values::Boolean(values) => {
            put_integers(into, &values.iter().map(|&value| i64::from(value)).collect::<Vec<_>>());
        }
        Values::Text(values) => put_texts(into, values),
    }
    is_list
}

/// Distinct texts, each with its length, perhaps compressed; then the index of each value's text.
fn put_texts(into: &mut Vec<u8>, values: &[Arc<str>]) {
    let mut numbers = std::collections::HashMap::new();
    let mut dictionary = Vec::new();
    let mut indexes = Vec::with_capacity(values.len());
    for value in values {
        let next = numbers.len() as i64;
        let number = *numbers.entry(&**value).or_insert_with(|| {
            put_varint(&mut dictionary, value.len() as u64);
            dictionary.extend_from_slice(value.as_bytes());
            next
        });
        indexes.push(number);
    }
    let compressed = (dictionary.len() >= LZ4_FROM)
        .then(|| lz4_flex::block::compress(&dictionary))
        .filter(|compressed| compressed.len() < dictionary.len());
    put_varint(into, numbers.len() as u64);
    put_varint(into, dictionary.len() as u64);
    let stored = compressed.as_ref().unwrap_or(&dictionary);
    // 0 if not compressed: compression never gives 0 bytes.
    put_varint(into, compressed.as_ref().map_or(0, |compressed| compressed.len() as u64));
    into.extend_from_slice(stored);
    put_integers(into, &indexes);
}

struct Parts<'a> {
    rows: usize,
    times: &'a [u8],
    columns: Vec<(u16, Kind, &'a [u8])>,
}

fn take_len(from: &mut &[u8]) -> Result<usize, Bad> {
    take_varint(from).and_then(|len| usize::try_from(len).ok()).ok_or(BAD_COLUMNS)
}

fn parts(mut chunk: &[u8]) -> Result<Parts<'_>, Bad> {
    let from = &mut chunk;
    let rows = take_len(from)?;
    if rows > ROWS_MAX {
        return Err(BAD_ROWS);
    }
    let times = take_len(from)?;
    let count = take_len(from)?;
    let mut directory = Vec::new();
    for _ in 0..count {
        let field = take_len(from)?;
        let (&kind, rest) = from.split_first().ok_or(BAD_COLUMNS)?;
        *from = rest;
        let kind = Kind::from_byte(kind).ok_or(BAD_COLUMNS)?;
        directory.push((u16::try_from(field).map_err(|_| BAD_COLUMNS)?, kind, take_len(from)?));
    }
    let (times, mut rest) = from.split_at_checked(times).ok_or(BAD_COLUMNS)?;
    let mut columns = Vec::with_capacity(directory.len());
    for (field, kind, len) in directory {
        let (column, behind) = rest.split_at_checked(len).ok_or(BAD_COLUMNS)?;
        columns.push((field, kind, column));
        rest = behind;
    }
    Ok(Parts { rows, times, columns })
}

/// The points of each of some fields; columns of other fields are not decoded.
pub(super) fn points(chunk: &[u8], fields: &[u16]) -> Result<Vec<Option<Points>>, Bad> {
    let mut parts = parts(chunk)?;
    let wanted: HashSet<u16> = fields.iter().copied().collect();
    parts.columns.retain(|(found, ..)| wanted.contains(found));
    if parts.columns.is_empty() {
        return Ok(vec![None; fields.len()]);
    }
    Ok(table(&parts)?.points(fields))
}

/// Decodes a whole chunk.
pub(super) fn decode(chunk: &[u8]) -> Result<Table, Bad> {
    table(&parts(chunk)?)
}

fn table(parts: &Parts<'_>) -> Result<Table, Bad> {
    let times = take_integers(parts.times, parts.rows)?;
    if !times.is_sorted_by(|a, b| a < b) {
        return Err(BAD_ROWS);
    }
    let columns = parts.columns.iter().map(|&(field, kind, bytes)| {
        let (rows, bytes) = take_rows(bytes, parts.rows)?;
        let count = rows.as_ref().map_or(parts.rows, Vec::len);
        Ok(Column { field, rows, values: take_values(bytes, kind, count)? })
    });
    Ok(Table { times, columns: columns.collect::<Result<_, Bad>>()? })
}

type Present = Option<Vec<u32>>;

fn take_rows(bytes: &[u8], rows: usize) -> Result<(Present, &[u8]), Bad> {
    let (&how, bytes) = bytes.split_first().ok_or(BAD_ROWS)?;
    match how {
        ALL => Ok((None, bytes)),
        BITS => {
            let (bits, bytes) = bytes.split_at_checked(rows.div_ceil(8)).ok_or(BAD_ROWS)?;
            let is_set = |&row: &u32| bits[row as usize / 8] & 1 << (row % 8) != 0;
            Ok((Some((0..rows as u32).filter(is_set).collect()), bytes))
        }
        LIST => {
            let mut rest = bytes;
            let (count, len) = (take_len(&mut rest)?, take_len(&mut rest)?);
            let (list, rest) = rest.split_at_checked(len).ok_or(BAD_ROWS)?;
            if count > rows {
                return Err(BAD_ROWS);
            }
            let list = take_integers(list, count)?.into_iter();
            let row = |row| u32::try_from(row).ok().filter(|&row| (row as usize) < rows);
            let list: Option<Vec<u32>> = list.map(row).collect();
            let list = list.filter(|list| list.is_sorted_by(|a, b| a < b)).ok_or(BAD_ROWS)?;
            Ok((Some(list), rest))
        }
        _ => Err(BAD_ROWS),
    }
}

fn take_values(bytes: &[u8], kind: Kind, count: usize) -> Result<Values, Bad> {
    Ok(match kind {
        Kind::Float => Values::Float(take_floats(bytes, count)?),
        Kind::Integer => Values::Integer(take_integers(bytes, count)?),
        Kind::Unsigned => {
            let integers = take_integers(bytes, count)?;
            Values::Unsigned(integers.into_iter().map(|value| value as u64).collect())
        }
        Kind::Boolean => {
            let integers = take_integers(bytes, count)?;
            Values::Boolean(integers.into_iter().map(|value| value != 0).collect())
        }
        Kind::Text => Values::Text(take_texts(bytes, count)?),
    })
}

fn take_texts(mut bytes: &[u8], count: usize) -> Result<Vec<Arc<str>>, Bad> {
    let from = &mut bytes;
    let (distinct, len, compressed) = (take_len(from)?, take_len(from)?, take_len(from)?);
    if len > TEXTS_MAX || distinct > count {
        return Err(BAD_TEXTS);
    }
    let stored = if compressed == 0 { len } else { compressed };
    let (stored, indexes) = from.split_at_checked(stored).ok_or(BAD_TEXTS)?;
    let unpacked;
    let mut dictionary = stored;
    if compressed > 0 {
        unpacked = lz4_flex::block::decompress(stored, len).map_err(|_| BAD_TEXTS)?;
        dictionary = &unpacked;
    }
    let mut texts: Vec<Arc<str>> = Vec::with_capacity(distinct);
    for _ in 0..distinct {
        let len = take_len(&mut dictionary)?;
        let (text, rest) = dictionary.split_at_checked(len).ok_or(BAD_TEXTS)?;
        dictionary = rest;
        texts.push(std::str::from_utf8(text).map_err(|_| BAD_TEXTS)?.into());
    }
    let indexes = take_integers(indexes, count)?.into_iter();
    let text = |index: i64| texts.get(usize::try_from(index).ok()?).cloned();
    indexes.map(|index| text(index).ok_or(BAD_TEXTS)).collect()
}

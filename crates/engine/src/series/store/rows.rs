//! Rows as they wait in buffers: shape, time, values; and how they become columns.

use super::catalogue::Shape;
use crate::series::batch::{put_varint, take_value, take_varint};
use crate::series::block::Table;
use crate::series::value::Points;

/// Appends a row.
pub(super) fn put(into: &mut Vec<u8>, shape: u32, time: i64, values: &[u8]) {
    put_varint(into, u64::from(shape));
    into.extend_from_slice(&time.to_le_bytes());
    into.extend_from_slice(values);
}

/// A row's shape and time.
pub(super) fn take_head(from: &mut &[u8]) -> Option<(u32, i64)> {
    let shape = u32::try_from(take_varint(from)?).ok()?;
    let (time, rest) = from.split_first_chunk::<8>()?;
    *from = rest;
    Some((shape, i64::from_le_bytes(*time)))
}

/// All rows as a table, as they were written.
pub(super) fn table(mut rows: &[u8], shapes: &[Shape]) -> Table {
    let mut table = Table::default();
    while let Some((shape, time)) = take_head(&mut rows) {
        table.times.push(time);
        let mut at = 0;
        for &(field, kind) in shapes[shape as usize].columns.iter() {
            let value = take_value(&mut rows, kind).expect("rows were encoded by us");
            at = table.push(at, field, value);
        }
    }
    table
}

/// Adds the points of some fields, as they were written.
pub(super) fn points(mut rows: &[u8], shapes: &[Shape], wanted: &[u16], into: &mut [Points]) {
    while let Some((shape, time)) = take_head(&mut rows) {
        for &(field, kind) in shapes[shape as usize].columns.iter() {
            let value = take_value(&mut rows, kind).expect("rows were encoded by us");
            if let Some(at) = wanted.iter().position(|&wanted| wanted == field) {
                into[at].push(time, value);
            }
        }
    }
}

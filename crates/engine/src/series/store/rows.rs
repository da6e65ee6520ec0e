//! Buffered rows: shape, time, values; and their conversion to columns.

use std::collections::HashMap;

use super::shapes::Shape;
use crate::series::Kind;
use crate::series::batch::{put_varint, take_value, take_varint};
use crate::series::block::{Builder, Table};
use crate::series::value::Points;

/// Appends a row.
pub(super) fn put(into: &mut Vec<u8>, shape: u32, time: i64, values: &[u8]) {
    put_head(into, shape, time);
    into.extend_from_slice(values);
}

fn put_head(into: &mut Vec<u8>, shape: u32, time: i64) {
    put_varint(into, u64::from(shape));
    into.extend_from_slice(&time.to_le_bytes());
}

/// Appends a row whose values, of these kinds, have another order than its shape's columns. `None` if they do not
/// decode.
pub(super) fn put_ordered(
    into: &mut Vec<u8>,
    shape: u32,
    time: i64,
    mut values: &[u8],
    kinds: impl Iterator<Item = Kind>,
    order: &[u32],
) -> Option<()> {
    let mut parts = Vec::new();
    for kind in kinds {
        let before = values;
        take_value(&mut values, kind)?;
        parts.push(&before[..before.len() - values.len()]);
    }
    put_head(into, shape, time);
    for &at in order {
        into.extend_from_slice(parts.get(at as usize)?);
    }
    Some(())
}

/// Decodes a row's shape and time.
pub(super) fn take_head(from: &mut &[u8]) -> Option<(u32, i64)> {
    let shape = u32::try_from(take_varint(from)?).ok()?;
    let (time, rest) = from.split_first_chunk::<8>()?;
    *from = rest;
    Some((shape, i64::from_le_bytes(*time)))
}

/// All rows as a table, resolved. Counts the rows of each shape.
pub(super) fn table(mut rows: &[u8], shapes: &[Shape], counts: &mut HashMap<u32, usize>) -> Table {
    let mut builder = Builder::default();
    // Rows of one shape mostly come together.
    let mut run = (0, 0);
    while let Some((shape, time)) = take_head(&mut rows) {
        if run.0 != shape {
            *counts.entry(run.0).or_default() += run.1;
            run = (shape, 0);
        }
        run.1 += 1;
        builder.row(time);
        for &(field, kind) in shapes[shape as usize].columns.iter() {
            builder.value(field, take_value(&mut rows, kind).expect("rows were encoded by us"));
        }
    }
    *counts.entry(run.0).or_default() += run.1;
    builder.resolved()
}

/// Adds the points of some fields, in the order written: `wanted` gives the index in `into` for each.
pub(super) fn points(
    mut rows: &[u8],
    shapes: &[Shape],
    wanted: &HashMap<u16, usize>,
    into: &mut [Points],
) {
    while let Some((shape, time)) = take_head(&mut rows) {
        for &(field, kind) in shapes[shape as usize].columns.iter() {
            let value = take_value(&mut rows, kind).expect("rows were encoded by us");
            if let Some(&at) = wanted.get(&field) {
                into[at].push(time, value);
            }
        }
    }
}

//! Raw points: values with the same source and time form a row.

use std::cmp::Reverse;

use engine::series::{Info, Scalar, Scan};

use super::context::Context;
use super::plan::Leaf;
use super::reading::Reading;
use super::walk::{self, Walk};
use crate::http::refusal::Refusal;
use crate::http::table::Cell;

/// Fields of a source read side by side: a piece of each is in memory.
const FIELDS_AT_ONCE: usize = 16;

/// A value with its row.
struct Piece {
    time: i64,
    source: usize,
    leaf: usize,
    value: Scalar,
}

pub(super) async fn read(
    context: &Context<'_>,
    reading: &Reading<'_>,
    series: &[Info],
) -> Result<Vec<Cell>, Refusal> {
    let (offset, limit) = reading.page();
    let descending = reading.select.descending;
    // Every row has a value of at least one series, so no series needs to return more than `most` points.
    let most = offset.saturating_add(limit);
    let scan = Scan { span: reading.span, descending, limit: most };
    let leaves = &reading.plan.leaves;
    let sources = walk::sources(series);
    let mut pieces = Vec::new();
    for (source, of) in sources.iter().enumerate() {
        let place = |info: &Info| {
            let is_it = |leaf: &Leaf| matches!(leaf, Leaf::Field(field) if **field == *info.field);
            leaves.iter().position(is_it)
        };
        let wanted = of.iter().filter_map(|&info| Some((place(info)?, info)));
        let (places, wanted): (Vec<_>, Vec<_>) = wanted.unzip();
        for (places, wanted) in places.chunks(FIELDS_AT_ONCE).zip(wanted.chunks(FIELDS_AT_ONCE)) {
            let Some(mut walk) = Walk::new(context, reading.filter, of, wanted, scan) else {
                continue;
            };
            let mut found = vec![0; wanted.len()];
            while let Some(columns) = walk.next().await? {
                for (at, points) in columns.iter().enumerate() {
                    found[at] += points.len();
                    pieces.extend(points.iter().map(|(time, value)| Piece {
                        time,
                        source,
                        leaf: places[at],
                        value: value.to_scalar(),
                    }));
                }
                context.check_values(pieces.len())?;
                tokio::task::yield_now().await;
                // That many values of one field make that many rows.
                if found.iter().any(|&found| found >= most) {
                    break;
                }
            }
        }
    }
    if descending {
        pieces.sort_by_key(|piece| (Reverse(piece.time), piece.source));
    } else {
        pieces.sort_by_key(|piece| (piece.time, piece.source));
    }
    let columns = &reading.plan.columns;
    let mut cells = Vec::new();
    let mut values = vec![None; leaves.len()];
    let rows = pieces.chunk_by(|a, b| (a.time, a.source) == (b.time, b.source));
    for row in rows.skip(offset).take(limit) {
        values.fill(None);
        for (value, leaf) in values.iter_mut().zip(leaves) {
            if let Leaf::Tag(key) = leaf {
                let tag = sources[row[0].source][0].tag(key);
                *value = (!tag.is_empty()).then(|| Scalar::Text(tag.into()));
            }
        }
        for piece in row {
            values[piece.leaf] = Some(piece.value.clone());
        }
        cells.push(Cell::Time(row[0].time));
        cells.extend(columns.iter().map(|(_, formula)| Cell::from(formula.value(&values))));
    }
    context.check_values(cells.len())?;
    Ok(cells)
}

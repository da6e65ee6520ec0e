//! Points as they are: values of one source and time in one row.

use std::cmp::Reverse;
use std::collections::HashMap;

use engine::series::{Info, Scalar, Scan};

use super::Asked;
use super::plan::Leaf;
use super::select::Reading;
use crate::http::refusal::Refusal;
use crate::http::table::Cell;

/// A value on its way into its row.
struct Piece {
    time: i64,
    source: usize,
    leaf: usize,
    value: Scalar,
}

pub(super) async fn read(
    asked: &Asked<'_>,
    reading: &Reading<'_>,
    series: &[Info],
) -> Result<Vec<Cell>, Refusal> {
    let (offset, limit) = reading.page();
    let descending = reading.select.descending;
    // A row has a value of one of the series, so none of them has to give more.
    let scan = Scan { span: reading.span, descending, limit: offset.saturating_add(limit) };
    let leaves = &reading.plan.leaves;
    let mut sources: HashMap<&[_], usize> = HashMap::new();
    let mut infos = Vec::new();
    let mut pieces = Vec::new();
    for info in series {
        let next = sources.len();
        let source = *sources.entry(&info.tags[..]).or_insert_with(|| {
            infos.push(info);
            next
        });
        let is_it = |leaf: &Leaf| matches!(leaf, Leaf::Field(field) if **field == *info.field);
        let Some(leaf) = leaves.iter().position(is_it) else { continue };
        let mut cursor = asked.store.read(info.id, scan);
        while let Some(points) = cursor.next().await? {
            pieces.extend(points.iter().map(|(time, value)| Piece {
                time,
                source,
                leaf,
                value: value.to_scalar(),
            }));
            asked.check_values(pieces.len())?;
            tokio::task::yield_now().await;
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
                let tag = infos[row[0].source].tag(key);
                *value = (!tag.is_empty()).then(|| Scalar::Text(tag.into()));
            }
        }
        for piece in row {
            values[piece.leaf] = Some(piece.value.clone());
        }
        cells.push(Cell::Time(row[0].time));
        cells.extend(columns.iter().map(|(_, formula)| Cell::from(formula.value(&values))));
    }
    asked.check_values(cells.len())?;
    Ok(cells)
}

//! How one row of an erasure-coded object is updated in place, at the least price of its volumes.
//!
//! A row is one strip of each fragment. A log holds newer values of some of its blocks, the *dirty* ones; they go in
//! place now, and with them the parity. Blocks at one offset of the strips are a *column*: its parity depends on its data
//! alone. A volume charges for operations and for bytes, so neighbouring blocks share an operation where reading and
//! writing the blocks between them again weighs less than another operation.
//!
//! ```text
//!              column   0 1 2 3 4 5 6 7
//!   data fragment 0     . D . D . . . .      D  dirty: the log has a newer value
//!                 1     . . . . . . D .
//!   parity        2     . P . P . . P .      P  to be written, since a dirty block is in the column
//!
//!   Delta    reads and writes 0: 1..4, 1: 6..7, 2: 1..7
//!   Encode   reads 0: 2..7 and 1: 1..6, writes 0: 1..4, 1: 6..7, 2: 1..7
//! ```

mod blocks;
pub mod pace;
pub mod room;
#[cfg(test)]
mod tests;

use std::ops::Range;

use self::blocks::{Blocks, Weights};
use crate::placement::Code;
use crate::price::Price;
use crate::units::KIB;

/// Bytes of a block.
pub const BLOCK: u64 = 4 * KIB;

/// A range of bytes of one fragment's strip.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Span {
    /// The index of the fragment: data first, then parity.
    pub fragment: usize,
    /// Offsets from the beginning of the strip: whole blocks.
    pub range: Range<u64>,
}

/// How the new parity is computed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum How {
    /// New parity is old parity plus the change of each dirty block. Reads the old values of dirty blocks and the old
    /// parity, which no fragment lacks.
    ///
    /// It must not be repeated after a crash among its writes: data may be new where parity is old. Then only
    /// [`Encode`](How::Encode) gives the right parity, or values that a log has.
    Delta,
    /// New parity from all data of the columns. Reads only data that is not dirty, so it can be repeated after a crash.
    Encode,
    /// As [`Encode`](How::Encode), after missing data was computed. In columns where a missing data fragment is not
    /// dirty, reads cover the old values of as many fragments as the code has of data; in others, all data that is not
    /// dirty. It must not be repeated after a crash among its writes.
    Decode,
}

/// What to read and write for one row.
///
/// Spans have the order of fragments and offsets, and those of a fragment in one list do not overlap. All reads come
/// before the first write. Blocks of a write that are not dirty are written with the content that was read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Plan {
    /// How the new parity is computed.
    pub how: How,
    /// The columns whose parity is computed: ranges of offsets in the strip, ascending. What is read gives that of missing
    /// fragments, too: if one is made again meanwhile, a repetition of the change has its bytes.
    pub columns: Vec<Range<u64>>,
    /// What must be read.
    pub reads: Vec<Span>,
    /// What must be written. Fragments that are missing are left out.
    pub writes: Vec<Span>,
}

/// What a plan costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Reads and writes, each of at most [`Price::io_max`].
    pub operations: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// The blend of both that [`plan`] minimises, in operations; operations alone if bytes do not count.
    pub weight: f64,
}

/// Fewer fragments are present than the code has of data: the object is lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{present} fragments are present, {needed} are needed")]
pub struct TooFew {
    /// Fragments that are present.
    pub present: usize,
    /// Fragments that hold the object.
    pub needed: usize,
}

/// The lightest plan for the row of `code` whose blocks `dirty` have newer values in the log.
///
/// `dirty` has pairs of a data fragment and a block of its strip, sorted, without repetition. `missing` are the
/// fragments that cannot be read or written, in any order.
///
/// For 4+2, strips of 256 KiB, gp3, and `d` dirty blocks at random of a row's 256: units of a dirty block, operations /
/// bytes. Decoding is for a row with a data fragment missing. A block alone by `Delta` costs 6.00 / 0.56.
///
/// | d | `Delta` | `Encode` | `Decode` | lightest, none missing |
/// |---|---|---|---|---|
/// | 1 | 6.00 / 0.56 | 6.00 / 0.56 | 6.49 / 0.61 | 6.00 / 0.56 |
/// | 2 | 5.37 / 0.84 | 5.51 / 0.77 | 5.71 / 0.94 | 5.37 / 0.84 |
/// | 5 | 3.78 / 1.42 | 3.88 / 1.50 | 3.74 / 1.70 | 3.78 / 1.40 |
/// | 13 | 1.83 / 1.73 | 1.50 / 2.07 | 1.38 / 2.01 | 1.67 / 1.86 |
/// | 40 | 0.52 / 1.26 | 0.36 / 1.20 | 0.31 / 1.12 | 0.36 / 1.20 |
/// | 256 | 0.05 / 0.28 | 0.02 / 0.14 | 0.02 / 0.12 | 0.02 / 0.14 |
///
/// Columns do not depend on each other, so a caller may plan parts of a row for themselves.
///
/// # Errors
/// More fragments are missing than the code has of parity.
///
/// # Panics
/// When `dirty` is not sorted, a pair occurs twice, or a number is out of the bounds of the code.
pub fn plan(
    code: Code,
    dirty: &[(usize, u32)],
    missing: &[usize],
    price: Price,
) -> Result<Plan, TooFew> {
    let row = Row::new(code, dirty, missing, price.weights())?;
    Ok(lightest(&row, row.delta().into_iter().chain(row.encodings())))
}

/// The same without [`How::Delta`]: the old values of dirty blocks are not to be trusted.
///
/// # Errors
/// More fragments are missing than the code has of parity.
///
/// # Panics
/// As [`plan`].
pub fn plan_of_new(
    code: Code,
    dirty: &[(usize, u32)],
    missing: &[usize],
    price: Price,
) -> Result<Plan, TooFew> {
    let row = Row::new(code, dirty, missing, price.weights())?;
    Ok(lightest(&row, row.encodings()))
}

/// The reads of blocks at these offsets of a file, in bytes, ascending: neighbours share a read where the bytes between them
/// weigh less than another one.
#[must_use]
pub fn reads(blocks: &[u64], price: Price) -> Vec<Range<u64>> {
    let mut spans: Vec<Range<u64>> = Vec::new();
    for &at in blocks {
        let end = at + BLOCK;
        match spans.last_mut() {
            Some(span)
                if price.weight(0, at.saturating_sub(span.end)) < price.weight(1, 0)
                    && end - span.start <= price.io_max.max(BLOCK) =>
            {
                span.end = end;
            }
            _ => spans.push(at..end),
        }
    }
    spans
}

fn lightest(row: &Row, drafts: impl IntoIterator<Item = Draft>) -> Plan {
    let lightest = drafts.into_iter().min_by_key(|draft| draft.weight(&row.weights));
    lightest.expect("a row with enough fragments can be encoded").into_plan()
}

impl Plan {
    /// What the plan costs at this price.
    #[must_use]
    pub fn cost(&self, price: Price) -> Cost {
        let mut cost = Cost { operations: 0, bytes: 0, weight: 0.0 };
        for Span { range, .. } in self.reads.iter().chain(&self.writes) {
            let bytes = range.end - range.start;
            cost.operations += (bytes / BLOCK).div_ceil(price.operation_blocks());
            cost.bytes += bytes;
        }
        cost.weight = price.weight(cost.operations, cost.bytes);
        cost
    }
}

impl Price {
    /// Blocks in the largest operation.
    fn operation_blocks(&self) -> u64 {
        (self.io_max / BLOCK).max(1)
    }

    fn weights(&self) -> Weights {
        // A row has fewer than 2^16 operations and blocks, so products with these stay below 2^64.
        const ONE: f64 = (1u64 << 40) as f64;
        let operation_blocks = self.operation_blocks().min(u64::from(u32::MAX)) as u32;
        let bytes = match self.bytes_per_operation {
            None => 0.0,
            Some(per) => (1.0 - self.operation_share.clamp(0.0, 1.0)) / per.max(1) as f64,
        };
        let operation = match self.bytes_per_operation {
            None => 1.0,
            Some(_) => self.operation_share.clamp(0.0, 1.0),
        };
        let block = bytes * BLOCK as f64;
        let scale = ONE / operation.max(block);
        // At least 1: among plans of equal weight, the one with less of what counts nothing.
        let [operation, block] = [operation, block].map(|part| ((part * scale) as u64).max(1));
        Weights { operation, block, operation_blocks }
    }
}

/// The row, as sets of blocks.
struct Row {
    code: Code,
    weights: Weights,
    is_present: Vec<bool>,
    /// Of each data fragment.
    dirty: Vec<Blocks>,
    /// With a dirty block.
    columns: Blocks,
}

/// A plan in blocks: of each fragment what is read and what is written.
struct Draft {
    how: How,
    columns: Vec<Range<u32>>,
    reads: Vec<Vec<Range<u32>>>,
    writes: Vec<Vec<Range<u32>>>,
}

impl Row {
    fn new(
        code: Code,
        dirty: &[(usize, u32)],
        missing: &[usize],
        weights: Weights,
    ) -> Result<Self, TooFew> {
        assert!(dirty.is_sorted(), "dirty blocks in their order");
        let mut is_present = vec![true; code.fragments()];
        for &fragment in missing {
            is_present[fragment] = false;
        }
        let present = is_present.iter().filter(|&&is_present| is_present).count();
        if present < code.data() {
            return Err(TooFew { present, needed: code.data() });
        }
        let mut of = vec![Blocks::NONE; code.data()];
        for &(fragment, block) in dirty {
            assert!(u64::from(block) < code.strip() / BLOCK, "block {block} of {code}");
            assert!(of[fragment].insert(block), "block {block} of {fragment} is dirty once");
        }
        let columns = of.iter().fold(Blocks::NONE, |all, &blocks| all | blocks);
        Ok(Self { code, weights, is_present, dirty: of, columns })
    }

    /// The present ones among these fragments.
    fn present(&self, fragments: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        fragments.filter(|&fragment| self.is_present[fragment])
    }

    fn data(&self) -> Range<usize> {
        0..self.code.data()
    }

    fn parity(&self) -> Range<usize> {
        self.code.data()..self.code.fragments()
    }

    /// `None` if a dirty block or old parity cannot be read.
    fn delta(&self) -> Option<Draft> {
        let is_needed =
            |fragment: usize| self.dirty.get(fragment).is_none_or(|dirty| !dirty.is_empty());
        if (0..self.code.fragments()).any(|f| !self.is_present[f] && is_needed(f)) {
            return None;
        }
        let columns = self.weights.cover(self.columns, Blocks::ALL);
        let mut spans = vec![Vec::new(); self.code.fragments()];
        for data in self.present(self.data()) {
            spans[data] = self.weights.cover(self.dirty[data], Blocks::ALL);
        }
        for parity in self.parity() {
            spans[parity].clone_from(&columns);
        }
        Some(Draft { how: How::Delta, columns, reads: spans.clone(), writes: spans })
    }

    /// Encodings of the dirty columns alone, and with the columns between them that long reads would cover.
    fn encodings(&self) -> Vec<Draft> {
        let joined = self.weights.cover(self.columns, Blocks::ALL).into_iter().collect();
        let mut aims = vec![self.columns, joined, self.columns.hull()];
        aims.dedup();
        aims.into_iter().map(|aim| self.encode(aim)).collect()
    }

    /// Reads so much that parity of the columns `aim`, which include the dirty ones, can be computed from data.
    fn encode(&self, aim: Blocks) -> Draft {
        let missing = || self.data().filter(|&data| !self.is_present[data]);
        // The columns with missing data that the log does not have.
        let lost = missing().fold(Blocks::NONE, |lost, data| lost | (aim - self.dirty[data]));
        let mut reads = vec![Vec::new(); self.code.fragments()];
        let mut is_read = vec![Blocks::NONE; self.code.fragments()];
        // Beside the present data, a parity fragment for each missing one: no more are missing than there is parity.
        let helpers = self.present(self.parity()).take(missing().count());
        let sources: Vec<usize> = self.present(self.data()).chain(helpers).collect();
        for &fragment in &sources {
            let needed = match self.dirty.get(fragment) {
                Some(&dirty) => (aim - dirty) | lost,
                None => lost,
            };
            reads[fragment] = self.weights.cover(needed, Blocks::ALL);
            is_read[fragment] = reads[fragment].iter().cloned().collect();
        }
        let encoded =
            self.data().fold(Blocks::ALL, |all, data| all & (is_read[data] | self.dirty[data]));
        let decoded = sources.iter().fold(Blocks::ALL, |all, &fragment| all & is_read[fragment]);
        let columns = self.weights.cover(self.columns, encoded | decoded);
        let mut writes = vec![Vec::new(); self.code.fragments()];
        for data in self.present(self.data()) {
            writes[data] = self.weights.cover(self.dirty[data], is_read[data]);
        }
        for parity in self.present(self.parity()) {
            writes[parity].clone_from(&columns);
        }
        let how = if lost.is_empty() { How::Encode } else { How::Decode };
        Draft { how, columns, reads, writes }
    }
}

impl Draft {
    fn weight(&self, weights: &Weights) -> u64 {
        let ranges = self.reads.iter().chain(&self.writes).flatten();
        ranges.map(|range| weights.of_range(range.end - range.start)).sum()
    }

    fn into_plan(self) -> Plan {
        let bytes =
            |range: &Range<u32>| u64::from(range.start) * BLOCK..u64::from(range.end) * BLOCK;
        let spans = |of: &[Vec<Range<u32>>]| {
            let fragments = of.iter().enumerate();
            fragments
                .flat_map(|(fragment, ranges)| {
                    ranges.iter().map(move |range| Span { fragment, range: bytes(range) })
                })
                .collect()
        };
        Plan {
            how: self.how,
            columns: self.columns.iter().map(bytes).collect(),
            reads: spans(&self.reads),
            writes: spans(&self.writes),
        }
    }
}

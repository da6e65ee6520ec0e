//! Small compactions on volumes without room for a large one.
//!
//! The merge of the first level into the next takes both levels whole. If it does not fit, a database that retries it
//! for ever makes no progress: the merge claims the tables of the next level, so they are not merged further down. So
//! these steps merge tables down a few at a time, as many as fit, until the whole merge fits.

use std::ops::Range;

/// A table of a level.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Table {
    /// Its size.
    pub bytes: u64,
    /// Its first key.
    pub first: Vec<u8>,
    /// Its last key.
    pub last: Vec<u8>,
}

/// A step: tables to be merged into a level.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Compaction {
    /// The tables, as level and index in it.
    pub tables: Vec<(usize, usize)>,
    /// The level they are merged into.
    pub into: usize,
    /// The most bytes it writes before any table is removed.
    pub bytes: u64,
}

/// The next step that fits into `room` bytes. The first of `levels` has its newest table first, and tables may overlap;
/// the others are ordered by their keys. The first level is merged into level `base`; the levels between them are
/// empty.
///
/// # Errors
/// If no step fits: the bytes of the smallest step, or `None` if there is no step at all.
pub fn next(levels: &[Vec<Table>], base: usize, room: u64) -> Result<Compaction, Option<u64>> {
    let Some((level0, bases)) = levels.first().zip(levels.get(base)) else { return Err(None) };
    let oldest = merges_of_first(level0, base, bases);
    // Any such merge may rewrite the whole next level. That is worth it only if at least half of the bytes written come
    // from the first level.
    let fitting = oldest.iter().rev().find(|merge| merge.compaction.bytes <= room);
    let worth = |merge: &&Merge| 2 * merge.new_bytes >= merge.compaction.bytes;
    if let Some(merge) = fitting.filter(worth) {
        return Ok(merge.compaction.clone());
    }
    let mut least = oldest.first().map(|merge| merge.compaction.bytes);
    for from in base..levels.len().saturating_sub(1) {
        let Some(step) = least_down(levels, from) else { continue };
        if step.bytes <= room {
            return Ok(step);
        }
        least = least.min(Some(step.bytes)).or(Some(step.bytes));
    }
    fitting.map(|merge| merge.compaction.clone()).ok_or(least)
}

/// A merge of tables of the first level.
struct Merge {
    compaction: Compaction,
    /// Its bytes from the first level.
    new_bytes: u64,
}

/// The merges of the oldest table of the first level, of the two oldest, and so on. A newer table never goes before an
/// older one, which may hold the same keys.
fn merges_of_first(level0: &[Table], base: usize, bases: &[Table]) -> Vec<Merge> {
    let mut merges = Vec::with_capacity(level0.len());
    let mut keys: Option<(&[u8], &[u8])> = None;
    let mut new_bytes = 0;
    for (oldest, table) in level0.iter().enumerate().rev() {
        new_bytes += table.bytes;
        let (first, last) = keys.unwrap_or((&table.first, &table.last));
        let (first, last) = (first.min(&table.first), last.max(&table.last));
        keys = Some((first, last));
        let below = overlapping(bases, first, last);
        let bytes = new_bytes + sum(&bases[below.clone()]);
        let tables = (oldest..level0.len()).map(|n| (0, n));
        let tables = tables.chain(below.map(|n| (base, n))).collect();
        merges.push(Merge { compaction: Compaction { tables, into: base, bytes }, new_bytes });
    }
    merges
}

/// The merge of one table of level `from` into the next that writes least.
fn least_down(levels: &[Vec<Table>], from: usize) -> Option<Compaction> {
    let below = levels.get(from + 1)?;
    let costs = levels[from].iter().enumerate().map(|(n, table)| {
        let overlap = overlapping(below, &table.first, &table.last);
        (table.bytes + sum(&below[overlap.clone()]), n, overlap)
    });
    let (bytes, n, overlap) = costs.min_by_key(|&(bytes, n, _)| (bytes, n))?;
    let tables = std::iter::once((from, n)).chain(overlap.map(|n| (from + 1, n))).collect();
    Some(Compaction { tables, into: from + 1, bytes })
}

/// The `tables`, ordered by their keys, with keys from `first` to `last`.
fn overlapping(tables: &[Table], first: &[u8], last: &[u8]) -> Range<usize> {
    let begin = tables.partition_point(|table| &table.last[..] < first);
    let end = tables.partition_point(|table| &table.first[..] <= last);
    begin..end.max(begin)
}

fn sum(tables: &[Table]) -> u64 {
    tables.iter().map(|table| table.bytes).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(bytes: u64, first: u8, last: u8) -> Table {
        Table { bytes, first: vec![first], last: vec![last] }
    }

    fn levels(level0: Vec<Table>, below: [Vec<Table>; 3]) -> Vec<Vec<Table>> {
        let mut levels = vec![level0, Vec::new()];
        levels.extend(below);
        levels
    }

    #[test]
    fn a_merge_that_fits_is_made_as_a_whole() {
        let levels = levels(
            vec![table(5, 0, 9), table(5, 0, 9)],
            [vec![table(4, 0, 4), table(4, 5, 9)], vec![], vec![]],
        );
        let step = next(&levels, 2, 18).unwrap();
        assert_eq!(step.tables, [(0, 0), (0, 1), (2, 0), (2, 1)]);
        assert_eq!((step.into, step.bytes), (2, 18));
    }

    #[test]
    fn the_oldest_go_first_with_what_they_overlap() {
        let levels = levels(
            vec![table(5, 0, 9), table(5, 0, 3)],
            [vec![table(4, 0, 4), table(4, 5, 9)], vec![], vec![]],
        );
        let step = next(&levels, 2, 17).unwrap();
        assert_eq!(step, Compaction { tables: vec![(0, 1), (2, 0)], into: 2, bytes: 9 });
    }

    #[test]
    fn an_overgrown_level_goes_down_before_it_is_rewritten_for_little() {
        let levels = levels(
            vec![table(2, 0, 9), table(2, 0, 9)],
            [
                vec![table(4, 0, 4), table(4, 5, 9)],
                vec![table(3, 0, 5), table(1, 6, 7), table(1, 8, 9)],
                vec![],
            ],
        );
        let step = next(&levels, 2, 10).unwrap();
        assert_eq!(step, Compaction { tables: vec![(2, 0), (3, 0)], into: 3, bytes: 7 });
        // Without a level below, it is rewritten even so.
        let step = next(&levels[..3], 2, 10).unwrap();
        assert_eq!(step, Compaction { tables: vec![(0, 1), (2, 0), (2, 1)], into: 2, bytes: 10 });
    }

    #[test]
    fn levels_further_down_make_way() {
        let levels = levels(
            vec![table(9, 0, 9)],
            [
                vec![table(4, 0, 9)],
                vec![table(3, 0, 4), table(3, 5, 9)],
                vec![table(9, 0, 5), table(1, 6, 9)],
            ],
        );
        let step = next(&levels, 2, 9).unwrap_err();
        assert_eq!(step, Some(10), "the table of level 2 with what it overlaps");
        let mut levels = levels;
        levels[4][0] = table(1, 0, 4);
        let step = next(&levels, 2, 9).unwrap();
        assert_eq!(step, Compaction { tables: vec![(3, 0), (4, 0)], into: 4, bytes: 4 });
    }

    #[test]
    fn without_tables_there_is_no_step() {
        assert_eq!(next(&[], 0, 100), Err(None));
        assert_eq!(next(&levels(vec![], [vec![], vec![], vec![]]), 2, 100), Err(None));
    }

    fn sorted() -> impl Strategy<Value = Vec<Table>> {
        prop::collection::btree_set(0_u8..100, 0..20).prop_map(|keys| {
            let keys: Vec<_> = keys.into_iter().collect();
            let pairs = keys.chunks_exact(2);
            pairs.map(|pair| table(u64::from(pair[0] % 7) + 1, pair[0], pair[1])).collect()
        })
    }

    fn unsorted() -> impl Strategy<Value = Vec<Table>> {
        let facts = (1_u64..9, 0_u8..100, 0_u8..100);
        let one = facts.prop_map(|(bytes, a, b)| table(bytes, a.min(b), a.max(b)));
        prop::collection::vec(one, 0..12)
    }

    proptest! {
        /// Steps end, each fits, and each takes all tables with its keys, further up or at its target.
        #[test]
        fn steps_lead_to_a_store_without_a_first_level(
            level0 in unsorted(), below in [sorted(), sorted(), sorted()], room in 0_u64..60,
        ) {
            let mut levels = levels(level0, below);
            for _ in 0..1000 {
                let step = match next(&levels, 2, room) {
                    Err(least) => {
                        prop_assert!(least.is_none_or(|least| least > room));
                        prop_assert!(least.is_some() || levels[0].is_empty());
                        return Ok(());
                    }
                    Ok(step) => step,
                };
                let from = step.tables[0].0;
                let (mut inputs, mut first, mut last) = (0, vec![u8::MAX], vec![0]);
                let mut taken = Vec::new();
                for &(level, n) in step.tables.iter().rev() {
                    let table = levels[level].remove(n);
                    if level == from {
                        inputs += 1;
                        first = first.min(table.first.clone());
                        last = last.max(table.last.clone());
                    }
                    taken.push(table);
                }
                prop_assert_eq!(sum(&taken), step.bytes);
                prop_assert!(step.bytes <= room);
                if from == 0 {
                    let oldest = levels[0].len()..levels[0].len() + inputs;
                    let of_first = step.tables.iter().filter(|(level, _)| *level == 0);
                    prop_assert!(of_first.map(|&(_, n)| n).eq(oldest));
                }
                let into = &mut levels[step.into];
                prop_assert!(overlapping(into, &first, &last).is_empty());
                let first = taken.iter().map(|table| table.first.clone()).min().unwrap();
                let last = taken.iter().map(|table| table.last.clone()).max().unwrap();
                let at = into.partition_point(|table| table.first < first);
                into.insert(at, Table { bytes: step.bytes, first, last });
            }
            prop_assert!(false, "it never ends");
        }
    }
}

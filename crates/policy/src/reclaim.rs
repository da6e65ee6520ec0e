//! Which part of a log-structured store to compact after deletes, where room is scarce.
//!
//! A delete frees nothing until a compaction meets it together with the record below. The tables say where deletes are:
//! each counts its entries and its deletes. So what is owed survives a restart, and a compaction can be limited to the
//! keys between the first and the last delete of one table. It rewrites every table with such keys; it is worth that
//! only if it frees a good part of it.

/// A compaction is worth its writes if it frees this part of them, 1/8.
const WORTH: u64 = 8;

/// A table of a family.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Table {
    /// Its level; 0 is the first, whose tables may overlap.
    pub level: usize,
    /// Its size.
    pub bytes: u64,
    /// Its records, deletes included.
    pub entries: u64,
    /// Its deletes; the delete of a range is one.
    pub deletions: u64,
    /// Its first key.
    pub first: Vec<u8>,
    /// Its last key.
    pub last: Vec<u8>,
}

/// A range that was deleted as a whole, from the first key on and before the last.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeletedRange {
    /// The first key.
    pub first: Vec<u8>,
    /// The key that it ends before; `None` for no end.
    pub end: Option<Vec<u8>>,
    /// About the bytes of tables that were in it.
    pub bytes: u64,
}

/// Keys to compact.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Compaction {
    /// The first key.
    pub first: Vec<u8>,
    /// The last key.
    pub last: Vec<u8>,
    /// About the bytes it reads and writes again.
    pub rewrites: u64,
    /// About the bytes it frees.
    pub frees: u64,
}

impl Compaction {
    /// Whether it is worth its writes. Up to `cheap` bytes are, whatever it frees: how much a deleted range held is not
    /// known after a restart.
    const fn is_worth_it(&self, cheap: u64) -> bool {
        self.frees.saturating_mul(WORTH) >= self.rewrites || self.rewrites <= cheap
    }

    /// Whether it frees more for each byte that it rewrites.
    fn is_better_than(&self, other: &Self) -> bool {
        let product = |frees: u64, rewrites: u64| u128::from(frees) * u128::from(rewrites);
        product(self.frees, other.rewrites) > product(other.frees, self.rewrites)
    }
}

impl DeletedRange {
    /// Whether it has keys from `first` to `last`.
    #[must_use]
    pub fn meets(&self, first: &[u8], last: &[u8]) -> bool {
        &self.first[..] <= last && self.end.as_deref().is_none_or(|end| first < end)
    }
}

/// The compaction that frees the most for what it rewrites, if one is worth it. `ranges` are those that are known to
/// have been deleted.
#[must_use]
pub fn choose(tables: &[Table], ranges: &[DeletedRange], cheap: u64) -> Option<Compaction> {
    let levels = Levels::new(tables);
    // Deletes in the last level wait for a reader of what they deleted: no compaction drops them.
    let drops = |table: &&Table| {
        table.deletions > 0 && (table.level == 0 || table.level < levels.sorted.len())
    };
    let compactions = tables.iter().filter(drops).map(|table| {
        let (first, last) = (&table.first[..], &table.last[..]);
        let all = levels.sum(0, first, last);
        // In the first level an older table may be below.
        let below = match table.level {
            0 => Sum { bytes: all.bytes - table.bytes, entries: all.entries - table.entries },
            level => levels.sum(level + 1, first, last),
        };
        let mean = below.bytes / below.entries.max(1);
        let known = ranges.iter().filter(|range| range.meets(first, last));
        let hidden = table.deletions.saturating_mul(mean);
        let hidden = known.fold(hidden, |sum, range| sum.saturating_add(range.bytes));
        // The deletes go, too.
        let own = u128::from(table.bytes) * u128::from(table.deletions);
        let own = own / u128::from(table.entries.max(table.deletions));
        Compaction {
            first: table.first.clone(),
            last: table.last.clone(),
            rewrites: all.bytes,
            frees: hidden.min(below.bytes).saturating_add(u64::try_from(own).unwrap_or(u64::MAX)),
        }
    });
    let worth = compactions.filter(|compaction| compaction.is_worth_it(cheap));
    worth.reduce(|best, other| if other.is_better_than(&best) { other } else { best })
}

/// Tables by level, with running sums.
struct Levels<'t> {
    /// The first level, in any order.
    first: Vec<&'t Table>,
    /// The others, whose tables do not overlap, by their keys; and the sums before each table.
    sorted: Vec<(Vec<&'t Table>, Vec<Sum>)>,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    bytes: u64,
    entries: u64,
}

impl Sum {
    const fn and(self, table: &Table) -> Self {
        Self { bytes: self.bytes + table.bytes, entries: self.entries + table.entries }
    }
}

impl<'t> Levels<'t> {
    fn new(tables: &'t [Table]) -> Self {
        let deepest = tables.iter().map(|table| table.level).max().unwrap_or(0);
        let of = |level| tables.iter().filter(move |table| table.level == level);
        let sorted = (1..=deepest).map(|level| {
            let mut tables: Vec<_> = of(level).collect();
            tables.sort_by(|a, b| a.first.cmp(&b.first));
            let mut sums = vec![Sum::default()];
            for table in &tables {
                sums.push(sums.last().copied().unwrap_or_default().and(table));
            }
            (tables, sums)
        });
        Self { first: of(0).collect(), sorted: sorted.collect() }
    }

    /// The tables with keys from `first` to `last`, in `level` and below.
    fn sum(&self, level: usize, first: &[u8], last: &[u8]) -> Sum {
        let mut sum = Sum::default();
        if level == 0 {
            let overlaps = |table: &&&Table| &table.first[..] <= last && first <= &table.last[..];
            sum = self.first.iter().filter(overlaps).fold(sum, |sum, table| sum.and(table));
        }
        for (tables, sums) in self.sorted.iter().skip(level.saturating_sub(1)) {
            let from = tables.partition_point(|table| &table.last[..] < first);
            let to = tables.partition_point(|table| &table.first[..] <= last).max(from);
            sum.bytes += sums[to].bytes - sums[from].bytes;
            sum.entries += sums[to].entries - sums[from].entries;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{KIB, MIB};

    const CHEAP: u64 = MIB;

    fn table(level: usize, keys: (u32, u32), bytes: u64, entries: u64, deletions: u64) -> Table {
        let key = |key: u32| key.to_be_bytes().to_vec();
        Table { level, bytes, entries, deletions, first: key(keys.0), last: key(keys.1) }
    }

    /// A thousand tables of 32 MiB, of 320 records each.
    fn bottom() -> Vec<Table> {
        (0..1000).map(|n| table(6, (n * 1000, n * 1000 + 999), 32 * MIB, 320, 0)).collect()
    }

    fn keys(of: &Compaction) -> (u32, u32) {
        let key = |key: &[u8]| u32::from_be_bytes(key.try_into().unwrap());
        (key(&of.first), key(&of.last))
    }

    /// Each delete on a nearly full store, and each start of one, once had the whole store rewritten.
    #[test]
    fn a_few_deletes_all_over_a_large_store_are_not_worth_its_compaction() {
        let mut tables = bottom();
        assert_eq!(choose(&tables, &[], CHEAP), None);
        tables.push(table(0, (5, 999_000), 4 * KIB, 10, 10));
        assert_eq!(choose(&tables, &[], CHEAP), None);
    }

    #[test]
    fn many_deletes_are_worth_the_compaction_of_their_keys_and_no_others() {
        let mut tables = bottom();
        // Half of the records of ten tables.
        tables.push(table(0, (20_000, 29_999), 100 * KIB, 1600, 1600));
        let chosen = choose(&tables, &[], CHEAP).expect("it is worth it");
        assert_eq!(keys(&chosen), (20_000, 29_999));
        assert_eq!(chosen.rewrites, 320 * MIB + 100 * KIB);
        assert_eq!(chosen.frees / MIB, 160);
        // They went, and so did their deletes.
        tables.pop();
        assert_eq!(choose(&tables, &[], CHEAP), None);
    }

    #[test]
    fn what_frees_the_most_for_its_writes_goes_first() {
        let mut tables = bottom();
        tables.push(table(5, (0, 9_999), 100 * KIB, 1000, 1000));
        tables.push(table(5, (50_000, 59_999), 100 * KIB, 3000, 3000));
        tables.push(table(5, (70_000, 79_999), 100 * KIB, 300, 300));
        let chosen = choose(&tables, &[], CHEAP).expect("it is worth it");
        assert_eq!(keys(&chosen), (50_000, 59_999));
    }

    #[test]
    fn a_deleted_range_frees_what_was_in_it() {
        let mut tables = bottom();
        tables.push(table(0, (0, 19_999), 4 * KIB, 2, 1));
        assert_eq!(choose(&tables, &[], CHEAP), None);
        let key = |key: u32| key.to_be_bytes().to_vec();
        let range = DeletedRange { first: key(100), end: Some(key(15_000)), bytes: 480 * MIB };
        let chosen = choose(&tables, std::slice::from_ref(&range), CHEAP).expect("it is worth it");
        assert_eq!((chosen.frees / MIB, chosen.rewrites / MIB), (480, 640));
        let elsewhere = DeletedRange { first: key(20_000), end: None, ..range };
        assert_eq!(choose(&tables, &[elsewhere], CHEAP), None);
    }

    /// After a restart it is not known how much a deleted range held.
    #[test]
    fn a_small_compaction_needs_no_estimate() {
        let range = table(0, (0, 100), KIB, 1, 1);
        let below = table(6, (0, 100), MIB / 2, 10, 0);
        assert!(choose(&[range.clone(), below.clone()], &[], CHEAP).is_some());
        assert_eq!(choose(&[range, Table { bytes: 2 * MIB, ..below }], &[], CHEAP), None);
    }

    #[test]
    fn nothing_more_is_freed_than_there_is() {
        let deletes = table(3, (0, 100), MIB, 1000, 1000);
        let below = table(4, (0, 100), 2 * MIB, 10, 0);
        let chosen = choose(&[deletes, below], &[], CHEAP).expect("it is worth it");
        assert_eq!((chosen.frees, chosen.rewrites), (3 * MIB, 3 * MIB));
    }
}

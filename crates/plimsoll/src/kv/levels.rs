//! The fill of the levels of a store's families, and their tables.

use std::sync::Arc;

use policy::room::Level0Merge;
use policy::steps::Table;
use policy::units::MIB;
use rust_rocksdb::{BoundColumnFamily, ColumnFamilyMetaDataOptions, DBCompactionStyle, properties};

use super::inner::Inner;

/// A family, as far as its compactions matter.
pub(super) struct Leveled {
    pub(super) name: String,
    /// How many levels it has.
    pub(super) levels: usize,
    /// Whether it was opened with automatic compactions.
    pub(super) automatic: bool,
}

impl Inner {
    /// The bytes that the next merges of the first level rewrite, over all families. Takes RocksDB's mutex twice for
    /// each, briefly: copies nothing of the tables.
    pub(super) fn merge(&self) -> Level0Merge {
        let families = self.leveled().into_iter();
        let merges = families
            .filter_map(|family| Some(self.merge_of(&self.rocks().cf_handle(&family.name)?)));
        merges.fold(Level0Merge::default(), Level0Merge::and)
    }

    /// The bytes that the next merge of the first level of `family` rewrites, to half a MiB in each level.
    pub(super) fn merge_of(&self, family: &Arc<BoundColumnFamily<'_>>) -> Level0Merge {
        let stats = self.rocks().property_value_cf(family, properties::LEVELSTATS);
        let stats = stats.ok().flatten().unwrap_or_default();
        let base = self.base_level(family);
        Level0Merge {
            level0: level_bytes(&stats, 0),
            base: if base == 0 { 0 } else { level_bytes(&stats, base) },
        }
    }

    /// The level that the first one is merged into.
    pub(super) fn base_level(&self, family: &Arc<BoundColumnFamily<'_>>) -> usize {
        let level = self.rocks().property_int_value_cf(family, properties::BASE_LEVEL);
        level.ok().flatten().and_then(|level| usize::try_from(level).ok()).unwrap_or(0)
    }

    /// The families that are compacted level by level. Others have rules of their own.
    pub(super) fn leveled(&self) -> Vec<Leveled> {
        self.with_families(|families| {
            let families = families.iter();
            let leveled = families.filter(|(_, options)| {
                matches!(options.get_compaction_style(), Some(DBCompactionStyle::Level))
            });
            let leveled = leveled.map(|(name, options)| Leveled {
                name: name.clone(),
                levels: usize::try_from(options.get_num_levels()).unwrap_or(0),
                automatic: !options.get_disable_auto_compactions(),
            });
            leveled.collect()
        })
    }

    /// The tables of `family` by level, and their names in the same order. Copies the keys of every table.
    pub(super) fn tables(
        &self,
        family: &Arc<BoundColumnFamily<'_>>,
        family_levels: usize,
    ) -> (Vec<Vec<Table>>, Vec<Vec<String>>) {
        let all = ColumnFamilyMetaDataOptions::new();
        let (mut tables, mut names) = (Vec::new(), Vec::new());
        for level in self.rocks().get_column_family_metadata_cf_with_options(family, &all) {
            // Levels without tables may be left out.
            let Ok(number) = usize::try_from(level.level()) else { continue };
            while tables.len() <= number {
                tables.push(Vec::new());
                names.push(Vec::new());
            }
            for file in level.sst_files() {
                let (first, last) = (file.smallest_key(), file.largest_key());
                tables[number].push(Table { bytes: file.size(), first, last });
                names[number].push(file.relative_filename());
            }
        }
        tables.resize(tables.len().max(family_levels), Vec::new());
        (tables, names)
    }
}

/// The bytes of a level in RocksDB's `levelstats`: each line has a level, its files and its MiB.
fn level_bytes(stats: &str, level: usize) -> u64 {
    let lines = stats.lines().map(|line| line.split_whitespace());
    let mut numbers = lines.map(|line| line.map(str::parse::<u64>));
    let mib = numbers.find_map(|mut line| match (line.next(), line.next(), line.next()) {
        (Some(Ok(of)), Some(Ok(_)), Some(Ok(mib))) if of == level as u64 => Some(mib),
        _ => None,
    });
    mib.unwrap_or(0).saturating_mul(MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_from_what_rocksdb_prints() {
        let stats = "Level Files Size(MB)\n--------------------\n  0       14       49\n  1        0        0\n  4       16       63\n";
        assert_eq!(level_bytes(stats, 0), 49 * MIB);
        assert_eq!(level_bytes(stats, 4), 63 * MIB);
        assert_eq!((level_bytes(stats, 6), level_bytes("", 0)), (0, 0));
    }
}

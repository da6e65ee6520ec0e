//! A column family: a key space of its own in a store, with options of its own.

use policy::room::Sizes;
use rust_rocksdb::{BlockBasedOptions, Cache, DEFAULT_COLUMN_FAMILY_NAME, Options as RocksOptions};

use super::Options;

type Change<T> = Box<dyn FnOnce(&mut T) + Send>;

/// A column family, with its deviations from the store's [`Options`].
///
/// Families share the log and the memory of their store, and batches over several are atomic. In the pool, key ranges
/// of tables compare only within a family.
pub struct Family {
    pub(super) name: String,
    tables: Vec<Change<BlockBasedOptions>>,
    rocks: Vec<Change<RocksOptions>>,
}

impl Family {
    /// The family called `name`, with the store's options.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), tables: Vec::new(), rocks: Vec::new() }
    }

    /// The default family, which calls without a family use. Options of a whole database, such as statistics or
    /// listeners, belong to it.
    #[must_use]
    pub fn main() -> Self {
        Self::new(DEFAULT_COLUMN_FAMILY_NAME)
    }

    /// Changes RocksDB's own options after the store's are set: merge operators, comparators, compaction filters,
    /// prefixes, and all others except those that the pool needs (see [`rocks::Shim::install`]). A table factory set
    /// here replaces the store's.
    #[must_use]
    pub fn rocks(mut self, change: impl FnOnce(&mut RocksOptions) + Send + 'static) -> Self {
        self.rocks.push(Box::new(change));
        self
    }

    /// Changes the options of block-based tables after the store's are set: block size, filters, indexes.
    #[must_use]
    pub fn tables(mut self, change: impl FnOnce(&mut BlockBasedOptions) + Send + 'static) -> Self {
        self.tables.push(Box::new(change));
        self
    }

    /// The family's options for RocksDB; the caller that opens the family installs the shim last.
    pub(super) fn build(
        self,
        options: &Options,
        sizes: &Sizes,
        cache: Option<&Cache>,
    ) -> RocksOptions {
        let mut tables = options.tables(cache);
        self.tables.into_iter().for_each(|change| change(&mut tables));
        let mut rocks = options.rocks(sizes);
        rocks.set_block_based_table_factory(&tables);
        self.rocks.into_iter().for_each(|change| change(&mut rocks));
        rocks
    }
}

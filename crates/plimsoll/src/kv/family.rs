//! A column family: a key space of its own in a store, with options of its own.

use policy::room::Sizes;
use rust_rocksdb::{BlockBasedOptions, Cache, DEFAULT_COLUMN_FAMILY_NAME, Options as RocksOptions};

use super::Options;

type Change<T> = Box<dyn FnOnce(&mut T) + Send>;

/// A column family, and what it wants otherwise than the store's [`Options`] say.
///
/// Families share the log and the memory of their store, and batches over several are atomic. In the
/// pool, key ranges of tables compare only inside a family.
pub struct Family {
    pub(super) name: String,
    tables: Vec<Change<BlockBasedOptions>>,
    rocks: Vec<Change<RocksOptions>>,
}

impl Family {
    /// The family called `name`, as the store's options say.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), tables: Vec::new(), rocks: Vec::new() }
    }

    /// The family every store has, which calls without a family use. Options that are about a whole
    /// database, statistics or listeners, belong to this one.
    #[must_use]
    pub fn main() -> Self {
        Self::new(DEFAULT_COLUMN_FAMILY_NAME)
    }

    /// Changes RocksDB's own options after the store's were set: merge operators, comparators,
    /// compaction filters, prefixes, anything but what the pool needs set its way (see
    /// [`rocks::Shim::install`]). A table factory set here takes the place of the store's.
    #[must_use]
    pub fn rocks(mut self, change: impl FnOnce(&mut RocksOptions) + Send + 'static) -> Self {
        self.rocks.push(Box::new(change));
        self
    }

    /// Changes the options of block-based tables after the store's were set: block size, filters,
    /// indexes.
    #[must_use]
    pub fn tables(mut self, change: impl FnOnce(&mut BlockBasedOptions) + Send + 'static) -> Self {
        self.tables.push(Box::new(change));
        self
    }

    /// What RocksDB is told; the shim comes last, by whoever opens the family.
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

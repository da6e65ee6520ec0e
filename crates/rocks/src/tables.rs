//! The components that tables of one database share: the pool, memory, and the cache.

use std::sync::Arc;

use policy::inherit::Made;
use policy::intent::{Family, Intent, Kind};
use policy::purpose::Origin;
use pool::cache::{self, Cache};
use pool::spread::Spread;
use volume::Name;
use volume::task::block_on;

use crate::Settings;
use crate::memory::{Allowance, Tails};
use crate::thread::TableFacts;

/// Compactions from levels up to this one keep hot blocks in the cache. Tables merged from deeper levels are
/// not urgent, and mostly cold.
const REWARM_LEVEL_MAX: u8 = 2;

pub(crate) struct Tables {
    pool: Spread,
    /// The database's directory.
    root: String,
    /// The largest table that is kept in memory until it is complete, in bytes.
    buffer_max: u64,
    /// The memory for tables under construction.
    memory: Arc<Allowance>,
    tails: Tails,
    cache: Option<Cache>,
}

impl Tables {
    pub(crate) fn new(pool: Spread, root: &str, settings: Settings, cache: Option<Cache>) -> Self {
        Self {
            pool,
            root: root.to_owned(),
            buffer_max: settings.table_buffer_max,
            memory: Allowance::new(settings.table_buffers),
            tails: Tails::new(settings.table_tails),
            cache,
        }
    }

    pub(crate) fn pool(&self) -> &Spread {
        &self.pool
    }

    pub(crate) fn cache(&self) -> Option<&Cache> {
        self.cache.as_ref()
    }

    pub(crate) const fn buffer_max(&self) -> u64 {
        self.buffer_max
    }

    pub(crate) fn tails(&self) -> &Tails {
        &self.tails
    }

    /// The memory for tables under construction.
    pub(crate) fn memory(&self) -> &Arc<Allowance> {
        &self.memory
    }

    /// The intent of a table, from its builder's description.
    pub(crate) fn intent(&self, facts: Option<TableFacts>) -> Intent {
        let kind = match facts {
            Some(TableFacts { family, level, range, .. }) => {
                Kind::Table { family: self.family(family), level, range }
            }
            None => {
                let family = Family(self.root.as_str().into());
                Kind::Table { family, level: None, range: None }
            }
        };
        Intent { kind, len: None, ..Intent::DATA }
    }

    /// Placement's name for the column family of this number.
    pub(crate) fn family(&self, number: u32) -> Family {
        Family(format!("{}#{number}", self.root).into())
    }

    /// Keeps the blocks of a new table that replace hot ones in the cache. For the output of deeper
    /// compactions, the cache records only the keys.
    pub(crate) fn keep_warm(&self, name: &Name, table: cache::Table, bytes: &[u8], origin: Origin) {
        let Some(cache) = &self.cache else { return };
        // If the new table is gone already, there is nothing to keep.
        let Ok(object) = block_on(self.pool.open_handle(name)) else { return };
        let cached = cache.open(&Arc::new(object));
        match origin {
            Origin::Flush => cached.rewarm(table, bytes, Made::Flushed),
            Origin::Compaction { level: 0..=REWARM_LEVEL_MAX } => {
                cached.rewarm(table, bytes, Made::Merged);
            }
            _ => cached.describe(table),
        }
    }
}

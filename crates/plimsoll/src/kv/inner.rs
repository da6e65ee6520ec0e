//! The database itself, shared by a store's handle, its cache sizer and the thread that reclaims room.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::sync::Arc;

use parking_lot::Mutex;
use policy::room::Level0Merge;
use rocks::Shim;
use rust_rocksdb::{
    BoundColumnFamily, DBWithThreadMode, MultiThreaded, Options as RocksOptions, properties,
};
use volume::Clock;

use super::room::{Room, Working};
use super::waiting::Writers;

/// RocksDB's own handle: families can be created and dropped while other threads use the database.
pub type RocksDb = DBWithThreadMode<MultiThreaded>;

/// The database itself.
pub(super) struct Inner {
    rocks: rocks::Db<MultiThreaded>,
    /// The options that families were opened with, by name.
    families: Mutex<BTreeMap<String, RocksOptions>>,
    room: Room,
    writers: Writers,
    clock: Clock,
}

impl Inner {
    pub(super) fn new(
        rocks: rocks::Db<MultiThreaded>,
        families: BTreeMap<String, RocksOptions>,
        room: Room,
        clock: Clock,
    ) -> Self {
        Self { rocks, families: Mutex::new(families), room, writers: Writers::default(), clock }
    }

    /// Bytes that RocksDB holds for open tables: indexes and filters that are in no block cache.
    pub(super) fn table_readers(&self) -> u64 {
        self.sum(properties::ESTIMATE_TABLE_READERS_MEM)
    }

    /// The database.
    pub(super) fn rocks(&self) -> &RocksDb {
        &self.rocks
    }

    /// The room on its volumes.
    pub(super) const fn room(&self) -> &Room {
        &self.room
    }

    /// The writes of the key-value interface that are under way.
    pub(super) const fn writers(&self) -> &Writers {
        &self.writers
    }

    /// The clock of its waits.
    pub(super) const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Updates the count of free room.
    pub(super) fn look_at_room(&self) {
        self.room.look(self.unflushed(), self.merge());
    }

    /// Bytes that memtables hold.
    pub(super) fn unflushed(&self) -> u64 {
        self.sum(properties::CUR_SIZE_ALL_MEM_TABLES)
    }

    /// The layer below RocksDB, through which it reaches its files.
    pub(super) fn shim(&self) -> &Shim {
        self.rocks.shim()
    }

    /// Records the options of a new family.
    pub(super) fn add_family(&self, name: String, rocks: RocksOptions) {
        self.families.lock().insert(name, rocks);
    }

    /// Calls `see` with the options that the existing families were opened with, by name.
    pub(super) fn with_families<T>(
        &self,
        see: impl FnOnce(&BTreeMap<String, RocksOptions>) -> T,
    ) -> T {
        see(&self.families.lock())
    }

    /// Tells placement the key ranges of tables that were compacted by hand.
    pub(super) fn describe_tables(&self) {
        self.rocks.describe_tables();
    }

    /// A property of RocksDB, summed over all families.
    pub(super) fn sum(&self, property: &CStr) -> u64 {
        let mut sum = 0;
        self.each_family(|family| {
            let value = self.rocks.property_int_value_cf(family, property);
            sum += value.ok().flatten().unwrap_or(0);
        });
        sum
    }

    /// Calls `visit` with each existing family.
    pub(super) fn each_family(&self, mut visit: impl FnMut(&Arc<BoundColumnFamily<'_>>)) {
        let names: Vec<_> = self.families.lock().keys().cloned().collect();
        let handles = names.iter().filter_map(|name| self.rocks.cf_handle(name));
        handles.for_each(|family| visit(&family));
    }

    /// Whether the first level is so long that a flush waits, because one more table would slow writers down.
    pub(super) fn first_level_is_full(&self) -> bool {
        let level0 = properties::num_files_at_level(0);
        let slow: Vec<_> = self.with_families(|families| {
            let families = families.iter();
            let automatic = families.filter(|(_, rocks)| !rocks.get_disable_auto_compactions());
            automatic.map(|(name, rocks)| (name.clone(), Shim::thresholds(rocks).level0)).collect()
        });
        slow.into_iter().any(|(name, slow)| {
            let Some(family) = self.rocks.cf_handle(&name) else { return false };
            let tables = self.rocks.property_int_value_cf(&family, &level0);
            // Zero: writers are never slowed down.
            slow > 0 && tables.ok().flatten().unwrap_or(0) + 1 >= slow
        })
    }
}

impl Drop for Inner {
    /// Closing RocksDB flushes writes made without the log. That flush would wait for a compaction to shorten the first
    /// level: for ever, on full volumes. With automatic compactions off it does not wait.
    fn drop(&mut self) {
        if self.first_level_is_full() {
            self.set_automatic(false);
        }
    }
}

impl Working for Inner {
    fn clock(&self) -> &Clock {
        self.clock()
    }

    fn is_working(&self) -> bool {
        self.is_working()
    }

    fn unflushed(&self) -> u64 {
        self.unflushed()
    }

    fn merge(&self) -> Level0Merge {
        self.merge()
    }
}

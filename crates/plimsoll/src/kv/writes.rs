//! Writes without options: RocksDB's own, durable as the store's options say.
//!
//! [`Db`] dereferences to RocksDB's handle, whose writes of these names ignore
//! [`Options::durability`](super::Options::durability). So each is defined here again, and a test reads RocksDB's
//! bindings to find missing ones. RocksDB documents what they do.

use engine::kv::{Durability, Error, Result};
use parking_lot::RwLockReadGuard;
use rust_rocksdb::{AsColumnFamilyRef, WriteBatch, WriteBatchWithIndex, WriteOptions};

use super::Db;
use super::error::write_error;
use super::key_value::RANGE_DELETIONS;
use super::waiting::waiting;

impl Db {
    /// Options for writes that wait for what [`Options::durability`](super::Options::durability) says.
    #[must_use]
    pub fn write_options(&self) -> WriteOptions {
        let mut options = WriteOptions::default();
        options.set_sync(self.options().durability == Durability::Always);
        options
    }

    /// Admits a write of `bytes` that adds to the store.
    pub(super) fn enter(&self, bytes: u64) -> Result<RwLockReadGuard<'_, ()>> {
        if let Some(writing) = self.room().enter_allowed(bytes) {
            return Ok(writing);
        }
        let entered = waiting(|| self.room().enter(bytes, &**self.inner()));
        entered.map_err(|refused| Error::OutOfSpace(refused.to_string()))
    }

    /// Puts a key. Durable as the store's options say.
    ///
    /// # Errors
    /// `OutOfSpace`: only the reserve for deletes and compactions is left, and nothing was done; otherwise as the kind
    /// says.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let _writing = self.enter((key.as_ref().len() + value.as_ref().len()) as u64)?;
        self.put_opt(key, value, &self.write_options()).map_err(write_error)
    }

    /// [`Db::put`] in a family.
    ///
    /// # Errors
    /// As there.
    pub fn put_cf(
        &self,
        family: &impl AsColumnFamilyRef,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let _writing = self.enter((key.as_ref().len() + value.as_ref().len()) as u64)?;
        self.put_cf_opt(family, key, value, &self.write_options()).map_err(write_error)
    }

    /// Puts a key at the timestamp `ts`, in a store whose comparator has timestamps. Durable as the
    /// store's options say.
    ///
    /// # Errors
    /// As [`Db::put`].
    pub fn put_with_ts(
        &self,
        key: impl AsRef<[u8]>,
        ts: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let _writing = self.enter((key.as_ref().len() + value.as_ref().len()) as u64)?;
        self.put_with_ts_opt(key, ts, value, &self.write_options()).map_err(write_error)
    }

    /// [`Db::put_with_ts`] in a family.
    ///
    /// # Errors
    /// As there.
    pub fn put_cf_with_ts(
        &self,
        family: &impl AsColumnFamilyRef,
        key: impl AsRef<[u8]>,
        ts: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let _writing = self.enter((key.as_ref().len() + value.as_ref().len()) as u64)?;
        self.put_cf_with_ts_opt(family, key, ts, value, &self.write_options()).map_err(write_error)
    }

    /// Merges a value into a key's, as the family's merge operator says. Durable as the store's
    /// options say.
    ///
    /// # Errors
    /// RocksDB's; one of them if no merge operator is set.
    pub fn merge(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let _writing = self.enter((key.as_ref().len() + value.as_ref().len()) as u64)?;
        self.merge_opt(key, value, &self.write_options()).map_err(write_error)
    }

    /// [`Db::merge`] in a family.
    ///
    /// # Errors
    /// As there.
    pub fn merge_cf(
        &self,
        family: &impl AsColumnFamilyRef,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let _writing = self.enter((key.as_ref().len() + value.as_ref().len()) as u64)?;
        self.merge_cf_opt(family, key, value, &self.write_options()).map_err(write_error)
    }

    /// Deletes a key. Durable as the store's options say.
    ///
    /// # Errors
    /// As [`Db::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let _writing = self.room().enter_freeing(1);
        self.delete_opt(key, &self.write_options()).map_err(write_error)
    }

    /// [`Db::delete`] in a family.
    ///
    /// # Errors
    /// As there.
    pub fn delete_cf(&self, family: &impl AsColumnFamilyRef, key: impl AsRef<[u8]>) -> Result<()> {
        let _writing = self.room().enter_freeing(1);
        self.delete_cf_opt(family, key, &self.write_options()).map_err(write_error)
    }

    /// Deletes a key as of the timestamp `ts`. Durable as the store's options say.
    ///
    /// # Errors
    /// As [`Db::put`].
    pub fn delete_with_ts(&self, key: impl AsRef<[u8]>, ts: impl AsRef<[u8]>) -> Result<()> {
        let _writing = self.room().enter_freeing(1);
        self.delete_with_ts_opt(key, ts, &self.write_options()).map_err(write_error)
    }

    /// [`Db::delete_with_ts`] in a family.
    ///
    /// # Errors
    /// As there.
    pub fn delete_cf_with_ts(
        &self,
        family: &impl AsColumnFamilyRef,
        key: impl AsRef<[u8]>,
        ts: impl AsRef<[u8]>,
    ) -> Result<()> {
        let _writing = self.room().enter_freeing(1);
        self.delete_cf_with_ts_opt(family, key, ts, &self.write_options()).map_err(write_error)
    }

    /// Deletes a key that was put only once since its last delete, and never merged: see RocksDB's page on single
    /// deletes. Durable as the store's options say.
    ///
    /// # Errors
    /// As [`Db::put`].
    pub fn single_delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let _writing = self.room().enter_freeing(1);
        self.single_delete_opt(key, &self.write_options()).map_err(write_error)
    }

    /// [`Db::single_delete`] in a family.
    ///
    /// # Errors
    /// As there.
    pub fn single_delete_cf(
        &self,
        family: &impl AsColumnFamilyRef,
        key: impl AsRef<[u8]>,
    ) -> Result<()> {
        let _writing = self.room().enter_freeing(1);
        self.single_delete_cf_opt(family, key, &self.write_options()).map_err(write_error)
    }

    /// [`Db::single_delete`] as of the timestamp `ts`.
    ///
    /// # Errors
    /// As there.
    pub fn single_delete_with_ts(&self, key: impl AsRef<[u8]>, ts: impl AsRef<[u8]>) -> Result<()> {
        let _writing = self.room().enter_freeing(1);
        self.single_delete_with_ts_opt(key, ts, &self.write_options()).map_err(write_error)
    }

    /// [`Db::single_delete_with_ts`] in a family.
    ///
    /// # Errors
    /// As there.
    pub fn single_delete_cf_with_ts(
        &self,
        family: &impl AsColumnFamilyRef,
        key: impl AsRef<[u8]>,
        ts: impl AsRef<[u8]>,
    ) -> Result<()> {
        let _writing = self.room().enter_freeing(1);
        self.single_delete_cf_with_ts_opt(family, key, ts, &self.write_options())
            .map_err(write_error)
    }

    /// Deletes the keys of a family from `from` on, before `to`. Durable as the store's options say.
    ///
    /// # Errors
    /// As [`Db::put`].
    pub fn delete_range_cf<K: AsRef<[u8]>>(
        &self,
        family: &impl AsColumnFamilyRef,
        from: K,
        to: K,
    ) -> Result<()> {
        let _writing = self.room().enter_freeing(RANGE_DELETIONS);
        self.delete_range_cf_opt(family, from, to, &self.write_options()).map_err(write_error)
    }

    /// Makes all changes of `batch`, or none. Durable as the store's options say.
    ///
    /// # Errors
    /// As [`Db::put`].
    pub fn write(&self, batch: &WriteBatch) -> Result<()> {
        let _writing = self.enter(batch.size_in_bytes() as u64)?;
        self.write_opt(batch, &self.write_options()).map_err(write_error)
    }

    /// [`Db::write`] of a batch with an index.
    ///
    /// # Errors
    /// As there.
    pub fn write_wbwi(&self, batch: &WriteBatchWithIndex) -> Result<()> {
        let _writing = self.enter(batch.size_in_bytes() as u64)?;
        self.write_wbwi_opt(batch, &self.write_options()).map_err(write_error)
    }
}

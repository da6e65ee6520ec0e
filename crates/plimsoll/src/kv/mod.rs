//! A key-value store over a pool: RocksDB, with options that fit contracted volumes.
//!
//! [`Db`] does not hide RocksDB: it dereferences to [`rust_rocksdb::DBWithThreadMode`], so snapshots, iterators, column
//! families and all other calls work. It adds:
//!
//! - [`Options`] with defaults for contracted volumes, and a [`Family`] for all other options of RocksDB;
//! - writes that wait for what [`Options::durability`] says;
//! - checkpoints and backups by name;
//! - the trait [`KeyValue`](engine::kv::KeyValue), which protocol servers use.
//!
//! [`Store`] opens volumes, pool and store in a few lines, or takes a [pool](crate::volumes::Pool) that others use too;
//! [`open`] is for callers that tend the pool themselves.

mod cache_sizer;
mod copies;
mod db;
mod error;
mod family;
mod halving;
mod inner;
mod key_value;
mod levels;
mod load;
mod options;
mod pressure_monitor;
mod reclaim;
mod room;
mod steps;
mod store;
mod waiting;
mod writes;

pub use self::copies::{destroy, restore};
pub use self::db::{Db, open, open_with};
pub use self::family::Family;
pub use self::inner::RocksDb;
pub use self::key_value::COUNT_EXACT_MAX;
pub use self::options::{CachePolicy, Compression, Options};
pub use self::store::{Builder, Store};
pub use engine::kv::Durability;
pub use pool::cache::Figures as CacheFigures;

#[cfg(test)]
mod tests;

//! The one error into which `?` converts those of all parts.

use policy::contract::spec::SpecError;

/// The result of calls.
pub type Result<T> = std::result::Result<T, Error>;

/// Why volumes, a pool or a store could not be opened or closed, or why a call on an open store failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such contract: the message lists those there are.
    #[error(transparent)]
    Contract(#[from] SpecError),
    /// A volume cannot be used: its kind says what to do.
    #[error("volume {name}: {source}")]
    Volume {
        /// The volume's name.
        name: String,
        /// Why.
        source: volume::Error,
    },
    /// No volume is available, a line for each: mount them.
    #[error("none of the volumes is here:\n  {}", .0.join("\n  "))]
    AllAway(Vec<String>),
    /// A volume is unavailable, and the store needs all of its volumes: mount it.
    #[error("{0}: the store needs all of its volumes")]
    Away(String),
    /// The pool on the volumes cannot be used: its kind says what to do.
    #[error("the pool: {0}")]
    Pool(#[source] volume::Error),
    /// The store in the pool cannot be opened.
    #[error("the store {name}: {source}")]
    Store {
        /// Its name in the pool.
        name: String,
        /// Why.
        source: rocks::Error,
    },
    /// A call on a key-value store failed: its kind says what to do.
    #[error(transparent)]
    Kv(#[from] engine::kv::Error),
    /// A call on RocksDB's own handle failed.
    #[error(transparent)]
    RocksDb(#[from] rust_rocksdb::Error),
    /// A call on a store of time series failed: its kind says what to do.
    #[error(transparent)]
    Series(#[from] engine::series::Error),
    /// A call on a store of block devices failed: its kind says what to do.
    #[error(transparent)]
    Block(#[from] engine::block::Error),
    /// Another handle of the store still exists: drop it, then close again.
    #[error("another handle still uses the store: drop it, then close again")]
    InUse,
}

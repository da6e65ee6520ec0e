//! The one error that everything here becomes with `?`.

use policy::contract::spec::SpecError;

/// What calls end with.
pub type Result<T> = std::result::Result<T, Error>;

/// Why volumes, a pool or a store could not be opened or closed, or what a call on an open store failed with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such contract: the message says what there is.
    #[error(transparent)]
    Contract(#[from] SpecError),
    /// A volume cannot be used: its kind says what to do.
    #[error("volume {name}: {source}")]
    Volume {
        /// What people call it.
        name: String,
        /// Why.
        source: volume::Error,
    },
    /// None of the volumes is there, a line for each: mount them.
    #[error("no volume is there:\n  {}", .0.join("\n  "))]
    AllAway(Vec<String>),
    /// A volume is away, and the store needs all of its volumes: mount it.
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
    /// What a call on a key-value store failed with: its kind says what to do.
    #[error(transparent)]
    Kv(#[from] engine::kv::Error),
    /// What a call on RocksDB's own handle failed with.
    #[error(transparent)]
    RocksDb(#[from] rust_rocksdb::Error),
    /// What a call on a store of time series failed with: its kind says what to do.
    #[error(transparent)]
    Series(#[from] engine::series::Error),
    /// A handle of the store is still held somewhere: drop it, then close again.
    #[error("something still uses the store")]
    InUse,
}

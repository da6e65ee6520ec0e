//! What opening and closing volumes and stores ends with.

use policy::contract::spec::SpecError;

/// What opening and closing ends with.
pub type Result<T> = std::result::Result<T, Error>;

/// Why volumes, a pool or a store could not be opened or closed.
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
    /// A handle of the store is still held somewhere: drop it, then close again.
    #[error("something still uses the store")]
    InUse,
}

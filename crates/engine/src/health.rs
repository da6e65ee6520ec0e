//! The condition of a store, as its operator should see it.

/// What a store can do at this moment, and what it needs.
///
/// Each field is about now, not about the past: a store that takes writes again clears
/// `writes_refused` by itself.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct StoreHealth {
    /// Why writes are refused, with the way out. `None` while the store takes them. Deletes do not count: a full store
    /// takes those.
    pub writes_refused: Option<String>,
    /// Why some or all reads fail, with the way out.
    pub reads_refused: Option<String>,
    /// Objects with fewer readable copies than the store is to keep.
    pub copies_short: u64,
    /// Objects, blocks or records whose bytes were found damaged and are not repaired yet.
    pub damaged: u64,
    /// The background task that stopped, and the way out. `None` while all of them run.
    pub upkeep_stopped: Option<String>,
}

impl StoreHealth {
    /// Whether reads and writes are served, no copy is missing and no damage is known.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        *self == Self::default()
    }
}

//! The condition of a store, as its operator should see it.

pub use volume::heartbeat::TaskHealth;

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
    /// The background tasks of the store, and of the pool it is on.
    pub tasks: Vec<TaskHealth>,
}

impl StoreHealth {
    /// Whether reads and writes are served, no copy is missing, no damage is known, and all background tasks work.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        let Self { writes_refused, reads_refused, copies_short, damaged, tasks: _ } = self;
        let serves = writes_refused.is_none() && reads_refused.is_none();
        serves && *copies_short == 0 && *damaged == 0 && self.upkeep_works()
    }

    /// Whether no background task has a problem.
    #[must_use]
    pub fn upkeep_works(&self) -> bool {
        self.tasks.iter().all(|task| task.problem.is_none())
    }
}

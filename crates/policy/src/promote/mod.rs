//! Which units of a slow pool a cache tier copies to its fast pool: those accessed several times within a window.
//!
//! Demand caching copies a whole unit of 1 MiB for a single miss of 4 KiB. *Lazy promotion* serves a miss from the slow
//! pool and only counts it (HOSD's filter; its *reuse distance* is our window). The pieces:
//!
//! ```text
//! request ──▶ Runs: does it continue a sequential run?
//!                │
//!       cached? ─┼─ yes ─▶ Filter::hit
//!                └─ no ──▶ Filter::note ─▶ Bypass
//!                                      └─▶ Promote ─▶ Budget::admit ─▶ copy ─▶ Filter::promoted, Budget::finish
//! every 10 s or more: Filter::adjust
//! ```
//!
//! The user's request never waits for a promotion. A verdict is given again with each further access, so a caller may
//! drop a promotion that the budget refuses, and drops one that waited for more than [`Filter::window`] accesses.

mod budget;
mod counts;
mod filter;
mod runs;

pub use budget::{Admission, Budget};
pub use filter::{Adjustment, Filter, Options, Period};
pub use runs::Runs;

/// Whether an access reads or writes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum AccessKind {
    /// A read.
    Read,
    /// A write.
    Write,
}

/// An access to a unit that is not cached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Access {
    /// A stable hash of the unit's name.
    pub unit: u64,
    /// Whether it reads or writes.
    pub kind: AccessKind,
    /// Whether it continues a run: see [`Runs::note`].
    pub sequential: bool,
    /// Whether the unit was evicted lately: see [`Eviction::remembers`](crate::cache::Eviction::remembers).
    pub ghost: bool,
}

/// Whether to copy a unit to the fast pool.
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// No: the slow pool serves the unit.
    Bypass,
    /// Yes, unless a copy is on its way.
    Promote,
}

#[cfg(test)]
mod tests;

//! `bench background`: what users feel of a pool's own work.
//!
//! ```text
//! users ── extents of a device ──┬─ Logged ── Spread ── 7 × (Gate ── Simulate ── Fault ── Mem)
//! puts  ── log store ────────────┘               │
//!                              Mover: rebuild ───┤
//!                           Scrubber: scrub   ───┘
//! ```
//! Everything is the real one, in virtual time. Each arm opens a pool of its own, with the same data and the same requests.

mod arms;
mod case;
mod figures;
mod rows;
mod scale;
mod stand;

pub use case::{Bencher, Case};
pub use rows::{SMOKE, all};
pub use scale::Scale;

/// A row of this bench.
pub type Row = crate::compare::Row<Case>;

/// A case, measured with each kind of work.
type Cell = crate::compare::Cell<figures::Run>;

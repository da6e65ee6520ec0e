//! Loads and outcomes of `bench spread`: placements side by side on pools of equal volumes.
//!
//! ```text
//! Settings: mix, keys ── Bench ── KeyValue     operations, latencies, counters of every volume by the second
//! Cell: a case ── Side: one scheme ── Run ── balance: spread, deviation, gap to the line
//! ```
//!
//! The rows are B17 to B24 of docs/guide/bench.md, with TANGO's set-up. Each volume is throttled on its own, so the
//! busiest volume limits a pool: the question is how evenly a scheme loads volumes, and how near to their paid rate.
//! The program opens stores and has the rows; this module defines the loads, what is measured of a run, and its plots.

pub mod balance;

mod figures;
mod hot;
mod load;
mod plots;
mod run;

pub use figures::gaps_closed;
pub use hot::HotRange;
pub use load::{Bench, Keys, Settings, read_share};
pub use plots::copy_times;
pub use run::{Copies, Counted, Paid, Run};

/// A case, measured under every scheme.
pub type Cell = crate::compare::Cell<Run>;

//! Measurements and reports of `bench spread`: placements side by side on pools of equal volumes.
//!
//! ```text
//! Settings: mix, keys ── Bench ── KeyValue     operations, latencies, counters of every volume by the second
//! Cell: a case ── Side: one scheme ── Measured: one run ── balance: spread, deviation, gap to the line
//! ```
//!
//! The rows are B17 to B24 of docs/guide/bench.md, with TANGO's set-up. Each volume is throttled on its own, so the
//! busiest volume limits a pool: the question is how evenly a scheme loads volumes, and how near to their paid rate.
//! The program opens stores; this module defines the loads and reports the figures. A figure of a cell is the median of
//! its runs; a ratio of two schemes is the median of the ratios of runs with the same seed, which ran at the same time.

pub mod balance;

mod hot;
mod measured;
mod plots;
mod run;
mod sheet;

pub use hot::HotRange;
pub use measured::{Copies, Counted, Measured, Paid};
pub use run::{Bench, Keys, Settings, read_share};
pub use sheet::Sheet;

pub use crate::compare::Late;
pub use crate::mixgraph::Outcome;
pub use crate::stats::median;

/// A case, measured under every scheme.
pub type Cell = crate::compare::Cell<Measured>;
/// One scheme in it.
pub type Side = crate::compare::Side<Measured>;

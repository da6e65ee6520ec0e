//! Measurements and reports of `bench contract`: schemes side by side on equal volumes.
//!
//! ```text
//! Cell: a case (load, volume, cache) ─┬─ Side: one scheme ─┬─ Measured: one run, closed loop
//!                                     │                    ├─ … one for each seed
//!                                     │                    └─ Measured: open loop
//!                                     └─ how late a bare sleep was meanwhile
//! ```
//!
//! The rows are B03 to B16 of docs/guide/bench.md. The program opens stores and runs loads; this module turns the
//! figures into reports. A figure of a cell is the median of its runs; a ratio of two schemes is the median of the
//! ratios of runs with the same seed, which ran at the same time or in turn.

mod measured;
mod plots;
mod sheet;

pub use measured::{Counted, Measured, wait_quantile};
pub use sheet::{Better, Sheet};

pub use crate::compare::Late;
pub use crate::stats::median;

/// A case, measured under every scheme.
pub type Cell = crate::compare::Cell<Measured>;
/// One scheme in it.
pub type Side = crate::compare::Side<Measured>;

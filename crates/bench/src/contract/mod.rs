//! The outcomes of `bench contract`: schemes side by side on equal volumes.
//!
//! The rows are B03 to B16 of docs/guide/bench.md. The program opens stores and has the rows; this module has what is
//! measured of a run, and its plots.

mod figures;
mod plots;
mod run;

pub use run::{Counted, Run};

/// A case, measured under every scheme.
pub type Cell = crate::compare::Cell<Run>;

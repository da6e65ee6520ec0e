//! The harness of benches that compare schemes: rows, their cases, the loop that measures them, and the report.
//!
//! ```text
//! Plan: rows ── Row: id, question, claims ── Case ── Cell ─┬─ Side: one scheme ─┬─ an outcome in the closed loop
//!                                                          │                    ├─ … one for each seed
//!                                                          │                    └─ perhaps one in the open loop
//!                                                          └─ Late: the machine's part, for each group of runs
//! ```
//! A bench brings its cases, an [`Outcome`] with its figures, a function that measures a case, and its rows. A cell that
//! several rows need is measured once. A figure of a cell is the median of its runs; a ratio of two schemes is the
//! median of the ratios of runs with the same seed.

mod cell;
mod figure;
mod group;
mod late;
mod outcome;
mod plan;
mod row;
mod writer;

pub use cell::{Cell, Side};
pub use figure::{Figure, Values};
pub use group::{at_once, each_once, groups, together};
pub use late::Late;
pub use outcome::{Case, CountedBy, Outcome, StoreOutcome, sound};
pub use plan::Plan;
pub use row::Row;
pub use writer::ReportWriter;

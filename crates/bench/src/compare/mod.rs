//! Schemes side by side: what every comparing bench shares of cells, groups of runs, and their reports.
//!
//! ```text
//! Row ── Case ── Cell ─┬─ Side: one scheme ─┬─ a run in the closed loop
//!                      │                    ├─ … one for each seed
//!                      │                    └─ perhaps one in the open loop
//!                      └─ Late: the machine's part, for each group of runs
//! ```
//! Each bench defines its runs (`M`) and its cases. A cell that several rows need is measured once. A figure of a cell
//! is the median of its runs; a ratio of two schemes is the median of the ratios of runs with the same seed.

mod cell;
mod cells;
mod late;

pub use cell::{Cell, Figure, Side};
pub use cells::{Case, Cells, at_once, each_once, groups, wanted};
pub use late::Late;

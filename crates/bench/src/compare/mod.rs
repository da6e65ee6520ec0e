//! Schemes side by side: what every bench that compares some has of cells, of groups of runs, and of the
//! way they are told.
//!
//! ```text
//! Row ── Case ── Cell ─┬─ Side: one scheme ─┬─ a run in the closed loop
//!                      │                    ├─ … one for each seed
//!                      │                    └─ perhaps one in the open loop
//!                      └─ Late: the machine's part, for each group of runs
//! ```
//! What a run is (`M`) and what a case says is the bench's. Cells that several rows are about are measured
//! once. A figure of a cell is the median of its runs; a ratio of two schemes is the median of the ratios of
//! runs with the same seed.

mod cell;
mod cells;
mod late;

pub use cell::{Cell, Figure, Side};
pub use cells::{Case, Cells, at_once, each_once, groups, wanted};
pub use late::Late;

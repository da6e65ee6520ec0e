//! The measurements of `bench series`: the log store on disks, under every merge rule.
//!
//! ```text
//! Case: a Shape (disks, files, load) ── Scheme: a rule ── run: clients put, disks are tended ── Run
//!                                                         virtual time on simulated disks, or a directory
//! ```
//! The rows are B37 to B42 of docs/guide/bench.md and several more; the set-up is the paper's (PSTA 8(3), 2017), scaled
//! down. Such a store must write at the bandwidth of its disks while they are nearly full: the rows measure the copies
//! of merges, and the remaining bandwidth. A figure is the median of the runs of a case; a ratio of two rules is the
//! median of the ratios of runs with the same seed.

mod case;
mod cell;
mod check;
mod fixture;
mod load;
mod outcome;
mod plots;
mod rows;
mod run;
mod scale;

pub use case::{Scheme, Shape};
pub use cell::{Bencher, Case, takes};
pub use fixture::Home;
pub use load::{Load, Next, Writes};
pub use outcome::{Run, Sample};
pub use rows::{Row, SMOKE, all};
pub use scale::Scale;

/// A case, measured under every rule.
pub type Cell = crate::compare::Cell<Run>;

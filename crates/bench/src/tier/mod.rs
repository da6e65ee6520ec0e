//! `bench tier`: what policies of a cache tier would do with the requests of a trace, computed by replay.
//!
//! ```text
//! Source: a trace, or a stand-in for one ── replay ── Replayed ─┬─ Facts: requests, writes, footprint
//!                                                               └─ Cell: a unit, a size ── Counts of each Scheme
//! ```
//!
//! A replay does no I/O besides reading the trace: it asks the policies of [`policy::cache`] which unit a cache of a
//! given size would hold, and [`policy::promote`] which misses install theirs, and counts hits and installed bytes. It
//! says nothing about time.

mod cache;
mod figures;
mod replay;
mod scheme;
mod size;
mod source;
mod units;
pub mod volumes;

pub use cache::Counts;
pub use figures::describe;
pub use replay::{Cell, Facts, Replayed, UNIT_BYTES, replay};
pub use scheme::{Promotion, Scheme};
pub use size::Size;
pub use source::Source;

#[cfg(test)]
mod tests;

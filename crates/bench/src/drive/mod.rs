//! The common part of key-value benches: threads do operations, paced if a pace is set, and verify every answer; a
//! meter samples them.
//!
//! ```text
//! Choose (which record) ──┐
//! Records (keys, values) ─┤
//! mix (what, how often) ──┼─ Worker × threads ── KeyValue      Latencies, Dots; answers verified
//! Pace (when) ────────────┘       │
//!                           Meter, every so often: operations, counters of the layers below
//! ```
//!
//! A workload ([`ycsb`](crate::ycsb), [`mixgraph`](crate::mixgraph)) brings the left side.

mod counter;
mod driven;
mod latency;
mod meter;
mod operation;
mod pace;
mod pareto;
mod plan;
mod rate;
mod record;
mod run;
mod worker;

pub use driven::Driven;
pub use latency::{Dot, Latencies, Second, by_second};
pub use meter::{Sample, Tally};
pub use operation::{Mix, Operation};
pub use pareto::{Lengths, Pareto};
pub use rate::{Rate, Wave};
pub use record::VALUE_BYTES_MIN;

pub(crate) use counter::Counter;
pub(crate) use meter::Meter;
pub(crate) use pace::{AtOnce, Even, Pace, Schedule, Shared, SharedPace};
pub(crate) use plan::Drive;
pub(crate) use record::{Records, belongs, scramble, value};
pub(crate) use run::{bar, millis};
pub(crate) use worker::Choose;

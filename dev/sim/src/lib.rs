//! Virtual-time search: a whole stack runs on one thread, and a seed makes every random decision: the
//! next ready task, the latency of a device, the requests of a user, the moment of a power failure. It
//! tries thousands of orders in seconds, and can replay each of them.
//!
//! A [`Program`] builds a stack, spawns tasks on it and asserts its invariants. [`search`] tries it with
//! one seed after the other, and reports a failing seed with the command that replays it with a log of
//! every event.

pub mod block;
mod device;
mod exec;
pub mod gate;
pub mod interleave;
mod log;
pub mod merge;
pub mod outages;
pub mod pooled;
mod rows;
pub mod sched;
mod search;
pub mod spread;
pub mod store;

pub use exec::Sim;
pub use log::Log;
pub use search::{Failure, Report, replay, search};

/// A stack with tasks and invariants, to try with many seeds.
pub struct Program {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it tests, in a sentence.
    pub about: &'static str,
    /// Builds, runs and checks; panics if an invariant is violated. Returns a line about the run; the
    /// search counts different lines.
    pub run: fn(&Sim) -> String,
}

/// Every program.
pub const PROGRAMS: [&Program; 9] = [
    &block::PROGRAM,
    &gate::PROGRAM,
    &interleave::PROGRAM,
    &merge::PROGRAM,
    &outages::PROGRAM,
    &pooled::PROGRAM,
    &sched::PROGRAM,
    &spread::PROGRAM,
    &store::PROGRAM,
];

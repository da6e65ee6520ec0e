//! Virtual-time search: a whole stack runs on one thread, and a seed decides everything that could go
//! either way. Which ready task goes next, how long a device takes, what a user asks for, when the
//! power fails: thousands of orders in seconds, and each of them again at will.
//!
//! A [`Program`] builds a stack, sets tasks on it and asserts what must hold. [`search`] tries it
//! with one seed after the other; a seed that fails is reported with the command that replays it
//! with a log of every event.

mod device;
mod exec;
pub mod gate;
pub mod interleave;
mod log;
pub mod merge;
pub mod outages;
pub mod sched;
mod search;
pub mod spread;
pub mod store;

pub use exec::Sim;
pub use log::Log;
pub use search::{Failure, Report, replay, search};

/// Something to try with many seeds.
pub struct Program {
    /// What the command line calls it.
    pub name: &'static str,
    /// What it looks for, in a sentence.
    pub about: &'static str,
    /// Builds, runs and checks; panics if something that must hold does not. The line it returns
    /// tells how it went; the search counts different ones.
    pub run: fn(&Sim) -> String,
}

/// Every program.
pub const PROGRAMS: [&Program; 7] = [
    &gate::PROGRAM,
    &interleave::PROGRAM,
    &merge::PROGRAM,
    &outages::PROGRAM,
    &sched::PROGRAM,
    &spread::PROGRAM,
    &store::PROGRAM,
];

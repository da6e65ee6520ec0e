//! The program end to end, over loopback.

mod bench;
mod kill;
mod log;
mod place;
mod pools;
mod probe;
mod serve;
mod throttled;
mod top;

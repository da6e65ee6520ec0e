//! The program end to end, over loopback.

mod bench;
mod kill;
mod log;
mod place;
mod points;
mod pools;
mod probe;
mod serve;
mod strangers;
mod throttled;
mod top;

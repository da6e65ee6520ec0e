//! The program end to end, over loopback.

mod bench;
mod kill;
mod place;
mod pools;
mod probe;
mod serve;
mod throttled;
mod top;

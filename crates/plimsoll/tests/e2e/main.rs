//! The program end to end, over loopback.

mod bench;
mod kill;
mod place;
mod serve;

//! The program end to end, over loopback.

mod kill;
mod place;
mod serve;

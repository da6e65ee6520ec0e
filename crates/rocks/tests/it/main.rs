//! RocksDB over pools of volumes in memory: what a database may rely on, and what its I/O looks like.
//!
//! One program, because RocksDB is large and would be linked into each.

mod support;

mod audit;
mod backup;
mod basics;
mod crash;
mod families;
mod faults;
mod files;
mod model;
mod origins;
mod overlap;
mod placement;

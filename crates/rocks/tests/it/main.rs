//! RocksDB over pools of volumes in memory: the guarantees of a database, and the shape of its I/O.
//!
//! One program, because each would link the large RocksDB again.

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

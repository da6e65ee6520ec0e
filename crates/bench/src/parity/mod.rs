//! `bench parity`: what small writes to erasure-coded groups on disks cost, by how parity follows.
//!
//! ```text
//!   clients ── depth writes at once ── six servers ── a disk each: strips of groups of 4 + 2, or copies
//!                                               └──── a journal each: on flash, on a disk of its own, on the same disk
//! ```
//!
//! PARIX's rows are made by the state machines of [`policy::parity_log`], whose effects are carried out on simulated disks in
//! virtual time. Disks have the mechanics of [`policy::disk`]. A volume of the layer `simulate` would do, but it places objects
//! side by side from the disk's first byte on, and so has no long seeks; this bench spreads groups over the whole disk, and keeps
//! the bytes of written strips itself. At the end of each run parity has to fit data, and data have to be what was written last.

mod cluster;
mod device;
mod epochs;
mod in_place;
mod layout;
mod load;
mod logged;
mod logs;
mod machines;
mod rebuild;
mod rows;
mod run;
mod scheme;
mod speculative;
mod timeline;

pub use rows::measure;

//! RocksDB over a pool of volumes, and nothing else.
//!
//! RocksDB is unmodified. Its file system is a small C++ shim that forwards every call, with the reason
//! for it, to Rust:
//!
//! ```text
//!   rust-rocksdb ── RocksDB ── shim/*.cc ── ffi ── file_system ─┬─ table       built whole, then placed
//!                                                               ├─ readable    pages for users, windows
//!                                                               │              for compactions
//!                                                               ├─ logs        appended at once, synced
//!                                                               └─ sequential  when asked or by a timer
//!                                                        origin ── the origin of every I/O
//! ```
//!
//! Every name RocksDB uses is a name of the pool; no local file is touched. Every I/O passes the gate
//! of its volume with its [`Origin`](policy::purpose::Origin).

mod db;
mod error;
mod extent;
mod ffi;
mod file_system;
mod form;
mod info_log;
mod logs;
mod memory;
mod notify;
mod origin;
mod path;
mod readable;
mod sequential;
mod settings;
mod shim;
mod table;
mod tables;
mod thread;
mod writable;

pub use db::{Db, Families, FamilyFacts, open};
pub use error::{Error, Result, pool_error};
pub use notify::Notify;
pub use settings::Settings;
pub use shim::Shim;
pub use thread::table_reads;

//! Stores on volumes that are sold by the operation, loaded exactly to what was paid for.
//!
//! A volume is a directory on a mounted device, with the [contract](policy::contract) it was bought with. A gate in front
//! of it spends what the contract allows, a key of a user before a compaction, and never more. Stores are put together
//! from volumes in a few lines; the program `plimsoll` does the same from a settings file, and serves them.
//!
//! # A key-value store
//!
//! [`kv::Store`] is RocksDB over a [pool](pool::spread::Spread) of volumes: tables are placed whole, those that are
//! read together apart, and those that are read a lot twice.
//!
//! ```no_run
#![doc = include_str!("../examples/embed.rs")]
//! ```
//!
//! It dereferences to RocksDB's own handle, so families, iterators, snapshots and merge operators are where
//! users of RocksDB look for them. Every write waits for what [`kv::Options::durability`] says. With
//! [`copies(2)`](kv::Builder::copies) a volume may be lost at any moment; [`placement`](kv::Builder::placement) says
//! where new tables go. The guide is `docs/guide/kv.md`.
//!
//! # Time series
//!
//! [`series::Store`] keeps points of sensors in a log-structured store that takes millions of sources and frees its room
//! by itself.
//!
//! ```no_run
#![doc = include_str!("../examples/sensors.rs")]
//! ```
//!
//! # Volumes and contracts
//!
//! [`volumes::contract`] finds what providers sell by its name, `gp3` say; [`policy::contract::spec`] has what it does not
//! know. [`volumes::Volume::simulated`] answers as the provider would, so everything runs without a cloud.
//! [`volumes::Devices`] are open volumes, for those who put a pool together themselves.
//!
//! # Errors
//!
//! What calls on a store return becomes [`Error`] with `?`. Its kinds, and those of [`engine::kv::Error`] and
//! [`engine::series::Error`] in it, are made by what the caller should do: try again, make room, mend the call.
//!
//! # What is durable
//!
//! Each call says so. A store that is closed, or dropped, has everything on its volumes; what a crash of the machine may
//! take is what the store's durability allows, and a crash of the process takes nothing.

/// The program in the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

mod error;
pub mod kv;
pub mod series;
pub mod volumes;

pub use self::error::{Error, Result};
pub use {engine, policy, pool, rocks, rust_rocksdb, volume};

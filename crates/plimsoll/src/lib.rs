//! Stores on volumes that are sold by the operation, which use exactly what was paid for.
//!
//! A volume is a directory on a mounted device, with the [contract](policy::contract) it was bought with. A gate in
//! front of it spends what the contract allows, and never more; users' reads and writes go before compactions. A few
//! lines build a store from volumes; the program `plimsoll` does the same from a settings file, and serves stores.
//!
//! # A key-value store
//!
//! [`kv::Store`] is RocksDB over a [pool](pool::spread::Spread) of volumes. Tables are placed whole; tables that are
//! read together go to different volumes, and those that are read often to two.
//!
//! ```no_run
#![doc = include_str!("../examples/embed.rs")]
//! ```
//!
//! It dereferences to RocksDB's own handle, so families, iterators, snapshots and merge operators are where users of
//! RocksDB look for them. Every write waits for what [`kv::Options::durability`] says. With
//! [`copies(2)`](kv::Builder::copies) the store survives the loss of a volume; [`placement`](kv::Builder::placement)
//! sets where new tables go. The guide is `docs/guide/kv.md`.
//!
//! # Time series
//!
//! [`series::Store`] keeps points of sensors in a log-structured store that takes millions of sources and reclaims room
//! by itself.
//!
//! ```no_run
#![doc = include_str!("../examples/sensors.rs")]
//! ```
//!
//! # Volumes and contracts
//!
//! [`volumes::contract`] finds the offer of a provider by name, such as `gp3`; [`policy::contract::spec`] describes
//! others. [`volumes::Volume::simulated`] throttles as the provider would, so everything runs without a cloud.
//! [`volumes::Devices`] are open volumes, for callers that open a pool themselves.
//!
//! # Errors
//!
//! `?` converts the errors of all calls on a store to [`Error`]. Its kinds, and those of [`engine::kv::Error`] and
//! [`engine::series::Error`] in it, say what the caller should do: try again, make room, change the call.
//!
//! # What is durable
//!
//! Each call documents it. Closing or dropping a store makes everything durable. The loss of the machine may take what
//! the store's durability allows; the end of the process takes nothing.

/// The program in the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

pub mod block;
mod error;
mod every_second;
pub mod kv;
pub mod series;
mod stop;
pub mod volumes;

pub use self::error::{Error, Result};
pub use {engine, policy, pool, rocks, rust_rocksdb, volume};

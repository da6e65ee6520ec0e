//! Plimsoll, embedded: a key-value store on volumes that are loaded exactly to their contract.
//!
//! [`kv::Store`] puts one together from the device up: a directory is a [`volume`], a gate in front of
//! it keeps to its [contract](policy::contract), a [`pool`] spreads over several, and the store is on
//! the pool. The program `plimsoll` does the same from a settings file.
//!
//! ```no_run
#![doc = include_str!("../examples/embed.rs")]
//! ```
//!
//! The guide is `docs/guide/kv.md`.

/// The program in the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

mod error;
pub mod kv;
pub mod volumes;

pub use self::error::{Error, Result};
pub use {engine, policy, pool, rocks, rust_rocksdb, volume};

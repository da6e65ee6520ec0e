//! Plimsoll, embedded: a key-value store on volumes that are loaded exactly to their contract.
//!
//! A store is put together from the device up: a directory is a [`volume`], a gate in front of it keeps
//! to its [contract](policy::contract), a [`pool`] spreads over several, and [`kv::open`] opens the
//! store on the pool. The program `plimsoll` does the same from a settings file.

pub mod kv;

pub use {engine, policy, pool, rocks, volume};

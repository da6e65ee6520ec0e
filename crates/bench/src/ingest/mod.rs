//! `bench ingest`: rows into our server and into those people would use instead, over the same protocol.
//!
//! Every server gets the same bytes, made beforehand, from the same client on the same processors, and begins with an
//! empty directory on the same file system. They take turns, another one first in each round; what counts is
//! the ratio within a round. After a load the points are counted back through the server's own queries: what is
//! not stored was not fast.
//!
//! This crate starts no servers: the caller brings the figures.

pub mod process;
pub mod rows;
mod sheet;

pub use sheet::{Band, Sheet};

/// Our server in reports.
pub const OURS: &str = "plimsoll";

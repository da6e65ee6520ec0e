//! `bench ingest`: sends rows to our server and to its competitors, over the same protocol.
//!
//! Every server gets the same bytes, made beforehand, from the same client on the same processors, and begins with an
//! empty directory on the same file system. They take turns, each round in another order; the result is the ratio
//! within a round. After a load, the bench counts the points through the server's own queries, so that a server that
//! drops points is not called fast.
//!
//! This crate starts no servers: the caller supplies the figures.

pub mod process;
pub mod rows;
mod writer;

pub use writer::{Band, ReportWriter};

/// Our server in reports.
pub const OURS: &str = "plimsoll";

//! Listeners for clients, over a store behind a trait.
//!
//! - [`resp`]: Redis clients.
//! - [`admin`]: health, metrics and reload for administrators.
//! - [`http`]: points of time series, by InfluxDB's protocols.
//! - [`mqtt`]: the same points from a broker.
//! - [`figures`]: the figures of the surrounding program that listeners report.

pub mod admin;
mod admission;
pub mod figures;
pub mod http;
mod may;
pub mod mqtt;
pub mod resp;

pub use may::May;

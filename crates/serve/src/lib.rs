//! Listeners for clients, over a store behind a trait.
//!
//! - [`resp`]: Redis clients.
//! - [`admin`]: health, metrics and reload for administrators.
//! - [`http`]: points of time series, by InfluxDB's protocols.
//! - [`mqtt`]: the same points from a broker.
//! - [`nbd`]: block devices, for NBD clients.
//! - [`listener`]: what is under all of them: accepts connections, limits their number, does TLS, stops.
//! - [`tls`]: certificates, of listeners and towards a broker.
//! - [`figures`]: the figures of the surrounding program that listeners report.

pub mod admin;
mod admission;
pub mod figures;
pub mod http;
pub mod listener;
mod may;
pub mod mqtt;
pub mod nbd;
pub mod resp;
mod secret;
pub mod tls;

pub use may::May;
pub use secret::Secret;

//! Front doors: what people and programs talk to, over a store they know only by its trait.
//!
//! - [`resp`]: Redis clients.
//! - [`admin`]: health, metrics and reload for whoever runs the program.
//! - [`http`]: points of time series, by InfluxDB's protocols.
//! - [`mqtt`]: the same points from a broker.
//! - [`figures`]: what the program around them lets both show.

pub mod admin;
mod admission;
pub mod figures;
pub mod http;
mod may;
pub mod mqtt;
pub mod resp;

pub use may::May;

//! Time series over HTTP, with InfluxDB's protocols.
//!
//! ```text
//!           ┌─ write: body (inflated, bounded) -> line (bytes to rows) ─────────┐
//! server ─ endpoint                                                           engine::series
//!           └─ query: influxql (text to statements) -> execute -> answer ───────┘
//!                 own: parameters to statements
//! ```
//!
//! | request | answer |
//! |---|---|
//! | `POST /write`, `POST /api/v2/write` | 204; 400 and what is wrong with which lines, the others are stored; 503 and `Retry-After` |
//! | `GET`, `POST /query` | statements of InfluxQL, as JSON, CSV or Arrow |
//! | `GET /api/points`, … | the same by parameters |
//! | `GET /ping`, `GET /health` | whether the server answers, whether it takes writes |
//!
//! [`server`] also serves the admin listener.

mod access;
mod answer;
mod arrow;
mod body;
mod endpoint;
mod execute;
mod hosts;
pub mod influxql;
pub mod line;
mod own;
mod params;
mod query;
mod refusal;
pub(crate) mod row;
pub mod server;
mod service;
mod stats;
mod table;
pub(crate) mod time;
mod write;

pub use access::{Grant, Token, Tokens};
pub use endpoint::router;
pub use hosts::{Hosts, WrongHost};
pub use service::{Service, Settings, Wall};
pub use stats::{Stats, Times};

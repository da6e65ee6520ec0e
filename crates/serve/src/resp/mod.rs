//! Redis clients: RESP2 and RESP3 over TCP or TLS.
//!
//! ```text
//! server -> connection -> wire (bytes to requests) -> session (request to reply) -> reply (to bytes)
//! begins    stream        pure                        pure, in place                  -> connection
//! ```
//!
//! Each of these depends only on those before it: `wire`, `settings`, `reply`, `access`; `service`, the state that all
//! connections share; `client`, the state of one; `command`, what commands do, and their table; `session`,
//! `connection`, `server`.
//!
//! Each command is atomic. Replies come in the order of the requests; every complete request that has arrived is
//! executed before the next read, and their replies are sent together.

mod access;
mod client;
mod command;
mod connection;
mod cursors;
mod expiry;
mod glob;
mod info;
mod peers;
mod reply;
mod server;
mod service;
mod session;
mod settings;
mod stats;
mod threads;
mod wire;

pub use access::Access;
pub use server::Server;
pub use service::Service;
pub use session::Session;
pub use settings::{Settings, User};
pub use stats::Stats;
pub use wire::{Decoder, Limits, ProtocolError, Request};

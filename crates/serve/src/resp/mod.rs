//! Redis clients: RESP2 and RESP3 over TCP.
//!
//! ```text
//! socket -> wire (bytes to requests) -> session (request to reply) -> reply (to bytes) -> socket
//!           pure                        pure, on a thread that blocks                server
//! ```
//!
//! Each command is atomic. Replies come in the order of the requests; every complete request that has
//! arrived is executed before the next read, and the replies leave together.

mod command;
mod cursors;
mod expiry;
mod glob;
mod info;
mod reply;
mod secret;
mod server;
mod service;
mod session;
mod stats;
mod wire;

pub use reply::{Protocol, Reply};
pub use secret::Secret;
pub use server::Server;
pub use service::{Service, Settings};
pub use session::Session;
pub use stats::Stats;
pub use wire::{Decoder, Limits, ProtocolError, Request};

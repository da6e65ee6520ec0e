//! Block devices for NBD clients: the kernel, qemu, libnbd.
//!
//! ```text
//!  negotiation:   connection -> handshake (pure: options to answers) -> TLS, a device
//!  transmission:  intake -> transmission (pure: requests to plans) -> device
//!                    ^                                                  |
//!    stream ---------+------- pipeline ------- outbox <- transmission <-+
//!                                                        (pure: results to replies)
//! ```
//!
//! Each of these depends only on those before it: [`wire`], the bytes of the protocol; `transmission`; `leases`, the ids
//! of clients' devices; `handshake`; `intake` and `outbox`, the two directions of a stream; `budget`, the memory of all
//! connections; `settings`, `stats`, `service`, the state that all connections share; `pipeline`, the requests in
//! progress of one; `connection`, `server`.
//!
//! Requests are begun in the order they came, and answered in any order. The server tells clients that a flush covers
//! every connection (`CAN_MULTI_CONN`); [`BlockDevice::flush`](engine::block::BlockDevice::flush) does.

mod budget;
mod connection;
mod handshake;
mod intake;
mod leases;
mod outbox;
mod pipeline;
mod server;
mod service;
mod settings;
mod stats;
mod transmission;
pub mod wire;
mod writers;

pub use server::Server;
pub use service::Service;
pub use settings::Settings;
pub use stats::Stats;

#[cfg(test)]
mod tests;

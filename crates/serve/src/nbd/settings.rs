//! The settings of an NBD listener.

use std::time::Duration;

/// Limits of an NBD listener. Plain data; [`Settings::default`] holds every default.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Settings {
    /// The limit on connections. At the limit, a new one displaces one that has not chosen a device yet; connections
    /// with a device are never displaced. A higher limit lets clients hold more memory: each up to
    /// [`payload_bytes_max`](Self::payload_bytes_max). Default 100.
    pub clients_max: usize,
    /// The limit for one address; for IPv6, for one /64 network. Default: half of [`clients_max`](Self::clients_max),
    /// all of it for loopback.
    pub clients_per_address: Option<usize>,
    /// The most requests of a connection that are in progress. Beyond it, the server stops reading from the connection
    /// until one is done. More requests mean deeper queues at the volumes. Default 128.
    pub requests_max: usize,
    /// The most bytes of a connection's reads and writes that are in progress, or whose replies are not sent yet. Beyond
    /// it, the server stops reading from the connection; a single longer request is still served. Default 64 MiB.
    pub payload_bytes_max: u64,
    /// The most bytes of all connections' reads and writes that are in progress, or whose replies are not sent yet. Beyond
    /// it, each connection has one such request at a time, of at most 32 MiB. Default 256 MiB.
    pub all_payload_bytes_max: u64,
    /// How long a client may take to choose a device, with the TLS handshake. A longer time lets clients hold
    /// connections without a device for longer. Default 30 s.
    pub handshake_timeout: Duration,
    /// How long a stopping server waits for requests in progress, and for clients to read the replies. Default 5 s.
    pub stop_grace: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            clients_max: 100,
            clients_per_address: None,
            requests_max: 128,
            payload_bytes_max: 64 * 1024 * 1024,
            all_payload_bytes_max: 256 * 1024 * 1024,
            handshake_timeout: Duration::from_secs(30),
            stop_grace: Duration::from_secs(5),
        }
    }
}

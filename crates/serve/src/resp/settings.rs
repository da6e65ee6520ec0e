//! The settings of a RESP listener, and the constants that several of its parts share.

use std::time::Duration;

use crate::{May, Secret};

/// A named client, as in `AUTH name password`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct User {
    /// The name.
    pub name: String,
    /// Its password.
    pub password: Secret,
    /// Its rights.
    pub may: May,
}

/// Limits and settings of a RESP listener. Plain data; [`Settings::default`] holds every default.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Settings {
    /// The password of clients; moved into [`Access`](super::Access) when the service is made. Default: none, for
    /// loopback only.
    pub password: Option<Secret>,
    /// Users with restricted rights; moved there, too. Default: none.
    pub users: Vec<User>,
    /// The limit on connections. At the limit, a new one displaces one that never executed a command, or the one that
    /// was idle longest, for at least a minute. A higher limit costs memory and file descriptors. Default 1000.
    pub clients_max: u64,
    /// The limit for one address; for IPv6, for one /64 network. Default: half of [`clients_max`](Self::clients_max),
    /// all of it for loopback.
    pub clients_per_address: Option<usize>,
    /// The longest key or value, in bytes; Redis' `proto-max-bulk-len`. A higher limit lets one client make the store
    /// and the log handle a larger piece at once. Default 64 MiB (Redis: 512 MiB).
    pub bulk_bytes_max: usize,
    /// The longest request, and the longest encoded reply, in bytes; a single value is always returned. A command with
    /// a longer reply gets an error, and a transaction is discarded. A reply also has at most one element for each 16
    /// bytes of this. A higher limit lets one connection hold more memory. Default 128 MiB.
    pub request_bytes_max: usize,
    /// The limit on the bytes of all incomplete requests; each connection has 64 KiB in addition. Beyond it a
    /// connection gets an error and is closed. Default 256 MiB.
    pub clients_bytes_max: u64,
    /// Threads that execute requests that only read, and as many for requests that write, so at most that many of each
    /// wait on volumes at once. More threads mean deeper queues at the volumes, and more stacks. Default 64.
    pub threads: usize,
    /// How long a stopping server waits for clients to read their last replies. A longer time delays the stop when a
    /// client hangs. Default 5 s.
    pub stop_grace: Duration,
    /// How long a client may be silent, or not read its replies, before it is cut off; `None` for no limit. A shorter
    /// time frees the resources of dead clients sooner. Default none, as in Redis.
    pub idle_timeout: Option<Duration>,
    /// The timeout of authentication: of the TLS handshake, then of the password. A longer time lets unauthenticated
    /// clients hold connections for longer. Default 30 s.
    pub auth_timeout: Duration,
    /// The port of the listener, for `INFO`.
    pub port: u16,
    /// Whether it uses TLS, for `INFO`.
    pub tls: bool,
}

impl Default for Settings {
    fn default() -> Self {
        const MIB: usize = 1024 * 1024;
        Self {
            password: None,
            users: Vec::new(),
            clients_max: 1000,
            clients_per_address: None,
            bulk_bytes_max: 64 * MIB,
            request_bytes_max: 128 * MIB,
            clients_bytes_max: 256 * MIB as u64,
            threads: 64,
            stop_grace: Duration::from_secs(5),
            idle_timeout: None,
            auth_timeout: Duration::from_secs(30),
            port: 6380,
            tls: false,
        }
    }
}

/// The user of a password without a name.
pub(super) const DEFAULT_USER: &[u8] = b"default";

/// A reply has at most one element for this many bytes of [`Settings::request_bytes_max`]. Even a short element takes a
/// hundred bytes of memory. A smaller number allows one connection more memory; a larger one refuses replies of short
/// elements that would not be too long.
pub(super) const BYTES_PER_ELEMENT: usize = 16;

/// The most arguments of a request, as in Redis before 7: bounds the overhead of a request.
pub(super) const ARGS_MAX: usize = 1024 * 1024;

/// The silence on a connection before the first TCP keepalive probe. As in Redis.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(300);

/// The Redis version of the replies: clients use it to choose commands.
pub(super) const REDIS_VERSION: &str = "7.0.15";

//! What all connections of a RESP door share.

use std::sync::Arc;
use std::time::Duration;

use engine::keyspace::{Keyspace, ReadLimits};

use super::access::Access;
use super::clients::Clients;
use super::cursors::Cursors;
use super::secret::Secret;
use super::stats::Stats;
use super::wire::Limits;
use crate::May;
use crate::figures::Figures;

/// A client with a name, as `AUTH name password` says it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct User {
    /// The name.
    pub name: String,
    /// What shows that it is this one.
    pub password: Secret,
    /// What it may do.
    pub may: May,
}

/// Limits and terms of a RESP door. Plain data; [`Settings::default`] holds every default.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Settings {
    /// What clients must know to be served; [`Access`] has it once the door is made. Default: none, for loopback only.
    pub password: Option<Secret>,
    /// Clients who may do less than who knows the password; [`Access`] has them, too. Default: none.
    pub users: Vec<User>,
    /// Connections at once. Where there are as many, one that never had a command executed is closed for a
    /// new one, or the one that has been idle longest, for a minute at least. More: more memory and file
    /// descriptors. Default 1000.
    pub clients_max: u64,
    /// Connections at once from one address; of IPv6 from one network of 64 bits. Default: half of
    /// [`clients_max`](Self::clients_max), from loopback all.
    pub clients_per_address: Option<usize>,
    /// The longest key or value, in bytes; Redis' `proto-max-bulk-len`. More: one client can make the
    /// store and the log handle a larger piece at once. Default 64 MiB (Redis: 512 MiB).
    pub bulk_bytes_max: usize,
    /// The longest request, in bytes, and the longest reply, as its bytes are sent; one value alone is always
    /// answered. A command with a longer reply gets an error, a transaction is discarded. A reply also has at most
    /// one element for each 16 bytes of this. More: one connection can hold more memory. Default 128 MiB.
    pub request_bytes_max: usize,
    /// Bytes that requests still arriving may hold together; each connection has 64 KiB free on top.
    /// Beyond it a connection gets an error and is closed. Default 256 MiB.
    pub clients_bytes_max: u64,
    /// Threads that execute requests, so at most that many wait on volumes at once. More: deeper
    /// queues at the volumes, more stacks. Default 64.
    pub threads: usize,
    /// How long a stopping server waits for clients to take their last replies. More: a stop takes
    /// longer when a client hangs. Default 5 s.
    pub stop_grace: Duration,
    /// How long a client may be silent, or not take its replies, before it is cut off; none: for ever.
    /// Less frees what clients hold that are gone without a word. Default none, as in Redis.
    pub idle_timeout: Option<Duration>,
    /// How long a client may take to say who it is: for its TLS handshake, then for its password.
    /// More: strangers can hold connections for longer. Default 30 s.
    pub auth_timeout: Duration,
    /// The port clients reach, for `INFO`.
    pub port: u16,
    /// Whether they speak TLS there, for `INFO`.
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

/// The user that a password without a name is of.
pub(super) const DEFAULT_USER: &[u8] = b"default";

/// A reply has at most one element for so many bytes of [`Settings::request_bytes_max`]. An element takes a hundred
/// bytes of memory, however short it is. Less: more memory for one connection; more: replies of short elements are
/// refused that would not be too long.
pub(super) const BYTES_PER_ELEMENT: usize = 16;

/// The most arguments of a request, as in Redis before 7: bounds what bookkeeping a request costs.
const ARGS_MAX: usize = 1024 * 1024;

/// The store and everything else a command may ask.
pub struct Service {
    /// The terms, without the password and the users.
    pub settings: Settings,
    /// The password and the users.
    pub access: Arc<Access>,
    /// The keys behind the door.
    pub keyspace: Arc<Keyspace>,
    /// Figures of the program around the door.
    pub figures: Arc<dyn Figures>,
    /// What the door counts.
    pub stats: Stats,
    /// Where its clients' walks go on.
    pub(super) cursors: Cursors,
    pub(super) clients: Clients,
}

impl Service {
    /// A door to `keyspace`.
    #[must_use]
    pub fn new(mut settings: Settings, keyspace: Arc<Keyspace>, figures: Arc<dyn Figures>) -> Self {
        let users = std::mem::take(&mut settings.users);
        let access = Access::new(settings.password.take(), users);
        Self {
            settings,
            access: Arc::new(access),
            keyspace,
            figures,
            stats: Stats::default(),
            cursors: Cursors::default(),
            clients: Clients::default(),
        }
    }

    /// What a command, or the commands of `EXEC`, may hold in memory for the reply. It bounds what is read and not
    /// sent, too, and no reply that [`Settings::request_bytes_max`] allows needs more, as a rule.
    pub(super) fn read_limits(&self) -> ReadLimits {
        // Records are longer than their values by some bytes, and a value as long as any has to fit.
        const HEADS: usize = 64 * 1024;
        let Settings { bulk_bytes_max, request_bytes_max, .. } = self.settings;
        ReadLimits {
            bytes_max: request_bytes_max.max(bulk_bytes_max).saturating_add(HEADS),
            elements_max: request_bytes_max / BYTES_PER_ELEMENT,
        }
    }

    /// What a client may send.
    #[must_use]
    pub fn limits(&self, authenticated: bool) -> Limits {
        if !authenticated {
            return Limits::unauthenticated();
        }
        let Settings { bulk_bytes_max, request_bytes_max, .. } = self.settings;
        Limits { bulk_bytes_max, request_bytes_max, args_max: ARGS_MAX, authenticated }
    }
}

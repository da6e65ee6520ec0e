//! Points from a broker: a subscriber of MQTT 3.1.1.
//!
//! ```text
//! broker ─▶ session: packets as they came ─▶ payload: lines or JSON to rows ─▶ engine::series
//!                 ◀─ PUBACK ────────────────────────────────────── stored ◀┘
//! ```
//!
//! A message of quality of service 1 is acknowledged when its points are stored as durably as the store's
//! setting says, so what a broker keeps for us is what is not stored yet. It keeps that by the name of the
//! client while we are away. A message that comes twice is stored twice, which is the same where its
//! points carry their times. What cannot be read is told, counted and acknowledged: it would come again for ever.
//! So is a message that is longer than the settings say, of which only the topic is kept in memory.
//!
//! A row without a time gets one of its own, in nanoseconds: rows that arrive together never overwrite one another.
//!
//! Messages that arrived together are one batch. Nothing more is read while they are stored, and no packet is
//! kept that is longer than the settings say: that bounds what is in memory, and the broker waits.

mod oversized;
mod payload;
mod session;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use engine::series::Series;

pub use self::payload::{Json, Payload};
use self::session::{Ended, Session};
use crate::http::Wall;
use crate::http::line::Precision;
use crate::resp::{Secret, TlsClientFiles};

/// The shortest and the longest wait for a broker that is away.
const WAITS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Which broker, and what of it. Plain data.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Settings {
    /// Host and port: `localhost:1883`.
    pub broker: String,
    /// What it is asked for: filters of topics, as `sensors/+/power` or `sensors/#`.
    pub topics: Vec<String>,
    /// Where the points go. It is made if it is not there.
    pub database: String,
    /// The name by which a broker keeps messages for us; no other client has it.
    pub client: String,
    /// A user, and the password.
    pub login: Option<(String, Secret)>,
    /// Certificates, where the broker speaks TLS.
    pub tls: Option<TlsClientFiles>,
    /// What messages hold.
    pub payload: Payload,
    /// What times in them count.
    pub precision: Precision,
    /// The longest message, in bytes. A longer one is logged, counted as dropped and acknowledged, unread.
    pub message_bytes_max: usize,
    /// How long the line may be silent before it is tried, and how long any answer may take.
    pub keep_alive: Duration,
}

/// What a subscriber counts.
#[derive(Debug, Default)]
pub struct Stats {
    /// Whether the broker is there, and sends what was asked for.
    pub connected: AtomicBool,
    /// Connections.
    pub connects: AtomicU64,
    /// Messages taken.
    pub messages: AtomicU64,
    /// Bytes of their payloads.
    pub bytes_in: AtomicU64,
    /// Rows stored.
    pub rows: AtomicU64,
    /// Rows and messages that were refused.
    pub dropped: AtomicU64,
}

/// Takes messages of a broker into a store.
pub struct Subscriber {
    settings: Settings,
    store: Arc<dyn Series>,
    wall: Wall,
    stats: Arc<Stats>,
    /// The last time given to a row without one.
    stamped: AtomicI64,
}

impl Subscriber {
    /// A subscriber that has not begun.
    #[must_use]
    pub fn new(settings: Settings, store: Arc<dyn Series>, wall: Wall) -> Self {
        Self { settings, store, wall, stats: Arc::default(), stamped: AtomicI64::new(i64::MIN) }
    }

    /// What it counts.
    #[must_use]
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// Takes messages until `stop` is ready; comes again, later and later, to a broker that is away. What was
    /// not acknowledged by then stays with the broker.
    pub async fn run(&self, stop: impl Future<Output = ()>) {
        let broker = &self.settings.broker;
        let again = async {
            let (shortest, longest) = WAITS;
            let mut wait = shortest;
            loop {
                let ended = Session::new(self).run().await;
                let served = self.stats.connected.swap(false, Ordering::Relaxed);
                if served && !matches!(ended, Ended::Store(_)) {
                    wait = shortest;
                }
                tracing::warn!(broker, "mqtt: {ended}; again in {} ms", wait.as_millis());
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(longest);
            }
        };
        tokio::select! {
            () = again => {}
            () = stop => {}
        }
        self.stats.connected.store(false, Ordering::Relaxed);
    }
}

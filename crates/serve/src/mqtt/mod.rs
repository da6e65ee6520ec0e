//! Points from a broker: an MQTT 3.1.1 subscriber.
//!
//! ```text
//! broker ─▶ session: packets as received ──▶ payload: lines or JSON to rows ─▶ engine::series
//!                 ◀─ PUBACK ────────────────────────────────────── stored ◀┘
//! ```
//!
//! A message of quality of service 1 is acknowledged once its points are stored with the store's durability, so the
//! broker keeps exactly the messages that are not stored yet. It keeps them under the client's name while the
//! subscriber is away. A repeated message is stored again, which changes nothing if its points carry their times. An
//! unreadable message is logged, counted and acknowledged; otherwise it would be sent again forever. So is a message
//! beyond the size limit, of which only the topic is kept in memory.
//!
//! A row without a time gets a unique one, in nanoseconds, so that rows that arrive together do not overwrite each
//! other.
//!
//! Messages that arrive together form one batch. While it is stored, the subscriber reads nothing more, and it keeps no
//! packet beyond the size limit: this bounds memory, and the broker waits.

mod oversized;
mod payload;
mod session;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use engine::series::Series;

pub use self::payload::{Json, Payload};
use self::session::{Ended, Session};
use crate::Secret;
use crate::figures::Counter;
use crate::http::Wall;
use crate::http::line::Precision;
use crate::tls::TlsClientFiles;

/// The shortest and the longest pause between attempts to reach the broker.
const WAITS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// The broker, and the subscription. Plain data.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Settings {
    /// Host and port: `localhost:1883`.
    pub broker: String,
    /// The filters of topics to subscribe to, such as `sensors/+/power` or `sensors/#`.
    pub topics: Vec<String>,
    /// The database for the points, created if missing.
    pub database: String,
    /// The client's name, under which the broker keeps messages; it must be unique.
    pub client: String,
    /// The user and the password.
    pub login: Option<(String, Secret)>,
    /// Certificates, if the broker uses TLS.
    pub tls: Option<TlsClientFiles>,
    /// The format of messages.
    pub payload: Payload,
    /// The unit of times in messages.
    pub precision: Precision,
    /// The longest message, in bytes. A longer one is logged, counted as dropped and acknowledged, unread.
    pub message_bytes_max: usize,
    /// The silence after which the connection is tested, and the timeout of every answer.
    pub keep_alive: Duration,
}

/// The counters of a subscriber.
#[derive(Debug, Default)]
pub struct Stats {
    /// Whether the broker is connected, with the subscription in place.
    pub connected: AtomicBool,
    /// Connections.
    pub connects: Counter,
    /// Messages received.
    pub messages: Counter,
    /// Bytes of their payloads.
    pub bytes_in: Counter,
    /// Rows stored.
    pub rows: Counter,
    /// Rows and messages refused.
    pub dropped: Counter,
}

/// Stores the messages of a broker.
pub struct Subscriber {
    settings: Settings,
    store: Arc<dyn Series>,
    wall: Wall,
    stats: Arc<Stats>,
    /// The last time assigned to a row without one.
    stamped: AtomicI64,
}

impl Subscriber {
    /// A subscriber that is not running yet.
    #[must_use]
    pub fn new(settings: Settings, store: Arc<dyn Series>, wall: Wall) -> Self {
        Self { settings, store, wall, stats: Arc::default(), stamped: AtomicI64::new(i64::MIN) }
    }

    /// Its counters.
    #[must_use]
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// Receives messages until `stop` is ready; reconnects to a broker that is away, with growing pauses.
    /// Unacknowledged messages stay with the broker.
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
                tracing::warn!(
                    broker,
                    "mqtt: {ended}; connecting again in {} ms",
                    wait.as_millis()
                );
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

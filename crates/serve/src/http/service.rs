//! The state that all requests of a listener for time series share.

use std::sync::Arc;

use engine::series::Series;
use tokio::sync::Semaphore;

use super::access::{Token, Tokens};
use super::hosts::Hosts;
use super::server::Terms;
use super::stats::Stats;

/// Limits and settings of the listener. Plain data; [`Settings::default`] holds every default.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Settings {
    /// Tokens, of which a client must send one; moved into [`Tokens`] when the service is made. Default: none, for
    /// loopback only.
    pub tokens: Vec<Token>,
    /// The names the listener answers to. Default: those of loopback.
    pub hosts: Hosts,
    /// Whether a write creates a missing database. Default true. If false, only `CREATE DATABASE` creates one, and a
    /// misspelt name is an error.
    pub create: bool,
    /// The longest body of a write, in bytes, after inflation. A higher limit lets one client take more of
    /// [`bodies_bytes_max`](Self::bodies_bytes_max). Default 25 MiB, as in InfluxDB.
    pub body_bytes_max: usize,
    /// The longest line in it. Default 1 MiB.
    pub line_bytes_max: usize,
    /// The memory for all writes under way, in bytes. Beyond it clients are told to retry. Default 256 MiB.
    pub bodies_bytes_max: usize,
    /// The most values of one answer. A higher limit lets one client take more memory. Default 5 million.
    pub answer_values_max: usize,
    /// Queries at once; others wait for a permit. Default 8.
    pub queries_max: usize,
    /// The limits on connections.
    pub terms: Terms,
}

impl Default for Settings {
    fn default() -> Self {
        const MIB: usize = 1024 * 1024;
        Self {
            tokens: Vec::new(),
            hosts: Hosts::default(),
            create: true,
            body_bytes_max: 25 * MIB,
            line_bytes_max: MIB,
            bodies_bytes_max: 256 * MIB,
            answer_values_max: 5_000_000,
            queries_max: 8,
            terms: Terms::default(),
        }
    }
}

/// Returns the time: nanoseconds since 1970.
pub type Wall = Box<dyn Fn() -> i64 + Send + Sync>;

/// The store, and all other state of requests.
pub struct Service {
    /// The settings, without the tokens.
    pub settings: Settings,
    /// Tokens, of which a client must send one.
    pub tokens: Arc<Tokens>,
    /// The listener's counters.
    pub stats: Stats,
    pub(super) store: Arc<dyn Series>,
    pub(super) wall: Wall,
    /// A permit for each byte of memory for writes under way.
    pub(super) bodies: Arc<Semaphore>,
    pub(super) queries: Arc<Semaphore>,
}

impl Service {
    /// A service of `store`.
    #[must_use]
    pub fn new(mut settings: Settings, store: Arc<dyn Series>, wall: Wall) -> Self {
        let tokens = Arc::new(Tokens::new(std::mem::take(&mut settings.tokens)));
        let bodies = settings.bodies_bytes_max.min(Semaphore::MAX_PERMITS);
        Self {
            tokens,
            stats: Stats::default(),
            bodies: Arc::new(Semaphore::new(bodies)),
            queries: Arc::new(Semaphore::new(settings.queries_max)),
            settings,
            store,
            wall,
        }
    }
}

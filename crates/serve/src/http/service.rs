//! What all requests of a door for series share.

use std::sync::Arc;

use engine::series::Series;
use tokio::sync::Semaphore;

use super::access::{Token, Tokens};
use super::hosts::Hosts;
use super::server::Terms;
use super::stats::Stats;

/// Limits and terms of the door. Plain data; [`Settings::default`] holds every default.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Settings {
    /// What clients must show one of to be served; [`Tokens`] has them once the door is made. Default: none, for loopback only.
    pub tokens: Vec<Token>,
    /// The names the door answers to. Default: those of loopback.
    pub hosts: Hosts,
    /// Whether a write makes the database it names. Default true; false: they are made by `CREATE
    /// DATABASE` alone, and a misspelt name is an error.
    pub create: bool,
    /// The longest body of a write, in bytes, after it was inflated. More: one client can take more of
    /// [`bodies_bytes_max`](Self::bodies_bytes_max). Default 25 MiB, as in InfluxDB.
    pub body_bytes_max: usize,
    /// The longest line in it. Default 1 MiB.
    pub line_bytes_max: usize,
    /// What all writes under way may hold together, in bytes. Beyond it clients are told to come again.
    /// Default 256 MiB.
    pub bodies_bytes_max: usize,
    /// The most values one answer may have. More: one client can take more memory. Default 5 million.
    pub answer_values_max: usize,
    /// Queries at once; others wait for their turn. Default 8.
    pub queries_max: usize,
    /// Connections, and how long they may take.
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

/// Gives the time: nanoseconds since 1970.
pub type Wall = Box<dyn Fn() -> i64 + Send + Sync>;

/// The store and everything else a request may ask.
pub struct Service {
    /// The terms, without the tokens.
    pub settings: Settings,
    /// What clients must show one of.
    pub tokens: Arc<Tokens>,
    /// What the door counts.
    pub stats: Stats,
    pub(super) store: Arc<dyn Series>,
    pub(super) wall: Wall,
    /// A permit for each byte that writes under way may hold.
    pub(super) bodies: Arc<Semaphore>,
    pub(super) queries: Arc<Semaphore>,
}

impl Service {
    /// A door to `store`.
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

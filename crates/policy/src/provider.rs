//! The provider's throttle: how the other side of a contract treats our requests.
//!
//! Each limit of a contract is a continuous token bucket that starts full. Requests that it does
//! not cover wait in one FIFO queue (Calcspar's traces, ATC 2023):
//!
//! ```text
//!                     rate tokens/s
//!                        ┌──▼──┐ depth
//!                        │░░░░░│
//!   request ─► queue ─►  └──┬──┘ ─► leaves when every bucket covers its cost
//! ```
//!
//! A limit of reads alone lets writes through, but they too wait in that queue for the reads before them.
//!
//! Because the queue is FIFO, later requests do not change when a request leaves:
//! [`Provider::admit`] can say it at once. Accounts are in nano-tokens, so each nanosecond earns a
//! whole number of them and no fraction is lost.

use std::time::Duration;

use crate::contract::{Contract, Cost, Counted, Limit};
use crate::time::{Instant, NANOS_PER_SEC};

/// When a request leaves the provider's queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub struct Admitted {
    /// When the tokens cover it, after all earlier requests.
    pub at: Instant,
    /// Whether it had to wait: an overdraft.
    pub throttled: bool,
}

/// The throttle of one volume.
#[derive(Clone, Debug)]
pub struct Provider {
    buckets: Vec<Bucket>,
    /// When the last request left or will leave; the buckets show the state at that time.
    left_at: Instant,
}

impl Provider {
    /// The throttle of a fresh volume: every bucket is full.
    ///
    /// # Panics
    /// When a limit has a rate or a depth of zero: such a contract could never admit anything.
    #[must_use]
    pub fn new(contract: &Contract, now: Instant) -> Self {
        Self { buckets: contract.limits.iter().map(Bucket::full).collect(), left_at: now }
    }

    /// Queues a request and charges it.
    ///
    /// A request that costs more than a bucket holds leaves once its whole cost was earned. Time
    /// that runs backwards earns nothing.
    pub fn admit(&mut self, now: Instant, cost: Cost) -> Admitted {
        let head_at = now.max(self.left_at);
        let idle = head_at.since(self.left_at);
        self.buckets.iter_mut().for_each(|bucket| bucket.earn(idle));
        let wait = self.buckets.iter().map(|b| b.wait(cost)).max().unwrap_or_default();
        self.buckets.iter_mut().for_each(|bucket| bucket.charge(wait, cost));
        self.left_at = head_at + wait;
        Admitted { at: self.left_at, throttled: self.left_at > now }
    }
}

/// One limit's account, in nano-tokens.
#[derive(Clone, Debug)]
struct Bucket {
    counts: Counted,
    /// Nano-tokens a nanosecond, which is tokens a second.
    rate: u128,
    depth: u128,
    saved: u128,
}

impl Bucket {
    fn full(limit: &Limit) -> Self {
        assert!(limit.rate_per_sec > 0 && limit.depth > 0, "a limit of zero admits nothing");
        let depth = nano_tokens(limit.depth);
        Self { counts: limit.counts, rate: limit.rate_per_sec.into(), depth, saved: depth }
    }

    /// Earns for a time without requests; what exceeds the depth is lost.
    fn earn(&mut self, idle: Duration) {
        self.saved = self.after(idle).min(self.depth);
    }

    /// How long until the account covers `cost`.
    fn wait(&self, cost: Cost) -> Duration {
        let missing = self.price(cost).saturating_sub(self.saved);
        Duration::from_nanos(u64::try_from(missing.div_ceil(self.rate)).unwrap_or(u64::MAX))
    }

    /// Charges the head of the queue after its wait.
    ///
    /// During the wait the bucket may hold the cost even if that exceeds its depth, plus what it
    /// earns in the last nanosecond.
    fn charge(&mut self, wait: Duration, cost: Cost) {
        let cost = self.price(cost);
        let holds = self.depth.max(cost + self.rate - 1);
        self.saved = self.after(wait).min(holds).saturating_sub(cost);
    }

    fn after(&self, time: Duration) -> u128 {
        self.saved.saturating_add(time.as_nanos() * self.rate)
    }

    fn price(&self, cost: Cost) -> u128 {
        nano_tokens(cost.of(self.counts))
    }
}

fn nano_tokens(tokens: u64) -> u128 {
    u128::from(tokens) * u128::from(NANOS_PER_SEC)
}

#[cfg(test)]
mod tests;

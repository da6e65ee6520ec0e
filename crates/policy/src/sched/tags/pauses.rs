//! Pauses of users: one in a hundred requests waits, and the others do not.
//!
//! When demand exceeds the contract, requests wait. The total wait is fixed (Little: with n callers that ask again as
//! soon as they are answered, each waits n/L on average, on a volume of L operations a second); a scheduler only
//! chooses who bears it. First come, first served spreads it evenly: every request waits n/L, so that is the 99th
//! percentile, too. Published schemes fill a pool once a second: most requests pass at once, and all stop when it is
//! empty. *Pauses* do that over the continuous budget, without overdrafts, and only where it pays:
//!
//! ```text
//!   tokens  │    ╱╲          ╱╲           users go at once while there are tokens, then pause
//!   saved   │   ╱  ╲        ╱  ╲          until enough are saved up that the requests that wait
//!           │  ╱    ╲      ╱    ╲         for it are few among those who then go
//!           └─┴──────┴────┴──────┴──► t
//!              pause  go   pause  go
//! ```
//!
//! This pays for callers that wait for their answers: a pause of a second stops each of them once. Where requests come
//! independently of earlier ones, a pause delays all that come in it. No setting says which it is, so the last pause
//! tells: see [`Pauses::pause`].

use std::time::Duration;

use crate::time::Instant;

/// Safety factor on the pause: other classes also spend tokens.
const SPARE: f64 = 2.0;

/// If more than this many times the part would wait, there is no pause. Below that, the credit of calmer times pays for
/// it.
const CROWD: f64 = 4.0;

/// Credit for waits is earned from requests that went, over a minute at most.
const EARNED_IN: f64 = 60.0;

/// The longest pause.
const LONGEST: Duration = Duration::from_secs(1);

/// After this long the last pause tells nothing any more.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(1);

/// When users pause, and for how long.
#[derive(Clone, Debug)]
pub(super) struct Pauses {
    /// The part of all requests that may wait for the end of a pause.
    part: f64,
    /// How many may wait now.
    credit: f64,
    /// How many waited in the last pause.
    waited: u64,
    /// The end of the pause; requests from before it do not wait for a second one.
    ends_at: Instant,
    /// The length of the pause.
    takes: Duration,
    pauses: bool,
}

impl Pauses {
    /// Lets the fraction `part` of requests wait, on a volume that earns the smallest request in `nanos`.
    pub(super) fn new(part: f64, nanos: f64) -> Self {
        let mut pauses = Self {
            part,
            credit: f64::INFINITY,
            waited: 0,
            ends_at: Instant::ZERO,
            takes: Duration::ZERO,
            pauses: false,
        };
        pauses.went(nanos);
        pauses
    }

    /// A request went whose tokens take `nanos` to earn.
    pub(super) fn went(&mut self, nanos: f64) {
        let most = self.part * EARNED_IN * 1e9 / nanos;
        self.credit = (self.credit + self.part).min(most);
    }

    /// The end of the pause, if there is one; `queued` users wait.
    pub(super) fn until(&mut self, now: Instant, queued: u64) -> Option<Instant> {
        if !self.pauses {
            return None;
        }
        if now < self.ends_at && queued > 0 {
            return Some(self.ends_at);
        }
        self.pauses = false;
        self.waited = queued;
        self.credit -= queued as f64;
        None
    }

    /// The end of the pause at `now`, if there is one.
    pub(super) fn ends_at(&self, now: Instant) -> Option<Instant> {
        (self.pauses && now < self.ends_at).then_some(self.ends_at)
    }

    /// Until when saved tokens are for users only: during a pause, and for as long after it.
    pub(super) fn saves_until(&self) -> Instant {
        self.ends_at + self.takes
    }

    /// Starts a pause if it pays. The budget has no more for users: `queued` of them wait, the first since `since`.
    /// Tokens for one request take `nanos` to earn, and the budget is full in `full_in`.
    ///
    /// The pause is long enough that those who will wait (as many as the last time) are a small enough part of those
    /// who will then go. There is no pause if even the longest is much too short for that, if too many had to wait
    /// recently, or if the first user has waited for the end of a pause already.
    pub(super) fn pause(
        &mut self,
        now: Instant,
        since: Instant,
        queued: u64,
        nanos: f64,
        full_in: Duration,
    ) {
        if now.since(self.ends_at) > FORGOTTEN_AFTER {
            self.waited = 0;
        }
        let waiting = self.waited.max(queued) as f64;
        let needed = waiting * nanos / self.part;
        let takes = (SPARE * needed).min(full_in.min(LONGEST).as_nanos() as f64);
        if since >= self.ends_at && needed <= CROWD * takes && self.credit >= waiting {
            self.takes = Duration::from_nanos(takes as u64);
            self.ends_at = now + self.takes;
            self.pauses = true;
        }
    }
}

#[cfg(test)]
mod tests;

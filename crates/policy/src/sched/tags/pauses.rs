//! Pauses of users: how one in a hundred waits, and nobody else.
//!
//! Whoever asks for more than is paid for waits; how long all of them together is not ours to decide (Little: with n
//! callers that ask again as soon as they are answered, n/L each on a volume of L operations a second). Who waits
//! is. First come, first served shares it out evenly: everybody waits n/L, so that is the 99th percentile, too.
//! Published schemes fill a pool once a second: most pass at once, and when it is empty everybody stops. *Pauses*
//! do that over the continuous budget, so that nothing is overdrawn, and only where it pays:
//!
//! ```text
//!   tokens  │    ╱╲          ╱╲           users go at once while there are tokens, then pause
//!   saved   │   ╱  ╲        ╱  ╲          until so many are saved up that those who wait
//!           │  ╱    ╲      ╱    ╲         for it are few among those who then go
//!           └─┴──────┴────┴──────┴──► t
//!              pause  go   pause  go
//! ```
//!
//! It is worth it for callers who wait for their answers: a pause of a second stops each of them once. Where
//! requests come whatever became of those before, a pause makes everybody wait who comes in it. Nobody says which it
//! is, so the last pause tells: see [`Pauses::pause`].

use std::time::Duration;

use crate::time::Instant;

/// A pause is so much longer than those who wait for it need to be few enough: operations that others use
/// are not for users to go with.
const SPARE: f64 = 2.0;

/// Where more than so many times the part would wait, it is not tried. Below that, what was earned in calmer
/// times pays for it.
const CROWD: f64 = 4.0;

/// Waits are paid for out of what was earned, of a minute at most.
const EARNED_IN: f64 = 60.0;

/// No pause is longer.
const LONGEST: Duration = Duration::from_secs(1);

/// After so long the last pause tells nothing any more.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(1);

/// When users pause, and for how long.
#[derive(Clone, Debug)]
pub(super) struct Pauses {
    /// The part of all requests that may wait for the end of a pause.
    part: f64,
    /// How many may.
    credit: f64,
    /// How many did, the last time.
    waited: u64,
    /// Until when users pause; nobody who came before waits once more.
    ends_at: Instant,
    /// How long that is.
    takes: Duration,
    pauses: bool,
}

impl Pauses {
    /// Lets `part` of the requests wait, of a volume that earns the smallest in `nanos`.
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

    /// A request went, whose tokens take so long to earn.
    pub(super) fn went(&mut self, nanos: f64) {
        let most = self.part * EARNED_IN * 1e9 / nanos;
        self.credit = (self.credit + self.part).min(most);
    }

    /// Until when users pause, if they do. `queued` is how many of them wait.
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

    /// When the pause ends that is under way, if one is.
    pub(super) fn ends_at(&self, now: Instant) -> Option<Instant> {
        (self.pauses && now < self.ends_at).then_some(self.ends_at)
    }

    /// Until when what is saved up is for users: in a pause, and for as long after it.
    pub(super) fn saves_until(&self) -> Instant {
        self.ends_at + self.takes
    }

    /// The budget has no more for users, of whom `queued` wait, the first `since` then; tokens for one of them take
    /// `nanos` to earn, and the budget is full in `full_in`.
    ///
    /// They pause for as long as it takes until those who will wait (as many as the last time) are a small enough
    /// part of those who will go. They do not where even the longest pause is much too short for that, where too many had
    /// to wait of late, or whoever is first has waited for the end of a pause already.
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

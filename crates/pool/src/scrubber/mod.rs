//! Scrubs a pool while it serves: passes over all of its objects, one object at a time, each within a period.
//!
//! ```text
//!   Scrubber ── next object, when it is due ──▶ Spread::scrub_object ──▶ bad copy, another is good: dropped
//!      ▲                                                                 (the mover makes a new one)
//!      └── Passes: begin a pass now, progress, position to keep ◀── admin listener, file
//! ```
//! The reads are of class idle at the gates, so a pass takes longer where volumes have no tokens to spare. An object that
//! a volume refuses is tried again.
//!
//! A scrubber is one future, which the caller drives. Dropping it ends the read under way; a later scrubber goes on
//! with that object if it begins with the [`Position`] of this one.

mod pass;
mod passes;
mod position;

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use policy::time::Instant;
use volume::Clock;
use volume::heartbeat::{Heartbeat, SILENCE_MAX};

pub use self::pass::Pass;
use self::passes::Next;
pub use self::passes::{Passes, ScrubFigures};
pub use self::position::Position;
use crate::spread::{Finding, Problem, Spread, ToScrub};

/// The longest wait between two looks, so that the heartbeat shows that the task lives.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The pause before an object is tried again that could not be read.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// Attempts to read an object: a volume that is busy for minutes makes the pass go on, and count the object as unread.
const ATTEMPTS: u32 = 12;
/// The time that a store has to open before its objects in place are left out of a pass: another scrub reads them.
const STORES_OPEN_WITHIN: Duration = Duration::from_secs(120);
/// The position is kept this long after an object was read.
const KEEP_AFTER_READ: Duration = Duration::from_secs(60);
/// Without reads only the time into the pass changes. A crash loses this much of it at most.
const KEEP_EVERY: Duration = Duration::from_secs(600);

/// Scrubs a pool. See the [module](self).
pub struct Scrubber {
    pool: Spread,
    clock: Clock,
    passes: Passes,
    heartbeat: Heartbeat,
}

impl Scrubber {
    /// A scrubber that goes on where `position` says, if that is of this pool. A pass takes `period`, and the next one
    /// follows; `None`: there are only passes on demand.
    #[must_use]
    pub fn new(
        pool: Spread,
        clock: Clock,
        period: Option<Duration>,
        position: Option<Position>,
    ) -> Self {
        let heartbeat = Heartbeat::new("scrub", SILENCE_MAX, &clock);
        let position = position.filter(|position| position.pool == pool.id());
        let passes = Passes::new(pool.clone(), clock.clone(), period, position);
        Self { pool, clock, passes, heartbeat }
    }

    /// The passes: progress, and passes on demand.
    #[must_use]
    pub fn passes(&self) -> Passes {
        self.passes.clone()
    }

    /// The record of its rounds.
    #[must_use]
    pub fn heartbeat(&self) -> Heartbeat {
        self.heartbeat.clone()
    }

    /// Runs until it is dropped. Calls `keep` with the position to go on with after a restart, now and then.
    pub async fn run(self, mut keep: impl FnMut(&Position)) {
        let (mut kept_at, mut read_since) = (self.clock.now(), false);
        let mut attempt = 1;
        let mut lacks_store_since = None;
        // What earlier attempts at the same object repaired.
        let mut repaired_before: Vec<Finding> = Vec::new();
        loop {
            let now = self.clock.now();
            let keep_after = if read_since { KEEP_AFTER_READ } else { KEEP_EVERY };
            if now.since(kept_at) >= keep_after
                && let Some(position) = self.passes.position()
            {
                keep(&position);
                (kept_at, read_since) = (now, false);
            }
            self.heartbeat.completed();
            match self.passes.next(now) {
                Next::Wait(wait) => self.wait_until(now + wait.min(LOOK_EVERY)).await,
                Next::Read { number, object } if !self.pool.can_scrub(&object) => {
                    let since = *lacks_store_since.get_or_insert(now);
                    match now.since(since) < STORES_OPEN_WITHIN {
                        true => self.wait_until(now + LOOK_EVERY).await,
                        false => self.passes.leave_out(number, &object),
                    }
                }
                Next::Read { number, object } => {
                    lacks_store_since = None;
                    let mut findings = {
                        let _long = self.heartbeat.begin_long();
                        self.pool.scrub_object(&object).await
                    };
                    let is_unread = |found: &Finding| matches!(found.problem, Problem::Unread(_));
                    if attempt < ATTEMPTS && findings.iter().any(is_unread) {
                        attempt += 1;
                        findings.retain(|found| found.problem == Problem::Repaired);
                        repaired_before.append(&mut findings);
                        self.wait_until(self.clock.now() + RETRY_AFTER).await;
                        continue;
                    }
                    (attempt, read_since) = (1, true);
                    repaired_before.retain(|found| !findings.contains(found));
                    findings.append(&mut repaired_before);
                    let repaired = self.repair(&object, &findings).await;
                    self.passes.record(number, &object, findings, repaired);
                }
            }
        }
    }

    /// Drops the bad copies of an object if another is good. Returns the number dropped, and repaired before.
    async fn repair(&self, object: &ToScrub, findings: &[Finding]) -> u64 {
        // The pool has logged damaged copies, and volumes that are away.
        let is_news = |found: &&Finding| {
            matches!(found.problem, Problem::Unlike | Problem::Unread(_) | Problem::Lost(_))
        };
        let is_repaired = |found: &&Finding| found.problem == Problem::Repaired;
        let repaired = findings.iter().filter(is_repaired).count() as u64;
        for found in findings.iter().filter(is_news) {
            tracing::warn!("scrub: {found}");
        }
        match self.pool.mend_object(object, findings).await {
            Ok(0) => repaired,
            Ok(dropped) => {
                let name = object.name();
                tracing::warn!("scrub: {name}: {dropped} bad copies are dropped and made again");
                repaired + dropped
            }
            Err(e) => {
                tracing::warn!("scrub: a bad copy of {} could not be dropped: {e}", object.name());
                repaired
            }
        }
    }

    /// Waits until then, or until a pass is begun on demand.
    async fn wait_until(&self, at: Instant) {
        let mut sleep = pin!(self.clock.sleep_until(at));
        poll_fn(|cx| match self.passes.poll_begun(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => sleep.as_mut().poll(cx),
        })
        .await;
    }
}

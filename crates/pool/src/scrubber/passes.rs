//! The passes of a scrubber: the current one, the last that ended, and passes on demand.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use policy::scrub::due;
use policy::time::Instant;
use volume::Clock;

use super::{Pass, Position};
use crate::spread::{Finding, Problem, ScrubPass, Spread, ToScrub};

/// The findings of a pass that are listed; the rest is counted and in the log.
const LISTED_MAX: usize = 1000;

/// The passes of a pool. Clones share them.
#[derive(Clone)]
pub struct Passes(Arc<Shared>);

struct Shared {
    pool: Spread,
    clock: Clock,
    period: Option<Duration>,
    state: Mutex<PassesState>,
}

struct PassesState {
    /// The current pass. After its end it stays until the next begins.
    current: Option<Pass>,
    /// When its `elapsed` was last counted on.
    seen: Instant,
    last: Option<Pass>,
    /// The end of the last pass, perhaps of an earlier run, as time since 1970.
    last_ended: Option<Duration>,
    figures: ScrubFigures,
    begun: bool,
    waker: Option<Waker>,
}

/// Counters since the pool was opened, and the age of the last pass.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ScrubFigures {
    /// Objects read.
    pub objects: u64,
    /// Bytes read: those of each copy count.
    pub bytes: u64,
    /// Copies with missing, wrong or unreadable bytes.
    pub damaged: u64,
    /// The time since the last pass over all objects ended; `None` before the first.
    pub age: Option<Duration>,
}

/// What the scrubber does next.
pub(super) enum Next {
    /// Looks again after this time.
    Wait(Duration),
    /// Reads an object, for the pass of this number.
    Read { number: u64, object: ToScrub },
}

impl Passes {
    pub(super) fn new(
        pool: Spread,
        clock: Clock,
        period: Option<Duration>,
        position: Option<Position>,
    ) -> Self {
        let state = PassesState {
            seen: clock.now(),
            last: None,
            last_ended: position.as_ref().and_then(|position| position.last_ended),
            current: position.map(|position| position.pass),
            figures: ScrubFigures::default(),
            begun: false,
            waker: None,
        };
        Self(Arc::new(Shared { pool, clock, period, state: Mutex::new(state) }))
    }

    /// Begins a pass now, which reads as fast as the gates allow, in place of the current one. If a pass on demand is under
    /// way, that one goes on. Returns the pass.
    #[must_use]
    pub fn begin(&self) -> Pass {
        let at = self.0.pool.begin_scrub();
        let mut state = self.0.state.lock();
        if let Some(pass) = &state.current
            && pass.is_on_demand
            && pass.ended.is_none()
        {
            return pass.clone();
        }
        let pass = state.begin(at, self.0.clock.wall());
        pass.is_on_demand = true;
        let pass = pass.clone();
        state.begun = true;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        pass
    }

    /// The pass under way.
    #[must_use]
    pub fn current(&self) -> Option<Pass> {
        self.0.state.lock().current.clone().filter(|pass| pass.ended.is_none())
    }

    /// The last pass that ended since the pool was opened.
    #[must_use]
    pub fn last(&self) -> Option<Pass> {
        self.0.state.lock().last.clone()
    }

    /// The counters.
    #[must_use]
    pub fn figures(&self) -> ScrubFigures {
        let now = self.0.clock.wall();
        let state = self.0.state.lock();
        let age = state.last_ended.map(|ended| now.saturating_sub(ended));
        ScrubFigures { age, ..state.figures }
    }

    /// Where to go on after a restart; `None` before the first pass.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        let state = self.0.state.lock();
        let pass = Pass { findings: Vec::new(), ..state.current.clone()? };
        Some(Position { pool: self.0.pool.id(), pass, last_ended: state.last_ended })
    }

    /// Ready once a pass was begun on demand since the last time it was ready.
    pub(super) fn poll_begun(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.0.state.lock();
        if std::mem::take(&mut state.begun) {
            return Poll::Ready(());
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Begins and ends passes, and says what to do now.
    pub(super) fn next(&self, now: Instant) -> Next {
        let Shared { pool, clock, period, state } = &*self.0;
        let wall = clock.wall();
        let mut state = state.lock();
        let since = now.since(std::mem::replace(&mut state.seen, now));
        let Some(pass) = &mut state.current else {
            if period.is_some() {
                state.begin(pool.begin_scrub(), wall);
                return Next::Wait(Duration::ZERO);
            }
            return Next::Wait(Duration::MAX);
        };
        pass.elapsed += since;
        let object = match pass.ended {
            None => pool.next_to_scrub(&pass.at),
            Some(_) => None,
        };
        match (object, *period) {
            (Some(object), _) if pass.is_on_demand => Next::Read { number: pass.number, object },
            (Some(object), Some(period)) => {
                let due = due(period, pass.at.done, object.bytes(), pass.at.of);
                match due.saturating_sub(pass.elapsed) {
                    Duration::ZERO => Next::Read { number: pass.number, object },
                    wait => Next::Wait(wait),
                }
            }
            // The rest of it waits until passes are switched on again.
            (Some(_), None) => Next::Wait(Duration::MAX),
            (None, period) => {
                if pass.ended.is_none() {
                    pass.ended = Some(wall);
                    let ended = pass.clone();
                    log_end(&ended);
                    state.last = Some(ended);
                    state.last_ended = Some(wall);
                    return Next::Wait(Duration::ZERO);
                }
                let Some(period) = period else { return Next::Wait(Duration::MAX) };
                match period.saturating_sub(pass.elapsed) {
                    Duration::ZERO => {
                        state.begin(pool.begin_scrub(), wall);
                        Next::Wait(Duration::ZERO)
                    }
                    wait => Next::Wait(wait),
                }
            }
        }
    }

    /// An object of the pass of this number cannot be read: its store is not open.
    pub(super) fn leave_out(&self, number: u64, object: &ToScrub) {
        let mut state = self.0.state.lock();
        let current = state.current.as_mut().filter(|pass| pass.number == number);
        if let Some(pass) = current {
            pass.at.left_out(object);
        }
    }

    /// Records what was found of an object for the pass of this number, if that is still the current one.
    pub(super) fn record(
        &self,
        number: u64,
        object: &ToScrub,
        findings: Vec<Finding>,
        repaired: u64,
    ) {
        let is_unread =
            |found: &&Finding| matches!(found.problem, Problem::Away | Problem::Unread(_));
        let is_damaged =
            |found: &&Finding| found.problem.is_loss() || found.problem == Problem::Repaired;
        let damaged = findings.iter().filter(is_damaged).count() as u64;
        let unread = findings.iter().filter(is_unread).count() as u64;
        let mut state = self.0.state.lock();
        state.figures.objects += 1;
        state.figures.bytes += object.bytes();
        state.figures.damaged += damaged;
        let current = state.current.as_mut().filter(|pass| pass.number == number);
        // Another pass was begun on demand meanwhile, and reads the object again.
        let Some(pass) = current else { return };
        pass.at.passed(object);
        pass.damaged += damaged;
        pass.repaired += repaired;
        pass.unread += unread;
        let room = LISTED_MAX - pass.findings.len();
        pass.findings.extend(findings.into_iter().take(room));
    }
}

impl PassesState {
    fn begin(&mut self, at: ScrubPass, wall: Duration) -> &mut Pass {
        let number = self.current.as_ref().map_or(0, |pass| pass.number) + 1;
        self.current.insert(Pass { number, at, began: wall, ..Pass::default() })
    }
}

fn log_end(pass: &Pass) {
    let Pass { at, damaged, repaired, unread, .. } = pass;
    let (objects, bytes) = (at.objects, policy::units::Bytes(at.done));
    tracing::info!(
        "scrub: {objects} objects read, {bytes} of all copies: {damaged} copies damaged, {repaired} of them \
         repaired, {unread} not read"
    );
}

//! Where requests to one device wait until the scheduler lets them pass.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use policy::budget::Share;
use policy::contract::{Contract, Cost};
use policy::purpose::Class;
use policy::sched::{Event, Full, Request, Scheduler, Ticket};
use policy::time::Instant;

use super::{Answers, Meter};
use crate::buf::PAGE;
use crate::{Clock, Error, ErrorKind, Io, Result};

/// Lets requests pass one by one, each charged for its bytes.
pub(super) struct Turnstile {
    label: String,
    clock: Clock,
    closed: AtomicBool,
    /// Kept beside the state so that splitting a request needs no lock.
    piece_len: AtomicUsize,
    unsynced_max: AtomicUsize,
    answers: Answers,
    state: Mutex<State>,
}

struct State {
    contract: Contract,
    share: Share,
    scheduler: Box<dyn Scheduler>,
    last_ticket: Ticket,
    waiters: BTreeMap<Ticket, Waiter>,
    /// When the earliest alarm rings that was set for this state and did not ring yet.
    alarm_at: Instant,
}

/// Somebody whose request did not pass at once.
enum Waiter {
    Waits(Waker),
    /// The answer is there, but was not fetched yet.
    Answered(Answer),
}

#[derive(Clone, Copy)]
enum Answer {
    Granted(Cost),
    Expired,
    Closed,
}

/// What the scheduler needs to know of a request besides its size.
#[derive(Clone, Copy)]
pub(super) struct Errand {
    class: Class,
    deadline: Option<Instant>,
    refusable: bool,
}

/// A request that may go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    pub(super) class: Class,
    /// What it was charged.
    pub(super) cost: Cost,
    /// When it was let go.
    pub(super) at: Instant,
}

impl Errand {
    /// A log's bytes become durable; whoever waits for that waits as long as it takes.
    pub(super) const COMMIT: Self = Self { class: Class::Commit, deadline: None, refusable: false };

    pub(super) const fn of(io: Io) -> Self {
        Self { class: io.class(), deadline: io.deadline, refusable: io.refusable() }
    }
}

impl Turnstile {
    pub(super) fn new(
        label: &str,
        contract: &Contract,
        share: Share,
        scheduler: Box<dyn Scheduler>,
        clock: Clock,
    ) -> Self {
        let turnstile = Self {
            label: label.into(),
            clock,
            closed: AtomicBool::new(false),
            piece_len: AtomicUsize::new(0),
            unsynced_max: AtomicUsize::new(0),
            answers: Answers::default(),
            state: Mutex::new(State {
                contract: contract.clone(),
                share,
                scheduler,
                last_ticket: Ticket(0),
                waiters: BTreeMap::new(),
                alarm_at: Instant::FAR,
            }),
        };
        turnstile.measure(&turnstile.state.lock());
        turnstile
    }

    /// The largest I/O to issue, in bytes: one operation, or less where the budget never holds the
    /// bytes of one. Whole pages, so that the pieces of an aligned request are aligned.
    pub(super) fn piece_len(&self) -> usize {
        self.piece_len.load(Ordering::Relaxed)
    }

    /// The most bytes of a log that a budget can pay for at once; no bound without limits.
    pub(super) fn unsynced_max(&self) -> usize {
        self.unsynced_max.load(Ordering::Relaxed)
    }

    /// Waits until a request of `len` bytes may go, and charges it. When this is ready the caller
    /// issues the request at once; dropping it before that costs nothing.
    ///
    /// # Errors
    /// `Busy` when the deadline passed, or the queue is full and the request may be refused; `Fenced`
    /// when the gate is closed.
    pub(super) fn pass(self: &Arc<Self>, errand: Errand, len: usize) -> Passing<'_> {
        Passing { turnstile: self, errand, len, waits: None }
    }

    /// The device answered a request that had passed.
    pub(super) fn answered(&self, passed: Passed) {
        self.answers.record(passed.class, self.clock.now().since(passed.at));
    }

    /// Gives back what a request was charged that did not go.
    pub(super) fn refund(self: &Arc<Self>, passed: Passed) {
        self.change(|state, _| state.scheduler.refund(passed.class, passed.cost));
    }

    pub(super) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(self.closed_error()) } else { Ok(()) }
    }

    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        self.closed.store(true, Ordering::Release);
        let wakers = state.answer_all(Answer::Closed);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(super) fn set_contract(self: &Arc<Self>, contract: &Contract) {
        self.change(|state, now| {
            state.scheduler.set_contract(contract, now);
            state.contract = contract.clone();
            self.measure(state);
        });
    }

    pub(super) fn set_share(self: &Arc<Self>, share: Share) {
        self.change(|state, now| {
            state.scheduler.set_share(share, &state.contract, now);
            state.share = share;
            self.measure(state);
        });
    }

    pub(super) fn meter(&self) -> Meter {
        let state = self.state.lock();
        let now = self.clock.now();
        let window = state.scheduler.window();
        Meter {
            contract: state.contract.clone(),
            share: state.share,
            credits: state.scheduler.credits(),
            classes: Class::ALL.map(|class| state.scheduler.figures(class)),
            answers: Class::ALL.map(|class| self.answers.of(class)),
            last_second: window.last_second(now),
            used: window.used(&state.contract, now),
        }
    }

    fn measure(&self, state: &State) {
        let largest = state.scheduler.largest();
        let op_bytes_max = state.contract.op_bytes_max;
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let piece_len = bytes(op_bytes_max.min(largest.bytes));
        let unsynced_max = match state.contract.limits[..] {
            // There is nothing to pay for.
            [] => usize::MAX,
            _ => bytes(largest.bytes.min(largest.ops.saturating_mul(op_bytes_max))),
        };
        self.piece_len.store((piece_len / PAGE * PAGE).max(PAGE), Ordering::Relaxed);
        self.unsynced_max.store(unsynced_max.max(PAGE), Ordering::Relaxed);
    }

    /// Changes the state, then lets everyone pass whose turn it is.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut State, Instant)) {
        let mut state = self.state.lock();
        let now = self.clock.now();
        change(&mut state, now);
        let turned = state.turn(now, None);
        drop(state);
        self.follow_up(turned);
    }

    /// What a turn leaves to do without the lock: wakers may run anything.
    fn follow_up(self: &Arc<Self>, turned: Turned) {
        if let Some(at) = turned.alarm_at {
            self.clock.wake_at(at, Arc::clone(self).into());
        }
        turned.wakers.into_iter().for_each(Waker::wake);
    }

    fn closed_error(&self) -> Error {
        Error::new(ErrorKind::Fenced, format!("{}: the gate is closed", self.label))
    }

    fn expired_error(&self, class: Class) -> Error {
        let message = format!(
            "{}: the deadline passed while a {} request waited for its turn",
            self.label,
            class.name()
        );
        Error::new(ErrorKind::Busy, message)
    }

    fn full_error(&self, full: Full) -> Error {
        Error::new(ErrorKind::Busy, format!("{}: {full}", self.label))
    }
}

/// The alarm: tokens were earned, or a deadline passed.
impl Wake for Turnstile {
    fn wake(self: Arc<Self>) {
        self.change(|state, now| {
            // Another alarm may have been set since for a later time; this one is not it.
            if state.alarm_at <= now {
                state.alarm_at = Instant::FAR;
            }
        });
    }
}

/// What a look at the scheduler came to.
struct Turned {
    /// Those whose answer is there now.
    wakers: Vec<Waker>,
    /// The answer to who has no waiter yet.
    own: Option<Answer>,
    /// When to look again, if no alarm rings by then.
    alarm_at: Option<Instant>,
}

impl State {
    fn submit(
        &mut self,
        errand: Errand,
        len: usize,
        now: Instant,
    ) -> std::result::Result<Ticket, Full> {
        let Errand { class, deadline, refusable } = errand;
        let cost = self.contract.cost(len as u64);
        let ticket = Ticket(self.last_ticket.0 + 1);
        let request = Request { class, cost, deadline, refusable };
        self.scheduler.submit(ticket, request, now)?;
        self.last_ticket = ticket;
        Ok(ticket)
    }

    /// Fetches every answer there is. `own` is a ticket that got no waiter so far: on the common way,
    /// where it need not wait, it never gets one.
    fn turn(&mut self, now: Instant, own: Option<Ticket>) -> Turned {
        let mut turned = Turned { wakers: Vec::new(), own: None, alarm_at: None };
        while let Some(event) = self.scheduler.poll(now) {
            let (ticket, answer) = match event {
                Event::Granted { ticket, cost } => (ticket, Answer::Granted(cost)),
                Event::Expired { ticket } => (ticket, Answer::Expired),
            };
            if Some(ticket) == own {
                turned.own = Some(answer);
            } else if let Some(waiter) = self.waiters.get_mut(&ticket) {
                turned.wakers.extend(waiter.answer(answer));
            }
        }
        turned.alarm_at = self.scheduler.next_wakeup().filter(|&at| at < self.alarm_at);
        self.alarm_at = turned.alarm_at.unwrap_or(self.alarm_at);
        turned
    }

    /// Gives `answer` to everyone who waits.
    fn answer_all(&mut self, answer: Answer) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for (&ticket, waiter) in &mut self.waiters {
            if self.scheduler.cancel(ticket) {
                wakers.extend(waiter.answer(answer));
            }
        }
        wakers
    }
}

impl Waiter {
    fn answer(&mut self, answer: Answer) -> Option<Waker> {
        match std::mem::replace(self, Self::Answered(answer)) {
            Self::Waits(waker) => Some(waker),
            Self::Answered(_) => None,
        }
    }
}

/// A request on its way through the turnstile; see [`Turnstile::pass`].
pub(super) struct Passing<'a> {
    turnstile: &'a Arc<Turnstile>,
    errand: Errand,
    len: usize,
    /// The ticket, while there is a waiter of that number.
    waits: Option<Ticket>,
}

impl Passing<'_> {
    /// Asks for the first time; on the common way this is all.
    fn submit(&mut self, cx: &Context<'_>) -> Poll<Result<Passed>> {
        let turnstile = self.turnstile;
        let mut state = turnstile.state.lock();
        if let Err(closed) = turnstile.check_open() {
            return Poll::Ready(Err(closed));
        }
        let now = turnstile.clock.now();
        let ticket = match state.submit(self.errand, self.len, now) {
            Ok(ticket) => ticket,
            Err(full) => return Poll::Ready(Err(turnstile.full_error(full))),
        };
        let turned = state.turn(now, Some(ticket));
        let own = turned.own;
        if own.is_none() {
            state.waiters.insert(ticket, Waiter::Waits(cx.waker().clone()));
            self.waits = Some(ticket);
        }
        drop(state);
        turnstile.follow_up(turned);
        own.map_or(Poll::Pending, |answer| Poll::Ready(self.outcome(answer, now)))
    }

    /// Asks again: the answer, or another waker.
    fn fetch(&mut self, ticket: Ticket, cx: &Context<'_>) -> Poll<Result<Passed>> {
        let mut state = self.turnstile.state.lock();
        match state.waiters.get_mut(&ticket) {
            Some(Waiter::Waits(waker)) if !waker.will_wake(cx.waker()) => {
                let unused = std::mem::replace(waker, cx.waker().clone());
                drop(state);
                drop(unused);
                Poll::Pending
            }
            Some(Waiter::Waits(_)) => Poll::Pending,
            Some(&mut Waiter::Answered(answer)) => {
                state.waiters.remove(&ticket);
                self.waits = None;
                drop(state);
                // It goes now, however long ago it was granted: waking up is not the device's time.
                Poll::Ready(self.outcome(answer, self.turnstile.clock.now()))
            }
            None => unreachable!("a waiter stays until it is fetched or given up"),
        }
    }

    fn outcome(&self, answer: Answer, now: Instant) -> Result<Passed> {
        match answer {
            Answer::Granted(cost) => Ok(Passed { class: self.errand.class, cost, at: now }),
            Answer::Expired => Err(self.turnstile.expired_error(self.errand.class)),
            Answer::Closed => Err(self.turnstile.closed_error()),
        }
    }
}

impl Future for Passing<'_> {
    type Output = Result<Passed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.waits {
            None => self.submit(cx),
            Some(ticket) => self.fetch(ticket, cx),
        }
    }
}

/// Giving up: who waited leaves the queue, and what was granted but not used is given back.
impl Drop for Passing<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.waits else { return };
        let mut waiter = None;
        self.turnstile.change(|state, _| {
            waiter = state.waiters.remove(&ticket);
            match waiter {
                Some(Waiter::Waits(_)) => {
                    state.scheduler.cancel(ticket);
                }
                Some(Waiter::Answered(Answer::Granted(cost))) => {
                    state.scheduler.refund(self.errand.class, cost);
                }
                _ => {}
            }
        });
        // Dropped here, without the lock: a waker may be the last that holds a task.
        drop(waiter);
    }
}

//! The admission queue of a gate: requests to one device wait here until the scheduler grants them.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use policy::ahead;
use policy::budget::{Part, Share};
use policy::contract::{Contract, Cost, Direction};
use policy::estimate::{Advice, Estimate, INTERVAL, IoKind, Learned, Seen};
use policy::price::Price;
use policy::purpose::{Class, Origin, Pressure, Purpose, Tenant};
use policy::sched::{Event, Full, Grant, Request, Scheduler, Ticket};
use policy::time::Instant;

use super::purposes::Purposes;
use super::{Answers, Meter, Unsynced};
use crate::buf::PAGE;
use crate::{Clock, Error, ErrorKind, Io, ReadTime, Result};

/// More than this is not written ahead at once: volumes write no more.
const AHEAD_BYTES_MAX: usize = 1 << 20;
/// What logs are taken to cost where a contract limits no operations: as on gp3.
const USUAL_PRICE: Price = Price::new(Some(43_690), 256 << 10);
/// The read of [`AdmissionQueue::expected_read`]: one operation, of a block as stores read them.
const USUAL_READ: Cost = Cost::reads(1, 4096);

/// Grants requests one by one, each charged for its bytes.
pub(super) struct AdmissionQueue {
    label: String,
    clock: Clock,
    closed: AtomicBool,
    /// Kept beside the state so that splitting a request needs no lock.
    piece_len: AtomicUsize,
    unsynced_max: AtomicUsize,
    answers: Answers,
    /// When to update the estimate next, in nanoseconds; never while it is off.
    look_at: AtomicU64,
    /// The same value as in the state.
    user_goes_at: Arc<AtomicU64>,
    has_journal: AtomicBool,
    /// What logs cost.
    ahead: Mutex<ahead::Terms>,
    purposes: Purposes,
    state: Mutex<State>,
}

struct State {
    /// What the volume was bought with.
    bought: Contract,
    /// The terms in force: no more than that.
    contract: Contract,
    /// The writes that the file system adds to a sync.
    journal_ops: u64,
    /// Whether logs are written ahead.
    writes_ahead: bool,
    /// The share of the contract to use if the volume gives it.
    share: Share,
    /// The estimate of what the volume really gives, while it is on.
    estimate: Option<Estimate>,
    scheduler: Box<dyn Scheduler>,
    last_ticket: Ticket,
    pressure: Pressure,
    /// By the first ticket of each.
    waiters: BTreeMap<Ticket, Waiter>,
    /// From the current ticket of a moved request to its first.
    moved: HashMap<Ticket, Ticket>,
    /// How many requests left the queue of each class for a more or less urgent one.
    moved_from: [u64; Class::ALL.len()],
    /// About when a user's read that came now would go, in nanoseconds. Written under the lock, and read without it.
    user_goes_at: Arc<AtomicU64>,
    /// The time of the earliest alarm that was set for this state and has not rung.
    alarm_at: Instant,
}

/// A request that was not granted at once.
enum Waiter {
    Waits {
        waker: Waker,
        ticket: Ticket,
        context: RequestContext,
        len: usize,
    },
    /// The answer is there, but not yet fetched.
    Answered(Answer),
}

#[derive(Clone, Copy)]
enum Answer {
    Granted(Class, Grant),
    Expired,
    Closed,
}

/// What the scheduler needs to know of a request besides its size.
#[derive(Clone, Copy)]
pub(super) struct RequestContext {
    class: Class,
    tenant: Tenant,
    /// The purpose; none for a sync of a log, whose bytes may have several.
    io: Option<Io>,
    is_write: bool,
    deadline: Option<Instant>,
    refusable: bool,
    of_user: bool,
    /// Whether the file system writes its journal along.
    journals: bool,
    /// Whether it is the sync of a log.
    is_sync: bool,
}

/// A request that may go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    pub(super) class: Class,
    pub(super) kind: IoKind,
    purpose: Purpose,
    /// When it was granted.
    pub(super) at: Instant,
    grant: Grant,
}

/// The result of trying to pass without waiting.
pub(super) enum Tried<'a> {
    /// Granted now.
    Passed(Passed),
    /// It waits.
    Waits(Passing<'a>),
}

impl RequestContext {
    /// The sync of a log of this store. It has no deadline and is never refused.
    const fn commit(tenant: Tenant, owed: Unsynced) -> Self {
        Self {
            class: Class::Commit,
            tenant,
            io: None,
            is_write: true,
            deadline: None,
            refusable: false,
            of_user: true,
            journals: owed.is_resized,
            is_sync: true,
        }
    }

    /// What the sync of a resized object adds to its writes. It has no deadline and is never refused: the data are on
    /// their way.
    const fn journal(io: Io) -> Self {
        Self { deadline: None, refusable: false, journals: true, ..Self::write(io) }
    }

    pub(super) const fn read(io: Io) -> Self {
        Self {
            class: io.class(),
            tenant: io.tenant,
            io: Some(io),
            is_write: false,
            deadline: io.deadline,
            refusable: io.refusable(),
            of_user: matches!(io.origin, Origin::UserRead | Origin::UserWrite | Origin::UserChange),
            journals: false,
            is_sync: false,
        }
    }

    pub(super) const fn write(io: Io) -> Self {
        Self { is_write: true, ..Self::read(io) }
    }

    fn under(self, pressure: Pressure) -> Self {
        let class = self.io.map_or(self.class, |io| io.class_under(pressure));
        Self { class, ..self }
    }
}

impl AdmissionQueue {
    pub(super) fn new(
        label: &str,
        contract: &Contract,
        share: Share,
        scheduler: Box<dyn Scheduler>,
        clock: Clock,
    ) -> Self {
        let user_goes_at = Arc::new(AtomicU64::new(0));
        let queue = Self {
            label: label.into(),
            clock,
            closed: AtomicBool::new(false),
            piece_len: AtomicUsize::new(0),
            unsynced_max: AtomicUsize::new(0),
            answers: Answers::default(),
            look_at: AtomicU64::new(u64::MAX),
            user_goes_at: Arc::clone(&user_goes_at),
            has_journal: AtomicBool::new(false),
            ahead: Mutex::new(ahead::Terms { price: USUAL_PRICE, journal_ops: 0, max: 0 }),
            purposes: Purposes::default(),
            state: Mutex::new(State {
                bought: contract.clone(),
                contract: contract.clone(),
                journal_ops: 0,
                writes_ahead: false,
                share,
                estimate: None,
                scheduler,
                last_ticket: Ticket(0),
                pressure: Pressure::default(),
                waiters: BTreeMap::new(),
                moved: HashMap::new(),
                moved_from: [0; Class::ALL.len()],
                user_goes_at,
                alarm_at: Instant::FAR,
            }),
        };
        queue.measure(&queue.state.lock());
        queue
    }

    /// The largest I/O to issue, in bytes: one operation, or less if the budget never holds the bytes of one. Whole
    /// pages, so that the pieces of an aligned request are aligned.
    pub(super) fn piece_len(&self) -> usize {
        self.piece_len.load(Ordering::Relaxed)
    }

    /// The most bytes of a log that a budget can pay for at once; unbounded without limits.
    pub(super) fn unsynced_max(&self) -> usize {
        self.unsynced_max.load(Ordering::Relaxed)
    }

    /// About how long a user's read that came now would wait, as [`Scheduler::expected`] says, and what the device takes
    /// then. Less urgent requests go after it, except within their reservations.
    pub(super) fn expected_read(&self) -> ReadTime {
        let now = self.clock.now();
        let wait = match self.user_goes_at.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            at => Instant::from_nanos(at).since(now),
        };
        ReadTime { wait, answer: self.answers.read_time(now) }
    }

    /// The part of the terms that users took in the last second.
    pub(super) fn users_load(&self) -> f64 {
        let state = self.state.lock();
        state.scheduler.window().used_by_users(&state.contract, self.clock.now())
    }

    /// Waits until a request of `len` bytes may go, and charges it. When this is ready the caller issues the request at
    /// once. Dropping the future before that costs nothing.
    ///
    /// # Errors
    /// `Busy` when the deadline passed, or the queue is full and the request may be refused; `Fenced`
    /// when the gate is closed.
    pub(super) fn pass(self: &Arc<Self>, context: RequestContext, len: usize) -> Passing<'_> {
        Passing { admission: self, context, len, waits: None }
    }

    /// Tries to pass a sync of what is `owed` by a store's log, and charges it if granted. With `before`, returns that charge in
    /// the same step and keeps its place: the request goes before all later ones of its class and
    /// store.
    ///
    /// The caller may hold a lock. It must call [`AdmissionQueue::follow_up`] without it, which wakes other granted
    /// requests.
    ///
    /// # Errors
    /// As for [`AdmissionQueue::pass`]. `before` is refunded in this case, too.
    pub(super) fn try_pass(
        self: &Arc<Self>,
        tenant: Tenant,
        owed: Unsynced,
        before: Option<Passed>,
    ) -> Result<(Tried<'_>, Polled)> {
        let mut passing = self.pass(RequestContext::commit(tenant, owed), owed.bytes);
        let (answer, polled) = passing.submit(before, Waker::noop())?;
        let tried = match answer {
            // A commit has no deadline, so it does not expire. No other request's grant is lost here.
            Some(answer) => Tried::Passed(answer?),
            None => Tried::Waits(passing),
        };
        Ok((tried, polled))
    }

    /// Whether the file system adds writes to a sync.
    pub(super) fn has_journal(&self) -> bool {
        self.has_journal.load(Ordering::Relaxed)
    }

    /// What logs cost, and how far they are written ahead.
    pub(super) fn ahead(&self) -> ahead::Terms {
        *self.ahead.lock()
    }

    pub(super) fn set_writes_ahead(self: &Arc<Self>, writes_ahead: bool) {
        self.change(|state, _| {
            state.writes_ahead = writes_ahead;
            self.measure(state);
        });
    }

    /// Charges the journal's writes for the sync of a resized object that is no log.
    ///
    /// # Errors
    /// `Fenced` when the gate is closed.
    pub(super) async fn pass_journal(self: &Arc<Self>, io: Io) -> Result<()> {
        if self.has_journal() {
            self.pass(RequestContext::journal(io), 0).await?;
        }
        Ok(())
    }

    /// Records that the device answered a granted request.
    pub(super) fn answered(self: &Arc<Self>, passed: Passed) {
        let now = self.clock.now();
        self.answers.record(passed.class, passed.kind, now.since(passed.at), now);
        if now.as_nanos() >= self.look_at.load(Ordering::Relaxed) {
            self.look();
        }
    }

    /// Updates the estimate with the answers so far, and follows its advice.
    fn look(self: &Arc<Self>) {
        let mut report = None;
        self.change(|state, now| {
            let Some(estimate) = &mut state.estimate else { return };
            // Another thread may have been first.
            if now.as_nanos() < self.look_at.load(Ordering::Relaxed) {
                return;
            }
            self.look_at.store((now + INTERVAL).as_nanos(), Ordering::Relaxed);
            let spent = Class::ALL.iter().map(|&class| state.scheduler.figures(class).spent);
            let spent = spent.fold(Cost::default(), |sum, spent| sum.plus(spent));
            let seen = Seen { answers: self.answers.of_kinds(), spent };
            match estimate.look(now, seen, state.share, state.scheduler.credits()) {
                None => {}
                Some(Advice::Use(part)) => {
                    state.scheduler.set_share(state.share.lowered(part), &state.contract, now);
                }
                Some(Advice::Lower { part, queue }) => {
                    state.scheduler.set_share(state.share.lowered(part), &state.contract, now);
                    state.scheduler.forget_saved(now + queue);
                }
                Some(Advice::ForgetCredits) => state.scheduler.forget_saved(now),
                Some(Advice::Report(part)) => report = Some((part, state.contract.name.clone())),
            }
        });
        if let Some((part, contract)) = report {
            tracing::warn!(
                volume = self.label,
                "the volume has given only {:.0} % of its contract ({contract}) for a minute: another client \
                 uses it, or less was bought; the gate uses less of it meanwhile",
                part * 100.0
            );
        }
    }

    /// Returns the charge of a request that was not issued.
    pub(super) fn refund(self: &Arc<Self>, passed: Passed) {
        self.take_back(passed);
        self.change(|state, _| state.scheduler.refund(passed.class, passed.grant.cost));
    }

    fn take_back(&self, passed: Passed) {
        self.purposes.take_back(passed.purpose, passed.grant.cost, passed.grant.waited());
    }

    pub(super) fn set_weight(self: &Arc<Self>, tenant: Tenant, weight: f64) {
        self.change(|state, _| state.scheduler.set_weight(tenant, weight));
    }

    pub(super) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(self.closed_error()) } else { Ok(()) }
    }

    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        self.closed.store(true, Ordering::Release);
        let wakers = state.answer_all(Answer::Closed);
        self.user_goes_at.store(0, Ordering::Relaxed);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Uses `most` of what is `bought` from now on; `None` for what was bought before.
    pub(super) fn set_contract(self: &Arc<Self>, bought: Option<&Contract>, most: &Contract) {
        self.change(|state, now| {
            state.scheduler.set_contract(most, now);
            state.contract = most.clone();
            let before = state.bought.clone();
            state.bought = bought.unwrap_or(&before).clone();
            if let Some(estimate) = &mut state.estimate {
                if state.bought != before && estimate.available().is_some() {
                    state.scheduler.forget_saved(now);
                }
                estimate.set_contract(&state.bought, now);
                estimate.set_most(most);
                let lowered = state.share.lowered(estimate.part());
                state.scheduler.set_share(lowered, most, now);
            }
            self.measure(state);
        });
    }

    pub(super) fn bought(&self) -> Contract {
        self.state.lock().bought.clone()
    }

    pub(super) fn set_share(self: &Arc<Self>, share: Share) {
        self.change(|state, now| {
            let lowered = share.lowered(state.part());
            state.scheduler.set_share(lowered, &state.contract, now);
            state.share = share;
            self.measure(state);
        });
    }

    pub(super) fn set_journal_ops(self: &Arc<Self>, ops: u64) {
        self.has_journal.store(ops > 0, Ordering::Relaxed);
        self.change(|state, _| {
            state.journal_ops = ops;
            self.measure(state);
        });
    }

    pub(super) fn set_pressure(self: &Arc<Self>, pressure: Pressure) {
        self.change(|state, now| {
            if pressure != state.pressure {
                state.pressure = pressure;
                state.move_queued(now);
            }
        });
    }

    pub(super) fn set_adapt(self: &Arc<Self>, adapt: bool) {
        self.change(|state, now| {
            if adapt == state.estimate.is_some() {
                return;
            }
            state.estimate = adapt.then(|| {
                let mut estimate = Estimate::new(&state.bought, now);
                estimate.set_most(&state.contract);
                estimate
            });
            state.scheduler.set_share(state.share, &state.contract, now);
            let look_at = if adapt { (now + INTERVAL).as_nanos() } else { u64::MAX };
            self.look_at.store(look_at, Ordering::Relaxed);
        });
    }

    pub(super) fn learned(&self) -> Option<Learned> {
        let state = self.state.lock();
        let learned = state.estimate.as_ref()?.learned();
        Some(Learned { credits: state.scheduler.credits(), ..learned })
    }

    pub(super) fn resume(self: &Arc<Self>, learned: &Learned) {
        self.change(|state, now| {
            let Some(estimate) = &mut state.estimate else { return };
            estimate.resume(learned, now);
            learned.credits.into_iter().for_each(|part| state.scheduler.set_credits(part));
            state.scheduler.set_share(state.share.lowered(estimate.part()), &state.contract, now);
            self.measure(state);
        });
    }

    pub(super) fn resume_usual(self: &Arc<Self>, kind: IoKind, time: Duration) {
        self.change(|state, _| {
            state.estimate.iter_mut().for_each(|estimate| estimate.resume_usual(kind, time));
        });
    }

    pub(super) fn meter(&self) -> Meter {
        let state = self.state.lock();
        let now = self.clock.now();
        let window = state.scheduler.window();
        let used = state.share.lowered(state.part());
        Meter {
            contract: state.contract.clone(),
            share: state.share,
            rho: used.rho(),
            beta: used.beta(),
            available: state.estimate.as_ref().and_then(Estimate::available),
            finding: state.estimate.as_ref().map(Estimate::finding),
            credits: state.scheduler.credits(),
            journal_ops: state.journal_ops,
            classes: Class::ALL.map(|class| {
                let mut figures = state.scheduler.figures(class);
                figures.cancelled -= state.moved_from[class.index()];
                figures
            }),
            purposes: Purpose::ALL.map(|purpose| self.purposes.figures(purpose)),
            answers: Class::ALL.map(|class| self.answers.of(class)),
            usual_read: self.answers.usual_read().unwrap_or_else(|| state.contract.usual_read()),
            usual_io: self.answers.usual_io(),
            tenants: state.scheduler.tenants(),
            last_second: window.last_second(now),
            used: window.used(&state.contract, now),
        }
    }

    fn measure(&self, state: &State) {
        let (largest, journal) = (state.scheduler.largest(), state.journal());
        let op_bytes_max = state.contract.op_bytes_max;
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let piece_len = bytes(op_bytes_max.min(largest.bytes));
        let unsynced_max = match state.contract.limits[..] {
            // Nothing is charged.
            [] => usize::MAX,
            _ => {
                let ops = largest.ops - journal.ops;
                bytes((largest.bytes - journal.bytes).min(ops.saturating_mul(op_bytes_max)))
            }
        };
        let piece_len = (piece_len / PAGE * PAGE).max(PAGE);
        self.piece_len.store(piece_len, Ordering::Relaxed);
        self.unsynced_max.store(unsynced_max.max(PAGE), Ordering::Relaxed);
        let price = Price::of(&state.contract).unwrap_or(USUAL_PRICE);
        let is_off = !state.writes_ahead || state.journal_ops == 0;
        *self.ahead.lock() = ahead::Terms {
            price: Price { io_max: price.io_max.min(piece_len as u64), ..price },
            journal_ops: state.journal_ops,
            max: if is_off { 0 } else { unsynced_max.min(AHEAD_BYTES_MAX) },
        };
    }

    /// Changes the state, then wakes every request that may go now.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut State, Instant)) {
        let mut state = self.state.lock();
        let now = self.clock.now();
        change(&mut state, now);
        let polled = state.poll(now, None);
        drop(state);
        self.follow_up(polled);
    }

    /// Sets the alarm and wakes the requests of `polled`. Called without the lock: wakers may run anything.
    pub(super) fn follow_up(self: &Arc<Self>, polled: Polled) {
        if let Some(at) = polled.alarm_at {
            self.clock.wake_at(at, Arc::clone(self).into());
        }
        polled.wakers.into_iter().for_each(Waker::wake);
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
impl Wake for AdmissionQueue {
    fn wake(self: Arc<Self>) {
        self.change(|state, now| {
            // An alarm for a later time may be set; this one is not it.
            if state.alarm_at <= now {
                state.alarm_at = Instant::FAR;
            }
        });
    }
}

/// The result of polling the scheduler.
#[must_use = "those who may go are to be woken"]
pub(super) struct Polled {
    /// The requests whose answer arrived.
    wakers: Vec<Waker>,
    /// The answer to the caller's own ticket, which has no waiter yet: its grant, or `None` for a deadline that passed.
    own: Option<Option<Grant>>,
    /// When to poll again, if no alarm rings by then.
    alarm_at: Option<Instant>,
}

impl State {
    /// How much of the share the estimate lets the gate use.
    fn part(&self) -> Part {
        self.estimate.as_ref().map_or(Part::ALL, Estimate::part)
    }

    /// The cost of one sync's journal: pages, or less where a budget never holds them and a page of data.
    fn journal(&self) -> Cost {
        let (page, largest) = (PAGE as u64, self.scheduler.largest());
        Cost::writes(
            self.journal_ops.min(largest.ops - 1),
            (self.journal_ops * page).min(largest.bytes.saturating_sub(page)),
        )
    }

    fn cost(&self, context: RequestContext, len: usize) -> Cost {
        let direction = if context.is_write { Direction::Write } else { Direction::Read };
        let data = self.contract.cost(direction, len as u64);
        if !context.journals {
            return data;
        }
        let journal = self.journal();
        match len {
            0 => journal,
            _ => data.plus(journal),
        }
    }

    fn submit(
        &mut self,
        context: RequestContext,
        len: usize,
        now: Instant,
    ) -> std::result::Result<Ticket, Full> {
        let RequestContext { class, tenant, deadline, refusable, of_user, .. } = context;
        let cost = self.cost(context, len);
        let ticket = Ticket(self.last_ticket.0 + 1);
        let request = Request { class, tenant, cost, deadline, refusable, of_user };
        self.scheduler.submit(ticket, request, now)?;
        self.last_ticket = ticket;
        Ok(ticket)
    }

    /// Moves every waiting request whose class changed to the end of its new class. Its wait is counted from here.
    fn move_queued(&mut self, now: Instant) {
        let pressure = self.pressure;
        let mut moving = Vec::new();
        for (&first, waiter) in &mut self.waiters {
            let Waiter::Waits { ticket, context, len, .. } = waiter else { continue };
            let under = context.under(pressure);
            if under.class != context.class && self.scheduler.cancel(*ticket) {
                self.moved_from[context.class.index()] += 1;
                self.moved.remove(ticket);
                moving.push((first, under, *len));
            }
        }
        for (first, under, len) in moving {
            // They were queued already: a full queue of the new class must not refuse them.
            let under = RequestContext { refusable: false, ..under };
            let moved = self.submit(under, len, now).expect("only refusable requests are refused");
            self.moved.insert(moved, first);
            if let Some(Waiter::Waits { ticket, context, .. }) = self.waiters.get_mut(&first) {
                (*ticket, *context) = (moved, under);
            }
        }
    }

    /// Fetches all answers. `own` is a ticket without a waiter: in the common case, a grant at once, it never gets one.
    fn poll(&mut self, now: Instant, own: Option<Ticket>) -> Polled {
        let mut polled = Polled { wakers: Vec::new(), own: None, alarm_at: None };
        while let Some(event) = self.scheduler.poll(now) {
            let (ticket, answer) = match event {
                Event::Granted(grant) => (grant.ticket, Some(grant)),
                Event::Expired { ticket } => (ticket, None),
            };
            if Some(ticket) == own {
                polled.own = Some(answer);
                continue;
            }
            let first = self.moved.remove(&ticket).unwrap_or(ticket);
            if let Some(waiter) = self.waiters.get_mut(&first) {
                let class = waiter.class();
                let answer = answer.map_or(Answer::Expired, |grant| Answer::Granted(class, grant));
                polled.wakers.extend(waiter.answer(answer));
            }
        }
        let goes_at = self.scheduler.expected(USUAL_READ, now).map_or(0, Instant::as_nanos);
        self.user_goes_at.store(goes_at, Ordering::Relaxed);
        polled.alarm_at = self.scheduler.next_wakeup().filter(|&at| at < self.alarm_at);
        self.alarm_at = polled.alarm_at.unwrap_or(self.alarm_at);
        polled
    }

    /// Gives `answer` to every waiting request.
    fn answer_all(&mut self, answer: Answer) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for waiter in self.waiters.values_mut() {
            let Waiter::Waits { ticket, .. } = *waiter else { continue };
            if self.scheduler.cancel(ticket) {
                self.moved.remove(&ticket);
                wakers.extend(waiter.answer(answer));
            }
        }
        wakers
    }
}

impl Waiter {
    fn answer(&mut self, answer: Answer) -> Option<Waker> {
        match std::mem::replace(self, Self::Answered(answer)) {
            Self::Waits { waker, .. } => Some(waker),
            Self::Answered(_) => None,
        }
    }

    /// The class of its queue.
    const fn class(&self) -> Class {
        match self {
            Self::Waits { context, .. } => context.class,
            // Unreachable in practice: an answer is given once.
            Self::Answered(_) => Class::Idle,
        }
    }
}

/// A request in the admission queue; see [`AdmissionQueue::pass`].
pub(super) struct Passing<'a> {
    admission: &'a Arc<AdmissionQueue>,
    context: RequestContext,
    len: usize,
    /// The ticket of its waiter, while there is one.
    waits: Option<Ticket>,
}

impl Passing<'_> {
    /// Submits the request, in the place of `before` if given. Returns the answer if it is there, as it is in the
    /// common case.
    fn submit(
        &mut self,
        before: Option<Passed>,
        waker: &Waker,
    ) -> Result<(Option<Result<Passed>>, Polled)> {
        let admission = self.admission;
        before.into_iter().for_each(|before| admission.take_back(before));
        let mut state = admission.state.lock();
        if let Err(closed) = admission.check_open() {
            // The gate is closed: no waiter is left to wake.
            if let Some(before) = before {
                state.scheduler.refund(before.class, before.grant.cost);
            }
            return Err(closed);
        }
        let now = admission.clock.now();
        let context = self.context.under(state.pressure);
        let ticket = match before {
            None => {
                state.submit(context, self.len, now).map_err(|full| admission.full_error(full))?
            }
            Some(before) => {
                let cost = state.cost(context, self.len);
                state.scheduler.put_back(before.grant, cost, now);
                before.grant.ticket
            }
        };
        let polled = state.poll(now, Some(ticket));
        if polled.own.is_none() {
            let (waker, len) = (waker.clone(), self.len);
            state.waiters.insert(ticket, Waiter::Waits { waker, ticket, context, len });
            self.waits = Some(ticket);
        }
        drop(state);
        let answer = polled.own.map(|own| {
            let granted = own.map(|grant| Answer::Granted(context.class, grant));
            self.outcome(granted.unwrap_or(Answer::Expired), now)
        });
        Ok((answer, polled))
    }

    /// Fetches the answer, or registers another waker.
    fn fetch(&mut self, ticket: Ticket, cx: &Context<'_>) -> Poll<Result<Passed>> {
        let mut state = self.admission.state.lock();
        match state.waiters.get_mut(&ticket) {
            Some(Waiter::Waits { waker, .. }) if !waker.will_wake(cx.waker()) => {
                let unused = std::mem::replace(waker, cx.waker().clone());
                drop(state);
                drop(unused);
                Poll::Pending
            }
            Some(Waiter::Waits { .. }) => Poll::Pending,
            Some(&mut Waiter::Answered(answer)) => {
                state.waiters.remove(&ticket);
                self.waits = None;
                drop(state);
                // The device's time starts now, however long ago the grant was: waking up is not part of it.
                Poll::Ready(self.outcome(answer, self.admission.clock.now()))
            }
            None => unreachable!("a waiter stays until it is fetched or given up"),
        }
    }

    fn outcome(&self, answer: Answer, now: Instant) -> Result<Passed> {
        match answer {
            Answer::Granted(class, grant) => {
                let kind = match self.context.is_sync {
                    true => IoKind::Sync,
                    false => IoKind::of(self.context.is_write, self.len),
                };
                let purpose = self.context.io.map_or(Purpose::Log, |io| io.purpose());
                self.admission.purposes.record(purpose, grant.cost, grant.waited());
                Ok(Passed { class, kind, purpose, at: now, grant })
            }
            Answer::Expired => Err(self.admission.expired_error(self.context.class)),
            Answer::Closed => Err(self.admission.closed_error()),
        }
    }
}

impl Future for Passing<'_> {
    type Output = Result<Passed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.waits {
            None => {
                let (answer, polled) = self.submit(None, cx.waker())?;
                self.admission.follow_up(polled);
                answer.map_or(Poll::Pending, Poll::Ready)
            }
            Some(ticket) => self.fetch(ticket, cx),
        }
    }
}

/// Cancels: a waiting request leaves the queue, and an unused grant is refunded.
impl Drop for Passing<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.waits else { return };
        let mut waiter = None;
        self.admission.change(|state, _| {
            waiter = state.waiters.remove(&ticket);
            match waiter {
                Some(Waiter::Waits { ticket, .. }) => {
                    state.scheduler.cancel(ticket);
                    state.moved.remove(&ticket);
                }
                Some(Waiter::Answered(Answer::Granted(class, grant))) => {
                    state.scheduler.refund(class, grant.cost);
                }
                _ => {}
            }
        });
        // Dropped without the lock: a waker may hold the last reference to a task.
        drop(waiter);
    }
}

//! The state common to all schedulers: the waiting requests of each class, their deadlines, and figures.
//!
//! Each class has a lane, and [`Lane`] has the order in it.
//!
//! The head of a queue may have paid a part of its cost. [`Queues`] has no budget: it hands such a part back to the
//! scheduler, which knows the budget it came from.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::lane::{Lane, Waiting};
use super::{Event, Figures, Full, Grant, Request, TenantFigures, Ticket, Window};
use crate::budget::Budget;
use crate::contract::{Contract, Cost};
use crate::purpose::{Class, Tenant};
use crate::time::Instant;

const CLASSES: usize = Class::ALL.len();

const FOREGROUND: usize = Class::Foreground.index();

/// The lane of raised work in the users' class, for schedulers that separate it. Every other lane has the index of its
/// class.
pub(super) const RAISED: usize = CLASSES;

/// One queue for each class, fair between stores or first come first served.
#[derive(Clone, Debug)]
pub(super) struct Queues {
    lanes: [Lane; CLASSES + 1],
    /// Nanoseconds in which an operation and a byte are earned: the unit in which stores get equal parts. Zeros: each
    /// lane goes in order of arrival.
    prices: (f64, f64),
    /// The weights of stores that do not have 1.
    weights: BTreeMap<Tenant, f64>,
    tenants: BTreeMap<Tenant, TenantFigures>,
    /// The summed cost of the waiting requests of each class.
    waiting: [Cost; CLASSES],
    /// Whether raised work in the users' class waits in a lane of its own.
    apart: bool,
    figures: [Figures; Class::ALL.len()],
    window: Window,
    /// How many may wait in a class before refusable requests are refused.
    max: usize,
    /// The terms' [`Contract::op_bytes_max`], by which the waiting requests are priced.
    op_bytes_max: u64,
    /// Expired requests that are not yet reported.
    expired: VecDeque<Ticket>,
    /// No waiting request has an earlier deadline.
    deadlines_from: Instant,
}

/// The place of a request before its grant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Place {
    lane: usize,
    tenant: Tenant,
    since: Instant,
    deadline: Instant,
    granted_at: Instant,
    /// It was granted from spare tokens and does not count against its class.
    is_spare: bool,
    of_user: bool,
}

impl Place {
    /// The index of the class.
    pub(super) const fn class(&self) -> usize {
        class_of(self.lane)
    }

    pub(super) const fn granted_at(&self) -> Instant {
        self.granted_at
    }

    /// How long the request waited.
    pub(super) fn waited(&self) -> Duration {
        self.granted_at.since(self.since)
    }

    pub(super) const fn is_spare(&self) -> bool {
        self.is_spare
    }
}

impl Queues {
    pub(super) fn new(contract: &Contract, max: usize) -> Self {
        Self {
            lanes: Default::default(),
            prices: (0.0, 0.0),
            weights: BTreeMap::new(),
            tenants: BTreeMap::new(),
            waiting: Default::default(),
            apart: false,
            figures: Default::default(),
            window: Window::default(),
            max,
            op_bytes_max: contract.op_bytes_max,
            expired: VecDeque::new(),
            deadlines_from: Instant::FAR,
        }
    }

    /// Lets raised work in the users' class wait in the lane [`RAISED`].
    pub(super) fn keep_raised_apart(&mut self) {
        self.apart = true;
    }

    /// Shares each lane fairly between stores, by what their requests take of this budget.
    pub(super) fn share_by(&mut self, budget: &Budget) {
        let nanos = |ops, bytes| budget.nanos(Cost::either(ops, bytes));
        self.prices = (nanos(1, 0), nanos(0, 1));
    }

    /// Gives a store this weight beside others.
    pub(super) fn set_weight(&mut self, tenant: Tenant, weight: f64) {
        assert!(weight > 0.0 && weight.is_finite(), "{weight} is a weight");
        self.weights.insert(tenant, weight);
    }

    /// A request's cost over the weight of its store.
    fn price(prices: (f64, f64), weights: &BTreeMap<Tenant, f64>, of: Tenant, cost: Cost) -> f64 {
        let nanos = (cost.ops as f64 * prices.0).max(cost.bytes as f64 * prices.1);
        nanos / weights.get(&of).copied().unwrap_or(1.0)
    }

    /// Queues a request, unless it may be refused and its queue is full.
    pub(super) fn push(
        &mut self,
        ticket: Ticket,
        request: Request,
        now: Instant,
    ) -> Result<(), Full> {
        let Request { class, tenant, cost, deadline, refusable, of_user } = request;
        let raised = self.apart && class == Class::Foreground && !of_user;
        let queued = self.queued_in(class);
        if refusable && queued >= self.max {
            self.figures[class.index()].refused += 1;
            return Err(Full { class, queued });
        }
        let lane = &mut self.lanes[if raised { RAISED } else { class.index() }];
        let deadline = deadline.unwrap_or(Instant::FAR);
        self.deadlines_from = self.deadlines_from.min(deadline);
        let paid = Cost::default();
        lane.push(Waiting { ticket, tenant, cost, paid, of_user, since: now, deadline });
        let waiting = &mut self.waiting[class.index()];
        *waiting = waiting.plus(cost);
        Ok(())
    }

    /// Reports one expired request; `back` takes what expired requests had paid, with the index of their class.
    pub(super) fn expired(&mut self, now: Instant, back: impl FnMut(usize, Cost)) -> Option<Event> {
        if now >= self.deadlines_from {
            self.expire(now, back);
        }
        self.expired.pop_front().map(|ticket| Event::Expired { ticket })
    }

    fn expire(&mut self, now: Instant, mut back: impl FnMut(usize, Cost)) {
        self.deadlines_from = Instant::FAR;
        for (lane, queue) in self.lanes.iter_mut().enumerate() {
            let index = class_of(lane);
            queue.retain(|waiting| {
                let alive = now < waiting.deadline;
                if alive {
                    self.deadlines_from = self.deadlines_from.min(waiting.deadline);
                } else {
                    back(index, waiting.paid);
                    self.expired.push_back(waiting.ticket);
                    self.figures[index].expired += 1;
                    self.waiting[index] = self.waiting[index].less(waiting.cost);
                }
                alive
            });
        }
    }

    /// The index of the most urgent class with a waiting request.
    pub(super) fn first(&self) -> Option<usize> {
        let class = self.lanes[..CLASSES].iter().position(|queue| !queue.is_empty());
        if self.lanes[RAISED].is_empty() {
            return class;
        }
        Some(class.map_or(FOREGROUND, |class| class.min(FOREGROUND)))
    }

    /// The length of a lane.
    pub(super) fn queued(&self, lane: usize) -> u64 {
        self.lanes[lane].len() as u64
    }

    /// The number of waiting requests of a class.
    fn queued_in(&self, class: Class) -> usize {
        let raised = if class == Class::Foreground { self.lanes[RAISED].len() } else { 0 };
        self.lanes[class.index()].len() + raised
    }

    /// The summed cost of waiting users and commits.
    pub(super) fn before_users(&self) -> Cost {
        self.waiting_to(Class::Foreground)
    }

    /// The summed cost of the waiting requests of a class.
    pub(super) fn waiting(&self, class: Class) -> Cost {
        self.waiting[class.index()]
    }

    /// The summed cost of the waiting requests of all classes down to `class`.
    pub(super) fn waiting_to(&self, class: Class) -> Cost {
        self.waiting[..=class.index()].iter().fold(Cost::default(), |all, &cost| all.plus(cost))
    }

    /// The head of a lane.
    pub(super) fn head(&self, lane: usize) -> Option<&Waiting> {
        self.lanes[lane].head()
    }

    /// The same, mutable, to pay for it.
    pub(super) fn head_mut(&mut self, lane: usize) -> Option<&mut Waiting> {
        self.lanes[lane].head_mut()
    }

    /// Grants the head of a lane, which is fully paid.
    ///
    /// # Panics
    /// When the lane is empty.
    pub(super) fn grant(&mut self, lane: usize, now: Instant) -> Event {
        let (prices, weights) = (self.prices, &self.weights);
        let price = |head: &Waiting| Self::price(prices, weights, head.tenant, head.paid);
        let head = self.lanes[lane].pop(price).expect("the lane has a head");
        let index = class_of(lane);
        self.waiting[index] = self.waiting[index].less(head.cost);
        let figures = &mut self.figures[index];
        figures.granted += 1;
        figures.spent = figures.spent.plus(head.paid);
        figures.waits.record(now.since(head.since));
        self.window.spend(now, head.paid, head.of_user);
        let of_tenant = self.tenants.entry(head.tenant).or_default();
        of_tenant.granted += 1;
        of_tenant.spent = of_tenant.spent.plus(head.paid);
        let Waiting { ticket, tenant, paid: cost, of_user, since, deadline, .. } = head;
        let (granted_at, is_spare) = (now, false);
        let place = Place { lane, tenant, since, deadline, granted_at, is_spare, of_user };
        Event::Granted(Grant { ticket, cost, place })
    }

    /// Like [`Queues::grant`], from spare tokens.
    pub(super) fn grant_spare(&mut self, lane: usize, now: Instant) -> Event {
        let mut event = self.grant(lane, now);
        if let Event::Granted(grant) = &mut event {
            grant.place.is_spare = true;
        }
        event
    }

    /// Undoes a grant: its request waits again for `cost`, before those of its store with later tickets.
    pub(super) fn put_back(&mut self, grant: Grant, cost: Cost) {
        let Grant { ticket, cost: spent, place } = grant;
        let Place { lane, tenant, since, deadline, granted_at, of_user, .. } = place;
        let index = class_of(lane);
        self.window.refund(spent, of_user);
        let figures = &mut self.figures[index];
        figures.granted -= 1;
        figures.spent = figures.spent.less(spent);
        figures.waits.forget(granted_at.since(since));
        self.waiting[index] = self.waiting[index].plus(cost);
        self.deadlines_from = self.deadlines_from.min(deadline);
        let of_tenant = self.tenants.entry(tenant).or_default();
        of_tenant.granted -= 1;
        of_tenant.spent = of_tenant.spent.less(spent);
        let price = Self::price(self.prices, &self.weights, tenant, spent);
        let paid = Cost::default();
        let waiting = Waiting { ticket, tenant, cost, paid, of_user, since, deadline };
        self.lanes[lane].put_back(waiting, price);
    }

    /// Removes the request of that ticket; returns the index of its class and what it had paid.
    pub(super) fn cancel(&mut self, ticket: Ticket) -> Option<(usize, Cost)> {
        for (lane, queue) in self.lanes.iter_mut().enumerate() {
            if let Some(waiting) = queue.remove(ticket) {
                let index = class_of(lane);
                self.waiting[index] = self.waiting[index].less(waiting.cost);
                self.figures[index].cancelled += 1;
                return Some((index, waiting.paid));
            }
        }
        None
    }

    /// Takes unused grants out of the spending: those of the users' classes out of the users'.
    pub(super) fn refund(&mut self, class: Class, cost: Cost) {
        self.window.refund(cost, class <= Class::Foreground);
        let figures = &mut self.figures[class.index()];
        figures.spent = figures.spent.less(cost);
    }

    /// Prices all waiting requests by the new terms; `back` takes what they paid beyond the new price. Operations beside
    /// those of its bytes, as of a journal, stay a part of the price.
    pub(super) fn reprice(&mut self, contract: &Contract, mut back: impl FnMut(usize, Cost)) {
        if contract.op_bytes_max == self.op_bytes_max {
            return;
        }
        let old = Contract { op_bytes_max: self.op_bytes_max, ..contract.clone() };
        self.op_bytes_max = contract.op_bytes_max;
        self.waiting = Default::default();
        for (lane, queue) in self.lanes.iter_mut().enumerate() {
            let index = class_of(lane);
            for waiting in queue.iter_mut() {
                let by =
                    |terms: &Contract| terms.cost(waiting.cost.direction(), waiting.cost.bytes);
                waiting.cost = by(contract).plus(waiting.cost.less(by(&old)));
                self.waiting[index] = self.waiting[index].plus(waiting.cost);
                back(index, waiting.paid.less(waiting.cost));
                waiting.paid = waiting.paid.least(waiting.cost);
            }
        }
    }

    /// The next time to poll, if the next request can go at `at`.
    pub(super) fn wakeup(&self, at: Option<Instant>) -> Option<Instant> {
        at.map(|at| at.min(self.deadlines_from))
    }

    /// No request waits, so no deadline is left.
    pub(super) fn rest(&mut self) {
        self.deadlines_from = Instant::FAR;
    }

    pub(super) fn figures(&self, class: Class) -> Figures {
        let queued = self.queued_in(class) as u64;
        Figures { queued, ..self.figures[class.index()].clone() }
    }

    /// The figures of each store that was granted anything.
    pub(super) fn tenants(&self) -> Vec<(Tenant, TenantFigures)> {
        let of = |(&tenant, figures): (&Tenant, &TenantFigures)| {
            let queued = self.lanes.iter().map(|lane| lane.len_of(tenant) as u64).sum();
            (tenant, TenantFigures { queued, ..*figures })
        };
        self.tenants.iter().map(of).collect()
    }

    pub(super) const fn window(&self) -> &Window {
        &self.window
    }
}

/// The class of a lane.
pub(super) const fn class_of(lane: usize) -> usize {
    if lane == RAISED { FOREGROUND } else { lane }
}

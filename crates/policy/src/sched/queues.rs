//! The state common to all schedulers: the waiting requests of each class, their deadlines, and figures.
//!
//! The head of a queue may have paid a part of its cost. [`Queues`] has no budget: it hands such a part back to the
//! scheduler, which knows the budget it came from.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Event, Figures, Full, Grant, Request, Ticket, Window};
use crate::contract::{Contract, Cost};
use crate::purpose::Class;
use crate::time::Instant;

const CLASSES: usize = Class::ALL.len();

const FOREGROUND: usize = Class::Foreground.index();

/// The lane of raised work in the users' class, for schedulers that separate it. Every other lane has the index of its
/// class.
pub(super) const RAISED: usize = CLASSES;

/// One FIFO queue for each class.
#[derive(Clone, Debug)]
pub(super) struct Queues {
    lanes: [VecDeque<Waiting>; CLASSES + 1],
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

/// A waiting request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    pub(super) cost: Cost,
    /// The part of the cost already paid.
    pub(super) paid: Cost,
    pub(super) since: Instant,
    /// [`Instant::FAR`] if it has none.
    deadline: Instant,
}

/// The place of a request before its grant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Place {
    lane: usize,
    since: Instant,
    deadline: Instant,
    granted_at: Instant,
    /// It was granted from spare tokens and does not count against its class.
    is_spare: bool,
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

impl Waiting {
    /// The rest of the cost.
    pub(super) fn owed(&self) -> Cost {
        self.cost.less(self.paid)
    }
}

impl Queues {
    pub(super) fn new(contract: &Contract, max: usize) -> Self {
        Self {
            lanes: Default::default(),
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

    /// Queues a request, unless it may be refused and its queue is full.
    pub(super) fn push(
        &mut self,
        ticket: Ticket,
        request: Request,
        now: Instant,
    ) -> Result<(), Full> {
        let Request { class, cost, deadline, refusable, of_user } = request;
        let raised = self.apart && class == Class::Foreground && !of_user;
        let queued = self.queued_in(class);
        if refusable && queued >= self.max {
            self.figures[class.index()].refused += 1;
            return Err(Full { class, queued });
        }
        let queue = &mut self.lanes[if raised { RAISED } else { class.index() }];
        assert!(queue.back().is_none_or(|last| last.ticket < ticket), "tickets ascend");
        let deadline = deadline.unwrap_or(Instant::FAR);
        self.deadlines_from = self.deadlines_from.min(deadline);
        queue.push_back(Waiting { ticket, cost, paid: Cost::default(), since: now, deadline });
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
        self.lanes[lane].front()
    }

    /// The same, mutable, to pay for it.
    pub(super) fn head_mut(&mut self, lane: usize) -> Option<&mut Waiting> {
        self.lanes[lane].front_mut()
    }

    /// Grants the head of a lane, which is fully paid.
    ///
    /// # Panics
    /// When the lane is empty.
    pub(super) fn grant(&mut self, lane: usize, now: Instant) -> Event {
        let head = self.lanes[lane].pop_front().expect("the lane has a head");
        let index = class_of(lane);
        self.waiting[index] = self.waiting[index].less(head.cost);
        let figures = &mut self.figures[index];
        figures.granted += 1;
        figures.spent = figures.spent.plus(head.paid);
        figures.waits.record(now.since(head.since));
        self.window.spend(now, head.paid);
        let Waiting { ticket, paid: cost, since, deadline, .. } = head;
        Event::Granted(Grant {
            ticket,
            cost,
            place: Place { lane, since, deadline, granted_at: now, is_spare: false },
        })
    }

    /// Like [`Queues::grant`], from spare tokens.
    pub(super) fn grant_spare(&mut self, lane: usize, now: Instant) -> Event {
        let mut event = self.grant(lane, now);
        if let Event::Granted(grant) = &mut event {
            grant.place.is_spare = true;
        }
        event
    }

    /// Undoes a grant: its request waits again for `cost`, before all with later tickets.
    pub(super) fn put_back(&mut self, grant: Grant, cost: Cost) {
        let Grant { ticket, cost: spent, place } = grant;
        let Place { lane, since, deadline, granted_at, .. } = place;
        let index = class_of(lane);
        self.window.refund(spent);
        let figures = &mut self.figures[index];
        figures.granted -= 1;
        figures.spent = figures.spent.less(spent);
        figures.waits.forget(granted_at.since(since));
        self.waiting[index] = self.waiting[index].plus(cost);
        self.deadlines_from = self.deadlines_from.min(deadline);
        let queue = &mut self.lanes[lane];
        let before = queue.partition_point(|waiting| waiting.ticket < ticket);
        queue.insert(before, Waiting { ticket, cost, paid: Cost::default(), since, deadline });
    }

    /// Removes the request of that ticket; returns the index of its class and what it had paid.
    pub(super) fn cancel(&mut self, ticket: Ticket) -> Option<(usize, Cost)> {
        for (lane, queue) in self.lanes.iter_mut().enumerate() {
            if let Ok(place) = queue.binary_search_by_key(&ticket, |waiting| waiting.ticket) {
                let waiting = queue.remove(place)?;
                let index = class_of(lane);
                self.waiting[index] = self.waiting[index].less(waiting.cost);
                self.figures[index].cancelled += 1;
                return Some((index, waiting.paid));
            }
        }
        None
    }

    /// Takes unused grants out of the spending.
    pub(super) fn refund(&mut self, class: Class, cost: Cost) {
        self.window.refund(cost);
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
            for waiting in queue {
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

    pub(super) const fn window(&self) -> &Window {
        &self.window
    }
}

/// The class of a lane.
pub(super) const fn class_of(lane: usize) -> usize {
    if lane == RAISED { FOREGROUND } else { lane }
}

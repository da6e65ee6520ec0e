//! What every scheduler keeps besides its rule: who waits in which class, until when, and what
//! happened so far.
//!
//! Whoever is first in a class may have paid a part of its cost. [`Queues`] never touches a budget: it
//! hands such a part back to the scheduler, which knows whose tokens they are.

use std::collections::VecDeque;

use super::{Event, Figures, Full, Grant, Request, Ticket, Window};
use crate::contract::{Contract, Cost};
use crate::purpose::Class;
use crate::time::Instant;

const CLASSES: usize = Class::ALL.len();

const FOREGROUND: usize = Class::Foreground.index();

/// The lane of work in the users' class, of queues that keep it apart. Every other lane has the index of
/// its class.
pub(super) const RAISED: usize = CLASSES;

/// One queue for each class, first come first served.
#[derive(Clone, Debug)]
pub(super) struct Queues {
    lines: [VecDeque<Waiting>; CLASSES + 1],
    /// What all who wait in a class cost together.
    waiting: [Cost; CLASSES],
    /// Whether work in the users' class waits in a lane of its own.
    apart: bool,
    figures: [Figures; Class::ALL.len()],
    window: Window,
    /// How many may wait in a class before refusable requests are turned away.
    max: usize,
    /// Found expired, not yet told.
    expired: VecDeque<Ticket>,
    /// No deadline of anyone who waits is earlier.
    deadlines_from: Instant,
}

/// Somebody who waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    pub(super) cost: Cost,
    /// What was paid of it already.
    pub(super) paid: Cost,
    pub(super) since: Instant,
    /// [`Instant::FAR`] if it has none.
    deadline: Instant,
}

/// Where a request waited before it was granted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Place {
    lane: usize,
    since: Instant,
    deadline: Instant,
    granted_at: Instant,
    /// It was granted from what others left, and is not held against its class.
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

    pub(super) const fn is_spare(&self) -> bool {
        self.is_spare
    }
}

impl Waiting {
    /// What is still to be paid.
    pub(super) fn owed(&self) -> Cost {
        less(self.cost, self.paid)
    }
}

impl Queues {
    pub(super) fn new(max: usize) -> Self {
        Self {
            lines: Default::default(),
            waiting: Default::default(),
            apart: false,
            figures: Default::default(),
            window: Window::default(),
            max,
            expired: VecDeque::new(),
            deadlines_from: Instant::FAR,
        }
    }

    /// Lets work in the users' class wait in the lane [`RAISED`], for a scheduler that asks for both.
    pub(super) fn keep_raised_apart(&mut self) {
        self.apart = true;
    }

    /// Takes in a request, unless it may be refused and its queue is full.
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
        let line = &mut self.lines[if raised { RAISED } else { class.index() }];
        assert!(line.back().is_none_or(|last| last.ticket < ticket), "tickets ascend");
        let deadline = deadline.unwrap_or(Instant::FAR);
        self.deadlines_from = self.deadlines_from.min(deadline);
        line.push_back(Waiting { ticket, cost, paid: Cost::default(), since: now, deadline });
        let waiting = &mut self.waiting[class.index()];
        *waiting = sum(*waiting, cost);
        Ok(())
    }

    /// Tells of one whose deadline passed; `back` takes what those had paid, by the index of their
    /// class.
    pub(super) fn expired(&mut self, now: Instant, back: impl FnMut(usize, Cost)) -> Option<Event> {
        if now >= self.deadlines_from {
            self.expire(now, back);
        }
        self.expired.pop_front().map(|ticket| Event::Expired { ticket })
    }

    fn expire(&mut self, now: Instant, mut back: impl FnMut(usize, Cost)) {
        self.deadlines_from = Instant::FAR;
        for (lane, line) in self.lines.iter_mut().enumerate() {
            let index = class_of(lane);
            line.retain(|waiting| {
                let alive = now < waiting.deadline;
                if alive {
                    self.deadlines_from = self.deadlines_from.min(waiting.deadline);
                } else {
                    back(index, waiting.paid);
                    self.expired.push_back(waiting.ticket);
                    self.figures[index].expired += 1;
                    self.waiting[index] = less(self.waiting[index], waiting.cost);
                }
                alive
            });
        }
    }

    /// The index of the most urgent class in which somebody waits.
    pub(super) fn first(&self) -> Option<usize> {
        let class = self.lines[..CLASSES].iter().position(|line| !line.is_empty());
        if self.lines[RAISED].is_empty() {
            return class;
        }
        Some(class.map_or(FOREGROUND, |class| class.min(FOREGROUND)))
    }

    /// How many wait in a lane.
    pub(super) fn queued(&self, lane: usize) -> u64 {
        self.lines[lane].len() as u64
    }

    /// How many wait in a class.
    fn queued_in(&self, class: Class) -> usize {
        let raised = if class == Class::Foreground { self.lines[RAISED].len() } else { 0 };
        self.lines[class.index()].len() + raised
    }

    /// What all users and commits that wait cost together.
    pub(super) fn before_users(&self) -> Cost {
        self.waiting_to(Class::Foreground)
    }

    /// What all cost together who wait in a class.
    pub(super) fn waiting(&self, class: Class) -> Cost {
        self.waiting[class.index()]
    }

    /// What all cost together who wait in classes down to `class`.
    pub(super) fn waiting_to(&self, class: Class) -> Cost {
        self.waiting[..=class.index()].iter().fold(Cost::default(), |all, &cost| sum(all, cost))
    }

    /// Who is first in a lane.
    pub(super) fn head(&self, lane: usize) -> Option<&Waiting> {
        self.lines[lane].front()
    }

    /// The same, to pay for it.
    pub(super) fn head_mut(&mut self, lane: usize) -> Option<&mut Waiting> {
        self.lines[lane].front_mut()
    }

    /// The first of a lane has paid all, and goes.
    ///
    /// # Panics
    /// When nobody waits there.
    pub(super) fn grant(&mut self, lane: usize, now: Instant) -> Event {
        let head = self.lines[lane].pop_front().expect("somebody waits");
        let index = class_of(lane);
        self.waiting[index] = less(self.waiting[index], head.cost);
        let figures = &mut self.figures[index];
        figures.granted += 1;
        figures.spent = sum(figures.spent, head.paid);
        figures.waits.record(now.since(head.since));
        self.window.spend(now, head.paid);
        let Waiting { ticket, paid: cost, since, deadline, .. } = head;
        Event::Granted(Grant {
            ticket,
            cost,
            place: Place { lane, since, deadline, granted_at: now, is_spare: false },
        })
    }

    /// As [`Queues::grant`], from what others left.
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
        figures.spent = less(figures.spent, spent);
        figures.waits.forget(granted_at.since(since));
        self.waiting[index] = sum(self.waiting[index], cost);
        self.deadlines_from = self.deadlines_from.min(deadline);
        let line = &mut self.lines[lane];
        let before = line.partition_point(|waiting| waiting.ticket < ticket);
        line.insert(before, Waiting { ticket, cost, paid: Cost::default(), since, deadline });
    }

    /// Takes out who has that ticket; gives the index of its class, and what it had paid.
    pub(super) fn cancel(&mut self, ticket: Ticket) -> Option<(usize, Cost)> {
        for (lane, line) in self.lines.iter_mut().enumerate() {
            if let Ok(place) = line.binary_search_by_key(&ticket, |waiting| waiting.ticket) {
                let waiting = line.remove(place)?;
                let index = class_of(lane);
                self.waiting[index] = less(self.waiting[index], waiting.cost);
                self.figures[index].cancelled += 1;
                return Some((index, waiting.paid));
            }
        }
        None
    }

    /// What was granted and not used counts as not spent.
    pub(super) fn refund(&mut self, class: Class, cost: Cost) {
        self.window.refund(cost);
        let figures = &mut self.figures[class.index()];
        figures.spent = less(figures.spent, cost);
    }

    /// Prices everyone who waits by the new terms; `back` takes what was paid beyond the new price.
    pub(super) fn reprice(&mut self, contract: &Contract, mut back: impl FnMut(usize, Cost)) {
        self.waiting = Default::default();
        for (lane, line) in self.lines.iter_mut().enumerate() {
            let index = class_of(lane);
            for waiting in line {
                waiting.cost = contract.cost(waiting.cost.bytes);
                self.waiting[index] = sum(self.waiting[index], waiting.cost);
                back(index, less(waiting.paid, waiting.cost));
                waiting.paid = least(waiting.paid, waiting.cost);
            }
        }
    }

    /// The time to look again, if the next one can go at `at`.
    pub(super) fn wakeup(&self, at: Option<Instant>) -> Option<Instant> {
        at.map(|at| at.min(self.deadlines_from))
    }

    /// Nobody waits, so there is no deadline to look for.
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

/// The class of those who wait in a lane.
pub(super) const fn class_of(lane: usize) -> usize {
    if lane == RAISED { FOREGROUND } else { lane }
}

pub(super) fn sum(a: Cost, b: Cost) -> Cost {
    Cost { ops: a.ops + b.ops, bytes: a.bytes + b.bytes }
}

pub(super) fn less(a: Cost, b: Cost) -> Cost {
    Cost { ops: a.ops.saturating_sub(b.ops), bytes: a.bytes.saturating_sub(b.bytes) }
}

pub(super) fn least(a: Cost, b: Cost) -> Cost {
    Cost { ops: a.ops.min(b.ops), bytes: a.bytes.min(b.bytes) }
}

//! What every scheduler keeps besides its rule: who waits in which class, until when, and what
//! happened so far.
//!
//! Whoever is first in a class may have paid a part of its cost. [`Queues`] never touches a budget: it
//! hands such a part back to the scheduler, which knows whose tokens they are.

use std::collections::VecDeque;

use super::{Event, Figures, Full, Request, Ticket, Window};
use crate::contract::{Contract, Cost};
use crate::purpose::Class;
use crate::time::Instant;

/// One queue for each class, first come first served.
#[derive(Clone, Debug)]
pub(super) struct Queues {
    lines: [VecDeque<Waiting>; Class::ALL.len()],
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
            figures: Default::default(),
            window: Window::default(),
            max,
            expired: VecDeque::new(),
            deadlines_from: Instant::FAR,
        }
    }

    /// Takes in a request, unless it may be refused and its queue is full.
    pub(super) fn push(
        &mut self,
        ticket: Ticket,
        request: Request,
        now: Instant,
    ) -> Result<(), Full> {
        let Request { class, cost, deadline, refusable } = request;
        let line = &mut self.lines[class.index()];
        if refusable && line.len() >= self.max {
            self.figures[class.index()].refused += 1;
            return Err(Full { class, queued: line.len() });
        }
        assert!(line.back().is_none_or(|last| last.ticket < ticket), "tickets ascend");
        let deadline = deadline.unwrap_or(Instant::FAR);
        self.deadlines_from = self.deadlines_from.min(deadline);
        line.push_back(Waiting { ticket, cost, paid: Cost::default(), since: now, deadline });
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
        let lines = self.lines.iter_mut().zip(&mut self.figures);
        for (index, (line, figures)) in lines.enumerate() {
            line.retain(|waiting| {
                let alive = now < waiting.deadline;
                if alive {
                    self.deadlines_from = self.deadlines_from.min(waiting.deadline);
                } else {
                    back(index, waiting.paid);
                    self.expired.push_back(waiting.ticket);
                    figures.expired += 1;
                }
                alive
            });
        }
    }

    /// The index of the most urgent class in which somebody waits.
    pub(super) fn first(&self) -> Option<usize> {
        self.lines.iter().position(|line| !line.is_empty())
    }

    /// How many wait in the class of that index.
    pub(super) fn queued(&self, index: usize) -> u64 {
        self.lines[index].len() as u64
    }

    /// Who is first in the class of that index.
    pub(super) fn head(&self, index: usize) -> Option<&Waiting> {
        self.lines[index].front()
    }

    /// The same, to pay for it.
    pub(super) fn head_mut(&mut self, index: usize) -> Option<&mut Waiting> {
        self.lines[index].front_mut()
    }

    /// The first of a class has paid all, and goes.
    ///
    /// # Panics
    /// When nobody waits there.
    pub(super) fn grant(&mut self, index: usize, now: Instant) -> Event {
        let head = self.lines[index].pop_front().expect("somebody waits");
        let figures = &mut self.figures[index];
        figures.granted += 1;
        figures.spent = sum(figures.spent, head.paid);
        figures.waits.record(now.since(head.since));
        self.window.spend(now, head.paid);
        Event::Granted { ticket: head.ticket, cost: head.paid }
    }

    /// Takes out who has that ticket; gives the index of its class, and what it had paid.
    pub(super) fn cancel(&mut self, ticket: Ticket) -> Option<(usize, Cost)> {
        for (index, line) in self.lines.iter_mut().enumerate() {
            if let Ok(place) = line.binary_search_by_key(&ticket, |waiting| waiting.ticket) {
                let waiting = line.remove(place)?;
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
        for (index, line) in self.lines.iter_mut().enumerate() {
            for waiting in line {
                waiting.cost = contract.cost(waiting.cost.bytes);
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
        let queued = self.queued(class.index());
        Figures { queued, ..self.figures[class.index()].clone() }
    }

    pub(super) const fn window(&self) -> &Window {
        &self.window
    }
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

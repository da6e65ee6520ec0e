//! The first scheduler: classes in strict order, first come first served within a class.
//!
//! Only the head of the most urgent class that waits is considered. It reserves tokens as they come: a
//! later or less urgent request never goes ahead because it is smaller, so a large one cannot starve
//! within its class. A less urgent class can, as long as more urgent ones use up the contract; shares
//! for each class are the business of other schedulers (MECHANISMS 2.5.4).

use std::collections::VecDeque;

use super::{Event, Figures, Full, Request, Scheduler, Ticket, Window};
use crate::budget::{Admission, Budget, Share};
use crate::contract::{Contract, Cost};
use crate::purpose::Class;
use crate::time::Instant;

/// Strict order of classes over a [`Budget`].
#[derive(Debug)]
pub struct Strict {
    budget: Budget,
    /// How many may wait in a class before refusable requests are turned away.
    queue_max: usize,
    queues: [VecDeque<Waiting>; Class::ALL.len()],
    figures: [Figures; Class::ALL.len()],
    window: Window,
    /// Found expired, not yet told.
    expired: VecDeque<Ticket>,
    /// When the budget covers the head; `None` when nobody waits for it.
    head_at: Option<Instant>,
    /// No deadline of anyone who waits is earlier.
    deadlines_from: Instant,
}

impl Strict {
    /// How many may wait in a class before refusable requests are turned away, if nothing else is
    /// said. A copy keeps eight pieces in flight; this is room for eight copies.
    pub const QUEUE_MAX: usize = 64;

    /// Keeps a volume to `share` of `contract`, with an empty budget at first.
    ///
    /// `queue_max` bounds the queue of a class for refusable requests only; all others are as many as
    /// the threads and sessions behind them.
    #[must_use]
    pub fn new(contract: &Contract, share: Share, queue_max: usize, now: Instant) -> Self {
        Self {
            budget: Budget::new(contract, share, now),
            queue_max,
            queues: Default::default(),
            figures: Default::default(),
            window: Window::default(),
            expired: VecDeque::new(),
            head_at: None,
            deadlines_from: Instant::FAR,
        }
    }

    /// Moves everyone whose deadline passed out of the queues.
    fn expire(&mut self, now: Instant) {
        if now < self.deadlines_from {
            return;
        }
        self.deadlines_from = Instant::FAR;
        for (queue, figures) in self.queues.iter_mut().zip(&mut self.figures) {
            queue.retain(|waiting| {
                let alive = now < waiting.deadline;
                if alive {
                    self.deadlines_from = self.deadlines_from.min(waiting.deadline);
                } else {
                    self.budget.refund(waiting.paid);
                    self.expired.push_back(waiting.ticket);
                    figures.expired += 1;
                }
                alive
            });
        }
    }

    /// The head goes, or says when it can.
    fn grant(&mut self, now: Instant) -> Option<Event> {
        self.head_at = None;
        let Some(index) = self.queues.iter().position(|queue| !queue.is_empty()) else {
            self.deadlines_from = Instant::FAR;
            return None;
        };
        let head = self.queues[index].front_mut()?;
        loop {
            let owed = less(head.cost, head.paid);
            let part = least(owed, self.budget.largest());
            if let Admission::At(at) = self.budget.admit(now, part) {
                self.head_at = Some(at);
                return None;
            }
            head.paid = sum(head.paid, part);
            if part == owed {
                break;
            }
        }
        let Waiting { ticket, paid, since, .. } = self.queues[index].pop_front()?;
        let figures = &mut self.figures[index];
        figures.granted += 1;
        figures.spent = sum(figures.spent, paid);
        figures.waits.record(now.since(since));
        self.window.spend(now, paid);
        Some(Event::Granted { ticket, cost: paid })
    }
}

impl Scheduler for Strict {
    fn submit(&mut self, ticket: Ticket, request: Request, now: Instant) -> Result<(), Full> {
        let Request { class, cost, deadline, refusable } = request;
        let (queue, figures) = (&mut self.queues[class.index()], &mut self.figures[class.index()]);
        if refusable && queue.len() >= self.queue_max {
            figures.refused += 1;
            return Err(Full { class, queued: queue.len() });
        }
        assert!(queue.back().is_none_or(|last| last.ticket < ticket), "tickets ascend");
        let deadline = deadline.unwrap_or(Instant::FAR);
        self.deadlines_from = self.deadlines_from.min(deadline);
        queue.push_back(Waiting { ticket, cost, paid: Cost::default(), since: now, deadline });
        Ok(())
    }

    fn poll(&mut self, now: Instant) -> Option<Event> {
        self.expire(now);
        match self.expired.pop_front() {
            Some(ticket) => Some(Event::Expired { ticket }),
            None => self.grant(now),
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.head_at.map(|at| at.min(self.deadlines_from))
    }

    fn cancel(&mut self, ticket: Ticket) -> bool {
        for (queue, figures) in self.queues.iter_mut().zip(&mut self.figures) {
            let Ok(place) = queue.binary_search_by_key(&ticket, |waiting| waiting.ticket) else {
                continue;
            };
            if let Some(waiting) = queue.remove(place) {
                self.budget.refund(waiting.paid);
                figures.cancelled += 1;
            }
            return true;
        }
        false
    }

    fn refund(&mut self, class: Class, cost: Cost) {
        self.budget.refund(cost);
        self.window.refund(cost);
        let figures = &mut self.figures[class.index()];
        figures.spent = less(figures.spent, cost);
    }

    fn set_contract(&mut self, contract: &Contract, now: Instant) {
        self.budget.set_contract(contract, now);
        for waiting in self.queues.iter_mut().flatten() {
            waiting.cost = contract.cost(waiting.cost.bytes);
            self.budget.refund(less(waiting.paid, waiting.cost));
            waiting.paid = least(waiting.paid, waiting.cost);
        }
    }

    fn set_share(&mut self, share: Share, contract: &Contract, now: Instant) {
        self.budget.set_share(share, contract, now);
    }

    fn forget_credits(&mut self) {
        self.budget.forget_credits();
    }

    fn credits(&self) -> Option<f64> {
        self.budget.credits()
    }

    fn largest(&self) -> Cost {
        self.budget.largest()
    }

    fn figures(&self, class: Class) -> Figures {
        let queued = self.queues[class.index()].len() as u64;
        Figures { queued, ..self.figures[class.index()].clone() }
    }

    fn window(&self) -> &Window {
        &self.window
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    ticket: Ticket,
    cost: Cost,
    /// What the head of the line paid already. Only a request that was split under earlier, larger
    /// terms can cost more than the budget holds; it pays in parts, as tokens come.
    paid: Cost,
    since: Instant,
    /// [`Instant::FAR`] if it has none.
    deadline: Instant,
}

fn sum(a: Cost, b: Cost) -> Cost {
    Cost { ops: a.ops + b.ops, bytes: a.bytes + b.bytes }
}

fn less(a: Cost, b: Cost) -> Cost {
    Cost { ops: a.ops.saturating_sub(b.ops), bytes: a.bytes.saturating_sub(b.bytes) }
}

fn least(a: Cost, b: Cost) -> Cost {
    Cost { ops: a.ops.min(b.ops), bytes: a.bytes.min(b.bytes) }
}

#[cfg(test)]
mod tests;

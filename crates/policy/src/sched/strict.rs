//! Classes in strict order; within a class fair between stores, first come first served for each.
//!
//! Only the head of the most urgent waiting class is considered; where a contract counts reads and writes apart, one of
//! either kind. It reserves tokens as they come: no later or less
//! urgent request goes ahead because it is smaller, so a large one cannot starve within its class. A less urgent class
//! starves while more urgent ones use up the contract; [`Tags`](super::Tags) gives each class a share instead.

use super::queues::Queues;
use super::{Event, Figures, Full, Grant, Request, Scheduler, TenantFigures, Ticket, Window};
use crate::budget::{Admission, Budget, Share};
use crate::contract::{Contract, Cost, Direction};
use crate::purpose::{Class, Tenant};
use crate::time::Instant;

/// Strict order of classes over a [`Budget`].
#[derive(Debug)]
pub struct Strict {
    budget: Budget,
    queues: Queues,
    /// When the budget covers the head; `None` without a waiting head.
    head_at: Option<Instant>,
}

impl Strict {
    /// Keeps a volume to `share` of `contract`, with an empty budget at first.
    ///
    /// `queue_max` bounds the queue of a class for refusable requests only; the number of others is bounded by the
    /// threads and sessions behind them.
    #[must_use]
    pub fn new(contract: &Contract, share: Share, queue_max: usize, now: Instant) -> Self {
        let budget = Budget::new(contract, share, now);
        let mut queues = Queues::new(contract, queue_max);
        queues.share_by(&budget);
        Self { budget, queues, head_at: None }
    }

    /// Grants a head, or sets the time at which one can go.
    fn grant(&mut self, now: Instant) -> Option<Event> {
        self.head_at = None;
        let Some(first) = self.queues.first() else {
            self.queues.rest();
            return None;
        };
        if !self.budget.counts_apart() {
            return self.grant_head(first, now);
        }
        // Neither waits for tokens of the other.
        [Direction::Read, Direction::Write].into_iter().find_map(|direction| {
            let moves = |&index: &usize| {
                self.queues.head(index).is_some_and(|head| head.cost.direction() == direction)
            };
            let index = (first..Class::ALL.len()).find(moves)?;
            self.grant_head(index, now)
        })
    }

    fn grant_head(&mut self, index: usize, now: Instant) -> Option<Event> {
        let head = self.queues.head_mut(index)?;
        loop {
            // Only a request that was split under earlier, larger terms can cost more than the budget holds; it pays in
            // parts, as tokens come.
            let owed = head.owed();
            let part = owed.least(self.budget.largest());
            if let Admission::At(at) = self.budget.admit(now, part) {
                self.head_at = Some(self.head_at.map_or(at, |other| other.min(at)));
                return None;
            }
            head.paid = head.paid.plus(part);
            if part == owed {
                return Some(self.queues.grant(index, now));
            }
        }
    }
}

impl Scheduler for Strict {
    fn submit(&mut self, ticket: Ticket, request: Request, now: Instant) -> Result<(), Full> {
        self.queues.push(ticket, request, now)
    }

    fn poll(&mut self, now: Instant) -> Option<Event> {
        let budget = &mut self.budget;
        let expired = self.queues.expired(now, |_, paid| budget.refund(paid));
        expired.or_else(|| self.grant(now))
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.queues.wakeup(self.head_at)
    }

    fn expected(&self, cost: Cost, _: Instant) -> Option<Instant> {
        self.budget.expected(self.queues.before_users(), cost, Cost::default())
    }

    fn cancel(&mut self, ticket: Ticket) -> bool {
        let cancelled = self.queues.cancel(ticket);
        if let Some((_, paid)) = cancelled {
            self.budget.refund(paid);
        }
        cancelled.is_some()
    }

    fn refund(&mut self, class: Class, cost: Cost) {
        self.budget.refund(cost);
        self.queues.refund(class, cost);
    }

    fn put_back(&mut self, grant: Grant, cost: Cost, _: Instant) {
        self.budget.refund(grant.cost);
        self.queues.put_back(grant, cost);
    }

    fn set_contract(&mut self, contract: &Contract, now: Instant) {
        let budget = &mut self.budget;
        budget.set_contract(contract, now);
        self.queues.reprice(contract, |_, back| budget.refund(back));
        self.queues.share_by(&self.budget);
    }

    fn set_share(&mut self, share: Share, contract: &Contract, now: Instant) {
        self.budget.set_share(share, contract, now);
        self.queues.share_by(&self.budget);
    }

    fn forget_saved(&mut self, until: Instant) {
        self.budget.forget_saved(until);
    }

    fn credits(&self) -> Option<f64> {
        self.budget.credits()
    }

    fn set_credits(&mut self, part: f64) {
        self.budget.set_credits(part);
    }

    fn largest(&self) -> Cost {
        self.budget.largest()
    }

    fn set_weight(&mut self, tenant: Tenant, weight: f64) {
        self.queues.set_weight(tenant, weight);
    }

    fn figures(&self, class: Class) -> Figures {
        self.queues.figures(class)
    }

    fn tenants(&self) -> Vec<(Tenant, TenantFigures)> {
        self.queues.tenants()
    }

    fn window(&self) -> &Window {
        self.queues.window()
    }
}

#[cfg(test)]
mod tests;

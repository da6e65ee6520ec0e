//! No scheduling: every request goes at once and is counted.
//!
//! Only the provider throttles: this is plain RocksDB over the same shim, the baseline of the benches. Requests are
//! still split into operations, so that the figures match the provider's, but a log may have any number of unsynced
//! bytes.

use super::queues::Queues;
use super::{Event, Figures, Full, Grant, Request, Scheduler, TenantFigures, Ticket, Window};
use crate::budget::Share;
use crate::contract::{Contract, Cost};
use crate::purpose::{Class, Tenant};
use crate::time::Instant;

/// Grants every request at once.
#[derive(Debug)]
pub struct Pass {
    queues: Queues,
}

impl Pass {
    /// No request waits, so the queue needs no bound.
    #[must_use]
    pub fn new(contract: &Contract) -> Self {
        Self { queues: Queues::new(contract, usize::MAX) }
    }
}

impl Scheduler for Pass {
    fn submit(&mut self, ticket: Ticket, request: Request, now: Instant) -> Result<(), Full> {
        self.queues.push(ticket, request, now)
    }

    fn poll(&mut self, now: Instant) -> Option<Event> {
        if let Some(expired) = self.queues.expired(now, |_, _| {}) {
            return Some(expired);
        }
        let Some(index) = self.queues.first() else {
            self.queues.rest();
            return None;
        };
        let head = self.queues.head_mut(index)?;
        head.paid = head.cost;
        Some(self.queues.grant(index, now))
    }

    /// Submitted requests go at the next poll.
    fn next_wakeup(&self) -> Option<Instant> {
        self.queues.first().map(|_| Instant::ZERO)
    }

    fn expected(&self, _: Cost, _: Instant) -> Option<Instant> {
        None
    }

    fn cancel(&mut self, ticket: Ticket) -> bool {
        self.queues.cancel(ticket).is_some()
    }

    fn refund(&mut self, class: Class, cost: Cost) {
        self.queues.refund(class, cost);
    }

    fn put_back(&mut self, grant: Grant, cost: Cost, _: Instant) {
        self.queues.put_back(grant, cost);
    }

    fn set_contract(&mut self, contract: &Contract, _: Instant) {
        self.queues.reprice(contract, |_, _| {});
    }

    fn set_share(&mut self, _: Share, _: &Contract, _: Instant) {}

    fn forget_saved(&mut self, _: Instant) {}

    fn credits(&self) -> Option<f64> {
        None
    }

    fn set_credits(&mut self, _: f64) {}

    fn largest(&self) -> Cost {
        Cost::either(u64::MAX, u64::MAX)
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

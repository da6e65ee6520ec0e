//! Which request goes next at a gate, and when.
//!
//! A scheduler owns the volume's budget and the queues in front of it. It is a state machine with
//! three verbs, driven by a shell that knows the time and the callers:
//!
//! ```text
//!   submit(ticket, request, now) ─►┌───────────┐─► poll(now): Granted | Expired, until None
//!   cancel(ticket)               ─►│ scheduler │
//!   refund(class, cost)          ─►│           │─► next_wakeup(): when to poll again
//!   put_back(grant, cost, now)   ─►└───────────┘
//! ```
//!
//! One rule per file, and [`Policy`] lists them; [`Tags`] is the default. All of them answer every request exactly once
//! and keep the order within a class of one store. [`Tags`] and [`Strict`] share a class fairly between stores. Only
//! requests that allow it expire or are refused, because an error in a commit or a compaction makes RocksDB read-only.

mod figures;
mod lane;
mod pass;
mod policy;
mod queues;
pub mod seconds;
mod strict;
mod tags;
mod window;

pub use figures::{Figures, TenantFigures, Waits};
pub use pass::Pass;
pub use policy::{Policy, QUEUE_MAX};
pub use strict::Strict;
pub use tags::{Rights, Tags};
pub use window::Window;

use std::time::Duration;

use self::queues::Place;
use crate::budget::Share;
use crate::contract::{Contract, Cost};
use crate::purpose::{Class, Tenant};
use crate::time::Instant;

/// A request's number. The caller of [`Scheduler::submit`] gives ascending numbers.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Ticket(pub u64);

/// A request to issue an I/O.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Request {
    /// Its urgency.
    pub class: Class,
    /// The store that it is for.
    pub tenant: Tenant,
    /// The tokens to charge.
    pub cost: Cost,
    /// When to give up waiting; without one it waits as long as it takes.
    pub deadline: Option<Instant>,
    /// Whether a full queue may refuse it: only work that its owner takes up again later.
    pub refusable: bool,
    /// Whether a user waits for it. False for relief and for work that was raised to the users' class: a pause of users
    /// does not hold them.
    pub of_user: bool,
}

/// The end of a request's wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// It may go to the device.
    Granted(Grant),
    /// Its deadline passed; nothing was charged.
    Expired {
        /// The request.
        ticket: Ticket,
    },
}

/// A request that may go to the device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Grant {
    /// The request.
    pub ticket: Ticket,
    /// Its charge.
    pub cost: Cost,
    /// The place it waited in, for [`Scheduler::put_back`].
    place: Place,
}

impl Grant {
    /// How long it waited.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.place.waited()
    }
}

/// A queue had no room for a request that may be refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{} requests of class {} wait already", queued, class.name())]
pub struct Full {
    /// The class whose queue is full.
    pub class: Class,
    /// How many requests wait in it.
    pub queued: usize,
}

/// Decides the order of requests to one volume, and keeps them to its contract.
///
/// After every call that changes something, and at [`Scheduler::next_wakeup`], the shell calls
/// [`Scheduler::poll`] until it gives `None`.
pub trait Scheduler: Send {
    /// Takes in a request; polling says when it may go, perhaps at once.
    ///
    /// # Errors
    /// When the request may be refused and its queue is full: try later. Nothing was queued.
    fn submit(&mut self, ticket: Ticket, request: Request, now: Instant) -> Result<(), Full>;

    /// The next event up to `now`.
    fn poll(&mut self, now: Instant) -> Option<Event>;

    /// When to poll again if nothing else is submitted: never later than the next event. `None` without waiting
    /// requests.
    fn next_wakeup(&self) -> Option<Instant>;

    /// About when a user's read of `cost` that came now would go: after the waiting users and commits, and after the
    /// current pause of users, or the one that it would start. `None` if at once.
    fn expected(&self, cost: Cost, now: Instant) -> Option<Instant>;

    /// Removes a waiting request and returns what it had paid to the budget; false if it does not wait.
    fn cancel(&mut self, ticket: Ticket) -> bool;

    /// Returns the unused charge of a granted request of `class`.
    fn refund(&mut self, class: Class, cost: Cost);

    /// Returns an unused grant and lets its request wait for one of `cost` instead. It keeps its place: it is granted
    /// before every waiting request of its class and store with a later ticket. The class is not charged for the first
    /// grant, and the wait counts from the first submission.
    fn put_back(&mut self, grant: Grant, cost: Cost, now: Instant);

    /// Uses new terms from now on. Waiting requests are priced anew by their bytes; grants are not.
    fn set_contract(&mut self, contract: &Contract, now: Instant);

    /// Uses another share of `contract`, the terms in force, from now on.
    fn set_share(&mut self, share: Share, contract: &Contract, now: Instant);

    /// Discards accumulated tokens, including burst credits: the volume shows that it has none. New ones are earned from
    /// `until` on.
    fn forget_saved(&mut self, until: Instant);

    /// The burst credits that the budget assumes, as a part of their capacity; `None` without any.
    fn credits(&self) -> Option<f64>;

    /// Assumes this part of the burst credits from now on.
    fn set_credits(&mut self, part: f64);

    /// The most that one request should ask for, so that it never holds up others for long.
    fn largest(&self) -> Cost;

    /// Gives a store this weight beside others, above 0; 1 at first. Where several wait in a class, it decides the part
    /// of the tokens that each gets; without effect on schedulers that keep the order of arrival.
    fn set_weight(&mut self, tenant: Tenant, weight: f64);

    /// The figures of a class so far, and its queue length now.
    fn figures(&self, class: Class) -> Figures;

    /// The figures of the stores so far, in the order of their numbers.
    fn tenants(&self) -> Vec<(Tenant, TenantFigures)>;

    /// Recent spending, by tenths of a second.
    fn window(&self) -> &Window;
}

#[cfg(test)]
mod tests;

//! Who goes next at a gate, and when.
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
//! One rule per file, and [`Policy`] is the list of them; [`Tags`] is the one to use. What all of them owe:
//! every request is answered exactly once, nobody overtakes within a
//! class, and only those expire or are refused that said they may, because an error in a commit or a
//! compaction makes RocksDB read-only.

mod figures;
mod pass;
mod policy;
mod queues;
pub mod seconds;
mod strict;
mod tags;
mod window;

pub use figures::{Figures, Waits};
pub use pass::Pass;
pub use policy::{Policy, QUEUE_MAX};
pub use strict::Strict;
pub use tags::{Rights, Tags};
pub use window::Window;

use self::queues::Place;
use crate::budget::Share;
use crate::contract::{Contract, Cost};
use crate::purpose::Class;
use crate::time::Instant;

/// A request's number. Whoever submits gives numbers that ascend.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Ticket(pub u64);

/// What somebody wants to issue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Request {
    /// How urgent it is.
    pub class: Class,
    /// What it will be charged.
    pub cost: Cost,
    /// When to give up waiting; without one it waits as long as it takes.
    pub deadline: Option<Instant>,
    /// Whether a full queue may turn it away: only work that is taken up again later.
    pub refusable: bool,
    /// Whether a user asked for it. Work that was raised to the users' class did not, and relief did not:
    /// a pause of users does not hold them.
    pub of_user: bool,
}

/// What became of a request that waited, or did not have to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// It may go to the device.
    Granted(Grant),
    /// Its deadline passed; nothing was charged.
    Expired {
        /// Whose deadline it was.
        ticket: Ticket,
    },
}

/// A request that may go to the device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Grant {
    /// Whose turn it is.
    pub ticket: Ticket,
    /// What was charged for it.
    pub cost: Cost,
    /// Where it waited: what [`Scheduler::put_back`] needs.
    place: Place,
}

/// A queue had no room for a request that may be refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{} requests of class {} wait already", queued, class.name())]
pub struct Full {
    /// The class whose queue is full.
    pub class: Class,
    /// How many wait in it.
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
    /// When the request may be refused and its queue is full: do it later. Nothing was taken in.
    fn submit(&mut self, ticket: Ticket, request: Request, now: Instant) -> Result<(), Full>;

    /// The next thing that happened up to `now`.
    fn poll(&mut self, now: Instant) -> Option<Event>;

    /// When to poll again if nothing else is submitted: never later than the next thing happens.
    /// `None` when nobody waits.
    fn next_wakeup(&self) -> Option<Instant>;

    /// About when a user's read of `cost` would go if it came now: after the users and commits that wait
    /// already, and after the pause of users that is under way or would begin. `None` if it would go at
    /// once.
    fn expected(&self, cost: Cost, now: Instant) -> Option<Instant>;

    /// Takes a waiting request out, with what it had paid already; false if it does not wait.
    fn cancel(&mut self, ticket: Ticket) -> bool;

    /// Takes back what was granted to a request of `class` and not used.
    fn refund(&mut self, class: Class, cost: Cost);

    /// Takes a grant back that was not used, and lets its request wait for one of `cost` instead. It keeps
    /// its place: it is granted before every request of its class with a later ticket that still waits.
    /// The class is not charged for the first grant, and the wait counts from the first submission.
    fn put_back(&mut self, grant: Grant, cost: Cost, now: Instant);

    /// Goes by new terms from now on. Those who wait are priced anew by their bytes; what was granted
    /// is not.
    fn set_contract(&mut self, contract: &Contract, now: Instant);

    /// Uses another share of `contract`, the terms it goes by already, from now on.
    fn set_share(&mut self, share: Share, contract: &Contract, now: Instant);

    /// Counts on nothing any more that was saved up, burst credits or less: the volume shows that it is spent.
    fn forget_saved(&mut self);

    /// The burst credits it counts on, as a part of those that can be saved up; `None` without any.
    fn credits(&self) -> Option<f64>;

    /// The most one request should ask for, so that it never holds up the others for long.
    fn largest(&self) -> Cost;

    /// What happened in a class so far, and how many wait in it now.
    fn figures(&self, class: Class) -> Figures;

    /// What was spent, by tenths of a second, most of it recent.
    fn window(&self) -> &Window;
}

#[cfg(test)]
mod tests;

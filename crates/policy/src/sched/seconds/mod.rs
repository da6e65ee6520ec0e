//! Tokens dealt out second by second, as in Calcspar (ATC 2023).
//!
//! ```text
//!   second s                          s+1
//!   ├── P tokens ─────────────────────┼── P tokens, the rest of s is lost
//!   │ high: open all the second       │
//!   │          medium: ├──────────────┤
//!   │                      low: ├─────┤
//! ```
//!
//! P is the paid operations a second; every figure of the paper and of its code is a part of P here. A [`Scheme`] says
//! how the tokens of a second are divided into pools, when each class may take from its pool, and which class is next.
//! All schemes share these rules, which differ from the paper where it could hang, starve or overdraw more than it
//! must:
//!
//! - Three groups of classes: *high* is commit, foreground and urgent (the paper opens the window of flushes at 0, and
//!   has no log on the volume), *medium* is background, *low* is idle.
//! - A request that needs more tokens than its pool has takes those, and the rest from the next second's. The released
//!   code passes over it for ever, and hangs on one above P.
//! - A pool has at least one token a second.
//! - Time never goes back; second boundaries are whole seconds of it.
//! - The paper does not treat bytes. Where the contract limits them, a budget for bytes applies too, so that the
//!   provider is not overdrawn for a reason outside of the schemes.

mod dynamic;
mod fixed;
mod stabilizer;
mod windows;

pub use dynamic::Dynamic;
pub use fixed::Static;
pub use stabilizer::Stabilizer;
pub use windows::Windows;

use super::queues::Queues;
use super::{Event, Figures, Full, Grant, Request, Scheduler, TenantFigures, Ticket, Window};
use crate::budget::{Admission, Budget, REQUEST_OPS_MAX, Share};
use crate::contract::{Contract, Cost};
use crate::purpose::{Class, Tenant};
use crate::time::{Instant, NANOS_PER_SEC};

/// The paper's groups of classes: high, medium, low.
const GROUPS: usize = 3;

/// How many idle seconds are reported to a scheme one by one; a longer silence changes nothing more.
const QUIET_MAX: u64 = 100;

const fn group(class: Class) -> usize {
    match class {
        Class::Commit | Class::Foreground | Class::Urgent => 0,
        Class::Background => 1,
        Class::Idle => 2,
    }
}

/// Use of a second's tokens so far, as parts of P.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// Tokens spent by each group.
    groups: [f64; GROUPS],
}

impl Used {
    fn total(&self) -> f64 {
        self.groups.iter().sum()
    }
}

/// How the tokens of a second are dealt out. All amounts are parts of P.
pub trait Scheme: Send {
    /// The tokens of each pool in the second that begins; `last` is the use of the second before, if there was one.
    fn deal(&mut self, last: Option<Used>) -> [f64; GROUPS];

    /// The pool that a group takes from.
    fn pool(&self, group: usize) -> usize;

    /// The part of the second after which a group may take tokens: 0 for all of it.
    fn opens(&self, _group: usize) -> f64 {
        0.0
    }

    /// A scheduler looks for tokens after this part of the second, with this use so far.
    fn look(&mut self, _passed: f64, _used: Used) {}

    /// The index of the class to serve next, among those with a ticket: the ticket is that of the head of the class.
    fn next(&mut self, open: &[Option<Ticket>; Class::ALL.len()]) -> Option<usize> {
        let waiting = open.iter().enumerate();
        let oldest = waiting.filter_map(|(index, ticket)| Some((ticket.as_ref()?, index))).min();
        oldest.map(|(_, index)| index)
    }
}

/// A scheduler that deals out each second's tokens by a [`Scheme`].
#[derive(Debug)]
pub struct Seconds<S> {
    scheme: S,
    queues: Queues,
    /// The limits on bytes.
    bytes: Budget,
    /// P; `None` without a limit on operations.
    paid: Option<u64>,
    /// Tokens left in each pool.
    left: [u64; GROUPS],
    /// What each pool was dealt.
    dealt: [u64; GROUPS],
    /// Tokens that requests of each group took in this second.
    taken: [u64; GROUPS],
    /// The current second; `None` before the first.
    second: Option<u64>,
    /// The latest time seen.
    now: Instant,
    next_at: Option<Instant>,
}

impl<S: Scheme> Seconds<S> {
    /// As [`Policy::build`](super::Policy::build).
    #[must_use]
    pub fn new(scheme: S, terms: (&Contract, Share, usize, Instant)) -> Self {
        let (contract, share, queue_max, now) = terms;
        Self {
            scheme,
            queues: Queues::new(contract, queue_max),
            bytes: Budget::new(&only_bytes(contract), share, now),
            paid: contract.paid_iops(),
            left: [0; GROUPS],
            dealt: [0; GROUPS],
            taken: [0; GROUPS],
            second: None,
            now,
            next_at: None,
        }
    }

    fn used(&self) -> Used {
        // Without a limit on operations nothing is scarce, and nothing counts as used.
        let paid = self.paid.unwrap_or(u64::MAX) as f64;
        Used { groups: self.taken.map(|taken| taken as f64 / paid) }
    }

    /// Deals out the second of `now`, if that was not done yet.
    fn roll(&mut self) {
        let second = self.now.as_nanos() / NANOS_PER_SEC;
        let passed = self.second.map_or(1, |last| second - last);
        for _ in 0..passed.min(QUIET_MAX) {
            let last = self.second.map(|_| self.used());
            let parts = self.scheme.deal(last);
            self.taken = [0; GROUPS];
            self.dealt = parts.map(|part| tokens(part, self.paid));
            self.left = self.dealt;
        }
        self.second = Some(second);
    }

    /// The elapsed part of the second.
    fn passed(&self) -> f64 {
        (self.now.as_nanos() % NANOS_PER_SEC) as f64 / NANOS_PER_SEC as f64
    }

    fn opens_at(&self, group: usize) -> Instant {
        let second = self.second.unwrap_or_default();
        let nanos = (self.scheme.opens(group) * NANOS_PER_SEC as f64) as u64;
        Instant::from_nanos(second.saturating_mul(NANOS_PER_SEC).saturating_add(nanos))
    }

    /// The classes that may take tokens now, and when the next waiting one may.
    fn open(&self) -> ([Option<Ticket>; Class::ALL.len()], Option<Instant>) {
        let next_second = self.second.unwrap_or_default().saturating_add(1);
        let next_second = Instant::from_nanos(next_second.saturating_mul(NANOS_PER_SEC));
        let (mut open, mut next_at) = ([None; Class::ALL.len()], None::<Instant>);
        for class in Class::ALL {
            let Some(head) = self.queues.head(class.index()) else { continue };
            let group = group(class);
            let opens_at = self.opens_at(group);
            let covered = self.paid.is_none()
                || head.owed().ops == 0
                || self.left[self.scheme.pool(group)] > 0;
            let at = match (covered, self.paid.is_none() || opens_at <= self.now) {
                (true, true) => {
                    open[class.index()] = Some(head.ticket);
                    continue;
                }
                (true, false) => opens_at,
                (false, _) => next_second,
            };
            next_at = Some(next_at.map_or(at, |next| next.min(at)));
        }
        (open, next_at)
    }

    fn grant(&mut self, now: Instant) -> Option<Event> {
        self.now = self.now.max(now);
        self.roll();
        self.scheme.look(self.passed(), self.used());
        loop {
            let (open, next_at) = self.open();
            self.next_at = next_at;
            let Some(index) = self.scheme.next(&open) else {
                if next_at.is_none() {
                    self.queues.rest();
                }
                return None;
            };
            self.take_ops(index);
            let head = self.queues.head(index).expect("a waiting class was chosen");
            if head.owed().ops > 0 {
                continue;
            }
            if let Admission::At(at) = self.take_bytes(index) {
                self.next_at = Some(next_at.map_or(at, |next| next.min(at)));
                return None;
            }
            return Some(self.queues.grant(index, self.now));
        }
    }

    /// The head of a class takes the tokens it needs, as far as its pool has any.
    fn take_ops(&mut self, index: usize) {
        let group = group(Class::ALL[index]);
        let left = &mut self.left[self.scheme.pool(group)];
        let head = self.queues.head_mut(index).expect("a waiting class was chosen");
        let owed = head.owed();
        let ops = if self.paid.is_some() { owed.ops.min(*left) } else { owed.ops };
        *left -= ops.min(*left);
        self.taken[group] += ops;
        head.paid = head.paid.plus(owed.least(Cost::either(ops, 0)));
    }

    fn take_bytes(&mut self, index: usize) -> Admission {
        let head = self.queues.head_mut(index).expect("a waiting class was chosen");
        loop {
            let owed = head.owed().only_bytes();
            let part = owed.least(self.bytes.largest());
            let admission = self.bytes.admit(self.now, part);
            if admission != Admission::Now {
                return admission;
            }
            head.paid = head.paid.plus(part);
            if part == owed {
                return Admission::Now;
            }
        }
    }

    /// Returns what a request of a group had paid. Tokens of a past second are lost.
    fn back(&mut self, group: usize, cost: Cost) {
        let pool = self.scheme.pool(group);
        let ops = cost.ops.min(self.taken[group]);
        self.taken[group] -= ops;
        self.left[pool] = (self.left[pool] + ops).min(self.dealt[pool]);
        self.bytes.refund(cost.only_bytes());
    }
}

impl<S: Scheme> Scheduler for Seconds<S> {
    fn submit(&mut self, ticket: Ticket, request: Request, now: Instant) -> Result<(), Full> {
        self.queues.push(ticket, request, now)
    }

    fn poll(&mut self, now: Instant) -> Option<Event> {
        let mut back = Vec::new();
        let expired = self.queues.expired(now, |index, paid| back.push((index, paid)));
        for (index, paid) in back {
            self.back(group(Class::ALL[index]), paid);
        }
        expired.or_else(|| self.grant(now))
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.queues.wakeup(self.next_at)
    }

    /// In whole seconds, if each deals out as much as this one.
    fn expected(&self, cost: Cost, now: Instant) -> Option<Instant> {
        let before = self.queues.waiting_to(Class::Urgent);
        let (bytes_before, bytes) = (before.only_bytes(), cost.only_bytes());
        let paid_at = self.bytes.expected(bytes_before, bytes, Cost::default());
        let pool = self.scheme.pool(group(Class::Foreground));
        let second = now.as_nanos() / NANOS_PER_SEC;
        let left = if self.second == Some(second) { self.left[pool] } else { self.dealt[pool] };
        let short = before.plus(cost).ops.saturating_sub(left);
        if self.paid.is_none() || short == 0 {
            return paid_at;
        }
        let seconds = second.saturating_add(short.div_ceil(self.dealt[pool].max(1)));
        let dealt_at = Instant::from_nanos(seconds.saturating_mul(NANOS_PER_SEC));
        Some(paid_at.map_or(dealt_at, |at| at.max(dealt_at)))
    }

    fn cancel(&mut self, ticket: Ticket) -> bool {
        let cancelled = self.queues.cancel(ticket);
        if let Some((index, paid)) = cancelled {
            self.back(group(Class::ALL[index]), paid);
        }
        cancelled.is_some()
    }

    fn refund(&mut self, class: Class, cost: Cost) {
        self.back(group(class), cost);
        self.queues.refund(class, cost);
    }

    /// Tokens of a past second are lost, here too.
    fn put_back(&mut self, grant: Grant, cost: Cost, _: Instant) {
        let is_over = self.second != Some(grant.place.granted_at().as_nanos() / NANOS_PER_SEC);
        let back = if is_over { grant.cost.only_bytes() } else { grant.cost };
        self.back(group(Class::ALL[grant.place.class()]), back);
        self.queues.put_back(grant, cost);
    }

    /// Additional tokens come with the next second; a reduction applies at once.
    fn set_contract(&mut self, contract: &Contract, now: Instant) {
        self.now = self.now.max(now);
        self.bytes.set_contract(&only_bytes(contract), self.now);
        let paid = contract.paid_iops();
        if let (Some(old), Some(new)) = (self.paid, paid) {
            let scaled = |tokens: u64| {
                let scaled = u128::from(tokens) * u128::from(new) / u128::from(old);
                u64::try_from(scaled).unwrap_or(u64::MAX).min(tokens)
            };
            self.left = self.left.map(scaled);
            self.dealt = self.dealt.map(scaled);
        }
        self.paid = paid;
        let mut back = Vec::new();
        self.queues.reprice(contract, |index, cost| back.push((index, cost)));
        for (index, cost) in back {
            self.back(group(Class::ALL[index]), cost);
        }
    }

    fn set_share(&mut self, share: Share, contract: &Contract, now: Instant) {
        self.now = self.now.max(now);
        self.bytes.set_share(share, &only_bytes(contract), self.now);
    }

    fn forget_saved(&mut self, until: Instant) {
        self.bytes.forget_saved(until);
    }

    fn credits(&self) -> Option<f64> {
        self.bytes.credits()
    }

    fn set_credits(&mut self, part: f64) {
        self.bytes.set_credits(part);
    }

    fn largest(&self) -> Cost {
        let ops = self.paid.map_or(REQUEST_OPS_MAX, |paid| paid.min(REQUEST_OPS_MAX));
        Cost::either(ops, self.bytes.largest().bytes)
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

/// The contract without its limits on operations.
fn only_bytes(contract: &Contract) -> Contract {
    let mut contract = contract.clone();
    contract.limits.retain(|limit| !limit.counts.is_ops());
    contract
}

/// A part of P in whole tokens, at least one if the part is above 0.
fn tokens(part: f64, paid: Option<u64>) -> u64 {
    match paid {
        Some(paid) if part > 0.0 => ((part * paid as f64).round() as u64).max(1),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;

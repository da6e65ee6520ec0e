//! The default scheduler: every class has a reservation, and spare tokens go to the most urgent class.
//!
//! Two questions are asked of each class (Calcspar, ATC 2023):
//!
//! *What is it owed?* A tag per class, as in mClock (Gulati, Merchant, Varman, OSDI 2010), advances with each request
//! by the time that its tokens take to earn at the class's reserved part of the contract. A class whose tag has passed
//! is *due* and goes before all spare grants, the most urgent first. Users are due as they arrive, while they stay
//! within their reservation. Work is due once its head has waited for the time in which its tokens are earned at the
//! reserved rate, which spreads its grants evenly between users. When tokens are short it waits until it is *overdue*:
//! until its tokens would be earned at its floor, the part of the reservation that is guaranteed. Spare tokens count as
//! service, but put no class into debt.
//!
//! *What must it leave?* Spare tokens go only to the most urgent waiting class, from above the class's threshold: the
//! part of the budget's depth that is kept for more urgent classes.
//!
//! ```text
//!   tokens saved
//!   depth ┬────────────────────────────────────┐
//!         │  idle goes above                   ├─ or above what users are expected to want
//!         │    background                      │  in the next 100 ms
//!         │      urgent                        │
//!     5/8 ┼─ work that is due ─────────────────┤
//!         │  kept for users                    │
//!         │        foreground                  │
//!         │  kept for commits                  │
//!       0 ┴─ users that are due, overdue work ─┘
//! ```
//!
//! A threshold costs nothing: tokens come at the same rate at every level. It lets a user who arrives in the middle of
//! a compaction go at once instead of waiting for the next token.
//!
//! No request pays in advance: tokens stay in the budget until the request can go, so a less urgent one never holds
//! tokens that a more urgent one could use. The exception is a request that was split under earlier, larger terms and
//! costs more than the budget ever holds: it pays in parts.
//!
//! Under a contract that counts reads and writes apart, a head that waits for one of them delays no class whose head is the
//! other. Within a class requests go in order.
//!
//! No class starves: its head goes at the latest after [`Tags::patience`].
//!
//! Where several stores wait in a class, each gets its part of the class's tokens, by weight. Users of one store go in
//! order of arrival, each as soon as there is a token, which keeps the longest wait short.
//! [`Tags::for_p99`] keeps the 99th percentile short instead: see [`pauses`].

mod pauses;

use std::time::Duration;

use self::pauses::Pauses;
use super::queues::{Queues, RAISED, class_of};
use super::{Event, Figures, Full, Grant, Request, Scheduler, TenantFigures, Ticket, Window};
use crate::budget::{Admission, Budget, Share};
use crate::contract::{Contract, Cost, Counted, Direction};
use crate::purpose::{Class, Tenant};
use crate::time::Instant;

const CLASSES: usize = Class::ALL.len();

const FOREGROUND: usize = Class::Foreground.index();

/// How far back a class's tag may be: service owed from before that, while the class could not be served, is dropped.
const LAG_MAX: Duration = Duration::from_millis(100);

/// The most that foreground leaves to commits, in requests of the largest kind. A burst of commits does not grow with
/// the volume.
const COMMITS_MAX: u64 = 4;

/// What due work leaves for users, as a part of the depth.
const DUE_LEAVES: f64 = 0.625;

/// The interval over which the demand of users is counted and predicted.
const DEMAND_NANOS: u64 = 100_000_000;

/// The rights of a class, as parts of what the budget earns or holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rights {
    /// Its guaranteed share before tokens are spare. All classes together have at most 1.
    pub reservation: f64,
    /// The part of that share it gets even if users want everything. For users, equal to the reservation.
    pub floor: f64,
    /// What it leaves of the budget's depth for more urgent classes when it is not due. Below 1.
    pub leaves: f64,
}

/// Tags over a [`Budget`].
#[derive(Debug)]
pub struct Tags {
    rights: [Rights; CLASSES],
    budget: Budget,
    queues: Queues,
    pace: Pace,
    /// The tag of each class: service it did not get is owed from then on.
    owed_from: [Instant; CLASSES],
    demand: Demand,
    pauses: Option<Pauses>,
    next_at: Option<Instant>,
}

impl Tags {
    /// The default rights, indexed as [`Class::ALL`].
    ///
    /// Users who want nine tenths of what was paid, plus all floors, fit into rho 0.98. With these thresholds such
    /// users rarely use up what is kept for them: on a volume of 1000 IOPS that is 562 operations, of which 32 are for
    /// commits only.
    pub const RIGHTS: [Rights; CLASSES] = [
        Rights { reservation: 0.05, floor: 0.05, leaves: 0.0 },
        Rights { reservation: 0.5, floor: 0.5, leaves: 0.125 },
        Rights { reservation: 0.1, floor: 0.02, leaves: 0.75 },
        Rights { reservation: 0.05, floor: 0.0075, leaves: 0.8125 },
        Rights { reservation: 0.01, floor: 0.0025, leaves: 0.875 },
    ];

    /// Keeps a volume to `share` of `contract`, with an empty budget at first and the default rights. `queue_max`
    /// bounds the queue of a class for refusable requests only.
    #[must_use]
    pub fn new(contract: &Contract, share: Share, queue_max: usize, now: Instant) -> Self {
        Self::with_rights(Self::RIGHTS, contract, share, queue_max, now)
    }

    /// The same with other rights.
    ///
    /// # Panics
    /// When reservations exceed 1, or a class has no floor within its reservation or leaves everything.
    #[must_use]
    pub fn with_rights(
        rights: [Rights; CLASSES],
        contract: &Contract,
        share: Share,
        queue_max: usize,
        now: Instant,
    ) -> Self {
        let reserved: f64 = rights.iter().map(|rights| rights.reservation).sum();
        assert!(reserved <= 1.0, "{reserved} of the contract is reserved");
        for Rights { reservation, floor, leaves } in rights {
            assert!(floor > 0.0 && floor <= reservation, "{floor} of {reservation} is the floor");
            assert!((0.0..1.0).contains(&leaves), "{leaves} is left");
        }
        let budget = Budget::new(contract, share, now);
        let mut queues = Queues::new(contract, queue_max);
        queues.share_by(&budget);
        Self {
            rights,
            pace: Pace::of(&rights, &budget),
            budget,
            queues,
            owed_from: [now; CLASSES],
            demand: Demand::default(),
            pauses: None,
            next_at: None,
        }
    }

    /// Like [`Tags::new`], for the best 99th percentile. When demand exceeds the contract, one user in a hundred waits
    /// for up to the time in which the budget fills, and the others go at once. If that is impossible (too many users
    /// wait for so small a volume, or they do not wait for their answers), each goes as soon as there is a token.
    #[must_use]
    pub fn for_p99(contract: &Contract, share: Share, queue_max: usize, now: Instant) -> Self {
        let mut tags = Self::new(contract, share, queue_max, now);
        tags.queues.keep_raised_apart();
        tags.pauses = Some(Pauses::new(1.0 - 0.99, tags.pace.nanos(Cost::either(1, 0))));
        tags
    }

    /// The longest wait of the head of a class with a request of `cost`, under any other load, if time
    /// passes evenly and the terms stay. It lasts until the head is overdue and all requests due before it
    /// have gone.
    #[must_use]
    pub fn patience(&self, class: Class, cost: Cost) -> Duration {
        let users: f64 = self.rights[..=FOREGROUND].iter().map(|r| r.floor).sum();
        let floors: f64 = self.rights.iter().map(|rights| rights.floor).sum();
        let overdue = self.pace.nanos(cost) / self.rights[class.index()].floor;
        // What users may be owed already, plus one of the largest requests of every class, which may just have become
        // due before this one and is due again after it.
        let before = LAG_MAX.as_nanos() as f64 * users
            + self.pace.nanos(self.budget.largest()) * (2 * CLASSES) as f64;
        let pauses = self.pauses.is_some() && class == Class::Foreground;
        let pause = if pauses { self.budget.nanos(self.budget.holds()) } else { 0.0 };
        Duration::from_nanos((pause + overdue + before / (1.0 - floors)) as u64)
    }

    /// The lane with the next request of a class. During a pause of users, only raised work of their class goes;
    /// otherwise both lanes go in order of arrival.
    fn lane(&self, index: usize, pause: Option<Instant>) -> usize {
        if index != FOREGROUND || self.pauses.is_none() {
            return index;
        }
        match (self.queues.head(FOREGROUND), self.queues.head(RAISED)) {
            (_, None) => FOREGROUND,
            (Some(user), Some(raised)) if pause.is_none() && user.ticket < raised.ticket => {
                FOREGROUND
            }
            _ => RAISED,
        }
    }

    /// The due times of the head of a lane.
    fn standing(&self, lane: usize) -> Option<Standing> {
        let head = self.queues.head(lane)?;
        let index = class_of(lane);
        let from = head.since.max(self.owed_from[index]);
        let nanos = self.pace.nanos(head.cost);
        let after = |part: f64| from + Duration::from_nanos((nanos / part) as u64);
        let Rights { reservation, floor, .. } = self.rights[index];
        let to = after(reservation);
        Some(if is_user(index) {
            Standing { due_at: from, overdue_at: from, to }
        } else {
            Standing { due_at: to, overdue_at: after(floor), to }
        })
    }

    fn grant(&mut self, now: Instant) -> Option<Event> {
        self.next_at = None;
        let Some(first) = self.queues.first() else {
            self.queues.rest();
            return None;
        };
        if !self.budget.counts_apart() {
            return self.grant_of(None, first, now);
        }
        // Neither waits for tokens of the other, behind whatever class.
        let directions = [Direction::Read, Direction::Write].into_iter();
        directions.map(|of| self.grant_of(Some(of), first, now)).find_map(|granted| granted)
    }

    /// A grant to a head that moves its bytes `only` one way, or any.
    fn grant_of(&mut self, only: Option<Direction>, first: usize, now: Instant) -> Option<Event> {
        let mut spare = None;
        let pause = self.paused_until(now);
        let saved_until = self.pauses.as_ref().map_or(Instant::ZERO, Pauses::saves_until);
        for index in first..CLASSES {
            let lane = self.lane(index, pause);
            let direction = self.queues.head(lane).map(|head| head.cost.direction());
            if only.is_some() && direction != only {
                continue;
            }
            if let (FOREGROUND, Some(until)) = (index, pause) {
                self.wake_at(until);
                if lane == FOREGROUND {
                    continue;
                }
            }
            let Some(standing) = self.standing(lane) else { continue };
            let Standing { due_at, overdue_at, to } = standing;
            if overdue_at <= now {
                // Less urgent classes wait while this one earns its tokens.
                self.pay_or_pause(lane, now, Cost::default())?;
                self.owed_from[index] = if is_user(index) { to.max(forgiven(now)) } else { now };
                return Some(self.queues.grant(lane, now));
            }
            if saved_until > now && !is_user(index) {
                self.wake_at(overdue_at.min(saved_until));
                continue;
            }
            self.wake_at(if due_at > now { due_at } else { overdue_at });
            if due_at <= now && self.pay(lane, now, self.pace.kept).is_some() {
                self.owed_from[index] = to.max(forgiven(now));
                return Some(self.queues.grant(lane, now));
            }
            spare = spare.or(Some((lane, to)));
        }
        let (lane, to) = spare?;
        let index = class_of(lane);
        let left = self.threshold(index, now);
        self.pay_or_pause(lane, now, left)?;
        if is_user(index) {
            return Some(self.queues.grant_spare(lane, now));
        }
        self.owed_from[index] = to.min(now);
        Some(self.queues.grant(lane, now))
    }

    /// The end of the current pause of users, if there is one.
    fn paused_until(&mut self, now: Instant) -> Option<Instant> {
        let queued = self.queues.queued(FOREGROUND);
        self.pauses.as_mut()?.until(now, queued)
    }

    /// Like [`Tags::pay`]; starts a pause of users if they cannot pay.
    fn pay_or_pause(&mut self, lane: usize, now: Instant, left: Cost) -> Option<()> {
        let paid = self.pay(lane, now, left);
        if let (FOREGROUND, Some(pauses)) = (lane, &mut self.pauses) {
            let head = self.queues.head(lane)?;
            let nanos = self.pace.nanos(head.cost);
            if paid.is_some() {
                pauses.went(nanos);
            } else {
                let queued = self.queues.queued(lane);
                let full_in = self.budget.full_in(head.owed().least(self.budget.largest()), left);
                pauses.pause(now, head.since, queued, nanos, full_in);
            }
        }
        paid
    }

    /// Pays for the head of a lane if the budget covers it and `left`; else sets the time at which it will.
    fn pay(&mut self, lane: usize, now: Instant, left: Cost) -> Option<()> {
        let head = self.queues.head_mut(lane)?;
        loop {
            let owed = head.owed();
            let part = owed.least(self.budget.largest());
            if let Admission::At(at) = self.budget.admit_above(now, part, left) {
                self.wake_at(at);
                return None;
            }
            head.paid = head.paid.plus(part);
            if part == owed {
                break;
            }
        }
        Some(())
    }

    fn wake_at(&mut self, at: Instant) {
        self.next_at = Some(self.next_at.map_or(at, |next| next.min(at)));
    }

    fn threshold(&mut self, index: usize, now: Instant) -> Cost {
        let threshold = self.pace.thresholds[index];
        if Class::ALL[index] != Class::Idle {
            return threshold;
        }
        let expected = self.demand.expected(now);
        threshold.most(expected)
    }
}

impl Scheduler for Tags {
    fn submit(&mut self, ticket: Ticket, request: Request, now: Instant) -> Result<(), Full> {
        if request.class == Class::Foreground {
            self.demand.add(request.cost, now);
        }
        self.queues.push(ticket, request, now)
    }

    fn poll(&mut self, now: Instant) -> Option<Event> {
        let budget = &mut self.budget;
        let expired = self.queues.expired(now, |_, paid| budget.refund(paid));
        expired.or_else(|| self.grant(now))
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.queues.wakeup(self.next_at)
    }

    fn expected(&self, cost: Cost, now: Instant) -> Option<Instant> {
        // The read is due, or gets spare tokens from above the threshold, whichever comes first.
        let due_from = self.owed_from[FOREGROUND];
        let before = self.queues.waiting(Class::Foreground);
        let takes = self.pace.nanos(before) / self.rights[FOREGROUND].reservation;
        let due_at = due_from.max(now) + Duration::from_nanos(takes as u64);
        let due_at = self.budget.expected(before, cost, Cost::default()).max(later(due_at, now));
        let threshold = self.pace.thresholds[FOREGROUND];
        let spare_at = self.budget.expected(self.queues.before_users(), cost, threshold);
        let paid_at = due_at.min(spare_at);
        let Some(pauses) = &self.pauses else { return paid_at };
        let left = if due_from <= now { Cost::default() } else { threshold };
        let queued = self.queues.queued(FOREGROUND);
        let ends_at = match paid_at {
            Some(_) if queued == 0 => {
                let mut would_pause = pauses.clone();
                let full_in = self.budget.full_in(cost, left);
                would_pause.pause(now, now, 1, self.pace.nanos(cost), full_in);
                would_pause.ends_at(now)
            }
            _ if queued > 0 => pauses.ends_at(now),
            _ => None,
        };
        paid_at.max(ends_at)
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

    fn put_back(&mut self, grant: Grant, cost: Cost, now: Instant) {
        self.budget.refund(grant.cost);
        let index = grant.place.class();
        let nanos = self.pace.nanos(grant.cost);
        let reservation = self.rights[index].reservation;
        // A class in debt is owed the cost of its grant again, but no more than if it had not been served recently.
        if !grant.place.is_spare() {
            let tag = &mut self.owed_from[index];
            *tag = (*tag).min(before(*tag, nanos / reservation).max(now));
        }
        self.queues.put_back(grant, cost);
    }

    fn set_contract(&mut self, contract: &Contract, now: Instant) {
        let budget = &mut self.budget;
        budget.set_contract(contract, now);
        self.queues.reprice(contract, |_, back| budget.refund(back));
        self.queues.share_by(&self.budget);
        self.pace = Pace::of(&self.rights, &self.budget);
    }

    fn set_share(&mut self, share: Share, contract: &Contract, now: Instant) {
        self.budget.set_share(share, contract, now);
        self.queues.share_by(&self.budget);
        self.pace = Pace::of(&self.rights, &self.budget);
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

/// When the head of a class may go.
struct Standing {
    /// When it is due.
    due_at: Instant,
    /// When it goes, whatever users want.
    overdue_at: Instant,
    /// The class's tag after serving it.
    to: Instant,
}

/// Whether users wait for the requests of the class.
const fn is_user(index: usize) -> bool {
    index <= FOREGROUND
}

fn later(at: Instant, now: Instant) -> Option<Instant> {
    (at > now).then_some(at)
}

fn before(at: Instant, nanos: f64) -> Instant {
    Instant::from_nanos(at.as_nanos().saturating_sub(nanos as u64))
}

fn forgiven(now: Instant) -> Instant {
    Instant::from_nanos(now.as_nanos().saturating_sub(LAG_MAX.as_nanos() as u64))
}

/// Times and thresholds that follow from the terms.
#[derive(Clone, Debug)]
struct Pace {
    /// Nanoseconds to earn one token of each kind.
    token_nanos: [f64; Counted::ALL.len()],
    /// What each class leaves.
    thresholds: [Cost; CLASSES],
    /// What due work leaves.
    kept: Cost,
}

impl Pace {
    fn of(rights: &[Rights; CLASSES], budget: &Budget) -> Self {
        let holds = budget.holds();
        let part = |of: u64, part: f64| match of {
            // Unlimited tokens need no threshold.
            u64::MAX => 0,
            of => (of as f64 * part) as u64,
        };
        let leaves = |leaves: f64| Cost::each(|counts| part(holds.of(counts), leaves));
        let mut thresholds = rights.map(|rights| leaves(rights.leaves));
        let largest = budget.largest();
        let most = Cost::each(|counts| largest.of(counts).saturating_mul(COMMITS_MAX));
        let foreground = &mut thresholds[FOREGROUND];
        *foreground = foreground.least(most);
        Self {
            token_nanos: Counted::ALL
                .map(|token| budget.nanos(Cost::each(|counts| u64::from(counts == token)))),
            thresholds,
            kept: leaves(DUE_LEAVES),
        }
    }

    /// How long it takes to earn `cost`, in nanoseconds.
    fn nanos(&self, cost: Cost) -> f64 {
        let nanos = |counts: Counted| cost.of(counts) as f64 * self.token_nanos[counts.index()];
        Counted::ALL.into_iter().map(nanos).fold(0.0, f64::max)
    }
}

/// The demand of users: the cost of their requests in each tenth of a second, with more weight on recent ones.
#[derive(Clone, Debug, Default)]
struct Demand {
    /// The number of the current tenth.
    tenth: u64,
    /// The demand in it.
    current: Cost,
    /// Half of the tenth before it, a quarter of the one before that, and so on.
    mean: Cost,
}

impl Demand {
    fn add(&mut self, cost: Cost, now: Instant) {
        self.roll(now);
        self.current = self.current.plus(cost);
    }

    /// The expected demand of the next tenth of a second: the mean, or that of the current tenth if it is higher.
    fn expected(&mut self, now: Instant) -> Cost {
        self.roll(now);
        self.mean.most(self.current)
    }

    fn roll(&mut self, now: Instant) {
        let tenth = now.as_nanos() / DEMAND_NANOS;
        // After that many halvings any mean is 0.
        for _ in 0..tenth.saturating_sub(self.tenth).min(u64::from(u64::BITS)) {
            let both = self.mean.plus(self.current);
            self.mean = Cost::each(|counts| both.of(counts) / 2);
            self.current = Cost::default();
        }
        self.tenth = self.tenth.max(tenth);
    }
}

#[cfg(test)]
mod tests;

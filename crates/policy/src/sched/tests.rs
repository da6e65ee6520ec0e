//! Guarantees of every scheduler, tested on each with the same random driver.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::budget::Share;
use crate::contract::{Counted, Limit};
use crate::units::KIB;

mod cases;
mod fair;

pub(super) const T0: Instant = Instant::ZERO;

/// `iops` operations a second, and bytes that are short when all operations are large.
pub(super) fn terms(iops: u64) -> Contract {
    let limits = vec![
        Limit { counts: Counted::Ops, rate_per_sec: iops, depth: iops },
        Limit { counts: Counted::Bytes, rate_per_sec: iops * 64 * KIB, depth: iops * 64 * KIB },
    ];
    Contract { limits, ..Contract::unlimited() }
}

pub(super) fn millis(millis: u64) -> Instant {
    T0 + Duration::from_millis(millis)
}

pub(super) fn request(class: Class, ops: u64) -> Request {
    let cost = Cost::reads(ops, ops * 256 * KIB);
    Request { class, tenant: Tenant::POOL, cost, deadline: None, refusable: false, of_user: true }
}

pub(super) fn poll_all(scheduler: &mut dyn Scheduler, now: Instant) -> Vec<Event> {
    std::iter::from_fn(|| scheduler.poll(now)).collect()
}

pub(super) fn granted(event: Event) -> Grant {
    match event {
        Event::Granted(grant) => grant,
        Event::Expired { ticket } => panic!("{ticket:?} expired"),
    }
}

/// The actions of a random driver.
#[derive(Clone, Debug)]
enum Act {
    Submit { class: usize, ops: u64, patience_us: Option<u64>, refusable: bool, of_user: bool },
    Cancel { which: usize },
    Refund { which: usize },
    PutBack { which: usize, ops: u64 },
    Terms { iops: u64 },
    Wait { us: u64 },
    WaitForWakeup,
}

fn any_acts() -> impl Strategy<Value = Vec<Act>> {
    let patience_us = proptest::option::of(0u64..20_000);
    let submit = (0usize..5, 1u64..=8, patience_us, any::<bool>(), any::<bool>()).prop_map(
        |(class, ops, patience_us, refusable, of_user)| Act::Submit {
            class,
            ops,
            patience_us,
            refusable,
            of_user,
        },
    );
    let act = prop_oneof![
        8 => submit,
        1 => (0usize..1000).prop_map(|which| Act::Cancel { which }),
        1 => (0usize..1000).prop_map(|which| Act::Refund { which }),
        2 => (0usize..1000, 1u64..=8).prop_map(|(which, ops)| Act::PutBack { which, ops }),
        1 => (50u64..5000).prop_map(|iops| Act::Terms { iops }),
        2 => (0u64..5000).prop_map(|us| Act::Wait { us }),
        3 => Just(Act::WaitForWakeup),
    ];
    vec(act, 1..300)
}

const QUEUE_MAX: usize = 5;

/// Drives a scheduler at random, and checks each answer against a list of waiting requests.
struct Driver {
    policy: Policy,
    scheduler: Box<dyn Scheduler>,
    now: Instant,
    next: u64,
    waiting: BTreeMap<Ticket, Request>,
    granted: Vec<(Request, Grant)>,
    spent: [Cost; 5],
    expired: u64,
    cancelled: u64,
    refused: u64,
}

impl Driver {
    fn new(policy: Policy) -> Self {
        Self {
            policy,
            scheduler: policy.build(&terms(1000), Share::default(), QUEUE_MAX, T0),
            now: T0,
            next: 0,
            waiting: BTreeMap::new(),
            granted: Vec::new(),
            spent: [Cost::default(); 5],
            expired: 0,
            cancelled: 0,
            refused: 0,
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Submit { class, ops, patience_us, refusable, of_user } => {
                let deadline = patience_us.map(|us| self.now + Duration::from_micros(us));
                let class = Class::ALL[class];
                self.submit(Request { deadline, refusable, of_user, ..request(class, ops) });
            }
            Act::Cancel { which } => {
                let tickets: Vec<_> = self.waiting.keys().copied().collect();
                if let Some(ticket) = tickets.get(which % tickets.len().max(1)) {
                    assert!(self.scheduler.cancel(*ticket));
                    assert!(!self.scheduler.cancel(*ticket), "it waits no more");
                    self.waiting.remove(ticket);
                    self.cancelled += 1;
                }
            }
            Act::Refund { which } => {
                if !self.granted.is_empty() {
                    let (request, grant) = self.granted.swap_remove(which % self.granted.len());
                    self.scheduler.refund(request.class, grant.cost);
                    self.give_back(request.class, grant.cost);
                }
            }
            Act::PutBack { which, ops } => {
                if !self.granted.is_empty() {
                    let (request, grant) = self.granted.swap_remove(which % self.granted.len());
                    let cost = self::request(request.class, ops).cost;
                    self.scheduler.put_back(grant, cost, self.now);
                    self.give_back(request.class, grant.cost);
                    self.waiting.insert(grant.ticket, Request { cost, ..request });
                }
            }
            Act::Terms { iops } => self.scheduler.set_contract(&terms(iops), self.now),
            Act::Wait { us } => self.now = self.now + Duration::from_micros(us),
            Act::WaitForWakeup => {
                if let Some(at) = self.scheduler.next_wakeup() {
                    self.now = self.now.max(at);
                }
            }
        }
        while let Some(event) = self.scheduler.poll(self.now) {
            self.check(event);
        }
        assert_eq!(self.scheduler.next_wakeup().is_none(), self.waiting.is_empty());
        assert!(self.scheduler.next_wakeup().is_none_or(|at| at > self.now));
        assert!(self.waiting.values().all(|r| r.deadline.is_none_or(|at| at > self.now)));
    }

    fn give_back(&mut self, class: Class, cost: Cost) {
        self.spent[class.index()] = self.spent[class.index()].less(cost);
    }

    fn submit(&mut self, request: Request) {
        let ticket = Ticket(self.next);
        self.next += 1;
        let queued = self.waiting.values().filter(|w| w.class == request.class).count();
        match self.scheduler.submit(ticket, request, self.now) {
            Ok(()) => {
                assert!(!request.refusable || queued < QUEUE_MAX);
                self.waiting.insert(ticket, request);
            }
            Err(full) => {
                assert!(request.refusable && queued >= QUEUE_MAX);
                assert_eq!(full, Full { class: request.class, queued });
                self.refused += 1;
            }
        }
    }

    fn check(&mut self, event: Event) {
        match event {
            Event::Granted(grant) => {
                let Grant { ticket, cost, .. } = grant;
                let request = self.waiting.remove(&ticket).expect("answered once");
                let class = request.class;
                assert_eq!(cost, request.cost);
                if self.policy == Policy::Strict {
                    let urgent = self.waiting.values().map(|w| w.class).min();
                    assert!(urgent.is_none_or(|u| class <= u), "{class:?} before {urgent:?}");
                }
                // Where users may pause, raised work of their class may pass them.
                let apart = self.policy == Policy::TagsP99 && class == Class::Foreground;
                let mut others = self.waiting.iter().filter(|(_, other)| {
                    other.class == class && (!apart || other.of_user == request.of_user)
                });
                assert!(others.all(|(other, _)| ticket < *other), "first come first served");
                self.spent[class.index()] = self.spent[class.index()].plus(cost);
                self.granted.push((request, grant));
            }
            Event::Expired { ticket } => {
                let request = self.waiting.remove(&ticket).expect("answered once");
                assert!(request.deadline.is_some_and(|at| at <= self.now));
                self.expired += 1;
            }
        }
    }

    fn finish(mut self) {
        while let Some(at) = self.scheduler.next_wakeup() {
            self.now = at;
            self.act(Act::Wait { us: 0 });
        }
        assert!(self.waiting.is_empty(), "every request is answered in the end");
        let figures = Class::ALL.map(|class| self.scheduler.figures(class));
        assert_eq!(figures.clone().map(|f| f.spent), self.spent);
        assert!(figures.iter().all(|f| f.queued == 0));
        let total = |of: fn(&Figures) -> u64| figures.iter().map(of).sum::<u64>();
        assert_eq!(total(|f| f.expired), self.expired);
        assert_eq!(total(|f| f.cancelled), self.cancelled);
        assert_eq!(total(|f| f.refused), self.refused);
        assert_eq!(total(|f| f.granted) + self.expired + self.cancelled + self.refused, self.next);
        assert_eq!(total(|f| f.waits.counts.iter().sum()), total(|f| f.granted));
    }
}

proptest! {
    #[test]
    fn every_request_is_answered_once_and_in_order(
        policy in proptest::sample::select(&Policy::ALL),
        acts in any_acts(),
    ) {
        let mut driver = Driver::new(policy);
        acts.into_iter().for_each(|act| driver.act(act));
        driver.finish();
    }
}

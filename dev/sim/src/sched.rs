//! Every scheduler under the same script: a gate without futures and devices, so that clocks may go
//! back and thousands of scripts take seconds.
//!
//! ```text
//!   script: bursts of every class, deadlines, cancels, refunds, other contracts and shares,
//!      │    a machine that was suspended, a clock that steps back
//!   scheduler ──► provider (for schedulers that never overdraw it)
//! ```
//!
//! Invariants: every request is answered once; a class is served in order; no request is granted after its
//! deadline, or expires before it; only a refusable request is refused, and only by a full queue; tokens
//! spent are those granted less those given back; every waiting request is woken; a second grants no more
//! than was paid; the provider is never overdrawn; and, while clock and contract do not change, the first
//! request of a class is granted within its patience.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use policy::budget::Share;
use policy::contract::{Contract, Cost, Counted, Direction, Limit};
use policy::provider::Provider;
use policy::purpose::{Class, Tenant};
use policy::sched::{Event, Grant, Policy, Request, Scheduler, Tags, Ticket};
use policy::time::{Instant, NANOS_PER_SEC};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::{Program, Sim};

/// See the [module](self).
pub const PROGRAM: Program = Program {
    name: "sched",
    about: "Every scheduler under the same script: answers, order, conservation, starvation",
    run,
};

/// The largest operation. No rule depends on it.
const OP_BYTES_MAX: u64 = 16 * 1024;
const OPS_MAX: u64 = 8;
const CLASSES: usize = Class::ALL.len();
/// The most operations granted and neither used nor given back. A token that is given back late was saved
/// up twice: by the provider, if its bucket was not full, and by us. A real provider's bucket is deeper than
/// ours, which absorbs that; the small buckets here are deepened by this number.
const HELD_MAX: u64 = 16;
/// Wake-ups after which a waiting request counts as waiting for ever.
const WAKEUPS_MAX: u64 = 200_000;

fn run(sim: &Sim) -> String {
    let told = Policy::ALL.map(|policy| Stage::new(sim, policy).play());
    told.join("; ")
}

/// One scheduler under the script.
struct Stage {
    sim: Sim,
    policy: Policy,
    random: Xoshiro256PlusPlus,
    scheduler: Box<dyn Scheduler>,
    provider: Provider,
    /// The contract of the provider, and the current one of the scheduler.
    paid: Contract,
    terms: Contract,
    share: Share,
    queue_max: usize,
    /// The script does not change clock, contract or granted requests: the bound on waiting holds.
    calm: bool,
    /// The real time, and how far the machine's clock is behind it.
    now: Instant,
    behind: Duration,
    /// The latest time that the clock has shown: the second of schedulers that grant per second.
    shown_max: Instant,
    waiting: BTreeMap<Ticket, Request>,
    in_hand: VecDeque<(Request, Grant)>,
    /// The earliest time at which the first request of each class became first.
    first_since: [Instant; CLASSES],
    count: Count,
    /// The second of the clock, and what was spent in it.
    second: (u64, u64),
}

#[derive(Default)]
struct Count {
    submitted: u64,
    granted: u64,
    expired: u64,
    cancelled: u64,
    refused: u64,
    spent: [Cost; CLASSES],
}

impl Stage {
    fn new(sim: &Sim, policy: Policy) -> Self {
        let mut random = sim.random("script");
        let paid = any_contract(&mut random);
        let share = any_share(&mut random);
        let (queue_max, calm) = (random.random_range(1..20), random.random_bool(0.3));
        let scheduler = policy.build(&paid, share, queue_max, Instant::ZERO);
        let mut provides = paid.clone();
        for limit in &mut provides.limits {
            limit.depth += if calm { 0 } else { least(limit.counts) / OPS_MAX * HELD_MAX };
        }
        let stage = Self {
            sim: sim.clone(),
            policy,
            random,
            scheduler,
            provider: Provider::new(&provides, Instant::ZERO),
            terms: paid.clone(),
            paid,
            share,
            queue_max,
            calm,
            now: Instant::ZERO,
            behind: Duration::ZERO,
            shown_max: Instant::ZERO,
            waiting: BTreeMap::new(),
            in_hand: VecDeque::new(),
            first_since: [Instant::ZERO; CLASSES],
            count: Count::default(),
            second: (0, 0),
        };
        stage.note(format_args!("! {:?}, {share:?}, calm: {calm}", stage.paid.limits));
        stage
    }

    fn note(&self, what: std::fmt::Arguments<'_>) {
        let at = self.shown().since(Instant::ZERO);
        self.sim.note(self.policy.name(), format_args!("{at:?} {what}"));
    }

    /// The time on the machine's clock.
    fn shown(&self) -> Instant {
        Instant::from_nanos(self.now.as_nanos().saturating_sub(self.behind.as_nanos() as u64))
    }

    fn play(mut self) -> String {
        for _ in 0..self.random.random_range(20..200) {
            self.act();
        }
        self.finish()
    }

    fn act(&mut self) {
        match self.random.random_range(0..if self.calm { 70 } else { 100 }) {
            0..35 => self.burst(),
            35..70 => {
                let pause = self.random.random_range(Duration::ZERO..Duration::from_millis(200));
                self.pass(pause);
            }
            70..78 => self.cancel(),
            78..83 => self.refund(),
            83..86 => self.put_back(),
            86..90 => self.change_terms(),
            90..93 => {
                self.share = any_share(&mut self.random);
                self.scheduler.set_share(self.share, &self.terms, self.shown());
            }
            93..96 => {
                // The machine was suspended: alarms are late, and the provider's buckets filled.
                let asleep = self.random.random_range(Duration::ZERO..Duration::from_secs(4000));
                self.note(format_args!("! suspended for {asleep:?}"));
                self.now = self.now + asleep;
            }
            _ => {
                let back = self.random.random_range(Duration::ZERO..Duration::from_secs(5));
                // Not before its origin, where it would stand still for ever.
                let back = back.min(self.shown().since(Instant::ZERO));
                self.note(format_args!("! the clock steps back by {back:?}"));
                self.behind += back;
            }
        }
        self.poll();
    }

    fn burst(&mut self) {
        let class = Class::ALL[self.random.random_range(0..CLASSES)];
        let count = if self.random.random_bool(0.2) { 60 } else { 6 };
        let in_a_hurry = self.random.random_bool(0.2);
        let refusable = self.random.random_bool(0.2);
        let of_user = self.random.random_bool(0.8);
        let largest = self.scheduler.largest();
        for _ in 0..self.random.random_range(1..=count) {
            let len = match self.random.random_range(0..4) {
                0 => self.random.random_range(0..=OPS_MAX * OP_BYTES_MAX),
                _ => self.random.random_range(0..=OP_BYTES_MAX),
            };
            let len = len.min(largest.bytes).min(largest.ops.saturating_mul(OP_BYTES_MAX));
            let patience = self.random.random_range(0..300_000);
            let deadline = in_a_hurry.then(|| self.shown() + Duration::from_micros(patience));
            let direction = match self.random.random_bool(0.5) {
                true => Direction::Read,
                false => Direction::Write,
            };
            let cost = self.terms.cost(direction, len);
            self.submit(Request {
                class,
                tenant: Tenant::POOL,
                cost,
                deadline,
                refusable,
                of_user,
            });
        }
    }

    fn submit(&mut self, request: Request) {
        let ticket = Ticket(self.count.submitted);
        self.count.submitted += 1;
        let queued = self.waiting.values().filter(|other| other.class == request.class).count();
        match self.scheduler.submit(ticket, request, self.shown()) {
            Ok(()) => {
                if queued == 0 {
                    self.first_since[request.class.index()] = self.shown();
                }
                self.waiting.insert(ticket, request);
            }
            Err(full) => {
                assert!(request.refusable, "{full}, and it must not be refused");
                let max = if self.policy == Policy::None { usize::MAX } else { self.queue_max };
                assert!(queued >= max, "{queued} of {max} wait");
                self.count.refused += 1;
            }
        }
    }

    /// Lets time pass; every alarm is on time.
    fn pass(&mut self, pause: Duration) {
        let until = self.now + pause;
        let mut wakeups = 0;
        while let Some(wait) = self.wait().filter(|&wait| self.now + wait < until) {
            self.now = self.now + wait;
            self.poll();
            wakeups += 1;
            assert!(wakeups < WAKEUPS_MAX, "{}: too many wake-ups", self.policy.name());
        }
        self.now = until;
    }

    /// The time until the scheduler's next wake-up.
    fn wait(&self) -> Option<Duration> {
        self.scheduler.next_wakeup().map(|at| at.since(self.shown()))
    }

    fn cancel(&mut self) {
        let among = self.waiting.len().max(1);
        let Some(&ticket) = self.waiting.keys().nth(self.random.random_range(0..among)) else {
            return;
        };
        self.note(format_args!("! {ticket:?} gives up"));
        assert!(self.scheduler.cancel(ticket), "it waits");
        assert!(!self.scheduler.cancel(ticket), "it waits no more");
        self.waiting.remove(&ticket);
        self.count.cancelled += 1;
    }

    fn refund(&mut self) {
        let Some((Request { class, .. }, Grant { cost, .. })) = self.in_hand.pop_front() else {
            return;
        };
        self.note(format_args!("! {cost:?} of {} is given back", class.name()));
        self.scheduler.refund(class, cost);
        self.given_back(class, cost);
    }

    /// Puts a granted request back in its old place, for more tokens or fewer.
    fn put_back(&mut self) {
        let Some((request, grant)) = self.in_hand.pop_front() else { return };
        let largest = self.scheduler.largest();
        let len = self.random.random_range(0..=OPS_MAX * OP_BYTES_MAX);
        let len = len.min(largest.bytes).min(largest.ops.saturating_mul(OP_BYTES_MAX));
        let cost = self.terms.cost(request.cost.direction(), len);
        self.note(format_args!("! {:?} is put back for {cost:?}", grant.ticket));
        self.scheduler.put_back(grant, cost, self.shown());
        self.given_back(request.class, grant.cost);
        self.count.granted -= 1;
        self.waiting.insert(grant.ticket, Request { cost, ..request });
    }

    fn given_back(&mut self, class: Class, cost: Cost) {
        let spent = &mut self.count.spent[class.index()];
        *spent = spent.less(cost);
        self.second.1 = self.second.1.saturating_sub(cost.ops);
    }

    /// Changes the contract, never above that of the provider.
    fn change_terms(&mut self) {
        self.terms = self.paid.clone();
        for limit in &mut self.terms.limits {
            limit.rate_per_sec =
                self.random.random_range(limit.rate_per_sec.div_ceil(10)..=limit.rate_per_sec);
            limit.depth = self.random.random_range(least(limit.counts)..=limit.depth);
        }
        self.note(format_args!("! {:?}", self.terms.limits));
        self.scheduler.set_contract(&self.terms, self.shown());
    }

    fn poll(&mut self) {
        self.shown_max = self.shown_max.max(self.shown());
        while let Some(event) = self.scheduler.poll(self.shown()) {
            match event {
                Event::Granted(grant) => self.granted(grant),
                Event::Expired { ticket } => {
                    let request = self.waiting.remove(&ticket).expect("answered once");
                    let passed = request.deadline.is_some_and(|at| at <= self.shown());
                    assert!(passed, "{ticket:?} expired before its time");
                    self.first_since[request.class.index()] = self.shown();
                    self.count.expired += 1;
                }
            }
        }
        let wakeup = self.scheduler.next_wakeup();
        assert_eq!(wakeup.is_none(), self.waiting.is_empty(), "{wakeup:?}");
        assert!(wakeup.is_none_or(|at| at > self.shown()), "{wakeup:?} has passed");
        let late = |request: &Request| request.deadline.is_some_and(|at| at <= self.shown());
        assert!(!self.waiting.values().any(late), "a deadline passed unseen");
        assert!(self.policy != Policy::None || self.waiting.is_empty(), "a request waits");
    }

    fn granted(&mut self, grant: Grant) {
        let Grant { ticket, cost, .. } = grant;
        let request = self.waiting.remove(&ticket).expect("answered once");
        let (class, index) = (request.class, request.class.index());
        assert_eq!(cost, request.cost, "no more and no less than it costs");
        // Where users' reads may pause, other work of their class overtakes them.
        let apart = self.policy == Policy::TagsP99 && class == Class::Foreground;
        let mut others = self.waiting.iter().filter(|(_, other)| {
            other.class == class && (!apart || other.of_user == request.of_user)
        });
        let overtaken = others.find(|(other, _)| **other < ticket);
        assert!(overtaken.is_none(), "{overtaken:?} of {} was overtaken", class.name());
        assert!(request.deadline.is_none_or(|at| self.shown() < at), "{ticket:?} goes too late");
        self.note(format_args!(". {ticket:?} of {} goes for {cost:?}", class.name()));
        self.check_patience(class, cost);
        self.first_since[index] = self.shown();
        self.count.granted += 1;
        let spent = &mut self.count.spent[index];
        *spent = spent.plus(cost);
        self.check_second(cost);
        let held: u64 = self.in_hand.iter().map(|(_, held)| held.cost.ops).sum();
        if !self.calm && held + cost.ops <= HELD_MAX && self.random.random_bool(0.1) {
            self.in_hand.push_back((request, grant));
        } else {
            let admitted = self.provider.admit(self.now, cost);
            assert!(
                !(admitted.throttled && self.policy.never_overdraws()),
                "{}: the provider was overdrawn by {ticket:?}",
                self.policy.name()
            );
        }
    }

    fn check_patience(&self, class: Class, cost: Cost) {
        let make = match self.policy {
            Policy::Tags => Tags::new,
            Policy::TagsP99 => Tags::for_p99,
            _ => return,
        };
        if self.calm {
            let tags = make(&self.terms, self.share, self.queue_max, Instant::ZERO);
            let waited = self.shown().since(self.first_since[class.index()]);
            let bound = tags.patience(class, cost);
            assert!(waited <= bound, "{} waited {waited:?} of {bound:?}", class.name());
        }
    }

    /// Schedulers that grant per second grant no more in one than was paid, except for tokens that the first
    /// request of each class kept from the second before, and the minimum of every pool of tokens.
    fn check_second(&mut self, cost: Cost) {
        let second = self.shown_max.as_nanos() / NANOS_PER_SEC;
        if self.second.0 != second {
            self.second = (second, 0);
        }
        self.second.1 += cost.ops;
        let deals = !self.policy.never_overdraws() && self.policy != Policy::None;
        if let (true, Some(paid)) = (deals, self.paid.paid_iops()) {
            let most = paid + OPS_MAX * CLASSES as u64 + 3;
            assert!(self.second.1 <= most, "{} of {most} in a second", self.second.1);
        }
    }

    /// Without new requests, every request is answered in the end, and the figures are right.
    fn finish(mut self) -> String {
        let mut wakeups = 0;
        while let Some(wait) = self.wait() {
            self.now = self.now + wait;
            self.poll();
            wakeups += 1;
            assert!(wakeups < WAKEUPS_MAX, "these wait for ever: {:?}", self.waiting);
        }
        let figures = Class::ALL.map(|class| self.scheduler.figures(class));
        let Count { submitted, granted, expired, cancelled, refused, spent } = self.count;
        assert_eq!(figures.each_ref().map(|figures| figures.spent), spent, "tokens were minted");
        let total = |of: fn(&policy::sched::Figures) -> u64| figures.iter().map(of).sum::<u64>();
        assert_eq!(total(|f| f.granted), granted);
        assert_eq!(total(|f| f.expired), expired);
        assert_eq!(total(|f| f.cancelled), cancelled);
        assert_eq!(total(|f| f.refused), refused);
        assert_eq!(total(|f| f.waits.counts.iter().sum()), granted);
        assert_eq!(granted + expired + cancelled + refused, submitted, "answered once");
        format!("{} {granted}/{submitted} by {}", self.policy.name(), self.now.as_nanos())
    }
}

/// Limits of both kinds or of one. The provider's buckets are shallow, so that an overdraft shows soon.
fn any_contract(random: &mut Xoshiro256PlusPlus) -> Contract {
    let iops = random.random_range(20..5_000);
    let per_op = random.random_range(1_000..OP_BYTES_MAX);
    let mut limit = |counts, rate_per_sec| {
        let depth = least(counts) + random.random_range(0..rate_per_sec / 4);
        Limit { counts, rate_per_sec, depth }
    };
    let mut limits = vec![limit(Counted::Ops, iops), limit(Counted::Bytes, iops * per_op)];
    match random.random_range(0..4) {
        0 => limits.truncate(1),
        1 => drop(limits.remove(0)),
        _ => {}
    }
    if random.random_bool(0.25) {
        limits = limits.into_iter().flat_map(apart).collect();
    }
    Contract { limits, op_bytes_max: OP_BYTES_MAX, ..Contract::unlimited() }
}

fn any_share(random: &mut Xoshiro256PlusPlus) -> Share {
    let share = Share::new(random.random_range(0.1..=0.98), random.random_range(0.0..=0.25));
    share.expect("within the range of shares")
}

/// The same limit for reads and for writes, each on its own.
fn apart(limit: Limit) -> [Limit; 2] {
    let kinds = match limit.counts {
        Counted::Ops => [Counted::ReadOps, Counted::WriteOps],
        _ => [Counted::ReadBytes, Counted::WriteBytes],
    };
    kinds.map(|counts| Limit { counts, ..limit })
}

/// The depth that every request fits in.
const fn least(counts: Counted) -> u64 {
    OPS_MAX * if counts.is_ops() { 1 } else { OP_BYTES_MAX }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{replay, search};

    #[test]
    fn a_thousand_seeds_hold_for_every_scheduler() {
        let report = search(&PROGRAM, 0..1_000, 1);
        assert!(report.failures.is_empty(), "{}", report.failures[0]);
        assert_eq!((report.seeds, report.distinct), (1_000, 1_000));
    }

    #[test]
    fn the_same_seed_gives_the_same_log() {
        for seed in 0..10 {
            let (first, second) = (replay(&PROGRAM, seed).0, replay(&PROGRAM, seed).0);
            assert!(first == second, "seed {seed}");
        }
    }
}

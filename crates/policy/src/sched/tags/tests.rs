use std::collections::HashMap;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::contract::{Counted, Limit};
use crate::provider::Provider;
use crate::sched::tests::{T0, granted, millis, poll_all, request, terms};
use crate::sched::{Policy, QUEUE_MAX, Waits};
use crate::units::{KIB, MIB};

/// Operations only.
fn ops(iops: u64) -> Contract {
    let limit = Limit { counts: Counted::Ops, rate_per_sec: iops, depth: iops };
    Contract { limits: vec![limit], ..Contract::unlimited() }
}

/// `iops` operations and `mib` MiB a second.
fn both(iops: u64, mib: u64) -> Contract {
    let limit = Limit { counts: Counted::Bytes, rate_per_sec: mib * MIB, depth: mib * MIB };
    let mut contract = ops(iops);
    contract.limits.push(limit);
    contract
}

const PAGE: Cost = Cost::reads(1, 4 * KIB);
const PIECE: Cost = Cost::reads(1, 256 * KIB);

/// A class with a constant backlog of equal requests, with random arrivals at a rate a second, or with callers.
#[derive(Clone, Copy)]
enum Load {
    Backlog(Class, u64, Cost),
    Random(Class, f64, Cost),
    /// This many callers that ask again as soon as the device has answered, which takes this long.
    Callers(Class, u64, Cost, Duration),
    /// Random arrivals of work raised to the users' class, at a rate a second.
    Raised(f64, Cost),
}

/// A scheduler between loads and a provider, advanced by its own wake-ups and by arrivals.
struct Stage {
    scheduler: Box<dyn Scheduler>,
    provider: Provider,
    loads: Vec<Load>,
    due: Vec<(Instant, usize)>,
    /// The load of each ticket.
    asked: HashMap<Ticket, usize>,
    random: Xoshiro256PlusPlus,
    now: Instant,
    next: u64,
    throttled: u64,
    /// The start of each waiting raised request, and the waits of those that went.
    raised: HashMap<Ticket, Instant>,
    raised_waits: Vec<Duration>,
    /// The waits from before the measured time.
    before: [Waits; CLASSES],
}

impl Stage {
    fn new(policy: Policy, contract: &Contract, loads: &[Load]) -> Self {
        let scheduler = policy.build(contract, Share::default(), QUEUE_MAX, T0);
        let mut stage = Self {
            scheduler,
            provider: Provider::new(contract, T0),
            loads: loads.to_vec(),
            due: Vec::new(),
            asked: HashMap::new(),
            random: Xoshiro256PlusPlus::seed_from_u64(7),
            now: T0,
            next: 0,
            throttled: 0,
            raised: HashMap::new(),
            raised_waits: Vec::new(),
            before: Default::default(),
        };
        for (index, load) in loads.iter().enumerate() {
            let first = if let Load::Callers(_, callers, ..) = load { *callers } else { 1 };
            (0..first).for_each(|_| stage.plan(index));
        }
        stage
    }

    /// The next arrival of a random load, after an exponential pause, or of a caller.
    fn plan(&mut self, index: usize) {
        let pause = match self.loads[index] {
            Load::Random(_, per_sec, _) | Load::Raised(per_sec, _) => {
                let pause = -self.random.random_range(f64::MIN_POSITIVE..1.0).ln() / per_sec;
                Duration::from_nanos((pause * 1e9) as u64)
            }
            Load::Callers(.., takes) => takes,
            Load::Backlog(..) => return,
        };
        self.due.push((self.now + pause, index));
    }

    fn submit(&mut self, class: Class, cost: Cost) -> Ticket {
        self.submit_for(class, cost, true)
    }

    fn submit_for(&mut self, class: Class, cost: Cost, of_user: bool) -> Ticket {
        let request = Request { cost, of_user, ..request(class, 1) };
        let ticket = Ticket(self.next);
        self.scheduler.submit(ticket, request, self.now).unwrap();
        self.next += 1;
        ticket
    }

    fn run_until(&mut self, end: Instant) {
        while self.now < end {
            for load in self.loads.clone() {
                if let Load::Backlog(class, most, cost) = load {
                    while self.scheduler.figures(class).queued < most {
                        self.submit(class, cost);
                    }
                }
            }
            let mut went = false;
            while let Some(event) = self.scheduler.poll(self.now) {
                let Grant { ticket, cost, .. } = granted(event);
                if let Some(since) = self.raised.remove(&ticket) {
                    self.raised_waits.push(self.now.since(since));
                }
                if let Some(index) = self.asked.remove(&ticket) {
                    self.plan(index);
                }
                self.throttled += u64::from(self.provider.admit(self.now, cost).throttled);
                went = true;
            }
            if went && self.loads.iter().any(|load| matches!(load, Load::Backlog(..))) {
                continue;
            }
            let arrival = self.due.iter().enumerate().min_by_key(|(_, due)| due.0);
            let arrival = arrival.map(|(place, &(at, index))| (at, place, index));
            let wakeup = self.scheduler.next_wakeup().unwrap_or(Instant::FAR);
            match arrival {
                Some((at, place, index)) if at <= wakeup => {
                    self.now = at;
                    self.due.swap_remove(place);
                    match self.loads[index] {
                        Load::Random(class, _, cost) => {
                            self.submit(class, cost);
                            self.plan(index);
                        }
                        Load::Raised(_, cost) => {
                            let ticket = self.submit_for(Class::Foreground, cost, false);
                            self.raised.insert(ticket, self.now);
                            self.plan(index);
                        }
                        Load::Callers(class, _, cost, _) => {
                            let ticket = self.submit(class, cost);
                            self.asked.insert(ticket, index);
                        }
                        Load::Backlog(..) => unreachable!("it has no arrivals"),
                    }
                }
                _ => {
                    assert!(wakeup > self.now, "nothing went, and {wakeup:?} has passed");
                    self.now = wakeup.min(end);
                }
            }
        }
    }

    /// Starts the measured time: the budget is no longer empty.
    fn begin(&mut self) {
        self.before = Class::ALL.map(|class| self.scheduler.figures(class).waits);
    }

    fn per_sec(&self, class: Class) -> f64 {
        let seconds = self.now.since(T0).as_secs_f64();
        self.scheduler.figures(class).spent.ops as f64 / seconds
    }

    /// An upper bound of the wait of this part of all requests.
    fn waited(&self, class: Class, part: f64) -> Duration {
        let waits = self.scheduler.figures(class).waits.counts;
        let before = &self.before[class.index()].counts;
        let counts: Vec<_> = waits.iter().zip(before).map(|(all, before)| all - before).collect();
        let all: u64 = counts.iter().sum();
        let mut sum = 0;
        let index = counts.iter().position(|count| {
            sum += count;
            sum as f64 >= part * all as f64
        });
        Waits::bound(index.unwrap())
    }
}

fn seconds(seconds: u64) -> Instant {
    millis(1000 * seconds)
}

const WORK: [Load; 3] = [
    Load::Backlog(Class::Urgent, 8, PIECE),
    Load::Backlog(Class::Background, 8, PIECE),
    Load::Backlog(Class::Idle, 8, PIECE),
];

#[test]
fn users_at_nine_tenths_wait_a_millisecond_whatever_work_is_queued() {
    for contract in [ops(500), ops(1000), both(3000, 125), ops(16_000)] {
        let iops = contract.paid_iops().unwrap();
        let users = Load::Random(Class::Foreground, 0.9 * iops as f64, PAGE);
        let loads = [&[users], WORK.as_slice()].concat();
        let mut stage = Stage::new(Policy::Tags, &contract, &loads);
        stage.run_until(seconds(5));
        stage.begin();
        stage.run_until(seconds(5 + 100_000 / iops));
        let waited = stage.waited(Class::Foreground, 0.99);
        assert!(waited <= Duration::from_micros(1024), "{iops}: {waited:?}");
        assert_eq!(stage.throttled, 0);
        let mut strict = Stage::new(Policy::Strict, &contract, &loads);
        strict.run_until(seconds(20));
        let waited = strict.waited(Class::Foreground, 0.99);
        assert!(
            waited > Duration::from_micros(64),
            "strict order alone does not do that: {waited:?}"
        );
    }
}

#[test]
fn a_storm_of_users_leaves_commits_their_tokens() {
    for iops in [1000, 3000] {
        for commits in [0.04, 0.2, 0.4] {
            let loads = [
                Load::Backlog(Class::Foreground, 64, PAGE),
                Load::Random(Class::Commit, commits * iops as f64, PAGE),
                WORK[0],
            ];
            let mut stage = Stage::new(Policy::Tags, &ops(iops), &loads);
            stage.run_until(seconds(60));
            let waited = stage.waited(Class::Commit, 0.99);
            assert!(waited <= Duration::from_micros(1024), "{iops}: {waited:?}");
            assert_eq!(stage.throttled, 0);
        }
    }
}

#[test]
fn everything_paid_is_used_when_there_is_demand() {
    for contract in [ops(20), ops(1000), ops(64_000), both(3000, 125), both(100, 1000)] {
        for classes in 1..32_usize {
            let all: Vec<_> = Class::ALL
                .into_iter()
                .filter(|class| classes >> class.index() & 1 == 1)
                .map(|class| Load::Backlog(class, 16, PIECE))
                .collect();
            let mut stage = Stage::new(Policy::Tags, &contract, &all);
            stage.run_until(seconds(1));
            let before: u64 =
                Class::ALL.iter().map(|class| stage.scheduler.figures(*class).spent.ops).sum();
            // Some thousand requests each.
            let second = match contract.paid_iops() {
                Some(..1000) => 40,
                Some(1000..10_000) => 3,
                _ => 1,
            };
            stage.run_until(seconds(1 + second));
            let after: u64 =
                Class::ALL.iter().map(|class| stage.scheduler.figures(*class).spent.ops).sum();
            let bytes = contract.paid_bytes_per_sec().map(|bytes| bytes / PIECE.bytes);
            let paid = contract.paid_iops().unwrap().min(bytes.unwrap_or(u64::MAX)) * second;
            let used = (after - before) as f64 / paid as f64;
            assert!(used >= 0.97, "{used} of {:?} by {classes:b}", contract.limits);
            assert_eq!(stage.throttled, 0);
        }
    }
}

#[test]
fn under_a_storm_work_gets_its_floor() {
    let loads = [&[Load::Backlog(Class::Foreground, 64, PAGE)], WORK.as_slice()].concat();
    let mut stage = Stage::new(Policy::Tags, &ops(1000), &loads);
    stage.run_until(seconds(60));
    for class in [Class::Urgent, Class::Background, Class::Idle] {
        let floor = 980.0 * Tags::RIGHTS[class.index()].floor;
        let got = stage.per_sec(class);
        assert!((0.95..1.3).contains(&(got / floor)), "{class:?}: {got} of {floor}");
    }
}

#[test]
fn with_users_at_four_fifths_work_gets_its_reservation() {
    let loads = [&[Load::Random(Class::Foreground, 780.0, PAGE)], WORK.as_slice()].concat();
    let mut stage = Stage::new(Policy::Tags, &ops(1000), &loads);
    stage.run_until(seconds(60));
    for class in [Class::Urgent, Class::Background, Class::Idle] {
        let reserved = 980.0 * Tags::RIGHTS[class.index()].reservation;
        let got = stage.per_sec(class);
        assert!(got >= 0.95 * reserved, "{class:?}: {got} of {reserved}");
    }
}

#[test]
fn users_get_half_of_a_flood_of_commits() {
    let loads =
        [Load::Backlog(Class::Commit, 64, PAGE), Load::Backlog(Class::Foreground, 64, PAGE)];
    let mut stage = Stage::new(Policy::Tags, &ops(1000), &loads);
    stage.run_until(seconds(20));
    assert!((480.0..500.0).contains(&stage.per_sec(Class::Foreground)));
}

#[test]
fn what_is_spare_goes_to_the_most_urgent() {
    let mut stage = Stage::new(Policy::Tags, &ops(1000), &WORK);
    stage.run_until(seconds(60));
    assert!(stage.per_sec(Class::Urgent) > 900.0);
    assert!(stage.per_sec(Class::Background) < 1.1 * 49.0);
    assert!(stage.per_sec(Class::Idle) < 1.1 * 9.8);
}

#[test]
fn a_user_does_not_wait_for_tokens_that_a_large_request_gathers() {
    let mut scheduler = Tags::new(&ops(1000), Share::default(), QUEUE_MAX, T0);
    // 59 tokens, of which foreground leaves 31.
    let at = millis(61);
    scheduler.submit(Ticket(1), request(Class::Background, 8), at).unwrap();
    assert_eq!(poll_all(&mut scheduler, at).len(), 0);
    for ticket in 2..10 {
        scheduler.submit(Ticket(ticket), request(Class::Foreground, 1), at).unwrap();
    }
    assert_eq!(poll_all(&mut scheduler, at).len(), 8);
    assert!(scheduler.cancel(Ticket(1)));
    assert_eq!(scheduler.figures(Class::Background).spent, Cost::default());
}

#[test]
fn idle_work_leaves_what_users_are_expected_to_want() {
    // The budget can save up 1000 operations, of which idle work always leaves seven eighths.
    let share = Share::new(0.98, 0.1).unwrap();
    let leaves = |users: u64| {
        let mut tags = Tags::new(&ops(10_000), share, QUEUE_MAX, T0);
        for user in 0..400 * users {
            let now = millis(user / users);
            tags.submit(Ticket(user), request(Class::Foreground, 1), now).unwrap();
            poll_all(&mut tags, now);
        }
        let then = |ms| tags.demand.clone().expected(millis(ms)).ops;
        let expected = [then(400), then(500), then(5000)];
        (tags.threshold(Class::Idle.index(), millis(400)).ops, expected)
    };
    assert_eq!(leaves(6), (875, [562, 281, 0]));
    // 1200 in each tenth, four times: 15 parts of 16.
    assert_eq!(leaves(12), (1125, [1125, 562, 0]));
}

#[test]
fn nobody_needs_tokens_of_an_unlimited_contract() {
    let mut scheduler = Tags::new(&Contract::unlimited(), Share::default(), QUEUE_MAX, T0);
    for (ticket, class) in (0..).zip(Class::ALL) {
        scheduler.submit(Ticket(ticket), request(class, 8), T0).unwrap();
    }
    assert_eq!(poll_all(&mut scheduler, T0).len(), 5);
}

#[test]
fn the_head_of_a_class_never_waits_longer_than_its_patience() {
    for contract in [ops(30), terms(1000)] {
        for starved in [Class::Urgent, Class::Background, Class::Idle] {
            let largest = Cost::reads(8, 8 * 256 * KIB);
            let others = Class::ALL.into_iter().filter(|class| *class != starved);
            let mut loads: Vec<_> = others.map(|class| Load::Backlog(class, 16, largest)).collect();
            loads.push(Load::Backlog(starved, 1, largest));
            let mut stage = Stage::new(Policy::Tags, &contract, &loads);
            stage.run_until(seconds(200));
            let tags = Tags::new(&contract, Share::default(), 1, T0);
            let (longest, bound) =
                (stage.scheduler.figures(starved).waits.max, tags.patience(starved, largest));
            assert!(longest <= bound, "{starved:?} waited {longest:?}, bound {bound:?}");
        }
    }
}

#[test]
fn the_bound_is_what_the_record_says() {
    let tags = Tags::new(&ops(1000), Share::default(), 1, T0);
    let patience = |class| tags.patience(class, PIECE).as_millis();
    assert_eq!([Class::Urgent, Class::Background, Class::Idle].map(patience), [376, 461, 733]);
}

/// Users that read as quickly as they can.
fn callers(callers: u64) -> Load {
    Load::Callers(Class::Foreground, callers, PAGE, Duration::from_micros(200))
}

/// Under this many callers few wait, and the others go at once.
fn few_wait(callers_: u64, contract: &Contract, until: Instant) {
    let loads = [&[callers(callers_)], WORK.as_slice()].concat();
    let run = |policy| {
        let mut stage = Stage::new(policy, contract, &loads);
        stage.run_until(seconds(10));
        stage.begin();
        // A pause may be in progress at the end: one of many.
        stage.run_until(until);
        assert_eq!(stage.throttled, 0);
        stage
    };
    let (tags, p99) = (run(Policy::Tags), run(Policy::TagsP99));
    let [even, few] = [&tags, &p99].map(|stage| stage.waited(Class::Foreground, 0.99));
    assert!(few <= Duration::from_micros(64), "{:?}: {few:?}", contract.limits);
    assert!(even >= 4 * few, "{even:?} without pauses");
    let longest = p99.scheduler.figures(Class::Foreground).waits.max;
    assert!(longest <= Duration::from_millis(1050), "{longest:?}");
    let [even, few] = [&tags, &p99].map(|stage| stage.per_sec(Class::Foreground));
    assert!(few >= 0.99 * even, "{few} where {even} go");
    for class in [Class::Urgent, Class::Background, Class::Idle] {
        assert!(p99.per_sec(class) >= 0.95 * 0.98 * Tags::RIGHTS[class.index()].floor);
    }
}

// Apart, so that they run beside each other: they take longest.

#[test]
fn for_p99_few_of_a_thousand_wait() {
    few_wait(5, &ops(1000), seconds(200));
}

#[test]
fn for_p99_few_of_three_thousand_wait() {
    few_wait(10, &ops(3000), seconds(200));
}

#[test]
fn for_p99_few_of_sixteen_thousand_wait() {
    few_wait(10, &both(16_000, 1000), seconds(100));
}

#[test]
fn where_too_many_call_or_nobody_waits_for_answers_for_p99_goes_in_order() {
    let crowd = callers(60);
    let flood = Load::Random(Class::Foreground, 985.0, PAGE);
    for load in [crowd, flood] {
        let run = |policy| {
            let mut stage = Stage::new(policy, &ops(1000), &[load]);
            stage.run_until(seconds(100));
            stage.begin();
            stage.run_until(seconds(400));
            stage.waited(Class::Foreground, 0.98)
        };
        let (even, p99) = (run(Policy::Tags), run(Policy::TagsP99));
        assert!(p99 <= even, "{p99:?}, and {even:?} in order");
    }
}

#[test]
fn commits_do_not_pause() {
    let commits = Load::Random(Class::Commit, 40.0, PAGE);
    let mut stage = Stage::new(Policy::TagsP99, &ops(1000), &[callers(10), commits, WORK[0]]);
    stage.run_until(seconds(60));
    let waited = stage.waited(Class::Commit, 0.99);
    assert!(waited <= Duration::from_micros(1024), "{waited:?}");
    assert!(stage.scheduler.figures(Class::Foreground).waits.max > Duration::from_millis(800));
}

#[test]
fn work_that_was_raised_to_the_users_class_does_not_pause() {
    let raised = Load::Raised(40.0, PAGE);
    let mut stage = Stage::new(Policy::TagsP99, &ops(1000), &[callers(10), raised, WORK[0]]);
    stage.run_until(seconds(60));
    assert!(stage.scheduler.figures(Class::Foreground).waits.max > Duration::from_millis(800));
    stage.raised_waits.sort_unstable();
    let waited = stage.raised_waits[stage.raised_waits.len() * 99 / 100];
    assert!(waited <= Duration::from_millis(12), "{waited:?}");
}

/// Callers, with a probe read now and then: its expected wait, and its wait.
fn probes(policy: Policy, contract: &Contract, callers_: u64) -> Vec<(Duration, Duration)> {
    let mut stage = Stage::new(policy, contract, &[callers(callers_), WORK[0]]);
    let mut waits = Vec::new();
    for second in 10..110 {
        stage.run_until(seconds(second) + Duration::from_millis(second * 37 % 1000));
        let expected = stage.scheduler.expected(PAGE, stage.now);
        let expected = expected.map_or(Duration::ZERO, |at| at.since(stage.now));
        let from = stage.now;
        let probe = stage.submit(Class::Foreground, PAGE);
        // It takes the place of a caller that would come then.
        stage.raised.insert(probe, from);
        while stage.raised.contains_key(&probe) {
            let next = stage.now + Duration::from_millis(1);
            stage.run_until(next);
        }
        waits.push((expected, stage.raised_waits.pop().expect("it went")));
    }
    waits
}

/// Routing chooses between copies by the expected wait. Shortly before a pause of a second, the queue of a few callers
/// looked like some milliseconds.
#[test]
fn what_is_expected_is_about_what_is_waited() {
    for (policy, contract, callers) in [
        (Policy::Stabilizer, ops(1000), 20),
        (Policy::Strict, ops(1000), 20),
        (Policy::Tags, ops(1000), 20),
        (Policy::Tags, both(1000, 1), 20),
        (Policy::TagsP99, ops(1000), 5),
        (Policy::TagsP99, ops(3000), 10),
    ] {
        let waits = probes(policy, &contract, callers);
        let sum =
            |of: fn(&(Duration, Duration)) -> Duration| waits.iter().map(of).sum::<Duration>();
        let (expected, waited) = (sum(|wait| wait.0), sum(|wait| wait.1));
        let part = expected.as_secs_f64() / waited.as_secs_f64();
        assert!(
            (0.8..=1.25).contains(&part),
            "{policy:?}: {expected:?}, and {waited:?} was waited"
        );
        let near = |(expected, waited): &&(Duration, Duration)| {
            expected.abs_diff(*waited) <= Duration::from_millis(10) + *waited / 5
        };
        let near = waits.iter().filter(near).count();
        assert!(near >= 90, "{policy:?}: {near} of {}: {waits:?}", waits.len());
    }
}

/// A sync that found its log grown returned its grant and asked again. Its class's tag stayed where the first grant had
/// put it, so due users took the tokens that it returned.
#[test]
fn what_is_put_back_is_not_held_against_its_class() {
    let largest = Cost::reads(8, 8 * 256 * KIB);
    let mut tags = Tags::new(&ops(100), Share::new(1.0, 0.0).unwrap(), QUEUE_MAX, T0);
    let commit = Request { cost: largest, ..request(Class::Commit, 1) };
    tags.submit(Ticket(1), commit, T0).unwrap();
    for ticket in 2..100 {
        tags.submit(Ticket(ticket), request(Class::Foreground, 1), T0).unwrap();
    }
    tags.submit(Ticket(100), commit, T0).unwrap();
    assert_eq!(poll_all(&mut tags, T0), []);
    let mut now = millis(80);
    let mut grant = granted(tags.poll(now).unwrap());
    for _ in 0..3 {
        assert_eq!((grant.ticket, grant.cost), (Ticket(1), largest));
        tags.put_back(grant, largest, now);
        now = now + Duration::from_millis(1);
        grant = granted(tags.poll(now).unwrap());
    }
    assert_eq!(grant.ticket, Ticket(1));
    let figures = tags.figures(Class::Commit);
    assert_eq!((figures.granted, figures.queued, figures.spent), (1, 1, largest));
    assert_eq!((figures.waits.total, figures.waits.max), (now.since(T0), now.since(T0)));
    // The grant that is used counts as usual: due users go before the next commit.
    let mut next = tags.poll(now);
    while next.is_none() {
        now = tags.next_wakeup().unwrap();
        next = tags.poll(now);
    }
    assert_eq!(next.map(granted).map(|grant| grant.ticket), Some(Ticket(2)));
}

/// A grant from spare tokens moves no tag. Put back, it still forgave its class a debt of earlier seconds.
#[test]
fn what_others_left_forgives_no_debt_when_it_is_put_back() {
    let mut tags = Tags::new(&ops(100), Share::new(1.0, 0.0).unwrap(), QUEUE_MAX, T0);
    let index = Class::Commit.index();
    tags.owed_from[index] = millis(5000);
    tags.submit(Ticket(1), request(Class::Commit, 1), T0).unwrap();
    let mut now = T0;
    let mut event = tags.poll(now);
    while event.is_none() {
        now = tags.next_wakeup().unwrap();
        event = tags.poll(now);
    }
    assert!(now < millis(5000), "it was due");
    let grant = granted(event.unwrap());
    tags.put_back(grant, grant.cost, now);
    assert_eq!(tags.owed_from[index], millis(5000));
}

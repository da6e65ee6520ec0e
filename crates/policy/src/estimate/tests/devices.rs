//! A gate before a provider, in virtual time: callers in a closed loop, with lulls.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::budget::Share;
use crate::contract::Limit;
use crate::latency::answered_at;
use crate::provider::Provider;
use crate::purpose::{Class, Tenant};
use crate::sched::{Event, Policy, Request, Ticket};

/// What a run came to, after the first ten seconds.
struct Outcome {
    /// I/Os by the time they took at the volume.
    at_volume: Times,
    /// The part of the provider's rate that was used in seconds with waiting callers all the time.
    used: f64,
    least: Part,
    last: Part,
}

const CALLERS: u64 = 10;
/// One caller that pauses for this long is no load.
const PAUSE: Duration = Duration::from_millis(10);

fn ops(rate_per_sec: u64, depth: u64) -> Contract {
    Contract {
        limits: vec![Limit { counts: Counted::Ops, rate_per_sec, depth }],
        ..Contract::unlimited()
    }
}

/// Runs ten callers for twenty seconds, then one that pauses for four, over and over, through a gate under `told`, on a
/// volume whose provider goes by `real`. In the last ten seconds of a minute a part of the I/Os takes longer by the
/// `noise`, whatever the provider does.
fn run(told: &Contract, real: &Contract, noise: Option<(f64, Duration)>, seconds: u64) -> Outcome {
    const STEP: Duration = Duration::from_micros(500);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut now = Instant::ZERO;
    let share = Share::default();
    let mut scheduler = Policy::Tags.build(told, share, 1024, now);
    let mut estimate = Estimate::new(told, now);
    let mut provider = Provider::new(real, now);
    let (mut ready, mut under_way) = (CALLERS, BinaryHeap::new());
    let mut one_at = now;
    let mut seen = Seen::default();
    let mut outcome =
        Outcome { at_volume: Times::default(), used: 0.0, least: Part::ALL, last: Part::ALL };
    let (mut look_at, mut tickets) = (now + INTERVAL, 0);
    // I/Os of this second, and whether callers waited all the time.
    let (mut second, mut ios, mut waited) = (0, 0, true);
    let mut full = Vec::new();
    while now < Instant::ZERO + Duration::from_secs(seconds) {
        let at_second = now.since(Instant::ZERO).as_secs();
        if at_second != second {
            if second >= 10 && waited {
                full.push(f64::from(ios) / real.paid_iops().unwrap() as f64);
            }
            (second, ios, waited) = (at_second, 0, true);
        }
        while let Some(&Reverse(at)) = under_way.peek()
            && at <= now
        {
            under_way.pop();
            ready += 1;
        }
        let is_busy = second % 24 >= 4;
        if is_busy || now >= one_at {
            one_at = now + PAUSE;
            let callers = if is_busy { ready } else { ready.min(1) };
            ready -= callers;
            for _ in 0..callers {
                let cost = Cost::reads(1, 4096);
                let class = Class::Foreground;
                let request = Request {
                    class,
                    tenant: Tenant::POOL,
                    cost,
                    deadline: None,
                    refusable: false,
                    of_user: true,
                };
                scheduler.submit(Ticket(tickets), request, now).unwrap();
                tickets += 1;
            }
        }
        while let Some(event) = scheduler.poll(now) {
            let Event::Granted(grant) = event else { panic!("no request has a deadline") };
            let mut base = Duration::from_micros(random.random_range(150..300));
            if let Some((part, longer)) = noise
                && second % 60 >= 50
                && random.random::<f64>() < part
            {
                base += longer;
            }
            let done = answered_at(now, provider.admit(now, grant.cost), base);
            let took = done.since(now);
            seen.answers[IoKind::SmallRead.index()].record(took);
            seen.spent.ops += grant.cost.ops;
            under_way.push(Reverse(done));
            ios += 1;
            if second >= 10 {
                outcome.at_volume.record(took);
            }
        }
        waited &= is_busy;
        if now >= look_at {
            look_at = now + INTERVAL;
            match estimate.look(now, seen.clone(), share, None) {
                Some(Advice::Use(part)) => scheduler.set_share(share.lowered(part), told, now),
                Some(Advice::Lower { part, queue }) => {
                    scheduler.set_share(share.lowered(part), told, now);
                    scheduler.forget_saved(now + queue);
                }
                _ => {}
            }
            let part = estimate.part();
            if second >= 10 {
                outcome.least.rate = outcome.least.rate.min(part.rate);
                outcome.least.depth = outcome.least.depth.min(part.depth);
            }
            outcome.last = part;
        }
        now = now + STEP;
    }
    outcome.used = full.iter().sum::<f64>() / full.len() as f64;
    outcome
}

/// The part of the I/Os that took longer than this at the volume.
fn late(outcome: &Outcome, ms: u64) -> f64 {
    let late = outcome.at_volume.longer_than(Duration::from_millis(ms));
    late as f64 / outcome.at_volume.count() as f64
}

/// The kernel's throttle (`blkio.throttle`) saves up a tenth of a second; the contract does not say so.
#[test]
fn a_shallow_bucket_costs_depth_and_no_rate() {
    for iops in [250, 800, 3000] {
        let outcome = run(&ops(iops, iops), &ops(iops, iops / 10), None, 600);
        let Outcome { used, least, last, .. } = outcome;
        assert!(used >= 0.95, "{iops}: {used} used");
        assert_eq!(least.rate, 1.0, "{iops}");
        assert!(last.depth < 0.15, "{iops}: {last:?}");
        assert!(late(&outcome, 20) < 0.01, "{iops}: {} late", late(&outcome, 20));
    }
}

#[test]
fn a_bucket_as_deep_as_the_contract_says_is_used_whole() {
    let ms = Duration::from_millis;
    for noise in [None, Some((0.05, ms(30))), Some((0.01, ms(300)))] {
        let outcome = run(&ops(800, 800), &ops(800, 800), noise, 300);
        assert_eq!((outcome.least.rate, outcome.last), (1.0, Part::ALL), "{noise:?}");
        assert_eq!(outcome.least.depth, DEPTH_FIRST);
        assert!(outcome.used >= 0.97, "{}", outcome.used);
    }
}

/// A gate that began with the whole assumed depth met the bucket's bottom with a second of tokens.
#[test]
fn a_first_minute_on_a_shallow_bucket_meets_no_stall() {
    for iops in [250, 800, 3000] {
        let outcome = run(&ops(iops, iops), &ops(iops, iops / 10), None, 60);
        assert!(late(&outcome, 20) < 0.005, "{iops}: {} late", late(&outcome, 20));
    }
}

/// Answers of a busy machine are late; the volume gives all the time what it should.
#[test]
fn noise_costs_no_rate() {
    let noise = Some((0.4, Duration::from_millis(6)));
    let outcome = run(&ops(800, 800), &ops(800, 800), noise, 600);
    assert!(outcome.least.rate >= 0.95, "{:?}", outcome.least);
    assert!(outcome.used >= 0.95, "{}", outcome.used);
}

#[test]
fn a_rate_that_was_not_bought_is_found_with_a_shallow_bucket_too() {
    let outcome = run(&ops(1000, 1000), &ops(700, 70), None, 300);
    assert!((0.6..0.75).contains(&outcome.last.rate), "{:?}", outcome.last);
    assert!(outcome.used >= 0.9, "{}", outcome.used);
    assert!(late(&outcome, 20) < 0.1, "{} late", late(&outcome, 20));
}

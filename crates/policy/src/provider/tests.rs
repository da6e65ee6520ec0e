use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

fn contract(limits: Vec<Limit>) -> Contract {
    Contract { limits, ..Contract::unlimited() }
}

fn ops(rate_per_sec: u64, depth: u64) -> Limit {
    Limit { counts: Counted::Ops, rate_per_sec, depth }
}

fn bytes(rate_per_sec: u64, depth: u64) -> Limit {
    Limit { counts: Counted::Bytes, rate_per_sec, depth }
}

const ONE: Cost = Cost::reads(1, 4096);

/// A trace that Calcspar's authors recorded. One closed loop sends the requests of each second back to back to an io2
/// volume of 1000 IOPS; each request took 88.5 us, with 3 us between requests.
#[test]
fn the_recorded_trace_of_an_io2_volume() {
    let plan = [&[1000, 1600, 900, 500, 2000][..], &[1000; 9], &[0], &[1000; 5]].concat();
    let observed = [&[1000, 1101, 440, 500, 1099][..], &[0; 9], &[0], &[1000; 5]].concat();
    let predicted = [&[1000, 1099, 439, 500, 1099][..], &[0; 9], &[0], &[1000; 5]].concat();
    let mut provider = Provider::new(&contract(vec![ops(1000, 1000)]), Instant::ZERO);
    let mut now = Instant::ZERO;
    for (second, &requests) in plan.iter().enumerate() {
        now = now.max(Instant::ZERO + Duration::from_secs(second as u64));
        let mut fast = 0i64;
        for _ in 0..requests {
            let admitted = provider.admit(now, ONE);
            fast += i64::from(!admitted.throttled);
            now = admitted.at.max(now + Duration::from_nanos(88_500)) + Duration::from_micros(3);
        }
        assert!((fast - predicted[second]).abs() <= 5, "second {second}: {fast} fast");
        assert!((fast - observed[second]).abs() <= 5, "second {second}: {fast} fast");
    }
}

#[test]
fn a_fresh_volume_has_a_second_saved_up() {
    let mut provider = Provider::new(&contract(vec![ops(10, 10)]), Instant::ZERO);
    for _ in 0..10 {
        assert!(!provider.admit(Instant::ZERO, ONE).throttled);
    }
    let first_late = provider.admit(Instant::ZERO, ONE);
    assert_eq!(first_late.at, Instant::ZERO + Duration::from_millis(100));
    assert!(first_late.throttled);
}

#[test]
fn no_fraction_of_a_token_is_lost() {
    // A rate of 7 tokens a second does not divide a second in nanoseconds: after 700,000 requests the queue still
    // leaves at exactly the paid rate.
    let mut provider = Provider::new(&contract(vec![ops(7, 1)]), Instant::ZERO);
    let left = (0..=700_000).map(|_| provider.admit(Instant::ZERO, ONE).at).last();
    assert_eq!(left, Some(Instant::ZERO + Duration::from_secs(100_000)));
}

#[test]
fn offering_the_paid_rate_to_an_empty_bucket_stays_slow_until_a_pause() {
    let mut provider = Provider::new(&contract(vec![ops(1000, 1000)]), Instant::ZERO);
    let every_ms = |ms| Instant::ZERO + Duration::from_millis(ms);
    for _ in 0..1100 {
        let _ = provider.admit(Instant::ZERO, ONE);
    }
    assert!((0..60_000).all(|ms| provider.admit(every_ms(ms), ONE).throttled));
    assert!(!provider.admit(every_ms(61_000), ONE).throttled);
}

#[test]
fn credits_carry_a_burst_until_they_are_spent() {
    // gp2 of 100 GiB in miniature: 3000 a second while 5400 credits last, 300 after.
    let mut provider =
        Provider::new(&contract(vec![ops(3000, 3000), ops(300, 5400)]), Instant::ZERO);
    let second = |at: Instant| at.as_nanos() / NANOS_PER_SEC;
    let mut left = [0u64; 20];
    while let at = provider.admit(Instant::ZERO, ONE).at
        && second(at) < 20
    {
        left[second(at) as usize] += 1;
    }
    // The credits and what they earned; the 300th earned token comes as the second ends.
    assert_eq!(left[0], 5400 + 299);
    assert!(left[1..].iter().all(|&n| n == 300), "{left:?}");
}

#[test]
fn large_requests_meet_the_bandwidth_limit() {
    let mib = 1 << 20;
    let mut provider =
        Provider::new(&contract(vec![ops(3000, 3000), bytes(125 * mib, mib)]), Instant::ZERO);
    let cost = Cost::reads(1, mib / 4);
    let left = (0..504).map(|_| provider.admit(Instant::ZERO, cost).at).last();
    assert_eq!(left, Some(Instant::ZERO + Duration::from_secs(1)));
}

#[test]
fn a_request_larger_than_the_bucket_leaves_when_it_was_earned() {
    let mut provider = Provider::new(&contract(vec![ops(10, 10)]), Instant::ZERO);
    let day = Instant::ZERO + Duration::from_secs(86_400);
    let large = Cost::reads(30, 0);
    assert_eq!(provider.admit(day, large).at, day + Duration::from_secs(2));
    assert_eq!(provider.admit(day, ONE).at, day + Duration::from_millis(2100));
}

#[test]
fn without_limits_nobody_waits() {
    let mut provider = Provider::new(&Contract::unlimited(), Instant::ZERO);
    for now in [3, 3, 5, 9].map(Instant::from_nanos) {
        assert_eq!(provider.admit(now, ONE), Admitted { at: now, throttled: false });
    }
}

/// The oracle, a direct implementation: every nanosecond each bucket earns, then the head of the queue leaves if all
/// buckets cover it.
fn naive(limits: &[Limit], arrivals: &[(u64, Cost)]) -> Vec<u64> {
    let cost_of = |limit: &Limit, cost: &Cost| cost.of(limit.counts) * NANOS_PER_SEC;
    let mut saved: Vec<u64> = limits.iter().map(|l| l.depth * NANOS_PER_SEC).collect();
    let mut queue = VecDeque::new();
    let mut left = vec![0; arrivals.len()];
    let mut arrived = 0;
    for now in 0.. {
        while arrived < arrivals.len() && arrivals[arrived].0 == now {
            queue.push_back(arrived);
            arrived += 1;
        }
        while let Some(&head) = queue.front() {
            let cost = &arrivals[head].1;
            if !limits.iter().zip(&saved).all(|(l, &saved)| saved >= cost_of(l, cost)) {
                break;
            }
            limits.iter().zip(&mut saved).for_each(|(l, saved)| *saved -= cost_of(l, cost));
            left[head] = now;
            queue.pop_front();
        }
        if arrived == arrivals.len() && queue.is_empty() {
            return left;
        }
        for (limit, saved) in limits.iter().zip(&mut saved) {
            let rate = limit.rate_per_sec;
            let needed = |&head: &usize| cost_of(limit, &arrivals[head].1) + rate - 1;
            let holds = queue.front().map_or(0, needed).max(limit.depth * NANOS_PER_SEC);
            *saved = (*saved + rate).min(holds);
        }
    }
    unreachable!("time does not end")
}

/// Limits that earn a token every few nanoseconds, so that the oracle need not tick for long.
fn limits() -> impl Strategy<Value = Vec<Limit>> {
    let rate = NANOS_PER_SEC / 97..NANOS_PER_SEC / 3;
    let one = (any::<bool>(), rate, 1u64..20).prop_map(|(by_ops, rate_per_sec, depth)| Limit {
        counts: if by_ops { Counted::Ops } else { Counted::Bytes },
        rate_per_sec,
        depth,
    });
    prop::collection::vec(one, 0..4)
}

fn arrivals() -> impl Strategy<Value = Vec<(u64, Cost)>> {
    let one =
        (0u64..60, 1u64..4, 0u64..25).prop_map(|(gap, ops, bytes)| (gap, Cost::reads(ops, bytes)));
    prop::collection::vec(one, 1..60).prop_map(|gaps| {
        let mut now = 0;
        let after = |(gap, cost)| {
            now += gap;
            (now, cost)
        };
        gaps.into_iter().map(after).collect()
    })
}

proptest! {
    #[test]
    fn leaves_exactly_when_the_ticking_model_does(limits in limits(), arrivals in arrivals()) {
        let mut provider = Provider::new(&contract(limits.clone()), Instant::ZERO);
        let left: Vec<u64> = arrivals
            .iter()
            .map(|&(now, cost)| provider.admit(Instant::from_nanos(now), cost).at.as_nanos())
            .collect();
        prop_assert_eq!(left, naive(&limits, &arrivals));
    }

    #[test]
    fn no_window_of_time_sees_more_than_depth_and_rate(
        rate in 1u64..5000,
        depth in 1u64..5000,
        gaps_us in prop::collection::vec(0u64..3000, 2..200),
    ) {
        let mut provider = Provider::new(&contract(vec![ops(rate, depth)]), Instant::ZERO);
        let mut now = Instant::ZERO;
        let mut left = Vec::new();
        for gap in gaps_us {
            now = now + Duration::from_micros(gap);
            let admitted = provider.admit(now, ONE);
            prop_assert!(admitted.at >= now && admitted.throttled == (admitted.at > now));
            prop_assert!(left.last().is_none_or(|&last| admitted.at >= last), "first in, first out");
            left.push(admitted.at);
        }
        for (i, from) in left.iter().enumerate() {
            for (n, to) in left[i..].iter().enumerate() {
                let earned = to.since(*from).as_nanos() * u128::from(rate) / 1_000_000_000;
                prop_assert!(n as u128 <= u128::from(depth) + earned);
            }
        }
    }
}

#[test]
fn reads_and_writes_may_have_limits_of_their_own() {
    let limit = |counts| Limit { counts, rate_per_sec: 10, depth: 10 };
    let limits = vec![limit(Counted::ReadOps), limit(Counted::WriteOps)];
    let mut provider = Provider::new(&Contract { limits, ..Contract::unlimited() }, Instant::ZERO);
    for _ in 0..10 {
        assert!(!provider.admit(Instant::ZERO, Cost::reads(1, 0)).throttled);
        assert!(!provider.admit(Instant::ZERO, Cost::writes(1, 0)).throttled);
    }
    let late = provider.admit(Instant::ZERO, Cost::writes(1, 0)).at;
    assert_eq!(late.since(Instant::ZERO), Duration::from_millis(100));
}

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::units::{KIB, MIB};

const T0: Instant = Instant::ZERO;
const ONE_OP: Cost = Cost::reads(1, 4 * KIB);

fn ops(rate_per_sec: u64, depth: u64) -> Limit {
    Limit { counts: Counted::Ops, rate_per_sec, depth }
}

fn bytes(rate_per_sec: u64, depth: u64) -> Limit {
    Limit { counts: Counted::Bytes, rate_per_sec, depth }
}

fn contract(limits: Vec<Limit>) -> Contract {
    Contract { limits, ..Contract::unlimited() }
}

fn gp3() -> Contract {
    contract(vec![ops(3000, 3000), bytes(125 * MIB, 125 * MIB)])
}

/// Saves up a quarter of a second.
fn quarter() -> Share {
    Share::new(0.98, 0.25).unwrap()
}

fn nanos(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

/// How many operations go at once.
fn drain(budget: &mut Budget, now: Instant) -> u64 {
    let mut count = 0;
    while budget.admit(now, Cost::reads(1, 0)) == Admission::Now {
        count += 1;
    }
    count
}

#[test]
fn a_share_outside_its_range_is_refused() {
    assert_eq!(Share::default(), Share::new(0.98, 0.9).unwrap());
    for rho in [0.0, -0.5, 1.01, f64::NAN, 1e-9] {
        assert!(matches!(Share::new(rho, 0.25), Err(ShareError::Rho(_))), "{rho}");
    }
    for beta in [-0.1, 1.1, f64::INFINITY, f64::NAN] {
        assert!(matches!(Share::new(0.98, beta), Err(ShareError::Beta(_))), "{beta}");
    }
    let error = Share::new(1.5, 0.25).unwrap_err().to_string();
    assert_eq!(error, "rho is 1.5, but must be above 0 and at most 1");
}

#[test]
fn starts_empty_and_saves_a_quarter_of_a_second() {
    let mut budget = Budget::new(&gp3(), quarter(), T0);
    assert_eq!(drain(&mut budget, T0), 0);
    assert_eq!(drain(&mut budget, T0 + Duration::from_secs(1)), 750);
}

#[test]
fn the_limit_that_is_short_tells_when_it_is_full() {
    let full = Share::new(1.0, 1.0).unwrap();
    let mut budget = Budget::new(&gp3(), full, T0);
    let none = Cost::default();
    assert_eq!(budget.full_in(ONE_OP, none), Duration::from_secs(1));
    assert_eq!(drain(&mut budget, T0 + Duration::from_secs(1)), 3000);
    // Bytes last for long, but there is no operation.
    assert_eq!(budget.full_in(ONE_OP, none), Duration::from_secs(1));
    let later = T0 + Duration::from_millis(1250);
    let left = |ops| Cost::reads(ops, 0);
    assert!(matches!(budget.admit_above(later, ONE_OP, left(1000)), Admission::At(_)));
    assert_eq!(budget.full_in(ONE_OP, left(1000)), Duration::from_millis(750));
    assert_eq!(budget.full_in(ONE_OP, left(500)), Duration::MAX);
}

#[test]
fn what_is_to_be_left_is_left_as_far_as_it_can_be_held() {
    let mut budget = Budget::new(&contract(vec![ops(1000, 1000)]), quarter(), T0);
    let left = |ops| Cost::reads(ops, 0);
    // 98 are saved.
    let now = T0 + Duration::from_millis(100);
    assert_eq!(budget.admit_above(now, ONE_OP, left(97)), Admission::Now);
    let Admission::At(at) = budget.admit_above(now, ONE_OP, left(97)) else {
        panic!("97 are left")
    };
    assert_eq!(at.since(now), Duration::from_nanos(1_020_409));
    assert_eq!(budget.admit_above(at, ONE_OP, left(97)), Admission::Now);
    // A request for more than a full bucket holds goes when the bucket is full.
    let Admission::At(at) = budget.admit_above(at, ONE_OP, left(5000)) else { panic!("97 of 250") };
    assert_eq!(budget.admit_above(at, ONE_OP, left(5000)), Admission::Now);
    assert_eq!(drain(&mut budget, at), 249);
}

#[test]
fn what_is_held_and_earned_is_that_of_the_smallest_limit() {
    let limits = vec![ops(3000, 3000), ops(100, 5000), bytes(MIB, MIB)];
    let budget = Budget::new(&contract(limits), Share::new(0.5, 0.25).unwrap(), T0);
    assert_eq!(budget.nanos(Cost::reads(1, 0)), 20e6);
    assert_eq!(budget.nanos(Cost::reads(1, MIB)), 2e9);
    let empty = Budget::new(&Contract::unlimited(), quarter(), T0);
    assert_eq!(empty.holds(), Cost::either(u64::MAX, u64::MAX));
    assert_eq!(empty.nanos(ONE_OP), 0.0);
    assert_eq!(budget.holds().ops, 750);
}

#[test]
fn a_small_contract_still_saves_eight_operations_but_never_more_than_its_provider() {
    let at = T0 + Duration::from_secs(1);
    let small = |depth| Budget::new(&contract(vec![ops(20, depth)]), quarter(), T0);
    assert_eq!(drain(&mut small(20), at), 8);
    assert_eq!(drain(&mut small(5), at), 5);
    assert_eq!(small(5).largest().ops, 5);
}

#[test]
fn a_suspended_machine_wakes_up_with_one_second_earned() {
    let mut budget = Budget::new(&contract(vec![ops(4, 100)]), quarter(), T0);
    assert_eq!(drain(&mut budget, T0 + Duration::from_secs(3600)), 3);
}

#[test]
fn time_that_runs_backwards_earns_nothing() {
    let later = T0 + Duration::from_secs(1);
    let mut budget = Budget::new(&gp3(), quarter(), later);
    for step in 0..10 {
        assert_eq!(drain(&mut budget, T0 + nanos(step * 100_000_000)), 0);
    }
    let Admission::At(at) = budget.admit(T0, ONE_OP) else { panic!("nothing was earned") };
    assert!(at > later);
    assert_eq!(budget.admit(at, ONE_OP), Admission::Now);
}

#[test]
fn an_unlimited_contract_admits_everything() {
    let mut budget = Budget::new(&Contract::unlimited(), quarter(), T0);
    for _ in 0..1000 {
        let largest = budget.largest();
        assert_eq!(budget.admit(T0, largest), Admission::Now);
    }
}

#[test]
#[should_panic(expected = "must be split")]
fn a_cost_that_could_wait_for_ever_is_our_own_mistake() {
    let mut budget = Budget::new(&gp3(), quarter(), T0);
    let _ = budget.admit(T0, Cost::reads(REQUEST_OPS_MAX + 1, 0));
}

#[test]
fn new_terms_neither_lose_a_fraction_nor_give_a_token() {
    let terms = |rate| contract(vec![ops(rate, 1000)]);
    let mut budget = Budget::new(&terms(3), Share::new(1.0, 1.0).unwrap(), T0);
    // 0.4 operations at 3/s, then 0.6 at 9/s make one.
    let changed_at = T0 + nanos(133_333_333);
    budget.set_contract(&terms(9), changed_at);
    let full_at = changed_at + nanos(66_666_667);
    assert_eq!(budget.admit(changed_at, ONE_OP), Admission::At(full_at));
    assert_eq!(budget.admit(full_at, ONE_OP), Admission::Now);
    assert_eq!(drain(&mut budget, full_at), 0);

    let mut full = Budget::new(&terms(100), quarter(), T0);
    let second = T0 + Duration::from_secs(1);
    full.set_contract(&terms(10_000), second);
    assert_eq!(drain(&mut full, second), 98, "what was saved, not the new depth");
    full.set_contract(&contract(vec![ops(10_000, 1000), bytes(MIB, MIB)]), second);
    let Admission::At(_) = full.admit(second, ONE_OP) else { panic!("a new kind starts empty") };
}

#[test]
fn a_smaller_depth_cuts_what_was_saved() {
    let second = T0 + Duration::from_secs(1);
    let mut budget = Budget::new(&gp3(), quarter(), T0);
    budget.set_contract(&contract(vec![ops(100, 100)]), second);
    assert_eq!(drain(&mut budget, second), 25);
}

/// gp2 of 100 GiB: bursts of 3000 a second while there are credits, 300 a second for ever.
fn gp2() -> Contract {
    contract(vec![ops(3000, 3000), ops(300, 5_400_000), bytes(128 * MIB, 128 * MIB)])
}

#[test]
fn reads_and_writes_that_are_counted_apart_have_a_bucket_each() {
    let limit = |counts, rate_per_sec| Limit { counts, rate_per_sec, depth: rate_per_sec };
    let apart = contract(vec![limit(Counted::ReadOps, 100), limit(Counted::WriteOps, 50)]);
    let all = Share::new(1.0, 1.0).unwrap();
    let mut budget = Budget::new(&apart, all, T0);
    assert!(budget.counts_apart() && !Budget::new(&gp3(), all, T0).counts_apart());
    assert_eq!((apart.paid_iops(), budget.largest().ops), (Some(50), REQUEST_OPS_MAX));
    let second = T0 + Duration::from_secs(1);
    let (read, write) = (Cost::reads(1, 0), Cost::writes(1, 0));
    let go = |budget: &mut Budget, cost, left| {
        (0..1000).take_while(|_| budget.admit_above(second, cost, left) == Admission::Now).count()
    };
    assert_eq!(go(&mut budget, read, Cost::default()), 100);
    // The empty bucket of reads keeps no write waiting, whatever is to be left.
    assert_eq!(go(&mut budget, write, Cost::either(10, 0)), 40);
    assert_eq!(budget.expected(Cost::default(), write, Cost::default()), None);
    let wait = budget.expected(Cost::default(), read, Cost::default()).unwrap().since(second);
    assert_eq!(wait, Duration::from_millis(10));
    assert_eq!((budget.nanos(read), budget.nanos(write)), (10e6, 20e6));
    budget.refund(Cost::reads(5, 0));
    budget.set_contract(&apart, second);
    assert_eq!(go(&mut budget, read, Cost::default()), 5);
    assert_eq!(go(&mut budget, write, Cost::default()), 10);
}

#[test]
fn credits_are_saved_up_while_idle_and_spent_in_a_burst() {
    let mut budget = Budget::new(&gp2(), quarter(), T0);
    assert_eq!(budget.credits(), Some(0.0));
    let seconds = |s| T0 + Duration::from_secs(s);
    // An hour at a tenth of the sustained rate saves nine tenths of it.
    let mut now = T0;
    for second in 0..3600 {
        now = seconds(second);
        let admitted = (0..30).filter(|_| budget.admit(now, ONE_OP) == Admission::Now).count();
        assert_eq!(admitted, if second == 0 { 0 } else { 30 });
    }
    let saved = budget.credits().unwrap() * (5_400_000.0 - 225.0);
    assert!((saved - f64::from(3599 * (294 - 30))).abs() < 1.0, "{saved}");
    // Ten seconds of 2940 a second, the burst's rate: ten times the sustained one.
    let mut burst = 0;
    for tenth in 0..100 {
        burst += drain(&mut budget, now + Duration::from_millis(tenth * 100));
    }
    assert!((29_000..=30_000).contains(&burst), "{burst}");
    budget.forget_saved(T0);
    assert_eq!(drain(&mut budget, now + Duration::from_secs(10)), 29, "earned in this tenth");
    let mut budget = Budget::new(&gp3(), quarter(), T0);
    assert!(drain(&mut budget, T0 + Duration::from_secs(1)) > 0);
    let _ = budget.admit(T0 + Duration::from_secs(2), ONE_OP);
    budget.forget_saved(T0);
    assert_eq!(drain(&mut budget, T0 + Duration::from_secs(2)), 0);
    // While the volume empties its queue, nothing is earned.
    let at = |ms| T0 + Duration::from_millis(ms);
    budget.forget_saved(at(2100));
    assert_eq!(drain(&mut budget, at(2100)), 0);
    assert_eq!(drain(&mut budget, at(2200)), 294);
}

#[test]
fn credits_at_the_start_are_those_somebody_vouched_for() {
    let share = quarter().with_credits(0.5).unwrap();
    assert_eq!(Budget::new(&gp2(), share, T0).credits(), Some(0.5));
    assert_eq!(Budget::new(&gp3(), share, T0).credits(), None);
    assert_eq!(drain(&mut Budget::new(&gp3(), share, T0), T0), 0);
    for credits in [-0.1, 1.5, f64::NAN] {
        assert!(matches!(quarter().with_credits(credits), Err(ShareError::Credits(_))));
    }
}

#[test]
fn credits_of_an_earlier_budget_are_taken_over() {
    let mut budget = Budget::new(&gp2(), Share::default(), T0);
    budget.set_credits(0.25);
    assert_eq!(budget.credits(), Some(0.25));
    assert!(
        matches!(budget.admit(T0, Cost::reads(1, 0)), Admission::At(_)),
        "the burst's bucket is empty"
    );
    let mut budget = Budget::new(&gp3(), Share::default(), T0);
    budget.set_credits(0.25);
    assert_eq!(budget.credits(), None);
    assert!(matches!(budget.admit(T0, Cost::reads(1, 0)), Admission::At(_)));
}

#[test]
fn credits_survive_new_terms_and_another_share() {
    let share = quarter().with_credits(1.0).unwrap();
    let mut budget = Budget::new(&gp2(), share, T0);
    budget.set_share(share.lowered(Part { rate: 0.5, depth: 1.0 }), &gp2(), T0);
    assert_eq!(budget.credits(), Some(1.0));
    let mut larger = gp2();
    larger.limits[1].rate_per_sec = 600;
    budget.set_contract(&larger, T0);
    assert!(budget.credits().unwrap() > 0.999);
    // A new limit with credits starts with next to none.
    let mut budget = Budget::new(&gp3(), share, T0);
    budget.set_contract(&gp2(), T0 + Duration::from_secs(1));
    assert!(budget.credits().unwrap() < 0.001);
}

#[test]
fn a_lower_share_earns_less_and_keeps_what_was_saved() {
    let mut budget = Budget::new(&gp3(), Share::new(1.0, 0.25).unwrap(), T0);
    let at = |ms| T0 + Duration::from_millis(ms);
    assert_eq!(drain(&mut budget, at(100)), 300);
    budget.set_share(Share::new(0.5, 0.25).unwrap(), &gp3(), at(200));
    assert_eq!(drain(&mut budget, at(200)), 300);
    assert_eq!(drain(&mut budget, at(300)), 150);
    assert_eq!(quarter().lowered(Part { rate: 0.5, depth: 1.0 }).rho(), 0.49);
    assert!(quarter().lowered(Part { rate: 0.0, depth: 1.0 }).rho() > 0.0);
}

/// A contract with one to three limits.
fn any_contract() -> impl Strategy<Value = Contract> {
    let any_ops = (1u64..20_000, 1u64..60_000).prop_map(|(rate, depth)| ops(rate, depth));
    let any_bytes = (1u64..400 * MIB, 256 * KIB..400 * MIB).prop_map(|(r, d)| bytes(r, d));
    vec(prop_oneof![any_ops, any_bytes], 1..=3).prop_map(contract)
}

fn any_share() -> impl Strategy<Value = Share> {
    (1u32..=MILLION, 0u32..=MILLION).prop_map(|(rho_ppm, beta_ppm)| Share {
        rho_ppm,
        beta_ppm,
        credits_ppm: 0,
    })
}

/// Steps in time of every size, with requests as parts of the largest one.
fn any_requests() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    let step = prop_oneof![Just(0), 1u64..1000, 1u64..10_000_000, 1u64..3_000_000_000];
    vec((step, 0u64..=8, 0u64..=1000), 1..120)
}

fn part_of(largest: Cost, eighths: u64, thousandths: u64) -> Cost {
    Cost::reads(largest.ops * eighths / 8, largest.bytes * thousandths / 1000)
}

/// Whatever the requests, the share and the limits, with credits: a fresh provider never delays what the budget grants.
fn never_overdraws(
    contract: &Contract,
    share: Share,
    requests: Vec<(u64, u64, u64)>,
    changes: bool,
) -> Result<(), TestCaseError> {
    let mut budget = Budget::new(contract, share, T0);
    let mut provider = crate::provider::Provider::new(contract, T0);
    let mut now = T0;
    for (step, eighths, thousandths) in requests {
        now = now + nanos(step);
        let cost = part_of(budget.largest(), eighths, thousandths);
        if changes && step % 5 == 0 {
            budget.set_share(
                share.lowered(Part { rate: step as f64 / 3e9, depth: 1.0 }),
                contract,
                now,
            );
        }
        if budget.admit(now, cost) == Admission::Now {
            prop_assert!(!provider.admit(now, cost).throttled);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn never_overdraws_a_provider(
        contract in any_contract(),
        share in any_share(),
        credits in 0.0..=1.0f64,
        requests in any_requests(),
        changes in any::<bool>(),
    ) {
        never_overdraws(&contract, share.with_credits(credits).unwrap(), requests, changes)?;
    }

    #[test]
    fn in_every_window_no_more_is_spent_than_the_share_and_the_depth(
        contract in any_contract(), share in any_share(), requests in any_requests()
    ) {
        let mut budget = Budget::new(&contract, share, T0);
        let mut now = T0;
        let mut spent: Vec<(Instant, Cost)> = Vec::new();
        for (step, eighths, thousandths) in requests {
            now = now + nanos(step);
            let cost = part_of(budget.largest(), eighths, thousandths);
            if budget.admit(now, cost) == Admission::Now {
                spent.push((now, cost));
            }
        }
        for bucket in &budget.buckets {
            for (first, &(from, _)) in spent.iter().enumerate() {
                let mut sum = 0;
                for &(until, cost) in &spent[first..] {
                    sum += bucket.price(cost);
                    prop_assert!(sum <= bucket.rate * until.since(from).as_nanos() + bucket.depth);
                }
            }
        }
    }

    /// The obvious account: tokens are lost only above the depth.
    #[test]
    fn what_was_earned_is_spent_or_saved(
        contract in any_contract(), share in any_share(), requests in any_requests()
    ) {
        let mut budget = Budget::new(&contract, share, T0);
        let mut now = T0;
        let mut accounts = vec![0u128; budget.buckets.len()];
        for (step, eighths, thousandths) in requests {
            let step = step.min(1_000_000_000);
            now = now + nanos(step);
            let cost = part_of(budget.largest(), eighths, thousandths);
            let admitted = budget.admit(now, cost) == Admission::Now;
            for (account, bucket) in accounts.iter_mut().zip(&budget.buckets) {
                *account = (*account + bucket.rate * u128::from(step)).min(bucket.depth);
                if admitted {
                    *account -= bucket.price(cost);
                }
                prop_assert_eq!(*account, bucket.saved);
            }
        }
    }

    #[test]
    fn admits_exactly_when_it_said(
        contract in any_contract(), share in any_share(), requests in any_requests()
    ) {
        let mut budget = Budget::new(&contract, share, T0);
        let mut now = T0;
        for (step, eighths, thousandths) in requests {
            now = now + nanos(step);
            let cost = part_of(budget.largest(), eighths, thousandths);
            if let Admission::At(at) = budget.admit(now, cost) {
                prop_assert!(at > now);
                let just_before = Instant::from_nanos(at.as_nanos() - 1);
                prop_assert_eq!(budget.clone().admit(just_before, cost), Admission::At(at));
                now = at;
                prop_assert_eq!(budget.admit(now, cost), Admission::Now);
            }
        }
    }

    #[test]
    fn no_fraction_is_lost_however_odd_the_steps(
        rho_ppm in 1u32..=MILLION, steps in vec(1u64..140_000_000, 1..500)
    ) {
        let share = Share { rho_ppm, beta_ppm: 0, credits_ppm: 0 };
        let mut budget = Budget::new(&contract(vec![ops(7, 100)]), share, T0);
        let mut now = T0;
        let mut spent = 0;
        for step in steps {
            now = now + nanos(step);
            spent += drain(&mut budget, now);
        }
        let earned = u128::from(now.as_nanos()) * 7 * u128::from(rho_ppm);
        prop_assert_eq!(u128::from(spent), earned / TOKEN);
    }

    #[test]
    fn a_refund_undoes_a_charge(
        contract in any_contract(), eighths in 0u64..=8, thousandths in 0u64..=1000
    ) {
        let mut budget = Budget::new(&contract, quarter(), T0);
        let cost = part_of(budget.largest(), eighths, thousandths);
        let now = match budget.admit(T0, cost) {
            Admission::Now => T0,
            Admission::At(at) => {
                prop_assert_eq!(budget.admit(at, cost), Admission::Now);
                at
            }
        };
        budget.refund(cost);
        prop_assert_eq!(budget.admit(now, cost), Admission::Now);
        budget.refund(cost);
        budget.refund(cost);
        prop_assert!(budget.buckets.iter().all(|bucket| bucket.saved <= bucket.depth));
    }

    /// The scalar form: one bucket of bytes in which an operation counts as at least `op_bytes`.
    #[test]
    fn never_holds_back_what_the_dearer_of_both_costs_would_let_go(
        iops in 100u64..20_000, op_bytes in 4096u64..300_000, requests in any_requests()
    ) {
        let by_bytes = contract(vec![bytes(iops * op_bytes, iops * op_bytes)]);
        let mut both = by_bytes.clone();
        both.limits.push(ops(iops, iops));
        let share = Share::new(0.98, 1.0).unwrap();
        let mut scalar = Budget::new(&by_bytes, share, T0);
        let mut ours = Budget::new(&both, share, T0);
        let mut now = T0;
        for (step, eighths, thousandths) in requests {
            now = now + nanos(step);
            let cost = part_of(ours.largest(), eighths, thousandths);
            let dearer = Cost::reads(0, cost.bytes.max(cost.ops * op_bytes));
            if dearer.bytes > scalar.largest().bytes {
                continue;
            }
            if let Admission::At(at) = scalar.admit(now, dearer) {
                // A step earns at most one second, unless the caller was told to wait longer.
                let asked = ours.admit(now, cost);
                now = at;
                prop_assert_eq!(scalar.admit(now, dearer), Admission::Now);
                if asked == Admission::Now {
                    continue;
                }
            }
            prop_assert_eq!(ours.admit(now, cost), Admission::Now);
        }
    }
}

use proptest::prelude::*;

use super::*;
use crate::contract::catalogue;
use crate::contract::spec::Bought;
use crate::units::{Bytes, GIB, MIB};

fn contract(limits: Vec<Limit>) -> Contract {
    Contract { limits, ..Contract::unlimited() }
}

fn ops(rate_per_sec: u64, depth: u64) -> Limit {
    Limit { counts: Counted::Ops, rate_per_sec, depth }
}

fn sold(name: &str, gib: Option<u64>, bought: Bought) -> Contract {
    let spec = catalogue::find(name).expect("it is in the catalogue");
    spec.contract(gib.map(|gib| Bytes(gib * GIB)), bought).expect("it is sold")
}

fn divided(instance: Instance, contracts: &[Contract]) -> Vec<Contract> {
    instance.divide(&contracts.iter().collect::<Vec<_>>())
}

/// The rate of a burst: credits do not bound it.
fn highest(contract: &Contract, counts: Counted) -> Option<u64> {
    let limits = contract.limits.iter().filter(|limit| limit.counts == counts);
    limits.filter(|limit| !limit.is_credits()).map(|limit| limit.rate_per_sec).min()
}

#[test]
fn what_lasts_is_cut_in_proportion() {
    let io2 = |iops| sold("io2", None, Bought { iops: Some(iops), mib_per_s: None });
    let instance = Instance { ops_per_sec: Some(12_000), bytes_per_sec: None };
    let volumes = [io2(16_000), io2(8000)];
    let paid = |of: &Contract| (of.paid_iops(), of.paid_bytes_per_sec());
    let cut: Vec<_> = divided(instance, &volumes).iter().map(paid).collect();
    let bytes = volumes.each_ref().map(Contract::paid_bytes_per_sec);
    assert_eq!(cut, [(Some(8000), bytes[0]), (Some(4000), bytes[1])]);
}

/// A machine counts both together.
#[test]
fn reads_and_writes_that_are_counted_apart_count_as_their_sum() {
    let limit = |counts, rate_per_sec| Limit { counts, rate_per_sec, depth: rate_per_sec };
    let apart = contract(vec![limit(Counted::ReadOps, 600), limit(Counted::WriteOps, 400)]);
    let volumes = [apart.clone(), contract(vec![ops(1000, 1000)])];
    let both = |most| divided(Instance { ops_per_sec: Some(most), bytes_per_sec: None }, &volumes);
    assert_eq!(both(2000), volumes, "they fit");
    let cut = both(1000);
    let with_part = [apart.limits[0], apart.limits[1], ops(500, 500)];
    assert_eq!((&*cut[0].limits, &*cut[1].limits), (&with_part[..], &[ops(500, 500)][..]));
}

#[test]
fn bytes_are_cut_and_operations_stay() {
    let gp3 = sold("gp3", None, Bought::default());
    let instance = Instance { ops_per_sec: Some(20_000), bytes_per_sec: Some(593 * MIB) };
    for cut in divided(instance, &vec![gp3.clone(); 6]) {
        assert_eq!(cut.paid_iops(), Some(3000));
        let part = cut.paid_bytes_per_sec().expect("gp3 limits bytes");
        assert!((593 * MIB / 6..=593 * MIB / 6 + 1).contains(&part), "{part}");
    }
}

#[test]
fn the_spare_goes_to_those_that_burst() {
    // gp2 of 100 GiB sustains 300 IOPS and bursts to 3000.
    let volumes = [sold("gp2", Some(100), Bought::default()), sold("gp3", None, Bought::default())];
    let instance = Instance { ops_per_sec: Some(4000), bytes_per_sec: None };
    let cut = divided(instance, &volumes);
    assert_eq!(cut[1], volumes[1], "what lasts fits");
    assert_eq!(highest(&cut[0], Counted::Ops), Some(1000));
    assert_eq!(cut[0].paid_iops(), Some(300));
    let credits = |of: &Contract| of.limits.iter().find(|limit| limit.is_credits()).copied();
    assert_eq!(credits(&cut[0]), credits(&volumes[0]));
}

#[test]
fn a_volume_without_limits_is_as_good_as_any() {
    let instance = Instance { ops_per_sec: Some(12_000), bytes_per_sec: Some(600 * MIB) };
    let free = Contract::unlimited();
    let alone = divided(instance, std::slice::from_ref(&free));
    assert_eq!(
        (alone[0].paid_iops(), alone[0].paid_bytes_per_sec()),
        (Some(12_000), Some(600 * MIB))
    );
    let with_small = divided(instance, &[free.clone(), contract(vec![ops(1000, 1000)])]);
    assert_eq!(
        with_small.iter().map(|of| of.paid_iops()).collect::<Vec<_>>(),
        [Some(11_000), Some(1000)]
    );
    let three = divided(instance, &vec![free; 3]);
    assert!(three.iter().all(|of| of.paid_iops() == Some(4000)), "{three:?}");
}

#[test]
fn nobody_is_left_with_nothing() {
    let instance = Instance { ops_per_sec: Some(3), bytes_per_sec: Some(768 * KIB) };
    let byte = Limit { counts: Counted::Bytes, rate_per_sec: 1000 * MIB, depth: 1000 * MIB };
    let small = Limit { counts: Counted::Bytes, rate_per_sec: MIB, depth: MIB };
    let volumes = [
        contract(vec![ops(64_000, 64_000), byte]),
        contract(vec![ops(1, 1), small]),
        contract(vec![ops(100, 100), small]),
    ];
    for cut in divided(instance, &volumes) {
        assert_eq!((cut.paid_iops(), cut.paid_bytes_per_sec()), (Some(1), Some(256 * KIB)));
    }
    let too_little = Instance { ops_per_sec: Some(1), bytes_per_sec: None };
    assert!(divided(too_little, &volumes).iter().all(|of| of.paid_iops() == Some(1)));
    assert_eq!(divided(instance, &[]), []);
}

fn rate() -> impl Strategy<Value = u64> {
    prop_oneof![1..10u64, 1..100_000u64, 1..=u64::MAX]
}

fn limits() -> impl Strategy<Value = Vec<Limit>> {
    let counts = prop_oneof![Just(Counted::Ops), Just(Counted::Bytes)];
    let limit = (counts, rate(), rate()).prop_map(|(counts, rate_per_sec, depth)| Limit {
        counts,
        rate_per_sec,
        depth,
    });
    prop::collection::vec(limit, 0..5)
}

proptest! {
    #[test]
    fn together_they_keep_to_the_instance_and_each_to_its_own(
        volumes in prop::collection::vec(limits().prop_map(contract), 1..8),
        rates in (prop::option::of(rate()), prop::option::of(rate())),
    ) {
        let least = volumes.len() as u64;
        let most = [rates.0, rates.1].map(|most| most.map(|most| most.max(least)));
        let instance = Instance { ops_per_sec: most[0], bytes_per_sec: most[1] };
        let cut = divided(instance, &volumes);
        for (counts, most) in [Counted::Ops, Counted::Bytes].into_iter().zip(most) {
            let of = |contract: &Contract| -> Vec<Limit> {
                contract.limits.iter().filter(|limit| limit.counts == counts).copied().collect()
            };
            for (cut, own) in cut.iter().zip(&volumes) {
                let (cut, own) = (of(cut), of(own));
                prop_assert!(cut.iter().all(|limit| limit.rate_per_sec > 0 && limit.depth > 0));
                prop_assert!(cut.len() >= own.len(), "no limit is gone");
                for (cut, own) in cut.iter().zip(&own) {
                    prop_assert!(cut.rate_per_sec <= own.rate_per_sec && cut.depth <= own.depth);
                    prop_assert_eq!(cut.is_credits(), own.is_credits());
                }
            }
            let own: Option<u128> =
                volumes.iter().map(|of| highest(of, counts).map(u128::from)).sum();
            let Some(most) = most.map(u128::from) else {
                prop_assert!(cut.iter().zip(&volumes).all(|(cut, own)| of(cut) == of(own)));
                continue;
            };
            let sum: Option<u128> = cut.iter().map(|of| highest(of, counts).map(u128::from)).sum();
            prop_assert!(sum.is_some_and(|sum| sum <= most), "{:?} of {}", sum, most);
            let saved: u128 = cut
                .iter()
                .filter_map(|cut| of(cut).iter().filter(|l| !l.is_credits()).map(|l| l.depth).min())
                .map(u128::from)
                .sum();
            prop_assert!(saved <= most);
            if own.is_some_and(|own| own <= most) {
                prop_assert!(cut.iter().zip(&volumes).all(|(cut, own)| of(cut) == of(own)));
            } else {
                prop_assert!(sum == Some(most), "nothing is left over: {:?} of {}", sum, most);
            }
        }
    }
}

const IDLE: Use = Use { spent: Cost::reads(0, 0), is_short: false };
const SHORT: Use = Use { is_short: true, ..IDLE };

fn takes(ops: u64) -> Use {
    Use { spent: Cost::reads(ops, ops * 4096), is_short: false }
}

#[test]
fn one_busy_volume_of_six_gets_what_the_others_leave() {
    let gp3 = sold("gp3", None, Bought { iops: Some(6000), mib_per_s: None });
    let volumes = vec![&gp3; 6];
    let instance = Instance { ops_per_sec: Some(12_000), bytes_per_sec: None };
    let parts = |used: [Use; 6]| {
        let divided = instance.divide_by_use(&volumes, &used);
        divided.iter().map(|of| of.paid_iops().expect("it is limited")).collect::<Vec<_>>()
    };
    let mut used = [IDLE; 6];
    assert_eq!(parts(used), [2000; 6], "as without knowing");
    used[0] = SHORT;
    // All that it was bought for: five halves are enough.
    assert_eq!(parts(used), [6000, 1200, 1200, 1200, 1200, 1200]);
    used[1] = takes(1000);
    assert_eq!(parts(used), [6000, 1556, 1111, 1111, 1111, 1111], "what is used is due first");
    used[1] = SHORT;
    // Two are short: each has its part, and as much of the rest.
    assert_eq!(parts(used), [4000, 4000, 1000, 1000, 1000, 1000]);
    assert_eq!(parts([SHORT; 6]), [2000; 6]);
}

#[test]
fn a_division_by_use_leaves_machines_alone_that_are_large_enough() {
    let gp3 = sold("gp3", None, Bought::default());
    let instance = Instance { ops_per_sec: Some(6000), bytes_per_sec: None };
    assert_eq!(instance.divide_by_use(&[&gp3, &gp3], &[SHORT, IDLE]), [gp3.clone(), gp3.clone()]);
}

proptest! {
    #[test]
    fn parts_by_use_never_exceed_the_instance_and_give_what_is_due(
        volumes in proptest::collection::vec((1u64..20_000, 0u64..20_000, any::<bool>()), 1..9),
        most in 9u64..100_000,
    ) {
        let contracts: Vec<_> =
            volumes.iter().map(|&(rate, ..)| contract(vec![ops(rate, rate)])).collect();
        let contracts: Vec<_> = contracts.iter().collect();
        let used: Vec<_> = volumes.iter().map(|&(_, spent, is_short)| Use { is_short, ..takes(spent) }).collect();
        let instance = Instance { ops_per_sec: Some(most), bytes_per_sec: None };
        let rate = |of: &Contract| of.limits[0].rate_per_sec;
        let fixed: Vec<_> = instance.divide(&contracts).iter().map(rate).collect();
        let parts: Vec<_> = instance.divide_by_use(&contracts, &used).iter().map(rate).collect();
        prop_assert!(parts.iter().sum::<u64>() <= most.max(volumes.len() as u64));
        for (at, used) in used.iter().enumerate() {
            prop_assert!(parts[at] <= rate(contracts[at]));
            let due = if used.is_short { fixed[at] } else { fixed[at].min(used.spent.ops) };
            prop_assert!(parts[at] >= due.max(fixed[at] / 2), "{parts:?} of {fixed:?}");
        }
    }
}

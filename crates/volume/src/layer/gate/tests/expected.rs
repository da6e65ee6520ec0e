//! The wait that a gate expects for a read, compared with the wait that follows.

use policy::contract::{Latency, Percentiles};
use policy::units::MIB;

use super::*;
use crate::layer::simulate::Simulate;

/// A read that comes now: its expected wait, and the time it took.
async fn probe<V: Volume>(gate: &Gate<V>, clock: &Clock) -> (Duration, Duration) {
    let object = gate.open(&name("data")).await.unwrap();
    let (expected, from) = (gate.expected_read().wait, clock.now());
    object.read_at(0, page(), READ).await.unwrap();
    (expected, clock.now().since(from))
}

/// A gate with one object under `policy`, whose device takes `latency`.
fn gate(policy: Policy, contract: &Contract, latency: Duration) -> (Clock, Gate<Device>) {
    let clock = Clock::simulated();
    let mut device = Device::new(&clock);
    device.latency = latency;
    let gate = Gate::with_policy(device, "vol", contract, Share::default(), policy, clock.clone());
    clock.run(gate.create(&name("data"), &Intent::DATA)).unwrap();
    (clock, gate)
}

#[test]
fn bytes_count_where_they_are_what_is_short() {
    let bytes = Limit { counts: Counted::Bytes, rate_per_sec: 4 * MIB, depth: 4 * MIB };
    let mut terms = contract(10_000);
    terms.limits.push(bytes);
    for policy in [Policy::Strict, Policy::Tags] {
        let (clock, gate) = gate(policy, &terms, Duration::ZERO);
        let object = clock.run(gate.open(&name("data"))).unwrap();
        let large = || object.read_at(0, IoBufMut::zeroed(256 * 1024), READ);
        let reads = join_all((0..20).map(|_| large()));
        let (_, (expected, waited)) = clock.run(join(reads, probe(&gate, &clock)));
        assert!(waited > Duration::from_secs(1), "{waited:?}");
        assert!(expected.abs_diff(waited) <= waited / 20, "{policy:?}: {expected:?}, {waited:?}");
    }
}

#[test]
fn a_share_that_was_lowered_counts() {
    let latency = Percentiles::constant(Duration::from_micros(500));
    let terms =
        |iops| Contract { latency: Latency { read: latency, write: latency }, ..contract(iops) };
    let clock = Clock::simulated();
    let provider = Simulate::new(Mem::new("m"), &terms(300), clock.clone(), 7);
    let gate = Gate::new(provider, "vol", &terms(1000), Share::default(), clock.clone());
    gate.set_adapt(true);
    clock.run(gate.create(&name("data"), &Intent::DATA)).unwrap();
    let until = clock.now() + Duration::from_secs(60);
    let readers = join_all((0..64).map(|_| async {
        let object = gate.open(&name("data")).await.unwrap();
        while clock.now() < until {
            object.read_at(0, page(), READ).await.unwrap();
        }
    }));
    let probes = async {
        let (mut expected, mut waited) = (Duration::ZERO, Duration::ZERO);
        clock.sleep(Duration::from_secs(50)).await;
        for _ in 0..20 {
            clock.sleep(100 * MS).await;
            let one = probe(&gate, &clock).await;
            (expected, waited) = (expected + one.0, waited + one.1);
        }
        (expected, waited)
    };
    let (_, (expected, waited)) = clock.run(join(readers, probes));
    assert!(gate.meter().rho < 0.4, "{}", gate.meter().rho);
    assert!(expected.abs_diff(waited) <= waited / 4, "{expected:?}, and {waited:?} was waited");
}

#[test]
fn the_end_of_a_pause_counts() {
    let (clock, gate) = gate(Policy::TagsP99, &contract(1000), Duration::from_micros(200));
    let until = clock.now() + Duration::from_secs(30);
    let readers = join_all((0..5).map(|_| async {
        let object = gate.open(&name("data")).await.unwrap();
        while clock.now() < until {
            object.read_at(0, page(), READ).await.unwrap();
        }
    }));
    let probes = async {
        let mut paused = 0;
        while clock.now() + Duration::from_secs(2) < until {
            clock.sleep(70 * MS).await;
            let (expected, waited) = probe(&gate, &clock).await;
            assert!(expected.abs_diff(waited) <= 10 * MS, "{expected:?}, {waited:?}");
            paused += u64::from(waited > 50 * MS);
        }
        paused
    };
    let (_, paused) = clock.run(join(readers, probes));
    assert!(paused > 10, "{paused} waited for the end of a pause");
}

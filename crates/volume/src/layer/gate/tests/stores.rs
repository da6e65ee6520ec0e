//! Stores that share a gate.

use policy::purpose::Tenant;

use super::*;

/// Runs four callers of the first store and twenty-eight of the second for some seconds of 1000 operations each, and gives
/// the part of each in the operations.
fn parts(gate: &Gate<Device>, clock: &Clock, work: impl AsyncFn(Io, u64)) -> [f64; 2] {
    let spent = || {
        let tenants: HashMap<_, _> = gate.meter().tenants.into_iter().collect();
        [1, 2].map(|n| tenants.get(&Tenant(n)).map_or(0, |figures| figures.spent.ops) as f64)
    };
    let (before, end) = (spent(), clock.now() + Duration::from_secs(5));
    let caller = async |n: u64| {
        let io = WRITE.for_tenant(Tenant(if n < 4 { 1 } else { 2 }));
        while clock.now() < end {
            work(io, n).await;
        }
    };
    clock.run(join_all((0..32).map(caller)));
    let after = spent();
    [0, 1].map(|n| (after[n] - before[n]) / 5000.0)
}

#[test]
fn reads_writes_and_syncs_of_stores_get_equal_parts_or_those_of_their_weights() {
    let clock = Clock::simulated();
    let gate = Gate::new(Device::new(&clock), "v", &contract(1000), all(), clock.clone());
    let create = |text: &str, intent| clock.run(gate.create(&name(text), &intent)).unwrap();
    let object = create("data", Intent::DATA);
    clock.run(object.write_at(0, data(4096), WRITE)).unwrap();
    let logs: Vec<_> = (0..32).map(|n| create(&format!("{n}.log"), Intent::LOG)).collect();
    let read = async |io, _| {
        let io = Io { origin: Origin::UserRead, ..io };
        object.read_at(0, page(), io).await.unwrap();
    };
    let write = async |io, _| object.write_at(0, data(4096), io).await.unwrap();
    let sync = async |io, n: u64| {
        let log = &logs[n as usize];
        log.write_at(log.len(), data(512), io).await.unwrap();
        log.sync(io).await.unwrap();
    };
    let is_about = |part: f64, wanted: f64| (part - wanted).abs() < 0.05;
    for wanted in [[0.5, 0.5], [0.75, 0.25]] {
        gate.set_io_weight(Tenant(1), wanted[0] / wanted[1]);
        let found =
            [parts(&gate, &clock, read), parts(&gate, &clock, write), parts(&gate, &clock, sync)];
        for [first, second] in found {
            assert!(is_about(first, wanted[0]) && is_about(second, wanted[1]), "{found:?}");
        }
    }
}

//! A gate whose volume gives less than its contract: another client uses it, or the contract sold
//! is smaller.

use policy::contract::{Latency, Percentiles};
use policy::estimate::Finding;

use super::*;

const IOPS: u64 = 1000;

fn terms(iops: u64) -> Contract {
    let latency = Percentiles::constant(Duration::from_micros(500));
    Contract { latency: Latency { read: latency, write: latency }, ..contract(iops) }
}

/// Readers behind a gate, and a provider that another client may use too.
struct Shared {
    clock: Clock,
    provider: Arc<Simulate<Mem>>,
    gate: Gate<Arc<Simulate<Mem>>>,
}

impl Shared {
    fn new() -> Self {
        let clock = Clock::simulated();
        let provider = Arc::new(Simulate::new(Mem::new("m"), &terms(IOPS), clock.clone(), 7));
        let device = Arc::clone(&provider);
        let gate = Gate::new(device, "vol", &terms(IOPS), Share::default(), clock.clone());
        gate.set_adapt(true);
        clock.run(gate.create(&name("data"), &Intent::DATA)).unwrap();
        Self { clock, provider, gate }
    }

    /// For `seconds`, sixteen readers read without a pause, and another client reads `foreign`
    /// times a second.
    fn run(&self, seconds: u64, foreign: u64) {
        let until = self.clock.now() + Duration::from_secs(seconds);
        let readers = (0..16).map(|_| async move {
            let object = self.gate.open(&name("data")).await.unwrap();
            while self.clock.now() < until {
                object.read_at(0, page(), READ).await.unwrap();
            }
        });
        let from = self.clock.now();
        let others = (0..foreign).map(|other| async move {
            let object = self.provider.open(&name("data")).await.unwrap();
            let mut at = from + Duration::from_secs(other) / u32::try_from(foreign).unwrap();
            while at < until {
                self.clock.sleep_until(at).await;
                object.read_at(0, page(), READ).await.unwrap();
                at = at + Duration::from_secs(1);
            }
        });
        self.clock.run(join(join_all(readers), join_all(others)));
    }

    fn throttled(&self) -> u64 {
        self.provider.meter().total.throttled
    }
}

#[test]
fn room_is_made_for_another_client_and_taken_back() {
    let shared = Shared::new();
    shared.run(20, 0);
    assert_eq!((shared.throttled(), shared.gate.meter().rho), (0, 0.98));
    // The provider's saved tokens last a while; then 0.7 is left for the gate.
    shared.run(10, 300);
    let rho = shared.gate.meter().rho;
    assert!((0.55..=0.7).contains(&rho), "{rho}");
    let before = (shared.throttled(), shared.provider.meter().total.requests);
    for second in 0..120 {
        shared.run(1, 300);
        // Above 0.7 while the provider's saved tokens last.
        let rho = shared.gate.meter().rho;
        assert!((0.5..=0.9).contains(&rho), "{rho} after {second} s");
    }
    let late = shared.throttled() - before.0;
    let all = shared.provider.meter().total.requests - before.1;
    assert!(late * 8 < all, "{late} of {all} were late");
    assert!(shared.gate.meter().available.is_some());
    assert_eq!(shared.gate.meter().finding, Some(Finding::GivesLess));

    shared.run(75, 0);
    assert_eq!(shared.gate.meter().finding, Some(Finding::TriesDepth));
    assert_eq!((shared.gate.meter().rho, shared.gate.meter().available), (0.98, None));
}

#[test]
fn a_provider_that_silently_sells_less_is_measured() {
    let shared = Shared::new();
    shared.provider.set_contract(&terms(300));
    shared.run(100, 0);
    let meter = shared.gate.meter();
    let available = meter.available.unwrap();
    assert!((available - 0.3).abs() < 0.03, "{available}");
    assert!((0.2..=0.32).contains(&meter.rho), "{}", meter.rho);
    // Given the true contract, the gate follows it.
    shared.gate.set_contract(&terms(300));
    assert_eq!((shared.gate.meter().rho, shared.gate.meter().available), (0.98, None));
    let before = shared.throttled();
    shared.run(60, 0);
    let meter = shared.provider.meter();
    assert!(shared.throttled() - before < 20, "{} were late", shared.throttled() - before);
    assert_eq!(meter.total.ops, shared.gate.meter().spent().ops);
}

/// Each division of a machine's limits among its volumes began the estimate anew.
#[test]
fn a_part_of_the_contract_keeps_what_was_learned() {
    let shared = Shared::new();
    shared.provider.set_contract(&terms(300));
    shared.run(60, 0);
    let (learned, rho) = (shared.gate.learned(), shared.gate.meter().rho);
    shared.gate.set_at_most(&terms(500));
    assert_eq!(shared.gate.learned(), learned);
    let meter = shared.gate.meter();
    assert_eq!((meter.contract, shared.gate.bought()), (terms(500), terms(IOPS)));
    assert!((meter.rho - 2.0 * rho).abs() < 1e-3, "{} and {rho}", meter.rho);
    let before = shared.throttled();
    shared.run(2, 0);
    assert!(shared.throttled() - before < 10, "{}", shared.throttled() - before);
    // A reload without a change changes nothing.
    shared.gate.set_contract_at_most(&terms(IOPS), &terms(IOPS));
    assert!((shared.gate.meter().rho - rho).abs() < 0.03);
}

/// A log's sync was compared with a single write.
#[test]
fn syncs_of_logs_are_no_slow_writes() {
    let latency = Percentiles::constant(400 * Duration::from_micros(1));
    let latency = Latency { read: latency, write: latency };
    let stage = Stage::with(&Contract { latency, ..contract(10_000) }, "data", |device| {
        device.latency = 900 * Duration::from_micros(1);
    });
    stage.gate.set_adapt(true);
    let logs = (0..10).map(|log| {
        let (stage, name) = (&stage, name(&format!("{log}.log")));
        async move {
            let log = stage.gate.create(&name, &Intent::LOG).await.unwrap();
            for at in 0..10_000 {
                log.write_at(at, data(1), WRITE).await.unwrap();
                log.sync(WRITE).await.unwrap();
            }
        }
    });
    stage.run(join_all(logs));
    assert!(stage.now() > Duration::from_secs(10));
    let learned = stage.gate.learned().unwrap();
    assert_eq!((learned.rate, stage.gate.meter().rho), (1.0, 1.0));
    assert_ne!(stage.gate.meter().finding, Some(Finding::SlowOtherwise));
    assert!(learned.usual[IoKind::Sync.index()].is_some());
    assert_eq!(learned.usual[IoKind::SmallWrite.index()], None);
}

#[test]
fn a_gate_that_does_not_adapt_keeps_its_share() {
    let shared = Shared::new();
    shared.run(10, 400);
    shared.gate.set_adapt(false);
    shared.run(20, 400);
    assert_eq!(shared.gate.meter().finding, None);
    assert_eq!((shared.gate.meter().rho, shared.gate.meter().available), (0.98, None));
}

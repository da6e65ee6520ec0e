use futures_util::future::join_all;
use policy::budget::Share;
use policy::contract::spec::Bought;
use policy::contract::{Counted, Latency, Limit, Percentiles, catalogue};
use policy::purpose::{Origin, Step};
use policy::units::{Bytes, GIB, KIB, MIB};

use super::*;
use crate::conformance::{self, Harness, Work};
use crate::layer::gate::Gate;
use crate::mem::Mem;

const IO: Io = Io::new(Origin::UserRead, Step::Data);
const US: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);

/// `iops` operations a second; reads take 100 us, writes 200.
fn contract(iops: u64) -> Contract {
    Contract {
        limits: vec![Limit { counts: Counted::Ops, rate_per_sec: iops, depth: iops }],
        latency: Latency {
            read: Percentiles::constant(100 * US),
            write: Percentiles::constant(200 * US),
        },
        ..Contract::unlimited()
    }
}

fn sold(name: &str) -> Contract {
    let spec = catalogue::find(name).expect("it is in the catalogue");
    spec.contract(Some(Bytes(500 * GIB)), Bought::default()).expect("it is sold")
}

fn name(name: &str) -> Name {
    Name::new(name).expect("a good name")
}

fn data(len: u64) -> IoBuf {
    IoBufMut::zeroed(usize::try_from(len).expect("it fits in memory")).freeze()
}

fn page() -> IoBufMut {
    IoBufMut::zeroed(4096)
}

/// A volume with its own clock and one object.
struct Stage {
    clock: Clock,
    volume: Simulate<Mem>,
    object: Arc<dyn Object>,
}

impl Stage {
    fn with(contract: &Contract, object: &str, seed: u64) -> Self {
        let clock = Clock::simulated();
        let volume = Simulate::new(Mem::new("mem"), contract, clock.clone(), seed);
        let object = name(object);
        let created = volume.create(&object, &conformance::intent(&object));
        let object = clock.run(created).expect("it is new");
        Self { clock, volume, object }
    }

    fn new(contract: &Contract) -> Self {
        Self::with(contract, "data", 1)
    }

    /// Runs one operation; returns how long it took.
    fn time<T>(&self, work: Pending<'_, T>) -> Duration {
        let start = self.clock.now();
        self.clock.run(work).expect("memory does not fail");
        self.clock.now().since(start)
    }

    fn read(&self, offset: u64) -> Duration {
        self.time(self.object.read_at(offset, page(), IO))
    }

    fn write(&self, offset: u64, len: u64) -> Duration {
        self.time(self.object.write_at(offset, data(len), IO))
    }

    fn total(&self) -> Count {
        self.volume.meter().total
    }
}

struct Virtual {
    clock: Clock,
    mem: Mem,
    contract: Contract,
    volume: Option<Arc<dyn Volume>>,
}

impl Virtual {
    fn new(contract: Contract) -> Self {
        let (clock, mem) = (Clock::simulated(), Mem::new("mem"));
        let mut new = Self { clock, mem, contract, volume: None };
        new.reopen();
        new
    }
}

impl Harness for Virtual {
    fn volume(&self) -> Arc<dyn Volume> {
        Arc::clone(self.volume.as_ref().expect("it was opened"))
    }

    fn run(&mut self, work: Work) {
        self.clock.run(work);
    }

    fn reopen(&mut self) -> bool {
        let (mem, clock) = (self.mem.clone(), self.clock.clone());
        self.volume = Some(Arc::new(Simulate::new(mem, &self.contract, clock, 7)));
        true
    }
}

#[test]
fn conforms_whatever_the_contract() {
    for contract in ["gp2", "gp3", "hdd-7200", "unlimited"] {
        conformance::run(|| Box::new(Virtual::new(sold(contract))));
    }
}

#[test]
fn below_the_contract_the_base_latency_is_all() {
    let stage = Stage::new(&contract(1000));
    assert_eq!(stage.write(0, 4096), 200 * US);
    assert_eq!(stage.read(0), 100 * US);
    assert_eq!(stage.total(), Count { requests: 2, ops: 2, bytes: 8192, throttled: 0 });
}

#[test]
fn a_modified_volume_goes_by_its_new_terms_at_once() {
    let stage = Stage::new(&contract(10));
    for _ in 0..10 {
        stage.read(0);
    }
    assert!(stage.read(0) > 50 * MS, "its second of tokens is spent");
    stage.volume.set_contract(&Contract { latency: Latency::default(), ..contract(1000) });
    assert_eq!(stage.read(0), Duration::ZERO);
    assert_eq!(stage.total().requests, 12, "what was seen is not forgotten");
}

#[test]
fn over_the_contract_the_wait_is_all() {
    let stage = Stage::new(&contract(1000));
    let reads = (0..1010).map(|_| stage.object.read_at(0, page(), IO));
    for read in stage.clock.run(join_all(reads)) {
        read.expect("memory does not fail");
    }
    assert_eq!(stage.clock.now(), Instant::ZERO + 10 * MS);
    let meter = stage.volume.meter();
    assert_eq!((meter.total.throttled, meter.wait_max), (10, 10 * MS));
    assert_eq!(meter.wait_total, (1..=10).sum::<u32>() * MS);
}

#[test]
fn a_large_request_is_one_request_of_several_operations() {
    let stage = Stage::new(&contract(1000));
    stage.write(0, MIB + 1);
    assert_eq!(stage.total(), Count { requests: 1, ops: 5, bytes: MIB + 1, throttled: 0 });
}

#[test]
fn a_log_pays_when_it_is_synced_for_what_was_written_since() {
    let stage = Stage::with(&contract(1000), "wal.log", 1);
    let sync = || stage.time(stage.object.sync(IO));
    assert_eq!(sync(), Duration::ZERO, "nothing to pay for");
    for i in 0..300 {
        assert_eq!(stage.write(i * KIB, KIB), Duration::ZERO);
    }
    assert_eq!(stage.total(), Count::default());
    assert_eq!(sync(), 200 * US);
    assert_eq!(stage.total(), Count { requests: 1, ops: 2, bytes: 300 * KIB, throttled: 0 });
    assert_eq!(sync(), Duration::ZERO, "paid already");
}

#[test]
fn handles_of_one_log_share_what_is_unpaid() {
    let stage = Stage::with(&contract(1000), "wal.log", 1);
    stage.write(0, 100);
    let other = stage.clock.run(stage.volume.open(&name("wal.log"))).expect("it is there");
    assert_eq!(stage.time(other.sync(IO)), 200 * US);
    assert_eq!(stage.time(stage.object.sync(IO)), Duration::ZERO);
    assert_eq!(stage.total().ops, 1);
}

#[test]
fn syncing_what_went_to_the_device_is_free() {
    let stage = Stage::new(&contract(1000));
    stage.write(0, 4096);
    assert_eq!(stage.time(stage.object.sync(IO)), Duration::ZERO);
    assert_eq!(stage.total().ops, 1);
}

#[test]
fn the_seed_decides_the_latencies() {
    let latencies = |seed| {
        let stage = Stage::with(&sold("gp3"), "data", seed);
        (0..100).map(|_| stage.read(0)).collect::<Vec<_>>()
    };
    assert_eq!(latencies(1), latencies(1));
    assert_ne!(latencies(1), latencies(2));
    assert!(latencies(1).iter().all(|&l| l >= 174 * US && l <= 848 * US));
}

#[test]
fn the_meter_tells_the_seconds_apart() {
    let stage = Stage::new(&contract(10));
    for second in [0, 0, 0, 5, 7] {
        let at = Instant::ZERO + Duration::from_secs(second);
        stage.clock.run(stage.clock.sleep_until(at));
        stage.read(0);
    }
    let meter = stage.volume.meter();
    let seconds: Vec<_> = meter.seconds.iter().map(|(second, c)| (*second, c.requests)).collect();
    assert_eq!(seconds, [(0, 3), (5, 1), (7, 1)]);
    assert_eq!(meter.seconds.iter().map(|(_, c)| c.bytes).sum::<u64>(), meter.total.bytes);
}

#[test]
fn a_request_given_up_was_made_all_the_same() {
    let stage = Stage::new(&contract(1000));
    let mut read = stage.object.read_at(0, page(), IO);
    stage.clock.run(async { assert!(futures_util::poll!(&mut read).is_pending()) });
    drop(read);
    assert_eq!(stage.total().requests, 1);
}

#[test]
fn a_disk_streams_what_waits_in_order_and_seeks_for_the_rest() {
    let stage = Stage::new(&sold("hdd-7200"));
    // All writes at once, so that the next request waits when its first byte comes under the head.
    let writes = (0..64).map(|i| stage.object.write_at(i * MIB, data(MIB), IO));
    for written in stage.clock.run(join_all(writes)) {
        written.expect("memory does not fail");
    }
    let streamed = stage.clock.now().since(Instant::ZERO);
    let at_best = Duration::from_secs(64) / 129;
    assert!(streamed.abs_diff(at_best) < 20 * MS, "{streamed:?}, at best {at_best:?}");
    let random = (0..64).map(|i| stage.read(i * 37 % 64 * MIB)).sum::<Duration>() / 64;
    assert!(random > 4 * MS && random < 16 * MS, "{random:?}");
}

/// The audit, from both sides of the gate: tokens spent equal operations counted, and there is no
/// overdraft.
#[test]
fn a_gate_spends_exactly_what_its_provider_counts() {
    for seed in 0..40 {
        let clock = Clock::simulated();
        let contract = sold(["gp2", "gp3", "pd-balanced", "st1"][seed as usize % 4]);
        let volume = Simulate::new(Mem::new("mem"), &contract, clock.clone(), seed);
        let gate = Gate::new(volume, "mem", &contract, Share::default(), clock.clone());
        clock.run(join_all((0..6).map(|task| wander(&gate, &clock, seed * 6 + task))));
        let seen = gate.inner().meter().total;
        let spent = gate.meter().spent();
        assert_eq!((spent.ops, spent.bytes), (seen.ops, seen.bytes), "seed {seed}");
        assert_eq!(seen.throttled, 0, "seed {seed}");
        assert!(seen.requests > 100);
    }
}

/// Random reads, writes, appends and syncs, with pauses, on objects of its own.
async fn wander(volume: &dyn Volume, clock: &Clock, seed: u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let create = async |kind: &str| {
        let name = name(&format!("{seed}{kind}"));
        volume.create(&name, &conformance::intent(&name)).await.expect("it is new")
    };
    let (table, log) = (create(".sst").await, create(".log").await);
    for _ in 0..60 {
        let len_max = [4 * KIB, 300 * KIB, 2 * MIB][random.random_range(0..3)];
        let len = random.random_range(0..len_max);
        let offset = random.random_range(0..MIB);
        let into = IoBufMut::zeroed(usize::try_from(len).expect("it fits in memory"));
        match random.random_range(0..7) {
            0 => table.read_at(offset, into, IO).await.map(drop),
            1 => table.write_at(offset, data(len), IO).await,
            2 => log.read_at(offset, into, IO).await.map(drop),
            3 | 4 => log.write_at(log.len(), data(len / 8), IO).await,
            5 => log.sync(IO).await,
            _ => {
                clock.sleep(random.random_range(0..200) * MS).await;
                Ok(())
            }
        }
        .expect("memory does not fail");
    }
}

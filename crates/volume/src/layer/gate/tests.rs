use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::{join, join_all};
use policy::contract::{Counted, Limit};
use policy::purpose::{Origin, Step};
use policy::time::Instant;
use policy::units::KIB;

use super::*;
use crate::ErrorKind;
use crate::conformance::{self, Harness, Work};
use crate::layer::simulate::Simulate;
use crate::layer::trace::{Trace, TraceLog};
use crate::mem::Mem;

mod adapt;
mod busy;
mod expected;
mod stores;
mod threads;

const READ: Io = Io::new(Origin::UserRead, Step::Data);
const WRITE: Io = Io::new(Origin::UserWrite, Step::Data);
const COPY: Io = Io::new(Origin::Copy, Step::Data);
const DEEP: Io = Io::new(Origin::Compaction { level: 5 }, Step::Data);
const MS: Duration = Duration::from_millis(1);

/// `iops` operations a second, with room to save up one second's worth; bytes are free.
fn contract(iops: u64) -> Contract {
    let limit = Limit { counts: Counted::Ops, rate_per_sec: iops, depth: iops };
    Contract { limits: vec![limit], ..Contract::unlimited() }
}

/// All of the contract, with the smallest possible savings.
fn all() -> Share {
    Share::new(1.0, 0.0).unwrap()
}

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

fn data(len: u64) -> IoBuf {
    IoBufMut::zeroed(len as usize).freeze()
}

fn page() -> IoBufMut {
    IoBufMut::zeroed(4096)
}

/// A request that reached the device, and its time.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Issued {
    at: Duration,
    what: &'static str,
    offset: u64,
    len: u64,
}

/// A device in memory that records its requests, and answers each after `latency`.
#[derive(Clone)]
struct Device {
    mem: Mem,
    clock: Clock,
    latency: Duration,
    issued: Arc<Mutex<Vec<Issued>>>,
    /// Writes at this offset fail.
    broken_at: Option<u64>,
    /// It writes nothing ahead.
    is_full: bool,
}

impl Device {
    fn new(clock: &Clock) -> Self {
        Self {
            mem: Mem::new("device"),
            clock: clock.clone(),
            latency: Duration::ZERO,
            issued: Arc::default(),
            broken_at: None,
            is_full: false,
        }
    }

    fn note(&self, what: &'static str, offset: u64, len: usize) {
        let at = self.clock.now().since(Instant::ZERO);
        self.issued.lock().push(Issued { at, what, offset, len: len as u64 });
    }

    fn take(&self) -> Vec<Issued> {
        std::mem::take(&mut *self.issued.lock())
    }
}

#[deny(clippy::missing_trait_methods)]
impl Volume for Device {
    fn create(&self, name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>> {
        let (name, intent) = (name.clone(), intent.clone());
        Box::pin(async move {
            let inner = self.mem.create(&name, &intent).await?;
            Ok(Arc::new(DeviceObject { inner, device: self.clone() }) as Arc<dyn Object>)
        })
    }

    fn open(&self, name: &Name) -> Pending<'_, Arc<dyn Object>> {
        let name = name.clone();
        Box::pin(async move {
            let inner = self.mem.open(&name).await?;
            Ok(Arc::new(DeviceObject { inner, device: self.clone() }) as Arc<dyn Object>)
        })
    }

    fn expected_read(&self) -> ReadTime {
        ReadTime::default()
    }

    fn users_load(&self) -> f64 {
        0.0
    }

    crate::forward! {
        self => self.mem;
        fn remove(name: &Name) -> Pending<'_, ()>;
        fn list() -> Pending<'_, Vec<Listed>>;
        fn space() -> Pending<'_, Space>;
        fn limits() -> Limits;
        fn write_whole(name: &Name, intent: &Intent, data: IoBuf, io: Io) -> Pending<'_, ()>;
        fn rename(from: &Name, to: &Name) -> Pending<'_, ()>;
        fn link(from: &Name, to: &Name) -> Pending<'_, ()>;
    }
}

struct DeviceObject {
    inner: Arc<dyn Object>,
    device: Device,
}

#[deny(clippy::missing_trait_methods)]
impl Object for DeviceObject {
    fn read_at(&self, offset: u64, into: IoBufMut, io: Io) -> Pending<'_, IoBufMut> {
        Box::pin(async move {
            self.device.note("read", offset, into.len());
            self.device.clock.sleep(self.device.latency).await;
            self.inner.read_at(offset, into, io).await
        })
    }

    fn write_at(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        Box::pin(async move {
            self.device.note("write", offset, data.len());
            if self.device.broken_at == Some(offset) {
                return Err(crate::Error::new(ErrorKind::Io, format!("broken at {offset}")));
            }
            self.device.clock.sleep(self.device.latency).await;
            self.inner.write_at(offset, data, io).await
        })
    }

    fn write_durable(&self, offset: u64, data: IoBuf, io: Io) -> Pending<'_, ()> {
        Box::pin(async move {
            self.device.note("write_durable", offset, data.len());
            self.device.clock.sleep(self.device.latency).await;
            self.inner.write_durable(offset, data, io).await
        })
    }

    fn blocking_read_at(&self, offset: u64, into: &mut [u8], io: Io) -> Result<usize> {
        blocking::read_at(self, offset, into, io)
    }

    fn blocking_write_at(&self, offset: u64, data: &[u8], io: Io) -> Result<()> {
        blocking::write_at(self, offset, data, io)
    }

    fn read_again(
        &self,
        offset: u64,
        into: IoBufMut,
        io: Io,
        check: Check,
    ) -> Pending<'_, IoBufMut> {
        crate::again::read(self, offset, into, io, check)
    }

    fn seal(&self, io: Io) -> Pending<'_, ()> {
        self.sync(io)
    }

    fn sync_ahead(&self, more: u64, io: Io) -> Pending<'_, bool> {
        Box::pin(async move {
            let written = usize::try_from(more).unwrap();
            self.device.note("written ahead", self.inner.len(), written);
            self.sync(io).await.map(|()| !self.device.is_full)
        })
    }

    fn sync(&self, io: Io) -> Pending<'_, ()> {
        Box::pin(async move {
            self.device.note("sync", 0, 0);
            self.device.clock.sleep(self.device.latency).await;
            self.inner.sync(io).await
        })
    }

    crate::forward! {
        self => self.inner;
        fn len() -> u64;
        fn is_log() -> bool;
        fn is_empty() -> bool;
        fn align(offset: u64, len: u64, io: Io) -> Pending<'_, ()>;
        fn expected_read(offset: u64, len: u64) -> ReadTime;
        fn zero(offset: u64, len: u64, room: Zeros, io: Io) -> Pending<'_, ()>;
        fn extents(offset: u64, len: u64) -> Pending<'_, Vec<Extent>>;
        fn set_len(len: u64) -> Pending<'_, ()>;
    }
}

/// A gated device in virtual time, with one object.
struct Stage {
    clock: Clock,
    device: Device,
    gate: Gate<Device>,
    object: Arc<dyn Object>,
}

impl Stage {
    fn new(contract: &Contract) -> Self {
        Self::with(contract, "data", |_| {})
    }

    /// Under the simplest scheduler with waits: these tests are about the gate.
    fn with(contract: &Contract, object: &str, change: impl FnOnce(&mut Device)) -> Self {
        Self::under(Policy::Strict, contract, object, change)
    }

    fn under(
        policy: Policy,
        contract: &Contract,
        object: &str,
        change: impl FnOnce(&mut Device),
    ) -> Self {
        let clock = Clock::simulated();
        let mut device = Device::new(&clock);
        change(&mut device);
        let gate = Gate::with_policy(device.clone(), "vol", contract, all(), policy, clock.clone());
        let object = name(object);
        let object = clock.run(gate.create(&object, &conformance::intent(&object))).unwrap();
        Self { clock, device, gate, object }
    }

    fn run<F: Future>(&self, future: F) -> F::Output {
        self.clock.run(future)
    }

    /// Moves time by `wait` while no request waits.
    fn pass(&self, wait: Duration) {
        self.run(self.clock.sleep(wait));
    }

    fn now(&self) -> Duration {
        self.clock.now().since(Instant::ZERO)
    }

    fn spent(&self) -> Cost {
        self.gate.meter().spent()
    }

    fn class(&self, class: Class) -> Figures {
        self.gate.meter().classes[class.index()].clone()
    }
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

struct Virtual {
    clock: Clock,
    mem: Mem,
    contract: Contract,
    policy: Policy,
    calls: TraceLog,
    volume: Option<Arc<dyn Volume>>,
}

impl Harness for Virtual {
    fn volume(&self) -> Arc<dyn Volume> {
        Arc::clone(self.volume.as_ref().unwrap())
    }

    fn run(&mut self, work: Work) {
        self.clock.run(work);
    }

    fn calls(&self) -> Option<TraceLog> {
        // One that splits requests makes more calls.
        (self.contract.op_bytes_max >= 32 * 1024).then(|| self.calls.clone())
    }

    fn reopen(&mut self) -> bool {
        let (mem, clock) = (self.mem.clone(), self.clock.clone());
        let device = Trace::new(mem, "vol", &self.calls, &clock);
        self.volume = Some(Arc::new(Gate::with_policy(
            device,
            "vol",
            &self.contract,
            all(),
            self.policy,
            clock,
        )));
        true
    }
}

#[test]
fn conforms_whatever_is_split_and_waited_for() {
    let mut narrow = contract(50);
    narrow.op_bytes_max = 4096;
    let terms = [Contract::unlimited(), contract(100), narrow];
    let schedulers = Policy::ALL.iter().flat_map(|policy| terms.iter().map(move |t| (*policy, t)));
    for (policy, contract) in schedulers {
        conformance::run(|| {
            let (clock, mem) = (Clock::simulated(), Mem::new("mem"));
            let contract = contract.clone();
            let calls = TraceLog::new(1000);
            let mut harness = Virtual { clock, mem, contract, policy, calls, volume: None };
            harness.reopen();
            Box::new(harness)
        });
    }
}

#[test]
fn what_is_saved_is_spent_without_waiting() {
    let stage = Stage::new(&contract(100));
    stage.pass(80 * MS);
    for _ in 0..8 {
        stage.run(stage.object.read_at(0, page(), READ)).unwrap();
    }
    assert_eq!(stage.now(), 80 * MS);
    stage.run(stage.object.read_at(0, page(), READ)).unwrap();
    assert_eq!(stage.now(), 90 * MS);
    let figures = stage.class(Class::Foreground);
    assert_eq!((figures.granted, figures.spent.ops), (9, 9));
    assert_eq!((figures.waits.counts[0], figures.waits.total), (8, 10 * MS));
}

#[test]
fn who_waits_for_a_flush_lends_it_its_class() {
    const FLUSH: Io = Io::new(Origin::Flush, Step::Data);
    let stage = Stage::new(&contract(100));
    let writes = (0..).zip([READ, FLUSH, READ, FLUSH, DEEP]);
    let mut writes: Vec<_> =
        writes.map(|(i, io)| stage.object.write_at(i * 4096, data(4096), io)).collect();
    assert!(writes.iter_mut().all(|write| poll_once(write).is_pending()));
    // A raised flush goes behind the reads already there, and before those that come later.
    stage.gate.set_pressure(Pressure { flush: 1.0, compaction: 0.0 });
    assert_eq!(stage.class(Class::Foreground).queued, 4);
    writes.push(stage.object.write_at(5 * 4096, data(4096), READ));
    assert!(poll_once(&mut writes[5]).is_pending());
    // A cancelled request leaves no trace in the queue.
    drop(writes.remove(3));
    stage.run(join_all(writes));
    let order: Vec<_> = stage.device.take().iter().map(|a| a.offset / 4096).collect();
    assert_eq!(order, [0, 2, 1, 5, 4]);
    assert_eq!(stage.class(Class::Foreground).granted, 4);
    let urgent = stage.class(Class::Urgent);
    assert_eq!((urgent.queued, urgent.granted, urgent.cancelled), (0, 0, 0));
    assert_eq!(stage.class(Class::Foreground).cancelled, 1);
    // After the pressure, new requests have their own class.
    stage.gate.set_pressure(Pressure::default());
    stage.run(stage.object.write_at(0, data(4096), FLUSH)).unwrap();
    assert_eq!(stage.class(Class::Urgent).granted, 1);
    assert_eq!(stage.spent().ops, 6);
}

#[test]
fn the_device_is_timed_without_the_wait_at_the_gate() {
    let stage = Stage::with(&contract(100), "data", |device| device.latency = 3 * MS);
    for _ in 0..4 {
        stage.run(stage.object.read_at(0, page(), READ)).unwrap();
    }
    let meter = stage.gate.meter();
    let foreground = &meter.answers[Class::Foreground.index()];
    assert_eq!((foreground.count(), foreground.total()), (4, 12 * MS));
    assert_eq!(meter.answers[Class::Commit.index()].count(), 0);
    assert!(meter.classes[Class::Foreground.index()].waits.total > 12 * MS);
}

#[test]
fn the_urgent_go_first_and_equals_in_their_order() {
    let stage = Stage::new(&contract(100));
    let ios = [DEEP, READ, WRITE, DEEP, READ, WRITE];
    let writes = (0..).zip(ios).map(|(i, io)| stage.object.write_at(i * 4096, data(4096), io));
    stage.run(join_all(writes));
    let order: Vec<_> = stage.device.take().iter().map(|a| (a.offset / 4096, a.at)).collect();
    let expected = [(2, 10), (5, 20), (1, 30), (4, 40), (0, 50), (3, 60)];
    assert_eq!(order, expected.map(|(i, ms)| (i, ms * MS)));
}

#[test]
fn a_large_request_goes_in_pieces_of_one_operation() {
    let stage = Stage::with(&contract(100), "data", |device| device.latency = 25 * MS);
    stage.pass(80 * MS);
    let len = 2 * 256 * KIB + 100;
    stage.run(stage.object.write_at(7, data(len), WRITE)).unwrap();
    assert_eq!(stage.now(), 105 * MS, "all pieces at once");
    let pieces: Vec<_> = stage.device.take().iter().map(|a| (a.offset, a.len)).collect();
    assert_eq!(pieces, [(7, 256 * KIB), (7 + 256 * KIB, 256 * KIB), (7 + 512 * KIB, 100)]);
    assert_eq!(stage.spent(), Cost::writes(3, len));
}

#[test]
fn a_larger_request_keeps_eight_pieces_in_flight() {
    let stage = Stage::with(&contract(1_000_000), "data", |device| device.latency = 10 * MS);
    stage.pass(MS);
    stage.run(stage.object.write_at(0, data(20 * 256 * KIB), WRITE)).unwrap();
    let times: Vec<_> = stage.device.take().iter().map(|a| a.at.as_millis()).collect();
    assert_eq!(times, [[1; 8].as_slice(), &[11; 8], &[21; 4]].concat());
}

#[test]
fn a_read_in_pieces_ends_where_the_object_ends() {
    let stage = Stage::new(&contract(1000));
    let bytes: Vec<u8> = (0..700 * 1024u32).map(|i| (i % 251) as u8).collect();
    stage.run(stage.object.write_at(0, IoBuf::from(&bytes[..]), WRITE)).unwrap();
    let read = stage.run(stage.object.read_at(10, IoBufMut::zeroed(1 << 20), READ)).unwrap();
    assert!(*read == bytes[10..]);
    let issued: u64 = stage.device.take().iter().map(|a| a.len).sum();
    assert_eq!(stage.spent().bytes, issued);
}

#[test]
fn after_an_error_no_piece_is_still_on_its_way() {
    let stage = Stage::with(&contract(1_000_000), "data", |device| {
        device.latency = 10 * MS;
        device.broken_at = Some(256 * KIB);
    });
    stage.pass(MS);
    let error = stage.run(stage.object.write_at(0, data(20 * 256 * KIB), WRITE)).unwrap_err();
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::Io, "broken at 262144".into()));
    assert_eq!(stage.now(), 11 * MS, "the seven others of the first eight have ended");
    assert_eq!((stage.device.take().len(), stage.spent().ops), (8, 8));
}

#[test]
fn a_log_pays_when_it_is_synced() {
    let stage = Stage::with(&contract(100), "wal.log", |_| {});
    let sync = || stage.run(stage.object.sync(READ)).unwrap();
    sync();
    for i in 0..300 {
        stage.run(stage.object.write_at(i * KIB, data(KIB), WRITE)).unwrap();
    }
    assert_eq!((stage.now(), stage.spent().ops), (Duration::ZERO, 0));
    sync();
    assert_eq!((stage.now(), stage.spent()), (20 * MS, Cost::writes(2, 300 * KIB)));
    sync();
    assert_eq!(stage.class(Class::Commit).granted, 1);
}

/// On ext4, tokens were a third of what the kernel counted where each small write was synced.
#[test]
fn a_sync_pays_for_the_journal_of_what_was_written() {
    let log = Stage::with(&contract(100), "wal.log", |_| {});
    log.gate.set_journal_ops(2);
    let sync = |stage: &Stage| stage.run(stage.object.sync(WRITE)).unwrap();
    log.run(log.object.write_at(0, data(KIB), WRITE)).unwrap();
    sync(&log);
    sync(&log);
    assert_eq!(log.spent(), Cost::writes(3, 9 * KIB));
    log.run(log.object.write_at(KIB, data(5 << 20), WRITE)).unwrap();
    let issued = log.device.take();
    let most = issued.iter().map(|a| a.len).max();
    assert_eq!(most, Some(6 * 256 * KIB), "a request of eight operations, two for the journal");

    let table = Stage::with(&contract(100), "data", |_| {});
    table.gate.set_journal_ops(2);
    table.run(table.object.write_at(0, data(KIB), WRITE)).unwrap();
    assert_eq!(table.spent().ops, 1);
    sync(&table);
    sync(&table);
    assert_eq!(table.spent(), Cost::writes(3, 9 * KIB));
}

/// Appends records of a page, each with a sync; returns the operations of each.
fn synced_appends(stage: &Stage, count: u64) -> Vec<u64> {
    let append = |_| {
        let before = stage.spent().ops;
        let end = stage.object.len();
        stage.run(stage.object.write_at(end, data(4096), WRITE)).unwrap();
        stage.run(stage.object.sync(WRITE)).unwrap();
        stage.spent().ops - before
    };
    (0..count).map(append).collect()
}

/// A gate whose volume's file system has a journal of two writes, and cheap overwrites.
fn with_journal(contract: &Contract, set: impl FnOnce(&mut Device)) -> Stage {
    let stage = Stage::with(contract, "wal.log", set);
    stage.gate.set_journal_ops(2);
    stage.gate.set_writes_ahead(true);
    stage
}

/// Each small record that was synced cost three operations on ext4, two of them for the journal.
#[test]
fn a_log_of_small_syncs_pays_for_the_journal_once_in_a_while() {
    let stage = with_journal(&contract(1000), |_| {});
    assert_eq!(synced_appends(&stage, 3), [3, 1, 1], "filling costs no operation");
    let issued = stage.device.take();
    let ahead: Vec<_> = issued.iter().filter(|a| a.what == "written ahead").collect();
    assert_eq!((ahead.len(), ahead[0].offset, ahead[0].len), (1, 4096, 244 * KIB));
    // The gate paid for what was written ahead, in one operation with the record.
    assert_eq!(stage.spent().bytes, 3 * 4096 + 244 * KIB + 2 * 4096);
    assert_eq!(synced_appends(&stage, 610).iter().sum::<u64>(), 610 + 10 * 2, "once in 61");

    let before = stage.spent().ops;
    stage.run(stage.object.seal(WRITE)).unwrap();
    assert_eq!(stage.spent().ops - before, 2, "the file is cut");
}

#[test]
fn where_bytes_are_sold_the_journal_takes_as_much_as_the_filling_first() {
    let bytes = Limit { counts: Counted::Bytes, rate_per_sec: 40_000_000, depth: 40_000_000 };
    let mut gp3 = contract(1000);
    gp3.limits.push(bytes);
    let stage = with_journal(&gp3, |_| {});
    assert_eq!(synced_appends(&stage, 6), [3, 3, 3, 3, 3, 1], "252 KiB weigh as 6.5 operations");
}

#[test]
fn a_log_that_was_cut_or_finds_no_room_pays_for_the_journal() {
    let stage = with_journal(&contract(1000), |_| {});
    assert_eq!(synced_appends(&stage, 2), [3, 1]);
    stage.run(stage.object.set_len(4096)).unwrap();
    assert_eq!(synced_appends(&stage, 2), [3, 1]);

    // Another handle changes nothing, and an opening begins anew.
    let other = stage.run(stage.gate.open(&name("wal.log"))).unwrap();
    assert_eq!(synced_appends(&stage, 1), [1]);
    drop(other);
    let Stage { clock, device, gate, object } = stage;
    drop(object);
    let object = clock.run(gate.open(&name("wal.log"))).unwrap();
    let stage = Stage { clock, device, gate, object };
    assert_eq!(synced_appends(&stage, 2), [3, 1]);

    let full = with_journal(&contract(1000), |device| device.is_full = true);
    assert_eq!(synced_appends(&full, 100).iter().sum::<u64>(), 300);
    let attempts = full.device.take();
    assert_eq!(attempts.iter().filter(|a| a.what == "written ahead").count(), 2, "not each time");
}

#[test]
fn logs_are_written_ahead_only_where_that_saves_something() {
    for (journal_ops, writes_ahead) in [(0, true), (2, false)] {
        let stage = Stage::with(&contract(1000), "wal.log", |_| {});
        stage.gate.set_journal_ops(journal_ops);
        stage.gate.set_writes_ahead(writes_ahead);
        assert_eq!(synced_appends(&stage, 20).iter().sum::<u64>(), 20 * (1 + journal_ops));
        assert!(stage.device.take().iter().all(|a| a.what != "written ahead"));
    }
}

/// A block device written in place was charged three operations for each write of one.
#[test]
fn a_sync_pays_for_the_journal_only_if_the_length_changed() {
    for (object, at_write) in [("wal.log", 0), ("data", 1)] {
        let stage = Stage::with(&contract(100), object, |_| {});
        stage.gate.set_journal_ops(2);
        let spent = |act: &dyn Fn()| {
            let before = stage.spent().ops;
            act();
            let written = stage.spent().ops;
            stage.run(stage.object.sync(WRITE)).unwrap();
            (written - before, stage.spent().ops - written)
        };
        let write = |at: u64| stage.run(stage.object.write_at(at, data(KIB), WRITE)).unwrap();
        let set_len = |len: u64| stage.run(stage.object.set_len(len)).unwrap();
        let at_sync = 1 - at_write;
        assert_eq!(spent(&|| write(0)), (at_write, at_sync + 2), "{object}: longer");
        assert_eq!(spent(&|| write(0)), (at_write, at_sync), "{object}: in place");
        assert_eq!(spent(&|| write(1)), (at_write, at_sync + 2), "{object}: by a byte");
        assert_eq!(spent(&|| set_len(KIB)), (0, 2), "{object}: shorter");
        assert_eq!(spent(&|| set_len(KIB)), (0, 0), "{object}: as it was");
        stage.gate.set_journal_ops(0);
        assert_eq!(spent(&|| set_len(0)), (0, 0), "{object}: without a journal");
        assert_eq!(stage.gate.meter().journal_ops, 0);
    }
}

/// A contract that took the kernel's throttle for one limit left half of a mixed load's operations unused.
#[test]
fn reads_and_writes_that_are_counted_apart_use_both_limits() {
    let limit = |counts| Limit { counts, rate_per_sec: 100, depth: 100 };
    let limits = vec![limit(Counted::ReadOps), limit(Counted::WriteOps)];
    let apart = Contract { limits, ..Contract::unlimited() };
    for policy in [Policy::Strict, Policy::Tags, Policy::TagsP99] {
        let clock = Clock::simulated();
        let provider = Arc::new(Simulate::new(Mem::new("m"), &apart, clock.clone(), 7));
        let (device, share) = (Arc::clone(&provider), Share::default());
        let gate = Gate::with_policy(device, "vol", &apart, share, policy, clock.clone());
        let object = clock.run(gate.create(&name("data"), &Intent::DATA)).unwrap();
        let until = clock.now() + Duration::from_secs(20);
        let both = (0..8).map(|_| async {
            let reads = async {
                while clock.now() < until {
                    object.read_at(0, page(), READ).await.unwrap();
                }
            };
            let writes = async {
                while clock.now() < until {
                    object.write_at(0, data(4096), WRITE).await.unwrap();
                }
            };
            join(reads, writes).await
        });
        clock.run(join_all(both));
        let (spent, seen) = (gate.meter().spent(), provider.meter().total);
        assert_eq!((seen.throttled, seen.ops), (0, spent.ops));
        for ops in [spent.read_ops, spent.write_ops] {
            assert!((1940..=1970).contains(&ops), "{policy:?}: {spent:?}");
        }
    }
}

#[test]
fn a_budget_that_holds_one_operation_lets_the_sync_pass() {
    let limit = Limit { counts: Counted::Ops, rate_per_sec: 100, depth: 1 };
    let terms = Contract { limits: vec![limit], ..contract(100) };
    let stage = Stage::with(&terms, "wal.log", |_| {});
    stage.gate.set_journal_ops(2);
    stage.run(stage.object.write_at(0, data(KIB), WRITE)).unwrap();
    stage.run(stage.object.sync(WRITE)).unwrap();
    assert_eq!(stage.spent().ops, 1);
}

#[test]
fn all_handles_of_a_log_owe_together() {
    let stage = Stage::with(&contract(100), "wal.log", |_| {});
    stage.run(stage.object.write_at(0, data(10), WRITE)).unwrap();
    let other = stage.run(stage.gate.open(&name("wal.log"))).unwrap();
    stage.run(other.sync(WRITE)).unwrap();
    stage.run(stage.object.sync(WRITE)).unwrap();
    assert_eq!(stage.spent(), Cost::writes(1, 10));
}

#[test]
fn a_log_never_has_more_unsynced_than_can_be_paid_at_once() {
    let stage = Stage::with(&contract(100), "wal.log", |_| {});
    stage.run(stage.object.write_at(0, data(5 << 20), WRITE)).unwrap();
    let issued: Vec<_> = stage.device.take().iter().map(|a| (a.what, a.len >> 20)).collect();
    assert_eq!(issued, [("write", 2), ("sync", 0), ("write", 2), ("sync", 0), ("write", 1)]);
    stage.run(stage.object.sync(WRITE)).unwrap();
    assert_eq!(stage.spent(), Cost::writes(20, 5 << 20));
}

#[test]
fn a_log_without_limits_is_synced_by_its_writer_alone() {
    let stage = Stage::with(&Contract::unlimited(), "wal.log", |_| {});
    for i in 0..5 {
        stage.run(stage.object.write_at(i << 20, data(1 << 20), WRITE)).unwrap();
    }
    stage.run(stage.object.sync(WRITE)).unwrap();
    assert_eq!(stage.device.take().iter().filter(|a| a.what == "sync").count(), 1);
    assert_eq!(stage.spent(), Cost::writes(20, 5 << 20));
}

#[test]
fn what_is_written_while_a_sync_waits_is_paid_along() {
    let stage = Stage::with(&contract(100), "wal.log", |_| {});
    stage.run(stage.object.write_at(0, data(256 * KIB), WRITE)).unwrap();
    let late = async {
        stage.clock.sleep(5 * MS).await;
        stage.object.write_at(256 * KIB, data(1), WRITE).await.unwrap();
    };
    stage.run(join(stage.object.sync(WRITE), late)).0.unwrap();
    assert_eq!(stage.now(), 20 * MS);
    stage.run(stage.object.sync(WRITE)).unwrap();
    assert_eq!(stage.spent(), Cost::writes(2, 256 * KIB + 1));
}

#[test]
fn two_syncs_of_a_log_pay_once() {
    let stage = Stage::with(&contract(100), "wal.log", |_| {});
    stage.run(stage.object.write_at(0, data(10), WRITE)).unwrap();
    let both = stage.run(join(stage.object.sync(WRITE), stage.object.sync(WRITE)));
    both.0.and(both.1).unwrap();
    assert_eq!(stage.spent(), Cost::writes(1, 10));
    assert_eq!(stage.device.take().iter().filter(|a| a.what == "sync").count(), 2);
}

#[test]
fn a_sync_that_is_given_up_while_it_waits_for_more_costs_nothing() {
    let stage = Stage::with(&contract(100), "wal.log", |_| {});
    stage.run(stage.object.write_at(0, data(256 * KIB), WRITE)).unwrap();
    let mut sync = stage.object.sync(WRITE);
    assert!(poll_once(&mut sync).is_pending());
    stage.run(stage.object.write_at(256 * KIB, data(256 * KIB), WRITE)).unwrap();
    stage.pass(15 * MS);
    assert!(
        poll_once(&mut sync).is_pending(),
        "its turn came, and the second half lacks half a token"
    );
    assert_eq!((stage.spent().ops, stage.class(Class::Commit).queued), (0, 1));
    drop(sync);
    assert_eq!((stage.spent().ops, stage.class(Class::Commit).queued), (0, 0));
    let start = stage.now();
    stage.run(stage.object.sync(WRITE)).unwrap();
    assert_eq!(stage.now(), start + 5 * MS, "a token and a half were there");
    assert_eq!(stage.spent(), Cost::writes(2, 512 * KIB));
}

#[test]
fn a_deadline_ends_the_wait_of_who_has_one() {
    let stage = Stage::new(&contract(10));
    let hurry = Io { deadline: Some(Instant::ZERO + 5 * MS), ..READ };
    let (hurried, patient) = stage.run(join(
        stage.object.read_at(0, page(), hurry),
        stage.object.read_at(4096, page(), READ),
    ));
    let error = hurried.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    let message = "vol: the deadline passed while a foreground request waited for its turn";
    assert_eq!(error.to_string(), message);
    patient.unwrap();
    assert_eq!(stage.now(), 100 * MS);
    assert_eq!(stage.device.take().len(), 1);
    assert_eq!(stage.class(Class::Foreground).expired, 1);
}

#[test]
fn a_full_queue_turns_away_copies_and_nothing_else() {
    let stage = Stage::new(&contract(1000));
    let many = |io| (0..100).map(move |_| io);
    let ios: Vec<_> = many(COPY).chain(many(DEEP)).collect();
    let reads = ios.iter().map(|&io| stage.object.read_at(0, page(), io));
    let outcomes = stage.run(join_all(reads));
    let (copies, deep) = outcomes.split_at(100);
    let refused: Vec<_> = copies.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert_eq!(refused.len(), 100 - QUEUE_MAX);
    assert!(refused.iter().all(|error| error.kind() == ErrorKind::Busy));
    assert_eq!(refused[0].to_string(), "vol: 64 requests of class idle wait already");
    assert!(deep.iter().all(Result::is_ok));
}

#[test]
fn giving_up_costs_nothing_at_any_moment() {
    let stage = Stage::new(&contract(100));
    let mut waits = stage.object.read_at(0, page(), READ);
    let mut granted = stage.object.read_at(0, page(), WRITE);
    assert!(poll_once(&mut waits).is_pending());
    assert!(poll_once(&mut granted).is_pending());
    stage.pass(10 * MS);
    assert_eq!(stage.spent().ops, 1, "the write was granted, and does not know it yet");
    drop(granted);
    assert_eq!(stage.spent().ops, 1, "its token went to the read");
    drop(waits);
    assert_eq!(stage.spent().ops, 0);
    let start = stage.now();
    stage.run(stage.object.read_at(0, page(), READ)).unwrap();
    assert_eq!(stage.now(), start, "the token is there");
    assert_eq!(stage.device.take().len(), 1);
}

#[test]
fn closing_wakes_all_who_wait_and_lets_nobody_in() {
    let stage = Stage::new(&contract(1));
    let log = stage.run(stage.gate.create(&name("wal.log"), &Intent::LOG)).unwrap();
    stage.run(log.write_at(0, data(1), WRITE)).unwrap();
    let close = async {
        stage.clock.sleep(MS).await;
        stage.gate.close();
    };
    let reads = join_all((0..3).map(|_| stage.object.read_at(0, page(), READ)));
    let (outcomes, ()) = stage.run(join(reads, close));
    let closed = |error: crate::Error| {
        assert_eq!(error.kind(), ErrorKind::Fenced);
        assert_eq!(error.to_string(), "vol: the gate is closed");
    };
    outcomes.into_iter().for_each(|outcome| closed(outcome.unwrap_err()));
    assert_eq!(stage.now(), MS);
    closed(stage.run(stage.object.read_at(0, page(), READ)).unwrap_err());
    closed(stage.run(log.write_at(0, data(1), WRITE)).unwrap_err());
    closed(stage.run(log.sync(WRITE)).unwrap_err());
    closed(stage.run(stage.object.set_len(0)).unwrap_err());
    closed(stage.run(stage.gate.list()).unwrap_err());
    closed(stage.run(stage.gate.open(&name("data"))).err().unwrap());
    assert_eq!(stage.spent().ops, 0);
}

#[test]
fn new_terms_hold_for_those_who_wait() {
    let stage = Stage::new(&contract(10));
    let better = async {
        stage.clock.sleep(50 * MS).await;
        stage.gate.set_contract(&contract(100));
    };
    stage.run(join(stage.object.read_at(0, page(), READ), better)).0.unwrap();
    assert_eq!(stage.now(), 55 * MS);
    let mut small = contract(100);
    small.op_bytes_max = 64 * KIB;
    stage.gate.set_contract(&small);
    stage.run(stage.object.read_at(0, IoBufMut::zeroed(256 * 1024), READ)).unwrap();
    assert_eq!(stage.spent().ops, 2, "the object is empty: one read finds its end");
    assert_eq!(stage.gate.meter().contract, small);
}

#[test]
fn the_meter_shows_the_volume_against_its_line() {
    let stage = Stage::new(&contract(100));
    let reads = (0..250).map(|_| stage.object.read_at(0, page(), READ));
    stage.run(join_all(reads));
    let meter = stage.gate.meter();
    assert_eq!(meter.last_second.ops, 100);
    assert!((meter.used - 1.0).abs() < 1e-9);
    assert_eq!(meter.classes[Class::Foreground.index()].waits.max, 2500 * MS);
}

#[test]
fn a_request_is_charged_in_the_moment_it_is_issued() {
    let stage = Stage::new(&contract(100));
    let read = pin!(stage.object.read_at(0, page(), READ));
    stage.run(read).unwrap();
    assert_eq!(stage.device.take(), [Issued { at: 10 * MS, what: "read", offset: 0, len: 4096 }]);
}

#[test]
fn the_expected_wait_of_a_read_counts_those_ahead_of_it() {
    let stage = Stage::new(&contract(100));
    let expected = || stage.gate.expected_read().wait;
    // The budget holds eight operations at least; none is left now.
    stage.run(join_all((0..8).map(|_| stage.object.read_at(0, page(), READ))));
    assert_eq!(expected(), 10 * MS);
    let mut cx = Context::from_waker(Waker::noop());
    let mut waiting: Vec<_> = (0..10).map(|_| stage.object.read_at(0, page(), READ)).collect();
    for read in &mut waiting {
        assert!(read.as_mut().poll(&mut cx).is_pending());
    }
    let before = expected();
    assert_eq!(before, 110 * MS);
    // Idle work delays no read.
    let mut idle = stage.object.read_at(0, page(), DEEP);
    assert!(idle.as_mut().poll(&mut cx).is_pending());
    assert_eq!(expected(), before);
    // Cancelled requests shorten the wait, and all others go through.
    waiting.truncate(6);
    assert_eq!(expected(), before - 40 * MS);
    stage.gate.set_contract(&contract(200));
    assert_eq!(expected(), 35 * MS);
    stage.run(join_all(waiting));
    stage.run(idle).unwrap();
    stage.pass(5 * MS);
    assert_eq!(expected(), Duration::ZERO);
}

#[test]
fn the_device_s_time_of_small_reads_is_told_and_forgotten() {
    let stage = Stage::new(&contract(100_000));
    let clock = stage.clock.clone();
    let answer = |gate: &Gate<Device>| gate.expected_read().answer;
    assert_eq!(answer(&stage.gate), Duration::ZERO, "nothing was read");
    let mut device = Device::new(&clock);
    device.latency = 8 * MS;
    let gate = Gate::new(device, "disk", &contract(100_000), all(), clock.clone());
    let object = clock.run(gate.create(&name("a"), &Intent::DATA)).unwrap();
    clock.run(object.write_at(0, data(8192), WRITE)).unwrap();
    assert_eq!(answer(&gate), Duration::ZERO, "writes do not count");
    clock.run(object.read_at(0, page(), READ)).unwrap();
    assert_eq!((answer(&gate), object.expected_read(0, 4096).answer), (8 * MS, 8 * MS));
    clock.run(clock.sleep(3 * Duration::from_secs(1)));
    assert_eq!(answer(&gate), MS, "after three seconds it is worth a try");
    clock.run(object.read_at(0, page(), READ)).unwrap();
    assert_eq!(answer(&gate), 8 * MS, "one try tells enough");
}

#[test]
fn the_load_of_users_is_what_they_wait_for() {
    let stage = Stage::new(&contract(100));
    stage.pass(Duration::from_secs(2));
    for io in [READ, WRITE, DEEP, COPY] {
        stage.run(join_all((0..2).map(|_| stage.object.write_at(0, page().freeze(), io))));
    }
    assert_eq!(stage.gate.users_load(), 0.0, "the current tenth of a second does not count yet");
    stage.pass(100 * MS);
    assert_eq!(stage.gate.users_load(), 0.04);
    assert_eq!(stage.gate.meter().used, 0.08);
    stage.gate.set_contract(&contract(40));
    assert_eq!(stage.gate.users_load(), 0.1);
}

#[test]
fn every_operation_is_counted_for_its_purpose() {
    let clock = Clock::simulated();
    let gate = Gate::new(Mem::new("v"), "v", &contract(10_000), all(), clock.clone());
    clock.run(async {
        let log = gate.create(&name("log"), &Intent::LOG).await.unwrap();
        for write in 0..3 {
            log.write_at(write * 4096, data(4096), Io::new(Origin::UserWrite, Step::Log))
                .await
                .unwrap();
            log.sync(Io::new(Origin::UserWrite, Step::Log)).await.unwrap();
        }
        // Nothing is owed: the charge is returned, and the sync counts for nothing.
        log.sync(Io::new(Origin::UserWrite, Step::Log)).await.unwrap();
        let object = gate.create(&name("a"), &Intent::DATA).await.unwrap();
        object.write_at(0, data(4096), Io::new(Origin::WriteBack, Step::Data)).await.unwrap();
        object.read_at(0, page(), Io::new(Origin::Promotion, Step::Data)).await.unwrap();
        object.read_at(0, page(), Io::new(Origin::Open, Step::Manifest)).await.unwrap();
    });
    let meter = gate.meter();
    let spent = |purpose: Purpose| meter.purposes[purpose.index()].spent;
    assert_eq!(spent(Purpose::Log), Cost::writes(3, 3 * 4096));
    assert_eq!(spent(Purpose::WriteBack), Cost::writes(1, 4096));
    assert_eq!(spent(Purpose::Promotion), Cost::reads(1, 4096));
    assert_eq!(spent(Purpose::Manifest), Cost::reads(1, 4096));
    let all = meter.purposes.iter().fold(Cost::default(), |sum, of| sum.plus(of.spent));
    assert_eq!(all, meter.spent());
}

/// Copies for relief and rebuilds once counted as users, so a volume that was repaired looked hot.
#[test]
fn copies_that_run_as_users_do_are_told_apart() {
    let clock = Clock::simulated();
    let gate = Gate::new(Mem::new("v"), "v", &contract(100), all(), clock.clone());
    let object = clock.run(async {
        let object = gate.create(&name("a"), &Intent::DATA).await.unwrap();
        object.write_at(0, data(8192), WRITE).await.unwrap();
        for origin in [Origin::UserRead, Origin::Copy, Origin::Relief, Origin::Rebuild] {
            object.read_at(0, page(), Io::new(origin, Step::Data)).await.unwrap();
        }
        object
    });
    let meter = gate.meter();
    assert_eq!(meter.classes[Class::Foreground.index()].granted, 3);
    assert_eq!((meter.copies().granted, meter.copies().spent), (2, Cost::reads(2, 8192)));
    assert_eq!(meter.copies().waited, Duration::ZERO, "a second's tokens were there");
    let waited = |meter: &Meter| meter.classes[Class::Foreground.index()].waits.total;
    let users = waited(&meter);
    let rebuild = Io::new(Origin::Rebuild, Step::Data);
    clock.run(join_all((0..300).map(|_| object.read_at(0, page(), rebuild))));
    let meter = gate.meter();
    assert_eq!(meter.copies().granted, 302);
    assert!(!meter.copies().waited.is_zero());
    assert_eq!(meter.copies().waited, waited(&meter) - users, "only copies waited since");
}

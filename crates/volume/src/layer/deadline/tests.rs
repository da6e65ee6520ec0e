use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

use futures_util::future::{join, join3};
use policy::purpose::Origin;

use super::*;
use crate::conformance::{self, Blocking, Harness, Work};
use crate::dir::{Dir, DirOptions};
use crate::io_pool::{IoPool, THREADS};
use crate::layer::fault::{Effect, Fault, FaultPlan, Injected, Rule};
use crate::layer::trace::{Trace, TraceLog};
use crate::mem::Mem;
use crate::task::block_on;

const DATA: Io = Io::new(Origin::UserWrite, Step::Data);
const HOUR: Duration = Duration::from_secs(3600);

/// A volume in memory below faults below a limit, in virtual time.
struct Rig {
    clock: Clock,
    plan: FaultPlan,
    mem: Mem,
    volume: Deadline,
}

impl Rig {
    fn new() -> Self {
        let (clock, plan, mem) = (Clock::simulated(), FaultPlan::new(0), Mem::new("v"));
        let fault = Fault::new(mem.clone(), "v", &plan, &clock);
        let volume = Deadline::new(fault, "v", LIMIT, clock.clone());
        Self { clock, plan, mem, volume }
    }

    /// Calls of this kind on names like this take an hour from now on.
    fn hang(&self, op: Op, named: &str) -> Injected {
        self.plan.inject(Rule::new(Effect::Slow(HOUR)).on(op).named(named))
    }

    fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.clock.run(work)
    }

    fn seconds(&self) -> f64 {
        self.clock.now().since(Instant::ZERO).as_secs_f64()
    }

    async fn create(&self, text: &str) -> Result<Arc<dyn Object>> {
        self.volume.create(&name(text), &conformance::intent(&name(text))).await
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

async fn write(object: &Arc<dyn Object>, bytes: &[u8]) -> Result<()> {
    object.write_at(0, IoBuf::from(bytes), DATA).await
}

async fn read(object: &Arc<dyn Object>, len: usize) -> Result<Vec<u8>> {
    Ok(object.read_at(0, IoBufMut::zeroed(len), DATA).await?.to_vec())
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

const TIMED_OUT: Option<ErrorKind> = Some(ErrorKind::TimedOut);
const REFUSED: Option<ErrorKind> = Some(ErrorKind::Unavailable);

#[test]
fn conforms_in_memory_and_on_a_directory_whose_calls_are_made_elsewhere() {
    conformance::run(|| {
        let (mem, calls) = (Mem::new("mem"), TraceLog::new(1000));
        let traced = calls.clone();
        let open = move || {
            let clock = Clock::simulated();
            let device = Trace::new(mem.clone(), "mem", &traced, &clock);
            Arc::new(Deadline::new(device, "mem", LIMIT, clock)) as _
        };
        Box::new(Blocking::reopening(open).counted(&calls, 1))
    });
    let (place, cases) = (tempfile::tempdir().unwrap(), AtomicU64::new(0));
    conformance::run(|| {
        let path = place.path().join(cases.fetch_add(1, Ordering::Relaxed).to_string());
        let clock = Clock::real();
        Box::new(Blocking::reopening(move || {
            let io = IoPool::apart(THREADS);
            let options = DirOptions { create: true, io, ..DirOptions::default() };
            let dir = Dir::open(&path, options).unwrap();
            Arc::new(Deadline::new(dir, "dir", HOUR, clock.clone()))
        }))
    });
}

/// Every call takes its time, but less than the limit.
#[test]
fn conforms_while_the_device_is_slow() {
    struct Slow(Rig);
    impl Harness for Slow {
        fn volume(&self) -> Arc<dyn Volume> {
            Arc::new(self.0.volume.clone())
        }
        fn run(&mut self, work: Work) {
            self.0.run(work);
        }
        fn reopen(&mut self) -> bool {
            false
        }
    }
    conformance::run(|| {
        let rig = Rig::new();
        rig.plan.inject(Rule::new(Effect::Slow(LIMIT / 2)));
        Box::new(Slow(rig))
    });
}

#[test]
fn a_volume_that_hangs_costs_its_limit_once() {
    let rig = Rig::new();
    rig.run(async {
        let (a, b) = (rig.create("a").await.unwrap(), rig.create("b").await.unwrap());
        rig.hang(Op::Write, "*");
        let later = async {
            rig.clock.sleep(Duration::from_secs(9)).await;
            let written = write(&b, b"b").await;
            (kind(written), rig.seconds())
        };
        let first = async { (kind(write(&a, b"a").await), rig.seconds()) };
        let (first, later) = join(first, later).await;
        assert_eq!(first, (TIMED_OUT, 10.0));
        assert_eq!(later, (TIMED_OUT, 11.0), "it gets the grace, not its whole limit");
        assert_eq!(kind(write(&b, b"b").await), REFUSED);
        assert_eq!(kind(read(&b, 1).await), REFUSED);
        assert_eq!(kind(b.sync(DATA).await), REFUSED);
        assert_eq!(kind(rig.create("c").await), REFUSED);
        assert_eq!(kind(rig.volume.open(&name("a")).await), REFUSED);
        assert_eq!(kind(rig.volume.remove(&name("a")).await), REFUSED);
        assert_eq!(kind(rig.volume.list().await), REFUSED);
        assert_eq!(kind(rig.volume.space().await), REFUSED);
        assert_eq!(rig.seconds(), 11.0, "nothing of that waited");
        assert_eq!(rig.volume.silent_for(), Some(GRACE));
    });
}

#[test]
fn it_serves_again_once_its_page_was_written() {
    let rig = Rig::new();
    rig.run(async {
        let a = rig.create("a").await.unwrap();
        let hanging = rig.hang(Op::Write, "*");
        assert_eq!(kind(write(&a, b"late").await), TIMED_OUT);
        rig.plan.lift(hanging);
        rig.clock.sleep(HOUR / 2).await;
        assert_eq!(kind(write(&a, b"new").await), REFUSED, "the page is not written");
        rig.clock.sleep(HOUR / 2).await;
        assert_eq!(rig.volume.silent_for(), None);
        assert_eq!(read(&a, 9).await.unwrap(), b"late");
        write(&a, b"new").await.unwrap();
        assert_eq!(read(&a, 9).await.unwrap(), b"newe");
        let names: Vec<_> =
            rig.volume.list().await.unwrap().into_iter().map(|l| l.name.to_string()).collect();
        assert_eq!(names, ["a"], "the page is not listed");
    });
}

#[test]
fn only_the_object_of_a_late_write_waits_where_others_are_served() {
    for op in [Op::Write, Op::SetLen, Op::Sync] {
        let rig = Rig::new();
        rig.run(async {
            let (a, b) = (rig.create("a").await.unwrap(), rig.create("b").await.unwrap());
            write(&a, b"old").await.unwrap();
            let hanging = rig.hang(op, "a");
            let late = match op {
                Op::Write => write(&a, b"late").await,
                Op::SetLen => a.set_len(1).await,
                _ => a.sync(DATA).await,
            };
            assert_eq!(kind(late), TIMED_OUT);
            rig.plan.lift(hanging);
            assert_eq!(rig.volume.silent_for(), None, "its page was written at once");
            write(&b, b"b").await.unwrap();
            assert_eq!(read(&a, 3).await.unwrap(), b"old");
            let again = rig.volume.open(&name("a")).await.unwrap();
            for handle in [&a, &again] {
                assert_eq!(kind(write(handle, b"new").await), TIMED_OUT);
                assert_eq!(kind(handle.set_len(0).await), TIMED_OUT);
                assert_eq!(kind(handle.sync(DATA).await), TIMED_OUT);
            }
            assert_eq!(rig.seconds(), 10.0, "nothing of that waited");
            rig.clock.sleep(HOUR).await;
            write(&a, b"newest").await.unwrap();
            assert_eq!(read(&a, 9).await.unwrap(), b"newest");
        });
    }
}

#[test]
fn a_late_read_keeps_no_write_waiting() {
    let rig = Rig::new();
    rig.run(async {
        let a = rig.create("a").await.unwrap();
        write(&a, b"old").await.unwrap();
        rig.hang(Op::Read, "a");
        assert_eq!(kind(read(&a, 3).await), TIMED_OUT);
        write(&a, b"new").await.unwrap();
        assert_eq!(rig.mem.image()[&name("a")], b"new");
    });
}

#[test]
fn a_creation_that_succeeds_late_is_undone() {
    let rig = Rig::new();
    rig.run(async {
        let hanging = rig.hang(Op::Create, "a");
        assert_eq!(kind(rig.create("a").await), TIMED_OUT);
        rig.plan.lift(hanging);
        assert_eq!(kind(rig.create("a").await), TIMED_OUT);
        assert_eq!(kind(rig.volume.open(&name("a")).await), TIMED_OUT);
        rig.clock.sleep(HOUR).await;
        assert!(!rig.mem.image().contains_key(&name("a")));
        rig.create("a").await.unwrap();
    });
}

#[test]
fn a_late_removal_does_not_remove_a_new_object() {
    let rig = Rig::new();
    rig.run(async {
        rig.create("a").await.unwrap();
        let hanging = rig.hang(Op::Remove, "a");
        assert_eq!(kind(rig.volume.remove(&name("a")).await), TIMED_OUT);
        rig.plan.lift(hanging);
        assert_eq!(kind(rig.create("a").await), TIMED_OUT);
        rig.clock.sleep(HOUR).await;
        rig.create("a").await.unwrap();
        assert!(rig.mem.image().contains_key(&name("a")));
    });
}

#[test]
fn space_comes_from_memory_while_the_device_does_not_say() {
    let rig = Rig::new();
    rig.run(async {
        let before = rig.volume.space().await.unwrap();
        let hanging = rig.plan.inject(Rule::new(Effect::Slow(HOUR)).on(Op::Space));
        let a = rig.create("a").await.unwrap();
        write(&a, b"four").await.unwrap();
        assert_eq!(rig.volume.space().await.unwrap(), before);
        assert_eq!(rig.seconds(), PATIENCE.as_secs_f64());
        assert_eq!(rig.volume.space().await.unwrap(), before);
        assert_eq!(rig.seconds(), PATIENCE.as_secs_f64(), "the call under way is enough");
        rig.clock.sleep(LIMIT).await;
        assert_eq!(kind(rig.volume.space().await), TIMED_OUT);
        rig.plan.lift(hanging);
        rig.clock.sleep(HOUR).await;
        assert_eq!(rig.volume.space().await.unwrap().free, before.free - 4);
    });
}

/// A reserve measures what it took by the difference of two answers.
#[test]
fn space_is_exact_while_the_device_says() {
    let rig = Rig::new();
    rig.plan.inject(Rule::new(Effect::Slow(PATIENCE / 2)).on(Op::Space));
    rig.run(async {
        let before = rig.volume.space().await.unwrap();
        let a = rig.create("a").await.unwrap();
        write(&a, b"four").await.unwrap();
        assert_eq!(rig.volume.space().await.unwrap().free, before.free - 4);
    });
}

#[test]
fn work_of_a_name_waits_for_late_work_of_that_name() {
    let rig = Rig::new();
    rig.run(async {
        let (clock, first, second) = (rig.clock.clone(), name("first"), name("second"));
        let work = async move {
            clock.sleep(HOUR).await;
            Ok(())
        };
        assert_eq!(kind(rig.volume.run(&first, work).await), TIMED_OUT);
        assert_eq!(kind(rig.volume.run(&first, async { Ok(()) }).await), TIMED_OUT);
        rig.volume.run(&second, async { Ok(()) }).await.unwrap();
        rig.clock.sleep(HOUR).await;
        rig.volume.run(&first, async { Ok(()) }).await.unwrap();
    });
}

#[test]
fn an_opening_that_hangs_ends() {
    let clock = Clock::simulated();
    let opened = clock.run(opened("v", LIMIT, &clock, std::future::pending::<Result<()>>()));
    assert_eq!(kind(opened), TIMED_OUT);
}

#[test]
fn many_calls_one_after_the_other_set_few_alarms() {
    let rig = Rig::new();
    rig.plan.inject(Rule::new(Effect::Slow(Duration::from_millis(1))).on(Op::Write));
    rig.run(async {
        let a = rig.create("a").await.unwrap();
        for _ in 0..1000 {
            let (one, two, three) = join3(write(&a, b"1"), write(&a, b"2"), write(&a, b"3")).await;
            one.and(two).and(three).unwrap();
        }
    });
    let mut alarms = 0;
    while rig.clock.advance().is_some() {
        alarms += 1;
    }
    assert!(alarms <= 1, "{alarms} alarms are left");
}

/// A directory is locked until its volume is dropped, and may be opened again then.
#[test]
fn an_alarm_keeps_no_volume_open() {
    struct Told {
        mem: Mem,
        _open: Arc<()>,
    }
    impl Volume for Told {
        crate::forward! {
            self => self.mem;
            fn create(name: &Name, intent: &Intent) -> Pending<'_, Arc<dyn Object>>;
            fn open(name: &Name) -> Pending<'_, Arc<dyn Object>>;
            fn remove(name: &Name) -> Pending<'_, ()>;
            fn list() -> Pending<'_, Vec<Listed>>;
            fn space() -> Pending<'_, Space>;
        }
    }
    let (clock, plan, open) = (Clock::simulated(), FaultPlan::new(0), Arc::new(()));
    plan.inject(Rule::new(Effect::Slow(Duration::from_millis(1))));
    let told = Told { mem: Mem::new("v"), _open: Arc::clone(&open) };
    let fault = Fault::new(told, "v", &plan, &clock);
    let volume = Deadline::new(fault, "v", LIMIT, clock.clone());
    clock.run(async { volume.list().await.unwrap() });
    drop(volume);
    assert_eq!(Arc::strong_count(&open), 1);
}

/// The device of [`a_thread_that_may_block_comes_back_from_a_hanging_device`]: its reads and writes end when `go_on` is
/// dropped.
struct Hanging {
    is_log: bool,
    io: IoPool,
    go_on: Arc<Mutex<Receiver<()>>>,
}

impl Hanging {
    /// An object and a log.
    fn held() -> ([Arc<dyn Object>; 2], Sender<()>) {
        let (sender, receiver) = mpsc::channel();
        let go_on = Arc::new(Mutex::new(receiver));
        let held = |is_log| {
            let (io, go_on) = (IoPool::apart(THREADS), Arc::clone(&go_on));
            Arc::new(Self { is_log, io, go_on }) as Arc<dyn Object>
        };
        ([false, true].map(held), sender)
    }

    fn hang<T: Send + 'static>(&self, then: T) -> Pending<'_, T> {
        let go_on = Arc::clone(&self.go_on);
        Box::pin(self.io.run(move || {
            // An error when the sender is dropped.
            let _ = go_on.lock().recv();
            Ok(then)
        }))
    }
}

impl Object for Hanging {
    fn read_at(&self, _: u64, into: IoBufMut, _: Io) -> Pending<'_, IoBufMut> {
        self.hang(into)
    }
    fn write_at(&self, _: u64, _: IoBuf, _: Io) -> Pending<'_, ()> {
        self.hang(())
    }
    fn len(&self) -> u64 {
        8
    }
    fn is_log(&self) -> bool {
        self.is_log
    }
    fn set_len(&self, _: u64) -> Pending<'_, ()> {
        self.hang(())
    }
    fn sync(&self, _: Io) -> Pending<'_, ()> {
        self.hang(())
    }
}

#[test]
fn a_thread_that_may_block_comes_back_from_a_hanging_device() {
    let limit = Duration::from_millis(5);
    let volume = Deadline::new(Mem::new("v"), "v", limit, Clock::real());
    let ([data, log], go_on) = Hanging::held();
    let [data, log] =
        [("a", data), ("b", log)].map(|(text, held)| volume.0.object(name(text), held));
    let mut page = [0; 8];
    assert_eq!(kind(data.blocking_read_at(0, &mut page, DATA)), TIMED_OUT);
    assert_eq!(kind(data.blocking_write_at(0, &page, DATA)), TIMED_OUT);
    assert_eq!(kind(log.blocking_write_at(0, &page, DATA)), TIMED_OUT);
    assert_eq!(kind(block_on(data.sync(DATA))), TIMED_OUT);
    drop(go_on);
    // The calls that hung end on their own threads, in their own time.
    while !volume.0.state.lock().is_untroubled() {
        std::thread::yield_now();
    }
    data.blocking_write_at(0, &page, DATA).unwrap();
}

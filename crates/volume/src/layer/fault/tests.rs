use std::time::Duration;

use policy::purpose::{Origin, Step};
use policy::time::Instant;
use tempfile::TempDir;

use super::*;
use crate::conformance::{self, Blocking};
use crate::dir::{Dir, DirOptions};
use crate::mem::{Image, Mem};
use crate::task::block_on;

const IO: Io = Io::new(Origin::UserWrite, Step::Data);

struct Rig {
    plan: FaultPlan,
    clock: Clock,
    mem: Mem,
    volume: Fault<Mem>,
}

impl Rig {
    fn new() -> Self {
        let (plan, clock, mem) = (FaultPlan::new(7), Clock::simulated(), Mem::new("m"));
        let volume = Fault::new(mem.clone(), "m", &plan, &clock);
        Self { plan, clock, mem, volume }
    }

    /// Makes an object with these bytes.
    fn with(&self, text: &str, bytes: &[u8]) -> Arc<dyn Object> {
        let intent = conformance::intent(&name(text));
        let object = block_on(self.volume.create(&name(text), &intent)).unwrap();
        write(&*object, 0, bytes).unwrap();
        object
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn write(object: &dyn Object, offset: u64, bytes: &[u8]) -> Result<()> {
    block_on(object.write_at(offset, IoBuf::from(bytes), IO))
}

fn read(object: &dyn Object, offset: u64, len: usize) -> Result<Vec<u8>> {
    block_on(object.read_at(offset, IoBufMut::zeroed(len), IO)).map(|read| read.to_vec())
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|e| e.kind())
}

#[test]
fn conforms_while_nothing_is_planned() {
    conformance::run(|| {
        let Rig { plan, clock, mem, .. } = Rig::new();
        Box::new(Blocking::reopening(move || Arc::new(Fault::new(mem.clone(), "m", &plan, &clock))))
    });
}

#[test]
fn rules_choose_calls_by_method_name_volume_and_number() {
    let rig = Rig::new();
    let (log, table) = (rig.with("kv/1.log", b"log"), rig.with("kv/2.sst", b"table"));
    let busy = Effect::Fail(ErrorKind::Busy);
    rig.plan.inject(Rule::new(busy).on(Op::Read).named("*.log").calls(1..3));
    rig.plan.inject(Rule::new(busy).volume("another"));
    let outcomes: Vec<_> = (0..5).map(|_| read(&*log, 0, 3).is_ok()).collect();
    assert_eq!(outcomes, [true, false, false, true, true]);
    assert!((0..5).all(|_| read(&*table, 0, 5).is_ok()));
    let error = {
        rig.plan.inject(Rule::new(busy).nth(0));
        read(&*table, 1, 2).unwrap_err()
    };
    assert_eq!(error.to_string(), "m: read kv/2.sst 2 bytes at 1: injected fault");
}

#[test]
fn a_call_that_fails_was_not_made_and_one_that_fails_after_was() {
    let rig = Rig::new();
    rig.with("a", b"old");
    let a = block_on(rig.volume.open(&name("a"))).unwrap();
    rig.plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)).nth(0));
    assert!(write(&*a, 0, b"new").is_err());
    assert_eq!(rig.mem.image()[&name("a")], b"old");
    rig.plan.inject(Rule::new(Effect::FailAfter(ErrorKind::Unavailable)).nth(0));
    assert!(write(&*a, 0, b"new").is_err());
    assert_eq!(rig.mem.image()[&name("a")], b"new");
}

#[test]
fn a_full_volume_takes_nothing_new_until_there_is_room() {
    let rig = Rig::new();
    let a = rig.with("a", b"abc");
    let full = rig.plan.inject(Rule::new(Effect::Full));
    let no_space = Some(ErrorKind::OutOfSpace);
    assert_eq!(kind(block_on(rig.volume.create(&name("b"), &Intent::DATA))), no_space);
    assert_eq!(kind(write(&*a, 2, b"xy")), no_space);
    assert_eq!(kind(block_on(a.set_len(4))), no_space);
    assert_eq!(block_on(rig.volume.space()).unwrap().free, 0);
    write(&*a, 0, b"xyz").unwrap();
    block_on(a.set_len(2)).unwrap();
    block_on(a.sync(IO)).unwrap();
    assert_eq!(read(&*a, 0, 9).unwrap(), b"xy");
    rig.plan.lift(full);
    assert!(block_on(rig.volume.space()).unwrap().free > 0);
    block_on(rig.volume.create(&name("b"), &Intent::DATA)).unwrap();
    write(&*a, 2, b"zz").unwrap();
}

#[test]
fn a_volume_that_went_away_comes_back_as_it_was() {
    let rig = Rig::new();
    let a = rig.with("a", b"abc");
    let away = rig.plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)));
    let gone = Some(ErrorKind::Unavailable);
    assert_eq!(kind(read(&*a, 0, 3)), gone);
    assert_eq!(kind(block_on(a.sync(IO))), gone);
    assert_eq!(kind(block_on(rig.volume.list())), gone);
    assert_eq!(kind(block_on(rig.volume.open(&name("a")))), gone);
    rig.plan.lift(away);
    assert_eq!(read(&*a, 0, 3).unwrap(), b"abc");
    block_on(a.sync(IO)).unwrap();
}

#[test]
fn a_flipped_bit_on_read_is_gone_at_the_next() {
    let rig = Rig::new();
    let a = rig.with("a", &[0; 64]);
    rig.plan.inject(Rule::new(Effect::FlipBit).on(Op::Read).nth(0));
    let wrong: u32 = read(&*a, 0, 64).unwrap().iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(wrong, 1);
    assert_eq!(read(&*a, 0, 64).unwrap(), [0; 64]);
    rig.plan.inject(Rule::new(Effect::FlipBit).on(Op::Write).nth(0));
    write(&*a, 0, &[0; 64]).unwrap();
    assert_ne!(read(&*a, 0, 64).unwrap(), [0; 64], "on write it stays");
}

#[test]
fn short_and_misplaced_bytes_are_not_reported() {
    let rig = Rig::new();
    let a = rig.with("a", &[1; 3 * PAGE]);
    rig.plan.inject(Rule::new(Effect::Short).on(Op::Read).nth(0));
    assert_eq!(read(&*a, 0, 100).unwrap(), [1; 50]);
    rig.plan.inject(Rule::new(Effect::Short).on(Op::Write).nth(0));
    write(&*a, 0, &[2; 100]).unwrap();
    assert_eq!(read(&*a, 0, 100).unwrap(), [[2; 50], [1; 50]].concat());
    rig.plan.inject(Rule::new(Effect::Misplaced).on(Op::Write).nth(0));
    write(&*a, 0, &[3; 10]).unwrap();
    assert_eq!(read(&*a, 0, 10).unwrap(), [2; 10]);
    assert_eq!(read(&*a, PAGE as u64, 10).unwrap(), [3; 10]);
    rig.plan.inject(Rule::new(Effect::Misplaced).on(Op::Read).nth(0));
    assert_eq!(read(&*a, 0, 10).unwrap(), [3; 10]);
}

#[test]
fn a_failed_sync_poisons_the_object_for_ever_and_the_volume_until_probed() {
    let rig = Rig::new();
    let (a, b) = (rig.with("a", b"a"), rig.with("b", b"b"));
    let (lost, poisoned) = (Effect::Fail(ErrorKind::Poisoned), Some(ErrorKind::Poisoned));
    rig.plan.inject(Rule::new(lost).on(Op::Sync).nth(0));
    assert_eq!(kind(block_on(a.sync(IO))), poisoned);
    assert_eq!(kind(block_on(a.sync(IO))), poisoned);
    assert_eq!(kind(write(&*a, 0, b"x")), poisoned);
    assert_eq!(kind(block_on(a.set_len(0))), poisoned);
    assert_eq!(read(&*a, 0, 1).unwrap(), b"a");
    block_on(b.sync(IO)).unwrap();
    let create = || block_on(rig.volume.create(&name("c"), &Intent::DATA));
    assert_eq!(kind(create()), poisoned);
    rig.volume.probe();
    create().unwrap();
    let again = block_on(rig.volume.open(&name("a"))).unwrap();
    assert_eq!(kind(write(&*again, 0, b"x")), poisoned);
    block_on(rig.volume.remove(&name("a"))).unwrap();
    block_on(rig.with("a", b"new").sync(IO)).unwrap();
    assert_eq!(kind(block_on(a.sync(IO))), poisoned, "not even when its name is free again");
}

#[test]
fn slow_calls_take_that_much_longer_and_may_fail_too() {
    let rig = Rig::new();
    let second = Duration::from_secs(1);
    rig.plan.inject(Rule::new(Effect::Slow(second)).on(Op::Space));
    rig.clock.run(rig.volume.space()).unwrap();
    assert_eq!(rig.clock.now(), Instant::ZERO + second);
    rig.plan.inject(Rule::new(Effect::Fail(ErrorKind::Busy)));
    rig.clock.run(rig.volume.space()).unwrap_err();
    rig.clock.run(rig.volume.list()).unwrap_err();
    assert_eq!(rig.clock.now(), Instant::ZERO + 2 * second);
}

/// A caller that repeats each failed call once.
struct Caller<'a> {
    volume: &'a dyn Volume,
    repeated: u64,
}

impl Caller<'_> {
    /// Makes `call`, and repeats it once on failure. `done` is the kind that says an ambiguous
    /// first attempt had worked.
    fn twice<T>(
        &mut self,
        call: impl Fn(&dyn Volume) -> Result<T>,
        done: Option<ErrorKind>,
    ) -> Option<T> {
        if let Ok(output) = call(self.volume) {
            return Some(output);
        }
        self.repeated += 1;
        match call(self.volume) {
            Ok(output) => Some(output),
            Err(e) if Some(e.kind()) == done => None,
            Err(e) => panic!("the second attempt failed too: {e}"),
        }
    }

    fn create(&mut self, text: &str) -> Arc<dyn Object> {
        let created = self.twice(
            |volume| block_on(volume.create(&name(text), &conformance::intent(&name(text)))),
            Some(ErrorKind::AlreadyExists),
        );
        created.unwrap_or_else(|| self.open(text))
    }

    fn open(&mut self, text: &str) -> Arc<dyn Object> {
        self.twice(|volume| block_on(volume.open(&name(text))), None).expect("it is open")
    }

    fn remove(&mut self, text: &str) {
        self.twice(|volume| block_on(volume.remove(&name(text))), Some(ErrorKind::NotFound));
    }

    fn write(&mut self, object: &dyn Object, offset: u64, bytes: &[u8]) {
        self.twice(|_| write(object, offset, bytes), None);
    }

    fn run(&mut self) {
        let a = self.create("a");
        self.write(&*a, 0, &[1; 5000]);
        self.write(&*a, 4000, &[2; 4192]);
        self.twice(|_| block_on(a.sync(IO)), None);
        let log = self.create("b/c.log");
        for record in 0..3 {
            self.write(&*log, record * 7, b"record\n");
            self.twice(|_| block_on(log.sync(IO)), None);
        }
        self.twice(|_| block_on(a.set_len(6001)), None);
        let read = self.twice(|_| read(&*a, 3990, 20), None);
        assert_eq!(read.expect("it was read"), [[1; 10], [2; 10]].concat());
        self.create("gone");
        self.remove("gone");
        let again = self.open("a");
        self.write(&*again, 6001, b"end");
        self.twice(|_| block_on(again.sync(IO)), None);
        self.twice(|volume| block_on(volume.space()), None);
        let listed = self.twice(|volume| block_on(volume.list()), None);
        assert_eq!(listed.expect("it was listed").len(), 2);
    }
}

/// Every object's bytes, read without faults.
fn image(volume: &dyn Volume) -> Image {
    let bytes = |listed: Listed| {
        let object = block_on(volume.open(&listed.name)).unwrap();
        let bytes = read(&*object, 0, usize::try_from(listed.len).unwrap()).unwrap();
        (listed.name, bytes)
    };
    block_on(volume.list()).unwrap().into_iter().map(bytes).collect()
}

/// For every k and for both ways to fail: a caller that repeats failed calls ends in the same state
/// as an undisturbed one.
fn every_kth_failure_can_be_repeated<V: Volume>(make: impl Fn() -> Arc<V>) {
    let run = |rule: Option<Rule>| {
        let (inner, plan) = (make(), FaultPlan::new(1));
        let volume = Fault::new(Arc::clone(&inner), "v", &plan, &Clock::simulated());
        rule.map(|rule| plan.inject(rule));
        let mut caller = Caller { volume: &volume, repeated: 0 };
        caller.run();
        (image(&*inner), plan.calls(), caller.repeated)
    };
    let (undisturbed, calls, _) = run(None);
    assert_eq!(calls, 20);
    for k in 0..calls {
        for effect in [Effect::Fail, Effect::FailAfter].map(|way| way(ErrorKind::Unavailable)) {
            let (disturbed, _, repeated) = run(Some(Rule::new(effect).nth(k)));
            assert_eq!(repeated, 1, "{effect:?} at {k}");
            assert!(disturbed == undisturbed, "{effect:?} at {k}");
        }
    }
}

#[test]
fn every_kth_failure_can_be_repeated_in_memory() {
    every_kth_failure_can_be_repeated(|| Arc::new(Mem::new("m")));
}

#[test]
fn every_kth_failure_can_be_repeated_in_a_directory() {
    let program = std::env::current_exe().unwrap();
    let temp = TempDir::new_in(program.parent().unwrap()).unwrap();
    let count = std::cell::Cell::new(0);
    every_kth_failure_can_be_repeated(|| {
        count.set(count.get() + 1);
        let options = DirOptions { create: true, ..DirOptions::default() };
        Arc::new(Dir::open(temp.path().join(count.get().to_string()), options).unwrap())
    });
}

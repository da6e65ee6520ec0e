//! One gated volume under every kind of load at once.
//!
//! ```text
//!   actors: bursts of reads and writes of every class, log writers, reads with deadlines,
//!      │    cancelled reads, changes of the contract, a close of the gate
//!    Gate ── Simulate ── Trace ── Mem
//! ```
//!
//! Invariants of every scheduler: tokens spent equal I/Os issued, exactly; a class is served in order;
//! no request is issued after its deadline; every request is answered.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use policy::budget::{REQUEST_OPS_MAX, Share};
use policy::contract::{Contract, Counted, Latency, Limit, Percentiles};
use policy::intent::Intent;
use policy::purpose::{Class, Io, Origin, Step};
use policy::sched::Policy;
use policy::time::Instant;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::call::Op;
use volume::layer::gate::Gate;
use volume::layer::simulate::Simulate;
use volume::layer::trace::{Trace, TraceLog};
use volume::mem::Mem;
use volume::{ErrorKind, IoBuf, IoBufMut, Name, Object, Result, Volume};

use crate::{Program, Sim};

/// See the [module](self).
pub const PROGRAM: Program = Program {
    name: "gate",
    about: "One gated volume under every kind of load: budget, audit, order, deadlines",
    run,
};

/// Small operations keep the search fast; no rule depends on their size.
const OP_BYTES_MAX: u64 = 16 * 1024;

/// Reads from this offset on are past the object's end. Each has a unique offset, which identifies it at
/// the device.
const TAGGED_FROM: u64 = 1 << 40;

/// Origins of I/Os that are not of logs.
const ORIGINS: [Origin; 20] = [
    Origin::UserRead,
    Origin::UserWrite,
    Origin::UserChange,
    Origin::Open,
    Origin::Flush,
    Origin::Compaction { level: 0 },
    Origin::Compaction { level: 2 },
    Origin::Compaction { level: 6 },
    Origin::Merge { space_pressure_percent: 0 },
    Origin::Merge { space_pressure_percent: 90 },
    Origin::Bulk,
    Origin::Copy,
    Origin::Relief,
    Origin::Rebuild,
    Origin::Scrub,
    Origin::Prefetch,
    Origin::Recycle { space_pressure_percent: 0 },
    Origin::Recycle { space_pressure_percent: 90 },
    Origin::Promotion,
    Origin::WriteBack,
];

type Device = Gate<Simulate<Trace<Mem>>>;

fn run(sim: &Sim) -> String {
    let mut random = sim.random("set-up");
    let paid = any_contract(&mut random);
    let share = Share::new(random.random_range(0.1..=0.98), random.random_range(0.0..=0.25));
    let share = share.expect("within the range of shares");
    if random.random_bool(0.5) {
        sim.ring_late(Duration::from_secs(3));
    }
    let calls = TraceLog::new(usize::MAX);
    let clock = sim.clock().clone();
    let device = Trace::new(Mem::new("vol"), "device", &calls, &clock);
    let device = Simulate::new(device, &paid, clock.clone(), random.random());
    // Half of the runs use the default.
    let policy = match random.random_bool(0.5) {
        true => Policy::default(),
        false => Policy::ALL[random.random_range(0..Policy::ALL.len())],
    };
    let gate = Rc::new(Gate::with_policy(device, "vol", &paid, share, policy, clock));
    sim.note("set-up", format_args!("! {}, {:?}, {share:?}", policy.name(), paid.limits));

    let stage = Rc::new(Stage { sim: sim.clone(), gate, policy, paid, audit: RefCell::default() });
    for number in 0..random.random_range(2..7) {
        let stage = Rc::clone(&stage);
        sim.spawn(&format!("actor-{number}"), stage.act(number));
    }
    if random.random_bool(0.5) {
        sim.spawn("terms", Rc::clone(&stage).change_terms());
    }
    if random.random_bool(0.25) {
        sim.spawn("closer", Rc::clone(&stage).close(random.random_range(0..2_000)));
    }
    sim.run();
    sim.log().add_calls(&calls);
    stage.check(&calls)
}

/// Limits of both kinds or of one. The provider's buckets are shallow, so that an overdraft shows soon.
fn any_contract(random: &mut Xoshiro256PlusPlus) -> Contract {
    let iops = random.random_range(100..5_000);
    let per_op = random.random_range(1_000..OP_BYTES_MAX);
    let mut limit = |counts, rate_per_sec| {
        let depth = least(counts) + random.random_range(0..rate_per_sec / 4);
        Limit { counts, rate_per_sec, depth }
    };
    let mut limits = vec![limit(Counted::Ops, iops), limit(Counted::Bytes, iops * per_op)];
    if random.random_bool(0.5) {
        limits.truncate(1);
    }
    let base = Percentiles::constant(Duration::from_micros(random.random_range(0..2_000)));
    let latency = Latency { read: base, write: base };
    Contract { limits, latency, op_bytes_max: OP_BYTES_MAX, ..Contract::unlimited() }
}

/// The depth that every request fits in.
const fn least(counts: Counted) -> u64 {
    REQUEST_OPS_MAX * if counts.is_ops() { 1 } else { OP_BYTES_MAX }
}

/// The state that the actors share.
struct Stage {
    sim: Sim,
    gate: Rc<Device>,
    policy: Policy,
    paid: Contract,
    audit: RefCell<Audit>,
}

/// Requests and their answers.
#[derive(Default)]
struct Audit {
    /// Reads with unique offsets, in the order of requests.
    tagged: Vec<Tagged>,
    done: u64,
    busy: u64,
    given_up: u64,
    fenced: u64,
}

struct Tagged {
    class: Class,
    /// A scheduler may keep other work in the users' class in a lane of its own.
    of_user: bool,
    deadline: Option<Instant>,
}

impl Stage {
    async fn act(self: Rc<Self>, number: u32) {
        let who = format!("actor-{number}");
        let mut random = self.sim.random(&who);
        let Ok(data) = self.object(&format!("data-{number}")).await else { return };
        let Ok(log) = self.object(&format!("wal-{number}.log")).await else { return };
        let bytes = IoBufMut::zeroed(OP_BYTES_MAX as usize * 12).freeze();
        for _ in 0..random.random_range(3..12) {
            let pause = Duration::from_micros(random.random_range(0..200_000));
            self.sim.clock().sleep(pause).await;
            match random.random_range(0..7) {
                0 => self.append(&who, &mut random, &*log, &bytes).await,
                1 => self.write(&who, &mut random, &*data, &bytes).await,
                2 => self.read_much(&who, &mut random, &*data).await,
                3 => self.keep_appending(&who, &mut random, &*log, &bytes).await,
                _ => self.burst(&who, &mut random, &*data).await,
            }
        }
    }

    async fn object(&self, name: &str) -> Result<Arc<dyn Object>> {
        let name = Name::new(name).expect("a good name");
        let intent = if name.as_str().ends_with(".log") { Intent::LOG } else { Intent::DATA };
        self.gate.create(&name, &intent).await
    }

    /// Several small reads at once, some with a deadline, some cancelled.
    async fn burst(&self, who: &str, random: &mut Xoshiro256PlusPlus, data: &dyn Object) {
        let count = if random.random_bool(0.2) { 200 } else { random.random_range(1..20) };
        let one = |_| {
            let hurry = random.random_bool(0.2);
            let patience = Duration::from_micros(random.random_range(0..100_000));
            let gives_up = random.random_bool(0.1);
            let len = random.random_range(0..=OP_BYTES_MAX as usize);
            let mut io = any_io(random);
            async move {
                let now = self.sim.clock().now();
                io.deadline = hurry.then(|| now + patience);
                let id = self.tag(io);
                let class = io.class().name();
                self.sim.note(who, format_args!("> read {len} bytes, {class}, #{id}"));
                let offset = TAGGED_FROM + id * OP_BYTES_MAX;
                let read = data.read_at(offset, IoBufMut::zeroed(len), io);
                if gives_up {
                    match select(read, self.sim.clock().sleep(patience)).await {
                        Either::Left((read, _)) => self.answered(who, &format!("#{id}"), read),
                        Either::Right(_) => {
                            self.audit.borrow_mut().given_up += 1;
                            self.sim.note(who, format_args!("! gives up #{id}"));
                        }
                    }
                } else {
                    self.answered(who, &format!("#{id}"), read.await);
                }
            }
        };
        join_all((0..count).map(one)).await;
    }

    async fn read_much(&self, who: &str, random: &mut Xoshiro256PlusPlus, data: &dyn Object) {
        let (io, len) = (any_io(random), any_len(random));
        self.sim.note(who, format_args!("> read {len} bytes, {}", io.class().name()));
        let read = data.read_at(0, IoBufMut::zeroed(len), io).await;
        self.answered(who, "much", read);
    }

    async fn write(
        &self,
        who: &str,
        random: &mut Xoshiro256PlusPlus,
        data: &dyn Object,
        bytes: &IoBuf,
    ) {
        let (io, len, offset) = (any_io(random), any_len(random), random.random_range(0..100_000));
        self.sim.note(who, format_args!("> write {len} bytes, {}", io.class().name()));
        let written = data.write_at(offset, bytes.slice(0..len), io).await;
        self.answered(who, "written", written);
        let synced = data.sync(io).await;
        self.answered(who, "synced", synced);
    }

    /// Some appends to a log, more during its sync, and another sync.
    async fn append(
        &self,
        who: &str,
        random: &mut Xoshiro256PlusPlus,
        log: &dyn Object,
        bytes: &IoBuf,
    ) {
        let io = Io::new(Origin::UserWrite, Step::Log);
        let mut lens: Vec<_> = (0..6).map(|_| any_len(random)).collect();
        let pause = Duration::from_micros(random.random_range(0..5_000));
        let late = lens.split_off(3);
        let append = async |lens: Vec<usize>| {
            for len in lens {
                self.sim.note(who, format_args!("> append {len} bytes"));
                let appended = log.write_at(log.len(), bytes.slice(0..len), io).await;
                self.answered(who, "appended", appended);
            }
        };
        append(lens).await;
        let sync = async {
            self.sim.note(who, format_args!("> sync the log"));
            self.answered(who, "synced", log.sync(io).await);
        };
        let during = async {
            self.sim.clock().sleep(pause).await;
            append(late).await;
        };
        futures_util::future::join(sync, during).await;
        self.answered(who, "synced again", log.sync(io).await);
    }

    /// Continuous appends to a log, and two timers that sync it: when its tokens are granted, a sync finds more
    /// unsynced bytes than at its request, or fewer because of the other timer.
    async fn keep_appending(
        &self,
        who: &str,
        random: &mut Xoshiro256PlusPlus,
        log: &dyn Object,
        bytes: &IoBuf,
    ) {
        let io = Io::new(Origin::UserWrite, Step::Log);
        let most = Duration::from_micros(random.random_range(1..3_000));
        let lens: Vec<_> = (0..200).map(|_| any_len(random) / 4).collect();
        let pauses = lens.iter().map(|&len| (len, random.random_range(Duration::ZERO..most)));
        let pauses: Vec<_> = pauses.collect();
        let every = [0, 0].map(|_| Duration::from_micros(random.random_range(500..100_000)));
        let is_over = std::cell::Cell::new(false);
        let appends = async {
            for (len, pause) in pauses {
                let appended = log.write_at(log.len(), bytes.slice(0..len), io).await;
                self.answered(who, "appended", appended);
                self.sim.clock().sleep(pause).await;
            }
            is_over.set(true);
        };
        let timers = join_all(every.map(async |every| {
            while !is_over.get() {
                self.sim.clock().sleep(every).await;
                self.answered(who, "synced by a timer", log.sync(io).await);
            }
        }));
        futures_util::future::join(appends, timers).await;
    }

    /// Changes the contract of the gate, never above that of the provider.
    async fn change_terms(self: Rc<Self>) {
        let mut random = self.sim.random("terms");
        for _ in 0..random.random_range(1..8) {
            let pause = Duration::from_micros(random.random_range(0..300_000));
            self.sim.clock().sleep(pause).await;
            let mut terms = self.paid.clone();
            for limit in &mut terms.limits {
                limit.rate_per_sec =
                    random.random_range(limit.rate_per_sec / 10..=limit.rate_per_sec);
                limit.depth = random.random_range(least(limit.counts)..=limit.depth);
            }
            self.sim.note("terms", format_args!("! {:?}", terms.limits));
            self.gate.set_contract(&terms);
        }
    }

    async fn close(self: Rc<Self>, after_ms: u64) {
        self.sim.clock().sleep(Duration::from_millis(after_ms)).await;
        self.sim.note("closer", format_args!("! closes the gate"));
        self.gate.close();
    }

    fn tag(&self, io: Io) -> u64 {
        let tagged = &mut self.audit.borrow_mut().tagged;
        let of_user =
            matches!(io.origin, Origin::UserRead | Origin::UserWrite | Origin::UserChange);
        tagged.push(Tagged { class: io.class(), of_user, deadline: io.deadline });
        tagged.len() as u64 - 1
    }

    fn answered<T>(&self, who: &str, what: &str, answer: Result<T>) {
        let audit = &mut *self.audit.borrow_mut();
        match answer {
            Ok(_) => {
                audit.done += 1;
                self.sim.note(who, format_args!(". {what}"));
            }
            Err(error) => {
                match error.kind() {
                    ErrorKind::Busy => audit.busy += 1,
                    ErrorKind::Fenced => audit.fenced += 1,
                    kind => panic!("{who}: {what}: {kind:?}: {error}"),
                }
                self.sim.note(who, format_args!(". {what}: {error}"));
            }
        }
    }

    fn check(&self, calls: &TraceLog) -> String {
        let (ours, theirs) = (self.gate.meter(), self.gate.inner().meter());
        let spent = ours.spent();
        if self.policy.never_overdraws() {
            assert_eq!(theirs.total.throttled, 0, "the provider was overdrawn");
        }
        let issued = (theirs.total.ops, theirs.total.bytes);
        assert_eq!((spent.ops, spent.bytes), issued, "tokens spent are not the I/Os issued");
        assert!(ours.classes.iter().all(|class| class.queued == 0), "a request still waits");
        let audit = self.audit.borrow();
        let refused: u64 = ours.classes.iter().map(|class| class.refused + class.expired).sum();
        // Pieces of a request share one answer, and a request cancelled in the same moment gets none.
        assert!(audit.busy <= refused, "a request was refused without a refusal counted");
        self.check_order(&audit, calls);
        format!(
            "{}: {} done, {} busy, {} given up, {} fenced; {} ops, {} bytes in {:?}",
            self.policy.name(),
            audit.done,
            audit.busy,
            audit.given_up,
            audit.fenced,
            spent.ops,
            spent.bytes,
            self.sim.clock().now().since(Instant::ZERO)
        )
    }

    fn check_order(&self, audit: &Audit, calls: &TraceLog) {
        let reads = calls.records().into_iter().filter(|record| record.call.op == Op::Read);
        let issued_at: HashMap<_, _> =
            reads.map(|record| (record.call.offset, record.began)).collect();
        let mut last = [[Instant::ZERO; 2]; Class::ALL.len()];
        for (id, tagged) in (0u64..).zip(&audit.tagged) {
            let Some(&at) = issued_at.get(&(TAGGED_FROM + id * OP_BYTES_MAX)) else { continue };
            let last = &mut last[tagged.class.index()][usize::from(tagged.of_user)];
            assert!(*last <= at, "#{id} of class {} was overtaken", tagged.class.name());
            assert!(tagged.deadline.is_none_or(|deadline| at < deadline), "#{id} went too late");
            *last = at;
        }
    }
}

fn any_io(random: &mut Xoshiro256PlusPlus) -> Io {
    Io::new(ORIGINS[random.random_range(0..ORIGINS.len())], Step::Data)
}

/// Mostly a part of an operation, sometimes many operations.
fn any_len(random: &mut Xoshiro256PlusPlus) -> usize {
    let most = if random.random_bool(0.2) { OP_BYTES_MAX * 12 } else { OP_BYTES_MAX };
    random.random_range(0..=most as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{replay, search};

    #[test]
    fn two_thousand_seeds_hold() {
        let report = search(&PROGRAM, 0..2_000, 1);
        assert!(report.failures.is_empty(), "{}", report.failures[0]);
        assert_eq!((report.seeds, report.distinct), (2_000, 2_000));
    }

    #[test]
    fn the_same_seed_gives_the_same_log() {
        for seed in 0..20 {
            let (first, second) = (replay(&PROGRAM, seed).0, replay(&PROGRAM, seed).0);
            assert!(first == second, "seed {seed}");
            assert!(first.lines().count() > 20);
        }
    }
}

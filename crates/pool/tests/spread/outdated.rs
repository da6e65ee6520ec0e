//! Copies that miss a change of an object that is written in place: what changed since is copied, and not the object.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all, join3};
use policy::units::{KIB, MIB};
use pool::spread::{Drained, Left, Spread};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::call::Op;
use volume::layer::crash::{Crash, Power};
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::layer::trace::{Trace, TraceLog};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, ErrorKind, Intent, Object, Volume};

use crate::copying::{COPY, places};
use crate::in_place::{are_alike, filled, on_volumes};
use crate::jitter::Jitter;
use crate::rig::{IO, members, mems, name, opening, read_all};

const BLOCK: u64 = 4 * KIB;
/// What is copied at once.
const PIECE: u64 = 256 * KIB;
const LEN: u64 = 20 * MIB;

/// Volumes that fail by a plan, and whose calls are recorded.
struct Rig {
    mems: Vec<Mem>,
    plan: FaultPlan,
    log: TraceLog,
    clock: Clock,
    volumes: Vec<Arc<Trace<Fault<Mem>>>>,
}

impl Rig {
    fn new(volumes: usize) -> Self {
        let (clock, mems) = (Clock::simulated(), mems(volumes));
        let (plan, log) = (FaultPlan::new(0), TraceLog::new(1 << 20));
        let volume = |mem: &Mem| {
            let fault = Fault::new(mem.clone(), mem.label(), &plan, &clock);
            Arc::new(Trace::new(fault, mem.label(), &log, &clock))
        };
        Self { volumes: mems.iter().map(volume).collect(), mems, plan, log, clock }
    }

    async fn open(&self) -> Spread {
        Spread::open(members(&self.volumes), opening("round-robin").copies(2)).await.unwrap()
    }

    /// The bytes of leaf objects that were read or written so far.
    fn moved(&self, op: Op) -> u64 {
        assert_eq!(self.log.forgotten(), 0);
        let calls = self.log.records().into_iter().map(|record| record.call);
        let of_leaf = |name: &volume::Name| name.as_str().ends_with(".inp");
        let counted = calls.filter(|call| call.op == op && call.name.as_ref().is_some_and(of_leaf));
        counted.map(|call| call.len).sum()
    }

    /// Makes calls of the second volume for leaf objects fail.
    fn fail(&self, op: Option<Op>, kind: ErrorKind) {
        let rule = Rule::new(Effect::Fail(kind)).volume(self.mems[1].label()).named("*.inp");
        self.plan.inject(op.into_iter().fold(rule, Rule::on));
    }

    /// The volumes with a leaf object.
    fn holders(&self) -> Vec<usize> {
        let has = |mem: &Mem| mem.image().into_keys().any(|leaf| leaf.as_str().ends_with(".inp"));
        (0..self.mems.len()).filter(|&at| has(&self.mems[at])).collect()
    }
}

/// A synced object of `len` zeros, whose second copy is on the second volume.
async fn create(pool: &Spread, len: u64) -> Arc<dyn Object> {
    let object = pool.create(&name("blocks"), &Intent::IN_PLACE).await.unwrap();
    object.set_len(len).await.unwrap();
    object.write_at(0, filled(len, 0), IO).await.unwrap();
    object.sync(IO).await.unwrap();
    assert_eq!(places(pool, "blocks").await, [0, 1]);
    object
}

async fn repair(pool: &Spread) {
    let repaired = pool.repair(COPY, |_| ()).await.unwrap();
    assert_eq!((repaired.made, repaired.short), (1, vec![]));
}

/// Writes blocks of this byte in different pieces.
async fn write_apart(object: &dyn Object, byte: u8, count: u64) {
    for piece in 0..count {
        object.write_at(3 * piece * PIECE, filled(BLOCK, byte), IO).await.unwrap();
    }
}

#[test]
fn a_failed_write_costs_the_pieces_that_changed_and_not_the_object() {
    for kind in [ErrorKind::Io, ErrorKind::Unavailable, ErrorKind::TimedOut] {
        for durable in [false, true] {
            let rig = Rig::new(2);
            block_on(async {
                let pool = rig.open().await;
                let object = create(&pool, LEN).await;
                let before = pool.stat(&name("blocks")).await.unwrap().copies;
                rig.fail(Some(Op::Write), kind);
                match durable {
                    true => object.write_durable(PIECE, filled(BLOCK, 1), IO).await.unwrap(),
                    false => object.write_at(PIECE, filled(BLOCK, 1), IO).await.unwrap(),
                }
                assert_eq!(places(&pool, "blocks").await, [0], "{kind:?}");
                write_apart(&*object, 2, 5).await;
                rig.plan.clear();
                let moved = (rig.moved(Op::Read), rig.moved(Op::Write));
                repair(&pool).await;
                let moved = (rig.moved(Op::Read) - moved.0, rig.moved(Op::Write) - moved.1);
                assert_eq!(moved, (6 * PIECE, 6 * PIECE), "{kind:?}, durable: {durable}");
                assert_eq!(pool.stat(&name("blocks")).await.unwrap().copies, before);
                object.write_at(9 * PIECE, filled(BLOCK, 3), IO).await.unwrap();
                assert!(on_volumes(&rig.mems).len() == 2 && are_alike(&rig.mems), "{kind:?}");
                assert_eq!(read_all(&*object).await.unwrap(), on_volumes(&rig.mems)[0]);
            });
        }
    }
}

/// A device that fails a sync may have lost every write since the last one.
#[test]
fn what_was_not_synced_is_copied_too() {
    let rig = Rig::new(2);
    block_on(async {
        let pool = rig.open().await;
        let object = create(&pool, LEN).await;
        write_apart(&*object, 1, 10).await;
        object.sync(IO).await.unwrap();
        write_apart(&*object, 2, 2).await;
        rig.fail(Some(Op::Sync), ErrorKind::Io);
        object.sync(IO).await.unwrap();
        assert_eq!(places(&pool, "blocks").await, [0]);
        rig.plan.clear();
        let leaf = rig.mems[1].image().into_keys().find(|leaf| leaf.as_str().ends_with(".inp"));
        let leaf = rig.mems[1].open(&leaf.unwrap()).await.unwrap();
        for piece in 0..2 {
            leaf.write_at(3 * piece * PIECE, filled(BLOCK, 1), IO).await.unwrap();
        }
        let read = rig.moved(Op::Read);
        repair(&pool).await;
        assert_eq!(rig.moved(Op::Read) - read, 2 * PIECE);
        assert!(on_volumes(&rig.mems).len() == 2 && are_alike(&rig.mems));
    });
}

/// Lengths change, all copies fail at once, and pieces are aligned, while a copy is outdated and before.
#[test]
fn changes_that_are_no_writes_are_copied_too() {
    let rig = Rig::new(2);
    block_on(async {
        let pool = rig.open().await;
        let object = create(&pool, LEN).await;
        rig.fail(Some(Op::Write), ErrorKind::Io);
        object.write_at(0, filled(BLOCK, 1), IO).await.unwrap();
        object.set_len(LEN / 2).await.unwrap();
        object.set_len(LEN).await.unwrap();
        object.write_at(LEN, filled(BLOCK, 4), IO).await.unwrap();
        rig.plan.clear();
        repair(&pool).await;
        assert!(on_volumes(&rig.mems).len() == 2 && are_alike(&rig.mems));
        // Of both copies, and then of one while the bytes are in doubt.
        rig.plan.inject(Rule::new(Effect::FailAfter(ErrorKind::Io)).volume("s0").named("*.inp"));
        rig.fail(Some(Op::Write), ErrorKind::Io);
        object.write_at(5 * PIECE, filled(BLOCK, 5), IO).await.unwrap_err();
        rig.plan.clear();
        rig.fail(None, ErrorKind::Unavailable);
        object.write_at(7 * PIECE, filled(BLOCK, 6), IO).await.unwrap();
        assert_eq!(places(&pool, "blocks").await, [0]);
        rig.plan.clear();
        repair(&pool).await;
        assert!(on_volumes(&rig.mems).len() == 2 && are_alike(&rig.mems));
    });
}

/// A write fails on both copies, on one of them after it reached the device. A sync that covers neither it nor another write has
/// ended well meanwhile; the other one fails on one copy.
#[test]
fn bytes_in_doubt_are_copied_too() {
    let rig = Rig::new(2);
    rig.clock.run(async {
        let pool = rig.open().await;
        let object = create(&pool, LEN).await;
        let rule = |effect, volume| Rule::new(effect).volume(volume).named("*.inp").on(Op::Write);
        // On each volume the first write is that of the first change, the second one that of the other.
        let slow = |ms| Effect::Slow(Duration::from_millis(ms));
        rig.plan.inject(rule(Effect::FailAfter(ErrorKind::Io), "s0").nth(0));
        rig.plan.inject(rule(slow(1), "s0").nth(0));
        rig.plan.inject(rule(Effect::Fail(ErrorKind::Io), "s1"));
        rig.plan.inject(rule(slow(1), "s1").nth(0));
        rig.plan.inject(rule(slow(2), "s1").nth(1));
        let failed = object.write_at(5 * PIECE, filled(BLOCK, 5), IO);
        let taken = object.write_at(7 * PIECE, filled(BLOCK, 7), IO);
        let synced = async {
            rig.clock.sleep(Duration::from_micros(100)).await;
            object.sync(IO).await.unwrap();
            assert_eq!(places(&pool, "blocks").await, [0, 1]);
        };
        let (failed, taken, ()) = join3(failed, taken, synced).await;
        failed.unwrap_err();
        taken.unwrap();
        assert_eq!(places(&pool, "blocks").await, [0]);
        rig.plan.clear();
        let read = rig.moved(Op::Read);
        repair(&pool).await;
        assert!(on_volumes(&rig.mems).len() == 2 && are_alike(&rig.mems));
        assert!(rig.moved(Op::Read) - read < LEN, "the bytes before are not in doubt");
    });
}

#[test]
fn an_outdated_copy_goes_with_its_object_its_volume_or_the_process() {
    let outdated = async |rig: &Rig| {
        let pool = rig.open().await;
        let object = create(&pool, PIECE).await;
        rig.fail(Some(Op::Write), ErrorKind::Io);
        object.write_at(0, filled(BLOCK, 1), IO).await.unwrap();
        rig.plan.clear();
        pool.flush().await.unwrap();
        assert_eq!((places(&pool, "blocks").await, rig.holders()), (vec![0], vec![0, 1]));
        pool
    };
    block_on(async {
        let rig = Rig::new(2);
        let pool = outdated(&rig).await;
        pool.remove(&name("blocks")).await.unwrap();
        pool.flush().await.unwrap();
        assert_eq!(rig.holders(), [0; 0], "the object was removed");

        let rig = Rig::new(3);
        let pool = outdated(&rig).await;
        let volume = pool.volume_id("s1").unwrap();
        let left = pool.drain(volume, COPY, |_: Drained| ()).await.unwrap();
        assert_eq!(left, Left::default());
        pool.remove_volume(volume).await.unwrap();
        assert!(rig.mems[1].image().is_empty(), "its volume left the pool");

        // It missed the change while its volume was emptied.
        let rig = Rig::new(3);
        let pool = rig.open().await;
        let object = create(&pool, PIECE).await;
        let volume = pool.volume_id("s1").unwrap();
        pool.set_draining(volume, true).await.unwrap();
        rig.fail(Some(Op::Write), ErrorKind::Io);
        object.write_at(0, filled(BLOCK, 1), IO).await.unwrap();
        rig.plan.clear();
        pool.remove_volume(volume).await.unwrap();
        assert!(rig.mems[1].image().is_empty(), "its volume left the pool");

        let rig = Rig::new(2);
        let pool = outdated(&rig).await;
        pool.close().await.unwrap();
        drop(pool);
        let pool = rig.open().await;
        repair(&pool).await;
        assert!(are_alike(&rig.mems) && rig.holders() == [0, 1], "the process ended");

        // Its volume does not take the changes, and another volume takes a copy.
        for (op, kind) in [(Op::Open, ErrorKind::Unavailable), (Op::Write, ErrorKind::Io)] {
            let rig = Rig::new(3);
            let pool = outdated(&rig).await;
            rig.fail(Some(op), kind);
            repair(&pool).await;
            assert_eq!(places(&pool, "blocks").await, [0, 2], "{op:?}");
            assert!(are_alike(&rig.mems[..1]) && rig.holders() == [0, 2], "{op:?}");
        }

        // Its volume does not take the changes, and is the only other one.
        let rig = Rig::new(2);
        let pool = outdated(&rig).await;
        let rule = Rule::new(Effect::Fail(ErrorKind::Io)).volume("s1").named("*.inp").on(Op::Write);
        rig.plan.inject(rule.nth(0));
        repair(&pool).await;
        assert!(are_alike(&rig.mems) && rig.holders() == [0, 1]);
    });
}

/// The power goes off at each step of a failed write, later ones and the repair.
#[test]
fn an_outdated_copy_is_none_after_a_crash_before_it_is_new() {
    const SMALL: u64 = 3 * PIECE;
    let (mut outdated, mut renewed) = (0, 0);
    for steps in 0.. {
        let power = Power::new();
        let machine: Vec<_> = mems(2).into_iter().map(|mem| Crash::new(mem, &power)).collect();
        let (plan, clock) = (FaultPlan::new(0), Clock::simulated());
        let fault = |(at, crash): (usize, &Crash)| {
            Arc::new(Fault::new(crash.clone(), &format!("s{at}"), &plan, &clock))
        };
        let volumes: Vec<_> = machine.iter().enumerate().map(fault).collect();
        // The last durable byte of each piece, and the byte that was written last.
        let mut durable = [(0, 0); 3];
        let mut copies = 0;
        let ended = block_on(async {
            let opening = opening("round-robin").copies(2);
            let pool = Spread::open(members(&volumes), opening).await.unwrap();
            let object = create(&pool, SMALL).await;
            power.cut_after(steps);
            let write = async |durable: &mut [(u8, u8); 3], piece: usize, byte: u8| {
                durable[piece].1 = byte;
                let offset = piece as u64 * PIECE;
                object.write_at(offset, filled(BLOCK, byte), IO).await.ok()?;
                object.sync(IO).await.ok()?;
                durable[piece].0 = byte;
                Some(())
            };
            let rule = Rule::new(Effect::Fail(ErrorKind::Io)).volume("s1").named("*.inp");
            plan.inject(rule.on(Op::Write));
            write(&mut durable, 0, 1).await?;
            write(&mut durable, 1, 2).await?;
            plan.clear();
            copies = 1;
            let repaired = pool.repair(COPY, |_| ()).await.ok()?;
            copies += repaired.made as usize;
            write(&mut durable, 2, 3).await?;
            write(&mut durable, 1, 4).await
        });
        power.cut();
        outdated += u32::from(copies == 1);
        renewed += u32::from(copies == 2);
        for seed in 0..4 {
            let survivors: Vec<Mem> = machine
                .iter()
                .zip(2 * seed..)
                .map(|(volume, seed)| volume.survivor(seed))
                .collect();
            block_on(async {
                let opening = opening("round-robin").copies(2);
                let pool = Spread::open(members(&survivors), opening).await.unwrap();
                let object = pool.open(&name("blocks")).await.unwrap();
                object.align(0, SMALL, IO).await.unwrap();
                let there = places(&pool, "blocks").await;
                let bytes = on_volumes(&survivors);
                assert_eq!(bytes.len(), there.len(), "after {steps} steps");
                assert!(are_alike(&survivors), "after {steps} steps");
                for (piece, (kept, last)) in durable.into_iter().enumerate() {
                    let found = bytes[0][piece * PIECE as usize];
                    assert!(found == kept || found == last, "after {steps} steps: piece {piece}");
                }
            });
        }
        if ended.is_some() {
            break;
        }
    }
    assert!(outdated > 5 && renewed > 5, "{outdated} and {renewed} crashes");
}

/// Writers and repairs beside a volume that fails now and then.
#[test]
fn writers_never_leave_a_copy_behind_that_was_made_new() {
    const WRITERS: u64 = 3;
    const SMALL: u64 = 2 * MIB;
    let (mut times, mut whole) = (0, 0);
    for seed in 0..60 {
        let (clock, mems) = (&Clock::simulated(), mems(2));
        let (plan, log) = (FaultPlan::new(seed), TraceLog::new(1 << 20));
        let volume = |(mem, seed): (&Mem, u64)| {
            let slow = Jitter::new(mem.clone(), clock, seed);
            let fault = Fault::new(slow, mem.label(), &plan, clock);
            Arc::new(Trace::new(fault, mem.label(), &log, clock))
        };
        let volumes: Vec<_> = mems.iter().zip(100 * seed..).map(volume).collect();
        let written = &RefCell::new(vec![0; SMALL as usize]);
        let (done, made) = (&Cell::new(false), &Cell::new(0));
        clock.run(async {
            let opening = opening("round-robin").copies(2);
            let pool = &Spread::open(members(&volumes), opening).await.unwrap();
            let object = &create(pool, SMALL).await;
            let writer = async |writer: u64| {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(WRITERS * seed + writer);
                while !done.get() {
                    let block = random.random_range(0..SMALL / BLOCK / WRITERS) * WRITERS + writer;
                    let (offset, byte) = (block * BLOCK, random.random_range(1..=u8::MAX));
                    match random.random_range(0..8) {
                        0 => {
                            object.sync(IO).await.unwrap();
                            continue;
                        }
                        1 => object.write_durable(offset, filled(BLOCK, byte), IO).await.unwrap(),
                        _ => object.write_at(offset, filled(BLOCK, byte), IO).await.unwrap(),
                    }
                    written.borrow_mut()[offset as usize..][..BLOCK as usize].fill(byte);
                }
            };
            let repairs = async {
                while !done.get() {
                    made.set(made.get() + pool.repair(COPY, |_| ()).await.unwrap().made);
                    clock.sleep(Duration::from_micros(300)).await;
                }
            };
            let weather = async {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
                for _ in 0..12 {
                    let op = [Op::Write, Op::Sync][random.random_range(0..2)];
                    let effect = match random.random_bool(0.5) {
                        true => Effect::Fail(ErrorKind::Io),
                        false => Effect::FailAfter(ErrorKind::TimedOut),
                    };
                    plan.inject(Rule::new(effect).on(op).volume("s1").named("*.inp"));
                    clock.sleep(Duration::from_micros(random.random_range(100..3_000))).await;
                    plan.clear();
                    clock.sleep(Duration::from_micros(random.random_range(100..20_000))).await;
                }
                done.set(true);
            };
            join(join(weather, repairs), join_all((0..WRITERS).map(writer))).await;
            while places(pool, "blocks").await.len() < 2 {
                made.set(made.get() + pool.repair(COPY, |_| ()).await.unwrap().made);
            }
            assert!(are_alike(&mems), "seed {seed}");
            assert!(on_volumes(&mems)[0] == *written.borrow(), "seed {seed}");
        });
        let creations = log.records().into_iter().map(|record| record.call).filter(|call| {
            call.op == Op::Create
                && call.name.as_ref().is_some_and(|name| name.as_str().ends_with(".inp"))
        });
        times += made.get();
        whole += creations.count() as u64 - 2;
    }
    assert!(whole + 100 < times, "{times} copies made, {whole} of them whole");
}

//! Writes that stay on the fast volume: what they cost, and what may not bring older bytes back.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all, select};
use policy::units::MIB;
use pool::tier::{Always, Lazy, Marks, Options, Tier, Writes, dirty_marks, has_newest};
use volume::layer::call::Op;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::layer::trace::{Trace, TraceLog};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, ErrorKind, IoBuf, IoBufMut, Volume, Zeros};

use crate::rig::{IO, PAGE, UNIT, content, fill, name, options, read};

fn back(slots: u64) -> Options {
    Options { writes: Writes::Back, ..options(slots) }
}

fn page(byte: u8) -> IoBuf {
    IoBuf::from(&[byte; PAGE as usize][..])
}

async fn open(slow: Arc<dyn Volume>, fast: Arc<dyn Volume>, clock: &Clock) -> Tier {
    Tier::open(slow, Some(fast), back(8), Box::new(Always), clock).await.unwrap()
}

#[test]
fn a_durable_write_of_a_dirty_page_costs_the_slow_volume_nothing() {
    let clock = Clock::simulated();
    let logs = [TraceLog::new(4000), TraceLog::new(4000)];
    let mem = Mem::new("slow");
    let slow = Arc::new(Trace::new(mem.clone(), "slow", &logs[0], &clock));
    let fast = Arc::new(Trace::new(Mem::new("fast"), "fast", &logs[1], &clock));
    let tier = block_on(open(slow, fast, &clock));
    let object = block_on(fill(&tier, "a.inp", 2 * UNIT, 1));
    let calls = |work: &dyn Fn()| {
        let before = [logs[0].records().len(), logs[1].records().len()];
        work();
        [0, 1].map(|at| {
            let new = logs[at].records()[before[at]..].to_vec();
            new.iter().map(|record| record.call.op).collect::<Vec<_>>()
        })
    };
    let put = |at: u64, byte| block_on(object.write_durable(at, page(byte), IO)).unwrap();
    let first = calls(&|| put(PAGE, 7));
    let new_log = [Op::Remove, Op::Create, Op::Write, Op::Sync];
    assert_eq!(first[0], new_log, "the first mark");
    let second = calls(&|| put(2 * PAGE, 8));
    assert_eq!(second[0], [], "the unit is marked");
    assert_eq!(second[1], [Op::WriteDurable; 2], "the page is recorded");
    assert_eq!(calls(&|| put(PAGE, 9)), [vec![], vec![Op::WriteDurable]]);
    let other = calls(&|| put(UNIT, 10));
    assert_eq!(other[0], [Op::WriteDurable], "one append for each unit");
    let hit = calls(&|| assert_eq!(block_on(read(&*object, PAGE, PAGE)), [9; PAGE as usize]));
    assert_eq!(hit, [vec![], vec![Op::Read]]);
    assert_eq!(tier.figures().dirty_bytes, 3 * PAGE);
    let flushed = calls(&|| block_on(tier.flush()).unwrap());
    assert_eq!(flushed[0][..2], [Op::Write, Op::Sync], "neighbours are one write");
    let figures = tier.figures();
    assert_eq!((figures.dirty_bytes, figures.flushed_bytes), (0, 3 * PAGE));
    let truth = block_on(mem.open(&name("a.inp"))).unwrap();
    assert_eq!(block_on(read(&*truth, PAGE, PAGE)), [9; PAGE as usize]);
}

/// Of the page that is written in part, the rest was in the device's cache only: the record must not be durable before it.
#[test]
fn a_page_that_is_written_in_part_is_written_whole() {
    let clock = Clock::simulated();
    let log = TraceLog::new(4000);
    let fast = Arc::new(Trace::new(Mem::new("fast"), "fast", &log, &clock));
    block_on(async {
        let tier = open(Arc::new(Mem::new("slow")), fast, &clock).await;
        let object = fill(&tier, "a.inp", UNIT, 1).await;
        object.write_durable(0, page(5), IO).await.unwrap();
        read(&*object, PAGE, PAGE).await;
        tier.install_all().await;
        let before = log.records().len();
        object.write_durable(PAGE, IoBuf::from(&[7; 512][..]), IO).await.unwrap();
        let calls: Vec<_> = log.records()[before..].iter().map(|one| one.call.op).collect();
        assert_eq!(calls, [Op::Read, Op::WriteDurable, Op::WriteDurable]);
        let expected = [&[7; 512][..], &content(2 * PAGE, 1)[PAGE as usize + 512..]].concat();
        assert_eq!(read(&*object, PAGE, PAGE).await, expected);
    });
}

/// Every file system is slow where a log grows, and each append to it waits for the last one.
#[test]
fn writers_of_new_pages_share_appends_and_the_logs_overwrite_themselves() {
    const WRITERS: u64 = 32;
    let clock = Clock::simulated();
    let log = TraceLog::new(100_000);
    let plan = FaultPlan::new(1);
    plan.inject(Rule::new(Effect::Slow(Duration::from_millis(1))));
    let fast = Fault::new(Mem::new("fast"), "fast", &plan, &clock);
    let fast = Arc::new(Trace::new(fast, "fast", &log, &clock));
    let opened = open(Arc::new(Mem::new("slow")), fast, &clock);
    clock.run(async {
        let tier = opened.await;
        let object = &fill(&tier, "a.inp", UNIT, 1).await;
        object.write_durable(0, page(5), IO).await.unwrap();
        let of_log = |from: usize| {
            let new = log.records().split_off(from).into_iter();
            new.filter(|one| {
                one.call.name.as_ref().is_some_and(|name| name.as_str().starts_with("tier.map"))
            })
            .collect::<Vec<_>>()
        };
        let mut from = log.records().len();
        let began = clock.now();
        join_all(
            (1..=WRITERS)
                .map(async |at| object.write_durable(at * PAGE, page(6), IO).await.unwrap()),
        )
        .await;
        assert!(of_log(from).len() <= 3, "{:?}", of_log(from));
        assert!(clock.now().since(began) <= Duration::from_millis(10));
        for round in 0..4 {
            tier.write_checkpoint().await;
            for at in 0..9 {
                tier.flush().await.unwrap();
                object.write_durable(at * PAGE, page(at as u8), IO).await.unwrap();
            }
            if round > 0 {
                let calls: Vec<_> = of_log(from).iter().map(|one| one.call.op).collect();
                assert!(!calls.contains(&Op::Create) && !calls.contains(&Op::Remove), "{calls:?}");
            }
            from = log.records().len();
        }
    });
}

#[test]
fn a_fill_from_before_a_flush_does_not_bring_older_bytes_back() {
    let clock = Clock::simulated();
    block_on(async {
        let tier = open(Arc::new(Mem::new("slow")), Arc::new(Mem::new("fast")), &clock).await;
        let object = fill(&tier, "a.inp", UNIT, 1).await;
        object.write_at(PAGE, page(9), IO).await.unwrap();
        // Its fill waits, with the older bytes of the dirty page.
        let expected =
            [&content(PAGE, 1)[..], &page(9), &content(3 * PAGE, 1)[2 * PAGE as usize..]];
        assert_eq!(read(&*object, 0, 3 * PAGE).await, expected.concat());
        tier.flush().await.unwrap();
        tier.install_all().await;
        assert_eq!(read(&*object, PAGE, PAGE).await, [9; PAGE as usize]);
    });
}

#[test]
fn a_dirty_page_is_passed_over_by_a_fill() {
    let clock = Clock::simulated();
    block_on(async {
        let tier = open(Arc::new(Mem::new("slow")), Arc::new(Mem::new("fast")), &clock).await;
        let object = fill(&tier, "a.inp", UNIT, 1).await;
        object.write_at(PAGE, page(9), IO).await.unwrap();
        read(&*object, 0, 3 * PAGE).await;
        tier.install_all().await;
        assert_eq!(read(&*object, PAGE, PAGE).await, [9; PAGE as usize]);
        assert_eq!(tier.figures().cached_bytes, 3 * PAGE, "the others are installed");
    });
}

/// Its leader may have read the slow volume before the flush.
#[test]
fn a_read_after_a_flush_does_not_share_one_from_before_it() {
    let (clock, plan, log) = (Clock::simulated(), FaultPlan::new(1), TraceLog::new(4000));
    let slow = Fault::new(Mem::new("slow"), "slow", &plan, &clock);
    let slow = Arc::new(Trace::new(slow, "slow", &log, &clock));
    let reads = || log.records().iter().filter(|record| record.call.op == Op::Read).count();
    clock.run(async {
        let tier = open(slow, Arc::new(Mem::new("fast")), &clock).await;
        let object = fill(&tier, "a.inp", UNIT, 1).await;
        object.write_at(PAGE, page(9), IO).await.unwrap();
        plan.inject(Rule::new(Effect::Slow(Duration::from_millis(10))).on(Op::Read));
        let before = reads();
        let other = async {
            clock.sleep(Duration::from_millis(1)).await;
            tier.detach().await.unwrap();
            tier.reattach(Arc::new(Mem::new("fast"))).await.unwrap();
            assert_eq!(read(&*object, PAGE, PAGE).await, [9; PAGE as usize]);
        };
        join(read(&*object, 0, UNIT), other).await;
        assert_eq!(reads() - before, 2);
    });
}

#[test]
fn a_tier_that_is_written_through_again_writes_back_what_was_kept() {
    let clock = Clock::simulated();
    let (slow, fast) = (Arc::new(Mem::new("slow")), Arc::new(Mem::new("fast")));
    let run = clock.clone();
    run.run(async {
        let tier = open(slow.clone(), fast.clone(), &clock).await;
        let object = fill(&tier, "a.inp", 2 * UNIT, 1).await;
        object.write_durable(PAGE, page(7), IO).await.unwrap();
        drop(object);
        tier.close().await;
        let through = options(8);
        let tier = Tier::open(slow.clone(), Some(fast), through, Box::new(Always), &clock);
        let tier = tier.await.unwrap();
        let object = tier.open(&name("a.inp")).await.unwrap();
        assert_eq!(read(&*object, PAGE, PAGE).await, [7; PAGE as usize]);
        assert_eq!(tier.figures().dirty_bytes, PAGE);
        let rounds = pin!(tier.run());
        drop(select(rounds, clock.sleep(Duration::from_secs(5))).await);
        assert_eq!(tier.figures().dirty_bytes, 0);
        let alone = slow.open(&name("a.inp")).await.unwrap();
        assert_eq!(read(&*alone, PAGE, PAGE).await, [7; PAGE as usize]);
        assert_eq!(dirty_marks(&*slow).await.unwrap(), Marks::default());
    });
}

#[test]
fn a_unit_that_is_written_all_the_time_is_marked_once_and_one_that_stays_clean_not_for_long() {
    let clock = Clock::simulated();
    let (mem, log) = (Mem::new("slow"), TraceLog::new(100_000));
    let slow = Arc::new(Trace::new(mem.clone(), "slow", &log, &clock));
    let opened = open(slow, Arc::new(Mem::new("fast")), &clock);
    clock.run(async {
        let tier = opened.await;
        let object = fill(&tier, "a.inp", 8 * UNIT, 1).await;
        let work = async {
            for round in 0..60 {
                for unit in 0..8 {
                    let at = unit * UNIT + round % 4 * PAGE;
                    let whole = IoBuf::from(&vec![round as u8; (UNIT / 2) as usize][..]);
                    object.write_durable(at, whole, IO).await.unwrap();
                }
                clock.sleep(Duration::from_secs(1)).await;
            }
        };
        select(pin!(tier.run()), pin!(work)).await;
        let marks = log.records().into_iter().filter(|one| {
            one.call.name.as_ref().is_some_and(|name| name.as_str().starts_with("tier.dirty"))
        });
        assert!(tier.figures().flushed_bytes > 20 * UNIT, "{:?}", tier.figures());
        let appends = marks.filter(|one| one.call.op == Op::WriteDurable).count();
        assert!(appends <= 8, "{appends} appends of marks for 8 units");
        tier.flush().await.unwrap();
        object.write_durable(0, page(1), IO).await.unwrap();
        assert_eq!(dirty_marks(&mem).await.unwrap().bytes, UNIT, "a flush clears all");
    });
}

#[test]
fn an_opening_that_would_lose_bytes_is_refused_and_changes_nothing() {
    let clock = Clock::simulated();
    let (slow, fast) = (Arc::new(Mem::new("slow")), Arc::new(Mem::new("fast")));
    block_on(async {
        let tier = open(slow.clone(), fast.clone(), &clock).await;
        let object = fill(&tier, "a.inp", 2 * UNIT, 1).await;
        object.write_durable(PAGE, page(7), IO).await.unwrap();
        drop((object, tier));
        let marks = dirty_marks(&*slow).await.unwrap();
        assert_eq!(marks, Marks { objects: 1, bytes: UNIT, stale_bytes: 0 });
        let other: Arc<dyn Volume> = Arc::new(Mem::new("other"));
        assert!(!has_newest(&*slow, &*other).await.unwrap());
        for options in [back(8), options(8)] {
            let options = Options { refuses_loss: true, ..options };
            for fast in [None, Some(Arc::clone(&other))] {
                let opened =
                    Tier::open(slow.clone(), fast, options.clone(), Box::new(Always), &clock).await;
                let error = opened.err().expect("a page would be lost");
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert!(error.to_string().contains("1 objects, up to 64 KiB"), "{error}");
            }
        }
        assert!(has_newest(&*slow, &*fast).await.unwrap());
        let options = Options { refuses_loss: true, ..back(8) };
        let tier = Tier::open(slow.clone(), Some(fast), options.clone(), Box::new(Always), &clock);
        let tier = tier.await.unwrap();
        let object = tier.open(&name("a.inp")).await.unwrap();
        assert_eq!(read(&*object, PAGE, PAGE).await, [7; PAGE as usize]);
        tier.flush().await.unwrap();
        tier.close().await;
        drop((object, tier));
        // Now nothing is lost.
        let tier = Tier::open(slow.clone(), None, options, Box::new(Always), &clock).await.unwrap();
        let object = tier.open(&name("a.inp")).await.unwrap();
        assert_eq!(read(&*object, PAGE, PAGE).await, [7; PAGE as usize]);
    });
}

#[test]
fn a_flush_that_fails_is_counted_and_named_until_one_succeeds() {
    let clock = Clock::simulated();
    let plan = FaultPlan::new(1);
    let slow = Arc::new(Fault::new(Mem::new("slow"), "slow", &plan, &clock));
    block_on(async {
        let tier = open(slow.clone(), Arc::new(Mem::new("fast")), &clock).await;
        let object = fill(&tier, "a.inp", 2 * UNIT, 1).await;
        object.write_durable(PAGE, page(7), IO).await.unwrap();
        object.write_durable(PAGE, page(8), IO).await.unwrap();
        let figures = tier.figures();
        assert_eq!((figures.kept_writes, figures.kept_bytes), (2, 2 * PAGE));
        assert!(figures.dirty_age.is_some());
        let full = plan.inject(Rule::new(Effect::Fail(ErrorKind::OutOfSpace)).on(Op::Write));
        assert!(tier.flush().await.is_err());
        assert!(tier.detach().await.is_err(), "it would lose a page");
        assert!(tier.is_attached());
        let (units, why) = tier.unflushed().expect("it failed");
        assert!(units == 1 && why.contains("fault"), "{why}");
        assert_eq!(tier.figures().flushes_failed, 2);
        plan.lift(full);
        tier.flush().await.unwrap();
        assert_eq!(tier.unflushed(), None);
        let figures = tier.figures();
        assert_eq!((figures.flush_writes, figures.flushed_bytes), (1, PAGE));
        assert_eq!((figures.dirty_bytes, figures.dirty_age), (0, None));
        object.write_durable(PAGE, page(9), IO).await.unwrap();
        tier.give_up().await.unwrap();
        assert!(!tier.is_attached());
        assert_eq!(tier.stale(), [(name("a.inp"), PAGE)]);
    });
}

/// The loss becomes durable with the next change: until then the volume may come back.
#[test]
fn a_fast_volume_that_failed_is_taken_back_if_nothing_changed_meanwhile() {
    let (clock, plan) = (Clock::simulated(), FaultPlan::new(1));
    let slow = Arc::new(Mem::new("slow"));
    let run = clock.clone();
    run.run(async {
        let fast = Arc::new(Fault::new(Mem::new("fast"), "fast", &plan, &clock));
        let tier = open(slow.clone(), fast.clone(), &clock).await;
        let object = fill(&tier, "a.inp", 2 * UNIT, 1).await;
        object.write_durable(PAGE, page(7), IO).await.unwrap();
        let broken = plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)));
        let gone = object.read_at(PAGE, IoBufMut::zeroed(PAGE as usize), IO).await;
        assert!(gone.is_err() && !tier.is_attached());
        assert_eq!(tier.stale(), [(name("a.inp"), PAGE)]);
        drop(select(pin!(tier.run()), clock.sleep(Duration::from_secs(60))).await);
        drop((object, tier));
        plan.lift(broken);
        let options = Options { refuses_loss: true, ..back(8) };
        let opened =
            Tier::open(slow.clone(), None, options.clone(), Box::new(Always), &clock).await;
        assert_eq!(opened.err().expect("a page would be lost").kind(), ErrorKind::Unavailable);
        let tier = Tier::open(slow.clone(), Some(fast), options, Box::new(Always), &clock);
        let tier = tier.await.unwrap();
        let object = tier.open(&name("a.inp")).await.unwrap();
        assert_eq!(read(&*object, PAGE, PAGE).await, [7; PAGE as usize]);
    });
}

/// It waited for a change of the same page, during which the fast volume was given up, and then wrote the older bytes over those
/// of the change.
#[test]
fn a_flush_that_waits_while_the_fast_volume_is_given_up_writes_nothing() {
    let (clock, plan) = (Clock::simulated(), FaultPlan::new(1));
    let (slow, fast) = (Mem::new("slow"), Mem::new("fast"));
    let fault = |mem: &Mem| Arc::new(Fault::new(mem.clone(), mem.label(), &plan, &clock));
    let run = clock.clone();
    run.run(async {
        let tier = open(fault(&slow), fault(&fast), &clock).await;
        let object = fill(&tier, "a.inp", 2 * UNIT, 1).await;
        object.write_durable(PAGE, page(7), IO).await.unwrap();
        assert_eq!(tier.figures().dirty_bytes, PAGE);
        plan.inject(Rule::new(Effect::Slow(Duration::from_millis(1))).volume("slow"));
        // After the read of the page comes the record in the journal that it was written back.
        let broken = Rule::new(Effect::Fail(ErrorKind::Unavailable)).volume("fast");
        plan.inject(broken.nth(1));
        let change = object.zero(PAGE, PAGE, Zeros::Keep, IO);
        let flush = async {
            clock.sleep(Duration::from_micros(100)).await;
            tier.flush().await
        };
        let (changed, flushed) = join(change, flush).await;
        changed.unwrap();
        assert!(!tier.is_attached());
        assert!(flushed.is_err(), "what it was asked for is lost");
        assert_eq!(tier.unflushed(), None, "that is told as stale bytes");
        assert_eq!(read(&*object, PAGE, PAGE).await, [0; PAGE as usize]);
        let truth = slow.open(&name("a.inp")).await.unwrap();
        assert_eq!(read(&*truth, PAGE, PAGE).await, [0; PAGE as usize]);
    });
}

/// Nothing was only there, so nothing has to come back: units that are marked still must not keep an opening from giving it up.
#[test]
fn a_fast_volume_that_failed_with_nothing_dirty_is_given_up_for_good() {
    for waits in [false, true] {
        let (clock, plan) = (Clock::simulated(), FaultPlan::new(1));
        let slow = Arc::new(Mem::new("slow"));
        let run = clock.clone();
        run.run(async {
            let fast = Arc::new(Fault::new(Mem::new("fast"), "fast", &plan, &clock));
            let tier = open(slow.clone(), fast.clone(), &clock).await;
            let object = fill(&tier, "a.inp", 2 * UNIT, 1).await;
            read(&*object, PAGE, PAGE).await;
            tier.install_all().await;
            tier.write_checkpoint().await;
            let broken = plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)));
            assert_eq!(read(&*object, PAGE, PAGE).await, content(2 * PAGE, 1)[PAGE as usize..]);
            assert!(!tier.is_attached());
            if waits {
                drop(select(pin!(tier.run()), clock.sleep(Duration::from_secs(3))).await);
            }
            drop((object, tier));
            plan.lift(broken);
            let tier = open(slow.clone(), fast, &clock).await;
            let cached = if waits { 0 } else { PAGE };
            assert_eq!(tier.figures().cached_bytes, cached, "waits: {waits}");
        });
    }
}

#[test]
fn a_burst_makes_no_more_dirty_than_is_allowed() {
    let clock = Clock::simulated();
    block_on(async {
        let tier = open(Arc::new(Mem::new("slow")), Arc::new(Mem::new("fast")), &clock).await;
        let len = 16 * UNIT;
        let object = fill(&tier, "a.inp", len, 1).await;
        // All in one second: the valve does not look in between.
        for at in 0..len / PAGE {
            object.write_at(at * PAGE, page(9), IO).await.unwrap();
        }
        let figures = tier.figures();
        let room = 8 * UNIT;
        // The write that reaches the limit may be the last one over it.
        assert!(figures.dirty_bytes <= room * 4 / 5 + PAGE, "{} of {room}", figures.dirty_bytes);
        assert!(figures.dirty_bytes > room / 2, "{} of {room}", figures.dirty_bytes);
        assert_eq!(read(&*object, len - PAGE, PAGE).await, [9; PAGE as usize]);
    });
}

#[test]
fn large_writes_of_a_long_run_go_past_it_and_small_ones_stay() {
    let clock = Clock::simulated();
    let (slots, len) = (8 * MIB / UNIT, 4 * MIB);
    block_on(async {
        let lazy = Box::new(Lazy::new(slots, clock.now()));
        let (slow, fast) = (Arc::new(Mem::new("slow")), Arc::new(Mem::new("fast")));
        let tier = Tier::open(slow, Some(fast), back(slots), lazy, &clock).await.unwrap();
        let object = fill(&tier, "a.inp", len, 1).await;
        tier.flush().await.unwrap();
        assert_eq!(tier.figures().dirty_bytes, 0);
        let large = 64 << 10;
        for at in (0..len).step_by(large) {
            let data = IoBuf::from(&vec![2; large][..]);
            object.write_at(at, data, IO).await.unwrap();
        }
        assert_eq!(tier.figures().dirty_bytes, MIB, "that of the first MiB");
        for at in (2 * MIB..4 * MIB).step_by(PAGE as usize) {
            object.write_at(at, page(3), IO).await.unwrap();
        }
        assert_eq!(tier.figures().dirty_bytes, 3 * MIB);
        let read = read(&*object, 0, len).await;
        let (older, newer) = read.split_at(2 * MIB as usize);
        assert!(older.iter().all(|&byte| byte == 2) && newer.iter().all(|&byte| byte == 3));
    });
}

//! What calls cost the two volumes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use policy::intent::PageReads;
use policy::promote::Access;
use policy::time::Instant;
use pool::tier::{Admission, Admit, Tier};
use volume::layer::call::Op;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::layer::trace::{Trace, TraceLog};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, Intent, IoBuf, Object, Volume};

use crate::rig::{IO, PAGE, UNIT, content, fill, name, options, read};

struct Watched {
    slow: TraceLog,
    fast: TraceLog,
    tier: Tier,
}

impl Watched {
    fn new(admit: impl Admit + 'static) -> Self {
        let clock = Clock::simulated();
        let (slow, fast) = (TraceLog::new(4000), TraceLog::new(4000));
        let volume = |label, log| Arc::new(Trace::new(Mem::new(label), label, log, &clock));
        let (on_slow, on_fast) = (volume("slow", &slow), volume("fast", &fast));
        let opened = Tier::open(on_slow, Some(on_fast), options(8), Box::new(admit), &clock);
        let tier = block_on(opened).unwrap();
        Self { slow, fast, tier }
    }

    /// Calls to both volumes during `work`.
    fn calls(&self, work: impl Future<Output = ()>) -> [Vec<(Op, u64)>; 2] {
        let before = [&self.slow, &self.fast].map(|log| log.records().len());
        block_on(work);
        let logs = [(&self.slow, before[0]), (&self.fast, before[1])];
        logs.map(|(log, from)| {
            log.records()[from..].iter().map(|record| (record.call.op, record.call.len)).collect()
        })
    }
}

#[test]
fn a_hit_costs_the_slow_volume_nothing_and_a_miss_one_read() {
    let watched = Watched::new(pool::tier::Always);
    let object = block_on(fill(&watched.tier, "a", 3 * UNIT, 1));
    let object = &*object;
    let at = UNIT - PAGE;
    let get = || async {
        assert_eq!(
            read(object, at + 10, PAGE).await,
            content(3 * UNIT, 1)[at as usize + 10..][..PAGE as usize]
        )
    };
    let miss = watched.calls(get());
    assert_eq!(miss, [vec![(Op::Read, 2 * PAGE)], vec![]], "whole pages of one read");
    block_on(watched.tier.install_all());
    let hit = watched.calls(get());
    assert_eq!(hit, [vec![], vec![(Op::Read, PAGE - 10), (Op::Read, 10)]]);
    let figures = watched.tier.figures();
    assert_eq!((figures.hit_bytes, figures.missed_bytes), (PAGE, PAGE));
    assert_eq!((figures.promotions, figures.promoted_bytes), (2, 2 * PAGE));
}

#[test]
fn a_write_costs_the_slow_volume_the_same_and_the_fast_one_a_record_once() {
    let watched = Watched::new(pool::tier::Always);
    let object = block_on(fill(&watched.tier, "a", 3 * UNIT, 1));
    let object = &*object;
    let page = IoBuf::from(&[9; PAGE as usize][..]);
    let put = || async { object.write_at(PAGE, page.clone(), IO).await.unwrap() };
    let one = vec![(Op::Write, PAGE)];
    assert_eq!(watched.calls(put()), [one.clone(), vec![]], "nothing is cached");
    block_on(async {
        object.sync(IO).await.unwrap();
        read(object, 0, UNIT).await;
        watched.tier.install_all().await;
    });
    assert_eq!(watched.calls(put()), [one.clone(), one.clone()], "no checkpoint names it");
    block_on(async {
        object.sync(IO).await.unwrap();
        watched.tier.write_checkpoint().await;
    });
    let first = watched.calls(put());
    assert_eq!(first, [one.clone(), vec![(Op::WriteDurable, PAGE), (Op::Write, PAGE)]]);
    assert_eq!(watched.calls(put()), [one.clone(), one], "one record for each unit and checkpoint");
    assert_eq!(block_on(read(object, PAGE, PAGE)), [9; PAGE as usize]);
    assert_eq!(watched.tier.figures().doubts, 1);
}

/// The pages of a table that is written by a compaction were read under the name of another one.
#[test]
fn pages_whose_records_were_read_before_are_cached_as_they_are_written() {
    let watched = Watched::new(pool::tier::Always);
    let tier = &watched.tier;
    let len = 2 * UNIT - 100;
    let reads = [(2, 1), (3, 200), (16, 15), (31, 2)];
    let reads = reads.map(|(page, reads)| PageReads { page, reads });
    let intent = Intent { reads: Some(reads.into()), ..Intent::DATA };
    let object = block_on(tier.create(&name("a"), &intent)).unwrap();
    let written = watched.calls(async {
        object.write_at(0, IoBuf::from(&content(len, 1)[..]), IO).await.unwrap();
    });
    let page = (Op::Write, PAGE);
    assert_eq!(written, [vec![(Op::Write, len)], vec![(Op::Write, 2 * PAGE), page, page]]);
    assert_eq!(tier.figures().inherited_bytes, 4 * PAGE);
    block_on(object.sync(IO)).unwrap();
    let found = watched.calls(async {
        for at in [3, 2, 16, 31].map(|page| page * PAGE) {
            let end = (at + PAGE).min(len);
            assert_eq!(read(&*object, at, PAGE).await, content(len, 1)[at as usize..end as usize]);
        }
    });
    assert_eq!(found[0], [], "they are hits");
    let other = watched.calls(async { drop(read(&*object, 4 * PAGE, PAGE).await) });
    assert_eq!(other, [vec![(Op::Read, PAGE)], vec![]]);
}

/// Where room is short, they are worth it by the rule for all pages.
#[test]
fn pages_whose_records_were_read_seldom_take_nobodys_room() {
    let watched = Watched::new(pool::tier::Always);
    let tier = &watched.tier;
    block_on(async {
        let other = fill(tier, "other", 20 * UNIT, 9).await;
        for unit in (0..20).rev() {
            read(&*other, unit * UNIT, UNIT).await;
            tier.install_all().await;
        }
        let reads = [(5, 1), (9, 15)].map(|(page, reads)| PageReads { page, reads });
        let intent = Intent { reads: Some(reads.into()), ..Intent::DATA };
        let object = tier.create(&name("a"), &intent).await.unwrap();
        object.write_at(0, IoBuf::from(&content(UNIT, 1)[..]), IO).await.unwrap();
        assert_eq!(tier.figures().inherited_bytes, PAGE);
        let before = tier.figures().hit_bytes;
        assert_eq!(
            read(&*object, 9 * PAGE, PAGE).await,
            content(UNIT, 1)[9 * PAGE as usize..][..PAGE as usize]
        );
        assert_eq!(tier.figures().hit_bytes - before, PAGE);
    });
}

/// Promotes whole units.
struct Whole;

impl Admit for Whole {
    fn missed(&mut self, _: Access, _: Instant) -> Admission {
        Admission::Unit
    }
}

#[test]
fn a_unit_is_promoted_behind_the_user() {
    let watched = Watched::new(Whole);
    let object = block_on(fill(&watched.tier, "a", UNIT + 5000, 1));
    let object = &*object;
    assert_eq!(
        watched.calls(async { drop(read(object, UNIT + 8, 100).await) }),
        [vec![(Op::Read, PAGE)], vec![]]
    );
    block_on(watched.tier.install_all());
    let rest = watched.calls(async {
        assert_eq!(read(object, UNIT, 9000).await, content(UNIT + 5000, 1)[UNIT as usize..]);
    });
    assert_eq!(rest, [vec![], vec![(Op::Read, 5000)]], "with the end of the object");
}

#[test]
fn logs_and_names_of_the_tier_stay_on_the_slow_volume() {
    let watched = Watched::new(pool::tier::Always);
    let tier = &watched.tier;
    block_on(async {
        let log = tier.create(&name("a.log"), &Intent::LOG).await.unwrap();
        log.write_at(0, IoBuf::from(&[1; 5000][..]), IO).await.unwrap();
        let from = watched.fast.records().len();
        read(&*log, 0, 5000).await;
        tier.install_all().await;
        read(&*log, 0, 5000).await;
        assert_eq!(watched.fast.records().len(), from);
        assert_eq!(tier.list().await.unwrap().len(), 1);
        let kind = |e: volume::Error| e.kind();
        let reserved = name("tier.head-0");
        let refused = tier.create(&reserved, &Intent::DATA).await.err().map(kind);
        assert_eq!(refused, Some(volume::ErrorKind::Invalid));
        let hidden = tier.open(&reserved).await.err().map(kind);
        assert_eq!(hidden, Some(volume::ErrorKind::NotFound));
        let kept = tier.remove(&reserved).await.err().map(kind);
        assert_eq!(kept, Some(volume::ErrorKind::NotFound));
    });
}

/// A tier whose slow volume takes 10 ms for a read, and the log of its calls.
async fn with_slow_reads(clock: &Clock) -> (Tier, Arc<dyn Object>, TraceLog) {
    let (plan, log) = (FaultPlan::new(1), TraceLog::new(4000));
    let slow = Fault::new(Mem::new("slow"), "slow", &plan, clock);
    let slow = Arc::new(Trace::new(slow, "slow", &log, clock));
    let fast = Arc::new(Mem::new("fast"));
    let admit = Box::new(pool::tier::Always);
    let tier = Tier::open(slow, Some(fast), options(8), admit, clock).await.unwrap();
    let object = fill(&tier, "a", UNIT, 1).await;
    plan.inject(Rule::new(Effect::Slow(Duration::from_millis(10))).on(Op::Read));
    (tier, object, log)
}

fn reads(log: &TraceLog) -> usize {
    log.records().iter().filter(|record| record.call.op == Op::Read).count()
}

#[test]
fn readers_of_the_same_bytes_cost_the_slow_volume_one_read() {
    let clock = Clock::simulated();
    clock.run(async {
        let (tier, object, log) = with_slow_reads(&clock).await;
        let before = reads(&log);
        let all = (0..8).map(async |page| {
            clock.sleep(Duration::from_millis(page)).await;
            let (from, len) = if page == 0 { (0, UNIT) } else { (page * PAGE + 5, 100) };
            let expected = &content(UNIT, 1)[from as usize..(from + len) as usize];
            assert_eq!(read(&*object, from, len).await, expected);
        });
        join_all(all).await;
        assert_eq!(reads(&log) - before, 1);
        tier.install_all().await;
        assert_eq!(tier.figures().promoted_bytes, UNIT, "and it is installed once");
    });
}

#[test]
fn a_read_after_a_write_does_not_share_one_from_before_it() {
    let clock = Clock::simulated();
    clock.run(async {
        let (_tier, object, log) = with_slow_reads(&clock).await;
        let before = reads(&log);
        let change = async {
            clock.sleep(Duration::from_millis(1)).await;
            object.write_at(PAGE, IoBuf::from(&[9; PAGE as usize][..]), IO).await.unwrap();
            assert_eq!(read(&*object, PAGE, PAGE).await, [9; PAGE as usize]);
        };
        join(read(&*object, 0, UNIT), change).await;
        assert_eq!(reads(&log) - before, 2);
    });
}

/// It zeroes what a write adds to the object before its turn.
#[test]
fn a_zero_behind_the_end_of_an_object_takes_turns_with_a_write_that_extends_it() {
    let (clock, plan) = (Clock::simulated(), FaultPlan::new(1));
    let mem = Mem::new("slow");
    let slow = Arc::new(Fault::new(mem.clone(), "slow", &plan, &clock));
    let (fast, admit) = (Arc::new(Mem::new("fast")), Box::new(pool::tier::Always));
    let opened = Tier::open(slow, Some(fast), options(8), admit, &clock);
    clock.run(async {
        let tier = opened.await.unwrap();
        let object = fill(&tier, "a", UNIT, 1).await;
        plan.inject(Rule::new(Effect::Slow(Duration::from_millis(10))).on(Op::Zero));
        let zero = object.zero(0, 2 * UNIT, volume::Zeros::Free, IO);
        let extend = async {
            clock.sleep(Duration::from_millis(1)).await;
            object.write_at(UNIT, IoBuf::from(&[9; PAGE as usize][..]), IO).await.unwrap();
            read(&*object, UNIT, PAGE).await;
            tier.install_all().await;
        };
        join(zero, extend).await.0.unwrap();
        let truth = mem.open(&name("a")).await.unwrap();
        assert_eq!(read(&*object, UNIT, PAGE).await, read(&*truth, UNIT, PAGE).await);
    });
}

/// A checksum in the bytes refuses what the fast volume gives.
#[test]
fn refused_bytes_are_read_again_from_the_slow_volume() {
    let clock = Clock::simulated();
    let (slow, fast) = (Mem::new("slow"), Mem::new("fast"));
    let opened = Tier::open(
        Arc::new(slow),
        Some(Arc::new(fast.clone())),
        options(4),
        Box::new(pool::tier::Always),
        &clock,
    );
    block_on(async {
        let tier = opened.await.unwrap();
        let object = fill(&tier, "a", UNIT, 1).await;
        read(&*object, 0, UNIT).await;
        tier.install_all().await;
        for at in 0..4 * UNIT {
            fast.damage(&name("tier.slab"), at, |byte| *byte ^= 0x80);
        }
        let object: &dyn Object = &*object;
        assert_ne!(read(object, 0, PAGE).await, content(PAGE, 1));
        let check: volume::Check = Arc::new(|read| read == content(PAGE, 1));
        let again = object.read_again(0, volume::IoBufMut::zeroed(PAGE as usize), IO, check).await;
        assert_eq!(again.unwrap().to_vec(), content(PAGE, 1));
        assert_eq!(read(object, 0, PAGE).await, content(PAGE, 1), "the damaged page is dropped");
    });
}

/// The promotion would read the old bytes, and call them valid after the change.
#[test]
fn a_promotion_leaves_out_a_unit_that_is_being_changed() {
    let (clock, plan) = (Clock::simulated(), FaultPlan::new(1));
    let slow = Fault::new(Mem::new("slow"), "slow", &plan, &clock);
    let fast = Arc::new(Mem::new("fast"));
    let opened = Tier::open(Arc::new(slow), Some(fast), options(8), Box::new(Whole), &clock);
    clock.run(async {
        let tier = opened.await.unwrap();
        let object = fill(&tier, "a", UNIT, 1).await;
        plan.inject(Rule::new(Effect::Slow(Duration::from_millis(10))).on(Op::Write));
        let write = object.write_at(0, IoBuf::from(&[9; PAGE as usize][..]), IO);
        let promote = async {
            clock.sleep(Duration::from_millis(1)).await;
            read(&*object, 5 * PAGE, PAGE).await;
            tier.install_all().await;
        };
        join(write, promote).await.0.unwrap();
        assert_eq!(read(&*object, 0, PAGE).await, [9; PAGE as usize]);
        assert_eq!(tier.figures().promotions_dropped, 1);
    });
}

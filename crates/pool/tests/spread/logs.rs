//! Scrubs of logs: which of two copies is wrong, before and behind the checksum.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use policy::placement::{RoundRobin, VolumeId};
use policy::purpose::{Origin, Step};
use pool::spread::{Opening, Problem, Report, Spread};
use volume::layer::call::Op as Call;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, ErrorKind, Intent, Io, IoBuf, Name, Volume};

use crate::faults::Rig;
use crate::rig::{IO, POOL, get, members, mems, name};
use crate::together::{log, mend, open};

const COPY: Io = Io::new(Origin::Copy, Step::Data);

/// The leaf of the log's copy on a volume.
fn leaf(mem: &Mem) -> Name {
    let mut leaves = mem.image().into_keys();
    let is_log = |leaf: &Name| leaf.as_str().starts_with('o') && leaf.as_str().ends_with(".log");
    leaves.find(is_log).unwrap()
}

/// Flips a bit of the byte at `offset` in a volume's copy of the log.
fn rot(mem: &Mem, offset: u64) {
    mem.damage(&leaf(mem), offset, |byte| *byte ^= 1);
}

async fn scrub(pool: &Spread) -> Report {
    pool.scrub(|_| ()).await.unwrap()
}

fn found(report: &Report) -> Vec<(&str, &Problem, bool)> {
    report.findings.iter().map(|f| (&*f.volume, &f.problem, f.elsewhere)).collect()
}

/// A closed log of two copies, with a checksum of its twelve bytes.
async fn scrubbed_log(pool: &Spread) -> [VolumeId; 2] {
    let (log, on) = log(pool).await;
    drop(log);
    assert_eq!(found(&scrub(pool).await), []);
    on
}

#[test]
fn a_scrub_says_which_copy_of_a_log_is_wrong_and_mends_it() {
    for (wrong, crash) in [(0, false), (1, false), (0, true), (1, true)] {
        let rig = Rig::new(mems(3));
        block_on(async {
            let pool = open(&rig, &[0, 1, 2]).await.unwrap();
            let on = scrubbed_log(&pool).await;
            if !crash {
                pool.close().await.unwrap();
            }
            drop(pool);
            rot(&rig.mems[usize::from(on[wrong].0)], 3);
            // After a crash the copies are made equal: damaged bytes before the checksum's end must not spread.
            let pool = open(&rig, &[0, 1, 2]).await.unwrap();
            let report = scrub(&pool).await;
            let label = format!("s{}", on[wrong]);
            assert_eq!(found(&report), [(&*label, &Problem::Damaged, true)]);
            assert_eq!(pool.damage().left, 1);
            assert_eq!(pool.mend(&report).await.unwrap(), 1);
            assert_eq!(pool.repair(COPY, |_| ()).await.unwrap().made, 1);
            assert_eq!(pool.damage().left, 0);
            assert_eq!(found(&scrub(&pool).await), []);
            assert_eq!(pool.stat(&name("a.log")).await.unwrap().copies.len(), 2);
            assert_eq!(get(&pool, "a.log").await.unwrap(), b"acknowledged");
        });
    }
}

#[test]
fn a_scrub_says_which_copy_of_an_open_log_is_wrong_up_to_the_last_scrub() {
    let rig = Rig::new(mems(3));
    block_on(async {
        let pool = open(&rig, &[0, 1, 2]).await.unwrap();
        let (log, on) = log(&pool).await;
        assert_eq!(found(&scrub(&pool).await), []);
        log.write_at(12, IoBuf::from(&b" and more"[..]), IO).await.unwrap();
        let wrong = &rig.mems[usize::from(on[1].0)];
        let [first, second] = on.map(|volume| format!("s{volume}"));
        rot(wrong, 15);
        let report = scrub(&pool).await;
        let unlike = [(&*first, &Problem::Unlike, false), (&*second, &Problem::Unlike, false)];
        assert_eq!(found(&report), unlike);
        assert_eq!(pool.mend(&report).await.unwrap(), 0, "nothing says which copy is right");
        assert_eq!(found(&scrub(&pool).await), unlike, "no checksum while they differ");
        rot(wrong, 3);
        let damaged = [(&*second, &Problem::Damaged, true)];
        assert_eq!(found(&scrub(&pool).await), damaged);
        rot(wrong, 15);
        let report = scrub(&pool).await;
        assert_eq!(found(&report), damaged);
        assert_eq!(pool.mend(&report).await.unwrap(), 1);
        assert_eq!(get(&pool, "a.log").await.unwrap(), b"acknowledged and more");
    });
}

#[test]
fn an_append_needs_no_edit_and_a_write_below_the_checksum_does() {
    let rig = Rig::new(mems(3));
    block_on(async {
        let pool = open(&rig, &[0, 1, 2]).await.unwrap();
        scrubbed_log(&pool).await;
        let log = pool.open(&name("a.log")).await.unwrap();
        // The manifest cannot change, so the bytes with a checksum may not either.
        rig.plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)).named("manifest-*"));
        rig.plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)).on(Call::Create));
        log.write_at(12, IoBuf::from(&b" and more"[..]), IO).await.unwrap();
        let refused = log.write_at(11, IoBuf::from(&b"D"[..]), IO).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        assert_eq!(log.set_len(3).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(get(&pool, "a.log").await.unwrap(), b"acknowledged and more");
        mend(&rig);
        log.write_at(0, IoBuf::from(&b"ACK"[..]), IO).await.unwrap();
        log.sync(IO).await.unwrap();
        log.set_len(16).await.unwrap();
        log.sync(IO).await.unwrap();
        drop((log, pool));
        // The checksum is gone, and comes back with the next scrub.
        for _ in 0..2 {
            let pool = open(&rig, &[0, 1, 2]).await.unwrap();
            assert_eq!(found(&scrub(&pool).await), []);
            assert_eq!(get(&pool, "a.log").await.unwrap(), b"ACKnowledged and");
        }
    });
}

#[test]
fn a_copy_of_a_log_that_lost_bytes_with_a_checksum_goes_when_the_pool_opens() {
    for wrong in 0..2 {
        let rig = Rig::new(mems(3));
        block_on(async {
            let pool = open(&rig, &[0, 1, 2]).await.unwrap();
            let on = scrubbed_log(&pool).await;
            pool.close().await.unwrap();
            drop(pool);
            let volume = &rig.mems[usize::from(on[wrong].0)];
            volume.open(&leaf(volume)).await.unwrap().set_len(5).await.unwrap();
            let pool = open(&rig, &[0, 1, 2]).await.unwrap();
            assert_eq!(get(&pool, "a.log").await.unwrap(), b"acknowledged");
            let copies = pool.stat(&name("a.log")).await.unwrap().copies;
            assert_eq!(copies.len(), 1);
            assert_eq!(copies[0].layout.volumes(), [on[1 - wrong]]);
        });
    }
}

#[test]
fn a_log_that_lost_bytes_of_its_only_copy_is_damaged_at_every_scrub() {
    let mems = mems(1);
    block_on(async {
        let pool = crate::rig::open(&mems).await.unwrap();
        let log = pool.create(&name("a.log"), &Intent::LOG).await.unwrap();
        log.write_at(0, IoBuf::from(&b"acknowledged"[..]), IO).await.unwrap();
        log.sync(IO).await.unwrap();
        assert_eq!(found(&scrub(&pool).await), []);
        drop((log, pool));
        mems[0].open(&leaf(&mems[0])).await.unwrap().set_len(5).await.unwrap();
        let pool = crate::rig::open(&mems).await.unwrap();
        for _ in 0..2 {
            assert_eq!(found(&scrub(&pool).await), [("s0", &Problem::Damaged, false)]);
        }
    });
}

#[test]
fn a_copy_that_lost_bytes_while_the_pool_was_open_is_told_from_the_whole_one() {
    for wrong in 0..2 {
        let rig = Rig::new(mems(3));
        block_on(async {
            let pool = open(&rig, &[0, 1, 2]).await.unwrap();
            let on = scrubbed_log(&pool).await;
            let volume = &rig.mems[usize::from(on[wrong].0)];
            volume.open(&leaf(volume)).await.unwrap().set_len(5).await.unwrap();
            let report = scrub(&pool).await;
            let label = format!("s{}", on[wrong]);
            assert_eq!(found(&report), [(&*label, &Problem::Damaged, true)]);
            assert_eq!(pool.mend(&report).await.unwrap(), 1);
            assert_eq!(get(&pool, "a.log").await.unwrap(), b"acknowledged");
        });
    }
}

#[test]
fn writes_while_a_scrub_reads_are_not_taken_for_damage() {
    let (plan, clock) = (FaultPlan::new(0), Clock::simulated());
    let mems = mems(2);
    let fault = |mem: &Mem| Arc::new(Fault::new(mem.clone(), mem.label(), &plan, &clock));
    let faults: Vec<_> = mems.iter().map(fault).collect();
    let ms = Duration::from_millis;
    let slow = Effect::Slow(ms(100));
    for (at, offset) in
        [50, 150, 250, 350, 450, 550].into_iter().flat_map(|at| [(at, 5), (at, (3 << 20) - 5)])
    {
        clock.run(async {
            let opening = Opening::new(RoundRobin::default()).create_if_missing(POOL).copies(2);
            let pool = Spread::open(members(&faults), opening).await.unwrap();
            let text = format!("{at}-{offset}.log");
            let log = pool.create(&name(&text), &Intent::LOG).await.unwrap();
            log.write_at(0, IoBuf::from(&vec![7; 2 << 20][..]), IO).await.unwrap();
            log.sync(IO).await.unwrap();
            assert_eq!(found(&scrub(&pool).await), []);
            log.write_at(2 << 20, IoBuf::from(&vec![8; 1 << 20][..]), IO).await.unwrap();
            let slowly = plan.inject(Rule::new(slow).on(Call::Read));
            let write = async {
                clock.sleep(ms(at)).await;
                log.write_at(offset, IoBuf::from(&b"over"[..]), IO).await.unwrap();
                log.write_at(3 << 20, IoBuf::from(&b"end"[..]), IO).await.unwrap();
            };
            let (report, ()) = join(scrub(&pool), write).await;
            plan.lift(slowly);
            assert_eq!(found(&report), []);
            let read = get(&pool, &text).await.unwrap();
            let at = offset as usize;
            assert_eq!((read.len(), &read[at..at + 4]), ((3 << 20) + 3, &b"over"[..]));
            assert_eq!(found(&scrub(&pool).await), []);
            assert_eq!(pool.damage().found, 0);
            drop(log);
            pool.remove(&name(&text)).await.unwrap();
        });
    }
}

#[test]
fn a_single_copy_has_a_checksum_and_blocking_writes_respect_it() {
    let mems = mems(1);
    let (pool, log) = block_on(async {
        let pool = crate::rig::open(&mems).await.unwrap();
        let log = pool.create(&name("a.log"), &Intent::LOG).await.unwrap();
        log.write_at(0, IoBuf::from(&b"acknowledged"[..]), IO).await.unwrap();
        log.sync(IO).await.unwrap();
        scrub(&pool).await;
        (pool, log)
    });
    log.blocking_write_at(12, b" and more", IO).unwrap();
    log.blocking_write_at(0, b"ACK", IO).unwrap();
    drop((pool, log));
    block_on(async {
        let pool = crate::rig::open(&mems).await.unwrap();
        assert_eq!(get(&pool, "a.log").await.unwrap(), b"ACKnowledged and more");
        assert_eq!(found(&scrub(&pool).await), []);
        drop(pool);
        rot(&mems[0], 3);
        let pool = crate::rig::open(&mems).await.unwrap();
        assert_eq!(found(&scrub(&pool).await), [("s0", &Problem::Damaged, false)]);
        assert_eq!(pool.damage().left, 1);
    });
}

//! Scrubbing logs: which of two copies is wrong.

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

/// A bit of the log's copy on a volume is not what it was.
fn rot(mem: &Mem) {
    mem.damage(&leaf(mem), 3, |byte| *byte ^= 1);
}

async fn scrub(pool: &Spread) -> Report {
    pool.scrub(|_| ()).await.unwrap()
}

fn found(report: &Report) -> Vec<(&str, &Problem, bool)> {
    report.findings.iter().map(|f| (&*f.volume, &f.problem, f.elsewhere)).collect()
}

/// Closes the pool with a log that a scrub gave a checksum; gives the volumes of its two copies.
async fn close_scrubbed(pool: Spread) -> [VolumeId; 2] {
    let (log, on) = log(&pool).await;
    drop(log);
    assert_eq!(found(&scrub(&pool).await), []);
    pool.close().await.unwrap();
    on
}

#[test]
fn a_scrub_says_which_copy_of_a_closed_log_is_wrong_and_mends_it() {
    for wrong in 0..2 {
        let rig = Rig::new(mems(3));
        block_on(async {
            let pool = open(&rig, &[0, 1, 2]).await.unwrap();
            let on = close_scrubbed(pool).await;
            rot(&rig.mems[usize::from(on[wrong].0)]);
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

/// Nobody but the store that reads it knows which is right: nothing is dropped.
#[test]
fn copies_of_an_open_log_that_differ_are_told_and_stay() {
    let rig = Rig::new(mems(3));
    block_on(async {
        let pool = open(&rig, &[0, 1, 2]).await.unwrap();
        let (log, on) = log(&pool).await;
        assert_eq!(found(&scrub(&pool).await), []);
        log.write_at(12, IoBuf::from(&b" and more"[..]), IO).await.unwrap();
        rot(&rig.mems[usize::from(on[1].0)]);
        let report = scrub(&pool).await;
        let [first, second] = on.map(|volume| format!("s{volume}"));
        let unlike = [(&*first, &Problem::Unlike, false), (&*second, &Problem::Unlike, false)];
        assert_eq!(found(&report), unlike);
        assert_eq!(pool.mend(&report).await.unwrap(), 0);
        assert_eq!(pool.stat(&name("a.log")).await.unwrap().copies.len(), 2);
        drop(log);
        assert_eq!(found(&scrub(&pool).await), unlike, "it gets no checksum while they differ");
    });
}

#[test]
fn a_log_with_a_checksum_is_written_again() {
    let rig = Rig::new(mems(3));
    block_on(async {
        let pool = open(&rig, &[0, 1, 2]).await.unwrap();
        drop(log(&pool).await);
        scrub(&pool).await;
        assert!(pool.objects()[0].sealed);
        let log = pool.open(&name("a.log")).await.unwrap();
        // The manifest still says what the bytes are, so they stay what they are.
        rig.plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)).named("manifest-*"));
        rig.plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)).on(Call::Create));
        for offset in [0, 12] {
            let refused = log.write_at(offset, IoBuf::from(&b"ACK"[..]), IO).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unavailable);
        }
        log.set_len(3).await.unwrap_err();
        assert_eq!(get(&pool, "a.log").await.unwrap(), b"acknowledged");
        mend(&rig);
        log.write_at(12, IoBuf::from(&b" and more"[..]), IO).await.unwrap();
        assert!(!pool.objects()[0].sealed);
        assert_eq!(log.len(), 21);
        log.sync(IO).await.unwrap();
        log.set_len(16).await.unwrap();
        log.sync(IO).await.unwrap();
        drop(log);
        assert_eq!(found(&scrub(&pool).await), []);
        assert!(pool.objects()[0].sealed);
        drop(pool);
        let pool = open(&rig, &[0, 1, 2]).await.unwrap();
        assert_eq!(found(&scrub(&pool).await), []);
        assert_eq!(get(&pool, "a.log").await.unwrap(), b"acknowledged and");
    });
}

/// Readers took the length of the copy that was opened first for the log's.
#[test]
fn a_copy_of_a_closed_log_that_is_too_short_goes_when_the_pool_opens() {
    for wrong in 0..2 {
        let rig = Rig::new(mems(3));
        block_on(async {
            let pool = open(&rig, &[0, 1, 2]).await.unwrap();
            let on = close_scrubbed(pool).await;
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
fn a_write_while_a_scrub_reads_leaves_no_checksum_behind() {
    let (plan, clock) = (FaultPlan::new(0), Clock::simulated());
    let mems = mems(2);
    let fault = |mem: &Mem| Arc::new(Fault::new(mem.clone(), mem.label(), &plan, &clock));
    let faults: Vec<_> = mems.iter().map(fault).collect();
    let ms = Duration::from_millis;
    let slow = Effect::Slow(ms(100));
    for at in [50, 150, 250, 350] {
        clock.run(async {
            let opening = Opening::new(RoundRobin::default()).create_if_missing(POOL).copies(2);
            let pool = Spread::open(members(&faults), opening).await.unwrap();
            let text = format!("{at}.log");
            let log = pool.create(&name(&text), &Intent::LOG).await.unwrap();
            log.write_at(0, IoBuf::from(&vec![7; 3 << 20][..]), IO).await.unwrap();
            log.sync(IO).await.unwrap();
            drop(log);
            let slowly = plan.inject(Rule::new(slow).on(Call::Read));
            let write = async {
                clock.sleep(ms(at)).await;
                let log = pool.open(&name(&text)).await.unwrap();
                log.write_at(5, IoBuf::from(&b"over"[..]), IO).await.unwrap();
                log.write_at(3 << 20, IoBuf::from(&b"end"[..]), IO).await.unwrap();
            };
            let (report, ()) = join(scrub(&pool), write).await;
            plan.lift(slowly);
            assert_eq!(found(&report), []);
            let read = get(&pool, &text).await.unwrap();
            assert_eq!(
                (read.len(), &read[5..9], &read[3 << 20..]),
                ((3 << 20) + 3, &b"over"[..], &b"end"[..])
            );
            assert_eq!(found(&scrub(&pool).await), []);
            pool.remove(&name(&text)).await.unwrap();
        });
    }
}

#[test]
fn a_blocking_write_takes_the_checksum_away_too() {
    let mems = mems(1);
    let (pool, log) = block_on(async {
        let pool = crate::rig::open(&mems).await.unwrap();
        let log = pool.create(&name("a.log"), &Intent::LOG).await.unwrap();
        log.write_at(0, IoBuf::from(&b"acknowledged"[..]), IO).await.unwrap();
        log.sync(IO).await.unwrap();
        drop(log);
        scrub(&pool).await;
        let log = pool.open(&name("a.log")).await.unwrap();
        (pool, log)
    });
    assert!(pool.objects()[0].sealed);
    log.blocking_write_at(12, b" and more", IO).unwrap();
    drop((pool, log));
    block_on(async {
        let pool = crate::rig::open(&mems).await.unwrap();
        assert!(!pool.objects()[0].sealed);
        assert_eq!(get(&pool, "a.log").await.unwrap(), b"acknowledged and more");
        assert_eq!(found(&scrub(&pool).await), []);
        // Damaged, a single copy is told of as well.
        drop(pool);
        rot(&mems[0]);
        let pool = crate::rig::open(&mems).await.unwrap();
        assert_eq!(found(&scrub(&pool).await), [("s0", &Problem::Damaged, false)]);
    });
}

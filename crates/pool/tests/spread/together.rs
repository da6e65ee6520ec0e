//! Volumes that fail together: any of them that comes back has every acknowledged byte.

use std::time::Duration;

use futures_util::poll;
use policy::placement::{RoundRobin, VolumeId};
use pool::Member;
use pool::spread::{Checksum, Opening, Problem, Spread};
use volume::layer::call::Op as Call;
use volume::layer::fault::{Effect, Rule};
use volume::task::block_on;
use volume::{ErrorKind, Intent, IoBuf, Object, Result, Volume};

use crate::copying::COPY;
use crate::faults::Rig;
use crate::rig::{IO, POOL, get, mems, name, put};

/// Opens the pool with these volumes and two copies of every object.
pub(crate) async fn open(rig: &Rig, which: &[usize]) -> Result<Spread> {
    let members = which.iter().map(|&i| Member::new(format!("s{i}"), rig.faults[i].clone()));
    let opening = Opening::new(RoundRobin::default()).create_if_missing(POOL).copies(2);
    Spread::open(members.collect(), opening.allow_away()).await
}

fn without(gone: VolumeId) -> Vec<usize> {
    (0..3).filter(|&i| i != usize::from(gone.0)).collect()
}

fn fail(rig: &Rig, volume: VolumeId, effect: Effect, op: Option<Call>) {
    let rule = Rule::new(effect).volume(&format!("s{volume}")).named("o*");
    rig.plan.inject(match op {
        Some(op) => rule.on(op),
        None => rule,
    });
}

pub(crate) fn mend(rig: &Rig) {
    rig.plan.clear();
    rig.faults.iter().for_each(|fault| fault.probe());
}

/// A log of two copies with acknowledged bytes, and its volumes.
pub(crate) async fn log(pool: &Spread) -> (std::sync::Arc<dyn Object>, [VolumeId; 2]) {
    let log = pool.create(&name("a.log"), &Intent::LOG).await.unwrap();
    log.write_at(0, IoBuf::from(&b"acknowledged"[..]), IO).await.unwrap();
    log.sync(IO).await.unwrap();
    let copies = pool.stat(&name("a.log")).await.unwrap().copies;
    let on = |at: usize| copies[at].layout.volumes()[0];
    assert_eq!(copies.len(), 2);
    (log, [on(0), on(1)])
}

/// Opens the pool without one of the volumes, then without the other: acknowledged bytes are there.
fn either_has_it(rig: &Rig, on: [VolumeId; 2]) {
    mend(rig);
    for gone in on {
        // Both times with the same bytes.
        let again = Rig::new(crate::rig::copies(&rig.mems));
        block_on(async {
            let pool = open(&again, &without(gone)).await.unwrap();
            let found = get(&pool, "a.log").await.unwrap_or_else(|e| panic!("without {gone}: {e}"));
            assert!(found.starts_with(b"acknowledged"), "without {gone}");
        });
    }
}

const UNAVAILABLE: Effect = Effect::Fail(ErrorKind::Unavailable);

#[test]
fn a_write_that_fails_on_every_copy_keeps_every_copy() {
    for op in [None, Some(Call::Write), Some(Call::Sync)] {
        let rig = Rig::new(mems(3));
        let on = block_on(async {
            let pool = open(&rig, &[0, 1, 2]).await.unwrap();
            let (log, on) = log(&pool).await;
            on.iter().for_each(|&volume| fail(&rig, volume, UNAVAILABLE, op));
            let written = log.write_at(12, IoBuf::from(&b" not"[..]), IO).await;
            assert!(written.is_err() || log.sync(IO).await.is_err());
            assert_eq!(pool.redundancy(&[].into()).doubtful, 1);
            // The third volume makes the current manifest durable.
            pool.flush().await.unwrap();
            put(&pool, "b", b"elsewhere").await.unwrap_or_default();
            pool.flush().await.unwrap();
            on
        });
        either_has_it(&rig, on);
    }
}

/// Two of three volumes are full, and refuse their headers too. The manifest moved to the third alone, whose header was
/// raised before the others refused: the two went on without it, and when it came back its older manifest counted.
#[test]
fn a_move_from_full_volumes_that_fails_leaves_one_manifest() {
    let rig = Rig::new(mems(3));
    block_on(async {
        let pool = open(&rig, &[0, 1, 2]).await.unwrap();
        for text in ["a", "b", "c"] {
            put(&pool, text, b"before").await.unwrap();
        }
        for volume in ["s1", "s2"] {
            rig.plan.inject(Rule::new(Effect::Full).volume(volume));
            rig.plan.inject(Rule::new(UNAVAILABLE).on(Call::Write).volume(volume));
        }
        for text in ["a", "b", "c"] {
            pool.remove(&name(text)).await.unwrap_err();
        }
    });
    mend(&rig);
    block_on(async {
        if let Ok(pool) = open(&rig, &[1, 2]).await {
            put(&pool, "d", b"acknowledged").await.unwrap();
        }
    });
    let found = block_on(async { get(&open(&rig, &[0, 1, 2]).await.unwrap(), "d").await });
    assert_eq!(found.unwrap(), b"acknowledged");
}

#[test]
fn a_write_that_is_given_up_keeps_every_copy() {
    let rig = Rig::new(mems(3));
    let on = block_on(async {
        let pool = open(&rig, &[0, 1, 2]).await.unwrap();
        let (log, on) = log(&pool).await;
        for volume in on {
            fail(&rig, volume, Effect::Slow(Duration::from_secs(1)), Some(Call::Write));
        }
        let mut write = log.write_at(12, IoBuf::from(&b" not"[..]), IO);
        assert!(poll!(&mut write).is_pending());
        drop(write);
        pool.flush().await.unwrap();
        on
    });
    either_has_it(&rig, on);
}

/// The manifest has the length of the log at its first sync. No copy of it answered since the crash when its alignment was
/// tried, so the pool did not know its length, and cut the copies to that of the manifest when they answered again.
#[test]
fn a_log_keeps_its_bytes_when_no_copy_answers_after_a_crash() {
    for closes in [false, true] {
        let rig = Rig::new(mems(3));
        let on = block_on(async {
            let pool = open(&rig, &[0, 1, 2]).await.unwrap();
            let (log, on) = log(&pool).await;
            log.write_at(12, IoBuf::from(&b" twice"[..]), IO).await.unwrap();
            log.sync(IO).await.unwrap();
            on
        });
        let again = Rig::new(crate::rig::copies(&rig.mems));
        block_on(async {
            let pool = open(&again, &[0, 1, 2]).await.unwrap();
            on.iter().for_each(|&volume| fail(&again, volume, UNAVAILABLE, None));
            pool.open(&name("a.log")).await.map(drop).unwrap_err();
            mend(&again);
            if closes {
                pool.close().await.unwrap();
            } else {
                assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
            }
            drop(pool);
            let pool = open(&again, &[0, 1, 2]).await.unwrap();
            assert_eq!(get(&pool, "a.log").await.unwrap(), b"acknowledged twice", "{closes}");
        });
    }
}

/// After a crash of the machine one copy has more bytes. This process could not read it when the log was opened, and at the
/// close the other copy's length became the log's: the next write cut the longer copy to it.
#[test]
fn a_copy_that_is_behind_does_not_make_its_log_shorter() {
    let rig = Rig::new(mems(3));
    let [behind, longer] = block_on(async {
        let pool = open(&rig, &[0, 1, 2]).await.unwrap();
        log(&pool).await.1
    });
    for more in [behind, longer] {
        let again = Rig::new(crate::rig::copies(&rig.mems));
        block_on(async {
            let mem = &again.mems[usize::from(more.0)];
            let leaves = mem.list().await.unwrap();
            let leaf = leaves.iter().find(|leaf| leaf.len == 12).expect("the log's").name.clone();
            let leaf = mem.open(&leaf).await.unwrap();
            leaf.write_at(12, IoBuf::from(&b" twice"[..]), IO).await.unwrap();
            leaf.sync(IO).await.unwrap();
            let pool = open(&again, &[0, 1, 2]).await.unwrap();
            fail(&again, more, Effect::Fail(ErrorKind::Busy), Some(Call::Read));
            drop(pool.open(&name("a.log")).await.unwrap());
            mend(&again);
            let log = pool.open(&name("a.log")).await.unwrap();
            assert_eq!(log.len(), 18, "{more} has more");
            log.write_at(18, IoBuf::from(&b" more"[..]), IO).await.unwrap();
            assert_eq!(get(&pool, "a.log").await.unwrap(), b"acknowledged twice more");
            let report = pool.check().await.unwrap();
            assert_eq!(report.findings, []);
        });
    }
}

/// Both volumes are dead, but one still accepts a write in memory.
#[test]
fn a_copy_goes_only_when_another_is_durable() {
    for first in 0..2 {
        let rig = Rig::new(mems(3));
        let on = block_on(async {
            let pool = open(&rig, &[0, 1, 2]).await.unwrap();
            let (log, on) = log(&pool).await;
            fail(&rig, on[first], UNAVAILABLE, Some(Call::Sync));
            fail(&rig, on[1 - first], UNAVAILABLE, Some(Call::Write));
            log.write_at(12, IoBuf::from(&b" not"[..]), IO).await.unwrap_err();
            pool.flush().await.unwrap();
            on
        });
        either_has_it(&rig, on);
    }
}

#[test]
fn a_copy_that_fails_alone_goes_and_copies_that_failed_together_are_made_the_same() {
    let rig = Rig::new(mems(3));
    block_on(async {
        let pool = open(&rig, &[0, 1, 2]).await.unwrap();
        let (log, on) = log(&pool).await;
        let short = Effect::FailAfter(ErrorKind::Io);
        fail(&rig, on[0], short, Some(Call::Write));
        fail(&rig, on[1], UNAVAILABLE, Some(Call::Write));
        log.write_at(12, IoBuf::from(&b" garbage"[..]), IO).await.unwrap_err();
        mend(&rig);
        log.write_at(12, IoBuf::from(&b" more"[..]), IO).await.unwrap();
        log.sync(IO).await.unwrap();
        assert_eq!(pool.redundancy(&[].into()).doubtful, 0);
        assert_eq!(pool.stat(&name("a.log")).await.unwrap().copies.len(), 2);
        pool.close().await.unwrap();
        for gone in on {
            let again = Rig::new(crate::rig::copies(&rig.mems));
            let pool = open(&again, &without(gone)).await.unwrap();
            assert_eq!(get(&pool, "a.log").await.unwrap(), b"acknowledged more");
        }
        // When only one copy fails, it is dropped.
        fail(&rig, on[1], UNAVAILABLE, None);
        log.write_at(17, IoBuf::from(&b"!"[..]), IO).await.unwrap();
        log.sync(IO).await.unwrap();
        assert_eq!(pool.stat(&name("a.log")).await.unwrap().copies.len(), 1);
    });
}

/// The first copy of a log may have bytes of a write that failed; so may those that are made of it, or not.
#[test]
fn a_single_copy_whose_write_failed_is_made_like_those_made_of_it_before_the_next_write() {
    for blocks in [false, true] {
        let rig = Rig::new(mems(3));
        let (pool, log) = block_on(async {
            let pool = open(&rig, &[0, 1, 2]).await.unwrap();
            let (log, on) = log(&pool).await;
            let id = pool.stat(&name("a.log")).await.unwrap().id;
            pool.drop_copy(id, on[1]).await.unwrap();
            fail(&rig, on[0], Effect::FailAfter(ErrorKind::Io), Some(Call::Write));
            (pool, log)
        });
        let written = match blocks {
            true => log.blocking_write_at(12, b" garbage", IO),
            false => block_on(log.write_at(12, IoBuf::from(&b" garbage"[..]), IO)),
        };
        written.unwrap_err();
        mend(&rig);
        block_on(async {
            assert_eq!(pool.redundancy(&[].into()).doubtful, 0, "it is alone");
            pool.repair(COPY, |_| ()).await.unwrap();
            assert_eq!(pool.redundancy(&[].into()).doubtful, 1);
            log.write_at(12, IoBuf::from(&b"!"[..]), IO).await.unwrap();
            assert_eq!(pool.redundancy(&[].into()).doubtful, 0);
            assert_eq!(log.len(), 13);
            log.sync(IO).await.unwrap();
            assert_eq!(pool.stat(&name("a.log")).await.unwrap().copies.len(), 2);
        });
        for gone in 0..3 {
            let again = Rig::new(crate::rig::copies(&rig.mems));
            block_on(async {
                let pool = open(&again, &without(VolumeId(gone))).await.unwrap();
                assert_eq!(get(&pool, "a.log").await.unwrap(), b"acknowledged!");
            });
        }
    }
}

/// A write behind a gap made bytes of a failed write a part of the first copy; in the other the gap was zeros.
#[test]
fn a_gap_is_zeros_in_a_copy_whose_write_failed_and_in_those_made_of_it() {
    let rig = Rig::new(mems(3));
    block_on(async {
        let pool = open(&rig, &[0, 1, 2]).await.unwrap();
        let data = pool.create(&name("data"), &Intent::DATA).await.unwrap();
        data.write_at(0, IoBuf::from(&b"before"[..]), IO).await.unwrap();
        data.sync(IO).await.unwrap();
        let stat = pool.stat(&name("data")).await.unwrap();
        pool.drop_copy(stat.id, stat.copies[1].layout.volumes()[0]).await.unwrap();
        let on = stat.copies[0].layout.volumes()[0];
        fail(&rig, on, Effect::FailAfter(ErrorKind::Io), Some(Call::Write));
        data.write_at(6, IoBuf::from(&b" garbage"[..]), IO).await.unwrap_err();
        mend(&rig);
        pool.repair(COPY, |_| ()).await.unwrap();
        data.write_at(9, IoBuf::from(&b"after"[..]), IO).await.unwrap();
        data.sync(IO).await.unwrap();
        assert_eq!(pool.stat(&name("data")).await.unwrap().copies.len(), 2);
    });
    for gone in 0..3 {
        let again = Rig::new(crate::rig::copies(&rig.mems));
        block_on(async {
            let pool = open(&again, &without(VolumeId(gone))).await.unwrap();
            assert_eq!(get(&pool, "data").await.unwrap(), b"before\0\0\0after");
        });
    }
}

/// After a clean close copies are not compared, so a pool with copies in doubt does not close cleanly.
#[test]
fn an_end_with_copies_in_doubt_is_no_clean_one() {
    let rig = Rig::new(mems(3));
    block_on(async {
        let pool = open(&rig, &[0, 1, 2]).await.unwrap();
        let (log, on) = log(&pool).await;
        fail(&rig, on[0], Effect::FailAfter(ErrorKind::Io), Some(Call::Write));
        fail(&rig, on[1], UNAVAILABLE, Some(Call::Write));
        log.write_at(12, IoBuf::from(&b" tail"[..]), IO).await.unwrap_err();
        on.iter().for_each(|&volume| fail(&rig, volume, UNAVAILABLE, None));
        pool.close().await.unwrap();
        drop((log, pool));
        mend(&rig);
        let pool = open(&rig, &[0, 1, 2]).await.unwrap();
        let len = pool.stat(&name("a.log")).await.unwrap().len;
        let leaf = |volume: VolumeId| {
            let image = rig.mems[usize::from(volume.0)].image();
            image
                .into_iter()
                .find(|(name, _)| name.as_str().ends_with(".log") && name.as_str().starts_with('o'))
        };
        let (first, second) = (leaf(on[0]).unwrap().1, leaf(on[1]).unwrap().1);
        assert_eq!(first, second);
        assert_eq!(first.len() as u64, len);
    });
}

/// Two of the three volumes that hold the manifest fail at one moment. If they come back alone, they must not
/// serve a stale state.
#[test]
fn without_most_of_its_manifest_a_pool_is_read_only_and_never_goes_two_ways() {
    let rig = Rig::new(mems(3));
    block_on(async {
        let pool = open(&rig, &[0, 1, 2]).await.unwrap();
        put(&pool, "a", b"bytes").await.unwrap();
        for volume in ["s0", "s1"] {
            rig.plan.inject(Rule::new(UNAVAILABLE).volume(volume));
        }
        for round in 0..3 {
            let refused = put(&pool, &format!("b{round}"), b"more").await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        }
        drop(pool);
        mend(&rig);
        assert!(open(&rig, &[2]).await.is_err());
        let pool = open(&rig, &[0, 1]).await.unwrap();
        put(&pool, "c", b"went on").await.unwrap();
        drop(pool);
        assert!(open(&rig, &[2]).await.is_err());
        let pool = open(&rig, &[0, 1, 2]).await.unwrap();
        assert_eq!(get(&pool, "c").await.unwrap(), b"went on");
        assert_eq!(get(&pool, "a").await.unwrap(), b"bytes");
    });
}

/// Only the manifest is read-only: reads go on, and so do writes to logs whose volumes answer.
#[test]
fn two_of_three_volumes_that_fail_at_once_leave_reads_and_one_that_is_back_lets_all_go_on() {
    for back in ["s0", "s1"] {
        let rig = Rig::new(mems(3));
        block_on(async {
            let members = rig.faults.iter().enumerate();
            let members = members.map(|(i, fault)| Member::new(format!("s{i}"), fault.clone()));
            let opening = Opening::new(RoundRobin::default()).create_if_missing(POOL);
            let pool = Spread::open(members.collect(), opening).await.unwrap();
            for i in 0..6u8 {
                put(&pool, &format!("t{i}"), &[i; 100]).await.unwrap();
            }
            let mut logs = Vec::new();
            for i in 0..3 {
                let log = pool.create(&name(&format!("{i}.log")), &Intent::LOG).await.unwrap();
                log.sync(IO).await.unwrap();
                let on = pool.stat(&name(&format!("{i}.log"))).await.unwrap().layout;
                logs.push((on.volumes()[0].0, log));
            }
            let away = ["s0", "s1"]
                .map(|volume| (volume, rig.plan.inject(Rule::new(UNAVAILABLE).volume(volume))));
            for i in 0..6u8 {
                let stat = pool.stat(&name(&format!("t{i}"))).await.unwrap();
                let read = get(&pool, &format!("t{i}")).await;
                match stat.layout.volumes()[0].0 {
                    2 => assert_eq!(read.unwrap(), [i; 100]),
                    _ => assert_eq!(read.unwrap_err().kind(), ErrorKind::Unavailable),
                }
            }
            assert!(logs.iter().any(|(volume, _)| *volume == 2));
            for (volume, log) in &logs {
                let written = log.write_at(0, IoBuf::from(&b"bytes"[..]), IO).await;
                match volume {
                    2 => {
                        written.unwrap();
                        log.sync(IO).await.unwrap();
                    }
                    _ => assert_eq!(written.unwrap_err().kind(), ErrorKind::Unavailable),
                }
            }
            let mut refused = vec![put(&pool, "new", b"bytes").await.unwrap_err()];
            refused.push(pool.remove(&name("t0")).await.unwrap_err());
            refused.extend(pool.create(&name("a.log"), &Intent::LOG).await.err());
            assert_eq!(refused.len(), 3);
            for e in &refused {
                assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
            }
            let why = refused[1].to_string();
            assert!(why.contains("more than half of the volumes that keep the manifest"), "{why}");
            let lifted = away.iter().filter(|(volume, _)| *volume == back);
            lifted.for_each(|(_, rule)| rig.plan.lift(*rule));
            // A failed write may be there or not.
            put(&pool, "next", b"bytes").await.unwrap();
            assert_eq!(get(&pool, "next").await.unwrap(), b"bytes");
            drop(pool);
            mend(&rig);
            let pool = rig.open().await.unwrap();
            assert_eq!(get(&pool, "next").await.unwrap(), b"bytes");
            for i in 0..6u8 {
                assert_eq!(get(&pool, &format!("t{i}")).await.unwrap(), [i; 100]);
            }
        });
    }
}

#[test]
fn a_pool_that_lost_most_of_its_manifest_goes_on_when_one_is_back() {
    let rig = Rig::new(mems(5));
    block_on(async {
        let pool = open(&rig, &[0, 1, 2, 3, 4]).await.unwrap();
        let away: Vec<_> = ["s0", "s1"]
            .iter()
            .map(|volume| rig.plan.inject(Rule::new(UNAVAILABLE).volume(volume)))
            .collect();
        put(&pool, "a", b"bytes").await.unwrap_err();
        rig.plan.lift(away[1]);
        put(&pool, "b", b"bytes").await.unwrap();
        drop(pool);
        mend(&rig);
        let pool = open(&rig, &[0, 2, 3, 4]).await.unwrap();
        assert_eq!(get(&pool, "b").await.unwrap(), b"bytes");
    });
}

#[test]
fn the_last_copy_that_answers_is_not_dropped() {
    let rig = Rig::new(mems(3));
    block_on(async {
        let pool = open(&rig, &[0, 1, 2]).await.unwrap();
        put(&pool, "a", b"bytes").await.unwrap();
        let stat = pool.stat(&name("a")).await.unwrap();
        let on: Vec<_> = stat.copies.iter().map(|placed| placed.layout.volumes()[0]).collect();
        fail(&rig, on[1], UNAVAILABLE, None);
        let refused = pool.drop_copy(stat.id, on[0]).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        pool.drop_copy(stat.id, on[1]).await.unwrap();
        assert_eq!(get(&pool, "a").await.unwrap(), b"bytes");
    });
}

/// Many reads that went around one damaged copy once hid the damage of another, and the damage of a removed object
/// was reported for ever.
#[test]
fn damage_of_one_copy_does_not_hide_that_of_another() {
    let rig = Rig::new(mems(3));
    block_on(async {
        let pool = open(&rig, &[0, 1, 2]).await.unwrap();
        put(&pool, "a", b"bytes").await.unwrap();
        put(&pool, "b", b"bytes").await.unwrap();
        let corrupt = async |text: &str, volume: Option<VolumeId>| {
            let id = pool.stat(&name(text)).await.unwrap().id;
            let rule = Rule::new(Effect::Fail(ErrorKind::Corrupt)).on(Call::Read);
            let rule = rule.named(&format!("o{:016x}*", id.0));
            rig.plan.inject(match volume {
                Some(volume) => rule.volume(&format!("s{volume}")),
                None => rule,
            });
        };
        let first = pool.stat(&name("a")).await.unwrap().copies[0].layout.volumes()[0];
        corrupt("a", Some(first)).await;
        for _ in 0..600 {
            assert_eq!(get(&pool, "a").await.unwrap(), b"bytes");
        }
        let damage = pool.damage();
        assert_eq!((damage.found, damage.repaired, damage.left), (1, 1, 0));
        corrupt("b", None).await;
        get(&pool, "b").await.unwrap_err();
        let damage = pool.damage();
        assert_eq!((damage.found, damage.repaired, damage.left), (3, 1, 2));
        pool.remove(&name("b")).await.unwrap();
        assert_eq!(pool.damage().left, 0);
    });
}

#[test]
fn what_was_streamed_is_sealed_and_a_scrub_says_which_copy_is_wrong() {
    let rig = Rig::new(mems(3));
    block_on(async {
        let pool = open(&rig, &[0, 1, 2]).await.unwrap();
        let table = pool.create(&name("t.sst"), &Intent::DATA).await.unwrap();
        table.write_at(0, IoBuf::from(&b"pieces of "[..]), IO).await.unwrap();
        let mut checksum = Checksum::default();
        checksum.update(b"pieces of ");
        checksum.update(b"a table");
        assert_eq!(
            pool.seal(&name("t.sst"), &checksum).await.unwrap_err().kind(),
            ErrorKind::Invalid
        );
        table.write_at(10, IoBuf::from(&b"a table"[..]), IO).await.unwrap();
        table.sync(IO).await.unwrap();
        pool.seal(&name("t.sst"), &checksum).await.unwrap();
        let refused = table.write_at(0, IoBuf::from(&b"x"[..]), IO).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
        let stat = pool.stat(&name("t.sst")).await.unwrap();
        let bad = &stat.copies[1];
        let volume = usize::from(bad.layout.volumes()[0].0);
        let leaf = rig.mems[volume].image().into_keys();
        let number = format!("{:016x}", bad.number);
        let leaf = leaf.into_iter().find(|leaf| leaf.as_str().contains(&number)).unwrap();
        rig.mems[volume].damage(&leaf, 3, |byte| *byte ^= 1);
        drop((table, pool));
        let pool = open(&rig, &[0, 1, 2]).await.unwrap();
        let report = pool.scrub(|_| ()).await.unwrap();
        let found: Vec<_> = report.findings.iter().map(|f| (&*f.volume, &f.problem)).collect();
        assert_eq!(found, [(&*format!("s{volume}"), &Problem::Damaged)]);
        assert_eq!(pool.damage().found, 1);
        assert_eq!(pool.damage().left, 1);
        // Counted once for each copy.
        pool.scrub(|_| ()).await.unwrap();
        assert_eq!(pool.damage().found, 1);
        let object = pool.open_handle(&name("t.sst")).await.unwrap();
        assert_eq!(pool.distrust(&object, IO).await, 1);
        let damage = pool.damage();
        assert_eq!((damage.repaired, damage.left), (1, 0));
    });
}

//! Errors of one copy: those of this process say nothing about it, and those of its device make the pool replace it.

use policy::placement::VolumeId;
use pool::spread::{Problem, Spread};
use volume::layer::call::Op as Call;
use volume::layer::fault::{Effect, Rule};
use volume::task::block_on;
use volume::{ErrorKind, IoBuf};

use crate::faults::Rig;
use crate::rig::{IO, get, mems, name, put};
use crate::together::{log, mend, open};

/// The volumes of the copies of an object.
async fn places(pool: &Spread, text: &str) -> Vec<VolumeId> {
    let copies = pool.stat(&name(text)).await.unwrap().copies;
    copies.iter().map(|placed| placed.layout.volumes()[0]).collect()
}

/// Makes calls on the objects of one volume fail.
fn fail(rig: &Rig, volume: VolumeId, kind: ErrorKind, op: Option<Call>) {
    let rule = Rule::new(Effect::Fail(kind)).volume(&format!("s{volume}")).named("o*");
    rig.plan.inject(match op {
        Some(op) => rule.on(op),
        None => rule,
    });
}

/// With too many files open, or without the right to one volume, good copies were once dropped.
#[test]
fn what_the_process_lacks_drops_no_copy_and_another_answers() {
    for op in [None, Some(Call::Open), Some(Call::Read)] {
        let rig = Rig::new(mems(3));
        block_on(async {
            let pool = open(&rig, &[0, 1, 2]).await.unwrap();
            put(&pool, "a.sst", b"bytes").await.unwrap();
            drop(pool);
            let pool = open(&rig, &[0, 1, 2]).await.unwrap();
            let on = places(&pool, "a.sst").await;
            fail(&rig, on[0], ErrorKind::Busy, op);
            for _ in 0..20 {
                assert_eq!(get(&pool, "a.sst").await.unwrap(), b"bytes");
            }
            let object = pool.open_handle(&name("a.sst")).await.unwrap();
            assert_eq!(pool.distrust(&object, IO).await, 0);
            let report = pool.scrub(|_| ()).await.unwrap();
            let problems: Vec<_> = report.findings.iter().map(|found| &found.problem).collect();
            assert!(matches!(problems[..], [Problem::Unread(_)]), "{problems:?}");
            assert_eq!(pool.mend(&report).await.unwrap(), 0);
            assert_eq!(pool.damage().found, 0);
            assert_eq!(places(&pool, "a.sst").await, on);
            // Until now the pool has the other copy open.
            drop((object, pool));
            let pool = open(&rig, &[0, 1, 2]).await.unwrap();
            fail(&rig, on[1], ErrorKind::Busy, op);
            assert_eq!(get(&pool, "a.sst").await.unwrap_err().kind(), ErrorKind::Busy);
        });
    }
}

/// A copy that the process cannot write stays: the write fails, and the copies are alike before the next.
#[test]
fn a_write_that_the_process_cannot_make_on_one_copy_keeps_both() {
    for op in [Call::Write, Call::Sync] {
        let rig = Rig::new(mems(3));
        block_on(async {
            let pool = open(&rig, &[0, 1, 2]).await.unwrap();
            let (log, on) = log(&pool).await;
            fail(&rig, on[1], ErrorKind::Busy, Some(op));
            for _ in 0..2 {
                let written = log.write_at(12, IoBuf::from(&b" and more"[..]), IO).await;
                let (expected, done) = match op {
                    Call::Write => (ErrorKind::Unavailable, written),
                    _ => (ErrorKind::Busy, log.sync(IO).await),
                };
                // The second attempt to write fails before it changes a byte.
                let kind = done.unwrap_err().kind();
                assert!(kind == expected || kind == ErrorKind::Busy, "{kind:?}");
                assert_eq!(places(&pool, "a.log").await, on);
            }
            mend(&rig);
            log.write_at(12, IoBuf::from(&b" and more"[..]), IO).await.unwrap();
            log.sync(IO).await.unwrap();
            assert_eq!(places(&pool, "a.log").await, on);
            assert_eq!(get(&pool, "a.log").await.unwrap(), b"acknowledged and more");
            assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
        });
    }
}

#[test]
fn a_write_that_no_copy_could_begin_changed_nothing() {
    let rig = Rig::new(mems(3));
    block_on(async {
        let pool = open(&rig, &[0, 1, 2]).await.unwrap();
        let (log, on) = log(&pool).await;
        on.iter().for_each(|&volume| fail(&rig, volume, ErrorKind::Busy, Some(Call::Write)));
        let written = log.write_at(12, IoBuf::from(&b" not"[..]), IO).await;
        assert_eq!(written.unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(pool.redundancy(&[].into()).doubtful, 0);
        assert_eq!(get(&pool, "a.log").await.unwrap(), b"acknowledged");
    });
}

#[test]
fn an_object_is_created_on_another_volume_if_the_process_may_not_use_one() {
    let rig = Rig::new(mems(3));
    block_on(async {
        let pool = open(&rig, &[0, 1, 2]).await.unwrap();
        fail(&rig, VolumeId(0), ErrorKind::Busy, Some(Call::Create));
        for i in 0..6 {
            put(&pool, &format!("t{i}"), b"bytes").await.unwrap();
            assert!(!places(&pool, &format!("t{i}")).await.contains(&VolumeId(0)));
        }
    });
}

/// A copy with a bad sector was once neither counted nor replaced.
#[test]
fn a_copy_that_the_device_cannot_read_is_damaged_and_goes() {
    let rig = Rig::new(mems(3));
    block_on(async {
        let pool = open(&rig, &[0, 1, 2]).await.unwrap();
        put(&pool, "a.sst", b"bytes").await.unwrap();
        let on = places(&pool, "a.sst").await;
        fail(&rig, on[0], ErrorKind::Io, Some(Call::Read));
        let report = pool.scrub(|_| ()).await.unwrap();
        let problems: Vec<_> = report.findings.iter().map(|found| &found.problem).collect();
        assert!(matches!(problems[..], [Problem::Unreadable(_)]), "{problems:?}");
        assert!(report.findings.iter().all(|found| found.elsewhere));
        let damage = pool.damage();
        assert_eq!((damage.found, damage.left), (1, 1));
        assert_eq!(get(&pool, "a.sst").await.unwrap(), b"bytes");
        assert_eq!(pool.mend(&report).await.unwrap(), 1);
        assert_eq!(places(&pool, "a.sst").await, [on[1]]);
        assert_eq!(pool.damage().left, 0);
        pool.repair(IO, |_| ()).await.unwrap();
        assert_eq!(places(&pool, "a.sst").await.len(), 2);
    });
}

//! Volumes without space whose file system reports it late: in a sync, in an overwrite, or for lack of inodes.
//! Nothing acknowledged is lost, and service resumes with free space.

use std::sync::Arc;

use policy::placement::{RoundRobin, VolumeId};
use policy::purpose::{Origin, Step};
use pool::Member;
use pool::spread::{Opening, Spread};
use volume::layer::call::Op as Call;
use volume::layer::fault::{Effect, Rule};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{ErrorKind, Intent, Io, IoBuf, Object, Volume};

use crate::faults::Rig;
use crate::rig::{IO, POOL, get, members, mems, name, put};
use crate::together::mend;

const COPY: Io = Io::new(Origin::Copy, Step::Data);

/// The errors of a sync without space: a directory poisons the object, because the kernel does not report which
/// pages were written; other volumes return `OutOfSpace`.
const NO_ROOM: [ErrorKind; 2] = [ErrorKind::Poisoned, ErrorKind::OutOfSpace];

async fn open(rig: &Rig, copies: usize) -> Spread {
    let members = rig.faults.iter().enumerate();
    let members = members.map(|(i, fault)| Member::new(format!("s{i}"), fault.clone()));
    let opening = Opening::new(RoundRobin::default()).create_if_missing(POOL).copies(copies);
    Spread::open(members.collect(), opening).await.unwrap()
}

/// A log with acknowledged bytes, and its volumes.
async fn log(pool: &Spread) -> (Arc<dyn Object>, Vec<VolumeId>) {
    let log = pool.create(&name("a.log"), &Intent::LOG).await.unwrap();
    log.write_at(0, IoBuf::from(&b"acknowledged"[..]), IO).await.unwrap();
    log.sync(IO).await.unwrap();
    let copies = pool.stat(&name("a.log")).await.unwrap().copies;
    (log, copies.iter().map(|placed| placed.layout.volumes()[0]).collect())
}

fn refuse(rig: &Rig, volumes: &[VolumeId], kind: ErrorKind, op: Call) {
    for volume in volumes {
        let rule = Rule::new(Effect::Fail(kind)).on(op).named("o*");
        rig.plan.inject(rule.volume(&format!("s{volume}")));
    }
}

/// Checks that acknowledged bytes are there, now and after another opening.
async fn keeps(rig: &Rig, pool: Spread, copies: usize, wanted: &[u8]) {
    let has_next = pool.contains(&name("b.log"));
    let all_is_there = async |pool: &Spread| {
        assert!(get(pool, "a.log").await.unwrap().starts_with(wanted));
        if has_next {
            assert!(get(pool, "b.log").await.unwrap().starts_with(b"next"));
        }
    };
    all_is_there(&pool).await;
    drop(pool);
    mend(rig);
    let pool = open(rig, copies).await;
    all_is_there(&pool).await;
    assert_eq!(pool.check().await.unwrap().findings, []);
}

/// Their bytes went with the next sync of the manifest, which came with the next object, for which they left no room: after failed
/// compactions a key-value store stayed full for good.
#[test]
fn objects_that_were_removed_without_a_wait_leave_their_room_to_the_next_one() {
    const LEN: usize = 512 << 10;
    let volumes: Vec<_> =
        ["a", "b"].map(|label| Mem::with_capacity(label, 3 * LEN as u64 / 2)).into();
    block_on(async {
        let opening = Opening::new(RoundRobin::default()).create_if_missing(POOL).copies(2);
        let pool = Spread::open(members(&volumes), opening).await.unwrap();
        let full = vec![1; LEN];
        for round in 0..4 {
            let last = name(&format!("t{round}"));
            match round % 2 {
                0 => put(&pool, last.as_str(), &full).await.unwrap(),
                _ => {
                    let intent = Intent { len: Some(LEN as u64), ..Intent::DATA };
                    let object = pool.create(&last, &intent).await.unwrap();
                    object.write_at(0, IoBuf::from(&full[..]), IO).await.unwrap();
                    object.sync(IO).await.unwrap();
                }
            }
            assert!(pool.room().await.writable < LEN as u64);
            pool.remove_soon(&last).await.unwrap();
        }
        assert!(pool.free_removed().await, "the last one's");
        assert!(pool.room().await.writable > LEN as u64);
        assert!(!pool.free_removed().await, "nothing is left");
    });
}

/// The key-value store failed such reads for lack of space.
#[test]
fn a_bad_copy_is_passed_over_while_no_volume_takes_the_manifest() {
    for bad in 0..2 {
        let rig = Rig::new(mems(3));
        block_on(async {
            let pool = open(&rig, 2).await;
            put(&pool, "t", &[7; 10_000]).await.unwrap();
            let table = pool.open_handle(&name("t")).await.unwrap();
            let on = pool.stat(&name("t")).await.unwrap().copies[bad].layout.volumes()[0];
            let mem = &rig.mems[usize::from(on.0)];
            let leaf = mem.image().into_keys().find(|leaf| leaf.as_str().starts_with('o'));
            mem.damage(&leaf.unwrap(), 5000, |byte| *byte ^= 1);
            let full = Rule::new(Effect::Fail(ErrorKind::OutOfSpace));
            rig.plan.inject(full.named("manifest*"));
            assert!(put(&pool, "u", b"refused").await.is_err());
            assert_eq!(pool.distrust(&table, IO).await, 1);
            for _ in 0..10 {
                assert_eq!(get(&pool, "t").await.unwrap(), [7; 10_000]);
            }
            assert_eq!(pool.stat(&name("t")).await.unwrap().copies.len(), 2);
            mend(&rig);
            pool.distrust(&table, IO).await;
            assert_eq!(pool.stat(&name("t")).await.unwrap().copies.len(), 1);
            assert_eq!(get(&pool, "t").await.unwrap(), [7; 10_000]);
        });
    }
}

#[test]
fn no_room_in_the_sync_of_one_of_two_copies_costs_the_copy_and_nothing_else() {
    for kind in NO_ROOM {
        for full in 0..2 {
            let rig = Rig::new(mems(3));
            block_on(async {
                let pool = open(&rig, 2).await;
                let (log, on) = log(&pool).await;
                refuse(&rig, &on[full..=full], kind, Call::Sync);
                log.write_at(12, IoBuf::from(&b" too"[..]), IO).await.unwrap();
                log.sync(IO).await.unwrap();
                let left = pool.stat(&name("a.log")).await.unwrap().copies;
                assert_eq!(left.len(), 1);
                assert_eq!(left[0].layout.volumes(), &on[1 - full..2 - full]);
                put(&pool, "t", b"elsewhere").await.unwrap();
                mend(&rig);
                pool.repair(COPY, |_| ()).await.unwrap();
                assert_eq!(pool.redundancy(&[].into()).short, 0);
                drop(log);
                keeps(&rig, pool, 2, b"acknowledged too").await;
            });
        }
    }
}

#[test]
fn no_room_in_the_sync_of_every_copy_fails_the_sync_and_loses_nothing_acknowledged() {
    for (kind, copies) in NO_ROOM.into_iter().flat_map(|kind| [(kind, 1), (kind, 2)]) {
        let rig = Rig::new(mems(3));
        block_on(async {
            let pool = open(&rig, copies).await;
            let (log, on) = log(&pool).await;
            assert_eq!(on.len(), copies);
            refuse(&rig, &on, kind, Call::Sync);
            log.write_at(12, IoBuf::from(&b" not"[..]), IO).await.unwrap();
            assert_eq!(log.sync(IO).await.unwrap_err().kind(), kind);
            assert!(get(&pool, "a.log").await.unwrap().starts_with(b"acknowledged"));
            assert_eq!(pool.stat(&name("a.log")).await.unwrap().copies.len(), copies);
            // New objects go to volumes with space.
            mend(&rig);
            let next = pool.create(&name("b.log"), &Intent::LOG).await.unwrap();
            next.write_at(0, IoBuf::from(&b"next"[..]), IO).await.unwrap();
            next.sync(IO).await.unwrap();
            let mut acknowledged = &b"acknowledged"[..];
            match log.write_at(12, IoBuf::from(&b" now"[..]), IO).await {
                Ok(()) => {
                    log.sync(IO).await.unwrap();
                    acknowledged = b"acknowledged now";
                }
                // After a failed sync the state of the object is unknown until it is reopened.
                Err(e) => assert_eq!((e.kind(), kind), (ErrorKind::Poisoned, ErrorKind::Poisoned)),
            }
            drop((log, next));
            keeps(&rig, pool, copies, acknowledged).await;
        });
    }
}

/// A thin volume, or a snapshot: an overwrite needs space.
#[test]
fn no_room_for_an_overwrite_loses_nothing_acknowledged() {
    for (copies, full) in [(1, 1), (2, 1), (2, 2)] {
        let rig = Rig::new(mems(3));
        block_on(async {
            let pool = open(&rig, copies).await;
            let (log, on) = log(&pool).await;
            refuse(&rig, &on[..full], ErrorKind::OutOfSpace, Call::Write);
            let over = log.write_at(0, IoBuf::from(&b"ACKNOWLEDGED"[..]), IO).await;
            if full < copies {
                over.unwrap();
                log.sync(IO).await.unwrap();
                assert_eq!(get(&pool, "a.log").await.unwrap(), b"ACKNOWLEDGED");
            } else {
                assert_eq!(over.unwrap_err().kind(), ErrorKind::OutOfSpace);
                assert_eq!(get(&pool, "a.log").await.unwrap(), b"acknowledged");
            }
            mend(&rig);
            log.write_at(0, IoBuf::from(&b"Acknowledged"[..]), IO).await.unwrap();
            log.sync(IO).await.unwrap();
            drop(log);
            keeps(&rig, pool, copies, b"Acknowledged").await;
        });
    }
}

/// The volume has and reports space, but cannot create files.
#[test]
fn a_volume_without_inodes_is_passed_over_until_it_has_some() {
    for copies in [1, 2] {
        let rig = Rig::new(mems(3));
        block_on(async {
            let pool = open(&rig, copies).await;
            let (log, _) = log(&pool).await;
            refuse(&rig, &[VolumeId(1)], ErrorKind::OutOfSpace, Call::Create);
            for i in 0..6u8 {
                put(&pool, &format!("t{i}"), &[i; 100]).await.unwrap();
                let copies_now = pool.stat(&name(&format!("t{i}"))).await.unwrap().copies;
                assert_eq!(copies_now.len(), copies);
                assert!(copies_now.iter().all(|copy| copy.layout.volumes() != [VolumeId(1)]));
            }
            // Existing objects can be written.
            log.write_at(12, IoBuf::from(&b" too"[..]), IO).await.unwrap();
            log.sync(IO).await.unwrap();
            refuse(&rig, &[VolumeId(0), VolumeId(2)], ErrorKind::OutOfSpace, Call::Create);
            let refused = put(&pool, "none", b"bytes").await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::OutOfSpace, "{refused}");
            pool.remove(&name("t0")).await.unwrap();
            rig.plan.clear();
            for i in 6..12u8 {
                put(&pool, &format!("t{i}"), &[i; 100]).await.unwrap();
            }
            let stats = pool.objects();
            let on = stats.iter().flat_map(|stat| &stat.copies).map(|copy| &copy.layout);
            assert!(on.into_iter().any(|layout| layout.volumes() == [VolumeId(1)]));
            for i in 1..12u8 {
                assert_eq!(get(&pool, &format!("t{i}")).await.unwrap(), [i; 100]);
            }
            drop(log);
            keeps(&rig, pool, copies, b"acknowledged too").await;
        });
    }
}

/// With two volumes and two copies there is no other volume: one copy is enough for now.
#[test]
fn without_inodes_on_one_of_two_volumes_objects_have_one_copy_for_now() {
    let rig = Rig::new(mems(2));
    block_on(async {
        let pool = open(&rig, 2).await;
        refuse(&rig, &[VolumeId(1)], ErrorKind::OutOfSpace, Call::Create);
        let (log, on) = log(&pool).await;
        assert_eq!(on, [VolumeId(0)]);
        put(&pool, "t", b"bytes").await.unwrap();
        assert_eq!(pool.redundancy(&[].into()).short, 2);
        rig.plan.clear();
        pool.repair(COPY, |_| ()).await.unwrap();
        assert_eq!(pool.redundancy(&[].into()).short, 0);
        drop(log);
        keeps(&rig, pool, 2, b"acknowledged").await;
    });
}

#[test]
fn the_room_says_how_many_volumes_lack_inodes() {
    let rig = Rig::new(mems(3));
    block_on(async {
        let pool = open(&rig, 2).await;
        assert_eq!(pool.room().await.lack_files, 0);
        rig.mems[1..].iter().for_each(|mem| mem.set_lacks_files(true));
        let room = pool.room().await;
        assert_eq!((room.lack_files, room.volumes, room.writable), (2, 3, 0));
        assert!(pool.space().await.unwrap().lacks_files);
    });
}

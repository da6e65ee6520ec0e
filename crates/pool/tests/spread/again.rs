//! Reads that a store repeats after a wrong checksum: from another copy, with a repair of the first. Copies and drops
//! that trust no copy unseen.

use std::sync::Arc;

use policy::placement::{RoundRobin, VolumeId};
use pool::spread::{Damage, Opening, Spread};
use volume::conformance;
use volume::layer::call::Op as Call;
use volume::layer::fault::{Effect, Rule};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Check, ErrorKind, IoBuf, IoBufMut, Name, Object, Result, Volume};

use crate::copying::{COPY, id_of, places};
use crate::faults::Rig;
use crate::rig::{IO, POOL, get, members, mems, name, put};

fn twice() -> Opening {
    Opening::new(RoundRobin::default()).create_if_missing(POOL).copies(2)
}

async fn open(rig: &Rig) -> Spread {
    Spread::open(members(&rig.faults), twice()).await.unwrap()
}

/// The leaf object of an object's copy on a volume.
async fn leaf(pool: &Spread, mem: &Mem, text: &str) -> Name {
    let id = id_of(pool, text).await.to_string();
    let mut leaves = mem.image().into_keys();
    leaves.find(|leaf| leaf.as_str()[1..].starts_with(&id)).unwrap()
}

const BYTES: &[u8] = b"left, middle and right";
/// The range of the middle.
const MIDDLE: std::ops::Range<u64> = 6..12;

fn is_middle() -> Check {
    Arc::new(|bytes| bytes == b"middle")
}

/// Reads the middle again from an object.
async fn again(object: &dyn Object) -> Result<IoBufMut> {
    object.read_again(MIDDLE.start, IoBufMut::zeroed(6), IO, is_middle()).await
}

async fn written(pool: &Spread, text: &str) -> Arc<dyn Object> {
    let intent = conformance::intent(&name(text));
    let object = pool.create(&name(text), &intent).await.unwrap();
    object.write_at(0, IoBuf::from(BYTES), IO).await.unwrap();
    object.sync(IO).await.unwrap();
    object
}

/// Flips a bit at each of these offsets of a copy.
async fn rot(pool: &Spread, mem: &Mem, text: &str, offsets: &[u64]) {
    let leaf = leaf(pool, mem, text).await;
    offsets.iter().for_each(|&offset| mem.damage(&leaf, offset, |byte| *byte ^= 1));
}

async fn bytes_on(pool: &Spread, mem: &Mem, text: &str) -> Vec<u8> {
    mem.image()[&leaf(pool, mem, text).await].clone()
}

#[test]
fn a_range_that_one_copy_lost_is_read_from_the_other_and_written_back() {
    for (text, volume) in [("data", 0), ("data", 1), ("x.log", 0), ("x.log", 1)] {
        let rig = Rig::new(mems(2));
        block_on(async {
            let pool = open(&rig).await;
            let object = written(&pool, text).await;
            // Only bytes that the check accepted are written: the first byte of the copy stays wrong.
            rot(&pool, &rig.mems[volume], text, &[0, 7]).await;
            for _ in 0..3 {
                assert_eq!(again(&*object).await.unwrap()[..], *b"middle");
            }
            let found = bytes_on(&pool, &rig.mems[volume], text).await;
            assert_eq!((found[0], &found[1..]), (BYTES[0] ^ 1, &BYTES[1..]), "{text}");
            assert_eq!(bytes_on(&pool, &rig.mems[1 - volume], text).await, BYTES);
            assert_eq!(pool.damage(), Damage { found: 1, repaired: 1, left: 0 });
        });
    }
}

#[test]
fn bytes_that_no_copy_has_are_corrupt_and_no_copy_is_blamed() {
    let rig = Rig::new(mems(2));
    block_on(async {
        let pool = open(&rig).await;
        let object = written(&pool, "data").await;
        for mem in &rig.mems {
            rot(&pool, mem, "data", &[7]).await;
        }
        let before: Vec<_> = rig.mems.iter().map(Mem::image).collect();
        assert_eq!(again(&*object).await.unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(pool.damage(), Damage::default());
        assert!(rig.mems.iter().map(Mem::image).eq(before));
        // The other copy may have them once its volume is back.
        let away = Rule::new(Effect::Fail(ErrorKind::Unavailable)).volume("s1");
        let away = rig.plan.inject(away);
        assert_eq!(again(&*object).await.unwrap_err().kind(), ErrorKind::Unavailable);
        rig.plan.lift(away);
        // One copy alone is read once more.
        pool.drop_copy(id_of(&pool, "data").await, VolumeId(1)).await.unwrap();
        assert_eq!(again(&*object).await.unwrap_err().kind(), ErrorKind::Corrupt);
        rot(&pool, &rig.mems[0], "data", &[7]).await;
        assert_eq!(again(&*object).await.unwrap()[..], *b"middle");
    });
}

#[test]
fn a_repair_that_fails_leaves_the_copy_and_its_damage_until_the_next_one() {
    for op in [Call::Write, Call::Sync] {
        let rig = Rig::new(mems(2));
        block_on(async {
            let pool = open(&rig).await;
            let object = written(&pool, "data").await;
            rot(&pool, &rig.mems[1], "data", &[7]).await;
            let fails = Rule::new(Effect::Fail(ErrorKind::OutOfSpace)).on(op).volume("s1");
            let fails = rig.plan.inject(fails.named("o*"));
            assert_eq!(again(&*object).await.unwrap()[..], *b"middle");
            assert_eq!(pool.damage(), Damage { found: 1, repaired: 0, left: 1 });
            assert_eq!(places(&pool, "data").await, [0, 1], "it may have other good bytes");
            if op == Call::Sync {
                // The object is poisoned there, and the next write drops the copy.
                return;
            }
            rig.plan.lift(fails);
            assert_eq!(again(&*object).await.unwrap()[..], *b"middle");
            assert_eq!(pool.damage(), Damage { found: 1, repaired: 1, left: 0 });
            assert_eq!(bytes_on(&pool, &rig.mems[1], "data").await, BYTES);
        });
    }
}

/// Copies of logs took over damaged bytes, whichever copy was read.
#[test]
fn a_rotten_copy_of_a_log_is_not_copied() {
    let mut found = 0;
    for wrong in 0..2 {
        let rig = Rig::new(mems(3));
        block_on(async {
            let pool = open(&rig).await;
            let log = written(&pool, "x.log").await;
            assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
            log.write_at(BYTES.len() as u64, IoBuf::from(&b" end"[..]), IO).await.unwrap();
            let on = places(&pool, "x.log").await;
            rot(&pool, &rig.mems[usize::from(on[wrong])], "x.log", &[3]).await;
            let to = (0..3).find(|volume| !on.contains(volume)).unwrap();
            let id = id_of(&pool, "x.log").await;
            // From each copy in turn, as reads are distributed.
            for _ in 0..4 {
                pool.copy(id, VolumeId(to), COPY).await.unwrap();
                let copied = bytes_on(&pool, &rig.mems[usize::from(to)], "x.log").await;
                assert_eq!(copied, [BYTES, b" end"].concat());
                pool.drop_copy(id, VolumeId(to)).await.unwrap();
            }
            found += pool.damage().found;
            rot(&pool, &rig.mems[usize::from(on[1 - wrong])], "x.log", &[3]).await;
            let refused = pool.copy(id, VolumeId(to), COPY).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
            assert_eq!(places(&pool, "x.log").await, on);
        });
    }
    // Whichever copy is read first, it is the rotten one in one of the two runs. Damage counts once.
    assert!((1..=2).contains(&found), "{found} of two rotten copies were found");
}

/// A drain dropped the good copy of an object because the last byte of the rotten one could be read.
#[test]
fn a_drain_does_not_drop_the_last_good_copy() {
    for text in ["table", "x.log"] {
        let rig = Rig::new(mems(2));
        block_on(async {
            let pool = open(&rig).await;
            match text {
                "table" => put(&pool, text, BYTES).await.unwrap(),
                _ => drop(written(&pool, text).await),
            }
            assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
            drop(pool);
            let pool = open(&rig).await;
            rot(&pool, &rig.mems[1], text, &[3]).await;
            let left = pool.drain(VolumeId(0), COPY, |_| ()).await.unwrap();
            let [(left, why)] = &left.objects[..] else { panic!("{text}: {left:?}") };
            assert_eq!(left, &name(text));
            assert!(why.contains("is not what was written"), "{why}");
            assert_eq!(places(&pool, text).await, [0, 1]);
            assert_eq!(pool.damage(), Damage { found: 1, repaired: 0, left: 1 });
            // The damaged copy goes, and the good one is what a new volume gets.
            let handle = pool.open_handle(&name(text)).await.unwrap();
            assert_eq!(pool.distrust(&handle, IO).await, 1);
            assert_eq!(get(&pool, text).await.unwrap(), BYTES);
        });
    }
}

/// The page cache of a dead device answers for a log that never became durable there.
#[test]
fn a_copy_of_a_log_is_dropped_only_if_another_can_be_synced() {
    let rig = Rig::new(mems(2));
    block_on(async {
        let pool = open(&rig).await;
        let log = written(&pool, "x.log").await;
        let id = id_of(&pool, "x.log").await;
        let dead = Rule::new(Effect::Fail(ErrorKind::Io)).on(Call::Sync).volume("s1");
        rig.plan.inject(dead.named("o*"));
        let refused = pool.drop_copy(id, VolumeId(0)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        assert_eq!(places(&pool, "x.log").await, [0, 1]);
        drop(log);
    });
}

/// For each object without all its copies, a repair began to look at all objects anew.
#[test]
fn a_repair_looks_at_each_object_once() {
    const OBJECTS: u64 = 2000;
    let volumes = mems(2);
    block_on(async {
        let pool = Spread::open(members(&volumes[..1]), twice()).await.unwrap();
        for i in 0..OBJECTS {
            put(&pool, &format!("t{i}"), b"bytes").await.unwrap();
        }
        pool.add_volume(pool::Member::new("s1", volumes[1].clone())).await.unwrap();
        assert_eq!(pool.redundancy(&[].into()).short, OBJECTS);
        let repaired = pool.repair(COPY, |_| ()).await.unwrap();
        assert_eq!((repaired.made, repaired.looked_at), (OBJECTS, OBJECTS));
        assert_eq!(pool.redundancy(&[].into()).short, 0);
    });
}

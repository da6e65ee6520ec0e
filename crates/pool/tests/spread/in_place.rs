//! Objects that are overwritten in place: their store says which ranges a crash left in doubt, and only these are aligned.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join;
use policy::units::KIB;
use pool::spread::{Damage, Opening, Spread};
use pool::{Member, PoolId};
use volume::layer::call::Op;
use volume::layer::crash::{Crash, Power};
use volume::layer::fault::{Effect, Rule};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, ErrorKind, Intent, IoBuf, Object, Result, Volume};

use crate::faults;
use crate::jitter::Jitter;
use crate::rig::{IO, members, mems, name, opening, read_all, survivors};
use crate::sealing;

/// More than two pieces, which are aligned one after the other.
const LEN: u64 = 600 * KIB;

fn twice() -> Opening {
    opening("round-robin").copies(2)
}

pub(crate) fn filled(len: u64, byte: u8) -> IoBuf {
    IoBuf::from(&vec![byte; len as usize][..])
}

/// A synced object of ones.
async fn create(pool: &Spread) -> Arc<dyn Object> {
    let object = pool.create(&name("blocks"), &Intent::IN_PLACE).await.unwrap();
    object.set_len(LEN).await.unwrap();
    object.write_at(0, filled(LEN, 1), IO).await.unwrap();
    object.sync(IO).await.unwrap();
    object
}

async fn align(pool: &Spread, offset: u64, len: u64) -> Result<()> {
    pool.open(&name("blocks")).await?.align(offset, len, IO).await
}

async fn read(pool: &Spread) -> Vec<u8> {
    read_all(&*pool.open(&name("blocks")).await.unwrap()).await.unwrap()
}

/// The bytes of the object on each volume that has it.
pub(crate) fn on_volumes(mems: &[Mem]) -> Vec<Vec<u8>> {
    let images = mems.iter().flat_map(|mem| mem.image());
    let leaves = images.filter(|(leaf, _)| leaf.as_str().ends_with(".inp"));
    leaves.map(|(_, bytes)| bytes.to_vec()).collect()
}

pub(crate) fn are_alike(mems: &[Mem]) -> bool {
    on_volumes(mems).into_iter().collect::<BTreeSet<_>>().len() == 1
}

/// Writes behind the back of the pool, as a write does that reached one copy before a crash.
async fn write_below(mem: &Mem, offset: u64, data: IoBuf) {
    let leaf = mem.image().into_keys().find(|leaf| leaf.as_str().ends_with(".inp")).unwrap();
    mem.open(&leaf).await.unwrap().write_at(offset, data, IO).await.unwrap();
}

/// Cuts the power at a write of twos over a range, aligns the range, and cuts the power again at each step of that and
/// after it.
#[test]
fn a_range_in_doubt_is_equal_and_durable_once_it_is_aligned() {
    let (from, len) = (200 * KIB, 300 * KIB);
    let range = from as usize..(from + len) as usize;
    for copies in [2, 3] {
        let mut differed = 0;
        for seed in 0..12 {
            let power = Power::new();
            let crash = |mems: Vec<Mem>, power: &Power| {
                mems.into_iter().map(|mem| Crash::new(mem, power)).collect::<Vec<_>>()
            };
            let survivors = |volumes: &[Crash], seed: u64| {
                volumes.iter().zip(seed..).map(|(volume, seed)| volume.survivor(seed)).collect()
            };
            let open = async |volumes: &[Crash]| {
                let opening = opening("round-robin").copies(copies);
                Spread::open(members(volumes), opening).await.unwrap()
            };
            let volumes = crash(mems(copies), &power);
            block_on(async {
                let object = create(&open(&volumes).await).await;
                power.cut_after(seed % (copies as u64 + 1));
                let _ = object.write_at(from, filled(len, 2), IO).await;
                power.cut();
            });
            let first: Vec<Mem> = survivors(&volumes, 100 * seed);
            differed += u32::from(!are_alike(&first));
            for steps in 0.. {
                let copy = first.iter().map(|mem| Mem::from_image(mem.label(), mem.image()));
                let power = Power::new();
                let volumes = crash(copy.collect(), &power);
                let aligned = block_on(async {
                    let pool = open(&volumes).await;
                    power.cut_after(steps);
                    align(&pool, from, len).await.ok()?;
                    Some(read(&pool).await)
                });
                power.cut();
                let second: Vec<Mem> = survivors(&volumes, 100 * seed + 10 + steps);
                let context = format!("{copies} copies, seed {seed}, cut after {steps} steps");
                if aligned.is_some() {
                    assert!(are_alike(&second), "{context}: it was not durable");
                }
                let power = Power::new();
                let volumes = crash(second, &power);
                let found = block_on(async {
                    let pool = open(&volumes).await;
                    if aligned.is_none() {
                        align(&pool, from, len).await.unwrap();
                    }
                    assert_eq!(pool.stat(&name("blocks")).await.unwrap().copies.len(), copies);
                    read(&pool).await
                });
                for (at, &byte) in found.iter().enumerate() {
                    assert!(byte == 1 || byte == 2 && range.contains(&at), "{context}: at {at}");
                }
                if let Some(aligned) = aligned {
                    assert!(found == aligned, "{context}: what was read changed");
                    break;
                }
            }
        }
        assert!(differed > 3, "the copies differed {differed} times");
    }
}

#[test]
fn an_opening_after_a_crash_and_a_close_read_nothing_of_it() {
    let rig = sealing::Rig::new(2);
    block_on(async {
        drop(create(&rig.open(2).await).await);
        write_below(&rig.mems[1], 0, filled(4 * KIB, 2)).await;
        let pool = rig.open(2).await;
        let object = pool.open(&name("blocks")).await.unwrap();
        object.write_at(LEN - 1, filled(1, 3), IO).await.unwrap();
        object.sync(IO).await.unwrap();
        drop((object, pool));
        let pool = rig.open(2).await;
        pool.close().await.unwrap();
        drop(pool);
        assert_eq!(rig.read(), 0, "by openings, a write and a close");
        let pool = rig.open(2).await;
        align(&pool, 0, 64 * KIB).await.unwrap();
        assert_eq!(rig.read(), 2 * 64 * KIB, "the range of each copy");
        assert!(are_alike(&rig.mems));
        read(&pool).await;
        assert_eq!(rig.read(), 2 * 64 * KIB + LEN, "and what the user reads");
    });
}

/// The copy on the other volume leads or does not.
#[test]
fn a_copy_that_is_away_while_a_range_is_aligned_never_comes_back() {
    for away in 0..2 {
        let volumes = mems(3);
        block_on(async {
            let pool = Spread::open(members(&volumes), twice()).await.unwrap();
            drop(create(&pool).await);
            let stat = pool.stat(&name("blocks")).await.unwrap();
            let holders: Vec<_> =
                stat.copies.iter().map(|copy| usize::from(copy.layout.volumes()[0].0)).collect();
            drop(pool);
            write_below(&volumes[holders[0]], 0, filled(4 * KIB, 2)).await;
            let power = Power::new();
            let crash = volumes.into_iter().map(|mem| Crash::new(mem, &power));
            let volumes: Vec<_> = crash.collect();
            let mut here = members(&volumes);
            here.remove(holders[away]);
            let pool = Spread::open(here, twice().allow_away()).await.unwrap();
            // A range that is not in doubt needs no other copy.
            assert_eq!(read(&pool).await[LEN as usize - 1], 1);
            assert_eq!(pool.stat(&name("blocks")).await.unwrap().copies.len(), 2);
            align(&pool, 0, 4 * KIB).await.unwrap();
            let found = read(&pool).await;
            assert_eq!(found[0], [1, 2][away]);
            // Another crash, and the volume is back.
            power.cut();
            let volumes = survivors(&volumes, away as u64);
            let pool = Spread::open(members(&volumes), twice()).await.unwrap();
            assert_eq!(pool.stat(&name("blocks")).await.unwrap().copies.len(), 1);
            for _ in 0..4 {
                assert!(read(&pool).await == found);
            }
            assert_eq!(on_volumes(&volumes).len(), 1, "the bytes of the other are removed");
        });
    }
}

#[test]
fn damaged_bytes_are_taken_from_another_copy_and_the_copy_stays() {
    for damaged in 0..2 {
        let rig = faults::Rig::new(mems(2));
        block_on(async {
            let pool = Spread::open(members(&rig.faults), twice()).await.unwrap();
            drop(create(&pool).await);
            write_below(&rig.mems[damaged], 0, filled(8 * KIB, 2)).await;
            let label = rig.mems[damaged].label();
            let rule = Rule::new(Effect::Fail(ErrorKind::Io)).on(Op::Read).volume(label);
            rig.plan.inject(rule.named("*.inp").nth(0));
            align(&pool, 0, LEN).await.unwrap();
            assert!(are_alike(&rig.mems));
            assert_eq!(read(&pool).await[0], 1, "the bytes of the other");
            assert_eq!(pool.stat(&name("blocks")).await.unwrap().copies.len(), 2);
            assert_eq!(pool.damage(), Damage { found: 1, repaired: 1, left: 0 });
        });
    }
}

#[test]
fn while_no_copy_answers_or_one_refuses_an_alignment_fails_and_all_stay() {
    use ErrorKind::{Busy, Io, Unavailable};
    for (op, kind, which) in [
        (Op::Read, Unavailable, "s*"),
        (Op::Read, Io, "s*"),
        (Op::Sync, Unavailable, "s*"),
        (Op::Read, Busy, "s0"),
        (Op::Read, Busy, "s1"),
        (Op::Write, Busy, "s1"),
    ] {
        let rig = faults::Rig::new(mems(2));
        block_on(async {
            let pool = Spread::open(members(&rig.faults), twice()).await.unwrap();
            drop(create(&pool).await);
            write_below(&rig.mems[1], 0, filled(8 * KIB, 2)).await;
            for label in ["s0", "s1"].into_iter().filter(|label| which == "s*" || which == *label) {
                rig.plan.inject(Rule::new(Effect::Fail(kind)).on(op).volume(label).named("*.inp"));
            }
            let failed = align(&pool, 0, LEN).await.unwrap_err();
            assert_eq!(failed.kind(), kind, "{op:?} {which}: {failed}");
            assert_eq!(pool.stat(&name("blocks")).await.unwrap().copies.len(), 2);
            rig.plan.clear();
            align(&pool, 0, LEN).await.unwrap();
            assert!(are_alike(&rig.mems), "{op:?} {which}");
            assert_eq!(pool.stat(&name("blocks")).await.unwrap().copies.len(), 2);
        });
    }
}

/// Without an order among them, an alignment could write bytes that it read before over those of a later write, in one of
/// the copies.
#[test]
fn writes_during_an_alignment_reach_all_copies() {
    for seed in 0..40 {
        let (clock, volumes) = (Clock::simulated(), mems(2));
        let slow: Vec<_> = volumes
            .iter()
            .zip(2 * seed..)
            .map(|(mem, seed)| Jitter::new(mem.clone(), &clock, seed))
            .collect();
        clock.run(async {
            let pool = Spread::open(members(&slow), twice()).await.unwrap();
            let object = create(&pool).await;
            write_below(&volumes[1], 0, filled(16 * KIB, 2)).await;
            let write = object.write_at(4 * KIB, filled(4 * KIB, 3), IO);
            let (aligned, written) = join(object.align(0, 16 * KIB, IO), write).await;
            aligned.and(written).unwrap();
            assert!(are_alike(&volumes), "seed {seed}");
            assert_eq!(read(&pool).await[4 * KIB as usize..8 * KIB as usize], [3; 4096]);
        });
    }
}

/// Two copies in each of two pools below.
#[test]
fn the_copies_in_pools_below_are_aligned_too() {
    for differs in 0..4 {
        let volumes = mems(4);
        block_on(async {
            let open = async || {
                let mut pools = Vec::new();
                for (volumes, id) in volumes.chunks(2).zip(2..) {
                    let below = twice().create_if_missing(PoolId(id));
                    let below = Spread::open(members(volumes), below).await.unwrap();
                    pools.push(Member::new(format!("pool {id}"), below));
                }
                Spread::open(pools, twice()).await.unwrap()
            };
            drop(create(&open().await).await);
            assert_eq!(on_volumes(&volumes).len(), 4);
            write_below(&volumes[differs], 0, filled(4 * KIB, 2)).await;
            let pool = open().await;
            assert!(!are_alike(&volumes), "the opening aligns nothing");
            align(&pool, 0, 4 * KIB).await.unwrap();
            assert!(are_alike(&volumes), "copy {differs}");
        });
    }
}

/// It is for objects that are in place: of others the pool knows what to align.
#[test]
fn an_alignment_of_other_objects_reads_nothing_without_a_crash() {
    let rig = sealing::Rig::new(2);
    block_on(async {
        let pool = rig.open(2).await;
        for intent in [Intent::DATA, Intent::LOG] {
            let object = pool.create(&name("other"), &intent).await.unwrap();
            object.write_at(0, filled(10, 1), IO).await.unwrap();
            object.sync(IO).await.unwrap();
            object.align(0, 10, IO).await.unwrap();
            assert_eq!(rig.read(), 0);
            pool.remove(&name("other")).await.unwrap();
        }
    });
}

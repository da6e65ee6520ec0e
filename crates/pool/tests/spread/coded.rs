//! Objects cut into fragments by an erasure code: any two of six volumes may be lost, damaged or slow to come back, and
//! every byte is there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use policy::migrate::{Policy, Terms};
use policy::placement::{Code, Layout, RoundRobin, VolumeId};
use policy::units::KIB;
use pool::Member;
use pool::mover::Mover;
use pool::spread::{Opening, Problem, Spread};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::conformance::{self, Blocking};
use volume::layer::call::Op as Call;
use volume::layer::crash::{Crash, Power};
use volume::layer::deadline::{Deadline, LIMIT};
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, ErrorKind, Intent, IoBufMut, Result, Volume};

use crate::crashes::{run, scenarios, start};
use crate::faults::Rig;
use crate::model::{Model, Op, view};
use crate::rig::{IO, POOL, copies, get, manifests, mems, name, put, read_all, survivors};

/// Four of data, two of parity, strips of a page.
pub(crate) fn code() -> Code {
    Code::new(4, 2, 4 * KIB).unwrap()
}

fn coded() -> Opening {
    Opening::new(RoundRobin::default()).create_if_missing(POOL).code(code()).allow_away()
}

fn without<V: Volume + Clone + 'static>(volumes: &[V], lost: &[usize]) -> Vec<Member> {
    let volumes = volumes.iter().enumerate().filter(|(i, _)| !lost.contains(i));
    volumes.map(|(i, volume)| Member::new(format!("s{i}"), volume.clone())).collect()
}

async fn open<V: Volume + Clone + 'static>(volumes: &[V]) -> Result<Spread> {
    Spread::open(without(volumes, &[]), coded()).await
}

/// Bytes that are nowhere alike.
fn random(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// Every pair of `count` volumes.
fn pairs(count: usize) -> impl Iterator<Item = [usize; 2]> {
    (0..count).flat_map(move |one| (one + 1..count).map(move |other| [one, other]))
}

/// The number and the volume of each fragment, in the order of numbers.
fn fragments(pool: &Spread, text: &str) -> Vec<(u8, VolumeId)> {
    let object = pool.objects().into_iter().find(|object| object.name.as_str() == text).unwrap();
    let fragment = |layout: &Layout| layout.fragment().map(|own| (own.index, own.volume));
    let mut all: Vec<_> =
        object.copies.iter().filter_map(|placed| fragment(&placed.layout)).collect();
    all.sort();
    all
}

fn assert_complete(pool: &Spread, text: &str) {
    let fragments = fragments(pool, text);
    let indexes: Vec<_> = fragments.iter().map(|(index, _)| *index).collect();
    assert_eq!(indexes, [0, 1, 2, 3, 4, 5], "{text}");
    let volumes: BTreeSet<_> = fragments.iter().map(|(_, volume)| *volume).collect();
    assert_eq!(volumes.len(), 6, "{text}: two fragments share a volume");
}

const LENS: [usize; 8] = [4097, 8192, 12_289, 16_384, 16_385, 20_000, 65_536, 100_001];

async fn fill(pool: &Spread) {
    for len in LENS {
        put(pool, &format!("t{len}"), &random(len, len as u64)).await.unwrap();
    }
    put(pool, "short", &random(4096, 1)).await.unwrap();
    let log = pool.create(&name("x.log"), &Intent::LOG).await.unwrap();
    log.write_at(0, random(9000, 2)[..].into(), IO).await.unwrap();
    log.sync(IO).await.unwrap();
}

async fn assert_filled(pool: &Spread, context: &str) {
    for len in LENS {
        let read = get(pool, &format!("t{len}")).await;
        let read = read.unwrap_or_else(|e| panic!("{context}: {len}: {e}"));
        assert!(read == random(len, len as u64), "{context}: other bytes of {len}");
    }
    assert_eq!(get(pool, "short").await.unwrap(), random(4096, 1), "{context}");
    assert_eq!(get(pool, "x.log").await.unwrap(), random(9000, 2), "{context}");
}

#[test]
fn an_object_lies_on_six_volumes_and_takes_half_more_than_its_bytes() {
    let volumes = mems(6);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        fill(&pool).await;
        let before: u64 = pool.held().values().map(|held| held.bytes).sum();
        put(&pool, "t", &random(160 * 4096, 7)).await.unwrap();
        let held: u64 = pool.held().values().map(|held| held.bytes).sum();
        assert_eq!(held - before, 240 * 4096);
        for len in LENS {
            assert_complete(&pool, &format!("t{len}"));
        }
        // As many copies of what is short or grows as volumes may be lost, and one more.
        for text in ["short", "x.log"] {
            let object = pool.objects().into_iter().find(|o| o.name.as_str() == text).unwrap();
            assert_eq!(object.copies.len(), 3);
        }
        assert_filled(&pool, "at first").await;
        assert_eq!((pool.decoded(), pool.redundancy(&BTreeSet::new()).short), (0, 0));
        assert_eq!(pool.check().await.unwrap().findings, []);
        assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
        drop(pool);
        let pool = open(&volumes).await.unwrap();
        assert_filled(&pool, "opened again").await;
        // Parity is not always on the same volumes.
        let parity: BTreeSet<_> = LENS
            .iter()
            .flat_map(|len| fragments(&pool, &format!("t{len}")))
            .filter_map(|(index, volume)| (index >= 4).then_some(volume))
            .collect();
        assert!(parity.len() > 3, "{parity:?}");
    });
}

#[test]
fn any_range_is_read_whichever_two_volumes_are_away() {
    let volumes = mems(6);
    block_on(async { fill(&open(&volumes).await.unwrap()).await });
    for lost in pairs(6) {
        let context = format!("without {lost:?}");
        let volumes = copies(&volumes);
        let object = block_on(async {
            let pool = Spread::open(without(&volumes, &lost), coded()).await;
            let pool = pool.unwrap_or_else(|e| panic!("{context}: {e}"));
            assert_filled(&pool, &context).await;
            assert!(pool.decoded() > 0, "{context}");
            let redundancy = pool.redundancy(&BTreeSet::new());
            assert!(redundancy.short >= LENS.len() as u64 && redundancy.unreadable == 0);
            pool.open(&name("t100001")).await.unwrap()
        });
        let bytes = random(100_001, 100_001);
        for offset in (0..100_001).step_by(1777) {
            for len in [1, 100, 4096, 9000, 40_000] {
                let end = (offset + len).min(bytes.len());
                let read = block_on(object.read_at(offset as u64, IoBufMut::zeroed(len), IO));
                assert!(read.unwrap()[..] == bytes[offset..end], "{context}: {offset} {len}");
                let mut into = vec![0; len];
                let read = object.blocking_read_at(offset as u64, &mut into, IO).unwrap();
                assert!(into[..read] == bytes[offset..end], "{context}: {offset} {len}");
            }
        }
    }
}

#[test]
fn with_three_volumes_away_a_read_says_so_and_gives_no_other_bytes() {
    let volumes = mems(9);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        // The manifest is on the first five.
        for i in 0..20 {
            put(&pool, &format!("t{i}"), &random(50_000, i)).await.unwrap();
        }
        let lost = [6, 7, 8];
        drop(pool);
        let pool = Spread::open(without(&volumes, &lost), coded()).await.unwrap();
        let mut unreadable = 0;
        for i in 0..20 {
            let text = format!("t{i}");
            let on = fragments(&pool, &text);
            let away =
                on.iter().filter(|(_, volume)| lost.contains(&usize::from(volume.0))).count();
            match get(&pool, &text).await {
                Ok(read) => assert!(away < 3 && read == random(50_000, i), "{text}, {away} away"),
                Err(e) => {
                    assert_eq!((away, e.kind()), (3, ErrorKind::Unavailable), "{text}: {e}");
                    unreadable += 1;
                }
            }
        }
        assert!(unreadable > 0);
        assert_eq!(pool.redundancy(&BTreeSet::new()).unreadable, unreadable);
    });
}

#[test]
fn a_damaged_fragment_is_found_by_its_checksum_and_made_again_as_it_was() {
    let volumes = mems(7);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        fill(&pool).await;
        let images: Vec<_> = volumes.iter().map(Mem::image).collect();
        for (at, volume) in volumes.iter().enumerate() {
            for (text, bytes) in &images[at] {
                if !text.as_str().ends_with(".dat") || bytes.is_empty() {
                    continue;
                }
                volume.damage(text, bytes.len() as u64 / 2, |byte| *byte ^= 4);
                let report = pool.scrub(|_| ()).await.unwrap();
                let [finding] = &report.findings[..] else { panic!("{text}: {report:?}") };
                assert_eq!((&finding.problem, finding.elsewhere), (&Problem::Damaged, true));
                assert_eq!(pool.mend(&report).await.unwrap(), 1, "{text}");
                let repaired = pool.repair(IO, |_| ()).await.unwrap();
                assert_eq!((repaired.made, repaired.short.len()), (1, 0), "{text}: {repaired:?}");
                assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
            }
        }
        for len in LENS {
            assert_complete(&pool, &format!("t{len}"));
        }
        assert_filled(&pool, "repaired").await;
    });
}

/// A store's checksum finds what a read gave damaged: the fragment at fault is replaced, whichever two of six have rotted.
#[test]
fn two_rotten_fragments_are_found_by_the_store_that_reads_them() {
    for rotten in pairs(6) {
        let volumes = mems(7);
        block_on(async {
            let pool = open(&volumes).await.unwrap();
            let bytes = random(60_000, 3);
            put(&pool, "t", &bytes).await.unwrap();
            let on = fragments(&pool, "t");
            for index in rotten {
                let volume = &volumes[usize::from(on[index].1.0)];
                let image = volume.image();
                let text = image.keys().find(|text| text.as_str().ends_with(".dat")).unwrap();
                volume.damage(text, 100, |byte| *byte = !*byte);
            }
            let object = pool.open(&name("t")).await.unwrap();
            let wanted = bytes.clone();
            let check: volume::Check = Arc::new(move |read: &[u8]| read == &wanted[..]);
            let read = object.read_again(0, IoBufMut::zeroed(60_000), IO, check).await;
            assert!(read.unwrap()[..] == bytes[..], "{rotten:?}");
            assert_eq!(pool.damage().found, 2, "{rotten:?}");
            let repaired = pool.repair(IO, |_| ()).await.unwrap();
            // The one spare volume takes one; the volumes of the two dropped take the other.
            assert_eq!((repaired.made, repaired.short.len()), (2, 0), "{rotten:?}: {repaired:?}");
            assert_complete(&pool, "t");
            assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
        });
    }
}

/// Two fragments have rotted, and no read has met them: one that is good is not dropped.
#[test]
fn a_fragment_is_dropped_only_if_enough_others_have_their_bytes() {
    let volumes = mems(6);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        let bytes = random(60_000, 3);
        put(&pool, "t", &bytes).await.unwrap();
        let on = fragments(&pool, "t");
        let id = pool.objects()[0].id;
        let rot = |index: usize| {
            let volume = &volumes[usize::from(on[index].1.0)];
            let image = volume.image();
            let text = image.keys().find(|text| text.as_str().ends_with(".dat")).unwrap();
            volume.damage(text, 100, |byte| *byte = !*byte);
        };
        rot(5);
        pool.drop_copy(id, on[4].1).await.unwrap();
        rot(2);
        let refused = pool.drop_copy(id, on[0].1).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
        assert_eq!(fragments(&pool, "t").len(), 5);
    });
}

/// What is computed from rotten bytes never becomes a fragment.
#[test]
fn a_repair_from_rotten_fragments_takes_others() {
    let volumes = mems(8);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        let bytes = random(60_000, 3);
        put(&pool, "t", &bytes).await.unwrap();
        let on = fragments(&pool, "t");
        let of = |index: usize| usize::from(on[index].1.0);
        let lost = of(1);
        drop(pool);
        let pool = Spread::open(without(&volumes, &[lost]), coded()).await.unwrap();
        let rotten = &volumes[of(3)];
        let text = rotten.image().into_keys().find(|t| t.as_str().ends_with(".dat")).unwrap();
        rotten.damage(&text, 5000, |byte| *byte = !*byte);
        let repaired = pool.repair(IO, |_| ()).await.unwrap();
        assert_eq!(repaired.made, 1, "{repaired:?}");
        assert_eq!(pool.damage().found, 1);
        let report = pool.scrub(|_| ()).await.unwrap();
        let damaged = report.findings.iter().filter(|found| found.problem == Problem::Damaged);
        assert_eq!(damaged.count(), 1, "{report:?}");
        pool.mend(&report).await.unwrap();
        assert!(get(&pool, "t").await.unwrap() == bytes);
    });
}

#[test]
fn a_volume_is_emptied_and_leaves_and_a_lost_one_is_replaced() {
    let volumes = mems(8);
    block_on(async {
        let pool = Spread::open(without(&volumes, &[7]), coded()).await.unwrap();
        fill(&pool).await;
        let first = VolumeId(2);
        let left = pool.drain(first, IO, |_| ()).await.unwrap();
        assert_eq!(left.objects, []);
        pool.remove_volume(first).await.unwrap();
        for len in LENS {
            assert_complete(&pool, &format!("t{len}"));
        }
        assert_filled(&pool, "one left").await;
        // No place is left, until a volume joins.
        drop(pool);
        let pool = Spread::open(without(&volumes, &[2, 5, 7]), coded()).await.unwrap();
        let gone = VolumeId(5);
        assert_eq!(pool.only_on(gone), []);
        assert_eq!(pool.remove_lost(gone, false).await.unwrap(), []);
        assert!(!pool.repair(IO, |_| ()).await.unwrap().short.is_empty());
        assert_filled(&pool, "one lost").await;
        pool.add_volume(Member::new("s7", volumes[7].clone())).await.unwrap();
        let repaired = pool.repair(IO, |_| ()).await.unwrap();
        assert_eq!(repaired.short, []);
        for len in LENS {
            assert_complete(&pool, &format!("t{len}"));
        }
        assert_eq!(pool.check().await.unwrap().findings, []);
        assert_eq!(pool.redundancy(&BTreeSet::new()).short, 0);
    });
}

/// A device may tell its space and fail every read: there is nothing to drain then.
#[test]
fn a_volume_that_only_fails_counts_as_lost() {
    let rig = Rig::new(mems(6));
    block_on(async {
        let pool = open(&rig.faults).await.unwrap();
        put(&pool, "t", &random(50_000, 1)).await.unwrap();
        let (id, label) = (VolumeId(3), "s3");
        assert!(pool.answers(id).await);
        let refused = pool.remove_lost(id, false).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        let of = |kind| Rule::new(Effect::Fail(kind)).on(Call::Read).volume(label);
        let busy = rig.plan.inject(of(ErrorKind::Busy));
        assert!(pool.answers(id).await, "too few descriptors are no fault of the volume");
        rig.plan.lift(busy);
        rig.plan.inject(of(ErrorKind::Io));
        assert!(pool.space_of(id).await.is_ok() && !pool.answers(id).await);
        assert_eq!(pool.remove_lost(id, false).await.unwrap(), []);
        assert_eq!(get(&pool, "t").await.unwrap(), random(50_000, 1));
    });
}

/// Three volumes lost for good: what is named lost is what cannot be read, and nothing else is.
#[test]
fn objects_with_too_few_fragments_are_named_before_their_volumes_are_given_up() {
    let volumes = mems(9);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        for i in 0..12 {
            put(&pool, &format!("t{i:02}"), &random(50_000, i)).await.unwrap();
        }
        drop(pool);
        let pool = Spread::open(without(&volumes, &[6, 7, 8]), coded()).await.unwrap();
        for volume in [6, 7] {
            assert_eq!(pool.remove_lost(VolumeId(volume), false).await.unwrap(), []);
        }
        let only = pool.only_on(VolumeId(8));
        assert!(!only.is_empty());
        let refused = pool.remove_lost(VolumeId(8), false).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert_eq!(pool.remove_lost(VolumeId(8), true).await.unwrap(), only);
        for i in 0..12 {
            let text = format!("t{i:02}");
            let is_lost = only.iter().any(|lost| lost.as_str() == text);
            assert_eq!(get(&pool, &text).await.is_err(), is_lost, "{text}");
        }
        pool.close().await.unwrap();
    });
}

/// A volume fails in the middle of a write: the object has fewer fragments, and gets the rest later.
#[test]
fn an_object_is_made_with_fewer_fragments_while_volumes_fail_and_completed_later() {
    for dead in pairs(6) {
        for call in 0..6 {
            let rig = Rig::new(mems(6));
            block_on(async {
                let pool = open(&rig.faults).await.unwrap();
                let rules: Vec<_> = dead
                    .iter()
                    .map(|dead| {
                        let rule =
                            Rule::new(Effect::Fail(ErrorKind::Io)).volume(&format!("s{dead}"));
                        rig.plan.inject(rule.named("*.dat").calls(call..u64::MAX))
                    })
                    .collect();
                let context = format!("{dead:?} from call {call}");
                for i in 0..3 {
                    let written = put(&pool, &format!("t{i}"), &random(50_000, i)).await;
                    written.unwrap_or_else(|e| panic!("{context}: {e}"));
                    assert!(get(&pool, &format!("t{i}")).await.unwrap() == random(50_000, i));
                }
                rules.into_iter().for_each(|rule| rig.plan.lift(rule));
                rig.faults.iter().for_each(|volume| volume.probe());
                let repaired = pool.repair(IO, |_| ()).await.unwrap();
                assert_eq!(repaired.short, [], "{context}");
                for i in 0..3 {
                    assert_complete(&pool, &format!("t{i}"));
                }
                assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, [], "{context}");
            });
        }
    }
}

#[test]
fn with_fewer_volumes_than_hold_an_object_nothing_is_written() {
    let volumes = mems(3);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        let refused = put(&pool, "t", &random(50_000, 1)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::OutOfSpace);
        assert!(refused.to_string().contains("only 3 volumes take a fragment"), "{refused}");
        assert_eq!(pool.objects(), []);
        assert_eq!(pool.check().await.unwrap().findings, []);
    });
}

/// The power goes off at any step, and two volumes are lost with it: acknowledged bytes are on the others.
#[test]
fn a_cut_at_any_step_and_the_loss_of_any_two_volumes_lose_nothing() {
    let volumes = mems(6);
    block_on(async { drop(open(&volumes).await.unwrap()) });
    let mut cuts = 0;
    for (what, ops) in scenarios() {
        for cut in 0.. {
            let power = Power::new();
            let machine: Vec<_> =
                copies(&volumes).into_iter().map(|mem| Crash::new(mem, &power)).collect();
            let models = block_on(async {
                let pool = open(&machine).await.unwrap();
                let before = start(&pool).await;
                power.cut_after(cut);
                run(&pool, &power, before, &ops).await
            });
            let all: Vec<_> = pairs(6).collect();
            for lost in [&[][..], &all[cut as usize % 15], &all[(cut as usize * 7 + 3) % 15]] {
                let context = format!("{what}, cut {cut}, lost {lost:?}");
                let survivors = survivors(&machine, cut * 4 + lost.len() as u64);
                block_on(explain(&survivors, lost, &models, &context));
                cuts += 1;
            }
            if !power.is_off() {
                break;
            }
        }
    }
    assert!(cuts > 800, "{cuts}");
}

async fn explain(volumes: &[Mem], lost: &[usize], models: &[Model], context: &str) {
    let pool = Spread::open(without(volumes, lost), coded()).await;
    let pool = pool.unwrap_or_else(|e| panic!("{context}: {e}"));
    let found = view(&pool).await.unwrap_or_else(|e| panic!("{context}: {e}"));
    let verdicts: Vec<_> = models.iter().map(|model| model.explains(&found)).collect();
    assert!(verdicts.iter().any(std::result::Result::is_ok), "{context}: {verdicts:?}");
    if lost.is_empty() {
        assert_eq!(pool.check().await.unwrap().findings, [], "{context}");
        assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, [], "{context}");
    }
}

/// Two volumes fail for good at any call, one after the other or at once, under an open pool: no call of a user fails.
#[test]
fn two_volumes_that_die_at_any_call_are_not_missed() {
    let ops = [
        Op::Create("a", random(5000, 1)),
        Op::Sync("a"),
        Op::WriteWhole("d/a", random(150_000, 2)),
        Op::Create("d/c.log", random(700, 3)),
        Op::Sync("d/c.log"),
        Op::Append("a", random(70_000, 4)),
        Op::Sync("a"),
        Op::Append("d/c.log", random(900, 5)),
        Op::Sync("d/c.log"),
        Op::Rename("d/a", "d/b"),
        Op::WriteWhole("e/a", random(9000, 6)),
        Op::Remove("d/b"),
    ];
    for (number, dead) in pairs(6).enumerate() {
        let mut at = number as u64;
        loop {
            let context = format!("{dead:?} die at call {at}");
            let rig = Rig::new(mems(6));
            let ended = block_on(async {
                let pool = open(&rig.faults).await.unwrap();
                for (later, dead) in (0..).zip(dead) {
                    let rule = Rule::new(Effect::Fail(ErrorKind::Unavailable));
                    let from = at + later * (number as u64 % 3) * 2;
                    rig.plan.inject(rule.volume(&format!("s{dead}")).calls(from..u64::MAX));
                }
                let before = rig.plan.calls();
                let mut model = Model::default();
                for op in &ops {
                    op.run(&pool).await.unwrap_or_else(|e| panic!("{context}: {op:?}: {e}"));
                    model = model.stages(op).unwrap().pop().unwrap();
                }
                assert!(view(&pool).await.unwrap() == model.view(), "{context}");
                let calls = rig.plan.calls() - before;
                drop(pool);
                let pool = Spread::open(without(&rig.mems, &dead), coded()).await;
                let pool = pool.unwrap_or_else(|e| panic!("{context}: {e}"));
                assert!(view(&pool).await.unwrap() == model.view(), "{context}");
                at > calls
            });
            if ended {
                break;
            }
            at += 2 + at / 4;
        }
    }
}

/// The mover makes fragments of lost volumes again on spare ones, while the pool is read and written.
#[test]
fn lost_fragments_are_made_again_in_the_background() {
    let clock = Clock::simulated();
    let rig = Rig::new(mems(8));
    clock.run(async {
        let pool = open(&rig.faults).await.unwrap();
        let terms = Terms { silence_max: Duration::from_secs(60), ..Terms::default() };
        let mover = Mover::new(pool.clone(), clock.clone(), Policy::Off, terms);
        let story = async {
            fill(&pool).await;
            for dead in ["s1", "s4"] {
                rig.plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)).volume(dead));
            }
            clock.sleep(Duration::from_secs(30)).await;
            assert_filled(&pool, "two silent").await;
            put(&pool, "new", &random(80_000, 5)).await.unwrap();
            clock.sleep(Duration::from_secs(400)).await;
            let gone: BTreeSet<_> = [VolumeId(1), VolumeId(4)].into();
            assert_eq!(pool.redundancy(&gone).short, 0);
            assert_filled(&pool, "made again").await;
            assert!(get(&pool, "new").await.unwrap() == random(80_000, 5));
        };
        select(Box::pin(story), Box::pin(mover.run(Vec::new))).await;
    });
}

/// Two volumes stop answering: each costs its time limit once, in a read and in a write, and then nothing.
#[test]
fn two_volumes_that_hang_cost_their_limit_once() {
    for hung in pairs(6) {
        let (clock, plan) = (Clock::simulated(), FaultPlan::new(0));
        let volume = |mem: Mem| {
            let label = mem.label().to_owned();
            let fault = Fault::new(mem, &label, &plan, &clock);
            Deadline::new(fault, &label, LIMIT, clock.clone())
        };
        let volumes: Vec<_> = mems(6).into_iter().map(volume).collect();
        clock.run(async {
            let pool = open(&volumes).await.unwrap();
            fill(&pool).await;
            for volume in hung {
                let rule = Rule::new(Effect::Slow(Duration::from_secs(1000)));
                plan.inject(rule.volume(&format!("s{volume}")));
            }
            let context = format!("{hung:?} hang");
            let began = clock.now();
            assert_filled(&pool, &context).await;
            let after_reads = clock.now().since(began);
            put(&pool, "new", &random(50_000, 7))
                .await
                .unwrap_or_else(|e| panic!("{context}: {e}"));
            let after_write = clock.now().since(began);
            assert_filled(&pool, &context).await;
            assert!(get(&pool, "new").await.unwrap() == random(50_000, 7), "{context}");
            put(&pool, "more", &random(50_000, 8)).await.unwrap();
            let then = clock.now().since(began);
            // A read meets one of them after the other.
            assert!(after_reads <= 2 * LIMIT, "{context}: reads took {after_reads:?}");
            assert!(after_write <= 3 * LIMIT, "{context}: a write took until {after_write:?}");
            assert!(then <= after_write + LIMIT / 10, "{context}: then until {then:?}");
        });
    }
}

/// A fragment that no volume has goes before one whose volume is only away: it took the last place.
#[test]
fn what_is_nowhere_is_made_before_what_is_only_away() {
    let volumes = mems(6);
    block_on(async { drop(open(&volumes).await.unwrap()) });
    let repaired = |away: &[usize], of: u64| {
        block_on(async {
            let pool = Spread::open(without(&volumes, away), coded()).await.unwrap();
            if away == [0] {
                put(&pool, "t", &random(50_000, 1)).await.unwrap();
            }
            assert_eq!(pool.repair(IO, |_| ()).await.unwrap().made, of, "without {away:?}");
        });
    };
    repaired(&[0], 0);
    repaired(&[4], 1);
    repaired(&[], 0);
    block_on(async { assert_complete(&open(&volumes).await.unwrap(), "t") });
}

/// A volume came back after its fragment was made elsewhere: one of the two makes room for what is lost next.
#[test]
fn a_second_copy_of_a_fragment_makes_room_for_a_missing_one() {
    let volumes = mems(7);
    block_on(async {
        let pool = Spread::open(without(&volumes, &[6]), coded()).await.unwrap();
        put(&pool, "t", &random(50_000, 1)).await.unwrap();
        pool.add_volume(Member::new("s6", volumes[6].clone())).await.unwrap();
        pool.close().await.unwrap();
        drop(pool);
        let pool = Spread::open(without(&volumes, &[4]), coded()).await.unwrap();
        assert_eq!(pool.repair(IO, |_| ()).await.unwrap().made, 1);
        pool.close().await.unwrap();
        drop(pool);
        let pool = Spread::open(without(&volumes, &[1]), coded()).await.unwrap();
        let repaired = pool.repair(IO, |_| ()).await.unwrap();
        assert_eq!((repaired.made, repaired.short.len()), (1, 0), "{repaired:?}");
        let gone = VolumeId(1);
        let there = fragments(&pool, "t").into_iter().filter(|(_, volume)| *volume != gone);
        assert_eq!(there.map(|(index, _)| index).collect::<BTreeSet<_>>().len(), 6);
    });
}

/// With as many fragments as hold an object, a volume that fails is why it cannot be read: nothing is lost.
#[test]
fn a_volume_that_fails_is_the_error_and_not_what_it_keeps_from_being_read() {
    let rig = Rig::new(mems(4));
    block_on(async {
        let pool = open(&rig.faults).await.unwrap();
        put(&pool, "t", &random(50_000, 1)).await.unwrap();
        let object = pool.open(&name("t")).await.unwrap();
        for kind in [ErrorKind::Poisoned, ErrorKind::Unavailable] {
            let rule = Rule::new(Effect::Fail(kind)).volume("s1").on(Call::Read);
            let rule = rig.plan.inject(rule);
            for _ in 0..3 {
                let failed = read_all(&*object).await.unwrap_err();
                assert_eq!(failed.kind(), kind, "{failed}");
            }
            rig.plan.lift(rule);
        }
        assert!(read_all(&*object).await.unwrap() == random(50_000, 1));
        assert_eq!(pool.damage().found, 0);
    });
}

/// The manifest left a volume that was to be emptied, and two copies do not open without one of them.
#[test]
fn the_manifest_comes_back_to_a_volume_that_stays_after_all() {
    let volumes = mems(3);
    block_on(async {
        let pool = Spread::open(without(&volumes, &[]), coded()).await.unwrap();
        let copies = || volumes.iter().filter(|volume| !manifests(volume).is_empty()).count();
        pool.set_draining(VolumeId(1), true).await.unwrap();
        pool.drain(VolumeId(1), IO, |_| ()).await.unwrap();
        assert_eq!(copies(), 2);
        pool.set_draining(VolumeId(1), false).await.unwrap();
        assert_eq!(copies(), 3);
    });
}

/// A repair told that all was whole, and the loss of one volume more than it could bear closed the pool.
#[test]
fn a_repair_brings_the_manifest_back_to_its_number_of_copies() {
    let rig = Rig::new(mems(3));
    block_on(async {
        let pool = open(&rig.faults).await.unwrap();
        let held = || rig.mems.iter().filter(|volume| !manifests(volume).is_empty()).count();
        pool.set_draining(VolumeId(1), true).await.unwrap();
        pool.drain(VolumeId(1), IO, |_| ()).await.unwrap();
        let away = Rule::new(Effect::Fail(ErrorKind::Unavailable)).volume("s1");
        rig.plan.inject(away.named("manifest-*"));
        pool.set_draining(VolumeId(1), false).await.unwrap();
        assert_eq!(held(), 2);
        rig.plan.clear();
        pool.repair(IO, |_| ()).await.unwrap();
        assert_eq!(held(), 3);
    });
}

/// A log that is full, and a table written in pieces, as a store makes them.
async fn seal_two(pool: &Spread) {
    for (text, intent) in [("x.log", Intent::LOG), ("t", Intent::DATA)] {
        let object = pool.create(&name(text), &intent).await.unwrap();
        for at in (0..60_000).step_by(20_000) {
            let bytes = &random(60_000, 9)[at..at + 20_000];
            object.write_at(at as u64, bytes.into(), IO).await.unwrap();
        }
        object.seal(IO).await.unwrap();
    }
}

#[test]
fn what_was_written_in_pieces_is_cut_once_it_is_complete() {
    let volumes = mems(6);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        seal_two(&pool).await;
        let growing = pool.create(&name("y.log"), &Intent::LOG).await.unwrap();
        growing.write_at(0, random(30_000, 4)[..].into(), IO).await.unwrap();
        growing.sync(IO).await.unwrap();
        let held = |pool: &Spread| pool.held().values().map(|held| held.bytes).sum::<u64>();
        let before = held(&pool);
        // One handle read from a copy before, and one did not.
        let (warm, cold) = (pool.open(&name("t")).await.unwrap(), pool.open(&name("x.log")).await);
        let cold = cold.unwrap();
        assert!(read_all(&*warm).await.unwrap() == random(60_000, 9));
        assert_eq!(pool.recode(IO).await, 2);
        assert_eq!(pool.recode(IO).await, 0);
        for object in [warm, cold] {
            assert!(read_all(&*object).await.unwrap() == random(60_000, 9));
        }
        // Three copies were three times the bytes, and fragments are half more.
        assert!(held(&pool) < before - 2 * 85_000, "{} of {before}", held(&pool));
        for text in ["t", "x.log"] {
            assert_complete(&pool, text);
        }
        assert_eq!(fragments(&pool, "y.log"), []);
        assert_eq!(pool.check().await.unwrap().findings, []);
        assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
        drop(pool);
        let pool = Spread::open(without(&volumes, &[0, 3]), coded()).await.unwrap();
        for text in ["t", "x.log"] {
            assert!(get(&pool, text).await.unwrap() == random(60_000, 9), "{text}");
            assert!(pool.open(&name(text)).await.unwrap().is_log() == (text == "x.log"));
        }
    });
}

/// While a volume is away or bytes are damaged, an object keeps what it has.
#[test]
fn nothing_is_cut_that_is_not_whole_or_has_no_place() {
    let volumes = mems(6);
    block_on(async {
        let pool = Spread::open(without(&volumes, &[5]), coded()).await.unwrap();
        seal_two(&pool).await;
        assert_eq!(pool.recode(IO).await, 0);
        pool.add_volume(Member::new("s5", volumes[5].clone())).await.unwrap();
        for volume in &volumes {
            for (text, _) in volume.image() {
                if text.as_str().ends_with(".dat") {
                    volume.damage(&text, 30_000, |byte| *byte = !*byte);
                }
            }
        }
        // The log is whole, and every copy of the other is damaged.
        assert_eq!(pool.recode(IO).await, 1);
        assert_eq!((fragments(&pool, "t"), fragments(&pool, "x.log").len()), (vec![], 6));
        assert!(get(&pool, "x.log").await.unwrap() == random(60_000, 9));
    });
}

#[test]
fn a_cut_while_objects_are_cut_loses_none() {
    for cut in 0.. {
        let power = Power::new();
        let machine: Vec<_> = mems(6).into_iter().map(|mem| Crash::new(mem, &power)).collect();
        block_on(async {
            let pool = open(&machine).await.unwrap();
            seal_two(&pool).await;
            power.cut_after(cut);
            pool.recode(IO).await;
        });
        for lost in [&[][..], &[1, 4], &[cut as usize % 6]] {
            let context = format!("cut {cut}, lost {lost:?}");
            let survivors = survivors(&machine, cut);
            block_on(async {
                let pool = Spread::open(without(&survivors, lost), coded()).await.unwrap();
                for text in ["t", "x.log"] {
                    assert!(get(&pool, text).await.unwrap() == random(60_000, 9), "{context}");
                }
                if lost.is_empty() {
                    assert_eq!(pool.check().await.unwrap().findings, [], "{context}");
                    assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, [], "{context}");
                }
            });
        }
        if !power.is_off() {
            assert!(cut > 20, "{cut}");
            break;
        }
    }
}

/// A pool that kept copies gets a code, and goes back: each object stays what it is.
#[test]
fn a_pool_may_be_opened_with_another_code_or_with_none() {
    let volumes = mems(6);
    block_on(async {
        let plain = Opening::new(RoundRobin::default()).create_if_missing(POOL).copies(2);
        let pool = Spread::open(without(&volumes, &[]), plain).await.unwrap();
        put(&pool, "plain", &random(50_000, 1)).await.unwrap();
        drop(pool);
        let pool = open(&volumes).await.unwrap();
        put(&pool, "four-two", &random(50_000, 2)).await.unwrap();
        drop(pool);
        let other = Code::new(3, 1, 8 * KIB).unwrap();
        let opening = Opening::new(RoundRobin::default()).code(other);
        let pool = Spread::open(without(&volumes, &[]), opening).await.unwrap();
        put(&pool, "three-one", &random(50_000, 3)).await.unwrap();
        drop(pool);
        let opening = Opening::new(RoundRobin::default()).allow_away();
        let pool = Spread::open(without(&volumes, &[4]), opening).await.unwrap();
        for (text, seed) in [("four-two", 2), ("three-one", 3)] {
            assert!(get(&pool, text).await.unwrap() == random(50_000, seed), "{text}");
        }
        assert_eq!(
            (fragments(&pool, "four-two").len(), fragments(&pool, "three-one").len()),
            (6, 4)
        );
        assert_eq!(fragments(&pool, "plain"), []);
    });
}

#[test]
fn a_coded_pool_conforms() {
    conformance::run(|| {
        let volumes = mems(6);
        let open = move || Arc::new(block_on(open(&volumes)).unwrap()) as _;
        Box::new(Blocking::reopening(open))
    });
}

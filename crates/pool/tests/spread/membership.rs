//! Volumes join, are drained and leave, and copies are made and dropped, with a power cut at any step.

use policy::placement::{RoundRobin, VolumeId};
use pool::spread::{Opening, Spread, VolumeState};
use pool::{Member, PoolId};
use volume::layer::crash::{Crash, Power};
use volume::layer::fault::{Effect, Rule};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{ErrorKind, Intent, IoBuf, Result, Volume};

use crate::copying::{COPY, id_of, places};
use crate::faults::Rig;
use crate::rig::{IO, POOL, copies, get, mems, name, open, opening, put, survivors};

/// The objects that each scenario begins with: of every kind, on every volume.
const OBJECTS: [(&str, usize); 7] = [
    ("t0", 300_000),
    ("t1", 70_000),
    ("t2", 10),
    ("a.log", 5000),
    ("b.log", 600),
    ("data", 300_000),
    ("more", 9000),
];

fn bytes(text: &str, len: usize) -> Vec<u8> {
    let first = text.bytes().map(usize::from).sum::<usize>();
    (0..len).map(|i| ((first + i) % 251) as u8).collect()
}

async fn fill(pool: &Spread) -> Result<()> {
    for (text, len) in OBJECTS {
        let data = bytes(text, len);
        if text.starts_with('t') {
            put(pool, text, &data).await?;
            continue;
        }
        let intent = if text.ends_with(".log") { Intent::LOG } else { Intent::DATA };
        let object = pool.create(&name(text), &intent).await?;
        object.write_at(0, IoBuf::from(&data[..]), IO).await?;
        object.sync(IO).await?;
    }
    Ok(())
}

async fn assert_all_is_there(pool: &Spread, context: &str) {
    for (text, len) in OBJECTS {
        let found = get(pool, text).await.unwrap_or_else(|e| panic!("{context}: {e}"));
        assert!(found == bytes(text, len), "{context}: {text}");
    }
    assert_eq!(pool.list().await.unwrap().len(), OBJECTS.len(), "{context}");
    assert_eq!(pool.check().await.unwrap().findings, [], "{context}");
    assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, [], "{context}");
}

/// The change during which the power goes off.
#[derive(Clone, Copy, Debug)]
enum Change {
    Copy,
    Drop,
    Add,
    Drain,
    Remove,
    Repair,
}

impl Change {
    const ALL: [Self; 6] =
        [Self::Copy, Self::Drop, Self::Add, Self::Drain, Self::Remove, Self::Repair];

    async fn prepare(self, pool: &Spread) -> Result<()> {
        match self {
            Self::Copy | Self::Add | Self::Drain | Self::Repair => Ok(()),
            Self::Drop => copy_all(pool).await,
            Self::Remove => pool.drain(VolumeId(0), COPY, |_| ()).await.map(drop),
        }
    }

    async fn make(self, pool: &Spread, spare: Member) -> Result<()> {
        match self {
            Self::Copy => copy_all(pool).await,
            Self::Drop => {
                for (text, _) in OBJECTS {
                    // The first copy, which may have number 0, or the other one.
                    let from = places(pool, text).await[text.len() % 2];
                    pool.drop_copy(id_of(pool, text).await, VolumeId(from)).await?;
                }
                Ok(())
            }
            Self::Add => pool.add_volume(spare).await.map(drop),
            Self::Drain => match pool.drain(VolumeId(0), COPY, |_| ()).await?.objects {
                left if left.is_empty() => Ok(()),
                left => Err(volume::Error::new(ErrorKind::Io, format!("{left:?}"))),
            },
            Self::Remove => pool.remove_volume(VolumeId(0)).await,
            Self::Repair => match pool.repair(COPY, |_| ()).await?.short {
                short if short.is_empty() => Ok(()),
                short => Err(volume::Error::new(ErrorKind::Io, format!("{short:?}"))),
            },
        }
    }
}

async fn copy_all(pool: &Spread) -> Result<()> {
    for (text, _) in OBJECTS {
        let taken = places(pool, text).await;
        let to = (0..).find(|id| !taken.contains(id)).expect("numbers do not end");
        // A striped object is on every volume already.
        if taken.len() < pool.volumes().len() {
            pool.copy(id_of(pool, text).await, VolumeId(to), COPY).await?;
        }
    }
    Ok(())
}

fn with(change: Change) -> Opening {
    let opening = Opening::new(RoundRobin::default()).create_if_missing(POOL);
    if matches!(change, Change::Repair) { opening.copies(2) } else { opening }
}

fn named<V: Volume + Clone + 'static>(volumes: &[V]) -> Vec<Member> {
    crate::rig::members(volumes)
}

/// Opens the survivors with a set of volumes that the pool accepts.
async fn reopen(volumes: &[Mem], change: Change, context: &str) -> Spread {
    let mut refused = Vec::new();
    for set in [volumes, &volumes[..3], &volumes[1..3]] {
        let members = set.iter().map(|volume| Member::new(volume.label(), volume.clone()));
        match Spread::open(members.collect(), with(change)).await {
            Ok(pool) => return pool,
            Err(e) => refused.push(e.to_string()),
        }
    }
    panic!("{context}: {refused:?}");
}

#[test]
fn a_cut_at_any_step_of_any_change_loses_nothing() {
    const SEEDS: u64 = 6;
    let base = mems(3);
    block_on(async {
        let pool = open(&base).await.unwrap();
        fill(&pool).await.unwrap();
        pool.close().await.unwrap();
    });
    for change in Change::ALL {
        let mut cuts = 0;
        for cut in 0.. {
            let power = Power::new();
            let crash = |mem: Mem| Crash::new(mem, &power);
            let mut volumes: Vec<_> = copies(&base).into_iter().map(crash).collect();
            let spare = crash(Mem::new("s3"));
            block_on(async {
                let pool = Spread::open(named(&volumes), with(change)).await.unwrap();
                change.prepare(&pool).await.unwrap();
                power.cut_after(cut);
                let made = change.make(&pool, Member::new("s3", spare.clone())).await;
                assert!(made.is_ok() || power.is_off(), "{change:?}, cut {cut}: {made:?}");
            });
            volumes.push(spare);
            for seed in 0..SEEDS {
                let context = format!("{change:?}, cut {cut}, seed {seed}");
                let survivors = survivors(&volumes, seed);
                block_on(async {
                    let pool = reopen(&survivors, change, &context).await;
                    assert_all_is_there(&pool, &context).await;
                    // And the change can be finished.
                    finish(&pool, change, &survivors[3], &context).await;
                    assert_all_is_there(&pool, &context).await;
                });
                cuts += 1;
            }
            if !power.is_off() {
                break;
            }
        }
        assert!(cuts > 20, "{change:?}: {cuts}");
    }
}

async fn finish(pool: &Spread, change: Change, spare: &Mem, context: &str) {
    let label = |label| pool.volume_id(label);
    match change {
        Change::Add if label("s3").is_none() => {
            let added = pool.add_volume(Member::new("s3", spare.clone())).await;
            let id = added.unwrap_or_else(|e| panic!("{context}: {e}"));
            pool.copy(id_of(pool, "t0").await, id, COPY).await.unwrap();
        }
        Change::Drain | Change::Remove => {
            let Some(id) = label("s0") else { return };
            let left = pool.drain(id, COPY, |_| ()).await.unwrap();
            assert_eq!(left.objects, [], "{context}");
            pool.remove_volume(id).await.unwrap_or_else(|e| panic!("{context}: {e}"));
            assert!(label("s0").is_none());
        }
        Change::Repair => {
            let repaired = pool.repair(COPY, |_| ()).await.unwrap();
            assert_eq!(repaired.short, [], "{context}");
            for (text, _) in OBJECTS {
                assert_eq!(places(pool, text).await.len(), 2, "{context}: {text}");
            }
        }
        Change::Copy | Change::Drop | Change::Add => {}
    }
}

#[test]
fn a_volume_joins_and_another_leaves_while_objects_are_written() {
    let volumes = mems(4);
    block_on(async {
        let pool = open(&volumes[..2]).await.unwrap();
        fill(&pool).await.unwrap();
        let log = pool.open(&name("a.log")).await.unwrap();
        let uncommitted = pool.create(&name("draft"), &Intent::DATA).await.unwrap();
        uncommitted.write_at(0, IoBuf::from(&b"draft"[..]), IO).await.unwrap();
        let id = pool.add_volume(Member::new("s2", volumes[2].clone())).await.unwrap();
        assert_eq!(id, VolumeId(2));
        let twice = pool.add_volume(Member::new("s2", volumes[3].clone())).await.unwrap_err();
        assert_eq!(twice.kind(), ErrorKind::AlreadyExists);
        let theirs = pool.add_volume(Member::new("s9", volumes[1].clone())).await.unwrap_err();
        assert_eq!(theirs.kind(), ErrorKind::Invalid, "{theirs}");
        let from = VolumeId(0);
        let early = pool.remove_volume(from).await.unwrap_err();
        assert!(early.to_string().contains("empty it first"), "{early}");
        let on = pool.stat(&name("draft")).await.unwrap().layout.volumes()[0];
        let left = pool.drain(on, COPY, |_| ()).await.unwrap();
        assert_eq!(left.objects.len(), 1, "{left:?}");
        assert!(pool.remove_volume(on).await.unwrap_err().to_string().contains("draft"));
        uncommitted.sync(IO).await.unwrap();
        // Bytes written meanwhile move too.
        log.write_at(5000, IoBuf::from(&b"appended"[..]), IO).await.unwrap();
        assert_eq!(pool.drain(on, COPY, |_| ()).await.unwrap().objects, []);
        log.write_at(5008, IoBuf::from(&b" later"[..]), IO).await.unwrap();
        log.sync(IO).await.unwrap();
        let stats = pool.volumes();
        assert_eq!(stats.iter().filter(|v| v.state == VolumeState::Draining).count(), 1);
        assert_eq!(pool.held().get(&on), None);
        pool.remove_volume(on).await.unwrap();
        assert_eq!(get(&pool, "a.log").await.unwrap()[5000..], *b"appended later");
        assert_eq!(get(&pool, "draft").await.unwrap(), b"draft");
        // It is blank, and can join again with a new number.
        let gone = usize::from(on.0);
        assert!(volumes[gone].image().is_empty(), "{:?}", volumes[gone].image().keys());
        let again = pool.add_volume(Member::new("again", volumes[gone].clone())).await.unwrap();
        assert_eq!(again, VolumeId(3));
        pool.close().await.unwrap();
        drop((log, uncommitted, pool));
        let members = [(1 - gone, "s1"), (2, "s2"), (gone, "again")];
        let members = members.map(|(i, label)| Member::new(label, volumes[i].clone()));
        let pool = Spread::open(members.to_vec(), opening("round-robin")).await.unwrap();
        assert_eq!(get(&pool, "a.log").await.unwrap().len(), 5014);
        assert_eq!(pool.check().await.unwrap().findings, []);
    });
}

#[test]
fn the_last_volume_stays() {
    let volumes = mems(2);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        fill(&pool).await.unwrap();
        pool.drain(VolumeId(1), COPY, |_| ()).await.unwrap();
        let last = pool.drain(VolumeId(0), COPY, |_| ()).await.unwrap_err();
        assert_eq!(last.kind(), ErrorKind::Invalid, "{last}");
        pool.set_draining(VolumeId(1), false).await.unwrap();
        pool.drain(VolumeId(0), COPY, |_| ()).await.unwrap();
        pool.remove_volume(VolumeId(0)).await.unwrap();
        assert_all_is_there(&pool, "one left").await;
        assert_eq!(pool.id(), PoolId(POOL.0));
    });
}

#[test]
fn a_pool_with_two_of_everything_loses_a_volume_and_nothing_else() {
    let rig = Rig::new(mems(4));
    let twice = || Opening::new(RoundRobin::default()).create_if_missing(POOL).copies(2);
    let all = || crate::rig::members(&rig.faults);
    block_on(async {
        let pool = Spread::open(all(), twice()).await.unwrap();
        fill(&pool).await.unwrap();
        for (text, _) in OBJECTS {
            assert_eq!(places(&pool, text).await.len(), 2, "{text}");
        }
        let log = pool.open(&name("a.log")).await.unwrap();
        // A volume fails while logs are written: no call fails.
        let lost = places(&pool, "a.log").await[0];
        let label = format!("s{lost}");
        let away = Rule::new(Effect::Fail(ErrorKind::Unavailable)).volume(&label);
        rig.plan.inject(away);
        log.write_at(5000, IoBuf::from(&b"more"[..]), IO).await.unwrap();
        log.sync(IO).await.unwrap();
        put(&pool, "new", b"new").await.unwrap();
        assert_eq!(get(&pool, "a.log").await.unwrap().len(), 5004);
        log.set_len(5000).await.unwrap();
        log.sync(IO).await.unwrap();
        drop((log, pool));
        // And it stays away.
        let here: Vec<_> = all().into_iter().filter(|member| member.label != label).collect();
        let pool = Spread::open(here, twice().allow_away()).await.unwrap();
        for (text, len) in OBJECTS {
            assert!(get(&pool, text).await.unwrap() == bytes(text, len), "{text}");
        }
        let lost = VolumeId(lost);
        assert_eq!(pool.repair(COPY, |_| ()).await.unwrap().short, []);
        assert_eq!(pool.drain(lost, COPY, |_| ()).await.unwrap().objects, []);
        pool.remove_volume(lost).await.unwrap();
        pool.remove(&name("new")).await.unwrap();
        for (text, _) in OBJECTS {
            assert_eq!(places(&pool, text).await.len(), 2, "{text}");
        }
        assert_all_is_there(&pool, "without it").await;
    });
}

#[test]
fn what_only_a_lost_volume_had_is_named() {
    let volumes = mems(3);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        fill(&pool).await.unwrap();
        let lost = places(&pool, "t0").await[0];
        let keeper = VolumeId((lost + 1) % 3);
        pool.copy(id_of(&pool, "t0").await, keeper, COPY).await.unwrap();
        let alone: Vec<_> = {
            let mut alone = Vec::new();
            for (text, _) in OBJECTS {
                if places(&pool, text).await == [lost] {
                    alone.push(text);
                }
            }
            alone
        };
        pool.close().await.unwrap();
        drop(pool);
        let members = crate::rig::members(&volumes);
        let here: Vec<_> =
            members.into_iter().filter(|member| member.label != format!("s{lost}")).collect();
        let pool = Spread::open(here, opening("round-robin").allow_away()).await.unwrap();
        for (text, len) in OBJECTS {
            match get(&pool, text).await {
                Ok(found) => assert!(found == bytes(text, len)),
                Err(e) => assert!(alone.contains(&text) && e.to_string().contains(text), "{e}"),
            }
        }
        let left = pool.drain(VolumeId(lost), COPY, |_| ()).await.unwrap();
        let mut named: Vec<_> = left.objects.iter().map(|(name, _)| name.as_str()).collect();
        named.sort_unstable();
        let mut expected = alone.clone();
        expected.sort_unstable();
        assert_eq!(named, expected);
        let refused = pool.remove_volume(VolumeId(lost)).await.unwrap_err();
        assert!(refused.to_string().contains("only copy"), "{refused}");
        for text in alone {
            pool.remove(&name(text)).await.unwrap();
        }
        pool.remove_volume(VolumeId(lost)).await.unwrap();
        assert_eq!(pool.check().await.unwrap().findings, []);
    });
}

#[test]
fn a_copy_that_made_no_sense_is_found_out_by_who_read_it() {
    let volumes = mems(2);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        fill(&pool).await.unwrap();
        let handle = pool.open_handle(&name("t0")).await.unwrap();
        let bad = places(&pool, "t0").await[0];
        let leaf = volumes[usize::from(bad)].image();
        let leaf = leaf.iter().find(|(_, found)| **found == bytes("t0", 300_000)).unwrap().0;
        volumes[usize::from(bad)].damage(leaf, 99, |byte| *byte ^= 8);
        // A damaged only copy stays.
        assert_eq!(pool.distrust(&handle, IO).await, 0);
        volumes[usize::from(bad)].damage(leaf, 99, |byte| *byte ^= 8);
        pool.copy(handle.id(), VolumeId(1 - bad), COPY).await.unwrap();
        assert_eq!(pool.distrust(&handle, IO).await, 0);
        volumes[usize::from(bad)].damage(leaf, 99, |byte| *byte ^= 8);
        assert_eq!(pool.distrust(&handle, IO).await, 1);
        assert_eq!(places(&pool, "t0").await, [1 - bad]);
        assert_all_is_there(&pool, "distrusted").await;
    });
}

/// Every reread of a block that RocksDB rejected read the whole table again, although its checksum was right.
#[test]
fn a_single_copy_is_read_through_once_however_often_it_is_distrusted() {
    let volumes = mems(2);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        fill(&pool).await.unwrap();
        let handle = pool.open_handle(&name("t0")).await.unwrap();
        assert_eq!(pool.distrust(&handle, IO).await, 0);
        let on = places(&pool, "t0").await[0];
        let image = volumes[usize::from(on)].image();
        let leaf = image.iter().find(|(_, found)| **found == bytes("t0", 300_000)).unwrap().0;
        volumes[usize::from(on)].damage(leaf, 99, |byte| *byte ^= 8);
        assert_eq!(pool.distrust(&handle, IO).await, 0);
        assert_eq!(pool.damage().found, 0, "it was read a second time");
    });
}

#[test]
fn a_damaged_copy_is_named_and_made_anew() {
    let volumes = mems(3);
    let twice = || Opening::new(RoundRobin::default()).create_if_missing(POOL).copies(2);
    block_on(async {
        let pool = Spread::open(crate::rig::members(&volumes), twice()).await.unwrap();
        fill(&pool).await.unwrap();
        let bad = places(&pool, "t0").await[1];
        let image = volumes[usize::from(bad)].image();
        let leaf = image.iter().find(|(_, found)| **found == bytes("t0", 300_000)).unwrap().0;
        volumes[usize::from(bad)].damage(leaf, 123_456, |byte| *byte ^= 8);
        let report = pool.scrub(|_| ()).await.unwrap();
        assert_eq!(report.findings.len(), 1, "{report:?}");
        let found = &report.findings[0];
        assert_eq!((&*found.volume, &*found.name), (&*format!("s{bad}"), "t0"));
        assert!(found.elsewhere && !found.is_loss());
        assert!(found.to_string().contains("another copy is good"), "{found}");
        assert_eq!(pool.mend(&report).await.unwrap(), 1);
        assert_eq!(pool.repair(COPY, |_| ()).await.unwrap().made, 1);
        assert_all_is_there(&pool, "mended").await;
        assert_eq!(places(&pool, "t0").await.len(), 2);
    });
}

/// Objects lost with a volume are named, and given up only on request.
#[test]
fn a_lost_volume_leaves_and_what_was_only_there_is_named() {
    let volumes = mems(3);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        fill(&pool).await.unwrap();
        // Some objects have another copy.
        for text in ["t0", "a.log"] {
            let taken = places(&pool, text).await[0];
            let to = VolumeId((taken + 1) % 3);
            pool.copy(id_of(&pool, text).await, to, COPY).await.unwrap();
        }
        let lost = places(&pool, "t0").await[0];
        let here = pool.remove_lost(VolumeId(lost), true).await.unwrap_err();
        assert_eq!(here.kind(), ErrorKind::Invalid, "{here}");
        let mut only = Vec::new();
        for (text, _) in OBJECTS {
            if places(&pool, text).await == [lost] {
                only.push(name(text));
            }
        }
        only.sort();
        assert!(!only.is_empty() && !only.contains(&name("t0")));
        pool.close().await.unwrap();
        drop(pool);

        let rest = volumes.iter().filter(|volume| volume.label() != format!("s{lost}"));
        let members =
            || rest.clone().map(|v| Member::new(v.label(), v.clone())).collect::<Vec<_>>();
        let open = |members| Spread::open(members, opening("hash").allow_away());
        let pool = open(members()).await.unwrap();
        let refused = pool.remove_lost(VolumeId(lost), false).await.unwrap_err().to_string();
        assert!(only.iter().all(|name| refused.contains(name.as_str())), "{refused}");
        assert!(!refused.contains("t0"), "{refused}");
        assert_eq!(pool.volumes().len(), 3);
        assert_eq!(pool.remove_lost(VolumeId(lost), true).await.unwrap(), only);
        assert_eq!(pool.volumes().len(), 2);
        drop(pool);

        // The volume left, and the rest is served; reads of lost objects report the loss.
        let pool = Spread::open(members(), opening("hash")).await.unwrap();
        for (text, len) in OBJECTS {
            match get(&pool, text).await {
                Ok(found) => assert!(found == bytes(text, len) && !only.contains(&name(text))),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Corrupt, "{e}");
                    assert!(e.to_string().contains("was lost"), "{e}");
                    assert!(only.contains(&name(text)), "{text}");
                }
            }
        }
        let report = pool.check().await.unwrap();
        assert_eq!(report.findings.len(), only.len());
        assert!(report.findings.iter().all(pool::spread::Finding::is_loss));
        assert_eq!(pool.redundancy(&[].into()).unreadable, only.len() as u64);
        // Its number is never reused, and lost objects can be removed.
        let fresh = pool.add_volume(Member::new("fresh", Mem::new("fresh"))).await.unwrap();
        assert_eq!(fresh, VolumeId(3));
        for name in &only {
            pool.remove(name).await.unwrap();
        }
        assert_eq!(pool.check().await.unwrap().findings, []);
        let back = Spread::open(
            volumes.iter().map(|v| Member::new(v.label(), v.clone())).collect(),
            opening("hash").allow_away(),
        );
        assert!(back.await.err().expect("it left").to_string().contains("it was removed"));
    });
}

#[test]
fn a_lost_volume_of_which_all_is_elsewhere_leaves_without_a_word() {
    let volumes = mems(4);
    let two = || Opening::new(RoundRobin::default()).create_if_missing(POOL).copies(2);
    block_on(async {
        let pool = Spread::open(named(&volumes), two()).await.unwrap();
        fill(&pool).await.unwrap();
        drop(pool);
        let pool = Spread::open(named(&volumes[..3]), two().allow_away()).await.unwrap();
        assert_eq!(pool.remove_lost(VolumeId(3), false).await.unwrap(), []);
        assert_all_is_there(&pool, "without it").await;
        pool.repair(COPY, |_| ()).await.unwrap();
        for (text, _) in OBJECTS {
            assert_eq!(places(&pool, text).await.len(), 2, "{text}");
        }
    });
}

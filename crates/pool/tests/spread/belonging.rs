//! Volumes that do not match the settings: each is refused by name, with the remedy, and stays untouched.

use policy::placement::RoundRobin;
use pool::spread::{Opening, Problem, Spread};
use pool::{Member, PoolId};
use volume::layer::call::Op;
use volume::layer::fault::{Effect, Rule};
use volume::mem::{Image, Mem};
use volume::task::block_on;
use volume::{ErrorKind, Intent, Volume};

use crate::faults::Rig;
use crate::rig::{POOL, copies, get, manifests, members, mems, name, open, opening, put, refusal};

/// Volumes with a pool on them that holds `a`.
fn pool_of(count: usize) -> Vec<Mem> {
    let volumes = mems(count);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        put(&pool, "a", b"bytes").await.unwrap();
    });
    volumes
}

fn images(volumes: &[Mem]) -> Vec<Image> {
    volumes.iter().map(Mem::image).collect()
}

/// Opens the volumes, which must be refused and stay as they are.
fn refuse(volumes: &[Mem]) -> (ErrorKind, String) {
    let before = images(volumes);
    let refused = refusal(block_on(open(volumes)));
    assert!(images(volumes) == before, "a refused volume was touched");
    refused
}

fn assert_says(refused: (ErrorKind, String), kind: ErrorKind, words: &[&str]) {
    assert_eq!(refused.0, kind, "{}", refused.1);
    for word in words {
        assert!(refused.1.contains(word), "{word:?} is not in: {}", refused.1);
    }
}

#[test]
fn blank_volumes_are_made_a_pool_only_when_asked() {
    let volumes = mems(2);
    let opened = block_on(Spread::open(members(&volumes), Opening::new(RoundRobin::default())));
    assert_says(refusal(opened), ErrorKind::NotFound, &["no pool here", "s0, s1"]);
    assert!(volumes.iter().all(|volume| volume.image().is_empty()));
    block_on(Spread::format(&members(&volumes), POOL)).unwrap();
    let pool = block_on(Spread::open(members(&volumes), Opening::new(RoundRobin::default())));
    assert_eq!(pool.unwrap().id(), POOL);
    let again = block_on(Spread::format(&members(&volumes), PoolId(1)));
    assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists);
}

#[test]
fn a_volume_of_another_pool_is_refused() {
    let (mut volumes, other) = (pool_of(3), mems(1));
    block_on(async {
        let opening = Opening::new(RoundRobin::default()).create_if_missing(PoolId(0xbad));
        drop(Spread::open(members(&other), opening).await.unwrap());
    });
    volumes[1] = other[0].clone();
    assert_says(refuse(&volumes), ErrorKind::Invalid, &["s1", "s0", "belongs to pool", "0bad"]);
}

#[test]
fn a_volume_with_objects_and_no_header_is_refused() {
    let mut volumes = pool_of(3);
    let foreign = Mem::new("f");
    block_on(foreign.create(&name("photo.jpg"), &Intent::DATA)).unwrap();
    volumes[2] = foreign.clone();
    let words = ["s2", "no header", "photo.jpg"];
    assert_says(refuse(&volumes), ErrorKind::Invalid, &words);
    // With blank volumes it is refused too, not formatted.
    assert_says(refuse(&[Mem::new("b"), Mem::new("c"), foreign]), ErrorKind::Invalid, &words);
}

#[test]
fn a_blank_volume_in_a_pool_is_refused() {
    let mut volumes = pool_of(3);
    volumes[1] = Mem::new("new");
    let words = ["s1 is blank", "mounted", "take it out"];
    assert_says(refuse(&volumes), ErrorKind::Invalid, &words);
}

#[test]
fn a_volume_that_is_there_twice_is_refused() {
    let mut volumes = pool_of(3);
    volumes[2] = Mem::from_image("copy", volumes[0].image());
    assert_says(refuse(&volumes), ErrorKind::Invalid, &["s0", "s2", "copy of the other"]);
}

#[test]
fn a_missing_volume_is_named_and_can_be_done_without() {
    let volumes = pool_of(6);
    let here = &members(&volumes)[..5];
    let opened = block_on(Spread::open(here.to_vec(), opening("hash")));
    assert_says(refusal(opened), ErrorKind::Unavailable, &["missing volumes: s5"]);
    block_on(async {
        let pool = Spread::open(here.to_vec(), opening("hash").allow_away()).await.unwrap();
        assert_eq!(get(&pool, "a").await.unwrap(), b"bytes");
        put(&pool, "b", b"more").await.unwrap();
        drop(pool);
        // Back again, the volume has missed nothing.
        let pool = open(&volumes).await.unwrap();
        assert_eq!(get(&pool, "b").await.unwrap(), b"more");
        assert_eq!(pool.check().await.unwrap().findings, []);
    });
}

/// Volumes of which some cannot be read: their headers, for one.
fn unreadable(volumes: &[Mem], which: &[usize], op: Op, kind: ErrorKind) -> Rig {
    let rig = Rig::new(volumes.to_vec());
    for at in which {
        let rule = Rule::new(Effect::Fail(kind)).on(op).named("pool.header");
        rig.plan.inject(rule.volume(&format!("s{at}")));
    }
    rig
}

fn opening_without_failing() -> Opening {
    opening("round-robin").copies(2).allow_failing()
}

#[test]
fn a_volume_whose_header_cannot_be_read_can_be_done_without() {
    for kind in [ErrorKind::Io, ErrorKind::Unavailable, ErrorKind::TimedOut] {
        for (at, op) in (0..3).flat_map(|at| [(at, Op::Open), (at, Op::Read)]) {
            let volumes = mems(3);
            block_on(async {
                let pool = Spread::open(members(&volumes), opening("round-robin").copies(2));
                put(&pool.await.unwrap(), "a", b"bytes").await.unwrap();
                let rig = unreadable(&volumes, &[at], op, kind);
                assert_eq!(
                    refusal(rig.open().await).0,
                    kind,
                    "the opening allows no failing volume"
                );
                let pool = Spread::open(members(&rig.faults), opening_without_failing());
                let pool = pool.await.unwrap_or_else(|e| panic!("{kind:?} of s{at}: {e}"));
                assert_eq!(get(&pool, "a").await.unwrap(), b"bytes");
                put(&pool, "b", b"more").await.unwrap();
                drop(pool);
                let pool = open(&volumes).await.unwrap();
                assert_eq!(get(&pool, "a").await.unwrap(), b"bytes");
                assert_eq!(get(&pool, "b").await.unwrap(), b"more");
            });
        }
    }
}

/// Damages both slots of the header of a volume.
fn damage_header(volume: &Mem) {
    for offset in [20, 4096 + 20] {
        volume.damage(&name("pool.header"), offset, |byte| *byte ^= 1);
    }
}

#[test]
fn a_volume_whose_header_is_damaged_can_be_done_without_and_is_not_touched() {
    for at in 0..3 {
        let volumes = mems(3);
        block_on(async {
            let pool = Spread::open(members(&volumes), opening("round-robin").copies(2));
            let pool = pool.await.unwrap();
            put(&pool, "a", b"bytes").await.unwrap();
            drop(pool);
            damage_header(&volumes[at]);
            let before = images(&volumes[at..=at]);
            assert_eq!(refusal(open(&volumes).await).0, ErrorKind::Corrupt);
            let pool = Spread::open(members(&volumes), opening_without_failing());
            let pool = pool.await.unwrap_or_else(|e| panic!("s{at}: {e}"));
            let [left_out] = pool.left_out() else { panic!("{:?}", pool.left_out()) };
            assert_eq!(left_out.label, format!("s{at}"));
            assert!(left_out.why.to_string().starts_with("both slots of its header"));
            assert_eq!(get(&pool, "a").await.unwrap(), b"bytes");
            put(&pool, "b", b"more").await.unwrap();
            let joins = pool.add_volume(Member::new("new", volumes[at].clone())).await;
            assert_eq!(joins.unwrap_err().kind(), ErrorKind::Corrupt);
            pool.close().await.unwrap();
            assert!(images(&volumes[at..=at]) == before, "s{at} was touched");
        });
    }
}

/// Without the volume there may be a newer manifest on it, and a salvage would not look for it.
#[test]
fn a_volume_whose_header_is_damaged_is_refused_where_the_others_are_not_enough() {
    let volumes = pool_of(3);
    let before = images(&volumes);
    for which in [&[0, 1][..], &[1, 2], &[0, 1, 2]] {
        let damaged = copies(&volumes);
        which.iter().for_each(|&at| damage_header(&damaged[at]));
        let images_before = images(&damaged);
        let opened = Spread::open(members(&damaged), opening_without_failing());
        let kind = if which.len() < 3 { ErrorKind::Unavailable } else { ErrorKind::Corrupt };
        assert_eq!(refusal(block_on(opened)).0, kind, "{which:?}");
        let opened = Spread::open(members(&damaged), opening_without_failing().salvage());
        assert_eq!(refusal(block_on(opened)).0, ErrorKind::Corrupt, "{which:?}");
        assert!(images(&damaged) == images_before, "{which:?}: a volume was touched");
    }
    // Beside blank volumes no new pool is made.
    let beside = [Mem::new("s0"), Mem::new("s1"), volumes[2].clone()];
    damage_header(&beside[2]);
    let opened = Spread::open(members(&beside), opening_without_failing());
    let words = ["is blank while others"];
    assert_says(refusal(block_on(opened)), ErrorKind::Invalid, &words);
    assert!(images(&beside[..2]).iter().all(|image| image.is_empty()));
    assert!(images(&volumes[..2]) == before[..2]);
}

#[test]
fn no_pool_is_created_while_a_header_cannot_be_read() {
    let volumes = pool_of(3);
    let blank = |at: usize| Mem::new(&format!("s{at}"));
    for (op, kind) in [(Op::Open, ErrorKind::Io), (Op::Read, ErrorKind::Unavailable)] {
        for which in [&[0][..], &[1], &[0, 2], &[1, 2], &[0, 1, 2]] {
            // Beside the unreadable volumes are blank ones: those of the pool are about to be replaced, say.
            let beside =
                |at: usize| if which.contains(&at) { volumes[at].clone() } else { blank(at) };
            let beside: Vec<_> = (0..3).map(beside).collect();
            let before = images(&beside);
            let rig = unreadable(&beside, which, op, kind);
            let opened = Spread::open(members(&rig.faults), opening_without_failing());
            let (_, message) = refusal(block_on(opened));
            let words = if which.len() < 3 { "is blank while others" } else { "s2" };
            assert!(message.contains(words), "{message}");
            let formatted = block_on(Spread::format(&members(&rig.faults), PoolId(1)));
            assert_eq!(formatted.unwrap_err().kind(), kind);
            assert!(images(&beside) == before, "{which:?}: a refused volume was touched");
        }
    }
}

#[test]
fn a_failing_volume_does_not_stand_for_those_that_were_left_out() {
    let volumes = pool_of(6);
    let rig = unreadable(&volumes, &[4], Op::Read, ErrorKind::Io);
    let opened = Spread::open(members(&rig.faults[..5]), opening_without_failing());
    let words = ["missing volumes: s4, s5"];
    assert_says(refusal(block_on(opened)), ErrorKind::Unavailable, &words);
    assert_eq!(
        block_on(Spread::open(members(&rig.faults), opening_without_failing())).unwrap().id(),
        POOL
    );
}

#[test]
fn names_and_sizes_are_known_with_their_volume_away() {
    let volumes = mems(4);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        for i in 0..8 {
            put(&pool, &format!("t{i}"), &vec![i; 1000 + usize::from(i)]).await.unwrap();
        }
        drop(pool);
        let here = members(&volumes)[..3].to_vec();
        let pool = Spread::open(here, opening("hash").allow_away()).await.unwrap();
        let mut away = 0;
        for i in 0..8 {
            let text = format!("t{i}");
            let stat = pool.stat(&name(&text)).await.unwrap();
            assert_eq!(stat.len, 1000 + u64::from(i));
            assert_eq!(pool.open(&name(&text)).await.unwrap().len(), stat.len);
            match get(&pool, &text).await {
                Ok(bytes) => assert_eq!(bytes, vec![i; 1000 + usize::from(i)]),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Unavailable);
                    let message = e.to_string();
                    assert!(message.contains(&text) && message.contains("volume s3"), "{message}");
                    away += 1;
                }
            }
        }
        assert_eq!((away, pool.list().await.unwrap().len()), (2, 8));
        let report = pool.check().await.unwrap();
        assert_eq!(report.findings.len(), 2);
        assert!(report.findings.iter().all(|f| f.volume == "s3" && f.problem == Problem::Away));
        // Objects removed meanwhile are removed from the volume when it is back.
        for i in 0..8 {
            pool.remove(&name(&format!("t{i}"))).await.unwrap();
        }
        drop(pool);
        let pool = open(&volumes).await.unwrap();
        assert_eq!(pool.list().await.unwrap(), []);
        assert_eq!(pool.check().await.unwrap().findings, []);
        assert_eq!(volumes[3].image().len(), 1, "nothing is left but the header");
    });
}

#[test]
fn a_stale_manifest_is_refused() {
    let volumes = pool_of(6);
    let old = copies(&volumes);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        put(&pool, "b", b"newer").await.unwrap();
    });
    // An old backup replaces the volumes with the manifest; the others are current.
    let mixed: Vec<_> =
        (0..6).map(|i| if i < 3 { &old[i] } else { &volumes[i] }).cloned().collect();
    assert_says(refuse(&mixed), ErrorKind::Unavailable, &["stale manifest", "--repair"]);
    // One current copy is enough.
    let mended: Vec<_> =
        (0..6).map(|i| if i < 2 { &old[i] } else { &volumes[i] }).cloned().collect();
    let pool = block_on(open(&mended)).unwrap();
    assert_eq!(block_on(pool.list()).unwrap().len(), 2);
}

#[test]
fn a_minority_of_copies_is_not_believed() {
    let volumes = mems(2);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        put(&pool, "a", b"1").await.unwrap();
        drop(pool);
        // With one volume away the other opens only with `salvage`.
        let first = members(&volumes)[..1].to_vec();
        let opened = Spread::open(first.clone(), opening("single").allow_away()).await;
        assert_says(refusal(opened), ErrorKind::Unavailable, &["1 of 2", "s0, s1", "--repair"]);
        let pool = Spread::open(first, opening("single").salvage()).await.unwrap();
        put(&pool, "b", b"2").await.unwrap();
        drop(pool);
        // The volume that was away is stale, and must not open alone.
        let second = members(&volumes)[1..].to_vec();
        let opened = Spread::open(second, opening("single").allow_away()).await;
        assert_says(refusal(opened), ErrorKind::Unavailable, &["1 of 2"]);
        let pool = open(&volumes).await.unwrap();
        assert_eq!(pool.list().await.unwrap().len(), 2);
    });
}

#[test]
fn a_pool_that_two_went_on_with_is_refused() {
    let volumes = mems(2);
    block_on(async {
        drop(open(&volumes).await.unwrap());
        for one in [0, 1] {
            let member = members(&volumes)[one].clone();
            let pool = Spread::open(vec![member], opening("single").salvage()).await.unwrap();
            put(&pool, "a", &[one as u8]).await.unwrap();
        }
    });
    assert_says(refuse(&volumes), ErrorKind::Corrupt, &["opened twice"]);
}

#[test]
fn salvage_deletes_nothing_it_does_not_know() {
    let volumes = mems(4);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        put(&pool, "old", b"old").await.unwrap();
        drop(pool);
        let before = copies(&volumes);
        let pool = open(&volumes).await.unwrap();
        for i in 0..8 {
            put(&pool, &format!("new{i}"), b"new").await.unwrap();
        }
        drop(pool);
        // The volumes with the manifest are lost, and only an old backup of them exists.
        let mixed: Vec<_> =
            (0..4).map(|i| if i < 3 { &before[i] } else { &volumes[i] }).cloned().collect();
        let pool = Spread::open(members(&mixed), opening("hash").salvage()).await.unwrap();
        assert_eq!(get(&pool, "old").await.unwrap(), b"old");
        let foreign: Vec<_> = pool.foreign().iter().map(|f| (f.volume.as_str(), f.len)).collect();
        assert_eq!(foreign, [("s3", 3), ("s3", 3)]);
        drop(pool);
        // Later openings do not touch them either.
        let pool = open(&mixed).await.unwrap();
        assert_eq!(pool.foreign().len(), 2);
        put(&pool, "again", b"again").await.unwrap();
        drop(pool);
        assert_eq!(open(&mixed).await.unwrap().foreign().len(), 2);
    });
}

#[test]
fn meta_volumes_hold_the_manifest_and_the_logs() {
    let volumes = mems(6);
    block_on(async {
        let meta = || opening("round-robin").meta(["s4".into(), "s5".into()]);
        let pool = Spread::open(members(&volumes), meta()).await.unwrap();
        for i in 0..4 {
            pool.create(&name(&format!("{i}.log")), &Intent::LOG).await.unwrap();
            put(&pool, &format!("{i}.sst"), b"table").await.unwrap();
        }
        let with_manifest: Vec<_> =
            (0..6).filter(|&i| !manifests(&volumes[i]).is_empty()).collect();
        assert_eq!(with_manifest, [0, 4, 5]);
        for (i, volume) in volumes.iter().enumerate() {
            let logs = volume.image().into_keys().filter(|n| n.as_str().ends_with(".log")).count();
            assert_eq!(logs > manifests(volume).len(), i >= 4, "s{i}");
        }
        drop(pool);
        let opening = opening("hash").meta(["s9".into()]);
        let opened = Spread::open(members(&volumes), opening).await;
        assert_says(refusal(opened), ErrorKind::Invalid, &["s9", "s0, s1"]);
    });
}

#[test]
fn labels_are_for_people_and_may_change() {
    let volumes = pool_of(2);
    let renamed =
        vec![Member::new("east", volumes[1].clone()), Member::new("west", volumes[0].clone())];
    block_on(async {
        let pool = Spread::open(renamed, opening("hash")).await.unwrap();
        assert_eq!(get(&pool, "a").await.unwrap(), b"bytes");
        assert_eq!(pool.check().await.unwrap().findings, []);
    });
    let unnamed = vec![Member::new("", volumes[0].clone())];
    let opened = block_on(Spread::open(unnamed, opening("hash")));
    assert_says(refusal(opened), ErrorKind::Invalid, &["label"]);
}

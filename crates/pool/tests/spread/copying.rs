//! Copies of an object, added and dropped: reads go to any copy, and succeed while one is good.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use policy::budget::Share;
use policy::contract::Contract;
use policy::placement::VolumeId;
use policy::purpose::{Class, Origin, Step};
use pool::ObjectId;
use pool::spread::Spread;
use volume::conformance;
use volume::layer::call::Op as Call;
use volume::layer::fault::{Effect, Rule};
use volume::layer::gate::Gate;
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, ErrorKind, Intent, Io, IoBuf, IoBufMut, Name, Object, Volume};

use crate::faults::Rig;
use crate::jitter::Jitter;
use crate::rig::{IO, get, mems, name, open, put, read_all};

pub(crate) const COPY: Io = Io::new(Origin::Copy, Step::Data);

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

pub(crate) async fn id_of(pool: &Spread, text: &str) -> ObjectId {
    pool.stat(&name(text)).await.unwrap().id
}

/// The volumes with a copy, in order.
pub(crate) async fn places(pool: &Spread, text: &str) -> Vec<u16> {
    let stat = pool.stat(&name(text)).await.unwrap();
    let volumes = stat.copies.iter().flat_map(|placed| placed.layout.volumes());
    let mut volumes: Vec<_> = volumes.map(|volume| volume.0).collect();
    volumes.sort_unstable();
    volumes
}

/// A volume without a copy.
async fn another(pool: &Spread, text: &str) -> VolumeId {
    let taken = places(pool, text).await;
    VolumeId((0..).find(|id| !taken.contains(id)).unwrap())
}

/// The leaf objects on a volume.
fn leaves(volume: &Mem) -> Vec<Name> {
    let names = volume.image().into_keys();
    names.filter(|name| name.as_str().starts_with('o')).collect()
}

#[test]
fn a_copy_is_read_when_the_original_is_away_and_after_a_restart() {
    let rig = Rig::new(mems(3));
    let bytes = pattern(700_000);
    block_on(async {
        let pool = rig.open().await.unwrap();
        put(&pool, "a", &bytes).await.unwrap();
        put(&pool, "b", b"single").await.unwrap();
        let (id, to) = (id_of(&pool, "a").await, another(&pool, "a").await);
        let handle = pool.open_handle(&name("a")).await.unwrap();
        let copied = pool.copy(id, to, COPY).await.unwrap();
        assert_eq!(copied.len, 700_000);
        let again = pool.copy(id, to, COPY).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AlreadyExists);
        assert_eq!(places(&pool, "a").await.len(), 2);
        assert_eq!(pool.check().await.unwrap().findings, []);
        drop(pool);
        let pool = rig.open().await.unwrap();
        assert_eq!(places(&pool, "a").await.len(), 2);
        for away in places(&pool, "a").await {
            let label = format!("s{away}");
            let away =
                rig.plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)).volume(&label));
            for _ in 0..10 {
                assert_eq!(get(&pool, "a").await.unwrap(), bytes);
            }
            rig.plan.lift(away);
        }
        drop(handle);
        assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
    });
}

#[test]
fn threads_that_block_find_the_other_copy_too() {
    let rig = Rig::new(mems(2));
    let bytes = pattern(300_000);
    let (pool, handle) = block_on(async {
        let pool = rig.open().await.unwrap();
        put(&pool, "a", &bytes).await.unwrap();
        pool.copy(id_of(&pool, "a").await, another(&pool, "a").await, COPY).await.unwrap();
        let handle = pool.open_handle(&name("a")).await.unwrap();
        (pool, handle)
    });
    let read = |at: usize| {
        let mut into = vec![0; 1000];
        assert_eq!(handle.blocking_read_at(at as u64, &mut into, IO).unwrap(), 1000);
        assert_eq!(into, bytes[at..at + 1000]);
    };
    (0..10).for_each(|i| read(i * 999));
    for label in ["s0", "s1"] {
        let away = rig.plan.inject(Rule::new(Effect::Fail(ErrorKind::Io)).volume(label));
        (0..10).for_each(|i| read(i * 999));
        rig.plan.lift(away);
    }
    rig.plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)));
    let failed = handle.blocking_read_at(0, &mut [0; 10], IO).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Unavailable);
    assert!(failed.to_string().contains("on volume s"), "{failed}");
    rig.plan.clear();
    // Writers avoid it too.
    let log = block_on(pool.create(&name("x.log"), &Intent::LOG)).unwrap();
    log.blocking_write_at(0, b"one", IO).unwrap();
    let to = block_on(another(&pool, "x.log"));
    let id = block_on(id_of(&pool, "x.log"));
    block_on(pool.copy(id, to, COPY)).unwrap();
    log.blocking_write_at(3, b" two", IO).unwrap();
    block_on(log.sync(IO)).unwrap();
    for from in 0..2 {
        let away = rig.plan.inject(
            Rule::new(Effect::Fail(ErrorKind::Io)).on(Call::Read).volume(&format!("s{from}")),
        );
        assert_eq!(block_on(get(&pool, "x.log")).unwrap(), b"one two");
        rig.plan.lift(away);
    }
}

#[test]
fn dropping_a_copy_leaves_the_others_and_never_the_last() {
    let volumes = mems(3);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        put(&pool, "a", &pattern(300_000)).await.unwrap();
        let id = id_of(&pool, "a").await;
        let first = VolumeId(places(&pool, "a").await[0]);
        let only = pool.drop_copy(id, first).await.unwrap_err();
        assert_eq!(only.kind(), ErrorKind::Invalid);
        let open_before = pool.open(&name("a")).await.unwrap();
        let to = another(&pool, "a").await;
        pool.copy(id, to, COPY).await.unwrap();
        pool.drop_copy(id, first).await.unwrap();
        assert_eq!(places(&pool, "a").await, [to.0]);
        assert!(leaves(&volumes[usize::from(first.0)]).is_empty());
        assert_eq!(read_all(&*open_before).await.unwrap(), pattern(300_000));
        let none = pool.drop_copy(id, first).await.unwrap_err();
        assert_eq!(none.kind(), ErrorKind::NotFound);
        drop(pool);
        let pool = open(&volumes).await.unwrap();
        assert_eq!(get(&pool, "a").await.unwrap(), pattern(300_000));
        // A new copy on the first volume has a new number.
        pool.copy(id, first, COPY).await.unwrap();
        pool.remove(&name("a")).await.unwrap();
        assert!(volumes.iter().all(|volume| leaves(volume).is_empty()));
        assert_eq!(pool.check().await.unwrap().findings, []);
    });
}

#[test]
fn an_object_removed_while_it_is_copied_stays_removed() {
    let mut gone = 0;
    for seed in 0..60 {
        let clock = Clock::simulated();
        let volumes = mems(2);
        let jitter = volumes.iter().map(|mem| Jitter::new(mem.clone(), &clock, seed));
        let jitter: Vec<_> = jitter.collect();
        clock.run(async {
            let pool = open(&jitter).await.unwrap();
            put(&pool, "a", &pattern(1 << 20)).await.unwrap();
            let (id, to) = (id_of(&pool, "a").await, another(&pool, "a").await);
            let remove = async {
                clock.sleep(Duration::from_micros(100 * seed)).await;
                pool.remove(&name("a")).await
            };
            let (copied, removed) = join(pool.copy(id, to, COPY), remove).await;
            removed.unwrap();
            if let Err(e) = copied {
                assert_eq!(e.kind(), ErrorKind::Gone, "{e}");
                gone += 1;
            }
            assert!(volumes.iter().all(|volume| leaves(volume).is_empty()), "{seed}");
            assert_eq!(pool.check().await.unwrap().findings, []);
        });
    }
    assert!(gone > 5 && gone < 60, "{gone}");
}

#[test]
fn a_damaged_copy_is_never_copied() {
    let volumes = mems(3);
    block_on(async {
        let pool = open(&volumes).await.unwrap();
        put(&pool, "a", &pattern(600_000)).await.unwrap();
        let id = id_of(&pool, "a").await;
        let first = usize::from(places(&pool, "a").await[0]);
        let to = another(&pool, "a").await;
        pool.copy(id, to, COPY).await.unwrap();
        volumes[first].damage(&leaves(&volumes[first])[0], 300_000, |byte| *byte ^= 1);
        let third = another(&pool, "a").await;
        pool.copy(id, third, COPY).await.unwrap();
        pool.drop_copy(id, VolumeId(first as u16)).await.unwrap();
        assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
        // Without a good copy none is made.
        pool.drop_copy(id, third).await.unwrap();
        let last = usize::from(to.0);
        volumes[last].damage(&leaves(&volumes[last])[0], 5, |byte| *byte ^= 1);
        let refused = pool.copy(id, third, COPY).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
        assert!(refused.to_string().contains("a (object"), "{refused}");
        assert_eq!(places(&pool, "a").await, [to.0]);
        assert_eq!(pool.check().await.unwrap().findings, []);
    });
}

#[test]
fn what_is_written_to_has_the_same_bytes_in_every_copy() {
    let rig = Rig::new(mems(2));
    block_on(async {
        let pool = rig.open().await.unwrap();
        let log = pool.create(&name("x.log"), &Intent::LOG).await.unwrap();
        let data = pool.create(&name("data"), &Intent::DATA).await.unwrap();
        for (object, text) in [(&log, "x.log"), (&data, "data")] {
            object.write_at(0, IoBuf::from(&pattern(400_000)[..]), IO).await.unwrap();
            object.sync(IO).await.unwrap();
            pool.copy(id_of(&pool, text).await, another(&pool, text).await, COPY).await.unwrap();
            object.write_at(400_000, IoBuf::from(&b"more"[..]), IO).await.unwrap();
            object.write_at(400_004, IoBuf::from(&b"and more"[..]), IO).await.unwrap();
            object.write_at(10, IoBuf::from(&b"over"[..]), IO).await.unwrap();
            object.set_len(400_010).await.unwrap();
            object.sync(IO).await.unwrap();
        }
        pool.close().await.unwrap();
        let images: Vec<_> = rig.mems.iter().map(|mem| mem.image()).collect();
        let found = images.iter().map(|image| {
            let leaves = image.iter().filter(|(name, _)| name.as_str().starts_with('o'));
            leaves.map(|(_, bytes)| bytes.clone()).collect::<Vec<_>>()
        });
        let found: Vec<_> = found.collect();
        assert_eq!(found[0].len(), 2);
        assert!(found[0] == found[1]);
        assert_eq!(found[0][0].len(), 400_010);
        // After a clean close, both copies are trusted.
        drop((log, data, pool));
        let pool = rig.open().await.unwrap();
        assert_eq!(places(&pool, "x.log").await.len(), 2);
        drop(pool);
        // Otherwise they are compared and aligned.
        let leaf = |volume: &Mem| {
            leaves(volume)
                .into_iter()
                .find(|leaf| leaf.as_str().ends_with(".log"))
                .expect("there is one")
        };
        let shorter = rig.mems[1].open(&leaf(&rig.mems[1])).await.unwrap();
        shorter.set_len(300_000).await.unwrap();
        rig.mems[1].damage(&leaf(&rig.mems[1]), 290_000, |byte| *byte ^= 1);
        let pool = rig.open().await.unwrap();
        assert_eq!(places(&pool, "x.log").await.len(), 2);
        assert_eq!(places(&pool, "data").await.len(), 2);
        let both = || [0, 1].map(|at| rig.mems[at].image()[&leaf(&rig.mems[at])].clone());
        let [a, b] = both();
        assert!(a.len() == 400_010 && a[300_000..] == b[300_000..] && a != b);
        assert_eq!(get(&pool, "x.log").await.unwrap(), a);
        pool.open(&name("x.log")).await.unwrap().sync(IO).await.unwrap();
        assert_eq!(both(), [a.clone(), a]);
        assert_eq!(pool.check().await.unwrap().findings, []);
    });
}

#[test]
fn a_copy_that_misses_a_write_is_dropped() {
    for (op, text) in [(Call::Write, "data"), (Call::Sync, "data"), (Call::Write, "x.log")] {
        let rig = Rig::new(mems(3));
        block_on(async {
            let pool = rig.open().await.unwrap();
            let intent = conformance::intent(&name(text));
            let object = pool.create(&name(text), &intent).await.unwrap();
            object.write_at(0, IoBuf::from(&b"first"[..]), IO).await.unwrap();
            object.sync(IO).await.unwrap();
            let (id, to) = (id_of(&pool, text).await, another(&pool, text).await);
            let first = places(&pool, text).await[0];
            pool.copy(id, to, COPY).await.unwrap();
            let label = format!("s{first}");
            let rule = Rule::new(Effect::Fail(ErrorKind::Io)).on(op).volume(&label).named("o*");
            rig.plan.inject(rule.nth(0));
            object.write_at(5, IoBuf::from(&b" second"[..]), IO).await.unwrap();
            object.sync(IO).await.unwrap();
            assert_eq!(places(&pool, text).await, [to.0], "{op:?} {text}");
            assert_eq!(get(&pool, text).await.unwrap(), b"first second");
            pool.flush().await.unwrap();
            assert_eq!(pool.check().await.unwrap().findings, []);
            drop(pool);
            let pool = rig.open().await.unwrap();
            assert_eq!(get(&pool, text).await.unwrap(), b"first second");
            assert_eq!(pool.check().await.unwrap().findings, []);
        });
    }
}

#[test]
fn reads_are_shared_by_copies() {
    let clock = Clock::simulated();
    let gates: Vec<_> = mems(2)
        .into_iter()
        .map(|mem| {
            let (label, contract) = (mem.label().to_owned(), Contract::unlimited());
            Arc::new(Gate::new(mem, &label, &contract, Share::default(), clock.clone()))
        })
        .collect();
    let reads = |gate: &Gate<Mem>| gate.meter().classes[Class::Foreground.index()].granted;
    let read = Io::new(Origin::UserRead, Step::Data);
    block_on(async {
        let pool = open(&gates).await.unwrap();
        put(&pool, "a", &pattern(100_000)).await.unwrap();
        pool.copy(id_of(&pool, "a").await, another(&pool, "a").await, COPY).await.unwrap();
        let handle = pool.open_handle(&name("a")).await.unwrap();
        for i in 0..100 {
            handle.read_at(i, IoBufMut::zeroed(10), read).await.unwrap();
        }
        let shared = [reads(&gates[0]), reads(&gates[1])];
        assert!(shared[0] > 20 && shared[1] > 20 && shared[0] + shared[1] == 100, "{shared:?}");
    });
}

//! A scrubber in virtual time: damage is found and repaired while users write, a pass takes its period, and a restart
//! goes on with it.

use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use policy::placement::VolumeId;
use policy::purpose::{Origin, Step};
use pool::scrubber::{Passes, Position, Scrubber};
use pool::spread::{Problem, Spread};
use volume::layer::call::Op as Call;
use volume::layer::fault::{Effect, Rule};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{
    Clock, Error, ErrorKind, Expected, Intent, Io, IoBuf, IoBufMut, Name, Pending, Result,
    Verified, Verify, Volume,
};

use crate::faults::Rig;
use crate::rig::{IO, get, mems, name, put};
use crate::together::open;

const PERIOD: Duration = Duration::from_secs(4000);
const COPY: Io = Io::new(Origin::Copy, Step::Data);

/// Runs a scrubber until `story` ends.
async fn beside<T>(scrubber: Scrubber, story: impl Future<Output = T>) -> T {
    let scrubbing = pin!(scrubber.run(|_| ()));
    match select(pin!(story), scrubbing).await {
        Either::Left((told, _)) => told,
        Either::Right(_) => unreachable!("a scrubber does not end"),
    }
}

/// Waits for the end of the pass under way.
async fn end_of_pass(passes: &Passes, clock: &Clock) {
    while passes.last().is_none() {
        clock.sleep(Duration::from_secs(1)).await;
    }
}

/// Four objects of 1000 bytes, each on two volumes.
async fn four(rig: &Rig) -> Spread {
    let pool = open(rig, &[0, 1, 2]).await.unwrap();
    for text in ["a", "b", "c", "d"] {
        put(&pool, text, &[7; 1000]).await.unwrap();
    }
    pool
}

/// Flips a bit of a byte in the first copy of an object.
async fn rot(pool: &Spread, rig: &Rig, text: &str, offset: u64) {
    let first = pool.stat(&name(text)).await.unwrap().copies[0].layout.volumes()[0];
    rot_on(first, pool, rig, text, offset).await;
}

/// Flips a bit of a byte in the copy of an object on a volume.
async fn rot_on(volume: VolumeId, pool: &Spread, rig: &Rig, text: &str, offset: u64) {
    let stat = pool.stat(&name(text)).await.unwrap();
    let mem: &Mem = &rig.mems[usize::from(volume.0)];
    let mut leaves = mem.image().into_keys();
    let leaf: Name =
        leaves.find(|leaf| leaf.as_str().starts_with(&format!("o{}", stat.id))).unwrap();
    mem.damage(&leaf, offset, |byte| *byte ^= 1);
}

/// Objects that the current pass has read.
fn read(passes: &Passes) -> u64 {
    passes.current().map_or(0, |pass| pass.at.objects)
}

#[test]
fn rot_is_found_and_repaired_while_users_write_and_remove() {
    let (rig, clock) = (Rig::new(mems(3)), Clock::simulated());
    clock.run(async {
        let pool = four(&rig).await;
        let mut logs = Vec::new();
        for text in ["open.log", "sealed.log"] {
            let log = pool.create(&name(text), &Intent::LOG).await.unwrap();
            log.write_at(0, IoBuf::from(&b"acknowledged"[..]), IO).await.unwrap();
            log.sync(IO).await.unwrap();
            logs.push(log);
        }
        logs[1].seal(IO).await.unwrap();
        // Gives the open log its checksum.
        assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
        for text in ["a", "open.log", "sealed.log"] {
            rot(&pool, &rig, text, 5).await;
        }
        let scrubber = Scrubber::new(pool.clone(), clock.clone(), Some(PERIOD), None);
        let passes = scrubber.passes();
        beside(scrubber, async {
            for n in 0_u64.. {
                put(&pool, &format!("n{n}"), &[1; 500]).await.unwrap();
                let more = IoBuf::from(&b" and more"[..]);
                logs[0].write_at(12 + 9 * n, more, IO).await.unwrap();
                logs[0].sync(IO).await.unwrap();
                clock.sleep(Duration::from_secs(10)).await;
                pool.remove(&name(&format!("n{n}"))).await.unwrap();
                // An object of the pass goes away before its turn.
                if n == 10 {
                    pool.remove(&name("d")).await.unwrap();
                }
                if passes.last().is_some() {
                    break;
                }
            }
        })
        .await;
        let pass = passes.last().expect("it ended");
        assert_eq!((pass.damaged, pass.repaired, pass.unread), (3, 3, 0), "{pass:?}");
        let names: Vec<_> = pass.findings.iter().map(|found| &*found.name).collect();
        assert_eq!(names, ["a", "open.log", "sealed.log"]);
        assert_eq!(pool.damage().found, 3);
        assert_eq!(pool.damage().left, 0);
        // A mover makes the dropped copies again.
        assert_eq!(pool.repair(COPY, |_| ()).await.unwrap().made, 3);
        assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
        assert_eq!(get(&pool, "a").await.unwrap(), [7; 1000]);
        assert!(get(&pool, "open.log").await.unwrap().starts_with(b"acknowledged and more"));
    });
}

/// A report has the name of a table whose copy rotted. When a newer table has the name, and its copy on another volume
/// rots, the good copy on the volume of the report was dropped.
#[test]
fn a_table_that_replaced_a_damaged_one_keeps_its_good_copy() {
    let rig = Rig::new(mems(2));
    block_on(async {
        let pool = open(&rig, &[0, 1]).await.unwrap();
        put(&pool, "a", &[7; 1000]).await.unwrap();
        rot_on(VolumeId(0), &pool, &rig, "a", 5).await;
        let report = pool.scrub(|_| ()).await.unwrap();
        assert_eq!(report.findings.len(), 1);
        put(&pool, "draft", &[8; 1000]).await.unwrap();
        pool.rename(&name("draft"), &name("a")).await.unwrap();
        rot_on(VolumeId(1), &pool, &rig, "a", 5).await;
        assert_eq!(pool.mend(&report).await.unwrap(), 0);
        let report = pool.scrub(|_| ()).await.unwrap();
        assert_eq!(pool.mend(&report).await.unwrap(), 1);
        assert_eq!(get(&pool, "a").await.unwrap(), [8; 1000]);
    });
}

/// The same with a newer copy of the same object on the volume of the damaged one.
#[test]
fn a_copy_that_replaced_a_damaged_one_stays() {
    let rig = Rig::new(mems(2));
    block_on(async {
        let pool = open(&rig, &[0, 1]).await.unwrap();
        put(&pool, "a", &[7; 1000]).await.unwrap();
        rot_on(VolumeId(0), &pool, &rig, "a", 5).await;
        let object = pool.next_to_scrub(&pool.begin_scrub()).expect("the only object");
        let findings = pool.scrub_object(&object).await;
        assert_eq!(findings.len(), 1);
        let id = pool.stat(&name("a")).await.unwrap().id;
        pool.drop_copy(id, VolumeId(0)).await.unwrap();
        pool.copy(id, VolumeId(0), COPY).await.unwrap();
        rot_on(VolumeId(1), &pool, &rig, "a", 5).await;
        assert_eq!(pool.mend_object(&object, &findings).await.unwrap(), 0);
        let report = pool.scrub(|_| ()).await.unwrap();
        assert_eq!(pool.mend(&report).await.unwrap(), 1);
        assert_eq!(get(&pool, "a").await.unwrap(), [7; 1000]);
    });
}

#[test]
fn the_only_copy_stays_and_counts_as_damaged() {
    let (volumes, clock) = (mems(1), Clock::simulated());
    clock.run(async {
        let pool = crate::rig::open(&volumes).await.unwrap();
        put(&pool, "a", &[7; 1000]).await.unwrap();
        let leaf = volumes[0].image().into_keys().find(|leaf| leaf.as_str().starts_with('o'));
        volumes[0].damage(&leaf.unwrap(), 5, |byte| *byte ^= 1);
        let scrubber = Scrubber::new(pool.clone(), clock.clone(), None, None);
        let passes = scrubber.passes();
        assert_eq!(passes.begin().number, 1);
        beside(scrubber, end_of_pass(&passes, &clock)).await;
        let pass = passes.last().expect("it ended");
        assert_eq!((pass.damaged, pass.repaired), (1, 0), "{pass:?}");
        assert!(pass.findings[0].is_loss());
        assert_eq!(pool.damage().left, 1);
        assert_eq!(pool.stat(&name("a")).await.unwrap().copies.len(), 1);
    });
}

#[test]
fn a_pass_takes_its_period_and_the_next_follows() {
    let (rig, clock) = (Rig::new(mems(3)), Clock::simulated());
    clock.run(async {
        let pool = four(&rig).await;
        let scrubber = Scrubber::new(pool.clone(), clock.clone(), Some(PERIOD), None);
        let (passes, heartbeat) = (scrubber.passes(), scrubber.heartbeat());
        heartbeat.started();
        beside(scrubber, async {
            let mut progress = Vec::new();
            for _ in 0..4 {
                for wait in [450, 100, 450] {
                    clock.sleep(Duration::from_secs(wait)).await;
                    assert_eq!(heartbeat.health().problem, None, "it waits, and lives");
                    progress.push(read(&passes));
                }
            }
            // The objects are due at 500, 1500, 2500 and 3500 seconds; the last one ends the pass.
            assert_eq!(progress, [0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 0, 0]);
            let last = passes.last().expect("it ended");
            assert_eq!((last.number, last.at.objects, last.at.done), (1, 4, 8000));
            clock.sleep(Duration::from_secs(600)).await;
            let next = passes.current().expect("the next one");
            assert_eq!((next.number, next.at.objects), (2, 1));
            let age = passes.figures().age.expect("one pass ended").as_secs();
            assert!((1090..=1110).contains(&age), "{age}");
        })
        .await;
    });
}

#[test]
fn a_restart_goes_on_with_the_pass() {
    let (rig, clock) = (Rig::new(mems(3)), Clock::simulated());
    clock.run(async {
        let pool = four(&rig).await;
        let start = |position| Scrubber::new(pool.clone(), clock.clone(), Some(PERIOD), position);
        let mut kept = None;
        let scrubber = start(None);
        {
            let keep = |position: &Position| kept = Some(position.show());
            select(pin!(scrubber.run(keep)), pin!(clock.sleep(Duration::from_secs(1700)))).await;
        }
        let position = Position::parse(&kept.expect("a position")).expect("its text");
        assert_eq!(position.pass.at.objects, 2);
        let other = Position { pool: pool::PoolId(1), ..position.clone() };
        assert_eq!(start(Some(other)).passes().current(), None, "it is of another pool");

        // The machine was off for long: the pass goes on where it was, and as slowly.
        clock.jump(Duration::from_secs(100_000));
        let scrubber = start(Some(position));
        let passes = scrubber.passes();
        beside(scrubber, async {
            assert_eq!(read(&passes), 2);
            clock.sleep(Duration::from_secs(700)).await;
            assert_eq!(read(&passes), 2, "the third object is due at 2500 s");
            clock.sleep(Duration::from_secs(320)).await;
            assert_eq!(read(&passes), 3);
            end_of_pass(&passes, &clock).await;
        })
        .await;
        assert_eq!(passes.last().expect("it ended").at.objects, 4);
        assert_eq!(passes.figures().objects, 2, "the first two were not read again");
    });
}

#[test]
fn a_pass_on_demand_waits_for_no_period_and_takes_the_place_of_another() {
    let (rig, clock) = (Rig::new(mems(3)), Clock::simulated());
    clock.run(async {
        let pool = four(&rig).await;
        let scrubber = Scrubber::new(pool.clone(), clock.clone(), Some(PERIOD), None);
        let passes = scrubber.passes();
        beside(scrubber, async {
            clock.sleep(Duration::from_secs(1000)).await;
            assert_eq!(read(&passes), 1);
            let began = clock.now();
            let first = passes.begin();
            assert_eq!((first.number, first.at.objects, first.is_on_demand), (2, 0, true));
            assert_eq!(passes.begin().number, 2, "it is under way");
            end_of_pass(&passes, &clock).await;
            assert!(clock.now().since(began) <= Duration::from_secs(2));
            assert_eq!(passes.last().expect("it ended").at.objects, 4);
            // The next one of its own begins a period later.
            clock.sleep(PERIOD - Duration::from_secs(20)).await;
            assert_eq!(passes.current(), None);
            clock.sleep(Duration::from_secs(40)).await;
            assert_eq!(passes.current().expect("the next one").number, 3);
        })
        .await;
    });
}

#[test]
fn an_object_that_a_volume_refuses_is_tried_again() {
    for ends in [true, false] {
        let (rig, clock) = (Rig::new(mems(3)), Clock::simulated());
        clock.run(async {
            let pool = four(&rig).await;
            let busy = Rule::new(Effect::Fail(ErrorKind::Busy)).on(Call::Read).named("o*");
            rig.plan.inject(busy);
            let scrubber = Scrubber::new(pool.clone(), clock.clone(), None, None);
            let passes = scrubber.passes();
            beside(scrubber, async {
                assert_eq!(passes.begin().at.objects, 0);
                clock.sleep(Duration::from_secs(60)).await;
                assert_eq!(read(&passes), 0, "it tries the first object again");
                if ends {
                    rig.plan.clear();
                }
                end_of_pass(&passes, &clock).await;
            })
            .await;
            let pass = passes.last().expect("it ended");
            let unread = if ends { 0 } else { 8 };
            assert_eq!((pass.at.objects, pass.damaged, pass.unread), (4, 0, unread), "{pass:?}");
            assert_eq!(pool.damage().found, 0);
        });
    }
}

/// A store that finds these things in its object in place, one after the other.
struct Finds(parking_lot::Mutex<Vec<Result<Verified>>>);

impl Verify for Finds {
    fn verify<'a>(&'a self, object: &'a Name) -> Pending<'a, Verified> {
        assert_eq!(object.as_str(), "store/disk");
        volume::ready(self.0.lock().pop().expect("it was verified too often"))
    }

    fn expected<'a>(
        &'a self,
        _: &'a Name,
        blocks: Range<u64>,
        _: Option<Io>,
    ) -> Pending<'a, Vec<Expected>> {
        volume::ready(Ok(blocks.map(|_| Expected::Unchecked).collect()))
    }
}

/// A pool with an object in place, and a scrubber.
async fn with_one_in_place(rig: &Rig, clock: &Clock) -> (Spread, Scrubber) {
    let pool = four(rig).await;
    let object = pool.create(&name("store/disk"), &Intent::IN_PLACE).await.unwrap();
    object.write_at(0, IoBuf::from(&[7; 1000][..]), IO).await.unwrap();
    object.sync(IO).await.unwrap();
    let scrubber = Scrubber::new(pool.clone(), clock.clone(), None, None);
    (pool, scrubber)
}

#[test]
fn an_object_in_place_is_verified_by_its_store_which_has_some_time_to_open() {
    let (rig, clock) = (Rig::new(mems(3)), Clock::simulated());
    clock.run(async {
        let (pool, scrubber) = with_one_in_place(&rig, &clock).await;
        let passes = scrubber.passes();
        let _ = passes.begin();
        let story = async {
            clock.sleep(Duration::from_secs(60)).await;
            assert_eq!(read(&passes), 4);
            let busy = Err(Error::new(ErrorKind::Busy, "for now"));
            let lost = Verified { lost: vec!["a block".into()] };
            let store = Arc::new(Finds(parking_lot::Mutex::new(vec![Ok(lost), busy])));
            let verifying = pool.verify_with("store/", store);
            end_of_pass(&passes, &clock).await;
            drop(verifying);
            passes.last().unwrap()
        };
        let pass = beside(scrubber, story).await;
        assert_eq!((pass.at.objects, pass.damaged, pass.repaired, pass.unread), (5, 1, 0, 0));
        assert_eq!(pass.findings[0].problem, Problem::Lost("a block".into()));
        assert!(pass.elapsed < Duration::from_secs(90), "{pass:?}");
    });
}

/// Blocks that were lost count until somebody writes them: then the store finds nothing any more.
#[test]
fn damage_that_was_written_over_ends_with_the_next_scrub() {
    let (rig, clock) = (Rig::new(mems(3)), Clock::simulated());
    clock.run(async {
        let (pool, scrubber) = with_one_in_place(&rig, &clock).await;
        let broken = rig.plan.inject(Rule::new(Effect::Fail(ErrorKind::Corrupt)).on(Call::Read));
        let object = pool.open(&name("store/disk")).await.unwrap();
        assert!(object.read_at(0, IoBufMut::zeroed(1000), IO).await.is_err());
        rig.plan.lift(broken);
        let left = pool.damage().left;
        assert!(left > 0);
        object.write_at(0, IoBuf::from(&[8; 1000][..]), IO).await.unwrap();
        assert_eq!(pool.damage().left, left, "nobody has looked");
        let store = Arc::new(Finds(parking_lot::Mutex::new(vec![Ok(Verified::default())])));
        let _verifying = pool.verify_with("store/", store);
        let passes = scrubber.passes();
        let _ = passes.begin();
        beside(scrubber, end_of_pass(&passes, &clock)).await;
        assert_eq!(pool.damage().left, 0);
    });
}

#[test]
fn an_object_in_place_whose_store_does_not_open_is_left_out() {
    let (rig, clock) = (Rig::new(mems(3)), Clock::simulated());
    clock.run(async {
        let (_pool, scrubber) = with_one_in_place(&rig, &clock).await;
        let passes = scrubber.passes();
        let _ = passes.begin();
        let story = async {
            end_of_pass(&passes, &clock).await;
            passes.last().unwrap()
        };
        let pass = beside(scrubber, story).await;
        assert_eq!((pass.at.objects, pass.unread, pass.findings.len()), (4, 0, 0));
        assert_eq!(pass.at.done, pass.at.of);
        assert!(pass.elapsed >= Duration::from_secs(120), "{pass:?}");
    });
}

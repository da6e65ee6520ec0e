//! Two copies of every object: with the loss of any one volume at any moment, even with a power cut, no
//! acknowledged write is lost, and the mover replaces the lost copies.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use parking_lot::Mutex;
use policy::migrate::{Policy, Terms, Why};
use policy::placement::{RoundRobin, VolumeId};
use policy::purpose::Origin;
use pool::Member;
use pool::mover::{Figures, Mover};
use pool::spread::{Opening, Problem, Spread};
use volume::layer::call::Op as Call;
use volume::layer::crash::{Crash, Power};
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::layer::trace::{Trace, TraceLog};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, ErrorKind, Intent, IoBuf, Name, Object, Result, Volume};

use crate::copying::places;
use crate::crashes::{run, scenarios, start};
use crate::faults::Rig;
use crate::model::{Model, Op, view};
use crate::rig::{IO, POOL, copies, get, mems, name, opening, put, survivors};

fn two() -> Opening {
    Opening::new(RoundRobin::default()).create_if_missing(POOL).copies(2).allow_away()
}

fn labelled<V: Volume + Clone + 'static>(volumes: &[V], lost: Option<usize>) -> Vec<Member> {
    let volumes = volumes.iter().enumerate().filter(|(i, _)| Some(*i) != lost);
    volumes.map(|(i, volume)| Member::new(format!("s{i}"), volume.clone())).collect()
}

/// Asserts that every object has two copies, on different volumes.
async fn assert_two_of_each(pool: &Spread, without: Option<u16>, context: &str) {
    for object in pool.objects() {
        let on = places(pool, object.name.as_str()).await;
        let on: Vec<_> = on.into_iter().filter(|id| Some(*id) != without).collect();
        assert_eq!(on.len(), 2, "{context}: {} is on {on:?}", object.name);
        assert!(on[0] != on[1], "{context}: {} is on {on:?}", object.name);
    }
}

/// The power goes off at any step, and a volume is lost with it: acknowledged bytes are on another.
#[test]
fn a_cut_at_any_step_and_the_loss_of_any_volume_lose_nothing() {
    let volumes = mems(3);
    block_on(async { drop(Spread::open(labelled(&volumes, None), two()).await.unwrap()) });
    let mut cuts = 0;
    for (what, ops) in scenarios() {
        for cut in 0.. {
            let power = Power::new();
            let machine: Vec<_> =
                copies(&volumes).into_iter().map(|mem| Crash::new(mem, &power)).collect();
            let models = block_on(async {
                let pool = Spread::open(labelled(&machine, None), two()).await.unwrap();
                let before = start(&pool).await;
                power.cut_after(cut);
                run(&pool, &power, before, &ops).await
            });
            // Without a loss, the copies are aligned again.
            for lost in [None, Some(0), Some(1), Some(2)] {
                let context = format!("{what}, cut {cut}, lost {lost:?}");
                let seed = cut * 4 + lost.map_or(3, |lost| lost as u64);
                block_on(explain(&survivors(&machine, seed), lost, &models, &context));
                cuts += 1;
            }
            if !power.is_off() {
                break;
            }
        }
    }
    assert!(cuts > 800, "{cuts}");
}

/// Opens the survivors without `lost`, and once more without another volume: both see the same bytes.
async fn explain(volumes: &[Mem], lost: Option<usize>, models: &[Model], context: &str) {
    let pool = Spread::open(labelled(volumes, lost), two()).await;
    let pool = pool.unwrap_or_else(|e| panic!("{context}: {e}"));
    let found = view(&pool).await.unwrap_or_else(|e| panic!("{context}: {e}"));
    let verdicts: Vec<_> = models.iter().map(|model| model.explains(&found)).collect();
    assert!(verdicts.iter().any(std::result::Result::is_ok), "{context}: {verdicts:?}");
    if lost.is_none() {
        assert_eq!(pool.check().await.unwrap().findings, [], "{context}");
        // The cut may leave one copy of a log that was never synced.
        let made = pool.repair(IO, |_| ()).await.unwrap().made;
        let may_be_unsynced = u64::from(context.starts_with("create log"));
        assert!(made <= may_be_unsynced, "{context}: {made} copies went");
        assert_eq!(pool.redundancy(&[].into()).short, 0, "{context}");
    }
    drop(pool);
    let other = [None, Some(0), Some(1), Some(2)][(context.len() + 1) % 4].or(lost);
    if lost.is_none() {
        // Any copy is good now: all are equal and durable.
        let pool = Spread::open(labelled(volumes, other), two()).await;
        let pool = pool.unwrap_or_else(|e| panic!("{context}, then {other:?}: {e}"));
        let again = view(&pool).await.unwrap_or_else(|e| panic!("{context}, then {other:?}: {e}"));
        assert!(again == found, "{context}, then {other:?}");
    }
}

/// Writes a log and data behind their last sync, and a log that is never synced.
async fn write_behind_syncs(pool: &Spread) {
    for (text, intent) in [("a.log", Intent::LOG), ("data", Intent::DATA)] {
        let object = pool.create(&name(text), &intent).await.unwrap();
        object.write_at(0, IoBuf::from(&[1; 9000][..]), IO).await.unwrap();
        object.sync(IO).await.unwrap();
        object.write_at(object.len(), IoBuf::from(&[2; 7000][..]), IO).await.unwrap();
    }
    let data = pool.open(&name("data")).await.unwrap();
    data.write_at(100, IoBuf::from(&[3; 5000][..]), IO).await.unwrap();
    let log = pool.create(&name("b.log"), &Intent::LOG).await.unwrap();
    log.write_at(0, IoBuf::from(&[4; 9000][..]), IO).await.unwrap();
}

/// The power goes off after the pool was closed, before the system wrote what was not synced.
#[test]
fn a_close_makes_what_was_written_durable() {
    for seed in 0..16 {
        let power = Power::new();
        let machine: Vec<_> = mems(3).into_iter().map(|mem| Crash::new(mem, &power)).collect();
        block_on(async {
            let pool = Spread::open(labelled(&machine, None), two()).await.unwrap();
            write_behind_syncs(&pool).await;
            pool.close().await.unwrap();
        });
        let survivors = survivors(&machine, seed);
        for lost in 0..3 {
            block_on(async {
                let left = labelled(&copies(&survivors), Some(lost));
                let pool = Spread::open(left, two()).await.unwrap();
                let log = [[1; 9000].as_slice(), &[2; 7000]].concat();
                let mut data = log.clone();
                data[100..5100].fill(3);
                let objects = [("a.log", log), ("data", data), ("b.log", vec![4; 9000])];
                for (text, bytes) in objects {
                    let found = get(&pool, text).await.unwrap();
                    assert!(found == bytes, "seed {seed}, {text} without volume {lost}");
                }
            });
        }
    }
}

/// As above, but no volume can sync these objects: the next opening makes their copies alike.
#[test]
fn a_close_that_cannot_sync_is_not_a_clean_one() {
    for seed in 0..16 {
        let (power, plan, clock) = (Power::new(), FaultPlan::new(0), Clock::simulated());
        let machine: Vec<_> = mems(3).into_iter().map(|mem| Crash::new(mem, &power)).collect();
        let fault = |(i, crash): (usize, &Crash)| {
            Arc::new(Fault::new(crash.clone(), &format!("s{i}"), &plan, &clock))
        };
        let faults: Vec<_> = machine.iter().enumerate().map(fault).collect();
        block_on(async {
            let pool = Spread::open(labelled(&faults, None), two()).await.unwrap();
            write_behind_syncs(&pool).await;
            plan.inject(Rule::new(Effect::Fail(ErrorKind::Io)).on(Call::Sync).named("o*"));
            pool.close().await.unwrap();
        });
        let survivors = survivors(&machine, seed);
        let read = async |pool: &Spread| {
            [get(pool, "a.log").await.unwrap(), get(pool, "data").await.unwrap()]
        };
        let all = block_on(async {
            let pool = Spread::open(labelled(&survivors, None), two()).await.unwrap();
            let all = read(&pool).await;
            // As stores do before they serve what they read.
            for text in ["a.log", "data"] {
                pool.open(&name(text)).await.unwrap().sync(IO).await.unwrap();
            }
            pool.close().await.unwrap();
            all
        });
        for lost in 0..3 {
            block_on(async {
                let left = labelled(&copies(&survivors), Some(lost));
                let pool = Spread::open(left, two()).await.unwrap();
                assert!(read(&pool).await == all, "seed {seed}, without volume {lost}");
            });
        }
    }
}

/// A volume fails for good at any call, under an open pool: no call of a user fails.
#[test]
fn a_volume_that_dies_at_any_call_is_not_missed() {
    let data = |len: usize, byte| vec![byte; len];
    let ops = [
        Op::Create("a", data(5000, 1)),
        Op::Sync("a"),
        Op::WriteWhole("d/a", data(150_000, 2)),
        Op::Create("d/c.log", data(700, 3)),
        Op::Sync("d/c.log"),
        Op::Append("a", data(70_000, 4)),
        Op::Sync("a"),
        Op::Append("d/c.log", data(900, 5)),
        Op::Sync("d/c.log"),
        Op::Rename("d/a", "d/b"),
        Op::WriteWhole("e/a", data(9000, 6)),
        Op::Remove("d/b"),
        Op::Create("x.log", data(300, 7)),
        Op::Sync("x.log"),
    ];
    for kind in [ErrorKind::Unavailable, ErrorKind::Io] {
        for dead in 0..3 {
            let mut at = 0;
            loop {
                let context = format!("s{dead} dies at call {at} with {kind:?}");
                let rig = Rig::new(mems(3));
                let ended = block_on(async {
                    let pool = Spread::open(labelled(&rig.faults, None), two()).await.unwrap();
                    let rule = Rule::new(Effect::Fail(kind)).volume(&format!("s{dead}"));
                    rig.plan.inject(rule.calls(at..u64::MAX));
                    let before = rig.plan.calls();
                    let mut model = Model::default();
                    for op in &ops {
                        op.run(&pool).await.unwrap_or_else(|e| panic!("{context}: {op:?}: {e}"));
                        model = model.stages(op).unwrap().pop().unwrap();
                    }
                    assert!(view(&pool).await.unwrap() == model.view(), "{context}");
                    // The process crashes; the volume stays dead.
                    let calls = rig.plan.calls() - before;
                    drop(pool);
                    let here = labelled(&rig.mems, Some(dead));
                    let pool = Spread::open(here, two()).await;
                    let pool = pool.unwrap_or_else(|e| panic!("{context}: {e}"));
                    assert!(view(&pool).await.unwrap() == model.view(), "{context}");
                    at > calls
                });
                if ended {
                    break;
                }
                // Trying every call would take long, and neighbouring calls fail alike.
                at += 1 + at / 8;
            }
        }
    }
}

/// A pool with a running mover, in virtual time.
struct Scene {
    clock: Clock,
    rig: Rig,
}

const SILENCE: Duration = Duration::from_secs(60);

impl Scene {
    fn new(volumes: usize) -> Self {
        Self { clock: Clock::simulated(), rig: Rig::new(mems(volumes)) }
    }

    /// Runs `story` with a pool on the first `volumes` volumes, while a mover runs.
    async fn tell<F: Future<Output = ()>>(
        &self,
        volumes: usize,
        story: impl FnOnce(Spread, Arc<Mutex<Figures>>) -> F,
    ) {
        self.tell_on(labelled(&self.rig.faults[..volumes], None), story).await;
    }

    /// The same on these volumes.
    async fn tell_on<F: Future<Output = ()>>(
        &self,
        members: Vec<Member>,
        story: impl FnOnce(Spread, Arc<Mutex<Figures>>) -> F,
    ) {
        let pool = Spread::open(members, two()).await.expect("the pool opens");
        let terms = Terms { silence_max: SILENCE, ..Terms::default() };
        let mover = Mover::new(pool.clone(), self.clock.clone(), Policy::Off, terms);
        let figures = mover.figures();
        let working = Box::pin(mover.run(Vec::new));
        select(Box::pin(story(pool, figures)), working).await;
    }

    async fn wait(&self, secs: u64) {
        self.clock.sleep(Duration::from_secs(secs)).await;
    }
}

/// Tables, a log that stays open, and an object that was written in place.
async fn fill(pool: &Spread) -> Result<Arc<dyn Object>> {
    let table = Intent {
        kind: policy::intent::Kind::Table {
            family: policy::intent::Family("f".into()),
            level: None,
            range: None,
        },
        ..Intent::DATA
    };
    for i in 0..6 {
        let data = IoBuf::from(&vec![i; 200_000][..]);
        pool.write_whole(&name(&format!("t{i}")), &table, data, IO).await?;
    }
    put(pool, "whole", &[9; 3000]).await?;
    let data = pool.create(&name("data"), &Intent::DATA).await?;
    data.write_at(0, IoBuf::from(&[8; 5000][..]), IO).await?;
    data.sync(IO).await?;
    let log = pool.create(&name("x.log"), &Intent::LOG).await?;
    log.write_at(0, IoBuf::from(&b"one"[..]), IO).await?;
    log.sync(IO).await?;
    Ok(log)
}

async fn assert_all_reads(pool: &Spread, log: &[u8]) {
    for i in 0..6 {
        assert_eq!(get(pool, &format!("t{i}")).await.unwrap(), vec![i; 200_000]);
    }
    assert_eq!(get(pool, "whole").await.unwrap(), [9; 3000]);
    assert_eq!(get(pool, "data").await.unwrap(), [8; 5000]);
    assert_eq!(get(pool, "x.log").await.unwrap(), log);
}

#[test]
fn what_a_lost_volume_held_is_copied_from_the_others_after_a_while() {
    let scene = Scene::new(4);
    scene.clock.run(scene.tell(4, async |pool, figures| {
        let log = fill(&pool).await.unwrap();
        scene.wait(15).await;
        assert_two_of_each(&pool, None, "at first").await;
        let dead = places(&pool, "x.log").await[0];
        let label = format!("s{dead}");
        let gone = Rule::new(Effect::Fail(ErrorKind::Unavailable)).volume(&label);
        let gone = scene.rig.plan.inject(gone);
        scene.wait(30).await;
        assert_all_reads(&pool, b"one").await;
        let redundancy = figures.lock().redundancy;
        assert!(redundancy.short > 0 && redundancy.unreadable == 0, "{redundancy:?}");
        let tables = async |pool: &Spread| {
            let mut on = Vec::new();
            for i in 0..6 {
                on.push(places(pool, &format!("t{i}")).await);
            }
            on
        };
        let before = tables(&pool).await;
        log.write_at(3, IoBuf::from(&b" two"[..]), IO).await.unwrap();
        log.sync(IO).await.unwrap();
        // An open log cannot wait for the volume to come back.
        scene.wait(15).await;
        assert_eq!(places(&pool, "x.log").await.len(), 2);
        assert!(!places(&pool, "x.log").await.contains(&dead));
        assert_eq!(tables(&pool).await, before, "it may come back any time");
        scene.wait(60).await;
        assert_two_of_each(&pool, Some(dead), "without it").await;
        assert_all_reads(&pool, b"one two").await;
        let redundancy = figures.lock().redundancy;
        assert_eq!((redundancy.short, redundancy.unreadable), (0, 0));
        assert!(figures.lock().made[Why::Repair as usize] > 0);
        // The volume comes back: objects that are not tables lose their surplus copies.
        scene.rig.plan.lift(gone);
        scene.wait(30).await;
        for text in ["whole", "data", "x.log"] {
            assert_eq!(places(&pool, text).await.len(), 2, "{text}");
        }
        // Tables lose theirs once they have been cold for long enough.
        scene.wait(400).await;
        assert_two_of_each(&pool, None, "at last").await;
        assert_all_reads(&pool, b"one two").await;
        assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
    }));
}

/// A volume that died in service kept its slot, so its copies counted among two that were here: they were made again in
/// class idle, which starves on a busy volume.
#[test]
fn what_a_volume_that_died_in_service_held_is_rebuilt() {
    let scene = Scene::new(3);
    let log = TraceLog::new(100_000);
    let traced = scene.rig.faults.iter().zip(&scene.rig.mems).map(|(fault, mem)| {
        Arc::new(Trace::new(Arc::clone(fault), mem.label(), &log, &scene.clock))
    });
    let traced: Vec<_> = traced.collect();
    scene.clock.run(scene.tell_on(labelled(&traced, None), async |pool, figures| {
        let _log = fill(&pool).await.unwrap();
        scene.wait(15).await;
        let before = log.records().len();
        let gone = Rule::new(Effect::Fail(ErrorKind::Unavailable)).volume("s0");
        scene.rig.plan.inject(gone);
        scene.wait(SILENCE.as_secs() + 60).await;
        assert_two_of_each(&pool, Some(0), "without it").await;
        assert!(figures.lock().made[Why::Repair as usize] > 0);
        let records = log.records().split_off(before);
        let copied = records.iter().filter(|record| record.call.op == Call::Write);
        let origins = copied.filter_map(|record| Some(record.call.io?.origin));
        let origins: Vec<_> = origins.collect();
        assert!(origins.contains(&Origin::Rebuild), "{origins:?}");
        assert!(!origins.contains(&Origin::Copy), "{origins:?}");
    }));
}

/// `/health` was green until the manifest was back, and the loss of the other volume then kept the pool from changes.
#[test]
fn the_manifest_is_short_until_it_is_back_on_a_volume_that_answers_again() {
    let scene = Scene::new(2);
    scene.clock.run(scene.tell(2, async |pool, figures| {
        scene.wait(15).await;
        let is_short =
            |silent: &[VolumeId]| pool.redundancy(&silent.iter().copied().collect()).manifest_short;
        assert!(!is_short(&[]));
        let gone = Rule::new(Effect::Fail(ErrorKind::Unavailable)).volume("s1");
        let gone = scene.rig.plan.inject(gone);
        put(&pool, "late", b"one").await.unwrap();
        scene.wait(5).await;
        assert!(is_short(&[]));
        assert!(!is_short(&[VolumeId(1)]), "no other volume can hold a copy");
        scene.rig.plan.lift(gone);
        assert!(is_short(&[]));
        scene.wait(30).await;
        assert!(!is_short(&[]) && figures.lock().redundancy.lacking() == 0);
        scene.rig.plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)).volume("s0"));
        put(&pool, "later", b"two").await.unwrap();
    }));
}

/// It once left only lines in the log.
#[test]
fn repair_that_fails_again_and_again_is_a_problem_until_it_succeeds() {
    let scene = Scene::new(2);
    scene.clock.run(async {
        let pool = Spread::open(labelled(&scene.rig.faults[..1], None), two()).await.unwrap();
        let _log = fill(&pool).await.unwrap();
        pool.add_volume(Member::new("s1", Arc::clone(&scene.rig.faults[1]))).await.unwrap();
        let refused = Rule::new(Effect::Fail(ErrorKind::Unavailable)).on(Call::Create);
        let refused = scene.rig.plan.inject(refused.volume("s1"));
        let mover = Mover::new(pool.clone(), scene.clock.clone(), Policy::Off, Terms::default());
        let heartbeat = mover.heartbeat();
        let story = async {
            scene.wait(60).await;
            let problem = heartbeat.health().problem.expect("it fails");
            assert!(problem.starts_with("repair and rebalancing failed"), "{problem}");
            scene.rig.plan.lift(refused);
            scene.wait(30).await;
            assert_eq!(heartbeat.health().problem, None);
            assert_two_of_each(&pool, None, "at last").await;
        };
        select(Box::pin(story), Box::pin(mover.run(Vec::new))).await;
    });
}

#[test]
fn a_volume_that_joins_takes_what_is_short_at_once() {
    let scene = Scene::new(2);
    scene.clock.run(scene.tell(1, async |pool, figures| {
        // One volume is too few for two copies: objects are created with one.
        let _log = fill(&pool).await.unwrap();
        scene.wait(25).await;
        let redundancy = figures.lock().redundancy;
        assert_eq!((redundancy.target, redundancy.short), (2, 9));
        let fresh = Member::new("s1", Arc::clone(&scene.rig.faults[1]));
        pool.add_volume(fresh).await.unwrap();
        scene.wait(4).await;
        assert_two_of_each(&pool, None, "both").await;
        scene.wait(4).await;
        assert_eq!(figures.lock().redundancy.short, 0);
        assert_all_reads(&pool, b"one").await;
    }));
}

#[test]
fn copies_that_lost_their_bytes_are_made_again() {
    let leaf = |volume: &Mem, end: &str| -> Name {
        let names = volume.image().into_keys();
        names.into_iter().find(|name| name.as_str().ends_with(end)).expect("there is one")
    };
    let scene = Scene::new(3);
    scene.clock.run(scene.tell(3, async |pool, _| {
        fill(&pool).await.unwrap();
        scene.wait(12).await;
        // A file is gone, and another cannot be read: readers notice.
        let removed = leaf(&scene.rig.mems[0], ".tab");
        scene.rig.mems[0].remove(&removed).await.unwrap();
        // A copy of another table, on another volume.
        let mut tables = scene.rig.mems[1].image().into_keys();
        let is_other = |name: &Name| {
            name.as_str().ends_with(".tab") && name.as_str()[..17] != removed.as_str()[..17]
        };
        let rotten = tables.find(is_other).expect("there is one");
        let rule = Rule::new(Effect::Fail(ErrorKind::Io)).volume("s1");
        scene.rig.plan.inject(rule.on(Call::Read).named(rotten.as_str()));
        for _ in 0..8 {
            assert_all_reads(&pool, b"one").await;
        }
        scene.wait(40).await;
        assert_two_of_each(&pool, None, "again").await;
        for (volume, name) in [(0, removed), (1, rotten)] {
            assert!(!scene.rig.mems[volume].image().contains_key(&name), "its copy is another");
        }
        assert_eq!(pool.check().await.unwrap().findings, []);
        assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, []);
    }));
    // The opening of a pool detects a missing copy without a read.
    let removed = leaf(&scene.rig.mems[2], ".tab");
    block_on(scene.rig.mems[2].remove(&removed)).unwrap();
    let report = block_on(Spread::inspect(&labelled(&scene.rig.mems, None))).unwrap();
    let missing = report.findings.iter().filter(|found| found.problem == Problem::Missing);
    assert!(missing.count() == 1 && report.findings.iter().all(|found| !found.is_loss()));
    scene.clock.run(scene.tell(3, async |pool, _| {
        assert_eq!(pool.check().await.unwrap().findings, []);
        scene.wait(5).await;
        assert_two_of_each(&pool, None, "after it opened").await;
        assert_all_reads(&pool, b"one").await;
    }));
}

/// Copies for heat count towards the replication target: no object goes below it.
#[test]
fn a_volume_is_left_only_when_everything_has_two_copies_elsewhere() {
    let scene = Scene::new(3);
    scene.clock.run(scene.tell(3, async |pool, _| {
        let _log = fill(&pool).await.unwrap();
        pool.set_draining(VolumeId(0), true).await.unwrap();
        scene.wait(60).await;
        for object in pool.objects() {
            let on = places(&pool, object.name.as_str()).await;
            assert!(on.contains(&1) && on.contains(&2), "{} is on {on:?}", object.name);
        }
        assert_all_reads(&pool, b"one").await;
    }));
}

#[test]
fn a_pool_of_one_opens_although_its_target_is_two() {
    let volumes = mems(1);
    block_on(async {
        let open = || Spread::open(labelled(&volumes, None), opening("hash").copies(2));
        let pool = open().await.unwrap();
        put(&pool, "a", b"bytes").await.unwrap();
        drop(pool);
        let pool = open().await.unwrap();
        assert_eq!(get(&pool, "a").await.unwrap(), b"bytes");
        assert_eq!(pool.redundancy(&[].into()).short, 1);
    });
}

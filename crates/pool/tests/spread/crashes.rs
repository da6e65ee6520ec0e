//! The power goes off between any two steps, and any part of the unsynced bytes is lost.
//!
//! A step is a call to a volume that changes what may survive a cut. Afterwards no committed object is
//! lost, no removed one is back, an operation in progress happened or did not, and foreign objects are
//! untouched.

use std::collections::BTreeMap;

use pool::spread::Spread;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::crash::{Crash, Power};
use volume::mem::{Image, Mem};
use volume::task::block_on;
use volume::{Intent, IoBuf, Result, Volume};

use crate::model::{Model, Names, Op, view};
use crate::rig::{IO, PLACEMENTS, copies, members, mems, name, opening, survivors};

/// Volumes of one machine.
struct Machine {
    power: Power,
    volumes: Vec<Crash>,
}

/// Objects that are not the pool's. One looks like the pool's, with an id of its next lease.
const FOREIGN: [&str; 3] = ["lost-and-found.txt", "o0000000000001234.sst", "o0000000000000600.dat"];

impl Machine {
    fn boot(volumes: Vec<Mem>) -> Self {
        let power = Power::new();
        let volumes = volumes.into_iter().map(|mem| Crash::new(mem, &power)).collect();
        Self { power, volumes }
    }

    async fn open(&self, placement: &str) -> Result<Spread> {
        Spread::open(members(&self.volumes), opening(placement)).await
    }
}

/// Volumes with a pool on them, and foreign objects on the first.
fn formatted(count: usize, placement: &str) -> Vec<Mem> {
    let volumes = mems(count);
    block_on(async {
        drop(Spread::open(members(&volumes), opening(placement)).await.unwrap());
        for text in FOREIGN {
            let foreign = volumes[0].create(&name(text), &Intent::DATA).await.unwrap();
            foreign.write_at(0, IoBuf::from(text.as_bytes()), IO).await.unwrap();
        }
    });
    volumes
}

fn assert_foreign_is_there(image: &Image, context: &str) {
    for text in FOREIGN {
        assert_eq!(image.get(&name(text)).map(|b| &b[..]), Some(text.as_bytes()), "{context}");
    }
}

/// Runs the operations until the power goes off; returns every model that may explain the survivors, the
/// last one with everything done.
pub(crate) async fn run(pool: &Spread, power: &Power, mut model: Model, ops: &[Op]) -> Vec<Model> {
    // The models before removals that a crash may still undo.
    let mut undone: Vec<Model> = Vec::new();
    let with_undone = |undone: &[Model], stages: Vec<Model>| {
        let earlier = |stage: &Model| undone.iter().map(|o| stage.with_names_of(o)).collect();
        let earlier: Vec<Vec<Model>> = stages.iter().map(earlier).collect();
        earlier.into_iter().flatten().chain(stages).collect()
    };
    for op in ops {
        let stages = model.stages(op);
        let done = op.run(pool).await;
        if power.is_off() {
            return with_undone(&undone, stages.unwrap_or_else(|_| vec![model]));
        }
        match (done, stages) {
            (Ok(()), Ok(stages)) => {
                if matches!(op, Op::RemoveSoon(_)) {
                    undone.push(model.clone());
                } else if op.waits_for_names(&model) {
                    undone.clear();
                }
                model = stages.into_iter().next_back().unwrap_or(model);
            }
            (Err(e), Err(kind)) if e.kind() == kind => {}
            (done, stages) => panic!("{op:?}: {done:?}, expected {:?}", stages.map(|_| ())),
        }
    }
    with_undone(&undone, vec![model])
}

/// Opens the survivors, and finds the model that explains them; then checks and scrubs the pool.
async fn recover(volumes: &[Mem], placement: &str, models: &[Model], context: &str) -> Model {
    let pool = Spread::open(members(volumes), opening(placement)).await;
    let pool = pool.unwrap_or_else(|e| panic!("{context}: {e}"));
    let found = view(&pool).await.unwrap_or_else(|e| panic!("{context}: {e}"));
    let verdicts: Vec<_> = models.iter().map(|model| model.explains(&found)).collect();
    let Some(explained) = verdicts.iter().rposition(|verdict| verdict.is_ok()) else {
        panic!("{context}: {verdicts:?}");
    };
    assert_foreign_is_there(&volumes[0].image(), context);
    let report = pool.check().await.unwrap();
    let amiss: Vec<_> = report
        .findings
        .iter()
        .filter(|finding| finding.problem != pool::spread::Problem::Foreign)
        .collect();
    assert!(amiss.is_empty(), "{context}: {amiss:?}");
    assert_eq!(pool.scrub(|_| ()).await.unwrap().findings, [], "{context}");
    models[explained].recovered(&found)
}

/// The operations that each scenario begins with.
fn prelude() -> Vec<Op> {
    let data = |len: usize, byte| vec![byte; len];
    vec![
        Op::Create("a", data(5000, 1)),
        Op::Sync("a"),
        Op::WriteWhole("d/a", data(150_000, 2)),
        Op::Create("d/c.log", data(700, 3)),
        Op::Sync("d/c.log"),
        Op::Create("e/a", data(10, 4)),
    ]
}

/// Runs the prelude; returns the model after it.
pub(crate) async fn start(pool: &Spread) -> Model {
    run(pool, &Power::new(), Model::default(), &prelude()).await.remove(0)
}

pub(crate) fn scenarios() -> BTreeMap<&'static str, Vec<Op>> {
    let data = |len: usize, byte| vec![byte; len];
    BTreeMap::from([
        ("create", vec![Op::Create("d/b", data(70_000, 9)), Op::Sync("d/b")]),
        ("create log", vec![Op::Create("x.log", data(900, 9)), Op::Sync("x.log")]),
        ("write whole", vec![Op::WriteWhole("d/b", data(200_000, 9))]),
        ("append", vec![Op::Append("a", data(70_000, 9)), Op::Sync("a")]),
        ("append to log", vec![Op::Append("d/c.log", data(5000, 9)), Op::Sync("d/c.log")]),
        ("cut", vec![Op::Cut("a", 100), Op::Sync("a")]),
        ("remove", vec![Op::Remove("d/a"), Op::Remove("d/c.log"), Op::Remove("e/a")]),
        ("seal", vec![Op::Seal("a"), Op::Seal("d/c.log"), Op::Seal("e/a")]),
        ("remove soon", vec![Op::RemoveSoon("d/a"), Op::RemoveSoon("a"), Op::Flush]),
        ("rename", vec![Op::Rename("d/a", "d/b"), Op::Rename("e/a", "e/f/b")]),
        ("rename over", vec![Op::Rename("d/a", "a"), Op::Rename("e/a", "a")]),
        ("link", vec![Op::Link("d/a", "d/b"), Op::Remove("d/a"), Op::Remove("d/b")]),
        ("replace", vec![Op::Replace("d/a", "a")]),
        ("rename prefix", vec![Op::RenamePrefix("d", "g"), Op::RenamePrefix("e", "d")]),
        ("name used again", vec![Op::Remove("a"), Op::Create("a", data(9, 9)), Op::Sync("a")]),
    ])
}

#[test]
fn a_cut_at_any_step_of_any_operation_leaves_it_done_or_not_done() {
    const SEEDS: u64 = 12;
    let mut cuts = 0;
    for (what, ops) in scenarios() {
        for (count, placement) in [(1, "single"), (4, "round-robin"), (3, "stripe")] {
            let volumes = formatted(count, placement);
            for cut in 0.. {
                let machine = Machine::boot(copies(&volumes));
                let models = block_on(async {
                    let pool = machine.open(placement).await.unwrap();
                    let before = start(&pool).await;
                    machine.power.cut_after(cut);
                    run(&pool, &machine.power, before, &ops).await
                });
                for seed in 0..SEEDS {
                    let context = format!("{what}, {count} volumes, cut {cut}, seed {seed}");
                    block_on(recover(
                        &survivors(&machine.volumes, seed),
                        placement,
                        &models,
                        &context,
                    ));
                    cuts += 1;
                }
                if !machine.power.is_off() {
                    break;
                }
            }
        }
    }
    assert!(cuts > 5000, "{cuts}");
}

#[test]
fn random_work_survives_crash_after_crash() {
    const SEEDS: u64 = 1000;
    const CRASHES: usize = 3;
    let names = Names::within("kv");
    for seed in 0..SEEDS {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let placement = PLACEMENTS[rng.random_range(0..PLACEMENTS.len())];
        let mut volumes = formatted(rng.random_range(1..6), placement);
        let mut models = vec![Model::default()];
        for crash in 0..CRASHES {
            // The machine may also crash while it recovers from the last crash.
            let machine = Machine::boot(volumes);
            machine.power.cut_after(rng.random_range(0..150));
            models = block_on(async {
                let Ok(pool) = machine.open(placement).await else { return models.clone() };
                let found = match view(&pool).await {
                    Ok(found) => found,
                    Err(_) if machine.power.is_off() => return models.clone(),
                    Err(e) => panic!("seed {seed}, crash {crash}: {e}"),
                };
                let explained = models.iter().rfind(|model| model.explains(&found).is_ok());
                let Some(model) = explained else {
                    let why: Vec<_> = models.iter().map(|model| model.explains(&found)).collect();
                    panic!("seed {seed}, crash {crash}: {why:?}");
                };
                let ops: Vec<_> = (0..60).map(|_| Op::random(&mut rng, &names)).collect();
                run(&pool, &machine.power, model.recovered(&found), &ops).await
            });
            volumes = survivors(&machine.volumes, rng.random());
            assert_foreign_is_there(&volumes[0].image(), &format!("seed {seed}, crash {crash}"));
        }
        let context = format!("seed {seed}, at the end");
        block_on(recover(&volumes, placement, &models, &context));
    }
}

#[test]
fn a_cut_at_any_step_of_formatting_can_be_repeated() {
    for cut in 0.. {
        let machine = Machine::boot(mems(4));
        machine.power.cut_after(cut);
        let opened = block_on(machine.open("hash"));
        assert!(opened.is_ok() || machine.power.is_off());
        drop(opened);
        for seed in 0..40 {
            let volumes = survivors(&machine.volumes, seed);
            block_on(async {
                let pool = Spread::open(members(&volumes), opening("hash")).await;
                let pool = pool.unwrap_or_else(|e| panic!("cut {cut} seed {seed}: {e}"));
                Op::WriteWhole("a", vec![1; 100]).run(&pool).await.unwrap();
                assert_eq!(pool.check().await.unwrap().findings, [], "cut {cut} seed {seed}");
            });
        }
        if !machine.power.is_off() {
            break;
        }
    }
}

/// Only the process crashes: written bytes are there, synced or not.
#[test]
fn the_death_of_the_process_takes_nothing_that_was_written() {
    let names = Names::within("kv");
    for seed in 0..300 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let placement = PLACEMENTS[rng.random_range(0..PLACEMENTS.len())];
        let volumes = formatted(rng.random_range(1..6), placement);
        let mut model = Model::default();
        for _ in 0..4 {
            let ops: Vec<_> = (0..30).map(|_| Op::random(&mut rng, &names)).collect();
            block_on(async {
                let pool = Spread::open(members(&volumes), opening(placement)).await.unwrap();
                assert_eq!(view(&pool).await.unwrap(), model.view(), "seed {seed}");
                let models = run(&pool, &Power::new(), model.clone(), &ops).await;
                let live = models.last().expect("the model of what is there");
                assert_eq!(view(&pool).await.unwrap(), live.view(), "seed {seed}");
                model = live.restarted();
            });
        }
    }
}

//! Volumes that fail: at the k-th call for every k, while the pool is open, one after the other until none
//! takes the manifest, and for lack of space.

use std::sync::Arc;

use pool::spread::{Problem, Spread};
use volume::layer::call::Op as Call;
use volume::layer::fault::{Effect, Fault, FaultPlan, Rule};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, ErrorKind, Intent, IoBuf, Result, Volume};

use crate::model::{Model, Op, view};
use crate::rig::{IO, get, manifests, members, mems, name, open, opening, put};

/// Volumes under one plan.
pub(crate) struct Rig {
    pub(crate) mems: Vec<Mem>,
    pub(crate) faults: Vec<Arc<Fault<Mem>>>,
    pub(crate) plan: FaultPlan,
}

impl Rig {
    pub(crate) fn new(mems: Vec<Mem>) -> Self {
        let (plan, clock) = (FaultPlan::new(0), Clock::simulated());
        let fault = |mem: &Mem| Arc::new(Fault::new(mem.clone(), mem.label(), &plan, &clock));
        Self { faults: mems.iter().map(fault).collect(), mems, plan }
    }

    pub(crate) async fn open(&self) -> Result<Spread> {
        open(&self.faults).await
    }

    /// Ends every failure, and probes the devices.
    pub(crate) fn mend(&self) {
        self.plan.clear();
        self.faults.iter().for_each(|fault| fault.probe());
    }
}

/// A small run with every kind of operation.
fn small_run() -> Vec<Op> {
    let data = |len: usize, byte| vec![byte; len];
    vec![
        Op::Create("a", data(5000, 1)),
        Op::Sync("a"),
        Op::Create("d/c.log", data(700, 2)),
        Op::Sync("d/c.log"),
        Op::WriteWhole("d/a", data(9000, 3)),
        Op::Append("a", data(300, 4)),
        Op::Sync("a"),
        Op::Append("d/c.log", data(300, 5)),
        Op::Sync("d/c.log"),
        Op::Rename("d/a", "e/a"),
        Op::Link("e/a", "d/b"),
        Op::Create("x.log", data(10, 6)),
        Op::Rename("x.log", "d/c.log"),
        Op::RenamePrefix("d", "g"),
        Op::Remove("a"),
        Op::Remove("e/a"),
        Op::Flush,
    ]
}

/// Runs all operations, also after failures; returns every model that may explain the result.
async fn run_on(pool: &Spread, ops: &[Op]) -> Vec<Model> {
    let mut models = vec![Model::default()];
    for op in ops {
        let done = op.run(pool).await;
        let mut next = Vec::new();
        for model in &models {
            match (model.stages(op), &done) {
                (Ok(stages), Ok(())) => next.extend(stages.into_iter().next_back()),
                (Ok(stages), Err(_)) => next.extend(stages),
                (Err(_), Err(_)) => next.push(model.clone()),
                (Err(_), Ok(())) => {}
            }
        }
        assert!(!next.is_empty(), "{op:?}: {done:?}");
        models = next;
    }
    models
}

#[test]
fn whichever_call_fails_nothing_committed_is_lost() {
    let effects = [
        Effect::Fail(ErrorKind::Unavailable),
        Effect::FailAfter(ErrorKind::TimedOut),
        Effect::Fail(ErrorKind::OutOfSpace),
        Effect::Fail(ErrorKind::Io),
        Effect::Fail(ErrorKind::Poisoned),
    ];
    for count in [1, 4] {
        for effect in effects {
            let mut k = 0;
            while fail_one_call(count, effect, k) {
                k += 1;
            }
            assert!(k > 50, "{k} calls");
        }
    }
}

/// Fails call `k` of the small run; false if it has fewer.
fn fail_one_call(count: usize, effect: Effect, k: u64) -> bool {
    let context = format!("{count} volumes, {effect:?}, call {k}");
    let rig = Rig::new(mems(count));
    block_on(async {
        let pool = rig.open().await.unwrap();
        rig.plan.inject(Rule::new(effect).nth(k));
        let before = rig.plan.calls();
        let models = run_on(&pool, &small_run()).await;
        let failed = rig.plan.calls() - before > k;
        rig.mend();
        drop(pool);
        let pool = rig.open().await.unwrap_or_else(|e| panic!("{context}: {e}"));
        let found = view(&pool).await.unwrap_or_else(|e| panic!("{context}: {e}"));
        let explained = models.iter().any(|model| model.restarted().view() == found);
        assert!(explained, "{context}: {:?}", found.keys());
        assert_eq!(pool.check().await.unwrap().findings, [], "{context}");
        failed
    })
}

#[test]
fn opening_fails_or_works_but_never_breaks() {
    for effect in [Effect::Fail(ErrorKind::Unavailable), Effect::FailAfter(ErrorKind::Io)] {
        for k in 0..150 {
            let rig = Rig::new(mems(4));
            block_on(async {
                let pool = rig.open().await.unwrap();
                let models = run_on(&pool, &small_run()).await;
                drop(pool);
                rig.plan.inject(Rule::new(effect).nth(k));
                drop(rig.open().await);
                rig.mend();
                let pool = rig.open().await.unwrap_or_else(|e| panic!("{effect:?} {k}: {e}"));
                assert_eq!(view(&pool).await.unwrap(), models[0].restarted().view());
                assert_eq!(pool.check().await.unwrap().findings, [], "{effect:?} {k}");
            });
        }
    }
}

#[test]
fn a_volume_goes_and_comes_back() {
    let rig = Rig::new(mems(4));
    block_on(async {
        let pool = rig.open().await.unwrap();
        for i in 0..8u8 {
            put(&pool, &format!("t{i}"), &[i; 100]).await.unwrap();
        }
        let away = rig.plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)).volume("s1"));
        let mut failed = 0;
        for i in 0..8u8 {
            match get(&pool, &format!("t{i}")).await {
                Ok(bytes) => assert_eq!(bytes, [i; 100]),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Unavailable);
                    assert!(e.to_string().contains("volume s1"), "{e}");
                    failed += 1;
                }
            }
        }
        assert_eq!(failed, 2);
        // The manifest moves, and new objects go elsewhere.
        for i in 8..16u8 {
            put(&pool, &format!("t{i}"), &[i; 100]).await.unwrap();
            let stat = pool.stat(&name(&format!("t{i}"))).await.unwrap();
            assert_ne!(stat.layout.volumes()[0].0, 1);
        }
        assert!([0, 2, 3].iter().all(|&i| manifests(&rig.mems[i]).len() == 1));
        for i in 0..8 {
            pool.remove(&name(&format!("t{i}"))).await.unwrap();
        }
        rig.plan.lift(away);
        for i in 8..12 {
            put(&pool, &format!("u{i}"), b"back").await.unwrap();
        }
        // The next removal on the volume also removes earlier orphans.
        for i in 8..12 {
            pool.remove(&name(&format!("u{i}"))).await.unwrap();
        }
        assert_eq!(pool.check().await.unwrap().findings, []);
        drop(pool);
        let pool = rig.open().await.unwrap();
        assert_eq!(pool.list().await.unwrap().len(), 8);
    });
}

#[test]
fn the_manifest_moves_from_copies_that_fail_until_there_is_nowhere_to_go() {
    for op in [Call::Write, Call::Sync] {
        let rig = Rig::new(mems(5));
        block_on(async {
            let pool = rig.open().await.unwrap();
            put(&pool, "kept", b"bytes").await.unwrap();
            for failed in 0..4 {
                let poisoned = Effect::Fail(ErrorKind::Poisoned);
                let rule = Rule::new(poisoned).on(op).volume(&format!("s{failed}"));
                rig.plan.inject(rule.named("manifest-*"));
                pool.link(&name("kept"), &name(&format!("l{failed}"))).await.unwrap();
            }
            rig.plan.inject(Rule::new(Effect::Fail(ErrorKind::Poisoned)).on(op).volume("s4"));
            let e = pool.link(&name("kept"), &name("l4")).await.unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Poisoned);
            assert!(e.to_string().contains("can be read but not changed"), "{e}");
            for i in 0..5 {
                assert!(e.to_string().contains(&format!("volume s{i}")), "{e}");
            }
            // Refused before anything changes in memory.
            assert!(pool.remove(&name("kept")).await.is_err());
            assert_eq!(get(&pool, "kept").await.unwrap(), b"bytes");
            rig.mend();
            pool.remove(&name("l0")).await.unwrap();
            drop(pool);
            let pool = rig.open().await.unwrap();
            let names: Vec<_> = pool.list().await.unwrap().into_iter().map(|l| l.name).collect();
            assert!(["kept", "l1", "l2", "l3"].iter().all(|text| names.contains(&name(text))));
            assert!(!names.contains(&name("l0")));
        });
    }
}

#[test]
fn a_failed_sync_stops_the_object_and_new_ones_go_elsewhere() {
    let rig = Rig::new(mems(3));
    block_on(async {
        let pool = rig.open().await.unwrap();
        let object = pool.create(&name("a"), &Intent::DATA).await.unwrap();
        object.write_at(0, IoBuf::from(&b"bytes"[..]), IO).await.unwrap();
        rig.plan.inject(Rule::new(Effect::Fail(ErrorKind::Poisoned)).named("o*").nth(0));
        assert_eq!(object.sync(IO).await.unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(object.sync(IO).await.unwrap_err().kind(), ErrorKind::Poisoned);
        let poisoned = pool.stat(&name("a")).await.unwrap().layout;
        for i in 0..6 {
            put(&pool, &format!("t{i}"), b"elsewhere").await.unwrap();
            let stat = pool.stat(&name(&format!("t{i}"))).await.unwrap();
            assert_ne!(stat.layout, poisoned);
        }
        assert_eq!(get(&pool, "a").await.unwrap(), b"bytes", "reads go on");
    });
}

#[test]
fn a_table_that_does_not_fit_goes_to_the_next_volume() {
    let rig = Rig::new(mems(3));
    block_on(async {
        let pool = rig.open().await.unwrap();
        for (effect, op) in [
            (Effect::Fail(ErrorKind::OutOfSpace), Call::Write),
            (Effect::Fail(ErrorKind::Unavailable), Call::Create),
            (Effect::FailAfter(ErrorKind::Io), Call::Sync),
        ] {
            let rule = rig.plan.inject(Rule::new(effect).on(op).named("o*").calls(0..2));
            let text = format!("{op:?}");
            put(&pool, &text, &[1; 5000]).await.unwrap();
            assert_eq!(get(&pool, &text).await.unwrap(), [1; 5000]);
            rig.plan.lift(rule);
        }
        rig.plan.inject(Rule::new(Effect::Fail(ErrorKind::OutOfSpace)).on(Call::Write).named("o*"));
        let e = put(&pool, "full", &[1; 5000]).await.unwrap_err();
        assert_eq!(e.kind(), ErrorKind::OutOfSpace);
        let message = e.to_string();
        assert!((0..3).all(|i| message.contains(&format!("volume s{i}"))), "{message}");
        assert!(!pool.contains(&name("full")));
        assert_eq!(pool.check().await.unwrap().findings, []);
    });
}

#[test]
fn a_full_pool_says_so_and_works_again_when_something_is_removed() {
    let volumes: Vec<_> = (0..3).map(|i| Mem::with_capacity(&format!("s{i}"), 1 << 20)).collect();
    block_on(async {
        let pool = Spread::open(members(&volumes), opening("hash")).await.unwrap();
        let mut count = 0;
        let full = loop {
            match put(&pool, &format!("t{count}"), &[1; 100_000]).await {
                Ok(()) => count += 1,
                Err(e) => break e,
            }
        };
        assert_eq!(full.kind(), ErrorKind::OutOfSpace);
        assert!(full.to_string().contains("no volume of the pool has room"), "{full}");
        assert!(count >= 24, "{count}");
        // Foreign objects use up all remaining space; removing still works.
        for (i, volume) in volumes.iter().enumerate() {
            let filler = volume.create(&name("filler"), &Intent::DATA).await.unwrap();
            let free = volume.space().await.unwrap().free;
            filler.set_len(free).await.unwrap();
            assert_eq!(volume.space().await.unwrap().free, 0, "s{i}");
        }
        for i in 0..count {
            pool.remove(&name(&format!("t{i}"))).await.unwrap();
        }
        put(&pool, "again", &[2; 100_000]).await.unwrap();
        drop(pool);
        let pool = Spread::open(members(&volumes), opening("hash")).await.unwrap();
        assert_eq!(get(&pool, "again").await.unwrap(), [2; 100_000]);
        let foreign = pool.check().await.unwrap().findings;
        assert!(foreign.iter().all(|f| f.name == "filler" && f.problem == Problem::Foreign));
    });
}

#[test]
fn what_may_grow_goes_where_it_fits_and_else_where_the_most_room_is() {
    let sizes = [1, 3, 2].map(|mib| mib << 20);
    let volumes = sizes.iter().enumerate();
    let volumes: Vec<_> =
        volumes.map(|(i, &size)| Mem::with_capacity(&format!("s{i}"), size)).collect();
    block_on(async {
        for policy in ["round-robin", "hash", "least-overlap"] {
            let pool = Spread::open(members(&volumes), opening(policy)).await.unwrap();
            let mut on = [[0; 3]; 2];
            for (number, &most) in [3 << 19, 8 << 20].iter().enumerate() {
                for n in 0..12 {
                    let name = name(&format!("{policy}-{number}-{n}"));
                    let intent = Intent { most: Some(most), ..Intent::DATA };
                    pool.create(&name, &intent).await.unwrap();
                    let copies = pool.stat(&name).await.unwrap().copies;
                    on[number][usize::from(copies[0].layout.volumes()[0].0)] += 1;
                }
            }
            let [[small, large, middle], roomiest] = on;
            assert!(small == 0 && large > 0 && middle > 0, "{policy}: {on:?}");
            assert_eq!(roomiest, [0, 12, 0], "{policy}");
        }
    });
}

#[test]
fn with_every_volume_full_the_pool_can_be_read() {
    let rig = Rig::new(mems(3));
    block_on(async {
        let pool = rig.open().await.unwrap();
        put(&pool, "a", b"bytes").await.unwrap();
        // Edits until the manifest must grow.
        let full = rig.plan.inject(Rule::new(Effect::Full));
        let mut edits = 0;
        let refused = loop {
            let (from, to) = if edits % 2 == 0 { ("a", "b") } else { ("b", "a") };
            match pool.rename(&name(from), &name(to)).await {
                Ok(()) => edits += 1,
                Err(e) => break e,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::OutOfSpace, "{refused}");
        assert!(edits > 500, "{edits} edits fit into what was set aside");
        let text = pool.list().await.unwrap()[0].name.to_string();
        assert_eq!(get(&pool, &text).await.unwrap(), b"bytes");
        rig.plan.lift(full);
        pool.rename(&name(&text), &name("c")).await.unwrap();
        drop(pool);
        assert_eq!(get(&rig.open().await.unwrap(), "c").await.unwrap(), b"bytes");
    });
}

#[test]
fn with_every_volume_away_nothing_is_said_to_be_full() {
    block_on(async {
        let rig = Rig::new(mems(3));
        let pool = rig.open().await.unwrap();
        rig.plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)));
        let refused = put(&pool, "a", b"bytes").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        assert!(refused.to_string().contains("volume s2"), "{refused}");
        rig.mend();
        put(&pool, "a", b"bytes").await.unwrap();
    });
}

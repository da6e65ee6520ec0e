//! Pools of two volumes: which of them opens without the other, and never to a stale state.

use std::collections::BTreeSet;

use policy::placement::RoundRobin;
use pool::Member;
use pool::spread::{Opening, Spread};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::fault::{Effect, Rule};
use volume::task::block_on;
use volume::{ErrorKind, Result, Volume};

use crate::faults::Rig;
use crate::rig::{POOL, get, mems, put};

/// Opens the pool with these volumes.
async fn open(rig: &Rig, which: &[usize]) -> Result<Spread> {
    let members = which.iter().map(|&i| Member::new(format!("s{i}"), rig.faults[i].clone()));
    let opening = Opening::new(RoundRobin::default()).create_if_missing(POOL).copies(2);
    Spread::open(members.collect(), opening.allow_away()).await
}

#[test]
fn after_an_orderly_end_the_first_opens_alone_and_the_other_does_not() {
    let rig = Rig::new(mems(2));
    block_on(async {
        let pool = open(&rig, &[0, 1]).await.unwrap();
        put(&pool, "a", b"bytes").await.unwrap();
        pool.close().await.unwrap();
        drop(pool);
        let refused = open(&rig, &[1]).await.err().expect("the other may have newer edits");
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        let pool = open(&rig, &[0]).await.unwrap();
        assert_eq!(get(&pool, "a").await.unwrap(), b"bytes");
        put(&pool, "b", b"more").await.unwrap();
        drop(pool);
        // Its home is now one copy, which opens alone; the other volume is stale.
        drop(open(&rig, &[0]).await.unwrap());
        assert!(open(&rig, &[1]).await.is_err());
        let pool = open(&rig, &[0, 1]).await.unwrap();
        assert_eq!(get(&pool, "b").await.unwrap(), b"more");
    });
}

#[test]
fn after_a_crash_both_are_wanted_unless_the_loss_was_seen() {
    let rig = Rig::new(mems(2));
    block_on(async {
        let pool = open(&rig, &[0, 1]).await.unwrap();
        put(&pool, "a", b"bytes").await.unwrap();
        drop(pool);
        for alone in 0..2 {
            let refused = open(&rig, &[alone]).await.err().expect("the other may have newer edits");
            assert!(refused.to_string().contains("--repair"), "{refused}");
        }
        // The next change detects a volume that fails under a pool.
        let pool = open(&rig, &[0, 1]).await.unwrap();
        rig.plan.inject(Rule::new(Effect::Fail(ErrorKind::Unavailable)).volume("s0"));
        put(&pool, "b", b"more").await.unwrap();
        drop(pool);
        rig.plan.clear();
        let pool = open(&rig, &[1]).await.unwrap();
        assert_eq!(get(&pool, "a").await.unwrap(), b"bytes");
        assert_eq!(get(&pool, "b").await.unwrap(), b"more");
    });
}

/// Volumes are away, fail and come back in any order: the pool opens to its last state.
#[test]
fn no_order_of_losses_brings_back_what_is_old() {
    let (mut alone, mut refused) = (0, 0);
    for seed in 0..400 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let rig = Rig::new(mems(2));
        block_on(async {
            drop(open(&rig, &[0, 1]).await.unwrap());
            // The possible sets of names: several after a failed change.
            let mut may = vec![BTreeSet::new()];
            for round in 0..14 {
                let which: &[usize] = [&[0, 1][..], &[0], &[1]][rng.random_range(0..3)];
                // A volume may also fail during the opening.
                if rng.random_ratio(1, 4) {
                    fail(&rig, &mut rng);
                }
                let opened = open(&rig, which).await;
                let Ok(pool) = opened else {
                    rig.plan.clear();
                    rig.faults.iter().for_each(|fault| fault.probe());
                    refused += 1;
                    continue;
                };
                alone += u32::from(which.len() == 1);
                let context = format!("seed {seed}, round {round}, {which:?}");
                let listed = pool.list().await.unwrap().into_iter();
                let found: BTreeSet<_> = listed.map(|listed| listed.name.to_string()).collect();
                assert!(may.contains(&found), "{context}: {found:?}, not one of {may:?}");
                may = vec![found];
                for step in 0..rng.random_range(0..4) {
                    if rng.random_ratio(1, 6) {
                        fail(&rig, &mut rng);
                    }
                    let text = format!("t{round}-{step}");
                    let after = with(&may, &text);
                    match put(&pool, &text, b"bytes").await {
                        Ok(()) => may = after,
                        Err(_) => may.extend(after),
                    }
                }
                if rng.random_ratio(2, 3) {
                    // Some pools are used after the close.
                    if pool.close().await.is_ok() && rng.random_ratio(1, 4) {
                        if rng.random_bool(0.5) {
                            fail(&rig, &mut rng);
                        }
                        let text = format!("late{round}");
                        let after = with(&may, &text);
                        match put(&pool, &text, b"bytes").await {
                            Ok(()) => may = after,
                            Err(_) => may.extend(after),
                        }
                    }
                }
                drop(pool);
                rig.plan.clear();
                rig.faults.iter().for_each(|fault| fault.probe());
            }
        });
    }
    assert!(alone > 300 && refused > 300, "{alone} opened alone, {refused} refused");
}

/// Each set with `text` added.
fn with(may: &[BTreeSet<String>], text: &str) -> Vec<BTreeSet<String>> {
    let more = |names: &BTreeSet<String>| names.iter().cloned().chain([text.into()]).collect();
    may.iter().map(more).collect()
}

/// Makes a volume fail from some call on, for a while or for good; some failing calls still take effect.
fn fail(rig: &Rig, rng: &mut Xoshiro256PlusPlus) {
    let kind = ErrorKind::Unavailable;
    let effect = if rng.random_bool(0.5) { Effect::Fail(kind) } else { Effect::FailAfter(kind) };
    let from = rng.random_range(0..12);
    let upto = if rng.random_bool(0.5) { u64::MAX } else { from + rng.random_range(1..6) };
    let label = format!("s{}", rng.random_range(0..2));
    rig.plan.inject(Rule::new(effect).volume(&label).calls(from..upto));
}

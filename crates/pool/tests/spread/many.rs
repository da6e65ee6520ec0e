//! Many users at once, in virtual time: calls interleave by the seed, some are cancelled half-way, and the
//! power may go off at any step.

use std::time::Duration;

use futures_util::future::join_all;
use pool::spread::Spread;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::layer::crash::{Crash, Power};
use volume::mem::Mem;
use volume::task::block_on;
use volume::{Clock, Volume};

use crate::jitter::{Jitter, give_up_after};
use crate::model::{Model, Names, Op, View, view, view_of};
use crate::rig::{PLACEMENTS, members, mems, name, open, opening, put, survivors};

const USERS: usize = 4;
const OPS: usize = 25;

/// One user with its own names, and every model that may explain its work so far.
struct User {
    names: Names,
    rng: Xoshiro256PlusPlus,
    models: Vec<Model>,
}

impl User {
    fn all(seed: u64) -> Vec<Self> {
        let user = |i| User {
            names: Names::within(&format!("user{i}")),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed * 100 + i as u64),
            models: vec![Model::default()],
        };
        (0..USERS).map(user).collect()
    }

    /// This user's part of `found`.
    fn part_of(&self, found: &View) -> View {
        let own = found.iter().filter(|(name, _)| name.starts_with(self.names.prefix()));
        own.map(|(name, bytes)| (name.clone(), bytes.clone())).collect()
    }

    async fn work(&mut self, pool: &Spread, clock: &Clock, power: &Power) {
        for _ in 0..OPS {
            let op = Op::random(&mut self.rng, &self.names);
            // A cancelled cut leaves unpredictable bytes.
            let patience = match op {
                Op::Cut(..) => Duration::MAX,
                _ if self.rng.random_ratio(3, 4) => Duration::MAX,
                _ => Duration::from_micros(self.rng.random_range(0..2000)),
            };
            let done = give_up_after(clock, patience, op.run(pool)).await;
            let ended = matches!(&done, Some(Ok(())));
            let mut next = Vec::new();
            for model in &self.models {
                match model.stages(&op) {
                    Ok(stages) if ended && matches!(op, Op::RemoveSoon(_)) => next.extend(stages),
                    Ok(stages) if ended => next.extend(stages.into_iter().next_back()),
                    // The name is missing in this model; a crash may still bring it back.
                    Err(_) if ended => next.push(model.clone()),
                    Ok(stages) => next.extend(stages),
                    Err(_) => next.push(model.clone()),
                }
            }
            assert!(!next.is_empty(), "{op:?}: {done:?}");
            self.models = next;
            if done.is_none() {
                self.models.iter_mut().for_each(Model::blur);
            }
            if power.is_off() {
                return;
            }
            // A cancelled operation may be visible, and yet be lost in a crash, until it is durable.
            if done.is_none() && pool.flush().await.is_ok() {
                let Ok(found) = view_of(pool, self.names.prefix()).await else { return };
                self.models.retain(|model| model.view() == found);
                assert!(!self.models.is_empty(), "{op:?} given up: {:?}", found.keys());
            }
        }
    }
}

/// Runs all users until they are done or the power goes off.
fn run<V: Volume + Clone + 'static>(
    volumes: &[V],
    placement: &str,
    seed: u64,
    power: &Power,
) -> Vec<User> {
    let clock = Clock::simulated();
    let jitter = volumes.iter().zip(seed * 10..).map(|(v, s)| Jitter::new(v.clone(), &clock, s));
    let jitter: Vec<_> = jitter.collect();
    let mut users = User::all(seed);
    clock.run(async {
        let Ok(pool) = Spread::open(members(&jitter), opening(placement)).await else { return };
        join_all(users.iter_mut().map(|user| user.work(&pool, &clock, power))).await;
    });
    users
}

#[test]
fn interleaved_and_given_up_work_is_done_or_not_done() {
    for seed in 0..200 {
        let placement = PLACEMENTS[seed as usize % PLACEMENTS.len()];
        let volumes = mems(1 + seed as usize % 5);
        let users = run(&volumes, placement, seed, &Power::new());
        block_on(async {
            let pool = Spread::open(members(&volumes), opening(placement)).await.unwrap();
            let found = view(&pool).await.unwrap();
            for user in &users {
                let found = user.part_of(&found);
                let explained = user.models.iter().any(|model| model.restarted().view() == found);
                assert!(explained, "seed {seed}: {:?}", found.keys());
            }
            assert_eq!(pool.check().await.unwrap().findings, [], "seed {seed}");
        });
    }
}

#[test]
fn interleaved_work_survives_a_power_cut() {
    for seed in 0..400 {
        let placement = PLACEMENTS[seed as usize % PLACEMENTS.len()];
        let power = Power::new();
        let count = 1 + seed as usize % 5;
        let volumes: Vec<_> =
            (0..count).map(|i| Crash::new(Mem::new(&format!("s{i}")), &power)).collect();
        power.cut_after(Xoshiro256PlusPlus::seed_from_u64(seed).random_range(0..300));
        let users = run(&volumes, placement, seed, &power);
        for survivor in 0..3 {
            let context = format!("seed {seed}, survivor {survivor}");
            let volumes = survivors(&volumes, survivor);
            block_on(async {
                let pool = Spread::open(members(&volumes), opening(placement)).await;
                let pool = pool.unwrap_or_else(|e| panic!("{context}: {e}"));
                let found = view(&pool).await.unwrap_or_else(|e| panic!("{context}: {e}"));
                for user in &users {
                    let found = user.part_of(&found);
                    let why: Vec<_> = user.models.iter().map(|m| m.explains(&found)).collect();
                    assert!(why.iter().any(Result::is_ok), "{context}: {why:?}");
                }
                assert_eq!(pool.check().await.unwrap().findings, [], "{context}");
            });
        }
    }
}

#[test]
fn those_who_wait_together_share_a_sync() {
    const TABLES: usize = 48;
    let clock = Clock::simulated();
    let volumes = mems(3);
    let jitter: Vec<_> =
        volumes.iter().zip(0..).map(|(mem, seed)| Jitter::new(mem.clone(), &clock, seed)).collect();
    clock.run(async {
        let pool = open(&jitter).await.unwrap();
        let before = jitter[0].manifest_syncs();
        let pool = &pool;
        let puts = (0..TABLES).map(|i| async move { put(pool, &format!("t{i}"), b"table").await });
        join_all(puts).await.into_iter().for_each(|done| done.unwrap());
        let syncs = jitter[0].manifest_syncs() - before;
        assert!(syncs <= TABLES as u64 / 3, "{syncs} syncs for {TABLES} tables");
        // Sequential removals need one sync each.
        let before = jitter[0].manifest_syncs();
        for i in 0..4 {
            pool.remove(&name(&format!("t{i}"))).await.unwrap();
        }
        assert_eq!(jitter[0].manifest_syncs() - before, 4);
        // `remove_soon` does not wait for syncs.
        for i in 4..20 {
            pool.remove_soon(&name(&format!("t{i}"))).await.unwrap();
        }
        pool.flush().await.unwrap();
        assert_eq!(jitter[0].manifest_syncs() - before, 5);
    });
    assert_eq!(block_on(block_on(open(&volumes)).unwrap().list()).unwrap().len(), TABLES - 20);
}

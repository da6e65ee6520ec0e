//! The policies on a numeric model of a pool: six equal volumes, tables with a popularity each, and threads that read
//! as fast as the busiest volume allows. The results are the used part of all volumes, and the cost in copies:
//! `testdata/migrate/rehearsal.txt`.
//!
//! It has no queues, compactions or caches; the bench `spread` has.

use std::fmt::Write;

use expect_test::expect_file;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::super::*;
use crate::time::NANOS_PER_SEC;
use crate::units::MIB;

const VOLUMES: u16 = 6;
const LINE: f64 = 1000.0;
const TABLES: usize = 600;
/// A quarter of an hour of decisions.
const STEPS: usize = 90;
const SEEDS: u64 = 3;
/// The part of a line that a gate grants.
const RHO: f64 = 0.98;

/// How reads divide among the copies of a table.
#[derive(Clone, Copy, Debug)]
enum Routing {
    /// To where they wait least.
    Least,
    /// Evenly.
    Even,
}

/// The popularity of tables.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// Every table nearly as much as the others.
    Uniform,
    /// By a power law.
    Zipf,
    /// A tenth of the tables gets nine tenths of the reads; another tenth each minute.
    Shift,
}

struct Rehearsal {
    random: Xoshiro256PlusPlus,
    routing: Routing,
    load: Load,
    tables: Vec<Table>,
    popularity: Vec<f64>,
}

impl Rehearsal {
    fn new(load: Load, routing: Routing, seed: u64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let tables = (0..TABLES as u64).map(|object| {
            let volume = VolumeId(random.random_range(0..VOLUMES));
            let len = if random.random_bool(0.1) { 64 * MIB } else { 8 * MIB };
            let copies = vec![Replica { volume, share: 1.0 }];
            Table { object, len, rate: 0.0, copies, age: Duration::from_secs(3600), leaving: None }
        });
        let tables = tables.collect();
        let mut rehearsal = Self { random, routing, load, tables, popularity: Vec::new() };
        rehearsal.choose_popularity(0);
        rehearsal
    }

    fn choose_popularity(&mut self, step: usize) {
        let mut weights: Vec<f64> = (0..TABLES)
            .map(|rank| match self.load {
                Load::Uniform => 1.0 + (rank % 7) as f64 / 10.0,
                Load::Zipf => (rank as f64 + 1.0).powf(-0.8),
                Load::Shift => {
                    let hot = (rank + TABLES - step / 6 * 60 % TABLES) % TABLES < TABLES / 10;
                    if hot { 81.0 } else { 1.0 }
                }
            })
            .collect();
        match self.load {
            Load::Shift => {}
            _ if step > 0 => return,
            _ => weights.shuffle(&mut self.random),
        }
        let sum: f64 = weights.iter().sum();
        self.popularity = weights.into_iter().map(|weight| weight / sum).collect();
    }

    /// Lets threads read for one interval; returns operations a second of each volume.
    fn run(&mut self) -> Vec<f64> {
        let mut reads: Vec<Vec<f64>> = self
            .tables
            .iter()
            .zip(&self.popularity)
            .map(|(table, popularity)| {
                vec![popularity / table.copies.len() as f64; table.copies.len()]
            })
            .collect();
        let mut ops = vec![0.0; usize::from(VOLUMES)];
        for (table, reads) in self.tables.iter().zip(&reads) {
            for (copy, reads) in table.copies.iter().zip(reads) {
                ops[usize::from(copy.volume.0)] += reads;
            }
        }
        if let Routing::Least = self.routing {
            for _ in 0..20 {
                for (table, reads) in self.tables.iter().zip(&mut reads) {
                    for a in 0..reads.len() {
                        for b in 0..reads.len() {
                            let (low, high) = (
                                usize::from(table.copies[a].volume.0),
                                usize::from(table.copies[b].volume.0),
                            );
                            let moved = ((ops[high] - ops[low]) / 2.0).min(reads[b]).max(0.0);
                            ops[high] -= moved;
                            ops[low] += moved;
                            reads[b] -= moved;
                            reads[a] += moved;
                        }
                    }
                }
            }
        }
        let most = ops.iter().copied().fold(0.0, f64::max);
        let rate = RHO * LINE / most;
        for ((table, reads), popularity) in self.tables.iter_mut().zip(reads).zip(&self.popularity)
        {
            // A count over ten seconds differs from the mean.
            let meant = popularity * rate;
            let noise = (meant / 10.0).sqrt() * (self.random.random_range(-1.7..1.7));
            table.rate = (meant + noise).max(0.0);
            for (copy, reads) in table.copies.iter_mut().zip(reads) {
                copy.share = reads / popularity;
            }
        }
        ops.into_iter().map(|ops| ops * rate).collect()
    }

    fn volumes(&mut self, ops: &[f64]) -> Vec<Volume> {
        let volumes = (0..VOLUMES).zip(ops).map(|(id, &ops)| {
            let mut noise = |most: f64| 1.0 + self.random.random_range(-most..most);
            Volume {
                id: VolumeId(id),
                state: State::Active,
                line: LINE,
                line_bytes: f64::INFINITY,
                used: ops / LINE,
                // One second has more noise, but the gate grants no more than rho.
                used_now: (ops / LINE * noise(0.1)).min(RHO),
                wait: Duration::from_millis(if ops >= 0.97 * LINE { 5 } else { 0 }),
                weight: ops / LINE * noise(0.01),
                free: 900 << 30,
                total: 1000 << 30,
                held: 1000 << 30,
                answer: Duration::ZERO,
            }
        });
        volumes.collect()
    }

    /// Carries out the plan.
    fn act(&mut self, plan: &Plan) {
        for drop in &plan.drops {
            self.tables[drop.object as usize].copies.retain(|copy| copy.volume != drop.volume);
        }
        for copy in &plan.copies {
            let table = &mut self.tables[copy.object as usize];
            assert!(!table.is_on(copy.to));
            table.copies.push(Replica { volume: copy.to, share: 0.0 });
        }
    }
}

fn at(step: usize) -> Instant {
    Instant::from_nanos(step as u64 * 10 * NANOS_PER_SEC)
}

/// The results, as means over seeds.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    /// The mean used share of all lines.
    used: f64,
    /// The same at the end.
    last: f64,
    copies: f64,
    /// Copies in the last third.
    late: f64,
    mib: f64,
}

fn rehearse(policy: Policy, load: Load, routing: Routing) -> Outcome {
    let mut all = Outcome::default();
    for seed in 0..SEEDS {
        let one = rehearse_once(policy, load, routing, seed);
        all.used += one.used / SEEDS as f64;
        all.last += one.last / SEEDS as f64;
        all.copies += one.copies / SEEDS as f64;
        all.late += one.late / SEEDS as f64;
        all.mib += one.mib / SEEDS as f64;
    }
    all
}

fn rehearse_once(policy: Policy, load: Load, routing: Routing, seed: u64) -> Outcome {
    let mut pool = Rehearsal::new(load, routing, seed);
    let mut planner = Planner::new(policy, Terms::default());
    let mut outcome = Outcome::default();
    for step in 0..STEPS {
        pool.choose_popularity(step);
        let ops = pool.run();
        outcome.last = ops.iter().sum::<f64>() / (LINE * f64::from(VOLUMES));
        outcome.used += outcome.last / STEPS as f64;
        let volumes = pool.volumes(&ops);
        let snapshot = Snapshot {
            volumes: &volumes,
            tables: &pool.tables,
            in_flight: &[],
            overlap: &|_, _| 0.0,
        };
        let plan = planner.decide(&snapshot, at(step));
        pool.act(&plan);
        for copy in &plan.copies {
            planner.copied(copy.object, at(step + 1));
            outcome.copies += 1.0;
            outcome.mib += (copy.len / MIB) as f64;
            outcome.late += f64::from(u8::from(step >= STEPS * 2 / 3));
        }
    }
    outcome
}

#[test]
fn volumes_become_level_for_few_copies() {
    let (mut report, mut outcomes) = (String::new(), Vec::new());
    for load in [Load::Uniform, Load::Zipf, Load::Shift] {
        for routing in [Routing::Least, Routing::Even] {
            let [off, iops, tango, level] = Policy::ALL.map(|policy| {
                let outcome = rehearse(policy, load, routing);
                let Outcome { used, last, copies, late, mib } = outcome;
                let name = policy.name();
                writeln!(
                    report,
                    "{load:?} {routing:?} {name}: {used:.3} used, {last:.3} at last, \
                     {copies:.0} copies of {mib:.0} MiB, {late:.0} late",
                )
                .expect("text grows");
                outcome
            });
            outcomes.push((load, routing, [off, iops, tango, level]));
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/migrate/rehearsal.txt");
    expect_file![path].assert_eq(&report);
    for (load, routing, [off, iops, tango, level]) in outcomes {
        let what = format!("{load:?} {routing:?}");
        assert!(level.used > off.used && tango.used > off.used, "{what}");
        if let Routing::Least = routing {
            assert!(iops.copies > 1.4 * level.copies && iops.mib > 1.4 * level.mib, "{what}");
            assert!(level.copies < 0.9 * tango.copies && level.used > tango.used - 0.01, "{what}");
        }
        if let (Routing::Least, Load::Uniform | Load::Zipf) = (routing, load) {
            assert!(tango.late + level.late <= 0.2, "{what}: {tango:?} {level:?}");
            assert!(level.last > 0.96, "{what}");
        }
    }
}

//! `bench kv`: YCSB's core workloads against a key-value store, each volume against its line.
//!
//! ```text
//! workload (what, how often) ─┐
//! choose (which record) ──────┤
//! record (keys, values) ──────┼─ worker × threads ── KeyValue     latencies, answers verified
//! pace (when, if not at once) ┘        │
//!                              meter, each second: operations, I/Os of each volume
//! ```
//!
//! Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010, and YCSB's package
//! `site.ycsb.workloads`. As there, keys are in the order of a hash, and an operation is about one
//! record. Other than there, a record is one value and not ten fields, so that an update writes all of
//! it; and every value that is read is verified to be its key's.
//!
//! All choices follow from the seed. Which thread inserts which record does not.

mod choose;
mod counter;
mod figures;
mod hotspot;
mod latency;
mod latest;
mod meter;
mod pace;
mod record;
mod scrambled;
mod worker;
mod workload;
mod zipfian;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use engine::kv::KeyValue;
use indicatif::{ProgressBar, ProgressStyle};
use policy::time::Instant;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::Clock;

pub use choose::Distribution;
pub use figures::add_to;
pub use latency::Latencies;
pub use meter::{Sample, Volume};
pub use record::{KEY_BYTES_MIN, Shape, VALUE_BYTES_MIN};
pub use workload::{Operation, SCAN_MAX, Workload};

use self::choose::Chooser;
use self::counter::Counter;
use self::meter::{Done, Meter};
use self::pace::Pace;
use self::worker::{Enough, Found, Worker};

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Records to load, at least one.
    pub records: u64,
    /// The sizes of records.
    pub shape: Shape,
    /// Threads that each have one operation under way, at least one.
    pub threads: usize,
    /// A workload ends after so many operations, if that is not none.
    pub operations: Option<u64>,
    /// A workload ends after this time, if that is not none. The load does not.
    pub time: Option<Duration>,
    /// Operations a second that are meant to start, at least one; none for as many as there can be.
    /// It does not hold for the load.
    pub target_per_sec: Option<u64>,
    /// Which records are popular; none for what each workload says.
    pub distribution: Option<Distribution>,
    /// What choices and values follow from.
    pub seed: u64,
    /// How often volumes and threads are looked at.
    pub sample_every: Duration,
}

/// What one workload found.
#[derive(Clone, Debug)]
pub struct Phase {
    /// What was run.
    pub workload: Workload,
    /// When it started, since the bench began.
    pub start: Duration,
    /// How long it took.
    pub elapsed: Duration,
    /// Operations that were done.
    pub operations: u64,
    /// How long they took, each from its start.
    pub latencies: Latencies,
    /// The same, from when each should have started; nothing without a rate.
    pub open: Latencies,
    /// The rates over time.
    pub samples: Vec<Sample>,
    /// Operations of each volume, as its contract counts them.
    pub ops: Vec<u64>,
    /// Answers that were not what was stored.
    pub wrong: u64,
    /// One of them, in words.
    pub example: Option<String>,
}

/// How one workload is run.
struct Plan {
    workload: Workload,
    start: Instant,
    operations: u64,
    time: Option<Duration>,
    target_per_sec: Option<u64>,
}

/// A store, and what runs on it.
pub struct Bench<'b> {
    store: &'b dyn KeyValue,
    clock: &'b Clock,
    volumes: &'b [Volume<'b>],
    settings: &'b Settings,
    stop: &'b AtomicBool,
    counter: Counter,
    origin: Instant,
}

impl<'b> Bench<'b> {
    /// On a store that holds the first `records` already. `clock` is the one its volumes go by; once
    /// `stop` says so, whatever runs ends with what it found so far.
    #[must_use]
    pub fn new(
        store: &'b dyn KeyValue,
        clock: &'b Clock,
        volumes: &'b [Volume<'b>],
        settings: &'b Settings,
        records: u64,
        stop: &'b AtomicBool,
    ) -> Self {
        let (counter, origin) = (Counter::new(records), clock.now());
        Self { store, clock, volumes, settings, stop, counter, origin }
    }

    /// The records that are there by now: those loaded, and those workloads inserted.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.counter.records()
    }

    /// Inserts the records that are missing. Progress is shown on stderr if that is a terminal.
    ///
    /// # Errors
    /// The store's.
    pub fn load(&self) -> anyhow::Result<Phase> {
        let missing = self.settings.records.saturating_sub(self.records());
        self.phase(Workload::Load, missing, None, None)
    }

    /// Runs a workload on the records that are there.
    ///
    /// # Errors
    /// The store's.
    pub fn run(&self, workload: Workload) -> anyhow::Result<Phase> {
        let Settings { operations, time, target_per_sec, .. } = *self.settings;
        self.phase(workload, operations.unwrap_or(u64::MAX), time, target_per_sec)
    }

    fn phase(
        &self,
        workload: Workload,
        operations: u64,
        time: Option<Duration>,
        target_per_sec: Option<u64>,
    ) -> anyhow::Result<Phase> {
        let (clock, volumes) = (self.clock, self.volumes);
        let done: Vec<_> = (0..self.settings.threads).map(|_| Done::default()).collect();
        let every = self.settings.sample_every;
        let meter = Meter { clock, volumes, threads: &done, origin: self.origin, every };
        let bar = bar(workload, operations, time);
        let ops_before: Vec<_> = volumes.iter().map(|volume| (volume.ops)()).collect();

        let start = clock.now();
        let plan = Plan { workload, start, operations, time, target_per_sec };
        let position = |now: Instant, operations| match time {
            Some(_) => millis(now.since(start)),
            None => operations,
        };
        let (ended, running) = channel::<()>();
        let (found, samples) = std::thread::scope(|scope| {
            // The end of a channel moves to its thread.
            let watching = scope.spawn(|| {
                let running = running;
                meter.watch(&running, &bar, position)
            });
            let found = self.work(&plan, &done);
            drop(ended);
            (found, watching.join().expect("the meter does not panic"))
        });
        let elapsed = clock.now().since(start);
        bar.finish_and_clear();
        let Found { latencies, open, wrong, example } = found?;
        // A token that was given back may be one of before.
        let ops = volumes.iter().zip(ops_before);
        let ops = ops.map(|(volume, before)| (volume.ops)().saturating_sub(before));
        Ok(Phase {
            workload,
            start: start.since(self.origin),
            elapsed,
            operations: Operation::ALL.iter().map(|operation| latencies.count(*operation)).sum(),
            latencies,
            open,
            samples,
            ops: ops.collect(),
            wrong,
            example,
        })
    }

    /// Lets every thread work, and gives what they found together.
    fn work(&self, plan: &Plan, done: &[Done]) -> anyhow::Result<Found> {
        let Plan { workload, start, operations, time, target_per_sec } = *plan;
        let threads = done.len();
        let chooser = self.chooser(workload, operations);
        let seed = self.settings.seed.wrapping_add(workload as u64);
        let mut seeds = Xoshiro256PlusPlus::seed_from_u64(seed);
        let at = time.map_or(Instant::FAR, |time| start + time);
        let failed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mut workers = Vec::new();
            for (thread, done) in done.iter().enumerate() {
                let worker = Worker {
                    store: self.store,
                    clock: self.clock,
                    workload,
                    shape: self.settings.shape,
                    chooser: chooser.clone(),
                    counter: &self.counter,
                    random: Xoshiro256PlusPlus::seed_from_u64(seeds.next_u64()),
                    done,
                    stop: [self.stop, &failed],
                };
                let enough = Enough { operations: share(operations, thread, threads), at };
                let pace = target_per_sec.map(|rate| Pace::new(start, rate, thread, threads));
                let failed = &failed;
                workers.push(scope.spawn(move || {
                    let worked = worker.work(enough, pace);
                    failed.fetch_or(worked.is_err(), Ordering::Relaxed);
                    worked
                }));
            }
            let mut all = Found::default();
            for worker in workers {
                all.add(worker.join().expect("a worker does not panic")?);
            }
            Ok(all)
        })
    }

    fn chooser(&self, workload: Workload, operations: u64) -> Chooser {
        let distribution = self.settings.distribution.unwrap_or(workload.distribution());
        // YCSB expects twice the inserts there should be. Where time ends the workload: as many
        // operations as records.
        let operations = self.settings.operations.map_or(self.settings.records, |_| operations);
        let inserts = operations / 100 * u64::from(workload.share(Operation::Insert)) * 2;
        // The load chooses nothing.
        Chooser::new(distribution, self.records().max(1), inserts)
    }
}

/// What falls to `thread` of `operations`.
fn share(operations: u64, thread: usize, threads: usize) -> u64 {
    let (thread, threads) = (thread as u64, threads as u64);
    operations / threads + u64::from(thread < operations % threads)
}

fn bar(workload: Workload, operations: u64, time: Option<Duration>) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:4} {bar:40} {elapsed} ({eta} left) {msg}")
        .expect("the template is right");
    let bar = ProgressBar::new(time.map_or(operations, millis)).with_style(style);
    bar.with_prefix(workload.name())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

//! `bench kv`: YCSB's core workloads against a key-value store, each volume against its paid rate.
//!
//! ```text
//! workload (what, how often) ─┐
//! choose (which record) ──────┼─ drive ── KeyValue     latencies, answers verified
//! record (keys, values) ──────┘     └─ each second: operations, I/Os of each volume
//! ```
//!
//! Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010, and YCSB's package `site.ycsb.workloads`.
//! As there, keys are in the order of a hash, and an operation is about one record. Unlike there, a record is one value
//! and not ten fields, so that an update writes all of it, and every value read is verified to belong to its key.
//!
//! The seed determines all choices, but not which thread inserts which record.

mod choose;
mod figures;
mod hotspot;
mod latest;
mod record;
mod scrambled;
mod workload;
mod zipfian;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use engine::kv::KeyValue;
use policy::time::Instant;
use volume::Clock;

pub use crate::drive::{Driven, Latencies, Operation, Sample, Tally, VALUE_BYTES_MIN};
pub use choose::Distribution;
pub use figures::add_to;
pub use record::{KEY_BYTES_MIN, Shape};
pub use workload::{SCAN_MAX, Workload};
pub use zipfian::Zipfian;

pub(crate) use self::choose::Chooser;
use crate::drive::{AtOnce, Choose, Counter, Drive, Even, Lengths, bar, millis};

/// A volume and its paid rate.
pub struct Volume<'v> {
    /// Its name.
    pub name: String,
    /// The paid operations per second; `None` if unlimited.
    pub paid_iops: Option<u64>,
    /// Operations that its gate let through so far, as its contract counts them.
    pub ops: Tally<'v>,
}

/// A cache above the volumes, or of some of them.
pub struct Cache<'c> {
    /// Its name.
    pub name: String,
    /// Reads, or bytes of them, that it answered so far.
    pub hits: Tally<'c>,
    /// Those that it was asked for.
    pub asked: Tally<'c>,
}

impl Cache<'_> {
    fn counts(&self) -> [u64; 2] {
        [&self.hits, &self.asked].map(|tally| (tally.read)())
    }
}

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Records to load, at least one.
    pub records: u64,
    /// The sizes of records.
    pub shape: Shape,
    /// Threads that each have one operation under way, at least one.
    pub threads: usize,
    /// The most operations of a workload, if limited.
    pub operations: Option<u64>,
    /// The longest time of a workload, if limited. The load is not limited.
    pub time: Option<Duration>,
    /// The intended operations per second, at least one; `None` for the maximum. The load ignores it.
    pub target_per_sec: Option<u64>,
    /// The popularity of records; `None` for the workload's own.
    pub distribution: Option<Distribution>,
    /// The seed of choices and values.
    pub seed: u64,
    /// The interval between samples of volumes and threads.
    pub sample_every: Duration,
}

/// The result of one workload.
#[derive(Clone, Debug)]
pub struct Phase {
    /// The workload's name.
    pub name: &'static str,
    /// When it started, since the bench began.
    pub start: Duration,
    /// What its threads did; the counts are operations of each volume, as its contract counts them.
    pub driven: Driven,
    /// The names of the caches that were asked meanwhile, and the part that each answered, 0 to 1.
    pub hits: Vec<(String, f64)>,
}

/// A store, and the runs on it.
pub struct Bench<'b> {
    store: &'b dyn KeyValue,
    clock: &'b Clock,
    volumes: &'b [Volume<'b>],
    caches: &'b [Cache<'b>],
    settings: &'b Settings,
    stop: &'b AtomicBool,
    counter: Counter,
    origin: Instant,
}

impl<'b> Bench<'b> {
    /// On a store that holds the first `records` already. `clock` is the clock of its volumes; once `stop` is set, a
    /// run ends with the results so far.
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
        Self { store, clock, volumes, caches: &[], settings, stop, counter, origin }
    }

    /// Also measures what these caches answer.
    #[must_use]
    pub fn caches(self, caches: &'b [Cache<'b>]) -> Self {
        Self { caches, ..self }
    }

    /// The number of stored records: loaded ones, and those that workloads inserted.
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

    /// Runs a workload on the stored records.
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
        let (clock, settings) = (self.clock, self.settings);
        let counts = self.volumes.iter().map(|volume| Tally::new(|| (volume.ops.read)()));
        let counts: Vec<_> = counts.collect();
        let before: Vec<_> = self.caches.iter().map(Cache::counts).collect();
        let start = clock.now();
        let drive = Drive {
            store: self.store,
            clock,
            name: workload.name(),
            mix: workload.mix(),
            records: &settings.shape,
            scans: Lengths::UpTo(SCAN_MAX),
            counter: &self.counter,
            threads: settings.threads,
            operations,
            start,
            until: time.map_or(Instant::FAR, |time| start + time),
            told: start..Instant::FAR,
            seed: settings.seed.wrapping_add(workload as u64),
            dots: false,
            stop: self.stop,
            counts: &counts,
            sample_every: settings.sample_every,
            origin: self.origin,
        };
        let bar = bar(workload.name(), time.map_or(operations, millis));
        let position = |now: Instant, operations| match time {
            Some(_) => millis(now.since(start)),
            None => operations,
        };
        let chooser = self.chooser(workload, operations);
        let choosers = || Box::new(chooser.clone()) as Box<dyn Choose>;
        let driven = match target_per_sec {
            None => drive.run(choosers, |_| AtOnce, &bar, position),
            Some(rate) => {
                let even = |thread| Even::new(start, rate, thread, settings.threads);
                drive.run(choosers, even, &bar, position)
            }
        }?;
        let hits = self.caches.iter().zip(before).map(|(cache, before)| {
            let now = cache.counts();
            let [hits, asked] = [0, 1].map(|at| now[at].saturating_sub(before[at]));
            (asked > 0).then(|| (cache.name.clone(), hits as f64 / asked as f64))
        });
        let hits = hits.flatten().collect();
        Ok(Phase { name: workload.name(), start: start.since(self.origin), driven, hits })
    }

    fn chooser(&self, workload: Workload, operations: u64) -> Chooser {
        let distribution = self.settings.distribution.unwrap_or(workload.distribution());
        // YCSB reserves room for twice the expected inserts. If time limits the workload, assume as many operations as
        // records.
        let operations = self.settings.operations.map_or(self.settings.records, |_| operations);
        let inserts = operations / 100 * u64::from(Operation::Insert.share(workload.mix())) * 2;
        // The load makes no choices.
        Chooser::new(distribution, self.records().max(1), inserts)
    }
}

#[cfg(test)]
mod tests;

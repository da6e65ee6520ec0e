//! db_bench's mixgraph, rebuilt from its description: the load of RocksDB's users at Facebook.
//!
//! ```text
//! ranges (hot and cold parts of the key space) ─┐
//! power of keys inside a range ─────────────────┼─ drive ── KeyValue    latencies by the second
//! Pareto sizes, sine of a day, noise ───────────┘
//! ```
//!
//! Cao et al., "Characterizing, modeling, and benchmarking RocksDB key-value workloads at Facebook", FAST 2020, section
//! 7, with every parameter of db_bench's `mixgraph` (Calcspar, ATC 2023). Keys are in the order of their numbers, so
//! that a hot range is one part of the key space. Every value that is read is verified. It differs from db_bench in two
//! ways: the range, the key in it and the operation are drawn independently, not from one number; and latencies exclude
//! waiting for the rate.
//!
//! The closed loop is db_bench's: threads share a rate, a hundred operations at a time, and operations that a slow
//! store prevents are never made up for. The open loop starts every operation of the rate, and measures latency from
//! its intended start.

mod power;
mod ranges;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use engine::kv::{Change, KeyValue};
use indicatif::ProgressBar;
use policy::time::Instant;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::Clock;

pub use self::power::Power;
pub use self::ranges::{Ranges, TwoTerms};
pub use crate::drive::{
    Driven, Latencies, Lengths, Operation, Pareto, Rate, Sample, Tally, Wave, by_second,
};
pub use crate::ycsb::Distribution;

use crate::drive::{
    AtOnce, Choose, Counter, Drive, Records, Schedule, Shared, SharedPace, belongs, scramble, value,
};
use crate::ycsb::Chooser;

/// The settings of a run on a store that holds records.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Operations and their shares in percent.
    pub mix: Vec<(Operation, u32)>,
    /// The choice of records.
    pub keys: Keys,
    /// Bytes of a value; not below 8.
    pub values: Lengths,
    /// Entries of a scan.
    pub scans: Lengths,
    /// When operations start.
    pub load: Load,
    /// Threads that each have one operation under way.
    pub threads: usize,
    /// How long operations are started.
    pub time: Duration,
    /// The run ends after this many operations too.
    pub operations: u64,
    /// The seed of choices, values and noise.
    pub seed: u64,
}

/// How popular records are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keys {
    /// By ranges, and in a range by a power of the key's rank: mixgraph.
    Ranges(TwoTerms, Power),
    /// As in YCSB.
    Ycsb(Distribution),
}

/// When operations start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// Each when the one before has ended: as many as the store can do.
    AtOnce,
    /// Threads share the rate as in db_bench.
    Closed(Rate),
    /// At the rate, independent of the latency of earlier operations.
    Open(Rate),
}

/// Keys in the order of their numbers.
struct Ordered(Lengths);

impl Records for Ordered {
    fn key(&self, record: u64) -> Bytes {
        format!("{record:016x}").into()
    }

    fn value(&self, record: u64, random: &mut Xoshiro256PlusPlus) -> Bytes {
        value(record, self.0.draw(random), random)
    }

    fn belongs(&self, key: &[u8], value: &[u8]) -> bool {
        let number = std::str::from_utf8(key).ok().and_then(|k| u64::from_str_radix(k, 16).ok());
        self.0.allows(value.len()) && number.is_some_and(|number| belongs(number, value))
    }
}

/// A store with records.
pub struct Bench<'b> {
    store: &'b dyn KeyValue,
    clock: &'b Clock,
    stop: &'b AtomicBool,
    counter: Counter,
    origin: Instant,
    /// The interval between samples of the counts.
    sample_every: Duration,
}

/// Changes in a batch.
const BATCH: u64 = 100;

/// Stores the first `records`, in an order that is random to an LSM tree: every batch has keys from all
/// over the key space.
///
/// # Errors
/// The store's.
pub fn load(
    store: &dyn KeyValue,
    records: u64,
    values: Lengths,
    threads: usize,
    seed: u64,
    bar: &ProgressBar,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let (next, step) = (AtomicU64::new(0), stride(records));
    let one = || {
        let shape = Ordered(values);
        while !stop.load(Ordering::Relaxed) {
            let from = next.fetch_add(BATCH, Ordering::Relaxed);
            if from >= records {
                break;
            }
            // The values do not depend on the thread that writes them.
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ scramble(from));
            let numbers = from..(from + BATCH).min(records);
            bar.inc(numbers.end - numbers.start);
            let put = numbers.map(|number| {
                let record = scattered(number, step, records);
                Change::Put(shape.key(record), shape.value(record, &mut random))
            });
            store.apply(&put.collect::<Vec<_>>())?;
        }
        anyhow::Ok(())
    };
    std::thread::scope(|scope| {
        let one = &one;
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })
}

/// Number `number` of a walk through all `records` in steps of `step`.
fn scattered(number: u64, step: u64, records: u64) -> u64 {
    let place = u128::from(number) * u128::from(step) % u128::from(records);
    u64::try_from(place).expect("it is below the number of records")
}

/// A step that visits every record once: near the golden section of `records`, and coprime to it.
fn stride(records: u64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of it")]
    let golden = (records as f64 * 0.618_033_988_749_895) as u64;
    let coprime = |step: &u64| gcd(*step, records) == 1;
    (golden.max(1)..).find(coprime).expect("one more than a multiple has no divisor in common")
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl<'b> Bench<'b> {
    /// On a store that holds the first `records`. A run ends once `stop` is set.
    #[must_use]
    pub fn new(
        store: &'b dyn KeyValue,
        clock: &'b Clock,
        records: u64,
        sample_every: Duration,
        stop: &'b AtomicBool,
    ) -> Self {
        let counter = Counter::new(records);
        Self { store, clock, stop, counter, origin: clock.now(), sample_every }
    }

    /// Runs `settings` from `start` on and samples `counts` meanwhile.
    ///
    /// # Errors
    /// The store's.
    pub fn run(
        &self,
        settings: &Settings,
        counts: &[Tally<'_>],
        start: Instant,
    ) -> anyhow::Result<Driven> {
        let drive = Drive {
            store: self.store,
            clock: self.clock,
            name: "mixgraph",
            mix: &settings.mix,
            records: &Ordered(settings.values),
            scans: settings.scans,
            counter: &self.counter,
            threads: settings.threads,
            operations: settings.operations,
            start,
            until: start + settings.time,
            told: start..Instant::FAR,
            seed: settings.seed,
            dots: true,
            stop: self.stop,
            counts,
            sample_every: self.sample_every,
            origin: self.origin,
        };
        let records = self.counter.records().max(1);
        let chooser: Chosen = match settings.keys {
            Keys::Ranges(terms, power) => Chosen::Ranges(Ranges::new(records, terms), power),
            // Leaves room for inserted records, as YCSB does.
            Keys::Ycsb(distribution) => {
                Chosen::Ycsb(Chooser::new(distribution, records, records / 20))
            }
        };
        let choosers = || Box::new(chooser.clone()) as Box<dyn Choose>;
        let (bar, position) = (ProgressBar::hidden(), |_: Instant, _: u64| 0);
        // No operation starts before `start`.
        volume::task::block_on(self.clock.sleep_until(start));
        let writes: u32 = Operation::ALL
            .iter()
            .filter(|operation| operation.only_writes())
            .map(|operation| operation.share(&settings.mix))
            .sum();
        match settings.load {
            Load::AtOnce => drive.run(choosers, |_| AtOnce, &bar, position),
            Load::Closed(rate) => {
                let shared = Shared::new(rate, start, f64::from(writes) / 100.0);
                drive.run(choosers, |_| SharedPace::new(&shared), &bar, position)
            }
            Load::Open(rate) => {
                let schedule = Schedule::new(rate, start);
                drive.run(choosers, |_| &schedule, &bar, position)
            }
        }
    }
}

/// A choice among records.
#[derive(Clone)]
enum Chosen {
    Ranges(Ranges, Power),
    Ycsb(Chooser),
}

impl Choose for Chosen {
    fn record(&mut self, records: u64, random: &mut Xoshiro256PlusPlus) -> u64 {
        match self {
            Self::Ranges(ranges, power) => ranges.record(*power, random),
            Self::Ycsb(chooser) => chooser.record(records, random),
        }
    }
}

#[cfg(test)]
mod tests;

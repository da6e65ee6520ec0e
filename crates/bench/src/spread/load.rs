//! A load on a store: its operations, their records, and its duration.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use engine::kv::KeyValue;
use indicatif::ProgressBar;
use policy::time::Instant;
use volume::Clock;

use super::HotRange;
use super::hot::Moving;
use crate::drive::{
    AtOnce, Choose, Counter, Drive, Driven, Even, Lengths, Mix, Operation, Records, Tally, bar,
};
use crate::ycsb::{Chooser, Distribution, SCAN_MAX, Shape, Workload};

/// The settings of a run on a store that holds records.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Operations and their shares in percent.
    pub mix: Vec<(Operation, u32)>,
    /// The choice of records.
    pub keys: Keys,
    /// Threads that each have one operation under way: the next begins when the last has ended, and not before its time if
    /// there is a target.
    pub threads: usize,
    /// The time before the measurement: volumes spend saved credits, and migration finds its balance. Operations go on
    /// without a break.
    pub lead: Duration,
    /// The measured time after it.
    pub time: Duration,
    /// Operations to start each second, at least one, however long earlier ones take; `None` for as many as the threads do.
    pub target_per_sec: Option<u64>,
    /// The seed of choices and values.
    pub seed: u64,
}

/// The popularity of records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keys {
    /// As in YCSB: scattered over the key space.
    Ycsb(Distribution),
    /// A part of the key space that moves.
    Hot(HotRange),
}

/// A mix of `percent` reads, at most 100; all others are updates.
#[must_use]
pub fn read_share(percent: u32) -> Vec<(Operation, u32)> {
    [(Operation::Read, percent), (Operation::Update, 100 - percent)]
        .into_iter()
        .filter(|(_, share)| *share > 0)
        .collect()
}

/// A store with records.
pub struct Bench<'b> {
    store: &'b dyn KeyValue,
    clock: &'b Clock,
    stop: &'b AtomicBool,
    shape: Shape,
    counter: Counter,
    origin: Instant,
    /// Records in the order of their keys, computed on first use.
    order: OnceLock<Arc<[u32]>>,
}

/// The interval between samples of the counts.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

impl<'b> Bench<'b> {
    /// On a store that holds the first `records` of `shape`. A run ends once `stop` is set.
    #[must_use]
    pub fn new(
        store: &'b dyn KeyValue,
        clock: &'b Clock,
        shape: Shape,
        records: u64,
        stop: &'b AtomicBool,
    ) -> Self {
        let (counter, origin) = (Counter::new(records), clock.now());
        Self { store, clock, stop, shape, counter, origin, order: OnceLock::new() }
    }

    /// Inserts `records` more, in the order of a hash. Progress is shown on stderr if that is a terminal.
    ///
    /// # Errors
    /// The store's.
    pub fn load(&self, records: u64, threads: usize, seed: u64) -> anyhow::Result<()> {
        let settings = Settings {
            mix: Workload::Load.mix().to_vec(),
            keys: Keys::Ycsb(Distribution::Uniform),
            threads,
            lead: Duration::ZERO,
            time: Duration::MAX,
            target_per_sec: None,
            seed,
        };
        let drive = self.drive(&settings, &[], self.clock.now(), records);
        let bar = bar("Load", records);
        drive.run(|| self.chooser(&settings, self.origin), |_| AtOnce, &bar, |_, done| done)?;
        Ok(())
    }

    /// Runs `settings` from `start` on; `counts` are sampled meanwhile. The outcome covers the measured time only:
    /// operations that ended in it, and the growth of the counts. A hot range begins its first period with it.
    ///
    /// # Errors
    /// The store's.
    pub fn run(
        &self,
        settings: &Settings,
        counts: &[Tally<'_>],
        start: Instant,
    ) -> anyhow::Result<Driven> {
        let from = start + settings.lead;
        let chooser = || self.chooser(settings, from);
        // The first chooser builds shared state, which must not take time of the run.
        drop(chooser());
        // No operation starts before `start`.
        volume::task::block_on(self.clock.sleep_until(start));
        let drive = self.drive(settings, counts, start, u64::MAX);
        let (ended, running) = channel::<()>();
        let (driven, (counted, elapsed)) = std::thread::scope(|scope| {
            // The end of a channel moves to its thread.
            let counting = scope.spawn(|| {
                let running = running;
                self.count(counts, from, settings.time, &running)
            });
            let bar = ProgressBar::hidden();
            let driven = match settings.target_per_sec {
                None => drive.run(chooser, |_| AtOnce, &bar, |_, _| 0),
                Some(rate) => {
                    let even = |thread| Even::new(start, rate, thread, settings.threads);
                    drive.run(chooser, even, &bar, |_, _| 0)
                }
            };
            drop(ended);
            (driven, counting.join().expect("a counter does not panic"))
        });
        let mut driven = Driven { counted, elapsed, ..driven? };
        let window = from.since(self.origin)..(from + settings.time).since(self.origin);
        // A run shorter than a sample keeps the samples it has.
        if driven.samples.iter().any(|sample| window.contains(&sample.at)) {
            driven.samples.retain(|sample| window.contains(&sample.at));
        }
        Ok(driven)
    }

    /// The growth of `counts` in `time` from `from` on, and the duration: shorter if the other end of `running` goes
    /// before.
    fn count(
        &self,
        counts: &[Tally<'_>],
        from: Instant,
        time: Duration,
        running: &Receiver<()>,
    ) -> (Vec<u64>, Duration) {
        let at = |at: Instant| {
            let _ended = running.recv_timeout(at.since(self.clock.now()));
            let read: Vec<_> = counts.iter().map(|count| (count.read)()).collect();
            (read, self.clock.now())
        };
        let (before, begun) = at(from);
        let (after, ended) = at(from + time);
        // A count can fall when a token is returned, so the difference saturates.
        let rose =
            after.into_iter().zip(before).map(|(after, before)| after.saturating_sub(before));
        (rose.collect(), ended.since(begun))
    }

    fn drive<'d>(
        &'d self,
        settings: &'d Settings,
        counts: &'d [Tally<'d>],
        start: Instant,
        operations: u64,
    ) -> Drive<'d> {
        let mix: &Mix = &settings.mix;
        let from = start + settings.lead;
        let until = from + settings.time;
        Drive {
            store: self.store,
            clock: self.clock,
            name: "spread",
            mix,
            records: &self.shape,
            scans: Lengths::UpTo(SCAN_MAX),
            counter: &self.counter,
            threads: settings.threads,
            operations,
            start,
            until,
            told: from..until,
            seed: settings.seed,
            dots: false,
            stop: self.stop,
            counts,
            sample_every: SAMPLE_EVERY,
            origin: self.origin,
        }
    }

    fn chooser(&self, settings: &Settings, epoch: Instant) -> Box<dyn Choose> {
        let records = self.counter.records().max(1);
        match settings.keys {
            // Leaves room for inserted records, as YCSB does.
            Keys::Ycsb(distribution) => {
                let inserts = match Operation::Insert.share(&settings.mix) {
                    0 => 0,
                    _ => records / 20,
                };
                Box::new(Chooser::new(distribution, records, inserts))
            }
            Keys::Hot(range) => {
                let order = Arc::clone(self.order.get_or_init(|| in_order(&self.shape, records)));
                let (clock, seed) = (self.clock.clone(), settings.seed);
                Box::new(Moving { range, order, clock, start: epoch, seed })
            }
        }
    }
}

/// The first `records` in the order of their keys.
fn in_order(shape: &Shape, records: u64) -> Arc<[u32]> {
    let records = u32::try_from(records).expect("fewer records than fit a machine's memory");
    let mut order: Vec<u32> = (0..records).collect();
    order.sort_by_cached_key(|&record| shape.key(record.into()));
    order.into()
}

#[cfg(test)]
mod tests {
    use engine::kv::Memory;

    use super::*;
    use crate::ycsb::VALUE_BYTES_MIN;

    const SHAPE: Shape = Shape { key_bytes: 16, value_bytes: VALUE_BYTES_MIN };

    #[test]
    fn a_read_share_is_a_whole_mix() {
        assert_eq!(read_share(100), [(Operation::Read, 100)]);
        assert_eq!(read_share(70), [(Operation::Read, 70), (Operation::Update, 30)]);
        assert_eq!(read_share(0), [(Operation::Update, 100)]);
    }

    #[test]
    fn the_order_is_that_of_keys_and_has_every_record() {
        let order = in_order(&SHAPE, 1000);
        let keys: Vec<_> = order.iter().map(|&record| SHAPE.key(record.into())).collect();
        assert!(keys.is_sorted());
        let mut numbers = order.to_vec();
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..1000));
    }

    #[test]
    fn what_was_loaded_is_found_by_every_kind_of_keys() {
        let (store, clock, stop) = (Memory::default(), Clock::real(), AtomicBool::new(false));
        let bench = Bench::new(&store, &clock, SHAPE, 0, &stop);
        bench.load(500, 2, 1).expect("memory does not fail");
        let hot = HotRange { records_permille: 50, choices: 0.8, every: Duration::from_secs(1) };
        for keys in [Keys::Ycsb(Distribution::Zipfian), Keys::Hot(hot)] {
            let settings = Settings {
                mix: read_share(90),
                keys,
                threads: 2,
                lead: Duration::from_millis(5),
                time: Duration::from_millis(20),
                target_per_sec: None,
                seed: 1,
            };
            let counts = [Tally::new(|| clock.now().as_nanos())];
            let outcome = bench.run(&settings, &counts, clock.now()).expect("memory does not fail");
            assert!(outcome.operations() > 0);
            assert!(outcome.counted[0] > 0 && !outcome.elapsed.is_zero());
            assert_eq!(outcome.wrong, 0, "{:?}", outcome.example);
        }
    }

    #[test]
    fn with_a_target_latencies_count_from_the_intended_starts() {
        let (store, clock, stop) = (Memory::default(), Clock::real(), AtomicBool::new(false));
        let bench = Bench::new(&store, &clock, SHAPE, 0, &stop);
        bench.load(100, 1, 1).expect("memory does not fail");
        let settings = Settings {
            mix: read_share(100),
            keys: Keys::Ycsb(Distribution::Uniform),
            threads: 1,
            lead: Duration::ZERO,
            time: Duration::from_millis(500),
            target_per_sec: Some(100),
            seed: 1,
        };
        let driven = bench.run(&settings, &[], clock.now()).expect("memory does not fail");
        let started = driven.open.count(Operation::Read);
        assert!((1..=50).contains(&started), "{started} starts");
        assert_eq!(started, driven.operations());
    }
}

//! One run: clients that put as fast as the store answers, tasks that tend the disks, and a task that samples.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::join3;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use policy::time::Instant;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::task::block_on;
use volume::{Clock, ErrorKind};

use super::fixture::Fixture;
use super::load::Writes;
use super::outcome::{self, Run, Sample};
use super::{Home, Scheme, Shape};
use crate::machine;

/// The pause of a refused client before it retries.
const RETRY: Duration = Duration::from_secs(1);
/// Puts refused for this long count as refused forever.
const STUCK: Duration = Duration::from_secs(60);
/// Between the last put and the count of unlinked open files (B41).
const SETTLE: Duration = Duration::from_secs(1);
/// The pause of an idle reader between reads, in scaled minutes.
const IDLE_MINUTES: u32 = 4;
/// After this many samples sampling slows down: a store that takes few puts runs for long and changes little.
const SAMPLES_OFTEN: usize = 20_000;
/// Values read back and verified at the end.
const VERIFIED: u64 = 64;

/// Runs a scheme from an empty store on, with the seed `seed` and a target; `None` if the store would run out of space
/// under any merging.
///
/// # Errors
/// The store failed for another reason than lack of space.
pub(super) fn run(
    home: &Home,
    shape: &Shape,
    scheme: &Scheme,
    target: f64,
    seed: u64,
    stop: &AtomicBool,
) -> anyhow::Result<Option<Run>> {
    let Some(fixture) = Fixture::open(home, shape, scheme, target, seed)? else { return Ok(None) };
    let processor = processor_time(home);
    let live = Live::new(&fixture, shape, seed, stop);
    match home {
        Home::Simulated => fixture.clock.run(live.all()),
        Home::Directory(_) => live.all_in_threads(),
    }
    let mut measured = live.into_measured()?;
    measured.processor = processor_time(home).saturating_sub(processor);
    Ok(Some(measured))
}

/// Processor time of this thread, which does all work in virtual time, or of the process.
fn processor_time(home: &Home) -> Duration {
    match home {
        Home::Simulated => machine::thread_time(),
        Home::Directory(_) => machine::cpu_time(),
    }
}

/// A run in progress.
struct Live<'r> {
    fixture: &'r Fixture,
    shape: &'r Shape,
    stop: &'r AtomicBool,
    seed: u64,
    start: Instant,
    keys: u64,
    /// Bytes of a record, including the store's header.
    record: u64,
    writes: Mutex<Writes>,
    /// The due time of the next put, and the interval to the one after it, if there is a pace.
    due: Mutex<Instant>,
    between: Duration,
    /// The contents of all values, after their keys.
    filler: Vec<u8>,
    answered: AtomicU64,
    refused: AtomicU64,
    last_put: Mutex<Instant>,
    is_stuck: AtomicBool,
    /// Clients begin no more puts.
    is_over: AtomicBool,
    /// All samples are taken, and the store is about to close.
    is_closing: AtomicBool,
    error: Mutex<Option<volume::Error>>,
    read: AtomicU64,
    wrong: AtomicU64,
    seen: Mutex<Seen>,
}

/// The results so far.
#[derive(Default)]
struct Seen {
    measured: Run,
    /// The counts at the end of the lead.
    before: Option<Look>,
}

/// All counters at a moment.
#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    counts: engine::log::Counts,
    answered: u64,
    moved: u64,
}

impl<'r> Live<'r> {
    fn new(fixture: &'r Fixture, shape: &'r Shape, seed: u64, stop: &'r AtomicBool) -> Self {
        let record = shape.record();
        let keys = ((shape.live * shape.total() as f64) as u64 / record).max(1);
        let measured = Run {
            line: fixture.line.map(|line| line * f64::from(shape.disks)),
            capacity: shape.total(),
            ..Run::default()
        };
        let start = fixture.clock.now();
        let pace = shape.pace.zip(measured.line);
        let between = pace.map_or(0.0, |(part, line)| record as f64 / (part * line));
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self {
            fixture,
            shape,
            stop,
            seed,
            start,
            keys,
            record,
            writes: Mutex::new(Writes::new(shape.load, keys, seed)),
            due: Mutex::new(start),
            between: Duration::from_secs_f64(between),
            filler: (0..shape.value).map(|_| random.random()).collect(),
            answered: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            last_put: Mutex::new(start),
            is_stuck: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            error: Mutex::default(),
            read: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            seen: Mutex::new(Seen { measured, before: None }),
        }
    }

    fn clock(&self) -> &Clock {
        &self.fixture.clock
    }

    /// Runs all tasks on this thread.
    async fn all(&self) {
        let count = self.shape.clients * usize::from(self.shape.disks);
        let clients: FuturesUnordered<_> = (0..count).map(|_| self.put_all()).collect();
        let readers: FuturesUnordered<_> =
            (0..self.shape.idle_readers).map(|_| self.hardly_read()).collect();
        let tenders: FuturesUnordered<_> =
            (0..self.fixture.store.volumes()).map(|disk| self.fixture.store.tend(disk)).collect();
        let work = async {
            clients.collect::<()>().await;
            self.end().await;
        };
        let others = async { futures_util::join!(readers.collect::<()>(), self.watch()) };
        join3(work, others, tenders.collect::<()>()).await;
    }

    /// Runs each task on its own thread.
    fn all_in_threads(&self) {
        std::thread::scope(|scope| {
            let count = self.shape.clients * usize::from(self.shape.disks);
            for disk in 0..self.fixture.store.volumes() {
                scope.spawn(move || block_on(self.fixture.store.tend(disk)));
            }
            scope.spawn(|| block_on(self.watch()));
            for _ in 0..self.shape.idle_readers {
                scope.spawn(|| block_on(self.hardly_read()));
            }
            let clients: Vec<_> =
                (0..count).map(|_| scope.spawn(|| block_on(self.put_all()))).collect();
            clients.into_iter().for_each(|client| client.join().expect("it does not panic"));
            block_on(self.end());
        });
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Relaxed) || self.stop.load(Relaxed) || self.error.lock().is_some()
    }

    /// One client: puts the next key as soon as the last one is answered.
    async fn put_all(&self) {
        while !self.is_over() {
            let next = self.writes.lock().draw();
            let lives = next.again.map(|writes| writes * self.record);
            let value = self.value(next.key);
            self.clock().sleep_until(self.next_due()).await;
            while !self.is_over() {
                match self.fixture.store.put(&key(next.key), value.clone(), lives).await {
                    Ok(()) => {
                        let answered = value.len() as u64
                            + self.answered.fetch_add(value.len() as u64, Relaxed);
                        *self.last_put.lock() = self.clock().now();
                        self.look_at_progress(answered);
                        break;
                    }
                    Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                        self.refused.fetch_add(1, Relaxed);
                        if self.clock().now().since(*self.last_put.lock()) > STUCK {
                            self.is_stuck.store(true, Relaxed);
                            self.is_over.store(true, Relaxed);
                        }
                        self.clock().sleep(RETRY).await;
                    }
                    Err(error) => *self.error.lock() = Some(error),
                }
            }
        }
    }

    /// When a client may put, so that all clients together keep the pace.
    fn next_due(&self) -> Instant {
        let mut due = self.due.lock();
        let now = *due;
        *due = now + self.between;
        now
    }

    /// Checks whether the lead, or the whole run, is over.
    fn look_at_progress(&self, answered: u64) {
        let fills = answered as f64 / self.shape.total() as f64;
        let [lead, measured] = self.shape.fills;
        if fills >= lead {
            let seen = &mut *self.seen.lock();
            if seen.before.is_none() {
                seen.before = Some(self.look());
                seen.measured.lead = seen.measured.samples.len();
            }
        }
        if fills >= lead + measured {
            self.is_over.store(true, Relaxed);
        }
    }

    fn look(&self) -> Look {
        Look {
            at: self.clock().now(),
            counts: outcome::sum(&self.fixture.store.figures()),
            answered: self.answered.load(Relaxed),
            moved: self.fixture.moved(),
        }
    }

    /// A reader that iterates over all keys but pauses long between them (B41).
    async fn hardly_read(&self) {
        let mut iter = self.fixture.store.iter(&[]);
        while !self.is_closing.load(Relaxed) {
            match iter.next().await {
                Ok(Some((key, value))) => {
                    let id = key.first_chunk().map(|id| u64::from_be_bytes(*id));
                    self.verify(id, &value);
                    self.pause(self.shape.minute() * IDLE_MINUTES).await;
                    // Holds the value until now.
                    drop(value);
                }
                Ok(None) => {
                    iter = self.fixture.store.iter(&[]);
                    // The store may still be empty.
                    self.clock().sleep(self.tick()).await;
                }
                Err(error) => return *self.error.lock() = Some(error),
            }
        }
    }

    /// Waits, at most until the run ends.
    async fn pause(&self, time: Duration) {
        let until = self.clock().now() + time;
        while !self.is_closing.load(Relaxed) && self.clock().now() < until {
            self.clock().sleep(self.tick()).await;
        }
    }

    /// The interval between two samples.
    fn tick(&self) -> Duration {
        self.shape.minute() / Run::TICKS
    }

    /// Samples until the store is closed.
    async fn watch(&self) {
        while !self.is_over() {
            let figures = self.fixture.store.figures();
            let counts = outcome::sum(&figures);
            let volumes = || figures.volumes.iter();
            let sample = Sample {
                at: self.clock().now().since(self.start),
                answered: self.answered.load(Relaxed),
                fill: volumes().map(|volume| volume.fill).fold(0.0, f64::max),
                copied: counts.copied_bytes,
                merged: counts.merged,
                died_whole: counts.died_whole,
                dying: volumes().map(|volume| volume.dying_bytes).sum(),
            };
            let seldom = {
                let samples = &mut self.seen.lock().measured.samples;
                samples.push(sample);
                samples.len() / SAMPLES_OFTEN + 1
            };
            self.clock().sleep(self.tick() * u32::try_from(seldom).unwrap_or(u32::MAX)).await;
        }
    }

    /// All puts are done: takes the results and closes the store.
    async fn end(&self) {
        let after = self.look();
        {
            let mut seen = self.seen.lock();
            let before =
                seen.before.unwrap_or(Look { at: self.start, answered: 0, moved: 0, ..after });
            let counts = outcome::since(&after.counts, &before.counts);
            let run = &mut seen.measured;
            run.elapsed = after.at.since(before.at);
            run.whole = after.at.since(self.start);
            run.counts = counts;
            run.answered = after.answered - before.answered;
            run.moved = after.moved - before.moved;
        }
        // Clients finish their current operation; idle readers stay idle.
        self.is_over.store(true, Relaxed);
        self.clock().sleep(SETTLE).await;
        let figures = self.fixture.store.figures();
        let dying = figures.volumes.iter().map(|volume| volume.dying_bytes).sum();
        {
            let measured = &mut self.seen.lock().measured;
            measured.unlinked = [dying, self.fixture.unlinked()];
            // The store may seal files earlier than configured, if it lacks space for larger ones.
            measured.file_bytes = figures.file_bytes;
        }
        self.read_back().await;
        self.is_closing.store(true, Relaxed);
        if let Err(error) = self.fixture.store.close().await {
            self.error.lock().get_or_insert(error);
        }
    }

    /// Reads some values and verifies them.
    async fn read_back(&self) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ 0x7ead);
        for _ in 0..VERIFIED {
            let id = random.random_range(0..self.keys);
            match self.fixture.store.get(&key(id)).await {
                // With random keys, some keys were never written.
                Ok(None) => {}
                Ok(Some(value)) => self.verify(Some(id), &value),
                Err(error) => {
                    self.error.lock().get_or_insert(error);
                }
            }
        }
    }

    fn verify(&self, id: Option<u64>, value: &[u8]) {
        self.read.fetch_add(1, Relaxed);
        if id.is_none_or(|id| self.value(id) != value) {
            self.wrong.fetch_add(1, Relaxed);
        }
    }

    /// The value of a key: the key, and filler.
    fn value(&self, id: u64) -> Bytes {
        let mut value = self.filler.clone();
        let stamp = id.to_be_bytes();
        let len = stamp.len().min(value.len());
        value[..len].copy_from_slice(&stamp[..len]);
        value.into()
    }

    fn into_measured(self) -> anyhow::Result<Run> {
        if let Some(error) = self.error.into_inner() {
            return Err(anyhow::Error::new(error).context("a log store under load"));
        }
        let mut measured = self.seen.into_inner().measured;
        measured.refused = self.refused.into_inner();
        measured.is_stuck = self.is_stuck.into_inner();
        measured.read = self.read.into_inner();
        measured.wrong = self.wrong.into_inner();
        Ok(measured)
    }
}

/// A key in the store's encoding.
fn key(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use policy::merge::Rule;

    use super::super::case::tests::shape;
    use super::super::load::Load;
    use super::*;

    fn played(shape: &Shape, rule: Rule) -> Run {
        let scheme = Scheme::new(rule, 1);
        let run = run(&Home::Simulated, shape, &scheme, 0.8, 1, &AtomicBool::new(false));
        run.expect("memory does not fail").expect("it is feasible")
    }

    #[test]
    fn a_store_that_planes_copies_nothing_and_gives_every_value_back() {
        let shape = shape();
        assert!(shape.planes());
        let run = played(&shape, Rule::Fisherman);
        assert_eq!(run.counts.copied_bytes, 0);
        // All live records are present, at whatever time the store removes the dead.
        assert!(run.counts.died_whole > 0 && (0.5..1.0).contains(&run.peak()), "{}", run.peak());
        assert_eq!((run.read, run.wrong, run.refused), (VERIFIED, 0, 0));
        assert!(run.mib_per_s() > 0.0 && run.of_line_percent() < 100.0);
        assert!((run.answered as f64 / shape.total() as f64 - 1.0).abs() < 0.1);
    }

    #[test]
    fn idle_readers_keep_nothing_for_long() {
        let shape = Shape {
            load: Load::Random,
            idle_readers: 2,
            target: 0.6,
            fills: [0.5, 1.0],
            ..shape()
        };
        let run = played(&shape, Rule::Greedy);
        assert!(run.counts.merged > 0, "files were removed that readers knew");
        assert!(run.read > VERIFIED);
        assert_eq!((run.unlinked, run.wrong), ([0, 0], 0));
    }

    #[test]
    fn a_store_that_could_not_go_on_is_not_begun() {
        let shape = Shape { live: 0.99, ..shape() };
        let scheme = Scheme::new(Rule::Greedy, 1);
        let run = run(&Home::Simulated, &shape, &scheme, 0.8, 1, &AtomicBool::new(false));
        assert!(run.expect("memory does not fail").is_none());
    }

    #[test]
    fn a_directory_in_real_time_gives_the_same_kind_of_figures() {
        let dir = tempfile::tempdir().expect("room for a directory");
        let shape = Shape { clients: 4, fills: [0.2, 0.2], ..shape() };
        let home = Home::Directory(dir.path().join("volume"));
        let scheme = Scheme::new(Rule::DeathTime, 1);
        let run = run(&home, &shape, &scheme, 0.8, 1, &AtomicBool::new(false));
        let run = run.expect("the disk works").expect("it is feasible");
        assert_eq!((run.wrong, run.unlinked), (0, [0, 0]));
        assert!(run.mib_per_s() > 0.0 && run.of_line_percent().is_nan());
    }
}

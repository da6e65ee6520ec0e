//! The load of the demo: threads that read and write in process, the same on both stores.
//!
//! Requests come from a [`Stream`], which draws when each one is due and what it does from a seed alone: both
//! stores get the same requests at the same times, however long they take to answer. A latency counts from
//! when its request was due, so that a slow answer also counts for the requests that had to wait behind it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::{Bytes, BytesMut};
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use policy::time::Instant;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use volume::Clock;
use volume::task::block_on;

use super::side::Side;
use super::sizing::Sizing;

/// Bytes of a value.
const VALUE_BYTES: usize = 1024;
/// Keys that are stored at once while a store is loaded, and by how many threads.
const BATCH: u64 = 100;
const LOADERS: u64 = 2;
/// Requests of one store that can be under way at once.
const READERS: usize = 32;
const WRITERS: usize = 4;
/// The longest sleep between two looks at whether to stop.
const NAP: Duration = Duration::from_millis(100);
/// What requests follow from.
const SEED: u64 = 1876;

/// What is common to all threads of the load.
pub(super) struct Load<'l> {
    /// Keys of each store.
    pub(super) keys: u64,
    pub(super) clock: &'l Clock,
    /// Ends it early.
    pub(super) stop: &'l AtomicBool,
}

/// How long requests took that were answered since the last look, in microseconds.
pub(super) struct Tally(Mutex<Latencies>);

/// The same, to be added up.
#[derive(Clone)]
pub(super) struct Latencies {
    pub(super) reads: Histogram<u64>,
    pub(super) writes: Histogram<u64>,
}

impl Latencies {
    pub(super) fn none() -> Self {
        const LONGEST_US: u64 = 600_000_000;
        let none = Histogram::new_with_bounds(1, LONGEST_US, 3).expect("sound bounds");
        Self { reads: none.clone(), writes: none }
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (all, some) in [(&mut self.reads, &other.reads), (&mut self.writes, &other.writes)] {
            all.add(some).expect("histograms of one kind add up");
        }
    }
}

impl Tally {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Latencies::none()))
    }

    /// Gives what was counted, and starts again from nothing.
    pub(super) fn take(&self) -> Latencies {
        std::mem::replace(&mut *self.0.lock(), Latencies::none())
    }

    fn record(&self, write: bool, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let latencies = &mut *self.0.lock();
        let kind = if write { &mut latencies.writes } else { &mut latencies.reads };
        kind.saturating_record(us);
    }
}

impl Load<'_> {
    /// Stores every key on both sides at once, in an order that looks random to an LSM tree, and compacts them.
    pub(super) fn store(&self, sides: [&Side<'_>; 2]) -> anyhow::Result<()> {
        let batches = self.keys.div_ceil(BATCH);
        let one = |side: &Side<'_>, loader: u64| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED ^ loader);
            for batch in (0..batches).filter(|batch| batch % LOADERS == loader) {
                if self.stop.load(Ordering::Relaxed) {
                    break;
                }
                // Not neighbours: keys from all over the store.
                let keys = (0..BATCH).map(|step| batch + step * batches);
                let keys = keys.filter(|key| *key < self.keys);
                side.put(keys.map(|key| (name(key), value(key, &mut random))).collect())?;
            }
            anyhow::Ok(())
        };
        std::thread::scope(|scope| {
            let loaders = sides.iter().flat_map(|side| (0..LOADERS).map(move |at| (side, at)));
            let one = &one;
            let all: Vec<_> =
                loaders.map(|(side, at)| scope.spawn(move || one(side, at))).collect();
            all.into_iter().try_for_each(|one| one.join().expect("a loader does not panic"))
        })?;
        std::thread::scope(|scope| {
            for side in sides {
                scope.spawn(move || side.compact());
            }
        });
        Ok(())
    }

    /// Lets both sides answer as many requests as they can for `time`, reads and writes in the proportion that
    /// they will have later, and their compactions catch up. Gives the I/Os a second that both volumes did together.
    pub(super) fn flat_out(&self, sides: [&Side<'_>; 2], time: Duration) -> anyhow::Result<f64> {
        let start = self.clock.now();
        let before: u64 = sides.iter().map(|side| side.ios()).sum();
        let tally = Tally::new();
        let streams =
            sides.map(|_| Stream::new(SEED, Sizing::WRITES_OF_ALL, None, start, self.keys));
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (side, stream) in sides.iter().zip(&streams) {
                for _ in 0..READERS + WRITERS {
                    let (tally, until) = (&tally, start + time);
                    threads.push(scope.spawn(move || self.work(side, stream, until, tally)));
                }
            }
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().expect("the load does not panic"))
        })?;
        let after = sides.iter().map(|side| side.ios()).sum::<u64>();
        let did = after.saturating_sub(before);
        let took = self.clock.now().since(start);
        sides.iter().try_for_each(|side| side.settle())?;
        Ok(did as f64 / took.as_secs_f64())
    }

    /// Gives one side the requests that are due from `start` until `until`.
    pub(super) fn run(
        &self,
        side: &Side<'_>,
        sized: &Sizing,
        (start, until): (Instant, Instant),
        tally: &Tally,
    ) -> anyhow::Result<()> {
        let reads = Stream::new(SEED, 0.0, Some(sized.reads_per_sec), start, self.keys);
        let writes = Stream::new(!SEED, 1.0, Some(sized.writes_per_sec), start, self.keys);
        std::thread::scope(|scope| {
            let threads = [(&reads, READERS), (&writes, WRITERS)].map(|(stream, threads)| {
                let one = move |_| scope.spawn(move || self.work(side, stream, until, tally));
                (0..threads).map(one).collect::<Vec<_>>()
            });
            let mut threads = threads.into_iter().flatten();
            threads.try_for_each(|thread| thread.join().expect("the load does not panic"))
        })
    }

    /// One thread: takes the next request of the stream, waits until it is due, and has it answered.
    fn work(
        &self,
        side: &Side<'_>,
        stream: &Stream,
        until: Instant,
        tally: &Tally,
    ) -> anyhow::Result<()> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
        loop {
            let request = stream.next();
            let due = request.due.unwrap_or_else(|| self.clock.now());
            if due >= until || !self.wait(due) {
                return Ok(());
            }
            if self.clock.now() < until {
                self.answer(side, &request, &mut random)?;
            }
            // A request that found no free thread before the end counts too: it took at least this long.
            tally.record(request.write, self.clock.now().since(due));
        }
    }

    /// Waits until then; whether to go on.
    fn wait(&self, due: Instant) -> bool {
        loop {
            let now = self.clock.now();
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            if due <= now {
                return true;
            }
            block_on(self.clock.sleep_until(due.min(now + NAP)));
        }
    }

    fn answer(
        &self,
        side: &Side<'_>,
        request: &Request,
        random: &mut Xoshiro256PlusPlus,
    ) -> anyhow::Result<()> {
        let key = name(request.key);
        if request.write {
            return side.put(vec![(key, value(request.key, random))]);
        }
        let found = side.get(key)?.with_context(|| format!("{}: a key is missing", side.name))?;
        if !found.starts_with(&request.key.to_le_bytes()) {
            bail!("{}: a key has the value of another key", side.name);
        }
        Ok(())
    }
}

/// One request, and when it is due; none for as soon as there is a thread for it.
struct Request {
    due: Option<Instant>,
    key: u64,
    write: bool,
}

/// Requests for any thread that asks, in the same order and at the same times from the same seed.
struct Stream {
    /// The part of all requests that writes.
    writes: f64,
    /// The mean rate of requests a second; `None` sends each as soon as a thread is free.
    per_sec: Option<f64>,
    keys: u64,
    /// What the next one follows from, and when the last was due.
    drawn: Mutex<(Xoshiro256PlusPlus, Instant)>,
}

impl Stream {
    fn new(seed: u64, writes: f64, per_sec: Option<f64>, start: Instant, keys: u64) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { writes, per_sec, keys, drawn: Mutex::new((random, start)) }
    }

    fn next(&self) -> Request {
        let (random, last) = &mut *self.drawn.lock();
        let due = self.per_sec.map(|per_sec| {
            // Independent users: gaps are exponential.
            let unit: f64 = random.random();
            *last = *last + Duration::from_secs_f64(-(1.0 - unit).ln() / per_sec);
            *last
        });
        let write = random.random::<f64>() < self.writes;
        Request { due, key: random.random_range(0..self.keys), write }
    }
}

fn name(key: u64) -> Bytes {
    format!("key:{key:012}").into()
}

/// A value that says whose it is; the rest is random.
fn value(key: u64, random: &mut Xoshiro256PlusPlus) -> Bytes {
    let mut value = BytesMut::zeroed(VALUE_BYTES);
    let (mark, rest) = value.split_at_mut(8);
    mark.copy_from_slice(&key.to_le_bytes());
    random.fill_bytes(rest);
    value.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_the_same_from_the_same_seed_and_keeps_its_rate() {
        let start = Instant::from_nanos(5);
        let streams = [(); 2].map(|()| Stream::new(7, 0.25, Some(1000.0), start, 100));
        let mut writes = 0;
        let mut last = start;
        for _ in 0..10_000 {
            let [one, other] = [&streams[0], &streams[1]].map(Stream::next);
            assert_eq!((one.due, one.key, one.write), (other.due, other.key, other.write));
            assert!(one.key < 100 && one.due >= Some(last));
            writes += u32::from(one.write);
            last = one.due.expect("it has a rate");
        }
        // Deviations of 0.1 s and of 43: five of them.
        assert!((9.5..10.5).contains(&last.since(start).as_secs_f64()), "{last:?}");
        assert!((2285..2715).contains(&writes), "{writes}");
        let at_once = Stream::new(7, 0.25, None, start, 100);
        assert_eq!(at_once.next().due, None);
    }

    #[test]
    fn a_look_starts_again_from_nothing() {
        let tally = Tally::new();
        tally.record(false, Duration::from_millis(5));
        tally.record(true, Duration::from_secs(3600));
        let mut all = tally.take();
        assert_eq!((all.reads.len(), all.writes.len()), (1, 1));
        assert_eq!(tally.take().reads.len(), 0);
        all.add(&all.clone());
        assert_eq!(all.reads.len(), 2);
    }

    #[test]
    fn a_value_says_whose_it_is() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let value = value(7, &mut random);
        assert_eq!(value.len(), VALUE_BYTES);
        assert!(value.starts_with(&7_u64.to_le_bytes()));
        assert_eq!(name(7), "key:000000000007");
    }
}

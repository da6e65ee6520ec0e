//! Worker threads, and the meter that samples them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use policy::time::Instant;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::meter::Done;
use super::plan::Drive;
use super::worker::{Enough, Worker};
use super::{Choose, Driven, Meter, Pace};

impl Drive<'_> {
    /// Runs threads until each has done its share of the operations or the time is over. `chooser` makes the chooser of
    /// a thread, `pace` its pace, from its number. `bar` shows `position` of the current time and the operations done.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn run<'c, P: Pace>(
        &self,
        chooser: impl Fn() -> Box<dyn Choose + 'c>,
        pace: impl Fn(usize) -> P,
        bar: &ProgressBar,
        position: impl Fn(Instant, u64) -> u64 + Sync,
    ) -> anyhow::Result<Driven> {
        let (clock, counts) = (self.clock, self.counts);
        let done: Vec<_> = (0..self.threads).map(|_| Done::default()).collect();
        let meter =
            Meter { clock, counts, threads: &done, origin: self.origin, every: self.sample_every };
        let before: Vec<_> = counts.iter().map(|count| (count.read)()).collect();
        let (ended, running) = channel::<()>();
        let (driven, samples) = std::thread::scope(|scope| {
            // The end of a channel moves to its thread.
            let watching = scope.spawn(|| {
                let running = running;
                meter.watch(&running, bar, &position)
            });
            let driven = self.work(&done, chooser, pace);
            drop(ended);
            (driven, watching.join().expect("the meter does not panic"))
        });
        let elapsed = clock.now().since(self.start);
        bar.finish_and_clear();
        let driven = driven?;
        // A count can fall when a token is returned, so the difference saturates.
        let counted = counts.iter().zip(before);
        let counted = counted.map(|(count, before)| (count.read)().saturating_sub(before));
        Ok(Driven { samples, elapsed, counted: counted.collect(), ..driven })
    }

    /// Runs every thread, and merges what they found.
    fn work<'c, P: Pace>(
        &self,
        done: &[Done],
        chooser: impl Fn() -> Box<dyn Choose + 'c>,
        pace: impl Fn(usize) -> P,
    ) -> anyhow::Result<Driven> {
        let threads = done.len();
        let mut seeds = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let failed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mut workers = Vec::new();
            for (thread, done) in done.iter().enumerate() {
                let worker = Worker {
                    drive: self,
                    chooser: chooser(),
                    random: Xoshiro256PlusPlus::seed_from_u64(seeds.next_u64()),
                    done,
                    failed: &failed,
                };
                let operations = share(self.operations, thread, threads);
                let enough = Enough { operations, at: self.until };
                let (pace, failed) = (pace(thread), &failed);
                workers.push(scope.spawn(move || {
                    let worked = worker.work(enough, pace);
                    failed.fetch_or(worked.is_err(), Ordering::Relaxed);
                    worked
                }));
            }
            let mut all = Driven::default();
            for worker in workers {
                all.add(worker.join().expect("a worker does not panic")?);
            }
            Ok(all)
        })
    }
}

/// The share of `thread` in `operations`.
fn share(operations: u64, thread: usize, threads: usize) -> u64 {
    let (thread, threads) = (thread as u64, threads as u64);
    operations / threads + u64::from(thread < operations % threads)
}

/// A bar up to `end`, on stderr if that is a terminal.
pub(crate) fn bar(name: &'static str, end: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:4} {bar:40} {elapsed} ({eta} left) {msg}")
        .expect("the template is right");
    ProgressBar::new(end).with_style(style).with_prefix(name)
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

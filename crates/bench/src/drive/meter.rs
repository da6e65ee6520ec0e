//! Samples threads and the layers below them while a workload runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use indicatif::ProgressBar;
use policy::time::Instant;
use volume::Clock;

/// A number that grows while a workload runs.
pub struct Tally<'c> {
    /// Reads the current value.
    pub read: Box<dyn Fn() -> u64 + Send + Sync + 'c>,
}

impl<'c> Tally<'c> {
    /// A tally of what `read` returns.
    pub fn new(read: impl Fn() -> u64 + Send + Sync + 'c) -> Self {
        Self { read: Box::new(read) }
    }
}

/// Rates between two samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The middle of it, since the bench began.
    pub at: Duration,
    /// Operations a second of the workload.
    pub operations: f64,
    /// What each count grew by a second.
    pub rates: Vec<f64>,
}

/// Operations that one thread has done. Aligned to its own cache line: threads that count do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Done(AtomicU64);

impl Done {
    pub(super) fn one_more(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Samples counts and the threads of a workload.
pub(crate) struct Meter<'m> {
    pub(super) clock: &'m Clock,
    pub(super) counts: &'m [Tally<'m>],
    pub(super) threads: &'m [Done],
    /// The beginning of the bench.
    pub(super) origin: Instant,
    /// How often it looks.
    pub(super) every: Duration,
}

/// What was counted at one moment.
struct Look {
    at: Instant,
    operations: u64,
    counts: Vec<u64>,
}

impl Meter<'_> {
    /// Samples until the other end of `running` is gone; each sample calls `tell` with the operations done so far.
    pub(super) fn watch(
        &self,
        running: &Receiver<()>,
        bar: &ProgressBar,
        tell: impl Fn(Instant, u64) -> u64,
    ) -> Vec<Sample> {
        let mut samples = Vec::new();
        let mut last = self.look();
        loop {
            let wait = (last.at + self.every).since(self.clock.now());
            let ended = running.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
            let look = self.look();
            let took = look.at.since(last.at);
            // The last interval is too short for a rate, unless it is the only one.
            if !ended || took * 2 >= self.every || samples.is_empty() {
                let sample = self.between(&last, &look);
                bar.set_message(format!("{:.0} op/s", sample.operations));
                samples.push(sample);
            }
            bar.set_position(tell(look.at, look.operations));
            if ended {
                return samples;
            }
            last = look;
        }
    }

    fn look(&self) -> Look {
        Look {
            at: self.clock.now(),
            operations: self.threads.iter().map(Done::count).sum(),
            counts: self.counts.iter().map(|count| (count.read)()).collect(),
        }
    }

    fn between(&self, from: &Look, to: &Look) -> Sample {
        let took = to.at.since(from.at);
        let rate = |from: u64, to: u64| to.saturating_sub(from) as f64 / took.as_secs_f64();
        Sample {
            at: from.at.since(self.origin) + took / 2,
            operations: rate(from.operations, to.operations),
            rates: from.counts.iter().zip(&to.counts).map(|(from, to)| rate(*from, *to)).collect(),
        }
    }
}

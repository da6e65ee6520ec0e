//! What threads, and what is below them, do while a workload runs, second by second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use indicatif::ProgressBar;
use policy::time::Instant;
use volume::Clock;

/// A number that grows while a workload runs.
pub struct Tally<'c> {
    /// How large it is by now.
    pub read: Box<dyn Fn() -> u64 + Send + Sync + 'c>,
}

impl<'c> Tally<'c> {
    /// What `read` gives.
    pub fn new(read: impl Fn() -> u64 + Send + Sync + 'c) -> Self {
        Self { read: Box::new(read) }
    }
}

/// What happened between two looks.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The middle of it, since the bench began.
    pub at: Duration,
    /// Operations a second of the workload.
    pub operations: f64,
    /// What each count grew by a second.
    pub rates: Vec<f64>,
}

/// What one thread has done. In a line of the processor's cache of its own: threads that count do not
/// slow each other down.
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

/// Looks at counts and at the threads of a workload.
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
    /// Looks again and again until the other end of `running` is gone; `tell` hears after each look how
    /// many operations are done.
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
            // The rest at the end is too short to tell a rate, unless it is all there is.
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

//! The counters of a listener since the program started.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use crate::figures::Counter;

/// The figures of one RESP listener.
#[derive(Debug, Default)]
pub struct Stats {
    /// Connections open now.
    pub clients: Counter,
    /// Connections accepted.
    pub connections: Counter,
    /// Connections rejected at the limit.
    pub rejected: Counter,
    /// Connections displaced by new ones.
    pub shed: Counter,
    /// Bytes read from clients.
    pub bytes_in: Counter,
    /// Bytes written to clients.
    pub bytes_out: Counter,
    /// Bytes of incomplete requests, beyond each connection's free bytes.
    pub buffered: Counter,
    /// Keys read and found.
    pub hits: Counter,
    /// Keys read and missing.
    pub misses: Counter,
    /// Error replies.
    pub errors: Counter,
    /// The names of the commands, in the order of their table.
    names: Vec<&'static str>,
    /// Calls of each command, in the same order.
    calls: Vec<Counter>,
    samples: Mutex<Samples>,
    /// Keys expired until the last [`Stats::begin_anew`].
    expired_before: AtomicU64,
}

/// Rates between the last two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Commands a second.
    pub commands: f64,
    /// Bytes read from clients a second.
    pub bytes_in: f64,
    /// Bytes written to clients a second.
    pub bytes_out: f64,
}

/// The last two samples, which determine the rates.
#[derive(Debug, Default)]
struct Samples {
    before: Sample,
    last: Sample,
}

/// The counters at a time since the start of the program.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    at: Duration,
    commands: u64,
    bytes_in: u64,
    bytes_out: u64,
}

impl Stats {
    /// Counters at zero, for a listener with these commands, in the order of their table.
    pub(super) fn new(names: Vec<&'static str>) -> Self {
        Self { calls: names.iter().map(|_| Counter::default()).collect(), names, ..Self::default() }
    }

    /// Counts a call of the command at `index` of the table.
    pub(super) fn called(&self, index: usize) {
        self.calls[index].add_one();
    }

    /// Counts keys read, and how many of them were found.
    pub(super) fn looked_up(&self, found: u64, asked: u64) {
        self.hits.add(found);
        self.misses.add(asked - found);
    }

    /// The calls of each command, by name; commands never called are left out.
    pub fn calls(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.each_call(Counter::get)
    }

    /// The calls since the last [`Stats::begin_anew`].
    pub(super) fn recent_calls(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.each_call(Counter::recent)
    }

    fn each_call(&self, count: fn(&Counter) -> u64) -> impl Iterator<Item = (&'static str, u64)> {
        let calls =
            self.names.iter().zip(&self.calls).map(move |(name, calls)| (*name, count(calls)));
        calls.filter(|&(_, calls)| calls > 0)
    }

    /// The sum of all calls.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.calls.iter().map(Counter::get).sum()
    }

    /// The keys expired since the last [`Stats::begin_anew`], of all `expired` ones.
    pub(super) fn recently_expired(&self, expired: u64) -> u64 {
        expired.saturating_sub(self.expired_before.load(Relaxed))
    }

    /// Resets [`Counter::recent`] of the counters that `INFO` resets. The counters themselves continue.
    pub(super) fn begin_anew(&self, expired: u64) {
        let Self { connections, rejected, bytes_in, bytes_out, hits, misses, errors, .. } = self;
        let counters = [connections, rejected, bytes_in, bytes_out, hits, misses, errors];
        counters.into_iter().chain(&self.calls).for_each(Counter::begin_anew);
        self.expired_before.store(expired, Relaxed);
    }

    /// Takes a sample for [`Stats::rates`] at `now`, the time since the start of the program.
    pub fn sample(&self, now: Duration) {
        let last = Sample {
            at: now,
            commands: self.commands(),
            bytes_in: self.bytes_in.get(),
            bytes_out: self.bytes_out.get(),
        };
        let mut samples = self.samples.lock();
        *samples = Samples { before: samples.last, last };
    }

    /// The rates per second between the last two samples; zero before there are two.
    #[must_use]
    pub fn rates(&self) -> Rates {
        let Samples { before, last } = *self.samples.lock();
        let seconds = last.at.saturating_sub(before.at).as_secs_f64();
        if seconds == 0.0 {
            return Rates::default();
        }
        let rate = |figure: fn(&Sample) -> u64| {
            figure(&last).saturating_sub(figure(&before)) as f64 / seconds
        };
        Rates {
            commands: rate(|sample| sample.commands),
            bytes_in: rate(|sample| sample.bytes_in),
            bytes_out: rate(|sample| sample.bytes_out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_between_the_last_two_samples() {
        let stats = Stats::new(vec!["get", "set"]);
        assert_eq!(stats.rates(), Rates::default());
        stats.sample(Duration::from_secs(10));
        stats.called(0);
        stats.called(1);
        stats.bytes_in.add(50);
        stats.sample(Duration::from_secs(12));
        assert_eq!(stats.rates(), Rates { commands: 1.0, bytes_in: 25.0, bytes_out: 0.0 });
        stats.sample(Duration::from_secs(13));
        assert_eq!(stats.rates(), Rates::default());
    }
}

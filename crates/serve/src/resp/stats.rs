//! What the door counted since the program started.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that many connections add to.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts one more and gives the new number.
    pub fn add_one(&self) -> u64 {
        self.add(1)
    }

    /// Counts `more` and gives the new number.
    pub fn add(&self, more: u64) -> u64 {
        // Wrapping takes centuries; `fetch_add` is what makes ids unique, no order is promised.
        self.0.fetch_add(more, Ordering::Relaxed).wrapping_add(more)
    }

    /// Takes `less` back, for numbers that also shrink.
    pub fn sub(&self, less: u64) {
        self.0.fetch_sub(less, Ordering::Relaxed);
    }

    /// The number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The figures of one RESP door.
#[derive(Debug)]
pub struct Stats {
    /// Connections open now.
    pub clients: Counter,
    /// Connections accepted.
    pub connections: Counter,
    /// Connections turned away because there were too many.
    pub rejected: Counter,
    /// Bytes read from clients.
    pub bytes_in: Counter,
    /// Bytes written to clients.
    pub bytes_out: Counter,
    /// Bytes of requests that have not arrived whole yet, beyond what every connection may hold.
    pub buffered: Counter,
    /// Keys that were read and were there.
    pub hits: Counter,
    /// Keys that were read and were not there.
    pub misses: Counter,
    /// Error replies.
    pub errors: Counter,
    /// Calls of each command, in the order of the command table.
    calls: Vec<Counter>,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            clients: Counter::default(),
            connections: Counter::default(),
            rejected: Counter::default(),
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
            buffered: Counter::default(),
            hits: Counter::default(),
            misses: Counter::default(),
            errors: Counter::default(),
            calls: super::command::names().map(|_| Counter::default()).collect(),
        }
    }
}

impl Stats {
    /// Counts a call of the command at `index` of the table.
    pub(super) fn called(&self, index: usize) {
        self.calls[index].add_one();
    }

    /// Counts keys that were read, and how many of them were there.
    pub(super) fn looked_up(&self, found: u64, asked: u64) {
        self.hits.add(found);
        self.misses.add(asked - found);
    }

    /// How often each command was called, by name; those never called are left out.
    pub fn calls(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let calls = self.calls.iter().map(Counter::get);
        super::command::names().zip(calls).filter(|&(_, calls)| calls > 0)
    }

    /// All calls together.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.calls.iter().map(Counter::get).sum()
    }
}

//! The result of a run of threads on a store.

use std::time::Duration;

use super::{Dot, Latencies, Sample};

/// What threads did to a store, and how the store answered.
#[derive(Clone, Debug, Default)]
pub struct Driven {
    /// The duration: from the start to the end of the last thread.
    pub elapsed: Duration,
    /// Latencies from the start of each operation.
    pub latencies: Latencies,
    /// Latencies from the intended starts; empty without a schedule.
    pub open: Latencies,
    /// Every operation, unordered, if they are kept.
    pub dots: Vec<Dot>,
    /// The rates over time.
    pub samples: Vec<Sample>,
    /// The growth of each count.
    pub counted: Vec<u64>,
    /// Answers that differed from what was stored.
    pub wrong: u64,
    /// One wrong answer, in words.
    pub example: Option<String>,
}

impl Driven {
    /// The number of operations done.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.latencies.all().len()
    }

    /// Adds what another thread did.
    pub(super) fn add(&mut self, other: Self) {
        self.latencies.add(&other.latencies);
        self.open.add(&other.open);
        self.dots.extend(other.dots);
        self.wrong += other.wrong;
        self.example = self.example.take().or(other.example);
    }

    pub(super) fn wrong(&mut self, what: impl FnOnce() -> String) {
        self.wrong += 1;
        self.example.get_or_insert_with(what);
    }
}

//! How long operations took, by what they did.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::workload::Operation;

/// The longest latency that is told from longer ones, and the digits that are kept.
const LONGEST: Duration = Duration::from_secs(600);
const DIGITS: u8 = 3;

/// Latencies of operations, each to a thousandth of itself.
#[derive(Clone, Debug, Default)]
pub struct Latencies(BTreeMap<Operation, Histogram<u64>>);

impl Latencies {
    pub(super) fn record(&mut self, operation: Operation, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.0.entry(operation).or_insert_with(empty).saturating_record(nanos);
    }

    pub(super) fn add(&mut self, others: &Self) {
        for (operation, others) in &others.0 {
            let ours = self.0.entry(*operation).or_insert_with(empty);
            ours.add(others).expect("histograms of one kind add up");
        }
    }

    /// What was recorded of each operation, in nanoseconds.
    pub(super) fn each(&self) -> impl Iterator<Item = (Operation, &Histogram<u64>)> {
        self.0.iter().map(|(operation, nanos)| (*operation, nanos))
    }

    /// The same of one kind, if there was any.
    pub(super) fn of(&self, operation: Operation) -> Option<&Histogram<u64>> {
        self.0.get(&operation)
    }

    /// How many operations of one kind there were.
    #[must_use]
    pub fn count(&self, operation: Operation) -> u64 {
        self.0.get(&operation).map_or(0, Histogram::len)
    }
}

fn empty() -> Histogram<u64> {
    let longest = u64::try_from(LONGEST.as_nanos()).expect("some minutes in nanoseconds");
    Histogram::new_with_max(longest, DIGITS).expect("the bounds are in order")
}

//! Latencies of operations.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::Operation;

/// The longest latency the histograms resolve, and the significant digits they keep.
const LONGEST: Duration = Duration::from_secs(600);
const DIGITS: u8 = 3;

/// Latencies of operations, with three significant digits.
#[derive(Clone, Debug, Default)]
pub struct Latencies(BTreeMap<Operation, Histogram<u64>>);

impl Latencies {
    pub(crate) fn record(&mut self, operation: Operation, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.0.entry(operation).or_insert_with(empty).saturating_record(nanos);
    }

    pub(crate) fn add(&mut self, others: &Self) {
        for (operation, others) in &others.0 {
            let ours = self.0.entry(*operation).or_insert_with(empty);
            ours.add(others).expect("histograms of one kind add up");
        }
    }

    /// The latencies of each kind of operation, in nanoseconds.
    pub fn each(&self) -> impl Iterator<Item = (Operation, &Histogram<u64>)> {
        self.0.iter().map(|(operation, nanos)| (*operation, nanos))
    }

    /// The latencies of one kind, if there were any.
    #[must_use]
    pub fn of(&self, operation: Operation) -> Option<&Histogram<u64>> {
        self.0.get(&operation)
    }

    /// The latencies of all kinds together.
    #[must_use]
    pub fn all(&self) -> Histogram<u64> {
        let mut all = empty();
        for nanos in self.0.values() {
            all.add(nanos).expect("histograms of one kind add up");
        }
        all
    }

    /// How many operations of one kind there were.
    #[must_use]
    pub fn count(&self, operation: Operation) -> u64 {
        self.0.get(&operation).map_or(0, Histogram::len)
    }
}

/// One operation, for figures by the second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dot {
    /// When it ended, in milliseconds since the workload began.
    pub at_ms: u32,
    /// How long it took, in microseconds.
    pub us: f32,
}

impl Dot {
    pub(crate) fn new(at: Duration, took: Duration) -> Self {
        let at_ms = u32::try_from(at.as_millis()).unwrap_or(u32::MAX);
        #[expect(clippy::cast_possible_truncation, reason = "seven digits are more than enough")]
        Self { at_ms, us: (took.as_secs_f64() * 1e6) as f32 }
    }
}

fn empty() -> Histogram<u64> {
    let longest = u64::try_from(LONGEST.as_nanos()).expect("some minutes in nanoseconds");
    Histogram::new_with_max(longest, DIGITS).expect("the bounds are in order")
}

/// Latencies of the operations that ended in one second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Second {
    /// Its number, from 0.
    pub number: u32,
    /// Operations that ended in it.
    pub operations: usize,
    /// Half of them took no longer, in microseconds.
    pub p50: f64,
    /// 99 of 100 took no longer, in microseconds.
    pub p99: f64,
    /// 999 of 1000 took no longer, in microseconds.
    pub p999: f64,
}

/// Figures of each second in which an operation ended, in order.
#[must_use]
pub fn by_second(dots: &[Dot]) -> Vec<Second> {
    let mut seconds: BTreeMap<u32, Vec<f32>> = BTreeMap::new();
    for dot in dots {
        seconds.entry(dot.at_ms / 1000).or_default().push(dot.us);
    }
    let figures = |(number, mut us): (u32, Vec<f32>)| {
        us.sort_unstable_by(f32::total_cmp);
        // The smallest latency that `thousandths` of a thousand operations do not exceed.
        let at = |thousandths: usize| f64::from(us[(us.len() * thousandths).div_ceil(1000) - 1]);
        Second { number, operations: us.len(), p50: at(500), p99: at(990), p999: at(999) }
    };
    seconds.into_iter().map(figures).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_second_are_of_what_ended_in_it() {
        let dot = |at_ms, us: u16| Dot { at_ms, us: us.into() };
        let mut dots: Vec<_> = (1..=1000).rev().map(|us| dot(1999, us)).collect();
        dots.push(dot(3000, 7));
        let found = by_second(&dots);
        let one = Second { number: 1, operations: 1000, p50: 500.0, p99: 990.0, p999: 999.0 };
        let other = Second { number: 3, operations: 1, p50: 7.0, p99: 7.0, p999: 7.0 };
        assert_eq!(found, [one, other]);
        assert!(by_second(&[]).is_empty());
    }
}

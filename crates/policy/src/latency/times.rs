//! A histogram of durations, fine enough for percentiles and small enough to keep many.

use std::time::Duration;

/// Steps of each doubling. Percentiles are right to a sixteenth, which is half a step.
const STEPS: usize = 8;

/// The width of the first eight steps, which make a microsecond. From there on each doubling has eight steps.
const UNIT_NANOS: u64 = 125;

/// A histogram of times, from an eighth of a microsecond to half a minute.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Times {
    counts: [u64; Self::BUCKETS],
    total: Duration,
}

impl Times {
    /// The number of steps. The last also counts all longer times.
    pub const BUCKETS: usize = 27 * STEPS;

    /// A histogram of counts made elsewhere, by [`Times::index`].
    #[must_use]
    pub const fn new(counts: [u64; Self::BUCKETS], total: Duration) -> Self {
        Self { counts, total }
    }

    /// The step that counts `time`.
    #[must_use]
    pub fn index(time: Duration) -> usize {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let units = nanos.saturating_sub(1) / UNIT_NANOS;
        let index = match units.checked_ilog2() {
            Some(log @ 3..) => (log as usize - 2) * STEPS + (units >> (log - 3)) as usize % STEPS,
            _ => units as usize,
        };
        index.min(Self::BUCKETS - 1)
    }

    /// The longest time of the step `index`.
    #[must_use]
    pub const fn bound(index: usize) -> Duration {
        let (octave, step) = (index / STEPS, (index % STEPS) as u64);
        let units = match octave {
            0 => step + 1,
            _ => (STEPS as u64 + step + 1) << (octave - 1),
        };
        Duration::from_nanos(units * UNIT_NANOS)
    }

    /// Counts one time.
    pub fn record(&mut self, time: Duration) {
        self.counts[Self::index(time)] += 1;
        self.total = self.total.saturating_add(time);
    }

    /// The number of times counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all times counted.
    #[must_use]
    pub const fn total(&self) -> Duration {
        self.total
    }

    /// The time that a part `part` (0 to 1) of all stayed within, right to half a step. `None` if nothing was counted.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let rank = (part * self.count() as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        for (index, &count) in self.counts.iter().enumerate() {
            below += count;
            if below >= rank {
                let low = index.checked_sub(1).map_or(Duration::ZERO, Self::bound);
                return Some((low + Self::bound(index)) / 2);
            }
        }
        None
    }

    /// How many took longer than `time`, without those in its own step.
    #[must_use]
    pub fn longer_than(&self, time: Duration) -> u64 {
        self.counts[Self::index(time) + 1..].iter().sum()
    }

    /// The counts since `earlier`, an older state of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        for (now, then) in since.counts.iter_mut().zip(&earlier.counts) {
            *now = now.saturating_sub(*then);
        }
        since.total = self.total.saturating_sub(earlier.total);
        since
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum += count;
        }
        self.total = self.total.saturating_add(other.total);
    }

    /// The same by octaves: the number of times up to each bound and above the one before. The last bound is
    /// [`Duration::MAX`].
    pub fn octaves(&self) -> impl Iterator<Item = (Duration, u64)> {
        let octaves = Self::BUCKETS / STEPS;
        self.counts.chunks(STEPS).enumerate().map(move |(octave, counts)| {
            let bound = if octave + 1 == octaves {
                Duration::MAX
            } else {
                Self::bound(octave * STEPS + STEPS - 1)
            };
            (bound, counts.iter().sum())
        })
    }
}

impl Default for Times {
    fn default() -> Self {
        Self::new([0; Self::BUCKETS], Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn steps_are_an_eighth_of_a_doubling() {
        let us = Duration::from_micros;
        assert_eq!(Times::bound(Times::index(us(1))), us(1));
        assert_eq!(Times::bound(Times::index(us(2))), us(2));
        assert_eq!(Times::bound(Times::index(us(725))), us(768));
        assert_eq!(Times::index(Duration::ZERO), 0);
        assert_eq!(Times::index(Duration::MAX), Times::BUCKETS - 1);
    }

    #[test]
    fn octaves_hold_everything() {
        let mut times = Times::default();
        for micros in [1, 2, 3, 700, 40_000_000] {
            times.record(Duration::from_micros(micros));
        }
        let octaves: Vec<_> = times.octaves().filter(|&(_, count)| count > 0).collect();
        let us = Duration::from_micros;
        assert_eq!(
            octaves,
            [(us(1), 1), (us(2), 1), (us(4), 1), (us(1024), 1), (Duration::MAX, 1)]
        );
        let earlier = times.clone();
        times.record(us(9));
        assert_eq!(times.since(&earlier).octaves().map(|(_, count)| count).sum::<u64>(), 1);
    }

    proptest! {
        #[test]
        fn each_time_is_counted_within_its_bounds(nanos in 1u64..33_000_000_000) {
            let time = Duration::from_nanos(nanos);
            let index = Times::index(time);
            prop_assert!(time <= Times::bound(index));
            prop_assert!(index == 0 || time > Times::bound(index - 1));
        }

        #[test]
        fn a_quantile_is_right_to_a_sixteenth(
            mut nanos in prop::collection::vec(1_000u64..1_000_000_000, 1..200),
            part in 0.0..=1.0f64,
        ) {
            let mut times = Times::default();
            nanos.iter().for_each(|&nanos| times.record(Duration::from_nanos(nanos)));
            nanos.sort_unstable();
            let rank = ((part * nanos.len() as f64).ceil() as usize).max(1) - 1;
            let found = times.quantile(part).unwrap().as_nanos() as f64;
            let error = (found / nanos[rank] as f64 - 1.0).abs();
            prop_assert!(error <= 1.0 / 15.0, "{error}");
        }
    }
}

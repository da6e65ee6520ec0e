//! How long a read of a volume would take: what a gate tells, and what a choice between copies compares.
//!
//! A read of a disk takes a hundred times as long as one of a local SSD. So the device's usual time counts beside the wait, but
//! only where one device takes more than twice as long as the other. Below that the difference is noise, and following it would
//! send all reads to one of two equal volumes.

use std::time::Duration;

/// How long a read that came now would take.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReadTime {
    /// The wait for its turn at the gate.
    pub wait: Duration,
    /// The device's usual time then; zero while it is not known.
    pub answer: Duration,
}

impl ReadTime {
    /// Longer than any other.
    pub const NEVER: Self = Self { wait: Duration::MAX, answer: Duration::ZERO };

    /// Both together.
    #[must_use]
    pub const fn total(self) -> Duration {
        self.wait.saturating_add(self.answer)
    }

    /// Both together, the device's time only to a power of two of nanoseconds: for an order that noise does not change.
    #[must_use]
    pub fn rough(self) -> Duration {
        let nanos = self.answer.as_nanos().checked_ilog2().map_or(0, |log| 1_u64 << log.min(63));
        self.wait.saturating_add(Duration::from_nanos(nanos))
    }

    /// Whether this is the better choice.
    #[must_use]
    pub fn is_shorter(self, than: Self) -> bool {
        let [fast, slow] = [self.answer.min(than.answer), self.answer.max(than.answer)];
        if slow > fast.saturating_mul(2) && !fast.is_zero() {
            self.total() < than.total()
        } else {
            self.wait < than.wait
        }
    }

    /// The longer of both, part by part: of what is read together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self { wait: self.wait.max(other.wait), answer: self.answer.max(other.answer) }
    }

    /// A mean: `part` of this and the rest of `other`. `part` is from 0 to 1.
    #[must_use]
    pub fn mixed(self, part: f64, other: Self) -> Self {
        let mix = |one: Duration, other: Duration| one.mul_f64(part) + other.mul_f64(1.0 - part);
        Self { wait: mix(self.wait, other.wait), answer: mix(self.answer, other.answer) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_counts_where_it_takes_more_than_twice_as_long() {
        let expected = |wait, answer| ReadTime {
            wait: Duration::from_micros(wait),
            answer: Duration::from_micros(answer),
        };
        let ssd = expected(0, 100);
        for (other, is_shorter) in [
            (expected(0, 8000), true),
            (expected(0, 201), true),
            // As good as equal: the wait decides, and here there is none.
            (expected(0, 200), false),
            (expected(1, 60), true),
            // Nothing is known of it.
            (expected(0, 0), false),
            (ReadTime::NEVER, true),
        ] {
            assert_eq!(ssd.is_shorter(other), is_shorter, "{other:?}");
        }
        let busy = expected(8000, 100);
        assert!(expected(0, 8000).is_shorter(busy) && !busy.is_shorter(expected(0, 8000)));
    }

    #[test]
    fn a_rough_time_is_the_same_for_devices_that_are_nearly_equal() {
        let rough = |wait, answer| {
            ReadTime { wait: Duration::from_nanos(wait), answer: Duration::from_nanos(answer) }
                .rough()
        };
        assert_eq!(rough(5, 0), Duration::from_nanos(5));
        assert_eq!([rough(5, 512), rough(5, 1023)], [Duration::from_nanos(517); 2]);
        assert_eq!(rough(5, 1024), Duration::from_nanos(1029));
        assert_eq!(ReadTime::NEVER.rough(), Duration::MAX);
    }

    #[test]
    fn parts_that_are_read_together_take_as_long_as_the_longest() {
        let millis = Duration::from_millis;
        let [one, other] = [(3, 1), (2, 4)]
            .map(|(wait, answer)| ReadTime { wait: millis(wait), answer: millis(answer) });
        assert_eq!(one.with(other), ReadTime { wait: millis(3), answer: millis(4) });
        let mixed = one.mixed(0.5, other);
        assert_eq!(mixed, ReadTime { wait: millis(5) / 2, answer: millis(5) / 2 });
    }
}

//! Chooses the copy of an object that a read goes to.
//!
//! Devices differ: a read of a disk takes a hundred times as long as one of a local SSD. So the device's usual time counts
//! beside the wait, but only where one device takes more than twice as long as the other. Below that the difference is noise, and
//! following it would send all reads to one of two equal volumes.
//!
//! The paper on hot-table replicas does not say whether reads are split between the copies or all go to the new one;
//! splitting needs fewer copies. Each read goes where it would wait least, judging by the queues of the gates. With
//! more than two copies, only two random ones are compared: comparing all sends a burst of reads to the copy that
//! looked best a moment ago (Mitzenmacher, "The power of two choices in randomized load balancing", 2001).

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

/// Chooses among `count` copies; `expected` says how long a read of one of them would take. The random number `draw` picks
/// the two that are compared, and decides between equals.
///
/// # Panics
/// When there is no copy.
#[must_use]
pub fn choose(count: usize, draw: u64, expected: impl Fn(usize) -> ReadTime) -> usize {
    assert!(count > 0, "an object has a copy");
    if count == 1 {
        return 0;
    }
    let [high, low] = [(draw >> 32) as usize, draw as u32 as usize];
    // Two different copies; all pairs and orders are equally likely.
    let first = high % count;
    let second = (first + 1 + low % (count - 1)) % count;
    if expected(second).is_shorter(expected(first)) { second } else { first }
}

/// The next number of a pseudo-random sequence: splitmix64.
#[must_use]
pub const fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = *state;
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn waits(wait: Duration) -> ReadTime {
        ReadTime { wait, answer: Duration::from_millis(1) }
    }

    #[test]
    fn one_copy_is_never_asked_how_long_it_takes() {
        assert_eq!(choose(1, 7, |_| panic!("asked")), 0);
    }

    #[test]
    fn of_two_the_shorter_wait_is_chosen_whatever_is_drawn() {
        let mut state = 1;
        for _ in 0..100 {
            let draw = draw(&mut state);
            let expected = |copy: usize| waits(Duration::from_millis([3, 2][copy]));
            assert_eq!(choose(2, draw, expected), 1);
        }
    }

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

    #[test]
    fn equals_share_the_reads() {
        let mut state = 2;
        for count in [2, 3, 5] {
            let mut chosen = vec![0; count];
            for _ in 0..10_000 {
                chosen[choose(count, draw(&mut state), |_| ReadTime::default())] += 1;
            }
            let even = 10_000 / count;
            assert!(chosen.iter().all(|&n| n > even * 9 / 10 && n < even * 11 / 10), "{chosen:?}");
        }
    }

    #[test]
    fn of_many_the_longest_wait_is_never_chosen_and_the_shortest_not_always() {
        let mut state = 3;
        let expected = |copy: usize| waits(Duration::from_millis(copy as u64));
        let mut chosen = [0; 4];
        for _ in 0..10_000 {
            chosen[choose(4, draw(&mut state), expected)] += 1;
        }
        assert_eq!(chosen[3], 0);
        assert!(chosen[0] > chosen[1] && chosen[1] > chosen[2] && chosen[2] > 0, "{chosen:?}");
    }
}

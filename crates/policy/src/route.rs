//! Chooses the copy of an object that a read goes to.
//!
//! Devices differ, so what is compared is [wait and device](ReadTime) together.
//!
//! The paper on hot-table replicas does not say whether reads are split between the copies or all go to the new one;
//! splitting needs fewer copies. Each read goes where it would wait least, judging by the queues of the gates. With
//! more than two copies, only two random ones are compared: comparing all sends a burst of reads to the copy that
//! looked best a moment ago (Mitzenmacher, "The power of two choices in randomized load balancing", 2001).

use crate::read_time::ReadTime;

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
    use std::time::Duration;

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

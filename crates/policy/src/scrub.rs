//! When a scrub reads the next object, so that a pass over all of them takes a period.
//!
//! An object is due in the middle of its share of the period. A pass that is late, because volumes had no tokens to
//! spare, reads the next object at once and so catches up.
//!
//! ```text
//!   0                       period
//!   ├──── a ────┼─ b ─┼─ c ─┤      shares by bytes
//!         ▲        ▲     ▲         reads
//! ```

use std::time::Duration;

/// The usual period. Damage that nothing reads stays unnoticed for this long at most, plus the wait for spare capacity. A
/// volume of 1 TiB is then read at 0.4 MiB a second.
pub const PERIOD: Duration = Duration::from_secs(30 * 24 * 3600);

/// The time into a pass at which the next object of `len` bytes is due, after `done` bytes of `of`. Objects that grew since
/// the pass began do not make it longer than `period`.
#[must_use]
pub fn due(period: Duration, done: u64, len: u64, of: u64) -> Duration {
    if of == 0 {
        return period;
    }
    let middle = done as f64 + len as f64 / 2.0;
    period.mul_f64((middle / of as f64).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(1000);

    #[test]
    fn each_object_is_due_in_the_middle_of_its_share() {
        let due = |done, len| due(PERIOD, done, len, 100).as_secs();
        assert_eq!([due(0, 50), due(50, 30), due(80, 20)], [250, 650, 900]);
        assert_eq!(due(100, 0), 1000, "after the last object the pass waits for its end");
    }

    #[test]
    fn no_object_is_due_after_the_period() {
        assert_eq!(due(PERIOD, 90, 1 << 40, 100), PERIOD, "it grew since the pass began");
        assert_eq!(due(PERIOD, 0, 0, 0), PERIOD, "there was nothing to read");
        assert_eq!(due(Duration::ZERO, 7, 5, 100), Duration::ZERO);
    }
}

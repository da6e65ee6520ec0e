//! The time that the program did not run: databases age by it, too.
//!
//! While the program runs, a monotonic clock measures time; only the wall clock measures the downtime. That may be
//! wrong, above all soon after a machine starts, so it is trusted once it has run steadily for [`BELIEVED_AFTER`] of
//! measured time. Until then the stored time goes on from the end of the last run, so that another restart loses
//! nothing.

use std::time::Duration;

use bytes::Bytes;
use policy::time::Instant;

/// How long the wall clock has to run steadily before it is trusted.
pub(super) const BELIEVED_AFTER: Duration = Duration::from_secs(3600);
/// A wall clock that deviates more than this from measured time was set.
const STEP: i64 = 5_000_000_000;
/// The first byte of its record.
const VERSION: u8 = 1;

/// The wall clock's lead over measured time.
#[derive(Debug, Default)]
pub(super) struct Away {
    /// In nanoseconds; negative if the wall clock was set back.
    time: i64,
    /// The wall clock, and when it was read; `None` once it is trusted, or if no time needs it.
    seen: Option<(i64, Instant)>,
}

impl Away {
    /// Starts with the program. `ended` is the last stored time of the wall clock.
    pub(super) fn since(ended: i64, wall: Duration, now: Instant) -> Self {
        let wall = nanos(wall);
        Self { time: wall.saturating_sub(ended), seen: Some((wall, now)) }
    }

    /// How long the program was down: given once, when the wall clock is trusted.
    pub(super) fn take_downtime(&mut self, wall: Duration, now: Instant) -> Option<Duration> {
        let (seen, since) = self.seen?;
        let (wall, took) = (nanos(wall), now.since(since));
        let set_by = wall.saturating_sub(seen.saturating_add(nanos(took)));
        if set_by.abs() > STEP {
            self.time = self.time.saturating_add(set_by);
            self.seen = Some((wall, now));
            return None;
        }
        if took < BELIEVED_AFTER {
            return None;
        }
        let time = u64::try_from(self.time).map_or(Duration::ZERO, Duration::from_nanos);
        *self = Self::default();
        Some(time)
    }

    /// Encodes it for storage, together with the age of databases.
    pub(super) fn encode(&self, wall: Duration) -> Bytes {
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&nanos(wall).saturating_sub(self.time).to_le_bytes());
        bytes.into()
    }

    /// The stored time of the wall clock; `None` for a record of a later version.
    pub(super) fn decode(bytes: &[u8]) -> Option<i64> {
        let (&version, rest) = bytes.split_first()?;
        let ended = i64::from_le_bytes(*rest.first_chunk()?);
        (version == VERSION).then_some(ended)
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_clock_is_believed_once_it_went_steadily() {
        let mut away = Away::since(nanos(DAY), DAY * 8, at(0));
        let wall = |seconds| DAY * 8 + Duration::from_secs(seconds);
        assert_eq!(away.take_downtime(wall(60), at(60)), None);
        // The program ends before the clock is trusted: nothing is lost.
        assert_eq!(Away::decode(&away.encode(wall(60))), Some(nanos(DAY + at(60).since(at(0)))));
        // A clock that loses a second in an hour is steady.
        assert_eq!(away.take_downtime(wall(3600), at(3601)), Some(DAY * 7));
        assert_eq!(away.take_downtime(wall(9999), at(9999)), None, "once");
        assert_eq!(Away::decode(&away.encode(DAY)), Some(nanos(DAY)));
    }

    #[test]
    fn a_clock_that_is_set_begins_anew() {
        let mut away = Away::since(nanos(DAY * 9), DAY, at(0));
        assert_eq!(away.take_downtime(DAY, at(1)), None);
        // The network sets the clock.
        assert_eq!(away.take_downtime(DAY * 10, at(60)), None);
        assert_eq!(away.take_downtime(DAY * 10 + Duration::from_secs(3599), at(3659)), None);
        let downtime = away.take_downtime(DAY * 10 + Duration::from_secs(3600), at(3660)).unwrap();
        assert!(downtime > DAY - Duration::from_secs(61) && downtime <= DAY, "{downtime:?}");
        // A clock that stays behind changes nothing.
        let mut away = Away::since(nanos(DAY * 9), DAY, at(0));
        assert_eq!(away.take_downtime(DAY + BELIEVED_AFTER, at(3600)), Some(Duration::ZERO));
    }
}

//! The state of upkeep between its rounds.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use policy::time::Instant;

use super::key::Slot;
use super::overwritten::Search;

/// Held by the task that writes blocks.
#[derive(Default)]
pub(super) struct Upkeep {
    pub(super) regroup: BTreeSet<Slot>,
    /// Before the next try to regroup blocks.
    pub(super) regroup_pause: Pause,
    pub(super) overwritten: Search,
    /// Segments of the log before this one are removed.
    pub(super) floor: u32,
    /// Where the search for expired blocks resumes.
    pub(super) expiry: Option<Bytes>,
    pub(super) expired_at: Option<Instant>,
    /// When databases were aged last.
    pub(super) aged_at: Option<Instant>,
    /// When their age was stored last.
    pub(super) stored_at: Option<Instant>,
    /// A database was dropped, and that is not stored yet.
    pub(super) is_meta_owed: bool,
    /// When owed work was tried last.
    pub(super) owed_at: Option<Instant>,
}

impl Upkeep {
    pub(super) fn new(floor: u32) -> Self {
        Self { floor, ..Self::default() }
    }
}

/// The shortest and the longest pause after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(64));

/// A pause that doubles with each failure, so that work that fails for long does not hold up other work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pause {
    until: Option<Instant>,
    last: Duration,
}

impl Pause {
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    /// The work failed again.
    pub(super) fn lengthen(&mut self, now: Instant) {
        let (shortest, longest) = PAUSES;
        self.last = (self.last * 2).clamp(shortest, longest);
        self.until = Some(now + self.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_up_to_a_minute() {
        let mut pause = Pause::default();
        let mut now = Instant::ZERO;
        assert!(pause.is_over(now));
        for secs in [1, 2, 4, 8, 16, 32, 64, 64] {
            pause.lengthen(now);
            let takes = Duration::from_secs(secs);
            assert!(!pause.is_over(now + (takes - Duration::from_nanos(1))));
            now = now + takes;
            assert!(pause.is_over(now));
        }
    }
}

//! Time as a plain number, so that tests, traces and the simulator can make any instant.

use std::ops::Add;
use std::time::Duration;

/// Nanoseconds in a second.
pub const NANOS_PER_SEC: u64 = 1_000_000_000;

/// A monotonic instant, in nanoseconds since an origin the clock chose.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than any event.
    pub const FAR: Self = Self(u64::MAX);

    /// The instant `nanos` after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time elapsed since `earlier`; zero when `earlier` lies in the future.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at [`Instant::FAR`].
    fn add(self, wait: Duration) -> Self {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

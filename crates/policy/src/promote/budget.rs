use std::time::Duration;

use crate::time::{Instant, NANOS_PER_SEC};
use crate::units::BytesPerSec;

/// After a pause, promotions of this time's bytes start at once.
const BURST: Duration = Duration::from_secs(1);

/// How much promotions may load the slow pool: bytes a second, and copies at a time.
#[derive(Clone, Debug)]
pub struct Budget {
    rate: BytesPerSec,
    copies_max: u32,
    copies: u32,
    /// When the rate will have covered all bytes admitted so far.
    covered: Instant,
}

/// Whether a promotion may start.
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Admission {
    /// Yes: it is charged. Call [`Budget::finish`] when it ends, in whatever way.
    Now,
    /// Not before this time; nothing was charged.
    At(Instant),
    /// Not before another one has finished; nothing was charged.
    Busy,
}

impl Budget {
    /// The default share of the slow pool's bandwidth.
    pub const SHARE: f64 = 0.1;
    /// The default of promotions at a time.
    pub const COPIES: u32 = 2;

    /// At most this `share`, 0 to 1, of the bandwidth of the slow pool, and this many `copies` at a time. More of
    /// either warms the cache sooner and leaves less to users and flushes.
    #[must_use]
    pub fn new(bandwidth: BytesPerSec, share: f64, copies: u32) -> Self {
        let rate = part(bandwidth, share);
        Self { rate, copies_max: copies, copies: 0, covered: Instant::ZERO }
    }

    /// Changes the bandwidth or its share, for promotions from now on.
    pub fn set(&mut self, bandwidth: BytesPerSec, share: f64) {
        self.rate = part(bandwidth, share);
    }

    /// May a promotion that reads this many bytes start?
    ///
    /// It waits until earlier ones are paid up to a second's bytes, not for its own bytes. So a unit larger than that
    /// passes, too, and the next one waits longer.
    pub fn admit(&mut self, bytes: u64, now: Instant) -> Admission {
        if self.copies >= self.copies_max {
            return Admission::Busy;
        }
        if self.rate.0 == 0 {
            return Admission::At(Instant::FAR);
        }
        let ahead = self.covered.since(now);
        if ahead >= BURST {
            return Admission::At(now + (ahead - BURST) + Duration::from_nanos(1));
        }
        let nanos = u128::from(bytes) * u128::from(NANOS_PER_SEC) / u128::from(self.rate.0);
        let time = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.covered = self.covered.max(now) + time;
        self.copies += 1;
        Admission::Now
    }

    /// A promotion has ended, or failed.
    ///
    /// # Panics
    ///
    /// If none is in progress.
    pub fn finish(&mut self) {
        self.copies = self.copies.checked_sub(1).expect("a promotion is in progress");
    }
}

fn part(bandwidth: BytesPerSec, share: f64) -> BytesPerSec {
    BytesPerSec((bandwidth.0 as f64 * share.clamp(0.0, 1.0)) as u64)
}

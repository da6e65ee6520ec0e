//! Delays of puts on a nearly full volume (PSTA 8(3), 2017).
//!
//! When writers outrun the merges, writers must wait, but clients cannot know that: they do not know which store takes
//! their key. So the answer to a put is delayed, by more the fuller the volume is, and clients that wait for answers
//! slow down to what merges free. The delay is for a timer: it holds no thread and no lock. Deletes, merges and repairs
//! are never delayed.

use std::time::Duration;

use super::Fill;

/// The decision on a put.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Put {
    /// Write it, and answer at once.
    Now,
    /// Write it, and answer after this time.
    After(Duration),
    /// Refuse it: the remaining space is reserved for merges and for the store's own puts.
    Refused {
        /// The earliest time to try again: `Retry-After`. Clients should add a random time, or all come back at once.
        retry_after: Duration,
    },
}

/// From which fill on puts wait, and the room kept from them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PutLimits {
    /// Up to this fill they do not wait: U_l. Relative to the usable room, which is all but the [kept](Self::kept).
    pub low: f64,
    /// At this fill they wait longest: U_h. Relative to the usable room; not below `low`.
    pub high: f64,
    /// The longest delay.
    pub delay_max: Duration,
    /// The growth of the delay between the two: 1 is linear, 2 is slow at first.
    pub exponent: f64,
    /// Bytes that puts never use, so that a merge can always run: see [`PutLimits::reserve`].
    pub reserve: u64,
    /// Bytes kept, besides `reserve`, for the store's own puts: deletes rewrite what stays, and buffers are flushed.
    /// Users' puts never get them.
    pub set_aside: u64,
}

impl PutLimits {
    /// The limits of the paper's tests, with a reserve.
    #[must_use]
    pub const fn new(reserve: u64) -> Self {
        let delay_max = Duration::from_secs(1);
        Self { low: 0.95, high: 1.0, delay_max, exponent: 1.0, reserve, set_aside: 0 }
    }

    /// Bytes kept from users' puts.
    #[must_use]
    pub const fn kept(&self) -> u64 {
        self.reserve.saturating_add(self.set_aside)
    }

    /// Whether a put of `len` bytes that frees room may be written.
    #[must_use]
    pub const fn admit_upkeep(&self, len: u64, fill: &Fill) -> bool {
        fill.free() >= len.saturating_add(self.reserve)
    }

    /// What to keep from puts: a file of `file_bytes` for a merge to write, for each of the `devices` that the volume is on, as
    /// one of them has room for it then; plus the cost of closing each of the `open` files (`closing_bytes`: padding and the
    /// hint). Whole files for the open ones would be too much: with 64 partitions they are most of a volume, and they hold
    /// data.
    #[must_use]
    pub const fn reserve(file_bytes: u64, devices: u64, open: u64, closing_bytes: u64) -> u64 {
        // The merged files have hints too.
        let closed = open.saturating_add(devices).saturating_mul(closing_bytes);
        file_bytes.saturating_mul(devices).saturating_add(closed)
    }

    /// The fill that puts see: 1 when only the kept room is left.
    #[must_use]
    pub fn share(&self, fill: &Fill) -> f64 {
        let usable = fill.capacity.saturating_sub(self.kept());
        fill.used as f64 / usable.max(1) as f64
    }

    /// The delay of the answer to a put.
    #[must_use]
    pub fn delay(&self, fill: &Fill) -> Duration {
        let over = self.share(fill) - self.low;
        if over <= 0.0 {
            return Duration::ZERO;
        }
        let way = self.high - self.low;
        let part = if over < way { over / way } else { 1.0 };
        self.delay_max.mul_f64(part.powf(self.exponent))
    }

    /// The decision on a put of `len` bytes.
    #[must_use]
    pub fn admit(&self, len: u64, fill: &Fill) -> Put {
        if fill.free() < len.saturating_add(self.kept()) {
            return Put::Refused { retry_after: self.delay_max.max(Duration::from_secs(1)) };
        }
        match self.delay(fill) {
            Duration::ZERO => Put::Now,
            delay => Put::After(delay),
        }
    }
}

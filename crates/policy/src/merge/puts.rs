//! How long a put waits because the volume is nearly full (PSTA 8(3), 2017).
//!
//! When writers outrun the merge, somebody has to wait, and clients cannot know it is them: they do not
//! know which store takes their key. So the answer to a put is delayed, by more the fuller the volume is,
//! and clients that wait for answers slow down to what the merge gives back. The delay is for a timer:
//! no thread and no lock is held meanwhile. Deletes, merges and repairs are never delayed.

use std::time::Duration;

use super::Fill;

/// What a put may do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Put {
    /// Be written, and answered at once.
    Now,
    /// Be written, and answered after this time.
    After(Duration),
    /// Nothing: what is left is kept for merges and for the store's own puts. The client may try again after this time.
    Refused {
        /// When to try again at the earliest: `Retry-After`. Clients add some at random, or all come
        /// back at once.
        retry_after: Duration,
    },
}

/// From where on puts wait, and what is kept from them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PutLimits {
    /// Up to this fill they do not wait: U_l. Of what they may use, which is all but what is [kept](Self::kept).
    pub low: f64,
    /// At this one they wait longest: U_h. Of what they may use; not below `low`.
    pub high: f64,
    /// How long that is.
    pub delay_max: Duration,
    /// How the delay grows between the two: 1 evenly, 2 slowly at first.
    pub exponent: f64,
    /// Bytes that puts never use, so that a merge can always run: see [`PutLimits::reserve`].
    pub reserve: u64,
    /// Bytes kept, besides `reserve`, for the store's own puts: a deletion writes anew what stays, and buffers are
    /// flushed. Users' puts never get them.
    pub set_aside: u64,
}

impl PutLimits {
    /// The limits of the paper's tests, with a reserve.
    #[must_use]
    pub const fn new(reserve: u64) -> Self {
        let delay_max = Duration::from_secs(1);
        Self { low: 0.95, high: 1.0, delay_max, exponent: 1.0, reserve, set_aside: 0 }
    }

    /// Bytes that are kept from puts of users.
    #[must_use]
    pub const fn kept(&self) -> u64 {
        self.reserve.saturating_add(self.set_aside)
    }

    /// Whether a put of `len` bytes that frees room may be written.
    #[must_use]
    pub const fn admit_upkeep(&self, len: u64, fill: &Fill) -> bool {
        fill.free() >= len.saturating_add(self.reserve)
    }

    /// What to keep from puts: the file a merge writes, of `file_bytes`, and for each of the files that are
    /// `open` at once what closing it takes (`closing_bytes`: padding, its hint). Whole files for those that are
    /// open would be too much: at 64 partitions they are most of a volume, and what they hold is data.
    #[must_use]
    pub const fn reserve(file_bytes: u64, open: u64, closing_bytes: u64) -> u64 {
        // The file that is merged has a hint too.
        file_bytes.saturating_add(open.saturating_add(1).saturating_mul(closing_bytes))
    }

    /// The fill puts see: 1 where only what is kept from them is left.
    #[must_use]
    pub fn share(&self, fill: &Fill) -> f64 {
        let usable = fill.capacity.saturating_sub(self.kept());
        fill.used as f64 / usable.max(1) as f64
    }

    /// How long the answer to a put waits at a fill.
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

    /// What a put of `len` bytes may do.
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

//! One run of one arm.

use super::load::Answers;

/// What is counted beside the clients.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counted {
    /// Operations that the gate of the slow volume charged.
    pub slow_ops: u64,
    /// Operations that the gate of the fast volume charged.
    pub fast_ops: u64,
    /// Requests that the simulated provider of the slow volume saw, and those of them that it made wait.
    pub requests: u64,
    /// See [`Counted::requests`].
    pub overdrafts: u64,
    /// Bytes of reads that came from the fast volume.
    pub hit_bytes: u64,
    /// Bytes of reads.
    pub read_bytes: u64,
    /// Bytes that were installed on the fast volume.
    pub promoted_bytes: u64,
}

impl Counted {
    /// The growth since `before`.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        // A count can fall when a token is returned.
        Self {
            slow_ops: self.slow_ops.saturating_sub(before.slow_ops),
            fast_ops: self.fast_ops.saturating_sub(before.fast_ops),
            requests: self.requests.saturating_sub(before.requests),
            overdrafts: self.overdrafts.saturating_sub(before.overdrafts),
            hit_bytes: self.hit_bytes.saturating_sub(before.hit_bytes),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            promoted_bytes: self.promoted_bytes.saturating_sub(before.promoted_bytes),
        }
    }
}

/// What was dirty in a run, in percent of the cache, by samples at equal distances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dirty {
    /// In the mean.
    pub mean: f64,
    /// The mean of the second half less that of the first.
    pub growth: f64,
    /// At most.
    pub most: f64,
    /// At the end.
    pub last: f64,
}

/// The result of one run of one arm.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// What clients got.
    pub answers: Answers,
    /// What it cost.
    pub counted: Counted,
    /// Whether there is a cache.
    pub is_cached: bool,
    /// Bytes promoted from the start of the lead to the end of the run, and users' bytes meanwhile.
    pub promoted_all: u64,
    /// See [`Run::promoted_all`].
    pub users_all: u64,
    /// `None` if no write stays in the cache.
    pub dirty: Option<Dirty>,
}

impl Run {
    /// Requests answered a second.
    #[must_use]
    pub fn per_sec(&self) -> f64 {
        self.answers.count as f64 / self.answers.elapsed.as_secs_f64()
    }

    /// A quantile of latencies, in microseconds. NaN without an answer.
    #[must_use]
    pub fn quantile_us(&self, part: f64) -> f64 {
        match self.answers.nanos.is_empty() {
            true => f64::NAN,
            false => self.answers.nanos.value_at_quantile(part) as f64 / 1e3,
        }
    }

    /// The share of read bytes that came from the fast volume, in percent. NaN without a cache.
    #[must_use]
    pub fn hits(&self) -> f64 {
        match self.is_cached && self.counted.read_bytes > 0 {
            true => 100.0 * self.counted.hit_bytes as f64 / self.counted.read_bytes as f64,
            false => f64::NAN,
        }
    }

    /// Promoted bytes for each byte of the users, with the lead. NaN without a cache.
    #[must_use]
    pub fn promoted_per_byte(&self) -> f64 {
        match self.is_cached {
            true => self.promoted_all as f64 / self.users_all as f64,
            false => f64::NAN,
        }
    }

    /// A figure of what was dirty. NaN without write-back.
    #[must_use]
    pub fn dirty(&self, figure: fn(Dirty) -> f64) -> f64 {
        self.dirty.map_or(f64::NAN, figure)
    }

    /// Operations charged for each request at one of the gates.
    #[must_use]
    pub fn ops_per_request(&self, ops: u64) -> f64 {
        ops as f64 / self.answers.count as f64
    }
}

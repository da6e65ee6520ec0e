//! Infers what a volume really gives from how long it takes to answer.
//!
//! A contract may be wrong, or shared: a backup or another machine drains the same bucket. Then the provider delays
//! requests that the gate let go, in an order that no gate controls. The estimate notices, lowers the share that the
//! gate uses until the provider answers at once again, and sometimes tries for more: multiplicative decrease, additive
//! increase (docs/adr/0011-pressure-and-estimate.md).
//!
//! ```text
//!   factor 1 ─┐  slow 2 s         ┌─ 1 %/s ─┐  slow 1 s
//!             └──┐   ┌── hold ────┘         └──┐   ┌── hold, twice as long ── ...
//!                └───┘  ×0.85                  └───┘
//! ```
//!
//! A throttled volume delays every I/O; a volume on a bad day delays a few for long. So an interval is *slow* when over
//! a quarter of its I/Os took more than twice the volume's known 99th percentile. A tail alone, however heavy, is not
//! slow.
//!
//! Slowness has other causes than a bucket. If the volume is still slow at half of the rate that it first gave while
//! slow, lowering is no cure: the estimate returns to the full share, and waits until the volume has been calm for a
//! while.

use std::time::Duration;

use crate::contract::{Contract, Cost, Counted};
use crate::latency::Times;
use crate::time::Instant;

/// Time between two looks.
pub const INTERVAL: Duration = Duration::from_millis(500);

/// An interval with fewer I/Os says nothing.
const ANSWERED_MIN: u64 = 16;

/// A share is too large after so long a slow time. Shorter after a raise, because the share is known to have been too
/// large before; but the queue at the provider takes time to drain.
const PATIENCE: Duration = Duration::from_secs(2);
const PATIENCE_AGAIN: Duration = Duration::from_secs(1);

const LOWER: f64 = 0.85;
const LOWER_MOST: f64 = 0.75;
const RAISE_PER_SEC: f64 = 0.01;

/// The least part of the configured share: some work always goes on, and shows when the volume recovers.
pub const FACTOR_MIN: f64 = 0.05;

/// How long a share is kept before it is raised; doubled each time that a raise failed.
const HOLD_MIN: Duration = Duration::from_secs(4);
const HOLD_MAX: Duration = Duration::from_secs(32);

/// After a cure that failed, slowness counts again once the volume was calm for this long.
const CALM_AGAIN: Duration = Duration::from_secs(5);

/// Lowered for this long, it is worth a warning.
const REPORT_AFTER: Duration = Duration::from_secs(60);

/// The properties of an I/O on which its time depends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IoKind {
    /// A read of at most [`IoKind::SMALL_MAX`].
    SmallRead,
    /// A read of more.
    LargeRead,
    /// A write of at most [`IoKind::SMALL_MAX`].
    SmallWrite,
    /// A write of more.
    LargeWrite,
}

impl IoKind {
    /// Number of kinds.
    pub const COUNT: usize = 4;

    /// Up to this many bytes, the transfer time is negligible.
    pub const SMALL_MAX: usize = 16 * 1024;

    /// The kind of an I/O of `len` bytes.
    #[must_use]
    pub const fn of(is_write: bool, len: usize) -> Self {
        match (is_write, len <= Self::SMALL_MAX) {
            (false, true) => Self::SmallRead,
            (false, false) => Self::LargeRead,
            (true, true) => Self::SmallWrite,
            (true, false) => Self::LargeWrite,
        }
    }

    /// Its position among the kinds.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// All I/O of a volume so far.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// How long the I/Os took, indexed by [`IoKind::index`].
    pub answers: [Times; IoKind::COUNT],
    /// Their cost.
    pub spent: Cost,
}

/// What the gate should do now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Advice {
    /// Use this part of the configured share.
    Use(f64),
    /// Assume no burst credits: they are spent.
    ForgetCredits,
    /// Log a warning: for a minute the volume has given only this part of its contract.
    Report(f64),
}

/// The estimate of one volume.
#[derive(Clone, Debug)]
pub struct Estimate {
    contract: Contract,
    bases: [Base; IoKind::COUNT],
    seen: Seen,
    looked_at: Instant,
    factor: f64,
    slow_for: Duration,
    calm_for: Duration,
    hold: Duration,
    hold_until: Instant,
    /// The last factor without slowness, before it was raised.
    good: f64,
    /// Whether the factor was raised since it was last lowered.
    raised: bool,
    episode: Option<Episode>,
    /// Lowering did not help: the slowness has another cause.
    gave_up: bool,
}

/// A time during which the gate uses less than the configured share.
#[derive(Clone, Copy, Debug)]
struct Episode {
    since: Instant,
    /// The part of the contract spent in the first slow interval, and its average over the slow intervals since.
    first: f64,
    available: f64,
    reported: bool,
}

/// How long a kind of I/O takes without throttling.
#[derive(Clone, Copy, Debug)]
enum Base {
    /// The contract says it.
    Known(Duration),
    /// The contract does not say it; the fastest interval so far had this 99th percentile.
    Learned(Option<Duration>),
}

impl Base {
    const fn p99(self) -> Option<Duration> {
        match self {
            Self::Known(p99) => Some(p99),
            Self::Learned(p99) => p99,
        }
    }
}

impl Estimate {
    /// An estimate without measurements of a volume under `contract`.
    #[must_use]
    pub fn new(contract: &Contract, now: Instant) -> Self {
        Self {
            bases: bases(contract),
            contract: contract.clone(),
            seen: Seen::default(),
            looked_at: now,
            factor: 1.0,
            slow_for: Duration::ZERO,
            calm_for: Duration::ZERO,
            hold: HOLD_MIN,
            hold_until: now,
            good: 1.0,
            raised: false,
            episode: None,
            gave_up: false,
        }
    }

    /// Other terms: discards the results under the old ones.
    pub fn set_contract(&mut self, contract: &Contract, now: Instant) {
        let seen = std::mem::take(&mut self.seen);
        *self = Self { seen, ..Self::new(contract, now) };
    }

    /// The part of the configured share to use.
    #[must_use]
    pub const fn factor(&self) -> f64 {
        self.factor
    }

    /// The part of its contract that the volume was found to give; `None` while it seems to give all.
    #[must_use]
    pub fn available(&self) -> Option<f64> {
        self.episode.map(|episode| episode.available)
    }

    /// Looks at all I/O so far. `credits` is the part of the burst credits that the budget assumes, `rho` the
    /// configured share. To be called every [`INTERVAL`], or later if there is no I/O.
    pub fn look(
        &mut self,
        now: Instant,
        seen: Seen,
        rho: f64,
        credits: Option<f64>,
    ) -> Option<Advice> {
        let passed = now.since(self.looked_at);
        let verdict = self.judge(&seen);
        let spent = self.part_spent(&seen, passed);
        (self.seen, self.looked_at) = (seen, now);
        match verdict {
            None => {}
            Some(true) => {
                self.slow_for += passed.min(2 * INTERVAL);
                self.calm_for = Duration::ZERO;
            }
            Some(false) => {
                self.slow_for = Duration::ZERO;
                self.calm_for += passed.min(2 * INTERVAL);
            }
        }
        if self.gave_up {
            self.gave_up = self.calm_for < CALM_AGAIN;
            return None;
        }
        if verdict == Some(true) {
            if let Some(episode) = &mut self.episode {
                episode.available += (spent - episode.available) / 4.0;
            }
            let patience = if self.raised { PATIENCE_AGAIN } else { PATIENCE };
            return if self.slow_for < patience {
                None
            } else if credits.is_some_and(|part| part > 0.0) {
                self.slow_for = Duration::ZERO;
                Some(Advice::ForgetCredits)
            } else {
                Some(self.lower(now, spent, rho))
            };
        }
        if self.factor < 1.0 && now >= self.hold_until {
            return Some(self.raise(passed));
        }
        self.report(now)
    }

    /// Whether the last interval was slow; `None` if it had too few I/Os to tell.
    fn judge(&mut self, seen: &Seen) -> Option<bool> {
        let (mut answered, mut slow) = (0, 0);
        for (base, (now, then)) in
            self.bases.iter_mut().zip(seen.answers.iter().zip(&self.seen.answers))
        {
            let interval = now.since(then);
            let count = interval.count();
            if let Base::Learned(least) = base
                && count >= ANSWERED_MIN
            {
                let p99 = interval.quantile(0.99);
                *least = least.map_or(p99, |least| p99.map(|p99| p99.min(least)));
            }
            if let Some(p99) = base.p99() {
                answered += count;
                slow += interval.longer_than(2 * p99);
            }
        }
        (answered >= ANSWERED_MIN).then_some(slow * 4 > answered)
    }

    /// The part of the contract spent since the last look.
    fn part_spent(&self, seen: &Seen, passed: Duration) -> f64 {
        let limits = self.contract.limits.iter();
        let parts = limits.map(|limit| {
            let spent = match limit.counts {
                Counted::Ops => seen.spent.ops.saturating_sub(self.seen.spent.ops),
                Counted::Bytes => seen.spent.bytes.saturating_sub(self.seen.spent.bytes),
            };
            spent as f64 / (limit.rate_per_sec as f64 * passed.as_secs_f64().max(1e-9))
        });
        parts.fold(0.0, f64::max)
    }

    fn lower(&mut self, now: Instant, spent: f64, rho: f64) -> Advice {
        self.slow_for = Duration::ZERO;
        let episode = self.episode.get_or_insert(Episode {
            since: now,
            first: spent,
            available: spent,
            reported: false,
        });
        if self.factor * rho < episode.first / 2.0 || self.factor <= FACTOR_MIN {
            let seen = std::mem::take(&mut self.seen);
            *self = Self { seen, gave_up: true, ..Self::new(&self.contract.clone(), now) };
            return Advice::Use(1.0);
        }
        if self.raised {
            self.hold = (2 * self.hold).min(HOLD_MAX);
            self.raised = false;
        } else {
            self.good = self.factor;
        }
        self.hold_until = now + self.hold;
        // A rate far above the real one would have to be lowered many times before it has an effect.
        let felt = 1.05 * spent.max(episode.available) / rho;
        // Return to the last factor that went well before a raise, if it is near.
        let good = self.good.max(self.factor * LOWER_MOST);
        self.factor = (self.factor * LOWER).min(felt).min(good).max(FACTOR_MIN);
        Advice::Use(self.factor)
    }

    fn raise(&mut self, passed: Duration) -> Advice {
        if !self.raised {
            (self.raised, self.good) = (true, self.factor);
        }
        self.factor = (self.factor + RAISE_PER_SEC * passed.as_secs_f64()).min(1.0);
        if self.factor >= 1.0 {
            self.episode = None;
            self.raised = false;
            self.hold = HOLD_MIN;
        }
        Advice::Use(self.factor)
    }

    fn report(&mut self, now: Instant) -> Option<Advice> {
        let episode = self.episode.as_mut()?;
        if episode.reported || now.since(episode.since) < REPORT_AFTER {
            return None;
        }
        episode.reported = true;
        Some(Advice::Report(episode.available))
    }
}

fn bases(contract: &Contract) -> [Base; IoKind::COUNT] {
    // A large I/O may be forwarded whole, at the paid bandwidth, once on its way.
    let moving = contract.paid_bytes_per_sec().map_or(Duration::from_millis(1), |rate| {
        Duration::from_secs_f64(contract.op_bytes_max as f64 / rate as f64)
    });
    let known = |p99: Duration, more: Duration| match p99 {
        Duration::ZERO => Base::Learned(None),
        p99 => Base::Known(p99 + more),
    };
    let (read, write) = (contract.latency.read.p99, contract.latency.write.p99);
    [
        known(read, Duration::ZERO),
        known(read, moving),
        known(write, Duration::ZERO),
        known(write, moving),
    ]
}

#[cfg(test)]
mod tests;

//! The unspent part of a contract: a mirror of the provider's buckets, kept a little below them, so that the provider
//! never throttles (Calcspar, ATC 2023).
//!
//! ```text
//!   provider's limit:  rate r ──────► depth b, starts full
//!   our mirror of it:  rate rho·r ──► depth max(beta·r, 8 operations) ≤ b, starts empty
//! ```
//!
//! Every limit of the contract has its mirror, and a request goes when all of them cover it
//! (docs/adr/0003-one-bucket-per-limit.md). Mirrors start empty: after a crash loop, a full mirror would meet the
//! provider's empty bucket. With rho below 1, the provider's bucket always holds at least as much as the mirror, under
//! any load.
//!
//! A limit that saves up more than a second's worth holds *credits*: gp2's sustained rate, beside the limit for its
//! bursts. Credits are sold to be saved, so the mirror holds them too, less the same part of a second: max(b − (1 −
//! beta)·r, …). The provider does not report how many there are at the start; the [`Share`] says it, and assumes none
//! by default.
//!
//! [`Budget`] never blocks and reads no clock: it says exactly when to come back. Its unit is small enough that each
//! nanosecond earns a whole number: no fraction is lost.

use std::time::Duration;

use crate::contract::{Contract, Cost, Counted, Limit};
use crate::time::{Instant, NANOS_PER_SEC};

/// The most operations of one request, so that its wait for tokens never blocks the queue for long. The caller splits
/// larger requests (Calcspar, ATC 2023).
pub const REQUEST_OPS_MAX: u64 = 8;

/// The longest time that earns tokens in one step, unless the caller was told to wait longer: the time of a suspended
/// machine, or of a jump of the clock, must not count as saved up (Calcspar, ATC 2023).
const ELAPSED_MAX: Duration = Duration::from_secs(1);

const MILLION: u32 = 1_000_000;

/// One token in the unit of the accounts: a nanosecond of a millionth of a token a second.
const TOKEN: u128 = NANOS_PER_SEC as u128 * MILLION as u128;

/// How much of a contract the budget uses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Share {
    rho_ppm: u32,
    beta_ppm: u32,
    credits_ppm: u32,
}

/// How much of the configured share is used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Of its rate: above 0, at most 1.
    pub rate: f64,
    /// Of its depth: from 0, only what one request needs, to 1.
    pub depth: f64,
}

impl Part {
    /// All of it.
    pub const ALL: Self = Self { rate: 1.0, depth: 1.0 };
}

/// An invalid share.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ShareError {
    /// The rate would be 0 or exceed the contract.
    #[error("rho is {0}, but must be above 0 and at most 1")]
    Rho(f64),
    /// More than a second's worth would be saved up.
    #[error("beta is {0}, but must be between 0 and 1")]
    Beta(f64),
    /// More credits than the limit holds.
    #[error("credits is {0}, but must be between 0 and 1")]
    Credits(f64),
}

impl Share {
    /// Uses `rho` of each paid rate (more: closer to the line, less slack for the provider's own accounting). Saves up
    /// at most `beta` seconds of it while idle (more: longer bursts, less of the provider's saving in reserve). Both
    /// are rounded to millionths.
    ///
    /// # Errors
    /// When `rho` is not in (0, 1] or `beta` not in [0, 1].
    pub fn new(rho: f64, beta: f64) -> Result<Self, ShareError> {
        let ppm = |share: f64| (share * f64::from(MILLION)).round() as u32;
        if !(rho > 0.0 && rho <= 1.0 && ppm(rho) > 0) {
            return Err(ShareError::Rho(rho));
        }
        if !(0.0..=1.0).contains(&beta) {
            return Err(ShareError::Beta(beta));
        }
        Ok(Self { rho_ppm: ppm(rho), beta_ppm: ppm(beta), credits_ppm: 0 })
    }

    /// Assumes that this part of the burst credits is there at the start. Only a caller that knows should say more than
    /// 0: a new volume has all of them (1), and credits that are assumed but missing become overdrafts.
    ///
    /// # Errors
    /// When `credits` is not in [0, 1].
    pub fn with_credits(self, credits: f64) -> Result<Self, ShareError> {
        if !(0.0..=1.0).contains(&credits) {
            return Err(ShareError::Credits(credits));
        }
        Ok(Self { credits_ppm: (credits * f64::from(MILLION)).round() as u32, ..self })
    }

    /// The same with this part (0 to 1) of its rho and of its beta; rho stays above 0.
    #[must_use]
    pub fn lowered(self, Part { rate, depth }: Part) -> Self {
        let part = |ppm: u32, part: f64| (f64::from(ppm) * part.clamp(0.0, 1.0)).round() as u32;
        Self {
            rho_ppm: part(self.rho_ppm, rate).max(1),
            beta_ppm: part(self.beta_ppm, depth),
            ..self
        }
    }

    /// The share of each paid rate that is used.
    #[must_use]
    pub fn rho(self) -> f64 {
        f64::from(self.rho_ppm) / f64::from(MILLION)
    }

    /// The part of a second's tokens that may be saved up.
    #[must_use]
    pub fn beta(self) -> f64 {
        f64::from(self.beta_ppm) / f64::from(MILLION)
    }

    /// The part of the burst credits that is assumed at the start.
    #[must_use]
    pub fn credits(self) -> f64 {
        f64::from(self.credits_ppm) / f64::from(MILLION)
    }
}

impl Default for Share {
    /// rho 0.98, beta 0.9, no credits. That saves nearly all that the provider does; tokens not spent in a lull are
    /// lost. The provider's extra tenth of a second covers grants that reach it late
    /// (docs/adr/0009-the-scheduler-of-a-gate.md).
    fn default() -> Self {
        Self { rho_ppm: 980_000, beta_ppm: 900_000, credits_ppm: 0 }
    }
}

/// May a request go to the volume now?
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Admission {
    /// Go: it is already charged.
    Now,
    /// Nothing was charged; it can go at this time and no earlier.
    At(Instant),
}

/// The unspent part of one volume's contract.
#[derive(Clone, Debug)]
pub struct Budget {
    share: Share,
    buckets: Vec<Bucket>,
    largest: Cost,
    updated_at: Instant,
    /// The latest time that a caller was told to come back at: until then all time earns.
    promised_at: Instant,
}

impl Budget {
    /// A budget for every limit of `contract`: empty, except for the credits that the share assumes.
    ///
    /// # Panics
    /// When a limit is zero: such a contract could never admit anything.
    #[must_use]
    pub fn new(contract: &Contract, share: Share, now: Instant) -> Self {
        let buckets: Vec<_> =
            contract.limits.iter().map(|limit| Bucket::new(limit, contract, share)).collect();
        let most = |ops: bool, most: u64| {
            let buckets = buckets.iter().filter(|bucket| bucket.counts.is_ops() == ops);
            buckets.map(Bucket::holds).fold(most, u64::min)
        };
        let largest = Cost::either(
            most(true, REQUEST_OPS_MAX),
            most(false, REQUEST_OPS_MAX * contract.op_bytes_max),
        );
        Self { share, buckets, largest, updated_at: now, promised_at: now }
    }

    /// Charges `cost` if every bucket covers it.
    ///
    /// # Panics
    /// When `cost` exceeds [`Budget::largest`]: it could wait for ever.
    pub fn admit(&mut self, now: Instant, cost: Cost) -> Admission {
        self.admit_above(now, cost, Cost::default())
    }

    /// Charges `cost` if every bucket covers it and still holds `left` after that, or as much of `left` as a full one
    /// would.
    ///
    /// # Panics
    /// As [`Budget::admit`].
    pub fn admit_above(&mut self, now: Instant, cost: Cost, left: Cost) -> Admission {
        assert!(
            self.covers(cost),
            "{cost:?} must be split: the most at once is {:?}",
            self.largest
        );
        self.earn(now);
        let wait = self.buckets.iter().map(|bucket| bucket.wait(cost, left)).max();
        let wait = wait.unwrap_or_default();
        if wait.is_zero() {
            self.buckets.iter_mut().for_each(|bucket| bucket.charge(cost));
            return Admission::Now;
        }
        let at = self.updated_at + wait;
        self.promised_at = self.promised_at.max(at);
        Admission::At(at)
    }

    /// When `cost` could be charged with `left` above it, if only `before` is charged first; `before` may exceed what
    /// the budget ever holds. `None` if at once.
    #[must_use]
    pub fn expected(&self, before: Cost, cost: Cost, left: Cost) -> Option<Instant> {
        let wait = self.buckets.iter().map(|bucket| bucket.wait_behind(before, cost, left)).max();
        let wait = wait.unwrap_or_default();
        (!wait.is_zero()).then(|| self.updated_at + wait)
    }

    /// Returns a charge that was not used. What exceeds the depth is lost.
    pub fn refund(&mut self, cost: Cost) {
        self.buckets.iter_mut().for_each(|bucket| bucket.refund(cost));
    }

    /// Uses new terms from now on. Saved tokens stay, to the last fraction, up to the new depth. No token is given: a
    /// kind of limit that is new starts empty.
    pub fn set_contract(&mut self, contract: &Contract, now: Instant) {
        self.earn(now);
        let changed = Self::new(contract, self.share, self.updated_at);
        self.change_to(changed);
    }

    /// Uses another share of `contract`, the terms in force, from now on. Saved tokens stay, up to the new depth. The
    /// share's credits apply at the start only.
    pub fn set_share(&mut self, share: Share, contract: &Contract, now: Instant) {
        self.earn(now);
        let changed = Self::new(contract, share, self.updated_at);
        self.change_to(changed);
    }

    /// Discards accumulated tokens, including burst credits: the volume shows that it has none. New ones are earned
    /// from `until` on: until then the volume needs its own for the requests that it has.
    pub fn forget_saved(&mut self, until: Instant) {
        self.buckets.iter_mut().for_each(|bucket| bucket.saved = 0);
        self.updated_at = self.updated_at.max(until);
    }

    /// The credits left, as a part of their capacity; `None` if the contract has none.
    #[must_use]
    pub fn credits(&self) -> Option<f64> {
        let part = |bucket: &Bucket| bucket.saved as f64 / bucket.depth as f64;
        self.buckets.iter().filter(|bucket| bucket.is_credits).map(part).reduce(f64::min)
    }

    /// Assumes this part (0 to 1) of the burst credits from now on: an earlier budget of the volume had them. Other saved
    /// tokens stay.
    pub fn set_credits(&mut self, part: f64) {
        let ppm = (part.clamp(0.0, 1.0) * f64::from(MILLION)).round() as u32;
        for bucket in self.buckets.iter_mut().filter(|bucket| bucket.is_credits) {
            bucket.saved = bucket.depth / u128::from(MILLION) * u128::from(ppm);
        }
    }

    fn change_to(&mut self, mut changed: Self) {
        for counts in Counted::ALL {
            let kind = |bucket: &&Bucket| bucket.counts == counts;
            let least = self.buckets.iter().filter(kind).map(|old| old.saved).min();
            // Each new bucket takes over the saved tokens of the old one of the same kind and position. An additional
            // one gets the smallest saving of its kind.
            let mut old = self.buckets.iter().filter(kind);
            for bucket in changed.buckets.iter_mut().filter(|bucket| bucket.counts == counts) {
                let saved = old.next().map(|old| old.saved).or(least).unwrap_or_default();
                bucket.saved = saved.min(bucket.depth);
            }
        }
        *self = changed;
    }

    /// The most that can be saved up of each kind: the smallest bucket's whole tokens, or `u64::MAX` without a limit.
    #[must_use]
    pub fn holds(&self) -> Cost {
        Cost::each(|counts| {
            let buckets = self.buckets.iter().filter(|bucket| bucket.counts == counts);
            buckets.map(Bucket::holds).min().unwrap_or(u64::MAX)
        })
    }

    /// How long it takes to earn `cost`, in nanoseconds, at the slowest limit.
    #[must_use]
    pub fn nanos(&self, cost: Cost) -> f64 {
        let nanos =
            self.buckets.iter().map(|bucket| bucket.price(cost) as f64 / bucket.rate as f64);
        nanos.fold(0.0, f64::max)
    }

    /// How long it takes, without spending, until one of the limits that do not cover `cost` and `left` is full.
    /// `Duration::MAX` if all cover them.
    #[must_use]
    pub fn full_in(&self, cost: Cost, left: Cost) -> Duration {
        let short = self.buckets.iter().filter(|bucket| !bucket.wait(cost, left).is_zero());
        let nanos = short.map(|bucket| (bucket.depth - bucket.saved) / bucket.rate).min();
        nanos.map_or(Duration::MAX, |nanos| {
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        })
    }

    /// The most that one request may cost: eight operations, or less where a bucket holds less.
    #[must_use]
    pub const fn largest(&self) -> Cost {
        self.largest
    }

    /// Whether reads and writes share no limit, so that neither waits for tokens that the other could spend.
    #[must_use]
    pub fn counts_apart(&self) -> bool {
        let is_shared = |bucket: &Bucket| matches!(bucket.counts, Counted::Ops | Counted::Bytes);
        !self.buckets.is_empty() && !self.buckets.iter().any(is_shared)
    }

    const fn covers(&self, cost: Cost) -> bool {
        cost.ops <= self.largest.ops && cost.bytes <= self.largest.bytes
    }

    /// Earns for the time until `now`; time that runs backwards earns nothing.
    fn earn(&mut self, now: Instant) {
        let counted_from = self.updated_at + ELAPSED_MAX;
        let earns_until = now.min(counted_from.max(self.promised_at));
        let elapsed = earns_until.since(self.updated_at);
        self.buckets.iter_mut().for_each(|bucket| bucket.earn(elapsed));
        self.updated_at = self.updated_at.max(now);
    }
}

/// The mirror of one limit. Amounts are in the unit of [`TOKEN`].
#[derive(Clone, Debug)]
struct Bucket {
    counts: Counted,
    /// Earnings each nanosecond.
    rate: u128,
    depth: u128,
    saved: u128,
    /// Whether it saves up more than a second's worth.
    is_credits: bool,
}

impl Bucket {
    fn new(limit: &Limit, contract: &Contract, share: Share) -> Self {
        assert!(limit.rate_per_sec > 0 && limit.depth > 0, "a limit of zero admits nothing");
        let request_max =
            REQUEST_OPS_MAX * if limit.counts.is_ops() { 1 } else { contract.op_bytes_max };
        let rate = u128::from(limit.rate_per_sec);
        let seconds = |ppm: u32| rate * u128::from(ppm) * u128::from(NANOS_PER_SEC);
        let is_credits = limit.is_credits();
        let saves = if is_credits {
            tokens(limit.depth).saturating_sub(seconds(MILLION - share.beta_ppm))
        } else {
            seconds(share.beta_ppm)
        };
        let depth = saves.max(tokens(request_max)).min(tokens(limit.depth));
        let credits_ppm = if is_credits { share.credits_ppm } else { 0 };
        Self {
            counts: limit.counts,
            rate: rate * u128::from(share.rho_ppm),
            depth,
            saved: depth / u128::from(MILLION) * u128::from(credits_ppm),
            is_credits,
        }
    }

    /// Whole tokens it can save up.
    fn holds(&self) -> u64 {
        u64::try_from(self.depth / TOKEN).expect("at most the depth of the limit, which is a u64")
    }

    fn earn(&mut self, elapsed: Duration) {
        let earned = elapsed.as_nanos().saturating_mul(self.rate);
        self.saved = self.saved.saturating_add(earned).min(self.depth);
    }

    fn wait(&self, cost: Cost, left: Cost) -> Duration {
        self.wait_behind(Cost::default(), cost, left)
    }

    fn wait_behind(&self, before: Cost, cost: Cost, left: Cost) -> Duration {
        let own = self.price(cost);
        let price = self.price(before) + (own + self.price(left)).min(self.depth);
        // A request that spends nothing here need not leave anything either: a write beside a limit of reads.
        if own == 0 || price <= self.saved {
            return Duration::ZERO;
        }
        let nanos = (price - self.saved).div_ceil(self.rate);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn charge(&mut self, cost: Cost) {
        self.saved -= self.price(cost);
    }

    fn refund(&mut self, cost: Cost) {
        self.saved = (self.saved + self.price(cost)).min(self.depth);
    }

    fn price(&self, cost: Cost) -> u128 {
        tokens(cost.of(self.counts))
    }
}

fn tokens(tokens: u64) -> u128 {
    u128::from(tokens) * TOKEN
}

#[cfg(test)]
mod tests;

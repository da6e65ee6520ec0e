//! Infers what a volume really gives from how long it takes to answer.
//!
//! A contract may be wrong, or shared: a backup or another machine drains the same bucket; or it does not say how many
//! operations the provider's bucket saves up. Then the provider delays requests that the gate let go, in an order that
//! no gate controls. The estimate notices, and finds out which of two limits is too high
//! (docs/adr/0011-pressure-and-estimate.md):
//!
//! - the *depth*: the tokens that the gate saves up for bursts. A burst that the provider's bucket does not cover
//!   queues there, and answers are slow until the queue is gone. So the gate begins with a tenth, where the contract
//!   says nothing of a depth, and tries more step by step. From the first slow interval on it saves up less, and spends
//!   nothing until the queue is gone.
//! - the *rate*: if answers are slow although the gate saves up next to nothing, the volume gives less than the contract says.
//!   Then the gate uses what the volume was seen to give, and sometimes tries for more.
//!
//! ```text
//!   depth  ┌─ ×2 ─┐ slow                    ┌─ ×2 ...     rate 1 ─────────┐  slow 2 s more      ┌─ 8 %/s once, then 1 %/s ...
//!     1/10 ┘      └─ ×0.25 ─┐ still slow  ┌─┘                             └── what it gave ─hold┘
//!                           └─ least, hold┘
//! ```
//!
//! A throttled volume delays every I/O; a volume on a bad day delays a few for long. So an interval is *slow* when over
//! a quarter of its I/Os took more than twice the volume's usual 99th percentile, and waited for two operations at
//! least. A tail alone, however heavy, is not slow.
//!
//! A provider that stops the volume for the rest of a time slice delays few, but for long: at its rate, 0.09 of
//! late I/Os is enough to save up less.
//!
//! Slowness has other causes than a bucket. A volume that is slow, and yet does all that the gate asks of it, has
//! another cause: the estimate returns to the full share, and waits until the volume has been calm for a while.

mod usual;

use std::time::Duration;

pub use self::usual::IoKind;
use self::usual::Usual;
use crate::budget::{Part, Share};
use crate::contract::{Contract, Cost, Limit};
use crate::latency::Times;
use crate::time::Instant;

/// Time between two looks.
pub const INTERVAL: Duration = Duration::from_millis(500);

/// An interval with fewer I/Os says nothing.
const ANSWERED_MIN: u64 = 16;

/// A volume that did this part of its contract is at its rate, and bursts stall there if this part of its I/Os is late,
/// in that interval or in the next: while it stalls, callers that wait ask for less.
const AT_RATE: f64 = 0.9;
const STALLED: f64 = 0.09;

/// A share is too large after so long a slow time. Shorter after a raise, because the share is known to have been too
/// large before; but the queue at the provider takes time to drain.
const PATIENCE: Duration = Duration::from_secs(2);
const PATIENCE_AGAIN: Duration = Duration::from_secs(1);

/// A lowered rate is this part of what the volume did while it was slow: its queue shrinks.
const LOWER: f64 = 0.95;
/// One step keeps at least this part of the rate. What a volume does while it stalls (a failover takes seconds) says
/// nothing of what it gives after that.
const LOWER_MIN: f64 = 0.5;
/// A volume that is slow even at this part of what it did, and keeps pace, has another trouble.
const IN_VAIN: f64 = 0.7;
/// A volume that does this part of what is asked of it does all of it: a provider that gives less falls behind by more.
const KEEPS_PACE: f64 = 0.97;
const RAISE_PER_SEC: f64 = 0.01;
/// Factor on `RAISE_PER_SEC` for the first raise after the rate was lowered: after a stall the volume gives everything again. Where
/// it does not, a second of slowness ends that raise, and no later one is as fast. A tenth of the rate a second would go over
/// 0.9 where another client takes 0.3, while the tokens that the provider saved up last.
const RAISE_FIRST: f64 = 8.0;
/// The same below [`LOWER_MIN`] of what was bought. Only a volume that was slow for six seconds gets there, which other clients
/// seldom do to it, and a stall of some seconds often does.
const RAISE_FIRST_LOW: f64 = 20.0;
/// Only an interval that spends this part of the rate in use is a reason to raise it: an idle volume shows nothing.
const RAISE_TEST: f64 = 0.5;
/// Faster once that went well for a while. More would go far over what the volume gives while the tokens that its
/// provider saved up last.
const RAISE_FASTER: f64 = 2.0;
const FASTER_AFTER: Duration = Duration::from_secs(12);

/// The least part of the configured rate: some work always goes on, and shows when the volume recovers.
pub const RATE_MIN: f64 = 0.05;

/// How long a rate is kept before it is raised; doubled each time that a raise failed.
const HOLD_MIN: Duration = Duration::from_secs(4);
const HOLD_MAX: Duration = Duration::from_secs(32);

/// The part of the depth to begin with. A contract that says nothing of its depth is taken for one of a second; the
/// least that providers are known to save up is a tenth of one (Linux's `blkio.throttle`).
const DEPTH_FIRST: f64 = 0.1;

/// The least depth, in seconds: a busy machine wakes callers some milliseconds late, and what was earned meanwhile must
/// not be lost while they wait. And the steps by which the depth is raised.
const DEPTH_MIN: f64 = 0.02;
const DEPTH_RAISE: f64 = 2.0;

/// An interval that spends this part of the depth beyond the rate tests it. What is late may show in the next.
const DEPTH_TEST: f64 = 0.5;
/// Up to this many seconds the depth is raised without a test: no known provider saves up less, and under a load that
/// never ends an interval cannot tell such short bursts from its mean.
const DEPTH_SAFE: f64 = 0.1;

/// How long a depth is kept before it is raised: bursts test it.
const DEPTH_HOLD: Duration = Duration::from_secs(30);

/// How long a depth that was too much is not tried again; doubled each time.
const BAD_MIN: Duration = Duration::from_secs(60);
const BAD_MAX: Duration = Duration::from_secs(3600);

/// The longest queue at the volume that the gate waits for.
const QUEUE_MAX: Duration = Duration::from_secs(1);

/// After a cure that failed, slowness counts again once the volume was calm for this long.
const CALM_AGAIN: Duration = Duration::from_secs(5);

/// Credits that last for less than this many seconds of the sustained rate are no burst: a gate earns them between two
/// requests.
const CREDITS_MIN: f64 = 1.0;

/// Lowered for this long, it is worth a warning.
const REPORT_AFTER: Duration = Duration::from_secs(60);

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
    /// Use this much of the configured share.
    Use(Part),
    /// Use this much, without the tokens saved so far, and earn none for `queue`: so long does the volume take for the
    /// requests that it has.
    Lower {
        /// How much to use.
        part: Part,
        /// How long the requests at the volume take.
        queue: Duration,
    },
    /// Assume no burst credits: they are spent.
    ForgetCredits,
    /// Log a warning: for a minute the volume has given only this part of its contract.
    Report(f64),
}

/// What was found out of a volume, for the next start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Learned {
    /// The part of the bought rate to use.
    pub rate: f64,
    /// The part of the depth to use.
    pub depth: f64,
    /// The part of the depth that was too much; infinite if none was.
    pub bad: f64,
    /// How long that is not tried again.
    pub bad_for: Duration,
    /// How long its I/Os usually take, indexed by [`IoKind::index`]; `None` for a kind without enough of them.
    pub usual: [Option<Duration>; IoKind::COUNT],
    /// The burst credits that were left, as a part of their capacity; `None` without any, or where they are not known.
    pub credits: Option<f64>,
}

/// What the estimate found out about its volume: the reason for the [`Part`] in use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Finding {
    /// It gives all of its contract, as far as is known: the whole share is in use.
    GivesAll,
    /// It gives all of its rate; how much of the depth it covers is being tried.
    TriesDepth,
    /// Bursts queue at it: the depth is lowered.
    BurstsQueue,
    /// It gives less than its contract: the rate is lowered, and nothing is saved up.
    GivesLess,
    /// It is slow for another reason, and lowering did not help: the whole share is in use.
    SlowOtherwise,
}

impl Finding {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::GivesAll, Self::TriesDepth, Self::BurstsQueue, Self::GivesLess, Self::SlowOtherwise];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::GivesAll => "gives_all",
            Self::TriesDepth => "tries_depth",
            Self::BurstsQueue => "bursts_queue",
            Self::GivesLess => "gives_less",
            Self::SlowOtherwise => "slow_otherwise",
        }
    }
}

/// The estimate of one volume.
#[derive(Clone, Debug)]
pub struct Estimate {
    /// What the volume was bought with.
    bought: Contract,
    /// What the gate goes by: no more than was bought.
    contract: Contract,
    /// The part of the bought rate that is in `contract`. What is found out is kept as a part of what was bought, so
    /// that it outlasts other terms in force; what is measured is a part of `contract`.
    cap: f64,
    usual: Usual,
    seen: Seen,
    looked_at: Instant,
    /// The part of the bought rate that the volume gives; from the cap on all in force is used.
    rate: f64,
    depth: Depth,
    slow_for: Duration,
    calm_for: Duration,
    /// The time since the last slow interval began, and the part of the contract spent in it: how much the volume does.
    slow: Slow,
    hold: Duration,
    hold_until: Instant,
    /// The last rate without slowness, before it was raised; of what was bought.
    good: f64,
    /// The rate is being raised since then.
    raised_since: Option<Instant>,
    episode: Option<Episode>,
    /// Whether the last interval was at the contract's rate.
    was_at_rate: bool,
    /// How often the volume was slow although it did all that was asked of it.
    strikes: u32,
    /// Lowering did not help: the slowness has another cause.
    gave_up: bool,
}

/// The slow intervals since the last change.
#[derive(Clone, Copy, Debug, Default)]
struct Slow {
    passed: Duration,
    /// The part of the contract that was spent, times the seconds.
    spent: f64,
}

/// A time during which the gate uses less than the configured rate.
#[derive(Clone, Copy, Debug)]
struct Episode {
    since: Instant,
    /// The part of what was bought that the volume did when it was lowered first.
    first: f64,
    /// The same part spent in slow intervals, as a moving average.
    available: f64,
    reported: bool,
}

/// How much of the configured depth is used.
#[derive(Clone, Copy, Debug)]
struct Depth {
    part: f64,
    /// The part at which the volume was slow, and until when it is not tried again.
    bad: f64,
    bad_until: Instant,
    bad_for: Duration,
    hold_until: Instant,
    /// The last interval tested it.
    is_in_test: bool,
    /// A burst of it was answered in time.
    is_tested: bool,
    /// Slowness until then is still that of the last burst.
    again_until: Instant,
}

impl Depth {
    /// What to begin with under `contract`.
    fn first(contract: &Contract, now: Instant) -> Self {
        let mut limits = contract.limits.iter();
        let is_known = limits.any(|limit| limit.depth < limit.rate_per_sec);
        let part = if is_known || contract.limits.is_empty() { 1.0 } else { DEPTH_FIRST };
        Self { part, hold_until: now + DEPTH_HOLD, ..Self::whole() }
    }

    const fn whole() -> Self {
        Self {
            part: 1.0,
            bad: f64::INFINITY,
            bad_until: Instant::ZERO,
            bad_for: BAD_MIN,
            hold_until: Instant::ZERO,
            is_in_test: false,
            is_tested: false,
            again_until: Instant::ZERO,
        }
    }

    /// The volume is slow: uses a quarter, or only the `least` part where it was lowered just before. A depth of as few
    /// `seconds` as every provider saves up was not too much: the slowness has another cause.
    fn lower(&mut self, least: f64, seconds: f64, now: Instant) {
        // Nothing in between but the last queue: what was lowered just now was not enough.
        let again = now < self.again_until;
        if !again && seconds > DEPTH_SAFE {
            (self.bad, self.bad_until) = (self.part, now + self.bad_for);
            self.bad_for = (2 * self.bad_for).min(BAD_MAX);
        }
        self.part = if again { least } else { (self.part / 4.0).max(least) };
        self.again_until = now + HOLD_MIN;
        self.hold_until = now + DEPTH_HOLD;
        (self.is_in_test, self.is_tested) = (false, false);
    }

    /// Tries for more once bursts went well, unless that was too much not long ago. Whether it changed.
    fn raise(&mut self, now: Instant) -> bool {
        let next = (self.part * DEPTH_RAISE).clamp(DEPTH_MIN, 1.0);
        let is_bad = next >= self.bad && now < self.bad_until;
        if self.part >= 1.0 || !self.is_tested || now < self.hold_until || is_bad {
            return false;
        }
        self.part = next;
        self.hold_until = now + DEPTH_HOLD;
        (self.is_in_test, self.is_tested) = (false, false);
        true
    }
}

/// What an interval showed.
struct Interval {
    /// Whether it was slow; `None` with too few I/Os to tell.
    slow: Option<bool>,
    /// Whether a few I/Os took long.
    has_late: bool,
    /// Whether this was so at its rate.
    stalls: bool,
    /// The part of the contract that was spent.
    spent: f64,
    /// Nine of ten I/Os took no longer: so long is the volume's queue, about.
    queue: Duration,
}

impl Estimate {
    /// An estimate without measurements of a volume bought with `contract`, all of which is in force.
    #[must_use]
    pub fn new(contract: &Contract, now: Instant) -> Self {
        Self {
            usual: Usual::new(contract),
            bought: contract.clone(),
            contract: contract.clone(),
            cap: 1.0,
            seen: Seen::default(),
            looked_at: now,
            rate: 1.0,
            depth: Depth::first(contract, now),
            slow_for: Duration::ZERO,
            calm_for: Duration::ZERO,
            slow: Slow::default(),
            hold: HOLD_MIN,
            hold_until: now,
            good: 1.0,
            raised_since: None,
            episode: None,
            was_at_rate: false,
            strikes: 0,
            gave_up: false,
        }
    }

    /// The volume is bought with other terms: discards what it was found to give of the old ones. How long its I/Os take
    /// stays. Nothing happens if the terms are the same.
    pub fn set_contract(&mut self, contract: &Contract, now: Instant) {
        if *contract == self.bought {
            return;
        }
        let (seen, mut usual) = (std::mem::take(&mut self.seen), self.usual.clone());
        usual.set_contract(contract);
        *self = Self { seen, usual, ..Self::new(contract, now) };
    }

    /// The gate goes by `most` of what was bought from now on. Everything found out stays.
    pub fn set_most(&mut self, most: &Contract) {
        if *most == self.contract {
            return;
        }
        let limits = self.bought.limits.iter().zip(&most.limits);
        let parts = limits
            .map(|(bought, most)| (most.rate_per_sec as f64 / bought.rate_per_sec as f64).min(1.0));
        // The least restrictive limit counts: a part of the others that is too small is safe.
        self.cap = parts.reduce(f64::max).unwrap_or(1.0);
        self.contract = most.clone();
        (self.slow_for, self.slow) = (Duration::ZERO, Slow::default());
    }

    /// The part of the rate in force that is used.
    fn used(&self) -> f64 {
        (self.rate / self.cap).min(1.0)
    }

    /// What was found out so far. The estimate does not know the credits.
    #[must_use]
    pub fn learned(&self) -> Learned {
        let Depth { part, bad, bad_for, .. } = self.depth;
        let usual = self.usual.learned();
        Learned { rate: self.rate, depth: part, bad, bad_for, usual, credits: None }
    }

    /// An I/O of this kind was seen to take so long while nothing else was asked of the volume.
    pub fn resume_usual(&mut self, kind: IoKind, time: Duration) {
        self.usual.resume(kind, time);
    }

    /// Begins with what an earlier estimate of the volume found out.
    pub fn resume(&mut self, learned: &Learned, now: Instant) {
        let bad_for = learned.bad_for.clamp(BAD_MIN, BAD_MAX);
        self.depth = Depth {
            part: learned.depth.clamp(0.0, 1.0),
            bad: learned.bad,
            bad_until: now + bad_for,
            bad_for,
            hold_until: now + DEPTH_HOLD,
            ..Depth::whole()
        };
        for (kind, time) in IoKind::ALL.into_iter().zip(learned.usual) {
            time.into_iter().for_each(|time| self.usual.resume(kind, time));
        }
        self.rate = learned.rate.clamp(RATE_MIN, 1.0);
        if self.rate < 1.0 {
            self.good = self.rate;
            self.hold_until = now + self.hold;
            let (first, available) = (self.rate, self.rate);
            self.episode = Some(Episode { since: now, first, available, reported: false });
        }
    }

    /// How much of the configured share of the terms in force to use.
    #[must_use]
    pub fn part(&self) -> Part {
        let rate = self.used();
        // Tokens saved up would be spent on top of a rate that just fits.
        let depth = if rate < 1.0 { 0.0 } else { self.depth.part };
        Part { rate, depth }
    }

    /// The reason for [`Estimate::part`].
    #[must_use]
    pub fn finding(&self) -> Finding {
        match () {
            () if self.gave_up => Finding::SlowOtherwise,
            () if self.used() < 1.0 => Finding::GivesLess,
            () if self.depth.part >= 1.0 => Finding::GivesAll,
            () if self.depth.bad.is_finite() || self.depth.part < DEPTH_FIRST => {
                Finding::BurstsQueue
            }
            () => Finding::TriesDepth,
        }
    }

    /// The part of what was bought that the volume was found to give; `None` while it seems to give all.
    #[must_use]
    pub fn available(&self) -> Option<f64> {
        self.episode.map(|episode| episode.available)
    }

    /// Looks at all I/O so far. `credits` is the part of the burst credits that the budget assumes, `share` the
    /// configured one. To be called every [`INTERVAL`], or later if there is no I/O.
    pub fn look(
        &mut self,
        now: Instant,
        seen: Seen,
        share: Share,
        credits: Option<f64>,
    ) -> Option<Advice> {
        let passed = now.since(self.looked_at);
        let interval = self.interval(&seen, passed);
        (self.seen, self.looked_at) = (seen, now);
        let counted = passed.min(2 * INTERVAL);
        match interval.slow {
            None => {}
            Some(true) => {
                self.slow_for += counted;
                self.calm_for = Duration::ZERO;
                self.slow.passed += counted;
                self.slow.spent += interval.spent * counted.as_secs_f64();
            }
            Some(false) => {
                self.slow_for = Duration::ZERO;
                self.slow = Slow::default();
                self.calm_for += counted;
            }
        }
        if self.gave_up {
            self.gave_up = self.calm_for < CALM_AGAIN;
            return None;
        }
        if self.contract.limits.is_empty() {
            // It says nothing that could be too much.
            return None;
        }
        if interval.slow == Some(true) {
            return self.when_slow(now, &interval, share, credits);
        }
        self.strikes = if interval.slow == Some(false) { 0 } else { self.strikes };
        let used = self.used();
        if used < 1.0 {
            let is_tested = interval.spent >= RAISE_TEST * used * share.rho();
            return if is_tested && now >= self.hold_until {
                Some(self.raise(now, counted))
            } else {
                self.report(now)
            };
        }
        if interval.slow != Some(false) {
            return None;
        }
        let least = self.least_depth(share);
        // Assumed credits explain stalls too, and are forgotten first.
        if interval.stalls && !self.assumes_credits(credits) && self.depth.part > least {
            self.depth.lower(least, self.saved_up(share), now);
            let queue = interval.queue.min(QUEUE_MAX);
            return Some(Advice::Lower { part: self.part(), queue });
        }
        self.depth.is_tested |= self.depth.is_in_test && !interval.has_late;
        let burst = (interval.spent - share.rho()) * passed.as_secs_f64();
        let saved = self.saved_up(share);
        self.depth.is_in_test = burst >= DEPTH_TEST * saved || DEPTH_RAISE * saved <= DEPTH_SAFE;
        self.depth.raise(now).then(|| Advice::Use(self.part()))
    }

    fn interval(&mut self, seen: &Seen, passed: Duration) -> Interval {
        let answers: [Times; IoKind::COUNT] =
            std::array::from_fn(|kind| seen.answers[kind].since(&self.seen.answers[kind]));
        let ops = seen.spent.ops.saturating_sub(self.seen.spent.ops) as f64;
        let (answered, late) = self.usual.compare(&answers, ops / passed.as_secs_f64().max(1e-9));
        let slow = (answered >= ANSWERED_MIN).then_some(late * 4 > answered);
        let spent = self.part_spent(seen, passed);
        let has_late = slow.is_some() && late as f64 > STALLED * answered as f64;
        let is_at_rate = spent >= AT_RATE;
        let stalls = has_late && (is_at_rate || self.was_at_rate);
        self.was_at_rate = is_at_rate;
        // A volume that is slow for another reason than its limits has become slower: its times are the usual ones now.
        if (slow != Some(true) && !stalls) || self.gave_up {
            self.usual.learn(&answers);
        }
        let mut all = Times::default();
        answers.iter().for_each(|times| all.add(times));
        let queue = all.quantile(0.9).unwrap_or_default();
        Interval { slow, has_late, stalls, spent, queue }
    }

    /// Whether the budget counts on burst credits that the volume may not have.
    fn assumes_credits(&self, credits: Option<f64>) -> bool {
        let mut limits = self.contract.limits.iter().filter(|limit| limit.is_credits());
        let lasts = |limit: &Limit| limit.depth as f64 / limit.rate_per_sec as f64;
        credits.is_some_and(|part| limits.any(|limit| part * lasts(limit) > CREDITS_MIN))
    }

    /// The seconds of tokens that the gate saves up at most.
    fn saved_up(&self, share: Share) -> f64 {
        let held = |limit: &Limit| limit.depth as f64 / limit.rate_per_sec as f64;
        let configured = self.depth.part * share.beta();
        self.contract.limits.iter().map(held).fold(configured, f64::min)
    }

    /// The part of the configured depth that is always used while the rate is.
    fn least_depth(&self, share: Share) -> f64 {
        (DEPTH_MIN / share.beta().max(DEPTH_MIN)).min(1.0)
    }

    /// The part of the contract spent since the last look.
    fn part_spent(&self, seen: &Seen, passed: Duration) -> f64 {
        let spent = seen.spent.less(self.seen.spent);
        let parts = self.contract.limits.iter().map(|limit| {
            let paid = limit.rate_per_sec as f64 * passed.as_secs_f64().max(1e-9);
            spent.of(limit.counts) as f64 / paid
        });
        parts.fold(0.0, f64::max)
    }

    fn when_slow(
        &mut self,
        now: Instant,
        interval: &Interval,
        share: Share,
        credits: Option<f64>,
    ) -> Option<Advice> {
        if let Some(episode) = &mut self.episode {
            episode.available += (interval.spent * self.cap - episode.available) / 4.0;
        }
        // A volume answers within the second, unless it has trouble of another kind.
        let queue = interval.queue.min(QUEUE_MAX);
        if self.assumes_credits(credits) {
            let is_over = self.slow_for >= PATIENCE;
            self.slow_for = if is_over { Duration::ZERO } else { self.slow_for };
            return is_over.then_some(Advice::ForgetCredits);
        }
        let least = self.least_depth(share);
        if self.used() >= 1.0 && self.depth.part > least {
            self.depth.lower(least, self.saved_up(share), now);
            (self.slow_for, self.slow) = (Duration::ZERO, Slow::default());
            return Some(Advice::Lower { part: self.part(), queue });
        }
        let patience = if self.raised_since.is_some() { PATIENCE_AGAIN } else { PATIENCE };
        (self.slow_for >= patience).then(|| self.lower(now, queue, share.rho()))
    }

    /// Lowers the rate to what the volume did while it was slow. A volume that does all that is asked of it, and is slow
    /// nevertheless, gets the time to empty its queue, then a little less, and then up to the full rate again.
    fn lower(&mut self, now: Instant, queue: Duration, rho: f64) -> Advice {
        let did = self.slow.spent / self.slow.passed.as_secs_f64().max(1e-9);
        (self.slow_for, self.slow) = (Duration::ZERO, Slow::default());
        let (used, cap) = (self.used(), self.cap);
        let keeps_pace = did >= KEEPS_PACE * used * rho;
        let is_in_vain = keeps_pace
            && match self.episode {
                Some(episode) if self.strikes == 0 => used * cap * rho < IN_VAIN * episode.first,
                _ => self.strikes >= 2,
            };
        if self.raised_since.take().is_some() {
            self.hold = (2 * self.hold).min(HOLD_MAX);
            // Where a stall had lowered the rate far below what the volume gives, it shows what that is now.
            let gives = cap * LOWER * LOWER * did / rho;
            self.rate = gives.min(LOWER * self.rate).max(self.good);
        } else if is_in_vain || used <= RATE_MIN {
            let (seen, usual) = (std::mem::take(&mut self.seen), self.usual.clone());
            let (bought, contract) = (self.bought.clone(), self.contract.clone());
            let fresh = Self::new(&bought, now);
            *self = Self { seen, usual, contract, cap, gave_up: true, ..fresh };
            return Advice::Use(self.part());
        } else if keeps_pace && (self.episode.is_none() || self.strikes > 0) {
            if self.strikes > 0 {
                self.rate = LOWER * used * cap;
            }
            self.strikes += 1;
        } else {
            let least = (LOWER_MIN * used).max(RATE_MIN);
            self.rate = cap * (LOWER * did / rho).min(LOWER * used).max(least);
        }
        if self.used() < 1.0 {
            // Less depth did not help, so it was not too much.
            self.depth = Depth::first(&self.contract, now);
            self.episode.get_or_insert(Episode {
                since: now,
                first: did * cap,
                available: did * cap,
                reported: false,
            });
        }
        self.hold_until = now + self.hold;
        Advice::Lower { part: self.part(), queue }
    }

    /// Raises the rate for a time of `counted`: by a percent a second, [faster](RAISE_FASTER) later, and
    /// [faster still](RAISE_FIRST) if no raise failed yet.
    fn raise(&mut self, now: Instant, counted: Duration) -> Advice {
        let since = *self.raised_since.get_or_insert_with(|| {
            self.good = self.rate;
            now
        });
        let faster = match () {
            () if self.hold == HOLD_MIN && self.rate < LOWER_MIN => RAISE_FIRST_LOW,
            () if self.hold == HOLD_MIN => RAISE_FIRST,
            () if now.since(since) >= FASTER_AFTER => RAISE_FASTER,
            () => 1.0,
        };
        // More than the cap was not tried.
        self.rate = (self.rate + RAISE_PER_SEC * faster * counted.as_secs_f64()).min(self.cap);
        if self.used() >= 1.0 {
            self.episode = None;
            self.raised_since = None;
            self.hold = HOLD_MIN;
        }
        Advice::Use(self.part())
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

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::counts::{Counts, GENERATIONS};
use super::{Access, AccessKind, Verdict};
use crate::time::Instant;

/// The window in units of the capacity: at first, at least, at most.
const WINDOW: f64 = 2.0;
const WINDOW_MIN: f64 = 0.25;
const WINDOW_MAX: f64 = 8.0;

/// Accesses within the window for a promotion: at first, at most.
const THRESHOLD: u8 = 2;
const THRESHOLD_MAX: u8 = 8;

/// An access to a unit that was evicted lately counts as this many more. So it promotes at once, except where promotions
/// do not pay and the threshold is higher: under a uniform load a fifth of all misses may be ghosts.
const GHOST_ACCESSES: u32 = 1;

/// The window also ends after this time, so that an idle client's accesses of long ago do not count.
const WINDOW_TIME: Duration = Duration::from_hours(1);

/// A period takes at least this time and these accesses, so that its figures mean something, and as many accesses for
/// each unit of the capacity: in a shorter one, an average unit has fewer hits than a promotion costs however well it
/// was chosen, and large caches would promote ever less.
const PERIOD_TIME: Duration = Duration::from_secs(10);
const PERIOD_ACCESSES: u64 = 10_000;
const PERIOD_ACCESSES_A_UNIT: u64 = 4;

/// If promotions bring less than their cost in hits, the window shrinks by the first factor. If they bring four times
/// as much and more than a tenth of all misses are ghosts, it grows by the second.
const SHRINK: f64 = 0.8;
const GROW: f64 = 1.25;
const PAYS_WELL: f64 = 4.0;
const GHOST_RATE: f64 = 0.1;

/// If fewer than one of this many accesses promotes, promotions cost next to nothing whatever they bring, and the filter
/// returns towards its defaults: it would otherwise not notice when other units become hot.
const RARE: u64 = 200;

/// The settings of a filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The units that the cache can hold. The filter takes 16 bytes for each.
    pub capacity: u64,
    /// Whether writes count and may promote their units. Default: yes, which suits a cache that takes writes. Choose no
    /// for write-through, where only reads gain by a cached unit, and for loads whose logs are not recognised.
    pub writes: bool,
    /// The cost of a promotion, in hits that save as much. Default 2: a read of the slow pool and a write of the fast
    /// one. More: fewer promotions.
    pub cost_hits: f64,
}

impl Options {
    /// The defaults for a cache of `capacity` units.
    #[must_use]
    pub const fn new(capacity: u64) -> Self {
        Self { capacity, writes: true, cost_hits: 2.0 }
    }
}

/// When a unit was promoted: the caller keeps this with the unit, for [`Filter::hit`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Period(u16);

/// Counts accesses of units that are not cached, and says which to promote: those with `threshold` accesses among the
/// last `window` accesses of all units. One that was evicted lately needs one access less: at the default threshold of
/// two it is promoted at once.
///
/// The window is made of eight generations and is exact up to one of them: between 7/8 of it and all of it. It is in
/// accesses and not in time, so that a slow client's units have the same chance; only after an hour they lose it.
#[derive(Debug)]
pub struct Filter {
    options: Options,
    counts: Counts,
    /// In accesses.
    window: f64,
    threshold: u8,
    accesses: u64,
    generation: u16,
    /// The accesses in this generation, and its start.
    passed: u64,
    since: Instant,
    period: Period,
    /// The accesses before this period, and its start.
    accesses_before: u64,
    period_since: Instant,
    misses: u64,
    ghost_hits: u64,
    promotions: u64,
    /// Of the period before; `None` in the first one.
    promotions_before: Option<u64>,
    /// Hits on units that were promoted in the period before.
    hits: u64,
}

/// What a period has shown, and what follows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adjustment {
    /// Hits in this period for each promotion of the period before; `None` if there was no promotion.
    pub hits_per_promotion: Option<f64>,
    /// The share of misses whose unit was evicted lately, 0 to 1.
    pub ghost_rate: f64,
    /// The window from now on, in accesses.
    pub window: u64,
    /// The threshold from now on, in accesses within the window.
    pub threshold: u8,
}

impl Filter {
    /// A filter that knows no access yet. `now` is the start of its first period.
    #[must_use]
    pub fn new(options: Options, now: Instant) -> Self {
        Self {
            options,
            counts: Counts::new(tracked(options.capacity)),
            window: WINDOW * capacity(options),
            threshold: THRESHOLD,
            accesses: 0,
            generation: 0,
            passed: 0,
            since: now,
            period: Period(0),
            accesses_before: 0,
            period_since: now,
            misses: 0,
            ghost_hits: 0,
            promotions: 0,
            promotions_before: None,
            hits: 0,
        }
    }

    /// Notes an access to a unit that is not cached.
    ///
    /// An access that continues a run, or writes if writes do not count, moves the window but never promotes.
    pub fn note(&mut self, access: Access, now: Instant) -> Verdict {
        self.step(now);
        self.misses += 1;
        if access.sequential || (access.kind == AccessKind::Write && !self.options.writes) {
            return Verdict::Bypass;
        }
        let mut count = self.counts.add(access.unit, self.generation);
        if access.ghost {
            self.ghost_hits += 1;
            count += GHOST_ACCESSES;
        }
        if count >= u32::from(self.threshold) { Verdict::Promote } else { Verdict::Bypass }
    }

    /// Notes an access to a cached unit, which was promoted in this period.
    pub fn hit(&mut self, promoted: Period, now: Instant) {
        self.step(now);
        if promoted.0 == self.period.0.wrapping_sub(1) {
            self.hits += 1;
        }
    }

    /// Notes an access to a cached unit that the slow pool served: a write, or a read of a part that is not cached.
    pub fn pass(&mut self, now: Instant) {
        self.step(now);
    }

    /// Notes that a unit is cached from now on. Its accesses so far no longer count.
    pub fn promoted(&mut self, unit: u64) -> Period {
        self.counts.forget(unit);
        self.promotions += 1;
        self.period
    }

    /// Forgets the accesses of a unit that was deleted.
    pub fn forget(&mut self, unit: u64) {
        self.counts.forget(unit);
    }

    /// Ends the period if it took 10 s, 10,000 accesses, and four accesses for each unit of the capacity; then adjusts
    /// window and threshold to what promotions brought. Call it every few seconds; `None` if the period goes on.
    pub fn adjust(&mut self, now: Instant) -> Option<Adjustment> {
        let accesses = self.accesses - self.accesses_before;
        let least = PERIOD_ACCESSES.max(PERIOD_ACCESSES_A_UNIT * self.options.capacity);
        if now.since(self.period_since) < PERIOD_TIME || accesses < least {
            return None;
        }
        let ghost_rate = self.ghost_hits as f64 / self.misses.max(1) as f64;
        let promotions_before = self.promotions_before.filter(|&promotions| promotions > 0);
        let hits_per_promotion =
            promotions_before.map(|promotions| self.hits as f64 / promotions as f64);
        let is_rare = self.promotions_before.is_some() && self.promotions * RARE < accesses;
        match hits_per_promotion {
            _ if is_rare && self.misses > 0 && self.is_strict() => self.loosen(WINDOW, THRESHOLD),
            Some(hits) if hits < self.options.cost_hits => self.tighten(),
            Some(hits) if hits > PAYS_WELL * self.options.cost_hits && ghost_rate > GHOST_RATE => {
                self.loosen(WINDOW_MAX, 1);
            }
            _ => {}
        }
        self.period.0 = self.period.0.wrapping_add(1);
        self.period_since = now;
        self.accesses_before = self.accesses;
        self.promotions_before = Some(self.promotions);
        (self.promotions, self.hits, self.misses, self.ghost_hits) = (0, 0, 0, 0);
        let (window, threshold) = (self.window(), self.threshold);
        Some(Adjustment { hits_per_promotion, ghost_rate, window, threshold })
    }

    /// The window, in accesses of all units.
    #[must_use]
    pub const fn window(&self) -> u64 {
        self.window as u64
    }

    /// Accesses within the window for a promotion, 1 to 8.
    #[must_use]
    pub const fn threshold(&self) -> u8 {
        self.threshold
    }

    /// Accesses of all units so far: how old a verdict is.
    #[must_use]
    pub const fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Continues with the window and the threshold of before a restart, as far as the bounds allow. The accesses of
    /// before are not kept.
    pub fn resume(&mut self, window: u64, threshold: u8) {
        let capacity = capacity(self.options);
        self.window = (window as f64).clamp(WINDOW_MIN * capacity, WINDOW_MAX * capacity);
        self.threshold = threshold.clamp(1, THRESHOLD_MAX);
    }

    /// Changes the capacity; the window changes in proportion. The accesses of before are not kept.
    pub fn resize(&mut self, units: u64) {
        let before = capacity(self.options);
        self.options.capacity = units;
        self.window *= capacity(self.options) / before;
        self.counts = Counts::new(tracked(units));
    }

    /// Whether it promotes less than by default.
    fn is_strict(&self) -> bool {
        self.window < WINDOW * capacity(self.options) || self.threshold > THRESHOLD
    }

    fn tighten(&mut self) {
        let least = WINDOW_MIN * capacity(self.options);
        if self.window > least {
            self.window = (self.window * SHRINK).max(least);
        } else {
            self.threshold = (self.threshold + 1).min(THRESHOLD_MAX);
        }
    }

    /// At most to this window, in units of the capacity, then to this threshold.
    fn loosen(&mut self, window: f64, threshold: u8) {
        let most = window * capacity(self.options);
        if self.window < most {
            self.window = (self.window * GROW).min(most);
        } else if self.threshold > threshold {
            self.threshold -= 1;
        }
    }

    /// One access goes by.
    fn step(&mut self, now: Instant) {
        const GENERATION_NANOS: u64 = WINDOW_TIME.as_nanos() as u64 / GENERATIONS as u64;
        let elapsed = now.as_nanos().saturating_sub(self.since.as_nanos()) / GENERATION_NANOS;
        if elapsed > 0 {
            // Whole generations only, so that they end in time even if each has one access.
            let nanos = self.since.as_nanos() + elapsed * GENERATION_NANOS;
            let passed = elapsed.min(GENERATIONS.into()) as u16;
            self.generation = self.generation.wrapping_add(passed);
            (self.passed, self.since) = (0, Instant::from_nanos(nanos));
        } else if self.passed as f64 >= self.window / f64::from(GENERATIONS) {
            self.generation = self.generation.wrapping_add(1);
            (self.passed, self.since) = (0, now);
        }
        self.passed += 1;
        self.accesses += 1;
    }
}

/// The units that are counted: with hits among the accesses, more than a default window has misses.
fn tracked(capacity: u64) -> u64 {
    2 * capacity
}

fn capacity(options: Options) -> f64 {
    options.capacity.max(1) as f64
}

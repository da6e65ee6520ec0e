//! A case, and the measurement of it: each arm alone, in virtual time.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bench::compare;
use bench::report::Report;
use bench::tier::volumes::{Answers, Cell, Dirty, Load, Offer, Run, Wave, beside, sound};
use volume::Clock;
use volume::mem::Mem;

use super::arms::Arm;
use super::fixture::{Fixture, image};
use super::scale::Scale;

/// The lead of an arm without a cache: gates spend the tokens that they saved up.
const LEAD: Duration = Duration::from_secs(2);

/// Time between two looks at what is dirty.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// A busy time and an idle one as long. Each half lasts for five periods of the valve.
const WAVE: Duration = Duration::from_secs(10);

/// The least waves of a run.
const WAVES_MIN: u128 = 2;

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pace {
    /// So many are under way all the time.
    Closed(usize),
    /// So many come a second.
    Offered(u64),
    /// So many come a second in the first half of each [`WAVE`].
    Waves(u64),
}

impl Pace {
    /// At least `time`; with waves, whole ones, and no fewer than `waves`.
    fn whole(self, time: Duration, waves: u128) -> Duration {
        match self {
            Self::Closed(_) | Self::Offered(_) => time,
            Self::Waves(_) => {
                let waves = time.as_nanos().div_ceil(WAVE.as_nanos()).max(waves);
                WAVE * u32::try_from(waves).unwrap_or(u32::MAX)
            }
        }
    }
}

/// A load on several arms.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) arms: Vec<Arm>,
    /// What warms a cache.
    pub(super) warming: Load,
    pub(super) load: Load,
    pub(super) pace: Pace,
    /// Writes are durable when they are answered.
    pub(super) is_durable: bool,
    /// The part of the data that fits the cache, in percent.
    pub(super) cached_percent: u64,
}

impl compare::Case for Case {
    type Outcome = Run;

    fn name(&self) -> &str {
        &self.name
    }

    fn sound(report: &mut Report, cells: &[&Cell]) {
        sound(report, cells);
    }
}

/// Measures cases.
pub(super) struct Bencher {
    scale: Scale,
    seed: u64,
    image: Mem,
}

impl Bencher {
    pub(super) fn new(scale: Scale, seed: u64) -> anyhow::Result<Self> {
        Ok(Self { scale, seed, image: image(&scale)? })
    }

    /// Measures every arm of a case, until `stop` is set.
    pub(super) fn measure(&self, case: &Case, stop: &AtomicBool) -> anyhow::Result<Cell> {
        let mut cell = Cell::of(&case.name, case.arms.iter().map(|arm| arm.name()));
        for run in 0..self.scale.runs {
            for (side, &arm) in cell.sides.iter_mut().zip(&case.arms) {
                if !stop.load(Ordering::Relaxed) {
                    side.runs.push(self.run(case, arm, self.seed.wrapping_add(run))?);
                }
            }
        }
        Ok(cell)
    }

    fn run(&self, case: &Case, arm: Arm, seed: u64) -> anyhow::Result<Run> {
        let clock = Clock::simulated();
        let cache = self.scale.cache(case.cached_percent);
        clock.run(async {
            let fixture = Fixture::open(arm, cache, &self.image, &clock, seed, case.is_durable);
            let fixture = fixture.await?;
            let lead = if arm.is_cached() { self.scale.lead } else { LEAD };
            let work = async {
                let at_first = fixture.counted();
                let lead = case.pace.whole(lead, 1);
                let warmed =
                    self.load(case.warming, case.pace, &fixture, &clock, lead, seed).await?;
                let before = fixture.counted();
                let time = case.pace.whole(self.scale.time, WAVES_MIN);
                let again = seed ^ 1 << 40;
                let levels = RefCell::new(Vec::new());
                let sampled = sample(&fixture, &clock, &levels);
                let load = self.load(case.load, case.pace, &fixture, &clock, time, again);
                let answers = beside(load, sampled).await?;
                let dirty = arm.is_back().then(|| dirty(cache, &levels.into_inner()));
                let after = fixture.counted();
                anyhow::Ok(Run {
                    counted: after.since(&before),
                    is_cached: arm.is_cached(),
                    promoted_all: after.since(&at_first).promoted_bytes,
                    users_all: warmed.bytes + answers.bytes,
                    answers,
                    dirty,
                })
            };
            beside(work, fixture.work()).await
        })
    }

    async fn load(
        &self,
        load: Load,
        pace: Pace,
        fixture: &Fixture,
        clock: &Clock,
        time: Duration,
        seed: u64,
    ) -> anyhow::Result<Answers> {
        let (target, data) = (&*fixture.target, self.scale.data);
        match pace {
            Pace::Closed(depth) => load.closed(clock, target, data, depth, time, seed).await,
            Pace::Offered(per_sec) => {
                let offer = Offer { per_sec, wave: None };
                load.offered(clock, target, data, offer, time, seed).await
            }
            Pace::Waves(per_sec) => {
                let offer = Offer { per_sec, wave: Some(Wave::Halves(WAVE)) };
                load.offered(clock, target, data, offer, time, seed).await
            }
        }
    }
}

/// What was dirty of a cache, by samples in bytes.
fn dirty(cache: u64, levels: &[u64]) -> Dirty {
    let percent = |bytes: f64| 100.0 * bytes / cache as f64;
    let mean =
        |levels: &[u64]| percent(levels.iter().sum::<u64>() as f64 / levels.len().max(1) as f64);
    let (first, second) = levels.split_at(levels.len() / 2);
    let of = |level: Option<&u64>| percent(level.copied().unwrap_or(0) as f64);
    Dirty {
        mean: mean(levels),
        growth: mean(second) - mean(first),
        most: of(levels.iter().max()),
        last: of(levels.last()),
    }
}

/// Looks at what is dirty, for ever.
async fn sample(fixture: &Fixture, clock: &Clock, levels: &RefCell<Vec<u64>>) {
    loop {
        clock.sleep(SAMPLE_EVERY).await;
        levels.borrow_mut().extend(fixture.dirty_bytes());
    }
}

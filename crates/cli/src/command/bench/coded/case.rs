//! A case, and the measurement of it: a closed loop of every arm, then all of them at one rate.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bench::coded::{Cell, Offered, Rebuilt, Run, sound};
use bench::compare::{self, Late, at_once, groups, together};
use bench::report::Report;
use bench::spread::{Bench, Keys, Settings};
use bench::ycsb::Workload;
use policy::time::Instant;
use volume::Clock;
use volume::task::block_on;

use super::super::fixture::{GAP, levels};
use super::fixture::{Fixture, Image, OPENING};
use super::scale::{SHAPE, Scale, VOLUMES};
use super::schemes::{Arm, Scheme};

/// What is done to a store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Work {
    /// The load, which every store had.
    Load,
    /// A workload.
    Mix(Workload),
    /// A workload, while a lost volume is replaced.
    Replace(Workload),
}

/// The work, for several arms.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) arms: Vec<Arm>,
    pub(super) work: Work,
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

/// The largest sum of paid operations per second of stores that run at the same time: see `bench spread`.
const TOGETHER_IOPS_MAX: u64 = 8000;

/// The offered rate as a share of what the slowest arm of the case did in the closed loop. Below that every arm keeps up,
/// so latencies are not those of queues that grow.
pub(super) const OFFERED_SHARE: f64 = 0.7;

/// How the operations of a run start.
#[derive(Clone, Copy, Debug)]
enum Pace {
    /// When the ones before have ended.
    Closed,
    /// At this rate.
    Offered(u64),
    /// At this rate, until a lost volume is made good.
    UntilMadeGood(u64),
}

impl Case {
    /// The stores that run together: see [`groups`].
    fn groups(&self, scale: &Scale) -> anyhow::Result<Vec<Vec<(usize, u64)>>> {
        let paid = scale.contract()?.paid_iops().unwrap_or(0);
        let volumes = (VOLUMES * self.arms.len()) as u64;
        let fit = |runs: u64| runs * volumes * paid <= TOGETHER_IOPS_MAX;
        Ok(groups(self.arms.len(), scale.runs, fit))
    }

    /// The approximate duration.
    pub(super) fn takes(&self, scale: &Scale) -> anyhow::Result<Duration> {
        let groups = u32::try_from(self.groups(scale)?.len()).unwrap_or(u32::MAX);
        let loop_takes = scale.run_time() + scale.lead + OPENING;
        Ok(groups
            * match self.work {
                Work::Load => Duration::ZERO,
                Work::Mix(_) => 2 * loop_takes,
                Work::Replace(_) => loop_takes + scale.lead + OPENING + scale.rebuild_takes()?,
            })
    }

    /// The load of a store.
    fn mix(&self) -> Workload {
        match self.work {
            Work::Load => Workload::Load,
            Work::Mix(workload) | Work::Replace(workload) => workload,
        }
    }

    fn settings(&self, scale: &Scale, pace: Pace, seed: u64) -> Settings {
        let (target_per_sec, time) = match pace {
            Pace::Closed => (None, scale.run_time()),
            Pace::Offered(rate) => (Some(rate), scale.run_time()),
            Pace::UntilMadeGood(rate) => (Some(rate), scale.rebuild_max),
        };
        let (mix, keys) = (self.mix().mix().to_vec(), Keys::Ycsb(self.mix().distribution()));
        let (threads, lead) = (scale.threads, scale.lead);
        Settings { mix, keys, threads, lead, time, target_per_sec, seed }
    }
}

/// The rate of the open loop, after the closed one: see [`OFFERED_SHARE`].
fn offered(cell: &Cell) -> u64 {
    let slowest = cell.sides.iter().map(|side| side.median(Run::qps)).fold(f64::INFINITY, f64::min);
    // A run that was interrupted may have done nothing.
    (OFFERED_SHARE * slowest).max(1.0) as u64
}

/// Measures cases.
pub(super) struct Bencher<'b> {
    scale: Scale,
    clock: Clock,
    stop: &'b AtomicBool,
    seed: u64,
    images: Vec<Image>,
}

impl<'b> Bencher<'b> {
    pub(super) const fn new(scale: Scale, clock: Clock, stop: &'b AtomicBool, seed: u64) -> Self {
        Self { scale, clock, stop, seed, images: Vec::new() }
    }

    /// Loads a database on a pool of `scheme`. Returns the tables of each level.
    pub(super) fn load(&mut self, scheme: Scheme) -> anyhow::Result<Vec<u64>> {
        let image = Image::load(scheme, &self.scale, self.seed, &self.clock, self.stop)?;
        let fixture = image.open(0, &self.clock)?;
        let levels = levels(fixture.store.db());
        fixture.close()?;
        self.images.push(image);
        Ok(levels)
    }

    fn image(&self, scheme: Scheme) -> &Image {
        let image = self.images.iter().find(|image| image.is_of(scheme));
        image.expect("callers load before they measure")
    }

    /// Measures a case: every arm for each seed, on a fresh fork of its database.
    pub(super) fn measure(&self, case: &Case) -> anyhow::Result<Cell> {
        let mut cell = Cell::of(&case.name, case.arms.iter().map(Arm::name));
        if case.work == Work::Load {
            for (side, arm) in cell.sides.iter_mut().zip(&case.arms) {
                let loaded = Some(self.image(arm.scheme).loaded.clone());
                side.runs.push(Run { loaded, ..Run::default() });
            }
            return Ok(cell);
        }
        let groups = case.groups(&self.scale)?;
        let closed = |group: &[_]| self.group(case, group, Pace::Closed);
        cell.run(groups.clone(), closed, |side, run| side.runs.push(run))?;
        let rate = offered(&cell);
        let pace = match case.work {
            Work::Replace(_) => Pace::UntilMadeGood(rate),
            Work::Load | Work::Mix(_) => Pace::Offered(rate),
        };
        let open = |group: &[_]| self.group(case, group, pace);
        // In the order of the closed runs, so with the same seeds.
        cell.run(groups, open, |side, Run { offered, rebuilt, .. }| {
            if let Some(run) = side.runs.iter_mut().find(|run| run.offered.is_none()) {
                (run.offered, run.rebuilt) = (offered, rebuilt);
            }
        })?;
        Ok(cell)
    }

    /// Runs several arms at the same time, each with the seed of its run.
    fn group(
        &self,
        case: &Case,
        group: &[(usize, u64)],
        pace: Pace,
    ) -> anyhow::Result<(Vec<Run>, Late)> {
        let fixtures = at_once(group.len(), |at| {
            let Arm { scheme, away } = case.arms[group[at].0];
            self.image(scheme).open(away, &self.clock)
        })?;
        fixtures.iter().for_each(Fixture::enforce);
        let start = self.clock.now() + GAP;
        let measured = together(&self.clock, group.len(), |at| {
            let seed = self.seed.wrapping_add(group[at].1);
            let settings = case.settings(&self.scale, pace, seed);
            self.one(&fixtures[at], &settings, pace, start)
        })?;
        std::thread::scope(|scope| {
            let closing = fixtures.into_iter().map(|fixture| scope.spawn(|| fixture.close()));
            let closing: Vec<_> = closing.collect();
            closing.into_iter().try_for_each(|one| one.join().expect("it does not panic"))
        })?;
        Ok(measured)
    }

    /// Runs one arm.
    fn one(
        &self,
        fixture: &Fixture,
        settings: &Settings,
        pace: Pace,
        start: Instant,
    ) -> anyhow::Result<Run> {
        let db = &**fixture.store.db();
        let bench = |stop| Bench::new(db, &self.clock, SHAPE, self.scale.records, stop);
        let (counts, paid_iops) = (fixture.counts(), fixture.paid_iops());
        let run = Run { paid_iops, ..Run::default() };
        let per_sec = match pace {
            Pace::Closed => {
                let closed = Some(bench(self.stop).run(settings, &counts, start)?);
                return Ok(Run { closed, ..run });
            }
            Pace::Offered(per_sec) => {
                let driven = bench(self.stop).run(settings, &counts, start)?;
                return Ok(Run { offered: Some(Offered { per_sec, driven }), ..run });
            }
            Pace::UntilMadeGood(per_sec) => per_sec,
        };
        let (driven, rebuilt) = std::thread::scope(|scope| {
            let replacing = scope.spawn(|| {
                block_on(self.clock.sleep_until(start + settings.lead));
                // The pool may begin before the new volume has joined.
                let begun = self.clock.now();
                let lost = fixture.replace_lost();
                let made_good = || fixture.made_good(begun, self.stop);
                let took = lost.is_ok().then(made_good).flatten();
                fixture.ended.store(true, Ordering::Relaxed);
                lost.map(|lost_bytes| Rebuilt { took, lost_bytes })
            });
            let driven = bench(&fixture.ended).run(settings, &counts, start);
            fixture.ended.store(true, Ordering::Relaxed);
            (driven, replacing.join().expect("it does not panic"))
        });
        let offered = Some(Offered { per_sec, driven: driven? });
        Ok(Run { offered, rebuilt: Some(rebuilt?), ..run })
    }
}

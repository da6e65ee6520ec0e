//! A case, and the measurement of it: its schemes at the same time, or in turn.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bench::compare::{self, Late, groups, sound, together};
use bench::drive::Operation;
use bench::report::Report;
use bench::spread::{Bench, Cell, Copies, Keys, Run, Settings};
use policy::time::Instant;
use volume::Clock;
use volume::task::block_on;

use super::super::fixture::{GAP, levels};
use super::super::real::RealVolumes;
use super::fixture::{Fixture, Image, OPENING};
use super::scale::{SHAPE, Scale, VOLUMES, contract};
use super::schemes::Scheme;

/// A load, for several schemes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) schemes: Vec<Scheme>,
    pub(super) mix: Vec<(Operation, u32)>,
    pub(super) keys: Keys,
    /// The time of each run; `None` for its share of the usual time.
    pub(super) time: Option<Duration>,
    /// Threads of every store; `None` for a number in proportion to its volumes.
    pub(super) threads: Option<usize>,
    /// Operations a second that each store is asked for; `None` for as many as it does.
    pub(super) offered: Option<u64>,
}

impl compare::Case for Case {
    type Outcome = Run;

    fn name(&self) -> &str {
        &self.name
    }

    fn sound(report: &mut Report, cells: &[&Cell]) {
        sound(report, cells, &[], |requests| {
            format!("overdrafts: of {requests} I/Os those a provider made wait")
        });
    }
}

/// The largest sum of paid operations per second of stores that run at the same time: two processors carry twice that.
const TOGETHER_IOPS_MAX: u64 = 8000;

impl Case {
    /// The stores that run together: see [`groups`]. On real volumes one at a time.
    fn groups(&self, runs: u64, real: bool) -> anyhow::Result<Vec<Vec<(usize, u64)>>> {
        let paid = contract()?.paid_iops().unwrap_or(0);
        let volumes: usize = self.schemes.iter().map(|scheme| scheme.volumes).sum();
        let fit = |runs: u64| !real && runs * volumes as u64 * paid <= TOGETHER_IOPS_MAX;
        Ok(groups(self.schemes.len(), runs, fit))
    }

    /// The duration of each run.
    fn run_time(&self, scale: &Scale) -> Duration {
        self.time.unwrap_or(scale.time / u32::try_from(scale.runs).unwrap_or(1))
    }

    /// The approximate duration.
    pub(super) fn takes(
        &self,
        scale: &Scale,
        real: Option<&RealVolumes>,
    ) -> anyhow::Result<Duration> {
        let groups = self.groups(scale.runs, real.is_some())?.len();
        let groups = u32::try_from(groups).unwrap_or(u32::MAX);
        // The volumes of a pool take a part of the database each; a single one takes all.
        let opening = real.map_or(Duration::ZERO, |real| real.opening(scale.data(), 0));
        Ok((self.run_time(scale) + scale.lead + OPENING + opening) * groups)
    }

    /// Volumes that its schemes need.
    pub(super) fn volumes(&self) -> usize {
        self.schemes.iter().map(Scheme::volumes_max).max().unwrap_or(0)
    }

    fn settings(&self, scheme: &Scheme, scale: &Scale, seed: u64) -> Settings {
        // In proportion to the volumes: a single one reaches its paid rate with fewer threads.
        let by_volume = (scale.threads * scheme.volumes / VOLUMES).max(1);
        let threads = self.threads.unwrap_or(by_volume);
        let (mix, time) = (self.mix.clone(), self.run_time(scale));
        let (keys, lead) = (self.keys, scale.lead);
        let target_per_sec = self.offered;
        Settings { mix, keys, threads, lead, time, target_per_sec, seed }
    }
}

/// Measures cases.
pub(super) struct Bencher<'b> {
    pub(super) scale: Scale,
    pub(super) clock: Clock,
    pub(super) stop: &'b AtomicBool,
    pub(super) seed: u64,
    /// The volumes to use instead of simulated ones.
    real: Option<&'b RealVolumes>,
    images: Vec<Image>,
}

impl<'b> Bencher<'b> {
    pub(super) const fn new(
        scale: Scale,
        clock: Clock,
        stop: &'b AtomicBool,
        seed: u64,
        real: Option<&'b RealVolumes>,
    ) -> Self {
        Self { scale, clock, stop, seed, real, images: Vec::new() }
    }

    /// Loads a database with the placement of `scheme`, unless one is loaded. Returns the tables of each level.
    pub(super) fn load(&mut self, scheme: &Scheme) -> anyhow::Result<Option<Vec<u64>>> {
        if self.images.iter().any(|image| image.serves(scheme)) {
            return Ok(None);
        }
        let image = Image::load(scheme, &self.scale, self.seed, &self.clock, self.stop)?;
        let fixture = image.open(scheme, None, &self.clock)?;
        let levels = levels(fixture.store.db());
        fixture.close()?;
        self.images.push(image);
        Ok(Some(levels))
    }

    fn open(&self, scheme: &Scheme) -> anyhow::Result<Fixture> {
        let image = self.images.iter().find(|image| image.serves(scheme));
        image.expect("callers load before they measure").open(scheme, self.real, &self.clock)
    }

    /// Measures a case: every scheme for each seed, on a fresh fork of its database.
    pub(super) fn measure(&self, case: &Case) -> anyhow::Result<Cell> {
        let mut cell = Cell::of(&case.name, case.schemes.iter().map(|scheme| scheme.name));
        let group = |group: &[_]| self.group(case, group);
        cell.run(case.groups(self.scale.runs, self.real.is_some())?, group, |side, run| {
            side.runs.push(run)
        })?;
        Ok(cell)
    }

    /// Runs several schemes at the same time, each with the seed of its run.
    fn group(&self, case: &Case, group: &[(usize, u64)]) -> anyhow::Result<(Vec<Run>, Late)> {
        let seed = |at: usize| self.seed.wrapping_add(group[at].1);
        let scheme = |at: usize| &case.schemes[group[at].0];
        let opened = (0..group.len()).map(|at| self.open(scheme(at)));
        let fixtures = opened.collect::<anyhow::Result<Vec<_>>>()?;
        let benches: Vec<_> = fixtures
            .iter()
            .map(|fixture| {
                let db = &**fixture.store.db();
                Bench::new(db, &self.clock, SHAPE, self.scale.records, self.stop)
            })
            .collect();
        fixtures.iter().for_each(Fixture::enforce);
        let start = self.clock.now() + self.real.map_or(GAP, |real| real.rest);
        let measured = together(&self.clock, group.len(), |at| {
            let settings = case.settings(scheme(at), &self.scale, seed(at));
            one(&benches[at], &fixtures[at], &settings, start)
        });
        drop(benches);
        let measured = measured?;
        fixtures.into_iter().try_for_each(Fixture::close)?;
        Ok(measured)
    }
}

/// Runs one scheme, and reads its copies' counters at the start of the measured time.
fn one(
    bench: &Bench<'_>,
    fixture: &Fixture,
    settings: &Settings,
    start: Instant,
) -> anyhow::Result<Run> {
    // Copies before the measured time do not count, and a joining volume joins at its start.
    let clock = fixture.store.pool().clock();
    let (before, driven) = std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            block_on(clock.sleep_until(start + settings.lead));
            fixture.join().map(|()| fixture.copies())
        });
        let driven = bench.run(settings, &fixture.counts(), start);
        (looking.join().expect("it does not panic"), driven)
    });
    let (before, driven, after) = (before?, driven?, fixture.copies());
    let copies = Copies {
        made: after.made.saturating_sub(before.made),
        bytes: after.bytes.saturating_sub(before.bytes),
        times: after.times.since(&before.times),
    };
    Ok(Run { driven, paid: fixture.paid(), copies, counted_by: fixture.counted_by })
}

//! Measures one case: its schemes at the same time, or in turn.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::time::Duration;

use bench::compare::{self, at_once, groups};
use bench::drive::Operation;
use bench::spread::{Bench, Cell, Copies, Keys, Late, Measured, Settings, Side};
use policy::time::Instant;
use volume::Clock;
use volume::task::block_on;

use super::scale::{SHAPE, Scale, VOLUMES};
use super::schemes::Scheme;
use super::stand::{Image, OPENING, Stand, contract};

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
}

impl compare::Case for Case {
    fn name(&self) -> &str {
        &self.name
    }
}

/// The largest sum of paid operations per second of stores that run at the same time: two processors carry twice that.
const TOGETHER_IOPS_MAX: u64 = 8000;

/// The gap before a run, so that all schemes begin it at the same time.
const GAP: Duration = Duration::from_millis(20);

impl Case {
    /// The stores that run together: see [`groups`].
    fn groups(&self, runs: u64) -> anyhow::Result<Vec<Vec<(usize, u64)>>> {
        let paid = contract()?.paid_iops().unwrap_or(0);
        let volumes: usize = self.schemes.iter().map(|scheme| scheme.volumes).sum();
        let fit = |runs: u64| runs * volumes as u64 * paid <= TOGETHER_IOPS_MAX;
        Ok(groups(self.schemes.len(), runs, fit))
    }

    /// The duration of each run.
    fn run_time(&self, scale: &Scale) -> Duration {
        self.time.unwrap_or(scale.time / u32::try_from(scale.runs).unwrap_or(1))
    }

    /// The approximate duration.
    pub(super) fn takes(&self, scale: &Scale) -> anyhow::Result<Duration> {
        let groups = u32::try_from(self.groups(scale.runs)?.len()).unwrap_or(u32::MAX);
        Ok((self.run_time(scale) + scale.lead + OPENING) * groups)
    }

    fn settings(&self, scheme: &Scheme, scale: &Scale, seed: u64) -> Settings {
        // In proportion to the volumes: a single one reaches its paid rate with fewer threads.
        let by_volume = (scale.threads * scheme.volumes / VOLUMES).max(1);
        let threads = self.threads.unwrap_or(by_volume);
        let (mix, time) = (self.mix.clone(), self.run_time(scale));
        Settings { mix, keys: self.keys, threads, lead: scale.lead, time, seed }
    }
}

/// Measures cases.
pub(super) struct Bencher<'b> {
    pub(super) scale: Scale,
    pub(super) clock: Clock,
    pub(super) stop: &'b AtomicBool,
    pub(super) seed: u64,
    images: Vec<Image>,
}

impl<'b> Bencher<'b> {
    pub(super) const fn new(scale: Scale, clock: Clock, stop: &'b AtomicBool, seed: u64) -> Self {
        Self { scale, clock, stop, seed, images: Vec::new() }
    }

    /// Loads a database with the placement of `scheme`, unless one is loaded. Returns the tables of each level.
    pub(super) fn load(&mut self, scheme: &Scheme) -> anyhow::Result<Option<Vec<u64>>> {
        if self.images.iter().any(|image| image.serves(scheme)) {
            return Ok(None);
        }
        let image = Image::load(scheme, &self.scale, self.seed, &self.clock, self.stop)?;
        let stand = image.open(scheme, &self.clock)?;
        let levels = stand.levels();
        stand.close()?;
        self.images.push(image);
        Ok(Some(levels))
    }

    fn open(&self, scheme: &Scheme) -> anyhow::Result<Stand> {
        let image = self.images.iter().find(|image| image.serves(scheme));
        image.expect("callers load before they measure").open(scheme, &self.clock)
    }

    /// Measures a case: every scheme for each seed, on a fresh fork of its database.
    pub(super) fn measure(&self, case: &Case) -> anyhow::Result<Cell> {
        let mut sides: Vec<_> = case.schemes.iter().map(|scheme| Side::of(scheme.name)).collect();
        let mut late = Vec::new();
        for group in case.groups(self.scale.runs)? {
            let (measured, machine) = self.group(case, &group)?;
            for (&(scheme, _), run) in group.iter().zip(measured) {
                sides[scheme].runs.push(run);
            }
            late.push(machine);
        }
        Ok(Cell { case: case.name.clone(), sides, late })
    }

    /// Runs several schemes at the same time, each with the seed of its run.
    fn group(&self, case: &Case, group: &[(usize, u64)]) -> anyhow::Result<(Vec<Measured>, Late)> {
        let seed = |at: usize| self.seed.wrapping_add(group[at].1);
        let scheme = |at: usize| &case.schemes[group[at].0];
        let opened = (0..group.len()).map(|at| self.open(scheme(at)));
        let stands = opened.collect::<anyhow::Result<Vec<_>>>()?;
        let benches: Vec<_> = stands
            .iter()
            .map(|stand| {
                let db = &**stand.store.db();
                Bench::new(db, &self.clock, SHAPE, self.scale.records, self.stop)
            })
            .collect();
        stands.iter().for_each(Stand::enforce);
        let start = self.clock.now() + GAP;
        let (ended, running) = channel::<()>();
        let (measured, late) = std::thread::scope(|scope| {
            let late = scope.spawn(|| {
                let running = running;
                Late::watch(&self.clock, &running)
            });
            let run = |at: usize| {
                let settings = case.settings(scheme(at), &self.scale, seed(at));
                one(&benches[at], &stands[at], &settings, start)
            };
            let measured = at_once(group.len(), run);
            drop(ended);
            (measured, late.join().expect("it does not panic"))
        });
        drop(benches);
        let measured = measured?;
        stands.into_iter().try_for_each(Stand::close)?;
        Ok((measured, late))
    }
}

/// Runs one scheme, and reads its copies' counters at the start of the measured time.
fn one(
    bench: &Bench<'_>,
    stand: &Stand,
    settings: &Settings,
    start: Instant,
) -> anyhow::Result<Measured> {
    // Copies before the measured time do not count, and a joining volume joins at its start.
    let clock = stand.store.clock();
    let (before, outcome) = std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            block_on(clock.sleep_until(start + settings.lead));
            stand.join().map(|()| stand.copies())
        });
        let outcome = bench.run(settings, &stand.counts(), start);
        (looking.join().expect("it does not panic"), outcome)
    });
    let (before, outcome, after) = (before?, outcome?, stand.copies());
    let copies = Copies {
        made: after.made.saturating_sub(before.made),
        bytes: after.bytes.saturating_sub(before.bytes),
        times: after.times.since(&before.times),
    };
    Ok(Measured { outcome, paid: stand.paid(), copies })
}

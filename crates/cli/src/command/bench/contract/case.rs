//! A case, and the measurement of it: its schemes at the same time, or in turn.

use std::f64::consts::TAU;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bench::compare::{self, Late, groups, sound, together};
use bench::contract::{Cell, Counted, Run};
use bench::mixgraph::{Bench, Keys, Lengths, Load, Operation, Rate, Settings, Tally, Wave};
use bench::report::Report;
use policy::purpose::Class;
use policy::sched::Waits;
use policy::time::Instant;
use volume::Clock;
use volume::layer::gate::Meter;

use super::super::fixture::GAP;
use super::super::real::RealVolumes;
use super::baselines::{NEVER_OVERDRAW, Scheme};
use super::fixture::{Fixture, Image, Setup, VALUES};
use super::scale::Scale;

/// A load on a volume, for several schemes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) schemes: Vec<Scheme>,
    pub(super) setup: Setup,
    pub(super) mix: Vec<(Operation, u32)>,
    pub(super) keys: Keys,
    /// Operations per second over time; `None` for the maximum. A sine has one period in a run.
    pub(super) wave: Option<Wave>,
    pub(super) threads: usize,
    /// Whether operations start at the rate regardless of earlier ones; otherwise threads share the rate.
    pub(super) open_only: bool,
    /// Whether to repeat it once in the open loop.
    pub(super) open_too: bool,
    /// The factor of its rates on real volumes; 1 on simulated ones.
    pub(super) times: f64,
}

impl compare::Case for Case {
    type Outcome = Run;

    fn name(&self) -> &str {
        &self.name
    }

    fn sound(report: &mut Report, cells: &[&Cell]) {
        let schemes = NEVER_OVERDRAW.join(", ");
        sound(report, cells, &NEVER_OVERDRAW, |requests| {
            format!("overdrafts of {schemes}: of {requests} I/Os those its provider made wait")
        });
    }
}

/// The largest sum of paid operations per second of stores that run at the same time: each operation costs a sleep and
/// a wake-up, and two processors must keep up.
const TOGETHER_IOPS_MAX: u64 = 9000;

/// db_bench's noise on the rate, and its interval of constant rate.
const NOISE: f64 = 0.3;
const INTERVAL: Duration = Duration::from_millis(50);

/// The longest that warming reads take: an hour covers those of profile paper at ten operations a second.
const WARMING_MAX: Duration = Duration::from_secs(3600);

impl Case {
    /// Scales the load to a volume that is paid for `paid` operations a second, so that their ratio stays.
    pub(super) fn scale_to(&mut self, paid: u64) {
        let times = paid as f64 / self.setup.paid as f64;
        self.wave = self.wave.map(|wave| wave.scaled(times));
        self.setup.paid = paid;
        self.times = times;
    }

    /// The stores that run together, at most `stores` if there is such a limit: see [`groups`].
    fn groups(&self, runs: u64, stores: Option<usize>) -> Vec<Vec<(usize, u64)>> {
        let schemes = self.schemes.len() as u64;
        let stores = stores.map_or(u64::MAX, |stores| stores as u64);
        let fit = |runs: u64| {
            schemes * runs <= stores && schemes * runs * self.setup.paid <= TOGETHER_IOPS_MAX
        };
        groups(self.schemes.len(), runs, fit)
    }

    /// The duration of each run: all runs together take the requested time, at once or in turn.
    fn run_time(&self, scale: &Scale, stores: Option<usize>) -> Duration {
        let at_once = self.groups(scale.runs, stores).len() == 1;
        if at_once { scale.time } else { scale.time / u32::try_from(scale.runs).unwrap_or(1) }
    }

    /// The approximate duration.
    pub(super) fn takes(
        &self,
        scale: &Scale,
        opening: Duration,
        stores: Option<usize>,
    ) -> Duration {
        let opens = if self.open_too { self.groups(1, stores).len() } else { 0 };
        let groups = u32::try_from(self.groups(scale.runs, stores).len() + opens);
        (self.run_time(scale, stores) + scale.lead + opening) * groups.unwrap_or(u32::MAX)
    }

    /// The settings of a run of `time`; the sine's period is `period`.
    fn settings(&self, seed: u64, time: Duration, period: Duration, open: bool) -> Settings {
        let rate = |wave| {
            let wave = match wave {
                Wave::Sine { a, c, d, .. } => Wave::Sine { a, b: TAU / period.as_secs_f64(), c, d },
                wave => wave,
            };
            Rate { wave, noise: NOISE, interval: INTERVAL, seed }
        };
        let load = match self.wave {
            None => Load::AtOnce,
            Some(wave) if open || self.open_only => Load::Open(rate(wave)),
            Some(wave) => Load::Closed(rate(wave)),
        };
        Settings {
            mix: self.mix.clone(),
            keys: self.keys,
            values: VALUES,
            scans: Lengths::UpTo(100),
            load,
            threads: self.threads,
            time,
            operations: u64::MAX,
            seed,
        }
    }
}

/// Measures cases.
pub(super) struct Bencher<'b> {
    pub(super) image: &'b Image,
    pub(super) scale: Scale,
    pub(super) clock: Clock,
    pub(super) stop: &'b AtomicBool,
    pub(super) seed: u64,
    /// The volumes to use instead of simulated ones.
    pub(super) real: Option<&'b RealVolumes>,
}

impl Bencher<'_> {
    /// The most stores that run at the same time, if volumes limit them.
    fn stores(&self) -> Option<usize> {
        self.real.map(|real| real.all.len())
    }

    /// Measures a case: every scheme for each seed, on a fresh copy of the database.
    pub(super) fn measure(&self, case: &Case) -> anyhow::Result<Cell> {
        let mut cell = Cell::of(&case.name, case.schemes.iter().map(|scheme| scheme.name));
        let closed = |group: &[_]| self.group(case, group, false);
        cell.run(case.groups(self.scale.runs, self.stores()), closed, |side, run| {
            side.runs.push(run)
        })?;
        if case.open_too && case.wave.is_some() {
            let open = |group: &[_]| self.group(case, group, true);
            cell.run(case.groups(1, self.stores()), open, |side, run| side.open = Some(run))?;
        }
        Ok(cell)
    }

    /// Runs several schemes at the same time, each with the seed of its run.
    fn group(
        &self,
        case: &Case,
        group: &[(usize, u64)],
        open: bool,
    ) -> anyhow::Result<(Vec<Run>, Late)> {
        let seeds: Vec<_> = group.iter().map(|&(_, run)| self.seed.wrapping_add(run)).collect();
        let fixtures = compare::at_once(group.len(), |at| {
            let (scheme, volume) =
                (&case.schemes[group[at].0], self.real.map(|real| &real.all[at]));
            self.image.open(scheme, &case.setup, volume, &self.clock)
        })?;
        let benches: Vec<_> = fixtures
            .iter()
            .map(|fixture| {
                let (db, records) = (&**fixture.store.db(), self.image.records);
                Bench::new(db, &self.clock, records, Duration::from_secs(1), self.stop)
            })
            .collect();
        // Fills the caches, with equal keys.
        let time = case.run_time(&self.scale, self.stores());
        let warm = |seed: u64| Settings {
            mix: vec![(Operation::Read, 100)],
            load: Load::AtOnce,
            operations: self.scale.warm_reads,
            ..case.settings(seed ^ 0x5eed, WARMING_MAX, time, false)
        };
        let now = self.clock.now();
        compare::at_once(group.len(), |at| benches[at].run(&warm(seeds[at]), &[], now).map(drop))?;
        fixtures.iter().for_each(Fixture::enforce);
        let begin = self.clock.now() + self.real.map_or(GAP, |real| real.rest);
        let start = begin + self.scale.lead + GAP;
        let lead = |seed: u64| case.settings(seed ^ 0x1ead, self.scale.lead, time, open);
        let settings = |seed| case.settings(seed, time, time, open);
        let measured = together(&self.clock, group.len(), |at| {
            benches[at].run(&lead(seeds[at]), &[], begin)?;
            one(&benches[at], &fixtures[at], &settings(seeds[at]), start)
        });
        drop(benches);
        let measured = measured?;
        fixtures.into_iter().try_for_each(Fixture::close)?;
        Ok(measured)
    }
}

/// Runs one scheme, and reads its gate's counters before and after.
fn one(
    bench: &Bench<'_>,
    fixture: &Fixture,
    settings: &Settings,
    start: Instant,
) -> anyhow::Result<Run> {
    let device = fixture.device();
    let gate = device.gate();
    let counts = Counted::ALL.map(|counted| Tally::new(move || count(fixture, counted)));
    let before = gate.meter();
    let driven = bench.run(settings, &counts, start)?;
    let after = gate.meter();
    Ok(Run {
        driven,
        answers: std::array::from_fn(|at| after.answers[at].since(&before.answers[at])),
        waits: std::array::from_fn(|at| since(&after, &before, at)),
        counted_by: fixture.counted_by(),
        paid_iops: fixture.contract.paid_iops().unwrap_or(0),
        cache_bytes: fixture.cache_bytes(),
    })
}

fn count(fixture: &Fixture, counted: Counted) -> u64 {
    let tokens = |class: Class| fixture.device().gate().meter().classes[class.index()].spent.ops;
    let simulated = || fixture.device().seen_by_provider().unwrap_or_default();
    match counted {
        Counted::Tokens(class) => tokens(class),
        Counted::Provider => fixture.kernel_count().unwrap_or_else(|| simulated().ops),
        Counted::Overdrafts => simulated().throttled,
        Counted::Hits => fixture.lookups().0,
        Counted::Lookups => fixture.lookups().1,
    }
}

/// Waits of a class between two samples. The maximum covers all time.
fn since(after: &Meter, before: &Meter, class: usize) -> Waits {
    let (after, before) = (&after.classes[class].waits, &before.classes[class].waits);
    Waits {
        total: after.total.saturating_sub(before.total),
        max: after.max,
        counts: std::array::from_fn(|at| after.counts[at].saturating_sub(before.counts[at])),
    }
}

#[cfg(test)]
mod tests {
    use super::super::baselines::{OURS, PLAIN, STABILIZER};
    use super::*;

    fn case(wave: Wave) -> Case {
        Case {
            name: "reads".into(),
            schemes: vec![PLAIN, STABILIZER, OURS],
            setup: Setup { contract: "io2", paid: 200, cache: None, durable: false },
            mix: vec![(Operation::Read, 100)],
            keys: Keys::Ycsb(bench::ycsb::Distribution::Uniform),
            wave: Some(wave),
            threads: 10,
            open_only: false,
            open_too: true,
            times: 1.0,
        }
    }

    #[test]
    fn a_load_keeps_its_ratio_to_what_is_paid_for() {
        let mut sine = case(Wave::Sine { a: 100.0, b: 1.0, c: 4.17, d: 240.0 });
        sine.scale_to(3000);
        assert_eq!((sine.setup.paid, sine.times), (3000, 15.0));
        assert_eq!(sine.wave, Some(Wave::Sine { a: 1500.0, b: 1.0, c: 4.17, d: 3600.0 }));
        let mut flat = case(Wave::Flat { d: 180.0 });
        flat.scale_to(100);
        assert_eq!(flat.wave, Some(Wave::Flat { d: 90.0 }));
    }

    #[test]
    fn as_many_stores_run_at_once_as_there_are_volumes() {
        let case = case(Wave::Flat { d: 180.0 });
        let groups = |stores| case.groups(2, stores).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(groups(None), [6]);
        assert_eq!(groups(Some(6)), [6]);
        assert_eq!(groups(Some(5)), [3, 3]);
        assert_eq!(groups(Some(2)), [1; 6]);
    }
}

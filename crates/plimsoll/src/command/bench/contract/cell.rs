//! One case, measured: its schemes at the same time, or in turn.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::time::Duration;

use bench::contract::{Cell, Counted, Late, Measured, Side};
use bench::mixgraph::{
    Bench, Keys, Lengths, Load, Operation, Outcome, Rate, Settings, Tally, Wave,
};
use policy::purpose::Class;
use policy::sched::Waits;
use policy::time::Instant;
use volume::Clock;
use volume::layer::gate::Meter;

use super::baselines::Scheme;
use super::scale::Scale;
use super::stand::{Image, Setup, Stand, VALUES};

/// A load on a volume, for some schemes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) schemes: Vec<Scheme>,
    pub(super) setup: Setup,
    pub(super) mix: Vec<(Operation, u32)>,
    pub(super) keys: Keys,
    /// Operations a second over time; none for as many as there can be.
    pub(super) wave: Option<Wave>,
    pub(super) threads: usize,
    /// Whether operations start at the rate whatever those before take; else threads share it.
    pub(super) open_only: bool,
    /// Whether it is run once more in the open loop.
    pub(super) open_too: bool,
}

/// The most operations a second that all schemes of a case may be paid for together to run at the same time:
/// each is a sleep and a waking up, and two processors have to have time for all.
const TOGETHER_IOPS_MAX: u64 = 6000;

/// db_bench's noise on the rate, and how long the rate stays what it is.
const NOISE: f64 = 0.3;
const INTERVAL: Duration = Duration::from_millis(50);

/// From one phase of a run to the next, so that all schemes begin it at the same time.
const GAP: Duration = Duration::from_millis(20);

impl Case {
    fn together(&self) -> bool {
        self.schemes.len() as u64 * self.setup.paid <= TOGETHER_IOPS_MAX
    }

    /// How long it takes, about.
    pub(super) fn takes(&self, scale: &Scale, opening: Duration) -> Duration {
        let turns = if self.together() { 1 } else { self.schemes.len() as u64 };
        let runs = (scale.runs + u64::from(self.open_too)) * turns;
        (scale.time + scale.lead + opening) * u32::try_from(runs).unwrap_or(u32::MAX)
    }

    fn settings(&self, seed: u64, time: Duration, open: bool) -> Settings {
        let rate = |wave| Rate { wave, noise: NOISE, interval: INTERVAL, seed };
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

/// What cases are measured with.
pub(super) struct Bencher<'b> {
    pub(super) image: &'b Image,
    pub(super) scale: Scale,
    pub(super) clock: Clock,
    pub(super) stop: &'b AtomicBool,
    pub(super) seed: u64,
}

impl Bencher<'_> {
    /// Measures a case: for each seed every scheme, on a fresh copy of the database.
    pub(super) fn measure(&self, case: &Case) -> anyhow::Result<Cell> {
        let side = |scheme: &Scheme| Side { scheme: scheme.name.into(), runs: vec![], open: None };
        let mut sides: Vec<_> = case.schemes.iter().map(side).collect();
        let mut late = Vec::new();
        for run in 0..self.scale.runs {
            let seed = self.seed.wrapping_add(run);
            let (measured, machine) = self.round(case, seed, run, false)?;
            sides.iter_mut().zip(measured).for_each(|(side, run)| side.runs.push(run));
            late.extend(machine);
        }
        if case.open_too && case.wave.is_some() {
            let (measured, machine) = self.round(case, self.seed, 0, true)?;
            sides.iter_mut().zip(measured).for_each(|(side, run)| side.open = Some(run));
            late.extend(machine);
        }
        Ok(Cell { case: case.name.clone(), sides, late, together: case.together() })
    }

    /// One run of every scheme, in their order.
    fn round(
        &self,
        case: &Case,
        seed: u64,
        run: u64,
        open: bool,
    ) -> anyhow::Result<(Vec<Measured>, Vec<Late>)> {
        if case.together() {
            let (measured, late) = self.group(case, &case.schemes, seed, open)?;
            return Ok((measured, vec![late]));
        }
        // Who begins changes from run to run, so that whatever drifts meets all.
        let count = case.schemes.len();
        let mut measured: Vec<Option<Measured>> = vec![None; count];
        let mut all = Vec::new();
        for turn in 0..count {
            let at = (turn + usize::try_from(run).unwrap_or(0)) % count;
            let (mut one, late) = self.group(case, &case.schemes[at..=at], seed, open)?;
            measured[at] = one.pop();
            all.push(late);
        }
        Ok((measured.into_iter().flatten().collect(), all))
    }

    /// Runs schemes at the same time.
    fn group(
        &self,
        case: &Case,
        schemes: &[Scheme],
        seed: u64,
        open: bool,
    ) -> anyhow::Result<(Vec<Measured>, Late)> {
        let opened = schemes.iter().map(|scheme| self.image.open(scheme, &case.setup, &self.clock));
        let stands = opened.collect::<anyhow::Result<Vec<_>>>()?;
        let benches: Vec<_> = stands
            .iter()
            .map(|stand| {
                let (db, records) = (&**stand.store.db(), self.image.records);
                Bench::new(db, &self.clock, records, Duration::from_secs(1), self.stop)
            })
            .collect();
        // Filled caches, of equal keys.
        let warm = Settings {
            mix: vec![(Operation::Read, 100)],
            load: Load::AtOnce,
            operations: self.scale.warm_reads,
            ..case.settings(seed ^ 0x5eed, Duration::from_secs(60), false)
        };
        let now = self.clock.now();
        self.all(&benches, |bench, _| bench.run(&warm, &[], now).map(drop))?;
        stands.iter().for_each(Stand::enforce);
        let begin = self.clock.now() + GAP;
        let start = begin + self.scale.lead + GAP;
        let lead = case.settings(seed ^ 0x1ead, self.scale.lead, open);
        let settings = case.settings(seed, self.scale.time, open);
        let (ended, running) = channel::<()>();
        let (measured, late) = std::thread::scope(|scope| {
            let late = scope.spawn(|| {
                let running = running;
                Late::watch(&self.clock, &running)
            });
            let measured = self.all(&benches, |bench, at| {
                bench.run(&lead, &[], begin)?;
                self.one(bench, &stands[at], &settings, start)
            });
            drop(ended);
            (measured, late.join().expect("it does not panic"))
        });
        drop(benches);
        let measured = measured?;
        stands.into_iter().try_for_each(Stand::close)?;
        Ok((measured, late))
    }

    /// Does something with every store at the same time.
    fn all<'s, T: Send>(
        &self,
        benches: &[Bench<'s>],
        work: impl Fn(&Bench<'s>, usize) -> anyhow::Result<T> + Sync,
    ) -> anyhow::Result<Vec<T>> {
        let work = &work;
        std::thread::scope(|scope| {
            let running = benches.iter().enumerate();
            let running: Vec<_> =
                running.map(|(at, bench)| scope.spawn(move || work(bench, at))).collect();
            let ended = running.into_iter().map(|one| one.join().expect("it does not panic"));
            ended.collect()
        })
    }

    /// Runs one scheme, and looks at its gate before and after.
    fn one(
        &self,
        bench: &Bench<'_>,
        stand: &Stand,
        settings: &Settings,
        start: Instant,
    ) -> anyhow::Result<Measured> {
        let gate = stand.device().gate();
        let counts = Counted::ALL.map(|counted| Tally::new(move || count(stand, counted)));
        let before = gate.meter();
        let outcome: Outcome = bench.run(settings, &counts, start)?;
        let after = gate.meter();
        Ok(Measured {
            outcome,
            answers: std::array::from_fn(|at| after.answers[at].since(&before.answers[at])),
            waits: std::array::from_fn(|at| since(&after, &before, at)),
            paid_iops: stand.contract.paid_iops().unwrap_or(0),
            cache_bytes: stand.cache_bytes(),
        })
    }
}

fn count(stand: &Stand, counted: Counted) -> u64 {
    let tokens = |class: Class| stand.device().gate().meter().classes[class.index()].spent.ops;
    let provider = || stand.device().seen_by_provider().unwrap_or_default();
    match counted {
        Counted::Tokens(class) => tokens(class),
        Counted::Provider => provider().ops,
        Counted::Overdrafts => provider().throttled,
        Counted::Hits => stand.lookups().0,
        Counted::Lookups => stand.lookups().1,
    }
}

/// Waits of a class between two looks. The longest is that of all time.
fn since(after: &Meter, before: &Meter, class: usize) -> Waits {
    let (after, before) = (&after.classes[class].waits, &before.classes[class].waits);
    Waits {
        total: after.total.saturating_sub(before.total),
        max: after.max,
        counts: std::array::from_fn(|at| after.counts[at].saturating_sub(before.counts[at])),
    }
}

/// Cells that several rows are about, measured once.
#[derive(Default)]
pub(super) struct Cells(Vec<(Case, Arc<Cell>)>);

impl Cells {
    /// The cell of a case.
    pub(super) fn get(&mut self, bencher: &Bencher<'_>, case: &Case) -> anyhow::Result<Arc<Cell>> {
        if let Some((_, cell)) = self.0.iter().find(|(other, _)| other == case) {
            return Ok(Arc::clone(cell));
        }
        let cell = Arc::new(bencher.measure(case)?);
        self.0.push((case.clone(), Arc::clone(&cell)));
        Ok(cell)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Cell> {
        self.0.iter().map(|(_, cell)| &**cell)
    }
}

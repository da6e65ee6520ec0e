//! `bench path`: the cost of our I/O path to RocksDB, compared with RocksDB's own.
//!
//! Both sides run the same RocksDB with the same options on the same file system, ours through shim, pool and gate with
//! a contract without limits. They take turns and alternate who begins, so that drift of the machine affects both
//! alike. The result is the median of the ratios within all pairs, with its interval.
//!
//! This crate does not link RocksDB: the caller supplies the [`Case`]s.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use volume::Clock;

use crate::report::{Curve, Plot, Report, Stroke};
use crate::stats::{Median, median};
use crate::{Options, machine};

/// The row in reports.
const ID: &str = "KV-path";

/// The least share of the baseline's rate that ours may reach.
const RATE_MIN: f64 = 0.97;

/// The largest ratio of our processor time per operation to the baseline's.
const CPU_MAX: f64 = 1.05;

/// Which file system RocksDB runs on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// RocksDB over shim, pool and gate.
    Ours,
    /// RocksDB over its own file system.
    Stock,
}

impl Side {
    /// Both, ours first.
    pub const ALL: [Self; 2] = [Self::Ours, Self::Stock];

    /// The name in reports and directories.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Stock => "stock",
        }
    }
}

/// A workload that runs on either side.
pub trait Case {
    /// A short description.
    fn name(&self) -> String;

    /// About how long one [`Case::run`] takes, in seconds.
    fn secs(&self) -> u64;

    /// Runs it once on one side. Both sides of a `pair` get the same work.
    ///
    /// # Errors
    /// The run failed.
    fn run(&mut self, side: Side, pair: u64) -> anyhow::Result<Sample>;
}

/// The result of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Operations.
    pub ops: u64,
    /// Their duration.
    pub elapsed: Duration,
    /// Processor time of the process, from the first operation until the store is idle: deferred work counts.
    pub cpu: Duration,
}

impl Sample {
    /// Operations a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.ops as f64 / self.elapsed.as_secs_f64()
    }

    /// Microseconds of processor time an operation.
    #[must_use]
    pub fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.ops as f64
    }
}

/// Takes a [`Sample`].
pub struct Meter {
    clock: Clock,
    start: policy::time::Instant,
    cpu: Duration,
    elapsed: Option<Duration>,
}

impl Meter {
    /// Starts it.
    #[must_use]
    pub fn start(clock: &Clock) -> Self {
        let (clock, start) = (clock.clone(), clock.now());
        Self { clock, start, cpu: machine::cpu_time(), elapsed: None }
    }

    /// Ends the timing of operations; deferred work may go on.
    pub fn done(&mut self) {
        self.elapsed = Some(self.clock.now().since(self.start));
    }

    /// Ends the measurement once all deferred work is done.
    #[must_use]
    pub fn settled(mut self, ops: u64) -> Sample {
        if self.elapsed.is_none() {
            self.done();
        }
        let cpu = machine::cpu_time().saturating_sub(self.cpu);
        Sample { ops, elapsed: self.elapsed.unwrap_or_default(), cpu }
    }
}

/// Measures `pairs` pairs of every case, after one warm-up pair that does not count.
///
/// Progress is shown on stderr if that is a terminal.
///
/// # Errors
/// A case failed.
pub fn run(
    options: &Options,
    pairs: u64,
    cases: &mut [Box<dyn Case + '_>],
) -> anyhow::Result<Report> {
    let mut report = Report::new("path", options);
    if let Some(load) = machine::load() {
        report.notes.push(format!("the machine's load was {load} before"));
    }
    let secs: u64 = cases.iter().map(|case| 2 * (pairs + 1) * case.secs()).sum();
    let bar = ProgressBar::new(secs);
    bar.set_style(
        ProgressStyle::with_template("{bar:30} {elapsed} of about {len} s: {msg}")
            .expect("the template is right"),
    );
    for case in cases {
        bar.set_message(case.name());
        let measured = (0..=pairs).map(|number| {
            let done = pair(&mut **case, options.seed.wrapping_add(number), number % 2 == 0);
            bar.inc(2 * case.secs());
            done
        });
        let measured: Vec<Pair> = measured.collect::<anyhow::Result<_>>()?;
        tell(&mut report, &case.name(), &measured[1..]);
    }
    bar.finish_and_clear();
    Ok(report)
}

/// The same work on both sides.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pair {
    ours: Sample,
    stock: Sample,
}

impl Pair {
    const fn of(&self, side: Side) -> &Sample {
        match side {
            Side::Ours => &self.ours,
            Side::Stock => &self.stock,
        }
    }
}

fn pair(case: &mut dyn Case, seed: u64, ours_first: bool) -> anyhow::Result<Pair> {
    if ours_first {
        let ours = case.run(Side::Ours, seed)?;
        Ok(Pair { ours, stock: case.run(Side::Stock, seed)? })
    } else {
        let stock = case.run(Side::Stock, seed)?;
        Ok(Pair { ours: case.run(Side::Ours, seed)?, stock })
    }
}

fn tell(report: &mut Report, case: &str, pairs: &[Pair]) {
    let of = |figure: fn(&Pair) -> f64| -> Vec<f64> { pairs.iter().map(figure).collect() };
    for side in Side::ALL {
        let of = |figure: fn(&Sample) -> f64| -> Vec<f64> {
            pairs.iter().map(|pair| figure(pair.of(side))).collect()
        };
        let [rate, cpu] = [of(Sample::rate), of(Sample::cpu_us)].map(|values| median(&values));
        report.row(ID, case, side.name(), rate, "operations a second");
        report.row(ID, case, side.name(), cpu, "us of processor time an operation");
    }
    let rates = of(|pair| pair.ours.rate() / pair.stock.rate());
    let cpus = of(|pair| pair.ours.cpu_us() / pair.stock.cpu_us());
    for (what, ratios) in [("rate", &rates), ("processor time", &cpus)] {
        let case = format!("{case}: {what}, {} pairs", ratios.len());
        let Median { median, low, high } = Median::of(ratios).unwrap_or(Median {
            median: f64::NAN,
            low: f64::NAN,
            high: f64::NAN,
        });
        for (scheme, value) in [("median", median), ("95 % from", low), ("95 % to", high)] {
            report.row(ID, &case, scheme, value, "ours / stock");
        }
    }
    let check = format!("{case}: rate, ours / stock");
    report.check(ID, &check, median(&rates), [RATE_MIN, f64::INFINITY]);
    let check = format!("{case}: processor time an operation, ours / stock");
    report.check(ID, &check, median(&cpus), [0.0, CPU_MAX]);
    let dots = |name: &str, ratios: &[f64]| {
        Curve::new(name, Stroke::Dots, (1..).map(f64::from).zip(ratios.iter().copied()))
    };
    let curves = [dots("rate", &rates), dots("processor time", &cpus)];
    let title = format!("{case}, pair by pair");
    report.plots.push(Plot::new(title, ["pair", "ours / stock"], curves));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A case whose first run on each side is far off; afterwards its stock side is twice as fast at half the cost.
    struct Known(Vec<(Side, u64)>);

    impl Case for Known {
        fn name(&self) -> String {
            "known".into()
        }
        fn secs(&self) -> u64 {
            1
        }
        fn run(&mut self, side: Side, pair: u64) -> anyhow::Result<Sample> {
            self.0.push((side, pair));
            let (ops, cpu) = match side {
                _ if self.0.len() <= 2 => (1, 1),
                Side::Ours => (100, 200),
                Side::Stock => (200, 200),
            };
            let (elapsed, cpu) = (Duration::from_secs(1), Duration::from_millis(cpu));
            Ok(Sample { ops, elapsed, cpu })
        }
    }

    #[test]
    fn the_ratio_is_that_of_the_pairs_without_the_one_that_warms_up() {
        let mut cases: [Box<dyn Case>; 1] = [Box::new(Known(Vec::new()))];
        let report = run(&Options::default(), 6, &mut cases).expect("it runs");
        let value = |what: &str| {
            report.checks.iter().find(|check| check.what.contains(what)).and_then(|c| c.value)
        };
        assert_eq!(value("rate"), Some(0.5));
        assert_eq!(value("processor time"), Some(2.0));
        assert!(report.checks.iter().all(|check| !check.holds));
        let from: Vec<_> = report.rows.iter().filter(|row| row.scheme == "95 % from").collect();
        assert_eq!(from.iter().map(|row| row.value).collect::<Vec<_>>(), [Some(0.5), Some(2.0)]);
    }

    #[test]
    fn the_sides_take_turns_at_beginning_and_get_the_same_work() {
        let mut known = Known(Vec::new());
        pair(&mut known, 7, true).expect("it runs");
        pair(&mut known, 8, false).expect("it runs");
        let expected = [(Side::Ours, 7), (Side::Stock, 7), (Side::Stock, 8), (Side::Ours, 8)];
        assert_eq!(known.0, expected);
    }

    #[test]
    fn work_that_was_put_off_counts_as_processor_time_only() {
        let clock = Clock::simulated();
        let mut meter = Meter::start(&clock);
        clock.jump(Duration::from_secs(2));
        meter.done();
        clock.jump(Duration::from_secs(3));
        let sample = meter.settled(10);
        assert_eq!((sample.rate(), sample.elapsed), (5.0, Duration::from_secs(2)));
    }
}

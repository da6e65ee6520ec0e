//! Cells as rows, checks and plots of a report.

use policy::purpose::Class;
use policy::units::MIB;

use super::{Cell, Counted, Measured, Side, plots};
use crate::compare::Figure;
use crate::report::Report;
use crate::stats::median;

/// The largest error of the timer, as a share of the latency that a band requires.
const ERROR_MAX: f64 = 0.2;

/// The limit that a scheme's latency must stay below for a check to hold, and the timer's error there.
#[derive(Clone, Copy, Debug)]
pub struct Better {
    /// The latency in microseconds that the band requires.
    pub limit_us: f64,
    /// The timer's error in microseconds.
    pub error_us: f64,
}

impl Better {
    /// For figures that are not latencies.
    pub const NO_LATENCY: Self = Self { limit_us: f64::INFINITY, error_us: 0.0 };

    fn is_measurable(self) -> bool {
        // A limit that is NaN means that nothing was measured, so this is false for it.
        self.error_us <= ERROR_MAX * self.limit_us
    }
}

/// The figures that readers see of a run.
const FIGURES: [Figure<Measured>; 11] = [
    ("", "op/s", Measured::qps),
    ("mean", "us", Measured::mean_us),
    ("p50", "us", |run| run.quantile_us(0.5)),
    ("p99", "us", |run| run.quantile_us(0.99)),
    ("p99.9", "us", |run| run.quantile_us(0.999)),
    ("device p99, reads", "", |run| run.device_us(Class::Foreground, 0.99)),
    ("gate p99, reads", "", |run| run.wait_us(Class::Foreground, 0.99)),
    ("I/Os a read", "", Measured::ios_per_read),
    ("% hits", "", Measured::hit_percent),
    ("% of the line", "", Measured::used_percent),
    ("overdrafts", "", |run| run.count(Counted::Overdrafts) as f64),
];

/// Writes cells to a report.
pub struct Sheet<'r> {
    /// The report.
    pub report: &'r mut Report,
    told: Vec<(String, String)>,
}

impl<'r> Sheet<'r> {
    /// On `report`.
    pub fn new(report: &'r mut Report) -> Self {
        Self { report, told: Vec::new() }
    }

    /// Every figure of a cell as rows of `id`, and its plots unless another row added them.
    pub fn cell(&mut self, id: &str, cell: &Cell) {
        let case = &cell.case;
        if self.told.iter().any(|(row, told)| row == id && told == case) {
            return;
        }
        for Side { scheme, runs, open } in &cell.sides {
            let mut tell = |what: &str, unit: &str, figure: &dyn Fn(&Measured) -> f64| {
                let values: Vec<_> = runs.iter().map(figure).collect();
                let what = if what.is_empty() { case.clone() } else { format!("{case}, {what}") };
                self.report.median(id, &what, scheme, &values, unit);
            };
            tell("", "op/s", &Measured::qps);
            tell("mean", "us", &Measured::mean_us);
            for (name, part) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
                tell(name, "us", &|run| run.quantile_us(part));
            }
            tell("worst second's p99", "us", &Measured::worst_second_us);
            tell("reads, p99", "us", &|run| run.read_us(0.99));
            for class in Class::ALL {
                let name = class.name();
                tell(&format!("{name}, tokens"), "IOPS", &|run| {
                    let tokens = run.count(Counted::Tokens(class)) as f64;
                    tokens / run.outcome.elapsed.as_secs_f64()
                });
                tell(&format!("{name}, device p99"), "us", &|run| run.device_us(class, 0.99));
                tell(&format!("{name}, gate wait p99"), "us", &|run| run.wait_us(class, 0.99));
            }
            tell("of what is paid for", "%", &Measured::used_percent);
            tell("overdrafts", "I/Os", &|run| run.count(Counted::Overdrafts) as f64);
            tell("hits", "% of look-ups", &Measured::hit_percent);
            tell("room for cached blocks", "MiB", &|run| run.cache_bytes as f64 / MIB as f64);
            tell("device reads for each read", "I/Os", &Measured::ios_per_read);
            if let Some(open) = open {
                let figures = [
                    ("op/s", open.qps(), "op/s"),
                    ("mean", open.mean_us(), "us"),
                    ("p99", open.quantile_us(0.99), "us"),
                    ("p99.9", open.quantile_us(0.999), "us"),
                ];
                for (name, value, unit) in figures {
                    self.report.row(id, &format!("{case}, {name}/open"), scheme, value, unit);
                }
            }
        }
        self.report.machine_of(id, cell);
        if !self.told.iter().any(|(_, told)| told == case) {
            self.report.cell(id, cell, &FIGURES);
            self.report.plots.extend(plots::of(id, cell));
        }
        self.told.push((id.into(), case.clone()));
    }

    /// Ratios of a row as rows of the report, and as lines of its table for readers.
    pub fn ratios(&mut self, id: &str, what: &str, unit: &str, of: &[(&str, Vec<f64>)]) {
        self.report.compared(id, what, unit, of);
    }

    /// Checks the median of a figure of several runs. It is reported as not measured where the timer's error is too
    /// large for the latency.
    pub fn check(&mut self, id: &str, what: &str, values: &[f64], band: [f64; 2], exact: Better) {
        let value = median(values);
        if exact.is_measurable() || value.is_nan() {
            return self.report.check(id, what, value, band);
        }
        let what = format!(
            "{what}: not measurable here: {value:.2}, but a bare sleep was {:.0} us late, and the band comes \
             to {:.0} us",
            exact.error_us, exact.limit_us
        );
        self.report.check(id, &what, f64::NAN, band);
    }

    /// Checks that no request overdrew a scheme's provider, and that every answer was right.
    pub fn sound<'c>(&mut self, cells: impl Iterator<Item = &'c Cell>, schemes: &[&str]) {
        let (mut overdrafts, mut wrong, mut requests) = (0, 0, 0);
        let mut example = None;
        for side in cells.flat_map(|cell| &cell.sides) {
            for run in side.runs.iter().chain(&side.open) {
                wrong += run.outcome.wrong;
                example = example.or_else(|| run.outcome.example.clone());
                if schemes.contains(&&*side.scheme) {
                    overdrafts += run.count(Counted::Overdrafts);
                    requests += run.count(Counted::Provider);
                }
            }
        }
        let what = "answers that were not what was stored, all schemes";
        self.report.check("all", what, wrong as f64, [0.0, 0.0]);
        self.report.notes.extend(example.map(|example| format!("a wrong answer: {example}")));
        let what = format!(
            "overdrafts of {}: of {requests} I/Os those its provider made wait",
            schemes.join(", ")
        );
        self.report.check("all", &what, overdrafts as f64, [0.0, 0.0]);
    }
}

//! Cells as rows, checks and plots of a report.

use policy::purpose::Class;
use policy::units::MIB;

use super::{Counted, Late, Measured, plots};
use crate::report::{Report, Table};
use crate::stats::Interval;

/// What a timer's error may be of the latency a band asks for.
const ERROR_MAX: f64 = 0.2;

/// One scheme in a case.
#[derive(Clone, Debug)]
pub struct Side {
    /// Its name.
    pub scheme: String,
    /// One for each seed.
    pub runs: Vec<Measured>,
    /// One in the open loop, if that was asked for.
    pub open: Option<Measured>,
}

/// A case, measured.
#[derive(Clone, Debug)]
pub struct Cell {
    /// What was run.
    pub case: String,
    /// The schemes.
    pub sides: Vec<Side>,
    /// The machine's part of latencies, in each run.
    pub late: Vec<Late>,
    /// Whether the schemes ran at the same time.
    pub together: bool,
}

impl Cell {
    /// The runs of a scheme.
    ///
    /// # Panics
    /// When it is not in this case: whoever asks has put the case together.
    #[must_use]
    pub fn side(&self, scheme: &str) -> &Side {
        let side = self.sides.iter().find(|side| side.scheme == scheme);
        side.unwrap_or_else(|| panic!("{scheme} is not in {}", self.case))
    }

    /// A figure of every run of a scheme.
    #[must_use]
    pub fn of(&self, scheme: &str, figure: impl Fn(&Measured) -> f64) -> Vec<f64> {
        self.side(scheme).runs.iter().map(figure).collect()
    }

    /// What the part `part` of bare sleeps was late at most, in microseconds: the median of the runs.
    #[must_use]
    pub fn late_us(&self, part: f64) -> f64 {
        median(&self.late.iter().map(|late| late.us(part)).collect::<Vec<_>>())
    }

    /// What bare sleeps were late in the mean.
    #[must_use]
    pub fn late_mean_us(&self) -> f64 {
        median(&self.late.iter().map(Late::mean_us).collect::<Vec<_>>())
    }

    /// Processor time that was taken, in percent of that of all processors.
    #[must_use]
    pub fn busy_percent(&self) -> f64 {
        median(&self.late.iter().map(Late::busy_percent).collect::<Vec<_>>())
    }

    /// The same of everybody on the machine.
    #[must_use]
    pub fn machine_percent(&self) -> f64 {
        median(&self.late.iter().map(Late::machine_percent).collect::<Vec<_>>())
    }

    /// The ratio of a figure of two schemes, run by run.
    #[must_use]
    pub fn ratios(&self, one: &str, other: &str, figure: impl Fn(&Measured) -> f64) -> Vec<f64> {
        let (one, other) = (self.of(one, &figure), self.of(other, &figure));
        one.into_iter().zip(other).map(|(one, other)| one / other).collect()
    }
}

/// The value in the middle; not a number of nothing.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    crate::stats::Median::of(values).map_or(f64::NAN, |median| median.median)
}

/// What a latency of a scheme has to stay below for a check to hold, and how exact the timer is about it.
#[derive(Clone, Copy, Debug)]
pub struct Better {
    /// The latency in microseconds that the band comes to.
    pub limit_us: f64,
    /// The timer's error in microseconds.
    pub error_us: f64,
}

impl Better {
    /// Nothing of it is a latency.
    pub const NO_LATENCY: Self = Self { limit_us: f64::INFINITY, error_us: 0.0 };

    fn is_measurable(self) -> bool {
        // A limit that is no number has nothing measured behind it either.
        self.error_us <= ERROR_MAX * self.limit_us
    }
}

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

    /// Every figure of a cell as rows of `id`, and its plots if no other row had them.
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
        let (late, busy) = (cell.late_us(0.99), cell.busy_percent());
        self.report.row(id, case, "bare sleep, p99 late", late, "us");
        self.report.row(id, case, "this bench", busy, "% of processors");
        self.report.row(id, case, "everybody", cell.machine_percent(), "% of processors");
        if !self.told.iter().any(|(_, told)| told == case) {
            self.report.tables.push(table(id, cell));
            let plots = plots::of(id, cell);
            self.report.plots.extend(plots);
        }
        self.told.push((id.into(), case.clone()));
    }

    /// Ratios of a row as rows of the report, and a line each in its table for people.
    pub fn ratios(&mut self, id: &str, what: &str, unit: &str, of: &[(&str, Vec<f64>)]) {
        for (scheme, values) in of {
            self.report.median(id, what, scheme, values, unit);
        }
        self.report.tables.push(Table {
            title: format!("{id}: {what}, {unit}"),
            columns: of.iter().map(|(scheme, _)| (*scheme).to_owned()).collect(),
            lines: vec![(String::new(), of.iter().map(|(_, v)| Some(median(v))).collect())],
        });
    }

    /// A check of a ratio or another figure of several runs: of its median. Where the timer's error is too
    /// large for the latency it comes to, it is not measured.
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

    /// Checks that a scheme's provider never made anybody wait, and that every answer was right.
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

/// What people see of a cell: the figures of each scheme, and of its run in the open loop.
fn table(id: &str, cell: &Cell) -> Table {
    type Figure = (&'static str, fn(&Measured) -> f64);
    const FIGURES: [Figure; 11] = [
        ("op/s", Measured::qps),
        ("mean us", Measured::mean_us),
        ("p50 us", |run| run.quantile_us(0.5)),
        ("p99 us", |run| run.quantile_us(0.99)),
        ("p99.9 us", |run| run.quantile_us(0.999)),
        ("device p99, reads", |run| run.device_us(Class::Foreground, 0.99)),
        ("gate p99, reads", |run| run.wait_us(Class::Foreground, 0.99)),
        ("I/Os a read", Measured::ios_per_read),
        ("% hits", Measured::hit_percent),
        ("% of the line", Measured::used_percent),
        ("overdrafts", |run| run.count(Counted::Overdrafts) as f64),
    ];
    let line = |name: String, runs: &[Measured]| {
        let of = |(_, figure): &Figure| {
            let value = median(&runs.iter().map(figure).collect::<Vec<_>>());
            value.is_finite().then_some(value)
        };
        (name, FIGURES.iter().map(of).collect())
    };
    let lines = cell.sides.iter().flat_map(|side| {
        let open = side.open.as_ref();
        let open = open.map(|run| line(format!("{}/open", side.scheme), std::slice::from_ref(run)));
        std::iter::once(line(side.scheme.clone(), &side.runs)).chain(open)
    });
    Table {
        title: format!("{id}, {}", cell.case),
        columns: FIGURES.iter().map(|(name, _)| (*name).into()).collect(),
        lines: lines.collect(),
    }
}

impl Report {
    /// Adds the median of several runs, and the 95 % interval of their mean.
    pub fn median(&mut self, id: &str, case: &str, scheme: &str, values: &[f64], unit: &str) {
        self.row(id, case, scheme, median(values), unit);
        if let Some(interval) = Interval::of(values) {
            self.row(id, case, &format!("{scheme}, 95 % from"), interval.low, unit);
            self.row(id, case, &format!("{scheme}, 95 % to"), interval.high, unit);
        }
    }
}

//! Cells as rows, tables, checks and plots of a report.

use policy::units::MIB;

use super::{Counted, Late, Measured, balance, median, plots};
use crate::report::{Report, Table};

/// One scheme in a case.
#[derive(Clone, Debug)]
pub struct Side {
    /// Its name.
    pub scheme: String,
    /// One for each seed.
    pub runs: Vec<Measured>,
}

/// A case, measured.
#[derive(Clone, Debug)]
pub struct Cell {
    /// What was run.
    pub case: String,
    /// The schemes.
    pub sides: Vec<Side>,
    /// How late the machine's timers were in each run, and how busy it was.
    pub late: Vec<Late>,
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

    /// A figure of two schemes together, run by run.
    #[must_use]
    pub fn pairs(
        &self,
        one: &str,
        other: &str,
        figure: impl Fn(&Measured, &Measured) -> f64,
    ) -> Vec<f64> {
        let (one, other) = (&self.side(one).runs, &self.side(other).runs);
        one.iter().zip(other).map(|(one, other)| figure(one, other)).collect()
    }

    /// The ratio of a figure of two schemes, run by run.
    #[must_use]
    pub fn ratios(&self, one: &str, other: &str, figure: impl Fn(&Measured) -> f64) -> Vec<f64> {
        self.pairs(one, other, |one, other| figure(one) / figure(other))
    }

    /// The part of the way from `base` to the line that `ours` went, in operations of users, run by run;
    /// not a number where the base left nothing to gain. See [`balance::gap_closed`].
    #[must_use]
    pub fn gaps_closed(&self, ours: &str, base: &str) -> Vec<f64> {
        self.pairs(ours, base, |ours, base| {
            balance::gap_closed(ours.qps(), base.qps(), ours.roof()).unwrap_or(f64::NAN)
        })
    }

    /// The one of `schemes` with the largest median of a figure; `None` of none.
    #[must_use]
    pub fn best<'s>(
        &self,
        schemes: &[&'s str],
        figure: impl Fn(&Measured) -> f64,
    ) -> Option<&'s str> {
        let of = |scheme: &&str| median(&self.of(scheme, &figure));
        schemes.iter().copied().max_by(|one, other| of(one).total_cmp(&of(other)))
    }

    fn late_us(&self) -> f64 {
        median(&self.late.iter().map(|late| late.us(0.99)).collect::<Vec<_>>())
    }

    fn busy(&self) -> [f64; 2] {
        [Late::busy_percent, Late::machine_percent]
            .map(|of| median(&self.late.iter().map(of).collect::<Vec<_>>()))
    }
}

/// A figure of a run, by its name and unit.
type Figure = (&'static str, &'static str, fn(&Measured) -> f64);

/// What every scheme has a line of, for people too.
const FIGURES: [Figure; 13] = [
    ("", "op/s", Measured::qps),
    ("mean", "us", Measured::mean_us),
    ("p99", "us", |run| run.quantile_us(0.99)),
    ("of the line", "%", |run| 100.0 * run.used()),
    ("least loaded volume", "% of its line", |run| 100.0 * least(run)),
    ("most loaded volume", "% of its line", |run| 100.0 * most(run)),
    ("spread", "%", |run| 100.0 * run.spread()),
    ("spread of reads", "%", |run| 100.0 * run.spread_of_reads()),
    ("deviation", "of paid", Measured::deviation),
    ("device reads for each read", "I/Os", Measured::ios_per_read),
    ("copies", "tables", |run| run.copies.made as f64),
    ("copies", "MiB", |run| run.copies.bytes as f64 / MIB as f64),
    ("overdrafts", "I/Os", |run| run.sum(Counted::Overdrafts) as f64),
];

fn least(run: &Measured) -> f64 {
    run.loads().into_iter().fold(f64::INFINITY, f64::min)
}

fn most(run: &Measured) -> f64 {
    run.loads().into_iter().fold(0.0, f64::max)
}

/// Writes cells to a report.
pub struct Sheet<'r> {
    /// The report.
    pub report: &'r mut Report,
    told: Vec<String>,
}

impl<'r> Sheet<'r> {
    /// On `report`.
    pub fn new(report: &'r mut Report) -> Self {
        Self { report, told: Vec::new() }
    }

    /// Every figure of a cell as rows of `id`, with a table and plots, if no other row had them.
    pub fn cell(&mut self, id: &str, cell: &Cell) {
        let case = &cell.case;
        if self.told.contains(case) {
            return;
        }
        self.told.push(case.clone());
        for Side { scheme, runs } in &cell.sides {
            for (what, unit, figure) in FIGURES {
                let values: Vec<_> = runs.iter().map(figure).collect();
                let what = if what.is_empty() { case.clone() } else { format!("{case}, {what}") };
                self.report.median(id, &what, scheme, &values, unit);
            }
            let copies: Vec<_> = runs.iter().map(|run| 100.0 * run.used_by_copies()).collect();
            self.report.median(id, &format!("{case}, copies"), scheme, &copies, "% of the line");
            self.volumes(id, case, scheme, runs);
        }
        self.report.row(id, case, "bare sleep, p99 late", cell.late_us(), "us");
        for (whose, busy) in ["this bench", "everybody"].into_iter().zip(cell.busy()) {
            self.report.row(id, case, whose, busy, "% of processors");
        }
        self.report.tables.push(table(id, cell));
        self.report.plots.extend(plots::of(id, cell));
    }

    /// The mean of each volume, and the first run second by second.
    fn volumes(&mut self, id: &str, case: &str, scheme: &str, runs: &[Measured]) {
        let Some(first) = runs.first() else { return };
        for volume in 0..first.volumes() {
            let values: Vec<_> = runs.iter().map(|run| run.iops(volume)).collect();
            let what = format!("{case}, volume {}", volume + 1);
            self.report.median(id, &what, scheme, &values, "IOPS");
            for sample in &first.outcome.samples {
                let what = format!("{what}, at {:.1} s", sample.at.as_secs_f64());
                let value = first.iops_at(sample, volume);
                self.report.row(id, &what, scheme, value, "IOPS over time");
            }
        }
    }

    /// Figures of schemes as rows of the report, and a line each in a table for people.
    pub fn figures(&mut self, id: &str, what: &str, unit: &str, of: &[(&str, Vec<f64>)]) {
        for (scheme, values) in of {
            self.report.median(id, what, scheme, values, unit);
        }
        let value = |values: &Vec<f64>| Some(median(values)).filter(|value| value.is_finite());
        self.report.tables.push(Table {
            title: format!("{id}: {what}, {unit}"),
            columns: of.iter().map(|(scheme, _)| (*scheme).to_owned()).collect(),
            lines: vec![(String::new(), of.iter().map(|(_, values)| value(values)).collect())],
        });
    }

    /// A check of a figure of several runs: of its median.
    pub fn check(&mut self, id: &str, what: &str, values: &[f64], band: [f64; 2]) {
        self.report.check(id, what, median(values), band);
    }

    /// Checks that no provider ever made anybody wait, and that every answer was right.
    pub fn sound<'c>(&mut self, cells: impl Iterator<Item = &'c Cell>) {
        let (mut overdrafts, mut wrong, mut requests) = (0, 0, 0);
        let mut example = None;
        for run in cells.flat_map(|cell| &cell.sides).flat_map(|side| &side.runs) {
            wrong += run.outcome.wrong;
            example = example.or_else(|| run.outcome.example.clone());
            overdrafts += run.sum(Counted::Overdrafts);
            requests += run.sum(Counted::Users) + run.sum(Counted::Others);
        }
        let what = "answers that were not what was stored, all schemes";
        self.report.check("all", what, wrong as f64, [0.0, 0.0]);
        self.report.notes.extend(example.map(|example| format!("a wrong answer: {example}")));
        let what = format!("overdrafts: of {requests} I/Os those a provider made wait");
        self.report.check("all", &what, overdrafts as f64, [0.0, 0.0]);
    }
}

/// What people see of a cell: the figures of each scheme.
fn table(id: &str, cell: &Cell) -> Table {
    let line = |side: &Side| {
        let of = |(_, _, figure): &Figure| {
            let value = median(&side.runs.iter().map(figure).collect::<Vec<_>>());
            value.is_finite().then_some(value)
        };
        (side.scheme.clone(), FIGURES.iter().map(of).collect())
    };
    let column = |(name, unit, _): &Figure| format!("{name} {unit}").trim().to_owned();
    Table {
        title: format!("{id}, {}", cell.case),
        columns: FIGURES.iter().map(column).collect(),
        lines: cell.sides.iter().map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Options;
    use crate::drive::Operation;
    use crate::spread::{Copies, Outcome, Paid};

    fn run(operations: u64, users: [u64; 2]) -> Measured {
        let mut outcome = Outcome {
            elapsed: Duration::from_secs(1),
            counted: vec![users[0], 0, 0, 0, users[1], 0, 0, 0],
            ..Outcome::default()
        };
        for _ in 0..operations {
            outcome.latencies.record(Operation::Read, Duration::from_millis(1));
        }
        let paid = Paid { iops: vec![100, 100], rho: 1.0 };
        Measured { outcome, paid, copies: Copies::default() }
    }

    fn cell() -> Cell {
        let side =
            |scheme: &str, run: Measured| Side { scheme: scheme.into(), runs: vec![run.clone()] };
        Cell {
            case: "reads".into(),
            sides: vec![side("base", run(150, [90, 60])), side("ours", run(190, [95, 95]))],
            late: Vec::new(),
        }
    }

    #[test]
    fn schemes_are_told_side_by_side_once() {
        let mut report = Report::new("spread", &Options::default());
        let mut sheet = Sheet::new(&mut report);
        let cell = cell();
        sheet.cell("B18", &cell);
        sheet.cell("B20", &cell);
        sheet.check("B18", "gap", &cell.gaps_closed("ours", "base"), [0.7, f64::INFINITY]);
        sheet.sound(std::iter::once(&cell));
        assert_eq!(report.tables.len(), 1);
        assert_eq!(report.tables[0].lines[1].1[0], Some(190.0));
        assert!(report.rows.iter().any(|row| row.case == "reads, volume 2"
            && row.scheme == "base"
            && row.value == Some(60.0)));
        // 40 of the 50 that were left.
        assert_eq!(report.checks[0].value, Some(0.8));
        assert!(report.holds());
    }

    #[test]
    fn the_best_is_found_and_ratios_go_run_by_run() {
        let cell = cell();
        assert_eq!(cell.best(&["base", "ours"], Measured::qps), Some("ours"));
        assert_eq!(cell.ratios("ours", "base", Measured::qps), [190.0 / 150.0]);
        assert_eq!(cell.best(&[], Measured::qps), None);
    }
}

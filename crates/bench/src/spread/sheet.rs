//! Cells as rows, tables, checks and plots of a report.

use policy::units::MIB;

use super::{Cell, Counted, Measured, Side, balance, plots};
use crate::compare::Figure;
use crate::report::Report;
use crate::stats::median;

impl Cell {
    /// The share of the way from `base` to the paid rate that `ours` covers, in operations of users, run by run; NaN if
    /// `base` leaves nothing to gain. See [`balance::gap_closed`].
    #[must_use]
    pub fn gaps_closed(&self, ours: &str, base: &str) -> Vec<f64> {
        self.pairs(ours, base, |ours, base| {
            balance::gap_closed(ours.qps(), base.qps(), ours.roof()).unwrap_or(f64::NAN)
        })
    }
}

/// The figures of every scheme, also in tables for readers.
const FIGURES: [Figure<Measured>; 13] = [
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

    /// Every figure of a cell as rows of `id`, with a table and plots, unless another row added them.
    pub fn cell(&mut self, id: &str, cell: &Cell) {
        let case = &cell.case;
        if self.told.contains(case) {
            return;
        }
        self.told.push(case.clone());
        for Side { scheme, runs, .. } in &cell.sides {
            for (what, unit, figure) in FIGURES {
                let values: Vec<_> = runs.iter().map(figure).collect();
                let what = if what.is_empty() { case.clone() } else { format!("{case}, {what}") };
                self.report.median(id, &what, scheme, &values, unit);
            }
            let copies: Vec<_> = runs.iter().map(|run| 100.0 * run.used_by_copies()).collect();
            self.report.median(id, &format!("{case}, copies"), scheme, &copies, "% of the line");
            self.volumes(id, case, scheme, runs);
        }
        self.report.machine_of(id, cell);
        self.report.cell(id, cell, &FIGURES);
        self.report.plots.extend(plots::of(id, cell));
    }

    /// The mean of each volume, and the first run per second.
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

    /// Figures of schemes as rows of the report, and as lines of a table for readers.
    pub fn figures(&mut self, id: &str, what: &str, unit: &str, of: &[(&str, Vec<f64>)]) {
        self.report.compared(id, what, unit, of);
    }

    /// Checks the median of a figure of several runs.
    pub fn check(&mut self, id: &str, what: &str, values: &[f64], band: [f64; 2]) {
        self.report.check(id, what, median(values), band);
    }

    /// Checks that no request overdrew a provider, and that every answer was right.
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
            |scheme: &str, run: Measured| Side { runs: vec![run.clone()], ..Side::of(scheme) };
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
        // 40 of the 50 that remained.
        assert_eq!(report.checks[0].value, Some(0.8));
        assert!(report.holds());
    }
}

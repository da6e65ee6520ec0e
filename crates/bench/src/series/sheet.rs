//! Cells as rows, tables and checks of a report.

use super::{Cell, Measured, Side, plots};
use crate::compare::Figure;
use crate::report::{Report, Table};
use crate::stats::median;

/// The figures of every rule.
pub(super) const FIGURES: [Figure<Measured>; 10] = [
    ("", "MiB/s", Measured::mib_per_s),
    ("of the line", "%", Measured::of_line_percent),
    ("written together", "KiB", Measured::group_kib),
    ("write amplification", "x", Measured::write_amplification),
    ("peak fill", "%", Measured::peak_percent),
    ("files that died whole", "%", Measured::whole_percent),
    ("dead in files that were merged", "%", Measured::eaten_percent),
    ("puts delayed", "", |run| run.counts.delayed as f64),
    ("puts refused", "", |run| run.refused as f64),
    ("processor", "s/s", Measured::processors),
];

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

    /// Every figure of a cell as rows of `id`, unless another row added them.
    pub fn cell(&mut self, id: &str, cell: &Cell) {
        let case = &cell.case;
        if self.told.contains(case) {
            return;
        }
        self.told.push(case.clone());
        for Side { scheme, runs, .. } in &cell.sides {
            if runs.is_empty() {
                // Refused by its own check, or because its reference was.
                let line = format!("{id}, {case}, {scheme}: would run out of space, not run");
                self.report.notes.push(line);
            }
            for (what, unit, figure) in FIGURES {
                let values: Vec<_> = runs.iter().map(figure).collect();
                let what = if what.is_empty() { case.clone() } else { format!("{case}, {what}") };
                self.report.median(id, &what, scheme, &values, unit);
            }
        }
    }

    /// A table of a cell: a line for each rule.
    pub fn table(&mut self, id: &str, cell: &Cell) {
        self.report.cell(id, cell, &FIGURES);
    }

    /// A table of one figure: a line for each cell and a column for each rule.
    pub fn grid(&mut self, title: &str, cells: &[&Cell], figure: impl Fn(&Measured) -> f64) {
        let schemes = plots::schemes(cells);
        let line = |cell: &&Cell| {
            let of = |scheme: &String| {
                let value = cell.find(scheme)?.median(&figure);
                value.is_finite().then_some(value)
            };
            (cell.case.clone(), schemes.iter().map(of).collect())
        };
        let lines = cells.iter().map(line).collect();
        self.report.tables.push(Table { title: title.into(), columns: schemes.clone(), lines });
    }

    /// The ratio of a figure of two rules, if both ran, as a row, and as a check if there is a band.
    pub fn ratio(
        &mut self,
        id: &str,
        what: &str,
        cell: &Cell,
        [one, other]: [&str; 2],
        figure: fn(&Measured) -> f64,
        band: Option<[f64; 2]>,
    ) {
        if cell.find(one).is_none() || cell.find(other).is_none() {
            return;
        }
        let values = cell.ratios(one, other, figure);
        let what = format!("{}: {what}, {one} / {other}", cell.case);
        match band {
            Some(band) => self.check(id, &what, &values, band),
            None => self.report.compared(id, &what, "x", &[("ratio", values)]),
        }
    }

    /// Checks the median of a figure of several runs.
    pub fn check(&mut self, id: &str, what: &str, values: &[f64], band: [f64; 2]) {
        self.report.median(id, what, "checked", values, "");
        self.report.check(id, what, median(values), band);
    }

    /// Checks a throughput; not measured where the processor may have been the limit.
    pub fn check_speed(
        &mut self,
        id: &str,
        what: &str,
        values: &[f64],
        band: [f64; 2],
        of: &[&Cell],
    ) {
        let runs = of.iter().flat_map(|cell| &cell.sides).flat_map(|side| &side.runs);
        // In virtual time the processor is never the limit.
        let real = runs.filter(|run| run.line.is_none());
        let busiest = real.map(Measured::processors).fold(0.0, f64::max);
        let there = crate::machine::processor_count() as f64;
        if busiest <= BUSY_MAX * there {
            return self.check(id, what, values, band);
        }
        let what = format!(
            "{what}: not measurable here: {:.2}, but the processors were busy for {:.0} % of the time",
            median(values),
            100.0 * busiest / there
        );
        self.report.check(id, &what, f64::NAN, band);
    }

    /// Checks that every value belonged to its key.
    pub fn sound<'c>(&mut self, cells: impl Iterator<Item = &'c Cell>) {
        let (mut read, mut wrong) = (0, 0);
        for run in cells.flat_map(|cell| &cell.sides).flat_map(|side| &side.runs) {
            read += run.read;
            wrong += run.wrong;
        }
        let what = format!("of {read} values that were read, those that were not their key's");
        self.report.check("all", &what, wrong as f64, [0.0, 0.0]);
    }
}

/// The share of the processors' time beyond which they may be the limit.
const BUSY_MAX: f64 = 0.7;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use policy::units::MIB;

    use super::*;
    use crate::Options;

    fn cell(line: Option<f64>) -> Cell {
        let run = |mib: u64, copied: u64| {
            let mut run = Measured {
                answered: mib * MIB,
                elapsed: Duration::from_secs(1),
                whole: Duration::from_secs(1),
                processor: Duration::from_secs(1000),
                line,
                read: 5,
                ..Measured::default()
            };
            (run.counts.put_bytes, run.counts.copied_bytes) = (100, copied);
            run
        };
        let side = |scheme: &str, run: Measured| Side { runs: vec![run], ..Side::of(scheme) };
        let sides =
            vec![side("static", run(50, 50)), side("greedy", run(100, 0)), Side::of("fisherman")];
        Cell { case: "cyclic".into(), sides, late: Vec::new() }
    }

    #[test]
    fn rules_are_told_side_by_side_and_what_is_not_feasible_is_said() {
        let mut report = Report::new("series", &Options::default());
        let mut sheet = Sheet::new(&mut report);
        let cell = cell(Some(1e9));
        sheet.cell("B38", &cell);
        sheet.cell("B38", &cell);
        sheet.grid("B38", &[&cell], Measured::write_amplification);
        sheet.ratio(
            "B38",
            "speed",
            &cell,
            ["greedy", "static"],
            Measured::mib_per_s,
            Some([1.5, 9.0]),
        );
        sheet.ratio(
            "B38",
            "speed",
            &cell,
            ["greedy", "ours"],
            Measured::mib_per_s,
            Some([1.5, 9.0]),
        );
        sheet.sound(std::iter::once(&cell));
        assert_eq!(report.tables[0].lines[0].1, [Some(1.5), Some(1.0), None]);
        assert_eq!(
            report.checks.iter().map(|check| check.value).collect::<Vec<_>>(),
            [Some(2.0), Some(0.0)]
        );
        assert!(
            report.notes[0].contains("fisherman: would run out of space, not run"),
            "{:?}",
            report.notes
        );
        let told = report.rows.iter().filter(|row| row.scheme == "static" && row.unit == "MiB/s");
        assert_eq!(told.count(), 1);
    }

    #[test]
    fn a_busy_processor_makes_real_time_not_measurable_and_leaves_virtual_time_alone() {
        for (line, value) in [(Some(1e9), Some(2.0)), (None, None)] {
            let mut report = Report::new("series", &Options::default());
            let cell = cell(line);
            let band = [1.5, f64::INFINITY];
            Sheet::new(&mut report).check_speed("B38", "speed", &[2.0], band, &[&cell]);
            assert_eq!(report.checks[0].value, value);
        }
    }
}

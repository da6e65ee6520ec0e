//! Writes cells to a report: rows, tables, checks, plots.

use super::{Cell, Figure, Late, Outcome, Side, Values};
use crate::report::{Curve, Plot, Report, Stroke, Table};
use crate::stats::median;

/// Writes cells to a report.
pub struct ReportWriter<'r> {
    /// The report.
    pub report: &'r mut Report,
    /// Rows and cases whose figures are in it.
    told: Vec<(String, String)>,
}

impl<'r> ReportWriter<'r> {
    /// On `report`.
    pub fn new(report: &'r mut Report) -> Self {
        Self { report, told: Vec::new() }
    }

    /// Every figure of a cell as rows of `id`, and its table and plots, unless another row added them: see
    /// [`Outcome::TOLD_AGAIN`].
    pub fn cell<O: Outcome>(&mut self, id: &str, cell: &Cell<O>) {
        let case = &cell.case;
        let is_first = !self.told.iter().any(|(_, told)| told == case);
        let is_told = self.told.iter().any(|(row, told)| row == id && told == case);
        if is_told || !is_first && !O::TOLD_AGAIN {
            return;
        }
        self.told.push((id.into(), case.clone()));
        for side in &cell.sides {
            for figure in O::FIGURES.iter().filter(|figure| cell.has(figure)) {
                let values = side.each(figure.of);
                self.report.median(id, &figure.label(case), &side.scheme, &values, figure.unit);
            }
            O::tell_more(self.report, id, case, side);
        }
        if !cell.late.is_empty() {
            self.machine(id, cell);
        }
        if is_first && !O::COLUMNS.is_empty() {
            self.report.tables.push(cell.table(id, O::COLUMNS));
        }
        if is_first {
            self.report.plots.extend(O::plots(id, cell));
        }
    }

    /// How the machine was while a cell was measured.
    fn machine<O>(&mut self, id: &str, cell: &Cell<O>) {
        let case = &cell.case;
        self.report.row(id, case, "bare sleep, p99 late", cell.late_us(0.99), "us");
        let busy = [
            ("this bench", Late::busy_percent as fn(&Late) -> f64),
            ("everybody", Late::machine_percent),
        ];
        for (whose, percent) in busy {
            self.report.row(id, case, whose, cell.late_median(percent), "% of processors");
        }
    }

    /// Figures side by side, as rows and as one table for readers.
    pub fn compare(&mut self, id: &str, what: &str, unit: &str, of: &[(&str, Vec<f64>)]) {
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

    /// Checks the median of a figure of several runs. It is reported as not measured where the timer's error is too
    /// large for the latency.
    pub fn check(&mut self, id: &str, what: &str, values: impl Into<Values>, band: [f64; 2]) {
        match values.into().judge(band) {
            (value, None) => self.report.check(id, what, value, band),
            (value, Some(why)) => self.report.check(id, &format!("{what}: {why}"), value, band),
        }
    }

    /// A table of one figure: a line for each cell and a column for each scheme.
    pub fn grid<O>(&mut self, title: &str, cells: &[&Cell<O>], figure: Figure<O>) {
        let schemes = Cell::schemes(cells);
        let line = |cell: &&Cell<O>| {
            let of =
                |side: &Side<O>| Some(side.median(figure.of)).filter(|value| value.is_finite());
            let values = schemes.iter().map(|scheme| cell.find(scheme).and_then(of));
            (cell.case.clone(), values.collect())
        };
        let lines = cells.iter().map(line).collect();
        self.report.tables.push(Table { title: title.into(), columns: schemes.clone(), lines });
    }

    /// A figure of every scheme in several cells, side by side.
    pub fn bars<O>(&mut self, title: &str, unit: &str, cells: &[&Cell<O>], figure: Figure<O>) {
        let schemes = Cell::schemes(cells);
        let width = schemes.len() as f64 + 1.0;
        let places = || (0..cells.len()).map(|place| place as f64 * width).zip(cells);
        let curves = schemes.iter().enumerate().map(|(at, scheme)| {
            let bar = |(place, cell): (f64, &&Cell<O>)| {
                Some((place + at as f64, cell.find(scheme)?.median(figure.of)))
            };
            Curve::new(scheme, Stroke::Bars, places().filter_map(bar))
        });
        self.report.plots.push(Plot {
            marks: places().map(|(at, cell)| (at, cell.case.clone())).collect(),
            ..Plot::new(title, ["cases", unit], curves)
        });
    }

    /// A figure of every scheme over each cell's number, from left to right.
    pub fn curves<O>(
        &mut self,
        title: &str,
        axes: [&str; 2],
        cells: &[(f64, &Cell<O>)],
        figure: Figure<O>,
    ) -> &mut Plot {
        let all: Vec<_> = cells.iter().map(|(_, cell)| *cell).collect();
        let curves = Cell::schemes(&all).into_iter().map(|scheme| {
            let median = |side: &Side<O>| side.median(figure.of);
            let point = |(at, cell): &(f64, &Cell<O>)| Some((*at, cell.find(&scheme).map(median)?));
            let points: Vec<_> = cells.iter().filter_map(point).collect();
            Curve::new(scheme, Stroke::Line, points)
        });
        self.report.plots.push(Plot::new(title, axes, curves));
        self.report.plots.last_mut().expect("it was just added")
    }
}

//! Plots of a figure of every scheme over several cells.

use super::{Cell, Figure, ReportWriter, Side};
use crate::report::{Curve, Plot, Stroke};

impl ReportWriter<'_> {
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

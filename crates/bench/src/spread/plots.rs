//! Plots like the paper's: figures of each scheme, and of each of its volumes over time.

use policy::latency::Times;

use super::{Cell, Measured, Sheet, Side, median};
use crate::report::{Axis, Curve, Plot, Stroke};

/// Plots of a cell: each volume in the first run of every scheme.
pub(super) fn of(id: &str, cell: &Cell) -> Vec<Plot> {
    let first = |side: &Side| side.runs.first().map(|run| volumes(id, cell, &side.scheme, run));
    cell.sides.iter().filter_map(first).collect()
}

fn volumes(id: &str, cell: &Cell, scheme: &str, run: &Measured) -> Plot {
    let samples = &run.outcome.samples;
    let start = samples.first().map_or(0.0, |sample| sample.at.as_secs_f64() - 0.5);
    let mut curves: Vec<_> = (0..run.volumes())
        .map(|volume| Curve {
            name: format!("volume {}", volume + 1),
            stroke: Stroke::Line,
            points: samples
                .iter()
                .map(|sample| (sample.at.as_secs_f64() - start, run.iops_at(sample, volume)))
                .collect(),
        })
        .collect();
    let mut lines = run.paid.iops.clone();
    lines.dedup();
    for paid in lines {
        let points = vec![(0.0, paid as f64), (samples.len() as f64, paid as f64)];
        curves.push(Curve { name: "the line".into(), stroke: Stroke::Dashes, points });
    }
    Plot {
        title: format!("{id}, {}: each volume under {scheme}, copies left out", cell.case),
        x: "seconds".into(),
        y: "IOPS".into(),
        curves,
        ..Plot::default()
    }
}

impl Sheet<'_> {
    /// A figure of every scheme in several cells, side by side.
    pub fn bars(&mut self, title: &str, unit: &str, cells: &[&Cell], figure: fn(&Measured) -> f64) {
        let schemes = schemes(cells);
        let width = schemes.len() as f64 + 1.0;
        let bar = |scheme: &String, at: usize, cell: &Cell| {
            let side = cell.sides.iter().find(|side| side.scheme == *scheme)?;
            let place = cells.iter().position(|other| other.case == cell.case)? as f64 * width;
            Some((place + at as f64, median(&side.runs.iter().map(figure).collect::<Vec<_>>())))
        };
        let curves = schemes.iter().enumerate().map(|(at, scheme)| Curve {
            name: scheme.clone(),
            stroke: Stroke::Bars,
            points: cells.iter().filter_map(|cell| bar(scheme, at, cell)).collect(),
        });
        let places = (0..cells.len()).map(|place| place as f64 * width);
        self.report.plots.push(Plot {
            title: title.into(),
            x: "cases".into(),
            y: unit.into(),
            curves: curves.collect(),
            marks: places.zip(cells).map(|(at, cell)| (at, cell.case.clone())).collect(),
            ..Plot::default()
        });
    }

    /// A figure of every scheme over each cell's number, from left to right.
    pub fn curves(
        &mut self,
        title: &str,
        [x, y]: [&str; 2],
        cells: &[(f64, &Cell)],
        figure: fn(&Measured) -> f64,
    ) {
        let all: Vec<_> = cells.iter().map(|(_, cell)| *cell).collect();
        let point = |scheme: &String, at: f64, cell: &Cell| {
            let side = cell.sides.iter().find(|side| side.scheme == *scheme)?;
            Some((at, median(&side.runs.iter().map(figure).collect::<Vec<_>>())))
        };
        let curves = schemes(&all).into_iter().map(|scheme| Curve {
            points: cells.iter().filter_map(|(at, cell)| point(&scheme, *at, cell)).collect(),
            name: scheme,
            stroke: Stroke::Line,
        });
        self.report.plots.push(Plot {
            title: title.into(),
            x: x.into(),
            y: y.into(),
            curves: curves.collect(),
            ..Plot::default()
        });
    }

    /// The distribution of copy durations over all runs of every scheme that copies.
    pub fn copy_times(&mut self, title: &str, cell: &Cell) {
        let curve = |side: &Side| {
            let mut times = Times::default();
            side.runs.iter().for_each(|run| times.add(&run.copies.times));
            let points = (1..=100).filter_map(|percent| {
                let took = times.quantile(f64::from(percent) / 100.0)?;
                Some((took.as_secs_f64() * 1e3, f64::from(percent)))
            });
            let points = points.collect();
            Curve { name: side.scheme.clone(), stroke: Stroke::Line, points }
        };
        let curves: Vec<_> = cell.sides.iter().map(curve).collect();
        self.report.plots.push(Plot {
            title: title.into(),
            x: "milliseconds".into(),
            y: "percent of copies that took no longer".into(),
            x_axis: Axis::Log,
            curves: curves.into_iter().filter(|curve| !curve.points.is_empty()).collect(),
            ..Plot::default()
        });
    }
}

/// Every scheme, in the order of first occurrence.
fn schemes(cells: &[&Cell]) -> Vec<String> {
    let mut names = Vec::new();
    for side in cells.iter().flat_map(|cell| &cell.sides) {
        if !names.contains(&side.scheme) {
            names.push(side.scheme.clone());
        }
    }
    names
}

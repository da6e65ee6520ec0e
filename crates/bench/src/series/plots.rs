//! Plots like the paper's: throughput over time, and against a varied parameter.

use super::{Cell, Measured, Sheet, Side};
use crate::report::{Curve, Plot, Stroke};

impl Sheet<'_> {
    /// Throughput and fill over time of the first run of every rule, with the start of merging marked.
    pub fn over_time(&mut self, id: &str, cell: &Cell) {
        let minute = |run: &Measured| match (run.samples.first(), run.samples.last()) {
            (Some(first), Some(last)) => {
                let ticks = (run.samples.len() - 1).max(1) as f64;
                let tick = last.at.saturating_sub(first.at).as_secs_f64() / ticks;
                tick * f64::from(Measured::TICKS)
            }
            _ => f64::NAN,
        };
        let firsts = || cell.sides.iter().filter_map(|side| Some((side, side.runs.first()?)));
        let speed = firsts().map(|(side, run)| {
            let rates = run.minutes().into_iter().zip(0u32..);
            let points = rates.map(|((_, rate), at)| (f64::from(at) + 0.5, rate)).collect();
            Curve { name: side.scheme.clone(), stroke: Stroke::Line, points }
        });
        let fill = firsts().map(|(side, run)| {
            let ticks = run.samples.iter().zip(0u32..);
            let at = |tick: u32| f64::from(tick) / f64::from(Measured::TICKS);
            let points = ticks.map(|(sample, tick)| (at(tick), 100.0 * sample.fill)).collect();
            Curve { name: side.scheme.clone(), stroke: Stroke::Line, points }
        });
        // Rules whose marks fall on the same time share a mark.
        let mut marks: Vec<(f64, String)> = Vec::new();
        for (side, run) in firsts() {
            let [died, merged] = run.starts();
            let (at, what) = match (died, merged) {
                (_, Some(merged)) => (merged, "merges"),
                (Some(died), None) => (died, "only unlinks"),
                (None, None) => continue,
            };
            let at = (at / minute(run)).round();
            let text = format!("{} {what}", side.scheme);
            match marks.iter_mut().find(|(other, _)| *other == at) {
                Some((_, texts)) => *texts = format!("{texts}, {text}"),
                None => marks.push((at, text)),
            }
        }
        let plot = |what: &str, y: &str, curves: Vec<Curve>| Plot {
            title: format!("{id}, {}: {what} over time", cell.case),
            x: "minutes, scaled with the capacity".into(),
            y: y.into(),
            curves,
            marks: marks.clone(),
            ..Plot::default()
        };
        let plots = [
            plot("throughput", "MiB/s put", speed.collect()),
            plot("fill of the fullest disk", "%", fill.collect()),
        ];
        self.report.plots.extend(plots);
        for (side, run) in firsts() {
            for ((fills, rate), at) in run.minutes().into_iter().zip(0u32..) {
                let what = format!("{}, minute {at}, at {fills:.2} fillings", cell.case);
                self.report.row(id, &what, &side.scheme, rate, "MiB/s over time");
            }
        }
    }

    /// A figure of every rule over each cell's number, from left to right.
    pub fn curves(
        &mut self,
        title: &str,
        [x, y]: [&str; 2],
        cells: &[(f64, &Cell)],
        figure: impl Fn(&Measured) -> f64,
    ) {
        let all: Vec<_> = cells.iter().map(|(_, cell)| *cell).collect();
        let point = |scheme: &str, at: f64, cell: &Cell| {
            Some((at, cell.find(scheme).map(|side: &Side| side.median(&figure))?))
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

    /// Sets the horizontal axis of the last plot to powers of ten.
    pub fn log_x(&mut self) {
        if let Some(plot) = self.report.plots.last_mut() {
            plot.x_axis = crate::report::Axis::Log;
        }
    }
}

/// Every rule, in the order of first occurrence.
pub(super) fn schemes(cells: &[&Cell]) -> Vec<String> {
    crate::compare::each_once(
        cells.iter().flat_map(|cell| &cell.sides).map(|side| side.scheme.clone()),
    )
}

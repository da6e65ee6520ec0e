//! Plots like the paper's: each volume over time, and the time of copies.

use policy::latency::Times;

use super::{Cell, Run};
use crate::compare::Side;
use crate::report::{Axis, Curve, Plot, Stroke};

/// Plots of a cell: each volume in the first run of every scheme.
pub(super) fn of(id: &str, cell: &Cell) -> Vec<Plot> {
    let first =
        |side: &Side<Run>| side.runs.first().map(|run| volumes(id, cell, &side.scheme, run));
    cell.sides.iter().filter_map(first).collect()
}

fn volumes(id: &str, cell: &Cell, scheme: &str, run: &Run) -> Plot {
    let samples = &run.driven.samples;
    let start = samples.first().map_or(0.0, |sample| sample.at.as_secs_f64() - 0.5);
    let volumes = (0..run.volumes()).map(|volume| {
        let points = samples
            .iter()
            .map(|sample| (sample.at.as_secs_f64() - start, run.iops_at(sample, volume)));
        Curve::new(format!("volume {}", volume + 1), Stroke::Line, points)
    });
    let mut lines = run.paid.iops.clone();
    lines.dedup();
    let line = |paid: u64| [0.0, samples.len() as f64].map(|at| (at, paid as f64));
    let lines = lines.into_iter().map(|paid| Curve::new("the line", Stroke::Dashes, line(paid)));
    let title = format!("{id}, {}: each volume under {scheme}, copies left out", cell.case);
    Plot::new(title, ["seconds", "IOPS"], volumes.chain(lines))
}

/// The distribution of copy durations over all runs of every scheme that copies.
#[must_use]
pub fn copy_times(title: &str, cell: &Cell) -> Plot {
    let curves = cell.sides.iter().map(|side| {
        let mut times = Times::default();
        side.runs.iter().for_each(|run| times.add(&run.copies.times));
        let points = (1..=100).filter_map(|percent| {
            let took = times.quantile(f64::from(percent) / 100.0)?;
            Some((took.as_secs_f64() * 1e3, f64::from(percent)))
        });
        Curve::new(&side.scheme, Stroke::Line, points)
    });
    let axes = ["milliseconds", "percent of copies that took no longer"];
    let mut plot = Plot::new(title, axes, curves.filter(|curve| !curve.points.is_empty()));
    plot.x_axis = Axis::Log;
    plot
}

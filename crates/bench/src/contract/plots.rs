//! Pictures of a cell: latency second by second against the load, and tokens by class.

use policy::purpose::Class;

use super::{Cell, Counted, Run};
use crate::drive::Second;
use crate::report::{Axis, Curve, Plot, Stroke};

/// Plots of the first run of every scheme.
pub(super) fn of(id: &str, cell: &Cell) -> Vec<Plot> {
    let runs: Vec<(&str, &Run)> =
        cell.sides.iter().filter_map(|side| Some((&*side.scheme, side.runs.first()?))).collect();
    let seconds = |what: &str, y: &str, figure: fn(&Second) -> f64| {
        let curve = |(scheme, run): &(&str, &Run)| {
            let points =
                run.seconds().map(|second| (f64::from(second.number) + 0.5, figure(&second)));
            Curve::new(*scheme, Stroke::Line, points)
        };
        let title = format!("{id}, {}: {what}", cell.case);
        Plot::new(title, ["seconds", y], runs.iter().map(curve))
    };
    let mut latency = seconds("p99 of each second", "microseconds", |second| second.p99);
    latency.y_axis = Axis::Log;
    let operations = |second: &Second| second.operations as f64;
    let load = seconds("the load it goes with", "operations a second", operations);
    let tokens = runs.iter().map(|(scheme, run)| tokens(id, cell, scheme, run));
    [latency, load].into_iter().chain(tokens).collect()
}

/// Tokens of classes stacked, the most urgent at the bottom, and the paid rate as a dashed line.
fn tokens(id: &str, cell: &Cell, scheme: &str, run: &Run) -> Plot {
    let samples = &run.driven.samples;
    let start = samples.first().map_or(0.0, |sample| sample.at.as_secs_f64());
    let stacked = |upto: usize| {
        samples.iter().map(move |sample| {
            let classes = Class::ALL[..=upto].iter();
            let rates = classes.map(|class| sample.rates[Counted::Tokens(*class).index()]);
            (sample.at.as_secs_f64() - start, rates.sum())
        })
    };
    // The tallest first: each hides the lower part of the one before.
    let classes = Class::ALL.iter().enumerate().rev();
    let classes =
        classes.map(|(upto, class)| Curve::new(class.name(), Stroke::Stack, stacked(upto)));
    let line = [0.0, samples.len() as f64].map(|at| (at, run.paid_iops as f64));
    let line = Curve::new("the line", Stroke::Dashes, line);
    let title = format!("{id}, {}: tokens of each class, {scheme}", cell.case);
    Plot::new(title, ["seconds", "IOPS"], classes.chain([line]))
}

//! Pictures of a cell: latency second by second against the load, and tokens by class.

use policy::purpose::Class;

use super::{Cell, Counted, Measured, Side};
use crate::report::{Axis, Curve, Plot, Stroke};

/// Plots of the first run of every scheme.
pub(super) fn of(id: &str, cell: &Cell) -> Vec<Plot> {
    let first = |side: &Side| side.runs.first().cloned().map(|run| (side.scheme.clone(), run));
    let runs: Vec<_> = cell.sides.iter().filter_map(first).collect();
    let mut plots = vec![latency(id, cell, &runs), load(id, cell, &runs)];
    plots.extend(runs.iter().map(|(scheme, run)| tokens(id, cell, scheme, run)));
    plots
}

fn latency(id: &str, cell: &Cell, runs: &[(String, Measured)]) -> Plot {
    let curves = runs.iter().map(|(scheme, run)| Curve {
        name: scheme.clone(),
        stroke: Stroke::Line,
        points: whole(run).map(|second| (middle(second.number), second.p99)).collect(),
    });
    Plot {
        title: format!("{id}, {}: p99 of each second", cell.case),
        x: "seconds".into(),
        y: "microseconds".into(),
        y_axis: Axis::Log,
        curves: curves.collect(),
        ..Plot::default()
    }
}

fn load(id: &str, cell: &Cell, runs: &[(String, Measured)]) -> Plot {
    let curves = runs.iter().map(|(scheme, run)| Curve {
        name: scheme.clone(),
        stroke: Stroke::Line,
        points: whole(run)
            .map(|second| (middle(second.number), second.operations as f64))
            .collect(),
    });
    Plot {
        title: format!("{id}, {}: the load it goes with", cell.case),
        x: "seconds".into(),
        y: "operations a second".into(),
        curves: curves.collect(),
        ..Plot::default()
    }
}

/// Tokens of classes stacked, the most urgent at the bottom, and the paid rate as a dashed line.
fn tokens(id: &str, cell: &Cell, scheme: &str, run: &Measured) -> Plot {
    let samples = &run.outcome.samples;
    let start = samples.first().map_or(0.0, |sample| sample.at.as_secs_f64() - 0.5);
    let stacked = |upto: usize| {
        samples.iter().map(move |sample| {
            let sum: f64 = Class::ALL[..=upto]
                .iter()
                .map(|class| sample.rates[Counted::Tokens(*class).index()])
                .sum();
            (sample.at.as_secs_f64() - start - 0.5, sum)
        })
    };
    // The tallest first: each hides the lower part of the one before.
    let classes = Class::ALL.iter().enumerate().rev();
    let mut curves: Vec<_> = classes
        .map(|(upto, class)| Curve {
            name: class.name().into(),
            stroke: Stroke::Stack,
            points: stacked(upto).collect(),
        })
        .collect();
    let end = samples.len() as f64;
    curves.push(Curve {
        name: "the line".into(),
        stroke: Stroke::Dashes,
        points: vec![(0.0, run.paid_iops as f64), (end, run.paid_iops as f64)],
    });
    Plot {
        title: format!("{id}, {}: tokens of each class, {scheme}", cell.case),
        x: "seconds".into(),
        y: "IOPS".into(),
        curves,
        ..Plot::default()
    }
}

fn whole(run: &Measured) -> impl Iterator<Item = crate::drive::Second> {
    let end = run.outcome.elapsed.as_secs();
    run.seconds().into_iter().filter(move |second| u64::from(second.number) < end)
}

fn middle(second: u32) -> f64 {
    f64::from(second) + 0.5
}

//! Plots like the paper's: throughput over time.

use super::{Cell, Run};
use crate::report::{Curve, Plot, Report, Stroke};

/// Throughput and fill over time of the first run of every rule, with the start of merging marked.
pub(super) fn over_time(report: &mut Report, id: &str, cell: &Cell) {
    let minute = |run: &Run| match (run.samples.first(), run.samples.last()) {
        (Some(first), Some(last)) => {
            let ticks = (run.samples.len() - 1).max(1) as f64;
            let tick = last.at.saturating_sub(first.at).as_secs_f64() / ticks;
            tick * f64::from(Run::TICKS)
        }
        _ => f64::NAN,
    };
    let firsts = || cell.sides.iter().filter_map(|side| Some((side, side.runs.first()?)));
    let speed = firsts().map(|(side, run)| {
        let rates = run.minutes().into_iter().zip(0u32..);
        let points = rates.map(|((_, rate), at)| (f64::from(at) + 0.5, rate));
        Curve::new(&side.scheme, Stroke::Line, points)
    });
    let fill = firsts().map(|(side, run)| {
        let ticks = run.samples.iter().zip(0u32..);
        let at = |tick: u32| f64::from(tick) / f64::from(Run::TICKS);
        let points = ticks.map(|(sample, tick)| (at(tick), 100.0 * sample.fill));
        Curve::new(&side.scheme, Stroke::Line, points)
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
    let plot = |what: &str, y: &str, curves: Vec<Curve>| {
        let title = format!("{id}, {}: {what} over time", cell.case);
        let axes = ["minutes, scaled with the capacity", y];
        Plot { marks: marks.clone(), ..Plot::new(title, axes, curves) }
    };
    let plots = [
        plot("throughput", "MiB/s put", speed.collect()),
        plot("fill of the fullest disk", "%", fill.collect()),
    ];
    report.plots.extend(plots);
    for (side, run) in firsts() {
        for ((fills, rate), at) in run.minutes().into_iter().zip(0u32..) {
            let what = format!("{}, minute {at}, at {fills:.2} fillings", cell.case);
            report.row(id, &what, &side.scheme, rate, "MiB/s over time");
        }
    }
}

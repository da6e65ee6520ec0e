//! One run of one arm, and its figures.

use std::time::Duration;

use super::Cell;
use super::stand::Granted;
use crate::compare::{Figure, Outcome};
use crate::report::Report;
use crate::tier::volumes::Answers;

/// The result of one run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub(super) answers: Answers,
    pub(super) granted: Granted,
    pub(super) overdrafts: u64,
    /// From the loss of the volume until everything had its copies or fragments again; none if that took longer than the run.
    pub(super) rebuilt: Option<Duration>,
}

impl Run {
    /// The 99th percentile of users' latencies. It has no error of a timer: time is virtual.
    pub(super) const P99: Figure<Self> =
        Figure::new("p99", "us", |run: &Self| run.quantile_us(0.99));

    pub(super) const PER_SEC: Figure<Self> = Figure::new("", "op/s", |run: &Self| {
        run.answers.count as f64 / run.answers.elapsed.as_secs_f64()
    });

    fn quantile_us(&self, part: f64) -> f64 {
        match self.answers.nanos.is_empty() {
            true => f64::NAN,
            false => self.answers.nanos.value_at_quantile(part) as f64 / 1e3,
        }
    }

    fn percent(&self, operations: u64) -> f64 {
        100.0 * operations as f64 / self.granted.total as f64
    }
}

impl Outcome for Run {
    const FIGURES: &'static [Figure<Self>] = &[
        Self::PER_SEC,
        Figure::new("p50", "us", |run: &Self| run.quantile_us(0.5)),
        Self::P99,
        Figure::new("p99.9", "us", |run: &Self| run.quantile_us(0.999)),
        Figure::new("rebuild", "% of operations", |run: &Self| run.percent(run.granted.rebuild)),
        Figure::new("rebuilt", "MiB/s", |run: &Self| {
            run.granted.rebuilt_bytes as f64
                / run.answers.elapsed.as_secs_f64()
                / f64::from(1 << 20)
        }),
        Figure::new("whole after", "s", |run: &Self| {
            run.rebuilt.map_or(f64::NAN, |took| took.as_secs_f64())
        })
        .optional(),
        Figure::new("scrub", "% of operations", |run: &Self| run.percent(run.granted.scrub)),
        Figure::new("merges", "% of operations", |run: &Self| run.percent(run.granted.merge)),
    ];
}

/// Checks that every answer was right, and that no volume was asked for more than was paid for.
pub(super) fn sound(report: &mut Report, cells: &[&Cell]) {
    let runs = || cells.iter().flat_map(|cell| &cell.sides).flat_map(|side| &side.runs);
    let wrong: u64 = runs().map(|run| run.answers.wrong).sum();
    report.check("all", "answers that were not what was stored", wrong as f64, [0.0, 0.0]);
    let overdrafts: u64 = runs().map(|run| run.overdrafts).sum();
    report.check("all", "requests that a provider made wait", overdrafts as f64, [0.0, 0.0]);
}

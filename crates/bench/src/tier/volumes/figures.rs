//! The figures of a run.

use super::{Cell, Run};
use crate::compare::{Figure, Outcome};
use crate::report::Report;

impl Run {
    /// Requests answered a second.
    pub const PER_SEC: Figure<Self> = Figure::new("", "op/s", Self::per_sec);
    /// The 99th percentile of latencies. It has no error of a timer: time is virtual.
    pub const P99: Figure<Self> = Figure::new("p99", "us", |run: &Self| run.quantile_us(0.99));
    /// Promoted bytes for each byte of the users.
    pub const PROMOTED: Figure<Self> =
        Figure::new("promoted / user bytes", "x", Self::promoted_per_byte).optional();
    /// What was dirty in the mean.
    pub const DIRTY: Figure<Self> =
        Figure::new("dirty", "% of the cache", |run: &Self| run.dirty(|dirty| dirty.mean))
            .optional();
    /// How much more was dirty in the second half than in the first.
    pub const DIRTY_GROWTH: Figure<Self> =
        Figure::new("dirty, growth", "% of the cache", |run: &Self| {
            run.dirty(|dirty| dirty.growth)
        })
        .optional();
    /// Operations at the gate of the slow volume for each request.
    pub const SLOW_OPS: Figure<Self> =
        Figure::new("slow operations for each request", "I/Os", |run: &Self| {
            run.ops_per_request(run.counted.slow_ops)
        });
}

impl Outcome for Run {
    const FIGURES: &'static [Figure<Self>] = &[
        Self::PER_SEC,
        Figure::new("p50", "us", |run: &Self| run.quantile_us(0.5)),
        Self::P99,
        Figure::new("hits", "% of read bytes", Self::hits).optional(),
        Self::PROMOTED,
        Self::SLOW_OPS,
        Figure::new("fast operations for each request", "I/Os", |run: &Self| {
            run.ops_per_request(run.counted.fast_ops)
        }),
        Self::DIRTY,
        Figure::new("dirty at most", "% of the cache", |run: &Self| run.dirty(|dirty| dirty.most))
            .optional(),
        Figure::new("dirty at the end", "% of the cache", |run: &Self| {
            run.dirty(|dirty| dirty.last)
        })
        .optional(),
        Self::DIRTY_GROWTH,
    ];
}

/// Checks that every answer was right, and that the slow volume was never asked for more than was paid for.
pub fn sound(report: &mut Report, cells: &[&Cell]) {
    let runs = || cells.iter().flat_map(|cell| &cell.sides).flat_map(|side| &side.runs);
    let wrong: u64 = runs().map(|run| run.answers.wrong).sum();
    report.check("all", "answers that were not what was stored", wrong as f64, [0.0, 0.0]);
    let requests: u64 = runs().map(|run| run.counted.requests).sum();
    let overdrafts: u64 = runs().map(|run| run.counted.overdrafts).sum();
    let what = format!("overdrafts: of {requests} requests those a provider made wait");
    report.check("all", &what, overdrafts as f64, [0.0, 0.0]);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Options;
    use crate::compare::ReportWriter;
    use crate::tier::volumes::{Answers, Counted};

    fn cell(wrong: u64, overdrafts: u64, is_cached: bool) -> Cell {
        let elapsed = Duration::from_secs(2);
        let mut answers = Answers { elapsed, count: 10, wrong, ..Answers::default() };
        answers.nanos.record(5000).expect("it fits");
        let counted =
            Counted { slow_ops: 5, hit_bytes: 3, read_bytes: 4, overdrafts, ..Counted::default() };
        let (promoted_all, users_all) = (8, 4);
        let run = Run { answers, counted, is_cached, promoted_all, users_all, dirty: None };
        let mut cell = Cell::of("reads", ["arm"]);
        cell.sides[0].runs = vec![run];
        cell
    }

    #[test]
    fn only_caches_have_hits() {
        let value = |is_cached: bool, case: &str| {
            let mut report = Report::new("tier", &Options::default());
            ReportWriter::new(&mut report).cell("B25", &cell(0, 0, is_cached));
            report.rows.iter().find(|row| row.case == case).and_then(|row| row.value)
        };
        assert_eq!(value(true, "reads"), Some(5.0));
        assert_eq!(value(true, "reads, hits"), Some(75.0));
        assert_eq!(value(true, "reads, promoted / user bytes"), Some(2.0));
        assert_eq!(value(true, "reads, slow operations for each request"), Some(0.5));
        assert_eq!(value(false, "reads, hits"), None);
    }

    #[test]
    fn wrong_answers_and_overdrafts_are_checked() {
        let checked = |cell: Cell| {
            let mut report = Report::new("tier", &Options::default());
            sound(&mut report, &[&cell]);
            report.checks.iter().map(|check| check.holds).collect::<Vec<_>>()
        };
        assert_eq!(checked(cell(0, 0, true)), [true, true]);
        assert_eq!(checked(cell(1, 0, true)), [false, true]);
        assert_eq!(checked(cell(0, 1, true)), [true, false]);
    }
}

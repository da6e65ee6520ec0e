//! The figures of a run.

use policy::units::MIB;

use super::{Counted, Run, balance, plots};
use crate::compare::{Cell, CountedBy, Figure, Outcome, Side, StoreOutcome};
use crate::drive::Driven;
use crate::report::{Plot, Report};

impl Run {
    /// Operations of users a second.
    pub const QPS: Figure<Self> = Figure::new("", "op/s", Self::qps);
    /// The mean latency of all operations.
    pub const MEAN: Figure<Self> = Figure::mean("mean", Self::mean_us);
    /// The used share of the paid rate of all volumes, without copies.
    pub const USED: Figure<Self> = Figure::new("of the line", "%", |run| 100.0 * run.used());
    /// The gap between the least and the most loaded volume.
    pub const SPREAD: Figure<Self> = Figure::new("spread", "%", |run| 100.0 * run.spread());
    /// The standard deviation of loads over volumes and seconds.
    pub const DEVIATION: Figure<Self> = Figure::new("deviation", "of paid", Self::deviation);
    /// Copied tables.
    pub const COPIES: Figure<Self> = Figure::new("copies", "tables", |run| run.copies.made as f64);
    /// Copied bytes.
    pub const COPIED: Figure<Self> =
        Figure::new("copies", "MiB", |run| run.copies.bytes as f64 / MIB as f64);
}

impl Outcome for Run {
    const FIGURES: &'static [Figure<Self>] = &[
        Self::QPS,
        Self::MEAN,
        Figure::tail("p99", |run| run.quantile_us(0.99)),
        Self::USED,
        Figure::new("least loaded volume", "% of its line", |run| {
            100.0 * run.loads().into_iter().fold(f64::INFINITY, f64::min)
        }),
        Figure::new("most loaded volume", "% of its line", |run| {
            100.0 * run.loads().into_iter().fold(0.0, f64::max)
        }),
        Self::SPREAD,
        Figure::new("spread of reads", "%", |run| 100.0 * run.spread_of_reads()),
        Self::DEVIATION,
        Figure::new("device reads for each read", "I/Os", Self::ios_per_read),
        Self::COPIES,
        Self::COPIED,
        Figure::new("overdrafts", "I/Os", Self::overdrafts).optional(),
        Figure::new("tokens / operations the kernel counted", "x", Self::tokens_per_operation)
            .optional(),
    ];

    /// The mean of each volume, and the first run per second.
    fn tell_more(report: &mut Report, id: &str, case: &str, side: &Side<Self>) {
        let Side { scheme, runs, .. } = side;
        let copies = side.each(|run| 100.0 * run.used_by_copies());
        report.median(id, &format!("{case}, copies"), scheme, &copies, "% of the line");
        let Some(first) = runs.first() else { return };
        for volume in 0..first.volumes() {
            let what = format!("{case}, volume {}", volume + 1);
            report.median(id, &what, scheme, &side.each(|run| run.iops(volume)), "IOPS");
            for sample in &first.driven.samples {
                let what = format!("{what}, at {:.1} s", sample.at.as_secs_f64());
                report.row(id, &what, scheme, first.iops_at(sample, volume), "IOPS over time");
            }
        }
    }

    fn plots(id: &str, cell: &Cell<Self>) -> Vec<Plot> {
        plots::of(id, cell)
    }
}

impl StoreOutcome for Run {
    fn driven(&self) -> &Driven {
        &self.driven
    }

    fn overdrawn(&self) -> Option<[u64; 2]> {
        let counts = [self.sum(Counted::Overdrafts), self.tokens()];
        (self.counted_by == CountedBy::Simulator).then_some(counts)
    }

    fn charged(&self) -> Option<[u64; 2]> {
        let counts = [self.tokens(), self.sum(Counted::Provider)];
        (self.counted_by == CountedBy::Kernel).then_some(counts)
    }

    fn read_tokens(&self) -> u64 {
        self.sum(Counted::Users)
    }
}

/// The share of the way from `base` to the paid rate that `ours` covers, in operations of users, run by run; NaN if
/// `base` leaves nothing to gain. See [`balance::gap_closed`].
#[must_use]
pub fn gaps_closed(cell: &Cell<Run>, ours: &str, base: &str) -> Vec<f64> {
    cell.pairs(ours, base, |ours, base| {
        balance::gap_closed(ours.qps(), base.qps(), ours.roof()).unwrap_or(f64::NAN)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Options;
    use crate::compare::{ReportWriter, sound};
    use crate::drive::Operation;
    use crate::spread::{Copies, Paid};

    fn run(operations: u64, users: [u64; 2]) -> Run {
        let mut driven = Driven {
            elapsed: Duration::from_secs(1),
            counted: vec![users[0], 0, 0, 100, 0, users[1], 0, 0, 100, 0],
            ..Driven::default()
        };
        for _ in 0..operations {
            driven.latencies.record(Operation::Read, Duration::from_millis(1));
        }
        let paid = Paid { iops: vec![100, 100], rho: 1.0 };
        Run { driven, paid, copies: Copies::default(), counted_by: CountedBy::Simulator }
    }

    fn cell() -> Cell<Run> {
        let mut cell = Cell::of("reads", ["base", "ours"]);
        cell.sides[0].runs = vec![run(150, [90, 60])];
        cell.sides[1].runs = vec![run(190, [95, 95])];
        cell
    }

    #[test]
    fn schemes_are_told_side_by_side_once() {
        let mut report = Report::new("spread", &Options::default());
        let mut writer = ReportWriter::new(&mut report);
        let cell = cell();
        writer.cell("B18", &cell);
        writer.cell("B20", &cell);
        writer.check("B18", "gap", gaps_closed(&cell, "ours", "base"), [0.7, f64::INFINITY]);
        sound(&mut report, &[&cell], &[], |requests| format!("of {requests}"));
        assert_eq!(report.tables.len(), 1);
        assert_eq!(report.tables[0].lines[1].1[0], Some(190.0));
        assert!(report.rows.iter().any(|row| row.case == "reads, volume 2"
            && row.scheme == "base"
            && row.value == Some(60.0)));
        // 40 of the 50 that remained.
        assert_eq!(report.checks[0].value, Some(0.8));
        assert!(report.holds());
    }

    #[test]
    fn real_volumes_have_the_kernels_count_and_no_overdrafts() {
        let on = |counted_by| {
            let mut cell = cell();
            let runs = cell.sides.iter_mut().flat_map(|side| &mut side.runs);
            runs.for_each(|run| run.counted_by = counted_by);
            let mut report = Report::new("spread", &Options::default());
            ReportWriter::new(&mut report).cell("B18", &cell);
            sound(&mut report, &[&cell], &["ours"], |requests| format!("of {requests}"));
            let told = ["reads, overdrafts", "reads, tokens / operations the kernel counted"]
                .map(|case| report.rows.iter().any(|row| row.case == case));
            (told, report.checks)
        };
        let (told, checks) = on(CountedBy::Simulator);
        assert_eq!((told, checks.len(), &*checks[1].what), ([true, false], 2, "of 190"));
        let (told, checks) = on(CountedBy::Kernel);
        assert_eq!((told, checks.len()), ([false, true], 2));
        assert_eq!((checks[1].value, checks[1].holds), (Some(0.95), false), "{}", checks[1].what);
        let (told, checks) = on(CountedBy::Nothing);
        assert_eq!((told, checks.len()), ([false, false], 1), "only the answers");
    }
}

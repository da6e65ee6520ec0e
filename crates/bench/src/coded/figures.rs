//! The figures of a run.

use policy::units::MIB;

use super::{Cell, Counted, Run};
use crate::compare::{Figure, Outcome};
use crate::report::Report;

impl Run {
    /// Operations of users a second in the closed loop.
    pub const QPS: Figure<Self> = Figure::new("", "op/s", Self::qps).optional();
    /// The 99th percentile of reads at the common rate.
    pub const READ_P99: Figure<Self> =
        Figure::tail("read p99", |run: &Self| run.read_us(0.99)).optional();
    /// Operations charged for what users wait to read, for each of their reads.
    pub const IOS_PER_READ: Figure<Self> =
        Figure::new("device reads for each read", "I/Os", Self::ios_per_read).optional();
    /// All bytes on volumes for each byte of the users' data.
    pub const HELD: Figure<Self> =
        Figure::new("held / data", "x", |run: &Self| run.held_per_byte(|room| room.held_bytes))
            .optional();
    /// The part of tables.
    pub const TABLES_HELD: Figure<Self> = Figure::new("tables held / data", "x", |run: &Self| {
        run.held_per_byte(|room| room.tables_held_bytes)
    })
    .optional();
    /// The time until a lost volume was made good.
    pub const REBUILD: Figure<Self> = Figure::new("rebuild", "s", Self::rebuild_secs).optional();
}

impl Outcome for Run {
    const FIGURES: &'static [Figure<Self>] = &[
        Self::QPS,
        Figure::new("of the line", "%", |run: &Self| 100.0 * run.used()).optional(),
        Figure::new("offered", "op/s", |run: &Self| {
            run.offered.as_ref().map_or(f64::NAN, |offered| offered.per_sec as f64)
        })
        .optional(),
        Figure::tail("read p50", |run: &Self| run.read_us(0.5)).optional(),
        Self::READ_P99,
        Figure::tail("write p50", |run: &Self| run.write_us(0.5)).optional(),
        Figure::tail("write p99", |run: &Self| run.write_us(0.99)).optional(),
        Self::IOS_PER_READ,
        Figure::new("reads charged for each operation", "I/Os", |run: &Self| {
            run.for_each_operation(Counted::Reads)
        })
        .optional(),
        Figure::new("writes charged for each operation", "I/Os", |run: &Self| {
            run.for_each_operation(Counted::Writes)
        })
        .optional(),
        Figure::new("ranges computed for each operation", "ranges", |run: &Self| {
            run.for_each_operation(Counted::Decoded)
        })
        .optional(),
        Self::HELD,
        Self::TABLES_HELD,
        Figure::new("tables held / their length", "x", Self::held_per_table_byte).optional(),
        Figure::new("logs held", "MiB", |run: &Self| {
            run.loaded
                .as_ref()
                .map_or(f64::NAN, |loaded| loaded.room.logs_held_bytes as f64 / MIB as f64)
        })
        .optional(),
        Figure::new("reads charged for each record", "I/Os", |run: &Self| {
            run.for_each_record(Counted::Reads)
        })
        .optional(),
        Figure::new("writes charged for each record", "I/Os", |run: &Self| {
            run.for_each_record(Counted::Writes)
        })
        .optional(),
        Figure::new("bytes written / data", "x", Self::written_per_byte).optional(),
        Self::REBUILD,
        Figure::new("lost", "MiB", |run: &Self| {
            run.rebuilt.map_or(f64::NAN, |rebuilt| rebuilt.lost_bytes as f64 / MIB as f64)
        })
        .optional(),
        Figure::new("bytes read / lost", "x", |run: &Self| {
            run.for_each_lost_byte(Counted::CopyReadBytes)
        })
        .optional(),
        Figure::new("bytes written / lost", "x", |run: &Self| {
            run.for_each_lost_byte(Counted::CopyWrittenBytes)
        })
        .optional(),
    ];
}

/// Checks that every answer was right, and that no request overdrew its provider.
pub fn sound(report: &mut Report, cells: &[&Cell]) {
    let runs = || cells.iter().flat_map(|cell| &cell.sides).flat_map(|side| &side.runs);
    let driven = || runs().flat_map(Run::driven);
    let wrong: u64 = driven().map(|driven| driven.wrong).sum();
    report.check("all", "answers that were not what was stored", wrong as f64, [0.0, 0.0]);
    let example = driven().find_map(|driven| driven.example.as_ref());
    report.notes.extend(example.map(|example| format!("a wrong answer: {example}")));
    let sum = |counted: Counted| driven().map(|driven| counted.among(&driven.counted)).sum::<u64>();
    let [requests, overdrafts] = [Counted::Requests, Counted::Overdrafts].map(sum);
    let what = format!("overdrafts: of {requests} requests those a provider made wait");
    report.check("all", &what, overdrafts as f64, [0.0, 0.0]);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Options;
    use crate::coded::{Offered, Rebuilt};
    use crate::compare::ReportWriter;
    use crate::drive::{Driven, Operation};

    fn cell(wrong: u64, overdrafts: u64) -> Cell {
        let mut driven = Driven {
            elapsed: Duration::from_secs(1),
            counted: vec![10, 0, 10, 0, 0, 0, 0, 7, overdrafts],
            wrong,
            ..Driven::default()
        };
        driven.latencies.record(Operation::Read, Duration::from_millis(1));
        driven.open.record(Operation::Read, Duration::from_millis(2));
        let offered = Offered { per_sec: 5, driven };
        let mut cell = Cell::of("reads", ["coded"]);
        cell.sides[0].runs = vec![Run { offered: Some(offered), paid_iops: 1, ..Run::default() }];
        cell
    }

    #[test]
    fn a_case_has_the_figures_that_it_measured() {
        let mut report = Report::new("coded", &Options::default());
        let mut cell = cell(0, 0);
        ReportWriter::new(&mut report).cell("C", &cell);
        let has = |report: &Report, case: &str| report.rows.iter().any(|row| row.case == case);
        assert!(has(&report, "reads, read p99") && has(&report, "reads, offered"));
        assert!(!has(&report, "reads") && !has(&report, "reads, write p99"));
        assert!(!has(&report, "reads, lost") && !has(&report, "reads, held / data"));
        cell.sides[0].runs[0].rebuilt = Some(Rebuilt { took: None, lost_bytes: MIB });
        cell.case = "lost".into();
        ReportWriter::new(&mut report).cell("rebuild", &cell);
        assert!(has(&report, "lost, lost") && !has(&report, "lost, rebuild"));
    }

    #[test]
    fn wrong_answers_and_overdrafts_of_all_loops_are_checked() {
        let checked = |cell: Cell| {
            let mut report = Report::new("coded", &Options::default());
            sound(&mut report, &[&cell]);
            let checks = report.checks.iter().map(|check| check.holds);
            (checks.collect::<Vec<_>>(), report.checks[1].what.contains("of 7 requests"))
        };
        assert_eq!(checked(cell(0, 0)), (vec![true, true], true));
        assert_eq!(checked(cell(2, 0)), (vec![false, true], true));
        assert_eq!(checked(cell(0, 3)), (vec![true, false], true));
    }
}

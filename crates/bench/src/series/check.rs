//! Checks of rules side by side.

use super::{Cell, Run};
use crate::compare::{Figure, ReportWriter};
use crate::machine;
use crate::report::Report;
use crate::stats::median;

/// The share of the processors' time beyond which they may be the limit.
const BUSY_MAX: f64 = 0.7;

/// Checks the median of a figure of several runs.
pub(super) fn check(report: &mut Report, id: &str, what: &str, values: &[f64], band: [f64; 2]) {
    report.median(id, what, "checked", values, "");
    report.check(id, what, median(values), band);
}

/// Checks a throughput; not measured where the processor may have been the limit.
pub(super) fn check_speed(
    report: &mut Report,
    id: &str,
    what: &str,
    values: &[f64],
    band: [f64; 2],
    of: &[&Cell],
) {
    let runs = of.iter().flat_map(|cell| &cell.sides).flat_map(|side| &side.runs);
    // In virtual time the processor is never the limit.
    let real = runs.filter(|run| run.line.is_none());
    let busiest = real.map(Run::processors).fold(0.0, f64::max);
    let there = machine::processor_count() as f64;
    if busiest <= BUSY_MAX * there {
        return check(report, id, what, values, band);
    }
    let what = format!(
        "{what}: not measurable here: {:.2}, but the processors were busy for {:.0} % of the time",
        median(values),
        100.0 * busiest / there
    );
    report.check(id, &what, f64::NAN, band);
}

/// The ratio of a figure of two rules, if both ran, as a row, and as a check if there is a band.
pub(super) fn ratio(
    writer: &mut ReportWriter<'_>,
    id: &str,
    what: &str,
    cell: &Cell,
    [one, other]: [&str; 2],
    figure: Figure<Run>,
    band: Option<[f64; 2]>,
) {
    if cell.find(one).is_none() || cell.find(other).is_none() {
        return;
    }
    let values = cell.ratios(one, other, figure.of);
    let what = format!("{}: {what}, {one} / {other}", cell.case);
    match band {
        Some(band) => check(writer.report, id, &what, &values, band),
        None => writer.compare(id, &what, "x", &[("ratio", values)]),
    }
}

/// Checks that every value belonged to its key.
pub(super) fn sound(report: &mut Report, cells: &[&Cell]) {
    let (mut read, mut wrong) = (0, 0);
    for run in cells.iter().flat_map(|cell| &cell.sides).flat_map(|side| &side.runs) {
        read += run.read;
        wrong += run.wrong;
    }
    let what = format!("of {read} values that were read, those that were not their key's");
    report.check("all", &what, wrong as f64, [0.0, 0.0]);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use policy::units::MIB;

    use super::*;
    use crate::Options;

    fn cell(line: Option<f64>) -> Cell {
        let run = |mib: u64, copied: u64| {
            let mut run = Run {
                answered: mib * MIB,
                elapsed: Duration::from_secs(1),
                whole: Duration::from_secs(1),
                processor: Duration::from_secs(1000),
                line,
                read: 5,
                ..Run::default()
            };
            (run.counts.put_bytes, run.counts.copied_bytes) = (100, copied);
            run
        };
        let mut cell = Cell::of("cyclic", ["static", "greedy", "fisherman"]);
        cell.sides[0].runs = vec![run(50, 50)];
        cell.sides[1].runs = vec![run(100, 0)];
        cell
    }

    #[test]
    fn rules_are_told_side_by_side_and_what_is_not_feasible_is_said() {
        let mut report = Report::new("series", &Options::default());
        let mut writer = ReportWriter::new(&mut report);
        let cell = cell(Some(1e9));
        writer.cell("B38", &cell);
        writer.cell("B38", &cell);
        writer.grid("B38", &[&cell], Run::WRITE_AMPLIFICATION);
        for other in ["static", "ours"] {
            let pair = ["greedy", other];
            ratio(&mut writer, "B38", "speed", &cell, pair, Run::SPEED, Some([1.5, 9.0]));
        }
        sound(&mut report, &[&cell]);
        assert_eq!(report.tables[0].lines[0].1, [Some(1.5), Some(1.0), None]);
        assert_eq!(
            report.checks.iter().map(|check| check.value).collect::<Vec<_>>(),
            [Some(2.0), Some(0.0)]
        );
        assert!(
            report.notes[0].contains("fisherman: would run out of space, not run"),
            "{:?}",
            report.notes
        );
        let told = report.rows.iter().filter(|row| row.scheme == "static" && row.unit == "MiB/s");
        assert_eq!(told.count(), 1);
    }

    #[test]
    fn a_busy_processor_makes_real_time_not_measurable_and_leaves_virtual_time_alone() {
        for (line, value) in [(Some(1e9), Some(2.0)), (None, None)] {
            let mut report = Report::new("series", &Options::default());
            let cell = cell(line);
            let band = [1.5, f64::INFINITY];
            check_speed(&mut report, "B38", "speed", &[2.0], band, &[&cell]);
            assert_eq!(report.checks[0].value, value);
        }
    }
}

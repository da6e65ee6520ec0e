//! Figures of several servers as rows, tables and checks of a report.

use super::OURS;
use crate::report::{Curve, Plot, Report, Stroke, Table};
use crate::stats::median;

/// The target of the ratio to the better competitor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Band {
    /// At least as much: more is better.
    AtLeast,
    /// At most as much: less is better.
    AtMost,
    /// No target.
    None,
}

/// Writes figures to a report.
pub struct ReportWriter<'r> {
    /// The report.
    pub report: &'r mut Report,
    /// Every server, in the order of columns.
    servers: Vec<String>,
}

impl<'r> ReportWriter<'r> {
    /// On `report`, with a column for each of `servers`.
    pub fn new(report: &'r mut Report, servers: &[&str]) -> Self {
        Self { report, servers: servers.iter().map(ToString::to_string).collect() }
    }

    /// A figure of a case: for each server its values by round; empty where it was not measured. The ratio is the
    /// median of the rounds' ratios.
    pub fn figure(
        &mut self,
        id: &str,
        case: &str,
        unit: &str,
        values: &[(&str, Vec<f64>)],
        band: Band,
    ) {
        for (server, values) in values {
            self.report.median(id, case, server, values, unit);
        }
        let column = |server: &String| {
            let found = values.iter().find(|(name, _)| name == server);
            found.map(|(_, values)| median(values)).filter(|value| value.is_finite())
        };
        let mut line: Vec<Option<f64>> = self.servers.iter().map(column).collect();
        let ratios = ratios(values, band);
        line.push(Some(median(&ratios)).filter(|ratio| ratio.is_finite()));
        let title = format!("{id}, {unit}");
        match self.report.tables.iter_mut().find(|table| table.title == title) {
            Some(table) => table.lines.push((case.into(), line)),
            None => {
                let mut columns = self.servers.clone();
                columns.push("ours / better".into());
                let lines = vec![(case.into(), line)];
                self.report.tables.push(Table { title, columns, lines });
            }
        }
        if ratios.is_empty() {
            return;
        }
        self.report.median(id, &format!("{case}, {unit}"), "ours / better", &ratios, "x");
        let what = format!("{case}: {unit}, {OURS} / the better of the others");
        match band {
            Band::AtLeast => {
                self.report.check(id, &what, median(&ratios), [1.0, f64::INFINITY]);
            }
            Band::AtMost => self.report.check(id, &what, median(&ratios), [0.0, 1.0]),
            Band::None => {}
        }
    }

    /// A plot of a figure, round by round.
    pub fn plot(&mut self, title: &str, unit: &str, values: &[(&str, Vec<f64>)]) {
        let curves = values.iter().map(|(server, values)| {
            let rounds = (1..).map(f64::from).zip(values.iter().copied());
            Curve::new(*server, Stroke::Dots, rounds)
        });
        self.report.plots.push(Plot::new(title, ["round", unit], curves));
    }
}

/// Ours over the better competitor, in each round that all measured servers have.
fn ratios(values: &[(&str, Vec<f64>)], band: Band) -> Vec<f64> {
    let Some((_, ours)) = values.iter().find(|(server, _)| *server == OURS) else {
        return Vec::new();
    };
    let others: Vec<&Vec<f64>> = values
        .iter()
        .filter(|(server, values)| *server != OURS && !values.is_empty())
        .map(|(_, values)| values)
        .collect();
    if others.is_empty() {
        return Vec::new();
    }
    let better = |round: usize| -> Option<f64> {
        let round = others.iter().map(|values| values.get(round).copied());
        let round = round.collect::<Option<Vec<f64>>>()?;
        round.into_iter().reduce(|a, b| if band == Band::AtLeast { a.max(b) } else { a.min(b) })
    };
    let ratio = |(round, ours): (usize, &f64)| better(round).map(|better| ours / better);
    ours.iter().enumerate().filter_map(ratio).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    fn sides(ours: &[f64], one: &[f64], other: &[f64]) -> Vec<(&'static str, Vec<f64>)> {
        vec![(OURS, ours.to_vec()), ("one", one.to_vec()), ("other", other.to_vec())]
    }

    #[test]
    fn the_ratio_is_to_whoever_is_better_in_each_round() {
        let values = sides(&[30.0, 60.0, 10.0], &[20.0, 10.0, 10.0], &[10.0, 30.0, 10.0]);
        assert_eq!(ratios(&values, Band::AtLeast), [1.5, 2.0, 1.0]);
        assert_eq!(ratios(&values, Band::AtMost), [3.0, 6.0, 1.0]);
        // A server that was not measured is left out.
        assert_eq!(ratios(&sides(&[3.0], &[], &[2.0]), Band::AtLeast), [1.5]);
        assert!(ratios(&sides(&[3.0], &[], &[]), Band::AtLeast).is_empty());
    }

    #[test]
    fn a_figure_has_a_line_and_a_check_only_where_there_is_a_band() {
        let mut report = Report::new("ingest", &Options::default());
        let mut writer = ReportWriter::new(&mut report, &[OURS, "one", "other"]);
        let values = sides(&[2.0], &[4.0], &[]);
        writer.figure("load", "a", "rows/s", &values, Band::AtLeast);
        writer.figure("load", "b", "rows/s", &values, Band::None);
        writer.figure("load", "c", "ms", &values, Band::AtMost);
        assert_eq!(report.tables.len(), 2);
        let line = &report.tables[0].lines[0];
        assert_eq!(line.1, [Some(2.0), Some(4.0), None, Some(0.5)]);
        assert_eq!(
            report.checks.iter().map(|check| check.holds).collect::<Vec<_>>(),
            [false, true]
        );
    }
}

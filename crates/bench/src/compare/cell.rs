//! One case measured under every scheme, and its report.

use super::Late;
use crate::report::{Report, Table};
use crate::stats::median;

/// One scheme in a case.
#[derive(Clone, Debug)]
pub struct Side<M> {
    /// Its name.
    pub scheme: String,
    /// One for each seed.
    pub runs: Vec<M>,
    /// One run in the open loop, if it was requested.
    pub open: Option<M>,
}

/// A case, measured.
#[derive(Clone, Debug)]
pub struct Cell<M> {
    /// What was run.
    pub case: String,
    /// The schemes.
    pub sides: Vec<Side<M>>,
    /// How late the machine's timers were in each group of runs, and how busy it was.
    pub late: Vec<Late>,
}

/// A figure of a run, by its name and unit.
pub type Figure<M> = (&'static str, &'static str, fn(&M) -> f64);

impl<M> Side<M> {
    /// A scheme that has not run yet.
    #[must_use]
    pub fn of(scheme: &str) -> Self {
        Self { scheme: scheme.into(), runs: Vec::new(), open: None }
    }

    /// The median of a figure; NaN without runs.
    #[must_use]
    pub fn median(&self, figure: impl Fn(&M) -> f64) -> f64 {
        median(&self.runs.iter().map(figure).collect::<Vec<_>>())
    }
}

impl<M> Cell<M> {
    /// The runs of a scheme.
    ///
    /// # Panics
    /// If the case was not measured under it: callers name only schemes of the case.
    #[must_use]
    pub fn side(&self, scheme: &str) -> &Side<M> {
        let side = self.find(scheme);
        side.unwrap_or_else(|| panic!("{scheme} is not in {}", self.case))
    }

    /// As [`Cell::side`]; `None` if the case was not measured under it.
    #[must_use]
    pub fn find(&self, scheme: &str) -> Option<&Side<M>> {
        self.sides.iter().find(|side| side.scheme == scheme)
    }

    /// A figure of every run of a scheme.
    #[must_use]
    pub fn of(&self, scheme: &str, figure: impl Fn(&M) -> f64) -> Vec<f64> {
        self.side(scheme).runs.iter().map(figure).collect()
    }

    /// A figure of two schemes together, run by run.
    #[must_use]
    pub fn pairs(&self, one: &str, other: &str, figure: impl Fn(&M, &M) -> f64) -> Vec<f64> {
        let (one, other) = (&self.side(one).runs, &self.side(other).runs);
        one.iter().zip(other).map(|(one, other)| figure(one, other)).collect()
    }

    /// The ratio of a figure of two schemes, run by run.
    #[must_use]
    pub fn ratios(&self, one: &str, other: &str, figure: impl Fn(&M) -> f64) -> Vec<f64> {
        self.pairs(one, other, |one, other| figure(one) / figure(other))
    }

    /// The scheme of `schemes` with the largest median of a figure; `None` if there are none.
    #[must_use]
    pub fn best<'s>(&self, schemes: &[&'s str], figure: impl Fn(&M) -> f64) -> Option<&'s str> {
        let of = |scheme: &&str| self.side(scheme).median(&figure);
        schemes.iter().copied().max_by(|one, other| of(one).total_cmp(&of(other)))
    }

    /// The quantile `part` of the lateness of bare sleeps, in microseconds: the median of the groups.
    #[must_use]
    pub fn late_us(&self, part: f64) -> f64 {
        self.late_median(|late| late.us(part))
    }

    /// The mean lateness of bare sleeps, in microseconds.
    #[must_use]
    pub fn late_mean_us(&self) -> f64 {
        self.late_median(Late::mean_us)
    }

    fn late_median(&self, figure: impl Fn(&Late) -> f64) -> f64 {
        median(&self.late.iter().map(figure).collect::<Vec<_>>())
    }
}

impl Report {
    /// Adds figures of schemes as rows, and as one table for readers.
    pub fn compared(&mut self, id: &str, what: &str, unit: &str, of: &[(&str, Vec<f64>)]) {
        for (scheme, values) in of {
            self.median(id, what, scheme, values, unit);
        }
        let value = |values: &Vec<f64>| Some(median(values)).filter(|value| value.is_finite());
        self.tables.push(Table {
            title: format!("{id}: {what}, {unit}"),
            columns: of.iter().map(|(scheme, _)| (*scheme).to_owned()).collect(),
            lines: vec![(String::new(), of.iter().map(|(_, values)| value(values)).collect())],
        });
    }

    /// Adds how the machine was while a cell was measured.
    pub fn machine_of<M>(&mut self, id: &str, cell: &Cell<M>) {
        let case = &cell.case;
        self.row(id, case, "bare sleep, p99 late", cell.late_us(0.99), "us");
        let busy = [
            ("this bench", Late::busy_percent as fn(&Late) -> f64),
            ("everybody", Late::machine_percent),
        ];
        for (whose, percent) in busy {
            self.row(id, case, whose, cell.late_median(percent), "% of processors");
        }
    }

    /// Adds the table that readers see of a cell: figures of each scheme, and of its run in the open loop.
    pub fn cell<M>(&mut self, id: &str, cell: &Cell<M>, figures: &[Figure<M>]) {
        let line = |name: String, values: &dyn Fn(&Figure<M>) -> f64| {
            let values = figures.iter().map(values);
            (name, values.map(|value| value.is_finite().then_some(value)).collect())
        };
        let lines = cell.sides.iter().flat_map(|side| {
            let closed = line(side.scheme.clone(), &|(_, _, figure)| side.median(figure));
            let open = side.open.as_ref();
            let open = open
                .map(|run| line(format!("{}/open", side.scheme), &|(_, _, figure)| figure(run)));
            std::iter::once(closed).chain(open)
        });
        let column = |(name, unit, _): &Figure<M>| format!("{name} {unit}").trim().to_owned();
        let table = Table {
            title: format!("{id}, {}", cell.case),
            columns: figures.iter().map(column).collect(),
            lines: lines.collect(),
        };
        self.tables.push(table);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    fn cell() -> Cell<f64> {
        let side = |scheme: &str, runs: [f64; 2]| Side { runs: runs.into(), ..Side::of(scheme) };
        let mut sides = vec![side("base", [10.0, 20.0]), side("ours", [30.0, 30.0])];
        sides[1].open = Some(25.0);
        Cell { case: "reads".into(), sides, late: Vec::new() }
    }

    #[test]
    fn the_best_is_found_and_ratios_go_run_by_run() {
        let cell = cell();
        assert_eq!(cell.best(&["base", "ours"], |run| *run), Some("ours"));
        assert_eq!(cell.ratios("ours", "base", |run| *run), [3.0, 1.5]);
        assert_eq!(cell.best(&[], |run| *run), None);
        assert!(cell.find("theirs").is_none());
    }

    #[test]
    fn a_run_in_the_open_loop_has_a_line_of_its_own() {
        let mut report = Report::new("any", &Options::default());
        report.cell("B01", &cell(), &[("", "op/s", |run| *run)]);
        let lines = &report.tables[0].lines;
        let told: Vec<_> = lines.iter().map(|(name, values)| (&**name, values[0])).collect();
        assert_eq!(told, [("base", Some(15.0)), ("ours", Some(30.0)), ("ours/open", Some(25.0))]);
        assert_eq!(report.tables[0].columns, ["op/s"]);
    }
}

//! One case measured under every scheme.

use super::figure::Timed;
use super::{Figure, Late, Values, each_once};
use crate::report::Table;
use crate::stats::median;

/// One scheme in a case.
#[derive(Clone, Debug)]
pub struct Side<O> {
    /// Its name.
    pub scheme: String,
    /// One for each seed.
    pub runs: Vec<O>,
    /// One run in the open loop, if it was requested.
    pub open: Option<O>,
}

/// A case, measured.
#[derive(Clone, Debug)]
pub struct Cell<O> {
    /// What was run.
    pub case: String,
    /// The schemes.
    pub sides: Vec<Side<O>>,
    /// How late the machine's timers were in each group of runs, and how busy it was. Empty in virtual time.
    pub late: Vec<Late>,
}

impl<O> Side<O> {
    /// A scheme that has not run yet.
    #[must_use]
    pub fn of(scheme: &str) -> Self {
        Self { scheme: scheme.into(), runs: Vec::new(), open: None }
    }

    /// A figure of every run.
    #[must_use]
    pub fn each(&self, figure: impl Fn(&O) -> f64) -> Vec<f64> {
        self.runs.iter().map(figure).collect()
    }

    /// The median of a figure; NaN without runs.
    #[must_use]
    pub fn median(&self, figure: impl Fn(&O) -> f64) -> f64 {
        median(&self.each(figure))
    }
}

impl<O> Cell<O> {
    /// A case whose schemes have not run yet.
    #[must_use]
    pub fn of<S: AsRef<str>>(case: &str, schemes: impl IntoIterator<Item = S>) -> Self {
        let sides = schemes.into_iter().map(|scheme| Side::of(scheme.as_ref()));
        Self { case: case.into(), sides: sides.collect(), late: Vec::new() }
    }

    /// Runs `groups` one after the other, each with all its schemes at the same time, and `keep`s each outcome.
    ///
    /// # Errors
    /// What `run` failed with.
    pub fn run(
        &mut self,
        groups: Vec<Vec<(usize, u64)>>,
        run: impl Fn(&[(usize, u64)]) -> anyhow::Result<(Vec<O>, Late)>,
        keep: impl Fn(&mut Side<O>, O),
    ) -> anyhow::Result<()> {
        for group in groups {
            let (outcomes, late) = run(&group)?;
            for (&(scheme, _), outcome) in group.iter().zip(outcomes) {
                keep(&mut self.sides[scheme], outcome);
            }
            self.late.push(late);
        }
        Ok(())
    }

    /// The runs of a scheme.
    ///
    /// # Panics
    /// If the case was not measured under it: callers name only schemes of the case.
    #[must_use]
    pub fn side(&self, scheme: &str) -> &Side<O> {
        let side = self.find(scheme);
        side.unwrap_or_else(|| panic!("{scheme} is not in {}", self.case))
    }

    /// As [`Cell::side`]; `None` if the case was not measured under it.
    #[must_use]
    pub fn find(&self, scheme: &str) -> Option<&Side<O>> {
        self.sides.iter().find(|side| side.scheme == scheme)
    }

    /// The schemes of several cells, in the order of first occurrence.
    pub(super) fn schemes(cells: &[&Self]) -> Vec<String> {
        let sides = cells.iter().flat_map(|cell| &cell.sides);
        each_once(sides.map(|side| side.scheme.clone()))
    }

    /// A figure of every run of each of `schemes`.
    pub fn values<'s>(
        &self,
        schemes: impl IntoIterator<Item = &'s str>,
        figure: Figure<O>,
    ) -> Vec<(&'s str, Vec<f64>)> {
        schemes.into_iter().map(|scheme| (scheme, self.side(scheme).each(figure.of))).collect()
    }

    /// The ratio of a figure of each of `schemes` to that of `base`, run by run.
    pub fn against<'s>(
        &self,
        base: &str,
        schemes: impl IntoIterator<Item = &'s str>,
        figure: Figure<O>,
    ) -> Vec<(&'s str, Vec<f64>)> {
        let of = |scheme| (scheme, self.ratios(scheme, base, figure.of));
        schemes.into_iter().map(of).collect()
    }

    /// Whether a report has the figure: see [`Figure::optional`].
    pub(super) fn has(&self, figure: &Figure<O>) -> bool {
        let mut runs = self.sides.iter().flat_map(|side| &side.runs);
        !figure.optional || runs.any(|run| !(figure.of)(run).is_nan())
    }

    /// The names of all schemes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sides.iter().map(|side| side.scheme.as_str())
    }

    /// A figure of two schemes together, run by run.
    #[must_use]
    pub fn pairs(&self, one: &str, other: &str, figure: impl Fn(&O, &O) -> f64) -> Vec<f64> {
        let (one, other) = (&self.side(one).runs, &self.side(other).runs);
        one.iter().zip(other).map(|(one, other)| figure(one, other)).collect()
    }

    /// The ratio of a figure of two schemes, run by run.
    #[must_use]
    pub fn ratios(&self, one: &str, other: &str, figure: impl Fn(&O) -> f64) -> Vec<f64> {
        self.pairs(one, other, |one, other| figure(one) / figure(other))
    }

    /// [`Cell::ratios`] of a pair of schemes to check; of a latency with the timer's error.
    #[must_use]
    pub fn ratio(&self, [one, other]: [&str; 2], figure: Figure<O>) -> Values {
        let ratios = self.ratios(one, other, figure.of);
        let error_us = match figure.timed {
            Timed::No => return ratios.into(),
            Timed::Mean => self.late_mean_us(),
            Timed::Tail => self.late_us(0.99),
        };
        let sides = [one, other].map(|scheme| self.side(scheme).median(figure.of));
        Values::ratios(ratios, sides, error_us)
    }

    /// The scheme of `schemes` with the largest median of a figure; `None` if there are none.
    #[must_use]
    pub fn best<'s>(&self, schemes: &[&'s str], figure: impl Fn(&O) -> f64) -> Option<&'s str> {
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

    pub(super) fn late_median(&self, figure: impl Fn(&Late) -> f64) -> f64 {
        median(&self.late.iter().map(figure).collect::<Vec<_>>())
    }

    /// The table that readers see: figures of each scheme, and of its run in the open loop.
    #[must_use]
    pub fn table(&self, id: &str, figures: &[Figure<O>]) -> Table {
        let figures: Vec<_> = figures.iter().filter(|figure| self.has(figure)).collect();
        let line = |name: String, value: &dyn Fn(&Figure<O>) -> f64| {
            let values = figures.iter().map(|figure| value(figure));
            (name, values.map(|value| value.is_finite().then_some(value)).collect())
        };
        let lines = self.sides.iter().flat_map(|side| {
            let closed = line(side.scheme.clone(), &|figure| side.median(figure.of));
            let open = side.open.as_ref();
            let open =
                open.map(|run| line(format!("{}/open", side.scheme), &|figure| (figure.of)(run)));
            std::iter::once(closed).chain(open)
        });
        let column = |figure: &&Figure<O>| format!("{} {}", figure.name, figure.unit);
        Table {
            title: format!("{id}, {}", self.case),
            columns: figures.iter().map(|figure| column(figure).trim().to_owned()).collect(),
            lines: lines.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell() -> Cell<f64> {
        let mut cell = Cell::of("reads", ["base", "ours"]);
        cell.sides[0].runs = vec![10.0, 20.0];
        cell.sides[1].runs = vec![30.0, 30.0];
        cell.sides[1].open = Some(25.0);
        cell
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
    fn an_optional_figure_that_no_run_has_is_left_out() {
        let (known, unknown) = (|run: &f64| *run, |_: &f64| f64::NAN);
        let figures = [Figure::new("a", "", known).optional(), Figure::new("b", "", unknown)];
        let figures = [figures[0], figures[1], figures[1].optional()];
        assert_eq!(cell().table("B01", &figures).columns, ["a", "b"]);
    }

    #[test]
    fn a_run_in_the_open_loop_has_a_line_of_its_own() {
        let table = cell().table("B01", &[Figure::new("", "op/s", |run| *run)]);
        let lines = &table.lines;
        let told: Vec<_> = lines.iter().map(|(name, values)| (&**name, values[0])).collect();
        assert_eq!(told, [("base", Some(15.0)), ("ours", Some(30.0)), ("ours/open", Some(25.0))]);
        assert_eq!(table.columns, ["op/s"]);
    }
}

//! The loop of a bench: measures every case of the wanted rows once, and reports.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressStyle};

use super::row::wanted;
use super::{Case, Cell, ReportWriter, Row, each_once};
use crate::report::Report;
use crate::{Options, Profile};

/// The wanted rows of a bench.
pub struct Plan<C: Case> {
    /// The rows.
    pub rows: Vec<Row<C>>,
    /// Their cases, each once.
    pub cases: Vec<C>,
}

impl<C: Case> Plan<C> {
    /// Those of `rows` that the options name; by default all, or those of `smoke` in that profile.
    ///
    /// # Errors
    /// There is no such row; the message lists all.
    pub fn new(rows: Vec<Row<C>>, options: &Options, smoke: &[&str]) -> anyhow::Result<Self> {
        let usual = |id: &str| options.profile != Profile::Smoke || smoke.contains(&id);
        let rows = wanted(rows, |row| row.id, &options.rows, usual)?;
        let cases = each_once(rows.iter().flat_map(|row| &row.cases).cloned());
        Ok(Self { rows, cases })
    }

    /// Leaves out the row `id`.
    pub fn leave_out(&mut self, id: &str) {
        self.rows.retain(|row| row.id != id);
        self.cases = each_once(self.rows.iter().flat_map(|row| &row.cases).cloned());
    }

    /// The number of rows and of cases, in words.
    #[must_use]
    pub fn size(&self) -> String {
        format!("{} rows of {} cases", self.rows.len(), self.cases.len())
    }

    /// Measures the cases until `stop` is set, and adds every row whose cases are measured to the report.
    ///
    /// # Errors
    /// What `measure` failed with.
    pub fn run(
        &self,
        report: &mut Report,
        stop: &AtomicBool,
        measure: impl Fn(&C) -> anyhow::Result<Cell<C::Outcome>>,
    ) -> anyhow::Result<()> {
        report.notes.extend(self.rows.iter().map(|row| format!("{}: {}", row.id, row.about)));
        let mut cells = Cells::new(self.cases.len(), stop);
        let mut writer = ReportWriter::new(report);
        for row in &self.rows {
            let Some(measured) = cells.measure(row.id, &row.cases, &measure)? else { break };
            let measured: Vec<_> = measured.iter().map(|cell| &**cell).collect();
            measured.iter().for_each(|cell| writer.cell(row.id, cell));
            row.write(&mut writer, &measured);
        }
        cells.bar.finish_and_clear();
        let measured: Vec<_> = cells.measured.iter().map(|(_, cell)| &**cell).collect();
        C::sound(report, &measured);
        Ok(())
    }
}

/// Cells of a row, in the order of its cases.
type Measured<C> = Vec<Rc<Cell<<C as Case>::Outcome>>>;

/// Cells by their cases.
struct Cells<'s, C: Case> {
    measured: Vec<(C, Rc<Cell<C::Outcome>>)>,
    bar: ProgressBar,
    stop: &'s AtomicBool,
}

impl<'s, C: Case> Cells<'s, C> {
    /// No cells yet; the bar expects `cases` of them.
    fn new(cases: usize, stop: &'s AtomicBool) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {elapsed} ({eta} left): {msg}");
        let style = style.expect("the template is right");
        let bar = ProgressBar::new(cases as u64).with_style(style);
        Self { measured: Vec::new(), bar, stop }
    }

    /// The cells of a row's cases, in their order; `None` if the bench was stopped meanwhile.
    fn measure(
        &mut self,
        id: &str,
        cases: &[C],
        measure: impl Fn(&C) -> anyhow::Result<Cell<C::Outcome>>,
    ) -> anyhow::Result<Option<Measured<C>>> {
        let mut cells = Vec::with_capacity(cases.len());
        for case in cases {
            self.bar.set_message(format!("{id}, {}", case.name()));
            let known = self.measured.iter().find(|(known, _)| known == case);
            let cell = match known {
                Some((_, cell)) => Rc::clone(cell),
                None if self.stop.load(Ordering::Relaxed) => return Ok(None),
                None => {
                    let cell = Rc::new(measure(case)?);
                    self.measured.push((case.clone(), Rc::clone(&cell)));
                    cell
                }
            };
            self.bar.set_position(self.measured.len() as u64);
            cells.push(cell);
        }
        // The stop may have cut off the last cell.
        Ok((!self.stop.load(Ordering::Relaxed)).then_some(cells))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell as Counter;

    use super::*;
    use crate::compare::{Figure, Outcome};

    #[derive(Clone, PartialEq)]
    struct Named(&'static str);

    impl Case for Named {
        type Outcome = f64;

        fn name(&self) -> &str {
            self.0
        }

        fn sound(_: &mut Report, _: &[&Cell<f64>]) {}
    }

    impl Outcome for f64 {
        const FIGURES: &'static [Figure<Self>] = &[Figure::new("", "op/s", |run| *run)];
    }

    #[test]
    fn a_case_of_two_rows_is_measured_once_and_none_after_a_stop() {
        let (counter, stop) = (Counter::new(0), AtomicBool::new(false));
        let mut cells: Cells<'_, Named> = Cells::new(2, &stop);
        let measure = |case: &Named| {
            counter.set(counter.get() + 1);
            Ok(Cell::of(case.0, [""; 0]))
        };
        let mut run = |cases: &[Named]| {
            cells.measure("B01", cases, measure).expect("nothing fails").map(|c| c.len())
        };
        assert_eq!(run(&[Named("a"), Named("b")]), Some(2));
        assert_eq!(run(&[Named("b")]), Some(1));
        assert_eq!(counter.get(), 2);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(run(&[Named("c")]), None);
        assert_eq!(counter.get(), 2);
    }
}

//! Which runs go on at the same time, and which cells are measured already.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::bail;
use indicatif::{ProgressBar, ProgressStyle};

use super::Cell;

/// A case to measure under every scheme. Equal cases are measured once.
pub trait Case: Clone + PartialEq {
    /// The name in reports.
    fn name(&self) -> &str;
}

/// Cells by their cases.
pub struct Cells<C, M> {
    measured: Vec<(C, Arc<Cell<M>>)>,
    bar: ProgressBar,
}

impl<C: Case, M> Cells<C, M> {
    /// No cells yet; the bar expects `cases` of them.
    ///
    /// # Panics
    /// Never: the template of the bar is valid.
    #[must_use]
    pub fn new(cases: usize) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {elapsed} ({eta} left): {msg}");
        let style = style.expect("the template is right");
        let bar = ProgressBar::new(cases as u64).with_style(style);
        Self { measured: Vec::new(), bar }
    }

    /// The cells of a row's cases, in their order; `None` if `stop` was set meanwhile.
    ///
    /// # Errors
    /// What `measure` failed with.
    pub fn measure(
        &mut self,
        id: &str,
        cases: &[C],
        stop: &AtomicBool,
        measure: impl Fn(&C) -> anyhow::Result<Cell<M>>,
    ) -> anyhow::Result<Option<Vec<Arc<Cell<M>>>>> {
        let mut cells = Vec::with_capacity(cases.len());
        for case in cases {
            self.bar.set_message(format!("{id}, {}", case.name()));
            let known = self.measured.iter().find(|(known, _)| known == case);
            let cell = match known {
                Some((_, cell)) => Arc::clone(cell),
                None if stop.load(Ordering::Relaxed) => return Ok(None),
                None => {
                    let cell = Arc::new(measure(case)?);
                    self.measured.push((case.clone(), Arc::clone(&cell)));
                    cell
                }
            };
            self.bar.set_position(self.measured.len() as u64);
            cells.push(cell);
        }
        // The stop may have cut off the last cell.
        Ok((!stop.load(Ordering::Relaxed)).then_some(cells))
    }

    /// Removes the bar.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }

    /// Every cell that was measured.
    pub fn all(&self) -> impl Iterator<Item = &Cell<M>> {
        self.measured.iter().map(|(_, cell)| &**cell)
    }
}

/// The stores that run at the same time, by scheme and run: all of them if `fits` allows, else those of one run, else
/// each alone. Each run begins with another scheme, so that drift affects all schemes alike.
pub fn groups(schemes: usize, runs: u64, fits: impl Fn(u64) -> bool) -> Vec<Vec<(usize, u64)>> {
    let each = (0..runs).map(|run| {
        let from = usize::try_from(run).unwrap_or(0);
        (0..schemes).map(|turn| ((turn + from) % schemes, run)).collect::<Vec<_>>()
    });
    if fits(runs) {
        vec![each.flatten().collect()]
    } else if fits(1) {
        each.collect()
    } else {
        each.flatten().map(|one| vec![one]).collect()
    }
}

/// Calls `work` `count` times, each on its own thread, and returns the results in that order.
///
/// # Errors
/// The first error.
///
/// # Panics
/// If one of the threads panics.
pub fn at_once<T: Send>(
    count: usize,
    work: impl Fn(usize) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Vec<T>> {
    let work = &work;
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..count).map(|at| scope.spawn(move || work(at))).collect();
        running.into_iter().map(|one| one.join().expect("it does not panic")).collect()
    })
}

/// Each distinct item once, in the order of first occurrence.
pub fn each_once<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

/// The rows of `rows` that the user named, or the usual ones if none was named.
///
/// # Errors
/// There is no such row; the message lists all.
pub fn wanted<R>(
    mut rows: Vec<R>,
    id: impl Fn(&R) -> &str,
    asked: &[String],
    usual: impl Fn(&str) -> bool,
) -> anyhow::Result<Vec<R>> {
    let known: Vec<_> = rows.iter().map(&id).collect();
    if let Some(unknown) = asked.iter().find(|asked| !known.contains(&asked.as_str())) {
        bail!("there is no row {unknown}; there are {}", known.join(", "));
    }
    rows.retain(|row| match asked {
        [] => usual(id(row)),
        asked => asked.iter().any(|asked| asked == id(row)),
    });
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell as Counter;

    use super::*;

    #[derive(Clone, PartialEq)]
    struct Named(&'static str);

    impl Case for Named {
        fn name(&self) -> &str {
            self.0
        }
    }

    #[test]
    fn a_case_of_two_rows_is_measured_once_and_none_after_a_stop() {
        let (counter, stop) = (Counter::new(0), AtomicBool::new(false));
        let mut cells: Cells<Named, f64> = Cells::new(2);
        let measure = |case: &Named| {
            counter.set(counter.get() + 1);
            Ok(Cell { case: case.0.into(), sides: Vec::new(), late: Vec::new() })
        };
        let mut run = |cases: &[Named]| {
            cells.measure("B01", cases, &stop, measure).expect("nothing fails").map(|c| c.len())
        };
        assert_eq!(run(&[Named("a"), Named("b")]), Some(2));
        assert_eq!(run(&[Named("b")]), Some(1));
        assert_eq!(counter.get(), 2);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(run(&[Named("c")]), None);
        assert_eq!(counter.get(), 2);
    }

    #[test]
    fn as_many_run_at_once_as_fit_and_each_run_begins_with_another_scheme() {
        assert_eq!(groups(2, 2, |_| true), [vec![(0, 0), (1, 0), (1, 1), (0, 1)]]);
        assert_eq!(groups(2, 2, |runs| runs == 1), [[(0, 0), (1, 0)], [(1, 1), (0, 1)]]);
        assert_eq!(groups(2, 1, |_| false), [[(0, 0)], [(1, 0)]]);
    }

    #[test]
    fn rows_are_those_asked_for_or_the_usual_ones() {
        let rows = || vec!["B01", "B02", "B03"];
        let of = |asked: &[&str]| {
            let asked: Vec<_> = asked.iter().map(|id| (*id).to_owned()).collect();
            wanted(rows(), |row| row, &asked, |id| id != "B02")
        };
        assert_eq!(of(&[]).expect("known"), ["B01", "B03"]);
        assert_eq!(of(&["B02"]).expect("known"), ["B02"]);
        let error = of(&["B09"]).expect_err("there is none").to_string();
        assert_eq!(error, "there is no row B09; there are B01, B02, B03");
        assert_eq!(each_once([1, 2, 1]), [1, 2]);
    }
}

//! The rows of a bench: a question, the cases that answer it, and what the report claims of them.

use anyhow::bail;

use super::{Case, Cell, ReportWriter, Values};

type Tell<O> = Box<dyn Fn(&mut ReportWriter<'_>, &[&Cell<O>])>;

/// A row.
pub struct Row<C: Case> {
    /// Its name: `B18`.
    pub id: &'static str,
    /// The question, for readers.
    pub about: &'static str,
    /// The cases to measure.
    pub cases: Vec<C>,
    tells: Vec<Tell<C::Outcome>>,
}

/// In the text of a claim: the name of the case.
const CASE: &str = "{case}";

impl<C: Case> Row<C> {
    /// A row that claims nothing yet.
    #[must_use]
    pub fn new(id: &'static str, about: &'static str, cases: impl Into<Vec<C>>) -> Self {
        Self { id, about, cases: cases.into(), tells: Vec::new() }
    }

    /// Checks values of each cell; `{case}` in `what` stands for its case.
    #[must_use]
    pub fn check<V: Into<Values>>(
        self,
        what: &'static str,
        band: [f64; 2],
        values: impl Fn(&Cell<C::Outcome>) -> V + 'static,
    ) -> Self {
        let id = self.id;
        self.tell(move |writer, cells| {
            for cell in cells {
                writer.check(id, &what.replace(CASE, &cell.case), values(cell), band);
            }
        })
    }

    /// Tells figures of each cell side by side; `{case}` in `what` stands for its case.
    #[must_use]
    pub fn compare(
        self,
        what: &'static str,
        unit: &'static str,
        values: impl for<'c> Fn(&'c Cell<C::Outcome>) -> Vec<(&'c str, Vec<f64>)> + 'static,
    ) -> Self {
        let id = self.id;
        self.tell(move |writer, cells| {
            for cell in cells {
                writer.compare(id, &what.replace(CASE, &cell.case), unit, &values(cell));
            }
        })
    }

    /// Adds to the report once every case is measured; the cells are in the order of the cases.
    #[must_use]
    pub fn tell(
        mut self,
        tell: impl Fn(&mut ReportWriter<'_>, &[&Cell<C::Outcome>]) + 'static,
    ) -> Self {
        self.tells.push(Box::new(tell));
        self
    }

    pub(super) fn write(&self, writer: &mut ReportWriter<'_>, cells: &[&Cell<C::Outcome>]) {
        self.tells.iter().for_each(|tell| tell(writer, cells));
    }
}

/// The rows of `rows` that the user named, or the usual ones if none was named.
///
/// # Errors
/// There is no such row; the message lists all.
pub(super) fn wanted<R>(
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
    use super::*;

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
    }
}

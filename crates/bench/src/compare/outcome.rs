//! What a bench brings: its cases, and the figures of their outcomes.

use super::{Cell, Figure, Side};
use crate::report::{Plot, Report};

/// A case to measure under every scheme. Equal cases are measured once.
pub trait Case: Clone + PartialEq {
    /// The result of one run of one scheme.
    type Outcome: Outcome;

    /// The name in reports.
    fn name(&self) -> &str;

    /// Checks that the stores of all cells gave right answers.
    fn sound(report: &mut Report, cells: &[&Cell<Self::Outcome>]);
}

/// The result of one run of one scheme.
pub trait Outcome: Sized + 'static {
    /// The figures of every scheme.
    const FIGURES: &'static [Figure<Self>];

    /// The columns of the table that readers see of a cell; none for no table.
    const COLUMNS: &'static [Figure<Self>] = Self::FIGURES;

    /// Whether a cell's figures are told under every row that needs it, or under the first one only.
    const TOLD_AGAIN: bool = false;

    /// Adds what a report has of a scheme besides its figures.
    fn tell_more(_report: &mut Report, _id: &str, _case: &str, _side: &Side<Self>) {}

    /// The plots of a cell.
    #[must_use]
    fn plots(_id: &str, _cell: &Cell<Self>) -> Vec<Plot> {
        Vec::new()
    }
}

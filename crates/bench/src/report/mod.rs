//! The result of a bench: rows of figures, checks against bands, plots; as a table for the terminal, as JSON for
//! machines, as one HTML page for readers.

mod html;
mod plot;
mod table;

use std::fs;
use std::path::Path;

use anyhow::Context;
use policy::contract::Contract;
use serde::Serialize;

pub use plot::{Axis, Curve, Plot, Stroke};
pub use table::Table;

use crate::stats::{Interval, median};
use crate::{Options, Profile, machine};

/// The full result of one bench; serialised, it is the document of `bench --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The bench's name: `provider`.
    pub bench: String,
    /// How much was measured.
    pub profile: Profile,
    /// The first seed.
    pub seed: u64,
    /// The commit that was built.
    pub commit: String,
    /// The machine it ran on.
    pub machine: String,
    /// The figures.
    pub rows: Vec<Row>,
    /// Figures with a band.
    pub checks: Vec<Check>,
    /// Changes of workload, scale or baseline since a band was first looked at, one line each.
    pub history: Vec<String>,
    /// What a reader needs besides the figures: assumptions and omissions.
    pub notes: Vec<String>,
    /// Plots for the page.
    #[serde(skip)]
    pub plots: Vec<Plot>,
    /// The tables that readers see. If empty: every row, by id and unit.
    #[serde(skip)]
    pub tables: Vec<Table>,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The row it belongs to, by its id: `B18`.
    pub id: String,
    /// The workload or setting it was measured under.
    pub case: String,
    /// What was measured: ours, a baseline, an expected value.
    pub scheme: String,
    /// The figure; `None` if it could not be measured.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: String,
}

/// A figure and the band it should lie in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// The row the band is from.
    pub id: String,
    /// What the number is.
    pub what: String,
    /// The number the band is about; `None` if it could not be measured.
    pub value: Option<f64>,
    /// The least and the most it may be; infinite, in JSON `null`, without a bound.
    pub band: [f64; 2],
    /// Whether it lies in the band; false if it could not be measured.
    pub holds: bool,
}

impl Report {
    /// An empty report of `bench`, with the machine and the commit.
    #[must_use]
    pub fn new(bench: &str, options: &Options) -> Self {
        Self {
            bench: bench.into(),
            profile: options.profile,
            seed: options.seed,
            commit: env!("PLIMSOLL_COMMIT").into(),
            machine: machine::describe(),
            rows: Vec::new(),
            checks: Vec::new(),
            history: Vec::new(),
            notes: Vec::new(),
            plots: Vec::new(),
            tables: Vec::new(),
        }
    }

    /// Adds a figure. NaN means not measured.
    pub fn row(&mut self, id: &str, case: &str, scheme: &str, value: f64, unit: &str) {
        self.rows.push(Row {
            id: id.into(),
            case: case.into(),
            scheme: scheme.into(),
            value: measured(value),
            unit: unit.into(),
        });
    }

    /// Adds the mean of several runs, and the 95 % interval around it.
    pub fn runs(&mut self, id: &str, case: &str, scheme: &str, values: &[f64], unit: &str) {
        let Some(interval) = Interval::of(values) else {
            return self.row(id, case, scheme, f64::NAN, unit);
        };
        self.row(id, case, scheme, interval.mean, unit);
        self.row(id, case, &format!("{scheme}, 95 % from"), interval.low, unit);
        self.row(id, case, &format!("{scheme}, 95 % to"), interval.high, unit);
    }

    /// Adds the median of several runs, and the 95 % interval of their mean.
    pub fn median(&mut self, id: &str, case: &str, scheme: &str, values: &[f64], unit: &str) {
        self.row(id, case, scheme, median(values), unit);
        if let Some(interval) = Interval::of(values) {
            self.row(id, case, &format!("{scheme}, 95 % from"), interval.low, unit);
            self.row(id, case, &format!("{scheme}, 95 % to"), interval.high, unit);
        }
    }

    /// Adds a check. NaN means not measured, and does not hold.
    pub fn check(&mut self, id: &str, what: &str, value: f64, band: [f64; 2]) {
        let value = measured(value);
        let holds = value.is_some_and(|value| band[0] <= value && value <= band[1]);
        self.checks.push(Check { id: id.into(), what: what.into(), value, band, holds });
    }

    /// Notes the assumed parts of a contract, which have no source.
    pub fn assume(&mut self, contract: &Contract) {
        if !contract.assumed.is_empty() {
            let assumed = contract.assumed.join(", ");
            self.notes.push(format!("contract {}: {assumed} assumed, not sourced", contract.name));
        }
    }

    /// Whether every check holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.checks.iter().all(|check| check.holds)
    }

    /// Writes the report as one JSON document.
    ///
    /// # Errors
    /// The file cannot be written; the error names it.
    pub fn write_json(&self, path: &Path) -> anyhow::Result<()> {
        let json = serde_json::to_string_pretty(self).context("the report as JSON")?;
        write(path, json + "\n")
    }

    /// Writes the report as one HTML page without external references.
    ///
    /// # Errors
    /// The file cannot be written; the error names it.
    pub fn write_html(&self, path: &Path) -> anyhow::Result<()> {
        write(path, html::page(self).context("the plots")?)
    }

    /// Prints the report as tables.
    pub fn print(&self) {
        println!("{}", table::tables(self));
    }
}

fn write(path: &Path, text: String) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

fn measured(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests;

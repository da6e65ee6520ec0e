//! A report for the terminal.

use std::fmt::Write;
use std::iter;

use comfy_table::CellAlignment;
use comfy_table::presets::UTF8_FULL_CONDENSED;

use super::{Check, Report, Row};

/// Figures side by side.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The head of its first column.
    pub title: String,
    /// The heads of the others.
    pub columns: Vec<String>,
    /// Each line's name and figures, one for each column.
    pub lines: Vec<(String, Vec<Option<f64>>)>,
}

impl Table {
    /// The tables of a report.
    pub(super) fn all(report: &Report) -> Vec<Self> {
        if report.tables.is_empty() {
            Grid::all(&report.rows).into_iter().map(Self::from).collect()
        } else {
            report.tables.clone()
        }
    }
}

impl From<Grid<'_>> for Table {
    fn from(grid: Grid<'_>) -> Self {
        let line = |(case, figures): (&str, _)| (case.to_owned(), figures);
        Self {
            title: format!("{}, {}", grid.id, grid.unit),
            columns: grid.schemes.iter().map(|scheme| (*scheme).to_owned()).collect(),
            lines: grid.lines.into_iter().map(line).collect(),
        }
    }
}

/// Rows of one id and unit: a line for each case, a column for each scheme.
struct Grid<'a> {
    id: &'a str,
    unit: &'a str,
    schemes: Vec<&'a str>,
    lines: Vec<(&'a str, Vec<Option<f64>>)>,
}

impl<'a> Grid<'a> {
    fn all(rows: &'a [Row]) -> Vec<Self> {
        let mut grids: Vec<Self> = Vec::new();
        for row in rows {
            let known = grids.iter().position(|grid| grid.id == row.id && grid.unit == row.unit);
            let at = known.unwrap_or_else(|| {
                grids.push(Self { id: &row.id, unit: &row.unit, schemes: vec![], lines: vec![] });
                grids.len() - 1
            });
            grids[at].add(row);
        }
        grids
    }

    fn add(&mut self, row: &'a Row) {
        let column = self.schemes.iter().position(|scheme| *scheme == row.scheme);
        let column = column.unwrap_or_else(|| {
            self.schemes.push(&row.scheme);
            self.schemes.len() - 1
        });
        let line = self.lines.iter().position(|(case, _)| *case == row.case);
        let line = line.unwrap_or_else(|| {
            self.lines.push((&row.case, Vec::new()));
            self.lines.len() - 1
        });
        let values = &mut self.lines[line].1;
        values.resize(values.len().max(column + 1), None);
        values[column] = row.value;
    }
}

/// The report as text.
pub(super) fn tables(report: &Report) -> String {
    let mut text = String::new();
    let Report { bench, profile, seed, commit, machine, .. } = report;
    let profile = profile.name();
    writeln!(text, "bench {bench}, profile {profile}, seed {seed}, commit {commit}, on {machine}")
        .expect(STRING);
    for Table { title, columns, lines } in Table::all(report) {
        let mut table = table(iter::once(title).chain(columns));
        for (case, values) in lines {
            table.add_row(iter::once(case).chain(values.into_iter().map(number)));
        }
        right_align(&mut table, 1);
        writeln!(text, "\n{table}").expect(STRING);
    }
    if !report.checks.is_empty() {
        let mut table = table(["check", "", "value", "band", "holds"].map(Into::into));
        for check in &report.checks {
            let Check { id, what, value, band: [low, high], holds } = check;
            let band = format!("{} to {}", number(Some(*low)), number(Some(*high)));
            let holds = if *holds { "yes" } else { "NO" };
            table.add_row([id, what, &number(*value), &band, holds]);
        }
        right_align(&mut table, 2);
        writeln!(text, "\n{table}").expect(STRING);
    }
    for line in report.notes.iter().chain(&report.history) {
        writeln!(text, "note: {line}").expect(STRING);
    }
    text
}

const STRING: &str = "a string takes everything";

fn table(header: impl IntoIterator<Item = String>) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(header);
    table
}

fn right_align(table: &mut comfy_table::Table, from: usize) {
    for column in table.column_iter_mut().skip(from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// A figure with its significant digits.
pub(super) fn number(value: Option<f64>) -> String {
    let Some(value) = value else { return "–".into() };
    match value.abs() {
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        1000.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        0.1.. => format!("{value:.3}"),
        _ => format!("{value:.5}"),
    }
}

//! The rows.

use super::arms::{Layout, Work};
use super::case::{Case, Pace};
use super::figures::Run;
use super::{Cell, Row};
use crate::compare::ReportWriter;

/// The rows of profile smoke.
pub const SMOKE: [&str; 1] = ["B43"];

/// The mean of the sine, in percent of what the volumes can do with one of them lost.
const MEAN: u64 = 45;

/// Requests under way in a closed loop.
const DEPTH: usize = 128;

/// The most that users' p99 may grow: with all work on a sine, and with a rebuild while users fill the line.
const GROWS_MAX: [f64; 2] = [1.5, 1.2];

/// Every row.
#[must_use]
pub fn all() -> Vec<Row> {
    vec![b43(), full()]
}

fn b43() -> Row {
    let cases = Layout::ALL.map(|layout| Case {
        name: format!("{}, sine", layout.name()),
        layout,
        pace: Pace::Sine(MEAN),
        arms: vec![Work::HEALTHY, Work::NONE, Work::REBUILD, Work::SCRUB, Work::MERGES, Work::ALL],
    });
    let about = "A sine of requests, a volume lost: what do users feel of rebuild, scrub and merges together?";
    Row::new("B43", about, cases)
        .check("{case}: p99, all work / no work", [0.0, GROWS_MAX[0]], |cell| {
            cell.ratio([Work::ALL.name, Work::NONE.name], Run::P99)
        })
        .tell(|writer, cells| {
            for cell in cells {
                did_something(writer, "B43", cell);
            }
            writer.bars("B43: p99 by work", "us", cells, Run::P99);
        })
}

fn full() -> Row {
    let cases = Layout::ALL.map(|layout| Case {
        name: format!("{}, closed loop", layout.name()),
        layout,
        pace: Pace::Closed(DEPTH),
        arms: vec![Work::HEALTHY, Work::NONE, Work::REBUILD, Work::ALL],
    });
    let about = "Users fill the line, a volume lost: what do they feel of the rebuild, which has a tenth of it?";
    Row::new("full", about, cases)
        .check("{case}: p99, rebuild / no rebuild", [0.0, GROWS_MAX[1]], |cell| {
            cell.ratio([Work::REBUILD.name, Work::NONE.name], Run::P99)
        })
        .tell(|writer, cells| {
            for cell in cells {
                did_something(writer, "full", cell);
            }
        })
}

/// Checks that the work of an arm took operations: a p99 beside work that waits says nothing.
fn did_something(writer: &mut ReportWriter<'_>, id: &str, cell: &Cell) {
    let all = cell.side(Work::ALL.name);
    let mut check = |kind: &str, operations: Vec<f64>| {
        let what = format!("{}: operations of {kind} in the arm `all`", cell.case);
        writer.check(id, &what, operations, [1.0, f64::INFINITY]);
    };
    check("rebuild", all.each(|run| run.granted.rebuild as f64));
    check("scrubs", all.each(|run| run.granted.scrub as f64));
    check("merges", all.each(|run| run.granted.merge as f64));
}

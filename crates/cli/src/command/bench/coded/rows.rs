//! The rows of docs/guide/bench.md about fragments, and their bands.
//!
//! Bands are as first specified. A figure without a band has none that follows from the design.

use bench::coded::{Cell, Run};
use bench::compare::{self, Figure};
use bench::ycsb::Workload;

use super::case::{Case, Work};
use super::schemes::{self, Arm, CODED, Scheme, THREE_COPIES};

/// A row of this bench.
pub(super) type Row = compare::Row<Case>;

/// The rows of profile `smoke` by default.
pub(super) const SMOKE: [&str; 5] = ["load", "A", "C", "away", "rebuild"];

/// The most bytes of tables on volumes for each byte of the users' data: 1.5 of 4 + 2, and a tenth for indexes, filters and the
/// last strips of tables.
const TABLES_HELD_MAX: f64 = 1.65;

/// The most that p99 of reads may grow beside three copies, which may read from the less busy of three volumes.
const READ_P99_MAX: f64 = 1.15;

/// The most volumes that are away: as many as both schemes of [`away`] survive.
const AWAY_MAX: usize = 2;

/// Every row.
pub(super) fn all() -> Vec<Row> {
    vec![load(), letter("A", Workload::A), c(), away(), rebuild()]
}

/// All schemes, each without `away` volumes.
fn arms(away: usize) -> Vec<Arm> {
    schemes::ALL.map(|scheme| Arm { scheme, away }).into()
}

fn load() -> Row {
    let case = Case { name: "bulk load".into(), arms: arms(0), work: Work::Load };
    let about =
        "How much room do copies and fragments take after a load, and what do they cost to write?";
    Row::new("load", about, [case])
        .compare("bytes on all volumes / the users' bytes", "x", |cell| figures(cell, Run::HELD))
        .check(
            "coded: bytes of tables on all volumes / the users' bytes",
            [0.0, TABLES_HELD_MAX],
            |cell| cell.side(CODED.name).each(Run::TABLES_HELD.of),
        )
        .tell(|writer, cells| {
            writer.bars("load: bytes on all volumes", "x the users' bytes", cells, Run::HELD);
        })
}

/// A workload of YCSB with all volumes.
fn letter(id: &'static str, workload: Workload) -> Row {
    let name = format!("YCSB {}", workload.name());
    let case = Case { name, arms: arms(0), work: Work::Mix(workload) };
    let about = match workload {
        Workload::C => "What do reads cost, and how long do they take?",
        _ => "What do reads and updates cost, and how long do they take?",
    };
    Row::new(id, about, [case]).tell(move |writer, cells| {
        writer.bars(&format!("{id}: closed loop"), "operations a second", cells, Run::QPS);
        let title = format!("{id}: p99 of reads at one rate");
        writer.bars(&title, "us", cells, Run::READ_P99);
    })
}

fn c() -> Row {
    let what = "{case}: p99 of reads at one rate, coded / copies = 3";
    letter("C", Workload::C).check(what, [0.0, READ_P99_MAX], |cell| {
        cell.ratio([CODED.name, THREE_COPIES.name], Run::READ_P99)
    })
}

fn away() -> Row {
    let without = |scheme: Scheme| (0..=AWAY_MAX).map(move |away| Arm { scheme, away });
    let case = Case {
        name: "YCSB C, volumes away".into(),
        arms: [THREE_COPIES, CODED].into_iter().flat_map(without).collect(),
        work: Work::Mix(Workload::C),
    };
    let about = "What do reads cost while one volume or two are away, and how long do they take?";
    Row::new("away", about, [case])
        .compare("{case}: operations charged for each read", "I/Os", |cell| {
            figures(cell, Run::IOS_PER_READ)
        })
        .compare("{case}: p99 of reads at one rate", "us", |cell| figures(cell, Run::READ_P99))
        .tell(|writer, cells| {
            writer.bars("away: p99 of reads at one rate", "us", cells, Run::READ_P99);
        })
}

fn rebuild() -> Row {
    let case = Case {
        name: "YCSB C, a volume replaced".into(),
        arms: arms(1),
        work: Work::Replace(Workload::C),
    };
    let about = "How long does a pool take to make a lost volume good under load, and how long do reads take meanwhile?";
    Row::new("rebuild", about, [case])
        .compare("{case}: until everything has its copies or fragments", "s", |cell| {
            figures(cell, Run::REBUILD)
        })
        .compare("{case}: p99 of reads meanwhile", "us", |cell| figures(cell, Run::READ_P99))
}

/// A figure of every arm of a cell.
fn figures(cell: &Cell, figure: Figure<Run>) -> Vec<(&str, Vec<f64>)> {
    cell.values(cell.names(), figure)
}

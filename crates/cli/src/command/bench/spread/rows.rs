//! The rows of docs/guide/bench.md about several volumes: their loads and bands.
//!
//! Bands are as first specified, or stricter; a figure better than its band holds too. Loads are the paper's (TANGO).

use std::sync::Arc;
use std::time::Duration;

use bench::drive::Operation;
use bench::spread::{Cell, HotRange, Keys, Measured, Sheet, Side, read_share};
use bench::ycsb::{Distribution, Workload};

use super::cell::Case;
use super::scale::Scale;
use super::schemes::{
    BASELINES, COPIED, GROWN, IOPS, OURS, PLACED, ROUND_ROBIN, SINGLE, Scheme, TANGO, THREE,
    THREE_OURS,
};

type Tell = Box<dyn Fn(&mut Sheet<'_>, &[Arc<Cell>])>;

/// A row.
pub(super) struct Row {
    pub(super) id: &'static str,
    pub(super) cases: Vec<Case>,
    /// Writes checks and plots, once every case is measured.
    pub(super) tell: Tell,
}

/// The rows of profile `smoke` by default.
pub(super) const SMOKE: [&str; 2] = ["B18", "B21"];

/// Shares of reads, in percent.
const READS: [u32; 6] = [100, 90, 80, 70, 60, 50];

/// Every row, in the order of their numbers.
pub(super) fn all(scale: &Scale) -> Vec<Row> {
    vec![
        b17(),
        b17w(),
        b18(),
        b19(),
        b20(),
        b20g(scale),
        b21(),
        b22(),
        b23(scale),
        b24(),
        b24t(scale),
    ]
}

/// Reads and updates, zipfian.
fn mixed(percent: u32) -> Case {
    let single: &[Scheme] = if percent == 100 { &[SINGLE] } else { &[] };
    Case {
        name: format!("{percent} % reads"),
        schemes: single.iter().chain(&BASELINES).chain(&[OURS]).copied().collect(),
        mix: read_share(percent),
        keys: Keys::Ycsb(Distribution::Zipfian),
        time: None,
        threads: None,
    }
}

/// A workload of YCSB.
fn letter(workload: Workload) -> Case {
    if workload == Workload::C {
        return mixed(100);
    }
    Case {
        name: format!("YCSB {}", workload.name()),
        mix: workload.mix().to_vec(),
        keys: Keys::Ycsb(workload.distribution()),
        ..mixed(0)
    }
}

/// A figure of every scheme of a cell.
fn figures(cell: &Cell, figure: fn(&Measured) -> f64) -> Vec<(&str, Vec<f64>)> {
    let of = |side: &'_ Side| side.runs.iter().map(figure).collect();
    cell.sides.iter().map(|side| (side.scheme.as_str(), of(side))).collect()
}

/// The baseline of a cell with the most operations.
fn best_other(cell: &Cell) -> &'static str {
    let baselines = BASELINES.map(|scheme| scheme.name);
    cell.best(&baselines, Measured::qps).expect("there are baselines")
}

/// The used share of the paid rate in percent, without copies.
fn used_percent(run: &Measured) -> f64 {
    100.0 * run.used()
}

fn spread_percent(run: &Measured) -> f64 {
    100.0 * run.spread()
}

fn b17() -> Row {
    let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
        let cell = &cells[0];
        let six = BASELINES.iter().chain(&[OURS]).map(|scheme| scheme.name);
        let ratios = six.map(|name| (name, cell.ratios(name, SINGLE.name, Measured::qps)));
        let what = "six volumes / one of the same price, operations";
        sheet.figures("B17", what, "x", &ratios.collect::<Vec<_>>());
        let ratios = cell.ratios(OURS.name, SINGLE.name, Measured::qps);
        sheet.check("B17", what, &ratios, [5.5, f64::INFINITY]);
        let used = cell.of(SINGLE.name, used_percent);
        let what = "the single volume's own use of its line";
        sheet.figures("B17", what, "%", &[(SINGLE.name, used)]);
    };
    Row { id: "B17", cases: vec![mixed(100)], tell: Box::new(tell) }
}

/// Threads of the random writes.
const WRITERS: usize = 32;

fn b17w() -> Row {
    let case = Case {
        name: "random writes".into(),
        schemes: vec![SINGLE, THREE, THREE_OURS],
        mix: vec![(Operation::Update, 100)],
        keys: Keys::Ycsb(Distribution::Uniform),
        time: None,
        // The number of threads is fixed, so that latencies compare.
        threads: Some(WRITERS),
    };
    let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
        let cell = &cells[0];
        for (what, figure) in [
            ("operations, three volumes / one (paper: 2; limit 3)", Measured::qps as fn(&_) -> _),
            ("mean latency, three volumes / one (paper: 0.5)", Measured::mean_us),
        ] {
            let of = [THREE, THREE_OURS]
                .map(|scheme| (scheme.name, cell.ratios(scheme.name, SINGLE.name, figure)));
            sheet.figures("B17w", what, "x", &of);
        }
        sheet.bars("B17w: random writes", "operations a second", &[cell], Measured::qps);
        sheet.bars("B17w: mean latency of random writes", "us", &[cell], Measured::mean_us);
    };
    Row { id: "B17w", cases: vec![case], tell: Box::new(tell) }
}

fn b18() -> Row {
    let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
        let cell = &cells[0];
        let used = figures(cell, used_percent);
        sheet.figures("B18", "of what is paid for, all volumes", "%", &used);
        for Scheme { name, .. } in BASELINES {
            let ratios = cell.ratios(OURS.name, name, Measured::qps);
            let what = format!("operations, ours / {name}");
            sheet.figures("B18", &what, "x", &[("ratio", ratios)]);
            let closed = cell.gaps_closed(OURS.name, name);
            let what = format!("part of the gap from {name} to the line that ours closes");
            sheet.check("B18", &what, &closed, [0.7, f64::INFINITY]);
        }
        sheet.bars("B18: random reads", "operations a second", &[cell], Measured::qps);
    };
    Row { id: "B18", cases: vec![mixed(100)], tell: Box::new(tell) }
}

fn b19() -> Row {
    let letters = [Workload::A, Workload::B, Workload::C, Workload::D, Workload::E, Workload::F];
    let tell = move |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
        for (letter, cell) in letters.into_iter().zip(cells) {
            let (letter, other) = (letter.name(), best_other(cell));
            let ratios = cell.ratios(OURS.name, other, Measured::qps);
            let what = format!("{letter}: operations, ours / the best other ({other})");
            sheet.check("B19", &what, &ratios, [0.98, f64::INFINITY]);
            let closed = cell.gaps_closed(OURS.name, other);
            let what =
                format!("{letter}: part of the gap from {other} to the line that ours closes");
            sheet.figures("B19", &what, "", &[(OURS.name, closed)]);
        }
        let cells: Vec<&Cell> = cells.iter().map(|cell| &**cell).collect();
        let title = "B19: YCSB A to F (C is 100 % reads)";
        sheet.bars(title, "operations a second", &cells, Measured::qps);
    };
    Row { id: "B19", cases: letters.map(letter).into(), tell: Box::new(tell) }
}

fn b20() -> Row {
    let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
        let used = cells[0].of(OURS.name, Measured::used);
        let what = "100 % reads: share of six volumes' paid operations that is used";
        sheet.check("B20", what, &used, [0.96, f64::INFINITY]);
    };
    Row { id: "B20", cases: vec![mixed(100)], tell: Box::new(tell) }
}

/// The time after a volume joins, and the number of parts whose last one counts as its end.
const GROWING: Duration = Duration::from_secs(60);
const GROWN_FOR: u32 = 3;

/// A volume joins under load, without a restart.
fn b20g(scale: &Scale) -> Row {
    let time = GROWING.min(scale.time);
    let case = Case {
        name: "100 % reads, a volume joins".into(),
        schemes: vec![GROWN],
        time: Some(time),
        // As many threads as for six volumes.
        threads: Some(scale.threads),
        ..mixed(100)
    };
    let tell = move |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
        let part = time / GROWN_FOR;
        for nth in 0..GROWN_FOR {
            let [from, to] = [part * nth, part * (nth + 1)];
            let used = cells[0].of(GROWN.name, |run| run.used_between(from, to));
            let what = format!(
                "share of six volumes' paid operations that is used, {} to {} s after the sixth joined",
                from.as_secs(),
                to.as_secs()
            );
            match nth + 1 < GROWN_FOR {
                true => sheet.figures("B20g", &what, "", &[(GROWN.name, used)]),
                false => sheet.check("B20g", &what, &used, [0.95, f64::INFINITY]),
            }
        }
    };
    Row { id: "B20g", cases: vec![case], tell: Box::new(tell) }
}

fn b21() -> Row {
    let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
        for cell in cells {
            let what = format!("{}: (max - min) / max of volumes' IOPS, %", cell.case);
            sheet.figures("B21", &what, "", &figures(cell, spread_percent));
            sheet.check("B21", &what, &cell.of(OURS.name, spread_percent), [0.0, 3.0]);
        }
    };
    Row { id: "B21", cases: [90, 50].map(mixed).into(), tell: Box::new(tell) }
}

fn b22() -> Row {
    let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
        for cell in cells {
            let what = format!("{}: standard deviation of volumes' IOPS / paid", cell.case);
            sheet.figures("B22", &what, "", &figures(cell, Measured::deviation));
            sheet.check("B22", &what, &cell.of(OURS.name, Measured::deviation), [0.0, 0.03]);
        }
    };
    Row { id: "B22", cases: [90, 50].map(mixed).into(), tell: Box::new(tell) }
}

/// How long a hot range stays (docs/guide/bench.md), and the number of moves in a run.
const SHIFT: Duration = Duration::from_secs(60);
const SHIFTS: u32 = 3;

/// A twentieth of the keys gets four fifths of the reads; a minute later another twentieth does.
fn hot_range(scale: &Scale) -> Case {
    let every = if scale.lead < SHIFT / 10 { scale.time / SHIFTS } else { SHIFT };
    let range = HotRange { records_permille: 50, choices: 0.8, every };
    Case {
        name: "hot range, 100 % reads".into(),
        schemes: vec![IOPS, TANGO, OURS],
        keys: Keys::Hot(range),
        time: Some(every * (SHIFTS + 1)),
        ..mixed(100)
    }
}

fn b23(scale: &Scale) -> Row {
    let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
        let cell = &cells[0];
        for (what, figure) in [
            ("copies", (|run| run.copies.made as f64) as fn(&Measured) -> f64),
            ("bytes copied", |run| run.copies.bytes as f64),
        ] {
            for scheme in [TANGO, OURS] {
                let what = format!("{what}: IOPS policy / {}", scheme.name);
                let ratios = cell.ratios(IOPS.name, scheme.name, figure);
                sheet.check("B23", &what, &ratios, [1.4, f64::INFINITY]);
            }
        }
        let ratios = cell.ratios(OURS.name, IOPS.name, Measured::qps);
        sheet.figures("B23", "operations, ours / IOPS policy", "x", &[("ratio", ratios)]);
    };
    Row { id: "B23", cases: vec![hot_range(scale)], tell: Box::new(tell) }
}

fn b24() -> Row {
    let case = |percent: u32| Case {
        name: format!("{percent} % reads, parts"),
        schemes: vec![ROUND_ROBIN, PLACED, COPIED, OURS],
        ..mixed(percent)
    };
    let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
        for cell in cells {
            for part in [PLACED.name, COPIED.name] {
                let ratios = cell.ratios(OURS.name, part, Measured::qps);
                let what = format!("{}: operations, both / {part}", cell.case);
                sheet.check("B24", &what, &ratios, [1.0, f64::INFINITY]);
            }
        }
        let cells: Vec<&Cell> = cells.iter().map(|cell| &**cell).collect();
        let title = "B24: placement, copies, and both";
        sheet.bars(title, "operations a second", &cells, Measured::qps);
    };
    Row { id: "B24", cases: [100, 50].map(case).into(), tell: Box::new(tell) }
}

fn b24t(scale: &Scale) -> Row {
    let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
        let (hot, cells) = cells.split_last().expect("the hot range is the last");
        for part in [0.25, 0.5, 0.75, 0.99] {
            let ms = |run: &Measured| {
                run.copies.times.quantile(part).map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
            };
            let of = [IOPS, TANGO, OURS].map(|scheme| (scheme.name, hot.of(scheme.name, ms)));
            sheet.figures(
                "B24t",
                &format!("p{:.0} of the time of a copy", 100.0 * part),
                "ms",
                &of,
            );
        }
        sheet.copy_times("B24t: how long copies took", hot);
        for cell in cells {
            let other = best_other(cell);
            let ratios = cell.ratios(OURS.name, other, Measured::mean_us);
            let what = format!("{}: mean latency, ours / the best other ({other})", cell.case);
            sheet.figures("B24t", &what, "x", &[("ratio", ratios)]);
        }
        let shares: Vec<(f64, &Cell)> =
            READS.iter().zip(cells).map(|(share, cell)| (f64::from(*share), &**cell)).collect();
        let axes = ["percent of reads", "mean latency, us"];
        sheet.curves("B24t: mean latency by read share", axes, &shares, Measured::mean_us);
        let cells: Vec<&Cell> = shares.iter().map(|(_, cell)| *cell).collect();
        sheet.bars("B24t: operations by read share", "operations a second", &cells, Measured::qps);
    };
    let cases = READS.map(mixed).into_iter().chain([hot_range(scale)]).collect();
    Row { id: "B24t", cases, tell: Box::new(tell) }
}

//! The rows of docs/guide/bench.md about several volumes: their loads and bands.
//!
//! Bands are as first specified, or stricter; a figure better than its band holds too. Loads are the paper's (TANGO).

use std::time::Duration;

use bench::compare::{self, Figure, StoreOutcome};
use bench::drive::Operation;
use bench::spread::{Cell, HotRange, Keys, Run, copy_times, gaps_closed, read_share};
use bench::ycsb::{Distribution, Workload};

use super::case::Case;
use super::scale::Scale;
use super::schemes::{
    BASELINES, COPIED, GROWN, IOPS, MIXED, MIXED_EQUALS, MIXED_HASH, MIXED_ROUND_ROBIN, OURS,
    PLACED, ROUND_ROBIN, SINGLE, Scheme, TANGO, THREE, THREE_OURS,
};

/// A row of this bench.
pub(super) type Row = compare::Row<Case>;

/// No upper bound.
const ANY: f64 = f64::INFINITY;

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
        b24d(),
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
        offered: None,
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
fn figures(cell: &Cell, figure: Figure<Run>) -> Vec<(&str, Vec<f64>)> {
    cell.values(cell.names(), figure)
}

/// The baseline of a cell with the most operations.
fn best_other(cell: &Cell) -> &'static str {
    let baselines = BASELINES.map(|scheme| scheme.name);
    cell.best(&baselines, Run::qps).expect("there are baselines")
}

fn b17() -> Row {
    const WHAT: &str = "six volumes / one of the same price, operations";
    let about = "How much more do six volumes read than one large volume of the same price?";
    Row::new("B17", about, [mixed(100)])
        .compare(WHAT, "x", |cell| {
            let six = BASELINES.iter().chain(&[OURS]).map(|scheme| scheme.name);
            cell.against(SINGLE.name, six, Run::QPS)
        })
        .check(WHAT, [5.5, ANY], |cell| cell.ratios(OURS.name, SINGLE.name, Run::qps))
        .compare("the single volume's own use of its line", "%", |cell| {
            cell.values([SINGLE.name], Run::USED)
        })
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
        offered: None,
    };
    let ratios =
        |cell: &Cell, figure| cell.against(SINGLE.name, [THREE.name, THREE_OURS.name], figure);
    Row::new("B17w", "How much more do three volumes write than one?", [case])
        .compare("operations, three volumes / one (paper: 2; limit 3)", "x", move |cell| {
            ratios(cell, Run::QPS)
        })
        .compare("mean latency, three volumes / one (paper: 0.5)", "x", move |cell| {
            ratios(cell, Run::MEAN)
        })
        .tell(|writer, cells| {
            writer.bars("B17w: random writes", "operations a second", cells, Run::QPS);
            writer.bars("B17w: mean latency of random writes", "us", cells, Run::MEAN);
        })
}

fn b18() -> Row {
    let about =
        "How much of the gap between other placements and the line does ours close for reads?";
    Row::new("B18", about, [mixed(100)])
        .compare("of what is paid for, all volumes", "%", |cell| figures(cell, Run::USED))
        .tell(|writer, cells| {
            for Scheme { name, .. } in BASELINES {
                let ratios = cells[0].ratios(OURS.name, name, Run::qps);
                let what = format!("operations, ours / {name}");
                writer.compare("B18", &what, "x", &[("ratio", ratios)]);
                let closed = gaps_closed(cells[0], OURS.name, name);
                let what = format!("part of the gap from {name} to the line that ours closes");
                writer.check("B18", &what, closed, [0.7, ANY]);
            }
            writer.bars("B18: random reads", "operations a second", cells, Run::QPS);
        })
}

fn b19() -> Row {
    let letters = [Workload::A, Workload::B, Workload::C, Workload::D, Workload::E, Workload::F];
    let about = "Is our placement at least as fast as the best other under YCSB A to F?";
    Row::new("B19", about, letters.map(letter)).tell(move |writer, cells| {
        for (letter, cell) in letters.into_iter().zip(cells) {
            let (letter, other) = (letter.name(), best_other(cell));
            let ratios = cell.ratios(OURS.name, other, Run::qps);
            let what = format!("{letter}: operations, ours / the best other ({other})");
            writer.check("B19", &what, ratios, [0.98, ANY]);
            let closed = gaps_closed(cell, OURS.name, other);
            let what =
                format!("{letter}: part of the gap from {other} to the line that ours closes");
            writer.compare("B19", &what, "", &[(OURS.name, closed)]);
        }
        let title = "B19: YCSB A to F (C is 100 % reads)";
        writer.bars(title, "operations a second", cells, Run::QPS);
    })
}

fn b20() -> Row {
    let about = "What part of the paid operations of six volumes does a read load use?";
    let what = "100 % reads: share of six volumes' paid operations that is used";
    Row::new("B20", about, [mixed(100)])
        .check(what, [0.96, ANY], |cell| cell.side(OURS.name).each(Run::used))
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
    let about = "How soon does the load use a sixth volume that joins while it runs?";
    Row::new("B20g", about, [case]).tell(move |writer, cells| {
        let part = time / GROWN_FOR;
        for nth in 0..GROWN_FOR {
            let [from, to] = [part * nth, part * (nth + 1)];
            let used = cells[0].side(GROWN.name).each(|run| run.used_between(from, to));
            let what = format!(
                "share of six volumes' paid operations that is used, {} to {} s after the sixth joined",
                from.as_secs(),
                to.as_secs()
            );
            match nth + 1 < GROWN_FOR {
                true => writer.compare("B20g", &what, "", &[(GROWN.name, used)]),
                false => writer.check("B20g", &what, used, [0.95, ANY]),
            }
        }
    })
}

fn b21() -> Row {
    const WHAT: &str = "{case}: (max - min) / max of volumes' IOPS, %";
    let about = "How far apart are the most and the least loaded volume?";
    Row::new("B21", about, [90, 50].map(mixed))
        .compare(WHAT, "", |cell| figures(cell, Run::SPREAD))
        .check(WHAT, [0.0, 3.0], |cell| cell.side(OURS.name).each(Run::SPREAD.of))
}

fn b22() -> Row {
    const WHAT: &str = "{case}: standard deviation of volumes' IOPS / paid";
    let about = "How much does the load of volumes deviate over volumes and seconds?";
    Row::new("B22", about, [90, 50].map(mixed))
        .compare(WHAT, "", |cell| figures(cell, Run::DEVIATION))
        .check(WHAT, [0.0, 0.03], |cell| cell.side(OURS.name).each(Run::DEVIATION.of))
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
    let about =
        "How many fewer copies does our rule make than the IOPS rule when the hot range moves?";
    Row::new("B23", about, [hot_range(scale)])
        .tell(|writer, cells| {
            for (what, figure) in [("copies", Run::COPIES), ("bytes copied", Run::COPIED)] {
                for scheme in [TANGO.name, OURS.name] {
                    let what = format!("{what}: IOPS policy / {scheme}");
                    let ratios = cells[0].ratios(IOPS.name, scheme, figure.of);
                    writer.check("B23", &what, ratios, [1.4, ANY]);
                }
            }
        })
        .compare("operations, ours / IOPS policy", "x", |cell| {
            vec![("ratio", cell.ratios(OURS.name, IOPS.name, Run::qps))]
        })
}

fn b24() -> Row {
    let case = |percent: u32| Case {
        name: format!("{percent} % reads, parts"),
        schemes: vec![ROUND_ROBIN, PLACED, COPIED, OURS],
        ..mixed(percent)
    };
    let about = "Are placement and copies together better than each alone?";
    Row::new("B24", about, [100, 50].map(case)).tell(|writer, cells| {
        for cell in cells {
            for part in [PLACED.name, COPIED.name] {
                let ratios = cell.ratios(OURS.name, part, Run::qps);
                let what = format!("{}: operations, both / {part}", cell.case);
                writer.check("B24", &what, ratios, [1.0, ANY]);
            }
        }
        let title = "B24: placement, copies, and both";
        writer.bars(title, "operations a second", cells, Run::QPS);
    })
}

fn b24t(scale: &Scale) -> Row {
    let cases: Vec<_> = READS.map(mixed).into_iter().chain([hot_range(scale)]).collect();
    let about = "How long do copies take, and how does mean latency depend on the share of reads?";
    Row::new("B24t", about, cases).tell(|writer, cells| {
        let (hot, cells) = cells.split_last().expect("the hot range is the last");
        for part in [0.25, 0.5, 0.75, 0.99] {
            let ms = |run: &Run| {
                run.copies.times.quantile(part).map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
            };
            let of =
                [IOPS, TANGO, OURS].map(|scheme| (scheme.name, hot.side(scheme.name).each(ms)));
            let what = format!("p{:.0} of the time of a copy", 100.0 * part);
            writer.compare("B24t", &what, "ms", &of);
        }
        writer.report.plots.push(copy_times("B24t: how long copies took", hot));
        for cell in cells {
            let other = best_other(cell);
            let ratios = cell.ratios(OURS.name, other, Run::mean_us);
            let what = format!("{}: mean latency, ours / the best other ({other})", cell.case);
            writer.compare("B24t", &what, "x", &[("ratio", ratios)]);
        }
        let shares: Vec<(f64, &Cell)> =
            READS.iter().zip(cells).map(|(share, cell)| (f64::from(*share), *cell)).collect();
        let axes = ["percent of reads", "mean latency, us"];
        writer.curves("B24t: mean latency by read share", axes, &shares, Run::MEAN);
        let title = "B24t: operations by read share";
        writer.bars(title, "operations a second", cells, Run::QPS);
    })
}

/// Operations a second that are offered to six different volumes, about two fifths of what they do.
const OFFERED: u64 = 400;

/// Two volumes each of io2, gp3 and disks.
fn b24d() -> Row {
    let case = |percent: u32| Case {
        name: format!("{percent} % reads, different devices"),
        schemes: vec![MIXED_ROUND_ROBIN, MIXED_HASH, MIXED_EQUALS, MIXED],
        offered: Some(OFFERED),
        ..mixed(percent)
    };
    let about = "How soon does a pool of fast and slow devices answer that is not at its line?";
    Row::new("B24d", about, [90, 50].map(case))
        .compare("{case}: operations", "/s", |cell| figures(cell, Run::QPS))
        .compare("{case}: mean latency", "us", |cell| figures(cell, Run::MEAN))
        .tell(|writer, cells| {
            for cell in cells {
                for other in [MIXED_ROUND_ROBIN, MIXED_HASH, MIXED_EQUALS] {
                    let ratios = cell.ratios(OURS.name, other.name, Run::mean_us);
                    let what = format!("{}: mean latency, ours / {}", cell.case, other.name);
                    writer.check("B24d", &what, ratios, [0.0, 1.0]);
                }
            }
            writer.bars("B24d: mean latency on different devices", "us", cells, Run::MEAN);
        })
}

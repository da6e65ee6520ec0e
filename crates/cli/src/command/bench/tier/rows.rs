//! The rows.

use bench::compare::{self, Figure};
use bench::tier::volumes::{Cell, Chosen, Load, Run};
use bench::trace::StandIn;
use policy::units::{KIB, MIB};

use super::arms::{Arm, BACK, Flushes, LAZY, PAGES, SMALL};
use super::case::{Case, Pace};
use super::scale::CACHED_PERCENT;

/// A row of `bench tier`.
type Row = compare::Row<Case>;

/// The rows of profile smoke.
pub(super) const SMOKE: [&str; 1] = ["hurts"];

/// Requests under way in a closed loop, as in the paper on HOSD.
const DEPTH: usize = 128;

/// Requests of a trace under way, and the part of its footprint that is cached in percent, as there.
const TRACED: (usize, u64) = (64, 8);

/// The least operations a second on stand-ins for traces, beside pages on demand: of each, and in the mean.
const ON_TRACES: [f64; 2] = [1.0, 1.05];

/// Requests that are offered a second: what gp3 of 16,000 operations does with room to spare.
const OFFERED: u64 = 12_000;

/// Requests a second, nearly all of them reads, whose misses take nearly all that the slow volume gives.
const AT_THE_LINE: u64 = 15_000;

/// The least operations a second beside demand promotion: by small requests, and by those of whole objects.
const AGAINST_DEMAND: [f64; 2] = [3.5, 0.97];

/// The least ratio of promoted bytes for each byte of the users.
const PROMOTED_MIN: f64 = 10.0;

/// The least part of what the slow volume does alone.
const UNHURT: f64 = 0.97;

/// The largest part of users' p99 with flushes in their own class that is left with the valve.
const FLUSHED_MAX: f64 = 0.6;

/// How much more or less of the cache may be dirty in the second half of a run than in the first, in percent of the cache.
const LEVEL: f64 = 5.0;

/// As near as a tier should come to the wide volume.
const NEAR: f64 = 0.1;

const READS: Load = Load { chosen: Chosen::Uniform, bytes: 4 * KIB, writes_percent: 0 };

/// Every row.
pub(super) fn all() -> Vec<Row> {
    vec![b25(), b26(), b27(), b28(), zipf(), back(), hurts()]
}

/// Uniform reads of small parts of objects, and of whole ones.
fn uniform() -> [Case; 2] {
    [("4 KiB reads", 4 * KIB), ("1 MiB reads", MIB)].map(|(name, bytes)| {
        let load = Load { bytes, ..READS };
        let arms = vec![LAZY, PAGES, Arm::Demand, Arm::Slow, Arm::Fast];
        let name = format!("uniform {name}");
        Case {
            name,
            arms,
            warming: load,
            load,
            pace: Pace::Closed(DEPTH),
            is_durable: false,
            cached_percent: CACHED_PERCENT,
        }
    })
}

fn b25() -> Row {
    let about = "Uniform random reads, five times as much data as cache, depth 128: what does lazy promotion save beside the \
                 promotion of every object that misses?";
    Row::new("B25", about, uniform()).tell(|writer, cells| {
        let ratio = |cell: &Cell| cell.ratio([&LAZY.name(), &Arm::Demand.name()], Run::PER_SEC);
        for (cell, least) in cells.iter().zip(AGAINST_DEMAND) {
            let what = format!("{}: op/s, tier / objects on demand", cell.case);
            writer.check("B25", &what, ratio(cell), [least, f64::INFINITY]);
        }
        let of = |cell: &&Cell| {
            bench::stats::median(&cell.ratios(&LAZY.name(), &Arm::Demand.name(), Run::per_sec))
        };
        let logs: f64 = cells.iter().map(|cell| of(cell).ln()).sum();
        let mean = (logs / cells.len() as f64).exp();
        let case = "geometric mean of the ratios; the paper has 3.48";
        writer.report.row("B25", case, &LAZY.name(), mean, "x");
        writer.bars("B25: uniform reads", "operations a second", cells, Run::PER_SEC);
    })
}

fn b26() -> Row {
    let (depth, cached_percent) = TRACED;
    let cases = StandIn::ALL.map(|of| {
        let load = Load { chosen: Chosen::StandIn(of), ..READS };
        Case {
            name: format!("stand-in for {}", of.name),
            arms: vec![BACK, Arm::BackPages, LAZY, PAGES, Arm::Slow],
            warming: load,
            load,
            pace: Pace::Closed(depth),
            is_durable: true,
            cached_percent,
        }
    });
    let about = "Loads with statistics of five traces, durable writes, a cache of 8 % of the footprint, depth 64: what does lazy \
                 promotion gain beside pages that every miss installs, with write-back and without?";
    Row::new("B26", about, cases)
        .check("{case}: op/s, write-back / pages on demand", [ON_TRACES[0], f64::INFINITY], |cell| {
            cell.ratio([&BACK.name(), &Arm::BackPages.name()], Run::PER_SEC)
        })
        .tell(|writer, cells| {
            for [lazy, pages] in [[BACK, Arm::BackPages], [LAZY, PAGES]] {
                let names = [lazy.name(), pages.name()];
                let of = |cell: &&Cell| {
                    bench::stats::median(&cell.ratios(&names[0], &names[1], Run::per_sec))
                };
                let mean = cells.iter().map(of).sum::<f64>() / cells.len() as f64;
                match lazy {
                    BACK => writer.check(
                        "B26",
                        "op/s, write-back / pages on demand, mean of the traces; the paper has 1.08",
                        vec![mean],
                        [ON_TRACES[1], f64::INFINITY],
                    ),
                    _ => {
                        let case = "op/s, tier / pages on demand, written through, mean of the traces";
                        writer.report.row("B26", case, &names[0], mean, "x");
                    }
                }
            }
            writer.bars("B26: stand-ins for traces", "operations a second", cells, Run::PER_SEC);
        })
}

fn b27() -> Row {
    let about = "How many bytes are promoted for each byte that users read?";
    Row::new("B27", about, uniform()).tell(|writer, cells| {
        let small = cells[0];
        let ratio = small.ratio([&Arm::Demand.name(), &LAZY.name()], Run::PROMOTED);
        let what = format!("{}: promoted bytes, objects on demand / tier", small.case);
        writer.check("B27", &what, ratio, [PROMOTED_MIN, f64::INFINITY]);
        writer.grid("B27: promoted bytes for each byte of the users", cells, Run::PROMOTED);
    })
}

/// 70 % reads and 30 % durable writes of scattered hot blocks.
const MIXED: Load = Load { chosen: Chosen::ZipfScattered, bytes: 4 * KIB, writes_percent: 30 };

fn b28() -> Row {
    let [open, foreground] = [Flushes::Open, Flushes::Foreground].map(Arm::Back);
    let cases = [(30, OFFERED), (5, AT_THE_LINE)].map(|(writes_percent, per_sec)| {
        let load = Load { writes_percent, ..MIXED };
        Case {
            name: format!("zipf 0.99, scattered, {writes_percent} % durable writes, in waves"),
            arms: vec![BACK, open, foreground],
            warming: load,
            load,
            pace: Pace::Waves(per_sec),
            is_durable: true,
            cached_percent: CACHED_PERCENT,
        }
    });
    let about = "4 KiB, for 5 s of each 10 s: 12,000 a second, of which 30 % are durable writes, and 15,000 with 5 %, whose misses take \
                 nearly all that the slow volume gives: what do users gain from flushes that wait for calm, and that are in a class \
                 below theirs?";
    Row::new("B28", about, cases)
        .check("{case}: p99, valve / flushes in the class of reads", [0.0, FLUSHED_MAX], {
            move |cell| cell.ratio([&BACK.name(), &foreground.name()], Run::P99)
        })
        .tell(move |writer, cells| {
            for cell in cells {
                let ratios = cell.ratios(&BACK.name(), &open.name(), Run::P99.of);
                let case = format!("{}: p99 / that without a valve", cell.case);
                writer.report.row("B28", &case, &BACK.name(), bench::stats::median(&ratios), "x");
            }
            writer.bars("B28: p99", "us", cells, Run::P99);
            writer.bars("B28: dirty", "% of the cache", cells, Run::DIRTY);
        })
}

fn zipf() -> Row {
    let case = |name: &str, chosen| {
        let load = Load { chosen, bytes: 4 * KIB, writes_percent: 5 };
        let arms = vec![LAZY, SMALL, PAGES, Arm::Wide, Arm::Slow];
        let name = format!("zipf 0.99, hot blocks {name}");
        Case {
            name,
            arms,
            warming: load,
            load,
            pace: Pace::Offered(OFFERED),
            is_durable: false,
            cached_percent: CACHED_PERCENT,
        }
    };
    let cases = [case("together", Chosen::ZipfTogether), case("scattered", Chosen::ZipfScattered)];
    let about = "4 KiB, 95 % reads and 5 % writes, write-through, 12,000 a second offered: does gp3 of 3,000 IOPS with a warm \
                 local disk of a fifth of the data feel like gp3 of 16,000?";
    Row::new("zipf", about, cases)
        .check("{case}: op/s, tier / gp3 of 16,000", [1.0 - NEAR, f64::INFINITY], |cell| {
            cell.ratio([&LAZY.name(), &Arm::Wide.name()], Run::PER_SEC)
        })
        .check("{case}: p99, tier / gp3 of 16,000", [0.0, 1.0 + NEAR], |cell| {
            cell.ratio([&LAZY.name(), &Arm::Wide.name()], Run::P99)
        })
        .tell(|writer, cells| {
            writer.bars("zipf: answered", "operations a second", cells, Run::PER_SEC);
            writer.bars("zipf: p99", "us", cells, Run::P99);
        })
}

fn back() -> Row {
    let case = Case {
        name: "zipf 0.99, scattered, 30 % durable writes".into(),
        arms: vec![BACK, LAZY, Arm::Wide],
        warming: MIXED,
        load: MIXED,
        pace: Pace::Offered(OFFERED),
        is_durable: true,
        cached_percent: CACHED_PERCENT,
    };
    let about = "4 KiB, 70 % reads and 30 % durable writes, 12,000 a second offered: what does write-back save, on a fast volume as \
                 durable as the slow one?";
    Row::new("back", about, [case])
        .check("{case}: op/s, write-back / write-through", [1.0, f64::INFINITY], |cell| {
            cell.ratio([&BACK.name(), &LAZY.name()], Run::PER_SEC)
        })
        .check("{case}: op/s, write-back / gp3 of 16,000", [1.0 - NEAR, f64::INFINITY], |cell| {
            cell.ratio([&BACK.name(), &Arm::Wide.name()], Run::PER_SEC)
        })
        .check("{case}: p99, write-back / gp3 of 16,000", [0.0, 1.0 + NEAR], |cell| {
            cell.ratio([&BACK.name(), &Arm::Wide.name()], Run::P99)
        })
        .check("{case}: growth of what is dirty, % of the cache", [-LEVEL, LEVEL], |cell| {
            cell.side(&BACK.name()).each(Run::DIRTY_GROWTH.of)
        })
        .tell(|writer, cells| {
            writer.bars("back: answered", "operations a second", cells, Run::PER_SEC);
            writer.bars("back: p99", "us", cells, Run::P99);
        })
}

fn hurts() -> Row {
    let case = |name: &str, chosen, bytes, writes_percent| {
        let load = Load { chosen, bytes, writes_percent };
        let (name, arms) = (name.into(), vec![LAZY, PAGES, Arm::Slow]);
        Case {
            name,
            arms,
            warming: READS,
            load,
            pace: Pace::Closed(DEPTH),
            is_durable: false,
            cached_percent: CACHED_PERCENT,
        }
    };
    let cases = [
        case("uniform 4 KiB reads after such reads", Chosen::Uniform, 4 * KIB, 0),
        case("sequential 64 KiB reads", Chosen::Sequential, 64 * KIB, 0),
        case("random 4 KiB writes", Chosen::Uniform, 4 * KIB, 100),
    ];
    let about = "Loads from which a cache gains nothing, on a tier that uniform reads have warmed: does it cost anything?";
    let ops =
        |cell: &Cell, figure: Figure<Run>| cell.ratio([&LAZY.name(), &Arm::Slow.name()], figure);
    Row::new("hurts", about, cases)
        .check("{case}: op/s, tier / gp3 of 3,000", [UNHURT, f64::INFINITY], move |cell| {
            ops(cell, Run::PER_SEC)
        })
        .check(
            "{case}: slow operations for each request, tier / gp3 of 3,000",
            [0.0, 1.0 / UNHURT],
            move |cell| ops(cell, Run::SLOW_OPS),
        )
        .tell(|writer, cells| {
            writer.bars("hurts: loads without hits", "operations a second", cells, Run::PER_SEC);
        })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use bench::compare::Plan;
    use bench::report::Report;
    use bench::{Options, Profile};

    use super::super::case::Bencher;
    use super::super::scale::Scale;
    use super::*;

    fn measured(rows: &[&str]) -> Report {
        let rows = rows.iter().map(|&row| row.into()).collect();
        let options = Options { profile: Profile::Smoke, seed: 1, rows };
        let plan = Plan::new(all(), &options, &SMOKE).expect("they are known");
        let bencher = Bencher::new(Scale::of(options.profile, None), 1).expect("room");
        let (mut report, stop) = (Report::new("tier", &options), AtomicBool::new(false));
        let measure = |case: &Case| bencher.measure(case, &stop);
        plan.run(&mut report, &stop, measure).expect("memory does not fail");
        report
    }

    #[test]
    fn a_tier_gives_right_answers_and_does_not_hurt() {
        let report = measured(&["hurts"]);
        let failed: Vec<_> = report.checks.iter().filter(|check| !check.holds).collect();
        assert!(failed.is_empty(), "{failed:?}");
        assert_eq!(report.checks.len(), 2 * 3 + 2);
    }

    #[test]
    fn writes_that_stay_are_read_as_they_were_written() {
        let report = measured(&["back"]);
        let check = |what: &str| {
            let mut checks = report.checks.iter();
            checks.find(|check| check.what.contains(what)).expect("it is checked").holds
        };
        assert!(check("answers") && check("overdrafts") && check("write-back / write-through"));
        let level = |case: &str| {
            let mut rows = report.rows.iter().filter(|row| row.case.ends_with(case));
            rows.find_map(|row| row.value).expect("it is reported")
        };
        assert!(level("dirty") > 0.0 && level("dirty at most") <= 100.0);
    }

    #[test]
    fn stand_ins_are_answered_rightly_and_cached() {
        let report = measured(&["B26"]);
        let check = |what: &str| {
            let mut checks = report.checks.iter();
            checks.find(|check| check.what.contains(what)).expect("it is checked")
        };
        assert!(check("answers").holds && check("overdrafts").holds);
        let hits = report.rows.iter().filter(|row| row.case.ends_with(", hits"));
        let hits: Vec<_> = hits.filter_map(|row| row.value).collect();
        assert_eq!(hits.len(), 5 * 4);
        assert!(hits.iter().all(|&hits| hits > 20.0), "{hits:?}");
    }

    #[test]
    fn waves_are_answered_and_flushed_by_each_rule() {
        let report = measured(&["B28"]);
        let check = |what: &str| {
            let mut checks = report.checks.iter();
            checks.find(|check| check.what.contains(what)).expect("it is checked").holds
        };
        assert!(check("answers") && check("overdrafts"));
        let of = |scheme: &str, figure: &str| {
            let mut rows = report.rows.iter();
            let found = rows.find(|row| row.scheme == scheme && row.case.ends_with(figure));
            found.and_then(|row| row.value).expect("it is reported")
        };
        for arm in [Flushes::Valve, Flushes::Open, Flushes::Foreground].map(Arm::Back) {
            let name = arm.name();
            // Half of the time nothing is offered.
            let answered = of(&name, "in waves") / (OFFERED as f64 / 2.0);
            assert!((0.5..1.01).contains(&answered), "{name}: {answered}");
            assert!(of(&name, "dirty at most") > 40.0, "{name} has something to flush");
        }
    }

    #[test]
    fn objects_on_demand_cost_more_promoted_bytes() {
        let report = measured(&["B25", "B27"]);
        let check = |what: &str| {
            let mut checks = report.checks.iter();
            checks.find(|check| check.what.contains(what)).expect("it is checked")
        };
        assert!(check("answers").holds && check("overdrafts").holds);
        assert!(check("promoted bytes, objects on demand / tier").holds);
    }
}

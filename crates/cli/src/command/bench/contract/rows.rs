//! The rows of docs/guide/bench.md about one volume: their loads and bands.
//!
//! Bands are as first specified, or stricter; a figure better than its band holds too. Loads are the papers' (Calcspar,
//! ATC 2023): a sine with amplitude A around D, here one period a run.

use anyhow::bail;
use bench::compare::{self, Figure, ReportWriter, Values};
use bench::contract::{Cell, Run};
use bench::drive::Mix;
use bench::mixgraph::{Distribution, Keys, Operation, Power, TwoTerms, Wave};
use policy::purpose::Class;

use super::baselines::{
    AHEAD, AUTO_TUNED, DYNAMIC, LRU, OURS, OURS_P99, PASSIVE, PLAIN, S3_FIFO, SIEVE, STABILIZER,
    STATIC, Scheme, TAGS, TAGS_P99, WINDOWS, WINDOWS_RELEASED,
};
use super::case::Case;
use super::fixture::Setup;
use super::scale::Scale;

/// A row of this bench.
pub(super) type Row = compare::Row<Case>;

/// No upper bound.
const ANY: f64 = f64::INFINITY;

/// Operations per second of the papers' volume.
const PAID: u64 = 1000;

/// The same for loads that also load the processor: volume and rates are divided by five.
const PAID_FEW: u64 = 200;

const READ: &Mix = &[(Operation::Read, 100)];

/// The rows of profile `smoke` by default.
pub(super) const SMOKE: [&str; 4] = ["B03", "B04", "B05", "B16"];

/// The rows about other contracts than the one of a real volume.
const SIMULATED_ONLY: [&str; 3] = ["B07", "B15b", "B15c"];

/// Whether a row compares contracts, so that real volumes of one contract have no answer.
pub(super) fn is_simulated_only(id: &str) -> bool {
    SIMULATED_ONLY.contains(&id)
}

/// Refuses requested rows that real volumes cannot answer.
pub(super) fn refuse_on_real(asked: &[String]) -> anyhow::Result<()> {
    match asked.iter().find(|asked| is_simulated_only(asked)) {
        Some(row) => bail!(
            "row {row} compares contracts, and the volumes of the file have one: leave -c out"
        ),
        None => Ok(()),
    }
}

/// Every row, in the order of their numbers.
pub(super) fn all(scale: &Scale) -> Vec<Row> {
    let at = Plan { scale: *scale };
    let mut rows = vec![at.b03(), at.b04(), at.b05(), at.b06(), at.b07()];
    rows.extend([at.b08(), at.b09(), at.b10(), at.b11(), at.b12(), at.b13(), at.b14()]);
    rows.extend([at.b15(), at.b15a(), at.b15b(), at.b15c(), at.b16()]);
    rows.extend([at.a(), at.b(), at.c(), at.tokens()]);
    rows
}

/// A sine in operations a second; a run replaces `b` so that it has one period: see [`Case`].
const fn sine(a: f64, d: f64) -> Wave {
    Wave::Sine { a, b: 1.0, c: 4.17, d }
}

struct Plan {
    scale: Scale,
}

impl Plan {
    /// A = paid/2, D = 1.2 paid: the rate of the paper's own figures for reads alone (Calcspar, ATC 2023). At D = paid,
    /// a store with a third of its reads in a cache is not throttled.
    fn nominal(paid: u64) -> Wave {
        sine(0.5 * paid as f64, 1.2 * paid as f64)
    }

    fn mixgraph(&self) -> Keys {
        Keys::Ranges(TwoTerms::PUBLISHED, Power::PUBLISHED.shrunk(self.scale.divisor as f64))
    }

    /// mixgraph's reads at the nominal rate, with a cache of 2 % of the data.
    fn base(&self, schemes: &[Scheme]) -> Case {
        Case {
            name: "mixgraph, read only".into(),
            schemes: schemes.to_vec(),
            setup: Setup {
                contract: "io2",
                paid: PAID,
                cache: Some(self.scale.share(2.0)),
                durable: false,
            },
            mix: READ.to_vec(),
            keys: self.mixgraph(),
            wave: Some(Self::nominal(PAID)),
            threads: 10,
            open_only: false,
            open_too: true,
            times: 1.0,
        }
    }

    fn nominal_case(&self) -> Case {
        self.base(&[PLAIN, AUTO_TUNED, OURS])
    }

    fn paid(mut case: Case, paid: u64) -> Case {
        case.setup.paid = paid;
        case
    }

    fn b03(&self) -> Row {
        let mut case = self.base(&[PLAIN, STABILIZER, TAGS]);
        case.name = "mixgraph, read only, no cache".into();
        case.setup.cache = None;
        case.wave = Some(sine(500.0, 1000.0));
        let about =
            "How much lower is the device's own p99 for reads with our gate than without a gate?";
        Row::new("B03", about, [case])
            .check("device p99 of reads, no gate / our gate", [10.0, ANY], |cell| {
                cell.ratio([PLAIN.name, TAGS.name], Run::DEVICE_P99)
            })
            .compare("device p99, no gate / gate", "x", |cell| {
                let ratios = |gate| cell.ratios(PLAIN.name, gate, Run::DEVICE_P99.of);
                [STABILIZER, TAGS].map(|gate| (gate.name, ratios(gate.name))).into()
            })
    }

    fn b04(&self) -> Row {
        let about =
            "How many more operations a second does our scheme complete than plain RocksDB?";
        Row::new("B04", about, [self.nominal_case()]).check(
            "operations a second, ours / plain",
            [1.05, ANY],
            |cell| cell.ratio([OURS.name, PLAIN.name], Run::QPS),
        )
    }

    fn b05(&self) -> Row {
        let about = "How much lower is the mean latency of our scheme than plain's?";
        Row::new("B05", about, [self.nominal_case()]).check(
            "mean latency, ours / plain",
            [0.0, 0.5],
            |cell| cell.ratio([OURS.name, PLAIN.name], Run::MEAN),
        )
    }

    fn b06(&self) -> Row {
        const EXPECTED: [(usize, f64); 4] = [(1, 2.3), (5, 11.6), (10, 24.0), (20, 55.0)];
        let cases = EXPECTED.map(|(threads, _)| {
            let name = format!("mixgraph, read only, {threads} threads");
            Case { name, threads, ..self.base(&[PLAIN, OURS, OURS_P99]) }
        });
        let about = "How does the gain in p99 depend on the number of threads?";
        Row::new("B06", about, cases).tell(|writer, cells| {
            for (cell, (threads, expected)) in cells.iter().zip(EXPECTED) {
                let what = format!("{threads} threads (paper: {expected})");
                both_at_least(writer, "B06", &what, cell, 0.5 * expected);
            }
        })
    }

    fn b07(&self) -> Row {
        const EXPECTED: [(u64, f64); 4] = [(1000, 24.0), (5000, 5.1), (10_000, 2.3), (15_000, 2.0)];
        let cases = EXPECTED.map(|(paid, _)| {
            // The first has the rate of B06.
            let what = if paid == PAID { "10 threads".into() } else { format!("{paid} IOPS") };
            let name = format!("mixgraph, read only, {what}");
            let wave = Some(Self::nominal(paid));
            Self::paid(Case { name, wave, ..self.base(&[PLAIN, OURS, OURS_P99]) }, paid)
        });
        let about = "How does the gain in p99 depend on the IOPS that are paid for?";
        Row::new("B07", about, cases).tell(|writer, cells| {
            for (cell, (paid, expected)) in cells.iter().zip(EXPECTED) {
                let what = format!("{paid} IOPS (paper: {expected})");
                both_at_least(writer, "B07", &what, cell, 0.5 * expected);
            }
        })
    }

    /// The congestion test, rates and volume divided by five.
    fn congestion(&self) -> Case {
        let schemes = [STABILIZER, STATIC, DYNAMIC, WINDOWS, WINDOWS_RELEASED, TAGS, TAGS_P99];
        let by = (PAID / PAID_FEW) as f64;
        let case = Case {
            name: "congestion, 5/95".into(),
            mix: vec![(Operation::Read, 5), (Operation::Update, 95)],
            wave: Some(sine(12_000.0 / by, 32_000.0 / by)),
            open_too: false,
            ..self.base(&schemes)
        };
        Self::paid(case, PAID_FEW)
    }

    fn b08(&self) -> Row {
        let about =
            "How do the schedulers compare in p99 under congestion, 5 % reads and 95 % updates?";
        Row::new("B08", about, [self.congestion()])
            .compare("p99 relative to NA", "x", |cell| relative(cell, Run::P99))
            .compare("p99 of reads relative to NA", "x", |cell| relative(cell, Run::READ_P99))
            .tell(|writer, _| {
                writer.report.notes.push(
                    "B08, B09: the paper has p99 SA 1.28, DA 0.84, TWA 0.54 and means 1.21, 0.62, 0.70 of NA; \
                     where each scheme's tokens went stands in its plots and rows by class"
                        .into(),
                );
            })
    }

    fn b09(&self) -> Row {
        let about = "How do they compare in mean latency and throughput under the same load?";
        Row::new("B09", about, [self.congestion()])
            .compare("mean relative to NA", "x", |cell| relative(cell, Run::MEAN))
            .compare("operations a second relative to NA", "x", |cell| relative(cell, Run::QPS))
    }

    fn b10(&self) -> Row {
        let about =
            "Does our gate beat the time windows in p99 and throughput under the same load?";
        Row::new("B10", about, [self.congestion()])
            .tell(|writer, cells| {
                for ours in [TAGS.name, TAGS_P99.name] {
                    let [to, of] = [[ours, WINDOWS.name], [WINDOWS.name, ours]];
                    for (what, values) in [
                        (format!("p99, {ours} / TWA"), cells[0].ratio(to, Run::P99)),
                        (format!("p99 of reads, {ours} / TWA"), cells[0].ratio(to, Run::READ_P99)),
                        (
                            format!("operations a second, TWA / {ours}"),
                            cells[0].ratio(of, Run::QPS),
                        ),
                    ] {
                        writer.check("B10", &what, values, [0.0, 1.0]);
                    }
                }
            })
            .compare("p99.9 relative to NA", "x", |cell| relative(cell, Run::P999))
    }

    fn b11(&self) -> Row {
        let dists = [
            ("zipf", Keys::Ycsb(Distribution::Zipfian)),
            ("mixgraph", self.mixgraph()),
            ("uniform", Keys::Ycsb(Distribution::Uniform)),
        ];
        let mut cases = Vec::new();
        for (name, keys) in dists {
            for percent in [2.0, 4.0] {
                let mut case = self.base(&[PASSIVE, AHEAD, OURS, LRU, S3_FIFO, SIEVE, PLAIN]);
                case.name = format!("hits, {name}, {percent} % cache");
                case.setup.cache = Some(self.scale.share(percent));
                cases.push(Case { keys, open_too: false, ..case });
            }
        }
        let about =
            "Do the cache and the read-ahead together hit more often than the better of the two?";
        let what = "{case}: both, points above the better of its parts";
        Row::new("B11", about, cases).check(what, [-1.0, ANY], |cell| {
            let hits = |scheme: Scheme| cell.side(scheme.name).each(Run::HITS.of);
            let parts = hits(PASSIVE).into_iter().zip(hits(AHEAD));
            let off = hits(OURS).into_iter().zip(parts);
            off.map(|(ours, (one, other))| ours - one.max(other)).collect::<Vec<_>>()
        })
    }

    fn b12(&self) -> Row {
        const EXPECTED: [(f64, f64); 7] = [
            (0.1, 1.33),
            (0.5, 1.49),
            (1.0, 2.03),
            (2.0, 3.18),
            (5.0, 2.05),
            (10.0, 1.96),
            (20.0, 1.89),
        ];
        let cases = EXPECTED.map(|(percent, _)| {
            if percent == 2.0 {
                return self.nominal_case();
            }
            let mut case = self.base(&[PLAIN, OURS]);
            case.name = format!("mixgraph, read only, {percent} % cache");
            case.setup.cache = Some(self.scale.share(percent));
            case
        });
        let about = "How does the gain in mean latency depend on the size of the cache?";
        Row::new("B12", about, cases).tell(|writer, cells| {
            for (cell, (percent, expected)) in cells.iter().zip(EXPECTED) {
                let what = format!("{percent} % cache: mean, plain / ours (paper: {expected})");
                let ratio = cell.ratio([PLAIN.name, OURS.name], Run::MEAN);
                writer.check("B12", &what, ratio, [0.7 * expected, ANY]);
            }
        })
    }

    fn b13(&self) -> Row {
        const OFFERED: [f64; 6] = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0];
        /// The p99 that marks the knee, in microseconds.
        const KNEE_US: f64 = 5000.0;
        const SCHEMES: [Scheme; 3] = [PLAIN, OURS, OURS_P99];
        let cases = OFFERED.map(|times| {
            let rate = times * PAID as f64;
            let name = format!("mixgraph, read only, {times} x paid offered");
            Case { name, wave: Some(sine(rate / 2.0, rate)), ..self.base(&SCHEMES) }
        });
        let about = "How much more load does our scheme take than plain before p99 passes 5 ms?";
        Row::new("B13", about, cases).tell(|writer, cells| {
            let knee = |scheme: Scheme| {
                let over = |cell: &Cell| cell.side(scheme.name).median(Run::P99.of) > KNEE_US;
                OFFERED.iter().zip(cells).find(|(_, cell)| over(cell)).map(|(times, _)| *times)
            };
            let of = SCHEMES.map(|scheme| (scheme.name, vec![knee(scheme).unwrap_or(f64::NAN)]));
            let what = "offered where p99 passes 5 ms (none: it never did)";
            writer.compare("B13", what, "x paid", &of);
            // Without a knee, count the largest offered load.
            let last = OFFERED[OFFERED.len() - 1];
            for ours in [OURS, OURS_P99] {
                let ratio = knee(PLAIN).map(|plain| knee(ours).unwrap_or(last) / plain);
                let what = format!("offered load where p99 passes 5 ms, {} / plain", ours.name);
                let error_us = cells.iter().map(|cell| cell.late_us(0.99)).fold(0.0, f64::max);
                let ratio = vec![ratio.unwrap_or(f64::NAN)];
                writer.check("B13", &what, Values::within(ratio, KNEE_US, error_us), [2.0, ANY]);
            }
            for cell in cells {
                let what = format!("{}: operations a second, ours / plain", cell.case);
                let ratios = cell.ratios(OURS.name, PLAIN.name, Run::QPS.of);
                writer.compare("B13", &what, "x", &[("ratio", ratios)]);
                let ms = |run: &Run| (Run::P999.of)(run) / 1e3;
                let of = SCHEMES.map(|scheme| (scheme.name, cell.side(scheme.name).each(ms)));
                writer.compare("B13", &format!("{}: p99.9", cell.case), "ms", &of);
            }
        })
    }

    fn writes(&self) -> Case {
        let case = Case {
            name: "write only".into(),
            mix: vec![(Operation::Update, 100)],
            keys: Keys::Ycsb(Distribution::Uniform),
            wave: None,
            open_too: false,
            ..self.base(&[PLAIN, AUTO_TUNED, OURS])
        };
        Self::paid(case, PAID_FEW)
    }

    fn b14(&self) -> Row {
        let about = "Does our scheme keep the write rate of plain RocksDB?";
        Row::new("B14", about, [self.writes()]).check(
            "writes a second, ours / plain",
            [0.97, ANY],
            |cell| cell.ratio([OURS.name, PLAIN.name], Run::QPS),
        )
    }

    fn b15(&self) -> Row {
        let case = |name: &str, mix: &Mix, wave| Case {
            name: name.into(),
            mix: mix.to_vec(),
            keys: Keys::Ycsb(Distribution::Uniform),
            wave: Some(wave),
            ..self.base(&[PLAIN, OURS, OURS_P99])
        };
        let half: &Mix = &[(Operation::Read, 50), (Operation::Update, 50)];
        let cases = [
            case("uniform, read only", READ, sine(500.0, 1200.0)),
            // Between the paper's rates for 60/40 and 40/60.
            case("uniform, 50/50", half, sine(1075.0, 2500.0)),
        ];
        let about = "How much lower is p99 under mixes of reads and updates?";
        Row::new("B15", about, cases).tell(|writer, cells| {
            for cell in cells {
                both_at_least(writer, "B15", &cell.case, cell, 10.0);
            }
        })
    }

    fn b15a(&self) -> Row {
        use Operation::{Insert, Read, ReadModifyWrite, Scan, Update};
        let workloads: [(&str, &Mix, f64); 6] = [
            ("A", &[(Read, 50), (Update, 50)], 1.0),
            ("B", &[(Read, 95), (Update, 5)], 1.0),
            ("C", READ, 1.0),
            ("D", &[(Read, 95), (Insert, 5)], 1.0),
            // A scan takes several reads.
            ("E", &[(Scan, 95), (Insert, 5)], 0.25),
            ("F", &[(Read, 50), (ReadModifyWrite, 50)], 1.0),
        ];
        let cases = workloads.map(|(name, mix, load)| {
            let latest = name == "D";
            let keys = if latest { Distribution::Latest } else { Distribution::Zipfian };
            let paid = PAID as f64 * load;
            Case {
                name: format!("YCSB {name}"),
                mix: mix.to_vec(),
                keys: Keys::Ycsb(keys),
                wave: Some(sine(paid / 2.0, paid)),
                open_too: false,
                ..self.base(&[PLAIN, OURS])
            }
        });
        let about = "How much lower is p99 under each of YCSB's workloads A to F?";
        Row::new("B15a", about, cases)
            .compare("{case}: p99, plain / ours", "x", |cell| gain(cell, Run::P99))
    }

    fn b15b(&self) -> Row {
        const IOPS: u64 = 3000;
        let cases = ["gp2", "gp3", "io1", "io2"].map(|contract| {
            let mut case = self.base(&[PLAIN, OURS]);
            case.name = format!("{contract} of {IOPS} IOPS");
            case.setup = Setup { contract, paid: IOPS, ..case.setup };
            Case { wave: Some(Self::nominal(IOPS)), open_too: false, ..case }
        });
        let about = "How does the gain depend on the volume type (gp2, gp3, io1, io2)?";
        Row::new("B15b", about, cases)
            .compare("{case}: p99, plain / ours", "x", |cell| gain(cell, Run::P99))
            .compare("{case}: operations a second, plain / ours", "x", |cell| gain(cell, Run::QPS))
    }

    fn b15c(&self) -> Row {
        let cases = [0.5, 0.75, 1.0, 1.5, 2.0].map(|times| {
            if times == 1.0 {
                return self.nominal_case();
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate")]
            let paid = (times * PAID as f64) as u64;
            let name = format!("mixgraph, read only, {times} x the cost");
            Self::paid(Case { name, open_too: false, ..self.base(&[PLAIN, OURS]) }, paid)
        });
        let about = "How does the gain depend on the money spent on the volume?";
        Row::new("B15c", about, cases)
            .compare("{case}: mean, plain / ours", "x", |cell| gain(cell, Run::MEAN))
            .compare("{case}: p99, plain / ours", "x", |cell| gain(cell, Run::P99))
    }

    fn b16(&self) -> Row {
        let mut case = self.base(&[STABILIZER, OURS]);
        case.name = "read storm, every write synced".into();
        case.setup.durable = true;
        let case = Case {
            mix: vec![(Operation::Read, 90), (Operation::Update, 10)],
            keys: Keys::Ycsb(Distribution::Uniform),
            wave: None,
            threads: 20,
            open_too: false,
            ..case
        };
        let wait = |run: &Run| run.wait_us(Class::Commit, 0.99) / 1e3;
        let device = |run: &Run| run.device_us(Class::Commit, 0.99) / 1e3;
        let both = |cell: &Cell, ms: fn(&Run) -> f64| {
            [STABILIZER, OURS].map(|scheme| (scheme.name, cell.side(scheme.name).each(ms))).into()
        };
        let about = "Do commits stay fast at the gate during a storm of reads?";
        Row::new("B16", about, [case])
            .check("commit: gate wait p99 in ms, ours", [0.0, 2.0], move |cell| {
                Values::within(cell.side(OURS.name).each(wait), 2000.0, cell.late_us(0.99))
            })
            .compare(
                "commit: gate wait p99 without class C (stabilizer) and with it",
                "ms",
                move |cell| both(cell, wait),
            )
            .compare("commit: device p99", "ms", move |cell| both(cell, device))
    }

    /// (a): the device's latency while compactions run.
    fn a(&self) -> Row {
        // io1 is slow enough for the timer to resolve a fifth of its latency.
        let base = |schemes: &[Scheme]| {
            let case = self.base(schemes);
            Case { setup: Setup { contract: "io1", ..case.setup }, open_too: false, ..case }
        };
        let quiet = Case {
            name: "quiet, a third of what is paid for".into(),
            wave: Some(Wave::Flat { d: PAID as f64 / 3.0 }),
            open_only: true,
            ..base(&[OURS])
        };
        let busy = Case {
            name: "20/80, compactions running".into(),
            mix: vec![(Operation::Read, 20), (Operation::Update, 80)],
            wave: Some(sine(2400.0, 6000.0)),
            ..base(&[PLAIN, OURS])
        };
        let about = "How much slower does the device itself answer reads while compactions run?";
        Row::new("(a)", about, [quiet, busy]).tell(|writer, cells| {
            let quiet = cells[0].side(OURS.name).median(Run::DEVICE_P99.of);
            let times = |run: &Run| (Run::DEVICE_P99.of)(run) / quiet;
            let of =
                [PLAIN, OURS].map(|scheme| (scheme.name, cells[1].side(scheme.name).each(times)));
            let ours = Values::within(of[1].1.clone(), 1.2 * quiet, cells[1].late_us(0.99));
            let what = "device p99 of reads, compactions running / quiet";
            writer.check("(a)", what, ours, [0.0, 1.2]);
            writer.compare("(a)", what, "x", &of);
        })
    }

    /// (b): the wait of reads at the gate below the paid rate.
    fn b(&self) -> Row {
        let mut case = self.base(&[OURS]);
        case.name = "nine tenths of what is paid for, no cache".into();
        case.setup.cache = None;
        let case = Case {
            keys: Keys::Ycsb(Distribution::Uniform),
            wave: Some(Wave::Flat { d: 0.9 * PAID as f64 }),
            open_only: true,
            open_too: false,
            ..case
        };
        let about = "How long do reads wait at the gate below the line?";
        Row::new("(b)", about, [case]).tell(|writer, cells| {
            let ours = cells[0].side(OURS.name);
            let wait = ours.each(|run| run.wait_us(Class::Foreground, 0.99) / 1e3);
            let used = ours.median(Run::USED.of);
            let what =
                format!("gate wait p99 of reads in ms, {used:.1} % of what is paid for asked");
            let wait = Values::within(wait, 1000.0, cells[0].late_us(0.99));
            writer.check("(b)", &what, wait, [0.0, 1.0]);
        })
    }

    /// (c): the cost of a Get.
    fn c(&self) -> Row {
        let both = |cell: &Cell, figure| cell.values([PLAIN.name, OURS.name], figure);
        let about = "What does one Get cost in latency, I/Os and cache hits?";
        Row::new("(c)", about, [self.nominal_case()])
            .compare("Get, p99", "us", move |cell| both(cell, Run::READ_P99))
            .compare("Get", "I/Os", move |cell| both(cell, Run::IOS_PER_READ))
            .compare("Get", "% hits", move |cell| both(cell, Run::HITS))
    }

    /// The used share of the paid rate when demand exceeds it.
    fn tokens(&self) -> Row {
        let mut reads = self.base(&[OURS]);
        reads.name = "uniform, read only, as many as there can be".into();
        reads.setup.cache = None;
        let reads =
            Case { keys: Keys::Ycsb(Distribution::Uniform), wave: None, open_too: false, ..reads };
        let about = "How much of the paid rate does our scheme use when the load asks for more?";
        Row::new("tokens", about, [reads, self.writes()]).tell(|writer, cells| {
            let [reads, writes] =
                [cells[0], cells[1]].map(|cell| cell.side(OURS.name).each(Run::USED.of));
            let what = "reads ask for more than is paid for: % of it used";
            writer.check("tokens", what, reads, [97.0, ANY]);
            let what = "writes ask for more than is paid for";
            writer.compare("tokens", what, "% of it used", &[(OURS.name, writes)]);
        })
    }
}

/// Checks that plain's p99 is at least `least` times that of either scheme of ours.
fn both_at_least(writer: &mut ReportWriter<'_>, id: &str, what: &str, cell: &Cell, least: f64) {
    for ours in [OURS.name, OURS_P99.name] {
        let ratio = cell.ratio([PLAIN.name, ours], Run::P99);
        writer.check(id, &format!("{what}: p99, plain / {ours}"), ratio, [least, ANY]);
    }
}

/// The ratio of plain and ours.
fn gain(cell: &Cell, figure: Figure<Run>) -> Vec<(&str, Vec<f64>)> {
    vec![("ratio", cell.ratios(PLAIN.name, OURS.name, figure.of))]
}

/// Every scheme's figure relative to the stabilizer's.
fn relative(cell: &Cell, figure: Figure<Run>) -> Vec<(&str, Vec<f64>)> {
    cell.against(STABILIZER.name, cell.names(), figure)
}

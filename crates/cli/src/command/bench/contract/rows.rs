//! The rows of docs/guide/bench.md about one volume: their loads and bands.
//!
//! Bands are as first specified, or stricter; a figure better than its band holds too. Loads are the papers' (Calcspar,
//! ATC 2023): a sine with amplitude A around D, here one period a run.

use std::sync::Arc;

use bench::contract::{Better, Cell, Measured, Sheet, median};
use bench::drive::Mix;
use bench::mixgraph::{Distribution, Keys, Operation, Power, TwoTerms, Wave};
use policy::purpose::Class;

use super::baselines::{
    AHEAD, AUTO_TUNED, DYNAMIC, LRU, OURS, OURS_P99, PASSIVE, PLAIN, S3_FIFO, SIEVE, STABILIZER,
    STATIC, Scheme, TAGS, TAGS_P99, WINDOWS, WINDOWS_RELEASED,
};
use super::cell::Case;
use super::scale::Scale;
use super::stand::Setup;

type Tell = Box<dyn Fn(&mut Sheet<'_>, &[Arc<Cell>])>;

/// A row.
pub(super) struct Row {
    pub(super) id: &'static str,
    pub(super) cases: Vec<Case>,
    /// Writes checks, once every case is measured.
    pub(super) tell: Tell,
}

/// Operations per second of the papers' volume.
const PAID: u64 = 1000;

/// The same for loads that also load the processor: volume and rates are divided by five.
const PAID_FEW: u64 = 200;

const READ: &Mix = &[(Operation::Read, 100)];

/// The rows of profile `smoke` by default.
pub(super) const SMOKE: [&str; 4] = ["B03", "B04", "B05", "B16"];

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
        let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
            let cell = &cells[0];
            let device = |run: &Measured| run.device_us(Class::Foreground, 0.99);
            let ratios = cell.ratios(PLAIN.name, TAGS.name, device);
            let what = "device p99 of reads, no gate / our gate";
            sheet.check(
                "B03",
                what,
                &ratios,
                [10.0, f64::INFINITY],
                limit(cell, PLAIN, device, 10.0),
            );
            let of = [STABILIZER, TAGS]
                .map(|gate| (gate.name, cell.ratios(PLAIN.name, gate.name, device)));
            sheet.ratios("B03", "device p99, no gate / gate", "x", &of);
        };
        Row { id: "B03", cases: vec![case], tell: Box::new(tell) }
    }

    fn b04(&self) -> Row {
        let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
            let ratios = cells[0].ratios(OURS.name, PLAIN.name, Measured::qps);
            let what = "operations a second, ours / plain";
            sheet.check("B04", what, &ratios, [1.05, f64::INFINITY], Better::NO_LATENCY);
        };
        Row { id: "B04", cases: vec![self.nominal_case()], tell: Box::new(tell) }
    }

    fn b05(&self) -> Row {
        let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
            let cell = &cells[0];
            let ratios = cell.ratios(OURS.name, PLAIN.name, Measured::mean_us);
            let limit_us = 0.5 * median(&cell.of(PLAIN.name, Measured::mean_us));
            let exact = Better { limit_us, error_us: cell.late_mean_us() };
            sheet.check("B05", "mean latency, ours / plain", &ratios, [0.0, 0.5], exact);
        };
        Row { id: "B05", cases: vec![self.nominal_case()], tell: Box::new(tell) }
    }

    fn b06(&self) -> Row {
        const EXPECTED: [(usize, f64); 4] = [(1, 2.3), (5, 11.6), (10, 24.0), (20, 55.0)];
        let case = |threads: usize| {
            let name = format!("mixgraph, read only, {threads} threads");
            Case { name, threads, ..self.base(&[PLAIN, OURS, OURS_P99]) }
        };
        let cases = EXPECTED.map(|(threads, _)| case(threads)).into();
        let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
            for (cell, (threads, expected)) in cells.iter().zip(EXPECTED) {
                let what = format!("{threads} threads (paper: {expected})");
                both_at_least(sheet, "B06", &what, cell, 0.5 * expected);
            }
        };
        Row { id: "B06", cases, tell: Box::new(tell) }
    }

    fn b07(&self) -> Row {
        const EXPECTED: [(u64, f64); 4] = [(1000, 24.0), (5000, 5.1), (10_000, 2.3), (15_000, 2.0)];
        let schemes = [PLAIN, OURS, OURS_P99];
        let case = |paid: u64| {
            if paid == PAID {
                // The rate of B06.
                let name = "mixgraph, read only, 10 threads".into();
                return Case { name, ..self.base(&schemes) };
            }
            let name = format!("mixgraph, read only, {paid} IOPS");
            let case = Case { name, wave: Some(Self::nominal(paid)), ..self.base(&schemes) };
            Self::paid(case, paid)
        };
        let cases = EXPECTED.map(|(paid, _)| case(paid)).into();
        let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
            for (cell, (paid, expected)) in cells.iter().zip(EXPECTED) {
                let what = format!("{paid} IOPS (paper: {expected})");
                both_at_least(sheet, "B07", &what, cell, 0.5 * expected);
            }
        };
        Row { id: "B07", cases, tell: Box::new(tell) }
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
        let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
            relative(sheet, "B08", "p99 relative to NA", &cells[0], p99);
            relative(sheet, "B08", "p99 of reads relative to NA", &cells[0], |run| {
                run.read_us(0.99)
            });
            sheet.report.notes.push(
                "B08, B09: the paper has p99 SA 1.28, DA 0.84, TWA 0.54 and means 1.21, 0.62, 0.70 of NA; \
                 where each scheme's tokens went stands in its plots and rows by class"
                    .into(),
            );
        };
        Row { id: "B08", cases: vec![self.congestion()], tell: Box::new(tell) }
    }

    fn b09(&self) -> Row {
        let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
            relative(sheet, "B09", "mean relative to NA", &cells[0], Measured::mean_us);
            relative(sheet, "B09", "operations a second relative to NA", &cells[0], Measured::qps);
        };
        Row { id: "B09", cases: vec![self.congestion()], tell: Box::new(tell) }
    }

    fn b10(&self) -> Row {
        let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
            let cell = &cells[0];
            let reads = |run: &Measured| run.read_us(0.99);
            for ours in [TAGS.name, TAGS_P99.name] {
                let ratios = cell.ratios(ours, WINDOWS.name, p99);
                let exact = limit(cell, WINDOWS, p99, 1.0);
                sheet.check("B10", &format!("p99, {ours} / TWA"), &ratios, [0.0, 1.0], exact);
                let ratios = cell.ratios(ours, WINDOWS.name, reads);
                let exact = limit(cell, WINDOWS, reads, 1.0);
                let what = format!("p99 of reads, {ours} / TWA");
                sheet.check("B10", &what, &ratios, [0.0, 1.0], exact);
                let ratios = cell.ratios(WINDOWS.name, ours, Measured::qps);
                let what = format!("operations a second, TWA / {ours}");
                sheet.check("B10", &what, &ratios, [0.0, 1.0], Better::NO_LATENCY);
            }
            relative(sheet, "B10", "p99.9 relative to NA", cell, |run| run.quantile_us(0.999));
        };
        Row { id: "B10", cases: vec![self.congestion()], tell: Box::new(tell) }
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
        let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
            for cell in cells {
                let hits = |scheme: Scheme| cell.of(scheme.name, Measured::hit_percent);
                let parts = hits(PASSIVE).into_iter().zip(hits(AHEAD));
                let off = hits(OURS).into_iter().zip(parts);
                let off: Vec<_> = off.map(|(ours, (one, other))| ours - one.max(other)).collect();
                let what = format!("{}: both, points above the better of its parts", cell.case);
                let band = [-1.0, f64::INFINITY];
                sheet.check("B11", &what, &off, band, Better::NO_LATENCY);
            }
        };
        Row { id: "B11", cases, tell: Box::new(tell) }
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
        let case = |percent: f64| {
            if percent == 2.0 {
                return self.nominal_case();
            }
            let mut case = self.base(&[PLAIN, OURS]);
            case.name = format!("mixgraph, read only, {percent} % cache");
            case.setup.cache = Some(self.scale.share(percent));
            case
        };
        let cases = EXPECTED.map(|(percent, _)| case(percent)).into();
        let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
            for (cell, (percent, expected)) in cells.iter().zip(EXPECTED) {
                let what = format!("{percent} % cache: mean, plain / ours (paper: {expected})");
                let ratios = cell.ratios(PLAIN.name, OURS.name, Measured::mean_us);
                let band = [0.7 * expected, f64::INFINITY];
                let plain = median(&cell.of(PLAIN.name, Measured::mean_us));
                let exact = Better { limit_us: plain / band[0], error_us: cell.late_mean_us() };
                sheet.check("B12", &what, &ratios, band, exact);
            }
        };
        Row { id: "B12", cases, tell: Box::new(tell) }
    }

    fn b13(&self) -> Row {
        const OFFERED: [f64; 6] = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0];
        /// The p99 that marks the knee, in microseconds.
        const KNEE_US: f64 = 5000.0;
        let case = |times: f64| {
            let rate = times * PAID as f64;
            let name = format!("mixgraph, read only, {times} x paid offered");
            let schemes = [PLAIN, OURS, OURS_P99];
            Case { name, wave: Some(sine(rate / 2.0, rate)), ..self.base(&schemes) }
        };
        let cases = OFFERED.map(case).into();
        let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
            let knee = |scheme: Scheme| {
                let over = |cell: &Arc<Cell>| median(&cell.of(scheme.name, p99)) > KNEE_US;
                OFFERED.iter().zip(cells).find(|(_, cell)| over(cell)).map(|(times, _)| *times)
            };
            let of = [PLAIN, OURS, OURS_P99].map(|scheme| {
                let knee = knee(scheme).unwrap_or(f64::NAN);
                (scheme.name, vec![knee])
            });
            sheet.ratios(
                "B13",
                "offered where p99 passes 5 ms (none: it never did)",
                "x paid",
                &of,
            );
            // Without a knee, count the largest offered load.
            let last = OFFERED[OFFERED.len() - 1];
            for ours in [OURS, OURS_P99] {
                let ratio = knee(PLAIN).map(|plain| knee(ours).unwrap_or(last) / plain);
                let what = format!("offered load where p99 passes 5 ms, {} / plain", ours.name);
                let error_us = cells.iter().map(|cell| cell.late_us(0.99)).fold(0.0, f64::max);
                let exact = Better { limit_us: KNEE_US, error_us };
                let ratio = [ratio.unwrap_or(f64::NAN)];
                sheet.check("B13", &what, &ratio, [2.0, f64::INFINITY], exact);
            }
            for cell in cells {
                let what = format!("{}: operations a second, ours / plain", cell.case);
                let ratios = cell.ratios(OURS.name, PLAIN.name, Measured::qps);
                sheet.ratios("B13", &what, "x", &[("ratio", ratios)]);
                let of = [PLAIN, OURS, OURS_P99].map(|scheme| {
                    (scheme.name, cell.of(scheme.name, |run| run.quantile_us(0.999) / 1e3))
                });
                sheet.ratios("B13", &format!("{}: p99.9", cell.case), "ms", &of);
            }
        };
        Row { id: "B13", cases, tell: Box::new(tell) }
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
        let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
            let ratios = cells[0].ratios(OURS.name, PLAIN.name, Measured::qps);
            let what = "writes a second, ours / plain";
            sheet.check("B14", what, &ratios, [0.97, f64::INFINITY], Better::NO_LATENCY);
        };
        Row { id: "B14", cases: vec![self.writes()], tell: Box::new(tell) }
    }

    fn b15(&self) -> Row {
        let case = |name: &str, mix: Vec<(Operation, u32)>, wave| Case {
            name: name.into(),
            mix,
            keys: Keys::Ycsb(Distribution::Uniform),
            wave: Some(wave),
            ..self.base(&[PLAIN, OURS, OURS_P99])
        };
        let half = vec![(Operation::Read, 50), (Operation::Update, 50)];
        let cases = vec![
            case("uniform, read only", READ.to_vec(), sine(500.0, 1200.0)),
            // Between the paper's rates for 60/40 and 40/60.
            case("uniform, 50/50", half, sine(1075.0, 2500.0)),
        ];
        let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
            for cell in cells {
                both_at_least(sheet, "B15", &cell.case, cell, 10.0);
            }
        };
        Row { id: "B15", cases, tell: Box::new(tell) }
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
        let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
            cells.iter().for_each(|cell| reported(sheet, "B15a", "p99, plain / ours", cell, p99));
        };
        Row { id: "B15a", cases: cases.into(), tell: Box::new(tell) }
    }

    fn b15b(&self) -> Row {
        const IOPS: u64 = 3000;
        let cases = ["gp2", "gp3", "io1", "io2"].map(|contract| {
            let mut case = self.base(&[PLAIN, OURS]);
            case.name = format!("{contract} of {IOPS} IOPS");
            case.setup = Setup { contract, paid: IOPS, ..case.setup };
            Case { wave: Some(Self::nominal(IOPS)), open_too: false, ..case }
        });
        let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
            for cell in cells {
                reported(sheet, "B15b", "p99, plain / ours", cell, p99);
                let what = "operations a second, plain / ours";
                reported(sheet, "B15b", what, cell, Measured::qps);
            }
        };
        Row { id: "B15b", cases: cases.into(), tell: Box::new(tell) }
    }

    fn b15c(&self) -> Row {
        let case = |times: f64| {
            if times == 1.0 {
                return self.nominal_case();
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate")]
            let paid = (times * PAID as f64) as u64;
            let name = format!("mixgraph, read only, {times} x the cost");
            Self::paid(Case { name, open_too: false, ..self.base(&[PLAIN, OURS]) }, paid)
        };
        let cases = [0.5, 0.75, 1.0, 1.5, 2.0].map(case).into();
        let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
            for cell in cells {
                reported(sheet, "B15c", "mean, plain / ours", cell, Measured::mean_us);
                reported(sheet, "B15c", "p99, plain / ours", cell, p99);
            }
        };
        Row { id: "B15c", cases, tell: Box::new(tell) }
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
        let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
            let cell = &cells[0];
            let wait = |run: &Measured| run.wait_us(Class::Commit, 0.99) / 1e3;
            let exact = Better { limit_us: 2000.0, error_us: cell.late_us(0.99) };
            let values = cell.of(OURS.name, wait);
            sheet.check("B16", "commit: gate wait p99 in ms, ours", &values, [0.0, 2.0], exact);
            let schemes = [STABILIZER, OURS];
            let of = schemes.map(|scheme| (scheme.name, cell.of(scheme.name, wait)));
            let what = "commit: gate wait p99 without class C (stabilizer) and with it";
            sheet.ratios("B16", what, "ms", &of);
            let device = |run: &Measured| run.device_us(Class::Commit, 0.99) / 1e3;
            let of = schemes.map(|scheme| (scheme.name, cell.of(scheme.name, device)));
            sheet.ratios("B16", "commit: device p99", "ms", &of);
        };
        Row { id: "B16", cases: vec![case], tell: Box::new(tell) }
    }

    /// (a): the device's latency while compactions run.
    fn a(&self) -> Row {
        // io1 is slow enough for the timer to resolve a fifth of its latency.
        let base = |schemes: &[Scheme]| {
            let case = self.base(schemes);
            Case { setup: Setup { contract: "io1", ..case.setup }, ..case }
        };
        let quiet = Case {
            name: "quiet, a third of what is paid for".into(),
            wave: Some(Wave::Flat { d: PAID as f64 / 3.0 }),
            open_only: true,
            open_too: false,
            ..base(&[OURS])
        };
        let busy = Case {
            name: "20/80, compactions running".into(),
            mix: vec![(Operation::Read, 20), (Operation::Update, 80)],
            wave: Some(sine(2400.0, 6000.0)),
            open_too: false,
            ..base(&[PLAIN, OURS])
        };
        let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
            let device = |run: &Measured| run.device_us(Class::Foreground, 0.99);
            let base = median(&cells[0].of(OURS.name, device));
            let ratios: Vec<_> =
                cells[1].of(OURS.name, device).into_iter().map(|us| us / base).collect();
            let exact = Better { limit_us: 1.2 * base, error_us: cells[1].late_us(0.99) };
            let what = "device p99 of reads, compactions running / quiet";
            sheet.check("(a)", what, &ratios, [0.0, 1.2], exact);
            let of = [PLAIN, OURS].map(|scheme| {
                let us = cells[1].of(scheme.name, device);
                (scheme.name, us.into_iter().map(|us| us / base).collect())
            });
            sheet.ratios("(a)", what, "x", &of);
        };
        Row { id: "(a)", cases: vec![quiet, busy], tell: Box::new(tell) }
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
        let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
            let cell = &cells[0];
            let wait = cell.of(OURS.name, |run| run.wait_us(Class::Foreground, 0.99) / 1e3);
            let used = median(&cell.of(OURS.name, Measured::used_percent));
            let what =
                format!("gate wait p99 of reads in ms, {used:.1} % of what is paid for asked");
            let exact = Better { limit_us: 1000.0, error_us: cell.late_us(0.99) };
            sheet.check("(b)", &what, &wait, [0.0, 1.0], exact);
        };
        Row { id: "(b)", cases: vec![case], tell: Box::new(tell) }
    }

    /// (c): the cost of a Get.
    fn c(&self) -> Row {
        let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
            let of = |figure: fn(&Measured) -> f64| {
                [PLAIN, OURS].map(|scheme| (scheme.name, cells[0].of(scheme.name, figure)))
            };
            sheet.ratios("(c)", "Get, p99", "us", &of(|run| run.read_us(0.99)));
            sheet.ratios("(c)", "Get", "I/Os", &of(Measured::ios_per_read));
            sheet.ratios("(c)", "Get", "% hits", &of(Measured::hit_percent));
        };
        Row { id: "(c)", cases: vec![self.nominal_case()], tell: Box::new(tell) }
    }

    /// The used share of the paid rate when demand exceeds it.
    fn tokens(&self) -> Row {
        let mut reads = self.base(&[OURS]);
        reads.name = "uniform, read only, as many as there can be".into();
        reads.setup.cache = None;
        let reads =
            Case { keys: Keys::Ycsb(Distribution::Uniform), wave: None, open_too: false, ..reads };
        let tell = |sheet: &mut Sheet<'_>, cells: &[Arc<Cell>]| {
            let used = cells[0].of(OURS.name, Measured::used_percent);
            let what = "reads ask for more than is paid for: % of it used";
            sheet.check("tokens", what, &used, [97.0, f64::INFINITY], Better::NO_LATENCY);
            let used = cells[1].of(OURS.name, Measured::used_percent);
            let what = "writes ask for more than is paid for";
            sheet.ratios("tokens", what, "% of it used", &[(OURS.name, used)]);
        };
        Row { id: "tokens", cases: vec![reads, self.writes()], tell: Box::new(tell) }
    }
}

fn p99(run: &Measured) -> f64 {
    run.quantile_us(0.99)
}

/// The limit on our figure for a ratio of at least `least` to `scheme`.
fn limit(cell: &Cell, scheme: Scheme, figure: impl Fn(&Measured) -> f64, least: f64) -> Better {
    let limit_us = median(&cell.of(scheme.name, figure)) / least;
    Better { limit_us, error_us: cell.late_us(0.99) }
}

/// Checks that plain's p99 is at least `least` times that of either scheme of ours.
fn both_at_least(sheet: &mut Sheet<'_>, id: &str, what: &str, cell: &Cell, least: f64) {
    for ours in [OURS.name, OURS_P99.name] {
        let ratios = cell.ratios(PLAIN.name, ours, p99);
        let exact = limit(cell, PLAIN, p99, least);
        let what = format!("{what}: p99, plain / {ours}");
        sheet.check(id, &what, &ratios, [least, f64::INFINITY], exact);
    }
}

/// The ratio of plain and ours, without a band.
fn reported(
    sheet: &mut Sheet<'_>,
    id: &str,
    what: &str,
    cell: &Cell,
    figure: fn(&Measured) -> f64,
) {
    let ratios = cell.ratios(PLAIN.name, OURS.name, figure);
    sheet.ratios(id, &format!("{}: {what}", cell.case), "x", &[("ratio", ratios)]);
}

/// Every scheme's figure relative to the stabilizer's.
fn relative(
    sheet: &mut Sheet<'_>,
    id: &str,
    what: &str,
    cell: &Cell,
    figure: fn(&Measured) -> f64,
) {
    let of = cell.sides.iter().map(|side| {
        let scheme = side.scheme.as_str();
        (scheme, cell.ratios(scheme, STABILIZER.name, figure))
    });
    sheet.ratios(id, what, "x", &of.collect::<Vec<_>>());
}

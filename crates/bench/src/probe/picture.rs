//! The findings for readers: plots for a page, figures for a table, a line of blocks for a terminal.

use policy::contract::Percentiles;

use super::{Found, Measured, Rate, Sized};
use crate::report::{Axis, Curve, Plot, Report, Stroke, Table};
use crate::{Options, Profile};

const MIB: f64 = 1_048_576.0;

/// From an eighth of the height to all of it.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

impl Found {
    /// Figures and plots.
    #[must_use]
    pub fn report(&self, place: &str, seed: u64) -> Report {
        let options = Options { profile: Profile::Short, seed, rows: Vec::new() };
        let mut report = Report::new("probe", &options);
        let row = |report: &mut Report, case: &str, value: f64, unit: &str| {
            report.row("probe", case, place, value, unit);
        };
        for (what, rate, unit, in_unit) in
            [("IOPS", &self.iops, 1.0, "a second"), ("bandwidth", &self.bandwidth, MIB, "MiB/s")]
        {
            row(&mut report, what, rate.per_sec.value / unit, in_unit);
            row(&mut report, &format!("{what}, 95 % from"), rate.per_sec.low / unit, in_unit);
            row(&mut report, &format!("{what}, 95 % to"), rate.per_sec.high / unit, in_unit);
            row(
                &mut report,
                &format!("{what}, by a stopwatch"),
                rate.naive_per_sec / unit,
                in_unit,
            );
            if let Some(depth) = rate.depth {
                let highest = rate.burst.map_or(rate.per_sec.value, |burst| burst.per_sec);
                row(&mut report, &format!("{what}, depth"), depth.value / highest, "s");
            }
            if let Some(burst) = rate.burst {
                row(&mut report, &format!("{what}, burst"), burst.per_sec / unit, in_unit);
                row(&mut report, &format!("{what}, burst lasted"), burst.lasted_secs, "s");
            }
        }
        if let Some(writes) = &self.writes {
            row(&mut report, "writes", writes.per_sec.value, "a second");
        }
        for (what, measured) in self.latencies() {
            let Percentiles { p1, p50, p90, p99, p999 } = measured.percentiles;
            for (name, time) in
                [("p1", p1), ("p50", p50), ("p90", p90), ("p99", p99), ("p99.9", p999)]
            {
                row(&mut report, &format!("{what}, {name}"), time.as_secs_f64() * 1e6, "us");
            }
        }
        report.notes = self.notes();
        report.tables = vec![self.table()];
        report.plots = vec![
            course("Operations: reads of 4 KiB, all there is", "a second", &self.iops, 1.0),
            self.recovery_plot(),
            course("Bandwidth: large reads, all there is", "MiB/s", &self.bandwidth, MIB),
            self.sizes_plot(),
            self.latency_plot(),
        ];
        report
    }

    fn latencies(&self) -> Vec<(String, &Measured)> {
        let mut all = vec![("reads below the line".to_owned(), &self.base)];
        all.extend(self.writes.as_ref().map(|w| ("writes below the line".to_owned(), &w.base)));
        all.push((format!("reads above it, {} at once", self.over.at_once), &self.over));
        all
    }

    fn table(&self) -> Table {
        let line = |(what, measured): (String, &Measured)| {
            let Percentiles { p1, p50, p90, p99, p999 } = measured.percentiles;
            let us = [p1, p50, p90, p99, p999].map(|time| Some(time.as_secs_f64() * 1e6));
            (what, us.to_vec())
        };
        Table {
            title: "latency, us".into(),
            columns: ["p1", "p50", "p90", "p99", "p99.9"].map(String::from).to_vec(),
            lines: self.latencies().into_iter().map(line).collect(),
        }
    }

    fn recovery_plot(&self) -> Plot {
        let seen = self.recovery.iter();
        let seen: Vec<_> = seen.filter_map(|r| Some((r.idle_secs, r.tokens?))).collect();
        let rate = self.iops.burst.map_or(self.iops.per_sec.value, |burst| burst.per_sec);
        let holds = self.iops.depth.map_or(f64::INFINITY, |depth| depth.value);
        let longest = self.recovery.last().map_or(1.0, |recovered| recovered.idle_secs);
        let expected = (0..=100).map(|n| longest * f64::from(n) / 100.0);
        let expected = expected.map(|idle| (idle, (rate * idle).min(holds)));
        let title = "Recovery: operations there at once after a pause";
        let curves = [
            Curve::new("a bucket of that rate and depth", Stroke::Dashes, expected),
            Curve::new("seen", Stroke::Dots, seen),
        ];
        Plot::new(title, ["pause after an overdraft, s", "operations"], curves)
    }

    fn sizes_plot(&self) -> Plot {
        let kib = |sized: &Sized| sized.bytes as f64 / 1024.0;
        let points = self.sizes.iter().map(|sized| (kib(sized), sized.per_sec.value));
        let best = self.bandwidth.per_sec.value;
        let one = |sized: &&Sized| sized.bytes as f64 * self.iops.per_sec.value > best;
        let bandwidth = self.sizes.iter().filter(one);
        let bandwidth = bandwidth.map(|sized| (kib(sized), best / sized.bytes as f64));
        let curves = [
            Curve::new("by bandwidth alone", Stroke::Dashes, bandwidth),
            Curve::new("seen", Stroke::Dots, points),
        ];
        Plot {
            x_axis: Axis::Log,
            y_axis: Axis::Log,
            ..Plot::new("Sizes: how many a second of each", ["KiB", "a second"], curves)
        }
    }

    fn latency_plot(&self) -> Plot {
        let curve = |(name, measured): (String, &Measured)| {
            let shares = (0..=60).map(|n| 1.0 - 0.1_f64.powf(f64::from(n) / 20.0));
            let at = |share| (share, measured.percentiles.quantile(share).as_secs_f64() * 1e6);
            Curve::new(name, Stroke::Line, shares.map(at))
        };
        let curves = self.latencies().into_iter().map(curve);
        let axes = ["percent of requests that took no longer", "us"];
        Plot {
            x_axis: Axis::Nines,
            y_axis: Axis::Log,
            ..Plot::new("Latency of 4 KiB", axes, curves)
        }
    }

    /// The last load in one line: the rate over time, the highest as a full block.
    #[must_use]
    pub fn line_of_blocks(&self, width: usize) -> String {
        let course = &self.iops.course;
        let highest = course.iter().map(|&(_, rate)| rate).fold(0.0, f64::max);
        let stretch = course.len().div_ceil(width.max(1)).max(1);
        let mean = |rates: &[(f64, f64)]| {
            rates.iter().map(|&(_, rate)| rate).sum::<f64>() / rates.len() as f64
        };
        let block = |rate: f64| {
            let eighths = (rate / highest * 8.0).ceil() as usize;
            BLOCKS[eighths.clamp(1, 8) - 1]
        };
        course.chunks(stretch).map(|rates| block(mean(rates))).collect()
    }
}

fn course(title: &str, y: &str, rate: &Rate, unit: f64) -> Plot {
    let points = rate.course.iter().map(|&(at, rate)| (at, rate / unit));
    let dashes = |name: &str, value: f64| {
        let flat = [0.0, rate.watched_secs].map(|at| (at, value / unit));
        Curve::new(format!("{name}: {:.0}", value / unit), Stroke::Dashes, flat)
    };
    let mut curves = vec![dashes("lasting", rate.per_sec.value)];
    curves.extend(rate.burst.map(|burst| dashes("burst", burst.per_sec)));
    curves.push(Curve::new("came through", Stroke::Dots, points));
    Plot::new(title, ["s", y], curves)
}

//! The results of the workloads as a report.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::{Phase, Volume};
use crate::drive::Operation;
use crate::report::{Axis, Curve, Plot, Report, Stroke, Table};

const PERCENTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

/// Points of a latency curve for each factor of ten of the remainder.
const POINTS_PER_NINE: i32 = 20;

/// Adds the results of `phases` as rows `id` under `scheme`: in JSON, also per second; tables and plots for readers; and one
/// check, that every answer was what had been stored.
pub fn add_to(
    report: &mut Report,
    id: &str,
    phases: &[Phase],
    volumes: &[Volume<'_>],
    scheme: &str,
) {
    let mut writer = Writer { report, id, scheme };
    for phase in phases {
        writer.throughput(phase, volumes);
        writer.hits(phase);
        writer.latencies(phase);
    }
    for phase in phases {
        writer.seconds(phase, volumes);
    }
    let wrong: u64 = phases.iter().map(|phase| phase.driven.wrong).sum();
    report.check(id, "answers that were not what was stored", wrong as f64, [0.0, 0.0]);
    let examples = phases.iter().filter_map(|phase| Some((phase, phase.driven.example.as_ref()?)));
    report
        .notes
        .extend(examples.map(|(phase, example)| format!("workload {}: {example}", phase.name)));
    report.tables.extend([
        workloads(phases, volumes),
        latency_table(phases),
        volume_table(phases, volumes),
    ]);
    report.plots.push(throughput_plot(phases));
    report.plots.extend(line_plots(phases, volumes));
    report.plots.extend(latency_plots(phases));
}

/// Writes rows.
struct Writer<'r> {
    report: &'r mut Report,
    id: &'r str,
    scheme: &'r str,
}

impl Writer<'_> {
    fn row(&mut self, case: &str, value: f64, unit: &str) {
        self.report.row(self.id, case, self.scheme, value, unit);
    }

    fn throughput(&mut self, phase: &Phase, volumes: &[Volume<'_>]) {
        let name = phase.name;
        self.row(name, per_sec(phase.driven.operations(), phase.driven.elapsed), "op/s");
        self.row(&format!("{name}, took"), phase.driven.elapsed.as_secs_f64(), "s");
        for (volume, used) in volumes.iter().zip(usage(phase)) {
            let case = format!("{name}, volume {}", volume.name);
            self.row(&case, used.mean, "IOPS");
            self.row(&format!("{case}, most in a sample"), used.most, "IOPS");
            if let Some(paid) = volume.paid_iops {
                self.row(&format!("{case}, of what is paid for"), share(used.mean, paid), "%");
            }
        }
    }

    fn hits(&mut self, phase: &Phase) {
        for (cache, hits) in &phase.hits {
            self.row(&format!("{}, hits in {cache}", phase.name), 100.0 * hits, "%");
        }
    }

    fn latencies(&mut self, phase: &Phase) {
        for (name, nanos) in cases(phase) {
            self.row(&name, nanos.len() as f64, "operations");
            for (figure, us) in figures(nanos) {
                self.row(&format!("{name}, {figure}"), us, "us");
            }
        }
    }

    fn seconds(&mut self, phase: &Phase, volumes: &[Volume<'_>]) {
        let name = phase.name;
        for sample in &phase.driven.samples {
            let at = format!("{name}, at {:.1} s", sample.at.as_secs_f64());
            self.row(&at, sample.operations, "op/s over time");
            for (volume, iops) in volumes.iter().zip(&sample.rates) {
                self.row(&format!("{at}, volume {}", volume.name), *iops, "IOPS over time");
            }
        }
    }
}

/// A phase's use of one volume.
struct Usage {
    mean: f64,
    most: f64,
}

fn usage(phase: &Phase) -> impl Iterator<Item = Usage> {
    phase.driven.counted.iter().enumerate().map(|(volume, ops)| Usage {
        mean: per_sec(*ops, phase.driven.elapsed),
        most: phase.driven.samples.iter().map(|sample| sample.rates[volume]).fold(0.0, f64::max),
    })
}

fn per_sec(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

/// The share in percent.
fn share(iops: f64, paid: u64) -> f64 {
    100.0 * iops / paid as f64
}

fn us(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

/// The latencies of a phase by their names: `A, read`, and `A, read/open` counted from the intended start of each
/// operation.
fn cases(phase: &Phase) -> impl Iterator<Item = (String, &Histogram<u64>)> {
    let name = phase.name;
    let service = phase.driven.latencies.each().map(|(operation, nanos)| (operation, "", nanos));
    let open = phase.driven.open.each().map(|(operation, nanos)| (operation, "/open", nanos));
    service
        .chain(open)
        .map(move |(operation, from, nanos)| (format!("{name}, {}{from}", operation.name()), nanos))
}

/// Mean and percentiles in microseconds.
fn figures(nanos: &Histogram<u64>) -> impl Iterator<Item = (&'static str, f64)> {
    let percentile = |(name, quantile)| (name, us(nanos.value_at_quantile(quantile)));
    std::iter::once(("mean", nanos.mean() / 1e3)).chain(PERCENTILES.into_iter().map(percentile))
}

fn workloads(phases: &[Phase], volumes: &[Volume<'_>]) -> Table {
    let paid: Option<u64> = volumes.iter().map(|volume| volume.paid_iops).sum();
    let line = |phase: &Phase| {
        let iops = usage(phase).map(|used| used.mean).sum();
        let figures = [
            Some(phase.driven.operations() as f64),
            Some(phase.driven.elapsed.as_secs_f64()),
            Some(per_sec(phase.driven.operations(), phase.driven.elapsed)),
            Some(iops),
            paid.map(|paid| share(iops, paid)),
        ];
        (phase.name.into(), figures.into())
    };
    Table {
        title: "workload".into(),
        columns: ["operations", "seconds", "op/s", "IOPS of all volumes", "% of the line"]
            .map(Into::into)
            .into(),
        lines: phases.iter().map(line).collect(),
    }
}

fn latency_table(phases: &[Phase]) -> Table {
    let percentiles = PERCENTILES.iter().map(|(name, _)| *name);
    let columns = ["operations", "mean"].into_iter().chain(percentiles);
    let line = |(name, nanos): (String, &Histogram<u64>)| {
        let figures = figures(nanos).map(|(_, us)| Some(us));
        (name, std::iter::once(Some(nanos.len() as f64)).chain(figures).collect())
    };
    Table {
        title: "latency, us".into(),
        columns: columns.map(Into::into).collect(),
        lines: phases.iter().flat_map(cases).map(line).collect(),
    }
}

fn volume_table(phases: &[Phase], volumes: &[Volume<'_>]) -> Table {
    let lines = phases.iter().flat_map(|phase| {
        usage(phase).zip(volumes).map(|(used, volume)| {
            let name = format!("{}, {}", phase.name, volume.name);
            let paid = volume.paid_iops;
            let of_paid = paid.map(|paid| share(used.mean, paid));
            (name, vec![paid.map(|paid| paid as f64), Some(used.mean), of_paid, Some(used.most)])
        })
    });
    Table {
        title: "IOPS of a volume".into(),
        columns: ["paid", "mean", "% of the line", "most in a sample"].map(Into::into).into(),
        lines: lines.collect(),
    }
}

/// The start of each phase.
fn marks(phases: &[Phase]) -> Vec<(f64, String)> {
    let mark = |phase: &Phase| (phase.start.as_secs_f64(), phase.name.into());
    phases.iter().map(mark).collect()
}

fn throughput_plot(phases: &[Phase]) -> Plot {
    let curve = |phase: &Phase| {
        let points = phase.driven.samples.iter().map(|s| (s.at.as_secs_f64(), s.operations));
        Curve::new(phase.name, Stroke::Line, points)
    };
    Plot {
        y_axis: Axis::Log,
        marks: marks(phases),
        ..Plot::new(
            "Throughput over time",
            ["seconds", "operations a second"],
            phases.iter().map(curve),
        )
    }
}

/// One plot for each distinct paid rate: volumes with the same rate share one.
fn line_plots(phases: &[Phase], volumes: &[Volume<'_>]) -> Vec<Plot> {
    let mut lines: Vec<_> = volumes.iter().map(|volume| volume.paid_iops).collect();
    lines.sort_unstable();
    lines.dedup();
    lines.into_iter().map(|line| line_plot(phases, volumes, line)).collect()
}

fn line_plot(phases: &[Phase], volumes: &[Volume<'_>], line: Option<u64>) -> Plot {
    let ours = volumes.iter().enumerate().filter(|(_, volume)| volume.paid_iops == line);
    let mut curves: Vec<_> = ours
        .map(|(at, volume)| {
            let points = phases.iter().flat_map(|phase| points(phase, at));
            Curve::new(&volume.name, Stroke::Line, points)
        })
        .collect();
    let title = match line {
        None => "I/Os of each volume over time".into(),
        Some(paid) => {
            let end = phases.iter().map(|phase| phase.start + phase.driven.elapsed).max();
            let ends = [0.0, end.unwrap_or_default().as_secs_f64()];
            let points = ends.map(|at| (at, paid as f64));
            curves.push(Curve::new("the line", Stroke::Dashes, points));
            format!("I/Os of each volume over time, against its line of {paid} IOPS")
        }
    };
    Plot { marks: marks(phases), ..Plot::new(title, ["seconds", "IOPS"], curves) }
}

/// The rates of a volume in a phase, followed by a gap: no samples are taken between phases.
fn points(phase: &Phase, volume: usize) -> impl Iterator<Item = (f64, f64)> {
    let samples = phase.driven.samples.iter();
    let points = samples.map(move |sample| (sample.at.as_secs_f64(), sample.rates[volume]));
    points.chain([(f64::NAN, f64::NAN)])
}

/// One plot for each kind of operation, with a curve for each workload that has it.
fn latency_plots(phases: &[Phase]) -> impl Iterator<Item = Plot> {
    Operation::ALL.into_iter().filter_map(|operation| {
        let curves: Vec<_> = phases
            .iter()
            .flat_map(|phase| {
                let service = phase.driven.latencies.of(operation).map(|nanos| (phase, "", nanos));
                let open = phase.driven.open.of(operation).map(|nanos| (phase, "/open", nanos));
                service.into_iter().chain(open)
            })
            .map(|(phase, from, nanos)| {
                let stroke = if from.is_empty() { Stroke::Line } else { Stroke::Dashes };
                let name = format!("{}{from}", phase.name);
                Curve::new(name, stroke, latency_points(nanos))
            })
            .collect();
        let title = format!("Latency: {}", operation.name());
        let axes = ["percent of operations that took no longer", "microseconds"];
        (!curves.is_empty()).then(|| Plot {
            x_axis: Axis::Nines,
            y_axis: Axis::Log,
            ..Plot::new(title, axes, curves)
        })
    })
}

/// Shares of the operations, and their latencies in microseconds: denser towards the slowest one.
fn latency_points(nanos: &Histogram<u64>) -> Vec<(f64, f64)> {
    let count = nanos.len() as f64;
    let shares = (0..).map(|n| 1.0 - 0.1_f64.powf(f64::from(n) / f64::from(POINTS_PER_NINE)));
    let shares = shares.take_while(|share| (1.0 - share) * count >= 1.0);
    shares.map(|share| (share, us(nanos.value_at_quantile(share)))).collect()
}

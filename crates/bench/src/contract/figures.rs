//! The figures of a run.

use policy::purpose::Class;
use policy::units::MIB;

use super::{Counted, Run, plots};
use crate::compare::{Cell, CountedBy, Figure, Outcome, Side, StoreOutcome};
use crate::drive::Driven;
use crate::report::{Plot, Report};

impl Run {
    /// Operations a second.
    pub const QPS: Figure<Self> = Figure::new("", "op/s", Self::qps);
    /// The mean latency of all operations.
    pub const MEAN: Figure<Self> = Figure::mean("mean", Self::mean_us);
    /// The 99th percentile of latencies.
    pub const P99: Figure<Self> = Figure::tail("p99", |run| run.quantile_us(0.99));
    /// The 99.9th percentile of latencies.
    pub const P999: Figure<Self> = Figure::tail("p99.9", |run| run.quantile_us(0.999));
    /// The 99th percentile of latencies of reads alone.
    pub const READ_P99: Figure<Self> = Figure::tail("reads, p99", Self::read_p99_us);
    /// The 99th percentile of the device's time for reads that users wait for.
    pub const DEVICE_P99: Figure<Self> =
        Figure::tail("device p99, reads", |run| run.device_us(Class::Foreground, 0.99));
    /// Operations that the provider counted, in percent of the paid ones.
    pub const USED: Figure<Self> =
        Figure::new("of what is paid for", "%", Self::used_percent).optional();
    /// Tokens for each operation that the kernel counted, on real volumes.
    const CHARGED: Figure<Self> =
        Figure::new("tokens / operations the kernel counted", "x", Self::tokens_per_operation)
            .optional();
    /// Requests that the simulated provider made wait.
    const OVERDRAFTS: Figure<Self> = Figure::new("overdrafts", "I/Os", Self::overdrafts).optional();
    /// Hits of caches in percent of look-ups.
    pub const HITS: Figure<Self> = Figure::new("hits", "% of look-ups", Self::hit_percent);
    /// Operations of the device for each operation that reads.
    pub const IOS_PER_READ: Figure<Self> =
        Figure::new("device reads for each read", "I/Os", Self::ios_per_read);
}

impl Outcome for Run {
    const FIGURES: &'static [Figure<Self>] = &[
        Self::QPS,
        Self::MEAN,
        Figure::tail("p50", |run| run.quantile_us(0.5)),
        Self::P99,
        Self::P999,
        Figure::tail("worst second's p99", Self::worst_second_us),
        Self::READ_P99,
        Self::USED,
        Self::OVERDRAFTS,
        Self::CHARGED,
        Figure::new("hits", "% of look-ups", Self::hit_percent),
        Figure::new("room for cached blocks", "MiB", |run| run.cache_bytes as f64 / MIB as f64),
        Self::IOS_PER_READ,
    ];

    const COLUMNS: &'static [Figure<Self>] = &[
        Self::QPS,
        Self::MEAN,
        Figure::tail("p50", |run| run.quantile_us(0.5)),
        Self::P99,
        Self::P999,
        Figure::new("device p99, reads", "", Self::DEVICE_P99.of),
        Figure::new("gate p99, reads", "", |run| run.wait_us(Class::Foreground, 0.99)),
        Figure::new("I/Os a read", "", Self::IOS_PER_READ.of),
        Figure::new("% hits", "", Self::hit_percent),
        Figure::new("% of the line", "", Self::used_percent).optional(),
        Figure::new("overdrafts", "", Self::OVERDRAFTS.of).optional(),
        Figure::new("tokens / kernel's I/Os", "", Self::CHARGED.of).optional(),
    ];

    const TOLD_AGAIN: bool = true;

    /// The figures of each class, and those of the open loop.
    fn tell_more(report: &mut Report, id: &str, case: &str, side: &Side<Self>) {
        let scheme = &side.scheme;
        for class in Class::ALL {
            let mut tell = |what: &str, unit: &str, values: Vec<f64>| {
                let what = format!("{case}, {}, {what}", class.name());
                report.median(id, &what, scheme, &values, unit);
            };
            let tokens = |run: &Self| {
                run.count(Counted::Tokens(class)) as f64 / run.driven.elapsed.as_secs_f64()
            };
            tell("tokens", "IOPS", side.each(tokens));
            tell("device p99", "us", side.each(|run| run.device_us(class, 0.99)));
            tell("gate wait p99", "us", side.each(|run| run.wait_us(class, 0.99)));
        }
        if let Some(open) = &side.open {
            for figure in [Self::QPS, Self::MEAN, Self::P99, Self::P999] {
                let name = if figure.name.is_empty() { figure.unit } else { figure.name };
                let what = format!("{case}, {name}/open");
                report.row(id, &what, scheme, (figure.of)(open), figure.unit);
            }
        }
    }

    fn plots(id: &str, cell: &Cell<Self>) -> Vec<Plot> {
        plots::of(id, cell)
    }
}

impl StoreOutcome for Run {
    fn driven(&self) -> &Driven {
        &self.driven
    }

    fn overdrawn(&self) -> Option<[u64; 2]> {
        let counts = [Counted::Overdrafts, Counted::Provider].map(|counted| self.count(counted));
        (self.counted_by == CountedBy::Simulator).then_some(counts)
    }

    fn charged(&self) -> Option<[u64; 2]> {
        let counts = [self.tokens(), self.count(Counted::Provider)];
        (self.counted_by == CountedBy::Kernel).then_some(counts)
    }

    fn read_tokens(&self) -> u64 {
        self.count(Counted::Tokens(Class::Foreground))
    }
}

//! The volumes during a run: what their gates use of the contract, and what the kernel counts.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use bench::report::{Curve, Plot, Report, Stroke};
use plimsoll::kv::Store;
use plimsoll::volumes::Device;
use policy::purpose::Class;
use policy::time::Instant;
use volume::Clock;
use volume::layer::gate::Meter;

const EVERY: Duration = Duration::from_secs(1);

/// Users wait on a volume whose requests wait this long in the mean.
const WAIT: Duration = Duration::from_millis(2);

/// The volumes of a store.
pub(super) struct Watch {
    devices: Vec<Arc<Device>>,
}

/// A gate at one moment.
struct Look {
    at: Instant,
    meters: Vec<Meter>,
}

/// What a run showed.
pub(super) struct Seen {
    names: Vec<String>,
    from: Instant,
    looks: Vec<Look>,
    /// The I/Os that the kernel counted on each volume's device; `None` where it counts none.
    kernel: Vec<Option<u64>>,
}

impl Watch {
    pub(super) fn of(store: &Store) -> Self {
        Self { devices: store.devices().here() }
    }

    fn kernel(&self) -> impl Iterator<Item = Option<u64>> {
        self.devices.iter().map(|device| device.seen_by_kernel())
    }

    /// Watches the volumes each second while `run` runs.
    pub(super) fn during<T>(
        &self,
        clock: &Clock,
        run: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, Seen)> {
        let (done, running) = channel::<()>();
        let look = || Look {
            at: clock.now(),
            meters: self.devices.iter().map(|device| device.gate().meter()).collect(),
        };
        let before: Vec<_> = self.kernel().collect();
        let (result, looks) = std::thread::scope(|scope| {
            let watching = scope.spawn(move || {
                let mut looks = vec![look()];
                while running.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                    looks.push(look());
                }
                looks
            });
            let result = run();
            drop(done);
            (result, watching.join().expect("it does not panic"))
        });
        let counts = self.kernel().zip(before);
        let kernel = counts.map(|(now, before)| Some(now? - before?)).collect();
        let names = self.devices.iter().map(|device| device.name().to_owned()).collect();
        let from = looks[0].at;
        Ok((result?, Seen { names, from, looks, kernel }))
    }
}

impl Seen {
    /// Adds rows, and plots of the parts of the contract in use.
    pub(super) fn add_to(&self, report: &mut Report, id: &str) {
        let mut row = |case: &str, value: f64, unit: &str| {
            report.row(id, case, "ours", value, unit);
        };
        for (at, name) in self.names.iter().enumerate() {
            let of = |figure: Figure| self.looks.iter().map(move |look| figure(&look.meters[at]));
            let least = of(|meter| meter.rho).fold(f64::INFINITY, f64::min);
            row(&format!("volume {name}, rho, least"), least, "");
            for (quantile, percent) in [(0.5, "p50"), (0.99, "p99")] {
                let ms = self.device_ms(at, quantile);
                row(&format!("volume {name}, users' reads at the device, {percent}"), ms, "ms");
            }
            for (what, figure) in FIGURES {
                for (look, value) in self.looks.iter().zip(of(figure)) {
                    let second = look.at.since(self.from).as_secs();
                    row(&format!("volume {name}, {what}, at {second} s"), value, "over time");
                }
            }
        }
        if let Some(used) = self.used_while_users_wait() {
            row("of all lines, in the seconds in which users wait", 100.0 * used, "%");
        }
        for (what, figure) in FIGURES {
            let curves = self.names.iter().enumerate().map(|(at, name)| {
                let points = self
                    .looks
                    .iter()
                    .map(|look| (look.at.since(self.from).as_secs_f64(), figure(&look.meters[at])));
                Curve::new(name, Stroke::Line, points)
            });
            let title = format!("{what} in use, by volume");
            report.plots.push(Plot::new(title, ["seconds", what], curves));
        }
        for (name, ios) in self.names.iter().zip(&self.kernel) {
            if let Some(ios) = ios {
                kernel_row(report, id, name, *ios);
            }
        }
    }

    /// A quantile of the time that the device took for users' requests, without their wait at the gate.
    fn device_ms(&self, at: usize, quantile: f64) -> f64 {
        let users = Class::Foreground.index();
        let of = |look: &Look| look.meters[at].answers[users].clone();
        let (first, last) = (self.looks.first(), self.looks.last());
        let times = first.zip(last).map(|(first, last)| of(last).since(&of(first)));
        let time = times.and_then(|times| times.quantile(quantile));
        time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }

    /// The part of all paid operations that was used in the seconds in which users waited on some volume; `None` if
    /// they never did.
    fn used_while_users_wait(&self) -> Option<f64> {
        let (mut used, mut paid) = (0.0, 0.0);
        for pair in self.looks.windows(2) {
            let seconds = pair[1].at.since(pair[0].at).as_secs_f64();
            let volumes = || pair[0].meters.iter().zip(&pair[1].meters);
            if !volumes().any(|(before, after)| mean_wait(before, after) >= WAIT) {
                continue;
            }
            for (before, after) in volumes() {
                used += (after.spent().ops - before.spent().ops) as f64;
                paid += after.contract.paid_iops().unwrap_or(0) as f64 * seconds;
            }
        }
        (paid > 0.0).then(|| used / paid)
    }
}

/// A figure of a gate.
type Figure = fn(&Meter) -> f64;

/// The parts of a contract in use.
const FIGURES: [(&str, Figure); 2] = [("rho", |meter| meter.rho), ("beta", |meter| meter.beta)];

/// The mean wait of users' requests between two looks.
fn mean_wait(before: &Meter, after: &Meter) -> Duration {
    let users = Class::Foreground.index();
    let (before, after) = (&before.classes[users].waits, &after.classes[users].waits);
    let count = after.counts.iter().sum::<u64>() - before.counts.iter().sum::<u64>();
    let total = after.total.saturating_sub(before.total);
    total.checked_div(u32::try_from(count).unwrap_or(u32::MAX)).unwrap_or_default()
}

/// Adds the I/Os that the kernel counted on a volume's device.
pub(super) fn kernel_row(report: &mut Report, id: &str, volume: &str, ios: u64) {
    let case = format!("volume {volume}, I/Os that the kernel counted");
    report.row(id, &case, "kernel", ios as f64, "operations");
}

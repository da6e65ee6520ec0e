//! One run of one scheme: the latencies of its operations, the counters of each volume.

use std::time::Duration;

use policy::latency::Times;

use super::balance;
use crate::compare::{CountedBy, StoreOutcome};
use crate::drive::{Driven, Sample};

/// The counters of every volume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Counted {
    /// Tokens of reads that users wait for.
    Users,
    /// All other tokens: logs, flushes, compactions, and copies.
    Others,
    /// The part of the others for copies of tables, with this volume as source or target.
    Copies,
    /// Operations that the kernel counted, on a real volume.
    Provider,
    /// Requests that the simulated provider made wait.
    Overdrafts,
}

impl Counted {
    /// Every counter of one volume, in the order of [`Driven::counted`], volume by volume.
    pub const ALL: [Self; 5] =
        [Self::Users, Self::Others, Self::Copies, Self::Provider, Self::Overdrafts];

    const fn of(self, volume: usize) -> usize {
        volume * Self::ALL.len() + self as usize
    }
}

/// The paid rates.
#[derive(Clone, Debug, PartialEq)]
pub struct Paid {
    /// Operations a second of every volume.
    pub iops: Vec<u64>,
    /// The share of the paid rates that budgets use.
    pub rho: f64,
}

/// Copies of tables in a run.
#[derive(Clone, Debug, Default)]
pub struct Copies {
    /// The number of copies.
    pub made: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The duration of each.
    pub times: Times,
}

/// The result of one run of one scheme.
#[derive(Clone, Debug)]
pub struct Run {
    /// Operations, latencies, and the counters of each volume.
    pub driven: Driven,
    /// The paid rates of its volumes.
    pub paid: Paid,
    /// Copies made by its migration.
    pub copies: Copies,
    /// What counted [`Counted::Provider`] and [`Counted::Overdrafts`].
    pub counted_by: CountedBy,
}

impl Run {
    /// A counter's total for one volume in the whole run.
    #[must_use]
    pub fn count(&self, volume: usize, counted: Counted) -> u64 {
        self.driven.counted.get(counted.of(volume)).copied().unwrap_or(0)
    }

    /// A counter's total for all volumes.
    #[must_use]
    pub fn sum(&self, counted: Counted) -> u64 {
        (0..self.volumes()).map(|volume| self.count(volume, counted)).sum()
    }

    /// Tokens of all requests, also of copies.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.sum(Counted::Users) + self.sum(Counted::Others)
    }

    /// The number of volumes.
    #[must_use]
    pub const fn volumes(&self) -> usize {
        self.paid.iops.len()
    }

    /// Operations per second of a volume, without copies.
    #[must_use]
    pub fn iops(&self, volume: usize) -> f64 {
        let [users, others, copies] = [Counted::Users, Counted::Others, Counted::Copies]
            .map(|counted| self.count(volume, counted) as f64);
        (users + others - copies).max(0.0) / self.driven.elapsed.as_secs_f64()
    }

    /// Operations per second of a volume in one sample, without copies.
    #[must_use]
    pub fn iops_at(&self, sample: &Sample, volume: usize) -> f64 {
        let rate = |counted: Counted| sample.rates.get(counted.of(volume)).copied().unwrap_or(0.0);
        (rate(Counted::Users) + rate(Counted::Others) - rate(Counted::Copies)).max(0.0)
    }

    /// Paid operations a second of a volume.
    #[must_use]
    pub fn line(&self, volume: usize) -> f64 {
        self.paid.iops[volume] as f64
    }

    /// Paid operations per second of all volumes.
    #[must_use]
    pub fn line_of_all(&self) -> f64 {
        self.paid.iops.iter().map(|iops| *iops as f64).sum()
    }

    /// The used share of the paid rate of all volumes, without copies.
    #[must_use]
    pub fn used(&self) -> f64 {
        (0..self.volumes()).map(|volume| self.iops(volume)).sum::<f64>() / self.line_of_all()
    }

    /// The same between two times since the first sample. NaN if no sample lies between.
    #[must_use]
    pub fn used_between(&self, from: Duration, to: Duration) -> f64 {
        let Some(first) = self.driven.samples.first() else { return f64::NAN };
        let within = |sample: &&Sample| (from..to).contains(&sample.at.saturating_sub(first.at));
        let samples: Vec<_> = self.driven.samples.iter().filter(within).collect();
        let iops = |sample: &&Sample| {
            (0..self.volumes()).map(|volume| self.iops_at(sample, volume)).sum::<f64>()
        };
        samples.iter().map(iops).sum::<f64>() / samples.len() as f64 / self.line_of_all()
    }

    /// Tokens of copies, as a share of the paid rate.
    #[must_use]
    pub fn used_by_copies(&self) -> f64 {
        let seconds = self.driven.elapsed.as_secs_f64();
        self.sum(Counted::Copies) as f64 / seconds / self.line_of_all()
    }

    /// The mean load of every volume in the run, without copies; 1 is the paid rate.
    #[must_use]
    pub fn loads(&self) -> Vec<f64> {
        (0..self.volumes()).map(|volume| self.iops(volume) / self.line(volume)).collect()
    }

    /// See [`balance::spread`].
    #[must_use]
    pub fn spread(&self) -> f64 {
        balance::spread(&self.loads()).unwrap_or(f64::NAN)
    }

    /// [`balance::spread`] of the reads of users alone.
    #[must_use]
    pub fn spread_of_reads(&self) -> f64 {
        let reads = |volume| self.count(volume, Counted::Users) as f64 / self.line(volume);
        balance::spread(&(0..self.volumes()).map(reads).collect::<Vec<_>>()).unwrap_or(f64::NAN)
    }

    /// See [`balance::deviation`]; a sample is a second.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        let load = |sample: &Sample| {
            let of = |volume| self.iops_at(sample, volume) / self.line(volume);
            (0..self.volumes()).map(of).collect::<Vec<_>>()
        };
        let samples: Vec<_> = self.driven.samples.iter().map(load).collect();
        balance::deviation(&samples).unwrap_or(f64::NAN)
    }

    /// Operations of volumes, without copies, for each operation of users.
    #[must_use]
    pub fn ios_per_operation(&self) -> f64 {
        self.used() * self.line_of_all() / self.qps()
    }

    /// The maximum of such operations per second that its volumes allow: see [`balance::roof`].
    #[must_use]
    pub fn roof(&self) -> f64 {
        balance::roof(self.line_of_all(), self.paid.rho, self.ios_per_operation())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two volumes of 100 for ten seconds: 900 and 800 reads, 50 others each, of which 20 copies.
    fn run() -> Run {
        let driven = Driven {
            elapsed: Duration::from_secs(10),
            counted: vec![900, 50, 20, 0, 0, 800, 50, 20, 0, 1],
            samples: vec![Sample {
                at: Duration::from_millis(500),
                operations: 170.0,
                rates: vec![90.0, 5.0, 2.0, 0.0, 0.0, 80.0, 5.0, 2.0, 0.0, 0.0],
            }],
            ..Driven::default()
        };
        let paid = Paid { iops: vec![100, 100], rho: 0.98 };
        Run { driven, paid, copies: Copies::default(), counted_by: CountedBy::Simulator }
    }

    #[test]
    fn copies_are_counted_apart() {
        let run = run();
        assert_eq!([run.iops(0), run.iops(1)], [93.0, 83.0]);
        assert_eq!(run.used(), 0.88);
        assert_eq!(run.used_by_copies(), 0.02);
        assert_eq!(run.sum(Counted::Overdrafts), 1);
        assert_eq!(run.spread(), (0.93 - 0.83) / 0.93);
        assert_eq!(run.spread_of_reads(), 1.0 / 9.0);
        assert!((run.deviation() - 0.05).abs() < 1e-12, "{}", run.deviation());
    }

    #[test]
    fn a_part_of_the_time_has_the_samples_that_lie_in_it() {
        let mut run = run();
        let early = &run.driven.samples[0];
        let late =
            Sample { at: early.at + Duration::from_secs(1), rates: vec![0.0; 10], ..early.clone() };
        run.driven.samples.push(late);
        let [zero, one, two] = [0, 1, 2].map(Duration::from_secs);
        assert_eq!(run.used_between(zero, one), (93.0 + 83.0) / 200.0);
        assert_eq!(run.used_between(one, two), 0.0);
        assert_eq!(run.used_between(zero, two), (93.0 + 83.0) / 400.0);
        assert!(run.used_between(two, two).is_nan());
    }
}

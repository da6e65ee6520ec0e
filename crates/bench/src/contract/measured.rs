//! One run of one scheme.

use std::time::Duration;

use policy::latency::Times;
use policy::purpose::Class;
use policy::sched::Waits;

use crate::drive::{Operation, Second, by_second};
use crate::mixgraph::Outcome;

/// What is counted per second besides operations.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Counted {
    /// Tokens granted to a class.
    Tokens(Class),
    /// Operations the simulated provider saw.
    Provider,
    /// Requests that the simulated provider made wait.
    Overdrafts,
    /// Reads of a block that a cache answered.
    Hits,
    /// All reads of a block.
    Lookups,
}

impl Counted {
    /// Every count, in the order of [`Outcome::counted`] and [`Sample::rates`](crate::drive::Sample::rates).
    pub const ALL: [Self; 9] = [
        Self::Tokens(Class::Commit),
        Self::Tokens(Class::Foreground),
        Self::Tokens(Class::Urgent),
        Self::Tokens(Class::Background),
        Self::Tokens(Class::Idle),
        Self::Provider,
        Self::Overdrafts,
        Self::Hits,
        Self::Lookups,
    ];

    /// The position in [`Counted::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        Self::ALL.iter().position(|other| *other == self).expect("everything is there")
    }
}

/// What one run of one scheme gave.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Operations, latencies, seconds.
    pub outcome: Outcome,
    /// The time the device took, without waits at the gate, by class.
    pub answers: [Times; Class::ALL.len()],
    /// How long requests waited at the gate, by class.
    pub waits: [Waits; Class::ALL.len()],
    /// The paid operations per second.
    pub paid_iops: u64,
    /// The limit on bytes of cached blocks, at the end.
    pub cache_bytes: u64,
}

impl Measured {
    /// Operations a second.
    #[must_use]
    pub fn qps(&self) -> f64 {
        self.outcome.operations() as f64 / self.outcome.elapsed.as_secs_f64()
    }

    /// The mean latency in microseconds: from the intended start where there is one.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        let dots = &self.outcome.dots;
        dots.iter().map(|dot| f64::from(dot.us)).sum::<f64>() / dots.len() as f64
    }

    /// The quantile `part` of latencies, in microseconds: from the intended start where there is one.
    #[must_use]
    pub fn quantile_us(&self, part: f64) -> f64 {
        let open = self.outcome.open.all();
        let all = if open.is_empty() { self.outcome.latencies.all() } else { open };
        if all.is_empty() { f64::NAN } else { all.value_at_quantile(part) as f64 / 1e3 }
    }

    /// The same of reads alone, from their start.
    #[must_use]
    pub fn read_us(&self, part: f64) -> f64 {
        let reads = self.outcome.latencies.of(Operation::Read);
        reads.map_or(f64::NAN, |nanos| nanos.value_at_quantile(part) as f64 / 1e3)
    }

    /// The figures of each second.
    #[must_use]
    pub fn seconds(&self) -> Vec<Second> {
        by_second(&self.outcome.dots)
    }

    /// The worst p99 of a whole second, in microseconds.
    #[must_use]
    pub fn worst_second_us(&self) -> f64 {
        let whole = self.outcome.elapsed.as_secs();
        let seconds = self.seconds().into_iter();
        let whole = seconds.filter(|second| u64::from(second.number) < whole);
        whole.map(|second| second.p99).fold(f64::NAN, f64::max)
    }

    /// The total of the whole run.
    #[must_use]
    pub fn count(&self, counted: Counted) -> u64 {
        self.outcome.counted.get(counted.index()).copied().unwrap_or(0)
    }

    /// Operations of the device for each operation that reads.
    #[must_use]
    pub fn ios_per_read(&self) -> f64 {
        let reads = Operation::ALL
            .iter()
            .filter(|operation| !operation.only_writes())
            .map(|operation| self.outcome.latencies.count(*operation))
            .sum::<u64>();
        self.count(Counted::Tokens(Class::Foreground)) as f64 / reads as f64
    }

    /// Hits of caches in percent of look-ups.
    #[must_use]
    pub fn hit_percent(&self) -> f64 {
        100.0 * self.count(Counted::Hits) as f64 / self.count(Counted::Lookups) as f64
    }

    /// Operations that the provider counted, in percent of the paid ones.
    #[must_use]
    pub fn used_percent(&self) -> f64 {
        let paid = self.paid_iops as f64 * self.outcome.elapsed.as_secs_f64();
        100.0 * self.count(Counted::Provider) as f64 / paid
    }

    /// The quantile `part` of the device's time for requests of `class`, in microseconds.
    #[must_use]
    pub fn device_us(&self, class: Class, part: f64) -> f64 {
        self.answers[class.index()].quantile(part).map_or(f64::NAN, us)
    }

    /// The quantile `part` of the wait of requests of `class` at the gate, in microseconds.
    #[must_use]
    pub fn wait_us(&self, class: Class, part: f64) -> f64 {
        wait_quantile(&self.waits[class.index()], part).map_or(f64::NAN, us)
    }
}

/// The quantile `part` of waits, as the upper end of its power-of-two bucket. `None` without requests.
#[must_use]
pub fn wait_quantile(waits: &Waits, part: f64) -> Option<Duration> {
    let all: u64 = waits.counts.iter().sum();
    let rank = part * all as f64;
    let mut below = 0;
    let step = waits.counts.iter().position(|count| {
        below += count;
        below > 0 && below as f64 >= rank
    });
    step.map(|step| if step + 1 < Waits::BUCKETS { Waits::bound(step) } else { waits.max })
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_of_waits_is_the_end_of_its_step() {
        let mut waits = Waits::default();
        assert_eq!(wait_quantile(&waits, 0.99), None);
        waits.counts[0] = 98;
        waits.counts[11] = 2;
        assert_eq!(wait_quantile(&waits, 0.98), Some(Duration::ZERO));
        assert_eq!(wait_quantile(&waits, 0.99), Some(Duration::from_micros(1024)));
        waits.counts[Waits::BUCKETS - 1] = 900;
        waits.max = Duration::from_secs(70);
        assert_eq!(wait_quantile(&waits, 0.5), Some(waits.max));
    }

    #[test]
    fn everything_counted_has_its_place() {
        for (place, counted) in Counted::ALL.into_iter().enumerate() {
            assert_eq!(counted.index(), place);
        }
    }
}

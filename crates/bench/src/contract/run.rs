//! One run of one scheme.

use std::time::Duration;

use policy::latency::Times;
use policy::purpose::Class;
use policy::sched::Waits;

use crate::compare::CountedBy;
use crate::drive::{Driven, Operation, Second, by_second};

/// What is counted per second besides operations.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Counted {
    /// Tokens granted to a class.
    Tokens(Class),
    /// Operations that the provider saw: the simulated one, or the kernel in its place; see [`Run::counted_by`].
    Provider,
    /// Requests that the simulated provider made wait.
    Overdrafts,
    /// Reads of a block that a cache answered.
    Hits,
    /// All reads of a block.
    Lookups,
}

impl Counted {
    /// Every count, in the order of [`Driven::counted`] and [`Sample::rates`](crate::drive::Sample::rates).
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

/// The result of one run of one scheme.
#[derive(Clone, Debug)]
pub struct Run {
    /// Operations, latencies, seconds.
    pub driven: Driven,
    /// The time the device took, without waits at the gate, by class.
    pub answers: [Times; Class::ALL.len()],
    /// How long requests waited at the gate, by class.
    pub waits: [Waits; Class::ALL.len()],
    /// What counted [`Counted::Provider`].
    pub counted_by: CountedBy,
    /// The paid operations per second.
    pub paid_iops: u64,
    /// The limit on bytes of cached blocks, at the end.
    pub cache_bytes: u64,
}

impl Run {
    pub(super) fn read_p99_us(&self) -> f64 {
        let reads = self.driven.latencies.of(Operation::Read);
        reads.map_or(f64::NAN, |nanos| nanos.value_at_quantile(0.99) as f64 / 1e3)
    }

    /// The figures of each whole second.
    pub(super) fn seconds(&self) -> impl Iterator<Item = Second> {
        let whole = self.driven.elapsed.as_secs();
        let seconds = by_second(&self.driven.dots).into_iter();
        seconds.filter(move |second| u64::from(second.number) < whole)
    }

    pub(super) fn worst_second_us(&self) -> f64 {
        self.seconds().map(|second| second.p99).fold(f64::NAN, f64::max)
    }

    pub(super) fn count(&self, counted: Counted) -> u64 {
        self.driven.counted.get(counted.index()).copied().unwrap_or(0)
    }

    pub(super) fn hit_percent(&self) -> f64 {
        100.0 * self.count(Counted::Hits) as f64 / self.count(Counted::Lookups) as f64
    }

    /// Tokens of all classes.
    pub(super) fn tokens(&self) -> u64 {
        Class::ALL.iter().map(|class| self.count(Counted::Tokens(*class))).sum()
    }

    pub(super) fn used_percent(&self) -> f64 {
        if self.counted_by == CountedBy::Nothing {
            return f64::NAN;
        }
        let paid = self.paid_iops as f64 * self.driven.elapsed.as_secs_f64();
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
fn wait_quantile(waits: &Waits, part: f64) -> Option<Duration> {
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

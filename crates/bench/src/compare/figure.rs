//! Figures of outcomes, and values to check.

use crate::stats::median;

/// The largest error of the timer, as a share of the latency that a band requires.
const ERROR_MAX: f64 = 0.2;

/// A figure of an outcome.
pub struct Figure<O> {
    /// The name in reports; empty for the main figure of a case.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The figure of one run.
    pub of: fn(&O) -> f64,
    pub(super) timed: Timed,
    pub(super) optional: bool,
}

/// Whether a figure is a latency, which has the timer's error in it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Timed {
    No,
    Mean,
    Tail,
}

impl<O> Clone for Figure<O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O> Copy for Figure<O> {}

impl<O> Figure<O> {
    /// A figure that is not a latency.
    pub const fn new(name: &'static str, unit: &'static str, of: fn(&O) -> f64) -> Self {
        Self { name, unit, of, timed: Timed::No, optional: false }
    }

    /// A mean latency in microseconds.
    pub const fn mean(name: &'static str, of: fn(&O) -> f64) -> Self {
        Self { timed: Timed::Mean, ..Self::new(name, "us", of) }
    }

    /// A high quantile of latencies in microseconds.
    pub const fn tail(name: &'static str, of: fn(&O) -> f64) -> Self {
        Self { timed: Timed::Tail, ..Self::new(name, "us", of) }
    }

    /// The same, left out of reports where no run of a case has it: where all are NaN.
    #[must_use]
    pub const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    /// `case, name`, or the case alone for its main figure.
    pub(super) fn label(&self, case: &str) -> String {
        if self.name.is_empty() { case.into() } else { format!("{case}, {}", self.name) }
    }
}

/// A figure of every run, and the timer's error if the figure is a latency.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    pub(super) runs: Vec<f64>,
    limit: Limit,
    error_us: f64,
}

/// The latency that a band requires, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    None,
    Us(f64),
    /// A ratio's band requires it; the medians of both sides of the ratio.
    OfRatio([f64; 2]),
}

impl From<Vec<f64>> for Values {
    fn from(runs: Vec<f64>) -> Self {
        Self { runs, limit: Limit::None, error_us: 0.0 }
    }
}

impl Values {
    /// Values whose band requires a latency of `limit_us`, measured with an error of `error_us`.
    #[must_use]
    pub fn within(runs: Vec<f64>, limit_us: f64, error_us: f64) -> Self {
        Self { runs, limit: Limit::Us(limit_us), error_us }
    }

    /// Ratios of latencies whose medians are `sides_us`.
    pub(super) fn ratios(runs: Vec<f64>, sides_us: [f64; 2], error_us: f64) -> Self {
        Self { runs, limit: Limit::OfRatio(sides_us), error_us }
    }

    /// The median, and why it says nothing if the timer's error is too large for the band.
    pub(super) fn judge(&self, [low, high]: [f64; 2]) -> (f64, Option<String>) {
        let value = median(&self.runs);
        let limit_us = match self.limit {
            Limit::None => f64::INFINITY,
            Limit::Us(limit) => limit,
            Limit::OfRatio([_, other]) if high.is_finite() => other * high,
            Limit::OfRatio([one, _]) => one / low,
        };
        // A limit that is NaN means that nothing was measured, so this is false for it.
        if self.error_us <= ERROR_MAX * limit_us || value.is_nan() {
            return (value, None);
        }
        let why = format!(
            "not measurable here: {value:.2}, but a bare sleep was {:.0} us late, and the band comes to \
             {limit_us:.0} us",
            self.error_us
        );
        (f64::NAN, Some(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_near_the_timers_error_is_not_measurable() {
        let judged = |values: Values, band| values.judge(band).1.is_none();
        // Ours may take at most 1000 us / 2, and the timer is 90 or 110 us late.
        let ratio = |error_us| Values::ratios(vec![3.0], [1000.0, 300.0], error_us);
        assert!(judged(ratio(90.0), [2.0, f64::INFINITY]));
        assert!(!judged(ratio(110.0), [2.0, f64::INFINITY]));
        // At most half of 300 us.
        assert!(judged(ratio(29.0), [0.0, 0.5]) && !judged(ratio(31.0), [0.0, 0.5]));
        assert!(judged(Values::within(vec![1.0], 500.0, 100.0), [0.0, 1.0]));
        assert!(judged(vec![1.0].into(), [0.0, 1.0]));
    }
}

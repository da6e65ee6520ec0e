//! How long a volume takes to answer: a draw from the percentiles of its contract, or the wait for
//! tokens where that is longer; and a histogram of answer times.

mod times;

pub use times::Times;

use std::time::Duration;

use crate::contract::Percentiles;
use crate::provider::Admitted;
use crate::time::Instant;

impl Percentiles {
    /// Every request takes the same time.
    #[must_use]
    pub const fn constant(time: Duration) -> Self {
        Self { p1: time, p50: time, p90: time, p99: time, p999: time }
    }

    /// The latency that a share `u` of requests stays below. It interpolates linearly between the
    /// known percentiles; the first and the last bound it.
    ///
    /// With `u` uniform in `[0, 1)` this draws from the distribution.
    #[must_use]
    pub fn quantile(&self, u: f64) -> Duration {
        let points = self.points();
        let above = points.partition_point(|&(share, _)| share <= u);
        let Some(&(high_share, high)) = points.get(above) else { return self.p999 };
        let Some(&(low_share, low)) = points[..above].last() else { return self.p1 };
        let part = (u - low_share) / (high_share - low_share);
        low + high.saturating_sub(low).mul_f64(part)
    }

    /// The mean of the distribution that [`Percentiles::quantile`] draws from.
    #[must_use]
    pub fn mean(&self) -> Duration {
        let points = self.points();
        let between = points.windows(2).map(|pair| {
            let [(low_share, low), (high_share, high)] = [pair[0], pair[1]];
            ((low + high) / 2).mul_f64(high_share - low_share)
        });
        let (first, last) = (points[0], points[points.len() - 1]);
        between.sum::<Duration>() + first.1.mul_f64(first.0) + last.1.mul_f64(1.0 - last.0)
    }

    /// The distribution with every latency multiplied by `factor`.
    ///
    /// # Panics
    /// When `factor` is negative or not finite.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        Self {
            p1: self.p1.mul_f64(factor),
            p50: self.p50.mul_f64(factor),
            p90: self.p90.mul_f64(factor),
            p99: self.p99.mul_f64(factor),
            p999: self.p999.mul_f64(factor),
        }
    }

    /// Whether the percentiles ascend.
    #[must_use]
    pub fn ascend(&self) -> bool {
        self.points().is_sorted_by_key(|&(_, latency)| latency)
    }

    /// The percentiles with the share of requests below them.
    const fn points(&self) -> [(f64, Duration); 5] {
        [(0.01, self.p1), (0.50, self.p50), (0.90, self.p90), (0.99, self.p99), (0.999, self.p999)]
    }
}

/// When the volume answers a request that arrived at `now` and takes `base` below the contract.
///
/// Waiting for tokens hides the base latency instead of adding to it (Calcspar's traces, ATC 2023).
#[must_use]
pub fn answered_at(now: Instant, admitted: Admitted, base: Duration) -> Instant {
    admitted.at.max(now + base)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const IO2: Percentiles = Percentiles {
        p1: Duration::from_micros(79),
        p50: Duration::from_micros(95),
        p90: Duration::from_micros(110),
        p99: Duration::from_micros(133),
        p999: Duration::from_micros(155),
    };

    #[test]
    fn the_given_percentiles_are_met_and_the_ends_clamped() {
        let at = |u| IO2.quantile(u).as_micros();
        assert_eq!(
            [0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0].map(at),
            [79, 79, 95, 110, 133, 155, 155]
        );
        assert_eq!(IO2.quantile(0.7), Duration::from_nanos(102_500));
    }

    #[test]
    fn the_mean_is_that_of_the_draws() {
        let draws = 100_000;
        let sum: Duration =
            (0..draws).map(|i| IO2.quantile((f64::from(i) + 0.5) / f64::from(draws))).sum();
        let error = (sum / draws).abs_diff(IO2.mean());
        assert!(error < Duration::from_nanos(10), "{error:?}");
    }

    #[test]
    fn a_wait_for_tokens_hides_the_base_latency() {
        let now = Instant::from_nanos(1000);
        let after = |nanos| now + Duration::from_nanos(nanos);
        let answered = |at, base| {
            let admitted = Admitted { at, throttled: at > now };
            answered_at(now, admitted, Duration::from_nanos(base))
        };
        assert_eq!(answered(now, 95), after(95));
        assert_eq!(answered(after(40), 95), after(95));
        assert_eq!(answered(after(700), 95), after(700));
    }

    proptest! {
        #[test]
        fn a_larger_share_is_never_faster(
            mut us in prop::array::uniform5(0u64..10_000),
            u in 0.0..=1.0f64,
            v in 0.0..=1.0f64,
        ) {
            us.sort_unstable();
            let [p1, p50, p90, p99, p999] = us.map(Duration::from_micros);
            let percentiles = Percentiles { p1, p50, p90, p99, p999 };
            prop_assert!(percentiles.ascend());
            let [low, high] = [u.min(v), u.max(v)].map(|u| percentiles.quantile(u));
            prop_assert!(p1 <= low && low <= high && high <= p999);
        }
    }
}

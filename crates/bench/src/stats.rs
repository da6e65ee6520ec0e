//! Estimates of a value from several runs.

/// A mean and its 95 % confidence interval, if runs scatter normally.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The mean of the runs.
    pub mean: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// Student's t for a two-sided 95 % interval, by degrees of freedom from 1 on.
const T_95: [f64; 20] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
];

/// The limit for many degrees of freedom.
const NORMAL_95: f64 = 1.960;

impl Interval {
    /// The interval of the values; `None` without values. One run says nothing about its scatter.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let half = match values.len() {
            0 => return None,
            1 => f64::INFINITY,
            runs => {
                let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
                T_95.get(runs - 2).unwrap_or(&NORMAL_95) * (variance / n).sqrt()
            }
        };
        Some(Self { mean, low: mean - half, high: mean + half })
    }
}

/// A median and an interval that holds the true one in at least 95 % of cases, for any distribution: its ends are two
/// of the values (order statistics; Conover, Practical Nonparametric Statistics, 3.2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    /// The median.
    pub median: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Median {
    /// The median of the values; `None` without values. Fewer than six give infinite bounds.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let n = sorted.len();
        let median = match n {
            0 => return None,
            _ => f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]),
        };
        let (low, high) = match outside(n) {
            0 => (f64::NEG_INFINITY, f64::INFINITY),
            outside => (sorted[outside - 1], sorted[n - outside]),
        };
        Some(Self { median, low, high })
    }
}

/// The middle value; NaN without values.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    Median::of(values).map_or(f64::NAN, |median| median.median)
}

/// The rank of the lower end among `n` values: the largest for which the true median lies below it in at most 2.5 % of
/// cases: the chance of fewer than that many heads in `n` tosses of a coin.
fn outside(n: usize) -> usize {
    let mut term = 0.5f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let mut below = term;
    let mut rank = 0;
    while below <= 0.025 {
        rank += 1;
        term *= (n + 1 - rank) as f64 / rank as f64;
        below += term;
    }
    rank
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_median_is_made_of_two_of_the_values() {
        // From the tables: ranks 4 and 12 of 15, 6 and 15 of 20, 1 and 6 of 6; none below that.
        let of = |n: u32| {
            let values: Vec<f64> = (1..=n).rev().map(f64::from).collect();
            Median::of(&values).expect("there are values")
        };
        assert_eq!(of(15), Median { median: 8.0, low: 4.0, high: 12.0 });
        assert_eq!(of(20), Median { median: 10.5, low: 6.0, high: 15.0 });
        assert_eq!(of(6), Median { median: 3.5, low: 1.0, high: 6.0 });
        assert!(of(5).low.is_infinite() && of(5).high.is_infinite());
        assert_eq!(Median::of(&[]), None);
    }

    #[test]
    fn the_interval_of_five_runs_uses_students_t() {
        let interval = Interval::of(&[9.0, 10.0, 11.0, 10.0, 10.0]).expect("there are runs");
        assert!((interval.mean - 10.0).abs() < 1e-9);
        // 2.776 · sqrt(0.5) / sqrt(5)
        assert!((interval.high - 10.877_8).abs() < 1e-3, "{interval:?}");
        assert!((interval.low - 9.122_2).abs() < 1e-3);
    }

    #[test]
    fn runs_that_agree_leave_no_doubt_and_one_run_all() {
        assert_eq!(Interval::of(&[3.0; 5]), Some(Interval { mean: 3.0, low: 3.0, high: 3.0 }));
        assert!(Interval::of(&[3.0]).expect("there is a run").high.is_infinite());
        assert_eq!(Interval::of(&[]), None);
    }
}

//! Arithmetic of load balance: how evenly volumes are loaded, and what remains to gain.
//!
//! A volume's load is its operations per second over the paid ones, so that unequal volumes compare; 1 is the paid
//! rate.

/// The gap between the least and the most loaded volume, relative to the latter: `(max - min) / max`. `None` without
/// load.
#[must_use]
pub fn spread(loads: &[f64]) -> Option<f64> {
    let most = loads.iter().copied().reduce(f64::max).filter(|most| *most > 0.0)?;
    let least = loads.iter().copied().fold(most, f64::min);
    Some((most - least) / most)
}

/// The standard deviation of loads over volumes and time together, each sample the loads of all volumes in one second:
/// it grows with uneven volumes and with fluctuation over time. `None` without samples.
#[must_use]
pub fn deviation(samples: &[Vec<f64>]) -> Option<f64> {
    let all = || samples.iter().flatten();
    let count = all().count() as f64;
    let mean = all().sum::<f64>() / count;
    let variance = all().map(|load| (load - mean).powi(2)).sum::<f64>() / count;
    (count > 0.0).then(|| variance.sqrt())
}

/// The share of the way from `base` to `roof` that `ours` covers: 1 is all of it, below 0 is worse than `base`. `None`
/// if `base` is at or above `roof`.
#[must_use]
pub fn gap_closed(ours: f64, base: f64, roof: f64) -> Option<f64> {
    (roof > base).then(|| (ours - base) / (roof - base))
}

/// The maximum operations per second of a pool whose operations take `ios` device operations each: its volumes have
/// `paid` operations per second together, of which budgets use the share `rho`.
#[must_use]
pub fn roof(paid: f64, rho: f64, ios: f64) -> f64 {
    paid * rho / ios
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_a_part_of_the_largest() {
        assert_eq!(spread(&[0.5, 1.0, 0.75]), Some(0.5));
        assert_eq!(spread(&[0.9; 6]), Some(0.0));
        assert_eq!(spread(&[0.0, 2.0]), Some(1.0));
        assert_eq!(spread(&[0.0, 0.0]), None);
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn the_deviation_sees_volumes_and_time() {
        let even = |one: f64, other: f64| deviation(&[vec![one, other], vec![one, other]]);
        assert_eq!(even(0.9, 0.9), Some(0.0));
        assert_eq!(even(0.8, 1.0).map(|d| (d * 1e9).round()), Some(1e8), "volumes that differ");
        let restless = deviation(&[vec![0.8, 0.8], vec![1.0, 1.0]]);
        assert_eq!(restless.map(|d| (d * 1e9).round()), Some(1e8), "times that differ");
        assert_eq!(deviation(&[]), None);
    }

    #[test]
    fn a_gap_is_closed_by_the_way_that_was_gone() {
        // 1000 of 1200 at first, 1160 with it.
        assert_eq!(gap_closed(1160.0, 1000.0, 1200.0), Some(0.8));
        assert_eq!(gap_closed(900.0, 1000.0, 1200.0), Some(-0.5));
        assert_eq!(gap_closed(1200.0, 1200.0, 1200.0), None);
    }

    #[test]
    fn the_roof_is_what_budgets_let_through() {
        assert_eq!(roof(18_000.0, 0.98, 1.0), 17_640.0);
        assert_eq!(roof(18_000.0, 0.5, 2.0), 4500.0);
    }
}

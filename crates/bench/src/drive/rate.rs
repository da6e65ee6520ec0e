//! The rate of operations over time.
//!
//! db_bench sets a new rate every interval, from a curve with noise on it. Here the seed and the number of the interval
//! determine the noise, so that all schemes of a comparison get the same load.

use std::time::Duration;

use super::record::scramble;

/// The curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wave {
    /// Always `d`.
    Flat {
        /// Operations a second.
        d: f64,
    },
    /// `a · sin(b · t + c) + d`, `t` in seconds: db_bench's `sine_a` to `sine_d`.
    Sine {
        /// Half the difference of crest and trough, in operations per second.
        a: f64,
        /// Radians a second.
        b: f64,
        /// Radians at the start.
        c: f64,
        /// The mean, in operations a second.
        d: f64,
    },
    /// `low` for the first half of each period, then `high`.
    Square {
        /// Operations a second.
        low: f64,
        /// Operations a second.
        high: f64,
        /// The time between two rises.
        period: Duration,
    },
}

/// A curve with noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// The curve.
    pub wave: Wave,
    /// The range of the noise as a part of the curve's amplitude, half up and half down: db_bench's
    /// `sine_mix_rate_noise`.
    pub noise: f64,
    /// The length of an interval of constant rate: db_bench's `sine_mix_rate_interval_milliseconds`.
    pub interval: Duration,
    /// The seed of the noise.
    pub seed: u64,
}

/// After this many intervals without an operation the rate counts as zero for good.
const SILENCE_MAX: u64 = 1_000_000;

impl Wave {
    /// The same curve with `times` the rates.
    #[must_use]
    pub fn scaled(self, times: f64) -> Self {
        match self {
            Self::Flat { d } => Self::Flat { d: times * d },
            Self::Sine { a, b, c, d } => Self::Sine { a: times * a, b, c, d: times * d },
            Self::Square { low, high, period } => {
                Self::Square { low: times * low, high: times * high, period }
            }
        }
    }

    fn at(self, time: f64) -> f64 {
        match self {
            Self::Flat { d } => d,
            Self::Sine { a, b, c, d } => a * (b * time + c).sin() + d,
            Self::Square { low, high, period } => {
                let phase = (time / period.as_secs_f64()).fract();
                if phase < 0.5 { low } else { high }
            }
        }
    }

    fn amplitude(self) -> f64 {
        match self {
            Self::Flat { .. } => 0.0,
            Self::Sine { a, .. } => a,
            Self::Square { low, high, .. } => (high - low) / 2.0,
        }
    }
}

impl Rate {
    /// Operations a second in interval number `interval`.
    #[must_use]
    pub fn in_interval(&self, interval: u64) -> f64 {
        let curve = self.wave.at(interval as f64 * self.interval.as_secs_f64());
        // From -1/2 up to, but excluding, 1/2.
        let drawn = (scramble(scramble(interval) ^ self.seed) >> 11) as f64 / (1_u64 << 53) as f64;
        let noise = (drawn - 0.5) * self.wave.amplitude() * self.noise;
        let rate = if curve + noise < 0.0 { curve } else { curve + noise };
        rate.max(0.0)
    }

    /// The time at which `operations`, a `share` of all, have started since `from`. Both times count from the start of
    /// the workload. `None` if that never happens.
    #[must_use]
    pub fn after(&self, from: Duration, share: f64, operations: f64) -> Option<Duration> {
        let width = self.interval.as_secs_f64();
        let mut interval = u64::try_from(from.as_nanos() / self.interval.as_nanos()).ok()?;
        let mut at = from.as_secs_f64();
        let mut left = operations;
        for _ in 0..SILENCE_MAX {
            let rate = self.in_interval(interval) * share;
            let end = (interval + 1) as f64 * width;
            let room = (end - at).max(0.0);
            if rate * room >= left {
                return Some(Duration::from_secs_f64(at + left / rate));
            }
            left -= rate * room;
            (at, interval) = (end, interval + 1);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(50);

    fn rate(wave: Wave, noise: f64) -> Rate {
        Rate { wave, noise, interval: INTERVAL, seed: 3 }
    }

    #[test]
    fn the_sine_is_the_formula_and_noise_stays_within_its_part() {
        let (a, b, c, d) = (500.0, 0.035, 4.17, 1000.0);
        let sine = Wave::Sine { a, b, c, d };
        let mut sum = 0.0;
        for interval in 0..3600_u32 {
            let time = f64::from(interval) * 0.05;
            let formula = a * f64::sin(b * time + c) + d;
            let of = |noise| rate(sine, noise).in_interval(interval.into());
            assert!((of(0.0) - formula).abs() < 1e-6);
            assert!((of(0.3) - formula).abs() <= a * 0.15);
            sum += of(0.3) - formula;
        }
        // 3600 draws with a deviation of 0.3 · 500 / sqrt(12).
        assert!((sum / 3600.0).abs() < 4.0 * 43.3 / 60.0, "{sum}");
        assert_ne!(rate(sine, 0.3).in_interval(7), rate(sine, 0.3).in_interval(8));
        let other = Rate { seed: 4, ..rate(sine, 0.3) };
        assert_ne!(other.in_interval(7), rate(sine, 0.3).in_interval(7));
    }

    #[test]
    fn a_square_wave_is_low_then_high_and_nothing_is_below_zero() {
        let square =
            rate(Wave::Square { low: 10.0, high: 90.0, period: Duration::from_secs(1) }, 0.0);
        let over_time: Vec<_> = (0..40).map(|n| square.in_interval(n)).collect();
        assert!(over_time.chunks(10).enumerate().all(|(half, rates)| {
            rates.iter().all(|rate| *rate == if half % 2 == 0 { 10.0 } else { 90.0 })
        }));
        let deep = rate(Wave::Sine { a: 100.0, b: 1.0, c: 0.0, d: 0.0 }, 0.3);
        assert!((0..1000).all(|n| deep.in_interval(n) >= 0.0));
    }

    #[test]
    fn operations_start_where_the_rate_adds_up_to_them() {
        let wave = Wave::Sine { a: 400.0, b: 2.0, c: 1.0, d: 500.0 };
        let rate = rate(wave, 0.3);
        let (mut at, mut operations) = (Duration::ZERO, 0.0);
        for _ in 0..1000 {
            at = rate.after(at, 0.5, 1.0).expect("the rate is above zero");
            operations += 1.0;
        }
        let step = 1e-5;
        let mut sum = 0.0;
        let mut time = 0.0;
        while time < at.as_secs_f64() {
            sum += rate.in_interval((time / 0.05) as u64) * 0.5 * step;
            time += step;
        }
        assert!((sum - operations).abs() < 0.1, "{sum} is not {operations}");
        // A jump equals single steps.
        let jump = rate.after(Duration::ZERO, 0.5, 1000.0).expect("the rate is above zero");
        assert!(jump.abs_diff(at) < Duration::from_micros(10), "{jump:?} is not {at:?}");
        assert_eq!(self::rate(Wave::Flat { d: 0.0 }, 0.0).after(at, 1.0, 1.0), None);
    }
}

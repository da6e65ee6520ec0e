//! The buckets of a volume, derived from its throughput under full load.
//!
//! Requests always queue in front of the volume, so that all tokens of its buckets are taken. The number of requests
//! served by time `t` is then the minimum, over the buckets, of their tokens so far (Calcspar's traces, ATC 2023):
//!
//! ```text
//!   served                 ·····'''  sustained: credits + r·t
//!      │        ┌ ────''''
//!      │     .''   burst: depth + R·t
//!      │    / as fast as the device is
//!      └───/──────────────────────────────── t
//! ```
//!
//! Dividing the total by the run's length would count the depth, or the whole burst, as a rate. Instead a line is
//! fitted to the end of the curve, as far back as the curve is straight: its slope is the paid rate, and its value at
//! the start is the depth.

/// Points of a curve per second: the requests served in each millisecond.
pub(super) const STEPS: f64 = 1000.0;

/// A bucket that holds more seconds of its rate than this holds the credits of a burst.
const DEPTH_SECS_MAX: f64 = 3.0;

/// How far a curve may deviate from a straight line, as a share of its expected rise.
const WANDERS: f64 = 0.005;

/// The smallest share of a run that determines the sustained rate.
const TAIL: f64 = 0.25;

/// In a short run at least `TAIL_STEPS`, but at most the share `TAIL_MOST`: the kernel's throttle serves requests in
/// batches, ten a second.
const TAIL_STEPS: f64 = 500.0;
const TAIL_MOST: f64 = 0.8;

/// The cumulative count: the n-th value is the number served in the first n milliseconds.
#[derive(Clone, Debug)]
pub(super) struct Curve(Vec<f64>);

impl Curve {
    /// From the number served in each millisecond.
    pub(super) fn of(counts: &[u32]) -> Self {
        let mut sum = 0.0;
        let sums = counts.iter().map(|&count| {
            sum += f64::from(count);
            sum
        });
        Self(std::iter::once(0.0).chain(sums.collect::<Vec<_>>()).collect())
    }

    pub(super) fn secs(&self) -> f64 {
        self.steps() as f64 / STEPS
    }

    const fn steps(&self) -> usize {
        self.0.len() - 1
    }

    /// The mean rate per second of the whole run: what a stopwatch would show.
    pub(super) fn mean(&self) -> f64 {
        self.0[self.steps()] / self.secs().max(1.0 / STEPS)
    }

    /// The rate per second in the last two thirds: about the sustained rate.
    pub(super) fn lately(&self) -> f64 {
        let from = self.steps() / 3;
        (self.0[self.steps()] - self.0[from]) * STEPS / (self.steps() - from).max(1) as f64
    }

    /// The rate per second of each stretch of `secs`, with its start.
    pub(super) fn rates(&self, secs: f64) -> Vec<(f64, f64)> {
        let width = ((secs * STEPS) as usize).max(1);
        let ends = (width..self.0.len()).step_by(width);
        let rate = |end: usize| (self.0[end] - self.0[end - width]) * STEPS / width as f64;
        ends.map(|end| ((end - width) as f64 / STEPS, rate(end))).collect()
    }

    /// The least-squares line through the points `from..=to`.
    fn line(&self, from: usize, to: usize) -> Line {
        let n = (to + 1 - from) as f64;
        let middle = (from + to) as f64 / 2.0 / STEPS;
        let points = || (from..=to).map(|i| (i as f64 / STEPS - middle, self.0[i]));
        let height = points().map(|(_, y)| y).sum::<f64>() / n;
        let (over, under) = points()
            .fold((0.0, 0.0), |(over, under), (t, y)| (over + t * (y - height), under + t * t));
        let rate = if under > 0.0 { over / under } else { 0.0 };
        let off = points().map(|(t, y)| (y - height - rate * t).powi(2)).sum::<f64>() / n;
        Line { rate, start: height - rate * middle, off: off.sqrt() }
    }

    /// The straight end of the curve between its start and `to`.
    fn settled(&self, to: usize) -> Settled {
        let mut from = to - (to as f64 * TAIL).max(TAIL_STEPS.min(to as f64 * TAIL_MOST)) as usize;
        loop {
            let line = self.line(from, to);
            let middle = (from + to) / 2;
            let astray = |&i: &usize| {
                let allowed = WANDERS * line.rate * (middle.abs_diff(i) as f64 / STEPS);
                (self.0[i] - line.at(i)).abs() > 3.0 * line.off + 1.0 + allowed
            };
            let knee = (0..from).rev().find(astray).map_or(0, |i| i + 1);
            // Past the knee the curve may keep bending for a while.
            let start = knee + (to - knee) / 10;
            if start >= from {
                return Settled { line, knee, from };
            }
            from = start;
        }
    }

    /// The volume's buckets, assuming they were full at the start.
    pub(super) fn fit(&self) -> Fit {
        let all = self.steps();
        let Settled { line, knee, from } = self.settled(all);
        let sure = self.sureness(&line, from);
        let rate = Estimate::around(line.rate, sure.slope);
        let tokens = Estimate::around(line.start.max(0.0), sure.start);
        let spent_after = knee as f64 / STEPS;
        // The bend itself belongs to neither part.
        let before = knee - knee / 20;
        let burst = (tokens.value > DEPTH_SECS_MAX * line.rate && spent_after > 1.0).then(|| {
            let Settled { line, knee, .. } = self.settled(before);
            let depth = line.start.max(0.0);
            Burst {
                rate: line.rate,
                depth,
                depth_after: knee as f64 / STEPS,
                credits: tokens.value,
            }
        });
        Fit { rate, tokens, spent_after, burst }
    }

    /// The 95 % confidence interval of the line through the points from `from` on. Points are not independent: each
    /// crossing of the line counts as one.
    fn sureness(&self, line: &Line, from: usize) -> Sureness {
        let above = |i: &usize| self.0[*i] > line.at(*i);
        let all = self.steps();
        let crossings = (from..all).filter(|i| above(i) != above(&(i + 1))).count();
        let secs = (all - from) as f64 / STEPS;
        let middle = (all + from) as f64 / 2.0 / STEPS;
        // The error of a least-squares line with `crossings` independent points. A count of whole requests is off by at
        // least one half.
        let point = NORMAL_95 * line.off.max(0.5) / (crossings.max(1) as f64).sqrt();
        let slope = point * 12f64.sqrt() / secs.max(1.0 / STEPS);
        Sureness { slope, start: point.hypot(slope * middle) }
    }

    /// Tokens available at the start beyond `rate`; `None` if they were not spent by the end, since there may have been
    /// more.
    pub(super) fn tokens(&self, rate: f64) -> Option<f64> {
        let from = self.steps() * 6 / 10;
        let end = self.line(from, self.steps());
        let beyond: f64 =
            (from..=self.steps()).map(|i| self.0[i] - rate * (i as f64 / STEPS)).sum();
        let tokens = beyond / (self.steps() + 1 - from) as f64;
        // Steps of a staircase do not mean a higher rate: the tolerance grows with the deviation they cause.
        let hidden = 4.0 * end.off / (self.secs() * 0.4);
        (end.rate < rate * 1.1 + hidden).then_some(tokens.max(0.0))
    }
}

/// Standard errors of a two-sided 95 % interval.
const NORMAL_95: f64 = 1.96;

struct Sureness {
    slope: f64,
    start: f64,
}

struct Settled {
    line: Line,
    /// Where the straight end starts.
    knee: usize,
    /// The start of the measured part.
    from: usize,
}

struct Line {
    /// Per second.
    rate: f64,
    /// At the curve's start.
    start: f64,
    /// The root mean square of the points' deviation.
    off: f64,
}

impl Line {
    fn at(&self, step: usize) -> f64 {
        self.start + self.rate * step as f64 / STEPS
    }
}

/// A figure with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Estimate {
    /// All figures are at least zero, so the interval is cut there.
    pub(super) const fn around(value: f64, by: f64) -> Self {
        Self { value, low: (value - by).max(0.0), high: value + by }
    }
}

/// The result of a fit.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fit {
    /// The sustained rate per second.
    pub(super) rate: Estimate,
    /// Tokens at the start beyond it.
    pub(super) tokens: Estimate,
    /// When they were spent, in seconds.
    pub(super) spent_after: f64,
    /// The burst before, if `tokens` are too many for a depth.
    pub(super) burst: Option<Burst>,
}

/// A burst rate that ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Burst {
    /// Per second.
    pub(super) rate: f64,
    /// Tokens at the start beyond it.
    pub(super) depth: f64,
    /// When they were spent, in seconds.
    pub(super) depth_after: f64,
    /// Tokens at the start beyond the sustained rate.
    pub(super) credits: f64,
}

/// The largest I/O that counts as one, from the `rates` of requests of several sizes: bytes and requests per second,
/// ascending. `one` is the rate of requests that certainly count as one.
///
/// Bandwidth alone serves each size at the best bandwidth divided by the size. A size served at a lower rate counts as
/// several operations.
pub(super) fn largest_operation(one: f64, rates: &[(u64, Estimate)]) -> Operation {
    let share = |&(bytes, rate): &(u64, Estimate)| bytes as f64 * rate.value;
    let bandwidth = rates.iter().map(share).fold(0.0, f64::max);
    // The bandwidth that was certainly reached.
    let surely = rates.iter().map(|(bytes, rate)| *bytes as f64 * rate.low).fold(0.0, f64::max);
    let counts_as_one = |&&(_, rate): &&(u64, Estimate)| rate.value > 0.9 * one;
    let bytes = rates.iter().rev().find(counts_as_one).map_or(0, |&(bytes, _)| bytes);
    let several = |&(size, rate): &(u64, Estimate)| {
        size > bytes && rate.high < 0.92 * one.min(surely / size as f64)
    };
    // The smallest tested size may count as several itself.
    let is_known = rates.first().is_some_and(|&(smallest, _)| bytes > smallest);
    Operation { bytes, bandwidth, is_largest: is_known && rates.iter().any(several) }
}

/// What [`largest_operation`] found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Operation {
    /// The largest size that counted as one and that bandwidth did not slow.
    pub(super) bytes: u64,
    /// The highest bandwidth of any size, in bytes per second.
    pub(super) bandwidth: f64,
    /// Whether larger ones count as several. If false, bandwidth ends first and hides it.
    pub(super) is_largest: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requests that `buckets` of depth and rate serve in `secs` seconds.
    fn curve(secs: usize, buckets: &[(f64, f64)]) -> Curve {
        let by = |ms: usize| {
            let given = |&(depth, rate): &(f64, f64)| (depth + rate * ms as f64 / STEPS).floor();
            buckets.iter().map(given).fold(f64::INFINITY, f64::min)
        };
        let counts: Vec<_> =
            (0..secs * 1000).map(|ms| (by(ms + 1) - by(ms).max(0.0)) as u32).collect();
        Curve::of(&counts)
    }

    fn close(found: f64, to: f64, by: f64) {
        assert!((found / to - 1.0).abs() < by, "{found} is not {to}");
    }

    #[test]
    fn the_depth_is_not_taken_for_the_rate() {
        let curve = curve(10, &[(0.0, 20_000.0), (3000.0, 3000.0)]);
        let fit = curve.fit();
        close(fit.rate.value, 3000.0, 0.001);
        close(fit.tokens.value, 3000.0, 0.01);
        close(fit.spent_after, 3.0 / 17.0, 0.1);
        assert_eq!(fit.burst, None);
        assert!(fit.rate.high - fit.rate.low < 1.0, "{fit:?}");
        assert!(curve.mean() > 3290.0, "a stopwatch is");
    }

    #[test]
    fn a_burst_that_ends_is_told_from_what_lasts() {
        let curve = curve(60, &[(0.0, 20_000.0), (3000.0, 3000.0), (60_000.0, 500.0)]);
        let fit = curve.fit();
        close(fit.rate.value, 500.0, 0.005);
        let burst = fit.burst.expect("it ended after 24 s");
        close(burst.rate, 3000.0, 0.005);
        close(burst.credits, 60_000.0, 0.01);
        close(burst.depth, 3000.0, 0.02);
    }

    #[test]
    fn a_staircase_is_as_good_as_a_line() {
        // Fifty at once every tenth of a second, as the kernel's throttle does.
        let counts: Vec<_> = (0..3000).map(|ms| if ms % 100 == 0 { 50 } else { 0 }).collect();
        let fit = Curve::of(&counts).fit();
        close(fit.rate.value, 500.0, 0.01);
        assert!((490.0..510.0).contains(&fit.rate.low) && fit.rate.high < 510.0, "{fit:?}");
        assert!(fit.tokens.value < 60.0, "{fit:?}");
        let tokens = Curve::of(&counts[..500]).tokens(500.0);
        assert!(tokens.is_some_and(|tokens| tokens < 60.0), "{tokens:?}");
    }

    #[test]
    fn tokens_that_were_not_spent_are_not_counted() {
        assert_eq!(curve(1, &[(0.0, 4000.0), (3000.0, 3000.0)]).tokens(3000.0), None);
        let spent = curve(1, &[(0.0, 40_000.0), (1500.0, 3000.0)]);
        close(spent.tokens(3000.0).expect("spent after 40 ms"), 1500.0, 0.01);
    }

    #[test]
    fn what_counts_as_several_is_told_from_what_bandwidth_slows() {
        const KIB: u64 = 1024;
        let rates = |iops: f64, operation: u64, bandwidth: f64, sizes: &[u64]| -> Vec<_> {
            let rate = |&kib: &u64| {
                let as_operations = iops / kib.div_ceil(operation) as f64;
                (kib * KIB, Estimate::around(as_operations.min(bandwidth / kib as f64), 0.1))
            };
            sizes.iter().map(rate).collect()
        };
        let sizes = [4, 16, 64, 256, 384, 512, 1024, 1536];
        // gp3: the bandwidth limit comes first.
        let found = largest_operation(3000.0, &rates(3000.0, 256, 125.0 * 1024.0, &sizes));
        assert_eq!((found.bytes, found.is_largest), (16 * KIB, false));
        close(found.bandwidth, 125.0 * 1024.0 * 1024.0, 0.001);
        // A small gp2 without credits, an io2 whose limits meet there, an st1.
        for (iops, operation, mib) in
            [(100.0, 256, 128.0), (1000.0, 256, 250.0), (80.0, 1024, 80.0)]
        {
            let rates = rates(iops, operation, mib * 1024.0, &sizes);
            let found = largest_operation(iops, &rates);
            assert_eq!((found.bytes, found.is_largest), (operation * KIB, true));
            close(found.bandwidth, (iops * operation as f64).min(mib * 1024.0) * 1024.0, 0.001);
        }
        // Rates this uncertain give no answer.
        let mut unsure = rates(1000.0, 256, 250.0 * 1024.0, &sizes);
        unsure
            .iter_mut()
            .for_each(|(_, rate)| *rate = Estimate::around(rate.value, rate.value / 3.0));
        assert!(!largest_operation(1000.0, &unsure).is_largest);
        // Bandwidth only: it already slows 4 KiB requests.
        let found = largest_operation(5120.0, &rates(1e9, 256, 20.0 * 1024.0, &sizes));
        assert_eq!((found.bytes, found.is_largest), (4 * KIB, false));
    }
}

//! The order of the loads, and their evaluation.
//!
//! ```text
//!   fill ─ queue depth ─ slow reads ─ full load ─ pauses, each before full load
//!        ─ bandwidth ─ sizes ─ writes, slow and full, both at once ─ full load, to the end
//! ```
//!
//! The slow reads come before a full load because the buckets fill again meanwhile. The longest load is last: it may
//! spend the credits of a burst, which would change every later measurement. Sizes descend, so that the bucket of
//! bytes, empty after bandwidth, stays empty.

use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::ensure;
use hdrhistogram::Histogram;
use policy::contract::Percentiles;
use policy::time::Instant;
use volume::buf::PAGE;

use super::fit::{Curve, Fit, largest_operation};
use super::fixture::{Fixture, Kind, Load, Ran};
use super::{
    BYTES_MIN, Bound, Burst, Estimate, Found, Measured, Probe, Progress, Rate, Recovered, Sharing,
    Sized, TIME_MIN, Writes,
};

const KIB: u64 = 1024;
const SMALL: u64 = PAGE as u64;

/// Sizes to compare with [`SMALL`], besides one and a half times the largest that counts as one.
const SIZES: [u64; 5] = [1024 * KIB, 512 * KIB, 256 * KIB, 64 * KIB, 16 * KIB];

/// The largest I/O that most providers count as one: bandwidth is measured with it first.
const USUAL: u64 = policy::contract::OP_BYTES_MAX;

/// Requests under way at once, at the start and at most.
const AT_ONCE: usize = 32;
const AT_ONCE_MAX: usize = 256;
/// Large requests under way at once, at the start; later at most four times as many. Bounds memory, and the time until
/// the last answer.
const WIDE_AT_ONCE: usize = 16;

/// The wait in front of a limit, at least, as a multiple of a request's latency.
const QUEUES: f64 = 4.0;
/// The wait at least, in seconds: the system needs a moment to send the next request.
const QUEUES_SECS: f64 = 0.02;

/// The wait of a large request: its own latency exceeds a small one's.
const WIDE_QUEUES_SECS: f64 = 0.1;

/// The highest rate of slow reads: enough for percentiles, and a negligible load for the machine.
const SLOW_MAX: f64 = 1000.0;

/// The time up to which parts scale with the probe; beyond it only the last load grows.
const UNIT_MAX: Duration = Duration::from_secs(60);

/// The shortest load that shows a sustained rate.
const WHOLE: Duration = Duration::from_millis(600);

/// An earlier rate higher by this factor was a burst that ended.
const ENDED: f64 = 1.3;

/// Fewer seconds' worth of saved operations do not count as credits.
const ENOUGH_SECS: f64 = 5.0;

/// Small requests that reach this share of the best bandwidth are limited by bandwidth.
const ALL_OF_IT: f64 = 0.85;

/// The largest ratio of reads' to writes' rate alone under one limit.
const ALIKE: f64 = 1.25;

/// The tolerance for the sum of both shares, which is one under a shared limit.
const SHARED_OFF: f64 = 0.15;

pub(super) fn run(
    probe: &Probe,
    stop: &AtomicBool,
    progress: &dyn Progress,
) -> anyhow::Result<Found> {
    ensure!(probe.time >= TIME_MIN, "a probe takes {} s at least", TIME_MIN.as_secs());
    ensure!(probe.bytes >= BYTES_MIN, "a probe needs {} MiB at least", BYTES_MIN >> 20);
    let mut fixture = Fixture {
        clock: &probe.clock,
        time: probe.runs,
        object: probe.object.clone(),
        bytes: 0,
        seed: probe.seed,
        stop,
        progress,
    };
    progress.begins("filling a file");
    let opened = fixture.clock.now();
    fixture.fill(probe.bytes, BYTES_MIN, probe.fill_time())?;
    let spent = Cell::new(operations(SIZES[0]) * (fixture.bytes / SIZES[0]) as f64);
    let began = fixture.clock.now();
    // The last load gets at least a third of the time.
    let unit = (probe.time * 2 / 3).min(UNIT_MAX);
    let session = Session { fixture, probe, unit, opened, spent, began, until: began + probe.time };
    session.measure()
}

struct Session<'a> {
    fixture: Fixture<'a>,
    probe: &'a Probe,
    unit: Duration,
    /// When the volume was first loaded, and operations spent since.
    opened: Instant,
    spent: Cell<f64>,
    began: Instant,
    until: Instant,
}

impl Session<'_> {
    fn measure(&self) -> anyhow::Result<Found> {
        let progress = self.fixture.progress;
        let now = || self.fixture.clock.now();
        progress.begins("how many requests at once");
        let (at_once, about) = self.at_once()?;

        progress.begins("latency of reads below the line");
        let slow = (about / 4.0).clamp(1.0, SLOW_MAX);
        let ios_before = self.ios();
        let slow_reads = self.pace(Kind::Read, slow)?;
        let ios = ios_before.zip(self.ios()).map(|(before, after)| after - before);
        let base = measured(&slow_reads, 1);

        progress.begins("all the reads it gives");
        let first = self.saturate(&[Kind::Read], SMALL, at_once, self.whole_part(0.10))?;
        let first_fit = first.reads.curve.fit();
        let first_rate = first_fit.burst.map_or(first_fit.rate, |burst| certain(burst.rate));
        let rate = first_rate.value;

        progress.begins("recovery after an overdraft");
        let spending = Duration::from_secs_f64(2.0 * first_fit.spent_after + 0.2);
        let longest = self.part(0.05).max(Duration::from_millis(250));
        let (recovery, others) =
            self.recovery(at_once, spending.min(longest), rate, first.ended)?;

        progress.begins("bandwidth");
        self.fixture.idle(self.part(0.03))?;
        let mut bandwidth_bytes = USUAL;
        let mut wide = self.saturate(&[Kind::Read], USUAL, WIDE_AT_ONCE, self.whole_part(0.10))?;
        let mut wide_at = WIDE_AT_ONCE;
        progress.begins("the largest I/O that counts as one");
        let mut sizes = self.sizes(first_rate, &wide)?;
        let operation = operation(rate, &sizes);
        let best = best(&sizes);
        if best.bytes != USUAL && best.bytes as f64 * best.per_sec.value > 1.1 * wide_rate(&wide) {
            progress.begins("bandwidth, in larger pieces");
            self.fixture.idle(self.part(0.03))?;
            bandwidth_bytes = best.bytes;
            wide_at = wide_at_once(best.per_sec.value);
            wide = self.saturate(&[Kind::Read], best.bytes, wide_at, self.part(0.08))?;
        }
        sizes.sort_unstable_by_key(|sized| sized.bytes);

        let writes = if self.probe.writes { Some(self.writes(at_once, slow, rate)?) } else { None };

        progress.begins("all there is, to the end");
        self.fixture.idle(self.part(0.06))?;
        let (spent, earning) = (self.spent.get(), now().since(self.opened).as_secs_f64());
        let left = self.until.since(now()).max(self.part(0.2));
        let long = self.saturate(&[Kind::Read], SMALL, at_once, left)?;
        let over = measured(&long.reads.latency, at_once);

        let mut bandwidth = rate_of(&wide, wide_at, &base);
        bandwidth.scale(bandwidth_bytes as f64);
        let mut iops = rate_of(&long, at_once, &base);
        iops.depth = depth(&long.reads.curve.fit(), &recovery);
        // Operations that earlier loads spent beyond the sustained rate were saved up as well.
        let saved = (spent - iops.per_sec.value * earning).max(0.0);
        if let Some(burst) = &mut iops.burst {
            burst.credits += saved;
            burst.lasted_secs += earning;
        } else if rate > ENDED * iops.per_sec.value && saved > ENOUGH_SECS * iops.per_sec.value {
            let burst = Burst { per_sec: rate, credits: saved, lasted_secs: earning };
            iops.burst = Some(burst);
            iops.depth = Some(first_fit.burst.map_or(first_fit.tokens, |b| certain(b.depth)));
        }
        // Small requests that use the whole bandwidth do not show the limit of operations; large ones that use all
        // operations do not show that of bandwidth.
        let moved = iops.per_sec.value * SMALL as f64;
        if iops.bound == Bound::Volume && moved > ALL_OF_IT * operation.bandwidth {
            iops.bound = Bound::OtherLimit;
            // Then small requests show the bandwidth too, and perhaps for longer.
            if spread(&iops) < spread(&bandwidth) {
                bandwidth = Rate { bound: Bound::Volume, ..iops.clone() };
                bandwidth.scale(SMALL as f64);
                bandwidth_bytes = SMALL;
            }
        }
        if bandwidth.bound == Bound::Volume && operation.is_largest {
            bandwidth.bound = Bound::OtherLimit;
            bandwidth.depth = None;
        }
        Ok(Found {
            bytes: self.fixture.bytes,
            secs: now().since(self.began).as_secs_f64(),
            base,
            over,
            iops,
            bandwidth,
            bandwidth_bytes,
            sizes,
            operation_bytes: operation.bytes,
            operation_is_largest: operation.is_largest,
            recovery,
            writes,
            others_per_sec: others,
            machine_busy: long.busy,
            device_ios_per_request: ios.map(|ios| ios as f64 / slow_reads.len().max(1) as f64),
        })
    }

    fn part(&self, share: f64) -> Duration {
        self.unit.mul_f64(share)
    }

    /// A part long enough to show a rate.
    fn whole_part(&self, share: f64) -> Duration {
        self.part(share).max(WHOLE)
    }

    fn ios(&self) -> Option<u64> {
        self.probe.device.as_ref()?.ios()
    }

    fn saturate(
        &self,
        kinds: &[Kind],
        bytes: u64,
        at_once: usize,
        time: Duration,
    ) -> anyhow::Result<Ran> {
        let ran = self.fixture.saturate(Load { kinds, bytes, at_once, time })?;
        let requests = ran.reads.latency.len() + ran.writes.latency.len();
        self.spent.set(self.spent.get() + operations(bytes) * requests as f64);
        Ok(ran)
    }

    /// The number of requests that keep a queue in front of the volume, and its approximate rate per second.
    fn at_once(&self) -> anyhow::Result<(usize, f64)> {
        let step = self.part(0.02).max(Duration::from_millis(400));
        let one = self.saturate(&[Kind::Read], SMALL, 1, self.part(0.01))?;
        let base = one.reads.latency.value_at_quantile(0.5) as f64 / 1e9;
        let mut at_once = AT_ONCE;
        let mut about = 1.0;
        // The first measurement may still spend saved tokens.
        for times in 1..=4 {
            let ran = self.saturate(&[Kind::Read], SMALL, at_once, step)?;
            about = ran.reads.curve.lately().max(1.0);
            let wanted = about * (QUEUES * base).max(QUEUES_SECS);
            let wanted = (wanted.ceil() as usize).clamp(4, AT_ONCE_MAX);
            let enough = wanted <= at_once + at_once / 2;
            at_once = wanted;
            if enough && times > 1 {
                break;
            }
        }
        Ok((at_once, about))
    }

    /// Tokens after pauses of growing length, and I/Os per second of other processes meanwhile.
    fn recovery(
        &self,
        at_once: usize,
        time: Duration,
        rate: f64,
        mut emptied: Instant,
    ) -> anyhow::Result<(Vec<Recovered>, Option<f64>)> {
        let longest = self.part(0.065);
        let mut recovery = Vec::new();
        let (mut others, mut idle_secs) = (None, 0.0);
        for halves in (0..4).rev() {
            let before = self.ios();
            let pause = longest / (1 << halves);
            self.fixture.idle(pause)?;
            if let Some((before, after)) = before.zip(self.ios()) {
                others = Some(others.unwrap_or(0.0) + (after - before) as f64);
                idle_secs += pause.as_secs_f64();
            }
            let ran = self.saturate(&[Kind::Read], SMALL, at_once, time)?;
            let tokens = ran.reads.curve.tokens(rate);
            recovery.push(Recovered { idle_secs: ran.began.since(emptied).as_secs_f64(), tokens });
            emptied = ran.ended;
        }
        Ok((recovery, others.map(|ios| ios / idle_secs)))
    }

    /// Requests a second of several sizes; `wide` is the load with [`USUAL`] ones.
    fn sizes(&self, small: Estimate, wide: &Ran) -> anyhow::Result<Vec<Sized>> {
        let wide = wide.reads.curve.fit().rate;
        let bandwidth = wide.value * USUAL as f64;
        let mut sizes = vec![Sized { bytes: SMALL, per_sec: small }];
        for bytes in SIZES {
            let per_sec = if bytes == USUAL { wide } else { self.rate_of_size(bytes, bandwidth)? };
            sizes.push(Sized { bytes, per_sec });
        }
        // Where bandwidth ends at the same size, powers of two are ambiguous: a rate halves by twice the operations or
        // by twice the bytes.
        let one = operation(small.value, &sizes).bytes;
        let between = one + one / 2;
        if one >= 64 * KIB {
            sizes.push(Sized { bytes: between, per_sec: self.rate_of_size(between, bandwidth)? });
        }
        Ok(sizes)
    }

    /// Runs for as long as several dozens of requests should take.
    fn rate_of_size(&self, bytes: u64, bandwidth: f64) -> anyhow::Result<Estimate> {
        let dozens = 60.0 * bytes as f64 / bandwidth.max(1.0);
        let time = dozens.clamp(self.part(0.02).as_secs_f64(), self.part(0.05).as_secs_f64());
        let time = Duration::from_secs_f64(time);
        let at_once = wide_at_once(bandwidth / bytes as f64);
        let ran = self.saturate(&[Kind::Read], bytes, at_once, time)?;
        Ok(ran.reads.curve.fit().rate)
    }

    /// Latencies of requests far below the limit, after a pause that refills the buckets.
    fn pace(&self, kind: Kind, per_sec: f64) -> anyhow::Result<Histogram<u64>> {
        self.fixture.idle(self.part(0.01).max(Duration::from_millis(100)))?;
        self.fixture.pace(kind, per_sec, self.part(0.07))
    }

    fn writes(&self, at_once: usize, slow: f64, reads: f64) -> anyhow::Result<Writes> {
        let progress = self.fixture.progress;
        progress.begins("latency of writes below the line");
        let base = measured(&self.pace(Kind::Write, slow)?, 1);
        progress.begins("all the writes it takes");
        let ran = self.saturate(&[Kind::Write], SMALL, at_once, self.whole_part(0.06))?;
        let per_sec = ran.writes.curve.fit().rate;
        let bound = bound(&ran, per_sec.value, at_once, &base);
        progress.begins("reads and writes together");
        let both = [Kind::Read, Kind::Write];
        let mixed = self.saturate(&both, SMALL, 2 * at_once, self.whole_part(0.06))?;
        let mixed_per_sec = both.map(|kind| mixed.side(kind).curve.fit().rate.value);
        // If the machine was the bound, the limit is unknown.
        let sharing = match bound {
            Bound::Machine if per_sec.value < ALIKE * reads => Sharing::Unclear,
            _ => sharing(reads, per_sec.value, mixed_per_sec),
        };
        Ok(Writes { base, per_sec, bound, mixed_per_sec, sharing })
    }
}

/// The operations that a usual provider counts for a request.
fn operations(bytes: u64) -> f64 {
    bytes.div_ceil(USUAL) as f64
}

/// A value from a single observation.
fn certain(value: f64) -> Estimate {
    Estimate { value, low: value, high: value }
}

/// The number of large requests that keep a queue in front of a volume that serves `per_sec` of them.
fn wide_at_once(per_sec: f64) -> usize {
    ((per_sec * WIDE_QUEUES_SECS).ceil() as usize).clamp(4, 4 * WIDE_AT_ONCE)
}

fn wide_rate(wide: &Ran) -> f64 {
    wide.reads.curve.fit().rate.value * USUAL as f64
}

fn best(sizes: &[Sized]) -> Sized {
    let bandwidth = |sized: &&Sized| sized.bytes as f64 * sized.per_sec.value;
    let best = sizes.iter().max_by(|a, b| bandwidth(a).total_cmp(&bandwidth(b)));
    *best.expect("several sizes were measured")
}

fn operation(small: f64, sizes: &[Sized]) -> super::fit::Operation {
    let mut rates: Vec<_> = sizes.iter().map(|sized| (sized.bytes, sized.per_sec)).collect();
    rates.sort_unstable_by_key(|&(bytes, _)| bytes);
    largest_operation(small, &rates)
}

/// Why the rate was not higher.
fn bound(ran: &Ran, rate: f64, at_once: usize, base: &Measured) -> Bound {
    // A busy machine is the bound only if this process uses a large share of it: a slow volume needs little processor
    // time, whatever other processes use. Kernel work for the probe is charged to no process.
    if ran.ours > 0.7 || (ran.busy > 0.9 && ran.ours > 0.2) {
        return Bound::Machine;
    }
    // Little's law: all requests under way took no longer than a single one alone.
    if rate * base.percentiles.p50.as_secs_f64() > 0.7 * at_once as f64 {
        return Bound::Requests;
    }
    Bound::Volume
}

fn rate_of(ran: &Ran, at_once: usize, base: &Measured) -> Rate {
    let curve: &Curve = &ran.reads.curve;
    let Fit { rate, tokens, spent_after, burst } = curve.fit();
    let (depth, burst) = match burst {
        None => (tokens, None),
        Some(burst) => {
            let super::fit::Burst { rate, depth, credits, .. } = burst;
            (certain(depth), Some(Burst { per_sec: rate, credits, lasted_secs: spent_after }))
        }
    };
    Rate {
        per_sec: rate,
        bound: bound(ran, rate.value, at_once, base),
        burst,
        depth: Some(depth),
        watched_secs: curve.secs(),
        course: curve.rates((curve.secs() / 120.0).max(0.1)),
        naive_per_sec: curve.mean(),
    }
}

/// The relative width of the interval.
fn spread(rate: &Rate) -> f64 {
    (rate.per_sec.high - rate.per_sec.low) / rate.per_sec.value.max(1.0)
}

impl Rate {
    /// Converts a rate of requests into one of bytes.
    fn scale(&mut self, bytes: f64) {
        for Estimate { value, low, high } in
            [Some(&mut self.per_sec), self.depth.as_mut()].into_iter().flatten()
        {
            *value *= bytes;
            *low *= bytes;
            *high *= bytes;
        }
        if let Some(burst) = &mut self.burst {
            burst.per_sec *= bytes;
            burst.credits *= bytes;
        }
        self.course.iter_mut().for_each(|(_, rate)| *rate *= bytes);
        self.naive_per_sec *= bytes;
    }
}

/// The depth of a full bucket: the tokens at the start of the last load, after the longest pause. The pauses show
/// whether it was full, and how certain that is.
fn depth(fit: &Fit, recovery: &[Recovered]) -> Option<Estimate> {
    let start = fit.burst.map_or(fit.tokens, |burst| certain(burst.depth));
    let held = start.value;
    let full = recovery.iter().rev().take(2).map(|recovered| recovered.tokens);
    let [Some(longest), Some(second)] = full.collect::<Vec<_>>()[..] else { return None };
    // The tokens still grow with the pause, so the depth is unknown.
    let filled = |tokens: f64| (tokens - held).abs() <= 0.1 * held + 0.02 * fit.rate.value;
    if longest > 1.5 * second && longest > 0.1 * fit.rate.value {
        return None;
    }
    let seen = [longest, second].map(|tokens| if filled(tokens) { tokens } else { held });
    let low = seen.into_iter().fold(start.low, f64::min);
    let high = seen.into_iter().fold(start.high, f64::max);
    Some(Estimate { value: held, low, high })
}

/// Compares the rates of reads and writes alone with their rates together.
fn sharing(reads: f64, writes: f64, [mixed_reads, mixed_writes]: [f64; 2]) -> Sharing {
    let alike = (reads / writes.max(1.0)).ln().abs() < ALIKE.ln();
    let parts = mixed_reads / reads.max(1.0) + mixed_writes / writes.max(1.0);
    if !alike || parts > 1.0 + SHARED_OFF {
        Sharing::Separate
    } else if parts > 1.0 - SHARED_OFF {
        Sharing::Shared
    } else {
        Sharing::Unclear
    }
}

fn measured(latency: &Histogram<u64>, at_once: usize) -> Measured {
    let at = |quantile| Duration::from_nanos(latency.value_at_quantile(quantile));
    let percentiles =
        Percentiles { p1: at(0.01), p50: at(0.50), p90: at(0.90), p99: at(0.99), p999: at(0.999) };
    Measured { percentiles, samples: latency.len(), at_once }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Side;
    use super::*;

    #[test]
    fn reads_and_writes_that_get_all_of_theirs_share_nothing() {
        assert_eq!(sharing(500.0, 500.0, [250.0, 250.0]), Sharing::Shared);
        assert_eq!(sharing(500.0, 500.0, [400.0, 110.0]), Sharing::Shared);
        assert_eq!(sharing(500.0, 500.0, [500.0, 500.0]), Sharing::Separate);
        assert_eq!(sharing(500.0, 40_000.0, [50.0, 39_000.0]), Sharing::Separate);
        assert_eq!(sharing(500.0, 500.0, [100.0, 100.0]), Sharing::Unclear);
    }

    #[test]
    fn a_machine_that_is_busy_with_the_probe_is_told_from_one_that_others_keep_busy() {
        let base = measured(&Histogram::new(3).expect("three digits"), 1);
        let ran = |ours, busy| {
            let side = || Side {
                curve: Curve::of(&[1]),
                latency: Histogram::new(3).expect("three digits"),
            };
            let (began, ended) = (Instant::ZERO, Instant::ZERO);
            Ran { reads: side(), writes: side(), began, ended, ours, busy }
        };
        assert_eq!(bound(&ran(0.03, 1.0), 500.0, 10, &base), Bound::Volume);
        assert_eq!(bound(&ran(0.3, 0.97), 50_000.0, 256, &base), Bound::Machine);
        assert_eq!(bound(&ran(0.8, 0.8), 50_000.0, 256, &base), Bound::Machine);
        let mut slow = base;
        slow.percentiles.p50 = Duration::from_millis(10);
        assert_eq!(bound(&ran(0.1, 0.2), 20_000.0, 256, &slow), Bound::Requests);
    }
}

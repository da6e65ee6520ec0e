//! B02: L closed loops over a contract of 1000 IOPS wait L milliseconds for each request, whatever the base latency:
//! the bucket is empty, and each request queues behind one of every loop.

use std::time::Duration;

use futures_util::future::join_all;
use volume::Clock;

use super::{PAID, Stage, io2};
use crate::report::{Curve, Plot, Report, Stroke};

const LOOPS: [u32; 5] = [1, 2, 4, 8, 16];

/// The bucket is full at the start; a single loop spends it within 0.11 s.
const WARM_UP: Duration = Duration::from_secs(1);

pub(super) fn measure(report: &mut Report, seeds: &[u64], secs: u64) -> anyhow::Result<()> {
    let mut largest = 0.0f64;
    let mut points = Vec::new();
    for loops in LOOPS {
        let expected = f64::from(loops) * 1000.0 / PAID as f64;
        let latency = |&seed| mean_latency_ms(loops, secs, seed);
        let runs = seeds.iter().map(latency).collect::<Result<Vec<_>, _>>()?;
        let case = format!("mean latency, L = {loops}");
        report.runs("B02", &case, "simulated", &runs, "ms");
        report.row("B02", &case, "expected", expected, "ms");
        let deviations = runs.iter().map(|ms| (ms / expected - 1.0).abs());
        largest = deviations.fold(largest, f64::max);
        points.push((f64::from(loops), runs.iter().sum::<f64>() / runs.len() as f64));
    }
    let what = "largest deviation of the mean latency from L ms, as a fraction";
    report.check("B02", what, largest, [0.0, 0.05]);
    let expected = [(0.0, 0.0), (16.0, 16_000.0 / PAID as f64)];
    let curves = [
        Curve::new("expected", Stroke::Dashes, expected),
        Curve::new("simulated", Stroke::Dots, points),
    ];
    let title = format!("B02: closed loops over a contract of {PAID} IOPS");
    report.plots.push(Plot::new(title, ["closed loops", "mean latency, ms"], curves));
    Ok(())
}

/// Counts requests that began in `secs` virtual seconds after the warm-up.
fn mean_latency_ms(loops: u32, secs: u64, seed: u64) -> anyhow::Result<f64> {
    let stage = Stage::set(&io2(), Clock::simulated(), seed)?;
    let clock = &stage.clock;
    let from = clock.now() + WARM_UP;
    let until = from + Duration::from_secs(secs);
    let one = || async {
        let (mut waited, mut requests) = (Duration::ZERO, 0u32);
        while clock.now() < until {
            let start = clock.now();
            stage.read().await?;
            if start >= from {
                waited += clock.now().since(start);
                requests += 1;
            }
        }
        Ok::<_, volume::Error>((waited, requests))
    };
    let (mut waited, mut requests) = (Duration::ZERO, 0);
    for ended in clock.run(join_all((0..loops).map(|_| one()))) {
        let (loop_waited, loop_requests) = ended?;
        waited += loop_waited;
        requests += loop_requests;
    }
    Ok(waited.as_secs_f64() * 1000.0 / f64::from(requests))
}

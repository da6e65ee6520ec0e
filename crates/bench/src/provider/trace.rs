//! B01: a trace that Calcspar's authors recorded. One closed loop sends the requests of each second back to
//! back to an io2 volume of 1000 IOPS; a request is fast if it did not have to wait for a token.

use std::time::Duration;

use policy::contract::Contract;
use policy::time::Instant;
use volume::Clock;

use super::{PAID, Stage, io2};
use crate::report::{Curve, Plot, Report, Stroke};

/// Requests sent in each second.
const SENT: [u64; 20] = [
    1000, 1600, 900, 500, 2000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 0, 1000,
    1000, 1000, 1000, 1000,
];
/// Of those, how many were fast on the real volume.
const RECORDED: [u64; 20] =
    [1000, 1101, 440, 500, 1099, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1000, 1000, 1000, 1000, 1000];
/// The result of a continuous token bucket.
const EXPECTED: [u64; 20] =
    [1000, 1099, 439, 500, 1099, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1000, 1000, 1000, 1000, 1000];

/// The mean time of a fast request in the trace; its client needed 3 us between two requests.
const BASE: Duration = Duration::from_nanos(88_500);
const GAP: Duration = Duration::from_micros(3);

/// Between the slowest fast request (0.16 ms) and the fastest slow one (1 ms less the tokens earned meanwhile).
const FAST: Duration = Duration::from_micros(500);

pub(super) fn measure(report: &mut Report, seeds: &[u64]) -> anyhow::Result<()> {
    // The trace's volume was a little faster than the one behind the catalogue's percentiles.
    let catalogue = io2();
    let mut traced = catalogue.clone();
    let scale = BASE.as_secs_f64() / catalogue.latency.read.mean().as_secs_f64();
    traced.latency.read = catalogue.latency.read.scaled(scale);

    let runs = seeds.iter().map(|&seed| replay(&traced, seed)).collect::<Result<Vec<_>, _>>()?;
    for (second, sent) in SENT.iter().enumerate() {
        let case = format!("second {second}, {sent} sent");
        let mean = runs.iter().map(|fast| fast[second] as f64).sum::<f64>() / runs.len() as f64;
        report.row("B01", &case, "simulated", mean, UNIT);
        report.row("B01", &case, "expected", EXPECTED[second] as f64, UNIT);
        report.row("B01", &case, "recorded", RECORDED[second] as f64, UNIT);
    }
    let from = |truth| runs.iter().map(|fast| deviation(fast, truth)).collect::<Vec<_>>();
    let unit = "requests in a second";
    report.runs("B01", "largest deviation from expected", "simulated", &from(&EXPECTED), unit);
    report.runs("B01", "largest deviation from recorded", "simulated", &from(&RECORDED), unit);
    let largest = from(&EXPECTED).into_iter().fold(0.0, f64::max);
    report.check("B01", "largest deviation in a second and seed, in requests", largest, [0.0, 5.0]);

    let runs = seeds.iter().map(|&seed| replay(&catalogue, seed)).collect::<Result<Vec<_>, _>>()?;
    let from = |truth| runs.iter().map(|fast| deviation(fast, truth)).collect::<Vec<_>>();
    let case = "largest deviation from expected, with the catalogue's latency";
    report.runs("B01", case, "simulated", &from(&EXPECTED), unit);
    report.notes.push(format!(
        "B01 replays a volume whose fast requests took {:.1} us in the mean, as in the trace; those of \
         the catalogue's io2 take {:.1} us, which lets the bucket earn a few tokens more while it is \
         spent",
        BASE.as_secs_f64() * 1e6,
        catalogue.latency.read.mean().as_secs_f64() * 1e6,
    ));
    report.plots.push(plot(&replay(&traced, seeds[0])?));
    Ok(())
}

const UNIT: &str = "fast requests in a second";

/// Fast requests of each second.
fn replay(contract: &Contract, seed: u64) -> anyhow::Result<[u64; 20]> {
    let stage = Stage::set(contract, Clock::simulated(), seed)?;
    let clock = &stage.clock;
    let mut fast = [0; 20];
    clock.run(async {
        for (second, (fast, sent)) in fast.iter_mut().zip(SENT).enumerate() {
            // A late loop continues without a pause.
            clock.sleep_until(Instant::ZERO + Duration::from_secs(second as u64)).await;
            for _ in 0..sent {
                let start = clock.now();
                stage.read().await?;
                *fast += u64::from(clock.now().since(start) < FAST);
                clock.sleep(GAP).await;
            }
        }
        Ok::<_, volume::Error>(())
    })?;
    let total = stage.volume.meter().total;
    let (sent, slow) =
        (SENT.iter().sum::<u64>(), SENT.iter().sum::<u64>() - fast.iter().sum::<u64>());
    assert_eq!(total.requests, sent, "the provider saw every request");
    // The first of each queue waits only for the rest of its token, and may look fast.
    assert!(
        total.throttled.abs_diff(slow) <= 3,
        "client and provider agree: {total:?}, {slow} slow"
    );
    Ok(fast)
}

fn deviation(fast: &[u64; 20], truth: &[u64; 20]) -> f64 {
    fast.iter().zip(truth).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or_default() as f64
}

fn plot(fast: &[u64; 20]) -> Plot {
    let curve = |name: &str, stroke, values: &[u64], shift| {
        let points = values.iter().enumerate().map(|(x, y)| (x as f64 + shift, *y as f64));
        Curve::new(name, stroke, points)
    };
    let title = format!("B01: a recorded trace on a volume of {PAID} IOPS");
    Plot::new(
        title,
        ["second", "requests"],
        [
            curve("fast, simulated", Stroke::Bars, fast, 0.0),
            curve("fast, recorded", Stroke::Dots, &RECORDED, 0.5),
            curve("sent", Stroke::Dashes, &SENT, 0.5),
        ],
    )
}

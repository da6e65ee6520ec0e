//! How late a simulated volume answers in real time: the time that sleeping and waking up add to the contract's
//! latency. Every figure of a bench in real time includes it.
//!
//! A bare sleep of the same length is measured beside it: its lateness is the machine's, not the simulation's.

use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use policy::contract::{Contract, Latency, Percentiles};
use volume::Clock;
use volume::task;

use super::Stage;
use crate::machine;
use crate::report::{Axis, Curve, Plot, Report, Stroke};

/// The latency of every request: that of a fast network volume.
const ANSWER: Duration = Duration::from_micros(500);

/// The limit on the 99th percentile of lateness, on an idle machine.
const P99_MAX_US: f64 = 100.0;

const THREADS: [usize; 2] = [1, 8];

/// The duration of [`measure`].
pub(super) const fn real_secs(secs: u64) -> u64 {
    secs * 2 * THREADS.len() as u64
}

pub(super) fn measure(report: &mut Report, secs: u64, bar: &ProgressBar) -> anyhow::Result<()> {
    if let Some(load) = machine::load() {
        report.notes.push(format!(
            "the lateness in real time is meant for an idle machine; this one's load was {load} before"
        ));
    }
    let mut curves = Vec::new();
    for threads in THREADS {
        let name = if threads == 1 { "1 thread".into() } else { format!("{threads} threads") };
        for (scheme, waiting) in [("simulated", Waiting::Read), ("bare sleep", Waiting::Sleep)] {
            bar.set_message(format!("lateness in real time: {scheme}, {name}"));
            let late = lateness(waiting, threads, Duration::from_secs(secs))?;
            bar.inc(secs);
            let us = |quantile| match late.len() {
                0 => f64::NAN,
                _ => late.value_at_quantile(quantile) as f64 / 1e3,
            };
            for (percentile, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
                let case = format!("real time, {name}, {percentile}");
                report.row("B02", &case, scheme, us(quantile), "us late");
            }
            if matches!(waiting, Waiting::Read) {
                let what = format!("real time, {name}: 99 % of answers at most so late, in us");
                report.check("B02", &what, us(0.99), [0.0, P99_MAX_US]);
            }
            // Twenty points for each factor of ten of the remainder.
            let share = |n: i32| 1.0 - 0.1_f64.powf(f64::from(n) / 20.0);
            let known = |share: &f64| (1.0 - share) * late.len() as f64 >= 1.0;
            let stroke =
                if matches!(waiting, Waiting::Read) { Stroke::Line } else { Stroke::Dashes };
            let shares = (0..).map(share).take_while(known);
            let points = shares.map(|share| (share, us(share)));
            curves.push(Curve::new(format!("{scheme}, {name}"), stroke, points));
        }
    }
    let title = format!("Real time: how late an answer after {} us is", ANSWER.as_micros());
    let axes = ["percent of answers that were no later", "late by, us"];
    report.plots.push(Plot {
        x_axis: Axis::Nines,
        y_axis: Axis::Log,
        ..Plot::new(title, axes, curves)
    });
    Ok(())
}

/// A wait that should take [`ANSWER`].
#[derive(Clone, Copy)]
enum Waiting {
    /// A read from a simulated volume.
    Read,
    /// A sleep.
    Sleep,
}

/// Nanoseconds by which waits ended late, in threads that wait repeatedly.
fn lateness(waiting: Waiting, threads: usize, time: Duration) -> anyhow::Result<Histogram<u64>> {
    let answer = Percentiles::constant(ANSWER);
    let contract =
        Contract { latency: Latency { read: answer, write: answer }, ..Contract::unlimited() };
    let stage = Stage::set(&contract, Clock::real(), 0)?;
    let clock = &stage.clock;
    let until = clock.now() + time;
    let one = || {
        let mut late = histogram();
        task::block_on(async {
            while clock.now() < until {
                let start = clock.now();
                match waiting {
                    Waiting::Read => stage.read().await?,
                    Waiting::Sleep => clock.sleep_until(start + ANSWER).await,
                }
                let nanos = clock.now().since(start).saturating_sub(ANSWER).as_nanos();
                late.saturating_record(u64::try_from(nanos).unwrap_or(u64::MAX));
            }
            anyhow::Ok(late)
        })
    };
    let mut all = histogram();
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        for thread in running {
            all.add(thread.join().expect("a reader does not panic")?)
                .context("histograms of one kind add up")?;
        }
        Ok(all)
    })
}

/// Three digits from a nanosecond to ten seconds; later ones count as ten seconds.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(10_000_000_000, 3).expect("the bounds are in order")
}

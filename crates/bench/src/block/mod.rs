//! `bench block`: do devices that were sold most of a volume get it, whatever the others do?
//!
//! A store of block devices on a simulated gp3 volume, in virtual time: one device alone, and all of them, of which one is
//! flooded while a scrub runs.

mod names;
mod stand;

use std::time::Duration;

use futures_util::future::{join, join_all};
use volume::Clock;

use self::stand::{Got, Stand};
use crate::report::Report;
use crate::stats::median;
use crate::{Options, Profile};

/// The devices.
const DEVICES: usize = 16;

/// The part of the paid operations that they are sold together.
const SOLD: f64 = 0.85;

/// The requests that the flooding client keeps under way.
const DEPTH: usize = 64;

/// The row's id.
const ID: &str = "sold";

/// One run.
struct Outcome {
    /// The least part of its requests that a device got, of those that are not flooded.
    share: f64,
    /// The 99th percentile in microseconds: of one device alone, and of all beside the flood.
    alone_us: f64,
    beside_us: f64,
    /// Operations a second of the flooded device.
    flooded: f64,
    /// Reads a second of the scrub.
    scrubbed: f64,
}

/// Measures in virtual time.
///
/// # Errors
/// A request failed. A check that does not hold is not an error.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    let secs = match options.profile {
        Profile::Smoke => 5,
        Profile::Short => 30,
        Profile::Paper => 300,
    };
    let gp3 = stand::gp3()?;
    let paid = gp3.paid_iops().unwrap_or(0);
    let sold = (paid as f64 * SOLD) as u64 / DEVICES as u64;
    let seeds = (0..options.profile.runs()).map(|run| options.seed.wrapping_add(run));
    let runs = seeds.map(|seed| measure(sold, Duration::from_secs(secs), seed));
    let runs: Vec<_> = runs.collect::<anyhow::Result<_>>()?;
    let each = |figure: fn(&Outcome) -> f64| runs.iter().map(figure).collect::<Vec<_>>();

    let mut report = Report::new("block", options);
    let case = format!("{DEVICES} devices of {sold} operations a second");
    report.median(ID, &case, "one alone, p99", &each(|run| run.alone_us), "us");
    report.median(ID, &case, "beside the flood, p99", &each(|run| run.beside_us), "us");
    report.median(ID, &case, "flooded", &each(|run| run.flooded), "op/s");
    report.median(ID, &case, "scrub", &each(|run| run.scrubbed), "op/s");
    let share = median(&each(|run| run.share));
    report.check(ID, "least part of what it was sold that a device got", share, [0.99, 1.0]);
    let ratio = median(&each(|run| run.beside_us / run.alone_us));
    report.check(ID, "p99 beside the flood / p99 alone", ratio, [0.0, 1.2]);
    report.notes.push(format!(
        "virtual time, {secs} s of each run; a simulated gp3 volume of {paid} operations a second, of which {:.0} % are \
         sold; one device has {DEPTH} requests under way all the time, the others get as many requests as they were \
         sold, at equal distances; random blocks of 4 KiB, 70 % reads and 30 % durable writes; a scrub reads 256 KiB at a \
         time as fast as it may",
        100.0 * SOLD,
    ));
    report.assume(&gp3);
    Ok(report)
}

fn measure(sold: u64, run: Duration, seed: u64) -> anyhow::Result<Outcome> {
    let clock = Clock::simulated();
    let alone = clock.run(async {
        let stand = Stand::open(&clock, DEVICES, sold, run, seed).await?;
        stand.offer(1, clock.now()).await
    })?;
    let clock = Clock::simulated();
    let (others, flooded, scrubbed) = clock.run(async {
        let stand = Stand::open(&clock, DEVICES, sold, run, seed).await?;
        let begin = clock.now();
        let others = join_all((1..DEVICES).map(|device| stand.offer(device, begin)));
        let (flood, scrub) = (stand.flood(0, DEPTH, begin), stand.scrub(begin));
        let ((others, flooded), (scrubbed, cleaned)) =
            join(join(others, flood), join(scrub, stand.clean(begin))).await;
        cleaned?;
        let others: anyhow::Result<Vec<_>> = others.into_iter().collect();
        anyhow::Ok((others?, flooded?, scrubbed?))
    })?;
    let share = others.iter().map(|got| got.share).fold(1.0, f64::min);
    let (alone_us, beside_us) = (p99_us(&[alone]), p99_us(&others));
    Ok(Outcome { share, alone_us, beside_us, flooded, scrubbed })
}

fn p99_us(got: &[Got]) -> f64 {
    let mut all: Vec<_> = got.iter().flat_map(|got| &got.latencies).collect();
    all.sort_unstable();
    all.get(all.len() * 99 / 100).map_or(f64::NAN, |took| took.as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_and_a_scrub_take_nothing_from_devices_that_were_sold_their_part() {
        let options = Options { profile: Profile::Smoke, ..Options::default() };
        let report = run(&options).expect("memory does not fail");
        assert!(report.holds(), "{:?} {:?}", report.checks, report.rows);
        let figure = |scheme| {
            let row = report.rows.iter().find(|row| row.scheme == scheme).expect("its row");
            row.value.expect("it was measured")
        };
        // The flooded device gets what it was sold, and at most a second of it that it had saved up.
        let flooded = figure("flooded");
        assert!((159.0..159.0 * 1.25).contains(&flooded), "{flooded}");
        assert!(figure("scrub") > 10.0, "{}", figure("scrub"));
    }
}

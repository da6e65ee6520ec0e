//! `bench block`: do devices that were sold most of their volumes get it, whatever the others and the pool do?
//!
//! A store of block devices on simulated gp3 volumes, in virtual time: one device alone, and all of them, of which one is
//! flooded while a scrub runs, or while a volume is lost and the pool repairs itself.

mod stand;

use std::time::Duration;

use futures_util::future::{join, join_all, join3};
use policy::time::Instant;
use policy::units::MIB;
use volume::Clock;

use self::stand::{Got, Stand};
use crate::report::Report;
use crate::stats::median;
use crate::{Options, Profile};

/// The devices.
const DEVICES: usize = 16;

/// The part of the paid operations that they are sold together; a write counts once for each copy.
const SOLD: f64 = 0.85;

/// The requests that the flooding client keeps under way.
const DEPTH: usize = 64;

/// A row.
struct Case {
    id: &'static str,
    volumes: usize,
    copies: usize,
    /// What goes on beside the clients.
    work: Work,
    /// Bytes of other objects in the pool.
    beside: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Work {
    Scrub,
    Repair,
}

/// One run.
struct Outcome {
    /// The least part of its requests that a device got, of those that are not flooded.
    share: f64,
    /// The 99th percentile in microseconds: of one device alone, and of all beside the flood.
    alone_us: f64,
    beside_us: f64,
    /// Operations a second of the flooded device.
    flooded: f64,
    /// Reads a second of the scrub, or how many seconds the repair took.
    work: f64,
}

/// Measures in virtual time.
///
/// # Errors
/// A request failed. A check that does not hold is not an error.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    let (secs, beside) = match options.profile {
        Profile::Smoke => (8, 16 * MIB),
        Profile::Short => (30, 512 * MIB),
        Profile::Paper => (300, 2048 * MIB),
    };
    let cases = [
        Case { id: "sold", volumes: 1, copies: 1, work: Work::Scrub, beside: 0 },
        Case { id: "repair", volumes: 4, copies: 2, work: Work::Repair, beside },
    ];
    let gp3 = stand::gp3()?;
    let paid = gp3.paid_iops().unwrap_or(0);
    let mut report = Report::new("block", options);
    for case in cases {
        let all = (case.volumes as u64 * paid) as f64 / case.copies as f64;
        let sold = (all * SOLD) as u64 / DEVICES as u64;
        let seeds = (0..options.profile.runs()).map(|run| options.seed.wrapping_add(run));
        let runs = seeds.map(|seed| measure(&case, sold, Duration::from_secs(secs), seed));
        let runs: Vec<_> = runs.collect::<anyhow::Result<_>>()?;
        let each = |figure: fn(&Outcome) -> f64| runs.iter().map(figure).collect::<Vec<_>>();

        let id = case.id;
        let what = format!("{DEVICES} devices of {sold} operations a second");
        report.median(id, &what, "one alone, p99", &each(|run| run.alone_us), "us");
        report.median(id, &what, "beside the flood, p99", &each(|run| run.beside_us), "us");
        report.median(id, &what, "flooded", &each(|run| run.flooded), "op/s");
        let (work, unit) = match case.work {
            Work::Scrub => ("scrub", "op/s"),
            Work::Repair => ("repaired after", "s"),
        };
        report.median(id, &what, work, &each(|run| run.work), unit);
        let share = median(&each(|run| run.share));
        report.check(id, "least part of what it was sold that a device got", share, [0.99, 1.0]);
        let ratio = median(&each(|run| run.beside_us / run.alone_us));
        report.check(id, "p99 beside the flood / p99 alone", ratio, [0.0, 1.2]);
    }
    report.notes.push(format!(
        "virtual time, {secs} s of each run; simulated gp3 volumes of {paid} operations a second, of which {:.0} % are \
         sold; one device has {DEPTH} requests under way all the time, the others get as many requests as they were \
         sold, at equal distances; random blocks of 4 KiB, 70 % reads and 30 % durable writes",
        100.0 * SOLD,
    ));
    report.notes.push(format!(
        "sold: one volume; a scrub reads 256 KiB at a time as fast as it may. repair: four volumes and two copies; at the \
         beginning one volume is lost, with a quarter of the copies of the devices and of {} MiB beside them; requests count \
         whose turn came before all copies were there again",
        beside / MIB,
    ));
    report.assume(&gp3);
    Ok(report)
}

fn measure(case: &Case, sold: u64, run: Duration, seed: u64) -> anyhow::Result<Outcome> {
    let clock = Clock::simulated();
    let alone = clock.run(async {
        let stand = Stand::open(&clock, case, sold, run, seed).await?;
        stand.offer(1, clock.now()).await
    })?;
    let alone_us = p99_us(&[alone], Instant::FAR);
    let clock = Clock::simulated();
    clock.run(async {
        let stand = Stand::open(&clock, case, sold, run, seed).await?;
        let begin = clock.now();
        let others = join_all((1..DEVICES).map(|device| stand.offer(device, begin)));
        let work = async {
            match case.work {
                Work::Scrub => anyhow::Ok((stand.scrub(begin).await?, Instant::FAR)),
                Work::Repair => {
                    let whole = stand.repair(begin).await;
                    Ok((whole.since(begin).as_secs_f64(), whole))
                }
            }
        };
        let clients = join(others, stand.flood(0, DEPTH, begin));
        let ((others, flooded), work, cleaned) = join3(clients, work, stand.clean(begin)).await;
        cleaned?;
        let others: Vec<_> = others.into_iter().collect::<anyhow::Result<_>>()?;
        let (work, until) = work?;
        let share = others.iter().map(|got| got.share(until)).fold(1.0, f64::min);
        let beside_us = p99_us(&others, until);
        Ok(Outcome { share, alone_us, beside_us, flooded: flooded?, work })
    })
}

fn p99_us(got: &[Got], until: Instant) -> f64 {
    let mut all: Vec<_> = got.iter().flat_map(|got| got.until(until)).collect();
    all.sort_unstable();
    all.get(all.len() * 99 / 100).map_or(f64::NAN, |took| took.as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_a_scrub_and_a_repair_take_nothing_from_devices_that_were_sold_their_part() {
        let options = Options { profile: Profile::Smoke, ..Options::default() };
        let report = run(&options).expect("memory does not fail");
        assert!(report.holds(), "{:?} {:?}", report.checks, report.rows);
        let figure = |scheme| {
            let row = report.rows.iter().find(|row| row.scheme == scheme).expect("its row");
            row.value.expect("it was measured")
        };
        let repaired = figure("repaired after");
        assert!((0.5..8.0).contains(&repaired), "{repaired}");
        // The flooded device gets what it was sold, and at most a second of it that it had saved up.
        let flooded = figure("flooded");
        assert!((159.0..159.0 * 1.25).contains(&flooded), "{flooded}");
        assert!(figure("scrub") > 10.0, "{}", figure("scrub"));
    }
}

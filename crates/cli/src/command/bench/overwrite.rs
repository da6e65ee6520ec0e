//! `plimsoll bench overwrite`: what a durable overwrite of a block costs volumes that are sold by the operation.
//!
//! Six simulated gp3 volumes in virtual time, and a device of extents on them: one copy, three copies, and an erasure code
//! with a log. Everything that the gates grant counts, until the log is empty.

mod arm;
mod stand;

use std::process::ExitCode;
use std::time::Duration;

use bench::report::Report;
use bench::stats::median;
use bench::{Options, Profile};

use self::arm::{Arm, FIVE, Keys};
use self::stand::Got;
use super::Common;

/// The requests under way, as the row's case and id.
const DEPTH: usize = 16;

/// The row's id.
const ID: &str = "gp3";

/// Durable overwrites of blocks: what each costs the volumes, with copies and with fragments and a log
///
/// In virtual time, on six simulated gp3 volumes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll bench overwrite --profile smoke
  plimsoll bench overwrite --json overwrite.json --html overwrite.html")]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.common.give(&measure(&args.common.options(&[]))?)
}

/// Measures in virtual time.
///
/// # Errors
/// A request failed. A check that does not hold is not an error.
fn measure(options: &Options) -> anyhow::Result<Report> {
    let device: u64 = match options.profile {
        Profile::Smoke => 64 << 20,
        Profile::Short => 256 << 20,
        Profile::Paper => 4 << 30,
    };
    let mut report = Report::new("overwrite", options);
    for keys in Keys::ALL {
        for arm in Arm::ALL {
            let seeds = (0..options.profile.runs()).map(|run| options.seed.wrapping_add(run));
            let runs = seeds.map(|seed| stand::measure(arm, keys, device, DEPTH, seed));
            let runs: Vec<Got> = runs.collect::<anyhow::Result<_>>()?;
            let each = |figure: fn(&Got) -> f64| runs.iter().map(figure).collect::<Vec<_>>();
            let mut row = |what: &str, figure: fn(&Got) -> f64, unit: &str| {
                let case = format!("{}, {what}", keys.name());
                report.median(ID, &case, &arm.name(), &each(figure), unit);
            };
            row("cost of a write", Got::units, "operations");
            row("operations of a write", |got| got.operations, "operations");
            row("bytes of a write", |got| got.bytes / 1024.0, "KiB");
            row("rate", |got| got.per_sec, "op/s");
            row("p50", |got| ms(got.p50), "ms");
            row("p99", |got| ms(got.p99), "ms");
            if let (FIVE, Some(most)) = (arm, keys.band()) {
                let what = format!("operations that a write costs, {}, log of 5 %", keys.name());
                report.check(ID, &what, median(&each(Got::units)), [0.0, most]);
            }
        }
    }
    report.notes.push(format!(
        "virtual time; six simulated gp3 volumes of 3,000 operations and 125 MiB a second each; a device of {} MiB in extents; \
         as many durable writes of 4 KiB as it has blocks, {DEPTH} under way; the cost counts all operations and bytes that the \
         gates granted until the log was empty, the larger of operations and bytes / 43,690; a log is as large as the \
         given part of the device, each of its copies counted once, and an eighth of it, or all, is in memory",
        device >> 20
    ));
    report.assume(&stand::gp3()?);
    Ok(report)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logged_overwrite_costs_less_than_one_on_three_copies() {
        let device = 64 << 20;
        let measure = |arm, keys| stand::measure(arm, keys, device, DEPTH, 1);
        let of = |arm| measure(arm, Keys::Zipf).expect("memory does not fail");
        let (plain, copies) = (of(Arm::Copies { count: 1 }), of(Arm::Copies { count: 3 }));
        assert!((plain.operations - 1.0).abs() < 0.05, "{plain:?}");
        assert!((copies.operations - 3.0).abs() < 0.1, "{copies:?}");
        let logged = of(FIVE);
        assert!(logged.units() < copies.units() && logged.units() > 0.3, "{logged:?}");
        // What is not in memory is read back.
        let in_memory = Arm::Logged { percent: 5, in_memory: true };
        let of = [in_memory, FIVE].map(|arm| measure(arm, Keys::Uniform).expect("as above"));
        assert!(of[0].operations < 0.95 * of[1].operations, "{of:?}");
    }
}

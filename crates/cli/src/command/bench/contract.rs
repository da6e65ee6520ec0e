//! `plimsoll bench contract`.

mod baselines;
mod case;
mod fixture;
mod rows;
mod scale;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use bench::Profile;
use bench::compare::{Plan, each_once};
use bench::report::Report;
use volume::Clock;

use self::baselines::HISTORY;
use self::case::{Bencher, Case};
use self::fixture::{Image, OPENING};
use self::scale::Scale;
use super::fixture::load_takes;
use super::{Compared, Timed, announce};
use crate::command::interrupt::Interrupt;

/// Stores that keep to a contract beside stores that do not: flat p99 at the line, or not
///
/// Runs schemes side by side on equal simulated volumes: RocksDB as it is, with its own rate limiter, behind
/// the schedulers that were published, and ours. Every scheme has the same bytes of cache, a copy of the
/// same loaded database, and the same load from the same seeds. The guide of benches says what each row asks.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll bench contract --profile smoke
  plimsoll bench contract --rows B04,B05 --html contract.html
  plimsoll bench contract --json contract.json --html contract.html   # every row: an hour and a half")]
pub(super) struct Args {
    #[command(flatten)]
    compared: Compared,

    #[command(flatten)]
    timed: Timed,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let options = args.compared.options();
    let (profile, runs) = (options.profile, args.compared.runs);
    let scale = Scale::of(profile, runs, args.timed.time(profile));
    let plan = Plan::new(rows::all(&scale), &options, &rows::SMOKE)?;
    let opening = if profile == Profile::Smoke { OPENING / 10 } else { OPENING };
    let takes: Duration = plan.cases.iter().map(|case| case.takes(&scale, opening)).sum();
    let work = format!("{} records to load, then {}", scale.records(), plan.size());
    announce("contract", takes + load_takes(scale.records()), &work);

    let interrupt = Interrupt::listen().context("listen to signals")?;
    let clock = Clock::real();
    let image = Image::load(&scale, options.seed, &clock, interrupt.asked())?;
    let bencher =
        Bencher { image: &image, scale, clock, stop: interrupt.asked(), seed: options.seed };
    let mut report = Report::new("contract", &options);
    describe(&mut report, &scale, &image, &plan);
    args.compared.run(&plan, report, &interrupt, |case| bencher.measure(case))
}

/// Adds the notes that a reader of the report needs.
fn describe(report: &mut Report, scale: &Scale, image: &Image, plan: &Plan<Case>) {
    report.notes.push(format!(
        "{} records of {} + {} bytes, a {}th of the papers'; tables {} MiB, memtable {} MiB, first level {} \
         MiB, no compression, 10 bits of filter; tables by level after the load: {:?}",
        image.records,
        scale::KEY_BYTES,
        scale::VALUE_BYTES,
        scale.divisor,
        scale.sizes.table >> 20,
        scale.sizes.memtable >> 20,
        scale.sizes.level_base >> 20,
        image.levels,
    ));
    report.notes.push(format!(
        "{} runs of {} if they run at the same time, else of {}, after {} that do not count; one period of the \
         sine in each; the skew inside a key \
         range is scaled with the number of keys",
        scale.runs,
        humantime::format_duration(scale.time),
        humantime::format_duration(scale.time / u32::try_from(scale.runs).unwrap_or(1)),
        humantime::format_duration(scale.lead),
    ));
    report.notes.push(
        "volumes are simulated on memory; the schemes of a case run at the same time where all of them \
         together are paid for at most 9000 IOPS, else in turn; latencies are of the closed loop, from the \
         start of an operation; rows named /open are a run of their own, from the intended start"
            .into(),
    );
    for scheme in each_once(plan.cases.iter().flat_map(|case| &case.schemes)) {
        let (name, gate, cache) = (scheme.name, scheme.gate.name(), scheme.cache);
        report.notes.push(format!("{name}: {} (gate {gate}, cache {cache:?})", scheme.about));
    }
    report.history.extend(HISTORY.iter().map(|line| (*line).to_owned()));
}

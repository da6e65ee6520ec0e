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
use super::real::{OnVolumes, RealVolumes};
use super::{Compared, Timed, announce};
use crate::command::interrupt::Interrupt;

/// Stores that keep to a contract beside stores that do not: flat p99 at the line, or not
///
/// Runs schemes side by side on equal simulated volumes: RocksDB as it is, with its own rate limiter, behind
/// the schedulers that were published, and ours. Every scheme has the same bytes of cache, a copy of the
/// same loaded database, and the same load from the same seeds. The guide of benches says what each row asks.
///
/// With -c the stores are on the volumes of a settings file's pool, one each: as many schemes run at the same
/// time as there are volumes, else in turn. Loads are scaled to what the volumes are paid for.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll bench contract --profile smoke
  plimsoll bench contract --rows B04,B05 --html contract.html
  plimsoll bench contract --json contract.json --html contract.html   # every row: an hour and a half
  plimsoll bench contract -c plimsoll.toml --rows B05 --runs 1        # your volumes, of equal contracts")]
pub(super) struct Args {
    #[command(flatten)]
    compared: Compared,

    #[command(flatten)]
    timed: Timed,

    #[command(flatten)]
    on: OnVolumes,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let options = args.compared.options();
    let (profile, runs) = (options.profile, args.compared.runs);
    let scale = Scale::of(profile, runs, args.timed.time(profile));
    let interrupt = Interrupt::listen().context("listen to signals")?;
    let real = args.on.open(profile)?;
    let mut rows = rows::all(&scale);
    if let Some(real) = &real {
        rows::refuse_on_real(&options.rows)?;
        rows.retain(|row| !rows::is_simulated_only(row.id));
        rows.iter_mut().flat_map(|row| &mut row.cases).for_each(|case| case.scale_to(real.paid));
    }
    let plan = Plan::new(rows, &options, &rows::SMOKE)?;
    let mut opening = if profile == Profile::Smoke { OPENING / 10 } else { OPENING };
    if let Some(real) = &real {
        opening += real.opening(scale.data(), scale.warm_reads);
    }
    let stores = real.as_ref().map(|real| real.all.len());
    let takes: Duration = plan.cases.iter().map(|case| case.takes(&scale, opening, stores)).sum();
    let work = format!("{} records to load, then {}", scale.records(), plan.size());
    announce("contract", takes + load_takes(scale.records()), &work);

    let clock = Clock::real();
    let image = Image::load(&scale, options.seed, &clock, interrupt.asked())?;
    let bencher = Bencher {
        image: &image,
        scale,
        clock,
        stop: interrupt.asked(),
        seed: options.seed,
        real: real.as_ref(),
    };
    let mut report = Report::new("contract", &options);
    describe(&mut report, &scale, &image, &plan, real.as_ref());
    args.compared.run(&plan, report, &interrupt, |case| bencher.measure(case))
}

/// Adds the notes that a reader of the report needs.
fn describe(
    report: &mut Report,
    scale: &Scale,
    image: &Image,
    plan: &Plan<Case>,
    real: Option<&RealVolumes>,
) {
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
    let (volumes, room) = match real {
        None => ("volumes are simulated on memory", ""),
        Some(_) => {
            ("each store has a volume of its own", "there is a volume for each of them and ")
        }
    };
    report.notes.push(format!(
        "{volumes}; the schemes of a case run at the same time where {room}all of them together are paid for \
         at most 9000 IOPS, else in turn; latencies are of the closed loop, from the start of an operation; \
         rows named /open are a run of their own, from the intended start"
    ));
    if let Some(real) = real {
        real.describe(report);
        report.notes.push(format!(
            "the rate of each load is scaled to {} IOPS: {}",
            real.paid,
            scales(plan)
        ));
    }
    for scheme in each_once(plan.cases.iter().flat_map(|case| &case.schemes)) {
        let (name, gate, cache) = (scheme.name, scheme.gate.name(), scheme.cache);
        report.notes.push(format!("{name}: {} (gate {gate}, cache {cache:?})", scheme.about));
    }
    report.history.extend(HISTORY.iter().map(|line| (*line).to_owned()));
}

/// The factors of the cases' rates, and which cases have each.
fn scales(plan: &Plan<Case>) -> String {
    let factors = each_once(plan.cases.iter().map(|case| case.times));
    let with = |factor: f64| {
        let cases = plan.cases.iter().filter(|case| case.times == factor);
        let names: Vec<_> = cases.map(|case| &*case.name).collect();
        format!("x {factor} ({})", names.join("; "))
    };
    factors.into_iter().map(with).collect::<Vec<_>>().join(", ")
}

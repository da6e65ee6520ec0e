//! `plimsoll bench spread`.

mod case;
mod fixture;
mod rows;
mod scale;
mod schemes;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use bench::compare::{Plan, each_once};
use bench::report::Report;
use policy::units::Bytes;
use volume::Clock;

use self::case::{Bencher, Case};
use self::scale::{SHAPE, Scale, VOLUME_DIVISOR};
use self::schemes::{HISTORY, Scheme};
use super::fixture::load_takes;
use super::real::{OnVolumes, RealVolumes};
use super::{Compared, Timed, announce};
use crate::command::interrupt::Interrupt;

/// Placements side by side: how much of six volumes one store gets
///
/// Runs schemes on pools of equal simulated volumes: tables in turn, by hash, striped, one large volume, and
/// ours. Each has the same records, written through its own placement, and the same load from the same seeds;
/// nothing but indexes and filters is cached. The guide of benches says what each row asks.
///
/// With -c the stores are on the volumes of a settings file's pool, one store at a time; most rows need six
/// volumes of equal contracts.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll bench spread --profile smoke
  plimsoll bench spread --rows B18,B21 --html spread.html
  plimsoll bench spread --json spread.json --html spread.html   # every row: about an hour
  plimsoll bench spread -c plimsoll.toml --rows B18 --runs 1    # your volumes, of equal contracts")]
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
    let plan = Plan::new(rows::all(&scale), &options, &rows::SMOKE)?;
    let real = args.on.open(profile)?;
    if let Some(real) = &real {
        check_volumes(&plan, real.all.len())?;
    }
    let schemes = each_once(plan.cases.iter().flat_map(|case| &case.schemes));
    let loads = load_takes(scale.records) * u32::try_from(schemes.len()).unwrap_or(u32::MAX);
    let takes = plan
        .cases
        .iter()
        .map(|case| case.takes(&scale, real.as_ref()))
        .sum::<anyhow::Result<Duration>>()?;
    let work = format!(
        "{} records to load for each of {} schemes, then {}",
        scale.records,
        schemes.len(),
        plan.size()
    );
    announce("spread", takes + loads, &work);

    let clock = Clock::real();
    let mut bencher = Bencher::new(scale, clock, interrupt.asked(), options.seed, real.as_ref());
    let mut report = Report::new("spread", &options);
    describe(&mut report, &scale, &schemes, real.as_ref())?;
    for scheme in &schemes {
        if interrupt.is_asked() {
            break;
        }
        if let Some(levels) = bencher.load(scheme)? {
            let line = format!("{}: tables by level after the load: {levels:?}", scheme.name);
            report.notes.push(line);
        }
    }
    args.compared.run(&plan, report, &interrupt, |case| bencher.measure(case))
}

/// Adds the notes that a reader of the report needs.
fn describe(
    report: &mut Report,
    scale: &Scale,
    schemes: &[&Scheme],
    real: Option<&RealVolumes>,
) -> anyhow::Result<()> {
    report.notes.push(format!(
        "{} records of {} + {} bytes, {} without overhead; tables {}, memtable {}, first level {}, no \
         compression, 10 bits of filter; only indexes and filters are cached",
        scale.records,
        SHAPE.key_bytes,
        SHAPE.value_bytes,
        Bytes(scale.data()),
        Bytes(scale.sizes.table),
        Bytes(scale.sizes.memtable),
        Bytes(scale.sizes.level_base),
    ));
    if let Some(real) = real {
        real.describe(report);
    } else {
        let contract = scale::contract()?;
        report.notes.push(format!(
            "volumes are simulated on memory: gp3, IOPS and bytes a second divided by {VOLUME_DIVISOR}: {} paid \
             operations a second each",
            contract.paid_iops().unwrap_or(0),
        ));
        report.assume(&contract);
    }
    report.notes.push(format!(
        "{} runs of {} after {} that do not count, of {} threads on six volumes, closed loop; the schemes of a \
         run {}",
        scale.runs,
        humantime::format_duration(scale.time / u32::try_from(scale.runs).unwrap_or(1)),
        humantime::format_duration(scale.lead),
        scale.threads,
        if real.is_some() { "in turn, each on the first volumes of the file" } else { "at the same time" },
    ));
    for scheme in schemes {
        report.notes.push(format!("{}: {}", scheme.name, scheme.about));
    }
    report.history.extend(HISTORY.iter().map(|line| (*line).to_owned()));
    Ok(())
}

/// Refuses rows that need more volumes than are `there`.
fn check_volumes(plan: &Plan<Case>, there: usize) -> anyhow::Result<()> {
    for row in &plan.rows {
        let needed = row.cases.iter().map(Case::volumes).max().unwrap_or(0);
        ensure!(
            needed <= there,
            "row {} needs {needed} volumes of equal contracts, and the file's pool has {there}: add volumes, or \
             name other rows with --rows",
            row.id
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::{Options, Profile};

    #[test]
    fn a_row_that_needs_more_volumes_than_there_are_is_refused() {
        let scale = Scale::of(Profile::Smoke, None, Duration::from_secs(1));
        let check = |rows: &[&str], there| {
            let rows = rows.iter().map(|row| (*row).to_owned()).collect();
            let options = Options { rows, ..Options::default() };
            let plan = Plan::new(rows::all(&scale), &options, &rows::SMOKE).expect("known rows");
            check_volumes(&plan, there).map_err(|error| error.to_string())
        };
        assert_eq!(check(&[], 6), Ok(()));
        assert_eq!(check(&["B17w"], 3), Ok(()));
        for row in ["B18", "B20g"] {
            let refused = check(&[row, "B17w"], 5).expect_err("it needs six");
            assert!(refused.contains(&format!("row {row} needs 6 volumes")), "{refused}");
        }
    }
}

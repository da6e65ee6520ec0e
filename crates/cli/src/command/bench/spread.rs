//! `plimsoll bench spread`.

mod cell;
mod rows;
mod scale;
mod schemes;
mod stand;
mod watched;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use bench::Profile;
use bench::compare::{Cells, each_once, wanted};
use bench::report::Report;
use bench::spread::Sheet;
use policy::units::Bytes;
use volume::Clock;

use self::cell::{Bencher, Case};
use self::scale::{SHAPE, Scale, VOLUME_DIVISOR};
use self::schemes::{HISTORY, Scheme};
use super::{Common, Measured};
use crate::command::interrupt::Interrupt;

/// Placements side by side: how much of six volumes one store gets
///
/// Runs schemes on pools of equal simulated volumes: tables in turn, by hash, striped, one large volume, and
/// ours. Each has the same records, written through its own placement, and the same load from the same seeds;
/// nothing but indexes and filters is cached. The guide of benches says what each row asks.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll bench spread --profile smoke
  plimsoll bench spread --rows B18,B21 --html spread.html
  plimsoll bench spread --json spread.json --html spread.html   # every row: about an hour")]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    measured: Measured,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let options = args.common.options(&args.measured.rows);
    let mut scale = Scale::of(options.profile);
    scale.time = args.measured.time.unwrap_or(scale.time);
    scale.runs = args.measured.runs.unwrap_or(scale.runs);
    let usual = |id: &str| options.profile != Profile::Smoke || rows::SMOKE.contains(&id);
    let rows = wanted(rows::all(&scale), |row| row.id, &args.measured.rows, usual)?;
    let cases = each_once(rows.iter().flat_map(|row| &row.cases));
    let schemes = each_once(cases.iter().flat_map(|case| &case.schemes));
    let loads = scale.load_takes() * u32::try_from(schemes.len()).unwrap_or(u32::MAX);
    let takes = cases.iter().map(|case| case.takes(&scale)).sum::<anyhow::Result<Duration>>()?;
    println!(
        "bench spread takes about {}: {} records to load for each of {} schemes, then {} rows of {} cases",
        humantime::format_duration(Duration::from_secs((takes + loads).as_secs().max(1))),
        scale.records,
        schemes.len(),
        rows.len(),
        cases.len(),
    );

    let interrupt = Interrupt::listen().context("listen to signals")?;
    let mut bencher = Bencher::new(scale, Clock::real(), interrupt.asked(), options.seed);
    let mut report = Report::new("spread", &options);
    describe(&mut report, &scale, &schemes)?;
    for scheme in &schemes {
        if interrupt.is_asked() {
            break;
        }
        if let Some(levels) = bencher.load(scheme)? {
            let line = format!("{}: tables by level after the load: {levels:?}", scheme.name);
            report.notes.push(line);
        }
    }
    let mut cells = Cells::new(cases.len());
    let mut sheet = Sheet::new(&mut report);
    for row in &rows {
        let measure = |case: &Case| bencher.measure(case);
        let measured = cells.measure(row.id, &row.cases, interrupt.asked(), measure)?;
        let Some(measured) = measured else { break };
        measured.iter().for_each(|cell| sheet.cell(row.id, cell));
        (row.tell)(&mut sheet, &measured);
    }
    cells.end();
    sheet.sound(cells.all());
    args.common.end(&mut report, &interrupt)
}

/// Adds the notes that a reader of the report needs.
fn describe(report: &mut Report, scale: &Scale, schemes: &[&Scheme]) -> anyhow::Result<()> {
    let contract = stand::contract()?;
    report.notes.push(format!(
        "{} records of {} + {} bytes, {} without overhead; tables {}, memtable {}, first level {}, no \
         compression, 10 bits of filter; only indexes and filters are cached",
        scale.records,
        SHAPE.key_bytes,
        SHAPE.value_bytes,
        Bytes(scale.data()),
        Bytes(scale.table),
        Bytes(scale.memtable),
        Bytes(scale.level_base),
    ));
    report.notes.push(format!(
        "volumes are simulated on memory: gp3, IOPS and bytes a second divided by {VOLUME_DIVISOR}: {} paid \
         operations a second each",
        contract.paid_iops().unwrap_or(0),
    ));
    report.notes.push(format!(
        "{} runs of {} after {} that do not count, of {} threads on six volumes, closed loop; the schemes of a \
         run at the same time",
        scale.runs,
        humantime::format_duration(scale.time / u32::try_from(scale.runs).unwrap_or(1)),
        humantime::format_duration(scale.lead),
        scale.threads,
    ));
    report.assume(&contract);
    for scheme in schemes {
        report.notes.push(format!("{}: {}", scheme.name, scheme.about));
    }
    report.history.extend(HISTORY.iter().map(|line| (*line).to_owned()));
    Ok(())
}

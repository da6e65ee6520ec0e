//! `plimsoll bench contract`.

mod baselines;
mod cell;
mod rows;
mod scale;
mod stand;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use bench::Profile;
use bench::compare::{Cells, each_once, wanted};
use bench::contract::Sheet;
use bench::report::Report;
use volume::Clock;

use self::baselines::{HISTORY, NEVER_OVERDRAW};
use self::cell::{Bencher, Case};
use self::rows::Row;
use self::scale::Scale;
use self::stand::{Image, OPENING};
use super::{Common, Measured};
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
    common: Common,

    #[command(flatten)]
    measured: Measured,
}

/// The rate at which records load, at least: for estimates of the duration.
const LOADS_PER_SEC: u64 = 40_000;

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let options = args.common.options(&args.measured.rows);
    let mut scale = Scale::of(options.profile);
    scale.time = args.measured.time.unwrap_or(scale.time);
    scale.runs = args.measured.runs.unwrap_or(scale.runs);
    let usual = |id: &str| options.profile != Profile::Smoke || rows::SMOKE.contains(&id);
    let rows = wanted(rows::all(&scale), |row| row.id, &args.measured.rows, usual)?;
    let cases = each_once(rows.iter().flat_map(|row| &row.cases));
    let opening = if options.profile == Profile::Smoke { OPENING / 10 } else { OPENING };
    let takes: Duration = cases.iter().map(|case| case.takes(&scale, opening)).sum();
    let load = Duration::from_secs(scale.records().div_ceil(LOADS_PER_SEC));
    println!(
        "bench contract takes about {}: {} records to load, then {} rows of {} cases",
        humantime::format_duration(Duration::from_secs((takes + load).as_secs().max(1))),
        scale.records(),
        rows.len(),
        cases.len(),
    );

    let interrupt = Interrupt::listen().context("listen to signals")?;
    let clock = Clock::real();
    let image = Image::load(&scale, options.seed, &clock, interrupt.asked())?;
    let bencher =
        Bencher { image: &image, scale, clock, stop: interrupt.asked(), seed: options.seed };
    let mut report = Report::new("contract", &options);
    describe(&mut report, &scale, &image, &rows);
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
    sheet.sound(cells.all(), &NEVER_OVERDRAW);
    args.common.end(&mut report, &interrupt)
}

/// Adds the notes that a reader of the report needs.
fn describe(report: &mut Report, scale: &Scale, image: &Image, rows: &[Row]) {
    report.notes.push(format!(
        "{} records of {} + {} bytes, a {}th of the papers'; tables {} MiB, memtable {} MiB, first level {} \
         MiB, no compression, 10 bits of filter; tables by level after the load: {:?}",
        image.records,
        scale::KEY_BYTES,
        scale::VALUE_BYTES,
        scale.divisor,
        scale.table >> 20,
        scale.memtable >> 20,
        scale.level_base >> 20,
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
    let mut told = Vec::new();
    for scheme in rows.iter().flat_map(|row| &row.cases).flat_map(|case| &case.schemes) {
        if !told.contains(&scheme.name) {
            told.push(scheme.name);
            let (gate, cache) = (scheme.gate.name(), scheme.cache);
            let line = format!("{}: {} (gate {gate}, cache {cache:?})", scheme.name, scheme.about);
            report.notes.push(line);
        }
    }
    report.history.extend(HISTORY.iter().map(|line| (*line).to_owned()));
}

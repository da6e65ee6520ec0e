//! `plimsoll bench series`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use bench::Profile;
use bench::compare::{Cells, each_once, wanted};
use bench::report::Report;
use bench::series::{self, Bencher, Case, Home, Row, SMOKE, Scale, Sheet, takes};
use policy::merge::Rule;

use super::Common;
use crate::command::interrupt::Interrupt;
use crate::command::scratch::Scratch;

/// The log store on disks: what merging copies, and what it leaves of the bandwidth, rule by rule
///
/// Runs the store on simulated 7200 rpm disks in virtual time, or in a directory in real time. Every rule of
/// merging has equal disks and the same puts from the same seeds. The guide of benches says what each row asks.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll bench series --profile smoke
  plimsoll bench series --rows B38,flat --html series.html
  plimsoll bench series --rows fill --policies greedy,death-time
  plimsoll bench series --rows B38 --dir /mnt/disk --runs 1      # a real disk; nothing is left of it
  plimsoll bench series --json series.json --html series.html    # every row")]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,

    /// The rows to measure, as B38,flat [default: all; of smoke a few]
    #[arg(long, value_delimiter = ',', value_name = "IDS")]
    rows: Vec<String>,

    /// The rules to measure: static, greedy, fisherman-product, fisherman, death-time [default: all]
    #[arg(long, value_delimiter = ',', value_name = "RULES", value_parser = rule)]
    policies: Vec<Rule>,

    /// Runs of each rule, with a seed each [default: 1 smoke, 3 short, 5 paper]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,

    /// Measure in a directory below this one, in real time, instead of on simulated disks
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
}

fn rule(name: &str) -> Result<Rule, String> {
    let names = || Rule::ALL.map(Rule::name).join(", ");
    Rule::named(name).ok_or_else(|| format!("there are {}", names()))
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let options = args.common.options(&args.rows);
    let mut scale = Scale::of(options.profile);
    scale.runs = args.runs.unwrap_or(scale.runs);
    let rules = if args.policies.is_empty() { &Rule::ALL[..] } else { &args.policies };
    // One directory counts as one disk.
    let (is_real, smoke) = (args.dir.is_some(), options.profile == Profile::Smoke);
    let usual = |id: &str| (!smoke || SMOKE.contains(&id)) && !(is_real && id == "B40");
    let rows = wanted(series::all(&scale, rules), |row| row.id, &args.rows, usual)?;
    anyhow::ensure!(
        !is_real || rows.iter().all(|row| row.id != "B40"),
        "row B40 is about several disks: leave --dir out"
    );
    let cases = each_once(rows.iter().flat_map(|row| &row.cases));

    // Dropped at the end, also on errors.
    let scratch = args.dir.as_ref().map(|dir| Scratch::new(dir, "series")).transpose()?;
    let home = match &scratch {
        None => Home::Simulated,
        Some(scratch) => Home::Directory(scratch.path().join("volume")),
    };
    let time: Duration = cases.iter().map(|case| takes(case, scale.runs, &home)).sum();
    println!(
        "bench series takes about {}: {} rows of {} cases",
        humantime::format_duration(Duration::from_secs(time.as_secs().max(1))),
        rows.len(),
        cases.len(),
    );

    let interrupt = Interrupt::listen().context("listen to signals")?;
    let mut report = Report::new("series", &options);
    describe(&mut report, &scale, &rows, &home, args)?;
    let bencher = Bencher { home, runs: scale.runs, seed: options.seed, stop: interrupt.asked() };
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
fn describe(
    report: &mut Report,
    scale: &Scale,
    rows: &[Row],
    home: &Home,
    args: &Args,
) -> anyhow::Result<()> {
    let shape = rows.iter().flat_map(|row| &row.cases).map(|case| &case.shape).next();
    let Some(shape) = shape else { return Ok(()) };
    let contract = shape.contract()?;
    match (home, &args.dir) {
        (Home::Directory(_), Some(dir)) => report.notes.push(format!(
            "in {}, in real time: one store at a time, on a thread for each client; what it could do at most \
             is not known",
            dir.display()
        )),
        _ => report.notes.push(format!(
            "disks are simulated in virtual time on memory: {}, {} MiB/s, a capacity five times the store's, as \
             the paper's was, so that arms move as far; in the rows B37, B39, B42 and death sizes are smaller \
             still, and seeks and turns are divided by as much as objects are; the processor costs nothing in \
             virtual time and is never the limit: what it took is told as seconds for each second of the disks",
            contract.name,
            contract.disk.as_ref().map_or(0, |disk| disk.transfer_per_sec >> 20),
        )),
    }
    let capacities =
        each_once(rows.iter().flat_map(|row| &row.cases).map(|case| case.shape.capacity >> 20));
    let (least, most) = (capacities.iter().min(), capacities.iter().max());
    report.notes.push(format!(
        "capacities are {} to {} MiB where the paper had 100 GB; R/C, V, n and U_m are told with each case; a \
         scaled minute is 60 s · C / 100 GB: as large a part of the disk can be written in it as in a minute of \
         the paper's",
        least.unwrap_or(&0),
        most.unwrap_or(&0),
    ));
    report.notes.push(format!(
        "{} runs; clients with one put each under way, in a closed loop; in the rows B42 and death at a pace that \
         leaves merges the time they need; puts are written when they are answered, and not synced, as the \
         paper's",
        scale.runs,
    ));
    report.assume(&contract);
    for row in rows {
        report.notes.push(format!("{}: {}", row.id, row.about));
    }
    Ok(())
}

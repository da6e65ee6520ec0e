//! `plimsoll bench series`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use bench::compare::Plan;
use bench::report::Report;
use bench::series::{self, Bencher, Case, Home, SMOKE, Scale, takes};
use policy::merge::Rule;

use super::{Compared, announce};
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
    compared: Compared,

    /// The rules to measure: static, greedy, fisherman-product, fisherman, death-time [default: all]
    #[arg(long, value_delimiter = ',', value_name = "RULES", value_parser = rule)]
    policies: Vec<Rule>,

    /// Measure in a directory below this one, in real time, instead of on simulated disks
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
}

fn rule(name: &str) -> Result<Rule, String> {
    let names = || Rule::ALL.map(Rule::name).join(", ");
    Rule::named(name).ok_or_else(|| format!("there are {}", names()))
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let options = args.compared.options();
    let scale = Scale::of(options.profile);
    let runs = args.compared.runs.unwrap_or(options.profile.runs());
    let rules = if args.policies.is_empty() { &Rule::ALL[..] } else { &args.policies };
    let mut plan = Plan::new(series::all(&scale, rules), &options, &SMOKE)?;
    if args.dir.is_some() {
        // One directory counts as one disk.
        anyhow::ensure!(
            options.rows.is_empty() || plan.rows.iter().all(|row| row.id != "B40"),
            "row B40 is about several disks: leave --dir out"
        );
        plan.leave_out("B40");
    }

    // Dropped at the end, also on errors.
    let scratch = args.dir.as_ref().map(|dir| Scratch::new(dir, "series")).transpose()?;
    let home = match &scratch {
        None => Home::Simulated,
        Some(scratch) => Home::Directory(scratch.path().join("volume")),
    };
    announce("series", plan.cases.iter().map(|case| takes(case, runs, &home)).sum(), &plan.size());

    let interrupt = Interrupt::listen().context("listen to signals")?;
    let mut report = Report::new("series", &options);
    describe(&mut report, runs, &plan.cases, args)?;
    let bencher = Bencher { home, runs, seed: options.seed, stop: interrupt.asked() };
    args.compared.run(&plan, report, &interrupt, |case| bencher.measure(case))
}

/// Adds the notes that a reader of the report needs.
fn describe(report: &mut Report, runs: u64, cases: &[Case], args: &Args) -> anyhow::Result<()> {
    let Some(case) = cases.first() else { return Ok(()) };
    let contract = case.shape.contract()?;
    match &args.dir {
        Some(dir) => report.notes.push(format!(
            "in {}, in real time: one store at a time, on a thread for each client; what it could do at most \
             is not known",
            dir.display()
        )),
        None => report.notes.push(format!(
            "disks are simulated in virtual time on memory: {}, {} MiB/s, a capacity five times the store's, as \
             the paper's was, so that arms move as far; in the rows B37, B39, B42 and death sizes are smaller \
             still, and seeks and turns are divided by as much as objects are; the processor costs nothing in \
             virtual time and is never the limit: what it took is told as seconds for each second of the disks",
            contract.name,
            contract.disk.as_ref().map_or(0, |disk| disk.transfer_per_sec >> 20),
        )),
    }
    let capacities = || cases.iter().map(|case| case.shape.capacity >> 20);
    let (least, most) = (capacities().min(), capacities().max());
    report.notes.push(format!(
        "capacities are {} to {} MiB where the paper had 100 GB; R/C, V, n and U_m are told with each case; a \
         scaled minute is 60 s · C / 100 GB: as large a part of the disk can be written in it as in a minute of \
         the paper's",
        least.unwrap_or(0),
        most.unwrap_or(0),
    ));
    report.notes.push(format!(
        "{runs} runs; clients with one put each under way, in a closed loop; in the rows B42 and death at a pace that \
         leaves merges the time they need; puts are written when they are answered, and not synced, as the \
         paper's",
    ));
    report.assume(&contract);
    Ok(())
}

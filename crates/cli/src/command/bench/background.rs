//! `plimsoll bench background`.

use std::process::ExitCode;

use anyhow::Context;
use bench::background::{self, Bencher, Scale};
use bench::compare::Plan;
use bench::report::Report;

use super::Compared;
use crate::command::interrupt::Interrupt;

/// What users feel of a pool's own work: rebuild, scrub and merges, alone and together
///
/// In virtual time, on seven simulated gp3 volumes, with fragments and with copies.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll bench background --profile smoke
  plimsoll bench background --rows B43 --html background.html")]
pub(super) struct Args {
    #[command(flatten)]
    compared: Compared,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let options = args.compared.options();
    let scale = Scale::of(options.profile, args.compared.runs);
    let interrupt = Interrupt::listen().context("listen to signals")?;
    let plan = Plan::new(background::all(), &options, &background::SMOKE)?;
    println!("bench background measures {} in virtual time", plan.size());
    let mut report = Report::new("background", &options);
    scale.describe(&mut report)?;
    let bencher = Bencher { scale, seed: options.seed, stop: interrupt.asked() };
    args.compared.run(&plan, report, &interrupt, |case| bencher.measure(case))
}

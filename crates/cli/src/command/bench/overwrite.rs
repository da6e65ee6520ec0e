//! `plimsoll bench overwrite`.

use std::process::ExitCode;

use super::Common;

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
    args.common.give(&bench::overwrite::run(&args.common.options(&[]))?)
}

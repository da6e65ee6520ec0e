//! `plimsoll bench block`.

use std::process::ExitCode;

use super::Common;

/// Block devices that are sold most of their volumes: what each gets while one is flooded, and a scrub or a repair runs
///
/// In virtual time, on simulated gp3 volumes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll bench block --profile smoke
  plimsoll bench block --json block.json --html block.html")]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.common.give(&bench::block::run(&args.common.options(&[]))?)
}

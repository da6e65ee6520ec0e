//! `plimsoll bench provider`.

use std::process::ExitCode;

use super::Common;

/// The simulated provider against its published trace (B01, B02), in virtual time; how late real sleeps
/// are beside it
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll bench provider --profile smoke
  plimsoll bench provider --rows B01 --json b01.json --html b01.html")]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,

    /// The rows to measure, such as B01,B02; all if none is given
    #[arg(long, value_delimiter = ',', value_name = "ROWS")]
    rows: Vec<String>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.common.give(&bench::provider::run(&args.common.options(&args.rows))?)
}

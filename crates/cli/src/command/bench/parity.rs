//! `plimsoll bench parity`.

use std::process::ExitCode;

use super::Common;

/// Small durable writes on disks: copies, and erasure-coded groups by how parity follows (B31 to B34)
///
/// In virtual time, on six simulated disks of 7200 rpm. Compares writes in place, a log of parity's changes, and speculative
/// writes (PARIX), each until it is answered and until all logs are merged.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll bench parity --profile smoke
  plimsoll bench parity --rows B31,B32 --html parity.html")]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,

    /// The rows to measure, such as B31,B32; all if none is given
    #[arg(long, value_delimiter = ',', value_name = "ROWS")]
    rows: Vec<String>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.common.give(&bench::parity::measure(&args.common.options(&args.rows))?)
}

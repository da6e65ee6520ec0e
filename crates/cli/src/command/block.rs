//! `plimsoll block`: block devices.

use std::process::ExitCode;

mod attach;
mod detach;
mod kernel;
mod netlink;

/// Makes block devices of a server disks of this machine
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Attach(attach::Args),
    Detach(detach::Args),
}

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Attach(args) => attach::run(args),
        Command::Detach(args) => detach::run(args),
    }?;
    Ok(ExitCode::SUCCESS)
}

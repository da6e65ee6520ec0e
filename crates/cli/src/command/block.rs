//! `plimsoll block`: creates, lists, resizes and deletes block devices.

mod devices;

use std::process::ExitCode;

/// Creates, lists, resizes and deletes block devices of a running server
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Create(devices::CreateArgs),
    List(devices::ListArgs),
    Resize(devices::ResizeArgs),
    Delete(devices::DeleteArgs),
}

pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Create(args) => devices::create(&args),
        Command::List(args) => devices::list(&args),
        Command::Resize(args) => devices::resize(&args),
        Command::Delete(args) => devices::delete(&args),
    }?;
    Ok(ExitCode::SUCCESS)
}

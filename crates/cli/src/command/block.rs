//! `plimsoll block`: creates, lists, limits, resizes, releases and deletes block devices, and makes them disks of this machine.

mod attach;
mod detach;
mod devices;
mod kernel;
mod netlink;
mod secure;

use std::process::ExitCode;

/// Creates, lists, limits, resizes, releases and deletes block devices of a server, and makes them disks of this machine
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Create(devices::CreateArgs),
    List(devices::ListArgs),
    Limit(devices::LimitArgs),
    Resize(devices::ResizeArgs),
    Release(devices::ReleaseArgs),
    Delete(devices::DeleteArgs),
    Attach(attach::Args),
    Detach(detach::Args),
}

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Create(args) => devices::create(args),
        Command::List(args) => devices::list(args),
        Command::Limit(args) => devices::limit(args),
        Command::Resize(args) => devices::resize(args),
        Command::Release(args) => devices::release(args),
        Command::Delete(args) => devices::delete(args),
        Command::Attach(args) => return attach::run(args),
        Command::Detach(args) => detach::run(args),
    }?;
    Ok(ExitCode::SUCCESS)
}

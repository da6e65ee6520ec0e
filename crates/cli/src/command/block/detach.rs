//! `plimsoll block detach`: frees a device that `attach` took.

use std::path::PathBuf;

use anyhow::bail;

use super::kernel::{Backend, Device};

/// Frees a device that `plimsoll block attach` took
///
/// Its `attach` ends. Unmount the file system first: the kernel fails what it has not written yet.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll block detach /dev/nbd0
  plimsoll block detach /dev/nbd0 --force     # the server is gone for good")]
pub(crate) struct Args {
    /// The device, such as /dev/nbd0
    device: PathBuf,

    /// Detach although a file system or another device uses it: unwritten changes are lost
    #[arg(long)]
    force: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let device = Device::at(&args.device)?;
    let path = args.device.display();
    match device.backend()? {
        Backend::Free => bail!("{path} is not attached"),
        Backend::Unnamed => bail!("{path} was not attached by plimsoll: detach it by what did"),
        Backend::Named(_) => (),
    }
    if !args.force && device.is_in_use()? {
        bail!("{path} is in use: unmount it first (`findmnt {path}`, `lsblk {path}`)");
    }
    device.disconnect()?;
    println!("{path} is detached");
    Ok(())
}

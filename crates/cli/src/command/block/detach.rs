//! `plimsoll block detach`: frees a device that `attach` took.

use std::path::PathBuf;

use anyhow::bail;
use tokio::runtime::Builder;

use super::attach::identity::Identity;
use super::attach::{client, kept_lease};
use super::kernel::{Backend, Device};

/// Frees a device that `plimsoll block attach` took
///
/// Its `attach` ends, and gives up the lease of the block device. A server that does not answer at that moment keeps the lease: this
/// command says so, and how to free the block device. Unmount the file system first: the kernel fails what it has not written yet.
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
    let backend = match device.backend()? {
        Backend::Free => bail!("{path} is not attached"),
        Backend::Unnamed => bail!("{path} was not attached by plimsoll: detach it by what did"),
        Backend::Named(backend) => backend,
    };
    if !args.force && device.is_in_use()? {
        bail!("{path} is in use: unmount it first (`findmnt {path}`, `lsblk {path}`)");
    }
    device.disconnect()?;
    println!("{path} is detached");
    // `attach` ends the lease. If it cannot, only its log says so, which users of this command may not see.
    if let Some(Identity { token: Some(_), server, name, .. }) = Identity::read(&backend)
        && !Builder::new_current_thread().enable_all().build()?.block_on(client::answers(&server))
    {
        eprintln!("plimsoll: {}", kept_lease(&server, &name, &path.to_string()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_held_is_told_with_the_ways_out() {
        let told = kept_lease("store:10809", "vm1", "/dev/nbd0");
        assert!(told.contains("`plimsoll block release vm1`"), "{told}");
        assert!(told.contains("`plimsoll block attach vm1 /dev/nbd0`"), "{told}");
    }
}

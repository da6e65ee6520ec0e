//! `plimsoll block detach`: frees a device that `attach` took.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;

use anyhow::bail;
use tokio::runtime::Builder;

use super::attach::client::Failure;
use super::attach::identity::Identity;
use super::attach::{FOREVER, UNHEARD, client, give_up_lease, kept_lease};
use super::kernel::{Backend, Device, Terms};
use super::secure;

/// Frees a device that `plimsoll block attach` took
///
/// Its `attach` ends, and gives up the lease of the block device; if it was killed, this command gives it up, over TLS with the
/// options of `attach`. A server that does not answer at that moment keeps the lease: this command says so, and how to free the
/// block device. Unmount the file system first: the kernel fails what it has not written yet.
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

    #[command(flatten)]
    tls: secure::Files,
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
    let leased = Identity::read(&backend).filter(|identity| identity.token.is_some());
    let Some(identity) = leased else {
        device.disconnect()?;
        println!("{path} is detached");
        return Ok(());
    };
    let secure = args.tls.to(&identity.server)?;
    let terms =
        Terms { size: device.size()?, flags: identity.flags, backend: &backend, wait: FOREVER };
    // The kernel takes a new socket only if no `attach` serves the device.
    let orphan = device.reconnect(&terms).ok();
    orphan.as_ref().map(drain).transpose()?;
    device.disconnect()?;
    println!("{path} is detached");
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let why = match orphan {
        Some(_) => {
            let given = give_up_lease(&identity, &args.device, secure.as_ref());
            runtime.block_on(given).err().map(|failure| match failure {
                Failure::Away(error) => format!("cannot be asked ({error})"),
                failure => format!("did not give it up ({failure})"),
            })
        }
        // `attach` ends the lease. If it cannot, only its log says so, which users of this command may not see.
        None => {
            let answers = runtime.block_on(client::answers(&identity.server));
            (!answers).then(|| UNHEARD.into())
        }
    };
    if let Some(why) = why {
        let Identity { server, name, .. } = &identity;
        eprintln!("plimsoll: {}", kept_lease(server, name, &path.to_string(), &why));
    }
    Ok(())
}

/// Reads what the kernel sends, until it closes the socket: it sends requests that were under way again, and could not
/// detach the device before they are sent.
fn drain(socket: &UnixStream) -> io::Result<()> {
    let mut socket = socket.try_clone()?;
    socket.set_nonblocking(false)?;
    thread::spawn(move || io::copy(&mut socket, &mut io::sink()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_held_is_told_with_the_ways_out() {
        let told = kept_lease("store:10809", "vm1", "/dev/nbd0", UNHEARD);
        assert!(told.contains("`plimsoll block release vm1`"), "{told}");
        assert!(told.contains("`plimsoll block attach vm1 /dev/nbd0`"), "{told}");
    }
}

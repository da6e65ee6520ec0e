//! `plimsoll block attach`: a block device of a server as `/dev/nbdN`.
//!
//! ```text
//!   file system ─ /dev/nbdN ─ kernel's driver ─ pair of sockets ─ attach ─ TCP or Unix socket ─ server
//! ```
//!
//! The kernel's driver could have the connection to the server itself. But when that breaks, the driver repeats requests
//! under way only after a time-out in whole seconds. So the process stays between the two (`relay`): it repeats them as
//! soon as the server is back, and the kernel notices a pause and nothing else. If this process dies, the kernel keeps all
//! requests, and the next `attach` of the device gives it a new socket.
//!
//! One connection per device: with several, the driver does not let its time-out be turned off, and an outage of the server
//! that is longer would fail requests (`nbd_xmit_timeout` in drivers/block/nbd.c).

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use engine::block::Holder;
use rustix::mm::MlockAllFlags;
use rustix::process::configure_io_flusher_behavior;
use serve::nbd::wire::{Export, LeaseRequest, flags};
use tokio::net::UnixStream;
use tokio::runtime::Builder;
use volume::Clock;

use self::client::{Connection, Failure, Secure};
use self::identity::Identity;
use self::link::{Around, Detached, End, Link};
use super::kernel::{Backend, Device, Terms};
use super::secure;
use crate::command::chain;

pub(super) mod client;
mod holder;
pub(super) mod identity;
mod link;
mod outgoing;
mod relay;

/// Transmission flags that the kernel makes use of. Others are for clients that do more than it.
const FLAGS: u16 = flags::HAS_FLAGS
    | flags::READ_ONLY
    | flags::SEND_FLUSH
    | flags::SEND_FUA
    | flags::SEND_TRIM
    | flags::SEND_WRITE_ZEROES
    | flags::CAN_MULTI_CONN;
/// The exit status when another host holds the device. A supervisor that starts this command again leaves it at that.
const HELD: u8 = 3;
/// Why a lease stays whose server cannot be asked.
pub(super) const UNHEARD: &str = "does not answer";
/// The limit of one attempt to reach the server's machine.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// "Forever" for the kernel, which counts down in ticks of up to 1 ms in a signed 32-bit number on some machines.
pub(super) const FOREVER: Duration = Duration::from_secs(20 * 86400);

/// Makes a block device of a server a disk of this machine
///
/// Runs until `plimsoll block detach`. While the server is away or starts again, reads and writes of the disk wait, and
/// go on when it is back: no I/O fails. Until then no other host may write to the block device.
/// Needs root and the kernel's module nbd. Start it again if it was killed: nothing is
/// lost, and requests under way go on within 30 s. The exit status is 3 if another host holds the device. docs/guide/plimsoll-attach@.service does that by systemd.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  modprobe nbd
  plimsoll block attach root /dev/nbd0
  plimsoll block attach root /dev/nbd0 --server 10.0.0.7:10809 --give-up 10min
  plimsoll block attach root /dev/nbd0 --force    # the host that held it is gone for good
  plimsoll block attach root /dev/nbd0 --server store:10809 --tls-ca ca.pem --tls-cert host.pem --tls-key host.key
  plimsoll block attach root /dev/nbd0 --server /run/plimsoll/nbd")]
pub(crate) struct Args {
    /// The name of the block device at the server
    name: String,

    /// The device that it becomes, such as /dev/nbd0
    device: PathBuf,

    /// Where the server listens: HOST:PORT, or the path of a Unix socket
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:10809")]
    server: String,

    #[command(flatten)]
    tls: secure::Files,

    /// Detach, which fails all I/O of the disk, when the server was away for so long; without it, wait forever
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    give_up: Option<Duration>,

    /// Let nothing be written, and leave the device to the host that holds it
    #[arg(long)]
    read_only: bool,

    /// Take the device away from the host that holds it, and from clients that may write to it: their I/O fails
    #[arg(long, conflicts_with = "read_only")]
    force: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let device = Device::at(&args.device)?;
    // Read once: a read while the server is away could wait for this very disk.
    let secure = args.tls.to(&args.server)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(attach(args, &device, secure)) {
        Err(error) if is_of_another(&error) => {
            eprintln!("plimsoll: {}", chain(&error));
            Ok(ExitCode::from(HELD))
        }
        ended => ended.map(|()| ExitCode::SUCCESS),
    }
}

/// Whether another host holds the device: to try again would take it from the host that comes after that one.
fn is_of_another(error: &anyhow::Error) -> bool {
    let is_held = matches!(error.downcast_ref(), Some(Failure::Held(_)));
    is_held || matches!(error.downcast_ref(), Some(End::Lost(_)))
}

impl Args {
    /// The lease to take, or the one that an earlier process took for this device.
    fn lease(&self, token: Option<u64>) -> LeaseRequest {
        let force = self.force && token.is_none();
        LeaseRequest { force, ..lease(&self.name, &self.device, token) }
    }
}

/// The lease of a block device for a device of this machine.
fn lease(name: &str, device: &Path, token: Option<u64>) -> LeaseRequest {
    let Holder { id: holder, name: holder_name } = holder::of(&device.display().to_string());
    LeaseRequest { name: name.into(), holder, holder_name, token, force: false }
}

/// Gives up the lease of a device that no process serves any more, as its `attach` would have done.
///
/// # Errors
/// The server could not be asked, or refused.
pub(super) async fn give_up_lease(
    identity: &Identity,
    device: &Path,
    secure: Option<&Secure>,
) -> Result<(), Failure> {
    let Identity { id, token, server, name, .. } = identity;
    let lease = lease(name, device, *token);
    let released = async {
        let stream = client::dial(server).await?;
        client::release(client::negotiate(stream, name, id, Some(&lease), secure).await?).await;
        Ok(())
    };
    let released = tokio::select! {
        released = released => released,
        () = Clock::real().sleep(CONNECT_MAX) => {
            Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into())
        }
    };
    match released {
        // It was given up already, and another host may have it.
        Err(Failure::Held(_)) => Ok(()),
        released => released,
    }
}

async fn attach(args: &Args, device: &Device, secure: Option<Secure>) -> anyhow::Result<()> {
    let path = args.device.display();
    let clock = Clock::real();
    let (identity, is_new) = match device.backend()? {
        Backend::Free => (Identity::new(&args.server, &args.name), true),
        Backend::Unnamed => bail!("{path} is attached to something else: take another device"),
        Backend::Named(backend) => {
            let identity = Identity::parse(&backend, &args.server, &args.name);
            let identity = identity.with_context(|| {
                format!("{path} is attached to {backend:?}: take another device, or `plimsoll block detach {path}` first")
            })?;
            (identity, false)
        }
    };
    let wait = args.give_up.map_or(FOREVER, |most| most.min(FOREVER));
    let lease = (!args.read_only).then(|| args.lease(identity.token));
    let mut around = Outside { args, device, secure, clock: clock.clone(), identity, lease };
    let (export, socket, first) = if is_new {
        let server = &args.server;
        let first = around.dial().await.map_err(|failure| match failure {
            Failure::Held(why) => anyhow!(Failure::Held(format!(
                "{why}; --force takes the device away, and I/O there fails"
            ))),
            failure => anyhow!(failure).context(format!("the server at {server}")),
        })?;
        let export = first.export;
        if first.epoch.is_none() {
            tracing::warn!(
                "the server cannot end earlier connections of this device: if the network breaks while the server \
                 runs on, an earlier write may overtake a later one"
            );
        }
        if first.token.is_none() && !args.read_only {
            tracing::warn!(
                "the server keeps no leases: nothing stops another host from writing to this device"
            );
        }
        around.identity.flags = export.flags;
        around.identity.token = first.token;
        let backend = around.identity.to_string();
        let terms = Terms { size: export.size, flags: export.flags, backend: &backend, wait };
        match device.connect(&terms) {
            Ok(socket) => (export, socket, Some(first)),
            Err(error) => {
                tokio::select! {
                    () = client::release(first) => (),
                    () = clock.sleep(CONNECT_MAX) => (),
                }
                return Err(error);
            }
        }
    } else {
        let export = Export { size: device.size()?, flags: around.identity.flags };
        let backend = around.identity.to_string();
        let terms = Terms { size: export.size, flags: export.flags, backend: &backend, wait };
        (export, device.reconnect(&terms)?, None)
    };
    socket.set_nonblocking(true)?;
    stay_in_memory();
    println!("attached: {} of {} is {path}, {} bytes", args.name, args.server, export.size);
    let is_leased = around.identity.token.is_some();
    let link = Link::new(UnixStream::from_std(socket)?, around, clock, export, args.give_up);
    match link.run(first).await {
        Ok(Detached::Unheard) if is_leased => {
            let kept = kept_lease(&args.server, &args.name, &path.to_string(), UNHEARD);
            tracing::warn!("{path} is detached; {kept}");
            Ok(())
        }
        Ok(_) => {
            tracing::info!("{path} is detached");
            Ok(())
        }
        Err(end @ (End::GaveUp { .. } | End::Lost(_))) => {
            device.disconnect()?;
            Err(end).with_context(|| format!("{path} is detached, and its I/O fails"))
        }
        Err(end) => Err(end).with_context(|| path.to_string()),
    }
}

/// Tells what a detach that the server does not hear of leaves there, and the ways out.
pub(super) fn kept_lease(server: &str, name: &str, path: &str, why: &str) -> String {
    format!(
        "the server at {server} {why}, so block device {name} stays held by this host: \
         `plimsoll block attach {name} {path}` here takes it again without --force, and \
         `plimsoll block release {name}` at the server gives it up"
    )
}

/// The kernel writes memory back through this process when memory is short, so the process must not wait for that itself.
fn stay_in_memory() {
    // Both need privileges that root in a container may lack, and matter only when memory is short.
    if let Err(error) = configure_io_flusher_behavior(true) {
        tracing::warn!(
            "the kernel does not take this process for one that does I/O for it: {error}"
        );
    }
    let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if let Err(error) = rustix::mm::mlockall(all) {
        tracing::warn!("the memory of this process may be swapped out: {error}");
    }
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", "-1000") {
        tracing::warn!("the kernel may kill this process when memory is short: {error}");
    }
}

/// The server, and the device of the kernel.
struct Outside<'a> {
    args: &'a Args,
    device: &'a Device,
    secure: Option<Secure>,
    clock: Clock,
    identity: Identity,
    /// Unless nothing is written.
    lease: Option<LeaseRequest>,
}

impl Around for Outside<'_> {
    async fn dial(&mut self) -> Result<Connection, Failure> {
        let stream = tokio::select! {
            stream = client::dial(&self.args.server) => stream?,
            () = self.clock.sleep(CONNECT_MAX) => {
                return Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
            }
        };
        let Self { args, identity, secure, lease, .. } = self;
        let (name, id, secure) = (&args.name, &identity.id, secure.as_ref());
        let mut connection = client::negotiate(stream, name, id, lease.as_ref(), secure).await?;
        if let Some(lease) = lease {
            lease.token = connection.token.or(lease.token);
            // Only the command itself may take it away from others, and no later connection.
            lease.force = false;
        }
        let flags = &mut connection.export.flags;
        *flags = (*flags & FLAGS) | if args.read_only { flags::READ_ONLY } else { 0 };
        Ok(connection)
    }

    fn resize(&mut self, size: u64) -> anyhow::Result<()> {
        self.device.resize(size, &self.identity.to_string())
    }
}

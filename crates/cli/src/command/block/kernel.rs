//! A device `/dev/nbdN` of the kernel's driver `nbd` (linux/nbd-netlink.h).

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::netlink::{Attributes, Socket};

/// Commands of the driver.
const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;
const RECONFIGURE: u8 = 3;
/// Attributes of commands.
const INDEX: u16 = 1;
const SIZE_BYTES: u16 = 2;
const BLOCK_SIZE_BYTES: u16 = 3;
const TIMEOUT: u16 = 4;
const SERVER_FLAGS: u16 = 5;
const SOCKETS: u16 = 7;
const DEAD_CONN_TIMEOUT: u16 = 8;
const BACKEND_IDENTIFIER: u16 = 10;
/// Attributes of `SOCKETS`.
const SOCKET_ITEM: u16 = 1;
const SOCKET_FD: u16 = 1;

/// The unit of requests, in bytes: that of Plimsoll's block devices.
const BLOCK: u64 = 4096;

/// The largest requests to ask of the kernel, in KiB. By default they have 128, so a read of a MiB is eight operations of an
/// export whose contract counts each 256 KiB as one.
const REQUEST_KIB: u64 = 1024;

/// A device of the driver, attached or not.
pub(super) struct Device {
    path: PathBuf,
    index: u32,
}

/// What a device is attached to.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Backend {
    /// Nothing: it is free.
    Free,
    /// What the identifier names, given when it was attached.
    Named(String),
    /// Something without an identifier: another program attached it, or the kernel is older than 5.14.
    Unnamed,
}

/// What the kernel learns of an export.
pub(super) struct Terms<'a> {
    /// In bytes.
    pub(super) size: u64,
    /// Transmission flags of the protocol.
    pub(super) flags: u16,
    /// Names the device's owner to the next `attach`.
    pub(super) backend: &'a str,
    /// How long the kernel keeps requests while no `attach` is there.
    pub(super) wait: Duration,
}

impl Device {
    /// # Errors
    /// The path does not name a whole device of the driver.
    pub(super) fn at(path: &Path) -> anyhow::Result<Self> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let index = name.strip_prefix("nbd").and_then(|index| index.parse().ok());
        let index = index
            .with_context(|| format!("{}: give a device such as /dev/nbd0", path.display()))?;
        Ok(Self { path: path.into(), index })
    }

    /// # Errors
    /// The driver's files in /sys cannot be read.
    pub(super) fn backend(&self) -> anyhow::Result<Backend> {
        let read = |name: &str| {
            let path = format!("/sys/block/nbd{}/{name}", self.index);
            match fs::read_to_string(&path) {
                Ok(text) => Ok(Some(text.trim_end().to_owned())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error).context(path),
            }
        };
        // `pid` exists while the device is attached, and `backend` if it got an identifier.
        Ok(match (read("pid")?, read("backend")?) {
            (None, _) => Backend::Free,
            (Some(_), Some(backend)) => Backend::Named(backend),
            (Some(_), None) => Backend::Unnamed,
        })
    }

    /// The size that the kernel knows, in bytes.
    ///
    /// # Errors
    /// The driver's files in /sys cannot be read.
    pub(super) fn size(&self) -> anyhow::Result<u64> {
        const SECTOR: u64 = 512;
        let path = format!("/sys/block/nbd{}/size", self.index);
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        Ok(text.trim_end().parse::<u64>().with_context(|| path)? * SECTOR)
    }

    /// Whether a file system, a device mapper or swap uses the device. `false` if it is not there.
    ///
    /// # Errors
    /// It cannot be opened for another reason.
    pub(super) fn is_in_use(&self) -> anyhow::Result<bool> {
        // Of a block device, `EXCL` without `CREATE` fails while the kernel uses it itself: open(2).
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
        match rustix::fs::open(&self.path, flags, Mode::empty()) {
            Ok(_) => Ok(false),
            Err(Errno::BUSY) => Ok(true),
            Err(Errno::NOENT | Errno::NXIO) => Ok(false),
            Err(error) => Err(error).with_context(|| self.path.display().to_string()),
        }
    }

    /// Attaches a free device. Returns the other end of its socket.
    ///
    /// # Errors
    /// The kernel's, with the way out.
    pub(super) fn connect(&self, terms: &Terms) -> anyhow::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair().context("a pair of sockets")?;
        let theirs = OwnedFd::from(theirs);
        let attributes = self
            .named(terms.backend)
            .u64(SIZE_BYTES, terms.size)
            .u64(BLOCK_SIZE_BYTES, BLOCK)
            // The kernel never gives up a request by itself. It looks every 30 s for those whose socket was replaced.
            .u64(TIMEOUT, 0)
            .u64(SERVER_FLAGS, terms.flags.into())
            .u64(DEAD_CONN_TIMEOUT, terms.wait.as_secs().max(1))
            .nested(SOCKETS, &socket(&theirs));
        self.call(CONNECT, &attributes)?;
        self.allow_large_requests();
        Ok(ours)
    }

    /// Lets the kernel send requests of [`REQUEST_KIB`]. A host that does not let this program change them keeps its own.
    fn allow_large_requests(&self) {
        let path = format!("/sys/block/nbd{}/queue/max_sectors_kb", self.index);
        let now = fs::read_to_string(&path).ok().and_then(|kib| kib.trim_end().parse::<u64>().ok());
        if now.is_some_and(|kib| kib < REQUEST_KIB)
            && let Err(error) = fs::write(&path, REQUEST_KIB.to_string())
        {
            tracing::debug!("{path} stays as it is: {error}");
        }
    }

    /// Gives an attached device a new socket in place of one whose other end was closed. Returns the other end.
    ///
    /// # Errors
    /// The kernel's, with the way out; or another process still serves the device.
    pub(super) fn reconnect(&self, terms: &Terms) -> anyhow::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair().context("a pair of sockets")?;
        let theirs = OwnedFd::from(theirs);
        let attributes = self
            .named(terms.backend)
            .u64(SIZE_BYTES, terms.size)
            .u64(DEAD_CONN_TIMEOUT, terms.wait.as_secs().max(1))
            .nested(SOCKETS, &socket(&theirs));
        self.call(RECONFIGURE, &attributes)?;
        drop(theirs);
        // A driver that needs no socket drops it without an error, so its end is closed now.
        ours.set_nonblocking(true)?;
        match rustix::net::recv(&ours, &mut [0_u8; 1][..], rustix::net::RecvFlags::PEEK) {
            Ok((0, _)) => bail!(
                "{} is served by another `plimsoll block attach`; stop that one first",
                self.path.display()
            ),
            _ => {
                self.allow_large_requests();
                Ok(ours)
            }
        }
    }

    /// Tells the kernel the size of an attached device, in bytes.
    ///
    /// # Errors
    /// The kernel's, with the way out.
    pub(super) fn resize(&self, size: u64, backend: &str) -> anyhow::Result<()> {
        self.call(RECONFIGURE, &self.named(backend).u64(SIZE_BYTES, size))
    }

    /// Detaches the device. The kernel fails the requests that were not answered.
    ///
    /// # Errors
    /// The kernel's, with the way out.
    pub(super) fn disconnect(&self) -> anyhow::Result<()> {
        self.call(DISCONNECT, &Attributes::default().u32(INDEX, self.index))
    }

    fn named(&self, backend: &str) -> Attributes {
        Attributes::default().u32(INDEX, self.index).text(BACKEND_IDENTIFIER, backend)
    }

    fn call(&self, command: u8, attributes: &Attributes) -> anyhow::Result<()> {
        let device = self.path.display();
        let netlink = Socket::open().context("a netlink socket")?;
        let family = match netlink.family("nbd") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                bail!("{device}: the kernel's driver nbd is not loaded: modprobe nbd")
            }
            family => family.context("the kernel's driver nbd")?,
        };
        let error = match netlink.call(family, command, attributes) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::PERM | Errno::ACCESS) => {
                bail!("{device}: only root may attach and detach devices: use sudo")
            }
            Some(Errno::BUSY) => {
                bail!(
                    "{device} is attached already: take another device, or `plimsoll block detach {device}` first"
                )
            }
            _ => Err(error).with_context(|| device.to_string()),
        }
    }
}

fn socket(theirs: &OwnedFd) -> Attributes {
    let number = u32::try_from(theirs.as_raw_fd()).unwrap_or(u32::MAX); // Never negative.
    Attributes::default().nested(SOCKET_ITEM, &Attributes::default().u32(SOCKET_FD, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_devices_of_the_driver_are_taken() {
        assert_eq!(Device::at(Path::new("/dev/nbd12")).ok().map(|device| device.index), Some(12));
        for path in ["/dev/nbd0p1", "/dev/sda", "/dev/nbd", "nbd-1", "/", "/dev/nbdx"] {
            let error = Device::at(Path::new(path)).err().map(|error| error.to_string());
            assert_eq!(error, Some(format!("{path}: give a device such as /dev/nbd0")));
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_free() {
        let device = Device::at(Path::new("/dev/nbd4000000")).expect("a device");
        assert_eq!(device.backend().expect("free"), Backend::Free);
        assert!(!device.is_in_use().expect("free"));
    }
}
